"""Ownership of a store: the name of its directory contains the epoch.

The log of a store `store` is in the directory of that name until the first take-over, then in `store.epoch-1`,
`store.epoch-2` and so on. A take-over renames the directory. That is atomic and has one winner; from then on, the paths
of earlier owners are invalid. Files that an earlier owner may have open for writing (the end of the log and the
prepared segments after it) are copied or deleted, so that its later writes are never read. So a process that was
suspended at any point and continues later changes nothing.

An owner checks its ownership after each sync, before anything is acknowledged. Data synced before a successful check
was synced before the directory was renamed, so it is in the copy.

A directory `store.epoch-3.unfinished` belongs to a process that is taking over the store, or crashed while doing so;
the next owner continues from there.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from openmsmq.store.errors import StoreFenced, StoreInUse
from openmsmq.store.frames import FRAMES_START, SEAL, Codec, read_segment_header
from openmsmq.store.segments import TEMPORARY_SUFFIX, segment_name, segment_number
from openmsmq.store.vfs import Vfs, write_fully

LOCK_NAME: Final = "lock"
#: Seconds for which a check is valid when no write depends on it.
FRESH: Final = 0.001
#: Seconds for which it is sufficient to check that the lock file exists, not its identity; this takes 1/3 of the time.
#: A restored store may have the path of a removed one, but not within this time.
IDENTIFIED: Final = 1.0
#: Seconds, including the time that the machine was suspended.
_now: Final = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
_EPOCH: Final = ".epoch-"
_UNFINISHED: Final = ".unfinished"


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """Location of the log of a store.

    Attributes:
        path: its directory.
        epoch: number of take-overs.
        unfinished: whether a take-over has begun but not finished.
    """

    path: str
    epoch: int
    unfinished: bool


class Ownership:
    """The right to write a store, which another process may take away.

    Attributes:
        path: the directory of the log.
        epoch: number of take-overs.
    """

    def __init__(self, vfs: Vfs, place: StoreLocation, lock: int) -> None:
        self.path: Final = place.path
        self.epoch: Final = place.epoch
        self._vfs = vfs
        self._lock = lock
        self._lock_path = f"{place.path}/{LOCK_NAME}"
        self._looked = self._identified = 0.0

    def is_lost(self) -> bool:
        """Whether another process has taken over the store. Raises OSError if that cannot be checked."""
        now = _now()
        if now - self._identified > IDENTIFIED or not self._vfs.exists(self._lock_path):
            if not self._vfs.holds(self._lock, self._lock_path):
                return True
            self._identified = now
        self._looked = now
        return False

    def is_lost_lately(self) -> bool:
        """Like `is_lost`, but a successful check is valid for FRESH seconds."""
        return _now() - self._looked > FRESH and self.is_lost()

    def release(self) -> None:
        """Release the lock."""
        self._vfs.close(self._lock)


def current(vfs: Vfs, directory: str) -> StoreLocation | None:
    """Return the location of the log of the store `directory`; None if there is none. Raises OSError."""
    parent, name = os.path.split(directory)
    try:
        entries = vfs.listdir(parent)
    except FileNotFoundError:
        return None
    places = [place for entry in entries if (place := _place(parent, name, entry)) is not None]
    return max(places, key=lambda place: place.epoch, default=None)


def log_directory(vfs: Vfs, directory: str) -> str:
    """Return the directory with the log of the store `directory`, for a reader; it may not exist."""
    place = current(vfs, os.path.abspath(directory))
    return directory if place is None else place.path


def is_of_store(entry: str, name: str) -> bool:
    """Whether a directory entry is a current or former log directory of the store `name`."""
    return _place("", name, entry) is not None


def claim(vfs: Vfs, directory: str, take_over: bool) -> Ownership:
    """Become the owner of the store `directory`, an absolute path, which is created if needed.

    Args:
        vfs: the file system.
        directory: the store.
        take_over: take over the store even if it has an owner.

    Raises:
        StoreInUse: another process owns it, or has just taken it over.
        OSError: a file cannot be read or written.
    """
    place = current(vfs, directory)
    if place is None:
        vfs.make_directory(directory)
        place = StoreLocation(directory, 0, False)
    try:
        if take_over:
            return _take_over(vfs, directory, place)
        lock = vfs.lock(f"{place.path}/{LOCK_NAME}")
        try:
            if current(vfs, directory) not in (place, None):
                raise StoreInUse(f"{directory}: another process has taken the store over at this moment")
            if not place.unfinished:
                return Ownership(vfs, place, lock)
            taken = _take_over(vfs, directory, place)  # its process has crashed
            vfs.close(lock)
            return taken
        except BaseException:
            vfs.close(lock)
            raise
    except FileNotFoundError as error:
        raise StoreInUse(f"{directory}: another process has taken the store over at this moment ({error})") from error


def fenced(directory: str, epoch: int) -> StoreFenced:
    """Return the error for a process that has lost ownership."""
    return StoreFenced(
        f"{directory}: another daemon has taken this store over (the epoch here was {epoch}); nothing is written or "
        "acknowledged any more. Do not start this one again while the other one runs"
    )


# ------------------------------------------------------------------------------------------------------ taking over


def _take_over(vfs: Vfs, directory: str, place: StoreLocation) -> Ownership:
    """Take over the store: increment the epoch."""
    parent = os.path.dirname(directory)
    taken = StoreLocation(f"{directory}{_EPOCH}{place.epoch + 1}", place.epoch + 1, False)
    unfinished = taken.path + _UNFINISHED
    vfs.rename(place.path, unfinished)
    vfs.fsync_directory(parent)
    with suppress(FileNotFoundError):
        vfs.unlink(f"{unfinished}/{LOCK_NAME}")  # locked by the earlier owner
    lock = vfs.lock(f"{unfinished}/{LOCK_NAME}")
    try:
        remove_temporary_files(vfs, unfinished)
        _replace_open_files(vfs, unfinished)
        vfs.rename(unfinished, taken.path)
        vfs.fsync_directory(parent)
    except BaseException:
        vfs.close(lock)
        raise
    return Ownership(vfs, taken, lock)


def remove_temporary_files(vfs: Vfs, directory: str) -> None:
    """Delete incomplete files left by a crash; raises OSError."""
    for name in vfs.listdir(directory):
        stem = name.removesuffix(TEMPORARY_SUFFIX)
        if stem != name and (segment_number(stem) is not None or stem == "checkpoint"):
            vfs.unlink(f"{directory}/{name}")


def _replace_open_files(vfs: Vfs, directory: str) -> None:
    """Replace the files of all segments that an earlier owner may have open for writing; raises OSError.

    A segment that ends with a SEAL is complete and is never written again. Those after the last sealed one are copied,
    or deleted if they are empty: from the end and one by one, so that a crash leaves no gap.
    """
    numbers = sorted(number for name in vfs.listdir(directory) if (number := segment_number(name)) is not None)
    images: dict[int, bytes] = {}
    for number in reversed(numbers):
        data = _read(vfs, f"{directory}/{segment_name(number)}")
        if _is_sealed(data, number):
            break
        images[number] = data
    while len(images) > 1 and _is_unused(images[last := max(images)], last):
        del images[last]
        vfs.unlink(f"{directory}/{segment_name(last)}")
        vfs.fsync_directory(directory)
    for number, data in images.items():
        _copy(vfs, f"{directory}/{segment_name(number)}", data)
    vfs.fsync_directory(directory)


def _read(vfs: Vfs, path: str) -> bytes:
    handle = vfs.open(path)
    try:
        return vfs.pread(handle, vfs.size(handle), 0)
    finally:
        vfs.close(handle)


def _codec(data: bytes, number: int) -> Codec | None:
    """Return the codec in a segment header; None if the header is damaged."""
    try:
        named, codec, _ = read_segment_header(data[:FRAMES_START], segment_name(number))
    except ValueError:
        return None
    return codec if named == number else None


def _is_sealed(data: bytes, number: int) -> bool:
    """Whether there are valid frames without a gap from the beginning to a SEAL."""
    codec = _codec(data, number)
    if codec is None:
        return False
    return any(fields[8] == SEAL for fields in codec.walk(data, FRAMES_START, number * codec.segment_size))


def _is_unused(data: bytes, number: int) -> bool:
    """Whether a segment was prepared and has no frames. False for a damaged one, which is kept for analysis."""
    codec = _codec(data, number)
    if codec is None or len(data) < codec.segment_size:
        return False
    return next(iter(codec.search(data, FRAMES_START, number * codec.segment_size)), None) is None


def _copy(vfs: Vfs, path: str, data: bytes) -> None:
    """Replace a file that others may have open with a new file of the same content; raises OSError."""
    temporary = path + TEMPORARY_SUFFIX
    handle = vfs.open(temporary, create=True)
    try:
        write_fully(vfs, handle, data, 0)
        vfs.fdatasync(handle)
    finally:
        vfs.close(handle)
    vfs.rename(temporary, path)


def _place(parent: str, name: str, entry: str) -> StoreLocation | None:
    """Parse the name of a directory next to the store; None if it is not one of the store."""
    path = f"{parent.rstrip('/')}/{entry}"
    if entry == name:
        return StoreLocation(path, 0, False)
    rest = entry.removeprefix(name + _EPOCH)
    digits = rest.removesuffix(_UNFINISHED)
    if rest == entry or not digits.isdecimal() or not digits.isascii():
        return None
    return StoreLocation(path, int(digits), digits != rest)
