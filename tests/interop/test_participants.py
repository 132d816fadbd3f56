"""A database in the transactions of two queue managers: all or nothing, whichever process is killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import openmsmq
import openmsmq.aio
from daemon import Daemon, eventually, partner_daemons
from interop.database import QUEUE, Ledger, move_one
from openmsmq.client import operations
from openmsmq.client.calls import HandleLost, Steps
from openmsmq.client.participants import OUTCOMES
from openmsmq.client.sync.distributed import Outcomes
from tallies import tally


class TwoDaemonsAndDatabase:
    """Two daemons with a queue each, and a database."""

    def __init__(self, directory: Path, items: int) -> None:
        self.near, self.far = partner_daemons(directory, "near", "far")
        for daemon in (self.near, self.far):
            daemon.start()
            with daemon.connect() as manager:
                manager.create_queue(QUEUE, transactional=True)
        self.items = [f"item {number}" for number in range(items)]
        with self.near.connect() as manager, manager.open(QUEUE, "send") as sender:
            with manager.transaction() as transaction:
                for item in self.items:
                    sender.send(item, transaction=transaction)
        self.path = str(directory / "ledger.sqlite")
        self.ledger = Ledger(self.path)

    def close(self) -> None:
        self.ledger.close()
        for daemon in (self.near, self.far):
            daemon.stop()
            assert "Traceback" not in daemon.log, daemon.log

    @staticmethod
    def at(daemon: Daemon, name: str = QUEUE) -> list[Any]:
        with daemon.connect() as manager, manager.open(name, "peek", protocol="qmcomm") as reader:
            return [message.decode() if name == QUEUE else message.label for message in reader]

    def state(self) -> tuple[list[Any], list[Any], list[str]]:
        return self.at(self.near), self.at(self.far), self.ledger.items()


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[TwoDaemonsAndDatabase]:
    trio = TwoDaemonsAndDatabase(tmp_path, 2)
    yield trio
    trio.close()


def test_all_three_commit_together(trio: TwoDaemonsAndDatabase) -> None:
    with trio.near.connect() as near, trio.far.connect() as far:
        move_one(near, far, trio.ledger)
    assert trio.state() == (["item 1"], ["item 0"], ["item 0"])
    assert trio.at(trio.near, OUTCOMES) == [] and trio.ledger.in_doubt() == []


def test_a_database_that_refuses_aborts_everywhere(trio: TwoDaemonsAndDatabase) -> None:
    trio.ledger.refuses = True
    with trio.near.connect() as near, trio.far.connect() as far, pytest.raises(RuntimeError, match="refuses"):
        move_one(near, far, trio.ledger)
    eventually(lambda: trio.state() == (trio.items, [], []))
    assert trio.at(trio.near, OUTCOMES) == []


def test_an_exception_in_the_block_aborts_everywhere(trio: TwoDaemonsAndDatabase) -> None:
    with trio.near.connect() as near:
        with pytest.raises(ValueError, match="no"), near.transaction(distributed=True) as transaction:  # noqa: PT012
            transaction.enlist(trio.ledger)
            trio.ledger.add("never")
            raise ValueError("no")
        with near.transaction(distributed=True) as transaction:
            transaction.enlist(trio.ledger)
    assert trio.ledger.items() == []


def test_only_a_distributed_transaction_takes_participants(trio: TwoDaemonsAndDatabase) -> None:
    with trio.near.connect() as near, near.transaction() as transaction:
        with pytest.raises(openmsmq.TransactionUsage, match="distributed=True"):
            transaction.enlist(trio.ledger)


class DyingParticipant(Ledger):
    """A participant whose program dies during one of the calls."""

    dies_at = ""

    def prepare(self, transaction: str) -> None:
        super().prepare(transaction)
        if self.dies_at == "prepared":
            raise KeyboardInterrupt

    def rollback(self, transaction: str) -> None:
        if not self.dies_at:
            super().rollback(transaction)

    def commit(self, transaction: str) -> None:
        if self.dies_at == "committing":
            raise KeyboardInterrupt
        super().commit(transaction)


@pytest.mark.parametrize(("dies_at", "moved"), [("prepared", 0), ("committing", 1)])
def test_transactions_left_in_doubt_by_a_crashed_program_are_resolved(
    trio: TwoDaemonsAndDatabase, dies_at: str, moved: int
) -> None:
    ledger = DyingParticipant(trio.path)
    ledger.dies_at = dies_at
    with trio.near.connect() as near, trio.far.connect() as far, pytest.raises(KeyboardInterrupt):
        move_one(near, far, ledger)
    ledger.close()
    assert len(trio.ledger.in_doubt()) == 1
    with trio.near.connect() as near:
        eventually(lambda: near.resolve(trio.ledger) == [])
    assert trio.ledger.items() == trio.items[:moved] and trio.ledger.in_doubt() == []
    eventually(lambda: trio.state() == (trio.items[moved:], trio.items[:moved], trio.items[:moved]))
    assert trio.at(trio.near, OUTCOMES) == []


def test_a_running_transaction_is_not_resolved(trio: TwoDaemonsAndDatabase) -> None:
    with trio.near.connect() as near, trio.near.connect() as other:
        transaction = near.transaction(distributed=True)
        identifier = transaction.enlist(trio.ledger)
        trio.ledger.add("x")
        trio.ledger.prepare(identifier)
        assert other.resolve(trio.ledger) == [identifier]
        assert trio.ledger.in_doubt() == [identifier]
        transaction.abort()
        assert other.resolve(trio.ledger) == [] and trio.ledger.items() == []


def test_an_outcome_is_kept_until_all_participants_know_it(trio: TwoDaemonsAndDatabase, tmp_path: Path) -> None:
    """Resolving for one of two databases must not make the other one believe that the transaction was aborted."""
    first, second = Ledger(trio.path), DyingParticipant(str(tmp_path / "second.sqlite"))
    second.dies_at = "committing"
    with trio.near.connect() as near:
        transaction = near.transaction(distributed=True)
        for ledger in (first, second):
            transaction.enlist(ledger)
            ledger.add("x")
        with pytest.raises(KeyboardInterrupt):
            transaction.commit()
        second.dies_at = ""
        assert near.resolve(first) == [] and len(trio.at(trio.near, OUTCOMES)) == 1
        assert near.resolve(first, second) == [] and trio.at(trio.near, OUTCOMES) == []
    assert first.items() == second.items() == ["x"]
    first.close()
    second.close()


class FailingParticipant(Ledger):
    """A participant that is out of order while `fails` is set."""

    fails = True

    def _check(self) -> None:
        if self.fails:
            raise ConnectionError("out of order")

    def commit(self, transaction: str) -> None:
        self._check()
        super().commit(transaction)

    def rollback(self, transaction: str) -> None:
        self._check()
        super().rollback(transaction)

    def in_doubt(self) -> list[str]:
        self._check()
        return super().in_doubt()


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[FailingParticipant]:
    with closing(FailingParticipant(str(tmp_path / "failing.sqlite"))) as ledger:
        yield ledger


def changed(qm: openmsmq.QueueManager, *ledgers: Ledger) -> openmsmq.Transaction:
    """Begin a transaction in which an item is added to each database."""
    transaction = qm.transaction(distributed=True)
    for ledger in ledgers:
        transaction.enlist(ledger)
        ledger.add("x")
    return transaction


def test_a_participant_that_fails_keeps_no_other_from_being_told(
    trio: TwoDaemonsAndDatabase, failing: FailingParticipant
) -> None:
    with trio.near.connect() as near:
        with pytest.raises(ConnectionError):
            changed(near, failing, trio.ledger).abort()
        changed(near, trio.ledger).commit()
        assert trio.ledger.items() == ["x"], "nothing of the first transaction is left"
        with pytest.raises(ConnectionError):
            changed(near, failing, trio.ledger).commit()
        assert trio.ledger.items() == ["x", "x"] and len(trio.at(trio.near, OUTCOMES)) == 1
        with pytest.raises(ConnectionError):
            near.resolve(failing, trio.ledger)
        failing.fails = False
        assert near.resolve(failing, trio.ledger) == []
        assert failing.items() == ["x"] * 2 and trio.at(trio.near, OUTCOMES) == []


def test_what_is_in_doubt_at_the_second_participant_is_resolved_if_the_first_fails(
    trio: TwoDaemonsAndDatabase, failing: FailingParticipant
) -> None:
    with trio.near.connect() as near:
        changed(near, trio.ledger).commit()
        trio.ledger.add("never")
        trio.ledger.prepare(Outcomes(near._session, OUTCOMES).unit_of_work().hex())
        with pytest.raises(ConnectionError) as raised:
            near.resolve(failing, trio.ledger)
        assert not hasattr(raised.value, "__notes__"), "only one participant has failed"
    assert trio.ledger.in_doubt() == [] and trio.ledger.items() == ["x"]


def test_the_outcomes_of_other_programs_stay(trio: TwoDaemonsAndDatabase, failing: FailingParticipant) -> None:
    with trio.near.connect() as near:
        with pytest.raises(ConnectionError):
            changed(near, failing).commit()
        assert near.resolve(trio.ledger) == []
        failing.fails = False
        assert near.resolve(failing) == []
    assert failing.items() == ["x"]


def test_without_an_outcome_queue_nothing_is_decided(trio: TwoDaemonsAndDatabase) -> None:
    with trio.near.connect() as near:
        assert near.resolve(trio.ledger) == []
        identifier = Outcomes(near._session, OUTCOMES).unit_of_work().hex()
        trio.ledger.add("x")
        trio.ledger.prepare(identifier)
        with pytest.raises(openmsmq.QueueNotFound):
            near.resolve(trio.ledger)
    assert trio.ledger.in_doubt() == [identifier]


@pytest.mark.parametrize(
    "lost", [HandleLost("transaction", "t", "no answer", outcome_unknown=True), KeyboardInterrupt()]
)
def test_after_a_commit_without_an_answer_only_resolve_ends_the_participants(
    trio: TwoDaemonsAndDatabase, lost: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = operations.commit

    def unanswered(transaction: operations.Enlisted) -> Steps[None]:
        yield from commit(transaction)
        raise lost

    monkeypatch.setattr(operations, "commit", unanswered)
    with trio.near.connect() as near:
        with pytest.raises(type(lost)), near.transaction(distributed=True) as transaction:  # noqa: PT012
            identifier = transaction.enlist(trio.ledger)
            trio.ledger.add("x")
            transaction.commit()
        assert trio.ledger.in_doubt() == [identifier]
        assert near.resolve(trio.ledger) == [] and trio.ledger.items() == ["x"]


class LateParticipant(DyingParticipant):
    """A participant that gets a transaction in doubt after it was asked for those that it has."""

    afterwards: Callable[[], None] | None = None

    def in_doubt(self) -> list[str]:
        found = super().in_doubt()
        if self.afterwards is not None:
            afterwards, self.afterwards = self.afterwards, None
            afterwards()
        return found


def test_an_outcome_is_kept_for_a_participant_that_was_asked_too_early(
    trio: TwoDaemonsAndDatabase, tmp_path: Path
) -> None:
    late = LateParticipant(str(tmp_path / "late.sqlite"))

    def program() -> None:
        late.dies_at = "committing"
        with pytest.raises(KeyboardInterrupt):
            changed(near, late, trio.ledger).commit()
        late.dies_at = ""

    with closing(late), trio.near.connect() as near:
        changed(near, trio.ledger).commit()
        late.afterwards = program
        assert near.resolve(late, trio.ledger) == [] and len(trio.at(trio.near, OUTCOMES)) == 1
        assert near.resolve(late, trio.ledger) == [] and trio.at(trio.near, OUTCOMES) == []
        assert late.items() == ["x"] and trio.ledger.items() == ["x", "x"]


def test_what_is_prepared_for_another_queue_manager_or_program_is_left_alone(trio: TwoDaemonsAndDatabase) -> None:
    with trio.near.connect() as near, trio.far.connect() as far:
        changed(far, trio.ledger).commit()
        transaction = changed(near, trio.ledger)
        trio.ledger.prepare(transaction.uow.hex())
        trio.ledger.prepare("of another program")
        assert far.resolve(trio.ledger) == []
        assert trio.ledger.in_doubt() == [transaction.uow.hex(), "of another program"]
        assert near.resolve(trio.ledger) == [transaction.uow.hex()]
        transaction.abort()


def test_coroutine_functions_take_part_with_asyncio(trio: TwoDaemonsAndDatabase) -> None:
    class AsyncParticipant:
        def __init__(self, ledger: Ledger) -> None:
            self._ledger = ledger

        async def prepare(self, transaction: str) -> None:
            await asyncio.sleep(0)
            self._ledger.prepare(transaction)

        async def commit(self, transaction: str) -> None:
            self._ledger.commit(transaction)

        async def rollback(self, transaction: str) -> None:
            self._ledger.rollback(transaction)

        async def in_doubt(self) -> list[str]:
            return self._ledger.in_doubt()

    async def program() -> None:
        async with await openmsmq.aio.connect("127.0.0.1", trio.near.port) as near:
            later = AsyncParticipant(trio.ledger)
            async with await near.transaction(distributed=True) as transaction:
                transaction.enlist(later)
                trio.ledger.add("x")
            assert await near.resolve(later) == []
            for end in (transaction.commit, transaction.abort):
                with pytest.raises(openmsmq.TransactionUsage, match="already been committed or aborted"):
                    await end()

    asyncio.run(program())
    assert trio.ledger.items() == ["x"]


def check_kills(directory: Path, items: int, kills: int, seed: int) -> None:
    trio, moments = TwoDaemonsAndDatabase(directory, items), random.Random(seed)
    command = [sys.executable, "-m", "interop.database", str(trio.near.port), str(trio.far.port), trio.path]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}

    def program() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, env=environment)

    running = program()
    for number in range(kills):
        time.sleep(moments.uniform(0.2, 1.2))
        victim = (running, trio.near, trio.far)[number % 3]
        if isinstance(victim, Daemon):
            victim.kill()
            victim.start()
        else:
            tally("kills of clients")
            running.send_signal(signal.SIGKILL)
            running.wait()
            running = program()
    assert running.wait(300) == 0
    with trio.near.connect() as near:
        eventually(lambda: near.resolve(trio.ledger) == [])
    eventually(lambda: trio.state() == ([], trio.items, trio.items))
    trio.close()


def test_kills_of_the_program_and_of_both_queue_managers(tmp_path: Path) -> None:
    check_kills(tmp_path, items=60, kills=3, seed=20261124)


@pytest.mark.slow
def test_many_kills_of_the_program_and_of_both_queue_managers(tmp_path: Path) -> None:
    for seed in range(3):
        (tmp_path / str(seed)).mkdir()
        check_kills(tmp_path / str(seed), items=1500, kills=30, seed=seed)
