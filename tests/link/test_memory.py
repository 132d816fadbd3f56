"""Which messages have come: what of it is stored, and what is known after a restart."""

from __future__ import annotations

import pytest

from link.test_sequences import Disk
from openmsmq.link import durable, memory
from openmsmq.link.memory import Duplicates, Source, Sources
from openmsmq.queueing.properties import QueueProperties
from openmsmq.queueing.queue import Queue, QueueKind
from openmsmq.store import Operation
from openmsmq.transport.sequence import Incoming, Position, SequenceId

SOURCE = b"\x11" * 16


def identifier(number: int) -> bytes:
    return SOURCE + number.to_bytes(4, "little")


def come(told: Duplicates, *numbers: int) -> list[Operation]:
    """Recoverable messages come together. Returns what is stored of them."""
    for number in numbers:
        told.add(identifier(number), 0)
    return told.operations([identifier(number) for number in numbers])


def known(told: Duplicates, count: int) -> list[int]:
    return [number for number in range(count) if told.seen(identifier(number), 1)]


def test_recoverable_messages_are_known_after_a_restart_and_express_ones_are_not() -> None:
    disk = Disk()
    before = Duplicates(disk.definitions, 0)
    disk.write(come(before, 1))
    before.add(identifier(2), 0)
    assert before.operations([]) == []
    assert known(before, 4) == [1, 2]
    assert known(Duplicates(disk.definitions, 0), 4) == [1]


def test_what_was_passed_on_is_known_with_its_hops() -> None:
    disk, passed = Disk(), identifier(1) + b"\x03"
    before = Duplicates(disk.definitions, 0)
    before.add(passed, 0)
    disk.write(before.operations([passed, identifier(2)]))
    after = Duplicates(disk.definitions, 0)
    assert after.seen(passed, 1) and after.seen(identifier(2), 1)
    assert not after.seen(identifier(1), 1) and not after.seen(identifier(1) + b"\x04", 1)


def test_what_could_not_be_stored_is_no_duplicate_when_it_comes_again() -> None:
    told = Duplicates({}, 0)
    told.add(identifier(1), 0)
    told.forget(identifier(1))
    told.forget(identifier(2))
    assert known(told, 3) == []


@pytest.mark.parametrize("together", [1, 2, 3])
def test_the_latest_are_known_after_a_restart_however_often_there_was_one(
    monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    """At least four messages are kept, as few definitions as that takes."""
    monkeypatch.setattr(memory, "MAXIMUM_ENTRIES", 4)
    disk, count = Disk(), 0
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


def test_management_sees_where_a_source_stands() -> None:
    source = Source(SOURCE, 5, Incoming(Position(SequenceId(7, 9), 3), 2), accessed=77)
    info = source.info("name")
    assert info == type(info)("name", SOURCE, 7 * 2**32 + 9, 3, 77, 2)


def test_where_a_source_stands_is_known_after_a_restart() -> None:
    disk, queue, gone = Disk(), transactional(5), transactional(6)
    sources = Sources(disk.definitions, {5: queue, 6: gone})
    for one in (queue, gone):
        source = sources.of(SOURCE, one)
        source.sequence.receive(SequenceId(7, 9), 1, 0, 0)
        source.accessed = 77
        disk.write([*sources.keep(source), *source.operations()])
        assert sources.keep(source) == [] and sources.of(SOURCE, one) is source
    after = Sources(disk.definitions, {5: queue})
    known = after.of(SOURCE, queue)
    assert (known.sequence.position, known.accessed) == (Position(SequenceId(7, 9), 1), 77)
    assert not known.sequence.receive(SequenceId(7, 9), 1, 0, 0), "it has come"
    disk.write(after.orphans)
    assert disk.names == {durable.INCOMING_PREFIX + SOURCE.hex().encode() + b"/5"}


def test_of_too_many_sources_the_one_that_was_quiet_for_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MAXIMUM_INCOMING", 3)
    disk, queue = Disk(), transactional(5)
    sources = Sources(disk.definitions, {5: queue})
    for number, accessed in enumerate((30, 10, 20, 40)):
        assert len(disk.names) == number if number < 3 else len(disk.names) == 3
        source = sources.of(bytes([number]) * 16, queue)
        source.accessed = accessed
        disk.write([*source.operations(), *sources.keep(source)])
    left = {int(name.rpartition(b"/")[0][-2:], 16) for name in disk.names}
    assert left == {0, 2, 3}
