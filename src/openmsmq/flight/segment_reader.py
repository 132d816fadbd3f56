"""Read records from the store's segment files, from another process.

A segment may be emptied and reused during a read, so the checksum, position and key of each frame are verified. Frames
that do not match are reported, and their locations are requested from the daemon again.
"""

from __future__ import annotations

import logging
import os
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from openmsmq.store.frames import HEADER_SIZE, INSERT, PENDING, Codec
from openmsmq.store.segments import segment_name

Array = npt.NDArray[Any]

try:
    from openmsmq.flight.checksums import checksums as checksums_of
except ImportError:  # not built, or the CPU lacks the instruction: see openmsmq.compiled

    def checksums_of(data: Array, starts: Array, sizes: Array, seed: int, /) -> bytes:  # type: ignore[misc]
        """Return the CRC-32C of each record, uint32."""
        view = data.data
        ends = (starts + sizes).tolist()
        return array("I", [crc32c(view[a:b], seed) for a, b in zip(starts.tolist(), ends, strict=True)]).tobytes()


logger = logging.getLogger(__name__)

GONE = -1
_GAP = 4096  # maximum gap in bytes that is read rather than skipped
_OPEN = 32  # maximum number of open files
# Offsets of the compared fields in the header (store.frames.HEADER): 64-bit words, 32-bit words, bytes.
_POSITION, _KEY, _CRC, _LENGTH, _KIND = 1, 2, 0, 1, 44


class SegmentReader:
    """Reads from one store's directory. Not thread-safe."""

    def __init__(self, directory: str, segment_size: int, identity: str) -> None:
        self._directory = Path(directory)
        self._codec = Codec(bytes.fromhex(identity), segment_size)
        self._files: dict[int, int] = {}

    def close(self) -> None:
        for handle in self._files.values():
            os.close(handle)
        self._files.clear()

    def read(self, sequences: Array, locations: Array, sizes: Array) -> tuple[Array, Array]:
        """Read records into one buffer.

        Args:
            sequences: sequences of the messages.
            locations, sizes: locations of the records as reported by the store, and their sizes in bytes.

        Returns:
            The buffer, as bytes, and the start of each record in it: a multiple of eight, or GONE if the record is no
            longer at its location.
        """
        count = len(locations)
        if not count:
            return np.empty(0, np.uint8), np.empty(0, np.int64)
        order = np.argsort(locations, kind="stable")
        places = locations[order].astype(np.int64)
        ends = places + HEADER_SIZE + sizes[order]
        segments = places // self._codec.segment_size
        cut = (segments[1:] != segments[:-1]) | (places[1:] > ends[:-1] + _GAP)
        first = np.concatenate(([0], np.flatnonzero(cut) + 1))
        last = np.concatenate((first[1:], [count])) - 1
        lengths = (ends[last] - places[first] + 7) & ~7
        begins = np.concatenate(([0], np.cumsum(lengths)))
        buffer = np.empty(int(begins[-1]), np.uint8)
        view = buffer.data
        spans = zip(places[first].tolist(), ends[last].tolist(), begins.tolist(), strict=False)
        for start, end, at in spans:
            self._read(start, view[at : at + end - start])
        at = np.empty(count, np.int64)
        at[order] = places - np.repeat(places[first] - begins[:-1], last - first + 1)
        return buffer, np.where(self._are_right(buffer, at, sequences, locations, sizes), at + HEADER_SIZE, GONE)

    def _are_right(self, buffer: Array, at: Array, sequences: Array, locations: Array, sizes: Array) -> Array:
        words, halves = buffer.view(np.uint64), buffer.view(np.uint32)
        word = at >> 3
        kind = buffer[at + _KIND]
        right: Array = (
            (words[word + _POSITION] == locations)
            & (words[word + _KEY] == sequences)
            & (halves[2 * word + _LENGTH] == sizes)
            & ((kind == INSERT) | (kind == PENDING))
        )
        lengths = sizes.astype(np.int64) + (HEADER_SIZE - 4)
        checksums = np.frombuffer(checksums_of(buffer, at + 4, lengths, self._codec.seed), np.uint32)
        right &= checksums == halves[2 * word + _CRC]
        return right

    def _read(self, location: int, into: memoryview) -> None:
        """Read bytes from a location. If the segment is gone or ends early, the rest of the buffer fails the checks."""
        number, offset = divmod(location, self._codec.segment_size)
        handle = self._files.pop(number, None)
        if handle is None:
            try:
                handle = os.open(self._directory / segment_name(number), os.O_RDONLY)
            except FileNotFoundError:
                into[:] = bytes(len(into))
                return
            if len(self._files) >= _OPEN:
                os.close(self._files.pop(next(iter(self._files))))
        self._files[number] = handle
        try:
            got = os.preadv(handle, [into], offset)
        except OSError as error:  # damaged disk; its messages are reported as damaged
            logger.error("segment %s: %d bytes at offset %d: %s", segment_name(number), len(into), offset, error)
            got = 0
        if got < len(into):
            into[got:] = bytes(len(into) - got)
