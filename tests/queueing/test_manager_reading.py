"""Reading: waiting, two-phase reads, purge, expiry and cursors ([MS-MQDMPR] 3.1.7.1.10 to 3.1.7.1.17, 3.2)."""

from __future__ import annotations

from typing import Any

import pytest

from openmsmq.model.constants import Access, MessageClass, ReceiveAction
from openmsmq.model.errors import HResult
from openmsmq.queueing.descriptors import CursorState
from openmsmq.queueing.manager import LONGEST_SLEEP
from queueing.world import ALICE, RecordingAuditor, World, refused

ADMIN = "DIRECT=OS:.\\private$\\admin"
R, K, S = Access.RECEIVE, Access.PEEK, Access.SEND
CURRENT, NEXT = ReceiveAction.PEEK_CURRENT, ReceiveAction.PEEK_NEXT
OK, TIMEOUT = HResult.MQ_OK, HResult.MQ_ERROR_IO_TIMEOUT


# -- waiting ---------------------------------------------------------------------------------------------------


def test_waiting_readers_are_served_first_come_first_served_and_peekers_all(world: World) -> None:
    descriptors = [world.open() for _ in range(5)]
    peek1, receive1, peek2, receive2 = (
        world.wait(d, a)
        for d, a in zip(descriptors, [CURRENT, ReceiveAction.RECEIVE, CURRENT, ReceiveAction.RECEIVE], strict=False)
    )
    world.send(label="1")
    assert (peek1.label, receive1.label) == ("1", "1")
    assert not peek2.over and not receive2.over
    world.send(label="2")
    assert (peek2.label, receive2.label) == ("2", "2")
    world.send(label="3")
    assert world.labels() == ["3"]


def test_peekers_before_a_receiver_see_what_it_takes(world: World) -> None:
    peekers = [world.wait(world.open(), CURRENT) for _ in range(3)]
    receiver = world.wait(world.open())
    late = world.wait(world.open(), CURRENT)
    world.send(label="m")
    assert [p.label for p in peekers] == ["m"] * 3
    assert receiver.label == "m" and not late.over


def test_a_wait_ends_at_its_time_and_not_before(world: World) -> None:
    outcome = world.wait(world.open(), timeout=1000)
    assert world.manager.next_expiry() == 1000
    world.advance(999)
    assert not outcome.over
    world.advance(1)
    assert outcome.status == TIMEOUT
    world.send(label="m")
    assert world.labels() == ["m"]
    assert world.manager.next_expiry() is None


def test_an_infinite_wait_has_no_deadline(world: World) -> None:
    outcome = world.wait(world.open())
    assert world.manager.next_expiry() is None
    world.advance(1 << 40)
    assert not outcome.over


def test_a_cancelled_wait_takes_nothing(world: World) -> None:
    answers: list[Any] = []
    reader = world.manager.reading.read(
        world.open(),
        ReceiveAction.RECEIVE,
        1000,
        lambda m: 0,
        lambda status, message: answers.append((status, message)),
    )
    assert reader is not None
    assert world.manager.reading.cancel(reader)
    assert not world.manager.reading.cancel(reader)
    assert answers == [(HResult.MQ_ERROR_OPERATION_CANCELLED, None)]
    world.send(label="m")
    world.advance(5000)
    assert world.labels() == ["m"] and len(answers) == 1


def test_closing_a_queue_cancels_its_waits_and_no_others(world: World) -> None:
    closing, staying = world.open(), world.open()
    cancelled, waiting = world.wait(closing), world.wait(staying)
    world.manager.handles.close_queue(closing)
    assert cancelled.status == HResult.MQ_ERROR_OPERATION_CANCELLED
    world.send(label="m")
    assert waiting.label == "m"


