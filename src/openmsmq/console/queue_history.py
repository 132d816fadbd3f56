"""How many messages queues had in the last ten minutes, and how many came and left, by queue.

The rows of queues that the daemon gives are noted when an administrator, who sees all, looks at a page with queues or
has the overview open, once in ten seconds at most. A queue has an entry only where something has changed, so one in
which nothing happens takes about 100 bytes; one that changes all the time takes 2 kB: 10,000 of these are 20 MB.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

STEP: Final = 10.0  # seconds between two looks, at least
SPAN: Final = 600.0  # seconds that are kept
_FIELDS: Final = 4  # of an entry: milliseconds since 1970, messages, came, left


class QueuePoint(NamedTuple):
    """A queue at a time in seconds since 1970; `came` and `left` are counted since the start of the daemon."""

    at: float
    messages: int
    came: int
    left: int


class QueueHistory:
    """Of all queues, by their identifiers. Threads may share it."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._known: Final[dict[str, array[int]]] = {}
        self._looks: Final[deque[float]] = deque()

    def is_due(self, now: float) -> bool:
        """Whether rows are to be noted."""
        with self._lock:
            return not self._looks or now - self._looks[-1] >= STEP

    def note(self, rows: Sequence[Mapping[str, Any]], now: float) -> None:
        """Keep what the rows of all queues say, and forget queues that have none."""
        oldest = int((now - SPAN) * 1000)
        with self._lock:
            if self._looks and now - self._looks[-1] < STEP:
                return
            self._looks.append(now)
            while self._looks[0] < now - SPAN:
                self._looks.popleft()
            for row in rows:
                entry = (int(now * 1000), row["messages"], row["came"], row["left"])
                kept = self._known.setdefault(row["id"], array("q"))
                if tuple(kept[1 - _FIELDS :]) != entry[1:]:
                    kept.extend(entry)
                while len(kept) > _FIELDS and kept[_FIELDS] <= oldest:  # the first one says nothing of the span
                    del kept[:_FIELDS]
            for name in self._known.keys() - {row["id"] for row in rows}:
                del self._known[name]

    def of(self, queue: str) -> list[QueuePoint]:
        """The oldest first, one for each look since the queue is known; a look finds what the last change left."""
        with self._lock:
            kept, looks = self._known.get(queue), list(self._looks)
            entries = [] if kept is None else [tuple(kept[n : n + _FIELDS]) for n in range(0, len(kept), _FIELDS)]
        found, index = [], -1
        for at in looks:
            while index + 1 < len(entries) and entries[index + 1][0] <= int(at * 1000):
                index += 1
            if index >= 0:
                found.append(QueuePoint(at, *entries[index][1:]))
        return found
