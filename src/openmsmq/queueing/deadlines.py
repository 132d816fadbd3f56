"""Deadlines of messages: a heap with lazy deletion.

Where `deadline_heap.c` is compiled, the heap is an array with 24 bytes per entry; Python tuples take 150.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

_FEW: Final = 4096  # entries; a smaller heap is never tidied
_MOST_DROPPED: Final = 1000  # stale entries dropped per call of `next`
_WORDS: Final = 3  # of 8 bytes: queue number, lookup identifier, deadline


class HeapInPython:
    """Pure Python heap. Entries are (deadline, key, number)."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, int]] = []
        self._limit = _FEW

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, deadline: int, key: int, number: int) -> bool:
        """Add an entry. Returns whether it is earlier than all others."""
        is_first = not self._entries or deadline < self._entries[0][0]
        heapq.heappush(self._entries, (deadline, key, number))
        return is_first

    def first(self) -> tuple[int, int, int] | None:
        """Return the earliest entry."""
        return self._entries[0] if self._entries else None

    def drop_first(self) -> None:
        """Remove the earliest entry. Raises IndexError if there is none."""
        heapq.heappop(self._entries)

    def tidy(self, is_pending: Callable[[int, int], bool]) -> None:
        """Remove stale entries, if there may be many: those for which `is_pending(key, number)` is false."""
        if len(self._entries) > self._limit:
            self._entries = [entry for entry in self._entries if is_pending(*entry[1:])]
            heapq.heapify(self._entries)
            self._limit = 2 * len(self._entries) + _FEW

    def capture(self, room: bytearray | None) -> bytes | memoryview:
        """Return a copy of all entries: number, key and deadline (u64), in any order. It is written to `room` if that
        is large enough."""
        return array("Q", [word for entry in self._entries for word in entry[::-1]]).tobytes()

    @staticmethod
    def ordered(captured: bytes | memoryview) -> bytes:
        """Sort the result of `capture` by number and key. Thread-safe."""
        words = array("Q", bytes(captured))
        rows = sorted(zip(words[::_WORDS], words[1::_WORDS], words[2::_WORDS], strict=True))
        return array("Q", [word for row in rows for word in row]).tobytes()

    @staticmethod
    def of_queue(ordered: bytes, number: int) -> bytes | memoryview:
        """Return the entries of one queue from the result of `ordered`."""
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
        """`is_pending(key, number)` returns whether the message still exists; `head_changed` is called when a deadline
        earlier than all others was added."""
        self._heap = Heap()
        self._is_pending = is_pending
        self._head_changed = head_changed

    def __len__(self) -> int:
        """Number of entries, possibly including stale ones."""
        return len(self._heap)

    def add(self, deadline: int, key: int, number: int) -> None:
        self._heap.tidy(self._is_pending)
        if self._heap.add(deadline, key, number):
            self._head_changed()

    def first(self) -> int | None:
        """Return the earliest deadline, whether or not its message still exists."""
        found = self._heap.first()
        return found[0] if found is not None else None

    def next(self) -> int | None:
        """Return when the next message is due: the earliest pending deadline, or an earlier stale one if there are too
        many of those."""
        for _ in range(_MOST_DROPPED):
            first = self._heap.first()
            if first is None or self._is_pending(first[1], first[2]):
                break
            self._heap.drop_first()
        first = self._heap.first()
        return first[0] if first else None

    def pop(self, now: int) -> tuple[int, int] | None:
        """Remove and return the earliest entry that is pending and due, as (key, number). One at a time, so that a
        failure does not lose the others."""
        while (first := self._heap.first()) is not None and first[0] <= now:
            self._heap.drop_first()
            if self._is_pending(first[1], first[2]):
                return first[1], first[2]
        return None

    def capture(self, room: bytearray | None = None) -> CapturedDeadlines:
        """Capture the current deadlines for a checkpoint; see `HeapInPython.capture`."""
        return CapturedDeadlines(self._heap.capture(room))


class CapturedDeadlines:
    """Snapshot of deadlines."""

    def __init__(self, captured: bytes | memoryview) -> None:
        self._captured = captured
        self._ordered: bytes | None = None

    def of_queue(self, number: int) -> bytes | memoryview:
        """Return queue number, lookup identifier and deadline (u64) of the messages of one queue, ordered by lookup
        identifier. Not thread-safe."""
        if self._ordered is None:
            self._ordered = Heap.ordered(self._captured)
        return Heap.of_queue(self._ordered, number)