def test_a_reader_whose_buffer_is_too_small_leaves_the_message_to_the_next(world: World) -> None:
    too_small = world.wait(world.open(), accept=HResult.MQ_ERROR_BUFFER_OVERFLOW)
    enough = world.wait(world.open())
    world.send(label="m")
    assert too_small.status == HResult.MQ_ERROR_BUFFER_OVERFLOW
    assert enough.label == "m"
    world.send(label="n")
    assert world.read(world.open(), accept=HResult.MQ_ERROR_BUFFER_OVERFLOW).status == HResult.MQ_ERROR_BUFFER_OVERFLOW
    assert world.labels() == ["n"]


# -- two-phase reads, purge, expiry ----------------------------------------------------------------------------


def test_a_two_phase_read_locks_until_it_is_acknowledged_or_rejected(world: World) -> None:
    for label in "ab":
        world.send(label=label, delivery_guarantee=1)
    reader = world.open()
    first = world.read(reader, two_phase=True)
    assert world.labels() == ["b"]
    world.manager.reading.end_two_phase(reader, first.message.lookup_identifier, delete=False)
    assert world.labels() == ["a", "b"]
    again = world.read(reader, two_phase=True)
    world.manager.reading.end_two_phase(reader, again.message.lookup_identifier, delete=True)
    assert world.labels() == ["b"]
    for other in (reader, world.open()):
        with refused(HResult.MQ_ERROR_TRANSACTION_SEQUENCE):
            world.manager.reading.end_two_phase(other, again.message.lookup_identifier, delete=True)


def test_only_the_reader_that_locked_a_message_ends_its_read(world: World) -> None:
    world.send()
    reader = world.open()
    key = world.read(reader, two_phase=True).message.lookup_identifier
    with refused(HResult.MQ_ERROR_TRANSACTION_SEQUENCE):
        world.manager.reading.end_two_phase(world.open(), key, delete=True)
    world.manager.handles.close_queue(reader)
    assert len(world.labels()) == 1


def test_a_reader_that_closes_puts_back_what_it_holds_and_nothing_of_others(world: World) -> None:
    for label in "abc":
        world.send(label=label)
    reader, other = world.open(), world.open()
    first = world.read(reader, two_phase=True).message.lookup_identifier
    world.manager.reading.end_two_phase(reader, first, delete=False)
    world.read(other, two_phase=True)
    world.read(reader, two_phase=True)
    assert world.labels() == ["c"]
    world.manager.handles.close_queue(reader)
    assert world.labels() == ["b", "c"]
    world.manager.handles.close_queue(other)
    assert world.labels() == ["a", "b", "c"]


def test_a_rejected_message_goes_to_a_waiting_reader(world: World) -> None:
    world.send(label="m")
    reader = world.open()
    key = world.read(reader, two_phase=True).message.lookup_identifier
    waiting = world.wait(world.open())
    world.manager.reading.end_two_phase(reader, key, delete=False)
    assert waiting.label == "m"


def test_a_locked_message_returns_at_a_restart(world: World) -> None:
    world.send(label="m", delivery_guarantee=1)
    world.read(world.open(), two_phase=True)
    world.restart(checkpoint=True)
    assert world.labels() == ["m"]


@pytest.mark.parametrize("delete", [False, True])
def test_a_purge_takes_locked_messages_when_their_reader_ends(world: World, delete: bool) -> None:
    world.create("admin")
    for label in "ab":
        world.send(label=label, acknowledgements_requested=15, administration_queue_format_name=ADMIN)
    world.manager.reading.purge(world.open("admin"))
    reader = world.open()
    key = world.read(reader, two_phase=True).message.lookup_identifier
    assert world.manager.reading.purge(reader) == 1
    assert len(world.queue()) == 1
    world.manager.reading.end_two_phase(reader, key, delete)
    assert len(world.queue()) == 0 and world.queue().total_bytes == 0
    classes = [m.message_class for m in world.messages(world.queue("admin"))]
    assert classes == [MessageClass.NACK_Q_PURGED] * 2


