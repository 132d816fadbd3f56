"""Waiting reads keep their order while reads join and leave."""

from __future__ import annotations

import itertools
from typing import Any

import seeds
from openmsmq.compiled import is_native
from openmsmq.model.constants import Access, Share
from openmsmq.model.names import parse_format_name
from openmsmq.queueing.descriptors import OpenQueueDescriptor, WaitingMessageReadOperation
from openmsmq.queueing.waiting_line import WaitingLine


class Reads:
    """Compares a waiting line with a list."""

    def __init__(self) -> None:
        self.line, self.expected = WaitingLine(), list[WaitingMessageReadOperation]()
        name = parse_format_name("DIRECT=OS:.\\private$\\a")
        self.descriptor = OpenQueueDescriptor(1, name, Access.RECEIVE, Share.DENY_NONE, None)
        self._numbers = itertools.count(1)

    def join(self) -> None:
        read = WaitingMessageReadOperation(
            next(self._numbers), self.descriptor, True, lambda message: 0, lambda status, message: None
        )
        self.line.join(read)
        self.descriptor.waiting[read.number] = read
        self.expected.append(read)

    def leave(self, index: int) -> None:
        read = self.expected.pop(index)
        del self.descriptor.waiting[read.number]
        self.line.leave()


def test_a_waiting_line_keeps_the_order_of_joining() -> None:
    chance = seeds.chance("waiting line")
    reads = Reads()
    line = reads.line
    for _ in range(20_000):
        dice = chance.random()
        if dice < 0.45 or not reads.expected:
            reads.join()
        elif dice < 0.7:
            reads.leave(0)
        elif dice < 0.9:
            reads.leave(chance.randrange(len(reads.expected)))
        else:
            number = chance.choice((0, chance.randrange(1, line.last_number + 2)))
            behind = (read for read in reads.expected if read.number > number)
            assert line.first_after(number) is next(behind, None)
        assert len(line) == len(reads.expected)
    assert line.all() == reads.expected
    assert line.last_number >= max((read.number for read in reads.expected), default=0)


def test_finished_reads_are_removed_eventually() -> None:
    reads = Reads()
    reads.join()  # waits forever
    for _ in range(1000):
        reads.join()
        reads.leave(1)
    assert len(reads.line._reads) < 50
    reads.leave(0)
    assert reads.line.first_after(0) is None
    assert not reads.line


def test_finding_the_first_of_many_reads_checks_few() -> None:
    reads = Reads()
    for _ in range(10_000):
        reads.join()
    looks = 0

    class CountingDict(dict[int, Any]):
        def __contains__(self, number: object) -> bool:
            nonlocal looks
            looks += 1
            return super().__contains__(number)

    reads.descriptor.waiting = CountingDict(reads.descriptor.waiting)
    for read in list(reads.expected):
        assert reads.line.first_after(0) is read
        reads.leave(0)
    assert 10_000 <= looks < 60_000 or is_native()  # which scans without this class
