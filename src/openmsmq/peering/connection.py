"""One TCP connection between two queue managers: a socket, its session, and the session's timers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from openmsmq.packet import UserMessage
from openmsmq.transport import Acknowledged, Closed, Established, LocalSessionError, MessageReceived, PeerIdentified
from openmsmq.transport.session import MqqbSession

logger = logging.getLogger(__name__)

WRITE_BUFFER = 1 << 20  # number of unsent bytes at which sending of messages pauses
LARGEST_BUFFER = 16 << 20  # additional unsent bytes of acknowledgments at which the connection is closed
CLOCK_STEP = 0.001  # seconds added to timers, so that deadlines, in milliseconds, have passed when the timer expires


class ConnectionOwner(Protocol):
    """Callbacks of a connection."""

    def connected(self, connection: PeerConnection) -> bool:
        """Called when the connection is established; False closes it at once."""

    def buffers(self, connection: PeerConnection, change: int) -> bool:
        """Add `change` buffered bytes of an incomplete packet (negative: release them); False closes the connection."""

    def opened(self, connection: PeerConnection) -> None:
        """Called when the session is open and messages may be sent."""

    def identified(self, connection: PeerConnection, peer: bytes) -> None:
        """Called when the peer has sent its identifier."""

    def received(self, connection: PeerConnection, messages: list[MessageReceived]) -> None:
        """Called with received messages in order. Must call `PeerConnection.durable` later for those with a receipt."""

    def acknowledged(self, connection: PeerConnection, tokens: tuple[Any, ...]) -> None:
        """Called with messages that the peer has acknowledged."""

    def writable(self, connection: PeerConnection) -> None:
        """Called when more messages may be sent again."""

    def may_write(self) -> bool:
        """Whether anything may be sent; False closes the connection."""

    def closed(self, connection: PeerConnection, reason: Closed[Any]) -> None:
        """The session has ended; called once, also if it never opened."""


class PeerConnection(asyncio.Protocol):
    """See the module docstring. `make_session` takes the time in milliseconds of the event loop's clock."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, owner: ConnectionOwner, make_session: Callable[[float], MqqbSession[Any]]
    ) -> None:
        self._loop, self._owner = loop, owner
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
        """Number of messages that may be sent now."""
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

    # -- calls of the owner -----------------------------------------------------------------------------------

    def send(self, message: UserMessage, token: Any) -> None:
        """Send a message; `flush` writes it. Large output is written immediately, which may reduce `room`: a window of
        large messages exceeds the amount that a peer reads at a time. Raises LocalProtocolError without `room`."""
        if self._over:
            raise LocalSessionError("the connection has ended")
        self.session.send(message, token, self.now)
        if self.session.unsent >= WRITE_BUFFER:
            self.flush()

    def send_packets(self, packets: list[bytes], tokens: Sequence[Any], recoverable: bool) -> int:
        """Send packets of plain messages as long as there is `room`. Returns their number."""
        count = 0
        while count < len(packets) and self.room:
            self.session.send_packet(packets[count], tokens[count], recoverable, self.now)
            count += 1
            if self.session.unsent >= WRITE_BUFFER:
                self.flush()
        return count

    def durable(self, receipts: list[int]) -> None:
        """Note that the outcomes of these packets are durable."""
        if not self._over:
            self.session.durable(receipts, self.now)
            self.flush()

    def set_window(self, size: int) -> None:
        """Set the number of messages that the peer may send without an acknowledgment."""
        if not self._over and self.session.window.own != size:
            self.session.set_window(size)
            self.flush()

    def close(self) -> None:
        """End the session."""
        self._after(self.session.close())

    def flush(self) -> None:
        """Write the output of the session, and set its timer."""
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

    # -- internals ------------------------------------------------------------------------------------------------

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
                return  # it checks again then
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline / 1000 + CLOCK_STEP, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._after(self.session.tick(self.now))
