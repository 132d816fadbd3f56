"""RemoteRead ([MS-MQRR] 3.1.4): each operation, its success and its errors."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from msrpc.rpc.association import NULL_HANDLE
from msrpc.rpc.faults import NCA_S_FAULT_CONTEXT_MISMATCH, RPC_X_BAD_STUB_DATA, Fault
from openmsmq.conversion.packets import message_of
from openmsmq.conversion.send_buffer import send_buffer
from openmsmq.interfaces import ms_mqrr as m
from openmsmq.interfaces.ms_mqmq import DL_ID, MULTICAST_ID, QUEUE_FORMAT
from openmsmq.model.constants import INFINITE, Access, LookupAction, ReceiveAction
from openmsmq.model.errors import HResult
from openmsmq.model.message import Message
from openmsmq.packet.sections import Section, SectionType, join
from openmsmq.protocols.remote_read import CLEANUP_TIMEOUT, RR_ACK, RR_NACK, RemoteQueue
from protocols.clients import Client, Connection, Pending, Server, object_format, queue_format
from waiting import until

H = HResult
PEEK, RECEIVE = ReceiveAction.PEEK_CURRENT, ReceiveAction.RECEIVE


@pytest.fixture
def server() -> Server:
    server = Server()
    server.world.create()
    return server


@pytest.fixture
def client(server: Server) -> Client:
    return server.client()


def opened(client: Client, name: str = "q", access: int = Access.RECEIVE, share: int = 0) -> bytes:
    arguments = {
        "pQueueFormat": queue_format(name), "dwAccess": access, "dwShareMode": share, "pClientId": bytes(16),
        "fNonRoutingServer": 1, "Major": 6, "Minor": 3, "BuildNumber": 9600, "fWorkgroup": 1,
    }  # fmt: skip
    handle: bytes = client.call("R_OpenQueue", **arguments).pphContext
    return handle


@pytest.mark.parametrize("method", ["R_OpenQueue", "R_OpenQueueForMove"])
@pytest.mark.parametrize(
    "bad",
    [
        QUEUE_FORMAT(m_qft=0),
        QUEUE_FORMAT(m_qft=7, m_MulticastID=MULTICAST_ID(m_address=0x01020304, m_port=1)),
        QUEUE_FORMAT(m_qft=7, m_MulticastID=MULTICAST_ID(m_address=0xE0020304, m_port=1)),
        QUEUE_FORMAT(m_qft=6, m_DlID=DL_ID(m_DlGuid=bytes(16))),
        QUEUE_FORMAT(m_qft=3, m_pDirectID="nonsense"),
        QUEUE_FORMAT(m_qft=3, m_SuffixAndFlags=9, m_pDirectID="OS:x\\private$\\q"),
        QUEUE_FORMAT(m_qft=4, m_gMachineID=bytes(16)),
        QUEUE_FORMAT(m_qft=8, m_pDirectSubqueueID="OS:x\\private$\\q"),
    ],
)
def test_a_format_name_that_cannot_be_opened_is_an_invalid_parameter(
    client: Client, method: str, bad: QUEUE_FORMAT
) -> None:
    """3.1.4.2: pQueueFormat must have one of these types; otherwise, the error is MQ_ERROR_INVALID_PARAMETER."""
    arguments = {
        "pQueueFormat": bad, "dwAccess": int(Access.RECEIVE if method == "R_OpenQueue" else Access.MOVE),
        "dwShareMode": 0, "pClientId": bytes(16), "fNonRoutingServer": 1, "Major": 6, "Minor": 3, "BuildNumber": 9600,
        "fWorkgroup": 1,
    }  # fmt: skip
    with pytest.raises(Fault) as error:
        client.call(method, **arguments)
    assert error.value.status == H.MQ_ERROR_INVALID_PARAMETER


def put(client: Client, *labels: str, **properties: Any) -> None:
    sender = client.open(access=Access.SEND).phQueue
    for label in labels:
        assert client.send(sender, Message(label=label, **properties)).result == H.MQ_OK


def start(client: Client, handle: bytes, action: int = RECEIVE, request: int = 1, **more: Any) -> Pending:
    arguments = {
        "phContext": handle, "LookupId": 0, "hCursor": 0, "ulAction": int(action), "ulTimeout": 0,
        "dwRequestId": request, "dwMaxBodySize": 1 << 20, "dwMaxCompoundMessageSize": 0,
    }  # fmt: skip
    return client.start("R_StartReceive", **arguments | more)


def read(client: Client, handle: bytes, action: int = RECEIVE, request: int = 1, **more: Any) -> Any:
    pending = start(client, handle, action, request, **more)
    client.server.sync()
    return pending.response


def end(client: Client, handle: bytes, acknowledgment: int = RR_ACK, request: int = 1) -> int:
    result: int = client.call("R_EndReceive", phContext=handle, dwAck=acknowledgment, dwRequestId=request).result
    return result


def message(response: m.R_StartReceive_Response) -> Message:
    assert response.result == H.MQ_OK
    assert response.ppPacketSections is not None
    assert len(response.ppPacketSections) == response.pdwNumberOfSections
    sections = [
        Section(SectionType(s.SectionBufferType), s.SectionSizeAlloc, s.pSectionBuffer or b"")
        for s in response.ppPacketSections
    ]
    return message_of(join(sections))


def label(response: m.R_StartReceive_Response) -> str:
    return message(response).label


def test_the_port_is_returned_before_any_authentication(client: Client, server: Server) -> None:
    assert client.call("R_GetServerPort").result == 2103
    (remote_read,) = (i for i in server.interfaces if i.name == "RemoteRead")
    assert remote_read.open_opnums == {0}


def test_section_4_1_a_queue_is_opened_purged_and_closed(client: Client, server: Server) -> None:
    put(client, "a", "b")
    handle = opened(client)
    assert client.call("R_PurgeQueue", phContext=handle).result == H.MQ_OK
    assert len(server.world.queue()) == 0
    closed = client.call("R_CloseQueue", pphContext=handle)
    assert (closed.pphContext, closed.result) == (NULL_HANDLE, H.MQ_OK)
    with pytest.raises(Fault) as fault:
        client.call("R_PurgeQueue", phContext=handle)
    assert fault.value.status == NCA_S_FAULT_CONTEXT_MISMATCH


def test_section_4_2_a_message_is_received_and_acknowledged(client: Client, server: Server) -> None:
    answer = r"DIRECT=OS:x\private$\r"
    put(client, "first", body=b"body", priority=5, application_tag=7, response_queue_format_name=answer)
    handle = opened(client)
    response = read(client, handle)
    got = message(response)
    assert (got.label, got.body, got.priority, got.application_tag) == ("first", b"body", 5, 7)
    assert got.response_queue_format_name == answer
    assert got.destination_queue_format_name == r"DIRECT=OS:.\private$\q"
    assert response.pdwArriveTime == server.world.manager.clock() // 1000
    assert len(server.world.queue()) == 1, "it is still there, locked"
    assert read(client, handle, request=2).result == H.MQ_ERROR_IO_TIMEOUT
    assert end(client, handle) == H.MQ_OK
    assert len(server.world.queue()) == 0


def test_only_an_undurable_message_waits_for_the_disk(client: Client, server: Server) -> None:
    put(client, "durable", delivery_guarantee=1)
    server.sync()
    handle, sender = opened(client), client.open(access=Access.SEND).phQueue
    written = send_buffer(Message(label="written", delivery_guarantee=1))
    client.start("rpc_ACSendMessageEx", hQueue=sender, ptb=written, pMessageID=None)
    first, second = start(client, handle), start(client, handle, request=2)
    assert first.over and not second.over
    server.sync()
    assert [label(each.response) for each in (first, second)] == ["durable", "written"]


def test_a_negative_acknowledgment_puts_the_message_back_in_its_place(client: Client) -> None:
    put(client, "a", "b")
    handle = opened(client)
    assert label(read(client, handle)) == "a"
    assert end(client, handle, RR_NACK) == H.MQ_OK
    assert [label(read(client, handle, request=n)) for n in (1, 2)] == ["a", "b"]


def test_the_loss_of_the_client_puts_the_message_back(client: Client, server: Server) -> None:
    put(client, "a")
    reader = server.client()
    read(reader, opened(reader))
    reader.leave()
    handle = opened(client)
    assert label(read(client, handle)) == "a"
    server.pass_time(CLEANUP_TIMEOUT - 1)
    assert end(client, handle) == H.MQ_OK, "the time of the old lock is nothing to the new one"


def test_closing_the_queue_puts_the_message_back_and_cancels_what_waits(client: Client, server: Server) -> None:
    put(client, "a")
    handle = opened(client)
    read(client, handle)
    waiting = start(client, handle, request=2, ulTimeout=INFINITE)
    client.call("R_CloseQueue", pphContext=handle)
    assert waiting.response.result == H.MQ_ERROR_OPERATION_CANCELLED
    assert label(read(client, opened(client))) == "a"


def test_the_cleanup_timer_puts_the_message_back(client: Client, server: Server) -> None:
    put(client, "a")
    handle = opened(client)
    read(client, handle)
    server.pass_time(CLEANUP_TIMEOUT - 1)
    assert read(client, handle, request=2).result == H.MQ_ERROR_IO_TIMEOUT
    server.pass_time(1)
    assert end(client, handle) == H.MQ_ERROR_INVALID_HANDLE
    assert label(read(client, handle)) == "a"
    server.pass_time(CLEANUP_TIMEOUT - 1)
    assert read(client, handle, request=2).result == H.MQ_ERROR_IO_TIMEOUT, "each lock has a time of its own"
    assert end(client, handle) == H.MQ_OK
    server.pass_time(2 * CLEANUP_TIMEOUT)
    assert not server.timers


def test_a_receive_waits_for_a_message(client: Client) -> None:
    handle = opened(client)
    waiting = start(client, handle, ulTimeout=INFINITE)
    assert not waiting.over
    assert end(client, handle) == H.MQ_ERROR_MESSAGE_NOT_FOUND
    put(client, "a")
    assert label(waiting.response) == "a"
    assert end(client, handle) == H.MQ_OK


def test_a_waiting_receive_ends_when_its_time_is_up(client: Client, server: Server) -> None:
    handle = opened(client)
    waiting = start(client, handle, ulTimeout=1000)
    server.world.advance(1001)
    assert waiting.response.result == H.MQ_ERROR_IO_TIMEOUT
    assert end(client, handle) == H.MQ_ERROR_INVALID_HANDLE


@pytest.mark.parametrize("action", [RECEIVE, PEEK])
def test_a_waiting_receive_is_cancelled(client: Client, action: ReceiveAction) -> None:
    handle = opened(client)
    waiting = start(client, handle, action, ulTimeout=INFINITE)
    assert client.call("R_CancelReceive", phContext=handle, dwRequestId=2).result == H.MQ_ERROR_INVALID_PARAMETER
    assert client.call("R_CancelReceive", phContext=handle, dwRequestId=1).result == H.MQ_OK
    assert waiting.response.result == H.MQ_ERROR_OPERATION_CANCELLED
    put(client, "a")
    assert label(read(client, handle)) == "a"


def test_a_receive_whose_call_is_cancelled_takes_nothing(client: Client) -> None:
    handle = opened(client)
    waiting = start(client, handle, ulTimeout=INFINITE)
    waiting.call.cancel()
    assert waiting.response.result == H.MQ_ERROR_OPERATION_CANCELLED
    put(client, "a")
    assert label(read(client, handle, request=2)) == "a"


def test_an_orphaned_receive_locks_nothing(client: Client) -> None:
    """C706 9.3.3. The client has another connection, so its handles stay."""
    put(client, "a")
    handle = opened(client)
    client.orphans = True
    start(client, handle)
    client.orphans = False
    assert label(read(client, handle)) == "a"


def test_a_receive_that_is_orphaned_while_it_waits_for_the_disk_puts_its_message_back(
    client: Client, server: Server
) -> None:
    handle = opened(client)
    server.world.send(label="a", delivery_guarantee=1)
    receiving = start(client, handle)
    assert not receiving.over and server.world.queue().locked
    receiving.orphan()
    server.sync()
    assert label(read(client, handle, request=2)) == "a"
    assert end(client, handle, request=2) == H.MQ_OK


def test_a_receive_that_has_its_message_is_not_cancelled(client: Client) -> None:
    put(client, "a")
    handle = opened(client)
    read(client, handle)
    assert client.call("R_CancelReceive", phContext=handle, dwRequestId=1).result == H.MQ_ERROR_INVALID_PARAMETER
    assert end(client, handle) == H.MQ_OK


def test_a_recoverable_message_is_shown_when_it_is_durable(client: Client, server: Server) -> None:
    handle = opened(client)
    sender = client.open(access=Access.SEND).phQueue
    waiting = start(client, handle, ulTimeout=INFINITE)
    server.sync()
    client.start(
        "rpc_ACSendMessageEx", hQueue=sender, pMessageID=None,
        ptb=send_buffer(Message(delivery_guarantee=1)),
    )  # fmt: skip
    assert not waiting.over
    server.sync()
    assert waiting.response.result == H.MQ_OK
    ending = client.start("R_EndReceive", phContext=handle, dwAck=RR_ACK, dwRequestId=1)
    assert not ending.over, "the removal has to be durable before it is confirmed"
    server.sync()
    assert ending.response.result == H.MQ_OK


def test_peeking_locks_nothing(client: Client) -> None:
    put(client, "a")
    handle = opened(client, access=Access.PEEK)
    assert [label(read(client, handle, PEEK)) for _ in range(2)] == ["a", "a"]
    assert end(client, handle) == H.MQ_ERROR_INVALID_HANDLE
    assert read(client, handle).result == H.MQ_ERROR_ACCESS_DENIED
    assert client.call("R_PurgeQueue", phContext=handle).result == H.STATUS_ACCESS_DENIED


def test_a_cursor_moves_and_receives(client: Client) -> None:
    put(client, "a", "b", "c")
    handle = opened(client)
    cursor = client.call("R_CreateCursor", phContext=handle).phCursor
    assert label(read(client, handle, PEEK, hCursor=cursor)) == "a"
    assert label(read(client, handle, ReceiveAction.PEEK_NEXT, hCursor=cursor)) == "b"
    assert label(read(client, handle, RECEIVE, hCursor=cursor)) == "b"
    assert end(client, handle) == H.MQ_OK
    assert label(read(client, handle, PEEK, hCursor=cursor)) == "c"
    assert client.call("R_CloseCursor", phContext=handle, hCursor=cursor).result == H.MQ_OK
    assert client.call("R_CloseCursor", phContext=handle, hCursor=cursor).result == H.STATUS_INVALID_HANDLE
    assert read(client, handle, PEEK, hCursor=cursor).result == H.STATUS_INVALID_HANDLE
    assert read(client, handle).result == H.MQ_OK, "the refused request number is free"


def test_messages_are_found_by_lookup_identifier(client: Client) -> None:
    put(client, "a", "b", "c")
    handle = opened(client)
    cursor = client.call("R_CreateCursor", phContext=handle).phCursor
    read(client, handle, PEEK, hCursor=cursor)
    middle = read(client, handle, ReceiveAction.PEEK_NEXT, hCursor=cursor).pSequenceId
    by = {"LookupId": middle}
    assert label(read(client, handle, LookupAction.PEEK_PREV, **by)) == "a"
    assert label(read(client, handle, LookupAction.PEEK_CURRENT, **by)) == "b"
    assert label(read(client, handle, LookupAction.PEEK_NEXT, **by)) == "c"
    assert label(read(client, handle, LookupAction.RECEIVE_CURRENT, **by)) == "b"
    assert read(client, handle, LookupAction.RECEIVE_CURRENT, 2, **by).result == H.MQ_ERROR_MESSAGE_NOT_FOUND
    assert read(client, handle, LookupAction.PEEK_CURRENT, 2, **by).result == H.MQ_ERROR_TRANSACTION_USAGE
    assert label(read(client, handle, LookupAction.RECEIVE_NEXT, 2, **by)) == "c"
    assert label(read(client, handle, LookupAction.RECEIVE_PREV, 3, **by)) == "a"
    assert [end(client, handle, request=n) for n in (1, 2, 3)] == [H.MQ_OK] * 3
    assert read(client, handle, LookupAction.PEEK_CURRENT, **by).result == H.MQ_ERROR_MESSAGE_NOT_FOUND


def test_nothing_is_before_the_first_or_after_the_last_message(client: Client) -> None:
    put(client, "a")
    handle = opened(client)
    only = read(client, handle, PEEK).pSequenceId
    for action in (LookupAction.PEEK_PREV, LookupAction.PEEK_NEXT, LookupAction.RECEIVE_NEXT):
        assert read(client, handle, action, LookupId=only).result == H.MQ_ERROR_MESSAGE_NOT_FOUND


@pytest.mark.parametrize("wanted", [0, 3, 8, 9])
def test_a_body_is_split_as_requested_by_the_client(client: Client, wanted: int) -> None:
    put(client, "a", body=b"12345678")
    handle = opened(client)
    response = read(client, handle, PEEK, dwMaxBodySize=wanted)
    assert response.pdwNumberOfSections == (1 if wanted >= 8 else 2)
    assert message(response).body == b"12345678"[:wanted]
    first = response.ppPacketSections[0]
    assert first.SectionSizeAlloc - first.SectionSize == max(8 - wanted, 0)


@pytest.mark.parametrize(
    "arguments",
    [
        {"action": 5},
        {"action": LookupAction.PEEK_CURRENT},
        {"action": LookupAction.RECEIVE_PREV},
        {"action": RECEIVE, "LookupId": 1},
        {"action": LookupAction.PEEK_CURRENT, "LookupId": 1, "ulTimeout": 1},
        {"action": LookupAction.PEEK_CURRENT, "LookupId": 1, "hCursor": 1},
        {"action": ReceiveAction.PEEK_NEXT},
    ],
)
def test_inconsistent_arguments_are_refused(client: Client, arguments: dict[str, Any]) -> None:
    assert read(client, opened(client), **arguments).result == H.MQ_ERROR_INVALID_PARAMETER


def test_a_request_number_is_used_once_at_a_time(client: Client) -> None:
    put(client, "a", "b")
    handle = opened(client)
    read(client, handle)
    assert read(client, handle).result == H.MQ_ERROR_INVALID_PARAMETER
    assert end(client, handle, request=2) == H.MQ_ERROR_INVALID_PARAMETER
    assert end(client, handle) == H.MQ_OK
    assert label(read(client, handle)) == "b"


def test_another_acknowledgment_is_bad_stub_data(client: Client) -> None:
    put(client, "a")
    handle = opened(client)
    read(client, handle)
    operation = m.RemoteRead.operation("R_EndReceive")
    assert operation.request is not None
    stub = bytearray(operation.encode_request(operation.request(phContext=handle, dwAck=RR_ACK, dwRequestId=1)))
    stub[20] = 3
    with pytest.raises(Fault) as fault:
        client.start_stub("R_EndReceive", bytes(stub))
    assert fault.value.status == RPC_X_BAD_STUB_DATA
    assert end(client, handle) == H.MQ_OK


def test_a_full_disk_leaves_the_receive_to_be_ended_again(client: Client, server: Server) -> None:
    put(client, "a", delivery_guarantee=1)
    handle = opened(client)
    read(client, handle)
    server.world.store.full = True
    assert end(client, handle) == H.MQ_ERROR_MESSAGE_STORAGE_FAILED
    server.world.store.full = False
    assert end(client, handle) == H.MQ_OK
    assert len(server.world.queue()) == 0


def test_an_open_that_is_cancelled_while_the_directory_is_asked_is_a_fault(
    client: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3.1.4.2: R_OpenQueue has no result."""

    asked: list[object] = []

    async def never(*given: object) -> None:
        asked.append(given)
        await asyncio.Event().wait()

    directory: Any = SimpleNamespace(needs=lambda name: True, resolve=never)
    monkeypatch.setattr(server.environment, "public_queues", directory)
    faults: list[int] = []
    monkeypatch.setattr(Connection, "send_fault", lambda connection, call, status: faults.append(status))

    async def work() -> None:
        pending = client.start(
            "R_OpenQueue", pQueueFormat=queue_format("q"), dwAccess=Access.RECEIVE, dwShareMode=0, pClientId=bytes(16),
            fNonRoutingServer=1, Major=6, Minor=3, BuildNumber=9600, fWorkgroup=1,
        )  # fmt: skip
        await until(lambda: asked)
        pending.call.cancel()
        await until(lambda: faults or pending.call.over)

    asyncio.run(work())
    assert faults == [H.MQ_ERROR_OPERATION_CANCELLED]


