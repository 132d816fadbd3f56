"""Check whether a port accepts connections."""

from __future__ import annotations

import socket

_SECONDS = 2.0  # seconds


def listens(host: str, port: int) -> bool:
    """Whether the port accepts a connection."""
    try:
        socket.create_connection((host, port), _SECONDS).close()
    except OSError:
        return False
    return True
