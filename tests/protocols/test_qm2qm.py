"""qm2qm ([MS-MQQP] 3.1.4): each operation, its success and its errors."""

from __future__ import annotations

from typing import Any

import pytest

from msrpc.rpc.association import NULL_HANDLE
from msrpc.rpc.call import Call
from msrpc.rpc.faults import NCA_S_FAULT_CONTEXT_MISMATCH, RPC_X_BAD_STUB_DATA, Fault
from openmsmq.conversion.packets import message_of
from openmsmq.interfaces import ms_mqqp as m
from openmsmq.interfaces.ms_mqmp import CACTransferBufferV1, CACTransferBufferV1_Send
from openmsmq.model.constants import INFINITE, Access, LookupAction, ReceiveAction
from openmsmq.model.errors import HResult
from openmsmq.model.message import Message
from openmsmq.packet.message_packet import MessagePacket
from openmsmq.protocols.qm2qm import FIRST, LAST, RR_ACK, RR_NACK
from protocols.clients import Client, Pending, Server, queue_format

H = HResult
PEEK, RECEIVE, PEEK_NEXT = ReceiveAction.PEEK_CURRENT, ReceiveAction.RECEIVE, ReceiveAction.PEEK_NEXT


@pytest.fixture
def server() -> Server:
    server = Server()
    server.world.create()
    return server


@pytest.fixture
def client(server: Server) -> Client:
    """The queue manager that reads on behalf of its client."""
    return server.client()


def handed_out(server: Server, name: str = "q", access: int = Access.RECEIVE, share: int = 0) -> tuple[Client, Any]:
    """Open a queue as an application that does not release its context yet."""
    application = server.client()
    opened = application.call(
        "R_QMOpenRemoteQueue", pQueueFormat=queue_format(name), dwDesiredAccess=access, dwShareMode=share,
        pLicGuid=bytes(16), dwMQS=0x100, dwCallingProcessID=0,
    )  # fmt: skip
    assert opened.result == H.MQ_OK
    return application, opened


def session(client: Client, name: str = "q", access: int = Access.RECEIVE) -> tuple[int, bytes]:
    """Return the handle of an open queue and of the session on it."""
    application, opened = handed_out(client.server, name, access)
    response = client.call(
        "RemoteQMOpenQueue", pLicGuid=bytes(16), dwMQS=0, hQueue=opened.phQueue, pQueue=opened.dwpQueue,
        dwpContext=opened.pdwContext,
    )  # fmt: skip
    assert response.result == H.MQ_OK
    application.call("R_QMCloseRemoteQueueContext", pphContext=opened.pphContext)
    return opened.phQueue, response.phContext


def describe(queue: int, action: int = RECEIVE, request: int = 1, **more: int) -> m.REMOTEREADDESC:
    return m.REMOTEREADDESC(hRemoteQueue=queue, dwQueue=queue, ulAction=int(action), dwRequestID=request, **more)


def start(client: Client, queue: int, action: int = RECEIVE, request: int = 1, **more: int) -> Pending:
    description = m.REMOTEREADDESC2(pRemoteReadDesc=describe(queue, action, request, **more))
    return client.start("RemoteQMStartReceive2", lpRemoteReadDesc2=description)


def read(client: Client, queue: int, action: int = RECEIVE, request: int = 1, **more: int) -> Any:
    pending = start(client, queue, action, request, **more)
    client.server.sync()
    return pending.response


def look_up(client: Client, queue: int, identifier: int, action: LookupAction, **more: int) -> Any:
    description = m.REMOTEREADDESC2(pRemoteReadDesc=describe(queue, action, **more))
    return client.call("RemoteQMStartReceiveByLookupId", LookupId=identifier, lpRemoteReadDesc2=description)


def end(client: Client, handle: bytes, acknowledgment: int = RR_ACK) -> int:
    result: int = client.call("RemoteQMEndReceive", pphContext=handle, dwAck=acknowledgment).result
    return result


def message(response: Any) -> Message:
    assert response.result == H.MQ_OK
    description = response.lpRemoteReadDesc2.pRemoteReadDesc
    assert description.dwSize == len(description.lpBuffer)
    return message_of(MessagePacket.unpack(description.lpBuffer))


def test_ports_are_returned_before_any_authentication(client: Client, server: Server) -> None:
    server.environment.ports[1] = 2105
    assert [client.call("RemoteQMGetQMQMServerPort", dwPortType=kind).result for kind in range(4)] == [2103, 2105, 0, 0]
    (interface,) = (i for i in server.interfaces if i.name == "qm2qm")
    assert interface.open_opnums == {7}


