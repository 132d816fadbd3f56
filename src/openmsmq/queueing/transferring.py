"""Outgoing queues as a chapter of the queue manager: making and dropping them, holding them, and what a transport does.

[MS-MQDMPR] 3.1.4.12 to 3.1.4.15, 3.1.7.1.5, 3.1.7.3.9. They are temporary ([MS-MQQB] 1.1): one that is not active and
has not been opened for a while is dropped. The text does not say how long that is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from operator import itemgetter

from openmsmq.model import names
from openmsmq.model.constants import MachineAccessMask, MessageClass
from openmsmq.model.errors import InsufficientResources, MessageStorageFailed, QueueNotFound
from openmsmq.model.message import Message
from openmsmq.queueing.access import Caller, demand
from openmsmq.queueing.committing import Committing
from openmsmq.queueing.core import UNREADABLE, storing
from openmsmq.queueing.outgoing import OutgoingQueue
from openmsmq.queueing.queue import Lock, LockKind, Queue
from openmsmq.queueing.state import State
from openmsmq.queueing.timers import Timers
from openmsmq.store import Drop, Put

logger = logging.getLogger(__name__)

OUTGOING_PREFIX = b"outgoing/"
UNUSED_PERIOD = 300_000  # milliseconds between two looks at an outgoing queue, which find it unused


class Transferring(Committing):
    """The operations on outgoing queues."""

    def __init__(self, state: State, random: Callable[[int], bytes]) -> None:
        super().__init__(state, random)
        self._looks: Timers[OutgoingQueue] = Timers(lambda _, queue: not queue.deleted, state.outbox.deadline_changed)

    # -- queues ----------------------------------------------------------------------------------------------

    def demand_administrator(self, caller: Caller, what: str) -> None:
        """Administrators are whom the queue manager's descriptor lets change it. Raises AccessDenied."""
        demand(self.state.security, caller, MachineAccessMask.SET_MACHINE_PROPERTIES, what)

    def outgoing_for(self, name: names.SingleFormatName) -> OutgoingQueue:
        """The outgoing queue for a format name, made where there is none. Raises InsufficientResources,
        MessageStorageFailed."""
        queue = self.state.outgoing_queue(name)
        if queue is None:
            maximum = self.state.machine.limits.max_outgoing_queues
            if len(self.state.outgoing) >= maximum:  # opening names at random must not fill memory and log
                raise InsufficientResources(
                    detail=f"there are {maximum} outgoing queues already (max_outgoing_queues); unused ones go within "
                    "ten minutes"
                )
            number, numbered = self.state.new_queue_number()
            with storing():
                self.state.store.append([Put(_definition(number), str(name).encode()), numbered])
            queue = self.state.register_outgoing(number, name)
            self._look_later(queue)
        queue.touched = True
        return queue

    def administered(self, name: names.FormatName) -> Queue:
        """The queue that an administrator means: the outgoing one where the format name is of another machine.
        Raises QueueNotFound."""
        queue = self.state.outgoing_queue(name)
        if queue is not None:
            return queue
        if isinstance(name, names.MultipleElementFormatName) or not self.state.is_local(name):
            raise QueueNotFound(detail=f"there is no outgoing queue for {name}")
        return self.queue_for(name)

    def recover_outgoing(self, number: int, name: str) -> None:
        """Make an outgoing queue of an earlier run known."""
        parsed = names.parse_format_name(name)
        assert not isinstance(parsed, names.MultipleElementFormatName)
        self._look_later(self.state.register_outgoing(number, parsed))

    def _look_later(self, queue: OutgoingQueue) -> None:
        self._looks.add(self.state.clock() + UNUSED_PERIOD, queue.number, queue)

    def drop_unused(self) -> None:
        """Drop outgoing queues that were found unused at two looks in a row; one on hold stays, or the hold would be
        lost."""
        now = self.state.clock()
        while (look := self._looks.pop(now)) is not None:
            queue = look[1]
            if queue.is_active or queue.on_hold or queue.touched or self.lowest_staged(queue, 0):
                queue.touched = False
                self._look_later(queue)
                continue
            try:
                with storing():
                    self.state.store.append([Drop(_definition(queue.number))])
            except MessageStorageFailed as error:
                logger.warning("queue %s is unused and could not be dropped: %s", queue.properties.path_name, error)
                self._look_later(queue)
                continue
            self.state.forget_outgoing(queue)

    # -- what an administrator does ----------------------------------------------------------------------------

    def pause(self, queue: OutgoingQueue) -> None:
        """Pause Queue, 3.1.7.2.3: nothing leaves the queue."""
        queue.on_hold = True
        self.state.outbox.wake()

    def resume(self, queue: OutgoingQueue) -> None:
        """Resume Queue, 3.1.7.2.4."""
        queue.on_hold = False
        self.state.outbox.wake()

    def set_online(self, online: bool) -> None:
        """Bring Online and Take Offline, 3.1.4.13 and 3.1.4.12. ConnectionActive is no persistent attribute: a queue
        manager that starts is online."""
        self.state.online = online
        self.state.outbox.wake()

    # -- what a transport does ---------------------------------------------------------------------------------

    def next_to_transfer(self) -> tuple[OutgoingQueue, Message] | None:
        """Dispatch Send Message, 3.1.7.3.9: of all that may leave, the message of highest priority that waits longest.
        It stays locked until `transferred` or `put_back`. An expired one is left to its timer and holds up its own
        queue only; one that can't be decoded goes into quarantine."""
        if not self.state.online:
            return None
        heads = [
            (head, queue)
            for queue in self.state.outgoing.values()
            if not queue.on_hold and (head := queue.first()) is not None
        ]
        for _, queue in sorted(heads, key=itemgetter(0)):
            while (key := queue.first()) is not None:
                try:
                    message = queue.message(key)
                except UNREADABLE as error:
                    self.quarantine(queue, key, error)
                    continue
                deadline = queue.deadline_of(message)
                if not deadline or deadline > self.state.clock():
                    queue.lock(key, Lock(LockKind.TRANSFER, queue))
                    return queue, message
                break
        return None

    def transferred(self, queue: OutgoingQueue, message: Message) -> None:
        """The destination has the message; the system journal gets its copy now ([MS-MQQB] 3.1.5.5.4).

        Raises MessageStorageFailed, with nothing changed.
        """
        self._delete(queue, message.lookup_identifier, message, MessageClass.ACK_REACH_QUEUE)

    def put_back(self, queue: OutgoingQueue, message: Message) -> None:
        """The transfer failed: the message returns to its place, or is discarded if it was purged or has expired."""
        self._release(queue, message.lookup_identifier)


def _definition(number: int) -> bytes:
    return OUTGOING_PREFIX + str(number).encode()
