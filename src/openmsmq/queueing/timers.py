"""Deadlines: a heap with lazy deletion, rebuilt when most of it is stale."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_STALE_ALLOWED = 4096  # stale entries tolerated before a rebuild


class Timers(Generic[T]):
    """Entries are (deadline in milliseconds, number, item). Entries with equal deadlines must have different
    numbers."""

    def __init__(self, is_pending: Callable[[int, T], bool], head_changed: Callable[[], None]) -> None:
        """`is_pending(number, item)` returns whether the deadline still matters; `head_changed` is called when a
        deadline earlier than all others was added."""
        self._heap: list[tuple[int, int, T]] = []
        self._is_pending = is_pending
        self._head_changed = head_changed
        self._limit = _STALE_ALLOWED

    def add(self, deadline: int, number: int, item: T) -> None:
        is_first = not self._heap or deadline < self._heap[0][0]
        heapq.heappush(self._heap, (deadline, number, item))
        if len(self._heap) > self._limit:
            self._heap = [entry for entry in self._heap if self._is_pending(entry[1], entry[2])]
            heapq.heapify(self._heap)
            self._limit = 2 * len(self._heap) + _STALE_ALLOWED
        if is_first:
            self._head_changed()

    def next(self) -> int | None:
        """Return the earliest pending deadline."""
        while self._heap and not self._is_pending(*self._heap[0][1:]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop(self, now: int) -> tuple[int, T] | None:
        """Remove and return the earliest entry that is pending and due, as (number, item). One at a time, so that a
        failure does not lose the others."""
        while self._heap and self._heap[0][0] <= now:
            _, number, item = heapq.heappop(self._heap)
            if self._is_pending(number, item):
                return number, item
        return None
