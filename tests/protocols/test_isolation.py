"""No action of one client makes another client fail, in any interface."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from msrpc.rpc.call import UNAUTHENTICATED, RpcCaller
from msrpc.rpc.faults import RPC_S_ACCESS_DENIED, Fault
from msrpc.rpc.pdu import AuthLevel
from msrpc.rpc.security import Identity
from openmsmq.interfaces import ms_mqmp as mp
from openmsmq.interfaces.ms_mqmq import XACTUOW
from openmsmq.model.constants import INFINITE, Access, ReceiveAction
from openmsmq.model.errors import HResult
from openmsmq.model.message import Message
from openmsmq.queueing import sending
from protocols import test_qm2qm as qm2qm
from protocols import test_remote_read as remote_read
from protocols.clients import Connection, Pending, Server, queue_format

H = HResult
ALICE = RpcCaller(Identity("alice", "", "S-1-5-21-1-2-3-1001"), AuthLevel.PKT_PRIVACY)
BOB = RpcCaller(Identity("bob", "", "S-1-5-21-1-2-3-1002"), AuthLevel.PKT_PRIVACY)
CARELESS = RpcCaller(ALICE.identity, AuthLevel.CONNECT)


@pytest.fixture
def server() -> Server:
    server = Server()
    server.world.create("q")
    return server


def send(server: Server, label: str, **values: Any) -> None:
    server.world.send("q", label, **values)


def let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the check of messages, which an older version lacked."""
    monkeypatch.setattr(sending, "check_message", lambda *arguments: None)


UNPACKABLE = [{"label": "x" * 300}, {"signature": bytes(70_000)}, {"symmetric_key": bytes(70_000)}]


def wait_by_remote_read(server: Server) -> Pending:
    client = server.client()
    return remote_read.start(client, remote_read.opened(client), ulTimeout=INFINITE)


def wait_by_qm2qm(server: Server) -> Pending:
    client = server.client()
    return qm2qm.start(client, qm2qm.session(client)[0], ulTimeout=INFINITE)


def label_by_remote_read(response: Any) -> str:
    return remote_read.label(response)


def label_by_qm2qm(response: Any) -> str:
    return qm2qm.message(response).label


READERS = [(wait_by_remote_read, label_by_remote_read), (wait_by_qm2qm, label_by_qm2qm)]


@pytest.mark.parametrize(("wait", "label"), READERS)
@pytest.mark.parametrize("values", UNPACKABLE)
def test_a_message_that_cannot_be_packed_harms_neither_its_sender_nor_the_waiting_reader(
    server: Server, monkeypatch: pytest.MonkeyPatch, wait: Callable[[Server], Pending], label: Callable[[Any], str],
    values: dict[str, Any],
) -> None:  # fmt: skip
    let_in(monkeypatch)
    waiting = wait(server)
    server.world.send("q", **{"label": "odd", **values})  # raises no exception
    assert not waiting.over
    send(server, "good")
    assert label(waiting.response) == "good"
    assert len(server.world.labels("q")) == 1


