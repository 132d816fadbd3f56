"""Distributed transactions with a transaction manager that was written from the specifications alone: as superior,
as subordinate, and failing at every step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

import openmsmq
from daemon import Daemon, eventually, free_port
from oletx_peer.peer import CRASH, CRASH_AFTER, CUT, CUT_AFTER, Peer, PeerError
from openmsmq.client import transaction_calls
from openmsmq.client.arguments import as_message
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.oletx.structures import decode_token

QUEUE = r".\private$\x"
LOW, HIGH = UUID(int=1), UUID(int=(1 << 128) - 1)
FAST: dict[str, Any] = {"recovery_interval": 0.05, "retry_delay": 0.03}
PROGRAMS = {"push": True, "pull": False}


class Partners:
    """A queue manager, and the peer."""

    def __init__(self, directory: Path, cid: UUID = LOW, level: str = "none") -> None:
        self.peer = Peer("PEER", cid, ("127.0.0.1", free_port("127.0.0.1")), log=str(directory / "peer.log"), **FAST)
        host, port = self.peer.address
        self.other_port = free_port("127.0.0.1")  # of a second partner, OTHER
        peers = f"PEER={host}:{port},OTHER={host}:{self.other_port}"
        options = ("--computer-name", "HERE", "--distributed-transactions", level, "--peers", peers)
        self.daemon = Daemon(directory / "data", *options).start()
        with self.daemon.connect() as manager:
            manager.create_queue(QUEUE, transactional=True)
            with manager.transaction() as transaction:
                token = decode_token(transaction.token())
        self.cid = token.superior.cid
        self.peer.partners["HERE"] = ("127.0.0.1", self.daemon.port, self.cid)
        self.put("old")
        self.manager = self.daemon.connect()
        self.queue = self.manager.open(QUEUE)
        self.sender = self.manager.open(QUEUE, "send")

    def close(self) -> None:
        for thing in (self.queue, self.sender, self.manager):
            thing.close()
        self.peer.close()
        self.daemon.stop()
        assert "Traceback" not in self.daemon.log, self.daemon.log

    def put(self, value: str) -> None:
        with self.daemon.connect() as manager, manager.open(QUEUE, "send") as sender:
            with manager.transaction() as transaction:
                sender.send(value, transaction=transaction)

    def left(self) -> list[Any]:
        """Return the unlocked messages."""
        with self.daemon.connect() as manager, manager.open(QUEUE, "peek", protocol="qmcomm") as reader:
            return [message.decode() for message in reader]

    def pull(self, guid: UUID, token: bytes | None = None) -> None:
        """R_QMEnlistRemoteTransaction with the peer's token."""
        token = self.peer.token(guid).build() if token is None else token
        self.manager._session.private.run(transaction_calls.enlist_remote(guid.bytes_le, token))

    def enlist(self, guid: UUID) -> None:
        """R_QMEnlistTransaction."""
        self.manager._session.pool.run(transaction_calls.enlist_for_sending(guid.bytes_le))

    def send(self, guid: UUID, value: str) -> None:
        """rpc_ACSendMessageEx in the transaction."""
        handle = self.sender._through_qmcomm("sending")
        self.manager._session.pool.run(handle.send(as_message(value, {}), guid.bytes_le))

    def receive(self, guid: UUID) -> Any:
        """R_StartTransactionalReceive and R_EndTransactionalReceive."""
        taken = self.queue._handle.take(lambda queue: queue.take_in_transaction(guid.bytes_le, 0))
        return self.queue._pool.receive(taken).decode()

    def begin(self, way: str, guid: UUID | None = None) -> UUID:
        """Begin a transaction of the peer in which this queue manager has received and sent."""
        guid = guid or self.peer.begin("test")
        if way == "push":
            assert self.peer.push(guid, "HERE") == "propagated"
        else:
            self.pull(guid)
        self.enlist(guid)
        self.work(guid)
        return guid

    def revive(self, action: str) -> None:
        """Restart the peer when an action makes it crash."""
        if action in (CRASH, CRASH_AFTER):
            eventually(lambda: not self.peer.running)
            self.peer.restart()

    def work(self, guid: UUID) -> None:
        assert self.receive(guid) == "old"
        self.send(guid, "new")


DONE, NOT_DONE = ["new"], ["old"]


@pytest.fixture(params=[LOW, HIGH], ids=["secondary", "primary"])
def partners(request: Any, tmp_path: Path) -> Iterator[Partners]:
    partners = Partners(tmp_path, request.param)
    yield partners
    partners.close()


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Partners]:
    partners = Partners(tmp_path)
    yield partners
    partners.close()


def test_a_pushed_transaction_sends_here(partners: Partners) -> None:
    """[MS-MQMP] 3.2.4.10: the client's transaction manager pushes, then the client enlists and sends."""
    guid = partners.begin("push")
    assert partners.left() == []
    assert partners.peer.commit(guid) == "committed"
    eventually(lambda: partners.left() == DONE)
    partners.peer.wait_forgotten(guid)


def test_a_pulled_transaction_receives_here(partners: Partners) -> None:
    """[MS-MQRR] 3.2.4.2: the client presents a token, and this queue manager pulls."""
    guid = partners.begin("pull")
    partners.pull(guid)  # a second pull changes nothing
    assert partners.peer.commit(guid) == "committed"
    eventually(lambda: partners.left() == DONE)
    partners.peer.wait_forgotten(guid)


