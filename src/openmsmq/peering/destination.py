"""A destination: attempts to connect to it, its connection, and its outgoing queues."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from openmsmq.model.errors import HResult
from openmsmq.peering.connection import PeerConnection
from openmsmq.peering.resolving import ResolvedTarget
from openmsmq.queueing.outgoing_queues import ConnectionEvent, ConnectionStatus, OutgoingQueue, OutgoingState
from openmsmq.transport.connecting import ConnectMachine, NextHop

_FAILED = 0x80000000  # bit of a ConnectionStatus
_ERRORS = {ConnectionStatus.CONNECTION_LIMIT_REACHED: HResult.MQ_ERROR_INSUFFICIENT_RESOURCES}


@dataclass(slots=True, eq=False)
class Destination:
    """A queue manager or host to which outgoing queues send.

    Attributes:
        queues: those with messages to send, served in rotation.
        members: all queues that have had messages so far.
        attempt: the name resolution or connect in progress.
        timer: timer of the next attempt.
        logged: reasons for failures that were logged since the last connection.
        claim: text if a session from another address claims to be this queue manager.
        claimed_at: the last such address.
    """

    target: ResolvedTarget
    reaching: ConnectMachine = field(default_factory=ConnectMachine)
    connection: PeerConnection | None = None
    queues: deque[OutgoingQueue] = field(default_factory=deque)
    members: set[OutgoingQueue] = field(default_factory=set)
    attempt: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    logged: set[str] = field(default_factory=set)
    claim: str = ""
    claimed_at: str = ""

    def add(self, queue: OutgoingQueue) -> None:
        """Add a queue that may have messages to send."""
        self.members.add(queue)
        if queue not in self.queues:
            self.queues.append(queue)

    def next_queue(self) -> OutgoingQueue | None:
        """Return the queue whose turn it is (D-237); None if no queue has messages."""
        return self.queues[0] if self.queues else None

    def turn(self) -> None:
        """Switch to the next queue."""
        self.queues.rotate(-1)

    def remove_idle(self, queue: OutgoingQueue) -> None:
        """Remove a queue that has nothing to send now."""
        self.queues.remove(queue)

    @property
    def has_messages(self) -> bool:
        """Whether a member may send something."""
        return any(queue.entries and not queue.on_hold and not queue.deleted for queue in self.members)

    @property
    def is_unused(self) -> bool:
        """Whether all its queues are deleted and it has no session."""
        return self.connection is None and all(queue.deleted for queue in self.members)

    def show(self, state: OutgoingState | None) -> None:
        """Set OutgoingQueue.State of all members."""
        for queue in self.members:
            queue.link = state

    def record(self, status: ConnectionStatus, seconds: int, hop: NextHop | None = None) -> None:
        """Add to ConnectionHistory of all members; `seconds` since 1970 UTC."""
        error = (
            _ERRORS.get(status, HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE) if status & _FAILED else HResult.MQ_OK
        )
        event = ConnectionEvent(status, seconds, error, (hop.address,) if hop is not None else ())
        for queue in self.members:
            queue.connection_history.append(event)

    def leave(self, queue: OutgoingQueue) -> None:
        """Remove a queue that was deleted or has another destination now."""
        self.members.discard(queue)
        if queue in self.queues:
            self.queues.remove(queue)
