"""Messages that a relay takes in from another machine."""

from __future__ import annotations

from typing import Any

import pytest

from openmsmq.model.constants import Access, Acknowledge
from openmsmq.model.errors import QueueDeleted
from openmsmq.model.message import Message
from openmsmq.store import Operation
from queueing.world import World

ADMIN = "DIRECT=OS:.\\private$\\admin"


def message(label: str, **values: Any) -> Message:
    return Message(label=label, delivery_guarantee=1, **values)


@pytest.fixture
def world() -> World:
    made = World()
    made.create("q", QUOTA=2)
    made.create("t", TRANSACTION=1)
    made.create("admin")
    return made


def take_in(world: World, queue: str, *messages: Message) -> tuple[list[bool], list[str]]:
    """Return whether each message was accepted, and the labels of those that operations may join."""
    accepted: list[str] = []

    def also(taken: list[Message]) -> list[Operation]:
        accepted.extend(each.label for each in taken)
        return []

    outcomes = world.manager.relays.take_in(world.queue(queue), messages, also)
    return [outcome is None for outcome in outcomes], accepted


def test_the_other_machine_acknowledges_receipt_so_the_queue_here_does_not(world: World) -> None:
    asked = int(Acknowledge.FULL_RECEIVE)
    assert take_in(
        world, "q",
        message("a", administration_queue_format_name=ADMIN, acknowledgements_requested=asked, arrival_time=5),
    ) == ([True], ["a"])  # fmt: skip
    received = world.read(world.open("q", Access.RECEIVE)).message
    assert (received.label, received.arrival_time) == ("a", 5)
    world.turn()
    assert world.labels("admin") == []


def test_a_message_that_has_no_arrival_time_arrives_now(world: World) -> None:
    take_in(world, "q", message("a"))
    assert world.messages(world.queue("q"))[0].arrival_time == world.now // 1000


def test_the_messages_after_one_that_a_queue_refuses_are_taken(world: World) -> None:
    assert take_in(world, "q", message("a"), message("big", body=bytes(4096)), message("b")) == (
        [True, False, True], ["a", "b"],
    )  # fmt: skip
    assert world.labels("q") == ["a", "b"]


def test_a_transactional_queue_takes_nothing_after_a_refused_message(world: World) -> None:
    one = {"transaction_identifier": bytes(16) + b"\1\0\0\0", "first_in_transaction": True, "last_in_transaction": True}
    assert take_in(world, "t", message("a", **one), message("none"), message("b", **one)) == ([True, False], ["a"])
    assert world.labels("t") == ["a"]


def test_nothing_is_written_if_all_are_refused(world: World) -> None:
    assert take_in(world, "q", message("big", body=bytes(4096))) == ([False], [])


def test_a_deleted_queue_takes_nothing(world: World) -> None:
    queue = world.queue("q")
    world.manager.administration.delete_queue(queue, world.owner)
    with pytest.raises(QueueDeleted, match="q was deleted"):
        world.manager.relays.take_in(queue, [message("a")], lambda taken: [])
