"""Reading records where the store keeps them, from another process.

A segment may be emptied and used again while this reads, so each frame has to say that it is the one: its checksum,
its position and its key. What does not is reported, and the daemon is asked again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from crc32c import crc32c

from openmsmq.store.frames import HEADER, HEADER_SIZE, INSERT, PENDING, Codec
from openmsmq.store.segments import segment_name

_GAP = 16 << 10  # bytes that are read rather than jumped over
_SPAN = 4 << 20  # bytes that are read at once
_OPEN = 32  # files that stay open


class SegmentReader:
    """Reads from one store's directory. For one thread."""

    def __init__(self, directory: str, segment_size: int, identity: str) -> None:
        self._directory = Path(directory)
        self._codec = Codec(bytes.fromhex(identity), segment_size)
        self._files: dict[int, int] = {}

    def close(self) -> None:
        for handle in self._files.values():
            os.close(handle)
        self._files.clear()

    def read(
        self, keys: Sequence[int], locations: Sequence[int], sizes: Sequence[int]
    ) -> tuple[list[memoryview | None], list[int]]:
        """The records at these locations, in this order, and the rows that are not there any more; those are None.

        Args:
            keys: sequence numbers.
            locations, sizes: where the store said that the records are, and their bytes.
        """
        order = sorted(range(len(keys)), key=locations.__getitem__)
        records: list[memoryview | None] = [None] * len(keys)
        missing: list[int] = []
        segment_size, seed = self._codec.segment_size, self._codec.seed
        unpack = HEADER.unpack_from
        index = 0
        while index < len(order):
            start = locations[order[index]]
            number = start // segment_size
            limit = min(start + _SPAN, (number + 1) * segment_size)
            end = start
            last = index
            while last < len(order):
                place = locations[order[last]]
                behind = place + HEADER_SIZE + sizes[order[last]]
                if last > index and (place > end + _GAP or behind > limit):
                    break
                end = behind
                last += 1
            data = self._bytes(number, start % segment_size, end - start)
            view = memoryview(data)
            for row in order[index:last]:
                at = locations[row] - start
                behind = at + HEADER_SIZE + sizes[row]
                if behind <= len(data):
                    crc, length, position, key, _, _, _, _, kind, _, _ = unpack(data, at)
                    if (
                        position == locations[row] and key == keys[row] and length == sizes[row]
                        and kind in (INSERT, PENDING) and crc32c(view[at + 4 : behind], seed) == crc
                    ):  # fmt: skip
                        records[row] = view[at + HEADER_SIZE : behind]
                        continue
                missing.append(row)
            index = last
        return records, missing

    def _bytes(self, number: int, offset: int, length: int) -> bytes:
        """Bytes of a segment; fewer where it ends, none where it is gone."""
        handle = self._files.pop(number, None)
        if handle is None:
            try:
                handle = os.open(self._directory / segment_name(number), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return b""
            if len(self._files) >= _OPEN:
                os.close(self._files.pop(next(iter(self._files))))
        self._files[number] = handle
        return os.pread(handle, length, offset)
