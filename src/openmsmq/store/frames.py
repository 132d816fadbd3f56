"""Layout of the log: segment headers and frames (docs/store-format.md).

A *frame* has a checksum; a *chain* of frames (first to last) is atomic. A message is one frame, so that it can be read
without its neighbors, and damage affects only the frame that it hits.

All integers are little-endian. Frames start at multiples of eight.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from openmsmq.store.errors import UnknownFormat

try:
    import openmsmq.store.framing as framing
except ImportError:  # not built here: see openmsmq.compiled
    if not TYPE_CHECKING:
        framing = None

#: Format of new files. Version 2 has message records in compact form; segments of both versions may be in one log.
VERSION: Final = 2
READABLE: Final = frozenset((1, VERSION))
DEFAULT_SEGMENT_SIZE: Final = 16 << 20
#: Room for the segment header, one message and the SEAL; tests use segments of this size.
MINIMUM_SEGMENT_SIZE: Final = 8192
IDENTITY_SIZE: Final = 16

# ---------------------------------------------------------------------------------------------------------- frames

#: crc, length, position, key, extra, queue, transaction, group, kind, flags, tag
HEADER: Final = struct.Struct("<IIQQQIIIBBH")
HEADER_SIZE: Final = HEADER.size
_AFTER_CRC: Final = struct.Struct("<IQQQIIIBBH")
_CRC: Final = struct.Struct("<I")
_POSITION: Final = struct.Struct("<8xQ")
_TAG_OFFSET: Final = HEADER_SIZE - 2
_ZEROS: Final = bytes(65536)
PADDING: Final = tuple(bytes(-length & 7) for length in range(8))

# Kinds of frames.
INSERT: Final = 1  # queue, key, extra = deadline, payload
REMOVE: Final = 2  # key, extra = location of the message
PUT: Final = 3  # payload = u32 length of the name, name, value
DROP: Final = 4  # payload = name
PENDING: Final = 5  # like INSERT, counts when `transaction` commits
COMMIT: Final = 6  # transaction
ABORT: Final = 7  # transaction
RESERVE: Final = 8  # key = highest number reserved
STARTED: Final = 9  # voids all pending transactions that are not prepared; key = highest number
STOPPED: Final = 10  # clean end; key = highest number
OPENING: Final = 11  # first frame of a segment; key = highest number
SEAL: Final = 12  # last frame of a segment
SKIP: Final = 13  # written by repair over damaged bytes
PREPARE: Final = 14  # transaction; payload is the caller's note; the transaction survives STARTED
REMOVE_MANY: Final = 15  # payload = keys, then locations of the messages, u64 each
KINDS: Final = frozenset(range(INSERT, REMOVE_MANY + 1))
#: Maximum number of messages in a REMOVE_MANY, so that it fits into the smallest segment, and damage to one brings
#: back at most this many messages.
MOST_REMOVALS: Final = 128
#: Frames whose payload may be needed later.
LASTING: Final = frozenset((INSERT, PUT, PENDING, PREPARE))
#: Structural frames neither begin nor end a chain.
STRUCTURAL: Final = frozenset((OPENING, SEAL, SKIP, STOPPED))

# Flags.
FIRST: Final = 1
LAST: Final = 2
ALONE: Final = FIRST | LAST
RELOCATED: Final = 4  # replaces every earlier frame of the same key

#: crc, length, position, key, extra, queue, transaction, group, kind, flags, tag — a plain tuple, for speed
Fields = tuple[int, int, int, int, int, int, int, int, int, int, int]


def position_at(data: bytes, offset: int) -> int:
    """Return the position in a frame header, which may be invalid."""
    return int(_POSITION.unpack_from(data, offset)[0])


def frame_size(length: int) -> int:
    """Return the size in the log of a frame with a payload of `length` bytes."""
    return (HEADER_SIZE + length + 7) & ~7


class Codec:
    """Writes and checks frames of one store.

    The checksum is seeded with the store's identity, which is random and secret. Otherwise a client could craft a
    payload that looks like a frame and that becomes visible through damage or in a recycled file.
    """

    def __init__(self, identity: bytes, segment_size: int) -> None:
        if len(identity) != IDENTITY_SIZE:
            raise ValueError(f"identity must be {IDENTITY_SIZE} bytes")
        if segment_size < MINIMUM_SEGMENT_SIZE or segment_size % 8:
            raise ValueError(f"segment size must be a multiple of 8 and at least {MINIMUM_SEGMENT_SIZE}")
        self.identity = identity
        self.segment_size = segment_size
        self.seed = crc32c(identity)
        # A tag without zero bytes lets `bytes.find` skip zeros quickly when searching for frames.
        self.tag = (self.seed & 0xFFFF) | 0x8001
        self._tag_bytes = self.tag.to_bytes(2, "little")
        #: Frames end at or before this offset, so that a SEAL fits after them.
        self.limit = segment_size - HEADER_SIZE
        #: Longest payload that fits into an empty segment.
        self.largest_payload = (self.limit - FRAMES_START - 2 * HEADER_SIZE) & ~7

    def header(
        self,
        kind: int,
        flags: int,
        position: int,
        group: int,
        payload: bytes,
        key: int = 0,
        extra: int = 0,
        queue: int = 0,
        transaction: int = 0,
    ) -> bytes:
        """Return the header of a frame at absolute `position`; `group` is the distance to the start of its write."""
        if framing is None:
            return self.header_in_python(kind, flags, position, group, payload, key, extra, queue, transaction)
        return framing.header(
            payload, kind, flags, position, group, key, extra, queue, transaction, self.tag, self.seed
        )

    def header_in_python(
        self, kind: int, flags: int, position: int, group: int, payload: bytes, key: int, extra: int, queue: int,
        transaction: int,
    ) -> bytes:  # fmt: skip
        """Pure Python version of `framing.header`."""
        body = _AFTER_CRC.pack(len(payload), position, key, extra, queue, transaction, group, kind, flags, self.tag)
        crc = crc32c(body, self.seed)
        return _CRC.pack(crc32c(payload, crc) if payload else crc) + body

    def frame(self, kind: int, flags: int, position: int, group: int, payload: bytes = b"", key: int = 0) -> bytes:
        """Return a whole frame with its padding."""
        return self.header(kind, flags, position, group, payload, key) + payload + PADDING[len(payload) & 7]

    def check(self, data: bytes | bytearray | memoryview, offset: int, position: int) -> Fields | None:
        """Return the fields of the frame at `offset` of `data`; None if there is no valid frame for absolute
        `position`."""
        if offset + HEADER_SIZE > len(data):
            return None
        fields: Fields = HEADER.unpack_from(data, offset)
        end = offset + HEADER_SIZE + fields[1]
        if fields[2] != position or fields[10] != self.tag or end > len(data):
            return None
        if crc32c(memoryview(data)[offset + 4 : end], self.seed) != fields[0] or fields[8] not in KINDS:
            return None
        return fields

    def walk(self, data: bytes | bytearray, offset: int, base: int) -> Iterator[Fields]:
        """Yield the valid frames from `offset` on, up to a SEAL or the first bytes that are not a valid frame.

        `base` is the absolute position of the start of `data`.
        """
        view = memoryview(data)
        unpack, size, seed, tag, last = HEADER.unpack_from, len(data), self.seed, self.tag, len(data) - HEADER_SIZE
        checksum, header_size, kinds = crc32c, HEADER_SIZE, KINDS
        while offset <= last:
            fields: Fields = unpack(data, offset)
            crc, length, position, _, _, _, _, _, kind, _, mark = fields
            end = offset + header_size + length
            if position != base + offset or mark != tag or end > size:
                return
            if checksum(view[offset + 4 : end], seed) != crc or kind not in kinds:
                return
            yield fields
            if kind == SEAL:
                return
            offset = (end + 7) & ~7

    def search(self, data: bytes | bytearray, offset: int, base: int) -> Iterator[Fields]:
        """Yield every valid frame at or after `offset`, even after invalid bytes. Frames within a found frame are
        ignored."""
        at = offset + _TAG_OFFSET
        used = len(data)
        while used > offset and data[used - len(_ZEROS) : used] == _ZEROS:  # comparing is much faster than `find`
            used -= len(_ZEROS)
        while (at := data.find(self._tag_bytes, at, used)) >= 0:
            start = at - _TAG_OFFSET
            fields = self.check(data, start, base + start) if not start % 8 else None
            if fields is None:
                at += 1
                continue
            yield fields
            at = start + frame_size(fields[1]) + _TAG_OFFSET


def pack_definition(name: bytes, value: bytes) -> bytes:
    """Return the payload of a PUT."""
    return _CRC.pack(len(name)) + name + value


def unpack_definition(payload: bytes) -> tuple[bytes, bytes]:
    """Return name and value in the payload of a PUT."""
    end = 4 + int(_CRC.unpack_from(payload)[0])
    return payload[4:end], payload[end:]


def pack_removals(keys: Sequence[int], locations: Sequence[int]) -> bytes:
    """Return the payload of a REMOVE_MANY."""
    words = array("Q", keys)
    words.extend(locations)
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()


def unpack_removals(payload: bytes) -> tuple[Sequence[int], Sequence[int]]:
    """Return keys and locations in the payload of a REMOVE_MANY."""
    words = struct.unpack(f"<{len(payload) // 8}Q", payload)
    return words[: len(words) // 2], words[len(words) // 2 :]


# ------------------------------------------------------------------------------------------------- segment headers

#: magic, version, segment size, number, identity, crc
_SEGMENT_HEADER: Final = struct.Struct("<8sIIQ16sI")
HEADER_COPY_SIZE: Final = _SEGMENT_HEADER.size
_SEGMENT_MAGIC: Final = b"OMQ-LOG\n"
#: Offset of the first frame. The header before it is stored twice, in different sectors, because all frames need it.
FRAMES_START: Final = 4096
HEADER_COPIES: Final = (0, 2048)


def check_version(version: int, path: str) -> None:
    """Raises UnknownFormat unless this program reads files of that version."""
    if version not in READABLE:
        known = " and ".join(map(str, sorted(READABLE)))
        remedy = ": a newer version wrote it, so install that version, or restore a backup from before the upgrade"
        raise UnknownFormat(
            f"{path}: format version {version}, this program reads {known}{remedy if version > VERSION else ''}"
        )


def segment_header(codec: Codec, number: int) -> bytes:
    """Return the first FRAMES_START bytes of segment `number`."""
    body = _SEGMENT_HEADER.pack(_SEGMENT_MAGIC, VERSION, codec.segment_size, number, codec.identity, 0)[:-4]
    copy = body + _CRC.pack(crc32c(body))
    page = bytearray(FRAMES_START)
    for offset in HEADER_COPIES:
        page[offset : offset + len(copy)] = copy
    return bytes(page)


def read_segment_header(page: bytes, path: str) -> tuple[int, Codec, list[int]]:
    """Return number, codec and offsets of damaged copies.

    Raises:
        ValueError: no copy is valid.
        UnknownFormat: a valid copy is of another version.
    """
    found: tuple[int, Codec] | None = None
    damaged = []
    for offset in HEADER_COPIES:
        copy = page[offset : offset + _SEGMENT_HEADER.size].ljust(_SEGMENT_HEADER.size, b"\0")  # of a file cut off
        magic, version, segment_size, number, identity, crc = _SEGMENT_HEADER.unpack(copy)
        if magic != _SEGMENT_MAGIC or crc != crc32c(copy[:-4]):
            damaged.append(offset)
            continue
        check_version(version, path)
        found = found or (number, Codec(identity, segment_size))
    if found is None:
        raise ValueError("no valid segment header")
    return *found, damaged
