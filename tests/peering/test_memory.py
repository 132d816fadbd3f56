"""Memory of received messages: stored data, and its recovery after a restart."""

from __future__ import annotations

import pytest

from openmsmq.peering import durable, memory
from openmsmq.peering.memory import Duplicates, Sources, SourceState
from openmsmq.queueing.properties import QueueProperties
from openmsmq.queueing.queue import Queue, QueueKind
from openmsmq.store import Drop, Operation
from openmsmq.transport.history import LIFETIME
from openmsmq.transport.sequence import Incoming, SequenceId, SequencePosition
from peering.test_sequences import FakeStore

SOURCE = b"\x11" * 16
NONE = SequenceId(0, 0)


def identifier(number: int) -> bytes:
    return SOURCE + number.to_bytes(4, "little")


def come(told: Duplicates, *numbers: int, now: float = 0) -> list[Operation]:
    """Receive recoverable messages together. Returns the stored data about them."""
    for number in numbers:
        told.add(identifier(number), 0)
    plan = told.plan([identifier(number) for number in numbers], now)
    told.stored(plan)
    return plan.operations


def known(told: Duplicates, count: int) -> list[int]:
    return [number for number in range(count) if told.seen(identifier(number), 1)]


def test_recoverable_duplicates_are_detected_after_a_restart_and_express_ones_are_not() -> None:
    disk = FakeStore()
    before = Duplicates(disk.definitions, 0)
    disk.write(come(before, 1))
    before.add(identifier(2), 0)
    assert before.plan([], 0).operations == []
    assert known(before, 4) == [1, 2]
    assert known(Duplicates(disk.definitions, 0), 4) == [1]


def test_forwarded_messages_are_remembered_with_their_hops() -> None:
    disk, passed = FakeStore(), identifier(1) + b"\x03"
    before = Duplicates(disk.definitions, 0)
    before.add(passed, 0)
    disk.write(before.plan([passed, identifier(2)], 0).operations)
    after = Duplicates(disk.definitions, 0)
    assert after.seen(passed, 1) and after.seen(identifier(2), 1)
    assert not after.seen(identifier(1), 1) and not after.seen(identifier(1) + b"\x04", 1)


def test_a_message_that_could_not_be_stored_is_no_duplicate_when_resent() -> None:
    told = Duplicates({}, 0)
    told.add(identifier(1), 0)
    told.forget(identifier(1))
    told.forget(identifier(2))
    assert known(told, 3) == []


@pytest.mark.parametrize("merged", [1, 3, 256])
@pytest.mark.parametrize("most", [1, 4, 100])
def test_a_batch_that_is_refused_leaves_no_trace(monkeypatch: pytest.MonkeyPatch, most: int, merged: int) -> None:
    """Later batches store references to existing definitions only."""
    monkeypatch.setattr(memory, "MOST_STORED", most)
    monkeypatch.setattr(memory, "MERGED", merged)
    disk = FakeStore()
    told = Duplicates(disk.definitions, 0)
    for number in range(30):
        told.plan([identifier(1000 + number)], number)
        plan = told.plan([identifier(number)], number)
        if number % 3:
            continue
        for operation in plan.operations:
            assert not isinstance(operation, Drop) or operation.name in disk.definitions
        disk.write(plan.operations)
        told.stored(plan)
        assert told._stored == sum(each.count for each in told._kept)
        assert {b"history/%d" % each.number for each in told._kept} == set(disk.definitions)


