"""A transport for connections of the RPC server whose sockets C code reads and writes."""

from __future__ import annotations

import socket
from typing import Any


class PairedTransport:
    """A transport over a pair of sockets; the client has `far`. `later` has the writes that a real transport would
    send later."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        for end in (self.near, self.far):
            end.setblocking(False)
        self.later: list[bytes] = []
        self.closed = False

    def get_extra_info(self, name: str) -> Any:
        return {"socket": self.near, "peername": ("192.0.2.1", 5), "sockname": ("192.0.2.2", 2103)}[name]

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.later))

    def write(self, data: bytes) -> None:
        self.later.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    close = abort

    def pause_reading(self) -> None:
        """Do nothing: the client sends only what the poller or the protocol then reads."""

    resume_reading = pause_reading