@pytest.mark.parametrize(
    ("arguments", "hresult"),
    [
        ({"name": "missing"}, H.MQ_ERROR_QUEUE_NOT_FOUND),
        ({"access": 2}, H.MQ_ERROR_INVALID_PARAMETER),
        ({"share": 2}, H.MQ_ERROR_INVALID_PARAMETER),
        ({"name": "MULTICAST=234.1.1.1:5"}, H.MQ_ERROR_INVALID_PARAMETER),
    ],
)
def test_an_invalid_open_is_a_fault(client: Client, arguments: dict[str, Any], hresult: int) -> None:
    with pytest.raises(Fault) as fault:
        opened(client, **arguments)
    assert fault.value.status == hresult


def test_an_exclusive_reader_excludes_others(client: Client) -> None:
    opened(client, share=1)
    with pytest.raises(Fault) as fault:
        opened(client)
    assert fault.value.status == H.MQ_ERROR_SHARING_VIOLATION


def test_a_deleted_queue_says_so(client: Client, server: Server) -> None:
    put(client, "a")
    handle = opened(client)
    read(client, handle)
    client.call("R_QMDeleteObject", pObjectFormat=object_format())
    assert end(client, handle) == H.MQ_ERROR_QUEUE_DELETED
    assert read(client, handle, request=2).result == H.MQ_ERROR_QUEUE_DELETED
    server.pass_time(CLEANUP_TIMEOUT)


