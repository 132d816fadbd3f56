"""Pending notifications: messages that became available, and work for the transport.

Invariant I5 (docs/architecture.md): a change of the model never calls a reader or the transport. It leaves an entry
here, and `QueueManager.turn` serves the entries from an empty stack. Failures of a reader or the transport are logged
and affect neither the caller whose change made the entry nor other readers (deviation D-22 from [MS-MQDMPR] 3.1.7.2.2).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from typing import Protocol

from openmsmq.model.message import Message
from openmsmq.queueing.outgoing_queues import OutgoingQueue
from openmsmq.queueing.queue import Queue

logger = logging.getLogger(__name__)

STEPS = 256  # messages offered per turn, so that a large commit does not block the event loop


class QueueManagerHost(Protocol):
    """Services that the owner of a queue manager provides."""

    def turn_wanted(self) -> None:
        """Call `QueueManager.turn` soon, from an empty stack."""

    def deadline_changed(self) -> None:
        """Called when `QueueManager.next_expiry` has become earlier."""

    def failed(self, error: BaseException) -> None:
        """Called when memory and log differ: the process must end and restart from the log."""


class NullHost:
    """Null host, for a queue manager whose owner calls `turn` and `expire` unasked."""

    def turn_wanted(self) -> None:
        """Do nothing: the owner calls `turn` unasked."""

    def deadline_changed(self) -> None:
        """Do nothing: the owner calls `expire` unasked."""

    def failed(self, error: BaseException) -> None:
        """Do nothing: the store now refuses all operations."""


class Outbox:
    """Pending notifications. `is_empty`, `begin`, `take_queue`, `put_back` and `take_wakes` are for
    `QueueManager.turn`."""

    def __init__(self, outside: QueueManagerHost) -> None:
        self._outside = outside
        self._queues: deque[Queue] = deque()  # those with entries in `Queue.arrived`
        self._to_transfer: set[OutgoingQueue] = set()  # those of which to notify the transport
        self._wake = False
        self._wanted = False
        self.is_empty = True

    def arrived(self, queue: Queue, lookup_identifier: int, message: Message | None = None) -> None:
        """Note that a position of the queue became available. `message` may be given if it is complete and will not be
        changed."""
        if isinstance(queue, OutgoingQueue):
            self._to_transfer.add(queue)
            self._want()
        if queue.waiters:
            if not queue.arrived:
                self._queues.append(queue)
            if queue.arrived is None:
                queue.arrived = deque()
            queue.arrived.append((lookup_identifier, message))
            self._want()

    def wake(self) -> None:
        """Note that in any outgoing queue messages may have become transferable, or must no longer be transferred."""
        self._wake = True
        self._want()

    def deadline_changed(self) -> None:
        """Notify the host that a deadline earlier than all others was added."""
        guarded("setting the timer", self._outside.deadline_changed)

    def failed(self, error: BaseException) -> None:
        """Notify the host that memory and log disagree."""
        guarded("ending after a failure", lambda: self._outside.failed(error))

    def _want(self) -> None:
        self.is_empty = False
        if not self._wanted:
            self._wanted = guarded("asking for a turn", self._outside.turn_wanted)

    def begin(self) -> None:
        """Begin a turn: entries added from now on request another one."""
        self._wanted = False
        self.is_empty = True

    def take_queue(self) -> Queue | None:
        """Remove and return a queue with arrivals to offer to waiting readers; None if there is none."""
        return self._queues.popleft() if self._queues else None

    def put_back(self, queue: Queue) -> None:
        """Leave the remaining arrivals of a queue for the next turn, because this one is long enough."""
        self._queues.append(queue)
        self._want()

    def take_wakes(self) -> Collection[OutgoingQueue | None]:
        """Remove and return the queues that the transport must check; an element None means all queues."""
        if not self._wake and not self._to_transfer:
            return ()
        wakes: Collection[OutgoingQueue | None] = (None,) if self._wake else tuple(self._to_transfer)
        self._wake = False
        self._to_transfer.clear()
        return wakes


def guarded(what: str, action: Callable[[], object]) -> bool:
    """Call a callback from outside the queue manager; an exception is logged with `what` and not raised.

    Returns:
        Whether it raised nothing.
    """
    try:
        action()
    except Exception:  # must not stop the timer or the next reader
        logger.exception("%s failed", what)
        return False
    return True
