"""A TCP proxy in front of the message port of queue managers that passes the bytes to the independent packet
checker."""

from __future__ import annotations

import asyncio
import contextlib

from interop.loop_thread import LoopThread
from packets.conversation import Conversation, Side, Watch

_CHUNK = 1 << 16


class WatchingProxy:
    """Listens at `port` of each host and forwards to the same host at `target`, from the caller's address.

    Bytes are checked before they are forwarded, so that the checker sees each reply after the packet that it
    answers.
    """

    def __init__(self, hosts: list[str], port: int, target: int, watch: Watch) -> None:
        self._hosts, self._port, self._target, self._watch = hosts, port, target, watch
        self._thread = LoopThread()
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> WatchingProxy:
        for host in self._hosts:
            self._thread.run(self._listen(host))
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.run(self._end())
        self._thread.close()

    async def _listen(self, host: str) -> asyncio.Server:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await self._carry(host, reader, writer)
            finally:
                self._tasks.discard(task)

        return await asyncio.start_server(accept, host, self._port)

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _carry(self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller = writer.get_extra_info("peername")[0]
        with contextlib.suppress(OSError):
            onward = await asyncio.open_connection(host, self._target, local_addr=(caller, 0))
            conversation = self._watch.connection()
            try:
                await asyncio.gather(
                    self._pump(conversation, Side.INITIATOR, reader, onward[1]),
                    self._pump(conversation, Side.ACCEPTOR, onward[0], writer),
                )
            finally:
                for end in (writer, onward[1]):
                    end.close()

    async def _pump(
        self, conversation: Conversation, side: Side, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK):
                self._watch.feed(conversation, side, data)
                writer.write(data)
                await writer.drain()
        writer.close()
