"""Reading records where the store keeps them, from another process.

A segment may be emptied and used again while this reads, so each frame has to say that it is the one: its checksum,
its position and its key. What does not is reported, and the daemon is asked again.
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
except ImportError:  # not built here, or no such instruction: see openmsmq.compiled

    def checksums_of(data: Array, starts: Array, sizes: Array, seed: int, /) -> bytes:  # type: ignore[misc]
        """CRC-32C of many records, uint32 each."""
        view = data.data
        ends = (starts + sizes).tolist()
        return array("I", [crc32c(view[a:b], seed) for a, b in zip(starts.tolist(), ends, strict=True)]).tobytes()


logger = logging.getLogger(__name__)

GONE = -1
_GAP = 4096  # bytes that are read rather than jumped over
_OPEN = 32  # files that stay open
# Where the header (store.frames.HEADER) has what is compared: 64-bit words, 32-bit words, bytes.
_POSITION, _KEY, _CRC, _LENGTH, _KIND = 1, 2, 0, 1, 44


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

    def read(self, sequences: Array, locations: Array, sizes: Array) -> tuple[Array, Array]:
        """Read records into one buffer.

        Args:
            sequences: of the messages.
            locations, sizes: where the store said that the records are, and their bytes.

        Returns:
            The buffer, as bytes, and where in it each record begins: a multiple of eight, or GONE for one that is not
            at its location any more.
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
        """Bytes from a location on; where the segment is gone or ends, the buffer keeps what no check accepts."""
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
        except OSError as error:  # of a damaged disk; the messages there are reported as such
            logger.error("segment %s: %d bytes at offset %d: %s", segment_name(number), len(into), offset, error)
            got = 0
        if got < len(into):
            into[got:] = bytes(len(into) - got)
