"""The records of a slice, wherever they are: in the daemon's answer, in its segments, or moved meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from openmsmq.flight.segment_reader import GONE, Array, SegmentReader
from openmsmq.model.lookup_id import LAST_SEQUENCE

SEQUENCE_MASK = np.uint64(LAST_SEQUENCE)
_TRIES = 10  # looks for a message that compaction moves again and again; what is not found then is damaged


class SliceRecords(NamedTuple):
    """Remaining records of a slice.

    Attributes:
        keys: lookup identifiers.
        buffer: bytes.
        starts, sizes: where in it the records are.
        damaged: lookup identifiers of the messages that are there and whose records can't be read.
    """

    keys: Array
    buffer: Array
    starts: Array
    sizes: Array
    damaged: Array


class SliceReader:
    """Reads what `slicing.Slicing.do_slice` answers. For one thread."""

    def __init__(self, segments: SegmentReader, locate: Callable[[bytes], memoryview]) -> None:
        """`locate` asks where messages are now: lookup identifiers, 8 bytes each, for locations, 0 for what is gone."""
        self._segments = segments
        self._locate = locate

    def close(self) -> None:
        self._segments.close()

    def read(self, keys: Array, data: memoryview) -> SliceRecords:
        """Return the records of a slice that still exist, and those that can't be read."""
        count = len(keys)
        locations = np.frombuffer(data, np.uint64, count, 8 * count).copy()
        sizes = np.frombuffer(data, np.uint32, count, 16 * count).astype(np.int64)
        starts = np.full(count, GONE, np.int64)
        inline = np.flatnonzero(locations == 0)
        padded = (sizes[inline] + 7) & ~7
        starts[inline] = np.cumsum(padded) - padded
        buffers = [np.frombuffer(data, np.uint8, -1, 20 * count)]
        begin = len(buffers[0])
        rows = np.flatnonzero(locations)
        sequences = keys & SEQUENCE_MASK
        for _ in range(_TRIES):
            if not len(rows):
                break
            found, places = self._segments.read(sequences[rows], locations[rows], sizes[rows])
            there = places != GONE
            starts[rows[there]] = places[there] + begin
            buffers.append(found)
            begin += len(found)
            rows = rows[~there]
            if len(rows):  # compaction has moved them, or somebody has taken them
                locations[rows] = np.frombuffer(self._locate(keys[rows].tobytes()), np.uint64)
                rows = rows[locations[rows] != 0]
        filled = [one for one in buffers if len(one)]
        merged = filled[0] if len(filled) == 1 else np.concatenate(filled or buffers)
        kept = starts != GONE
        return SliceRecords(keys[kept], merged, starts[kept], sizes[kept], keys[rows])
