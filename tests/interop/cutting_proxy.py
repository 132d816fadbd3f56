"""A TCP proxy that cuts connections after a number of bytes, within requests and replies, or on request."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable

_CHUNK = 1 << 16
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST


class CuttingProxy:
    """Forwards to `target`. `budget` returns for each new connection the number of bytes, in both directions
    together, after which it is cut, or None for never; `cuts` counts the connections that were cut."""

    def __init__(self, target: int, budget: Callable[[], int | None]) -> None:
        self.target, self.budget = target, budget
        self.cuts = 0
        self._links: set[_Link] = set()

    async def __aenter__(self) -> CuttingProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def cut(self) -> None:
        """Cut all connections now."""
        for link in tuple(self._links):
            link.cut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(self, self.budget(), writer, upstream[1])
        self._links.add(link)
        try:
            await asyncio.gather(link.pump(reader, upstream[1], False), link.pump(upstream[0], writer, True))
        finally:
            self._links.discard(link)
            for end in (writer, upstream[1]):
                end.close()

    def count(self) -> None:
        self.cuts += 1


class _Link:
    def __init__(
        self, proxy: CuttingProxy, budget: int | None, client: asyncio.StreamWriter, server: asyncio.StreamWriter
    ) -> None:
        self.proxy, self.left = proxy, budget
        self._ends = (client, server)
        self._over = False

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, from_server: bool) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK):
                if self._over:
                    return
                if self.left is not None and len(data) >= self.left:
                    writer.write(data[: self.left])
                    self.cut()
                    return
                if self.left is not None:
                    self.left -= len(data)
                writer.write(data)
                await writer.drain()
        if from_server:
            self.cut()  # the client was killed
        self._over = True
        writer.close()

    def cut(self) -> None:
        """Cut a connection; the peers receive an end (FIN) or a reset (RST)."""
        if self._over:
            return
        self._over = True
        self.proxy.count()
        for end in self._ends:
            if self.proxy.cuts % 2 and not end.is_closing():
                sock: socket.socket = end.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            end.transport.abort()
