"""A peer on the socket between the daemon and a child process; it plays a compromised child process."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from openmsmq.processes.framing import HEADER, frame


class FramePeer:
    """Sends frames or arbitrary bytes."""

    async def start(self, serve: Callable[[socket.socket], Coroutine[Any, Any, None]]) -> None:
        ours, theirs = socket.socketpair()
        self._serving = asyncio.create_task(serve(ours))
        self._reader, self._writer = await asyncio.open_connection(sock=theirs)

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await asyncio.wait_for(self._serving, 10)

    async def raw(self, data: bytes) -> bytes:
        """Send bytes; return the reply, empty when the connection is closed."""
        self._writer.write(data)
        return await asyncio.wait_for(self._reader.read(HEADER.size), 10)

    async def ask(self, values: Any, data: bytes = b"") -> dict[str, Any]:
        """Send a request; return the reply."""
        return (await self.exchange(values, data))[0]

    async def exchange(self, values: Any, data: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """Send a request; return the reply and its bytes."""
        self._writer.write(frame(7, values, data))
        number, text, length = HEADER.unpack(await asyncio.wait_for(self._reader.readexactly(HEADER.size), 10))
        answer: dict[str, Any] = json.loads(await self._reader.readexactly(text))
        assert number == 7
        return answer, await self._reader.readexactly(length)