def for_move(client: Client, name: str = "q;s", **more: Any) -> tuple[int, bytes]:
    """Open a queue as the target of moves; returns its move context and its handle."""
    arguments = {
        "pQueueFormat": queue_format(name), "dwAccess": Access.MOVE, "dwShareMode": 0, "pClientId": bytes(16),
        "fNonRoutingServer": 1, "Major": 6, "Minor": 3, "BuildNumber": 9600, "fWorkgroup": 1,
    }  # fmt: skip
    response = client.call("R_OpenQueueForMove", **arguments | more)
    return response.pMoveContext, response.pphContext


def move(client: Client, source: bytes, target: int, lookup_identifier: int, uow: bytes = bytes(16)) -> int:
    result: int = client.call(
        "R_MoveMessage", phContextFrom=source, ullContextTo=target, LookupId=lookup_identifier,
        pTransactionId=m.XACTUOW(uow),
    ).result  # fmt: skip
    return result


def test_a_message_is_moved_to_a_subqueue_and_read_from_there(client: Client) -> None:
    put(client, "a", "b", delivery_guarantee=1)
    handle = opened(client)
    first = message(read(client, handle, PEEK)).lookup_identifier
    context, target = for_move(client)
    number = read(client, handle, PEEK).pSequenceId
    assert move(client, handle, context, number) == H.MQ_OK
    assert message(read(client, handle, PEEK)).label == "b"
    response = read(client, opened(client, "q;s"))
    section = response.ppPacketSections[0]
    packet = join([Section(SectionType(0), section.SectionSizeAlloc, section.pSectionBuffer)])
    assert packet.subqueue is not None and (packet.subqueue.subqueue, packet.subqueue.move_count) == ("s", 1)
    assert message(response).label == "a" and response.pSequenceId == number and first == 0
    assert client.call("R_CloseQueue", pphContext=target).pphContext == NULL_HANDLE
    assert move(client, handle, context, number) == H.MQ_ERROR_INVALID_HANDLE


