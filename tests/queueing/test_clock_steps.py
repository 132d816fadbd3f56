"""Clock changes: durations are not affected, lifetimes follow the clock."""

from __future__ import annotations

import pytest

from openmsmq.model.constants import Access, MessageClass, ReceiveAction
from openmsmq.model.errors import HResult
from openmsmq.queueing.changes import UNUSED_PERIOD
from openmsmq.queueing.manager import LONGEST_SLEEP
from queueing.world import World

HOUR = 3_600_000
TIMEOUT = HResult.MQ_ERROR_IO_TIMEOUT
THERE = "DIRECT=OS:there\\private$\\q"


@pytest.fixture
def world() -> World:
    world = World()
    world.create("q")
    return world


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_receives_wait_as_long_as_they_were_asked_to(world: World, step: int) -> None:
    first = world.wait(world.open(), timeout=2000)
    world.step(step)
    world.advance(1000)
    second = world.wait(world.open(), timeout=2000)
    assert not first.over and not second.over
    assert world.manager.next_expiry() == 1000
    world.step(-step)
    world.advance(1000)
    assert first.status == TIMEOUT and not second.over
    assert world.manager.next_expiry() == 1000
    world.advance(1000)
    assert second.status == TIMEOUT


def test_after_the_clock_went_back_and_right_again_later_receives_end_in_time(world: World) -> None:
    world.step(-HOUR)
    early = world.wait(world.open(), timeout=1000)
    world.advance(1000)
    assert early.status == TIMEOUT
    world.step(HOUR)
    late = world.wait(world.open(), timeout=1000)
    world.advance(999)
    assert not late.over
    world.advance(1)
    assert late.status == TIMEOUT


@pytest.mark.parametrize("recoverable", [0, 1], ids=["express", "recoverable"])
@pytest.mark.parametrize("action", [ReceiveAction.PEEK_CURRENT, ReceiveAction.RECEIVE])
def test_a_message_whose_time_is_over_by_the_new_clock_is_neither_peeked_nor_received(
    world: World, recoverable: int, action: ReceiveAction
) -> None:
    world.send(label="over", time_to_be_received=60, delivery_guarantee=recoverable, journaling_requested=1)
    world.send(label="there", delivery_guarantee=recoverable)
    assert world.manager.next_expiry() == LONGEST_SLEEP
    world.step(2 * HOUR)  # its timer has not fired
    found = world.read(world.open("q", Access.RECEIVE), action)
    assert found.label == "there"
    dead = world.messages(world.registry.dead_letters)
    assert [(m.label, m.message_class) for m in dead] == [("over", MessageClass.NACK_RECEIVE_TIMEOUT)]


def test_batched_receives_do_not_return_expired_messages(world: World) -> None:
    descriptor = world.open()
    world.send(label="over", time_to_be_received=60)
    assert world.manager.reading.fast_path_queues([descriptor]) == [world.queue()]
    world.step(2 * HOUR)
    assert world.manager.reading.fast_path_queues([descriptor]) == []
    world.advance(LONGEST_SLEEP)
    assert world.manager.reading.fast_path_queues([descriptor]) == [world.queue()] and world.labels() == []


def test_a_clock_step_forward_is_noticed_soon_and_a_step_back_prolongs_lifetimes(world: World) -> None:
    world.send(label="m", time_to_be_received=60)
    world.step(-HOUR)
    world.advance(60_000)
    assert world.labels() == ["m"]
    assert world.manager.next_expiry() == LONGEST_SLEEP
    world.step(HOUR)
    world.advance(LONGEST_SLEEP)
    assert world.labels() == []


def test_a_message_whose_time_is_over_stays_hidden_while_the_disk_is_full(world: World) -> None:
    world.send(label="over", time_to_be_received=60, delivery_guarantee=1)
    world.step(2 * HOUR)
    world.store.full = True
    assert world.read(world.open()).status == TIMEOUT
    world.store.full = False
    world.advance(LONGEST_SLEEP)
    assert world.labels() == []


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_unused_outgoing_queues_are_deleted_after_the_same_time(world: World, step: int) -> None:
    world.manager.handles.close_queue(world.open(THERE, Access.SEND))
    world.step(step)
    world.advance(UNUSED_PERIOD)
    assert world.registry.outgoing
    world.advance(UNUSED_PERIOD)
    assert not world.registry.outgoing
