"""A change that was written is applied, or the queue manager ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from openmsmq.model.errors import HResult
from openmsmq.queueing.queue import Queue
from openmsmq.store import Put, StoreFailed
from queueing.world import ALICE, World, refused


@pytest.fixture
def world() -> World:
    made = World()
    made.create("q")
    made.create("t", TRANSACTION=1)
    made.send("q", "before", delivery_guarantee=1)
    return made


class Broken(Exception):
    """What a mistake in the queues raises."""


def breaks(*arguments: object) -> None:
    raise Broken


def commit(world: World) -> None:
    transaction = world.begin()
    world.send("t", "x", transaction)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Queue, "unlock", breaks)
        world.manager.transactions.commit(transaction)


CHANGES: dict[str, tuple[str, Callable[[World], object]]] = {
    "a durable send": ("insert", lambda world: world.send("q", "x", delivery_guarantee=1)),
    "an express send": ("insert", lambda world: world.send("q", "x")),
    "a purge": ("remove", lambda world: world.manager.reading.purge(world.open("q"))),
    "a commit": ("unlock", commit),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_can_not_be_applied_ends_the_queue_manager(
    world: World, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    method, act = CHANGES[change]
    with monkeypatch.context() as patch:
        if change != "a commit":
            patch.setattr(Queue, method, breaks)
        with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
            act(world)
    assert isinstance(world.failure, Broken)
    with pytest.raises(StoreFailed):
        world.store.append([Put(b"x", b"y")])
    for guarantee in (0, 1):
        with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
            world.send("q", "after", delivery_guarantee=guarantee)
    with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
        world.manager.administration.create_queue(".\\private$\\new", {}, None, ALICE)


def test_a_removal_that_can_not_be_applied_ends_the_timers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.send("q", "short", time_to_be_received=1)
    monkeypatch.setattr(Queue, "remove", breaks)
    world.now += 5000
    world.manager.expire()
    assert isinstance(world.failure, Broken)
