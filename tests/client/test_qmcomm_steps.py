"""The qmcomm and qmcomm2 client against scripted servers: cursors, byte orders, requests that it refuses to send."""

from __future__ import annotations

import struct
from uuid import uuid4

import pytest

import openmsmq
from msrpc.rpc.client_connection import ClientConnection, ResponseReceived
from msrpc.rpc.pdu import SyntaxId
from msrpc.rpc.responses import decoded
from openmsmq.client.calls import ClientCall
from openmsmq.client.qmcomm import QmcommQueue
from openmsmq.conversion.receive_buffer import fill
from openmsmq.interfaces import ms_mqmp as m
from openmsmq.model.constants import Access, ReceiveAction
from openmsmq.model.errors import HResult
from openmsmq.model.message import Message

MESSAGES = [b"a", b"x" * 5000, b"b", b"y" * 9000, b"c"]


def walk(moves, taken=()):
    """Return the bodies that a cursor shows; `moves`: the server moves it even if a message is too large."""
    queue = QmcommQueue("q", Access.PEEK, False, bytes(20), 1)
    there, position, seen = list(MESSAGES), 0, []

    def serve(call):
        nonlocal position
        ptb = call.request.ptb
        wanted = position + (ptb.old.Receive.Action == ReceiveAction.PEEK_NEXT)
        while ptb.old.Receive.Action == ReceiveAction.PEEK_NEXT and wanted < len(there) and there[wanted] is None:
            wanted += 1
        if wanted >= len(there):
            return m.rpc_ACReceiveMessageEx_Response(ptb, HResult.MQ_ERROR_IO_TIMEOUT)
        if there[wanted] is None:
            return m.rpc_ACReceiveMessageEx_Response(ptb, HResult.MQ_ERROR_MESSAGE_ALREADY_RECEIVED)
        status = fill(ptb, Message(there[wanted]), 0)
        if moves or status == HResult.MQ_OK:
            position = wanted
        if status != HResult.MQ_OK and wanted in taken:
            there[wanted if moves else position] = None  # another reader takes it between the two calls
        return m.rpc_ACReceiveMessageEx_Response(ptb, status)

    action = ReceiveAction.PEEK_CURRENT
    while True:
        steps = queue.peek(action, 0, 7)
        try:
            call = next(steps)
            while True:
                call = steps.send(serve(call))
        except StopIteration as stop:
            seen.append(stop.value.body)
        except openmsmq.ReceiveTimeout:
            return seen
        action = ReceiveAction.PEEK_NEXT


@pytest.mark.parametrize("moves", [True, False])
def test_a_cursor_shows_each_message_once_though_its_buffer_proves_too_small(moves):
    assert walk(moves) == MESSAGES


@pytest.mark.parametrize("moves", [True, False])
def test_a_message_that_is_taken_while_the_buffer_grows_does_not_stop_the_walk(moves):
    expected = [body for number, body in enumerate(MESSAGES) if not moves or number not in (1, 3)]
    assert walk(moves, taken=(1, 3)) == expected


def test_an_answer_in_big_endian_is_read_as_such():
    syntax, operation = SyntaxId(uuid4(), (1, 0)), m.qmcomm.operation("rpc_ACPurgeQueue")
    core = ClientConnection()
    core.contexts[syntax] = 0
    call_id = core.request(syntax, operation.opnum, b"")
    stub = struct.pack(">I", HResult.MQ_ERROR_QUEUE_NOT_FOUND)
    head = struct.pack(">BBBBIHHIIHBB", 5, 0, 2, 3, 0, 24 + len(stub), 0, call_id, len(stub), 0, 0, 0)
    (answer,) = core.receive_data(head + stub)
    assert answer == ResponseReceived(call_id, stub, ">")
    call = ClientCall(m.qmcomm, operation, None)
    assert decoded(call.operation, answer.stub, answer.byte_order).result == HResult.MQ_ERROR_QUEUE_NOT_FOUND


def test_an_answer_that_cannot_be_read_is_an_error_of_the_server():
    with pytest.raises(openmsmq.RemoteProtocolError, match="rpc_ACPurgeQueue"):
        decoded(m.qmcomm.operation("rpc_ACPurgeQueue"), b"", "<")


def test_all_errors_of_a_client_are_msmq_errors_and_exported():
    for name in openmsmq.__all__:
        exported = getattr(openmsmq, name)
        if isinstance(exported, type) and issubclass(exported, BaseException):
            assert issubclass(exported, openmsmq.MsmqError)
    assert issubclass(openmsmq.RpcConnectionError, ConnectionError)
    assert issubclass(openmsmq.HandleLost, openmsmq.RpcConnectionError)
    assert openmsmq.RpcConnectionError("x").hresult == HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE
