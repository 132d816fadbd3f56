"""Copy a log consistently, even while another process writes it.

The copy is a prefix of the log: all valid frames from its old end up to some position. It contains everything that was
synced before the copy began. Three kinds of concurrent changes are handled as follows:

- The end grows. The copy of the last segment contains the valid frames that a single scan found, followed by zeros.
  Otherwise it could contain a later write without the one before it, which looks like damage.
- Segments at the old end are recycled: the file is renamed before its content changes (`segments.SegmentPool`). A file
  that still has its name after it was read was read completely. Otherwise it is no longer needed: the frames that made
  it unneeded are durable, and are further ahead in the log, where they will be read. It is omitted, with all segments
  before it.
- Checkpoints change. They only save time, so a copy has none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from openmsmq.store.errors import DamagedStore, NoStore
from openmsmq.store.frames import FRAMES_START, SEAL, Codec, frame_size, read_segment_header
from openmsmq.store.segments import segment_name, segment_number


@dataclass(frozen=True, slots=True)
class Copied:
    """Result of a copy.

    Attributes:
        segments: the numbers of its segments; each is a file of the same name as in the original.
        end: absolute position after the last frame.
        length: bytes of headers and frames, which is the disk space of the files.
    """

    segments: tuple[int, ...]
    end: int
    length: int


def copy_log(source: Path, target: Path, *, pause: Callable[[], object] = lambda: None) -> Copied:
    """Copy the log of a store into an empty directory, durably.

    Args:
        source: the directory of the store; another process may have it open.
        target: a directory that has no segments yet.
        pause: called after each segment, so that the caller can do other work.

    Raises:
        NoStore: there is no segment.
        DamagedStore: valid frames follow an invalid one.
        UnknownFormat: written by another version.
        OSError: a file cannot be read or written.
    """
    done: list[int] = []
    length = 0
    number = _oldest(source, 0)
    while True:
        part = _part(source, number)
        if part is None:  # recycled, so all segments before it are unneeded
            _drop(target, done)
            length = 0
            number = _oldest(source, number + 1)
            continue
        _write(target / segment_name(number), part.data, part.codec.segment_size)
        done.append(number)
        length += len(part.data)
        if not part.sealed:
            break
        pause()
        number += 1
    _sync_directory(target)
    return Copied(tuple(done), number * part.codec.segment_size + len(part.data), length)


class _Part(NamedTuple):
    """The header and all valid frames of a segment."""

    codec: Codec
    data: bytes
    sealed: bool


def _part(source: Path, number: int) -> _Part | None:
    """Scan a segment; None if it is gone. If valid frames follow its end, the end may have grown while it was read:
    reading it a second time distinguishes that from damage."""
    end = 0
    while True:
        image = _read(source / segment_name(number))
        if image is None:
            return None
        codec, data = image
        before, (end, sealed) = end, _end_of(codec, data, number)
        if sealed or not (_goes_on(codec, data, end, number) or _is_later(source, number)):
            return _Part(codec, data[:end], sealed)
        if end == before:
            raise DamagedStore(
                str(source / segment_name(number)), end, "invalid record, and records behind it are valid"
            )


def _goes_on(codec: Codec, data: bytes, end: int, number: int) -> bool:
    """Whether there is a valid frame after the end."""
    return next(iter(codec.search(data, end, number * codec.segment_size)), None) is not None


def _oldest(source: Path, least: int) -> int:
    """Return the lowest segment number that is at least `least`. Raises NoStore if there is none."""
    numbers = [n for name in os.listdir(source) if (n := segment_number(name)) is not None and n >= least]
    if not numbers:
        raise NoStore(f"{source} holds no segments of a store")
    return min(numbers)


def _is_later(source: Path, number: int) -> bool:
    """Whether the next segment has frames; one that is only prepared has none."""
    image = _read(source / segment_name(number + 1))
    return image is not None and _end_of(*image, number + 1)[0] > FRAMES_START


def _read(path: Path) -> tuple[Codec, bytes] | None:
    """Read a segment; None if its file does not exist or was renamed meanwhile."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as file:
        data = file.read()
        try:
            kept = os.path.samestat(os.fstat(file.fileno()), os.stat(path))
        except FileNotFoundError:
            kept = False
    if not kept:
        return None
    try:
        _, codec, _ = read_segment_header(data[:FRAMES_START], str(path))
    except ValueError as error:
        raise DamagedStore(str(path), 0, str(error)) from error
    return codec, data


def _end_of(codec: Codec, data: bytes, number: int) -> tuple[int, bool]:
    """Return where the valid frames of a segment end, and whether the last one is a SEAL."""
    base = number * codec.segment_size
    end, sealed = FRAMES_START, False
    for fields in codec.walk(data, FRAMES_START, base):
        end = fields[2] - base + frame_size(fields[1])
        sealed = fields[8] == SEAL
    return end, sealed


def _write(path: Path, data: bytes, size: int) -> None:
    """Write and sync a segment of full length: `data`, then a hole."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with naming(path), os.fdopen(handle, "wb") as file:
        file.write(data)
        file.truncate(size)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the path to an OSError that names no file, as that of a write to a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def _drop(target: Path, numbers: list[int]) -> None:
    for number in numbers:
        (target / segment_name(number)).unlink()
    numbers.clear()


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
