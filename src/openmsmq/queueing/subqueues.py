"""Subqueues: made by opening them, filled by moving, gone when empty and closed ([MS-MQDMPR] 3.1.7.1.16)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from openmsmq.model import names
from openmsmq.model.constants import Access, MessageClass
from openmsmq.model.errors import (
    HResult,
    InvalidHandle,
    MessageStorageFailed,
    MsmqError,
    QueueDeleted,
)
from openmsmq.queueing.core import storing
from openmsmq.queueing.plan import Plan
from openmsmq.queueing.queue import Lock, LockKind, Queue
from openmsmq.queueing.readers import OpenQueueDescriptor
from openmsmq.queueing.sending import Sending
from openmsmq.queueing.state import subqueue_definition
from openmsmq.queueing.transactions import Dequeued, Moved, Transaction, TransactionEvent
from openmsmq.store import Put


class Subqueues(Sending):
    """The operations that move messages between a queue and its subqueues, and that reject them."""

    def subqueue(self, parent: Queue, name: str) -> Queue:
        """The subqueue of that name, made if needed. Raises MessageStorageFailed (disk full)."""
        existing = parent.subqueues.get(name.lower())
        if existing is not None:
            return existing
        number, numbered = self.state.new_queue_number()
        definition = json.dumps([parent.number, name]).encode()
        with storing():
            self.state.store.append([Put(subqueue_definition(number), definition), numbered])
        return self.state.register_subqueue(number, parent, name)

    def parent_of(self, format_name: names.FormatName) -> Queue | None:
        """The local queue whose subqueue a direct format name names; None for every other name."""
        if not isinstance(format_name, names.DirectFormatName) or not format_name.subqueue:
            return None
        return self.state.local_queue(replace(format_name, suffix=names.Suffix.NONE, subqueue=""))

    def move(
        self,
        source: OpenQueueDescriptor,
        target: OpenQueueDescriptor,
        lookup_identifier: int,
        enlisted: Callable[[], Transaction] | None = None,
    ) -> None:
        """Move Message, [MS-MQDMPR] 3.1.7.1.16, with the checks of [MS-MQRR] 3.1.4.10.

        `lookup_identifier` may lack its upper byte. `enlisted` finds the transaction that the move is part of; it is
        called after all other checks, whose failures come first on the wire. Raises QueueDeleted, InvalidHandle (the
        target was not opened for moving), MessageStorageFailed (disk full) or MsmqError; then nothing has moved.
        """
        if target.access is not Access.MOVE:
            raise InvalidHandle(detail=f"{target.format_name} was not opened for moving")
        if not source.destructive:
            raise MsmqError(HResult.MQ_ERROR_ACCESS_DENIED, f"{source.format_name} was not opened for receiving")
        if source.queue is None or target.queue is None:
            raise QueueDeleted(detail=f"{source.name} or {target.name}")
        queue, destination = source.queue, target.queue
        if queue is destination or _head(queue) is not _head(destination):
            raise MsmqError(
                HResult.STATUS_INVALID_PARAMETER,
                f"{target.format_name} is neither a subqueue of {source.format_name} nor its queue nor a sibling",
            )
        if enlisted is not None and not destination.properties.transactional:
            raise MsmqError(HResult.MQ_ERROR_TRANSACTION_USAGE, f"{target.format_name} is not transactional")
        key = queue.position_of(lookup_identifier)
        lock = queue.locked.get(key) if key is not None else None
        if key is None or (lock is not None and lock.kind is LockKind.ENQUEUE):
            raise MsmqError(
                HResult.MQ_ERROR_MESSAGE_NOT_FOUND, f"{source.format_name}: no message {lookup_identifier:#x}"
            )
        if lock is not None and lock.kind is LockKind.QUARANTINE:
            raise MessageStorageFailed(detail=f"message {key:#x} of {source.format_name} can't be decoded")
        if lock is not None:
            raise MsmqError(
                HResult.MQ_ERROR_MESSAGE_LOCKED_UNDER_TRANSACTION,
                f"{source.format_name}: message {key:#x} is locked by a reader or transaction",
            )
        if enlisted is None:
            with storing():
                plan = Plan(self.state)
                plan.move(queue, key, self.readable(queue, key), destination)
                plan.carry_out()
            return
        transaction = enlisted()
        transaction.check(TransactionEvent.WORK)
        queue.lock(key, Lock(LockKind.DEQUEUE, transaction))
        transaction.operations.append(Moved(queue, key, destination))

    def reject(self, descriptor: OpenQueueDescriptor, lookup_identifier: int, *, rejected: bool = True) -> None:
        """Mark a message that a transaction has received as rejected ([MS-MQRR] 3.1.4.14): when the transaction
        commits, it is removed with NackReceiveRejected. With `rejected` False only the checks are made. Raises
        QueueDeleted, or MsmqError."""
        if not descriptor.destructive:
            raise MsmqError(HResult.MQ_ERROR_ACCESS_DENIED, f"{descriptor.format_name} was not opened for receiving")
        if descriptor.queue is None:
            raise QueueDeleted(detail=descriptor.name)
        transaction, operation = self._received(descriptor.queue, lookup_identifier)
        transaction.check(TransactionEvent.WORK)
        if rejected:
            operation.reason = MessageClass.NACK_RECEIVE_REJECTED

    def _received(self, queue: Queue, lookup_identifier: int) -> tuple[Transaction, Dequeued]:
        key = queue.position_of(lookup_identifier)
        lock = queue.locked.get(key) if key is not None else None
        if key is None or (lock is not None and lock.kind is LockKind.ENQUEUE):
            raise MsmqError(
                HResult.MQ_ERROR_MESSAGE_NOT_FOUND, f"{queue.properties.path_name}: no message {lookup_identifier:#x}"
            )
        if lock is not None and isinstance(lock.owner, Transaction):
            for operation in lock.owner.operations:
                if isinstance(operation, Dequeued) and operation.queue is queue and operation.lookup_identifier == key:
                    return lock.owner, operation
        raise MsmqError(
            HResult.MQ_ERROR_TRANSACTION_USAGE,
            f"{queue.properties.path_name}: no transaction has received message {key:#x}",
        )


def _head(queue: Queue) -> Queue:
    return queue.parent or queue
