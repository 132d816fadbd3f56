"""A failure of one reader, the transport or a timer's owner affects no other caller."""

from __future__ import annotations

from typing import Any

import pytest

from openmsmq.model.constants import INFINITE, Access, ReceiveAction
from openmsmq.model.errors import HResult
from openmsmq.model.message import Message
from openmsmq.queueing.queue import LockKind
from queueing.world import World


@pytest.fixture
def world() -> World:
    return World()


class Broken(Exception):
    """Exception that simulates a bug."""


class Reader:
    """A reader whose callbacks raise, while configured to."""

    def __init__(self, fails: str) -> None:
        self.fails = fails
        self.statuses: list[int] = []

    def accept(self, message: Message) -> int:
        if self.fails == "accept":
            raise Broken
        return int(HResult.MQ_OK)

    def reply(self, status: int, message: Message | None) -> None:
        if self.fails == "reply":
            self.fails = ""
            raise Broken
        self.statuses.append(status)


def wait(world: World, reader: Reader, queue: str = "q", **values: Any) -> None:
    timeout = values.pop("timeout", INFINITE)
    world.manager.reading.read(world.open(queue), ReceiveAction.RECEIVE, timeout, reader.accept, reader.reply, **values)


@pytest.mark.parametrize("fails", ["accept", "reply"])
@pytest.mark.parametrize("how", ["plain", "two phases", "in a transaction", "peeking"])
def test_a_failing_reader_affects_neither_the_sender_nor_later_readers(world: World, fails: str, how: str) -> None:
    name = "t" if how == "in a transaction" else "q"
    world.create(name, TRANSACTION=int(name == "t"))
    broken = Reader(fails)
    if how == "peeking":
        world.manager.reading.read(world.open(name), ReceiveAction.PEEK_CURRENT, INFINITE, broken.accept, broken.reply)
    else:
        transaction = world.begin() if how == "in a transaction" else None
        wait(world, broken, name, two_phase=how == "two phases", transaction=transaction)
    behind = world.wait(world.open(name))
    sender = world.begin(9) if name == "t" else None
    world.send(name, "a", sender, delivery_guarantee=1)
    if sender is not None:
        world.manager.transactions.commit(sender)
    assert behind.label == "a"
    assert world.labels(name) == []
    world.restart()
    assert world.labels(name) == []


@pytest.mark.parametrize("how", ["plain", "two phases", "in a transaction"])
@pytest.mark.parametrize("delivery", [0, 1])
def test_a_message_whose_answer_could_not_be_sent_is_available_again(world: World, how: str, delivery: int) -> None:
    name = "t" if how == "in a transaction" else "q"
    queue = world.create(name, TRANSACTION=int(name == "t"))
    sender = world.begin(9) if name == "t" else None
    world.send(name, "a", sender, delivery_guarantee=delivery)
    if sender is not None:
        world.manager.transactions.commit(sender)
    size = queue.total_bytes
    broken = Reader("reply")
    transaction = world.begin() if how == "in a transaction" else None
    wait(world, broken, name, two_phase=how == "two phases", transaction=transaction)
    assert world.labels(name) == ["a"] and queue.total_bytes == size and not queue.locked
    if transaction is not None:
        world.manager.transactions.commit(transaction)
        assert world.labels(name) == ["a"]
    world.restart()
    assert world.labels(name) == (["a"] if delivery or name == "t" else [])


def test_readers_of_other_queues_are_served_when_one_transaction_wakes_several(world: World) -> None:
    for name in "xyz":
        world.create(name, TRANSACTION=1)
    first, broken, last = world.wait(world.open("x")), Reader("accept"), world.wait(world.open("z"))
    wait(world, broken, "y")
    sender = world.begin()
    for name in "xyz":
        world.send(name, name, sender)
    world.manager.transactions.commit(sender)
    assert (first.label, last.label) == ("x", "z")
    assert broken.statuses == [HResult.MQ_ERROR] and world.labels("y") == ["y"]


