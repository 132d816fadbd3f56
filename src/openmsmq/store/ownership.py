"""Who may write a store: the name of its directory has the epoch.

The log of a store `store` is in the directory of that name until it is taken over for the first time, then in
`store.epoch-1`, `store.epoch-2` and so on. A takeover renames the directory. That is atomic and has one winner, and
from then on no name that an earlier owner knows leads to a file. What such an owner may have open for writing (the end
of the log and the segments prepared behind it) is copied or dropped: nothing that it still writes is read again. So a
process that was stopped anywhere, and goes on later, changes nothing.

An owner looks whether it still is one after each sync, before anything is acknowledged. What was synced before a look
that succeeded was synced before the directory was renamed, so it is in the copy.

A directory `store.epoch-3.unfinished` belongs to somebody who is just taking over, or died while doing so; the next one
takes over from there.
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
#: Seconds for which a look is good enough where nothing depends on the disk.
FRESH: Final = 0.001
#: Seconds for which it is enough that the lock file has its name, which takes a third of the time: a store that was
#: restored may have the name of one that was removed, but not within a moment.
IDENTIFIED: Final = 1.0
#: Seconds, also those that the machine has slept.
_now: Final = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
_EPOCH: Final = ".epoch-"
_UNFINISHED: Final = ".unfinished"


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """Where the log of a store is.

    Attributes:
        path: its directory.
        epoch: how often it was taken over.
        unfinished: whether somebody has begun to take it over and not finished.
    """

    path: str
    epoch: int
    unfinished: bool


class Ownership:
    """The right to write a store, which another process may take away.

    Attributes:
        path: the directory of the log.
        epoch: how often it was taken over.
    """

    def __init__(self, vfs: Vfs, place: StoreLocation, lock: int) -> None:
        self.path: Final = place.path
        self.epoch: Final = place.epoch
        self._vfs = vfs
        self._lock = lock
        self._lock_path = f"{place.path}/{LOCK_NAME}"
        self._looked = self._identified = 0.0

    def is_lost(self) -> bool:
        """Whether another process has taken the store over. Raises OSError where that can't be found out."""
        now = _now()
        if now - self._identified > IDENTIFIED or not self._vfs.exists(self._lock_path):
            if not self._vfs.holds(self._lock, self._lock_path):
                return True
            self._identified = now
        self._looked = now
        return False

    def is_lost_lately(self) -> bool:
        """`is_lost`, but for FRESH seconds after a look that succeeded without another one."""
        return _now() - self._looked > FRESH and self.is_lost()

    def release(self) -> None:
        """Unlock."""
        self._vfs.close(self._lock)


def current(vfs: Vfs, directory: str) -> StoreLocation | None:
    """Where the log of the store `directory` is; None if there is none. Raises OSError."""
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
    """Whether a directory entry next to the store of this name has, or had, its log."""
    return _place("", name, entry) is not None


def claim(vfs: Vfs, directory: str, take_over: bool) -> Ownership:
    """Become the owner of the store `directory`, an absolute path, making that if there is none.

    Args:
        vfs: the file system.
        directory: the store.
        take_over: take it from an owner that still has it.

    Raises:
        StoreInUse: another process has it, or has just taken it.
        OSError: a file can't be read or written.
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
            taken = _take_over(vfs, directory, place)  # the process that began it is dead
            vfs.close(lock)
            return taken
        except BaseException:
            vfs.close(lock)
            raise
    except FileNotFoundError as error:
        raise StoreInUse(f"{directory}: another process has taken the store over at this moment ({error})") from error


def fenced(directory: str, epoch: int) -> StoreFenced:
    """Return the error for a process that has lost the store."""
    return StoreFenced(
        f"{directory}: another daemon has taken this store over (the epoch here was {epoch}); nothing is written or "
        "acknowledged any more. Do not start this one again while the other one runs"
    )


# ------------------------------------------------------------------------------------------------------ taking over


def _take_over(vfs: Vfs, directory: str, place: StoreLocation) -> Ownership:
    """Raise the epoch."""
    parent = os.path.dirname(directory)
    taken = StoreLocation(f"{directory}{_EPOCH}{place.epoch + 1}", place.epoch + 1, False)
    unfinished = taken.path + _UNFINISHED
    vfs.rename(place.path, unfinished)
    vfs.fsync_directory(parent)
    with suppress(FileNotFoundError):
        vfs.unlink(f"{unfinished}/{LOCK_NAME}")  # the earlier owner has locked this one
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
    """Files that a crash left half made; raises OSError."""
    for name in vfs.listdir(directory):
        stem = name.removesuffix(TEMPORARY_SUFFIX)
        if stem != name and (segment_number(stem) is not None or stem == "checkpoint"):
            vfs.unlink(f"{directory}/{name}")


def _replace_open_files(vfs: Vfs, directory: str) -> None:
    """Give every segment that an earlier owner may have open for writing a file of its own; raises OSError.

    A segment that ends with a SEAL was written whole, and is never written again. Those behind the last of these are
    copied, or dropped where there is nothing in them: from the end and one by one, so that a crash leaves no gap.
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
    """None where the header is damaged."""
    try:
        named, codec, _ = read_segment_header(data[:FRAMES_START], segment_name(number))
    except ValueError:
        return None
    return codec if named == number else None


def _is_sealed(data: bytes, number: int) -> bool:
    """Whether valid frames follow one another from the beginning to a SEAL."""
    codec = _codec(data, number)
    if codec is None:
        return False
    return any(fields[8] == SEAL for fields in codec.walk(data, FRAMES_START, number * codec.segment_size))


def _is_unused(data: bytes, number: int) -> bool:
    """Whether a segment was prepared and has no frame. A damaged one is kept for analysis."""
    codec = _codec(data, number)
    if codec is None or len(data) < codec.segment_size:
        return False
    return next(iter(codec.search(data, FRAMES_START, number * codec.segment_size)), None) is None


def _copy(vfs: Vfs, path: str, data: bytes) -> None:
    """Put a new file with the same content in the place of the one that others may have open; raises OSError."""
    temporary = path + TEMPORARY_SUFFIX
    handle = vfs.open(temporary, create=True)
    try:
        write_fully(vfs, handle, data, 0)
        vfs.fdatasync(handle)
    finally:
        vfs.close(handle)
    vfs.rename(temporary, path)


def _place(parent: str, name: str, entry: str) -> StoreLocation | None:
    """Parse a directory entry next to the store."""
    path = f"{parent.rstrip('/')}/{entry}"
    if entry == name:
        return StoreLocation(path, 0, False)
    rest = entry.removeprefix(name + _EPOCH)
    digits = rest.removesuffix(_UNFINISHED)
    if rest == entry or not digits.isdecimal() or not digits.isascii():
        return None
    return StoreLocation(path, int(digits), digits != rest)
