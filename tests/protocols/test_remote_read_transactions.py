"""RemoteRead ([MS-MQRR] 3.1.4.13 to 3.1.4.15): receives in a transaction. An internal one here; for this interface,
distributed ones are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from openmsmq.interfaces import ms_mqrr as m
from openmsmq.model.constants import LookupAction, ReceiveAction
from openmsmq.model.errors import HResult
from openmsmq.protocols.remote_read import CLEANUP_TIMEOUT, RR_ACK, RR_NACK
from protocols.clients import Client, Server, object_format
from protocols.test_remote_read import PEEK, RECEIVE, for_move, message, move, opened
from protocols.test_remote_read import server as server

H = HResult


@pytest.fixture
def client(server: Server) -> Client:
    world = server.world
    world.create("x", TRANSACTION=1)
    transaction = world.begin(99)
    for label in "ab":
        world.send("x", label, transaction, journaling_requested=1)
    world.manager.transactions.commit(transaction)
    return server.client()


@pytest.fixture
def handle(client: Client) -> bytes:
    return opened(client, "x")


def begin(client: Client) -> tuple[bytes, bytes]:
    uow = next(client.server.random).to_bytes(16, "big")
    return uow, client.call("R_QMEnlistInternalTransaction", pUow=m.XACTUOW(uow)).phIntXact


def receive(client: Client, handle: bytes, uow: bytes, action: int = RECEIVE, **more: Any) -> Any:
    arguments = {
        "phContext": handle, "LookupId": 0, "hCursor": 0, "ulAction": int(action), "ulTimeout": 0,
        "dwRequestId": 1, "dwMaxBodySize": 1 << 20, "dwMaxCompoundMessageSize": 0,
        "pTransactionId": m.XACTUOW(uow),
    }  # fmt: skip
    return client.call("R_StartTransactionalReceive", **arguments | more)


def end(client: Client, handle: bytes, acknowledgment: int = RR_ACK) -> int:
    arguments = {"phContext": handle, "dwAck": acknowledgment, "dwRequestId": 1}
    result: int = client.call("R_EndTransactionalReceive", **arguments).result
    return result


def commit(client: Client, work: bytes) -> None:
    assert client.call("R_QMCommitTransaction", phIntXact=work).result == H.MQ_OK


def test_section_4_3_a_message_goes_when_the_transaction_commits(client: Client, handle: bytes) -> None:
    uow, work = begin(client)
    assert message(receive(client, handle, uow)).label == "a"
    assert end(client, handle) == H.MQ_OK
    assert end(client, handle) == H.MQ_ERROR_INVALID_HANDLE
    assert client.server.world.labels("x") == ["b"]
    commit(client, work)
    assert client.server.world.labels("x") == ["b"] and len(client.server.world.queue("x")) == 1


def test_an_aborted_transaction_puts_it_back_in_its_place(client: Client, handle: bytes) -> None:
    uow, work = begin(client)
    receive(client, handle, uow)
    end(client, handle)
    assert client.call("R_QMAbortTransaction", phIntXact=work).result == H.MQ_OK
    assert client.server.world.labels("x") == ["a", "b"]
    response = receive(client, handle, bytes(16))
    assert message(response).abort_count == 1


def test_a_message_that_did_not_arrive_leaves_the_transaction(client: Client, handle: bytes) -> None:
    uow, work = begin(client)
    receive(client, handle, uow)
    assert end(client, handle, RR_NACK) == H.MQ_OK
    assert client.server.world.labels("x") == ["a", "b"]
    commit(client, work)
    assert client.server.world.labels("x") == ["a", "b"]


@pytest.mark.parametrize("how", ["close", "timer"])
def test_a_receive_that_is_not_ended_leaves_the_transaction(client: Client, handle: bytes, how: str) -> None:
    uow, work = begin(client)
    receive(client, handle, uow)
    if how == "close":
        client.call("R_CloseQueue", pphContext=handle)
    else:
        client.server.pass_time(CLEANUP_TIMEOUT)
    assert client.server.world.labels("x") == ["a", "b"]
    commit(client, work)
    assert client.server.world.labels("x") == ["a", "b"]


def test_closing_the_queue_leaves_what_was_acknowledged_to_the_transaction(client: Client, handle: bytes) -> None:
    uow, work = begin(client)
    receive(client, handle, uow)
    end(client, handle)
    client.call("R_CloseQueue", pphContext=handle)
    commit(client, work)
    assert client.server.world.labels("x") == ["b"]


def test_a_zero_transaction_is_none(client: Client, handle: bytes) -> None:
    assert message(receive(client, handle, bytes(16))).label == "a"
    assert end(client, handle) == H.MQ_OK
    assert client.server.world.labels("x") == ["b"]
    assert message(receive(client, handle, bytes(16), PEEK)).label == "b"


def test_a_message_is_received_by_lookup_identifier_in_a_transaction(client: Client, handle: bytes) -> None:
    first = receive(client, handle, bytes(16), PEEK).pSequenceId
    uow, work = begin(client)
    response = receive(client, handle, uow, LookupAction.RECEIVE_NEXT, LookupId=first)
    assert message(response).label == "b"
    end(client, handle)
    commit(client, work)
    assert client.server.world.labels("x") == ["a"]


def test_invalid_uses_of_a_transaction_are_refused(client: Client, handle: bytes, server: Server) -> None:
    uow, work = begin(client)
    for action in (PEEK, ReceiveAction.PEEK_NEXT):
        cursor = client.call("R_CreateCursor", phContext=handle).phCursor
        response = receive(client, handle, uow, action, hCursor=cursor)
        assert response.result == H.MQ_ERROR_TRANSACTION_USAGE
    assert receive(client, opened(client), uow).result == H.MQ_ERROR_TRANSACTION_USAGE
    assert receive(client, handle, b"?" * 16).result == H.MQ_ERROR_TRANSACTION_SEQUENCE
    other = server.client()
    assert receive(other, opened(other, "x"), uow).result == H.MQ_ERROR_TRANSACTION_SEQUENCE
    assert end(client, handle) == H.MQ_ERROR_INVALID_HANDLE
    commit(client, work)
    assert receive(client, handle, uow).result == H.MQ_ERROR_TRANSACTION_SEQUENCE


def test_a_message_is_moved_in_a_transaction(client: Client, handle: bytes) -> None:
    uow, work = begin(client)
    context, _ = for_move(client, "x;s")
    number = receive(client, handle, bytes(16), PEEK).pSequenceId
    assert move(client, handle, context, number, uow) == H.MQ_OK
    assert client.server.world.labels("x") == ["b"]
    commit(client, work)
    assert client.server.world.labels(client.server.world.queue("x").subqueues["s"]) == ["a"]


def test_a_received_message_is_rejected(client: Client, handle: bytes) -> None:
    uow, work = begin(client)
    number = receive(client, handle, uow).pSequenceId
    end(client, handle)

    def reject(number: int, reason: int = 0xC004) -> int:
        arguments = {"phContext": handle, "LookupId": number, "usClass": reason}
        result: int = client.call("R_SetUserAcknowledgementClass", **arguments).result
        return result

    assert reject(number, 0) == H.MQ_OK
    assert reject(number, 0xC003) == H.MQ_ERROR_INVALID_PARAMETER
    assert reject(number + 1) == H.MQ_ERROR_TRANSACTION_USAGE
    assert reject(number + 100) == H.MQ_ERROR_MESSAGE_NOT_FOUND
    assert reject(number) == H.MQ_OK
    commit(client, work)
    dead = client.server.world.registry.transactional_dead_letters
    assert client.server.world.labels(dead) == ["a"]


# -- receives that the transaction no longer has -----------------------------------------------------------------


def abort(client: Client, work: bytes) -> None:
    assert client.call("R_QMAbortTransaction", phIntXact=work).result == H.MQ_OK


def abort_and_let_another_receive(client: Client, work: bytes) -> None:
    abort(client, work)
    other = client.server.client()
    handle = opened(other, "x")
    assert message(receive(other, handle, bytes(16))).label == "a"
    assert end(other, handle) == H.MQ_OK


def abort_and_let_another_lock(client: Client, work: bytes) -> None:
    abort(client, work)
    other = client.server.client()
    assert message(receive(other, opened(other, "x"), bytes(16))).label == "a"


def delete(client: Client, work: bytes) -> None:
    assert client.call("R_QMDeleteObject", pObjectFormat=object_format("x")).result == H.MQ_OK


@pytest.mark.parametrize("acknowledgment", [RR_ACK, RR_NACK])
@pytest.mark.parametrize(
    ("meanwhile", "hresult"),
    [
        (abort, H.MQ_ERROR_TRANSACTION_SEQUENCE),
        (abort_and_let_another_lock, H.MQ_ERROR_TRANSACTION_SEQUENCE),
        (abort_and_let_another_receive, H.MQ_ERROR_MESSAGE_NOT_FOUND),
        (commit, H.MQ_ERROR_MESSAGE_NOT_FOUND),
        (delete, H.MQ_ERROR_QUEUE_DELETED),
    ],
)
def test_an_acknowledgment_fails_if_the_transaction_no_longer_has_the_message(
    client: Client, handle: bytes, meanwhile: Callable[[Client, bytes], None], hresult: int, acknowledgment: int
) -> None:
    """[MS-MQRR] 3.1.4.15, [MS-MQDMPR] 3.1.7.1.12."""
    uow, work = begin(client)
    receive(client, handle, uow)
    meanwhile(client, work)
    assert end(client, handle, acknowledgment) == hresult
    assert end(client, handle) == H.MQ_ERROR_INVALID_HANDLE, "the request is forgotten"


@pytest.mark.parametrize("meanwhile", [abort, commit, delete])
def test_the_cleanup_timer_of_a_transaction_that_has_ended_changes_nothing(
    client: Client, handle: bytes, meanwhile: Callable[[Client, bytes], None]
) -> None:
    uow, work = begin(client)
    receive(client, handle, uow)
    meanwhile(client, work)
    before = [list(queue.entries) for queue in client.server.world.registry.queues.values()]
    client.server.pass_time(CLEANUP_TIMEOUT)
    assert [list(queue.entries) for queue in client.server.world.registry.queues.values()] == before
    assert end(client, handle) == H.MQ_ERROR_INVALID_HANDLE