def test_a_failing_reader_does_not_fail_the_move_or_receive_that_wakes_it(world: World) -> None:
    world.create("q")
    source, target = world.open("q"), world.open("q;s", Access.MOVE)
    world.send("q", "a")
    key = world.queue().first()
    assert key is not None
    broken = Reader("accept")
    wait(world, broken, "q;s")
    world.manager.subqueues.move(source, target, key)
    world.turn()
    assert world.labels("q;s") == ["a"] and broken.statuses == [HResult.MQ_ERROR]
    taken = world.read(source := world.open("q;s"), two_phase=True)
    broken = Reader("accept")
    wait(world, broken, "q;s")
    world.manager.reading.end_two_phase(source, taken.message.lookup_identifier, delete=False)
    world.turn()
    assert world.labels("q;s") == ["a"] and broken.statuses == [HResult.MQ_ERROR]


def test_reads_that_time_out_end_all_though_the_first_one_fails(world: World) -> None:
    world.create("q")
    world.create("dying")
    broken, behind = Reader("reply"), Reader("")
    wait(world, broken, timeout=1000)
    wait(world, behind, timeout=1000)
    world.send("dying", "a", time_to_be_received=1)
    world.advance(5000)
    assert behind.statuses == [HResult.MQ_ERROR_IO_TIMEOUT]
    assert world.labels("dying") == []


def test_closing_and_deleting_end_all_reads_though_the_first_one_fails(world: World) -> None:
    queue = world.create("q")
    broken, behind = Reader("reply"), world.wait(world.open("q"))
    descriptor = world.open("q")
    world.manager.reading.read(descriptor, ReceiveAction.RECEIVE, INFINITE, broken.accept, broken.reply)
    same = Reader("")
    world.manager.reading.read(descriptor, ReceiveAction.RECEIVE, INFINITE, same.accept, same.reply)
    world.manager.handles.close_queue(descriptor)
    assert same.statuses == [HResult.MQ_ERROR_OPERATION_CANCELLED]
    wait(world, Reader("reply"))
    world.manager.administration.delete_queue(queue, world.owner)
    assert behind.status == HResult.MQ_ERROR_QUEUE_DELETED


class BrokenTransport:
    def wake(self) -> None:
        raise Broken

    def resend(self, queue: object) -> None:
        raise Broken


def test_a_failing_transport_does_not_fail_the_send() -> None:
    world = World(transport=BrokenTransport())
    world.create("q")
    waiting = world.wait(world.open("q"))
    world.send("DIRECT=OS:elsewhere\\private$\\q", "away")
    world.send("q", "here")
    assert waiting.label == "here"


