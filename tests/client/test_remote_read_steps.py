"""The RemoteRead client against scripted servers: its requests, and how it handles replies."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from msrpc.rpc.faults import RpcFault
from openmsmq.client import remote_read
from openmsmq.client import runner as transport
from openmsmq.client.calls import CALL_FAILURES, ProtocolUnavailable, fault_error
from openmsmq.client.remote_read import RemoteReadQueue
from openmsmq.client.reopening import open_handle
from openmsmq.client.two_phases import RR_ACK, RR_NACK
from openmsmq.conversion.packets import packet_of
from openmsmq.interfaces import ms_mqrr as m
from openmsmq.model.constants import INFINITE, Access, MessageSeekAction, ReceiveAction
from openmsmq.model.errors import (
    HResult,
    MsmqError,
    OperationCancelled,
    QueueNotFound,
    ReceiveTimeout,
    RpcConnectionError,
)
from openmsmq.model.message import Message
from openmsmq.packet.sections import SectionType

VECTORS = Path(__file__).parent.parent / "vectors"
HANDLE = bytes(range(20))
WANTED = b"w" * 20
FULL, FIRST, SECOND = SectionType.FULL_PACKET, SectionType.BINARY_FIRST, SectionType.BINARY_SECOND


def queue():
    return RemoteReadQueue("q", Access.RECEIVE, False, HANDLE)


def handle():
    """Return a handle of a queue that was opened without a call."""

    def already_open():
        return queue()
        yield

    try:
        next(open_handle("q", already_open, False))
    except StopIteration as stop:
        return stop.value


def drive(steps, *answers):
    """Run `steps` with these replies (exceptions are thrown). Returns its calls, and its result or exception."""
    calls = []
    remaining = iter(answers)
    try:
        call = next(steps)
        while True:
            calls.append((call.operation.name, call.request))
            answer = next(remaining)
            call = steps.throw(answer) if isinstance(answer, BaseException) else steps.send(answer)
    except StopIteration as stop:
        return calls, stop.value
    except (*CALL_FAILURES, KeyboardInterrupt) as error:
        return calls, error


def names(calls):
    return [name for name, _ in calls]


def answer(*buffers, sequence=9, arrived=1000):
    return m.R_StartReceive_Response(arrived, sequence, len(buffers), list(buffers), 0)


def whole(message, **more):
    data = packet_of(message).pack()
    return answer(m.SectionBuffer(FULL, len(data), len(data), data), **more)


def vector(name):
    document = json.loads((VECTORS / "ndr" / f"{name}.json").read_text())
    return bytes.fromhex(document["stub_hex"])


def ended(result=0):
    return m.R_EndReceive_Response(result)


def test_a_whole_packet_is_the_message_with_what_comes_beside_it():
    calls, taken = drive(queue().take(500), whole(Message(b"body", label="l", priority=5)))
    ((name, request),) = calls
    assert (name, request.ulAction, request.ulTimeout, request.dwRequestId) == ("R_StartReceive", 0, 500, 1)
    assert request.dwMaxBodySize == request.dwMaxCompoundMessageSize == 4 << 20
    assert (taken.message.body, taken.message.label, taken.request) == (b"body", "l", 1)
    assert (taken.message.arrival_time, taken.message.lookup_identifier) == (1000, 2 << 56 | 9)


def test_the_packet_of_the_specification_is_joined_from_two_sections():
    """The user message of [MS-MQQB] 4.1.7 (the document truncates its body), split after the body."""
    headers = bytes.fromhex((VECTORS / "packet/user-message.hex").read_text())
    body = b"a\0" * 1000
    response = answer(
        m.SectionBuffer(FIRST, len(headers) + 2000, len(headers) + 2000, headers + body),
        m.SectionBuffer(SECOND, 2, 2, bytes(2)),
    )
    _, taken = drive(queue().take(0), response)
    assert (taken.message.label, taken.message.body) == ("mqsender label", body)
    assert taken.message.destination_queue_format_name == r"DIRECT=OS:a04bm02\q"


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (m.RemoteRead.operation("R_StartReceive").decode_response(vector("RemoteRead.rr_start.resp.samba")), "SectionSizeAlloc"),  # noqa: E501
        (m.RemoteRead.operation("R_StartReceive").decode_response(vector("RemoteRead.rr_start_full.resp.samba")), "BaseHeader"),  # noqa: E501
        (answer(), "no order"),
        (answer(*[m.SectionBuffer(FIRST, 1, 1, b"x")] * 3), "no order"),
        (answer(m.SectionBuffer(SECOND, 1, 1, b"x")), "no order"),
        (answer(m.SectionBuffer(5, 1, 1, b"x")), "SectionBufferType is 5"),
        (answer(m.SectionBuffer(FULL, 9, 9, b"x")), "SectionSize is 9"),
        (answer(m.SectionBuffer(FIRST, 90, 1, b"x")), "SectionSizeAlloc is 90"),
        (answer(m.SectionBuffer(FULL, 0, 0, None)), "BaseHeader"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_message_that_cannot_be_read_is_put_back(response, why):
    calls, error = drive(queue().take(0), response, ended())
    assert names(calls) == ["R_StartReceive", "R_EndReceive"]
    assert (calls[1][1].dwAck, calls[1][1].dwRequestId) == (RR_NACK, 1)
    assert error.hresult == HResult.MQ_ERROR and why in str(error)
    calls, error = drive(queue().peek(ReceiveAction.PEEK_CURRENT, 0), response)
    assert names(calls) == ["R_StartReceive"], "a peek has locked nothing"


def test_an_answer_without_a_message_has_nothing_to_end():
    timeout = m.RemoteRead.operation("R_StartReceive").decode_response(vector("RemoteRead.rr_start_timeout.resp.samba"))
    calls, error = drive(queue().take(5), timeout)
    assert names(calls) == ["R_StartReceive"]
    assert isinstance(error, ReceiveTimeout)


@pytest.mark.parametrize("cut_off", [KeyboardInterrupt(), RpcConnectionError("lost")])
def test_a_receive_that_is_cut_off_is_cancelled_or_else_ended_negatively(cut_off):
    cancelled = m.R_CancelReceive_Response()
    too_late = MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER)
    opened = queue()
    assert names(drive(opened.take(INFINITE), cut_off, cancelled)[0]) == ["R_StartReceive", "R_CancelReceive"]
    calls, error = drive(opened.take(INFINITE), cut_off, too_late, ended())
    assert names(calls) == ["R_StartReceive", "R_CancelReceive", "R_EndReceive"]
    assert {request.dwRequestId for _, request in calls} == {2}
    assert calls[2][1].dwAck == RR_NACK and error is cut_off
    calls, error = drive(opened.take(0), cut_off, RpcConnectionError("gone"), RpcConnectionError("gone"))
    assert len(calls) == 3 and error is cut_off
    assert names(drive(opened.peek(ReceiveAction.PEEK_CURRENT, 0), cut_off, too_late)[0]) == [
        "R_StartReceive", "R_CancelReceive"]  # fmt: skip
    assert not opened.waiting


def test_a_message_that_cannot_be_removed_is_put_back():
    failed = ended(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED)
    calls, error = drive(queue().end(7, True), failed, ended())
    assert [(request.dwAck, request.dwRequestId) for _, request in calls] == [(RR_ACK, 7), (RR_NACK, 7)]
    assert error.hresult == HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED
    assert len(drive(queue().end(7, False), failed)[0]) == 1
    for cut_off in (KeyboardInterrupt(), RpcConnectionError("lost")):
        calls, error = drive(queue().end(7, True), cut_off, ended(HResult.MQ_ERROR_INVALID_HANDLE))
        assert [request.dwAck for _, request in calls] == [RR_ACK, RR_NACK] and error is cut_off


def test_cancelling_continues_until_the_receive_that_waits_has_arrived():
    opened = queue()
    waiting = opened.take(INFINITE)
    next(waiting)
    unknown = m.R_CancelReceive_Response(HResult.MQ_ERROR_INVALID_PARAMETER)
    calls, error = drive(opened.cancel(), unknown, unknown, m.R_CancelReceive_Response())
    assert (names(calls), error) == (["R_CancelReceive"] * 3, None)
    with pytest.raises(OperationCancelled):
        waiting.send(m.R_StartReceive_Response(result=HResult.MQ_ERROR_OPERATION_CANCELLED))
    assert drive(opened.cancel()) == ([], None)


def test_a_search_by_correlation_identifier_begins_anew_when_nothing_comes():
    """A restarted search finds messages that were put back before the cursor; the remaining time limits the wait."""
    now = iter([100.0, 100.0, 100.0, 100.1, 100.8, 100.8, 100.8, 100.9])
    timeout = m.R_StartReceive_Response(result=HResult.MQ_ERROR_IO_TIMEOUT)
    other, wanted = whole(Message(b"other")), whole(Message(b"mine", correlation_identifier=WANTED))
    created, closed = m.R_CreateCursor_Response(3), m.R_CloseCursor_Response()
    illegal = m.R_StartReceive_Response(result=HResult.MQ_ERROR_ILLEGAL_CURSOR_ACTION)
    gone = m.R_StartReceive_Response(result=HResult.MQ_ERROR_MESSAGE_ALREADY_RECEIVED)
    calls, taken = drive(
        queue().take_by_correlation_identifier(WANTED, 900, lambda: next(now)),
        created, illegal, other, timeout, timeout, closed,
        created, illegal, wanted, gone, wanted, wanted, closed,
    )  # fmt: skip
    reads = [(request.ulAction, request.ulTimeout) for name, request in calls if name == "R_StartReceive"]
    peek, peek_next, receive = ReceiveAction.PEEK_CURRENT, ReceiveAction.PEEK_NEXT, ReceiveAction.RECEIVE
    assert reads == [
        (peek_next, 0), (peek, 0), (peek_next, 0), (peek_next, 800),
        (peek_next, 0), (peek, 0), (receive, 0), (peek_next, 0), (receive, 0),
    ]  # fmt: skip
    assert (taken.message.body, taken.request) == (b"mine", 9)


@pytest.mark.parametrize(("seek", "value"), [("CURRENT", 0), ("NEXT", 1), ("PREVIOUS", 2)])
def test_lookups_have_no_timeout_and_no_cursor(seek, value):
    for steps, action in (
        (queue().peek_by_lookup_identifier(77, MessageSeekAction[seek]), 0x40000010),
        (queue().take_by_lookup_identifier(77, MessageSeekAction[seek]), 0x40000020),
    ):
        ((_, request),), _ = drive(steps, whole(Message()))
        assert (request.ulAction, request.LookupId, request.ulTimeout, request.hCursor) == (action + value, 77, 0, 0)


def test_requests_are_those_that_other_programs_read():
    """Requests equal the stubs of an independent marshaller for the same arguments."""
    opened = RemoteReadQueue(r".\private$\q", Access.RECEIVE, False, vector("RemoteRead.rr_start.req.samba")[:20])
    call = next(opened.end(17, True))
    assert call.operation.encode_request(call.request) == vector("RemoteRead.rr_end.req.samba")
    call = next(opened.purge())
    assert call.operation.encode_request(call.request) == vector("RemoteRead.rr_purge.req.samba")
    moving = opened.move(288230376151712036, "sub", bytes(16))
    next(moving)
    call = moving.send(m.R_OpenQueueForMove_Response(1234605616436508552, HANDLE))
    without_transaction = vector("RemoteRead.rr_move.req.samba").replace(b"\xff" * 16, bytes(16))
    assert call.operation.encode_request(call.request) == without_transaction
    call = next(opened._cancel(17))
    assert call.operation.encode_request(call.request) == vector("RemoteRead.rr_cancel.req.samba")


def test_moving_opens_the_target_moves_and_closes_it():
    """3.1.4.10 and 3.1.4.11: MQ_MOVE_ACCESS, no transaction, and the move context of the answer."""
    opened = RemoteReadQueue(r"DIRECT=OS:.\private$\q", Access.RECEIVE, False, HANDLE)
    target = m.R_OpenQueueForMove_Response(1234605616436508552, b"t" * 20)
    calls, _ = drive(opened.move(5, "sub", b"c" * 16), target, m.R_MoveMessage_Response(), m.R_CloseQueue_Response())
    (opening, to), (moving, move), (closing, close) = calls
    assert [opening, moving, closing] == ["R_OpenQueueForMove", "R_MoveMessage", "R_CloseQueue"]
    assert (to.pQueueFormat.m_qft, to.pQueueFormat.m_pDirectSubqueueID) == (8, r"OS:.\private$\q;sub")
    assert (to.dwAccess, to.dwShareMode, to.pClientId) == (4, 0, b"c" * 16)
    assert (move.phContextFrom, move.ullContextTo, move.LookupId) == (HANDLE, 1234605616436508552, 5)
    assert move.pTransactionId.rgb == bytes(16)
    assert close.pphContext == b"t" * 20
    calls, error = drive(
        RemoteReadQueue(r"DIRECT=OS:.\private$\q;sub", Access.RECEIVE, False, HANDLE).move(5, "", b"c" * 16),
        target, m.R_MoveMessage_Response(HResult.MQ_ERROR_MESSAGE_NOT_FOUND), m.R_CloseQueue_Response(),
    )  # fmt: skip
    assert calls[0][1].pQueueFormat.m_pDirectID == r"OS:.\private$\q"
    assert (len(calls), error.hresult) == (3, HResult.MQ_ERROR_MESSAGE_NOT_FOUND)


def test_rejecting_sets_the_class_of_the_message():
    ((name, request),), _ = drive(queue().reject(5), m.R_SetUserAcknowledgementClass_Response())
    assert (name, request.LookupId, request.usClass) == ("R_SetUserAcknowledgementClass", 5, 0xC004)


def test_faults_are_the_errors_they_carry():
    assert isinstance(fault_error(RpcFault(HResult.MQ_ERROR_QUEUE_NOT_FOUND), "R_OpenQueue"), QueueNotFound)
    assert fault_error(RpcFault(HResult.STATUS_ACCESS_DENIED), "x").hresult == HResult.STATUS_ACCESS_DENIED
    assert isinstance(fault_error(RpcFault(0x1C010002), "R_MoveMessage"), ProtocolUnavailable)
    assert fault_error(RpcFault(0x1C00001A), "x").hresult == HResult.MQ_ERROR_INVALID_HANDLE


def test_a_server_without_a_port_does_not_offer_remote_read():
    assert isinstance(drive(remote_read.check_offered(), m.R_GetServerPort_Response(0))[1], ProtocolUnavailable)
    assert drive(remote_read.check_offered(), m.R_GetServerPort_Response(2103))[1] is None


# -- asyncio, step by step ---------------------------------------------------------------------------------------------


@dataclass
class Server:
    """A message and its lock. A call takes one loop iteration to reach the server, and its reply another."""

    there: bool = True
    locked: int = 0
    cancelled: list[str] = field(default_factory=list)

    def serve(self, name, request):
        if name == "R_StartReceive":
            if self.locked or not self.there:
                return m.R_StartReceive_Response(result=HResult.MQ_ERROR_IO_TIMEOUT)
            if request.ulAction == ReceiveAction.RECEIVE:
                self.locked = request.dwRequestId
            return whole(Message(b"kept", correlation_identifier=WANTED))
        if name == "R_EndReceive":
            if self.locked != request.dwRequestId:
                return ended(HResult.MQ_ERROR_INVALID_HANDLE)
            self.locked, self.there = 0, request.dwAck == RR_NACK
            return ended()
        if name == "R_CreateCursor":
            return m.R_CreateCursor_Response(1)
        if name == "R_CloseCursor":
            return m.R_CloseCursor_Response()
        assert name == "R_CancelReceive"
        self.cancelled.append(name)
        return m.R_CancelReceive_Response(HResult.MQ_ERROR_INVALID_PARAMETER)


class Runner(transport.Runner):
    """A runner whose calls reach `server` through callbacks of the event loop."""

    def __init__(self, server):
        super().__init__("", 0, {})
        self.server = server

    async def _call(self, call):
        arrival = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(self._arrive, call, arrival)
        return await arrival

    def _arrive(self, call, arrival):
        response = self.server.serve(call.operation.name, call.request)
        asyncio.get_running_loop().call_soon(lambda: arrival.done() or arrival.set_result(response))


READS = {
    "plain": lambda opened: opened.take(0),
    "correlated": lambda opened: opened.take_by_correlation_identifier(WANTED, 0, lambda: 0.0),
}


@pytest.mark.parametrize("read", ["plain", "correlated"])
@pytest.mark.parametrize("again", [None, 1, 2, 3])
def test_whenever_a_receive_is_cancelled_the_message_is_returned_or_free(read, again):
    """A second cancellation, `again` loop iterations later, does not stop the cleanup."""
    outcomes = set()

    async def program(turns):
        server = Server()
        runner, opened = Runner(server), handle()
        receiving = asyncio.create_task(runner.receive(opened.take(READS[read])))
        for _ in range(turns):
            await asyncio.sleep(0)
        receiving.cancel()
        for _ in range(again or 0):
            await asyncio.sleep(0)
        if again:
            receiving.cancel()
        (result,) = await asyncio.gather(receiving, return_exceptions=True)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not server.locked
        if isinstance(result, asyncio.CancelledError):
            assert server.there
        else:
            assert result.body == b"kept" and not server.there
        outcomes.add(type(result))

    for turns in range(30):
        asyncio.run(program(turns))
    assert outcomes == {asyncio.CancelledError, Message}


def test_a_late_cancellation_ends_the_next_receive():
    async def program():
        server = Server()
        runner, opened = Runner(server), handle()

        async def work():
            got = await runner.receive(opened.take(READS["plain"]))
            server.there = True
            await runner.receive(opened.take(READS["plain"]))
            return got

        task = asyncio.create_task(work())
        while not server.locked:
            await asyncio.sleep(0)
        while server.locked:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert server.there and not server.locked

    asyncio.run(program())


def test_a_late_timeout_ends_nothing():
    async def program():
        server = Server()
        runner, opened = Runner(server), handle()
        async with asyncio.timeout(None) as timeout:
            receiving = asyncio.current_task()
            finish = runner.finish

            async def expire_meanwhile(steps):
                timeout.reschedule(0)
                return await finish(steps)

            runner.finish = expire_meanwhile
            assert (await runner.receive(opened.take(READS["plain"]))).body == b"kept"
        assert not receiving.cancelling()
        runner.finish = finish
        with pytest.raises(ReceiveTimeout):
            await runner.receive(opened.take(READS["plain"]))

    asyncio.run(program())
