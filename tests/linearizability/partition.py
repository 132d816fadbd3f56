"""A TCP proxy in a thread of its own that stops forwarding, or breaks its connections, when it is told to."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import suppress

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST


class Partition:
    """Forwards to port `target`; new connections lead to the target of that moment."""

    def __init__(self, target: int) -> None:
        self.target = target
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Partition:
        self._thread.start()
        self._run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)  # type: ignore[arg-type]

    async def _open(self) -> None:
        self._gate = asyncio.Event()
        self._gate.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        self._cut()
        self._gate.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            others, other = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, other}
        pumps = [asyncio.ensure_future(self._pump(*pair)) for pair in ((reader, other), (others, writer))]
        with suppress(asyncio.CancelledError):
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        for end in (writer, other):
            self._writers.discard(end)
            end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                await self._gate.wait()
                writer.write(data)
                await writer.drain()

    def pause(self) -> None:
        """Forward nothing, in both directions, until `resume`."""
        self._loop.call_soon_threadsafe(self._gate.clear)

    def resume(self) -> None:
        self._loop.call_soon_threadsafe(self._gate.set)

    def cut(self) -> None:
        """Reset all connections; what was under way is lost."""
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for writer in tuple(self._writers):
            sock: socket.socket = writer.get_extra_info("socket")
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
