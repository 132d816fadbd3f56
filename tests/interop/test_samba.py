"""Samba's client, with its own DCE/RPC, NTLM and SPNEGO, against the daemon, at every level and in both byte orders."""

from __future__ import annotations

import itertools
import os
import socket
import struct
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from command_line import add_user
from daemon import Daemon
from interop.impacket_client import PASSWORD, USER
from interop.samba_connection import ANONYMOUS, Samba, SambaError, need_samba
from openmsmq import ReceiveTimeout
from openmsmq.interfaces import ms_mqmp, ms_mqrr
from openmsmq.model.security import sid_bytes

CALLER = (USER, PASSWORD)
LEVELS = ("connect", "packet", "sign", "seal")
MECHANISMS = ("ntlm", "spnego")
AUTHENTICATED = [f"{mechanism},{level}" for mechanism in MECHANISMS for level in LEVELS]
# Samba's defaults for what the binding leaves open, and the cases of big-endian integers.
DEFAULTS = [*MECHANISMS, *LEVELS]
BIG_ENDIAN = ["", "ntlm,connect", "ntlm,packet", "ntlm,sign", "ntlm,seal", "spnego,packet", "spnego,seal"]
SEVERAL_FRAGMENTS = 30_000  # at most 5840 bytes each
LARGEST_BODY = 4 * 1024 * 1024 - 4096  # 4 MiB including the headers of a message
NT_STATUS_ACCESS_DENIED = 0xC0000022
NT_STATUS_LOGON_FAILURE = 0xC000006D
RR_NACK, RR_ACK = 1, 2
_names = itertools.count()


class AbandonLock(Exception):
    """Raised to leave the block of a locked message."""


@pytest.fixture(scope="module", autouse=True)
def _samba() -> None:
    need_samba()


@pytest.fixture
def queue() -> str:
    return f".\\private$\\samba{next(_names)}"


@pytest.fixture(scope="module")
def second(daemon: Daemon) -> str:
    """Return the SID of another user."""
    return add_user(daemon.directory, "second", "Other#1")


def caller(options: str) -> tuple[str, str]:
    return CALLER if options else ANONYMOUS


@pytest.mark.parametrize("options", ["", *AUTHENTICATED, *DEFAULTS])
def test_messages_go_both_ways_in_fragments_at_every_level(daemon: Daemon, queue: str, options: str) -> None:
    data = os.urandom(SEVERAL_FRAGMENTS)
    with Samba(daemon.port, options, caller(options)) as samba, daemon.connect() as ours:
        theirs = samba.manager()
        theirs.create_queue(queue, label="Aufträge")
        with theirs.open(queue, "send") as sending, ours.open(queue) as receiving:
            sending.send(data, label="über", priority=5)
            received = receiving.receive(5)
        assert (received.body, received.label, received.priority) == (data, "über", 5)
        assert bool(received.sender_identifier) == bool(options)
        with ours.open(queue, "send") as sending, theirs.open(queue, protocol="qmcomm") as receiving:
            sending.send(data[::-1], label="zurück")
            received = receiving.receive(5)
        assert (received.body, received.label) == (data[::-1], "zurück")
        assert samba.request(ms_mqmp.qmcomm.uuid, (1, 0), 31, bytes(4)) == struct.pack("<I", daemon.port)


