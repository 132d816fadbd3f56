"""Reads that wait: in their order, however many come and go."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import seeds
from openmsmq.queueing.waiting_line import WaitingLine


class Reads:
    """A line, and the list that it should be."""

    def __init__(self) -> None:
        self.line, self.expected = WaitingLine(), list[Any]()
        self._descriptor = SimpleNamespace(waiting={})
        self._numbers = itertools.count(1)

    def join(self) -> None:
        read: Any = SimpleNamespace(number=next(self._numbers), descriptor=self._descriptor)
        self.line.join(read)
        self._descriptor.waiting[read.number] = read
        self.expected.append(read)

    def leave(self, index: int) -> None:
        read = self.expected.pop(index)
        del self._descriptor.waiting[read.number]
        self.line.leave()


def test_a_line_is_a_list_in_the_order_of_joining() -> None:
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


def test_those_that_have_left_do_not_stay() -> None:
    reads = Reads()
    reads.join()  # waits for ever
    for _ in range(1000):
        reads.join()
        reads.leave(1)
    assert len(reads.line._reads) < 50
    reads.leave(0)
    assert reads.line.first_after(0) is None
    assert not reads.line


def test_finding_the_first_of_many_looks_at_few() -> None:
    reads = Reads()
    for _ in range(10_000):
        reads.join()
    looks = 0

    class Counting(dict[int, Any]):
        def __contains__(self, number: object) -> bool:
            nonlocal looks
            looks += 1
            return super().__contains__(number)

    counting = Counting({read.number: read for read in reads.expected})
    for read in reads.expected:
        read.descriptor = SimpleNamespace(waiting=counting)
    for read in list(reads.expected):
        assert reads.line.first_after(0) is read
        del counting[read.number]
        reads.line.leave()
    assert looks < 60_000