def test_a_large_purge_leaves_nothing(world: World) -> None:
    for _ in range(1100):
        world.send(delivery_guarantee=1)
    assert world.manager.reading.purge(world.open()) == 1100
    assert world.queue().total_bytes == 0
    world.restart()
    assert len(world.queue()) == 0


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("restart", [None, False, True])
def test_a_message_expires_at_its_time_also_after_a_restart(
    world: World, transactional: bool, restart: bool | None
) -> None:
    world.create("e", TRANSACTION=int(transactional))
    transaction = world.begin() if transactional else None
    world.send("e", "m", transaction, time_to_be_received=10, delivery_guarantee=1)
    if transaction is not None:
        world.manager.transactions.commit(transaction)
    if restart is not None:
        world.restart(checkpoint=restart)
    assert world.manager.next_expiry() == LONGEST_SLEEP, "10 s, but the clock may be set"
    world.advance(9_999)
    assert world.labels("e") == ["m"]
    world.advance(1)
    assert len(world.queue("e")) == 0 and world.queue("e").total_bytes == 0
    world.restart()
    assert len(world.queue("e")) == 0


@pytest.mark.parametrize("end", ["reject", "acknowledge", "close", "restart", "checkpoint"])
def test_a_message_that_expires_while_locked_is_removed_when_put_back(world: World, end: str) -> None:
    world.send(label="m", time_to_be_received=10, delivery_guarantee=1, journaling_requested=1)
    reader = world.open()
    key = world.read(reader, two_phase=True).message.lookup_identifier
    world.advance(10_000)
    assert len(world.queue()) == 1
    if end in ("reject", "acknowledge"):
        world.manager.reading.end_two_phase(reader, key, delete=end == "acknowledge")
    elif end == "close":
        world.manager.handles.close_queue(reader)
    else:
        world.restart(checkpoint=end == "checkpoint")
        world.advance(0)
    assert len(world.queue()) == 0
    assert world.labels(world.registry.dead_letters) == ([] if end == "acknowledge" else ["m"])


def test_an_expiry_that_fails_on_a_full_disk_is_retried_for_all_due_messages(world: World) -> None:
    for label in "abc":
        world.send(label=label, time_to_be_received=10, delivery_guarantee=1)
    world.store.full = True
    world.advance(10_000)
    assert world.labels() == ["a", "b", "c"]
    assert world.manager.next_expiry() in range(1, 10_001)
    world.store.full = False
    world.advance(60_000)
    assert world.labels() == []


def test_closing_a_reader_when_the_disk_is_full_releases_all_its_locks(world: World) -> None:
    for label in "ab":
        world.send(label=label, delivery_guarantee=1)
    reader = world.open()
    for _ in range(2):
        world.read(reader, two_phase=True)
    world.manager.reading.purge(reader)
    world.store.full = True
    world.manager.handles.close_queue(reader)
    assert world.labels() == ["a", "b"]


# -- cursors ---------------------------------------------------------------------------------------------------


def test_a_cursor_moves_over_the_messages_in_order(world: World) -> None:
    for label in "abc":
        world.send(label=label)
    reader = world.open()
    cursor = world.manager.handles.open_cursor(reader)
    assert world.read(reader, NEXT, cursor=cursor).status == HResult.MQ_ERROR_ILLEGAL_CURSOR_ACTION
    assert [world.read(reader, CURRENT, cursor=cursor).label for _ in range(2)] == ["a", "a"]
    assert [world.read(reader, NEXT, cursor=cursor).label for _ in range(2)] == ["b", "c"]
    assert world.read(reader, NEXT, cursor=cursor).status == TIMEOUT
    assert world.read(reader, CURRENT, cursor=cursor).label == "c"


def test_a_receive_with_a_cursor_removes_the_current_message(world: World) -> None:
    for label in "abc":
        world.send(label=label)
    reader = world.open()
    cursor = world.manager.handles.open_cursor(reader)
    world.read(reader, CURRENT, cursor=cursor)
    assert world.read(reader, NEXT, cursor=cursor).label == "b"
    assert world.read(reader, cursor=cursor).label == "b"
    assert cursor.state is CursorState.UNREAD
    assert world.read(reader, NEXT, cursor=cursor).status == HResult.MQ_ERROR_ILLEGAL_CURSOR_ACTION
    assert world.read(reader, cursor=cursor).label == "c"
    assert world.read(reader, cursor=cursor).status == HResult.MQ_ERROR_MESSAGE_NOT_FOUND
    assert world.labels() == ["a"]


