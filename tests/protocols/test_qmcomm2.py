"""qmcomm2 ([MS-MQMP] 3.1.5) and qmmgmt ([MS-MQMR] 3.1.4)."""

from __future__ import annotations

import pytest

from msrpc.rpc.faults import NCA_S_FAULT_CONTEXT_MISMATCH, Fault
from msrpc.rpc.timing import Timings
from openmsmq.conversion.receive_buffer import message_from_receive
from openmsmq.conversion.send_buffer import send_buffer
from openmsmq.interfaces import ms_mqmp as m
from openmsmq.interfaces.ms_mqmq import OBJECTID, XACTUOW
from openmsmq.model.constants import INFINITE, Access, ReceiveAction
from openmsmq.model.errors import HResult
from openmsmq.model.message import Message
from protocols.clients import Client, Server, queue_format

H = HResult
UOW = XACTUOW(b"u" * 16)


@pytest.fixture
def server() -> Server:
    server = Server()
    server.world.create()
    server.world.create("t", TRANSACTION=1)
    return server


@pytest.fixture
def client(server: Server) -> Client:
    return server.client()


def test_a_message_is_sent_and_received(client: Client) -> None:
    sender, reader = client.open(access=Access.SEND), client.open()
    sent = client.call("rpc_ACSendMessageEx", hQueue=sender.phQueue, pMessageID=OBJECTID(bytes(16), 0),
                       ptb=send_buffer(Message(label="label", body=b"body", priority=6)))  # fmt: skip
    assert sent.result == H.MQ_OK
    answer = client.receive(reader.pdwQMContext)
    assert answer.result == H.MQ_OK
    message = message_from_receive(answer.ptb)
    assert (message.label, message.body, message.priority) == ("label", b"body", 6)
    assert message.identifier == sent.pMessageID.Lineage + sent.pMessageID.Uniquifier.to_bytes(4, "little")
    assert client.receive(reader.pdwQMContext).result == H.MQ_ERROR_IO_TIMEOUT


def test_a_recoverable_message_is_answered_and_shown_when_it_is_durable(server: Server, client: Client) -> None:
    sender, reader = client.open(access=Access.SEND), client.open()
    for guarantee in (1, 0):
        waiting = client.start_receive(reader.pdwQMContext, timeout=INFINITE)
        ptb = send_buffer(Message(delivery_guarantee=guarantee))
        server.sync()
        sending = client.start("rpc_ACSendMessageEx", hQueue=sender.phQueue, ptb=ptb, pMessageID=None)
        assert (sending.over, waiting.over) == (not guarantee, not guarantee)
        server.sync()
        assert sending.response.result == waiting.response.result == H.MQ_OK


def test_a_wait_ends_with_a_message_at_its_time_or_with_its_call(server: Server, client: Client) -> None:
    context = client.open().pdwQMContext
    timed, cancelled, served = (client.start_receive(context, timeout=t) for t in (1000, 50_000, INFINITE))
    cancelled.call.cancel()
    assert cancelled.response.result == H.MQ_ERROR_OPERATION_CANCELLED
    server.world.advance(1000)
    assert timed.response.result == H.MQ_ERROR_IO_TIMEOUT
    assert not served.over
    server.world.send(label="m")
    assert message_from_receive(served.response.ptb).label == "m"


def test_a_receive_that_waits_is_not_in_the_statistics_of_latency(server: Server, client: Client) -> None:
    context, timed = client.open().pdwQMContext, []
    client.timings = Timings(lambda interface, opnum, seconds: timed.append((interface, opnum)), lambda: 0.0)
    waiting = client.start_receive(context, timeout=INFINITE)
    for _ in range(2):
        server.world.send(label="m")
    assert waiting.over and timed == []
    assert client.start_receive(context, timeout=INFINITE).over and len(timed) == 1