def test_invalid_moves_are_refused(client: Client, server: Server) -> None:
    server.world.create("r")
    put(client, "a")
    handle = opened(client)
    number = read(client, handle, PEEK).pSequenceId
    context, _ = for_move(client)
    stranger, _ = for_move(client, "r;s")
    assert move(client, handle, context ^ 2, number) == H.MQ_ERROR_INVALID_HANDLE
    other = server.client()
    assert move(other, opened(other), context, number) == H.MQ_ERROR_INVALID_HANDLE
    assert move(client, handle, stranger, number) == H.STATUS_INVALID_PARAMETER
    assert move(client, handle, context, number + 1) == H.MQ_ERROR_MESSAGE_NOT_FOUND
    uow = begin(client)
    # Order of checks: relation, usage, message, transaction. The client gets the first error (3.1.4.10).
    assert move(client, handle, context, number, b"u" * 16) == H.MQ_ERROR_TRANSACTION_USAGE
    assert move(client, handle, stranger, number, b"u" * 16) == H.STATUS_INVALID_PARAMETER
    assert move(client, handle, context, number, uow) == H.MQ_ERROR_TRANSACTION_USAGE
    assert move(client, opened(client, access=Access.PEEK), context, number) == H.MQ_ERROR_ACCESS_DENIED
    read(client, handle)
    assert move(client, handle, context, number) == H.MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION
    with pytest.raises(Fault) as fault:
        for_move(client, "nothing;s")
    assert fault.value.status == H.MQ_ERROR_QUEUE_NOT_FOUND
    for wrong in ({"dwAccess": 1}, {"dwShareMode": 1}):
        with pytest.raises(Fault) as fault:
            for_move(client, **wrong)
        assert fault.value.status == H.MQ_ERROR_INVALID_PARAMETER


