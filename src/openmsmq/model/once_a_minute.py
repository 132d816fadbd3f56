"""Log records that a busy or hostile peer could cause without end: each text once a minute, and a limited number."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

PERIOD: Final = 60.0  # seconds between two log records of the same kind
MOST: Final = 100  # kinds, and therefore log records, a minute


class OnceAMinute:
    """Tells which events to log. A kind is a text, for example that of the log record."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._next: Final[dict[str, float]] = {}

    def is_due(self, kind: str) -> bool:
        """Return whether to log an event now, which the caller then does."""
        now = self._clock()
        if now < self._next.get(kind, now):
            return False
        if kind not in self._next and len(self._next) >= MOST:
            for old in [known for known, then in self._next.items() if then <= now]:
                del self._next[old]
            if len(self._next) >= MOST:
                return False
        self._next[kind] = now + PERIOD
        return True
