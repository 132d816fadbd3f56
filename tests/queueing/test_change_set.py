"""A change that was written is applied, or the queue manager ends: invariants I2 and I3 of docs/architecture.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from openmsmq.model.constants import Acknowledge, MessageClass
from openmsmq.model.errors import HResult
from openmsmq.queueing.change_set import ChangeSet
from openmsmq.store import Put, StoreFailed
from queueing.world import ALICE, World, refused


@pytest.fixture
def world() -> World:
    made = World()
    made.create("q")
    made.create("t", TRANSACTION=1)
    made.send("q", "before", delivery_guarantee=1)
    return made


def send(world: World, guarantee: int) -> None:
    """Make a send fail: the queues accept the message, the timers do not."""

    def fails(*_: object) -> None:
        raise TypeError("a mistake")

    world.manager.changes.deadlines.add = fails  # type: ignore[method-assign]
    world.send("q", "x", delivery_guarantee=guarantee, time_to_be_received=1)


def purge(world: World) -> None:
    """Make a purge fail: the queue loses its messages between the write and the change."""
    queue = world.open("q")
    append = world.store.append

    def loses(operations: Any) -> list[int]:
        world.queue("q").entries.clear()
        return append(operations)

    world.store.append = loses  # type: ignore[method-assign]
    try:
        world.manager.reading.purge(queue)
    finally:
        world.store.append = append  # type: ignore[method-assign]


def commit(world: World) -> None:
    """Make a commit fail: the queue loses the lock of a sent message."""
    transaction = world.begin()
    world.send("t", "x", transaction)
    world.queue("t").locked.clear()
    world.manager.transactions.commit(transaction)


CHANGES: dict[str, Callable[[World], None]] = {
    "a durable send": lambda world: send(world, 1),
    "an express send": lambda world: send(world, 0),
    "a purge": purge,
    "a commit": commit,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_cannot_be_applied_ends_the_queue_manager(world: World, change: str) -> None:
    with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
        CHANGES[change](world)
    assert isinstance(world.failure, TypeError | KeyError)
    with pytest.raises(StoreFailed):
        world.store.append([Put(b"x", b"y")])
    for guarantee in (0, 1):
        with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
            world.send("q", "after", delivery_guarantee=guarantee)
    with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
        world.manager.administration.create_queue(".\\private$\\new", {}, None, ALICE)


def test_a_removal_that_cannot_be_applied_ends_the_queue_manager_from_a_timer(world: World) -> None:
    world.send("q", "short", time_to_be_received=1, delivery_guarantee=1)
    append = world.store.append

    def loses(operations: Any) -> list[int]:
        world.queue("q").entries.clear()
        return append(operations)

    world.store.append = loses  # type: ignore[method-assign]
    world.now += 5000
    world.manager.expire()
    assert isinstance(world.failure, KeyError)


def test_a_committed_transactional_message_is_counted_once(world: World) -> None:
    transaction = world.begin()
    world.send("t", "a", transaction)
    world.send("t", "b", transaction)
    assert world.queue("t").came == 0
    world.manager.transactions.commit(transaction)
    assert world.queue("t").came == 2 and world.labels("t") == ["a", "b"]


def test_charges_within_one_change_add_up_against_the_quota(world: World) -> None:
    queue = world.create("small", QUOTA=10)
    change = ChangeSet(world.manager.changes)
    assert [change.charge(queue, 4096) for _ in range(4)] == [True, True, False, False]
    assert change.added_to(queue) == 8192


def test_what_a_change_removes_makes_room_for_its_copies_and_not_for_new_messages(world: World) -> None:
    queue = world.create("small", QUOTA=10)
    world.send("small", "large", body=bytes(8000))
    (key,) = queue.available
    for reuse, has_room in ((False, False), (True, True)):
        change = ChangeSet(world.manager.changes)
        change.remove(queue, key, queue.message(key), MessageClass.ACK_RECEIVE)
        assert change.has_room(queue, 8192, reuse=reuse) is has_room
        assert not change.has_room(queue, 20000, reuse=reuse)


def test_a_received_message_is_kept_only_if_its_queue_keeps_a_journal(world: World) -> None:
    world.create("admin")
    world.create("j", JOURNAL=1)
    for name in ("q", "j"):  # with an acknowledgment, which the fast path does not send
        world.send(
            name, "acknowledged", administration_queue_format_name="DIRECT=OS:.\\private$\\admin",
            acknowledgements_requested=int(Acknowledge.POS_RECEIVE), priority=7,
        )  # fmt: skip
        assert world.read(world.open(name)).label == "acknowledged"
    journals = [world.queue(name).journal for name in ("q", "j")]
    assert [world.labels(journal) if journal is not None else None for journal in journals] == [[], ["acknowledged"]]
    assert len(world.labels("admin")) == 2


def test_messages_that_die_are_counted_by_reason(world: World) -> None:
    deaths = world.manager.changes.deaths
    assert deaths == {}
    world.send("q", "late", time_to_be_received=1)
    world.send("q", "later", time_to_be_received=1, journaling_requested=1)
    world.advance(2000)
    assert deaths == {MessageClass.NACK_RECEIVE_TIMEOUT: 2}
    world.manager.reading.purge(world.open("q"))
    assert deaths == {MessageClass.NACK_RECEIVE_TIMEOUT: 2, MessageClass.NACK_Q_PURGED: 1}
