"""Which messages have come: what of it is stored, and what is known after a restart."""

from __future__ import annotations

import pytest

from link.test_sequences import Disk
from openmsmq.link import durable, memory
from openmsmq.link.memory import Duplicates, Source, Sources
from openmsmq.queueing.properties import QueueProperties
from openmsmq.queueing.queue import Queue, QueueKind
from openmsmq.transport.sequence import Incoming, Position, SequenceId

SOURCE = b"\x11" * 16


def identifier(number: int) -> bytes:
    return SOURCE + number.to_bytes(4, "little")


def test_recoverable_messages_are_known_after_a_restart_and_express_ones_are_not() -> None:
    disk = Disk()
    before = Duplicates(disk.definitions, 0)
    disk.write(before.add(identifier(1), True, 0))
    assert before.add(identifier(2), False, 0) == []
    assert before.seen(identifier(1), 1) and before.seen(identifier(2), 1) and not before.seen(identifier(3), 1)
    after = Duplicates(disk.definitions, 0)
    assert after.seen(identifier(1), 1) and not after.seen(identifier(2), 1)


@pytest.mark.parametrize("first", range(1, 9))
def test_the_latest_are_known_after_a_restart_however_often_there_was_one(
    monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """The ring has four places; a restart is after `first` messages, and after two more."""
    monkeypatch.setattr(memory, "MAXIMUM_ENTRIES", 4)
    disk = Disk()
    told = Duplicates(disk.definitions, 0)
    for number in range(first):
        disk.write(told.add(identifier(number), True, 0))
    told = Duplicates(disk.definitions, 0)
    assert [n for n in range(first) if told.seen(identifier(n), 1)] == list(range(max(first - 4, 0), first))
    for number in range(first, first + 2):
        disk.write(told.add(identifier(number), True, 0))
    assert len(disk.names) == min(first + 2, 4)
    assert all(int(name.rpartition(b"/")[2]) in range(4) for name in disk.names)
    told = Duplicates(disk.definitions, 0)
    known = {n for n in range(first + 2) if told.seen(identifier(n), 1)}
    assert {first, first + 1} <= known
    if first < 4:  # the ring had not begun anew: the oldest make room
        assert known == set(range(max(first - 2, 0), first + 2))


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
