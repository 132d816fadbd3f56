"""Duplicate detection for non-transactional messages: MessageIDHistoryTable ([MS-MQQB] 3.1.5.8.1, 3.1.6.7).

Bounded in entries and age. Times are milliseconds of a monotonic clock.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Final

LIFETIME: Final = 30 * 60_000  # note 47
LEAST_ENTRIES: Final = 10_000  # minimum of the maximum number of entries, with few sessions
MOST_OF_SOURCE: Final = 16_384  # far more than the windows of one queue manager's sessions
_CHUNK: Final = 512  # messages dropped together


class _Chunk:
    """Consecutive messages of one source. `latest` is the time of the last one."""

    def __init__(self, number: int) -> None:
        self.number: Final = number
        self.messages: Final = array("Q")
        self.latest = 0.0


class _Known:
    """Messages of one source: MessageID -> number of the latest chunk that contains it."""

    def __init__(self) -> None:
        self.chunk_of: Final[dict[int, int]] = {}
        self.chunks: Final[deque[_Chunk]] = deque([_Chunk(0)])

    def add(self, message_id: int, now: float, size: int) -> None:
        """Add a message; a chunk has at most `size` messages."""
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
            if chunk_of.get(message_id) == chunk.number:  # otherwise a later chunk has it, too
                del chunk_of[message_id]
        if not self.chunks:
            self.chunks.append(_Chunk(chunk.number + 1))


class DuplicateHistory:
    """Received messages by source queue manager and MessageID (deviation D-99).

    It must be large enough for all messages in flight, because after a connection loss all unacknowledged messages are
    sent again. Each source has at most `MOST_OF_SOURCE` entries. When the table is full, the source that has been idle
    longest loses its oldest entries.
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
        self._sources: Final[OrderedDict[bytes, _Known]] = OrderedDict()  # longest idle first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def seen(self, source: bytes, message_id: int, now: float) -> bool:
        """Whether the message was received before. If so, update the time of its entry."""
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
        """Add a received message. For a recoverable one, the entry must be stored in the batch of the message."""
        self.tick(now)
        known = self._sources.get(source)
        if known is None:
            known = self._sources[source] = _Known()
        before = len(known.chunk_of)
        known.add(message_id, now, self._chunk)
        self._count += len(known.chunk_of) - before
        self._sources.move_to_end(source)
        self._bound(source, known)

    def add_all(self, source: bytes, message_ids: Sequence[int], now: float) -> bool:
        """`add` many messages of one source. Returns False, with nothing added, if one of them was received before."""
        self.tick(now)
        known = self._sources.get(source)
        if known is None:
            known = _Known()
        else:
            self._tidy(known, now)
        chunk_of = known.chunk_of
        if len(set(message_ids)) < len(message_ids) or any(number in chunk_of for number in message_ids):
            return False
        self._sources[source] = known
        for number in message_ids:
            known.add(number, now, self._chunk)
        self._count += len(message_ids)
        self._sources.move_to_end(source)
        self._bound(source, known)
        return True

    def forget(self, source: bytes, message_id: int) -> None:
        """Remove a message that could not be stored and will be sent again."""
        known = self._sources.get(source)
        if known is not None and known.chunk_of.pop(message_id, None) is not None:
            self._count -= 1

    def tick(self, now: float) -> None:
        """Drop sources that have sent nothing within the lifetime. Expired entries of other sources are dropped when
        they are accessed."""
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
        """Enforce the limits per source and in total."""
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
