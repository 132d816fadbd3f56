"""Events that a session reports to its owner. A token is the value that the owner passed to `Session.send`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from openmsmq.packet import UserMessage
from openmsmq.packet.reader import Reader

Token = TypeVar("Token")


class LocalSessionError(RuntimeError):
    """The session's state or window does not allow the request of its owner; nothing was sent."""


class RemoteSessionError(ValueError):
    """The peer violated the protocol. Sessions convert it to `Closed`."""


class CloseReason(Enum):
    """Why a session was closed."""

    REFUSED = "connection refused"  # by either side: InternalHeader.Flags.CS, a wrong GUID, or a limit
    INITIALIZATION_TIMEOUT = "session initialization timed out"
    PACKET_TIMEOUT = "packet incomplete for too long"
    ACK_TIMEOUT = "no acknowledgment from the peer"
    IDLE = "idle"
    PROTOCOL_ERROR = "protocol error"
    COUNTS_DIFFER = "message counts differ"
    DISCONNECTED = "connection lost"
    LOCAL = "closed here"


@dataclass(frozen=True, slots=True)
class PeerIdentified:
    """An EstablishConnection packet was accepted. The peer claims the identifier `peer`, without proof.

    `direct`: the initiator used a direct format name. In ConnectionHistory: EstablishPacketReceived.
    """

    peer: bytes
    direct: bool


@dataclass(frozen=True, slots=True)
class Established:
    """The session is OPEN: both sides may send UserMessages, at most `window` of them unacknowledged."""

    window: int


class MessageReceived:
    """A UserMessage, OrderAck or FinalAck.

    Attributes:
        packet: the received packet with the SessionHeader.
        receipt: not None if the packet is recoverable: call `MqqbSession.durable` when its acceptance or
            refusal is synced.
        is_plain: whether the packet is plain (`packet/plain_packets.c`).
    """

    __slots__ = ("_message", "is_plain", "packet", "receipt")

    def __init__(self, message: UserMessage | None, packet: bytes, receipt: int | None) -> None:
        """`message` is None for a plain packet, which is only read if needed."""
        self._message = message
        self.packet = packet
        self.receipt = receipt
        self.is_plain = message is None

    @property
    def message(self) -> UserMessage:
        if self._message is None:
            self._message = UserMessage.unpack(Reader(self.packet, "UserMessage"))
        return self._message


@dataclass(frozen=True, slots=True)
class Acknowledged(Generic[Token]):
    """The peer has acknowledged these packets, in sending order: express ones as received, recoverable ones as saved.

    Transactional messages of this queue manager still wait for their OrderAck.
    """

    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Closed(Generic[Token]):
    """The last event of a session: write the remaining `data_to_send`, then close the connection.

    `unacknowledged` lists sent messages in sending order; send them again with the same identifiers.
    """

    reason: CloseReason
    detail: str = ""
    unacknowledged: tuple[Token, ...] = ()


Event = PeerIdentified | Established | MessageReceived | Acknowledged[Token] | Closed[Token]
