"""HTTP connections with limits on their number, the time for request headers, and the time without reading."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, ClassVar, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from openmsmq.console.limits import ANSWER_BYTES, ANSWER_SECONDS, CONNECTIONS, CONNECTIONS_PER_PEER, HEADERS_SECONDS
from openmsmq.model.once_a_minute import OnceAMinute

logger = logging.getLogger(__name__)

SWEEP: float = 1.0  # seconds between two checks of all connections
PAUSE: float = 1.0  # seconds after a failed accept, for example without file descriptors


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol with time limits: by default it waits forever for slow headers and for answers that are not
    read."""

    open_connections: ClassVar[set[BoundedProtocol]] = set()
    peers: ClassVar[Counter[str]] = Counter()
    _peer = ""
    _since = 0.0  # start of the wait for headers, which includes the TLS handshake
    _stuck: float | None = None  # since when the peer has read less than ANSWER_BYTES
    _unread = 0  # bytes of the response that were unread at `_stuck`

    def admit(self, peer: str) -> bool:
        """Count a connection from the address `peer`. Return False if too many are open."""
        if len(self.open_connections) >= CONNECTIONS or self.peers[peer] >= CONNECTIONS_PER_PEER:
            return False
        self.open_connections.add(self)
        self.peers[peer] += 1
        self._peer, self._since = peer, self.loop.time()
        return True

    def release(self) -> None:
        """Stop counting the connection."""
        self.open_connections.discard(self)
        self.peers[self._peer] -= 1
        if not self.peers[self._peer]:
            del self.peers[self._peer]

    @property
    def is_made(self) -> bool:
        """Whether the TLS handshake, if any, is complete."""
        return self.flow is not None

    def connection_lost(self, exc: Exception | None) -> None:
        self.release()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        self._stuck = None  # the peer reads, even if the buffer is full again at the next check
        super().resume_writing()

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()

    def check_time(self, now: float) -> None:
        """Abort the connection if the peer has been too slow to send headers or to read the response."""
        busy = self.cycle is not None and not self.cycle.response_complete
        if not busy and now - self._since > HEADERS_SECONDS:
            self.transport.abort()
        elif self.flow is not None and self.flow.write_paused:
            unread = self.transport.get_write_buffer_size()
            if self._stuck is None or unread <= self._unread - ANSWER_BYTES:
                self._stuck, self._unread = now, unread
            elif now - self._stuck > ANSWER_SECONDS:
                self.transport.abort()
        else:
            self._stuck = None


class BoundedServer(uvicorn.Server):
    """uvicorn's server, but it accepts connections itself, so that the limits also apply before the TLS handshake.
    asyncio calls a protocol only after the handshake, waits 60 s for it, and logs each failed accept as an error."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._warnings: Final = OnceAMinute()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets=[])
        for listener in sockets or ():
            listener.setblocking(False)
            self._start(self._accept(listener))
        self._start(self._sweep())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections and end the open ones."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await super().shutdown(sockets)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket) -> None:
        """Accept connections until canceled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listener)
            except ConnectionError:  # the peer has closed it already
                continue
            except OSError as error:
                if self._warnings.is_due("accept"):
                    logger.warning("HTTP connections cannot be accepted: %s", error)
                await asyncio.sleep(PAUSE)
                continue
            protocol = BoundedProtocol(self.config, self.server_state, self.lifespan.state)
            if protocol.admit(address[0]):
                self._start(self._begin(protocol, connection))
            else:
                connection.close()
                if self._warnings.is_due(address[0]):
                    logger.warning("HTTP connection from %s refused: too many are open", address[0])
            await asyncio.sleep(0)  # sock_accept does not yield while connections are waiting

    async def _begin(self, protocol: BoundedProtocol, connection: socket.socket) -> None:
        """Connect a protocol to an accepted connection, after the TLS handshake."""
        tls = self.config.ssl
        with suppress(OSError):  # a failed handshake, or one that took too long
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, connection, ssl=tls, ssl_handshake_timeout=HEADERS_SECONDS if tls else None
            )
        if not protocol.is_made:
            protocol.release()

    async def _sweep(self) -> None:
        """Check all connections periodically until canceled."""
        while True:
            await asyncio.sleep(SWEEP)
            for connection in list(BoundedProtocol.open_connections):
                if connection.is_made:
                    connection.check_time(connection.loop.time())
