"""Settings for messages between queue managers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from openmsmq.directory.connection import DirectoryConnection
from openmsmq.model import names
from openmsmq.model.message import Message
from openmsmq.peering.arrival import SenderTrustPolicy
from openmsmq.peering.pinging import PORT as PING_PORT
from openmsmq.peering.reports import Locate
from openmsmq.transport.routing import Routing

PORT = 1801  # [MS-MQQB] 2.1


#: Returns an awaitable that looks for a queue of this machine in the directory, or None if that is unnecessary.
FindQueue = Callable[[names.SingleFormatName], Awaitable[None] | None]


class Transfers(Protocol):
    """Observer of messages sent to other queue managers. `queue` is the format name of the outgoing queue."""

    def sent(self, queue: str, message: Message) -> None: ...

    def acknowledged(self, message: Message) -> None: ...

    def lost(self, message: Message) -> None:
        """Record that the session ended before the message was acknowledged."""


@dataclass(frozen=True, slots=True)
class TransferOptions:
    """`port` is the port of other queue managers, by default 1801. `source` is the local address of connections, empty
    for the choice of the system. `buffered` is the maximum number of bytes of incomplete packets in all sessions. With
    `report_messages`, reports of traced messages are sent to queues found with `locate`; `report_queue` (16 bytes, or
    none) is the public queue for reports named in messages sent here. With `ping`, hosts are pinged through UDP at
    `ping_port` before connecting. `transfers` observes the messages sent. With `trust_queue_manager_identifiers`,
    messages go to any peer that claims the identifier of their queue manager, at any address, if neither a route nor
    the directory says where it is. `find` looks for queues that are not known here. `knows_keys` returns whether the
    keys of a queue manager (GUID of 16 bytes) in the directory are cached."""

    port: int = PORT
    source: str = ""
    max_sessions: int = 4096
    max_sessions_per_peer: int = 1024
    buffered: int = 256 << 20
    hosts: Mapping[str, tuple[str, int]] | None = None
    policy: SenderTrustPolicy = SenderTrustPolicy()
    routing: Routing | None = None
    directory: DirectoryConnection | None = None
    report_messages: bool = False
    report_queue: bytes = b""
    locate: Locate | None = None
    find: FindQueue | None = None
    knows_keys: Callable[[bytes], bool] = lambda identifier: True
    ping: bool = False
    ping_port: int = PING_PORT
    transfers: Transfers | None = None
    trust_queue_manager_identifiers: bool = False
