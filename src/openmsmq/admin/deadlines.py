"""Sockets with one deadline for a whole exchange. The timeout of a socket limits each read, so a peer that sends single
bytes could hold it forever. Deadlines are times of `time.monotonic`."""

from __future__ import annotations

import io
import socket
import sys
import time
from typing import Any


def seconds_left(deadline: float) -> float:
    """Return the time until a deadline, in seconds. Raises TimeoutError if it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def connect_by(host: str, port: int, deadline: float) -> socket.socket:
    """Connect to one of the addresses of a host. Raises OSError, TimeoutError."""
    failure = OSError(f"{host} has no address")
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # raised instead of an OSError for a part without characters, or with more than 63
        raise OSError(f"{host} is not a valid name of a host") from None
    for family, kind, protocol, _, address in addresses:
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(seconds_left(deadline))
            connection.connect(address)
        except OSError as error:
            connection.close()
            failure = error
        else:
            return connection
    raise failure


class TimedSocket:
    """A socket for `http.client` and `smtplib` with one deadline for all reads together, and a limit in bytes."""

    def __init__(self, sock: socket.socket, deadline: float, most: int = sys.maxsize) -> None:
        self._sock, self._deadline, self._most = sock, deadline, most

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReader(self._sock, self._deadline, self._most))


class _TimedReader(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: float, most: int) -> None:
        self._sock, self._deadline, self._left, self._most = sock, deadline, most, most
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(seconds_left(self._deadline))
        count = self._raw.readinto(buffer)
        self._left -= count or 0
        if self._left < 0:
            raise OSError(f"the peer sent more than {self._most:,} bytes")
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()
