"""The delivery limit of a queue: messages whose receives are aborted too often leave it."""

from __future__ import annotations

import logging

import pytest

from openmsmq.model import names
from openmsmq.model.constants import Access, Journal, MessageClass, PropId, Share
from openmsmq.model.errors import IllegalPropertyValue
from openmsmq.model.message import Message
from openmsmq.queueing.properties import QueueProperties
from openmsmq.queueing.queue import Queue
from openmsmq.queueing.records import ABORT_PREFIX, decode_properties, encode_properties
from queueing.world import ALICE, World

LIMIT = 3


def make(world: World, **properties: int) -> None:
    world.create("t", TRANSACTION=1, OPENMSMQ_DELIVERY_LIMIT=LIMIT, **properties)


def put(world: World, *labels: str, **properties: int) -> None:
    transaction = world.begin()
    for label in labels:
        world.send("t", label, transaction, **properties)
    world.manager.transactions.commit(transaction)


def abort_receives(world: World, times: int, name: str = "t") -> None:
    reader = world.open(name)
    for number in range(times):
        transaction = world.begin(100 + number)
        world.read(reader, transaction=transaction)
        world.manager.transactions.abort(transaction)
    world.manager.handles.close_queue(reader)


def held(world: World, queue: Queue) -> list[tuple[str, int]]:
    return [(message.label, message.abort_count) for message in world.messages(queue)]


@pytest.fixture
def world() -> World:
    return World()


