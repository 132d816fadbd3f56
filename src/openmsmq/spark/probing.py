"""Whether anything answers at a port."""

from __future__ import annotations

import socket

_SECONDS = 2.0  # to find out


def listens(host: str, port: int) -> bool:
    """Whether a connection is accepted there."""
    try:
        socket.create_connection((host, port), _SECONDS).close()
    except OSError:
        return False
    return True