def test_a_too_small_buffer_leaves_the_message_and_returns_the_length(server: Server, client: Client) -> None:
    server.world.send(body=bytes(500))
    context = client.open().pdwQMContext
    answer = client.receive(context, body=10)
    assert (answer.result, answer.ptb.old.pBodySize) == (H.MQ_ERROR_BUFFER_OVERFLOW, 500)
    assert client.receive(context, body=500).result == H.MQ_OK


def test_a_wait_with_a_buffer_too_small_is_answered_as_if_it_had_not_waited(server: Server, client: Client) -> None:
    context = client.open().pdwQMContext
    waiting = client.start_receive(context, timeout=INFINITE, body=10)
    server.world.send(body=bytes(500))
    answer = waiting.response
    assert (answer.result, answer.ptb.old.pBodySize) == (H.MQ_ERROR_BUFFER_OVERFLOW, 500)
    assert len(server.world.queue()) == 1


def test_a_recoverable_message_comes_back_with_its_store_failing(server: Server, client: Client) -> None:
    server.world.send(label="m", delivery_guarantee=1)
    context = client.open().pdwQMContext
    server.world.store.full = True
    assert client.receive(context).result == H.MQ_ERROR_MESSAGE_STORAGE_FAILED
    server.world.store.full = False
    assert client.receive(context).result == H.MQ_OK


def test_invalid_receives_are_refused(server: Server, client: Client) -> None:
    server.world.send()
    peek, send, receive = (client.open(access=a).pdwQMContext for a in (Access.PEEK, Access.SEND, Access.RECEIVE))
    assert client.receive(peek).result == H.MQ_ERROR_ACCESS_DENIED
    assert client.receive(send, ReceiveAction.PEEK_CURRENT).result == H.MQ_ERROR_ACCESS_DENIED
    assert client.receive(peek, ReceiveAction.PEEK_CURRENT).result == H.MQ_OK
    assert client.receive(receive, 5).result == H.MQ_ERROR_INVALID_PARAMETER
    assert client.receive(receive, ReceiveAction.PEEK_NEXT).result == H.MQ_ERROR_ILLEGAL_CURSOR_ACTION
    assert client.receive(receive, cursor=77).result == H.MQ_ERROR_INVALID_HANDLE
    assert client.receive(0xDEAD).result == H.MQ_ERROR_INVALID_HANDLE
    assert client.receive(receive, uow=b"x" * 16).result == H.MQ_ERROR_TRANSACTION_SEQUENCE
    answer = client.call("rpc_ACReceiveMessageEx", hQMContext=receive, ptb=send_buffer(Message()))
    assert answer.result == H.MQ_ERROR_INVALID_PARAMETER
    assert len(server.world.queue()) == 1


def test_the_number_of_anothers_open_queue_or_unit_of_work_is_refused(server: Server, client: Client) -> None:
    server.world.send()
    context = client.open().pdwQMContext
    stranger = server.client()
    assert stranger.receive(context).result == H.MQ_ERROR_INVALID_HANDLE
    client.call("R_QMEnlistInternalTransaction", pUow=UOW)
    own = stranger.open("t").pdwQMContext
    assert stranger.receive(own, uow=UOW.rgb).result == H.MQ_ERROR_TRANSACTION_SEQUENCE
    sender = stranger.open("t", Access.SEND).phQueue
    assert stranger.send(sender, Message(), UOW.rgb).result == H.MQ_ERROR_TRANSACTION_SEQUENCE


def test_a_zero_unit_of_work_is_none(server: Server, client: Client) -> None:
    server.world.send(label="m")
    assert client.receive(client.open().pdwQMContext, uow=bytes(16)).result == H.MQ_OK


def test_a_transactional_receive_returns_at_the_abort(server: Server, client: Client) -> None:
    sender = client.open("t", Access.SEND).phQueue
    for end, left in (("R_QMCommitTransaction", 1), ("R_QMAbortTransaction", 1), ("R_QMCommitTransaction", 0)):
        work = client.call("R_QMEnlistInternalTransaction", pUow=UOW).phIntXact
        if not server.world.queue("t").available:
            assert client.send(sender, Message(), UOW.rgb).result == H.MQ_OK
        else:
            assert client.receive(client.open("t").pdwQMContext, uow=UOW.rgb).result == H.MQ_OK
        assert client.call(end, phIntXact=work).result == H.MQ_OK
        assert len(server.world.queue("t")) == left


