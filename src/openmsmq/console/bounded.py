"""HTTP connections with limits: how many, how long they may take for their headers, and not read their answers."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from openmsmq.console.limits import ANSWER_BYTES, ANSWER_SECONDS, CONNECTIONS, CONNECTIONS_PER_PEER, HEADERS_SECONDS

logger = logging.getLogger(__name__)

SWEEP: float = 1.0  # seconds between two looks at all connections


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol with time limits: by default it waits forever for slow headers and for answers that are not
    read."""

    open_connections: ClassVar[set[BoundedProtocol]] = set()
    peers: ClassVar[Counter[str]] = Counter()
    _peer = ""
    _since = 0.0  # when it began to wait for headers
    _stuck: float | None = None  # since when the peer has read next to nothing
    _unread = 0  # bytes of the answer then

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
        self._stuck = None  # the peer reads, however often the buffer fills again before somebody looks
        super().resume_writing()

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()

    def check_time(self, now: float) -> None:
        """Give up a connection that has been slow or deaf for too long."""
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
    """Look at all connections, until this is cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP)
        for connection in list(BoundedProtocol.open_connections):
            connection.check_time(loop.time())
