"""Queues of messages in transit: outgoing queues, which the transport drains ([MS-MQDMPR] 3.1.1.3), and connector
queues, which a connector application drains for a foreign system ([MS-MQMQ] 1.1, 2.1.6).

There is an outgoing queue for each format name, compared without regard to case ([MS-MQQB] 1.1). The code that
transfers messages implements `Transport`: `peering.service` in the daemon. Each foreign site has two connector queues,
one of them for transactional messages. Windows looks up foreign sites and their machines in a directory; here the
operator configures them as `ForeignSite`s.
"""

from __future__ import annotations

import re
from base64 import b32decode, b32encode
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from openmsmq.model import names
from openmsmq.model.constants import INFINITE, MessageClass
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.message import Message
from openmsmq.queueing.properties import QueueProperties
from openmsmq.queueing.queue import Queue, QueueKind

_ORDER_QUEUE: Final = "\\order_queue$"
_IDENTIFIER: Final = re.compile("[a-z2-7]{26}")  # base 32, because the name of a subqueue has at most 31 characters
HISTORY_LENGTH = 64  # connection attempts kept per queue; bounds memory if a machine stays unreachable
_PROTOCOLS = frozenset(["TCP", "OS"])  # not SPX, which is obsolete, and not HTTP, whose messages are those of MC-MQSRM


class OutgoingState(Enum):
    """OutgoingQueue.State, with the texts of [MS-MQMQ] 2.3.12.11.

    Locked is missing: it belongs to hardened security mode, which is not implemented.
    """

    CONNECTED = "CONNECTED"
    DISCONNECTED = "DISCONNECTED"
    DISCONNECTING = "DISCONNECTING"
    INACTIVE = "INACTIVE"
    NEED_VALIDATION = "NEED VALIDATION"
    WAITING = "WAITING"
    ON_HOLD = "ONHOLD"


class ConnectionStatus(IntEnum):
    """ConnectionHistory.Status, with the numbers of [MS-MQMQ] 2.3.12.25."""

    IN_PROCESS = 0x00000000
    ESTABLISH_PACKET_RECEIVED = 0x00000001
    ESTABLISHED = 0x00000002
    UNKNOWN_FAILURE = 0x80000000
    PING_FAILURE = 0x80000001
    SOCKET_CREATE_FAILURE = 0x80000002
    SOCKET_BIND_FAILURE = 0x80000003
    SOCKET_CONNECT_FAILURE = 0x80000004
    TCP_NOT_ENABLED = 0x80000005
    SOCKET_SEND_FAILURE = 0x80000006
    CONNECTION_NOT_READY = 0x80000007
    DNS_FAILURE = 0x80000008
    CERTIFICATE_VALIDATION_FAILURE = 0x80000009
    CONNECTION_LIMIT_REACHED = 0x8000000A
    CONNECTION_REFUSED = 0x8000000B
    ROUTING_DATA_NOT_AVAILABLE = 0x8000000C
    LOW_RESOURCE = 0x8000000D


class ConnectionEvent(NamedTuple):
    """An element of OutgoingQueue.ConnectionHistory. `time` in seconds since 1970 UTC, `error` an HRESULT or 0."""

    status: ConnectionStatus
    time: int
    error: int = 0
    addresses: tuple[str, ...] = ()


class SequenceInfo(NamedTuple):
    """SEQUENCE_INFO, [MS-MQMQ] 2.2.5."""

    identifier: int = 0
    number: int = 0
    previous: int = 0


NO_SEQUENCE = SequenceInfo()


@dataclass(slots=True)
class OutgoingTransferInfo:
    """[MS-MQDMPR] 3.1.1.4, with its names; updated by the transport. Times in seconds since 1970 UTC, 0 for never."""

    eod_first_non_ack: SequenceInfo = NO_SEQUENCE
    eod_last_ack: SequenceInfo = NO_SEQUENCE
    eod_last_ack_count: int = 0
    eod_last_ack_time: int = 0
    eod_last_non_ack: SequenceInfo = NO_SEQUENCE
    eod_next_seq: SequenceInfo = NO_SEQUENCE
    eod_no_ack_count: int = 0
    eod_resend_count: int = 0
    eod_resend_interval: int = 0
    eod_resend_time: int = 0


class TransitQueue(Queue):
    """A queue whose messages have not reached their destination."""

    @property
    def is_active(self) -> bool:
        """Queue.Active, [MS-MQDMPR] 3.1.1.2, of connector queues too (D-52): messages wait for transfer or for their
        final acknowledgment, or the queue is open."""
        return bool(self.entries) or self.openers > 0 or bool(self.journal is not None and self.journal.entries)

    def deadline_of(self, message: Message) -> int:
        """Return when time-to-reach-queue or time-to-be-received ends in transit, in milliseconds since 1970 UTC; 0 for
        never ([MS-MQQB] 3.1.7.1.2)."""
        seconds = min(message.time_to_reach_queue, message.time_to_be_received)
        return 0 if seconds == INFINITE else (message.sent_time + seconds) * 1000 + message.sent_milliseconds

    def expiry_reason(self, message: Message) -> MessageClass:
        """Return the class of a message that expires here. Deviation D-59: the same for both times, because the message
        has not reached its queue."""
        return MessageClass.NACK_REACH_QUEUE_TIMEOUT


