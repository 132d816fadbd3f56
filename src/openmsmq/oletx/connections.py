"""Connections over a session ([MS-CMP] 3.1): numbered conversations whose packets are sent in boxcars, in order.

Only the end that has opened a connection can close it. Each end may open as many as the other one has granted.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from openmsmq.oletx.boxcar import LARGEST, LARGEST_DATA, MOST_MESSAGES, Packet, PacketTag, encode_boxcar
from openmsmq.oletx.messages import ConnectionType, MessageType, check_message
from openmsmq.oletx.structures import Partner

logger = logging.getLogger(__name__)

QUOTA: Final = 100  # connections requested at a time
MOST_INCOMING: Final = 2_000  # maximum connections opened by a partner
MOST_OUTGOING: Final = 2_000  # maximum connections to a partner
MOST_OF_ALL: Final = 100_000  # maximum connections opened by all partners
_HEAD: Final = 16
E_INVALIDARG: Final = 0x8007_0057
E_ACCESSDENIED: Final = 0x8007_0005


class Listener(Protocol):
    """Purpose of a connection: receives its messages."""

    def received(self, message: MessageType, data: bytes) -> None:
        """Handle a message that is allowed on the connection."""

    def invalid(self, reason: str) -> None:
        """Handle a protocol violation by the other end, or reported by it. No more messages follow."""

    def lost(self, reason: str) -> None:
        """Handle the end of the connection: refused, disconnected by the other end, or session down."""


class Acceptor(Protocol):
    """Accepts or denies the connections that a partner opens."""

    def accept(self, connection: PartnerConnection) -> Listener | int:
        """Return the listener of the connection, or the reason for denying it ([MS-CMP] 2.2.5)."""


class PartnerConnection:
    """One end of a connection; `listener` gets its messages."""

    def __init__(self, connections: Connections, kind: int, identifier: int, *, is_initiator: bool) -> None:
        self._connections = connections
        self.kind, self.identifier, self.is_initiator = kind, identifier, is_initiator
        self.listener: Listener | None = None
        self.is_open = True  # whether messages are passed to the listener

    @property
    def partner(self) -> Partner:
        return self._connections.partner

    def send(self, message: MessageType, data: bytes = b"") -> None:
        """Send a message, unless the connection has ended."""
        if self.is_open:
            self._connections.queue(Packet(PacketTag.USER_MESSAGE, self.is_initiator, self.identifier, message, data))

    def close(self) -> None:
        """Close the connection: send and receive no more. Its number is free when the other end has confirmed
        (D-219)."""
        if self.is_open:
            self.is_open = False
            if self.is_initiator:
                self._connections.queue(Packet(PacketTag.DISCONNECT, True, self.identifier, self.kind))

    def break_off(self, reason: str) -> None:
        """Close the connection because the other end has violated the protocol ([MS-DTCO] 3.1.6)."""
        if not self.is_open:
            return
        if self.kind in (ConnectionType.PROPAGATE, ConnectionType.BRANCH):
            self.send(MessageType.PROTOCOL_ERROR)
        self.close()
        if self.listener is not None:
            self.listener.invalid(reason)


Listen = Callable[[PartnerConnection], Listener]  # creates the listener of a new connection


class ConnectionBudget:
    """Total number of connections that partners may have open."""

    def __init__(self, most: int = MOST_OF_ALL) -> None:
        self.left = most

    def take(self, wanted: int) -> int:
        """Take up to `wanted` connections from the budget; return the number taken."""
        taken = max(0, min(wanted, self.left))
        self.left -= taken
        return taken


class Carrier(Protocol):
    """Interface of connections to their session."""

    def wake(self) -> None:
        """Note that there are packets to send."""

    def negotiate(self, requested: int) -> None:
        """Request more connections (NegotiateResources); the answer goes to `Connections.granted`."""


class Connections:
    """All connections of a session, in both directions, and the packets for the next boxcar."""

    def __init__(self, carrier: Carrier, acceptor: Acceptor, partner: Partner, budget: ConnectionBudget) -> None:
        self._carrier, self._acceptor, self._budget = carrier, acceptor, budget
        self.partner = partner
        self._outgoing: dict[int, PartnerConnection] = {}
        self._incoming: dict[int, PartnerConnection] = {}
        self._waiting: deque[tuple[PartnerConnection, Packet]] = deque()  # without a number yet; first packet
        self._queue: deque[Packet] = deque()
        self._next = 1
        self._quota = 0  # connections granted by the partner
        self._granted = 0  # connections granted to the partner
        self._negotiating = False

    def __len__(self) -> int:
        """Number of connections that are open or waiting to be opened."""
        return len(self._outgoing) + len(self._incoming) + len(self._waiting)

    # -- outgoing connections ----------------------------------------------------------------------------------

    def open(
        self,
        kind: ConnectionType,
        listen: Listen,
        message: MessageType,
        data: bytes = b"",
    ) -> PartnerConnection:
        """Open a connection with its first message, which is sent in the same boxcar (3.1.4.2)."""
        connection = PartnerConnection(self, kind, 0, is_initiator=True)
        connection.listener = listen(connection)
        self._waiting.append((connection, Packet(PacketTag.USER_MESSAGE, True, 0, message, data)))
        self._open_waiting()
        return connection

    def _open_waiting(self) -> None:
        while self._waiting and len(self._outgoing) < self._quota:
            connection, first = self._waiting.popleft()
            if not connection.is_open:
                continue
            identifier = connection.identifier = self._next
            self._next = self._next % 0xFFFF_FFFF + 1
            self._outgoing[identifier] = connection
            self.queue(Packet(PacketTag.CONNECTION_REQ, True, identifier, connection.kind))
            self.queue(first._replace(connection=identifier))
        if self._waiting and not self._negotiating and self._quota < MOST_OUTGOING:
            self._negotiating = True
            self._carrier.negotiate(QUOTA)

    def granted(self, accepted: int, answer: str) -> None:
        """Handle the answer to `Carrier.negotiate`: the number of granted connections, of which only those requested
        count, and the status as text."""
        self._negotiating = False
        if accepted:
            self._quota = min(self._quota + min(accepted, QUOTA), MOST_OUTGOING)
            self._open_waiting()
        elif self._waiting and not self._outgoing:  # no connection will become free
            waiting, self._waiting = self._waiting, deque()
            for connection, _ in waiting:
                self._tell_lost(connection, f"{self.partner} grants no connections: it answers {answer}")

    # -- incoming connections ----------------------------------------------------------------------------------

    def grant(self, requested: int) -> int:
        """Handle NegotiateResources of the partner; return how many more connections it may open."""
        accepted = self._budget.take(min(requested, MOST_INCOMING - self._granted))
        self._granted += accepted
        return accepted

    # -- packets -----------------------------------------------------------------------------------------------

    def queue(self, packet: Packet) -> None:
        """Append a packet to the waiting ones."""
        if not packet.connection and packet.tag != PacketTag.PING:
            return  # the connection never got a number
        assert len(packet.data) <= LARGEST_DATA
        self._queue.append(packet)
        self._carrier.wake()

    def next_boxcar(self) -> tuple[int, bytes] | None:
        """Return the number of packets and a boxcar with as many waiting packets as fit; None if there are none."""
        if not self._queue:
            return None
        packets: list[Packet] = []
        size = _HEAD
        while self._queue and len(packets) < MOST_MESSAGES and size + self._queue[0].size <= LARGEST:
            packets.append(self._queue.popleft())
            size += packets[-1].size
        return len(packets), encode_boxcar(packets)

    def receive(self, packets: list[Packet]) -> None:
        """Handle the packets of a boxcar. After an unknown tag the rest is dropped ([MS-CMP] 3.1.5)."""
        for packet in packets:
            match packet.tag:
                case PacketTag.USER_MESSAGE:
                    self._message(packet)
                case PacketTag.CONNECTION_REQ:
                    self._requested(packet)
                case PacketTag.DISCONNECT:
                    self._disconnect(packet)
                case PacketTag.DISCONNECTED:
                    self._disconnected(packet)
                case PacketTag.CONNECTION_REQ_DENIED:
                    self._denied(packet)
                case PacketTag.PING:
                    pass
                case _:
                    logger.warning("%s sent a packet with the unknown tag %#x: the rest of its boxcar is dropped",
                                   self.partner, packet.tag)  # fmt: skip
                    return

    def _message(self, packet: Packet) -> None:
        """Handle a user message. Deviation D-199: packets of the initiator belong to incoming connections."""
        table = self._incoming if packet.from_initiator else self._outgoing
        connection = table.get(packet.connection)
        if connection is None or not connection.is_open or connection.listener is None:
            return
        message = check_message(connection.kind, packet.kind, packet.data, from_initiator=packet.from_initiator)
        if message is None:
            logger.warning(
                "%s broke the protocol on connection %d of type %#x: message %#x with %d bytes", self.partner,
                packet.connection, connection.kind, packet.kind, len(packet.data),
            )  # fmt: skip
            connection.break_off(f"message {packet.kind:#x} with {len(packet.data)} bytes")
        elif message is MessageType.PROTOCOL_ERROR:
            connection.close()
            connection.listener.invalid("the partner says that this end broke the protocol")
        else:
            connection.listener.received(message, packet.data)

    def _requested(self, packet: Packet) -> None:
        identifier = packet.connection
        if not identifier or identifier in self._incoming or len(self._incoming) >= self._granted:
            logger.warning("%s: ignored a connection request: number %d is in use, or exceeds the %d granted",
                           self.partner, identifier, self._granted)  # fmt: skip
            return
        connection = self._incoming[identifier] = PartnerConnection(self, packet.kind, identifier, is_initiator=False)
        listener = self._acceptor.accept(connection)
        if isinstance(listener, int):
            connection.is_open = False  # drop its messages until it is disconnected
            reason = listener.to_bytes(4, "little")
            self.queue(Packet(PacketTag.CONNECTION_REQ_DENIED, False, identifier, 0, reason))
        else:
            connection.listener = listener

    def _disconnect(self, packet: Packet) -> None:
        connection = self._incoming.pop(packet.connection, None)
        if connection is not None:
            self.queue(Packet(PacketTag.DISCONNECTED, False, packet.connection))
            self._tell_lost(connection, f"{self.partner} has closed the connection")

    def _disconnected(self, packet: Packet) -> None:
        if (connection := self._outgoing.get(packet.connection)) is not None and not connection.is_open:
            del self._outgoing[packet.connection]
            self._open_waiting()

    def _denied(self, packet: Packet) -> None:
        connection = self._outgoing.get(packet.connection)
        if connection is None or not connection.is_open:
            return
        reason = int.from_bytes(packet.data[:4], "little")
        connection.close()
        if connection.listener is not None:
            connection.listener.lost(f"{self.partner} denies connections of type {connection.kind:#x}: {reason:#010x}")

    def down(self, reason: str) -> None:
        """End all connections, because the session has ended (3.1.7.2)."""
        everything = [*self._outgoing.values(), *self._incoming.values(), *(entry[0] for entry in self._waiting)]
        self._outgoing, self._incoming, self._waiting, self._queue = {}, {}, deque(), deque()
        self._budget.left += self._granted
        self._granted = 0
        for connection in everything:
            self._tell_lost(connection, reason)

    @staticmethod
    def _tell_lost(connection: PartnerConnection, reason: str) -> None:
        if connection.is_open:
            connection.is_open = False
            if connection.listener is not None:
                connection.listener.lost(reason)
