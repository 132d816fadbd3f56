"""Log records that a busy or hostile peer could cause without end: one a minute for each kind."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

PERIOD: Final = 60.0  # seconds between two log records of the same kind


class OnceAMinute:
    """Counts events by kind, and tells which of them to log. Kinds are few: names of lists and operations."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts: Final[Counter[str]] = Counter()
        self._clock: Final = clock
        self._next: Final[dict[str, float]] = {}

    def count(self, kind: str) -> bool:
        """Count an event. Returns whether to log it."""
        self.counts[kind] += 1
        now = self._clock()
        if now < self._next.get(kind, now):
            return False
        self._next[kind] = now + PERIOD
        return True