def test_the_version_is_that_of_a_server_that_knows_all_operations(client: Client) -> None:
    version = client.call("RemoteQmGetVersion")
    assert (version.pMajor, version.pMinor, version.pBuildNumber) >= (6, 1, 6531)


def test_section_4_1_a_message_is_received_and_acknowledged(client: Client, server: Server) -> None:
    server.world.send(label="a", delivery_guarantee=1, body=b"body", time_to_reach_queue=100)
    queue, handle = session(client)
    description = describe(queue)
    response = client.call("RemoteQMStartReceive", lpRemoteReadDesc=description)
    assert response.result == H.MQ_OK and response.pphContext != NULL_HANDLE
    received = message_of(MessagePacket.unpack(response.lpRemoteReadDesc.lpBuffer))
    assert (received.label, received.body) == ("a", b"body")
    assert response.lpRemoteReadDesc.dwArriveTime == server.world.now // 1000
    assert len(server.world.queue()) == 1 and server.world.labels() == []
    ended = client.call("RemoteQMEndReceive", pphContext=response.pphContext, dwAck=RR_ACK)
    assert ended.result == H.MQ_OK and ended.pphContext == NULL_HANDLE
    assert len(server.world.queue()) == 0
    assert client.call("RemoteQMCloseQueue", pphContext=handle).pphContext == NULL_HANDLE
    assert not server.world.queue().openers


def test_section_4_2_a_queue_is_purged(client: Client, server: Server) -> None:
    server.world.send()
    queue, _ = session(client)
    assert client.call("RemoteQMPurgeQueue", hQueue=queue).result == H.MQ_OK
    assert len(server.world.queue()) == 0
    assert client.call("RemoteQMPurgeQueue", hQueue=queue + 1).result == H.MQ_ERROR_INVALID_HANDLE
    peeking, _ = session(client, access=Access.PEEK)
    assert client.call("RemoteQMPurgeQueue", hQueue=peeking).result == H.MQ_ERROR_ACCESS_DENIED


def test_a_negative_acknowledgment_puts_the_message_back(client: Client, server: Server) -> None:
    for label in "ab":
        server.world.send(label=label)
    queue, _ = session(client)
    response = read(client, queue)
    assert message(response).label == "a"
    assert end(client, response.pphContext, RR_NACK) == H.MQ_OK
    assert server.world.labels() == ["a", "b"]
    with pytest.raises(Fault) as fault:
        end(client, response.pphContext)
    assert fault.value.status == NCA_S_FAULT_CONTEXT_MISMATCH
    assert end(client, NULL_HANDLE) == H.MQ_ERROR_INVALID_HANDLE
    with pytest.raises(Fault) as fault:
        client.start_stub("RemoteQMEndReceive", response.pphContext + (3).to_bytes(4, "little"))
    assert fault.value.status == RPC_X_BAD_STUB_DATA


@pytest.mark.parametrize("how", ["leave", "close"])
def test_what_is_not_acknowledged_is_put_back(client: Client, server: Server, how: str) -> None:
    server.world.send(label="a")
    queue, handle = session(client)
    response = read(client, queue)
    waiting = start(client, queue, request=2, ulTimeout=INFINITE)
    if how == "leave":
        waiting.call.cancel()
        client.leave()
    else:
        client.call("RemoteQMCloseQueue", pphContext=handle)
        assert end(client, response.pphContext) == H.MQ_ERROR_QUEUE_DELETED
    assert waiting.response.result == H.MQ_ERROR_OPERATION_CANCELLED
    assert server.world.labels() == ["a"] and not server.world.queue().openers


def test_the_application_may_disconnect_once_the_session_exists(server: Server, client: Client) -> None:
    application, opened = handed_out(server)
    arguments = {
        "pLicGuid": bytes(16), "dwMQS": 0, "hQueue": 0, "pQueue": opened.dwpQueue, "dwpContext": opened.pdwContext,
    }  # fmt: skip
    assert client.call("RemoteQMOpenQueue", **arguments).result == H.MQ_OK
    assert client.call("RemoteQMOpenQueue", **arguments).result == H.MQ_ERROR_INVALID_PARAMETER
    application.leave()
    server.world.send(label="a")
    assert message(read(client, opened.phQueue)).label == "a"


def test_an_application_that_disconnects_earlier_closes_its_queue(server: Server, client: Client) -> None:
    application, opened = handed_out(server)
    application.leave()
    assert not server.world.queue().openers
    for value in (opened.pdwContext, 0):
        arguments = {"pLicGuid": bytes(16), "dwMQS": 0, "hQueue": 0, "pQueue": value, "dwpContext": value}
        assert client.call("RemoteQMOpenQueue", **arguments).result == H.MQ_ERROR_INVALID_PARAMETER


def test_only_queues_that_were_opened_for_it_become_sessions(server: Server, client: Client) -> None:
    local = server.client().open()
    arguments = {"pLicGuid": bytes(16), "dwMQS": 0, "hQueue": 0, "pQueue": local.pdwQMContext}
    response = client.call("RemoteQMOpenQueue", **arguments, dwpContext=local.pdwQMContext)
    assert response.result == H.MQ_ERROR_INVALID_PARAMETER
    _, opened = handed_out(server)
    response = client.call("RemoteQMOpenQueue", **arguments, dwpContext=opened.pdwContext)
    assert response.result == H.MQ_ERROR_INVALID_PARAMETER


def test_a_session_belongs_to_its_client(client: Client, server: Server) -> None:
    queue, _ = session(client)
    other = server.client()
    assert read(other, queue).result == H.MQ_ERROR_INVALID_PARAMETER
    assert other.call("RemoteQMPurgeQueue", hQueue=queue).result == H.MQ_ERROR_INVALID_HANDLE


def test_a_receive_waits_for_a_message_and_its_time(client: Client, server: Server) -> None:
    queue, _ = session(client)
    pending = start(client, queue, ulTimeout=INFINITE)
    server.world.send(label="late")
    assert message(pending.response).label == "late"
    pending = start(client, queue, request=2, ulTimeout=1000)
    server.world.advance(1001)
    assert pending.response.result == H.MQ_ERROR_IO_TIMEOUT and pending.response.pphContext == NULL_HANDLE


def test_a_waiting_receive_is_cancelled(client: Client, server: Server) -> None:
    queue, _ = session(client)

    def cancel(request: int, queue: int = queue, pointer: int = queue) -> int:
        arguments = {"hQueue": queue, "pQueue": pointer, "dwRequestID": request}
        result: int = client.call("RemoteQMCancelReceive", **arguments).result
        return result

    assert cancel(1) == H.MQ_ERROR_INVALID_HANDLE
    pending = start(client, queue, ulTimeout=INFINITE)
    assert cancel(2) == H.MQ_ERROR
    assert cancel(1, pointer=queue + 1) == H.MQ_ERROR_INVALID_PARAMETER
    assert cancel(1, queue + 1, queue + 1) == H.MQ_ERROR_INVALID_HANDLE
    assert cancel(1) == H.MQ_OK
    assert pending.response.result == H.MQ_INFORMATION_REMOTE_CANCELED_BY_CLIENT
    server.world.send(label="a")
    assert server.world.labels() == ["a"]


@pytest.mark.parametrize("by_lookup_identifier", [False, True])
def test_an_orphaned_receive_locks_nothing(client: Client, by_lookup_identifier: bool) -> None:
    """C706 9.3.3: nobody gets the handle with which to end it. The client has another connection, so its handles
    stay."""
    queue, _ = session(client)
    client.server.world.send(label="m")
    client.orphans = True
    if by_lookup_identifier:
        look_up(client, queue, 0, LookupAction.RECEIVE_NEXT)
    else:
        start(client, queue)
    client.orphans = False
    assert message(read(client, queue)).label == "m"


def test_a_receive_that_is_orphaned_while_it_waits_for_the_disk_puts_its_message_back(
    client: Client, server: Server
) -> None:
    queue, _ = session(client)
    server.world.send(label="m", delivery_guarantee=1)
    receiving = start(client, queue)
    assert not receiving.over and server.world.queue().locked
    receiving.orphan()
    server.sync()
    assert message(read(client, queue)).label == "m"


def test_a_cursor_moves_and_receives(client: Client, server: Server) -> None:
    for label in "abc":
        server.world.send(label=label)
    queue, _ = session(client)
    blank = CACTransferBufferV1(Send=CACTransferBufferV1_Send())
    cursor = client.call("R_QMCreateRemoteCursor", ptb1=blank, hQueue=queue).phCursor
    labels = [message(read(client, queue, action, hCursor=cursor)).label for action in (PEEK, PEEK_NEXT, PEEK_NEXT)]
    assert labels == ["a", "b", "c"]
    assert message(read(client, queue, RECEIVE, hCursor=cursor)).label == "c"
    assert read(client, queue, PEEK_NEXT).result == H.STATUS_INVALID_PARAMETER
    assert read(client, queue, PEEK, hCursor=cursor + 1).result == H.STATUS_INVALID_PARAMETER
    close = {"hQueue": queue, "hCursor": cursor}
    assert client.call("RemoteQMCloseCursor", **close).result == H.MQ_OK
    assert client.call("RemoteQMCloseCursor", **close).result == H.MQ_ERROR_INVALID_HANDLE


def test_messages_are_found_by_lookup_identifier_and_at_both_ends(client: Client, server: Server) -> None:
    for label in "abc":
        server.world.send(label=label)
    queue, _ = session(client)
    action = LookupAction
    first = read(client, queue, PEEK).lpRemoteReadDesc2.SequentialId
    for identifier, wanted, label in (
        (first, action.PEEK_CURRENT, "a"), (first, action.PEEK_NEXT, "b"), (first + 1, action.PEEK_PREV, "a"),
        (FIRST, action.PEEK_NEXT, "a"), (LAST, action.PEEK_PREV, "c"),
    ):  # fmt: skip
        response = look_up(client, queue, identifier, wanted)
        assert message(response).label == label and response.pphContext == NULL_HANDLE
    response = look_up(client, queue, LAST, action.RECEIVE_PREV)
    assert message(response).label == "c" and end(client, response.pphContext) == H.MQ_OK
    assert server.world.labels() == ["a", "b"]
    assert look_up(client, queue, first + 9, action.PEEK_CURRENT).result == H.MQ_ERROR_MESSAGE_NOT_FOUND
    assert look_up(client, queue, FIRST, action.PEEK_CURRENT).result == H.MQ_ERROR_MESSAGE_NOT_FOUND
    for wrong in ({"hCursor": 1}, {"ulTimeout": 1}):
        assert look_up(client, queue, first, action.PEEK_CURRENT, **wrong).result == H.MQ_ERROR_INVALID_PARAMETER


def test_inconsistent_arguments_are_refused(client: Client, server: Server) -> None:
    queue, _ = session(client)
    invalid = H.MQ_ERROR_INVALID_PARAMETER
    assert read(client, queue, 7).result == invalid
    assert read(client, queue, LookupAction.PEEK_CURRENT).result == invalid
    assert read(client, 0).result == invalid
    for one, other in ((queue, queue + 1), (queue + 1, queue)):
        lopsided = m.REMOTEREADDESC(hRemoteQueue=one, dwQueue=other, ulAction=int(PEEK))
        assert client.call("RemoteQMStartReceive", lpRemoteReadDesc=lopsided).result == invalid
    empty = m.REMOTEREADDESC2(pRemoteReadDesc=None)
    assert client.call("RemoteQMStartReceive2", lpRemoteReadDesc2=empty).result == H.MQ_ERROR_INVALID_HANDLE
    start(client, queue, ulTimeout=INFINITE)
    assert read(client, queue).result == invalid
    peeking, _ = session(client, access=Access.PEEK)
    assert read(client, peeking).result == H.MQ_ERROR_ACCESS_DENIED
    assert look_up(client, peeking, 1, LookupAction.RECEIVE_CURRENT).result == H.MQ_ERROR_ACCESS_DENIED


def test_a_recoverable_message_is_shown_when_it_is_durable(client: Client, server: Server) -> None:
    queue, _ = session(client)
    pending = start(client, queue, ulTimeout=INFINITE)
    server.world.send(label="a", delivery_guarantee=1)
    assert not pending.over
    server.sync()
    assert message(pending.response).label == "a"


def test_a_full_disk_leaves_the_receive_to_be_ended_again(client: Client, server: Server) -> None:
    server.world.send(label="a", delivery_guarantee=1)
    queue, _ = session(client)
    response = read(client, queue)
    server.world.store.full = True
    assert end(client, response.pphContext) == H.MQ_ERROR_MESSAGE_STORAGE_FAILED
    server.world.store.full = False
    assert end(client, response.pphContext) == H.MQ_OK
    assert len(server.world.queue()) == 0


def test_the_time_that_a_receive_waits_for_a_message_is_not_counted_as_the_servers(
    client: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[Call] = []

    def note(call: Call) -> None:
        waited.append(call)

    monkeypatch.setattr(Call, "waits", note)
    server.world.send(label="a")
    queue, _ = session(client)
    assert start(client, queue).over and not waited
    pending = start(client, queue, request=2, ulTimeout=INFINITE)
    assert not pending.over and waited == [pending.call]
