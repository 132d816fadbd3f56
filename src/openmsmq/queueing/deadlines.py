"""When messages expire: a heap in which those that have gone before stay for a while.

Machine code keeps it in an array where `deadline_heap.c` is compiled, 24 bytes for each; tuples take 150.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

_FEW: Final = 4096  # entries of which those that are over are left alone
_MOST_DROPPED: Final = 1000  # of those that are over, when somebody asks for the next one
_WORDS: Final = 3  # of 8 bytes: number of the queue, lookup identifier, deadline


class HeapInPython:
    """Pure Python heap. Entries are (deadline, key, number)."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, int]] = []
        self._limit = _FEW

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, deadline: int, key: int, number: int) -> bool:
        """Returns whether it is earlier than all others."""
        is_first = not self._entries or deadline < self._entries[0][0]
        heapq.heappush(self._entries, (deadline, key, number))
        return is_first

    def first(self) -> tuple[int, int, int] | None:
        """The earliest one."""
        return self._entries[0] if self._entries else None

    def drop_first(self) -> None:
        """Forget it. Raises IndexError."""
        heapq.heappop(self._entries)

    def tidy(self, is_pending: Callable[[int, int], bool]) -> None:
        """Forget some of those that are over, if there may be many: `is_pending(key, number)` says which are not."""
        if len(self._entries) > self._limit:
            self._entries = [entry for entry in self._entries if is_pending(*entry[1:])]
            heapq.heapify(self._entries)
            self._limit = 2 * len(self._entries) + _FEW

    def capture(self, room: bytearray | None) -> bytes | memoryview:
        """A copy of all: number, key and deadline (u64), in any order; in `room` where it is large enough."""
        return array("Q", [word for entry in self._entries for word in entry[::-1]]).tobytes()

    @staticmethod
    def ordered(captured: bytes | memoryview) -> bytes:
        """Sort the result of `capture` by number and key. Thread-safe."""
        words = array("Q", bytes(captured))
        rows = sorted(zip(words[::_WORDS], words[1::_WORDS], words[2::_WORDS], strict=True))
        return array("Q", [word for row in rows for word in row]).tobytes()

    @staticmethod
    def of_queue(ordered: bytes, number: int) -> bytes | memoryview:
        """The entries of one queue."""
        numbers = array("Q", bytes(ordered))[::_WORDS]
        start, end = (bisect_left(numbers, bound) * _WORDS * 8 for bound in (number, number + 1))
        return ordered[start:end]


if TYPE_CHECKING:
    Heap = HeapInPython
else:
    try:
        from openmsmq.queueing.deadline_heap import Heap
    except ImportError:  # not built here: see openmsmq.compiled
        Heap = HeapInPython


class Deadlines:
    """Deadlines of messages in milliseconds since 1970 UTC, by lookup identifier and number of the queue."""

    def __init__(self, is_pending: Callable[[int, int], bool], head_changed: Callable[[], None]) -> None:
        """`is_pending(key, number)` says whether the message is still there; `head_changed` is called when a deadline
        earlier than all others was added."""
        self._heap = Heap()
        self._is_pending = is_pending
        self._head_changed = head_changed

    def __len__(self) -> int:
        """Number of deadlines; expired ones may be among them."""
        return len(self._heap)

    def add(self, deadline: int, key: int, number: int) -> None:
        self._heap.tidy(self._is_pending)
        if self._heap.add(deadline, key, number):
            self._head_changed()

    def first(self) -> int | None:
        """The earliest deadline, whether or not its message is still there."""
        found = self._heap.first()
        return found[0] if found is not None else None

    def next(self) -> int | None:
        """When to look for a message that is due: the earliest deadline that is still pending, or an earlier one while
        there are very many that are over."""
        for _ in range(_MOST_DROPPED):
            first = self._heap.first()
            if first is None or self._is_pending(first[1], first[2]):
                break
            self._heap.drop_first()
        first = self._heap.first()
        return first[0] if first else None

    def pop(self, now: int) -> tuple[int, int] | None:
        """Take the earliest entry that is pending and due: (key, number). One at a time, so that a failure at one loses
        no other."""
        while (first := self._heap.first()) is not None and first[0] <= now:
            self._heap.drop_first()
            if self._is_pending(first[1], first[2]):
                return first[1], first[2]
        return None

    def capture(self, room: bytearray | None = None) -> CapturedDeadlines:
        """Capture the deadlines of this moment for a checkpoint; see `HeapInPython.capture`."""
        return CapturedDeadlines(self._heap.capture(room))


class CapturedDeadlines:
    """Deadlines as they were at one moment."""

    def __init__(self, captured: bytes | memoryview) -> None:
        self._captured = captured
        self._ordered: bytes | None = None

    def of_queue(self, number: int) -> bytes | memoryview:
        """Number, lookup identifier and deadline (u64) of the messages of one queue, by lookup identifier. For one
        thread at a time."""
        if self._ordered is None:
            self._ordered = Heap.ordered(self._captured)
        return Heap.of_queue(self._ordered, number)
