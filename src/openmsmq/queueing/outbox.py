"""Pending notifications: messages that became available, and work for the transport.

Invariant I5 (docs/architecture.md): a change of the model never calls a reader or the transport. It leaves an entry
here, and `QueueManager.turn` serves the entries from an empty stack. Failures of a reader or the transport are logged
and are never the failure of the caller whose change made the entry, nor of other readers (deviation D-22 from
[MS-MQDMPR] 3.1.7.2.2).
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

STEPS = 256  # messages offered in one turn, so that a large commit does not block the event loop


class QueueManagerHost(Protocol):
    """Services that the owner of a queue manager provides."""

    def turn_wanted(self) -> None:
        """Call `QueueManager.turn` soon, from an empty stack."""

    def deadline_changed(self) -> None:
        """`QueueManager.next_deadline` has become earlier."""

    def failed(self, error: BaseException) -> None:
        """Memory and log disagree: the process has to end, and to start again from the log."""


class NullHost:
    """For a queue manager whose owner calls `turn` and `expire` by itself."""

    def turn_wanted(self) -> None:
        """Nothing to do: the owner calls by itself."""

    def deadline_changed(self) -> None:
        """Nothing to do: the owner calls by itself."""

    def failed(self, error: BaseException) -> None:
        """The store refuses everything from now on."""


class Outbox:
    """Entries that wait for their turn. `is_empty` says that there are none; it, `begin`, `take_queue`, `put_back` and
    `take_wakes` are for `QueueManager.turn`."""

    def __init__(self, outside: QueueManagerHost) -> None:
        self._outside = outside
        self._queues: deque[Queue] = deque()  # that have something in `Queue.arrived`
        self._to_transfer: set[OutgoingQueue] = set()  # that the transport is to be told of
        self._wake = False
        self._wanted = False
        self.is_empty = True

    def arrived(self, queue: Queue, lookup_identifier: int, message: Message | None = None) -> None:
        """A position of the queue has become available; `message` if it is at hand, whole, and nobody changes it."""
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
        """Something may have become transferable in any outgoing queue, or must not be transferred any more."""
        self._wake = True
        self._want()

    def deadline_changed(self) -> None:
        """Something expires earlier than all else."""
        guarded("setting the timer", self._outside.deadline_changed)

    def failed(self, error: BaseException) -> None:
        """Memory and log disagree."""
        guarded("ending after a failure", lambda: self._outside.failed(error))

    def _want(self) -> None:
        self.is_empty = False
        if not self._wanted:
            self._wanted = guarded("asking for a turn", self._outside.turn_wanted)

    def begin(self) -> None:
        """A turn begins: entries made from now on ask for another one."""
        self._wanted = False
        self.is_empty = True

    def take_queue(self) -> Queue | None:
        """A queue with arrivals that readers may be waiting for."""
        return self._queues.popleft() if self._queues else None

    def put_back(self, queue: Queue) -> None:
        """The turn is long enough: what is left of the queue's arrivals has the next one."""
        self._queues.append(queue)
        self._want()

    def take_wakes(self) -> Collection[OutgoingQueue | None]:
        """The queues that the transport is to look at; None for all."""
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
    except Exception:  # a failing callback must not stop the timer or the next reader
        logger.exception("%s failed", what)
        return False
    return True
