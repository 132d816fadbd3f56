"""Statistics about written data: live records per segment, definitions, pending messages."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from openmsmq.store.columns import QueueColumns
from openmsmq.store.frames import HEADER_SIZE
from openmsmq.store.operations import Insert
from openmsmq.store.replay import LogState
from openmsmq.store.row_frames import MessageRows
from openmsmq.store.segments import Segment


class SegmentStats:
    """Counts by segment; performs no I/O."""

    def __init__(self, segment_size: int, segments: dict[int, Segment], state: LogState) -> None:
        self._segment_size = segment_size
        #: Segments ordered by number.
        self.segments = segments
        self.definitions = dict(state.definitions)
        self.definition_locations = dict(state.definition_locations)
        #: Messages that await the commit of their transaction: transaction -> queue -> columns, sorted by key.
        self.pending: dict[int, dict[int, QueueColumns]] = {
            transaction: {queue: columns.copy() for queue, columns in queues.items()}
            for transaction, queues in state.pending.items()
        }
        #: Transaction -> the caller's note and the location of its frame.
        self.prepared = dict(state.prepared)
        self._forwarded: dict[int, int] = {}
        self._forwarded_from: dict[int, list[int]] = {}

    def oldest(self) -> Segment:
        """Return the oldest segment of the log."""
        return next(iter(self.segments.values()))

    @property
    def live_share(self) -> float:
        """Estimated number of segments that the needed records would fill."""
        needed = sum(
            segment.live * (HEADER_SIZE + segment.volume / segment.ever)
            for segment in self.segments.values()
            if segment.ever
        )
        return needed / self._segment_size

    def added(self, location: int, size: int) -> None:
        """Count a written message or definition with a payload of `size` bytes."""
        segment = self.segments[location // self._segment_size]
        segment.live += 1
        segment.ever += 1
        segment.volume += size

    def discard(self, location: int, position: int) -> None:
        """Note that the frame at `location` is no longer needed once the log is durable up to `position`."""
        segment = self.segments.get(location // self._segment_size)
        if segment is not None:
            segment.live -= 1
            segment.last_death = position

    def discard_all(self, locations: Sequence[int], position: int) -> None:
        """`discard` for many frames."""
        first = min(locations) // self._segment_size
        if first == max(locations) // self._segment_size:  # the usual case
            segment = self.segments.get(first)
            if segment is not None:
                segment.live -= len(locations)
                segment.last_death = position
            return
        for location in locations:
            self.discard(location, position)

    def define(self, name: bytes, value: bytes, location: int, position: int) -> None:
        location_before = self.definition_locations.get(name)
        if location_before is not None:
            self.discard(location_before, position)
        self.definitions[name] = value
        self.definition_locations[name] = location

    def undefine(self, name: bytes, position: int) -> None:
        if name in self.definition_locations:
            self.discard(self.definition_locations.pop(name), position)
            del self.definitions[name]

    # -------------------------------------------------------------------------------------------------- relocation

    def current(self, location: int) -> int:
        """Return the current location of a message, for an operation that was created before the message was
        relocated."""
        forwarded = self._forwarded
        while location in forwarded:
            location = forwarded[location]
        return location

    def all_current(self, locations: Sequence[int]) -> Sequence[int]:
        """Return the `current` location of each message."""
        return [self.current(location) for location in locations] if self._forwarded else locations

    def forward(self, old: int, new: int) -> None:
        """Record the relocation of a message."""
        self._forwarded[old] = new
        self._forwarded_from.setdefault(old // self._segment_size, []).append(old)

    def drop_segment(self, segment: Segment) -> None:
        """Forget a segment that is recycled."""
        del self.segments[segment.number]
        for old in self._forwarded_from.pop(segment.number, ()):
            self._forwarded.pop(old, None)

    # ----------------------------------------------------------------------------------------------------- pending

    def add_pending(self, transaction: int, inserts: Sequence[Insert], locations: Sequence[int]) -> None:
        queues = self.pending.setdefault(transaction, {})
        for insert, location in zip(inserts, locations, strict=True):
            columns = queues.get(insert.queue)
            if columns is None:
                columns = queues[insert.queue] = QueueColumns()
            columns.insert(insert.key, location, len(insert.payload), insert.deadline)

    def add_pending_rows(self, transaction: int, rows: MessageRows, locations: array[int]) -> None:
        """Add pending messages of one queue."""
        columns = self.pending.setdefault(transaction, {}).setdefault(rows.queues[0], QueueColumns())
        added = QueueColumns(rows.keys, locations, rows.sizes, rows.deadlines)
        if not columns.keys or rows.keys[0] > columns.keys[-1]:
            columns.extend(added)
            return
        for key, location, size, deadline in added.rows():
            columns.insert(key, location, size, deadline)

    def forget_pending(self, transaction: int) -> list[int]:
        """Forget the pending messages of a transaction that has ended; return their locations."""
        queues = self.pending.pop(transaction, {})
        return [location for columns in queues.values() for location in columns.locations]

    def prepare(self, transaction: int, note: bytes, location: int, position: int) -> None:
        """Record a prepared transaction, which survives a restart."""
        self.forget_prepared(transaction, position)
        self.prepared[transaction] = (note, location)

    def forget_prepared(self, transaction: int, position: int) -> None:
        if transaction in self.prepared:
            self.discard(self.prepared.pop(transaction)[1], position)

    def describe(self, state: LogState) -> None:
        """Add the data that the store keeps itself to the state of a checkpoint."""
        state.definitions = dict(self.definitions)
        state.definition_locations = dict(self.definition_locations)
        state.prepared = dict(self.prepared)
        state.written = {segment.number: (segment.ever, segment.volume) for segment in self.segments.values()}
        for transaction, queues in self.pending.items():
            state.pending[transaction] = {queue: columns.copy() for queue, columns in queues.items()}