def test_an_orphaned_receive_in_a_transaction_takes_nothing(server: Server, client: Client) -> None:
    """C706 9.3.3; deviation D-26: the commit removes only messages that the client may have got."""
    work = client.call("R_QMEnlistInternalTransaction", pUow=UOW).phIntXact
    sender, reader = client.open("t", Access.SEND).phQueue, client.open("t").pdwQMContext
    client.send(sender, Message(), UOW.rgb)
    client.call("R_QMCommitTransaction", phIntXact=work)
    work = client.call("R_QMEnlistInternalTransaction", pUow=UOW).phIntXact
    client.orphans = True
    client.start_receive(reader, uow=UOW.rgb)
    client.orphans = False
    client.call("R_QMCommitTransaction", phIntXact=work)
    assert len(server.world.queue("t")) == 1


def test_invalid_sends_are_refused(server: Server, client: Client) -> None:
    sender = client.open(access=Access.SEND).phQueue
    assert client.send(client.open().phQueue, Message()).result == H.MQ_ERROR_ACCESS_DENIED
    assert client.send(sender, Message(), UOW.rgb).result == H.MQ_ERROR_TRANSACTION_SEQUENCE
    assert client.send(client.open("t", Access.SEND).phQueue, Message()).result == H.MQ_ERROR_TRANSACTION_USAGE
    assert client.send(sender, Message(privacy_level=1)).result == H.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION
    ptb = send_buffer(Message())
    ptb.old.pPriority = 8
    answer = client.call("rpc_ACSendMessageEx", hQueue=sender, ptb=ptb, pMessageID=None)
    assert answer.result == H.MQ_ERROR_ILLEGAL_PROPERTY_VALUE
    with pytest.raises(Fault, check=lambda error: error.status == NCA_S_FAULT_CONTEXT_MISMATCH):
        client.send(bytes(20), Message())
    assert len(server.world.queue()) == 0


def test_a_cursor_moves_over_the_wire(server: Server, client: Client) -> None:
    for label in "ab":
        server.world.send(label=label)
    opened = client.open()
    created = client.call("rpc_ACCreateCursorEx", hQueue=opened.phQueue, pcc=m.CACCreateRemoteCursor(1, 2, 3))
    assert (created.result, created.pcc.srv_hACQueue, created.pcc.cli_pQMQueue) == (H.MQ_OK, 2, 3)
    cursor = created.pcc.hCursor
    labels = []
    for action in (ReceiveAction.PEEK_CURRENT, ReceiveAction.PEEK_NEXT):
        labels.append(message_from_receive(client.receive(opened.pdwQMContext, action, cursor=cursor).ptb).label)
    assert labels == ["a", "b"]
    assert client.receive(opened.pdwQMContext, ReceiveAction.PEEK_NEXT, cursor=cursor).result == H.MQ_ERROR_IO_TIMEOUT
    sender = client.open(access=Access.SEND).phQueue
    refused = client.call("rpc_ACCreateCursorEx", hQueue=sender, pcc=m.CACCreateRemoteCursor())
    assert refused.result == H.MQ_ERROR_ACCESS_DENIED


def test_the_operation_for_retries_is_illegal(client: Client) -> None:
    answer = client.call("QMSendMessageInternalEx", pQueueFormat=queue_format("q"), ptb=send_buffer(Message()),
                         pMessageID=None)  # fmt: skip
    assert answer.result == H.MQ_ERROR_ILLEGAL_OPERATION


def test_a_client_that_disconnects_while_waiting_receives_nothing(server: Server, client: Client) -> None:
    opened = client.open()
    waiting = client.start_receive(opened.pdwQMContext, timeout=INFINITE)
    waiting.call.cancel()
    client.leave()
    server.world.send(label="m")
    assert server.world.labels() == ["m"]
