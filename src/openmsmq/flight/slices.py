"""Collect the records of a slice: from the daemon's reply, from its segments, or from new locations after a move."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from openmsmq.flight.segment_reader import GONE, Array, SegmentReader
from openmsmq.model.lookup_id import LAST_SEQUENCE

SEQUENCE_MASK = np.uint64(LAST_SEQUENCE)
_TRIES = 10  # attempts to find a message that compaction keeps moving; after that, it counts as damaged


class SliceRecords(NamedTuple):
    """The remaining records of a slice.

    Attributes:
        keys: lookup identifiers.
        buffer: bytes of the records.
        starts, sizes: location of each record in `buffer`.
        damaged: lookup identifiers of existing messages whose records cannot be read.
    """

    keys: Array
    buffer: Array
    starts: Array
    sizes: Array
    damaged: Array


class SliceReader:
    """Reads the replies of `slicing.Slicing.do_slice`. Not thread-safe."""

    def __init__(self, segments: SegmentReader, locate: Callable[[bytes], memoryview]) -> None:
        """`locate` maps lookup identifiers, 8 bytes each, to current locations, 0 for messages that are gone."""
        self._segments = segments
        self._locate = locate

    def close(self) -> None:
        self._segments.close()

    def read(self, keys: Array, data: memoryview) -> SliceRecords:
        """Return the records of a slice that still exist, and the identifiers of those that cannot be read."""
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
            if len(rows):  # compaction has moved them, or they were received
                locations[rows] = np.frombuffer(self._locate(keys[rows].tobytes()), np.uint64)
                rows = rows[locations[rows] != 0]
        filled = [one for one in buffers if len(one)]
        merged = filled[0] if len(filled) == 1 else np.concatenate(filled or buffers)
        kept = starts != GONE
        return SliceRecords(keys[kept], merged, starts[kept], sizes[kept], keys[rows])