@pytest.mark.parametrize("options", ["", "ntlm,seal", "spnego,seal"])
def test_the_largest_body_arrives_unchanged(daemon: Daemon, queue: str, options: str) -> None:
    data = os.urandom(4096) * (LARGEST_BODY // 4096)
    with Samba(daemon.port, options, caller(options)) as samba:
        manager = samba.manager()
        manager.create_queue(queue)
        with manager.open(queue, "send") as sending, manager.open(queue, protocol="qmcomm") as receiving:
            sending.send(data, recoverable=True)
            assert receiving.receive(5).body == data


@pytest.mark.parametrize("options", ["", *AUTHENTICATED])
def test_a_cursor_moves_and_receives_the_current_message(daemon: Daemon, queue: str, options: str) -> None:
    with Samba(daemon.port, options, caller(options)) as samba:
        manager = samba.manager()
        manager.create_queue(queue)
        with manager.open(queue, "send") as sending, manager.open(queue, protocol="qmcomm") as reading:
            for word in ("first", "second", "third"):
                sending.send(word)
            with reading.cursor() as cursor:
                assert [cursor.peek(0).decode(), cursor.peek_next(0).decode()] == ["first", "second"]
                assert cursor.receive(0).decode() == "second"
            assert [reading.receive(0).decode() for _ in range(2)] == ["first", "third"]
            with pytest.raises(ReceiveTimeout):
                reading.receive(0.01)


@pytest.mark.parametrize("options", ["", *AUTHENTICATED])
def test_an_internal_transaction_is_committed_and_another_one_aborted(daemon: Daemon, queue: str, options: str) -> None:
    with Samba(daemon.port, options, caller(options)) as samba:
        manager = samba.manager()
        manager.create_queue(queue, transactional=True)
        with manager.open(queue, "send") as sending, manager.open(queue, protocol="qmcomm") as reading:
            with manager.transaction() as transaction:
                for word in ("one", "two"):
                    sending.send(word, transaction=transaction)
                with pytest.raises(ReceiveTimeout):
                    reading.receive(0)
            transaction = manager.transaction()
            assert reading.receive(0, transaction=transaction).decode() == "one"
            transaction.abort()
            assert [reading.receive(0).decode() for _ in range(2)] == ["one", "two"]


def test_an_unfinished_transaction_ends_with_sambas_connection(daemon: Daemon, queue: str) -> None:
    with Samba(daemon.port, "spnego,packet", CALLER) as samba, daemon.connect() as ours:
        manager = samba.manager()
        manager.create_queue(queue, transactional=True)
        manager.open(queue, "send").send("unfinished", transaction=manager.transaction())
        samba.close()
        with ours.open(queue) as reading, pytest.raises(ReceiveTimeout):
            reading.receive(0.2)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_remote_read_at_privacy_puts_back_and_removes(daemon: Daemon, queue: str, mechanism: str) -> None:
    data = os.urandom(SEVERAL_FRAGMENTS)
    with Samba(daemon.port, f"{mechanism},seal", CALLER) as samba, daemon.connect() as ours:
        ours.create_queue(queue)
        with ours.open(queue, "send") as sending:
            sending.send(data, label="large")
            sending.send(b"small")
        with samba.manager().open(queue, protocol="remoteread") as reading:
            with suppress(AbandonLock), reading.receive_lock(0) as message:
                assert (message.body, message.label) == (data, "large")
                raise AbandonLock
            identifier = reading.peek(0).lookup_identifier
            assert reading.receive_by_lookup_id(identifier).body == data
            with reading.receive_lock(0) as message:
                assert message.body == b"small"
            with pytest.raises(ReceiveTimeout):
                reading.receive(0)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_queue_manager_identifies_the_sender(
    daemon: Daemon, second: str, queue: str, mechanism: str, level: str
) -> None:
    with Samba(daemon.port, f"{mechanism},{level}", ("second", "Other#1")) as samba, daemon.connect() as ours:
        manager = samba.manager()
        manager.create_queue(queue)
        with manager.open(queue, "send") as sending, ours.open(queue) as reading:
            sending.send(b"signed")
            assert reading.receive(5).sender_identifier == sid_bytes(second)


@pytest.mark.parametrize("user", [(USER, "wrong"), ("nobody", PASSWORD), (USER, "")])
@pytest.mark.parametrize("options", AUTHENTICATED)
def test_a_wrong_password_or_an_unknown_user_is_refused(daemon: Daemon, options: str, user: tuple[str, str]) -> None:
    with pytest.raises(SambaError) as refused, Samba(daemon.port, options, user) as samba:
        # At level CONNECT with NTLM, the server does not respond before the first request.
        samba.ask("statistics")
    assert refused.value.status in (NT_STATUS_ACCESS_DENIED, NT_STATUS_LOGON_FAILURE)


# -- integers in big-endian order ------------------------------------------------------------------------------------


def handle(little: bytes) -> bytes:
    """Encode a context handle from a little-endian response for a big-endian request."""
    attributes, identifier = little[:4], uuid.UUID(bytes_le=little[4:])
    return attributes[::-1] + identifier.bytes


@pytest.mark.parametrize("options", BIG_ENDIAN)
def test_remote_read_in_big_endian_integers(daemon: Daemon, queue: str, options: str) -> None:
    with daemon.connect() as ours:
        ours.create_queue(queue)
        with ours.open(queue, "send") as sending:
            sending.send(b"body", label="label")
    name = f"OS:{queue}\0".encode("utf-16-be")
    count = len(name) // 2
    opening = struct.pack(">BBHBxxxIIII", 3, 0, 0, 3, 0x20000, count, 0, count) + name + bytes(-len(name) % 4)
    opening += struct.pack(">II16siBBHi", 1, 0, uuid.uuid4().bytes, 1, 6, 3, 9600, 1)
    remote_read = ms_mqrr.RemoteRead
    with Samba(daemon.port, ",".join(filter(None, ("bigendian", options))), caller(options)) as samba:

        def ask(operation: str, stub: bytes) -> bytes:
            return samba.request(remote_read.uuid, remote_read.version, remote_read.operation(operation).opnum, stub)

        context = handle(ask("R_OpenQueue", opening))
        start = context + struct.pack(">4xQIIIIII", 0, 0, 0, 0, 1, SEVERAL_FRAGMENTS, 0)
        for acknowledge in (RR_NACK, RR_ACK):
            answer = remote_read.operation("R_StartReceive").decode_response(ask("R_StartReceive", start))
            assert answer.result == 0
            assert b"body" in answer.ppPacketSections[0].pSectionBuffer
            assert ask("R_EndReceive", context + struct.pack(">II", acknowledge, 1)) == bytes(4)
        assert ask("R_CloseQueue", context) == bytes(24)


# -- management and endpoint mapper ----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", BIG_ENDIAN)
@pytest.mark.parametrize("order", ["", "bigendian"])
def test_the_management_interface_lists_the_served_interfaces(daemon: Daemon, order: str, options: str) -> None:
    with Samba(daemon.port, ",".join(filter(None, (order, options))), caller(options)) as samba:
        interfaces = {uuid.UUID(identifier): version for identifier, version in samba.ask("interface_ids")}
        for interface in (ms_mqmp.qmcomm, ms_mqmp.qmcomm2, ms_mqrr.RemoteRead):
            assert interfaces[interface.uuid] == interface.version[0]
        assert samba.ask("listening") == [0, 1]
        before, after = samba.ask("statistics"), samba.ask("statistics")
        assert [after[n] - before[n] for n in range(4)] == [1, 0, 1, 1]
        with pytest.raises(SambaError, match="ACCESS_DENIED"):
            samba.ask("stop_listening")
        with pytest.raises(SambaError, match="UNKNOWN_AUTHN_SERVICE"):
            samba.ask("principal_name", 16, 100)


@pytest.mark.parametrize("page", [1, 3, 100])
@pytest.mark.parametrize("options", ["", "bigendian", "spnego,seal", "ntlm,packet,bigendian"])
def test_the_endpoint_mapper_lists_all_endpoints_in_pages_of_any_size(daemon: Daemon, options: str, page: int) -> None:
    with Samba(daemon.mapper_port, options, caller(options.replace("bigendian", "")), "epmapper") as samba:
        found = {uuid.UUID(identifier): where for _, identifier, *where in samba.ask("lookup", page)}
        for interface in (ms_mqmp.qmcomm, ms_mqmp.qmcomm2, ms_mqrr.RemoteRead):
            assert found[interface.uuid] == [interface.version[0], daemon.port, "127.0.0.1"]
            mapped = samba.ask("map", str(interface.uuid), interface.version[0])
            assert mapped == [[str(interface.uuid), interface.version[0], daemon.port, "127.0.0.1"]]
        with pytest.raises(SambaError, match="0x16c9a0d6"):
            samba.ask("map", str(uuid.uuid4()), 1)


def test_samba_finds_the_port_through_a_mapper_on_the_standard_port(tmp_path: Path) -> None:
    """Samba uses port 135 only: on a loopback address where no other program listens."""
    host = "127.77.135.1"
    with socket.socket() as probe:
        try:
            probe.bind((host, 135))
        except OSError as error:
            pytest.skip(f"port 135 of {host}: {error}")
    with Daemon(tmp_path / "data", "--listen", host, "--endpoint-mapper-port", "135") as daemon:
        with Samba.at(f"ncacn_ip_tcp:{host}", "epmapper") as samba:
            assert samba.ask("lookup", 10)
        for binding in (f"ncacn_ip_tcp:{host}", f"ncacn_ip_tcp:{host}[bigendian]"):
            with Samba.at(binding, "nothing") as samba:
                assert samba.request(ms_mqmp.qmcomm.uuid, (1, 0), 31, bytes(4)) == struct.pack("<I", daemon.port)
    assert "Traceback" not in daemon.log, daemon.log


def test_an_object_identifier_in_the_request_makes_no_difference(daemon: Daemon) -> None:
    with Samba(daemon.port, "spnego,packet", CALLER) as samba:
        answer = samba.request(ms_mqmp.qmcomm.uuid, (1, 0), 31, bytes(4), uuid.uuid4())
        assert answer == struct.pack("<I", daemon.port)
