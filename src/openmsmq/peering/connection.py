"""One TCP connection between two queue managers: a socket, its session, and the session's timers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol, cast

from openmsmq.packet import UserMessage
from openmsmq.transport import Acknowledged, Closed, Established, LocalSessionError, MessageReceived, PeerIdentified
from openmsmq.transport.session import MqqbSession

logger = logging.getLogger(__name__)

WRITE_BUFFER = 1 << 20  # bytes that wait for the peer to read them, before no more messages are sent
LARGEST_BUFFER = 16 << 20  # unsent bytes of acknowledgments, in addition, before the connection is closed
CLOCK_STEP = (
    0.001  # seconds added to deadlines, which are milliseconds, so that they have passed when they are looked at
)


class ConnectionOwner(Protocol):
    """Callbacks of a connection."""

    def connected(self, connection: PeerConnection) -> bool:
        """The connection is up; False closes it at once."""

    def buffers(self, connection: PeerConnection, change: int) -> bool:
        """Add `change` buffered bytes of an incomplete packet (negative: release them); False closes the connection."""

    def opened(self, connection: PeerConnection) -> None:
        """The session is open: messages may be sent."""

    def identified(self, connection: PeerConnection, peer: bytes) -> None:
        """The peer says which queue manager it is."""

    def received(self, connection: PeerConnection, messages: list[MessageReceived]) -> None:
        """Messages came, in this order. Calls `PeerConnection.durable` later for those with a receipt."""

    def acknowledged(self, connection: PeerConnection, tokens: tuple[Any, ...]) -> None:
        """The peer has these."""

    def writable(self, connection: PeerConnection) -> None:
        """There may be room for more messages again."""

    def may_write(self) -> bool:
        """Whether anything may be sent; False closes the connection."""

    def closed(self, connection: PeerConnection, reason: Closed[Any]) -> None:
        """The session has ended; called once, also if it never opened."""


class PeerConnection(asyncio.Protocol):
    """See the module. `make_session` gets the time, in milliseconds of the loop's clock."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, owner: ConnectionOwner, make_session: Callable[[float], MqqbSession[Any]]
    ) -> None:
        self._loop, self._owner, self._make_session = loop, owner, make_session
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._paused = False
        self._over = False
        self._buffered = 0
        self.session: MqqbSession[Any] = make_session(self.now)
        self.address = ""
        self.port = 0
        self.made = self.now  # milliseconds

    @property
    def now(self) -> float:
        return self._loop.time() * 1000

    @property
    def room(self) -> int:
        """How many messages may be sent now."""
        return 0 if self._paused or self._over else self.session.room

    @property
    def is_over(self) -> bool:
        return self._over

    # -- asyncio.Protocol --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = made = cast("asyncio.Transport", transport)  # uvloop's are none by inheritance
        made.set_write_buffer_limits(high=WRITE_BUFFER)
        name = transport.get_extra_info("peername")
        if name:
            self.address, self.port = str(name[0]), int(name[1])
        if self._owner.connected(self):
            self._after([])
        else:
            self.close()

    def data_received(self, data: bytes) -> None:
        self._after(self.session.receive(data, self.now))
        change = (0 if self._over else self.session.buffered) - self._buffered
        if change:
            self._buffered += change
            if not self._owner.buffers(self, change):
                self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._after(self.session.disconnected())

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if not self._over:
            self._owner.writable(self)

    # -- what the owner does -----------------------------------------------------------------------------------

    def send(self, message: UserMessage, token: Any) -> None:
        """Send a message; `flush` writes it. Much is written at once, and may leave no room: a window full of large
        messages is more than a peer reads in one go. Raises LocalProtocolError without `room`."""
        if self._over:
            raise LocalSessionError("the connection has ended")
        self.session.send(message, token, self.now)
        if self.session.unsent >= WRITE_BUFFER:
            self.flush()

    def durable(self, receipts: list[int]) -> None:
        """The fates of these packets are on the disk."""
        if not self._over:
            for receipt in receipts:
                self.session.durable(receipt, self.now)
            self.flush()

    def set_window(self, size: int) -> None:
        """Take fewer or more messages at a time."""
        if not self._over and self.session.window.own != size:
            self.session.set_window(size)
            self.flush()

    def close(self) -> None:
        """End the session."""
        self._after(self.session.close())

    def flush(self) -> None:
        """Write what the session has to say, and set its timer."""
        data = self.session.data_to_send()
        transport = self._transport
        if data and transport is not None and not transport.is_closing():
            if not self._owner.may_write():
                transport.abort()
                return
            transport.write(data)
            if transport.get_write_buffer_size() > LARGEST_BUFFER:
                logger.warning("closing the connection to %s: the peer does not read", self.address)
                transport.abort()
        self._arm()

    # -- inside ------------------------------------------------------------------------------------------------

    def _after(self, events: list[Any]) -> None:
        received: list[MessageReceived] = []
        for event in events:
            if isinstance(event, MessageReceived):
                received.append(event)
                continue
            if received:
                self._owner.received(self, received)
                received = []
            match event:
                case Acknowledged(tokens):
                    self._owner.acknowledged(self, tokens)
                case PeerIdentified(peer):
                    self._owner.identified(self, peer)
                case Established():
                    self._owner.opened(self)
                case Closed():
                    self._end(event)
        if received:
            self._owner.received(self, received)
        self.flush()

    def _end(self, event: Closed[Any]) -> None:
        if self._over:
            return
        self._over = True
        self._owner.buffers(self, -self._buffered)
        self._buffered = 0
        self.flush()
        if self._transport is not None:
            self._transport.close()
        self._owner.closed(self, event)

    def _arm(self) -> None:
        deadline = None if self._over else self.session.next_deadline
        if deadline is None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        if self._timer is not None:
            if self._timer_at <= deadline:
                return  # it looks again then
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline / 1000 + CLOCK_STEP, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._after(self.session.tick(self.now))