@pytest.mark.parametrize("way", PROGRAMS)
def test_an_abort_leaves_everything_as_it_was(partners: Partners, way: str) -> None:
    guid = partners.begin(way)
    partners.peer.abort(guid)
    eventually(lambda: partners.left() == NOT_DONE)


@pytest.mark.parametrize("way", PROGRAMS)
def test_a_single_phase_is_decided_here(partners: Partners, way: str) -> None:
    """T12."""
    guid = partners.begin(way)
    assert partners.peer.commit(guid, single_phase=True) == "committed"
    assert partners.left() == DONE
    assert "PREPAREREQDONE" not in [name for name in partners.peer.names("recv") if name == "COMMITREQDONE"]


@pytest.mark.parametrize("way", PROGRAMS)
def test_a_branch_without_work_is_read_only(partners: Partners, way: str) -> None:
    """T13."""
    guid = partners.peer.begin("test")
    if way == "push":
        partners.peer.push(guid, "HERE")
    else:
        partners.pull(guid)
    assert partners.peer.commit(guid) == "committed"
    assert "PARTNERTM_PROPAGATE_MTAG_COMMITREQ" not in partners.peer.names("send")
    assert partners.left() == NOT_DONE


def test_a_local_transaction_is_pulled_and_commits_everywhere(partners: Partners) -> None:
    """This queue manager is the superior: its internal transaction has the peer as a subordinate."""
    with partners.manager.transaction() as transaction:
        guid = UUID(bytes_le=transaction.uow)
        assert partners.peer.pull(guid, "HERE") == "branched"
        partners.sender.send("more", transaction=transaction)
    assert partners.peer.wait_outcome(guid) == "committed"
    assert partners.left() == ["old", "more"]


def test_the_vote_of_a_subordinate_aborts_everywhere(partners: Partners) -> None:
    partners.peer.vote = "abort"
    transaction = partners.manager.transaction()
    guid = UUID(bytes_le=transaction.uow)
    partners.peer.pull(guid, "HERE")
    partners.sender.send("more", transaction=transaction)
    with pytest.raises(MsmqError):
        transaction.commit()
    assert partners.left() == NOT_DONE


def test_a_disconnected_program_aborts_at_its_subordinates(partners: Partners) -> None:
    with partners.daemon.connect() as manager:
        transaction = manager.transaction()
        guid = UUID(bytes_le=transaction.uow)
        partners.peer.pull(guid, "HERE")
    assert partners.peer.wait_outcome(guid) == "aborted"


def test_an_unknown_transaction_can_be_neither_pulled_nor_enlisted(one: Partners) -> None:
    assert one.peer.pull(uuid4(), "HERE") == "tx_not_found"
    gone = one.peer.begin("test")
    token = one.peer.token(gone).build()
    one.peer.abort(gone)
    for call in (lambda: one.enlist(gone), lambda: one.pull(gone, token)):
        with pytest.raises(MsmqError) as error:
            call()
        assert error.value.hresult == HResult.MQ_ERROR_TRANSACTION_IMPORT


# Messages that a superior sends and receives in a commit.
STEPS = {"PREPAREREQ": "send", "PREPAREREQDONE": "recv", "COMMITREQ": "send", "COMMITREQDONE": "recv"}


@pytest.mark.parametrize("action", [CUT, CUT_AFTER, CRASH, CRASH_AFTER])
@pytest.mark.parametrize("way", PROGRAMS)
@pytest.mark.parametrize("step", STEPS)
def test_a_superior_that_fails_at_any_step(one: Partners, step: str, way: str, action: str) -> None:
    """T3, T8: all or nothing, and no message stays locked."""
    guid = one.begin(way)
    one.peer.rule(STEPS[step], step, action)
    outcome = "?"
    with suppress(PeerError):
        outcome = one.peer.commit(guid)
    one.revive(action)
    eventually(lambda: one.left() in (DONE, NOT_DONE))
    if outcome in ("committed", "aborted"):
        eventually(lambda: one.left() == (DONE if outcome == "committed" else NOT_DONE))
    known = one.peer.outcome(guid)
    if known == "committed":
        eventually(lambda: one.left() == DONE)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("action", [CUT, CUT_AFTER, CRASH, CRASH_AFTER])
def test_a_subordinate_that_fails_at_any_step(one: Partners, step: str, action: str) -> None:
    transaction = one.manager.transaction()
    guid = UUID(bytes_le=transaction.uow)
    assert one.peer.pull(guid, "HERE") == "branched"
    one.sender.send("more", transaction=transaction)
    one.peer.rule("recv" if STEPS[step] == "send" else "send", step, action)
    committed = True
    try:
        transaction.commit()
    except openmsmq.MsmqError:
        committed = False
    one.revive(action)
    assert one.left() == (["old", "more"] if committed else ["old"])
    if committed:
        assert one.peer.wait_outcome(guid, 40) == "committed"
    else:
        eventually(lambda: one.peer.outcome(guid) in (None, "aborted"))


@pytest.mark.parametrize("way", PROGRAMS)
def test_this_queue_manager_is_killed_in_doubt(one: Partners, way: str) -> None:
    """T9: it asks for the outcome after its restart, and the decision is delivered again."""
    guid = one.begin(way)
    one.peer.rule("send", "COMMITREQ", CUT)
    one.peer.rule("recv", "REDELIVERCOMMIT", "drop", count=1)
    one.peer.commit(guid)
    one.daemon.kill()
    one.daemon.start()
    eventually(lambda: one.left() == DONE)
    one.peer.wait_forgotten(guid)
