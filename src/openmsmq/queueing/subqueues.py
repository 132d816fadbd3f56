"""Reader operations besides receiving: move messages to subqueues and back, and reject them ([MS-MQDMPR] 3.1.7.1.16,
[MS-MQRR] 3.1.4.14).

A subqueue is created by opening it, and deleted when it is empty and closed; see `registry`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from openmsmq.model.constants import Access, MessageClass
from openmsmq.model.errors import (
    HResult,
    InvalidHandle,
    MessageStorageFailed,
    MsmqError,
    QueueDeleted,
)
from openmsmq.queueing.change_set import ChangeSet
from openmsmq.queueing.changes import Changes
from openmsmq.queueing.descriptors import OpenQueueDescriptor
from openmsmq.queueing.message_locks import MessageLocks
from openmsmq.queueing.queue import LockKind, Queue
from openmsmq.queueing.storage import storing
from openmsmq.queueing.transactions import Transactions
from openmsmq.queueing.unit_of_work import Transaction


class Subqueues:
    """Moves messages between a queue and its subqueues, and rejects them."""

    def __init__(self, changes: Changes, holds: MessageLocks, transactions: Transactions) -> None:
        self._changes: Final = changes
        self._holds: Final = holds
        self._transactions: Final = transactions

    def move(
        self,
        source: OpenQueueDescriptor,
        target: OpenQueueDescriptor,
        lookup_identifier: int,
        enlisted: Callable[[], Transaction] | None = None,
    ) -> None:
        """Move Message, [MS-MQDMPR] 3.1.7.1.16, with the checks of [MS-MQRR] 3.1.4.10.

        `lookup_identifier` may lack its upper byte. `enlisted` returns the transaction of the move; it is called after
        all other checks, whose failures take precedence. Raises QueueDeleted, InvalidHandle (the target was not opened
        for moving), MessageStorageFailed (disk full) or MsmqError; nothing has moved then.
        """
        if target.access is not Access.MOVE:
            raise InvalidHandle(detail=f"{target.format_name} was not opened for moving")
        if not source.destructive:
            raise MsmqError(HResult.MQ_ERROR_ACCESS_DENIED, f"{source.format_name} was not opened for receiving")
        if source.queue is None or target.queue is None:
            raise QueueDeleted(detail=f"{source.name} or {target.name} was deleted")
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
                change = ChangeSet(self._changes)
                change.move(queue, key, self._holds.readable(queue, key), destination)
                change.commit()
            return
        self._transactions.move(enlisted(), queue, key, destination)

    def reject(self, descriptor: OpenQueueDescriptor, lookup_identifier: int, *, rejected: bool = True) -> None:
        """Mark a message that a transaction has received as rejected ([MS-MQRR] 3.1.4.14): when the transaction
        commits, it is removed with NackReceiveRejected. With `rejected` False only the checks are made. Raises
        QueueDeleted, or MsmqError."""
        if not descriptor.destructive:
            raise MsmqError(HResult.MQ_ERROR_ACCESS_DENIED, f"{descriptor.format_name} was not opened for receiving")
        if descriptor.queue is None:
            raise QueueDeleted(detail=descriptor.name)
        queue, path_name = descriptor.queue, descriptor.queue.properties.path_name
        key = queue.position_of(lookup_identifier)
        lock = queue.locked.get(key) if key is not None else None
        if key is None or (lock is not None and lock.kind is LockKind.ENQUEUE):
            raise MsmqError(HResult.MQ_ERROR_MESSAGE_NOT_FOUND, f"{path_name}: no message {lookup_identifier:#x}")
        if not self._transactions.reject(queue, key, MessageClass.NACK_RECEIVE_REJECTED if rejected else None):
            raise MsmqError(
                HResult.MQ_ERROR_TRANSACTION_USAGE, f"{path_name}: no transaction has received message {key:#x}"
            )


def _head(queue: Queue) -> Queue:
    return queue.parent or queue
