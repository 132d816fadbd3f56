"""Daemon end of the channel to a child process: receives frames without copying, sends replies in order."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Callable
from typing import Any, cast

from openmsmq.processes.framing import HEADER, MAXIMUM_BYTES, MAXIMUM_JSON

logger = logging.getLogger(__name__)

Receive = Callable[["RequestChannel", int, Any, bytearray], None]
_LIMITS = {1: MAXIMUM_JSON, 2: MAXIMUM_BYTES}  # by index of the part in its frame


class RequestChannel(asyncio.BufferedProtocol):
    """Receives each part of a frame (header, JSON, bytes) directly into its final buffer."""

    def __init__(self, receive: Receive, name: str) -> None:
        """`receive` is called with the channel, and number, values and bytes of each frame; `name` is for the log."""
        self._name = name
        self._receive = receive
        self._transport: asyncio.Transport | None = None
        self._parts: list[bytearray] = [bytearray(HEADER.size)]
        self._at = 0  # received bytes of the last part
        self._writable = asyncio.Event()
        self.closed = asyncio.Event()

    @classmethod
    async def open(cls, connection: socket.socket, receive: Receive, name: str) -> RequestChannel:
        """Return a channel over a connected socket, which is closed with the channel."""
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_connection(lambda: cls(receive, name), sock=connection)
        return channel

    async def send(self, data: bytes) -> None:
        """Send data; return when it is written to the transport and its buffer is below the limit, or the channel is
        closed."""
        if self._transport is not None and not self.closed.is_set():
            self._transport.write(data)
            await self._writable.wait()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # -- callbacks of the event loop -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # the class of uvloop is not derived from it
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
                length = HEADER.unpack(self._parts[0])[len(self._parts)]
                if length > _LIMITS[len(self._parts)]:
                    self._give_up(f"a frame with a part of {length} bytes")
                    return
                self._parts.append(bytearray(length))
                continue
            head, text, data = self._parts
            self._parts = [bytearray(HEADER.size)]
            try:
                values = json.loads(text)
            except (ValueError, RecursionError) as error:
                self._give_up(f"a frame that is not JSON ({error})")
                return
            self._receive(self, HEADER.unpack(head)[0], values, data)

    def _give_up(self, what: str) -> None:
        """Close the connection, because the rest of the stream cannot be parsed. The child process then ends and is
        restarted."""
        logger.error("the %s process sent %s; closing the connection to it", self._name, what)
        self._parts = [bytearray(HEADER.size)]
        if self._transport is not None:
            self._transport.abort()
