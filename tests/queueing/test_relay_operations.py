"""Messages that a relay takes in from another machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from openmsmq.model.constants import MAXIMUM_MESSAGE_SIZE, Access, Acknowledge
from openmsmq.model.errors import InsufficientResources, MsmqError, QueueDeleted
from openmsmq.model.message import Message
from openmsmq.model.names import MultipleElementFormatName, parse_format_name
from openmsmq.queueing.queue import QueueKind
from openmsmq.queueing.relay_operations import HELD_PREFIX
from openmsmq.store import Operation, Put
from queueing.world import MACHINE, World

ONE: dict[str, Any] = {
    "transaction_identifier": bytes(16) + b"\1\0\0\0", "first_in_transaction": True, "last_in_transaction": True,
}  # fmt: skip
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


def test_a_message_that_is_over_by_the_clock_here_stays_at_the_other_machine_whose_clock_may_be_behind(
    world: World,
) -> None:
    hours_ago = world.now // 1000 - 7200
    over = message("over", sent_time=hours_ago, time_to_be_received=3600)
    assert take_in(world, "q", over, message("b", sent_time=hours_ago)) == ([False, True], ["b"])
    assert world.labels("q") == ["b"]


def test_a_transactional_queue_takes_nothing_after_a_refused_message(world: World) -> None:
    assert take_in(world, "t", message("a", **ONE), message("none"), message("b", **ONE)) == ([True, False], ["a"])
    assert world.labels("t") == ["a"]


def test_nothing_is_written_if_all_are_refused(world: World) -> None:
    assert take_in(world, "q", message("big", body=bytes(4096))) == ([False], [])


def test_a_deleted_queue_takes_nothing(world: World) -> None:
    queue = world.queue("q")
    world.manager.administration.delete_queue(queue, world.owner)
    with pytest.raises(QueueDeleted, match="q was deleted"):
        world.manager.relays.take_in(queue, [message("a")], lambda taken: [])


def too_large(**values: Any) -> Message:
    """Return a message that is too large with the names of another machine; express, as the test's store is small."""
    return Message(bytes(MAXIMUM_MESSAGE_SIZE - 450), label="large", **values)


def hand_on(world: World, queue: str, limit: int, aside: set[int]) -> tuple[int, list[str]]:
    """Send messages to another machine. Returns their number, and the labels of refused ones."""
    refused: list[str] = []
    far = parse_format_name("DIRECT=OS:far\\private$\\q")
    assert not isinstance(far, MultipleElementFormatName)
    moved = world.manager.relays.hand_on(
        world.queue(queue), far, ADMIN, limit, lambda sent: Put(b"relay-progress/q", b""), aside,
        lambda message, error: refused.append(message.label),
    )  # fmt: skip
    return moved, refused


def test_a_message_that_is_too_large_for_the_way_stays_and_others_pass_it(world: World) -> None:
    world.create("wide")
    large = too_large()
    take_in(world, "wide", message("a"), large, message("b"), message("c"))
    aside: set[int] = set()
    assert hand_on(world, "wide", 2, aside) == (1, ["large"])
    assert hand_on(world, "wide", 2, aside) == (2, [])
    assert world.labels("wide") == ["large"]
    assert hand_on(world, "wide", 2, aside) == (0, [])
    world.read(world.open("wide", Access.RECEIVE))
    assert (hand_on(world, "wide", 2, aside), aside) == ((0, []), set())


def test_in_a_transactional_queue_nothing_passes_a_message_that_is_too_large(world: World) -> None:
    take_in(world, "t", message("a", **ONE), too_large(**ONE), message("b", **ONE))
    assert hand_on(world, "t", 3, set()) == (1, [])
    with pytest.raises(InsufficientResources, match="4194304"):
        hand_on(world, "t", 2, set())
    assert world.labels("t") == ["large", "b"]


def test_a_message_goes_on_without_the_signature_and_the_key_of_its_way_here(world: World) -> None:
    """A signature covers source and destination, which change; the key is that of an encrypted body, and it is plain
    here: with it, the other machine would take the plain body for an encrypted one."""
    take_in(
        world, "q",
        message("a", signature=b"s", multiple_destination_signature=b"m", symmetric_key=b"key", authentication_level=3,
                sender_certificate=b"certificate"),
    )  # fmt: skip
    assert hand_on(world, "q", 2, set()) == (1, [])
    (outgoing,) = world.registry.outgoing.values()
    (onward,) = world.messages(outgoing)
    assert (onward.signature, onward.multiple_destination_signature, onward.symmetric_key) == (b"", b"", b"")
    assert (onward.authentication_level, onward.sender_certificate) == (0, b"certificate")


def test_a_message_that_was_encrypted_does_not_go_on_in_plain_text(world: World) -> None:
    """A direct format name does not say whose key encrypts the body ([MS-MQQB] 3.1.7.1.5)."""
    take_in(world, "q", message("a"), message("secret", privacy_level=5, symmetric_key=b"key"), message("b"))
    assert hand_on(world, "q", 3, set()) == (2, ["secret"])
    assert world.labels("q") == ["secret"]
    take_in(world, "t", message("secret", privacy_level=5, **ONE))
    with pytest.raises(MsmqError, match="requested encryption"):
        hand_on(world, "t", 1, set())
    assert world.labels("t") == ["secret"]


def test_each_message_of_a_transaction_is_handed_on_in_a_transaction_of_its_own(world: World) -> None:
    of_one = {"transaction_identifier": bytes(16) + b"\1\0\0\0"}
    take_in(world, "t", message("a", first_in_transaction=True, **of_one), message("b", **of_one),
            message("c", last_in_transaction=True, **of_one))  # fmt: skip
    assert hand_on(world, "t", 3, set()) == (3, [])
    [outgoing] = [queue for queue in world.registry.queues.values() if queue.kind is QueueKind.OUTGOING]
    sent = world.messages(outgoing)
    assert [(m.label, m.first_in_transaction, m.last_in_transaction) for m in sent] == [(n, True, True) for n in "abc"]
    assert len({m.transaction_identifier for m in sent}) == 3


@pytest.mark.parametrize("transaction", [{}, ONE], ids=["plain", "transactional"])
def test_as_many_messages_go_on_as_the_quota_of_the_machine_has_room_for(transaction: dict[str, Any]) -> None:
    """A message that goes on gets longer, or is kept until its arrival is known."""
    world = World(replace(MACHINE, quota=20))
    world.create("full", TRANSACTION=int(bool(transaction)))
    while take_in(world, "full", message("", body=bytes(500), **transaction)) == ([True], [""]):
        pass
    world.read(world.open("full", Access.RECEIVE))
    count = len(world.labels("full"))
    moved, refused = hand_on(world, "full", count, set())
    assert 0 < moved < count and refused == []
    [outgoing] = world.registry.outgoing.values()
    assert (len(outgoing), len(world.labels("full"))) == (moved, count - moved)


def test_what_is_recorded_of_a_message_that_a_restart_loses_is_dropped(world: World) -> None:
    take_in(world, "q", Message(label="express"), message("kept"))
    assert hand_on(world, "q", 2, set()) == (2, [])
    world.restart()
    assert recorded(world) == 2
    world.manager.relays.forget_lost()
    assert recorded(world) == 1
    world.manager.administration.delete_queue(world.queue("q"), world.owner)
    world.manager.relays.forget_lost()
    assert recorded(world) == 0


def recorded(world: World) -> int:
    """Return how many messages are recorded as handed on and not acknowledged."""
    return sum(name.startswith(HELD_PREFIX) for name in world.store.definitions)
