"""Events that a session reports to its owner. A token is the value that the owner passed to `Session.send`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from openmsmq.packet import UserMessage

Token = TypeVar("Token")


class LocalSessionError(RuntimeError):
    """The owner of a session asked for what its state or window does not allow; nothing was sent."""


class RemoteSessionError(ValueError):
    """The peer broke a rule of the protocol. Sessions turn it into `Closed`."""


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
    """An EstablishConnection packet was accepted: the peer says that it is `peer`, which nothing proves.

    `direct` says that the initiator used a direct format name. For ConnectionHistory: EstablishPacketReceived.
    """

    peer: bytes
    direct: bool


@dataclass(frozen=True, slots=True)
class Established:
    """The session is OPEN: both sides may send UserMessages. `window` is how many may be unacknowledged."""

    window: int


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A UserMessage, OrderAck or FinalAck.

    With a `receipt`, the packet is recoverable: accepted or not, call `Session.durable(receipt)` when that outcome is
    synced. `packet` is what came, with the SessionHeader.
    """

    message: UserMessage
    packet: bytes
    receipt: int | None


@dataclass(frozen=True, slots=True)
class Acknowledged(Generic[Token]):
    """The peer has these, in the order of sending: express packets received, recoverable ones saved.

    Transactional messages of this queue manager still wait for their OrderAck.
    """

    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Closed(Generic[Token]):
    """The last event of a session: write what `data_to_send` still has, then close the connection.

    `unacknowledged` was sent, in this order, and is to be offered again with the same identifiers.
    """

    reason: CloseReason
    detail: str = ""
    unacknowledged: tuple[Token, ...] = ()


Event = PeerIdentified | Established | MessageReceived | Acknowledged[Token] | Closed[Token]
