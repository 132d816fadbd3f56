"""Replay of the log: compute the live state from the frames.

The log is self-contained: segments are recycled only at its old end, live records of the oldest segment are rewritten
before that, and every segment begins with the highest number reserved. So reading all existing segments in order always
gives the correct state; a checkpoint only saves time.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from openmsmq.store import frames
from openmsmq.store.columns import QueueColumns, columns_from_headers, count_by_segment
from openmsmq.store.frames import ALONE, FIRST, HEADER_SIZE, INSERT, LAST, LASTING, RELOCATED, Codec, Fields
from openmsmq.store.row_frames import run_of


@dataclass(slots=True)
class LogState:
    """Committed state at one position of the log.

    Attributes:
        position: absolute position.
        high_key: highest message number ever used or reserved.
        queues: live messages by queue.
        definitions: values by name.
        definition_locations: locations of the frames of definitions by name.
        pending: transaction -> queue -> messages that await its commit.
        prepared: transaction -> the caller's note and the location of its frame.
        written: segment number -> number of messages and definitions ever written to it, and their payload bytes.
    """

    position: int
    high_key: int = 0
    queues: dict[int, QueueColumns] = field(default_factory=dict)
    definitions: dict[bytes, bytes] = field(default_factory=dict)
    definition_locations: dict[bytes, int] = field(default_factory=dict)
    pending: dict[int, dict[int, QueueColumns]] = field(default_factory=dict)
    written: dict[int, tuple[int, int]] = field(default_factory=dict)
    prepared: dict[int, tuple[bytes, int]] = field(default_factory=dict)


class Replay:
    """Applies frames to an initial state."""

    def __init__(self, codec: Codec, start: LogState) -> None:
        self._codec = codec
        self._start = start
        self._fresh: defaultdict[int, bytearray] = defaultdict(bytearray)  # queue -> headers
        self._pending: dict[int, bytearray] = {}  # transaction -> headers
        self._dead: set[int] = set()
        self._relocated: dict[int, int] = {}
        self._chain: list[tuple[Fields, bytes]] = []
        self._written = dict(start.written)
        self.definitions = dict(start.definitions)
        self.definition_locations = dict(start.definition_locations)
        self.prepared = dict(start.prepared)
        self.high_key = start.high_key
        #: End of the last complete chain.
        self.position = start.position
        #: Start of the write to which the last frame belongs.
        self.write_start = start.position
        #: Whether the last frame is STOPPED: a clean end.
        self.stopped = False
        for transaction, queues in start.pending.items():
            self._pending[transaction] = _headers_of(queues)

    def segment(self, number: int, data: bytes | bytearray, offset: int) -> tuple[int, bool]:
        """Apply the frames of one segment from `offset`.

        Returns:
            The offset after the last valid frame, and whether that is a SEAL.
        """
        codec, base = self._codec, number * self._codec.segment_size
        fresh, chain = self._fresh, self._chain
        high_key = self.high_key
        messages = volume = 0
        at = offset
        last: Fields | None = None
        complete: Fields | None = None
        while last is None or last[8] != frames.SEAL:
            if not chain:  # most frames of a full log are in such runs
                run = run_of(codec, data, at, base)
                if run.messages:
                    for queue, headers in run.headers:
                        fresh[queue] += headers
                    at = run.end
                    last = complete = frames.HEADER.unpack_from(data, run.last)
                    messages += run.messages
                    volume += run.volume
                    high_key = max(high_key, run.highest)
            fields = codec.check(data, at, base + at)
            if fields is None:
                break
            last = fields
            high_key = max(high_key, fields[3])
            self._feed(fields, data, at)
            if fields[8] in LASTING:
                messages += 1
                volume += fields[1]
            if not chain:
                complete = fields
            at += frames.frame_size(fields[1])
        self.high_key = high_key
        if messages:
            before = self._written.get(number, (0, 0))
            self._written[number] = (before[0] + messages, before[1] + volume)
        if last is None:
            return offset, False
        self.write_start = last[2] - last[7]
        self.stopped = last[8] == frames.STOPPED
        sealed = last[8] == frames.SEAL
        if sealed and not self._chain:
            self.position = (number + 1) * self._codec.segment_size + frames.FRAMES_START
        elif complete is not None:
            self.position = complete[2] + frames.frame_size(complete[1])
        return at, sealed

    def skip(self) -> None:
        """Handle lost durable frames: apply the remaining frames of an incomplete chain."""
        self._apply_chain()

    def finish(self) -> LogState:
        """Return the state at `position`, without transactions that are neither committed nor prepared."""
        state = LogState(self.position, self.high_key, self._merge(), self.definitions, self.definition_locations)
        state.written = dict(self._written)
        state.prepared = self.prepared
        for transaction in self.prepared:
            queues = _queues_of(self._pending.get(transaction, bytearray()))
            for columns in queues.values():
                self._without_dead(columns).sort()
            state.pending[transaction] = queues
        return state

    @property
    def has_pending(self) -> bool:
        """Whether there are messages of transactions that are neither committed nor prepared."""
        return bool(self._pending.keys() - self.prepared.keys())

    # ------------------------------------------------------------------------------------------------- frames

    def _feed(self, fields: Fields, data: bytes | bytearray, offset: int) -> None:
        """Process one frame other than a lone insert."""
        kind, flags = fields[8], fields[9]
        if kind in frames.STRUCTURAL:
            if kind == frames.SKIP:
                self.skip()
            return
        if flags & FIRST and self._chain:
            self._chain.clear()
        self._chain.append((fields, bytes(data[offset : offset + HEADER_SIZE + fields[1]])))
        if flags & LAST:
            self._apply_chain()

    def _apply_chain(self) -> None:
        for fields, raw in self._chain:
            self._apply(fields, raw)
        self._chain.clear()

    def _apply(self, fields: Fields, raw: bytes) -> None:
        _, _, position, key, _, queue, transaction, _, kind, flags, _ = fields
        if kind == INSERT:
            self._fresh[queue] += raw[:HEADER_SIZE]
            if flags & RELOCATED:
                self._relocated[key] = position
        elif kind == frames.REMOVE:
            self._dead.add(key)
        elif kind == frames.REMOVE_MANY:
            self._dead.update(frames.unpack_removals(raw[HEADER_SIZE:])[0])
        elif kind == frames.PENDING:
            self._pending.setdefault(transaction, bytearray()).extend(raw[:HEADER_SIZE])
            if flags & RELOCATED:
                self._relocated[key] = position
        elif kind == frames.COMMIT:
            self.prepared.pop(transaction, None)
            for committed_queue, columns in _queue_headers(self._pending.pop(transaction, bytearray())):
                self._fresh[committed_queue] += columns
        elif kind == frames.ABORT:
            self.prepared.pop(transaction, None)
            self._pending.pop(transaction, None)
        elif kind == frames.PREPARE:
            self.prepared[transaction] = (raw[HEADER_SIZE:], position)
        elif kind == frames.STARTED:
            for unprepared in self._pending.keys() - self.prepared.keys():
                del self._pending[unprepared]
        elif kind == frames.PUT:
            name, value = frames.unpack_definition(raw[HEADER_SIZE:])
            self.definitions[name] = value
            self.definition_locations[name] = position
        elif kind == frames.DROP:
            self.definitions.pop(raw[HEADER_SIZE:], None)
            self.definition_locations.pop(raw[HEADER_SIZE:], None)

    # -------------------------------------------------------------------------------------------------- merging

    def _merge(self) -> dict[int, QueueColumns]:
        """Return the initial columns and the new messages, without removed ones and old locations of relocated ones."""
        queues = {queue: self._without_dead(columns) for queue, columns in self._start.queues.items()}
        for queue, headers in self._fresh.items():
            columns = self._without_dead(columns_from_headers(headers))
            if queue in queues:
                queues[queue].extend(columns)
            else:
                queues[queue] = columns
            queues[queue].sort()
        return {queue: columns for queue, columns in queues.items() if len(columns)}

    def _without_dead(self, columns: QueueColumns) -> QueueColumns:
        dead, relocated = self._dead, self._relocated
        if not dead and not relocated:
            return columns
        if dead.isdisjoint(columns.keys) and relocated.keys().isdisjoint(columns.keys):
            return columns
        place = relocated.get
        columns.select(
            bytearray(
                key not in dead and place(key, location) == location
                for key, location in zip(columns.keys, columns.locations, strict=True)
            )
        )
        return columns


def count_live(state: LogState, segment_size: int) -> dict[int, int]:
    """Count the needed messages and definitions in each segment."""
    total: defaultdict[int, int] = defaultdict(int)
    groups = [*state.queues.values()]
    for queues in state.pending.values():
        groups.extend(queues.values())
    for columns in groups:
        for number, count in count_by_segment(columns.locations, segment_size).items():
            total[number] += count
    single = [*state.definition_locations.values(), *(location for _, location in state.prepared.values())]
    for number, count in count_by_segment(single, segment_size).items():
        total[number] += count
    return dict(total)


def _queue_headers(headers: bytearray) -> list[tuple[int, bytearray]]:
    """Split concatenated headers by queue."""
    split: defaultdict[int, bytearray] = defaultdict(bytearray)
    for offset in range(0, len(headers), HEADER_SIZE):
        split[frames.HEADER.unpack_from(headers, offset)[5]] += headers[offset : offset + HEADER_SIZE]
    return list(split.items())


def _queues_of(headers: bytearray) -> dict[int, QueueColumns]:
    return {queue: columns_from_headers(part) for queue, part in _queue_headers(headers)}


def _headers_of(queues: dict[int, QueueColumns]) -> bytearray:
    """Return frame headers for the columns of a checkpoint; only the fields needed for columns are set."""
    headers = bytearray()
    for queue, columns in queues.items():
        for key, location, size, deadline in columns.rows():
            headers += frames.HEADER.pack(0, size, location, key, deadline, queue, 0, 0, INSERT, ALONE, 0)
    return headers
