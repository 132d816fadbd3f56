"""The entries of a queue: the message of each lookup identifier, or its location in the store.

An entry is `size << 64 | location` for a message in the store, or holds the message itself. Where `positions.c` is
compiled, entries are in arrays and take 25 to 40 bytes each; a dictionary takes 110, including the integers.
"""

from __future__ import annotations

from array import array
from collections import UserDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from openmsmq.model.lookup_id import LAST_SEQUENCE
from openmsmq.queueing.deadlines import CapturedDeadlines
from openmsmq.store import PackedColumns

LOCATION_BITS: Final = 64
LOCATION_MASK: Final = (1 << LOCATION_BITS) - 1
Stored = int


class InMemoryMessage(Protocol):
    """A message in memory."""

    @property
    def size(self) -> int:
        """Bytes that the message counts for in quotas."""


Entry = InMemoryMessage | Stored


def stored(location: int, size: int) -> Stored:
    return size << LOCATION_BITS | location


class EntriesInPython(UserDict[int, Entry]):  # mypyc would treat a subclass of dict as a plain dict
    """Pure Python version. Iteration yields the lookup identifiers in ascending order."""

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self.data))

    def place(self, key: int, location: int, size: int) -> None:
        """Add or replace the entry of a message that is in the store."""
        self.data[key] = size << LOCATION_BITS | location

    def location(self, key: int) -> int | None:
        """Return the location of a message in the store; None if it is in memory. Raises KeyError."""
        entry = self.data[key]
        return entry & LOCATION_MASK if isinstance(entry, int) else None

    def locations(self, keys: list[int]) -> list[int | None]:
        """Return the `location` of each message. Raises KeyError."""
        return [self.location(key) for key in keys]

    def size(self, key: int) -> int:
        """Return the bytes of a message. Raises KeyError."""
        entry = self.data[key]
        return entry >> LOCATION_BITS if isinstance(entry, int) else entry.size

    def remove(self, key: int) -> int:
        """Remove an entry. Returns the bytes of its message. Raises KeyError."""
        size = self.size(key)
        del self.data[key]
        return size

    def volume(self, keys: list[int]) -> int:
        """Return the bytes of messages. Raises KeyError."""
        return sum([self.size(key) for key in keys])

    def remove_all(self, keys: list[int]) -> int:
        """Remove entries. Returns the bytes of their messages. Raises KeyError."""
        return sum([self.remove(key) for key in keys])

    def capture(self, room: bytearray | None) -> bytes | memoryview:
        """Return a copy of the entries of stored messages for `columns`: lookup identifier, location and size (u64) of
        each, in any order. It is written to `room` (from `ready_room`) if that is large enough."""
        words = array("Q")
        for key, entry in self.data.items():
            if isinstance(entry, int):
                words.extend((key, entry & LOCATION_MASK, entry >> LOCATION_BITS))
        return words.tobytes()

    @staticmethod
    def columns(
        captured: bytes | memoryview, left_out: set[int], deadlines: bytes | memoryview, others: dict[int, int]
    ) -> tuple[bytes, bytes, bytes, bytes]:  # fmt: skip
        """Return the store's columns for captured messages, in sequence order: sequences, locations (u64), sizes (u32),
        and priority with deadline (u64). Thread-safe.

        Args:
            captured: result of `capture`.
            left_out: lookup identifiers of uncommitted messages.
            deadlines: expiry times, see `CapturedDeadlines.of_queue`; the latest one of a message counts.
            others: further expiry times by lookup identifier, which take precedence.
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
        """Return the locations of messages, up to the first one that is not in the store.

        Args:
            keys: lookup identifiers.
            start: index of the first key to use.
            most, volume: end after `most` messages, or with the message that reaches `volume` bytes.

        Returns:
            Locations (8 bytes each), sizes (4 bytes each), and the total size of the messages in bytes. Raises
            KeyError.
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
        """Add the result of `columns`, none of which may exist yet. Returns the lookup identifiers in ascending order
        as array('Q'), the sum of the sizes, and (lookup identifier, deadline) of each message that expires."""
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
        """Return a buffer whose pages are already mapped, so that writing to it causes no page faults. Thread-safe."""

else:
    try:
        from openmsmq.queueing.positions import Positions as Entries
        from openmsmq.queueing.positions import ready_room
    except ImportError:  # not built here: see openmsmq.compiled
        Entries, ready_room = EntriesInPython, bytearray


@dataclass(frozen=True, slots=True)
class CapturedEntries:
    """Snapshot of the stored messages of a queue; see `EntriesInPython.columns`."""

    number: int
    captured: bytes | memoryview
    left_out: set[int]
    deadlines: CapturedDeadlines
    others: dict[int, int]

    def packed(self) -> PackedColumns:
        """Return the columns for the store. Takes about 250 ms for a million messages. Thread-safe."""
        deadlines = self.deadlines.of_queue(self.number)
        keys, locations, sizes, words = Entries.columns(self.captured, self.left_out, deadlines, self.others)
        return PackedColumns(keys, locations, words, sizes)


LARGE: Final = 1 << 16  # entries; smaller queues need no buffer allocated in advance
CAPTURED_SIZE: Final = 24  # bytes of a captured entry or deadline
_SPARE: Final = 8  # 1/8 more, for messages that arrive before the buffer is used


@dataclass(frozen=True, slots=True)
class CaptureBuffers:
    """Preallocated buffers for the entries of large queues, which a checkpoint copies while the event loop waits.

    Attributes:
        queues: buffers by queue number.
        deadlines: buffer for the deadlines.
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
