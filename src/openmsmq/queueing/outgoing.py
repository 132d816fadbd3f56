"""Messages for other machines: making and dropping outgoing queues, holding them, what a transport does, and the
connector queues of foreign sites.

[MS-MQDMPR] 3.1.4.12 to 3.1.4.15, 3.1.7.1.5, 3.1.7.3.9. Outgoing queues are temporary ([MS-MQQB] 1.1): one that is not
active and has not been opened for a while is dropped. The text does not say how long that is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final

from openmsmq.model import names
from openmsmq.model.constants import MessageClass
from openmsmq.model.errors import MessageStorageFailed
from openmsmq.model.message import Message
from openmsmq.queueing.authorization import SYSTEM, default_queue_security
from openmsmq.queueing.changes import Changes
from openmsmq.queueing.holds import Holds
from openmsmq.queueing.outbox import Outbox
from openmsmq.queueing.outgoing_queues import ConnectorQueue, ForeignSite, OutgoingQueue, Transport
from openmsmq.queueing.properties import QueueProperties
from openmsmq.queueing.queue import Lock, LockKind
from openmsmq.queueing.registry import Registry
from openmsmq.queueing.storage import UNREADABLE
from openmsmq.queueing.timers import Timers

logger = logging.getLogger(__name__)

UNUSED_PERIOD = 300_000  # milliseconds between two looks at an outgoing queue, which find it unused


class Outgoing:
    """Keeps what leaves this machine, and decides what may leave it.

    Attributes:
        online: QueueManager.ConnectionActive. It is no persistent attribute: a queue manager that starts is online.
    """

    def __init__(
        self,
        registry: Registry,
        changes: Changes,
        holds: Holds,
        outbox: Outbox,
        clock: Callable[[], int],
        transport: Transport,
    ) -> None:
        self._registry: Final = registry
        self._changes: Final = changes
        self._holds: Final = holds
        self._outbox: Final = outbox
        self._clock: Final = clock
        self.transport: Final = transport
        self.online = True
        self.looks: Timers[OutgoingQueue] = Timers(lambda _, queue: not queue.deleted, outbox.deadline_changed)

    # -- queues ----------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Watch the outgoing queues of an earlier run."""
        for queue in self._registry.outgoing.values():
            self._look_later(queue)

    def outgoing_for(self, name: names.SingleFormatName) -> OutgoingQueue:
        """The outgoing queue for a format name, made where there is none. Raises InsufficientResources,
        MessageStorageFailed."""
        queue = self._registry.outgoing_queue(name)
        if queue is None:
            queue = self._registry.create_outgoing(name)
            self._look_later(queue)
        queue.touched = True
        return queue

    def _look_later(self, queue: OutgoingQueue) -> None:
        self.looks.add(self._clock() + UNUSED_PERIOD, queue.number, queue)

    def drop_unused(self, now: int) -> None:
        """Drop outgoing queues that were found unused at two looks in a row; one on hold stays, or the hold would be
        lost."""
        while (look := self.looks.pop(now)) is not None:
            queue = look[1]
            if queue.is_active or queue.on_hold or queue.touched or self._changes.staged_bytes(queue):
                queue.touched = False
                self._look_later(queue)
                continue
            try:
                self._registry.drop(queue)
            except MessageStorageFailed as error:
                logger.warning("queue %s is unused and could not be dropped: %s", queue.properties.path_name, error)
                self._look_later(queue)

    # -- what an administrator does ----------------------------------------------------------------------------

    def pause(self, queue: OutgoingQueue) -> None:
        """Pause Queue, 3.1.7.2.3: nothing leaves the queue."""
        queue.on_hold = True
        self._outbox.wake()

    def resume(self, queue: OutgoingQueue) -> None:
        """Resume Queue, 3.1.7.2.4."""
        queue.on_hold = False
        self._outbox.wake()

    def set_online(self, online: bool) -> None:
        """Bring Online and Take Offline, 3.1.4.13 and 3.1.4.12."""
        self.online = online
        self._outbox.wake()

    # -- what a transport does ---------------------------------------------------------------------------------

    def next_to_transfer(self) -> tuple[OutgoingQueue, Message] | None:
        """Dispatch Send Message, 3.1.7.3.9: of all that may leave, the message of highest priority that waits longest.
        It stays locked until `transferred` or `put_back`. An expired one is left to its timer and holds up its own
        queue only; one that can't be decoded goes into quarantine."""
        if not self.online:
            return None
        heads = [
            (head, queue)
            for queue in self._registry.outgoing.values()
            if not queue.on_hold and (head := queue.first()) is not None
        ]
        for _, queue in sorted(heads, key=itemgetter(0)):
            while (key := queue.first()) is not None:
                try:
                    message = queue.message(key)
                except UNREADABLE as error:
                    self._holds.quarantine(queue, key, error)
                    continue
                deadline = queue.deadline_of(message)
                if not deadline or deadline > self._clock():
                    queue.lock(key, Lock(LockKind.TRANSFER, queue))
                    return queue, message
                break
        return None

    def transferred(self, queue: OutgoingQueue, message: Message) -> None:
        """The destination has the message; the system journal gets its copy now ([MS-MQQB] 3.1.5.5.4).

        Raises MessageStorageFailed, with nothing changed.
        """
        self._holds.remove(queue, message.lookup_identifier, message, MessageClass.ACK_REACH_QUEUE)

    def put_back(self, queue: OutgoingQueue, message: Message) -> None:
        """The transfer failed: the message returns to its place, or is discarded if it was purged or has expired."""
        self._holds.release(queue, message.lookup_identifier)

    # -- foreign sites -----------------------------------------------------------------------------------------

    def declare_sites(self, sites: Sequence[ForeignSite], random: Callable[[int], bytes]) -> list[ConnectorQueue]:
        """Give each foreign site its two connector queues, and route its machines there.

        Queues of a site that is no longer declared stay as long as they hold messages; those that are returned hold
        none, and may go. Raises MessageStorageFailed.
        """
        registry = self._registry
        declared = set()
        for site in sites:
            plain, exactly_once = (self._connector_queue(site, random, exactly_once=kind) for kind in (False, True))
            plain.exactly_once = exactly_once
            declared |= {plain, exactly_once}
            registry.route(site.machines, plain)
        for outgoing in registry.outgoing.values():
            route = registry.connector_for(outgoing.destination)
            if route is not None and outgoing.entries:
                logger.warning(
                    "%d messages in the outgoing queue for %s are older than the foreign site %s: they stay there",
                    len(outgoing), outgoing.destination, route.properties.label,
                )  # fmt: skip
        return [queue for queue in registry.connectors.values() if queue not in declared and not self._keeps(queue)]

    def _keeps(self, queue: ConnectorQueue) -> bool:
        """Whether a connector queue whose site is no longer declared holds messages."""
        name = queue.format_name
        if queue.entries or self._changes.staged_bytes(queue):
            logger.warning("foreign site %s is not declared: %s keeps %d messages", name.guid, name, len(queue))
            return True
        return False

    def _connector_queue(
        self, site: ForeignSite, random: Callable[[int], bytes], *, exactly_once: bool
    ) -> ConnectorQueue:
        name = site.format_name(exactly_once=exactly_once)
        queue = self._registry.connectors.get(name)
        if queue is not None:
            if queue.properties.label != site.name:
                self._registry.update(queue, replace(queue.properties, label=site.name))
            return queue
        now = self._clock() // 1000
        properties = QueueProperties(
            str(name), instance=random(16), label=site.name, transactional=exactly_once, create_time=now,
            modify_time=now, security=default_queue_security(SYSTEM.sid).pack(),
        )  # fmt: skip
        return self._registry.create_connector(properties)
