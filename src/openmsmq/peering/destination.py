"""One destination: the way to it, the connection when there is one, and the outgoing queues whose messages take it."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from openmsmq.peering.connection import PeerConnection
from openmsmq.peering.resolving import ResolvedTarget
from openmsmq.queueing.outgoing_queues import ConnectionEvent, ConnectionStatus, OutgoingQueue, OutgoingState
from openmsmq.transport.connecting import ConnectMachine, NextHop


@dataclass(slots=True, eq=False)
class Destination:
    """`queues` have messages to send and take turns; `members` are all that ever had one. `attempt` is the resolve or
    connect under way, `timer` the next attempt. `last_error` says why there is no connection, `claim` that a session
    from another address claims to be with this queue manager; `claimed_at` is the last such address."""

    target: ResolvedTarget
    reaching: ConnectMachine = field(default_factory=ConnectMachine)
    connection: PeerConnection | None = None
    queues: deque[OutgoingQueue] = field(default_factory=deque)
    members: set[OutgoingQueue] = field(default_factory=set)
    attempt: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    last_error: str = ""
    claim: str = ""
    claimed_at: str = ""

    def add(self, queue: OutgoingQueue) -> None:
        """A queue may have something to send."""
        self.members.add(queue)
        if queue not in self.queues:
            self.queues.append(queue)

    def next_queue(self) -> OutgoingQueue | None:
        """The queue whose turn it is."""
        return self.queues[0] if self.queues else None

    def turn(self) -> None:
        """The next queue's turn."""
        self.queues.rotate(-1)

    def nothing_from(self, queue: OutgoingQueue) -> None:
        """A queue has nothing to send now."""
        self.queues.remove(queue)

    @property
    def has_messages(self) -> bool:
        """Whether a member may send something."""
        return any(queue.entries and not queue.on_hold and not queue.deleted for queue in self.members)

    @property
    def is_unused(self) -> bool:
        """Whether all its queues are gone, and no session of it is left."""
        return self.connection is None and all(queue.deleted for queue in self.members)

    def show(self, state: OutgoingState | None) -> None:
        """OutgoingQueue.State of all members."""
        for queue in self.members:
            queue.link = state

    def record(self, status: ConnectionStatus, seconds: int, hop: NextHop | None = None) -> None:
        """Add to ConnectionHistory of all members; `seconds` since 1970 UTC."""
        event = ConnectionEvent(status, seconds, 0, (hop.address,) if hop is not None else ())
        for queue in self.members:
            queue.connection_history.append(event)

    def leave(self, queue: OutgoingQueue) -> None:
        """A queue was deleted, or is reached another way."""
        self.members.discard(queue)
        if queue in self.queues:
            self.queues.remove(queue)
