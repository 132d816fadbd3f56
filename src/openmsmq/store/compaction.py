"""Moving live records out of the oldest segment, so that stragglers do not pin the log.

Only the oldest segment is emptied, because segments leave the log at its old end only (replay.py says why). While at
most half of the log is needed, that writes at most one byte again for each byte of garbage that it frees.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from openmsmq.store.bookkeeping import SegmentStats
from openmsmq.store.frames import (
    FRAMES_START,
    HEADER,
    HEADER_SIZE,
    INSERT,
    LASTING,
    PENDING,
    PREPARE,
    PUT,
    RELOCATED,
    SEAL,
    Codec,
    Fields,
    frame_size,
    unpack_definition,
)
from openmsmq.store.segments import Segment
from openmsmq.store.specs import FrameSpec
from openmsmq.store.writer import LogWriter

logger = logging.getLogger(__name__)

#: Whether the message is still needed (queue, key, deadline, location); locked ones are.
IsLive: TypeAlias = Callable[[int, int, int, int], bool]
#: A message changed its location: queue, key, deadline, old location, new location.
Relocated: TypeAlias = Callable[[int, int, int, int, int], object]
#: Bytes of a segment from an offset, fewer at its end.
ReadSegment: TypeAlias = Callable[[Segment, int, int], bytes]

#: Segments, besides the prepared ones, that may be there without any being needed: the one that is being written and
#: the one before it, where messages that come and go in their normal time still stand.
TOLERATED: Final = 2


class Compactor:
    """Empties the oldest segment in small steps."""

    def __init__(self, codec: Codec, books: SegmentStats, writer: LogWriter, read: ReadSegment) -> None:
        self._codec = codec
        self._books = books
        self._writer = writer
        self._read = read
        self._segment: Segment | None = None
        self._offset = 0
        self._stuck: Segment | None = None

    def wanted(self, tolerated: int = TOLERATED) -> bool:
        """Garbage dominates: more segments than twice what the needed records would fill, and some."""
        books = self._books
        count = len(books.segments)
        if count <= tolerated or books.oldest() is self._stuck:
            return False
        return count > 2 * books.live_share + tolerated

    def step(self, is_live: IsLive, relocated: Relocated, budget: int, tolerated: int) -> bool:
        """Go through at most `budget` bytes of the oldest segment, or one frame; gives whether more is to be done."""
        segment = self._books.oldest()
        if self._segment is not segment:
            if not self.wanted(tolerated):
                return False
            self._segment, self._offset = segment, FRAMES_START
        if not segment.live:
            return self.wanted(tolerated)  # empty; it goes with the next sync
        base = segment.number * self._codec.segment_size
        data = self._window(segment, budget)
        last: Fields | None = None
        for fields in self._codec.walk(data, 0, base + self._offset):
            last = fields
            if fields[8] in LASTING:
                start = fields[2] - base - self._offset + HEADER_SIZE
                self._look_at(fields, data[start : start + fields[1]], is_live, relocated)
                if not segment.live:
                    break
        if last is None:
            logger.error("%s: damaged at offset %d, cannot be emptied; run `openmsmq fsck`", segment.path, self._offset)
            self._stuck, self._segment = segment, None
            return False
        self._offset = last[2] - base + frame_size(last[1])
        if segment.live and last[8] == SEAL:
            logger.warning("%s: %d records were counted as live but are not", segment.path, segment.live)
            segment.live, segment.last_death = 0, self._writer.position
        return segment.live > 0 or self.wanted(tolerated)

    def _window(self, segment: Segment, budget: int) -> bytes:
        """Bytes from the current offset on, with at least one whole frame."""
        data = self._read(segment, self._offset, budget)
        if len(data) >= HEADER_SIZE:
            size = frame_size(HEADER.unpack_from(data)[1])
            if len(data) < size <= self._codec.segment_size - self._offset:
                data = self._read(segment, self._offset, size)
        return data

    def _look_at(self, fields: Fields, payload: bytes, is_live: IsLive, relocated: Relocated) -> None:
        """Write one frame again if it is needed; raises StoreFull."""
        _, _, location, key, deadline, queue, transaction, _, kind, _, _ = fields
        books, writer = self._books, self._writer
        if kind == PUT:
            if books.definition_locations.get(unpack_definition(payload)[0]) == location:
                writer.chain([FrameSpec(PUT, payload)], urgent=True)
            return
        if kind == PREPARE:
            if books.prepared.get(transaction, (b"", 0))[1] == location:
                writer.chain([FrameSpec(PREPARE, payload)], transaction, urgent=True)
            return
        pending = books.pending.get(transaction, {}).get(queue) if kind == PENDING else None
        row = None if pending is None else pending.find(key)
        if pending is not None and row is not None and pending.locations[row] == location:
            spec = FrameSpec(PENDING, payload, key, deadline, queue, RELOCATED, location)
            (new,) = writer.chain([spec], transaction, urgent=True)
            pending.locations[row] = new
        elif books.current(location) == location and is_live(queue, key, deadline, location):
            (new,) = writer.chain([FrameSpec(INSERT, payload, key, deadline, queue, RELOCATED, location)], urgent=True)
        else:
            return
        relocated(queue, key, deadline, location, new)
