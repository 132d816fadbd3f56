"""Packed columns of live messages: the form in which recovery returns them and checkpoints store them."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import compress, islice
from operator import le
from typing import Protocol

from openmsmq.store.frames import HEADER_SIZE

_WORDS = HEADER_SIZE // 8


@dataclass(slots=True)
class QueueColumns:
    """The live messages of one queue, sorted by key: 28 bytes per message.

    Attributes:
        keys: array('Q').
        locations: array('Q').
        sizes: array('I'), payload lengths in bytes.
        deadlines: array('Q').
    """

    keys: array[int] = field(default_factory=lambda: array("Q"))
    locations: array[int] = field(default_factory=lambda: array("Q"))
    sizes: array[int] = field(default_factory=lambda: array("I"))
    deadlines: array[int] = field(default_factory=lambda: array("Q"))

    def __len__(self) -> int:
        return len(self.keys)

    def packed(self) -> PackedColumns:
        """Return the bytes of the columns, without copying them; see `Capture`."""
        parts = [memoryview(column).cast("B") for column in (self.keys, self.locations, self.deadlines, self.sizes)]
        return PackedColumns(*parts)

    def append(self, key: int, location: int, size: int, deadline: int) -> None:
        """Add a message at the end; the caller ensures the order."""
        self.keys.append(key)
        self.locations.append(location)
        self.sizes.append(size)
        self.deadlines.append(deadline)

    def insert(self, key: int, location: int, size: int, deadline: int) -> None:
        """Insert a message at its place in sorted columns, usually the end."""
        if not self.keys or key > self.keys[-1]:
            self.append(key, location, size, deadline)
            return
        row = bisect_left(self.keys, key)
        self.keys.insert(row, key)
        self.locations.insert(row, location)
        self.sizes.insert(row, size)
        self.deadlines.insert(row, deadline)

    def part(self, start: int, end: int) -> QueueColumns:
        """Return a copy of the rows from `start` to `end`."""
        return QueueColumns(
            self.keys[start:end], self.locations[start:end], self.sizes[start:end], self.deadlines[start:end]
        )

    def copy(self) -> QueueColumns:
        return self.part(0, len(self))

    def rows(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield key, location, size and deadline of each message."""
        return zip(self.keys, self.locations, self.sizes, self.deadlines, strict=True)

    def extend(self, other: QueueColumns) -> None:
        self.keys.extend(other.keys)
        self.locations.extend(other.locations)
        self.sizes.extend(other.sizes)
        self.deadlines.extend(other.deadlines)

    def sort(self) -> None:
        """Sort by key."""
        keys = self.keys
        if all(map(le, keys, islice(keys, 1, None))):
            return
        order = sorted(range(len(keys)), key=keys.__getitem__)
        self.keys = array("Q", map(keys.__getitem__, order))
        self.locations = array("Q", map(self.locations.__getitem__, order))
        self.sizes = array("I", map(self.sizes.__getitem__, order))
        self.deadlines = array("Q", map(self.deadlines.__getitem__, order))

    def select(self, flags: bytearray) -> None:
        """Keep the rows with nonzero flags."""
        self.keys = array("Q", compress(self.keys, flags))
        self.locations = array("Q", compress(self.locations, flags))
        self.sizes = array("I", compress(self.sizes, flags))
        self.deadlines = array("Q", compress(self.deadlines, flags))

    def find(self, key: int) -> int | None:
        """Return the row of a key in sorted columns; None if it does not exist."""
        row = bisect_left(self.keys, key)
        return row if row < len(self.keys) and self.keys[row] == key else None


@dataclass(frozen=True, slots=True)
class PackedColumns:
    """The bytes of the columns of a queue: 8 for each item of a column, 4 for a size."""

    keys: bytes | memoryview
    locations: bytes | memoryview
    deadlines: bytes | memoryview
    sizes: bytes | memoryview

    def __len__(self) -> int:
        return len(self.sizes) // 4


class Capture(Protocol):
    """Snapshot of the live messages of one queue for a checkpoint."""

    def packed(self) -> PackedColumns:
        """Return the columns, sorted by key. Call once; thread-safe."""


def columns_from_headers(headers: bytes | bytearray) -> QueueColumns:
    """Return the columns of INSERT or PENDING frames from their concatenated headers.

    Strided slices run in C; a Python loop would take 1 s per million messages.
    """
    words = array("Q")
    words.frombytes(headers)
    halves = array("I")
    halves.frombytes(headers)
    return QueueColumns(
        keys=words[2::_WORDS], locations=words[1::_WORDS], sizes=halves[1 :: 2 * _WORDS], deadlines=words[3::_WORDS]
    )


def count_by_segment(locations: array[int] | list[int], segment_size: int) -> dict[int, int]:
    """Return the number of locations in each segment. Neighbors are mostly in the same one."""
    counts: dict[int, int] = {}
    start, end, count = 0, 0, 0  # of the segment of the location before, and how many came in a row
    every: list[int] = list(locations)  # compiled code takes three times as long for an item of an array
    for location in every:
        if start <= location < end:
            count += 1
            continue
        if count:
            counts[start // segment_size] = counts.get(start // segment_size, 0) + count
        start, count = location - location % segment_size, 1
        end = start + segment_size
    if count:
        counts[start // segment_size] = counts.get(start // segment_size, 0) + count
    return counts
