"""The daemon's end of the line to its Flight process: frames come in without being copied, replies go out in order."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any, cast

from openmsmq.bulk.framing import HEADER

Receive = Callable[["Channel", int, dict[str, Any], bytearray], None]


class Channel(asyncio.BufferedProtocol):
    """Each part of a frame is received where it stays: the header, its JSON, its bytes."""

    def __init__(self, receive: Receive) -> None:
        """`receive` is called with the channel, and number, values and bytes of each frame."""
        self._receive = receive
        self._transport: asyncio.Transport | None = None
        self._parts: list[bytearray] = [bytearray(HEADER.size)]
        self._at = 0  # bytes of the last part that are there
        self._writable = asyncio.Event()
        self.closed = asyncio.Event()

    @classmethod
    async def open(cls, connection: socket.socket, receive: Receive) -> Channel:
        """A channel over a connected socket, which is closed with it."""
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_connection(lambda: cls(receive), sock=connection)
        return channel

    async def send(self, data: bytes) -> None:
        """Returns when it is written, or nearly so; at once when the other side has gone."""
        if self._transport is not None and not self.closed.is_set():
            self._transport.write(data)
            await self._writable.wait()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # -- what the loop calls ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # what uvloop has is not derived from it
        self._writable.set()

    def connection_lost(self, exception: Exception | None) -> None:
        self.closed.set()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._parts[-1])[self._at :]

    def buffer_updated(self, count: int) -> None:
        self._at += count
        while self._at == len(self._parts[-1]):
            self._at = 0
            if len(self._parts) < 3:
                self._parts.append(bytearray(HEADER.unpack(self._parts[0])[len(self._parts)]))
                continue
            head, text, data = self._parts
            self._parts = [bytearray(HEADER.size)]
            self._receive(self, HEADER.unpack(head)[0], json.loads(text), data)
