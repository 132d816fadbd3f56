"""When messages expire: a heap with lazy deletion, rebuilt when most of it is stale."""

from __future__ import annotations

import heapq
from collections.abc import Callable

_STALE_ALLOWED = 4096  # entries of messages that are gone, before a rebuild is worth its time


class ExpiryTimers:
    """Entries are (deadline in milliseconds, lookup identifier, queue number)."""

    def __init__(self, is_present: Callable[[int, int], bool]) -> None:
        """`is_present(queue number, lookup identifier)` tells whether a position still exists."""
        self._heap: list[tuple[int, int, int]] = []
        self._is_present = is_present
        self._limit = _STALE_ALLOWED

    def add(self, deadline: int, lookup_identifier: int, queue_number: int) -> None:
        heapq.heappush(self._heap, (deadline, lookup_identifier, queue_number))
        if len(self._heap) > self._limit:
            self._heap = [entry for entry in self._heap if self._is_present(entry[2], entry[1])]
            heapq.heapify(self._heap)
            self._limit = 2 * len(self._heap) + _STALE_ALLOWED

    def deadlines(self, queue_number: int) -> dict[int, int]:
        """Lookup identifier -> deadline of one queue's messages."""
        return {key: deadline for deadline, key, number in self._heap if number == queue_number}

    def next(self) -> int | None:
        """The earliest deadline, of a message that may be gone already."""
        return self._heap[0][0] if self._heap else None

    def expired(self, now: int) -> list[tuple[int, int]]:
        """Take what is due: (queue number, lookup identifier), in order of deadline."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            _, lookup_identifier, number = heapq.heappop(self._heap)
            if self._is_present(number, lookup_identifier):
                due.append((number, lookup_identifier))
        return due