def test_at_the_limit_a_message_moves_to_the_poison_subqueue_and_keeps_its_abort_count(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    make(world)
    put(world, "bad", "good")
    abort_receives(world, LIMIT - 1)
    assert held(world, world.queue("t")) == [("bad", LIMIT - 1), ("good", 0)]
    with caplog.at_level(logging.WARNING):
        abort_receives(world, 1)
    assert held(world, world.queue("t")) == [("good", 0)]
    poison = world.queue("t;poison")
    assert held(world, poison) == [("bad", LIMIT)]
    assert world.messages(poison)[0].move_count == 1
    assert r"\t;poison: its receives were aborted 3 times (delivery_limit=3" in caplog.text
    assert world.manager.changes.poisoned == 1
    assert not [name for name in world.store.definitions if name.startswith(ABORT_PREFIX)]
    world.restart()
    assert held(world, world.queue("t;poison")) == [("bad", LIMIT)]


def test_each_message_that_reaches_the_limit_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    make(world)
    put(world, "bad", "worse")
    with caplog.at_level(logging.WARNING):
        abort_receives(world, 2 * LIMIT)
    assert caplog.text.count("its receives were aborted 3 times") == 2


def test_poison_messages_stay_in_their_subqueue_and_other_subqueues_have_the_limit_too(world: World) -> None:
    make(world)
    put(world, "bad")
    abort_receives(world, LIMIT)
    abort_receives(world, LIMIT + 1, "t;poison")
    assert [label for label, _ in held(world, world.queue("t;poison"))] == ["bad"]
    put(world, "late")
    target = world.manager.handles.open_queue(
        names.parse_format_name(r"DIRECT=OS:.\private$\t;retry"), Access.MOVE, Share.DENY_NONE, ALICE
    )
    world.manager.subqueues.move(world.open("t"), target, next(iter(world.queue("t").available)))
    abort_receives(world, LIMIT, "t;retry")
    assert [label for label, _ in held(world, world.queue("t;poison"))] == ["bad", "late"]


def test_an_abort_of_several_receives_moves_only_those_at_the_limit(world: World) -> None:
    make(world)
    put(world, "a", "b", "c")
    abort_receives(world, LIMIT - 1)
    transaction, reader = world.begin(7), world.open("t")
    for _ in range(3):
        world.read(reader, transaction=transaction)
    world.manager.transactions.abort(transaction)
    assert held(world, world.queue("t")) == [("b", 1), ("c", 1)]
    assert held(world, world.queue("t;poison")) == [("a", LIMIT)]


def test_with_poison_to_deadletter_a_copy_is_kept_whether_or_not_the_sender_asked_for_it(world: World) -> None:
    make(world, OPENMSMQ_POISON_TO_DEADLETTER=1)
    put(world, "silent")
    put(world, "asking", journaling_requested=int(Journal.DEADLETTER))
    abort_receives(world, 2 * LIMIT)
    assert world.messages(world.queue("t")) == []
    dead = world.messages(world.registry.transactional_dead_letters)
    assert [(m.label, m.message_class) for m in dead] == [
        ("silent", MessageClass.NACK_RECEIVE_REJECTED), ("asking", MessageClass.NACK_RECEIVE_REJECTED),
    ]  # fmt: skip
    assert [m.abort_count for m in dead] == [LIMIT, LIMIT]
    assert "poison" not in world.queue("t").subqueues


def test_a_full_dead_letter_queue_loses_nothing(world: World) -> None:
    make(world, OPENMSMQ_POISON_TO_DEADLETTER=1)
    put(world, "bad")
    dead = world.registry.transactional_dead_letters
    dead.properties = dead.properties._replace(quota=0)
    abort_receives(world, LIMIT)
    assert held(world, world.queue("t;poison")) == [("bad", LIMIT)]


def test_on_a_full_disk_the_message_stays_readable_and_moves_at_the_next_abort(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    make(world)
    put(world, "bad")
    world.store.full = True
    abort_receives(world, LIMIT)
    assert [label for label, _ in held(world, world.queue("t"))] == ["bad"]
    assert "delivery_limit=3 and could not be moved away" in caplog.text
    world.store.full = False
    abort_receives(world, 1)
    assert [label for label, _ in held(world, world.queue("t;poison"))] == ["bad"]


def test_a_reader_that_waits_at_the_poison_subqueue_gets_the_message(world: World) -> None:
    make(world)
    put(world, "bad")
    waiting = world.read(world.open("t;poison"), timeout=60_000)
    abort_receives(world, LIMIT)
    assert waiting.label == "bad"


def test_without_a_limit_a_message_comes_back_as_often_as_it_is_aborted(world: World) -> None:
    world.create("t", TRANSACTION=1)
    put(world, "a")
    abort_receives(world, 50)
    assert held(world, world.queue("t")) == [("a", 50)]


@pytest.mark.parametrize("value", [-1, 0x10000])
def test_a_limit_out_of_range_is_refused(world: World, value: int) -> None:
    world.create("t", TRANSACTION=1)
    values = {PropId.PROPID_Q_OPENMSMQ_DELIVERY_LIMIT: value}
    with pytest.raises(IllegalPropertyValue, match=r"0 .no limit. to 65535"):
        world.manager.administration.set_properties(world.queue("t"), values, ALICE)


def test_definitions_of_queues_without_a_limit_are_as_older_versions_wrote_them() -> None:
    plain = QueueProperties(r"HERE\private$\t")
    assert b"delivery" not in encode_properties(plain) and b"poison" not in encode_properties(plain)
    limited = plain._replace(delivery_limit=5, poison_to_deadletter=True)
    assert decode_properties(encode_properties(limited)) == limited
    assert decode_properties(encode_properties(plain)) == plain


def test_a_message_whose_sender_keeps_a_dead_letter_has_no_second_one_here(world: World) -> None:
    make(world, OPENMSMQ_POISON_TO_DEADLETTER=1)
    for label, journaling in (("kept there", int(Journal.DEADLETTER)), ("kept here", 0)):
        message = Message(
            label=label, source_machine_identifier=bytes([7] * 16), transaction_identifier=bytes([7] * 20),
            journaling_requested=journaling, delivery_guarantee=1,
        )  # fmt: skip
        arriving = world.manager.arrivals.begin()
        arriving.accept(world.queue("t"), message, message.size)
        arriving.commit([])
    abort_receives(world, 2 * LIMIT)
    assert world.messages(world.queue("t")) == []
    assert [m.label for m in world.messages(world.registry.transactional_dead_letters)] == ["kept here"]
