"""Locked positions: put them back, remove them, and expire messages.

A lock is an entry in `Queue.locked`. Its holder is a transaction, a two-phase read, a transfer or a consumer group. A
message whose record cannot be decoded is in quarantine: locked without a holder.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

from openmsmq.model.constants import MessageClass
from openmsmq.model.errors import MessageStorageFailed, MsmqError
from openmsmq.model.exhaustion import OutOfResources
from openmsmq.model.message import Message
from openmsmq.queueing.change_set import ChangeSet
from openmsmq.queueing.changes import RETRY, Changes
from openmsmq.queueing.entries import LARGE, NO_ROOMS, CaptureBuffers, CapturedEntries
from openmsmq.queueing.outbox import Outbox
from openmsmq.queueing.properties import POISON
from openmsmq.queueing.queue import Lock, LockKind, Queue, QueueKind
from openmsmq.queueing.registry import Registry
from openmsmq.queueing.storage import UNREADABLE, storing
from openmsmq.store import StoreFailed

logger = logging.getLogger(__name__)


class MessageLocks:
    """Releases locks and removes messages."""

    def __init__(self, registry: Registry, changes: Changes, outbox: Outbox, clock: Callable[[], int]) -> None:
        self._registry: Final = registry
        self._changes: Final = changes
        self._outbox: Final = outbox
        self._clock: Final = clock

    def readable(self, queue: Queue, lookup_identifier: int) -> Message:
        """Return the message at a position. Raises MessageStorageFailed if its record cannot be read or decoded; the
        position is then quarantined, unless it is locked."""
        try:
            return queue.message(lookup_identifier)
        except UNREADABLE as error:
            if lookup_identifier not in queue.locked:
                self.quarantine(queue, lookup_identifier, error)
            detail = f"message {lookup_identifier:#x} of {queue.properties.path_name} can't be read: {error}"
            raise MessageStorageFailed(detail=detail) from error

    def quarantine(self, queue: Queue, lookup_identifier: int, error: BaseException) -> None:
        """Hide a position whose record cannot be decoded from readers. It stays in the store, where `openmsmq fsck`
        finds it, until the queue is purged or deleted."""
        logger.error(
            "queue %s: message %#x can't be decoded and is hidden from readers until the queue is purged: %s",
            queue.properties.path_name, lookup_identifier, error,
        )  # fmt: skip
        lock = Lock(LockKind.QUARANTINE, None)
        if lookup_identifier in queue.locked:
            queue.locked[lookup_identifier] = lock
        else:
            queue.lock(lookup_identifier, lock)

    def remove(self, queue: Queue, lookup_identifier: int, message: Message, reason: MessageClass) -> None:
        """Remove a message, with the consequences of the reason. Raises MessageStorageFailed, with nothing changed."""
        with storing():
            change = ChangeSet(self._changes)
            change.remove(queue, lookup_identifier, message, reason)
            change.commit()

    def remove_received(self, queue: Queue, lookup_identifier: int, lock: Lock) -> None:
        """Remove a message that a reader has acknowledged. Raises MessageStorageFailed, with nothing changed."""
        if not lock.is_alone or queue.properties.journaling or queue.location(lookup_identifier) is None:
            self.remove(queue, lookup_identifier, self.readable(queue, lookup_identifier), MessageClass.ACK_RECEIVE)
            return
        with storing():
            change = ChangeSet(self._changes)
            change.remove_without_effects(queue, lookup_identifier)
            change.commit()

    def sweep(self, queue: Queue, lookup_identifiers: list[int], reason: MessageClass) -> None:
        """Remove many messages in bounded batches. Raises the errors of the store."""
        change = ChangeSet(self._changes)
        for key in lookup_identifiers:
            try:
                message = queue.message(key)
            except UNREADABLE as error:
                path_name = queue.properties.path_name
                logger.error("queue %s: message %#x is removed; it could not be decoded: %s", path_name, key, error)
                change.remove_without_effects(queue, key)
            else:
                if queue.kind is QueueKind.AWAITING:
                    change.finish(queue, key, message, reason)
                else:
                    change.remove(queue, key, message, reason)
            if change.is_full:
                change.commit()
                change = ChangeSet(self._changes)
        change.commit()

    def release(self, queue: Queue, lookup_identifier: int) -> None:
        """Release a lock. The message is purged if a purge was requested meanwhile, expired if it is due, moved away at
        its delivery limit, and otherwise available again."""
        lock = queue.locked[lookup_identifier]
        try:
            message = queue.message(lookup_identifier)
        except UNREADABLE as error:
            self.quarantine(queue, lookup_identifier, error)
            return
        except OutOfResources as error:
            logger.error(
                "queue %s: message %#x is available again, %s: %s", queue.properties.path_name, lookup_identifier,
                "though its purge was requested" if lock.purge_pending else "and was not checked", error,
            )  # fmt: skip
            queue.unlock(lookup_identifier)
            self._changes.expire_later(lookup_identifier, queue.number, self._clock())
            self._outbox.arrived(queue, lookup_identifier)
            return
        deadline = queue.deadline_of(message)
        reason = None
        if lock.purge_pending:
            # Deviation D-04 from [MS-MQDMPR] 3.1.4.5: not AckReceive, because the message was not received.
            reason = MessageClass.NACK_Q_PURGED
        elif deadline and deadline <= self._clock():
            # Deviation D-05 from [MS-MQDMPR] 3.1.7.2.7: decided when the transaction has ended.
            reason = queue.expiry_reason(message)
        if reason is not None:
            try:
                self.remove(queue, lookup_identifier, message, reason)
                return
            except MessageStorageFailed as error:  # not the caller's failure; it may have more locks to release
                name = queue.properties.path_name
                logger.error("queue %s: message %#x could not be removed: %s", name, lookup_identifier, error)
                if deadline:
                    self._changes.expire_later(lookup_identifier, queue.number, self._clock())
        elif self._is_poison(queue, lookup_identifier) and self._move_poison(queue, lookup_identifier, message):
            return
        queue.unlock(lookup_identifier)
        self._outbox.arrived(queue, lookup_identifier)

    def _is_poison(self, queue: Queue, lookup_identifier: int) -> bool:
        """Whether a message of an application queue has reached the delivery limit (D-196). Only `Queue.aborts` counts.
        Messages in the poison subqueue stay there."""
        limit = queue.properties.delivery_limit
        if not limit or queue.aborts.get(lookup_identifier, 0) < limit:
            return False
        return queue.is_destination and not (queue.parent is not None and queue.name.lower() == POISON)

    def _move_poison(self, queue: Queue, lookup_identifier: int, message: Message) -> bool:
        """Move a message at its delivery limit away from readers. Returns False if that fails and the message stays."""
        path_name, limit = queue.properties.path_name, queue.properties.delivery_limit
        try:
            where = self._place_poison(queue, lookup_identifier, message)
        except MsmqError as error:  # not the failure of the reader that aborted; the message is delivered again
            logger.error(
                "queue %s: message %#x has reached delivery_limit=%d and could not be moved away; readers get it "
                "again: %s", path_name, lookup_identifier, limit, error,
            )  # fmt: skip
            return False
        self._changes.poisoned += 1
        logger.warning(
            "queue %s: message %s (lookup identifier %#x) moved to %s: its receives were aborted %d times "
            "(delivery_limit=%d; %d such messages since the start)",
            path_name, message.id, lookup_identifier, where, message.abort_count, limit, self._changes.poisoned,
        )  # fmt: skip
        return True

    def _place_poison(self, queue: Queue, lookup_identifier: int, message: Message) -> str:
        """Move a poison message and return the path name of its new queue. If the dead-letter queue is full, which
        would discard the message, it goes to the subqueue. Raises MessageStorageFailed or InsufficientResources, with
        nothing changed."""
        change = ChangeSet(self._changes)
        dead_letters = change.dead_letters_for(message)
        if queue.properties.poison_to_deadletter and change.has_room(dead_letters, message.size):
            change.discard_poison(queue, lookup_identifier, message)
            target = dead_letters
        else:
            target = self._registry.subqueue(queue.parent or queue, POISON)
            change.move_poison(queue, lookup_identifier, message, target)
        with storing():
            change.commit()
        return target.properties.path_name

    # -- time --------------------------------------------------------------------------------------------------

    def expire(self, now: int) -> None:
        """Time To Be Received Timer Expired, [MS-MQDMPR] 3.1.7.2.7, of all messages that are due."""
        deadlines = self._changes.deadlines
        while (due := deadlines.pop(now)) is not None:
            lookup_identifier, number = due
            queue = self._registry.queues.get(number)
            if queue is None or lookup_identifier not in queue.entries:  # one moved away and back has two deadlines
                continue
            try:
                self._expire_message(queue, lookup_identifier, now)
            except StoreFailed:
                raise  # the daemon ends
            except Exception as error:  # one message must not stop the timers of all others
                logger.error(
                    "queue %s: cannot remove the expired message %#x; next attempt in %d s: %s",
                    queue.properties.path_name, lookup_identifier, RETRY // 1000, error,
                )  # fmt: skip
                self._changes.expire_later(lookup_identifier, number, now)

    def expire_if_due(self, queue: Queue, lookup_identifier: int, message: Message) -> bool:
        """Remove a message that is about to be read if it has expired; return whether it has. Its timer may be late
        after a step of the clock. Returns True even if the removal fails: the message must not be read."""
        deadline = queue.deadline_of(message)
        if not deadline or deadline > self._clock():
            return False
        try:
            self.remove(queue, lookup_identifier, message, queue.expiry_reason(message))
        except (MessageStorageFailed, StoreFailed) as error:  # its timer will retry
            path_name = queue.properties.path_name
            logger.error(
                "queue %s: message %#x is due and could not be removed: %s", path_name, lookup_identifier, error
            )
        return True

    def _expire_message(self, queue: Queue, lookup_identifier: int, now: int) -> None:
        """Remove a message if it is due. A locked one is checked when its lock is released."""
        lock = queue.locked.get(lookup_identifier)
        if lock is None:
            try:
                message = queue.message(lookup_identifier)
            except UNREADABLE as error:
                self.quarantine(queue, lookup_identifier, error)
                return
            deadline = queue.deadline_of(message)
            if 0 < deadline <= now:
                self.remove(queue, lookup_identifier, message, queue.expiry_reason(message))
            elif deadline:
                self._changes.deadlines.add(deadline, lookup_identifier, queue.number)
        elif lock.overdue is not None:
            lock.overdue.add(lookup_identifier)

    def rooms(self) -> Callable[[], CaptureBuffers]:
        """Return a thread-safe function that allocates buffers for `capture`. Call it soon: the sizes are the current
        ones."""
        large = {
            queue.number: len(queue.entries) for queue in self._registry.queues.values() if len(queue.entries) >= LARGE
        }
        return partial(CaptureBuffers.ready, large, len(self._changes.deadlines))

    def capture(self, rooms: CaptureBuffers = NO_ROOMS) -> Iterator[tuple[int, CapturedEntries]]:
        """Yield queue number and committed messages, locked or not, of each queue for a checkpoint."""
        deadlines = self._changes.deadlines.capture(rooms.deadlines)
        for queue in self._registry.queues.values():
            if not queue.entries:
                continue
            others: dict[int, int] = {}
            for key, lock in queue.locked.items():  # one that became due while locked has no deadline entry now
                known = key not in lock.overdue if lock.overdue is not None else lock.kind is LockKind.ENQUEUE
                if not known:
                    with suppress(*UNREADABLE):
                        others[key] = queue.deadline_of(queue.message(key))
            yield queue.number, queue.capture(deadlines, others, rooms.queues.get(queue.number))
