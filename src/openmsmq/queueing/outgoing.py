"""Messages for other machines: creating, dropping and pausing outgoing queues, operations of the transport, and the
connector queues of foreign sites.

[MS-MQDMPR] 3.1.4.12 to 3.1.4.15, 3.1.7.1.5, 3.1.7.3.9. Outgoing queues are temporary ([MS-MQQB] 1.1): one that is not
active and has not been opened for a while is dropped. The specification does not say after how long.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Final

from openmsmq.model import names
from openmsmq.model.constants import MessageClass
from openmsmq.model.default_descriptors import default_queue_security
from openmsmq.model.errors import MessageStorageFailed
from openmsmq.model.message import Message
from openmsmq.queueing.authorization import SYSTEM
from openmsmq.queueing.change_set import ChangeSet
from openmsmq.queueing.changes import Changes
from openmsmq.queueing.message_locks import MessageLocks
from openmsmq.queueing.outbox import Outbox
from openmsmq.queueing.outgoing_queues import ConnectorQueue, ForeignSite, OutgoingQueue, Transport
from openmsmq.queueing.properties import QueueProperties
from openmsmq.queueing.queue import Lock, LockKind
from openmsmq.queueing.registry import Registry
from openmsmq.queueing.removals import remove_all
from openmsmq.queueing.storage import UNREADABLE, storing
from openmsmq.store import Drop, Operation

logger = logging.getLogger(__name__)

UNCONNECTED_COPY: Final = b"unconnected-copy"  # definition in the store of a copy until it is connected


class OutgoingQueues:
    """Manages the outgoing queues and decides which messages may be sent.

    Attributes:
        online: QueueManager.ConnectionActive. A queue manager is online after each start, except a copy of another one
            that has never been connected.
    """

    def __init__(
        self,
        registry: Registry,
        changes: Changes,
        holds: MessageLocks,
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

    # -- queues ----------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Schedule the check for unused queues for the outgoing queues found at the start. A copy stays offline."""
        self.online = UNCONNECTED_COPY not in self._changes.store.definitions
        for queue in self._registry.outgoing.values():
            self._changes.look_later(queue)

    def outgoing_for(self, name: names.SingleFormatName) -> OutgoingQueue:
        """See `Changes.outgoing_for`."""
        return self._changes.outgoing_for(name)

    def drop_unused(self, now: int) -> None:
        """Drop outgoing queues that two consecutive checks found unused. One on hold stays, or the hold would be
        lost."""
        while (look := self._changes.looks.pop(now)) is not None:
            queue = look[1]
            if queue.is_active or queue.on_hold or queue.touched or self._changes.staged_bytes(queue):
                queue.touched = False
                self._changes.look_later(queue)
                continue
            try:
                self._registry.drop(queue)
            except MessageStorageFailed as error:
                logger.warning("queue %s is unused and could not be dropped: %s", queue.properties.path_name, error)
                self._changes.look_later(queue)

    # -- administration ----------------------------------------------------------------------------------------

    def pause(self, queue: OutgoingQueue) -> None:
        """Pause Queue, 3.1.7.2.3: nothing leaves the queue."""
        queue.on_hold = True
        self._outbox.wake()

    def resume(self, queue: OutgoingQueue) -> None:
        """Resume Queue, 3.1.7.2.4."""
        queue.on_hold = False
        self._outbox.wake()

    def set_online(self, online: bool) -> None:
        """Bring Online and Take Offline, 3.1.4.13 and 3.1.4.12. Raises MessageStorageFailed."""
        if online and UNCONNECTED_COPY in self._changes.store.definitions:
            with storing():
                self._changes.store.append([Drop(UNCONNECTED_COPY)])
        self.online = online
        self._outbox.wake()

    # -- operations of the transport ---------------------------------------------------------------------------

    def take(self, queue: OutgoingQueue, lookup_identifier: int | None = None) -> Message | None:
        """Dispatch Send Message, 3.1.7.3.9, for one queue: lock and return a given message, or the oldest one of the
        highest priority. It stays locked until `transferred`, `ordered`, `finished` or `put_back`. A given message has
        a sequence number that is durable, and so is the message, even while compaction copies it.

        Returns None if no message may be sent now; see also `awaits_sync`. An expired message is left to its timer; one
        that cannot be decoded is quarantined.
        """
        while self.online and not queue.on_hold and not queue.deleted:
            key = queue.first() if lookup_identifier is None else lookup_identifier
            if key is None or key not in queue.entries or key in queue.locked:
                break
            try:
                message = queue.message(key)
            except UNREADABLE as error:
                self._holds.quarantine(queue, key, error)
                continue
            deadline = queue.deadline_of(message)
            if deadline and deadline <= self._clock():
                break
            if lookup_identifier is None and self._is_unsynced(queue, key) and not self._is_numbered_first(message):
                break
            queue.lock(key, Lock(LockKind.TRANSFER, queue))
            return message
        return None

    def awaits_sync(self, queue: OutgoingQueue) -> bool:
        """Whether the first available message may be sent only after the next sync.

        What put a message here may have removed another one: a relay moves a message, a receive is acknowledged. If it
        were sent before that is durable, a crash would leave both."""
        key = queue.first()
        return key is not None and self._is_unsynced(queue, key)

    def _is_unsynced(self, queue: OutgoingQueue, lookup_identifier: int) -> bool:
        location = queue.location(lookup_identifier)
        return location is not None and location >= self._changes.store.durable_end

    def _is_numbered_first(self, message: Message) -> bool:
        """Whether a message gets a sequence number here. It is sent when that is durable, which is later."""
        return message.is_transactional and message.source_machine_identifier == self._changes.machine.identifier

    def heads(self, queue: OutgoingQueue, most: int, size: int) -> tuple[list[int], list[bytes]]:
        """Return the first available messages that may be sent, with their records: up to `most`, as many of them as
        have up to `size` bytes, and none that `awaits_sync`. None while any message is due that its timer has not
        removed yet, or if one cannot be read; see `take`."""
        if not self.online or queue.on_hold or queue.deleted or self._changes.is_something_due():
            return [], []
        keys: list[int] = []
        records: list[bytes] = []
        for key in queue.heads(most):
            size -= queue.size_of(key)
            if size < 0:
                break
            keys.append(key)
        durable_end = self._changes.store.durable_end
        locations = list(takewhile(lambda at: at is None or at < durable_end, queue.locations(keys)))
        del keys[len(locations) :]
        stored = [location for location in locations if location is not None]
        try:
            read = iter(self._changes.store.read_all(stored))
        except (*UNREADABLE, OSError):
            return [], []
        for index, location in enumerate(locations):
            record = next(read) if location is not None else queue.held_record(keys[index])
            if record is None:  # an uncommitted send
                return keys[:index], records
            records.append(record)
        return keys, records

    def lock(self, queue: OutgoingQueue, keys: list[int]) -> None:
        """Lock messages of `heads` until `transferred_alone` or `put_back`."""
        for key in keys:
            queue.lock(key, Lock(LockKind.TRANSFER, queue))

    def transferred_alone(self, queue: OutgoingQueue, keys: list[int]) -> bool:
        """`transferred` for locked messages of this queue manager that request no copy. Returns False, with nothing
        changed, if that fails."""
        return remove_all(self._changes, [queue] * len(keys), keys, queue.locations(keys), locked=True)

    def transferred(self, queue: OutgoingQueue, messages: Iterable[Message]) -> None:
        """Remove messages that the destination or the next hop has received, and put the requested copies into the
        system journal ([MS-MQQB] 3.1.5.5.4).

        Raises MessageStorageFailed, with nothing changed.
        """
        with storing():
            change = ChangeSet(self._changes)
            for message in messages:
                change.remove(queue, message.lookup_identifier, message, MessageClass.ACK_REACH_QUEUE)
            change.commit()

    def ordered(self, queue: OutgoingQueue, lookup_identifiers: Iterable[int], also: Iterable[Operation] = ()) -> None:
        """Note that the destination has accepted or rejected these messages of a transactional sequence ([MS-MQQB]
        3.1.5.6). Messages that request a journal copy or a dead letter are kept until their final acknowledgment; the
        others are removed.

        Raises MessageStorageFailed, with nothing changed.
        """
        assert queue.journal is not None
        with storing():
            change = ChangeSet(self._changes)
            change.also(also)
            for key in lookup_identifiers:
                message = self._holds.readable(queue, key)
                if message.journaling_requested:
                    change.keep(queue, key, message, queue.journal)
                else:
                    change.remove(queue, key, message, MessageClass.ACK_REACH_QUEUE)
            change.commit()

    def finished(self, queue: OutgoingQueue, lookup_identifier: int, reason: MessageClass) -> None:
        """Apply the final acknowledgment of a transactional message ([MS-MQQB] 3.1.5.7), whether or not its order
        acknowledgment has arrived. `reason` is ACK_RECEIVE, or why the message was rejected or discarded.

        Raises MessageStorageFailed, with nothing changed.
        """
        assert queue.journal is not None
        where = queue if lookup_identifier in queue.entries else queue.journal
        with storing():
            change = ChangeSet(self._changes)
            change.finish(where, lookup_identifier, self._holds.readable(where, lookup_identifier), reason)
            change.commit()

    def refuse(self, queue: OutgoingQueue, message: Message, reason: MessageClass) -> None:
        """Remove a taken message that cannot be sent at all. Raises MessageStorageFailed, with nothing changed."""
        self._holds.remove(queue, message.lookup_identifier, message, reason)

    def put_back(self, queue: OutgoingQueue, lookup_identifier: int) -> None:
        """Put a message back after a failed transfer; it is discarded if it was purged or has expired."""
        if lookup_identifier in queue.locked:
            self._holds.release(queue, lookup_identifier)

    # -- foreign sites -----------------------------------------------------------------------------------------

    def declare_sites(self, sites: Sequence[ForeignSite], random: Callable[[int], bytes]) -> list[ConnectorQueue]:
        """Give each foreign site its two connector queues, and route its machines there.

        Returns the connector queues of sites that are no longer declared, if they are empty, so that they can be
        dropped; those with messages stay. Raises MessageStorageFailed.
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
        """Whether a connector queue whose site is no longer declared contains messages; if so, log a warning."""
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
                self._registry.update(queue, queue.properties._replace(label=site.name))
            return queue
        now = self._clock() // 1000
        properties = QueueProperties(
            str(name), instance=random(16), label=site.name, transactional=exactly_once, create_time=now,
            modify_time=now, security=default_queue_security(SYSTEM.sid).pack(),
        )  # fmt: skip
        return self._registry.create_connector(properties)
