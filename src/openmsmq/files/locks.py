"""Locks between processes that write the same files: the daemon and commands that work on its data directory."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PATIENCE: Final = 0.5  # seconds


def open_own(path: Path) -> int:
    """Open a file for appending; create it if missing. Returns the descriptor. A new file gets the owner of the
    directory, because root may write for a daemon that runs as another user. Raises OSError."""
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    if os.geteuid() == 0 and os.fstat(handle).st_size == 0:
        owner = path.parent.stat()
        os.fchown(handle, owner.st_uid, owner.st_gid)
    return handle


@contextmanager
def locked(path: Path, patience: float = PATIENCE) -> Iterator[None]:
    """Hold an exclusive lock on a file. Raises OSError if another process keeps the lock for `patience` seconds: the
    daemon must not wait for a stopped process."""
    handle = open_own(path)
    try:
        give_up = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise OSError(f"{path}: another process has kept the lock for {patience:g} seconds") from None
                time.sleep(0.005)
        yield
    finally:
        os.close(handle)
