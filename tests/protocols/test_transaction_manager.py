"""TransactionManager, the project's own interface: each operation, its success and its errors."""

from __future__ import annotations

from typing import Any

import pytest

from openmsmq.interfaces.ms_mqmq import XACTUOW
from openmsmq.model.errors import HResult
from openmsmq.protocols.coordinator import PropagationToken, TransactionOutcome, Whereabouts
from protocols.clients import Client, Server

H = HResult
UOW = b"unit of work 16b"


@pytest.fixture
def server() -> Server:
    server = Server()
    server.world.create("x", TRANSACTION=1)
    return server


@pytest.fixture
def client(server: Server) -> Client:
    return server.client()


def begin(client: Client) -> Any:
    return client.call("R_QMEnlistInternalTransaction", pUow=XACTUOW(UOW))


def token(client: Client, uow: bytes = UOW) -> Any:
    return client.call("TmGetPropagationToken", pUow=XACTUOW(uow))


def tell(client: Client, operation: str, secret: bytes, uow: bytes = UOW) -> int:
    result: int = client.call(operation, pUow=XACTUOW(uow), pSecret=secret).result
    return result


def test_the_client_of_a_transaction_gets_its_token(server: Server, client: Client) -> None:
    begin(client)
    response = token(client)
    assert response.result == H.MQ_OK and response.pcbToken == len(response.ppbToken)
    assert PropagationToken.decode(response.ppbToken).coordinator.name == "HERE"
    assert token(client).ppbToken == response.ppbToken
    assert token(server.client()).result == H.MQ_ERROR_TRANSACTION_SEQUENCE
    assert token(client, b"?" * 16).result == H.MQ_ERROR_TRANSACTION_SEQUENCE


def test_others_enlist_until_it_ends(client: Client) -> None:
    work = begin(client).phIntXact
    secret = PropagationToken.decode(token(client).ppbToken).secret
    there = Whereabouts("THERE", ("192.0.2.7",), 2103).encode()

    def enlist(secret: bytes = secret, participant: bytes = there) -> int:
        arguments = {"pUow": XACTUOW(UOW), "pSecret": secret, "cbParticipant": len(participant)}
        result: int = client.call("TmEnlist", **arguments, pbParticipant=participant).result
        return result

    assert enlist(bytes(16)) == H.MQ_ERROR_TRANSACTION_SEQUENCE
    assert enlist(participant=b"nowhere") == H.MQ_ERROR_INVALID_PARAMETER
    assert enlist() == enlist() == H.MQ_OK
    response = client.call("TmGetOutcome", pUow=XACTUOW(UOW), pSecret=secret)
    assert (response.result, response.pdwOutcome) == (H.MQ_OK, TransactionOutcome.IN_PROGRESS)
    assert work != bytes(20)


def test_a_branch_is_prepared_and_committed(server: Server, client: Client) -> None:
    secret = bytes(range(16))
    coordinator = PropagationToken(secret, Whereabouts("THERE", (), 2103)).encode()
    manager = server.world.manager
    for name in ("TmPrepare", "TmCommit", "TmAbort"):
        expected = H.MQ_ERROR_TRANSACTION_SEQUENCE if name == "TmPrepare" else H.MQ_OK
        assert tell(client, name, secret) == expected, "of what is not here only the commit is known to be done"
    transaction = manager.transactions.create(UOW)
    transaction.coordinator = coordinator
    server.world.send("x", "a", transaction)
    assert tell(client, "TmCommit", secret) == H.MQ_ERROR_TRANSACTION_SEQUENCE
    assert tell(client, "TmPrepare", bytes(16)) == H.MQ_ERROR_ACCESS_DENIED
    assert tell(client, "TmPrepare", secret) == tell(client, "TmPrepare", secret) == H.MQ_OK
    assert tell(client, "TmCommit", secret) == tell(client, "TmCommit", secret) == H.MQ_OK
    assert server.world.labels("x") == ["a"]


def test_a_branch_is_aborted(server: Server, client: Client) -> None:
    secret = bytes(range(16))
    transaction = server.world.manager.transactions.create(UOW)
    transaction.coordinator = PropagationToken(secret, Whereabouts("THERE", (), 2103)).encode()
    server.world.send("x", "a", transaction)
    tell(client, "TmPrepare", secret)
    assert tell(client, "TmAbort", secret) == H.MQ_OK
    assert server.world.labels("x") == [] and not server.world.manager.transactions.enlisted()


@pytest.mark.parametrize("operation", ["TmPrepare", "TmCommit"])
def test_no_answer_is_given_before_it_is_durable(server: Server, client: Client, operation: str) -> None:
    secret = bytes(range(16))
    transaction = server.world.manager.transactions.create(UOW)
    transaction.coordinator = PropagationToken(secret, Whereabouts("THERE", (), 2103)).encode()
    server.world.send("x", "a", transaction)
    if operation == "TmCommit":
        tell(client, "TmPrepare", secret)
    for _ in range(2):  # the second one has nothing to write, and waits for the first
        pending = client.start(operation, pUow=XACTUOW(UOW), pSecret=secret)
        assert not pending.over
    server.sync()
    assert pending.response.result == H.MQ_OK