class OutgoingQueue(TransitQueue):
    """Outgoing queue. `link` is the state of its connection as reported by the transport, None if there is none.
    `on_hold` is lost at a restart, because State is not persistent. `touched`: used since the last check for unused
    queues. `journal` holds messages awaiting the final acknowledgment: AwaitingFinalACKTable, [MS-MQQB] 3.1.1.3.1.
    `charged_to` is the host whose messages required the queue for answers, empty if local programs send to it."""

    def __init__(
        self, number: int, properties: QueueProperties, read: Callable[[int], bytes], awaiting: Queue,
        destination: names.SingleFormatName, charged_to: str = "",
    ) -> None:  # fmt: skip
        super().__init__(number, QueueKind.OUTGOING, properties, read, awaiting)
        self.charged_to: Final = charged_to
        self.destination: Final = destination
        self.on_hold = False
        self.touched = True
        self.link: OutgoingState | None = None
        self.next_hops = known_hops(destination)
        self.connection_history: deque[ConnectionEvent] = deque(maxlen=HISTORY_LENGTH)
        self.transfer_info = OutgoingTransferInfo()

    def state(self, online: bool) -> OutgoingState:
        """Return OutgoingQueue.State; `online` is QueueManager.ConnectionActive.

        Without a directory, the machine of a private format name is never found, which is NeedValidation ([MS-MQQB]
        3.1.5.2).
        """
        if self.on_hold:
            return OutgoingState.ON_HOLD
        if not online:
            return OutgoingState.DISCONNECTED
        if self.link is not None:
            return self.link
        if not self.entries:
            return OutgoingState.INACTIVE
        if isinstance(self.destination, names.PrivateFormatName):
            return OutgoingState.NEED_VALIDATION
        return OutgoingState.WAITING


@dataclass(frozen=True, slots=True)
class ForeignSite:
    """A site whose machines do not run Message Queuing. `machines` are the names and addresses that senders use."""

    identifier: UUID
    name: str
    machines: tuple[str, ...]

    def format_name(self, *, exactly_once: bool) -> names.ConnectorFormatName:
        suffix = names.Suffix.XACTONLY if exactly_once else names.Suffix.NONE
        return names.ConnectorFormatName(self.identifier, suffix)


class ConnectorQueue(TransitQueue):
    """Connector queue. Its path name is its format name ([MS-MQMQ] 2.1.1)."""

    def __init__(
        self, number: int, properties: QueueProperties, read: Callable[[int], bytes],
        format_name: names.ConnectorFormatName,
    ) -> None:  # fmt: skip
        super().__init__(number, QueueKind.CONNECTOR, properties, read)
        self.format_name: Final = format_name


class Transport(Protocol):
    """Interface of the code that drains outgoing queues.

    It takes messages with `OutgoingQueues.take` and reports with `transferred`, `ordered`, `finished` or `put_back`; it
    sets `link`, `next_hops`, `connection_history` and `transfer_info` of the queues it serves.
    """

    def wake(self, queue: OutgoingQueue | None) -> None:
        """Messages in a queue may have become transferable. None: this may be true of any queue, or transfers must
        stop. Called from an empty stack."""

    def resend(self, queue: OutgoingQueue) -> None:
        """Send the pending transactional sequence again ([MS-MQMR] 3.1.4.2, EOD_RESEND). Raises MsmqError."""


class NoTransport:
    """Null transport, for a queue manager that transfers no messages: `fsck`, tests."""

    def wake(self, queue: OutgoingQueue | None) -> None:
        """Do nothing: messages stay in their queues."""

    def resend(self, queue: OutgoingQueue) -> None:
        raise MsmqError(HResult.MQ_ERROR, f"nothing has been sent from the outgoing queue for {queue.destination}")


def can_go_out(name: names.FormatName) -> bool:
    """Whether a format name of another machine gets an outgoing queue: direct names, and private ones, which only a
    directory can resolve."""
    match name:
        case names.DirectFormatName(protocol=protocol):
            return protocol.upper() in _PROTOCOLS
        case names.PrivateFormatName():
            return True
    return False


def path_name_of(name: names.SingleFormatName) -> str | None:
    """Return the path name of the destination; None if only a directory knows it."""
    return str(name.path_name()) if isinstance(name, names.DirectFormatName) else None


def known_hops(name: names.SingleFormatName) -> list[str]:
    """Return NextHops as far as it needs no lookup, [MS-MQMQ] 2.3.12.12: the address in a direct format name."""
    if not isinstance(name, names.DirectFormatName):
        return []
    address = names.parse_address(name.host)
    if address is None:
        return []
    return [f"{'IP' if address.version == 4 else 'IPv6'}={address}"]


def meant_machine(name: names.SingleFormatName) -> bytes:
    """Return the queue manager identifier (16 bytes, or none) in the name of an outgoing queue for acknowledgments. The
    identifier stays valid when the address changes; in a direct name it takes the place of the subqueue."""
    if not isinstance(name, names.DirectFormatName) or not name.path.lower().endswith(_ORDER_QUEUE):
        return b""
    return b32decode(f"{name.subqueue.upper()}======") if _IDENTIFIER.fullmatch(name.subqueue) else b""


def order_queue_of(address: str, machine: bytes) -> str:
    """Return the name of the outgoing queue for acknowledgments to a queue manager (16 bytes) at an address."""
    return f"DIRECT=TCP:{address}\\private${_ORDER_QUEUE};{b32encode(machine).decode().rstrip('=').lower()}"


def wire_name(name: names.SingleFormatName) -> str:
    """Return the name for packets, without the identifier that `meant_machine` returns."""
    if isinstance(name, names.DirectFormatName) and meant_machine(name):
        name = replace(name, suffix=names.Suffix.NONE, subqueue="")
    return str(name)


def foreign_host(name: names.FormatName) -> str:
    """Return the host of a format name in the spelling that foreign sites use (lower case); empty if the name has
    none."""
    if isinstance(name, names.DirectFormatName) and name.protocol.upper() in _PROTOCOLS:
        return name.host.lower()
    return ""
