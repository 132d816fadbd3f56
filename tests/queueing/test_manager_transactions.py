"""Units of work ([MS-MQDMPR] 3.1.7.1.8, 3.1.4.3 to 3.1.4.5)."""

from __future__ import annotations

from typing import Any

import pytest

from openmsmq.model.constants import Access, ReceiveAction
from openmsmq.model.errors import HResult
from openmsmq.model.message import Message
from queueing.world import ALICE, World, refused

SEQUENCE = HResult.MQ_ERROR_TRANSACTION_SEQUENCE
BOTH = "DIRECT=OS:.\\private$\\q,DIRECT=OS:.\\private$\\r"


@pytest.fixture
def world() -> World:
    world = World()
    world.create(TRANSACTION=1)
    world.create("r", TRANSACTION=1)
    return world


def fill(world: World, labels: str, name: str = "q", number: int = 99) -> None:
    transaction = world.begin(number)
    for label in labels:
        world.send(name, label, transaction)
    world.manager.transactions.commit(transaction)


def test_sends_appear_at_the_commit_in_order_with_first_and_last_flags(world: World) -> None:
    transaction = world.begin()
    waiting = world.wait(world.open("r"))
    for label in "abc":
        world.send("q", label, transaction, priority=7)
    world.send("r", "d", transaction)
    assert world.labels() == [] and not waiting.over
    world.manager.transactions.commit(transaction)
    messages = [*world.messages(world.queue()), waiting.message]
    assert [m.label for m in messages] == ["a", "b", "c", "d"]
    assert [(m.first_in_transaction, m.last_in_transaction) for m in messages] == [
        (True, False), (False, False), (False, False), (False, True)]  # fmt: skip
    assert len({m.transaction_identifier for m in messages}) == 1
    assert all(m.is_transactional and m.priority == 0 and m.recoverable for m in messages)


def test_a_single_send_is_first_and_last(world: World) -> None:
    fill(world, "a")
    (message,) = world.messages(world.queue())
    assert message.first_in_transaction and message.last_in_transaction


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_commit_survives_a_restart_and_what_was_open_does_not(world: World, checkpoint: bool) -> None:
    fill(world, "abc")
    pending = world.begin(2)
    for label in "xyz":
        world.send("q", label, pending)
    assert world.read(world.open(), transaction=pending).label == "a"
    world.restart(checkpoint)
    assert world.labels() == ["a", "b", "c"]
    with refused(SEQUENCE):
        world.manager.transactions.find(pending.identifier)
    fill(world, "d", number=2)
    world.restart()
    assert world.labels() == ["a", "b", "c", "d"]


def test_an_abort_drops_sends_and_returns_receives_to_their_place(world: World) -> None:
    fill(world, "abc")
    transaction = world.begin()
    assert world.read(world.open(), transaction=transaction).label == "a"
    for label in "xy":
        world.send("q", label, transaction)
    waiting = world.wait(world.open(), ReceiveAction.PEEK_CURRENT, cursor=None) if not world.labels() else None
    assert waiting is None and world.labels() == ["b", "c"]
    world.manager.transactions.abort(transaction)
    assert world.labels() == ["a", "b", "c"]
    total = world.queue().total_bytes
    world.restart()
    assert world.labels() == ["a", "b", "c"]
    assert world.queue().total_bytes == total


def test_a_transactional_receive_is_final_at_the_commit(world: World) -> None:
    fill(world, "ab")
    transaction = world.begin()
    world.read(world.open(), transaction=transaction)
    world.send("r", "moved", transaction)
    world.manager.transactions.commit(transaction)
    assert (world.labels(), world.labels("r")) == (["b"], ["moved"])
    world.restart()
    assert (world.labels(), world.labels("r")) == (["b"], ["moved"])


def test_bytes_are_counted_once_through_write_ahead_commit_and_receive(world: World) -> None:
    fill(world, "abcdé")
    queue = world.queue()
    assert queue.total_bytes > 0
    total = queue.total_bytes
    world.restart()
    assert world.queue().total_bytes == total
    for _ in range(5):
        world.read(world.open())
    assert world.queue().total_bytes == 0


def test_an_ended_transaction_takes_part_in_nothing(world: World) -> None:
    fill(world, "a")
    for number, end in enumerate((world.manager.transactions.commit, world.manager.transactions.abort)):
        transaction = world.begin(number)
        end(transaction)
        for again in (world.manager.transactions.commit, world.manager.transactions.abort):
            with refused(SEQUENCE):
                again(transaction)
        with refused(SEQUENCE):
            world.send("q", "late", transaction)
        assert world.read(world.open(), transaction=transaction).status == HResult.MQ_ERROR_TRANSACTION_USAGE
    assert world.labels() == ["a"]


def test_a_unit_of_work_is_enlisted_once_at_a_time(world: World) -> None:
    transaction = world.begin(1)
    with refused(SEQUENCE):
        world.begin(1)
    assert world.manager.transactions.find(transaction.identifier) is transaction
    world.manager.transactions.commit(transaction)
    world.manager.transactions.abort(world.begin(1))


def test_a_transaction_reads_transactional_queues_and_journals_only(world: World) -> None:
    world.create("plain")
    world.send("plain", "m")
    outcome = world.read(world.open("plain"), transaction=world.begin())
    assert outcome.status == HResult.MQ_ERROR_TRANSACTION_USAGE
    assert world.labels("plain") == ["m"]
    queue = world.create("journaling", JOURNAL=1)
    world.send("journaling", "j", delivery_guarantee=1)
    world.read(world.open("journaling"))
    transaction = world.begin(2)
    assert world.read(world.open("DIRECT=OS:.\\private$\\journaling;JOURNAL"), transaction=transaction).label == "j"
    world.manager.transactions.commit(transaction)
    assert queue.journal is not None and len(queue.journal) == 0


