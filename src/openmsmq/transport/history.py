"""Duplicates of messages that are not transactional: MessageIDHistoryTable ([MS-MQQB] 3.1.5.8.1, 3.1.6.7).

Bounded in entries and age. Times are milliseconds of a clock that never goes back.
"""

from __future__ import annotations

from collections import OrderedDict

MAXIMUM_ENTRIES = 10_000
LIFETIME = 30 * 60_000  # note 47


class History:
    """Which messages have come, by source queue manager and MessageID (deviation D-99).

    When the table is full, a source with more than its share loses its own oldest entry, so that one source cannot
    displace those of all others.
    """

    def __init__(self, maximum: int = MAXIMUM_ENTRIES, lifetime: float = LIFETIME) -> None:
        if maximum < 1:
            raise ValueError(f"a table of {maximum} entries")
        self._maximum = maximum
        self._lifetime = lifetime
        self._times: OrderedDict[tuple[bytes, int], float] = OrderedDict()  # the oldest first
        self._sources: dict[bytes, OrderedDict[int, None]] = {}  # of each source, the oldest first

    def __len__(self) -> int:
        return len(self._times)

    @property
    def next_deadline(self) -> float | None:
        """When the oldest entry is to be dropped by `tick`."""
        oldest = next(iter(self._times.values()), None)
        return None if oldest is None else oldest + self._lifetime

    def seen(self, source: bytes, message_id: int, now: float) -> bool:
        """Whether the message has come before. If so, its entry is as new as this copy."""
        self.tick(now)
        known = (source, message_id) in self._times
        if known:
            self.add(source, message_id, now)
        return known

    def add(self, source: bytes, message_id: int, now: float) -> None:
        """A message has come. For a recoverable one the entry belongs into the batch of the message."""
        key = (source, message_id)
        if key in self._times:
            self._remove(key)
        elif len(self._times) >= self._maximum:
            self._make_room(source)
        self._times[key] = now
        self._sources.setdefault(source, OrderedDict())[message_id] = None

    def forget(self, source: bytes, message_id: int) -> None:
        """A message could not be stored after all, and comes again."""
        if (source, message_id) in self._times:
            self._remove((source, message_id))

    def tick(self, now: float) -> None:
        """Drop what is older than the lifetime."""
        while (deadline := self.next_deadline) is not None and deadline <= now:
            self._remove(next(iter(self._times)))

    def _make_room(self, source: bytes) -> None:
        own = self._sources.get(source, OrderedDict())
        if len(own) > self._maximum // len(self._sources):
            self._remove((source, next(iter(own))))
        else:
            self._remove(next(iter(self._times)))

    def _remove(self, key: tuple[bytes, int]) -> None:
        source, message_id = key
        del self._times[key]
        entries = self._sources[source]
        del entries[message_id]
        if not entries:
            del self._sources[source]
