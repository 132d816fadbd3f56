"""Unix sockets in directories with long paths: the name of a socket is limited to 107 bytes (unix(7))."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_LONGEST: Final = 107


@contextmanager
def _reachable(path: Path) -> Iterator[str]:
    """Yield a name of at most 107 bytes for a socket: a long path is replaced by one through a descriptor of its
    directory."""
    if len(os.fsencode(path)) <= _LONGEST:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def bind_unix(path: Path) -> socket.socket:
    """Return a socket bound to a path that only this user may connect to. A socket left by a crashed daemon is
    replaced. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _reachable(path) as name:
            path.unlink(missing_ok=True)
            mask = os.umask(0o177)
            try:
                listener.bind(name)
            finally:
                os.umask(mask)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def connect_unix(path: str, timeout: float | None) -> socket.socket:
    """Return a socket connected to the socket at a path. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        with _reachable(Path(path)) as name:
            sock.connect(name)
    except OSError:
        sock.close()
        raise
    return sock
