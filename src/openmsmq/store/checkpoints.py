"""Checkpoint files: the state of the log at one position, so that a restart reads only the log after it.

There are two files. A new one replaces the older by rename, so a crash while writing loses nothing. A checkpoint with
an invalid checksum is ignored, as is one whose segment has been recycled: the log alone is always sufficient.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Iterator
from typing import Final

from crc32c import crc32c

from openmsmq.store.columns import Capture, PackedColumns, QueueColumns
from openmsmq.store.errors import StoreError
from openmsmq.store.frames import VERSION, Codec, check_version
from openmsmq.store.replay import LogState
from openmsmq.store.segments import TEMPORARY_SUFFIX
from openmsmq.store.vfs import Vfs, write_fully

logger = logging.getLogger(__name__)

NAMES: Final = ("checkpoint-0", "checkpoint-1")
_TEMPORARY: Final = "checkpoint" + TEMPORARY_SUFFIX
_MAGIC: Final = b"OMQ-CKP\n"
#: magic, version, segment size, identity, position, high key,
#: counts of segments, definitions, queues, pending, prepared, length
_HEADER: Final = struct.Struct("<8sII16sQQIIIIIQ")
_CRC: Final = struct.Struct("<I")
_SEGMENT: Final = struct.Struct("<QQQ")  # number, count of messages and definitions ever written, their payload bytes
_DEFINITION: Final = struct.Struct("<QII")  # location, lengths of name and value
_PREPARED: Final = struct.Struct("<QII")  # location, transaction, length of the note
_QUEUE: Final = struct.Struct("<IIQ")  # transaction (0 for committed), queue, rows
_SLICE: Final = 1 << 20


def encode(codec: Codec, state: LogState, captured: Iterable[tuple[int, Capture]]) -> list[bytes | memoryview]:
    """Return the pieces of a checkpoint file, without its final checksum. Columns are not copied.

    Args:
        codec: codec of the store.
        state: the state, without the messages of queues.
        captured: the messages by queue.

    Raises:
        StoreError: columns differ in length.
    """
    queues = {queue: packed for queue, capture in captured if len(packed := capture.packed())}
    pieces: list[bytes | memoryview] = []
    for number, counts in sorted(state.written.items()):
        pieces.append(_SEGMENT.pack(number, *counts))
    for name, value in state.definitions.items():
        pieces += (_DEFINITION.pack(state.definition_locations[name], len(name), len(value)), name, value)
    for transaction, (note, location) in state.prepared.items():
        pieces += (_PREPARED.pack(location, transaction, len(note)), note)
    for queue, packed in queues.items():
        pieces += _encode_queue(0, queue, packed)
    pending = 0
    for transaction, parts in state.pending.items():
        for queue, columns in parts.items():
            pieces += _encode_queue(transaction, queue, columns.packed())
            pending += 1
    header = _HEADER.pack(
        _MAGIC, VERSION, codec.segment_size, codec.identity, state.position, state.high_key,
        len(state.written), len(state.definitions), len(queues), pending, len(state.prepared),
        sum(map(len, pieces)),
    )  # fmt: skip
    return [header, *pieces]


def decode(data: bytes, path: str) -> tuple[Codec, LogState]:
    """Return codec and state of a checkpoint file.

    Raises:
        ValueError: damaged.
        UnknownFormat: another version.
    """
    if len(data) < _HEADER.size + _CRC.size:
        raise ValueError("too short")
    view = memoryview(data)
    fields = _HEADER.unpack_from(data)
    (
        magic,
        version,
        segment_size,
        identity,
        position,
        high_key,
        segments,
        definitions,
        queues,
        pending,
        prepared,
        length,
    ) = fields
    if magic != _MAGIC or crc32c(view[: -_CRC.size]) != _CRC.unpack_from(data, len(data) - _CRC.size)[0]:
        raise ValueError("checksum does not match")
    check_version(version, path)
    if length != len(data) - _HEADER.size - _CRC.size:
        raise ValueError("wrong length")
    state = LogState(position, high_key)
    offset = _HEADER.size
    for _ in range(segments):
        number, ever, volume = _SEGMENT.unpack_from(data, offset)
        state.written[number] = (ever, volume)
        offset += _SEGMENT.size
    for _ in range(definitions):
        location, name_length, value_length = _DEFINITION.unpack_from(data, offset)
        offset += _DEFINITION.size
        name = data[offset : offset + name_length]
        state.definitions[name] = data[offset + name_length : offset + name_length + value_length]
        state.definition_locations[name] = location
        offset += name_length + value_length
    for _ in range(prepared):
        location, transaction, note_length = _PREPARED.unpack_from(data, offset)
        offset += _PREPARED.size
        state.prepared[transaction] = (data[offset : offset + note_length], location)
        offset += note_length
    for _ in range(queues + pending):
        transaction, queue, rows = _QUEUE.unpack_from(data, offset)
        columns, offset = _decode_columns(view, offset + _QUEUE.size, rows)
        target = state.pending.setdefault(transaction, {}) if transaction else state.queues
        target[queue] = columns
    return Codec(identity, segment_size), state


class Checkpoints:
    """The two checkpoint files of a directory."""

    def __init__(self, vfs: Vfs, directory: str) -> None:
        self._vfs = vfs
        self._directory = directory
        #: Positions of valid files by name.
        self.positions: dict[str, int] = {}
        #: Names of damaged files.
        self.damaged: list[str] = []

    def load(self) -> Iterator[tuple[Codec, LogState]]:
        """Yield the valid checkpoints, newest first; raises UnknownFormat."""
        loaded = []
        names = set(self._vfs.listdir(self._directory))
        for name in NAMES:
            if name not in names:
                continue
            try:
                codec, state = decode(self._read(name), f"{self._directory}/{name}")
            except (ValueError, struct.error) as error:
                logger.warning("%s/%s is damaged (%s); the log is read instead", self._directory, name, error)
                self.damaged.append(name)
                continue
            self.positions[name] = state.position
            loaded.append((codec, state))
        yield from sorted(loaded, key=lambda pair: pair[1].position, reverse=True)

    def write(self, pieces: Iterable[bytes | memoryview]) -> int:
        """Write and sync the temporary file; return its size in bytes. Thread-safe. Raises OSError; the two files are
        not changed."""
        path = f"{self._directory}/{_TEMPORARY}"
        handle = self._vfs.open(path, create=True)
        try:
            offset, crc = 0, 0
            for piece in _slices(pieces):
                crc = crc32c(piece, crc)
                write_fully(self._vfs, handle, piece, offset)
                offset += len(piece)
            write_fully(self._vfs, handle, _CRC.pack(crc), offset)
            self._vfs.fdatasync(handle)
        except OSError:
            self._vfs.close(handle)
            self._vfs.unlink(path)
            raise
        self._vfs.close(handle)
        return offset + _CRC.size

    def publish(self, position: int) -> None:
        """Replace the older checkpoint with the temporary file; raises OSError."""
        name = min(NAMES, key=lambda name: self.positions.get(name, -1))
        self._vfs.rename(f"{self._directory}/{_TEMPORARY}", f"{self._directory}/{name}")
        self._vfs.fsync_directory(self._directory)
        self.positions[name] = position

    def discard(self) -> None:
        """Delete both files; raises OSError."""
        for name in set(self._vfs.listdir(self._directory)) & set(NAMES):
            self._vfs.unlink(f"{self._directory}/{name}")
        self._vfs.fsync_directory(self._directory)
        self.positions.clear()
        self.damaged.clear()

    def _read(self, name: str) -> bytes:
        handle = self._vfs.open(f"{self._directory}/{name}")
        try:
            return self._vfs.pread(handle, self._vfs.size(handle), 0)
        finally:
            self._vfs.close(handle)


def _encode_queue(transaction: int, queue: int, columns: PackedColumns) -> tuple[bytes | memoryview, ...]:
    rows = len(columns)
    if {len(columns.keys), len(columns.locations), len(columns.deadlines), 2 * len(columns.sizes)} != {8 * rows}:
        raise StoreError(f"columns of queue {queue} differ in length")
    head = _QUEUE.pack(transaction, queue, rows)
    return head, columns.keys, columns.locations, columns.deadlines, columns.sizes


def _decode_columns(view: memoryview, offset: int, rows: int) -> tuple[QueueColumns, int]:
    columns = QueueColumns()
    for column in (columns.keys, columns.locations, columns.deadlines, columns.sizes):
        end = offset + rows * column.itemsize
        column.frombytes(view[offset:end])
        offset = end
    return columns, offset


def _slices(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Regroup the bytes into writes of about 1 MiB, so that the thread yields in between."""
    gathered: list[bytes | memoryview] = []
    size = 0
    for piece in pieces:
        view = memoryview(piece)
        for start in range(0, len(view), _SLICE):
            part = view[start : start + _SLICE]
            gathered.append(part)
            size += len(part)
            if size >= _SLICE:
                yield b"".join(gathered)
                gathered.clear()
                size = 0
    if gathered:
        yield b"".join(gathered)
