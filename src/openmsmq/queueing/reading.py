"""Reading: peek, receive, waiting, two-phase reads, cursors, purging ([MS-MQDMPR] 3.1.7.1.1 to 17)."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from enum import Enum

from openmsmq.model.constants import INFINITE, Access, Action, MessageClass, MessageSeekAction
from openmsmq.model.errors import HResult, MessageStorageFailed, MsmqError, QueueDeleted, TransactionSequence
from openmsmq.model.lookup_id import lookup_id
from openmsmq.model.message import Message
from openmsmq.queueing.core import UNREADABLE, storing
from openmsmq.queueing.definitions import Definitions
from openmsmq.queueing.outbox import STEPS, answered, guarded
from openmsmq.queueing.plan import Plan
from openmsmq.queueing.queue import Lock, LockKind, Queue, QueueKind
from openmsmq.queueing.readers import Accept, Charge, Cursor, OpenQueueDescriptor, Reply, WaitingMessageReadOperation
from openmsmq.queueing.transactions import Dequeued, Enqueued, Transaction
from openmsmq.store import StoreFailed

logger = logging.getLogger(__name__)

# Where a read by lookup identifier looks next when the message that it names can't be read.
_NEIGHBOURS: dict[MessageSeekAction, Callable[[Queue, int], int | None]] = {
    # Deviation D-02 from [MS-MQDMPR] 3.1.7.3.2: from START the first position, not the one behind it.
    MessageSeekAction.FIRST: lambda queue, position: queue.after(position),
    MessageSeekAction.NEXT: lambda queue, position: queue.after(position),
    MessageSeekAction.LAST: lambda queue, position: queue.before(position),
    MessageSeekAction.PREVIOUS: lambda queue, position: queue.before(position),
    MessageSeekAction.CURRENT: lambda queue, position: None,
}


class Offer(Enum):
    """What came of offering a message to a reader."""

    ACCEPTED = "accepted"
    REFUSED = "refused"  # the reader has got a failure
    UNREADABLE = "unreadable"  # by anybody or by this reader, who has not been answered


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

        `timeout` in milliseconds (deviation D-08) or INFINITE. `accept` is offered the message before it is taken.
        `reply` is called once, now or later; what is returned is the waiting read, None if it is over. Never raises for
        a read that fails: `reply` gets the status.
        """
        queue = descriptor.queue
        if queue is None:
            reply(HResult.MQ_ERROR_QUEUE_DELETED, None)
            return None
        destructive = action is Action.RECEIVE
        if transaction is not None and not self._may_join(transaction, queue):
            reply(HResult.MQ_ERROR_TRANSACTION_USAGE, None)
            return None
        if queue.arrived and destructive:  # what arrived belongs to those who have waited for it
            self._deliver(queue, len(queue.arrived))
        status, position = self._seek(queue, action, cursor)
        if status != HResult.MQ_OK:
            reply(status, None)
            return None
        reader = WaitingMessageReadOperation(
            next(self._readers), descriptor, destructive, accept, reply, cursor, transaction, two_phase
        )
        while position is not None:
            if self._offer(reader, queue, position) is not Offer.UNREADABLE:
                return None
            position = queue.after(position)
        if timeout == 0:
            nothing_behind_cursor = destructive and cursor is not None
            reply(HResult.MQ_ERROR_MESSAGE_NOT_FOUND if nothing_behind_cursor else HResult.MQ_ERROR_IO_TIMEOUT, None)
            return None
        reader.wait(queue)
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
        reader = WaitingMessageReadOperation(
            next(self._readers), descriptor, destructive, accept, reply, None, transaction, two_phase
        )
        while position is not None:
            if self._offer(reader, queue, position) is not Offer.UNREADABLE:
                return
            position = _NEIGHBOURS[seek](queue, position)
        current = seek is MessageSeekAction.CURRENT
        reply(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED if current else HResult.MQ_ERROR_MESSAGE_NOT_FOUND, None)

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
            if queue.locked[start].kind is LockKind.QUARANTINE:
                return HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED, None
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

    def turn(self) -> None:
        """Serve what the outbox holds: readers whose message has come, and the transport. Called from an empty stack;
        whatever goes wrong is logged and concerns one reader only."""
        outbox = self.state.outbox
        outbox.begin()
        left = STEPS
        while (queue := outbox.take_queue()) is not None:
            left -= self._deliver(queue, left)
            if queue.arrived:
                outbox.put_back(queue)
                break
        if outbox.take_wake():
            guarded("waking the transport", self.state.transport.wake)

    def _deliver(self, queue: Queue, limit: int) -> int:
        """Message Position Available, [MS-MQDMPR] 3.1.7.2.2: offer what arrived to waiting readers, first come first
        served; all that peek see it, one that receives takes it. Returns how many positions were offered."""
        count = 0
        while queue.arrived and queue.waiting and count < limit:
            key = queue.arrived.popleft()
            count += 1
            for reader in list(queue.waiting.values()):
                if key not in queue.entries or key in queue.locked:
                    break
                if reader.number in queue.waiting:
                    self._offer(reader, queue, key)
        if not queue.waiting:
            queue.arrived.clear()
        return count

    def _offer(self, reader: WaitingMessageReadOperation, queue: Queue, position: int) -> Offer:
        """Offer a message to a reader: the answer is built, then the message is taken, then the answer is sent. What
        fails is this reader's failure, and the message is available again."""
        if reader.transaction is not None and not reader.transaction.is_open:
            self.end_read(reader, HResult.MQ_ERROR_TRANSACTION_SEQUENCE)
            return Offer.REFUSED
        try:
            message = queue.message(position)
        except UNREADABLE as error:
            self.quarantine(queue, position, error)
            return Offer.UNREADABLE
        try:
            status = reader.accept(message)
        except (ValueError, struct.error) as error:
            logger.error(
                "queue %s: message %#x can't be encoded for a reader and was not returned to it: %s",
                queue.properties.path_name, position, error,
            )  # fmt: skip
            return Offer.UNREADABLE
        except Exception:  # a fault of one reader's protocol: it gets MQ_ERROR, the message stays for others
            logger.exception("queue %s: returning message %#x to a reader failed", queue.properties.path_name, position)
            status = int(HResult.MQ_ERROR)
        reader.leave()
        cursor = reader.cursor
        if cursor is not None and not reader.destructive:
            cursor.peeked(position)  # whether or not its buffer was large enough: 3.2.7.2, 3.2.7.3
        if status == HResult.MQ_OK and reader.destructive:
            status = self._take(reader, queue, position, message)
        if status != HResult.MQ_OK:
            answered(reader, status, None)
            return Offer.REFUSED
        if not answered(reader, HResult.MQ_OK, message) and reader.destructive:
            self._undo(reader, queue, position, message)
        elif cursor is not None and reader.destructive:
            cursor.dequeued(position)
        return Offer.ACCEPTED

    def _undo(self, reader: WaitingMessageReadOperation, queue: Queue, position: int, message: Message) -> None:
        """The message that a reader has taken could not be sent to it."""
        if reader.transaction is not None:
            self.withdraw(reader.transaction, reader.descriptor, position)
        elif reader.two_phase:
            reader.descriptor.held.discard(position)
            if position in queue.locked:
                self._release(queue, position)
        elif not queue.deleted:  # it is removed; the store takes no number twice, so it returns as the latest
            message.lookup_identifier = lookup_id(message.priority, self.state.next_sequence())
            plan = Plan(self.state)
            plan.insert(queue, message, message.size)
            with storing():
                plan.carry_out()

    def withdraw(self, transaction: Transaction, descriptor: OpenQueueDescriptor, lookup_identifier: int) -> None:
        """Take a receive out of a transaction: the message is available again. Nothing happens if the transaction or
        the queue is gone."""
        queue = descriptor.queue
        lock = queue.locked.get(lookup_identifier) if queue is not None else None
        if queue is None or lock is None or lock.owner is not transaction or not transaction.is_open:
            return
        transaction.operations = [
            o for o in transaction.operations
            if isinstance(o, Enqueued) or o.queue is not queue or o.lookup_identifier != lookup_identifier
        ]  # fmt: skip
        self._release(queue, lookup_identifier)

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
            except StoreFailed:
                return HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED  # nothing is acknowledged any more; the daemon ends
        return HResult.MQ_OK

    def end_two_phase(self, descriptor: OpenQueueDescriptor, lookup_identifier: int, delete: bool) -> None:
        """Dequeue Message End, [MS-MQDMPR] 3.1.7.1.12. Raises QueueDeleted, TransactionSequence."""
        queue = descriptor.queue
        if queue is None:
            raise QueueDeleted(detail=descriptor.name)
        lock = queue.locked.get(lookup_identifier)
        if lock is None or lock.kind is not LockKind.READ or lock.owner is not descriptor:
            raise TransactionSequence(detail=f"{descriptor.name}: the message is not locked by this reader")
        if not delete and not lock.purge_pending:
            self._release(queue, lookup_identifier)
        else:
            reason = MessageClass.NACK_Q_PURGED if lock.purge_pending else MessageClass.ACK_RECEIVE
            self._delete(queue, lookup_identifier, self.readable(queue, lookup_identifier), reason)
        descriptor.held.discard(lookup_identifier)

    def cancel(self, reader: WaitingMessageReadOperation, status: int = HResult.MQ_ERROR_OPERATION_CANCELLED) -> bool:
        """Cancel Waiting Message Read Request, 3.1.7.1.17. Returns False if the read is over already."""
        if reader.number not in reader.descriptor.waiting:
            return False
        self.end_read(reader, status)
        return True

    def open_cursor(self, descriptor: OpenQueueDescriptor, charge: Charge | None = None) -> Cursor:
        """Open Cursor, [MS-MQDMPR] 3.1.7.1.1. Raises QueueDeleted, MsmqError when opened for sending or moving, and
        what `charge` raises, to whom it is counted."""
        if descriptor.access in (Access.SEND, Access.MOVE):
            raise MsmqError(HResult.MQ_ERROR_ACCESS_DENIED, f"{descriptor.name}: a cursor needs peek or receive access")
        if descriptor.queue is None:
            raise QueueDeleted(detail=descriptor.name)
        if charge is not None:
            charge(1)
        cursor = Cursor(self.unused_handle(descriptor.cursors), descriptor, charge=charge)
        descriptor.cursors[cursor.handle] = cursor
        return cursor

    def close_cursor(self, cursor: Cursor) -> None:
        """Close Cursor, 3.1.7.1.2: its waiting reads end as cancelled."""
        for reader in [r for r in cursor.descriptor.waiting.values() if r.cursor is cursor]:
            self.cancel(reader)
        if cursor.descriptor.cursors.pop(cursor.handle, None) is not None and cursor.charge is not None:
            cursor.charge(-1)

    def purge(self, descriptor: OpenQueueDescriptor) -> int:
        """Purge Queue, [MS-MQDMPR] 3.1.7.1.7. Locked messages go when their reader puts them back. Returns how many
        went at once. Raises QueueDeleted, or MsmqError without receive access."""
        queue = descriptor.queue
        if not descriptor.destructive:
            raise MsmqError(HResult.MQ_ERROR_ACCESS_DENIED, f"{descriptor.name}: purging requires receive access")
        if queue is None:
            raise QueueDeleted(detail=descriptor.name)
        for lock in queue.locked.values():
            if lock.kind is not LockKind.ENQUEUE:
                lock.purge_pending = True
        unreadable = [key for key, lock in queue.locked.items() if lock.kind is LockKind.QUARANTINE]
        keys = [*queue.available, *unreadable]
        with storing():
            self._sweep(queue, keys, MessageClass.NACK_Q_PURGED)
        return len(keys)