@pytest.mark.parametrize("action", [CURRENT, ReceiveAction.RECEIVE])
@pytest.mark.parametrize("how", ["received", "locked"])
def test_a_cursor_reports_that_its_message_was_received_by_another(
    world: World, action: ReceiveAction, how: str
) -> None:
    for label in "ab":
        world.send(label=label)
    reader, other = world.open(), world.open()
    cursor = world.manager.handles.open_cursor(reader)
    world.read(reader, CURRENT, cursor=cursor)
    world.read(other, two_phase=how == "locked")
    assert world.read(reader, action, cursor=cursor).status == HResult.MQ_ERROR_MESSAGE_ALREADY_RECEIVED
    assert world.read(reader, NEXT, cursor=cursor).label == "b"


def test_a_peek_next_without_cursor_is_illegal(world: World) -> None:
    world.send()
    assert world.read(world.open(), NEXT).status == HResult.MQ_ERROR_ILLEGAL_CURSOR_ACTION


def test_a_cursor_is_where_it_was_after_a_wait_that_ended_without_message(world: World) -> None:
    world.send(label="a")
    reader = world.open()
    cursor = world.manager.handles.open_cursor(reader)
    world.read(reader, CURRENT, cursor=cursor)
    timed = world.wait(reader, NEXT, cursor=cursor, timeout=10)
    world.advance(50)
    assert timed.status == TIMEOUT
    assert cursor.state is CursorState.READ
    assert world.read(reader, CURRENT, cursor=cursor).label == "a"
    waiting = world.wait(reader, NEXT, cursor=cursor)
    world.send(label="b")
    assert waiting.label == "b"
    assert world.read(reader, CURRENT, cursor=cursor).label == "b"


def test_two_waits_with_one_cursor_leave_it_as_it_was(world: World) -> None:
    reader = world.open()
    cursor = world.manager.handles.open_cursor(reader)
    waits = [world.wait(reader, CURRENT, cursor=cursor, timeout=t) for t in (10, 20)]
    world.advance(50)
    assert [w.status for w in waits] == [TIMEOUT] * 2
    assert cursor.state is CursorState.UNREAD


def test_a_closed_cursor_cancels_its_waits(world: World) -> None:
    reader = world.open()
    cursor = world.manager.handles.open_cursor(reader)
    waiting, other = world.wait(reader, CURRENT, cursor=cursor), world.wait(reader)
    world.manager.handles.close_cursor(cursor)
    assert waiting.status == HResult.MQ_ERROR_OPERATION_CANCELLED
    assert not other.over and not reader.cursors


def test_a_higher_priority_message_before_the_cursor_is_not_next(world: World) -> None:
    world.send(label="low", priority=1)
    reader = world.open()
    cursor = world.manager.handles.open_cursor(reader)
    world.read(reader, CURRENT, cursor=cursor)
    world.send(label="high", priority=7)
    assert world.read(reader, NEXT, cursor=cursor).status == TIMEOUT
    assert world.read(reader, CURRENT).label == "high"


def test_what_was_received_from_a_journal_is_in_the_audit_log_once_with_its_count() -> None:
    world, world.auditor = World(), RecordingAuditor()
    world.restart()
    world.create(JOURNAL=1)
    for label in "abc":
        world.send(label=label, journaling_requested=2)
    reader = world.open()
    for _ in range(3):
        world.read(reader)
    world.manager.handles.close_queue(reader)
    journal = world.open("DIRECT=OS:.\\private$\\q;journal")
    for _ in range(2):
        world.read(journal)
    world.manager.handles.close_queue(journal)
    received = [record for record in world.auditor.records if record.action == "messages.receive"]
    assert [(record.actor.sid, record.count) for record in received] == [(ALICE.sid, 2)], (
        "and none for the queue itself"
    )