def test_a_failing_timer_of_an_owner_is_retried(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise Broken

    world.create("q")
    monkeypatch.setattr(world, "deadline_changed", fail)
    world.send("q", "a", time_to_be_received=1)
    assert world.manager.next_expiry() is not None
    world.create("r")
    first, second = world.wait(world.open("r"), timeout=500), world.wait(world.open("r"), timeout=500)
    monkeypatch.setattr(world, "turn_wanted", fail)
    world.send("r", "b")
    monkeypatch.undo()
    world.send("r", "c")
    assert (first.label, second.label) == ("b", "c")
    world.advance(5000)
    assert world.labels() == []


@pytest.mark.sources
def test_an_expiry_that_fails_leaves_the_other_timers_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create("q")
    world.create("admin")
    wishes = {"acknowledgements_requested": 8, "administration_queue_format_name": "DIRECT=OS:.\\private$\\admin"}
    world.send("q", "a", time_to_be_received=1, delivery_guarantee=1, **wishes)
    world.send("q", "b", time_to_be_received=1)
    append, failures = world.store.append, [Broken()]

    def fails_once(operations: Any) -> Any:
        if failures:
            raise failures.pop()
        return append(operations)

    monkeypatch.setattr(world.store, "append", fails_once)
    world.advance(5000)
    assert world.labels() == ["a"]
    world.advance(20_000)
    assert world.labels() == []


def test_a_waiting_reader_gets_the_message_before_a_later_one(world: World) -> None:
    world.create("q")
    first = world.wait(world.open("q"))
    world.send("q", "a")
    second = world.read(world.open("q"), timeout=0)
    assert (first.label, second.status) == ("a", HResult.MQ_ERROR_IO_TIMEOUT)


def damage(world: World, label: str, queue: str = "q") -> int:
    """Make the record of a stored message unreadable. Return its lookup identifier."""
    found = world.queue(queue)
    (key,) = (key for key in found.entries if found.message(key).label == label)
    found.entries[key] = found.entries[key] | 1 << 40  # type: ignore[operator]
    return key


def fill(world: World, labels: str, **values: Any) -> None:
    for label in labels:
        world.send("q", label, delivery_guarantee=1, **values)


def test_a_message_that_cannot_be_decoded_is_skipped_by_readers(world: World) -> None:
    queue = world.create("q")
    fill(world, "abc")
    key = damage(world, "a")
    descriptor = world.open("q")
    cursor = world.manager.handles.open_cursor(descriptor)
    assert world.read(descriptor, ReceiveAction.PEEK_CURRENT).label == "b"
    assert world.read(descriptor, ReceiveAction.PEEK_CURRENT, cursor=cursor).label == "b"
    assert world.read(descriptor, ReceiveAction.PEEK_NEXT, cursor=cursor).label == "c"
    assert world.read(descriptor).label == "b"
    assert queue.locked[key].kind is LockKind.QUARANTINE
    assert world.read(descriptor).label == "c"
    assert world.read(descriptor).status == HResult.MQ_ERROR_IO_TIMEOUT
    waiting = world.wait(descriptor)
    fill(world, "d")
    assert waiting.label == "d"


@pytest.mark.parametrize("touched", [False, True])
def test_a_message_that_cannot_be_decoded_is_removed_by_a_purge(world: World, touched: bool) -> None:
    queue = world.create("q")
    fill(world, "ab")
    damage(world, "a")
    if touched:
        assert world.read(world.open("q"), ReceiveAction.PEEK_CURRENT).label == "b"
    world.manager.reading.purge(world.open("q"))
    assert not queue.entries and not queue.locked and queue.total_bytes == 0


@pytest.mark.parametrize("touched", [False, True])
def test_a_queue_with_a_message_that_cannot_be_decoded_can_be_deleted(world: World, touched: bool) -> None:
    queue = world.create("q")
    fill(world, "ab", time_to_be_received=1)
    damage(world, "a")
    if touched:
        world.advance(2000)
        assert [lock.kind for lock in queue.locked.values()] == [LockKind.QUARANTINE]
    world.manager.administration.delete_queue(queue, world.owner)
    world.restart()
    assert "q" not in world.registry.by_name


def test_locks_on_messages_that_became_unreadable_end_with_their_transaction(world: World) -> None:
    queue = world.create("q", TRANSACTION=1)
    sender = world.begin()
    for label in "abc":
        world.send("q", label, sender)
    world.manager.transactions.commit(sender)
    transaction = world.begin()
    descriptor = world.open("q")
    for label in "abc":
        assert world.read(descriptor, transaction=transaction).label == label
    key = next(iter(queue.entries))
    queue.entries[key] |= 1 << 40  # type: ignore[operator]
    with pytest.raises(Exception, match="can't be read") as raised:
        world.manager.transactions.commit(transaction)
    assert raised.value.hresult == HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED  # type: ignore[attr-defined]
    world.manager.transactions.abort(transaction)
    assert [lock.kind for lock in queue.locked.values()] == [LockKind.QUARANTINE]
    assert world.labels() == ["b", "c"]


def test_moving_a_message_that_cannot_be_decoded_is_a_storage_failure(world: World) -> None:
    world.create("q")
    fill(world, "a")
    key = damage(world, "a")
    for _ in range(2):
        with pytest.raises(Exception, match=r"can't be (read|decoded)"):
            world.manager.subqueues.move(world.open("q"), world.open("q;s", Access.MOVE), key)
