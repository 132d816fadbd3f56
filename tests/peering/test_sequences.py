"""Sequences of outgoing queues: stored records and their recovery."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from openmsmq.model import names
from openmsmq.packet.internal import OrderAckBody
from openmsmq.peering import durable
from openmsmq.peering.sequences import Identifiers, QueueSequence, Sequences
from openmsmq.queueing.outgoing_queues import OutgoingQueue, SequenceInfo
from openmsmq.queueing.properties import QueueProperties
from openmsmq.queueing.queue import Queue, QueueKind
from openmsmq.store import Drop, Operation, Put
from openmsmq.transport.sequence import SequenceId

SECONDS = 1_700_000_000


def outgoing(number: int, *keys: int) -> OutgoingQueue:
    """An outgoing queue with messages of these lookup identifiers."""
    name = names.parse_format_name(f"DIRECT=OS:host{number}\\private$\\q")
    assert isinstance(name, names.DirectFormatName)
    properties = QueueProperties(str(name))
    awaiting = Queue(number | 1 << 31, QueueKind.AWAITING, properties, lambda *_: b"")
    queue = OutgoingQueue(number, properties, lambda *_: b"", awaiting, name)
    queue.entries.update(dict.fromkeys(keys))  # type: ignore[arg-type]
    return queue


class FakeStore:
    """A fake store."""

    def __init__(self) -> None:
        self.definitions: dict[bytes, bytes] = {}

    def write(self, operations: Iterable[Operation]) -> None:
        for one in operations:
            if isinstance(one, Put):
                self.definitions[one.name] = one.value
            else:
                assert isinstance(one, Drop)
                del self.definitions[one.name]

    def start(self, *queues: OutgoingQueue, seconds: int = SECONDS) -> Sequences:
        return Sequences(self.definitions, queues, lambda: seconds)

    @property
    def names(self) -> set[bytes]:
        return set(self.definitions) - {durable.LAST_IDENTIFIER}


def give(disk: FakeStore, sequence: QueueSequence, *keys: int) -> list[int]:
    """Assign numbers to messages and store them, ready to be sent."""
    numbers, operations = sequence.number(keys)
    disk.write(operations)
    sequence.stored()
    sequence.ready(numbers)
    return numbers


def order_ack(sequence: QueueSequence, number: int) -> OrderAckBody:
    identifier = sequence.core.identifier
    return OrderAckBody(identifier.ordinal, identifier.timestamp, number)


def begun(disk: FakeStore, queue: OutgoingQueue) -> QueueSequence:
    """Messages 11, 12 and 13 with the numbers 1 to 3, in two records."""
    sequence = disk.start(queue).of(queue)
    assert [*give(disk, sequence, 11, 12), *give(disk, sequence, 13)] == [1, 2, 3]
    return sequence


def test_after_a_restart_each_message_has_its_number_and_all_are_sent_again() -> None:
    disk, queue = FakeStore(), outgoing(7, 11, 12, 13)
    before = begun(disk, queue)
    sequences = disk.start(queue)
    after = sequences.get(queue)
    assert after is not None and not sequences.orphans
    assert after.core.identifier == before.core.identifier
    assert list(after.pending) == [1, 2, 3] and after.messages == {1: 11, 2: 12, 3: 13}
    assert (after.core.next_number, after.core.last_ack, after.is_stored) == (4, 0, True)


def test_after_a_restart_a_record_is_kept_until_its_last_number_is_acknowledged() -> None:
    disk, queue = FakeStore(), outgoing(7, 11, 12, 13)
    begun(disk, queue)
    after = disk.start(queue).get(queue)
    assert after is not None
    prefix = durable.NUMBERS_PREFIX + b"7/"
    for number, kept in ((1, {prefix + b"1", prefix + b"3"}), (2, {prefix + b"3"})):
        disk.write(after.acknowledged(order_ack(after, number), 0)[1])
        assert disk.names == {durable.OUTGOING_PREFIX + b"7"} | kept


def test_messages_no_longer_in_the_queue_are_skipped_after_a_restart() -> None:
    disk, queue = FakeStore(), outgoing(7, 11, 12, 13)
    begun(disk, queue)
    del queue.entries[12]
    after = disk.start(queue).get(queue)
    assert after is not None and list(after.pending) == [1, 3] and after.previous(3) == 1
    assert after.core.next_number == 4


@pytest.mark.parametrize(("number", "kept"), [(1, {b"1", b"3"}), (2, {b"3"})])
def test_an_order_ack_completes_exactly_the_messages_up_to_it(number: int, kept: set[bytes]) -> None:
    disk, queue = FakeStore(), outgoing(7, 11, 12, 13)
    sequence = begun(disk, queue)
    present, operations = sequence.acknowledged(order_ack(sequence, number), 0)
    disk.write(operations)
    assert present == [11, 12][:number]
    assert list(sequence.pending) == [1, 2, 3][number:]
    prefix = durable.NUMBERS_PREFIX + b"7/"
    assert disk.names == {durable.OUTGOING_PREFIX + b"7"} | {prefix + first for first in kept}
    after = disk.start(queue).get(queue)
    assert after is not None and list(after.pending) == [1, 2, 3][number:]
    assert (after.core.last_ack, after.core.identifier) == (number, sequence.core.identifier)


def test_an_order_ack_names_only_messages_that_are_still_there() -> None:
    disk, queue = FakeStore(), outgoing(7, 11, 12, 13)
    sequence = begun(disk, queue)
    del queue.entries[11]
    assert sequence.acknowledged(order_ack(sequence, 2), 0)[0] == [12]


def test_an_order_ack_that_says_nothing_new_changes_nothing() -> None:
    disk, queue = FakeStore(), outgoing(7, 11, 12, 13)
    sequence = begun(disk, queue)
    sequence.acknowledged(order_ack(sequence, 2), 0)
    for number in (2, 1, 0, 4):
        assert sequence.acknowledged(order_ack(sequence, number), 1) == ([], [])
    assert list(sequence.pending) == [3] and sequence.messages == {3: 13}


def test_when_all_is_acknowledged_nothing_is_stored_and_the_next_sequence_is_greater() -> None:
    disk, queue = FakeStore(), outgoing(7, 11, 12, 13)
    sequence = begun(disk, queue)
    first = sequence.core.identifier
    present, operations = sequence.acknowledged(order_ack(sequence, 3), 0)
    disk.write(operations)
    assert present == [11, 12, 13] and not disk.names and not sequence.pending
    assert sequence.core.identifier > first
    queue.entries[14] = None  # type: ignore[assignment]
    assert give(disk, sequence, 14) == [1]
    after = disk.start(queue).get(queue)
    assert after is not None and after.core.identifier == sequence.core.identifier and after.messages == {1: 14}


def test_after_the_last_messages_were_refused_or_expired_the_next_one_begins_a_new_sequence() -> None:
    """A receiver that has lost its position would refuse a message that follows number 2."""
    disk, queue = FakeStore(), outgoing(7, 11, 12, 13)
    sequence = begun(disk, queue)
    old, late = sequence.core.identifier, order_ack(sequence, 3)
    disk.write(sequence.acknowledged(order_ack(sequence, 2), 0)[1])
    del queue.entries[13]
    queue.entries[14] = None  # type: ignore[assignment]
    assert give(disk, sequence, 14) == [1] and sequence.previous(1) == 0 and sequence.core.identifier > old
    assert sequence.acknowledged(late, 0) == ([], [])
    again = disk.start(queue).of(queue)
    assert again.core.identifier == sequence.core.identifier and again.messages == {1: 14} and len(disk.names) == 2


def test_identifiers_rise_even_if_the_clock_is_set_back() -> None:
    clock = iter([5, 5, 4, 6, 0])
    identifiers = Identifiers(SequenceId(5, 2), lambda: next(clock))
    made = [identifiers.new() for _ in range(5)]
    assert made == [SequenceId(5, 3), SequenceId(5, 4), SequenceId(5, 5), SequenceId(6, 1), SequenceId(6, 2)]
    assert Identifiers(SequenceId(0, 0), lambda: 0).new() == SequenceId(1, 1)


def test_identifiers_rise_over_restarts_with_the_clock_set_back() -> None:
    disk, queue = FakeStore(), outgoing(7, 11, 12, 13)
    sequence = begun(disk, queue)
    disk.write(sequence.acknowledged(order_ack(sequence, 3), 0)[1])
    assert disk.start(queue, seconds=SECONDS - 100).of(queue).core.identifier > SequenceId(SECONDS, 1)


def test_records_without_queue_or_message_are_dropped() -> None:
    disk, gone, empty, here = FakeStore(), outgoing(7, 11, 12, 13), outgoing(8, 21), outgoing(9, 31)
    begun(disk, gone)
    sequences = disk.start(empty, here)
    for queue, key in ((empty, 21), (here, 31)):
        give(disk, sequences.of(queue), key)
    disk.write([durable.put_numbers(10, 5, [51]), durable.put_numbers(10, 6, [52])])  # without their sequence
    empty.entries.clear()
    after = disk.start(empty, here)
    assert after.get(here) is not None and after.get(empty) is None
    disk.write(after.orphans)
    assert disk.names == {durable.OUTGOING_PREFIX + b"9", durable.NUMBERS_PREFIX + b"9/1"}
    assert not disk.start(empty, here).orphans


def test_a_failed_change_is_undone_for_its_own_queue_only() -> None:
    disk, queue, other = FakeStore(), outgoing(7, 11, 12, 13), outgoing(77, 21)
    sequences = disk.start(queue, other)
    sequence = sequences.of(queue)
    give(disk, sequence, 11, 12)
    give(disk, sequence, 13)
    give(disk, sequences.of(other), 21)
    others = sequences.get(other)
    sequence.acknowledged(order_ack(sequence, 3), 0)  # and the disk is full
    sequences.reload(disk.definitions, queue)
    again = sequences.get(queue)
    assert again is not None and list(again.pending) == [1, 2, 3] and again.messages == {1: 11, 2: 12, 3: 13}
    assert sequences.get(other) is others and not sequences.orphans
    assert sequences.find(order_ack(again, 3)) is again


def test_a_deleted_queue_removes_its_stored_records() -> None:
    disk, queue, fresh, unknown = FakeStore(), outgoing(7, 11, 12, 13), outgoing(8), outgoing(9)
    sequences = disk.start(queue, fresh, unknown)
    give(disk, sequences.of(queue), 11, 12)
    give(disk, sequences.of(queue), 13)
    sequences.of(fresh)
    assert sequences.removal(fresh) == [] and sequences.removal(unknown) == []
    disk.write(sequences.removal(queue))
    assert sequences.get(queue) is not None, "it is forgotten when that is stored"
    sequences.forget(queue)
    sequences.forget(fresh)
    assert not disk.names and list(sequences) == []


def test_numbers_that_could_not_be_stored_are_not_used() -> None:
    disk, queue = FakeStore(), outgoing(7, 11, 12, 13)
    sequence = begun(disk, queue)
    queue.entries[14] = None  # type: ignore[assignment]
    numbers, _ = sequence.number([14])
    sequence.take_back(numbers)
    assert 14 not in sequence.messages.values() and not sequence.is_waiting
    assert sequence.core.unacknowledged == (1, 2, 3)
    assert give(disk, sequence, 14) == [5]
    assert sequence.previous(5) == 3


def test_a_message_is_not_resent_before_it_is_durable() -> None:
    disk, queue = FakeStore(), outgoing(7, 11, 12, 13)
    sequence = begun(disk, queue)
    numbers, _ = sequence.number([14, 15])
    sequence.rewind()
    assert list(sequence.pending) == [1, 2, 3]
    sequence.ready(numbers)
    assert list(sequence.pending) == [1, 2, 3, 4, 5]


def test_management_shows_the_position_of_a_sequence() -> None:
    disk, queue = FakeStore(), outgoing(7, 11, 12, 13)
    sequence = begun(disk, queue)
    timestamp, ordinal = sequence.core.identifier
    assert ordinal == 1
    whole = timestamp * 2**32 + ordinal
    sequence.report(0, 5)
    info = queue.transfer_info
    assert info.eod_next_seq == SequenceInfo(whole, 4, 3) and info.eod_no_ack_count == 3
    assert info.eod_first_non_ack == SequenceInfo(whole, 1, 0) and info.eod_last_non_ack == SequenceInfo(whole, 3, 2)
    assert (info.eod_last_ack_count, info.eod_last_ack_time) == (0, 0)
    sequence.acknowledged(order_ack(sequence, 2), 0)
    sequence.report(0, 6, ordered=True)
    assert info.eod_first_non_ack == info.eod_last_non_ack == SequenceInfo(whole, 3, 2)
    assert info.eod_last_ack == SequenceInfo(whole, 2, 1)
    assert (info.eod_last_ack_count, info.eod_last_ack_time, info.eod_no_ack_count) == (1, 6, 1)


def test_management_shows_when_messages_are_resent() -> None:
    """[MS-MQQB] 3.1.5.6, 3.1.5.8.8: the next time, not the previous one."""
    disk, queue = FakeStore(), outgoing(7, 11, 12, 13)
    sequence, info = begun(disk, queue), queue.transfer_info
    sequence.report(0, SECONDS)
    assert (info.eod_resend_interval, info.eod_resend_time, info.eod_resend_count) == (30, 0, 0)
    sequence.core.sent(1000)
    sequence.report_resending(1000, SECONDS + 1)
    assert (info.eod_resend_interval, info.eod_resend_time, info.eod_resend_count) == (30, SECONDS + 31, 0)
    now = 31_000
    for index, interval in ((1, 30), (2, 30), (3, 300)):
        assert sequence.core.tick(now)
        sequence.report_resending(now, SECONDS + now // 1000)
        assert (info.eod_resend_interval, info.eod_resend_count) == (interval, index)
        assert info.eod_resend_time == SECONDS + now // 1000 + interval
        now += interval * 1000
    sequence.acknowledged(order_ack(sequence, 3), now)
    sequence.report(now, SECONDS + now // 1000, ordered=True)
    assert (info.eod_resend_time, info.eod_resend_count) == (0, 0)


def test_an_order_ack_finds_its_sequence_among_many_unless_it_has_ended() -> None:
    """A renewed sequence has its new identifier; a forgotten one has none."""
    disk = FakeStore()
    queues = [outgoing(number, *range(1, 5)) for number in range(20)]
    sequences = disk.start(*queues)
    for queue in queues:
        give(disk, sequences.of(queue), 1, 2)
    for queue in queues:
        sequence = sequences.of(queue)
        assert sequences.find(order_ack(sequence, 1)) is sequence
    renewed, forgotten = sequences.of(queues[3]), sequences.of(queues[4])
    old, gone = order_ack(renewed, 2), order_ack(forgotten, 1)
    queues[4].entries.clear()
    sequences.forget(queues[4])
    renewed.acknowledged(old, 0.0)
    assert sequences.find(gone) is None and sequences.find(old) is None
    assert sequences.find(order_ack(renewed, 0)) is renewed
    assert len(sequences._by_identifier) == 19


def test_the_record_of_a_sequence_is_written_with_its_first_numbers_only() -> None:
    disk, queue = FakeStore(), outgoing(7, 11, 12, 13)
    sequence = disk.start(queue).of(queue)
    first = sequence.number([11])[1]
    sequence.stored()
    assert [len(first), len(sequence.number([12])[1])] == [3, 1]
