"""HTTP connections with limits on their number, the time for request headers, and the time without reading."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from openmsmq.console.limits import ANSWER_BYTES, ANSWER_SECONDS, CONNECTIONS, CONNECTIONS_PER_PEER, HEADERS_SECONDS

logger = logging.getLogger(__name__)

SWEEP: float = 1.0  # seconds between two checks of all connections


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol with time limits: by default it waits forever for slow headers and for answers that are not
    read."""

    open_connections: ClassVar[set[BoundedProtocol]] = set()
    peers: ClassVar[Counter[str]] = Counter()
    _peer = ""
    _since = 0.0  # start of the wait for headers
    _stuck: float | None = None  # since when the peer has read less than ANSWER_BYTES
    _unread = 0  # bytes of the response that were unread at `_stuck`

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        address: Any = transport.get_extra_info("peername")
        self._peer = str(address[0]) if address else ""
        if len(self.open_connections) >= CONNECTIONS or self.peers[self._peer] >= CONNECTIONS_PER_PEER:
            logger.warning("HTTP connection from %s refused: too many are open", self._peer)
            transport.abort()
            return
        self.open_connections.add(self)
        self.peers[self._peer] += 1
        self._since = self.loop.time()
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self not in self.open_connections:
            return
        self.open_connections.discard(self)
        self.peers[self._peer] -= 1
        if not self.peers[self._peer]:
            del self.peers[self._peer]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self in self.open_connections:
            super().data_received(data)

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


async def sweep() -> None:
    """Check all connections periodically until canceled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP)
        for connection in list(BoundedProtocol.open_connections):
            connection.check_time(loop.time())
