"""Duplicates of messages that are not transactional: MessageIDHistoryTable ([MS-MQQB] 3.1.5.8.1, 3.1.6.7).

Bounded in entries and age. Times are milliseconds of a clock that never goes back.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from typing import Final

LIFETIME: Final = 30 * 60_000  # note 47
LEAST_ENTRIES: Final = 10_000  # in all, however few sessions there may be
MOST_OF_SOURCE: Final = 16_384  # far more than the windows of the sessions that one queue manager opens
_CHUNK: Final = 512  # messages that are forgotten together


class _Chunk:
    """Messages of one source that came one after the other. `latest`: when the last one came."""

    def __init__(self, number: int) -> None:
        self.number: Final = number
        self.messages: Final = array("Q")
        self.latest = 0.0


class _Known:
    """Messages of one source: by MessageID the number of the chunk that has it last."""

    def __init__(self) -> None:
        self.chunk_of: Final[dict[int, int]] = {}
        self.chunks: Final[deque[_Chunk]] = deque([_Chunk(0)])

    def add(self, message_id: int, now: float, size: int) -> None:
        """A message has come; a chunk takes `size` of them."""
        chunk = self.chunks[-1]
        if self.chunk_of.get(message_id) != chunk.number:
            if len(chunk.messages) >= size:
                chunk = _Chunk(chunk.number + 1)
                self.chunks.append(chunk)
            chunk.messages.append(message_id)
            self.chunk_of[message_id] = chunk.number
        chunk.latest = now

    def drop_oldest(self) -> None:
        chunk, chunk_of = self.chunks.popleft(), self.chunk_of
        for message_id in chunk.messages:
            if chunk_of.get(message_id) == chunk.number:  # else it came again later
                del chunk_of[message_id]
        if not self.chunks:
            self.chunks.append(_Chunk(chunk.number + 1))


class DuplicateHistory:
    """Which messages have come, by source queue manager and MessageID (deviation D-99).

    All that may be under way has to fit, because after a cut everything is sent again that was not acknowledged.
    No source takes more than `MOST_OF_SOURCE`; when the table is full, the source that was quiet for longest loses its
    oldest entries.
    """

    def __init__(
        self, maximum: int = LEAST_ENTRIES, lifetime: float = LIFETIME, of_source: int = MOST_OF_SOURCE
    ) -> None:  # fmt: skip
        if maximum < 1:
            raise ValueError(f"a table of {maximum} entries")
        self.maximum: Final = maximum
        self._lifetime: Final = lifetime
        self._chunk: Final = max(1, min(_CHUNK, maximum // 4, of_source // 4))
        self._most_chunks: Final = max(2, of_source // self._chunk)
        self._sources: Final[OrderedDict[bytes, _Known]] = OrderedDict()  # the one that was quiet for longest first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def seen(self, source: bytes, message_id: int, now: float) -> bool:
        """Whether the message has come before. If so, its entry is as new as this copy."""
        self.tick(now)
        known = self._sources.get(source)
        if known is None:
            return False
        self._tidy(known, now)
        if message_id not in known.chunk_of:
            return False
        known.add(message_id, now, self._chunk)
        self._sources.move_to_end(source)
        self._bound(source, known)
        return True

    def add(self, source: bytes, message_id: int, now: float) -> None:
        """A message has come. For a recoverable one the entry belongs into the batch of the message."""
        self.tick(now)
        known = self._sources.get(source)
        if known is None:
            known = self._sources[source] = _Known()
        before = len(known.chunk_of)
        known.add(message_id, now, self._chunk)
        self._count += len(known.chunk_of) - before
        self._sources.move_to_end(source)
        self._bound(source, known)

    def forget(self, source: bytes, message_id: int) -> None:
        """A message could not be stored after all, and will be sent again."""
        known = self._sources.get(source)
        if known is not None and known.chunk_of.pop(message_id, None) is not None:
            self._count -= 1

    def tick(self, now: float) -> None:
        """Drop sources of which nothing has come within the lifetime; older entries of the others go when these are
        looked at."""
        while self._sources:
            source, known = next(iter(self._sources.items()))
            if known.chunks[-1].latest > now - self._lifetime:
                break
            self._count -= len(known.chunk_of)
            del self._sources[source]

    def _tidy(self, known: _Known, now: float) -> None:
        before = len(known.chunk_of)
        while known.chunks[0].messages and known.chunks[0].latest <= now - self._lifetime:
            known.drop_oldest()
        self._count -= before - len(known.chunk_of)

    def _bound(self, source: bytes, known: _Known) -> None:
        """Drop what is beyond the share of a source, and of all."""
        while len(known.chunks) > self._most_chunks:
            self._drop_from(source)
        while self._count > self.maximum:
            self._drop_from(next(iter(self._sources)))

    def _drop_from(self, source: bytes) -> None:
        """Drop the oldest entries of a source."""
        known = self._sources[source]
        before = len(known.chunk_of)
        known.drop_oldest()
        self._count -= before - len(known.chunk_of)
        if not known.chunk_of:
            del self._sources[source]
