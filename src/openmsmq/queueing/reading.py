"""Reading: peek, receive, waiting, two-phase reads, cursors, purging ([MS-MQDMPR] 3.1.7.1.1 to 17)."""

from __future__ import annotations

import logging

from openmsmq.model.constants import INFINITE, Access, Action, MessageClass, MessageSeekAction
from openmsmq.model.errors import HResult, MessageStorageFailed, MsmqError, QueueDeleted, TransactionSequence
from openmsmq.model.message import Message
from openmsmq.queueing.core import storing
from openmsmq.queueing.definitions import Definitions
from openmsmq.queueing.queue import Lock, LockKind, Queue, QueueKind
from openmsmq.queueing.readers import Accept, Cursor, OpenQueueDescriptor, Reply, WaitingMessageReadOperation
from openmsmq.queueing.transactions import Dequeued, Transaction
from openmsmq.store import DamagedRecord

logger = logging.getLogger(__name__)


class Reading(Definitions):
    """The operations that look at messages and take them."""

    def read(
        self,
        descriptor: OpenQueueDescriptor,
        action: Action,
        timeout: int,
        accept: Accept,
        reply: Reply,
        *,
        cursor: Cursor | None = None,
        transaction: Transaction | None = None,
        two_phase: bool = False,
    ) -> WaitingMessageReadOperation | None:
        """Dequeue Message, Peek Message and Peek Next Message ([MS-MQDMPR] 3.1.7.1.10, 14, 15).

        `timeout` in milliseconds or INFINITE. `accept` is offered the message before it is taken. `reply` is called
        once, now or later; what is returned is the waiting read, None if it is over. Never raises for a read that
        fails: `reply` gets the status.
        """
        queue = descriptor.queue
        if queue is None:
            reply(HResult.MQ_ERROR_QUEUE_DELETED, None)
            return None
        destructive = action is Action.RECEIVE
        if transaction is not None and not self._may_join(transaction, queue):
            reply(HResult.MQ_ERROR_TRANSACTION_USAGE, None)
            return None
        status, position = self._seek(queue, action, cursor)
        if status != HResult.MQ_OK:
            reply(status, None)
            return None
        reader = WaitingMessageReadOperation(
            next(self._readers), descriptor, destructive, accept, reply, cursor, transaction, two_phase
        )
        if position is not None:
            self._satisfy(reader, queue, position)
            return None
        if timeout == 0:
            nothing_behind_cursor = destructive and cursor is not None
            reply(HResult.MQ_ERROR_MESSAGE_NOT_FOUND if nothing_behind_cursor else HResult.MQ_ERROR_IO_TIMEOUT, None)
            return None
        if cursor is not None:
            cursor.wait(destructive)
        queue.waiting[reader.number] = reader
        if timeout != INFINITE:
            self._timeouts.add(self.state.clock() + timeout, reader.number, reader)
        return reader

    def read_by_lookup_identifier(
        self,
        descriptor: OpenQueueDescriptor,
        lookup_identifier: int,
        seek: MessageSeekAction,
        accept: Accept,
        reply: Reply,
        *,
        destructive: bool,
        two_phase: bool = False,
        transaction: Transaction | None = None,
    ) -> None:
        """Read Message By Lookup Identifier, [MS-MQDMPR] 3.1.7.1.13: never waits. `reply` gets the outcome.

        `lookup_identifier` may lack its upper byte, as MS-MQRR's pSequenceId does; SeekFirst and SeekLast need none.
        """
        queue = descriptor.queue
        if queue is None:
            reply(HResult.MQ_ERROR_QUEUE_DELETED, None)
            return
        if transaction is not None and not self._may_join(transaction, queue):
            reply(HResult.MQ_ERROR_TRANSACTION_USAGE, None)
            return
        status, position = self._look_up(queue, lookup_identifier, seek, destructive)
        if position is None:
            reply(status, None)
            return
        number = next(self._readers)
        self._satisfy(
            WaitingMessageReadOperation(number, descriptor, destructive, accept, reply, None, transaction, two_phase),
            queue,
            position,
        )

    @staticmethod
    def _look_up(queue: Queue, identifier: int, seek: MessageSeekAction, destructive: bool) -> tuple[int, int | None]:
        """The position to read, or the failure."""
        not_found = HResult.MQ_ERROR_MESSAGE_NOT_FOUND
        if seek is MessageSeekAction.FIRST:
            return not_found, queue.first()
        if seek is MessageSeekAction.LAST:
            return not_found, queue.last()
        start = queue.position_of(identifier)
        if start is None:
            return not_found, None
        if seek is MessageSeekAction.CURRENT and start in queue.locked:
            # A send that has not been committed is in no queue yet; what others hold may not be looked at.
            held = queue.locked[start].kind is not LockKind.ENQUEUE and not destructive
            return HResult.MQ_ERROR_TRANSACTION_USAGE if held else not_found, None
        if seek is MessageSeekAction.CURRENT:
            return not_found, start
        return not_found, queue.after(start) if seek is MessageSeekAction.NEXT else queue.before(start)

    @staticmethod
    def _may_join(transaction: Transaction, queue: Queue) -> bool:
        return transaction.is_open and (queue.properties.transactional or queue.kind is QueueKind.JOURNAL)

    @staticmethod
    def _seek(queue: Queue, action: Action, cursor: Cursor | None) -> tuple[int, int | None]:
        if cursor is None:
            if action is Action.PEEK_NEXT:
                return HResult.MQ_ERROR_ILLEGAL_CURSOR_ACTION, None
            return HResult.MQ_OK, queue.first()
        if action is Action.RECEIVE:
            return cursor.for_dequeue(queue)
        if action is Action.PEEK_CURRENT:
            return cursor.for_peek(queue)
        return cursor.for_peek_next(queue)

    def _satisfy(self, reader: WaitingMessageReadOperation, queue: Queue, position: int) -> bool:
        """Give a position to a reader. Returns whether the reader took it away from others."""
        queue.waiting.pop(reader.number, None)
        if reader.cursor is not None:
            reader.cursor.wait_ended()
        if reader.transaction is not None and not reader.transaction.is_open:
            reader.reply(HResult.MQ_ERROR_TRANSACTION_SEQUENCE, None)
            return False
        try:
            message = queue.message(position)
        except (DamagedRecord, ValueError, OSError) as error:
            logger.error("%s: message %#x can't be read: %s", queue.properties.path_name, position, error)
            reader.reply(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED, None)
            return False
        status = reader.accept(message)
        if status == HResult.MQ_OK and reader.destructive:
            status = self._take(reader, queue, position, message)
        if status != HResult.MQ_OK:
            reader.reply(status, None)
            return False
        if reader.cursor is not None:
            if reader.destructive:
                reader.cursor.dequeued(position)
            else:
                reader.cursor.peeked(position)
        reader.reply(HResult.MQ_OK, message)
        return reader.destructive

    def _take(self, reader: WaitingMessageReadOperation, queue: Queue, position: int, message: Message) -> int:
        if reader.transaction is not None:
            queue.lock(position, Lock(LockKind.DEQUEUE, reader.transaction))
            reader.transaction.operations.append(Dequeued(queue, position))
        elif reader.two_phase:
            queue.lock(position, Lock(LockKind.READ, reader.descriptor))
            reader.descriptor.held.add(position)
        else:
            try:
                self._delete(queue, position, message, MessageClass.ACK_RECEIVE)
            except MessageStorageFailed as error:
                return error.hresult
        return HResult.MQ_OK

    def end_two_phase(self, descriptor: OpenQueueDescriptor, lookup_identifier: int, delete: bool) -> None:
        """Dequeue Message End, [MS-MQDMPR] 3.1.7.1.12. Raises QueueDeleted, TransactionSequence."""
        queue = descriptor.queue
        if queue is None:
            raise QueueDeleted()
        lock = queue.locked.get(lookup_identifier)
        if lock is None or lock.kind is not LockKind.READ or lock.owner is not descriptor:
            raise TransactionSequence(detail="the message is not locked by this reader")
        if not delete and not lock.purge_pending:
            self._release(queue, lookup_identifier)
        else:
            reason = MessageClass.NACK_Q_PURGED if lock.purge_pending else MessageClass.ACK_RECEIVE
            self._delete(queue, lookup_identifier, queue.message(lookup_identifier), reason)
        descriptor.held.discard(lookup_identifier)

    def cancel(self, reader: WaitingMessageReadOperation, status: int = HResult.MQ_ERROR_OPERATION_CANCELLED) -> bool:
        """Cancel Waiting Message Read Request, 3.1.7.1.17. Returns False if the read is over already."""
        queue = reader.descriptor.queue
        if queue is None or queue.waiting.pop(reader.number, None) is None:
            return False
        reader.end(status)
        return True

    def open_cursor(self, descriptor: OpenQueueDescriptor) -> Cursor:
        """Open Cursor, [MS-MQDMPR] 3.1.7.1.1. Raises QueueDeleted, or MsmqError when opened for sending."""
        if descriptor.access is Access.SEND:
            raise MsmqError(HResult.MQ_ERROR_ACCESS_DENIED, "a cursor needs peek or receive access")
        if descriptor.queue is None:
            raise QueueDeleted()
        cursor = Cursor(next(self._handles), descriptor)
        descriptor.cursors[cursor.handle] = cursor
        return cursor

    def close_cursor(self, cursor: Cursor) -> None:
        """Close Cursor, 3.1.7.1.2: its waiting reads end as cancelled."""
        queue = cursor.descriptor.queue
        if queue is not None:
            for reader in [r for r in queue.waiting.values() if r.cursor is cursor]:
                self.cancel(reader)
        cursor.descriptor.cursors.pop(cursor.handle, None)

    def purge(self, descriptor: OpenQueueDescriptor) -> int:
        """Purge Queue, [MS-MQDMPR] 3.1.7.1.7. Locked messages go when their reader puts them back. Returns how many
        went at once. Raises QueueDeleted, or MsmqError without receive access."""
        queue = descriptor.queue
        if not descriptor.destructive:
            raise MsmqError(HResult.MQ_ERROR_ACCESS_DENIED, "purging needs receive access")
        if queue is None:
            raise QueueDeleted()
        for lock in queue.locked.values():
            if lock.kind is not LockKind.ENQUEUE:
                lock.purge_pending = True
        keys = list(queue.available)
        with storing():
            self._sweep(queue, keys, MessageClass.NACK_Q_PURGED)
        return len(keys)
