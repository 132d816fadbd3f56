"""What the daemon answers who reads the records of messages elsewhere: where they lie."""

from __future__ import annotations

import sys
from array import array

from openmsmq.queueing.message_record import encode_message
from openmsmq.queueing.packed_columns import places_of
from openmsmq.queueing.queue import Queue

_SLICE_ROWS = 4096
_SLICE_BYTES = 8 << 20
_SLICE_RECORDS = 256  # their records are made by the event loop


class Slice:
    """Positions for who reads the records elsewhere; full before that takes long.

    Attributes:
        keys: lookup identifiers.
    """

    def __init__(self) -> None:
        self.keys: list[int] = []
        self._places: list[bytes] = []
        self._sizes: list[bytes] = []
        self._records: list[bytes] = []  # of express messages, which nobody else can read
        self._volume = 0

    def is_full(self) -> bool:
        """Whether it takes no more."""
        return len(self.keys) >= _SLICE_ROWS or self._volume >= _SLICE_BYTES or len(self._records) >= _SLICE_RECORDS

    def take(self, queue: Queue, keys: list[int]) -> None:
        """Add positions of a queue, until it is full."""
        at = 0
        while at < len(keys) and not self.is_full():
            most, room = _SLICE_ROWS - len(self.keys), _SLICE_BYTES - self._volume
            places, sizes, volume = places_of(queue.entries, keys, at, most, room)
            if not places:
                record = encode_message(queue.message(keys[at]))
                places, sizes, volume = bytes(8), len(record).to_bytes(4, sys.byteorder), len(record)
                self._records.append(record + bytes(-volume % 8))
            self._places.append(places)
            self._sizes.append(sizes)
            self._volume += volume
            end = at + len(places) // 8
            self.keys += keys[at:end]
            at = end

    def data(self) -> bytes:
        """Lookup identifiers, locations (0 for a record that follows, padded to a multiple of eight), sizes."""
        return b"".join([array("Q", self.keys).tobytes(), *self._places, *self._sizes, *self._records])
