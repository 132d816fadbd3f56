"""Limits of the number of sessions and of the memory of their incomplete packets."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection

from openmsmq.packet.internal import EstablishConnection
from openmsmq.peering.connection import PeerConnection
from openmsmq.peering.options import TransferOptions

logger = logging.getLogger(__name__)


class SessionLimits:
    """Enforces the limits of `options` on open connections; `own` is the identifier of this queue manager."""

    def __init__(self, options: TransferOptions, connections: Collection[PeerConnection], own: bytes) -> None:
        self._options, self._connections, self._own = options, connections, own
        self._buffered = 0
        self._at: Counter[str] = Counter()  # connections by address

    def admits(self, connection: PeerConnection, request: EstablishConnection) -> bool:
        """Whether a peer may open a session: it is not this queue manager itself, and the limits are not reached."""
        same_peer = self._at[connection.address]
        if request.client_guid == self._own:
            logger.warning("refused session from %s: it presented this queue manager's identifier", connection.address)
            return False
        if len(self._connections) > self._options.max_sessions or same_peer > self._options.max_sessions_per_peer:
            logger.warning(
                "refused session from %s: there are %d sessions, %d with it (max_sessions, max_sessions_per_peer)",
                connection.address, len(self._connections) - 1, same_peer - 1,
            )  # fmt: skip
            return False
        return True

    def accepts(self, address: str) -> bool:
        """Whether a session opened now from an IP address would be accepted."""
        return self.have_room and self._at[address] < self._options.max_sessions_per_peer

    def connected(self, address: str) -> bool:
        """Count a new connection with a host. Return whether the number of connections, in total and with this host, is
        at most twice that of sessions: half of them may still be opening."""
        self._at[address] += 1
        if len(self._connections) > 2 * self._options.max_sessions:
            return False
        return self._at[address] <= 2 * self._options.max_sessions_per_peer

    def closed(self, address: str) -> None:
        """Count the end of a connection with a host."""
        self._at[address] -= 1
        if self._at[address] <= 0:
            del self._at[address]

    @property
    def have_room(self) -> bool:
        """Whether another session may be opened."""
        return len(self._connections) < self._options.max_sessions

    def buffers(self, connection: PeerConnection, change: int) -> bool:
        """Whether the incomplete packets of a connection may take `change` more bytes (negative: fewer)."""
        self._buffered += change
        if change <= 0 or self._buffered <= self._options.buffered:
            return True
        logger.warning(
            "closing the connection to %s: incomplete packets take %d bytes", connection.address, self._buffered
        )
        return False
