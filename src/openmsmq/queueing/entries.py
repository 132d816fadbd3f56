"""The entries of a queue: where the message of each lookup identifier is, in the store or in memory.

An entry is `size << 64 | location` for a message in the store, or holds the message itself. Machine code keeps them in
arrays where `positions.c` is compiled, 25 to 40 bytes each; a dictionary takes 110, for the integers too.
"""

from __future__ import annotations

from array import array
from collections import UserDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from openmsmq.model.lookup_id import LAST_SEQUENCE
from openmsmq.queueing.deadlines import CapturedDeadlines
from openmsmq.store import QueueColumns

LOCATION_BITS: Final = 64
LOCATION_MASK: Final = (1 << LOCATION_BITS) - 1
Stored = int


class InMemoryMessage(Protocol):
    """A message in memory."""

    @property
    def size(self) -> int:
        """The bytes that it counts for."""


Entry = InMemoryMessage | Stored


def stored(location: int, size: int) -> Stored:
    return size << LOCATION_BITS | location


class EntriesInPython(UserDict[int, Entry]):  # of a subclass of dict, mypyc would believe that it is one
    """Pure Python version. Iteration yields the lookup identifiers in ascending order."""

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self.data))

    def place(self, key: int, location: int, size: int) -> None:
        """Add or replace the entry of a message that is in the store."""
        self.data[key] = size << LOCATION_BITS | location

    def location(self, key: int) -> int | None:
        """Where the store has the message; None for one in memory. Raises KeyError."""
        entry = self.data[key]
        return entry & LOCATION_MASK if isinstance(entry, int) else None

    def locations(self, keys: list[int]) -> list[int | None]:
        """`location` of each. Raises KeyError."""
        return [self.location(key) for key in keys]

    def size(self, key: int) -> int:
        """Bytes of a message. Raises KeyError."""
        entry = self.data[key]
        return entry >> LOCATION_BITS if isinstance(entry, int) else entry.size

    def remove(self, key: int) -> int:
        """Remove an entry. Returns the bytes of its message. Raises KeyError."""
        size = self.size(key)
        del self.data[key]
        return size

    def remove_all(self, keys: list[int]) -> int:
        """Remove entries. Returns the bytes of their messages. Raises KeyError."""
        return sum([self.remove(key) for key in keys])

    def capture(self, room: bytearray | None) -> bytes | memoryview:
        """A copy of what is in the store, for `columns`: lookup identifier, location and size (u64) of each message, in
        any order; in `room`, of `ready_room`, where it is large enough."""
        words = array("Q")
        for key, entry in self.data.items():
            if isinstance(entry, int):
                words.extend((key, entry & LOCATION_MASK, entry >> LOCATION_BITS))
        return words.tobytes()

    @staticmethod
    def columns(
        captured: bytes | memoryview, left_out: set[int], deadlines: bytes | memoryview, others: dict[int, int]
    ) -> tuple[bytes, bytes, bytes, bytes]:  # fmt: skip
        """Return the store's columns of captured messages, by sequence: sequences, locations (u64), sizes (u32), and
        priority with deadline (u64). Thread-safe.

        Args:
            captured: what `capture` returned.
            left_out: lookup identifiers of those that are not committed.
            deadlines: times of expiry, of which the latest one of a message counts; see `CapturedDeadlines.of_queue`.
            others: times of expiry by lookup identifier that are not among these.
        """
        words, times = array("Q", bytes(captured)), array("Q", bytes(deadlines))
        due = {**dict(zip(times[1::3], times[2::3], strict=True)), **others}
        rows = sorted(
            (key & LAST_SEQUENCE, location, size, key & ~LAST_SEQUENCE | due.get(key, 0))
            for key, location, size in zip(words[::3], words[1::3], words[2::3], strict=True)
            if key not in left_out
        )
        keys, locations, sizes, last = zip(*rows, strict=True) if rows else ((), (), (), ())
        return (
            array("Q", keys).tobytes(), array("Q", locations).tobytes(), array("I", sizes).tobytes(),
            array("Q", last).tobytes(),
        )  # fmt: skip

    def places(self, keys: list[int], start: int, most: int, volume: int) -> tuple[bytes, bytes, int]:
        """Where messages are, up to the first one that is not in the store.

        Args:
            keys: lookup identifiers.
            start: index of the first of these.
            most, volume: end after `most` messages, or with the message that reaches `volume` bytes.

        Returns:
            Locations, 8 bytes each, sizes, 4 bytes each, and how many bytes the messages have. Raises KeyError.
        """
        locations, sizes, taken = array("Q"), array("I"), 0
        for key in keys[start : start + most]:
            entry = self[key]
            if taken >= volume or not isinstance(entry, int):
                break
            locations.append(entry & LOCATION_MASK)
            sizes.append(entry >> LOCATION_BITS)
            taken += sizes[-1]
        return locations.tobytes(), sizes.tobytes(), taken

    def load(
        self, keys: array[int], locations: array[int], sizes: array[int], words: array[int]
    ) -> tuple[array[int], int, list[tuple[int, int]]]:
        """Add what `columns` returned; none of it is there. Returns the lookup identifiers in ascending order,
        array('Q'), the sum of the sizes, and the lookup identifiers that have a deadline with it."""
        loaded, deadlines = array("Q"), []
        for sequence, location, size, word in zip(keys, locations, sizes, words, strict=True):
            key = word & ~LAST_SEQUENCE | sequence
            self[key] = size << LOCATION_BITS | location
            loaded.append(key)
            if deadline := word & LAST_SEQUENCE:
                deadlines.append((key, deadline))
        return array("Q", sorted(loaded)), sum(sizes), deadlines


