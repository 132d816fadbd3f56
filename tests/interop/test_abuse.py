"""Hostile or broken input to the live daemon: it uses few resources, affects no other client, and gets replies."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import socket
import struct
import time
from pathlib import Path

import pytest

from daemon import Daemon, eventually
from interop.abuse import (
    FIRST,
    INTERFACES,
    LAST,
    MIB,
    bind_bytes,
    bound,
    is_own_file,
    one_pdu,
    raw,
    request_bytes,
    send_quietly,
    watched,
)
from msrpc.rpc import client
from msrpc.rpc.faults import NCA_S_FAULT_CONTEXT_MISMATCH, NCA_S_OP_RNG_ERROR, RpcFault
from openmsmq.conversion.receive_buffer import receive_buffer
from openmsmq.interfaces import ms_mqmp
from openmsmq.interfaces.ms_mqmq import QUEUE_FORMAT
from openmsmq.model.constants import ReceiveAction
from openmsmq.model.errors import MsmqError

RESPONSE, FAULT = 2, 3


# -- bytes outside the protocol --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mapper", [False, True], ids=["qmcomm", "endpoint mapper"])
def test_random_bytes_end_in_a_closed_connection(daemon: Daemon, mapper: bool) -> None:
    choose = random.Random(1)
    with watched(daemon):
        for number in range(200):
            with raw(daemon, mapper) as connected:
                data = choose.randbytes(choose.randrange(16, 3000))
                if number % 2:  # with a plausible header
                    length = choose.randrange(1, 6000)
                    data = struct.pack("<BBBBIHHI", 5, 0, choose.randrange(20), 3, 0x10, length, 0, 1) + data
                send_quietly(connected, data)
                connected.shutdown(socket.SHUT_WR)
                while one_pdu(connected):
                    pass


def test_an_incomplete_pdu_disturbs_no_other_client(daemon: Daemon) -> None:
    whole = bind_bytes()
    with watched(daemon) as bystander, contextlib.ExitStack() as stack:
        for number in range(300):
            connected = stack.enter_context(raw(daemon))
            connected.sendall(whole[: 1 + number % (len(whole) - 1)])
        bystander.go_on()


def test_headers_sent_byte_by_byte_disturb_nobody_and_are_finally_served(daemon: Daemon) -> None:
    whole = bind_bytes()
    with watched(daemon), contextlib.ExitStack() as stack:
        slow = [stack.enter_context(raw(daemon)) for _ in range(50)]
        for position in range(len(whole)):
            for connected in slow:
                connected.sendall(whole[position : position + 1])
            time.sleep(0.005)
        assert all(one_pdu(connected)[2] == 12 for connected in slow)


def test_thousands_of_connections_disturb_nobody(daemon: Daemon) -> None:
    with watched(daemon, memory=48 * MIB, longest=5.0) as bystander, contextlib.ExitStack() as stack:
        for _ in range(3000):
            stack.enter_context(raw(daemon))
        eventually(lambda: daemon.descriptors > 3000)
        bystander.go_on()


def test_connections_beyond_the_limit_are_refused_and_those_within_it_served(daemon: Daemon) -> None:
    with watched(daemon, memory=48 * MIB, longest=5.0) as bystander, contextlib.ExitStack() as stack:
        for _ in range(4500):
            with contextlib.suppress(ConnectionError):
                stack.enter_context(raw(daemon))
        eventually(lambda: 4000 < daemon.descriptors < 4300)
        bystander.go_on()
        assert daemon.descriptors < 4300


def test_a_daemon_out_of_descriptors_serves_on_and_recovers(tmp_path: Path) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))

    with Daemon(tmp_path / "data", prepare=few) as daemon:
        with watched(daemon) as bystander, contextlib.ExitStack() as stack:
            bystander.go_on(1)  # it is connected
            for _ in range(300):
                with contextlib.suppress(OSError):
                    stack.enter_context(raw(daemon))
            bystander.go_on()
        with daemon.connect() as manager:
            assert manager.machine_id
    assert "Traceback" not in daemon.log, daemon.log[-3000:]


# -- calls without prerequisites -------------------------------------------------------------------------------------


def test_a_call_before_the_bind_is_not_served(daemon: Daemon) -> None:
    with watched(daemon):
        for _ in range(50):
            with raw(daemon) as connected:
                send_quietly(connected, request_bytes(31, bytes(4)))
                answer = one_pdu(connected)
                assert not answer or answer[2] == FAULT


def test_a_call_on_a_context_that_was_not_bound_is_a_fault(daemon: Daemon) -> None:
    with watched(daemon), bound(daemon) as connected:
        for context in (2, 7, 0xFFFF):
            connected.sendall(request_bytes(31, bytes(4), context=context))
            assert one_pdu(connected)[2] == FAULT
        connected.sendall(request_bytes(31, bytes(4)))
        assert one_pdu(connected)[2] == RESPONSE


def test_operations_that_do_not_exist_are_faults_and_the_connection_stays(daemon: Daemon) -> None:
    unused = {"qmcomm": (0, 5, 13, 21, 24, 25, 29, 30, 32, 33, 34, 35, 0xFFFF), "qmcomm2": (4, 99), "qmmgmt": (2, 3)}
    with watched(daemon), client.connect("127.0.0.1", daemon.port) as connection:
        for name, opnums in unused.items():
            interface = INTERFACES[name]
            connection.bind(interface.uuid, interface.version)
            for opnum in opnums:
                with pytest.raises(RpcFault) as refused:
                    connection.call(opnum, bytes(64), timeout=5)
                assert refused.value.status == NCA_S_OP_RNG_ERROR
        connection.bind(ms_mqmp.qmcomm.uuid, ms_mqmp.qmcomm.version)
        assert connection.call(31, bytes(4), timeout=5)


def test_fragments_with_contradicting_flags_are_faults_or_closed(daemon: Daemon) -> None:
    orders = ((0,), (LAST,), (FIRST, FIRST), (FIRST, FIRST | LAST), (FIRST | LAST, LAST))
    with watched(daemon):
        for flags in orders:
            for context in (0, 1):
                with bound(daemon) as connected:
                    for flag in flags:
                        send_quietly(connected, request_bytes(31, bytes(4), flags=flag, context=context))
                    connected.shutdown(socket.SHUT_WR)
                    while answer := one_pdu(connected):
                        assert answer[2] in (RESPONSE, FAULT)


# -- excessive use ---------------------------------------------------------------------------------------------------


def test_requests_whose_last_fragment_never_comes_are_bounded(daemon: Daemon) -> None:
    piece = bytes(4000)
    with watched(daemon, memory=64 * MIB), contextlib.ExitStack() as stack:
        abusers = [stack.enter_context(bound(daemon)) for _ in range(8)]
        for number in range(1300):  # 5 MiB each, more than the limit of a call
            for connected in abusers:
                send_quietly(connected, request_bytes(1, piece, flags=FIRST if not number else 0, context=1))
        for connected in abusers:
            answer = one_pdu(connected)
            assert not answer or answer[2] == FAULT


def test_replies_that_are_never_read_stop_the_calls_that_make_them(daemon: Daemon) -> None:
    with daemon.connect() as manager:
        manager.create_queue(".\\private$\\deaf")
    operation = ms_mqmp.qmcomm.operation("R_QMGetObjectSecurityInternal")
    target = ms_mqmp.OBJECT_FORMAT(1, QUEUE_FORMAT(m_qft=3, m_pDirectID="OS:.\\private$\\deaf"))
    stub = operation.encode_request(ms_mqmp.R_QMGetObjectSecurityInternal_Request(target, 7, 524288))
    with watched(daemon, memory=48 * MIB), contextlib.ExitStack() as stack:
        highest = 0
        for _ in range(4):
            connected = stack.enter_context(bound(daemon))
            connected.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                for call_id in range(2, 2000):  # a gigabyte of replies in total
                    connected.send(request_bytes(operation.opnum, stub, call_id))
            for _ in range(10):
                time.sleep(0.05)
                highest = max(highest, daemon.resident)
        assert highest < 400 * MIB


def test_a_queue_name_of_130000_characters_is_refused(daemon: Daemon) -> None:
    long = "q" * 130_000
    with watched(daemon), daemon.connect() as manager:
        for attempt in (
            lambda: manager.create_queue(f".\\private$\\{long}"),
            lambda: manager.open(f"DIRECT=OS:.\\private$\\{long}"),
            lambda: manager.open(f"DIRECT=OS:{long}\\private$\\x"),
            lambda: manager.format_name(f".\\private$\\{long}"),
        ):
            with pytest.raises((MsmqError, ValueError)):
                attempt()
        assert manager.machine_id


def test_names_that_are_file_paths_touch_no_file(daemon: Daemon) -> None:
    bad = [
        "..\\..\\x",
        "../../x",
        "/etc/passwd",
        "..",
        ".",
        "C:\\x",
        "a/../b",
        "con",
        "x\0y",
        "%2e%2e%2f",
        "a;b",
        "\ud800",
    ]
    with watched(daemon):
        for name in bad:
            for path in (f".\\private$\\{name}", name, f"DIRECT=OS:.\\private$\\{name}", f"DIRECT=OS:{name}"):
                with daemon.connect() as manager:
                    for attempt in (manager.create_queue, manager.open, manager.format_name, manager.delete_queue):
                        with contextlib.suppress(MsmqError, ValueError, UnicodeError):
                            attempt(path)
    for directory, directories, files in os.walk(daemon.directory):
        for entry in directories + files:
            assert is_own_file(entry), f"{directory}/{entry}"


# -- handles of other clients ----------------------------------------------------------------------------------------


def test_handles_of_another_association_are_invalid(daemon: Daemon) -> None:
    with watched(daemon), daemon.connect() as owner:
        owner.create_queue(".\\private$\\owned")
        queue = owner.open(".\\private$\\owned", protocol="qmcomm")
        cursor = queue.cursor()
        transaction = owner.transaction()
        handles = {"hQueue": queue._handle.queue.handle, "phIntXact": transaction._enlisted.handle}
        with client.connect("127.0.0.1", daemon.port) as thief:
            for name, handle, extra in (
                ("rpc_ACCloseHandle", handles["hQueue"], b""),
                ("rpc_ACPurgeQueue", handles["hQueue"], b""),
                ("rpc_ACCloseCursor", handles["hQueue"], cursor._handle.number.to_bytes(4, "little")),
                ("R_QMCommitTransaction", handles["phIntXact"], b""),
                ("R_QMAbortTransaction", handles["hQueue"], b""),
                ("rpc_ACPurgeQueue", bytes(20), b""),
            ):
                thief.bind(ms_mqmp.qmcomm.uuid, ms_mqmp.qmcomm.version)
                with pytest.raises(RpcFault) as refused:
                    thief.call(ms_mqmp.qmcomm.operation(name).opnum, handle + extra, timeout=5)
                assert refused.value.status == NCA_S_FAULT_CONTEXT_MISMATCH
            context = queue._handle.queue.context
            stolen = ms_mqmp.rpc_ACReceiveMessageEx_Request(context, receive_buffer(ReceiveAction.RECEIVE, 0))
            operation = ms_mqmp.qmcomm2.operation("rpc_ACReceiveMessageEx")
            thief.bind(ms_mqmp.qmcomm2.uuid, ms_mqmp.qmcomm2.version)
            answer = operation.decode_response(thief.call(operation.opnum, operation.encode_request(stolen), timeout=5))
            assert answer.result & 0x80000000
        with owner.open(".\\private$\\owned", "send") as sender:
            sender.send("mine")
        assert queue.receive(1).decode() == "mine"
        transaction.abort()