def test_a_message_that_cannot_be_packed_is_skipped_and_stays_available(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_in(monkeypatch)
    send(server, "odd", signature=bytes(70_000))
    send(server, "good")
    client = server.client()
    handle = remote_read.opened(client)
    for _ in range(2):
        assert remote_read.label(remote_read.read(client, handle, ReceiveAction.PEEK_CURRENT)) == "good"
    assert remote_read.label(remote_read.read(client, handle)) == "good"
    assert remote_read.end(client, handle) == H.MQ_OK
    assert server.world.labels("q") == ["odd"]
    other = server.client()
    assert other.receive(other.open().pdwQMContext, signature=70_000).result == H.MQ_OK


def test_a_reader_that_holds_too_many_handles_gets_the_failure_and_nobody_else(server: Server) -> None:
    client = server.client()
    queue, _ = qm2qm.session(client)
    client.association.handles._maximum = len(client.association.handles)
    waiting = qm2qm.start(client, queue, ulTimeout=INFINITE)
    sender = server.client()
    assert sender.send(sender.open(access=Access.SEND).phQueue, Message(label="a")).result == H.MQ_OK
    assert waiting.response.result == H.MQ_ERROR_INSUFFICIENT_RESOURCES
    assert server.world.labels("q") == ["a"]


@pytest.mark.parametrize("how", ["qmcomm", "RemoteRead", "for another queue manager"])
def test_a_client_that_cannot_hold_another_queue_leaves_none_open(server: Server, how: str) -> None:
    client = server.client()
    client.association.handles._maximum = 0
    attempts = {
        "qmcomm": client.open,
        "RemoteRead": lambda: remote_read.opened(client),
        "for another queue manager": lambda: client.call(
            "R_QMOpenRemoteQueue", pQueueFormat=queue_format("q"), dwDesiredAccess=Access.RECEIVE, dwShareMode=0,
            pLicGuid=bytes(16), dwMQS=0x100, dwCallingProcessID=0,
        ),
    }  # fmt: skip
    with pytest.raises(Fault):
        attempts[how]()
    assert not server.world.manager.handles.descriptors and not server.world.queue("q").openers


def test_cursors_count_as_handles_until_they_are_closed(server: Server) -> None:
    client = server.client()
    opened = client.open()
    client.association.handles._maximum = 3

    def create() -> int:
        response = client.call("rpc_ACCreateCursorEx", hQueue=opened.phQueue, pcc=mp.CACCreateRemoteCursor())
        cursor: int = response.pcc.hCursor
        return cursor

    first, _ = create(), create()
    with pytest.raises(Fault):
        create()
    client.call("rpc_ACCloseCursor", hQueue=opened.phQueue, hCursor=first)
    create()
    client.call("rpc_ACCloseHandle", phQueue=opened.phQueue)
    assert client.open().result == H.MQ_OK and client.open().result == H.MQ_OK


def outcome(attempt: Callable[[], Any]) -> int:
    """Return the result of a call, or the status of its fault."""
    try:
        result: int = attempt().result
    except Fault as fault:
        return fault.status
    return result


@pytest.mark.parametrize("stranger", [BOB, CARELESS, UNAUTHENTICATED])
def test_handles_of_another_caller_are_invalid_in_the_same_association(server: Server, stranger: RpcCaller) -> None:
    alice = server.client()
    alice.caller = ALICE
    send(server, "secret")
    opened, sending_to = alice.open(), alice.open(access=Access.SEND)
    remote, uow = remote_read.opened(alice), bytes(range(16))
    work = alice.call("R_QMEnlistInternalTransaction", pUow=XACTUOW(uow)).phIntXact
    other = alice.joined_by(stranger)
    attempts: list[Callable[[], Any]] = [
        lambda: other.receive(opened.pdwQMContext),
        lambda: other.receive(opened.pdwQMContext, ReceiveAction.PEEK_CURRENT),
        lambda: other.call("rpc_ACPurgeQueue", hQueue=opened.phQueue),
        lambda: other.call("rpc_ACCloseHandle", phQueue=opened.phQueue),
        lambda: other.send(sending_to.phQueue, Message()),
        lambda: other.send(other.open(access=Access.SEND).phQueue, Message(), uow),
        lambda: remote_read.read(other, remote),
        lambda: other.call("R_CloseQueue", pphContext=remote),
        lambda: other.call("R_QMCommitTransaction", phIntXact=work),
        lambda: other.call("R_QMAbortTransaction", phIntXact=work),
    ]
    refusals = {RPC_S_ACCESS_DENIED, H.MQ_ERROR_INVALID_HANDLE, H.MQ_ERROR_TRANSACTION_SEQUENCE}
    assert {outcome(attempt) for attempt in attempts} <= refusals
    assert server.world.labels("q") == ["secret"]
    assert alice.receive(opened.pdwQMContext).result == H.MQ_OK
    assert alice.call("R_QMCommitTransaction", phIntXact=work).result == H.MQ_OK


def test_values_of_open_queue_handles_are_not_predictable(server: Server) -> None:
    drawn = iter(int.to_bytes(value, 4, "little") for value in (5, 0x80000001, 0x80000001, 0x12345678))
    server.world.manager.handles._random = lambda count: next(drawn)  # type: ignore[misc]
    client = server.client()
    assert [client.open().pdwQMContext for _ in range(2)] == [0x80000001, 0x12345678]


def test_a_message_is_not_removed_for_a_disconnected_client(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    send(server, "a", delivery_guarantee=1)
    client = server.client()
    context = client.open().pdwQMContext
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours:
        monkeypatch.setattr(Connection, "descriptor", ours.fileno())
        assert client.receive(context).result == H.MQ_ERROR_OPERATION_CANCELLED
    assert server.world.labels("q") == ["a"]
