"""Messages passed out are copies: changes by a reader, a listener or the transport do not affect the queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import pytest

from openmsmq.model.constants import INFINITE, Access, MessageSeekAction, ReceiveAction
from openmsmq.model.errors import HResult
from openmsmq.model.message import Message
from openmsmq.queueing.queue import Queue
from queueing.world import ACCEPT, World

DELIVERY = pytest.mark.parametrize("recoverable", [0, 1], ids=["express", "recoverable"])
REFUSE = int(HResult.MQ_ERROR_BUFFER_OVERFLOW)


def vandalize(message: Message) -> None:
    """Change every attribute of a message."""
    for field in fields(Message):
        value = getattr(message, field.name)
        other: object
        if isinstance(value, bool):
            other = not value
        elif isinstance(value, int):
            other = value + 1
        elif isinstance(value, str):
            other = value + "!"
        else:
            other = value + b"!"
        setattr(message, field.name, other)


def contents(world: World) -> dict[tuple[int, int], bytes]:
    """Return the record of every message, by queue number and lookup identifier, and the counts by queue."""
    found = {}
    for queue in world.registry.queues.values():
        for key in queue.entries:
            location = queue.location(key)
            record = queue.held_record(key) if location is None else world.store.read(location)
            assert record is not None
            found[queue.number, key] = record
        found[queue.number, -1] = b"%d %d" % (len(queue), queue.total_bytes)
    return found


def accept_vandal(answer: int) -> Callable[[Message], int]:
    def accept(message: Message) -> int:
        vandalize(message)
        return answer

    return accept


def reply_vandal(status: int, message: Message | None) -> None:
    if message is not None:
        vandalize(message)


@pytest.fixture
def world() -> World:
    world = World()
    world.create("q", JOURNAL=1)
    world.create("t", TRANSACTION=1)
    return world


@DELIVERY
@pytest.mark.parametrize("action", [ReceiveAction.PEEK_CURRENT, ReceiveAction.PEEK_NEXT])
@pytest.mark.parametrize("answer", [ACCEPT, REFUSE])
def test_a_peek_changes_nothing(world: World, recoverable: int, action: ReceiveAction, answer: int) -> None:
    for label in ("a", "b"):
        world.send(label=label, body=b"body", delivery_guarantee=recoverable)
    before, descriptor = contents(world), world.open("q", Access.PEEK)
    cursor = world.manager.handles.open_cursor(descriptor)
    actions = [ReceiveAction.PEEK_CURRENT, action] if action is ReceiveAction.PEEK_NEXT else [action]
    for each in actions:
        world.manager.reading.read(descriptor, each, 0, accept_vandal(answer), reply_vandal, cursor=cursor)
    for seek in MessageSeekAction:
        first = world.queue().first()
        assert first is not None
        world.manager.reading.read_by_lookup_identifier(
            descriptor, first, seek, accept_vandal(answer), reply_vandal, destructive=False
        )
    assert contents(world) == before and world.labels() == ["a", "b"]


@DELIVERY
def test_readers_that_wait_for_the_same_message_each_get_what_was_sent(world: World, recoverable: int) -> None:
    peeks = [world.open("q", Access.PEEK) for _ in range(2)]
    for descriptor in peeks:
        world.manager.reading.read(
            descriptor, ReceiveAction.PEEK_CURRENT, INFINITE, accept_vandal(ACCEPT), reply_vandal
        )
    refused = world.open()
    world.manager.reading.read(refused, ReceiveAction.RECEIVE, INFINITE, accept_vandal(REFUSE), reply_vandal)
    last = world.wait(world.open())
    world.send(label="whole", body=b"body", priority=5, delivery_guarantee=recoverable)
    assert (last.label, last.message.body, last.message.priority) == ("whole", b"body", 5)
    journal = world.queue().journal
    assert journal is not None
    assert [(m.label, m.body, m.priority) for m in world.messages(journal)] == [("whole", b"body", 5)]


@DELIVERY
def test_a_receive_that_is_put_back_changes_nothing(world: World, recoverable: int) -> None:
    world.send(label="a", body=b"body", delivery_guarantee=recoverable)
    before, descriptor = contents(world), world.open()
    taken = world.read(descriptor, two_phase=True)
    lookup_identifier = taken.message.lookup_identifier
    vandalize(taken.message)
    world.manager.reading.end_two_phase(descriptor, lookup_identifier, delete=False)
    world.manager.reading.read(descriptor, ReceiveAction.RECEIVE, 0, accept_vandal(REFUSE), reply_vandal)
    assert contents(world) == before


def test_a_receive_that_is_rolled_back_changes_nothing(world: World) -> None:
    transaction = world.begin()
    world.send("t", label="a", body=b"body", transaction=transaction)
    world.manager.transactions.commit(transaction)
    before, descriptor, transaction = contents(world), world.open("t"), world.begin(2)
    vandalize(world.read(descriptor, transaction=transaction).message)
    world.manager.transactions.abort(transaction)
    assert contents(world) == before and world.read(descriptor).message.abort_count == 1


@DELIVERY
def test_changing_a_message_taken_by_the_transport_changes_nothing(world: World, recoverable: int) -> None:
    world.send("DIRECT=OS:other\\private$\\q", label="a", body=b"body", delivery_guarantee=recoverable)
    (queue,) = world.registry.outgoing.values()
    before = contents(world)
    world.store.sync()
    taken = world.manager.outgoing.take(queue)
    assert taken is not None
    lookup_identifier = taken.lookup_identifier
    vandalize(taken)
    world.manager.outgoing.put_back(queue, lookup_identifier)
    assert contents(world) == before


@DELIVERY
def test_what_was_sent_may_be_changed_afterwards(world: World, recoverable: int) -> None:
    message = Message(label="a", body=b"body", delivery_guarantee=recoverable)
    world.manager.sending.enqueue(world.open("q", Access.SEND), message)
    before = contents(world)
    vandalize(message)
    assert contents(world) == before and world.labels() == ["a"]


@DELIVERY
def test_moves_dead_letters_and_counts_of_aborts_are_of_the_message_as_it_was_sent(
    world: World, recoverable: int
) -> None:
    world.send(label="a", body=b"body", delivery_guarantee=recoverable, journaling_requested=1, time_to_be_received=1)
    queue: Queue = world.queue()
    position = queue.first()
    assert position is not None
    for _ in range(3):
        queue.note_abort(position)
    vandalize(queue.message(position))
    assert queue.message(position).abort_count == 3
    world.advance(2000)
    dead = world.messages(world.registry.dead_letters)
    assert [(m.label, m.body) for m in dead] == [("a", b"body")]