def test_a_wait_in_a_transaction_that_ended_meanwhile_takes_nothing(world: World) -> None:
    transaction = world.begin()
    waiting = world.wait(world.open(), transaction=transaction)
    world.manager.transactions.commit(transaction)
    fill(world, "a")
    assert waiting.status == SEQUENCE
    assert world.labels() == ["a"]


@pytest.mark.parametrize("end", ["commit", "abort", "restart"])
@pytest.mark.parametrize("sends", [1, 3])
def test_a_queue_deleted_before_its_transaction_ends_takes_its_messages_along(
    world: World, end: str, sends: int
) -> None:
    fill(world, "a")
    transaction = world.begin()
    world.read(world.open(), transaction=transaction)
    for number in range(sends):
        world.send("q", str(number), transaction)
    world.send("r", "kept", transaction)
    world.manager.administration.delete_queue(world.queue(), ALICE)
    if end != "restart":
        getattr(world.manager.transactions, end)(transaction)
    world.restart()
    assert list(world.registry.by_name) == ["r"]
    assert world.labels("r") == (["kept"] if end == "commit" else [])
    world.restart()
    assert set(world.store.recovered.queues) <= {world.queue("r").number}


def test_a_commit_that_fails_on_a_full_disk_leaves_the_transaction_open(world: World) -> None:
    fill(world, "a")
    transaction = world.begin()
    world.read(world.open(), transaction=transaction)
    world.send("q", "b", transaction)
    world.store.full = True
    with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
        world.manager.transactions.commit(transaction)
    with refused(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED):
        world.send("q", "c", transaction)
    assert world.labels() == []
    world.store.full = False
    world.send("q", "c", transaction)
    world.manager.transactions.commit(transaction)
    assert [(m.label, m.first_in_transaction, m.last_in_transaction) for m in world.messages(world.queue())] == [
        ("b", True, False), ("c", False, True)]  # fmt: skip


def test_an_abort_succeeds_even_on_a_full_disk(world: World) -> None:
    fill(world, "a")
    transaction = world.begin()
    world.read(world.open(), transaction=transaction)
    for label in "xy":
        world.send("q", label, transaction)
    world.store.full = True
    world.manager.transactions.abort(transaction)
    world.store.full = False
    assert world.labels() == ["a"]
    world.restart()
    assert world.labels() == ["a"]


def test_a_transactional_send_to_several_queues_is_atomic(world: World) -> None:
    transaction = world.begin()
    for label in "ab":
        world.manager.sending.enqueue(world.open(BOTH, Access.SEND), Message(label=label), transaction)
    world.manager.transactions.commit(transaction)
    assert (world.labels("q"), world.labels("r")) == (["a", "b"], ["a", "b"])
    marks = [(m.first_in_transaction, m.last_in_transaction) for m in world.messages(world.queue("q"))]
    assert marks == [(True, False), (False, False)]
    assert world.messages(world.queue("r"))[1].last_in_transaction


def test_the_journal_copy_of_a_message_written_ahead_has_its_body(world: World) -> None:
    transaction = world.begin()
    for label in "ab":
        world.send("q", label, transaction, body=b"body " + label.encode(), journaling_requested=2)
    world.manager.transactions.commit(transaction)
    assert [m.body for m in world.messages(world.registry.system_journal)] == [b"body a", b"body b"]
    assert [m.body for m in world.messages(world.queue())] == [b"body a", b"body b"]


def test_a_purge_leaves_uncommitted_sends_and_takes_uncommitted_receives(world: World) -> None:
    fill(world, "ab")
    transaction = world.begin()
    world.read(world.open(), transaction=transaction)
    world.send("q", "sent", transaction)
    assert world.manager.reading.purge(world.open()) == 1
    world.manager.transactions.abort(transaction)
    assert len(world.queue()) == 0 and world.queue().total_bytes == 0
    other = world.begin(2)
    world.send("q", "sent", other)
    world.manager.reading.purge(world.open())
    world.manager.transactions.commit(other)
    assert world.labels() == ["sent"]


def test_a_disk_that_is_full_right_after_a_commit_does_not_undo_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    transaction = world.begin()
    for _ in range(2):
        world.send("q", "gone", transaction)
    world.send("r", "kept", transaction)
    world.manager.administration.delete_queue(world.queue(), ALICE)
    commit = world.store.commit

    def commit_and_fill(number: int, operations: Any = ()) -> list[int]:
        locations = commit(number, operations)
        world.store.full = True
        return locations

    monkeypatch.setattr(world.store, "commit", commit_and_fill)
    world.manager.transactions.commit(transaction)
    assert world.labels("r") == ["kept"] and not world.manager.transactions.enlisted()
    world.restart()
    world.restart()
    assert world.labels("r") == ["kept"]
    assert set(world.store.recovered.queues) == {world.queue("r").number}


def test_a_peek_may_name_a_transaction_whatever_the_queue_is(world: World) -> None:
    """[MS-MQMP] 3.1.5.3 passes the transaction to Dequeue Message only."""
    world.create("plain")
    world.send("plain", "m")
    transaction = world.begin()
    found = world.read(world.open("plain"), ReceiveAction.PEEK_CURRENT, transaction=transaction)
    assert found.label == "m"
    assert world.read(world.open("plain"), transaction=transaction).status == HResult.MQ_ERROR_TRANSACTION_USAGE