def begin(client: Client) -> bytes:
    """Begin a transaction of this client and return its unit of work."""
    uow = next(client.server.random).to_bytes(16, "big")
    client.call("R_QMEnlistInternalTransaction", pUow=m.XACTUOW(uow))
    return uow


def test_distributed_transactions_are_off_until_they_are_switched_on(client: Client) -> None:
    arguments = {
        "pTransactionId": m.XACTUOW(b"u" * 16), "cbPropagationToken": 1, "pbPropagationToken": b"x",
        "pQueueFormat": queue_format("q"),
    }  # fmt: skip
    assert client.call("R_QMEnlistRemoteTransaction", **arguments).result == H.MQ_ERROR_DTC_CONNECT


def test_a_message_has_a_location_while_it_is_in_the_queue_and_in_the_store(server: Server, client: Client) -> None:
    opened(client)
    put(client, "stored", delivery_guarantee=1)
    put(client, "express", delivery_guarantee=0)
    [queue] = [entry[1] for entry in client.association.handles.entries.values() if isinstance(entry[1], RemoteQueue)]
    assert queue.descriptor.queue is not None
    stored, express = queue.descriptor.queue.entries
    location = queue.location(stored)
    assert location is not None and server.world.store.read(location)
    assert queue.location(express) is None
    assert queue.location(express + 1) is None, "no longer in the queue"
    server.world.manager.administration.delete_queue(queue.descriptor.queue, server.world.owner)
    assert queue.location(stored) is None