if TYPE_CHECKING:
    Entries = EntriesInPython

    def ready_room(size: int) -> bytearray:
        """Memory that is ready to be written to, which the kernel makes of new memory page by page. In any thread."""

else:
    try:
        from openmsmq.queueing.positions import Positions as Entries
        from openmsmq.queueing.positions import ready_room
    except ImportError:  # not built here: see openmsmq.compiled
        Entries, ready_room = EntriesInPython, bytearray


@dataclass(frozen=True, slots=True)
class CapturedEntries:
    """The stored messages of a queue as they were at one moment; see `EntriesInPython.columns`."""

    number: int
    captured: bytes | memoryview
    left_out: set[int]
    deadlines: CapturedDeadlines
    others: dict[int, int]

    def columns(self) -> QueueColumns:
        """Return the columns for the store. Takes about 250 ms for a million messages. Thread-safe."""
        deadlines = self.deadlines.of_queue(self.number)
        keys, locations, sizes, words = Entries.columns(self.captured, self.left_out, deadlines, self.others)
        return QueueColumns(array("Q", keys), array("Q", locations), array("I", sizes), array("Q", words))


LARGE: Final = 1 << 16  # entries: memory for fewer is ready in no time
CAPTURED_SIZE: Final = 24  # bytes of an entry, or of a deadline, that is captured
_SPARE: Final = 8  # an eighth more: what comes until the room is used


@dataclass(frozen=True, slots=True)
class CaptureBuffers:
    """For what a checkpoint copies of large queues while the event loop waits.

    Attributes:
        queues: rooms by number of queue.
        deadlines: room for the deadlines.
    """

    queues: dict[int, bytearray]
    deadlines: bytearray | None

    @classmethod
    def ready(cls, entries: dict[int, int], deadlines: int) -> CaptureBuffers:
        """Allocate buffers for captures of `entries` queue entries and `deadlines` deadlines. Thread-safe."""
        return cls({number: _room(count) for number, count in entries.items()}, _room(deadlines))


def _room(count: int) -> bytearray:
    return ready_room((count + count // _SPARE) * CAPTURED_SIZE)


NO_ROOMS: Final = CaptureBuffers({}, None)
