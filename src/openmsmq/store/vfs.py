"""Interface to the file operations of the store.

The store reads and writes only through this protocol, so that tests can make the Nth call fail and compute the possible
states after a crash.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from typing import Protocol

from openmsmq.store.errors import StoreInUse


class Vfs(Protocol):
    """File operations. Paths are absolute; handles are small integers. Every method raises OSError on failure."""

    def make_directory(self, path: str) -> None:
        """Create the directory (and its parents) if it is missing."""

    def listdir(self, path: str) -> list[str]:
        """Return the names in the directory, in any order."""

    def open(self, path: str, create: bool = False) -> int:
        """Open for reading and writing; with `create`, create or truncate the file. Returns a handle."""

    def close(self, handle: int) -> None: ...

    def size(self, handle: int) -> int:
        """Return the length of the file in bytes."""

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        """Return `length` bytes from `offset`, fewer only at the end of the file."""

    def pread_into(self, handle: int, buffer: bytearray, offset: int) -> int:
        """Fill the buffer from `offset`; return the number of bytes read."""

    def pwrite(self, handle: int, data: bytes, offset: int) -> int:
        """Write; return the number of bytes written, which may be less than requested."""

    def fdatasync(self, handle: int) -> None:
        """Make the content and the length of the file durable."""

    def fsync_directory(self, path: str) -> None:
        """Make the names in the directory durable."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file, which replaces `new`, or a directory."""

    def unlink(self, path: str) -> None: ...

    def lock(self, path: str) -> int:
        """Lock the file exclusively, without waiting; raises StoreInUse if another process has locked it. Returns a
        handle."""

    def exists(self, path: str) -> bool:
        """Whether the file exists; False also if that cannot be determined."""

    def holds(self, lock: int, path: str) -> bool:
        """Whether `path` is still the locked file."""


class OsVfs:
    """The operating system's files."""

    def __init__(self) -> None:
        self._locked: dict[int, tuple[int, int]] = {}  # handle of a lock -> device and inode of the file

    def make_directory(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)

    def listdir(self, path: str) -> list[str]:
        return os.listdir(path)

    def open(self, path: str, create: bool = False) -> int:
        flags = os.O_RDWR | (os.O_CREAT | os.O_TRUNC if create else 0)
        handle = os.open(path, flags, 0o600)
        if create:
            _give_to_owner(handle, path)
        return handle

    def close(self, handle: int) -> None:
        os.close(handle)

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        data = os.pread(handle, length, offset)
        if len(data) == length or not data:
            return data
        # Linux returns at most 2 GiB per call and may be interrupted; repeat until the end of the file.
        pieces = [data]
        got = len(data)
        while got < length:
            data = os.pread(handle, length - got, offset + got)
            if not data:
                break
            pieces.append(data)
            got += len(data)
        return b"".join(pieces)

    def pread_into(self, handle: int, buffer: bytearray, offset: int) -> int:
        with memoryview(buffer) as view:
            got = 0
            while got < len(view):
                more = os.preadv(handle, [view[got:]], offset + got)
                if not more:
                    break
                got += more
            return got

    def pwrite(self, handle: int, data: bytes, offset: int) -> int:
        return os.pwrite(handle, data, offset)

    def fdatasync(self, handle: int) -> None:
        os.fdatasync(handle)

    def fsync_directory(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def lock(self, path: str) -> int:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise StoreInUse(f"{path}: another process uses this store") from None
        except OSError:
            os.close(handle)
            raise
        _give_to_owner(handle, path)
        status = os.fstat(handle)
        self._locked[handle] = status.st_dev, status.st_ino
        return handle

    def exists(self, path: str) -> bool:
        return os.access(path, os.F_OK)

    def holds(self, lock: int, path: str) -> bool:
        try:
            found = os.stat(path)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ESTALE):
                return False
            raise
        return (found.st_dev, found.st_ino) == self._locked[lock]


def _give_to_owner(handle: int, path: str) -> None:
    """If root has created a file, give it to the owner of its directory: root may repair the store of another user."""
    if os.geteuid() != 0:
        return
    owner = os.stat(os.path.dirname(path) or ".")
    if owner.st_uid != 0:
        with suppress(OSError):  # the user is unknown in this namespace
            os.fchown(handle, owner.st_uid, owner.st_gid)


def write_fully(vfs: Vfs, handle: int, data: bytes, offset: int) -> None:
    """Write all of `data`, continuing after short writes; raises OSError."""
    written = vfs.pwrite(handle, data, offset)
    while written < len(data):
        more = vfs.pwrite(handle, data[written:], offset + written)
        if more <= 0:
            raise OSError(f"write of {len(data) - written} bytes at {offset + written} made no progress")
        written += more
