"""The end of the log: frames in memory that are to be written."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from openmsmq.store import frames
from openmsmq.store.batch import Chunk, LogBatch
from openmsmq.store.bookkeeping import SegmentStats
from openmsmq.store.errors import RecordTooLarge, StoreError
from openmsmq.store.frames import (
    ALONE,
    FIRST,
    FRAMES_START,
    HEADER_SIZE,
    INSERT,
    LAST,
    LASTING,
    PADDING,
    PENDING,
    PUT,
    REMOVE,
    frame_size,
)
from openmsmq.store.opening import OpenedLog
from openmsmq.store.row_frames import MessageRows, frames_of
from openmsmq.store.specs import FrameSpec
from openmsmq.store.vfs import Vfs


class LogWriter:
    """Appends chains to the tail segment and takes the next one when it is full.

    Attributes:
        high_key: highest message number seen.
        tail: the segment being written.
        stopped: whether the last frame is STOPPED.
        base: absolute position of the tail segment.
        offset: offset of the next frame in it.
    """

    def __init__(self, opened: OpenedLog, vfs: Vfs, books: SegmentStats) -> None:
        self._vfs = vfs
        self._codec = opened.codec
        self._limit = opened.codec.limit
        self._supply = opened.supply
        self._books = books
        self.high_key = opened.state.high_key
        self.stopped = opened.stopped
        self.offset = opened.position % opened.codec.segment_size
        self.base = opened.position - self.offset
        self._write_start = opened.position
        # Contents of the next write: full segments, then the frames for the tail from `_chunk_offset` on.
        self._sealed: list[Chunk] = []
        self._parts: list[bytes] = []
        self._chunk_offset = self.offset
        self._buffered: dict[int, bytes] = {}
        self._writing: dict[int, bytes] = {}
        self._runs: list[tuple[int, bytes]] = []  # frames of many messages: (location of the first, bytes)
        self._writing_runs: list[tuple[int, bytes]] = []
        self._in_flight = False
        self._soft_limit = self._half = (FRAMES_START + self._limit) // 2
        if opened.tail is None:
            self._supply.ensure(1)
            self.tail = self._supply.take()
            books.segments[self.tail.number] = self.tail
        else:
            self.tail = opened.tail
        # One spare from the beginning: removals need it on a full disk, and its header contains a copy of the identity.
        self._supply.replenish(1)
        if self.offset == FRAMES_START:
            self._emit(FrameSpec(frames.OPENING, key=self.high_key), ALONE, 0)

    @property
    def position(self) -> int:
        """Absolute position of the next frame."""
        return self.base + self.offset

    def insert(self, queue: int, key: int, deadline: int, payload: bytes) -> int:
        """Append a message if it fits into the tail; return its location, or 0 if it does not fit."""
        length = len(payload)
        end = (self.offset + HEADER_SIZE + length + 7) & ~7
        if (end > self._soft_limit and not self._fits(end)) or not self._supply:
            return 0
        location = self.base + self.offset
        header = self._codec.header(
            INSERT, ALONE, location, location - self._write_start, payload, key, deadline, queue
        )
        if length & 7:
            self._parts += (header, payload, PADDING[length & 7])
        else:
            self._parts += (header, payload)
        self._buffered[location] = payload
        self.offset = end
        self.stopped = False
        if key > self.high_key:
            self.high_key = key
        tail = self.tail
        tail.live += 1
        tail.ever += 1
        tail.volume += length
        return location

    def rows(self, rows: MessageRows, kind: int, transaction: int = 0, opening: Sequence[FrameSpec] = ()) -> array[int]:
        """Append messages as INSERT, or as PENDING of a transaction, which become live when it commits: each as a chain
        of its own or, after the frames `opening`, all as one chain.

        Returns:
            Their locations, array('Q').

        Raises:
            RecordTooLarge, StoreFull: nothing was applied.
        """
        flags = ending = ALONE
        places: list[int] = []
        if opening:
            flags, ending = 0, LAST
            self._make_room([*(len(spec.payload) for spec in opening), *rows.sizes], grows=True, urgent=False)
            places = [self._emit(spec, 0 if index else FIRST, transaction) for index, spec in enumerate(opening)]
        else:
            self._make_room(rows.sizes, grows=True, urgent=False)
        locations, wanted = array("Q"), len(rows)
        while len(locations) < wanted:
            first, position = len(locations), self.position
            room = self._limit - self.offset
            data, found = frames_of(
                self._codec, rows, first, kind, transaction, position, self._write_start, room, flags, ending
            )
            if not found:
                self._roll()
                continue
            self._parts.append(data)
            self._runs.append((position, data))
            self.offset += len(data)
            self._fits(self.offset)
            if first:
                locations.extend(found)
            else:
                locations = found
            tail = self.tail
            tail.live += len(found)
            tail.ever += len(found)
            tail.volume += rows.bounds[len(locations)] - rows.bounds[first]
        if opening:
            self._account(opening, places, transaction)
        self.stopped = False
        self.high_key = max(self.high_key, rows.keys[-1])
        return locations

    def remove(self, key: int, location: int) -> bool:
        """Append the removal of a message if it fits into the tail; return whether it did."""
        offset = self.offset
        if offset + HEADER_SIZE > self._soft_limit and not self._fits(offset + HEADER_SIZE):
            return False
        position = self.base + offset
        location = self._books.current(location)
        header = self._codec.header(REMOVE, ALONE, position, position - self._write_start, b"", key, location)
        self._parts.append(header)
        self.offset = offset + HEADER_SIZE
        self.stopped = False
        self._books.discard(location, position + HEADER_SIZE)
        return True

    def chain(self, specs: Sequence[FrameSpec], transaction: int = 0, *, urgent: bool = False) -> list[int]:
        """Append an atomic chain of frames.

        Args:
            specs: the frames.
            transaction: transaction of frames that name none.
            urgent: may use the last prepared segment even if it contains messages or definitions.

        Returns:
            Locations of the messages among them.

        Raises:
            RecordTooLarge, StoreFull: nothing was applied.
        """
        if not specs:
            return []
        lengths = [len(spec.payload) for spec in specs]
        self._make_room(lengths, grows=any(spec.kind in LASTING for spec in specs), urgent=urgent)
        last = len(specs) - 1
        places = []
        for index, spec in enumerate(specs):
            flags = (FIRST if index == 0 else 0) | (LAST if index == last else 0)
            places.append(self._emit(spec, spec.flags | flags, spec.transaction or transaction))
        self.stopped = specs[-1].kind == frames.STOPPED
        self._account(specs, places, transaction)
        return [place for spec, place in zip(specs, places, strict=True) if spec.kind in (INSERT, PENDING)]

    def buffered(self, location: int) -> bytes | None:
        """Return the payload at `location` if it is not on disk yet, else None."""
        payload = self._buffered.get(location)
        if payload is None:
            payload = self._writing.get(location)
        if payload is not None:
            return payload
        for position, data in (*self._runs, *self._writing_runs):
            at = location - position
            if 0 <= at < len(data):
                length = frames.HEADER.unpack_from(data, at)[1]
                return data[at + HEADER_SIZE : at + HEADER_SIZE + length]
        return None

    def take_batch(self) -> LogBatch | None:
        """Return the batch to write, None if there is none; raises StoreError if the last batch is not yet written."""
        if self._in_flight:
            raise StoreError("the last batch is not finished")
        if not self._parts and not self._sealed:
            return None
        self._seal_chunk()
        batch = LogBatch(self._vfs, self._sealed, self.position)
        self._sealed = []
        self._write_start = batch.end
        self._writing, self._buffered = self._buffered, {}
        self._writing_runs, self._runs = self._runs, []
        self._in_flight = True
        return batch

    def batch_is_written(self) -> None:
        """Note that the batch taken last is on disk."""
        self._in_flight = False
        self._writing = {}
        self._writing_runs = []

    # ----------------------------------------------------------------------------------------------------- details

    def _fits(self, end: int) -> bool:
        """Whether a frame that ends at `end` fits into the tail.

        Starts the preparation of the next segment when the tail is half full. Not earlier, because an old segment may
        become free until then, and recycling is cheaper than writing a new one.
        """
        if end > self._half and self._soft_limit == self._half:
            self._soft_limit = self._limit
            self._supply.replenish()
        return end <= self._limit

    def _make_room(self, lengths: Sequence[int], *, grows: bool, urgent: bool) -> None:
        """Ensure that segments for frames with these payload lengths are prepared, before anything is changed. `grows`:
        there are messages or definitions among them. Raises RecordTooLarge, StoreFull."""
        offset, needed = self.offset, 0
        for length in lengths:
            if length > self._codec.largest_payload:
                raise RecordTooLarge(f"payload of {length} bytes, at most {self._codec.largest_payload}")
            size = frame_size(length)
            if offset + size > self._limit:
                needed += 1
                offset = FRAMES_START + HEADER_SIZE
            offset += size
        # New messages must leave one segment unused, so that removals and compaction work on a full disk. This applies
        # even if they fit into the tail, which may already be that last segment.
        reserve = 1 if grows and not urgent else 0
        if needed or reserve:
            self._supply.ensure(needed + reserve)

    def _emit(self, spec: FrameSpec, flags: int, transaction: int) -> int:
        """Append a frame; return its location."""
        payload = spec.payload
        size = frame_size(len(payload))
        if not self._fits(self.offset + size) and spec.kind not in (frames.SEAL, frames.OPENING):
            self._roll()
        location = self.base + self.offset
        header = self._codec.header(
            spec.kind, flags, location, location - self._write_start, payload,
            spec.key, spec.extra, spec.queue, transaction,
        )  # fmt: skip
        self._parts += (header, payload, PADDING[len(payload) & 7])
        self.offset += size
        if spec.kind in (INSERT, PENDING):
            self._buffered[location] = payload
        if spec.key > self.high_key:
            self.high_key = spec.key
        return location

    def _roll(self) -> None:
        """Seal the tail and continue in the next segment."""
        self._emit(FrameSpec(frames.SEAL, key=self.high_key), ALONE, 0)
        self._seal_chunk()
        self.tail = self._supply.take()
        self._books.segments[self.tail.number] = self.tail
        self.base = self.tail.number * self._codec.segment_size
        self.offset = self._chunk_offset = FRAMES_START
        self._soft_limit = self._half
        self._emit(FrameSpec(frames.OPENING, key=self.high_key), ALONE, 0)

    def _seal_chunk(self) -> None:
        """Close the list of frames for the tail; later ones go to a new list."""
        if self._parts:
            handle = self.tail.handle
            assert handle is not None, "the tail is always open"
            self._sealed.append(Chunk(self.tail, handle, self._chunk_offset, self._parts))
        self._parts = []
        self._chunk_offset = self.offset

    def _account(self, specs: Sequence[FrameSpec], places: Sequence[int], transaction: int) -> None:
        books, position = self._books, self.position
        for spec, place in zip(specs, places, strict=True):
            if spec.kind in LASTING:
                books.added(place, len(spec.payload))
            if spec.kind == REMOVE:
                books.discard(spec.extra, position)
            elif spec.kind == frames.REMOVE_MANY:
                books.discard_all(spec.removed, position)
            elif spec.kind == PUT:
                name, value = frames.unpack_definition(spec.payload)
                books.define(name, value, place, position)
            elif spec.kind == frames.DROP:
                books.undefine(spec.payload, position)
            elif spec.kind == frames.PREPARE:
                books.prepare(spec.transaction or transaction, spec.payload, place, position)
            elif spec.kind in (frames.COMMIT, frames.ABORT):
                books.forget_prepared(spec.transaction or transaction, position)
            elif spec.replaces:
                books.discard(spec.replaces, position)
                books.forward(spec.replaces, place)
