"""Prepared distributed transactions survive a restart ([MS-MQDMPR] 3.1.4.3, 3.1.4.6 to 3.1.4.10)."""

from __future__ import annotations

import pytest

from openmsmq.model.constants import Access, Journal, MessageClass
from openmsmq.model.errors import HResult
from openmsmq.queueing.unit_of_work import Transaction
from openmsmq.store import Put
from queueing.world import ALICE, World, refused

SEQUENCE = HResult.MQ_ERROR_TRANSACTION_SEQUENCE
UOW = (1).to_bytes(16, "little")


@pytest.fixture
def world() -> World:
    world = World()
    world.create(TRANSACTION=1)
    world.create("r", TRANSACTION=1)
    transaction = world.begin(99)
    for label in "abcd":
        world.send(label=label, transaction=transaction, journaling_requested=int(Journal.DEADLETTER))
    world.manager.transactions.commit(transaction)
    return world


def work(world: World) -> Transaction:
    """Send x and y to r, receive a, reject b, move c to a subqueue; prepare."""
    transaction = world.begin()
    transaction.superior = b"who decides"
    for label in "xy":
        world.send("r", label, transaction)
    queue = world.open()
    world.read(queue, transaction=transaction)
    world.manager.subqueues.reject(queue, world.read(queue, transaction=transaction).message.lookup_identifier)
    key = world.queue().first()
    assert key is not None
    target = world.open("q;s", Access.MOVE)
    world.manager.subqueues.move(queue, target, key, lambda: transaction)
    world.manager.transactions.prepare(transaction)
    return transaction


def look(world: World) -> tuple[list[str], list[str], list[str], list[str]]:
    subqueue = world.queue().subqueues.get("s")
    moved = world.labels(subqueue) if subqueue else []
    return world.labels(), world.labels("r"), moved, world.labels(world.registry.transactional_dead_letters)


NOTHING_YET = (["d"], [], [], [])
COMMITTED = (["d"], ["x", "y"], ["c"], ["b"])
ABORTED = (["a", "b", "c", "d"], [], [], [])


@pytest.mark.parametrize("restarts", [0, 1, 2])
@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_the_outcome_is_all_or_nothing_also_after_a_restart(
    world: World, restarts: int, checkpoint: bool, end: str
) -> None:
    work(world)
    for _ in range(restarts):
        assert look(world) == NOTHING_YET
        world.restart(checkpoint)
    assert look(world) == NOTHING_YET
    transaction = world.manager.transactions.find(UOW)
    assert transaction.is_prepared and transaction.superior == b"who decides"
    (world.decide if end == "commit" else world.manager.transactions.abort)(transaction)
    expected = COMMITTED if end == "commit" else ABORTED
    assert look(world) == expected
    world.restart(checkpoint)
    assert look(world) == expected
    assert not world.manager.transactions.enlisted() and not world.store.recovered.prepared


def test_marks_of_first_and_last_message_survive(world: World) -> None:
    work(world)
    world.restart()
    world.decide(world.manager.transactions.find(UOW))
    marks = [(m.first_in_transaction, m.last_in_transaction) for m in world.messages(world.queue("r"))]
    assert marks == [(True, False), (False, True)]


def test_a_rejection_survives(world: World) -> None:
    work(world)
    world.restart()
    world.decide(world.manager.transactions.find(UOW))
    (dead,) = world.messages(world.registry.transactional_dead_letters)
    assert dead.message_class == MessageClass.NACK_RECEIVE_REJECTED


def test_a_prepared_transaction_takes_no_more_work(world: World) -> None:
    transaction = work(world)
    with refused(SEQUENCE):
        world.send("r", "late", transaction)
    assert world.read(world.open(), transaction=transaction).status == HResult.MQ_ERROR_TRANSACTION_USAGE
    key = world.queue().first()
    assert key is not None
    with refused(SEQUENCE):
        world.manager.subqueues.move(world.open(), world.open("q;s", Access.MOVE), key, lambda: transaction)


def test_unprepared_transactions_do_not_survive_a_restart(world: World) -> None:
    transaction = world.begin()
    world.send("r", "x", transaction)
    world.send("r", "y", transaction)
    world.restart()
    with refused(SEQUENCE):
        world.manager.transactions.find(UOW)
    assert world.labels("r") == []


def test_numbers_of_prepared_transactions_are_not_reused(world: World) -> None:
    number = work(world).number
    world.restart()
    assert world.begin(2).number > number


def test_an_empty_transaction_is_prepared_too(world: World) -> None:
    world.manager.transactions.prepare(world.begin())
    world.restart()
    world.decide(world.manager.transactions.find(UOW))
    world.restart()
    assert not world.manager.transactions.enlisted()


def test_a_full_disk_prepares_nothing(world: World) -> None:
    transaction = world.begin()
    world.send("r", "x", transaction)
    world.store.full = True
    with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
        world.manager.transactions.prepare(transaction)
    world.store.full = False
    world.send("r", "y", transaction)
    world.manager.transactions.prepare(transaction)
    world.decide(transaction)
    assert world.labels("r") == ["x", "y"]


def test_a_queue_that_is_deleted_while_in_doubt_leaves_nothing_behind(world: World) -> None:
    work(world)
    world.manager.administration.delete_queue(world.queue(), ALICE)
    world.manager.administration.delete_queue(world.queue("r"), ALICE)
    world.restart()
    world.decide(world.manager.transactions.find(UOW))
    world.restart()  # its sent messages are found to be orphaned and removed
    world.restart()
    assert not world.store.recovered.queues.keys() - {world.registry.transactional_dead_letters.number}


def test_a_decision_is_part_of_the_commit(world: World) -> None:
    transaction = world.begin()
    world.send("r", "x", transaction)
    world.store.full = True
    with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
        world.manager.transactions.commit(transaction, [Put(b"decision", b"1")])
    assert b"decision" not in world.store.definitions
    world.store.full = False
    world.manager.transactions.commit(transaction, [Put(b"decision", b"1")])
    assert world.store.definitions[b"decision"] == b"1"
