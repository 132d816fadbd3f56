"""Compaction: move live records out of the oldest segment, so that a few old records do not keep the log from
shrinking.

Only the oldest segment is emptied, because segments are removed only at the old end of the log (see replay.py). While
at most half of the log is needed, this rewrites at most one byte per byte of garbage freed.
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

#: Returns whether a message (queue, key, deadline, location) is still needed, as locked messages are.
IsLive: TypeAlias = Callable[[int, int, int, int], bool]
#: Called when a message changes its location: queue, key, deadline, old location, new location.
Relocated: TypeAlias = Callable[[int, int, int, int, int], object]
#: Returns bytes of a segment from an offset, fewer at its end.
ReadSegment: TypeAlias = Callable[[Segment, int, int], bytes]

#: Segments in addition to the prepared ones that are tolerated although not needed: the one being written and the one
#: before it, which usually still contains short-lived messages.
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
        """Whether garbage dominates: more segments than twice what the needed records would fill, plus `tolerated`."""
        books = self._books
        count = len(books.segments)
        if count <= tolerated or books.oldest() is self._stuck:
            return False
        return count > 2 * books.live_share + tolerated

    def step(self, is_live: IsLive, relocated: Relocated, budget: int, tolerated: int) -> bool:
        """Process at most `budget` bytes of the oldest segment, but at least one frame; return whether more is to be
        done."""
        segment = self._books.oldest()
        if self._segment is not segment:
            if not self.wanted(tolerated):
                return False
            self._segment, self._offset = segment, FRAMES_START
        if not segment.live:
            return self.wanted(tolerated)  # empty; the next sync removes it
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
        """Return bytes from the current offset on, with at least one whole frame."""
        data = self._read(segment, self._offset, budget)
        if len(data) >= HEADER_SIZE:
            size = frame_size(HEADER.unpack_from(data)[1])
            if len(data) < size <= self._codec.segment_size - self._offset:
                data = self._read(segment, self._offset, size)
        return data

    def _look_at(self, fields: Fields, payload: bytes, is_live: IsLive, relocated: Relocated) -> None:
        """Rewrite a frame if it is needed; raises StoreFull."""
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
