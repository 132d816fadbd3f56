"""Calls that end early: the client cancels or orphans them, or its connection ends, in the same read as the request.
Requests that native code has read end like those that Python has read."""

from __future__ import annotations

import pytest

from compiled.test_fast_path import (
    ALICE,
    RECEIVE,
    SEND,
    START,
    START_OF_SESSION,
    Connection,
    LocalServer,
    SocketConnection,
    in_a_loop,
)
from compiled.test_requests import (
    CO_CANCEL,
    ORPHANED,
    ReadByPython,
    express,
    pdu,
    receive_stub,
    request,
)
from openmsmq.conversion.receive_buffer import receive_buffer
from openmsmq.conversion.send_buffer import send_buffer
from openmsmq.interfaces import ms_mqmp as m
from openmsmq.interfaces import ms_mqqp, ms_mqrr
from openmsmq.model.constants import INFINITE, ReceiveAction
from openmsmq.model.errors import HResult
from openmsmq.model.message import Message


def silent(connection: type[Connection]) -> LocalServer:
    """Return a server that has read a send of the first client, so that a `SocketConnection` is read by native code."""
    local = LocalServer(True, connection)
    local.clients[0].hear(request(1, SEND.opnum, express(local.handles[0][0]), 90))
    local.settle()
    local.clients[0].said()
    return local


def waiting_stub(local: LocalServer) -> bytes:
    """Return a receive from the empty queue `b` without a time limit."""
    buffer = receive_buffer(ReceiveAction.RECEIVE, INFINITE)
    return RECEIVE.encode_request(m.rpc_ACReceiveMessageEx_Request(local.readers[0][1], buffer))


@pytest.mark.parametrize("kind", [CO_CANCEL, ORPHANED])
@pytest.mark.parametrize("connection", [ReadByPython, SocketConnection])
def test_a_receive_that_is_cancelled_in_the_same_read_does_not_wait(connection: type[Connection], kind: int) -> None:
    """C706 9.1.1.4: a later message stays in the queue."""

    def work() -> None:
        local = silent(connection)
        client = local.clients[0]
        client.hear(request(1, RECEIVE.opnum, waiting_stub(local), 100) + pdu(kind, 100, b""))
        local.settle()
        said = client.said()
        if kind == CO_CANCEL:
            assert RECEIVE.decode_response(said[24:]).result == HResult.MQ_ERROR_OPERATION_CANCELLED
        else:
            assert not said
        client.hear(request(1, SEND.opnum, express(local.handles[0][3]), 101))
        local.settle()
        assert len(local.server.world.queue("b")) == 1

    in_a_loop(work)


@pytest.mark.parametrize("connection", [ReadByPython, SocketConnection])
def test_an_orphaned_receive_takes_no_message(connection: type[Connection]) -> None:
    """Deviation D-26 from [MS-MQMP] 3.1.5.3"""

    def work() -> None:
        local = silent(connection)
        client = local.clients[0]
        client.hear(request(1, RECEIVE.opnum, receive_stub(local), 100) + pdu(ORPHANED, 100, b""))
        local.settle()
        assert not client.said() and len(local.server.world.queue("a")) == 1

    in_a_loop(work)


@pytest.mark.parametrize("connection", [ReadByPython, SocketConnection])
@pytest.mark.parametrize("protocol", ["MS-MQRR", "MS-MQQP"])
def test_a_two_phase_receive_that_is_orphaned_while_it_waits_for_the_disk_puts_its_message_back(
    connection: type[Connection], protocol: str
) -> None:
    def work() -> None:
        local = silent(connection)
        client, queue, session = local.clients[0], local.server.world.queue("b"), local.sessions[0][1]
        recoverable = send_buffer(Message(label="l", delivery_guarantee=1))
        sent = SEND.encode_request(m.rpc_ACSendMessageEx_Request(local.handles[0][3], recoverable, None))
        if protocol == "MS-MQRR":
            asked = ms_mqrr.R_StartReceive_Request(local.remote_readers[0][2], 0, 0, 0, 0, 7, 1 << 20, 0)
            started = request(2, START.opnum, START.encode_request(asked), 100)
        else:
            description = ms_mqqp.REMOTEREADDESC(session, dwQueue=session, dwRequestID=7)
            stub = START_OF_SESSION.encode_request(ms_mqqp.RemoteQMStartReceive_Request(description))
            started = request(3, START_OF_SESSION.opnum, stub, 100)
        client.hear(request(1, SEND.opnum, sent, 99) + started)
        local.rpc.calls.serve_gathered()
        assert len(queue.locked) == 1
        client.hear(pdu(ORPHANED, 100, b""))
        local.settle()
        assert len(queue) == 1 and not queue.locked and not client.held()

    in_a_loop(work)


@pytest.mark.parametrize("connection", [ReadByPython, SocketConnection])
def test_a_receive_is_answered_before_an_invalid_pdu_ends_the_connection(connection: type[Connection]) -> None:
    def work() -> None:
        local = silent(connection)
        client = local.clients[0]
        assert isinstance(client, SocketConnection)
        client.hear(request(1, RECEIVE.opnum, receive_stub(local), 100) + b"not a PDU of this protocol")
        assert client.transport.closed
        said = client.said()
        answer = said[said[8] :]  # after the fault
        assert answer[12] == 100 and RECEIVE.decode_response(answer[24:]).result == 0
        assert len(local.server.world.queue("a")) == 0

    in_a_loop(work)


def test_a_request_before_a_login_is_a_call_of_its_caller() -> None:
    def work() -> None:
        local = silent(SocketConnection)
        client = local.clients[0]
        assert isinstance(client, SocketConnection)
        client.hear(request(1, SEND.opnum, express(local.handles[0][0]), 100))
        client.core._channels.default_caller, client.core.negotiations = ALICE, client.core.negotiations + 1
        client.hear(pdu(CO_CANCEL, 7, b""))
        local.settle()
        assert SEND.decode_response(client.said()[24:]).result == 0

    in_a_loop(work)
