"""Subqueues, moving, rejecting, and the counts that go with them ([MS-MQDMPR] 3.1.7.1.16, [MS-MQRR] 3.1.4.10, 14)."""

from __future__ import annotations

from functools import partial

import pytest

from openmsmq.model.constants import Access, Acknowledge, Delivery, Journal, MessageClass, PropId, QueueAccessMask
from openmsmq.model.errors import HResult
from openmsmq.model.security import SecurityDescriptor, allow
from openmsmq.queueing.descriptors import OpenQueueDescriptor
from openmsmq.queueing.queue import Queue
from queueing.world import ALICE, BOB, START, World, refused, snapshot

RECOVERABLE, EXPRESS = int(Delivery.RECOVERABLE), int(Delivery.EXPRESS)


def subqueue(world: World, name: str = "s", parent: str = "q") -> Queue:
    return world.queue(parent).subqueues[name]


def to(world: World, name: str = "q;s") -> OpenQueueDescriptor:
    return world.open(name, Access.MOVE)


def first(world: World, queue: Queue | None = None) -> int:
    key = (queue or world.queue()).first()
    assert key is not None
    return key


@pytest.mark.parametrize("delivery", [EXPRESS, RECOVERABLE])
def test_a_moved_message_keeps_its_identity_and_counts_its_move(world: World, delivery: int) -> None:
    world.send(label="a", delivery_guarantee=delivery, body=b"xyz")
    key = first(world)
    before = world.queue().message(key)
    world.advance(5000)
    world.manager.subqueues.move(world.open(), to(world), key)
    assert world.labels() == []
    moved = subqueue(world).message(key)
    assert (moved.identifier, moved.arrival_time, moved.body) == (before.identifier, before.arrival_time, b"xyz")
    assert (moved.move_count, moved.last_move_time) == (1, START // 1000 + 5)
    world.manager.subqueues.move(world.open("q;s"), to(world, "q"), key)
    assert world.queue().message(key).move_count == 2
    assert world.queue().total_bytes > 0 and subqueue(world).total_bytes == 0


@pytest.mark.parametrize("checkpoint", [False, True])
def test_moved_messages_survive_a_restart_where_they_were_moved_to(world: World, checkpoint: bool) -> None:
    for label in "abc":
        world.send(label=label, delivery_guarantee=RECOVERABLE)
    source, target = world.open(), to(world)
    keys = list(world.queue().available)
    for key in keys[:2]:
        world.manager.subqueues.move(source, target, key)
    world.manager.subqueues.move(world.open("q;s"), to(world, "q"), keys[0])
    world.restart(checkpoint)
    world.restart(checkpoint)
    assert world.labels() == ["a", "c"] and world.labels(subqueue(world)) == ["b"]
    assert subqueue(world).message(keys[1]).move_count == 1


def test_a_subqueue_exists_while_it_is_open_or_not_empty(world: World) -> None:
    reader = world.open("q;S")
    assert [q.properties.path_name for q in world.queue().subqueues.values()] == ["HERE\\private$\\q;S"]
    assert world.open("q;s").queue is reader.queue
    world.manager.handles.close_queue(
        next(iter(d for d in world.manager.handles.descriptors.values() if d is not reader))
    )
    assert "s" in world.queue().subqueues
    world.manager.handles.close_queue(reader)
    assert not world.queue().subqueues

    world.send(delivery_guarantee=RECOVERABLE)
    target = to(world)
    world.manager.subqueues.move(world.open(), target, first(world))
    world.manager.handles.close_queue(target)
    reader = world.open("q;s")
    assert world.read(reader).label == ""
    world.manager.handles.close_queue(reader)
    assert not world.queue().subqueues
    world.restart()
    assert not world.queue().subqueues


def test_an_empty_subqueue_left_by_a_crash_is_deleted_at_the_start(world: World) -> None:
    to(world)
    world.restart()
    assert not world.queue().subqueues
    world.restart()
    assert [name for name in world.store.definitions if name.startswith(b"subqueue/")] == []


def test_a_closed_subqueue_is_deleted_with_its_last_message(world: World) -> None:
    world.send(delivery_guarantee=RECOVERABLE, time_to_be_received=10)
    target = to(world)
    world.manager.subqueues.move(world.open(), target, first(world))
    world.manager.handles.close_queue(target)
    assert "s" in world.queue().subqueues
    world.advance(11_000)
    assert not world.queue().subqueues


def test_a_message_expires_in_a_subqueue_and_is_acknowledged_from_there(world: World) -> None:
    world.create("admin")
    world.send(
        label="late", time_to_be_received=10, acknowledgements_requested=int(Acknowledge.NEG_RECEIVE),
        administration_queue_format_name="DIRECT=OS:.\\private$\\admin", journaling_requested=int(Journal.DEADLETTER),
    )  # fmt: skip
    world.manager.subqueues.move(world.open(), to(world), first(world))
    world.advance(11_000)
    classes = [m.message_class for m in world.messages(world.queue("admin"))]
    assert classes == [MessageClass.NACK_RECEIVE_TIMEOUT]
    assert world.labels(world.registry.dead_letters) == ["late"]


def test_a_message_that_was_moved_there_and_back_expires_once(world: World) -> None:
    world.create("admin")
    world.send(
        time_to_be_received=10, acknowledgements_requested=int(Acknowledge.NEG_RECEIVE),
        administration_queue_format_name="DIRECT=OS:.\\private$\\admin",
    )  # fmt: skip
    key = first(world)
    world.manager.subqueues.move(world.open(), to(world), key)
    world.manager.subqueues.move(world.open("q;s"), to(world, "q"), key)
    world.advance(11_000)
    assert world.labels() == [] and len(world.queue("admin")) == 1


def test_a_message_received_from_a_subqueue_is_journaled_in_its_queue_s_journal(world: World) -> None:
    world.create("j", JOURNAL=1)
    world.send("j", "a")
    world.manager.subqueues.move(world.open("j"), to(world, "j;s"), first(world, world.queue("j")))
    journal = world.queue("j").journal
    assert journal is not None and world.labels(journal) == []
    world.read(world.open("j;s"))
    assert world.labels(journal) == ["a"]


def test_a_reader_that_waits_in_a_subqueue_gets_what_is_moved_there(world: World) -> None:
    waiting = world.wait(world.open("q;s"))
    world.send(label="a")
    world.manager.subqueues.move(world.open(), to(world), first(world))
    assert waiting.label == "a"


def test_order_in_a_subqueue_is_by_priority_and_arrival(world: World) -> None:
    for label, priority in (("a", 3), ("b", 3), ("c", 7)):
        world.send(label=label, priority=priority)
    source, target = world.open(), to(world)
    for key in reversed(list(world.queue().available)):
        world.manager.subqueues.move(source, target, key)
    assert world.labels(subqueue(world)) == ["c", "a", "b"]


def test_messages_move_only_between_subqueues_of_one_queue(world: World) -> None:
    world.create("r")
    world.send()
    key = first(world)
    source = world.open()
    world.manager.subqueues.move(source, to(world), key)
    world.manager.subqueues.move(world.open("q;s"), to(world, "q;t"), key)
    assert list(subqueue(world, "t").entries) == [key]
    sub = world.open("q;t")
    before = snapshot(world)
    for target in (to(world, "r"), to(world, "q;t")):
        with refused(HResult.STATUS_INVALID_PARAMETER):
            world.manager.subqueues.move(sub, target, key)
    with refused(HResult.MQ_ERROR_MESSAGE_NOT_FOUND):
        world.manager.subqueues.move(source, to(world, "q;t"), key)
    with refused(HResult.MQ_ERROR_INVALID_HANDLE):
        world.manager.subqueues.move(sub, source, key)
    with refused(HResult.MQ_ERROR_ACCESS_DENIED):
        world.manager.subqueues.move(world.open("q;t", Access.PEEK), to(world, "q"), key)
    assert {**snapshot(world), **before} == before | {k: v for k, v in snapshot(world).items() if k not in before}


def test_a_locked_message_cannot_be_moved(world: World) -> None:
    world.send()
    key = first(world)
    world.read(world.open(), two_phase=True)
    with refused(HResult.MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION):
        world.manager.subqueues.move(world.open(), to(world), key)


def test_a_full_disk_moves_nothing(world: World) -> None:
    world.send(label="a", delivery_guarantee=RECOVERABLE)
    source, target, key = world.open(), to(world), first(world)
    world.store.full = True
    before = snapshot(world)
    with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
        world.manager.subqueues.move(source, target, key)
    with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
        to(world, "q;other")
    assert snapshot(world) == before


def test_subqueues_count_for_the_quota_of_their_queue(world: World) -> None:
    world.create("small", QUOTA=1)
    world.send("small", body=bytes(600))
    world.manager.subqueues.move(world.open("small"), to(world, "small;s"), first(world, world.queue("small")))
    with refused(HResult.MQ_ERROR_INSUFFICIENT_RESOURCES):
        world.send("small", body=bytes(600))


def test_a_subqueue_has_the_security_of_its_queue_and_takes_no_sends(world: World) -> None:
    descriptor = SecurityDescriptor(
        owner=ALICE.sid, group=ALICE.sid, dacl=(allow(ALICE.sid, QueueAccessMask.GENERIC_ALL),)
    )
    world.manager.administration.create_queue(".\\private$\\mine", {}, descriptor.pack(), ALICE)
    for access in (Access.RECEIVE, Access.PEEK, Access.MOVE):
        with refused(HResult.MQ_ERROR_ACCESS_DENIED):
            world.open("mine;s", access, caller=BOB)
    assert not world.queue("mine").subqueues
    world.open("mine;s")
    with refused(HResult.MQ_ERROR_ACCESS_DENIED):
        world.open("mine;s", caller=BOB)
    with refused(HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION):
        world.open("mine;s", Access.SEND)
    with refused(HResult.MQ_ERROR_QUEUE_NOT_FOUND):
        world.open("nothing;s")
    with refused(HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE):
        world.open("mine;JOURNAL", Access.MOVE)
    with refused(HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION):
        world.manager.administration.set_properties(subqueue(world, parent="mine"), {PropId.PROPID_Q_LABEL: "x"}, ALICE)


def test_a_deleted_queue_takes_its_subqueues_with_it(world: World) -> None:
    world.send(delivery_guarantee=RECOVERABLE)
    reader = world.open("q;s")
    world.manager.subqueues.move(world.open(), to(world), first(world))
    world.manager.administration.delete_queue(world.queue(), ALICE)
    assert world.read(reader).status == HResult.MQ_ERROR_QUEUE_DELETED
    world.create()
    world.restart()
    assert world.labels() == [] and not world.queue().subqueues


class TestInTransactions:
    @pytest.fixture
    def world(self) -> World:
        world = World()
        world.create(TRANSACTION=1)
        transaction = world.begin(99)
        for label in "ab":
            world.send(label=label, transaction=transaction, journaling_requested=int(Journal.DEADLETTER))
        world.manager.transactions.commit(transaction)
        return world

    def test_a_move_is_visible_at_the_commit(self, world: World) -> None:
        transaction = world.begin()
        world.manager.subqueues.move(world.open(), to(world), first(world), lambda: transaction)
        assert world.labels() == ["b"] and world.labels(subqueue(world)) == []
        world.manager.transactions.commit(transaction)
        assert world.labels() == ["b"] and world.labels(subqueue(world)) == ["a"]
        world.restart()
        assert world.labels(subqueue(world)) == ["a"]

    def test_an_abort_leaves_the_message_in_its_place_and_counts(self, world: World) -> None:
        for number in (1, 2):
            identifier = number.to_bytes(16, "little")
            transaction = world.begin(number)
            find = partial(world.manager.transactions.find, identifier)
            world.manager.subqueues.move(world.open(), to(world), first(world), find)
            world.manager.transactions.abort(transaction)
        transaction = world.begin(3)
        world.read(world.open(), transaction=transaction)
        world.manager.transactions.abort(transaction)
        assert [(m.label, m.abort_count) for m in world.messages(world.queue())] == [("a", 3), ("b", 0)]
        assert world.labels(subqueue(world)) == []

    def test_a_move_resets_the_abort_count(self, world: World) -> None:
        transaction = world.begin()
        world.read(world.open(), transaction=transaction)
        world.manager.transactions.abort(transaction)
        world.manager.subqueues.move(world.open(), to(world), first(world))
        (moved,) = world.messages(subqueue(world))
        assert (moved.abort_count, moved.move_count) == (0, 1)

    def test_a_move_to_a_subqueue_that_vanished_meanwhile_makes_it_again(self, world: World) -> None:
        transaction = world.begin()
        target = to(world)
        world.manager.subqueues.move(world.open(), target, first(world), lambda: transaction)
        world.manager.handles.close_queue(target)
        assert not world.queue().subqueues
        world.manager.transactions.commit(transaction)
        assert world.labels(subqueue(world)) == ["a"]

    def test_a_queue_deleted_before_the_commit_of_a_move_takes_the_message_along(self, world: World) -> None:
        transaction = world.begin()
        world.manager.subqueues.move(world.open(), to(world), first(world), lambda: transaction)
        world.manager.administration.delete_queue(world.queue(), ALICE)
        world.manager.transactions.commit(transaction)
        assert world.labels(world.registry.transactional_dead_letters) == ["a", "b"]

    def test_a_rejected_message_is_dead_lettered_at_the_commit(self, world: World) -> None:
        transaction = world.begin()
        queue = world.open()
        key = world.read(queue, transaction=transaction).message.lookup_identifier
        world.manager.subqueues.reject(queue, key)
        assert world.labels(world.registry.transactional_dead_letters) == []
        world.manager.transactions.commit(transaction)
        (dead,) = world.messages(world.registry.transactional_dead_letters)
        assert (dead.label, dead.message_class) == ("a", MessageClass.NACK_RECEIVE_REJECTED)
        assert world.labels() == ["b"]

    def test_a_rejection_is_forgotten_by_an_abort(self, world: World) -> None:
        transaction = world.begin()
        queue = world.open()
        world.manager.subqueues.reject(queue, world.read(queue, transaction=transaction).message.lookup_identifier)
        world.manager.transactions.abort(transaction)
        transaction = world.begin(2)
        world.read(queue, transaction=transaction)
        world.manager.transactions.commit(transaction)
        assert world.labels(world.registry.transactional_dead_letters) == []

    def test_only_what_a_transaction_has_received_can_be_rejected(self, world: World) -> None:
        queue, key = world.open(), first(world)
        with refused(HResult.MQ_ERROR_TRANSACTION_USAGE):
            world.manager.subqueues.reject(queue, key)
        with refused(HResult.MQ_ERROR_MESSAGE_NOT_FOUND):
            world.manager.subqueues.reject(queue, key + 100)
        world.read(queue, two_phase=True)
        with refused(HResult.MQ_ERROR_TRANSACTION_USAGE):
            world.manager.subqueues.reject(queue, key)

    def test_a_move_in_a_transaction_needs_a_transactional_queue_and_an_open_transaction(self, world: World) -> None:
        world.create("plain")
        world.send("plain")
        transaction = world.begin()
        with refused(HResult.MQ_ERROR_TRANSACTION_USAGE):
            world.manager.subqueues.move(
                world.open("plain"), to(world, "plain;s"), first(world, world.queue("plain")), transaction
            )
        world.manager.transactions.abort(transaction)
        with refused(HResult.MQ_ERROR_TRANSACTION_SEQUENCE):
            world.manager.subqueues.move(world.open(), to(world), first(world), lambda: transaction)
