"""Hostile or broken queue managers at port 1801: they use few resources and affect no other peer."""

from __future__ import annotations

import contextlib
import itertools
import random
import secrets
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from daemon import Daemon, eventually
from interop.abuse import MIB, send_quietly, watched
from interop.mqqb_peer import NOBODY, Message, NotAsSpecified, Peer, Transaction, base, establish, session_ack

HOST = "127.0.0.1"
_ids = itertools.count(1)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    directory = tmp_path_factory.mktemp("abuse of 1801") / "data"
    with Daemon(directory, "--max-sessions", "4096", "--max-sessions-per-peer", "4096") as running:
        with running.connect() as qm:
            qm.create_queue(".\\private$\\plain")
            qm.create_queue(".\\private$\\tx", transactional=True)
        yield running


@pytest.fixture
def port(daemon: Daemon) -> int:
    return int(daemon.ready["endpoints"]["messages"]["port"])


def message(queue: str = "plain", **values: object) -> Message:
    source = values.pop("source", b"\x55" * 16)
    return Message(source, next(_ids), f"TCP:{HOST}\\private$\\{queue}", **values)  # type: ignore[arg-type]


def changed(data: bytes, choose: random.Random) -> bytes:
    """Change one to three bytes or fields."""
    data = bytearray(data)
    for _ in range(choose.randrange(1, 4)):
        at = choose.randrange(len(data) - 4)
        if choose.random() < 0.5:
            data[at] = choose.randrange(256)
        else:
            struct.pack_into("<I", data, at & ~3, choose.choice([0, 1, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]))
    return bytes(data)


def test_bytes_that_follow_no_protocol_close_the_connection(daemon: Daemon, port: int) -> None:
    choose = random.Random(1)
    with watched(daemon):
        for number in range(200):
            with socket.create_connection((HOST, port), 10) as connected:
                data = choose.randbytes(choose.randrange(16, 3000))
                if number % 2:
                    data = base(choose.randrange(0x200), choose.randrange(1 << 32)) + data
                send_quietly(connected, data)
                with contextlib.suppress(ConnectionError):
                    connected.shutdown(socket.SHUT_WR)
                    while connected.recv(65536):
                        pass


def test_changed_packets_end_in_a_message_a_rejection_or_a_closed_session(daemon: Daemon, port: int) -> None:
    choose = random.Random(2)
    sent = 0
    with watched(daemon, memory=32 * MIB):
        while sent < 1500:
            with Peer(HOST, port) as peer:
                peer.open()
                for _ in range(20):
                    transaction = Transaction(1, 1, choose.randrange(1, 9), 0) if choose.random() < 0.3 else None
                    recoverable = bool(choose.getrandbits(1)) or transaction is not None
                    whole = message(
                        choose.choice(["plain", "tx"]), recoverable=recoverable,
                        label="label", admin=f"TCP:{HOST}\\private$\\plain", transaction=transaction, acknowledge=15,
                        journal=3,
                    )  # fmt: skip
                    send_quietly(peer.socket, changed(whole.pack(), choose))
                    sent += 1
                with contextlib.suppress(TimeoutError, NotAsSpecified, ConnectionError):
                    peer.read(0.05)
    with daemon.connect() as qm, qm.open(".\\private$\\plain", "receive") as queue:
        queue.purge()


def test_thousands_of_half_open_sessions_disturb_nobody(daemon: Daemon, port: int) -> None:
    with watched(daemon, memory=64 * MIB, longest=5.0) as bystander, contextlib.ExitStack() as stack:
        for number in range(3000):
            connected = stack.enter_context(socket.create_connection((HOST, port), 10))
            if number % 2:
                connected.sendall(establish(b"\x66" * 16, NOBODY))
        eventually(lambda: daemon.descriptors > 3000)
        bystander.go_on()


@pytest.mark.slow
def test_connections_beyond_the_limit_are_closed_and_those_within_it_served(daemon: Daemon, port: int) -> None:
    with watched(daemon, memory=200 * MIB, longest=5.0) as bystander, contextlib.ExitStack() as stack:
        for _ in range(10_000):
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_connection((HOST, port), 10))
        assert daemon.descriptors < 8300
        bystander.go_on()


def test_packets_that_never_end_use_bounded_memory(daemon: Daemon, port: int) -> None:
    with watched(daemon, memory=64 * MIB, longest=5.0, settle=20) as bystander, contextlib.ExitStack() as stack:
        begun = base(3, 0x400000) + bytes(4_000_000)
        for _ in range(100):
            peer = stack.enter_context(Peer(HOST, port))
            peer.open()
            send_quietly(peer.socket, begun)
        assert daemon.resident < 600 * MIB
        bystander.go_on()


def test_a_peer_that_reads_nothing_is_disconnected_before_much_is_buffered(daemon: Daemon, port: int) -> None:
    """The peer ignores the window, and each of its messages is acknowledged sooner or later."""
    with watched(daemon, memory=32 * MIB, longest=5.0), Peer(HOST, port) as peer:
        peer.open()
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.socket.settimeout(2)
        with contextlib.suppress(OSError):
            for _ in range(20_000):
                peer.socket.sendall(message("missing", body=b"").pack())


def test_false_acknowledgments_end_the_session(port: int) -> None:
    for lie in (session_ack(1, 0, 0, 0, 0), session_ack(0, 1, 1, 0, 0), session_ack(0, 0, 0, 5, 0)):
        with Peer(HOST, port, secrets.token_bytes(16)) as peer:  # it was sent no message that it could acknowledge
            peer.open()
            peer.write(lie)
            assert peer.is_closed()


def test_a_peer_that_presents_this_queue_managers_identifier_is_refused(port: int) -> None:
    with Peer(HOST, port) as peer:
        peer.open()
        own = peer.server
    with Peer(HOST, port) as peer:
        peer.write(establish(own, NOBODY))
        assert peer.is_closed()


def test_a_forged_order_acknowledgment_removes_nothing(daemon: Daemon, port: int) -> None:
    with daemon.connect() as qm:
        name = "DIRECT=TCP:127.0.71.77\\private$\\nobody"
        with qm.open(name, "send") as queue, qm.transaction() as transaction:
            queue.send("stays", transaction=transaction)
        with Peer(HOST, port) as peer:
            peer.open()
            now = int(time.time())
            for stamp in range(now - 5, now + 5):
                body = struct.pack("<IIII20x", 1, stamp, 1, 0)
                peer.send(Message(b"\x55" * 16, next(_ids), 4, body, address=peer.server, message_class=0xFF))
                final = struct.pack("<IIII16sI", 1, stamp, 1, 0, peer.server, stamp)
                peer.send(
                    Message(
                        b"\x55" * 16, next(_ids), 4, final, address=peer.server, message_class=0x8000, recoverable=True
                    )
                )
            peer.until(lambda: len(peer.saved) == 10)
        (row,) = [row for row in qm.outgoing() if row["format_name"] == name]
        assert row["message_count"] == 1


def test_two_peers_of_one_name_are_both_served(port: int) -> None:
    with Peer(HOST, port) as one, Peer(HOST, port) as other:
        for peer in (one, other):
            peer.open()
            peer.send(message(recoverable=True, source=b"\x44" * 16))
        for peer in (one, other):
            peer.until(lambda peer=peer: len(peer.saved) == 1)