@pytest.mark.parametrize("together", [1, 2, 3])
def test_the_latest_messages_are_remembered_after_any_number_of_restarts(
    monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """At least four messages are kept, with as few definitions as possible."""
    monkeypatch.setattr(memory, "MOST_STORED", 4)
    disk, count = FakeStore(), 0
    for _ in range(7):
        told = Duplicates(disk.definitions, 0)
        disk.write(come(told, *range(count, count + together)))
        count += together
        kept = known(Duplicates(disk.definitions, 0), count)
        assert kept == list(range(count - len(kept), count))
        assert min(count, 4) <= len(kept) < 4 + together
        assert len(disk.names) * together == len(kept)


def transactional(number: int) -> Queue:
    return Queue(number, QueueKind.PRIVATE, QueueProperties(f"q{number}"), lambda *_: b"")


def test_management_shows_the_position_of_a_source() -> None:
    source = SourceState(SOURCE, 5, Incoming(SequencePosition(SequenceId(7, 9), 3), 2), accessed=77)
    info = source.info("name")
    assert info == type(info)("name", SOURCE, 7 * 2**32 + 9, 3, 77, 2)


def test_a_stored_message_is_forgotten_after_half_an_hour() -> None:
    disk = FakeStore()
    told = Duplicates(disk.definitions, 0)
    disk.write(come(told, 1))
    disk.write(come(told, 2, now=LIFETIME - 1))
    assert len(disk.names) == 2
    disk.write(come(told, 3, now=LIFETIME))
    assert known(Duplicates(disk.definitions, 0), 5) == [2, 3]


def test_single_messages_do_not_fill_the_store_with_definitions() -> None:
    disk = FakeStore()
    told = Duplicates(disk.definitions, 0)
    for number in range(3000):
        disk.write(come(told, number))
        assert len(disk.names) <= 2 * memory.MERGED
    assert known(Duplicates(disk.definitions, 0), 3000) == list(range(3000))


def taken(sources: Sources, disk: FakeStore, source: SourceState, address: str = "") -> None:
    """Accept a message of a source."""
    disk.write(source.operations())
    sources.keep(source, address)


def test_the_position_of_a_source_survives_a_restart() -> None:
    disk, queue, gone = FakeStore(), transactional(5), transactional(6)
    sources = Sources(disk.definitions, {5: queue, 6: gone})
    for one in (queue, gone):
        source = sources.of(SOURCE, one, "", NONE)
        source.sequence.receive(SequenceId(7, 9), 1, 0, 0)
        source.accessed = 77
        assert not sources.is_kept(source)
        taken(sources, disk, source)
        assert sources.is_kept(source) and sources.of(SOURCE, one, "", NONE) is source
    after = Sources(disk.definitions, {5: queue})
    known = after.of(SOURCE, queue, "", NONE)
    assert (known.sequence.position, known.accessed) == (SequencePosition(SequenceId(7, 9), 1), 77)
    assert not known.sequence.receive(SequenceId(7, 9), 1, 0, 0), "it has come"
    disk.write(after.orphans)
    assert disk.names == {durable.INCOMING_PREFIX + SOURCE.hex().encode() + b"/5"}


def test_a_sequence_is_never_evicted_and_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MOST_INCOMING", 5)
    monkeypatch.setattr(memory, "INCOMING_OF_ADDRESS", 3)
    disk, queue = FakeStore(), transactional(5)
    sources = Sources(disk.definitions, {5: queue})
    first = sources.of(bytes([1]) * 16, queue, "", NONE)
    for number, address in ((1, "known"), (2, "stranger"), (3, "stranger"), (4, "stranger")):
        source = sources.of(bytes([number]) * 16, queue, "", NONE)
        assert sources.has_room(source, address)
        taken(sources, disk, source, address)
    another = sources.of(bytes([5]) * 16, queue, "", NONE)
    assert not sources.has_room(another, "stranger") and sources.has_room(another, "another one")
    assert sources.has_room(sources.of(bytes([1]) * 16, queue, "", NONE), "stranger"), "it is known"
    taken(sources, disk, another, "another one")
    late = sources.of(bytes([6]) * 16, queue, "", NONE)
    assert not sources.has_room(late, "known") and sources.knows(bytes([1]) * 16)
    gone = sources.of(bytes([2]) * 16, queue, "", NONE)
    disk.write(sources.removal(gone))
    sources.due |= {first, gone}
    sources.forget(gone)
    assert sources.due == {first}, "no acknowledgment is sent for a sequence that is forgotten"
    assert sources.has_room(late, "stranger") and not sources.knows(bytes([2]) * 16)
    assert first.queue == 5 and sources.count == 4


def test_100_000_refused_sources_stay_within_their_table() -> None:
    queue = transactional(5)
    sources = Sources({}, {5: queue})
    for number in range(100_000):
        sources.keep_tentative(sources.of(number.to_bytes(16, "little"), queue, "", NONE))
    assert len(sources._tentative) == memory.MOST_TENTATIVE and sources.count == 0
