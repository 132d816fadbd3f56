"""Reading: peek, receive, waiting, two-phase reads, purging ([MS-MQDMPR] 3.1.7.1.7 to 17, 3.1.7.2.2)."""

from __future__ import annotations

import itertools
import logging
import struct
from collections.abc import Callable, Iterable
from typing import Final

from openmsmq.model.constants import INFINITE, MessageClass, MessageSeekAction, ReceiveAction
from openmsmq.model.errors import HResult, MessageStorageFailed, MsmqError, QueueDeleted, TransactionSequence
from openmsmq.model.exhaustion import OutOfResources, exhausted
from openmsmq.model.lookup_id import lookup_id
from openmsmq.model.message import Message
from openmsmq.queueing.auditing import Auditor, AuditRecord
from openmsmq.queueing.change_set import ChangeSet, is_received_alone
from openmsmq.queueing.changes import Changes
from openmsmq.queueing.descriptors import (
    START,
    Accept,
    OpenQueueDescriptor,
    QueueCursor,
    Reply,
    WaitingMessageReadOperation,
)
from openmsmq.queueing.message_locks import MessageLocks
from openmsmq.queueing.outbox import Outbox
from openmsmq.queueing.queue import APPLICATION_QUEUES, Lock, LockKind, Queue, QueueKind, runs
from openmsmq.queueing.removals import remove_all
from openmsmq.queueing.storage import UNREADABLE, storing
from openmsmq.queueing.timers import Timers
from openmsmq.queueing.transactions import Transactions
from openmsmq.queueing.unit_of_work import Transaction
from openmsmq.queueing.waiting_line import WaitingLine, is_waiting
from openmsmq.store import StoreFailed

logger = logging.getLogger(__name__)

_END: Final = 1 << 64  # after every lookup identifier


# In CPython 3.11, an attribute of an enumeration takes a hundred times as long as these constants.
_RECEIVE: Final = ReceiveAction.RECEIVE
_PEEK_CURRENT: Final = ReceiveAction.PEEK_CURRENT
_PEEK_NEXT: Final = ReceiveAction.PEEK_NEXT
_READ: Final = LockKind.READ
_ACK_RECEIVE: Final = MessageClass.ACK_RECEIVE
_OK: Final = int(HResult.MQ_OK)


class ReadOperations:
    """Peeks at and receives messages; keeps the waiting reads of each queue in order of arrival."""

    def __init__(
        self, changes: Changes, holds: MessageLocks, transactions: Transactions, outbox: Outbox,
        monotonic: Callable[[], int], auditor: Auditor,
    ) -> None:  # fmt: skip
        self._changes: Final = changes
        self._holds: Final = holds
        self._transactions: Final = transactions
        self._monotonic: Final = monotonic
        self._auditor: Final = auditor
        self._numbers = itertools.count(1)
        self._lines: dict[int, WaitingLine] = {}  # by queue number
        self.timeouts: Timers[WaitingMessageReadOperation] = Timers(_times_out, outbox.deadline_changed)

    def read(
        self,
        descriptor: OpenQueueDescriptor,
        action: ReceiveAction,
        timeout: int,
        accept: Accept,
        reply: Reply,
        *,
        cursor: QueueCursor | None = None,
        transaction: Transaction | None = None,
        two_phase: bool = False,
    ) -> WaitingMessageReadOperation | None:
        """Dequeue Message, Peek Message and Peek Next Message ([MS-MQDMPR] 3.1.7.1.10, 14, 15).

        `timeout` is in milliseconds (deviation D-08) or INFINITE. `accept` is called with the message before it is
        taken. `reply` is called once, now or later. Returns the waiting read, None if it has ended. A read that fails
        raises no exception: `reply` gets the status.
        """
        queue = descriptor.queue
        if queue is None:
            reply(HResult.MQ_ERROR_QUEUE_DELETED, None)
            return None
        destructive = action is _RECEIVE
        # [MS-MQMP] 3.1.5.3: a peek ignores the transaction.
        if not destructive:
            transaction = None
        if transaction is not None and not self._may_join(transaction, queue):
            reply(HResult.MQ_ERROR_TRANSACTION_USAGE, None)
            return None
        if queue.arrived and destructive:  # reads that were waiting before get the arrivals first
            self.deliver(queue, len(queue.arrived))
        status, position = self._seek(queue, action, cursor)
        if status != _OK:
            reply(status, None)
            return None
        reader = WaitingMessageReadOperation(
            next(self._numbers), descriptor, destructive, accept, reply, cursor, transaction, two_phase
        )
        while position is not None:
            if self._offer(reader, queue, position):
                return None
            position = _after(queue, position, destructive)
        if timeout == 0:
            nothing_behind_cursor = destructive and cursor is not None
            reply(HResult.MQ_ERROR_MESSAGE_NOT_FOUND if nothing_behind_cursor else HResult.MQ_ERROR_IO_TIMEOUT, None)
            return None
        self._wait(reader, queue)
        if timeout != INFINITE:
            self.timeouts.add(self._monotonic() + timeout, reader.number, reader)
        return reader

    def fast_path_queues(self, descriptors: Iterable[OpenQueueDescriptor]) -> list[Queue]:
        """Return the queues of those descriptors whose receives may use the fast path, up to the first that needs
        `read` because more than the message's record must be checked. The caller checks that the messages have no
        consequences. Returns an empty list while any message is due that its timer has not removed yet."""
        queues: list[Queue] = []
        if self._changes.is_something_due():
            return queues
        latest: Queue | None = None
        for descriptor in descriptors:
            queue = descriptor.queue
            if queue is None or not descriptor.destructive:
                break
            if queue is not latest:
                is_application = queue.kind in APPLICATION_QUEUES
                if not is_application or queue.properties.journaling or queue.arrived or queue.aborts:
                    break
                latest = queue
            queues.append(queue)
        return queues

    def take_batch(self, queues: list[Queue], positions: list[int], locations: list[int | None]) -> bool:
        """Remove unlocked messages whose removal has no side effects: one position and location per queue, all or none.
        Returns False, with nothing changed, if that fails."""
        return remove_all(self._changes, queues, positions, locations, locked=False)

    @staticmethod
    def start_batch(descriptors: list[OpenQueueDescriptor], queues: list[Queue], positions: list[int]) -> None:
        """Lock messages whose receipt has no side effects, one per descriptor, for a two-phase receive."""
        for queue, start, end in runs(queues):
            queue.lock_each(
                positions[start:end],
                [Lock(_READ, descriptor, is_alone=True) for descriptor in descriptors[start:end]],
            )
        for descriptor, position in zip(descriptors, positions, strict=True):
            descriptor.held.add(position)
            descriptor.taken += 1

    @staticmethod
    def fast_path_queue_of(descriptor: OpenQueueDescriptor, position: int) -> Queue | None:
        """Return the queue of a message that a two-phase receive holds and that may be removed on the fast path,
        because that has no consequences; None if `end_two_phase` must be used."""
        queue = descriptor.queue
        if queue is None or queue.kind not in APPLICATION_QUEUES or queue.properties.journaling or queue.aborts:
            return None
        lock = queue.locked.get(position)
        if lock is None or lock.kind is not _READ or lock.owner is not descriptor:
            return None
        return None if lock.purge_pending or not lock.is_alone else queue

    def end_batch(
        self, descriptors: list[OpenQueueDescriptor], queues: list[Queue], positions: list[int],
        locations: list[int | None],
    ) -> bool:  # fmt: skip
        """Remove messages for which `fast_path_queue_of` returned a queue, all or none. Returns False, with nothing
        changed, if that fails."""
        if not remove_all(self._changes, queues, positions, locations, locked=True):
            return False
        for descriptor, position in zip(descriptors, positions, strict=True):
            descriptor.held.discard(position)
        return True

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
        leaves_visible: bool = False,
    ) -> None:
        """Read Message By Lookup Identifier, [MS-MQDMPR] 3.1.7.1.13: never waits. `reply` gets the outcome.

        `lookup_identifier` may lack its upper byte, as MS-MQRR's pSequenceId does; SeekFirst and SeekLast ignore it.
        With `leaves_visible`, others may peek at a message received in a transaction until its end
        (Message.AllowPeekWhenLocked).
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
            next(self._numbers), descriptor, destructive, accept, reply, None, transaction, two_phase, leaves_visible
        )
        while position is not None:
            if self._offer(reader, queue, position):
                return
            position = _NEIGHBOURS[seek](queue, position, destructive)
        current = seek is MessageSeekAction.CURRENT
        reply(HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED if current else HResult.MQ_ERROR_MESSAGE_NOT_FOUND, None)

    @staticmethod
    def _look_up(queue: Queue, identifier: int, seek: MessageSeekAction, destructive: bool) -> tuple[int, int | None]:
        """Return (status, position); the position is None if the read fails with the status."""
        not_found = HResult.MQ_ERROR_MESSAGE_NOT_FOUND
        if seek is MessageSeekAction.FIRST:
            return not_found, _after(queue, START, destructive)
        if seek is MessageSeekAction.LAST:
            return not_found, _before(queue, _END, destructive)
        start = queue.position_of(identifier)
        if start is None:
            return not_found, None
        if (
            seek is MessageSeekAction.CURRENT
            and start in queue.locked
            and (destructive or not queue.may_be_peeked(start))
        ):
            if queue.locked[start].kind is LockKind.QUARANTINE:
                return HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED, None
            # An uncommitted send is not in the queue yet (D-229); a message locked by another reader is not peeked at.
            held = queue.locked[start].kind is not LockKind.ENQUEUE and not destructive
            return HResult.MQ_ERROR_TRANSACTION_USAGE if held else not_found, None
        if seek is MessageSeekAction.CURRENT:
            return not_found, start
        return not_found, _NEIGHBOURS[seek](queue, start, destructive)

    @staticmethod
    def _may_join(transaction: Transaction, queue: Queue) -> bool:
        return transaction.is_open and (queue.properties.transactional or queue.kind is QueueKind.JOURNAL)

    @staticmethod
    def _seek(queue: Queue, action: ReceiveAction, cursor: QueueCursor | None) -> tuple[int, int | None]:
        if cursor is None:
            if action is _PEEK_NEXT:
                return HResult.MQ_ERROR_ILLEGAL_CURSOR_ACTION, None
            return _OK, _after(queue, START, action is _RECEIVE)
        if action is _RECEIVE:
            return cursor.for_dequeue(queue)
        if action is _PEEK_CURRENT:
            return cursor.for_peek(queue)
        return cursor.for_peek_next(queue)

    def deliver(self, queue: Queue, limit: int) -> int:
        """Message Position Available, [MS-MQDMPR] 3.1.7.2.2: offer arrivals to waiting readers, first come first
        served. All peeks see a message, one receive takes it. Each reader gets its own copy. Returns the number of
        positions offered."""
        count = 0
        while queue.arrived and queue.waiters and count < limit:
            key, message = queue.arrived.popleft()
            if message is not None and queue.aborts:
                message.abort_count = queue.aborts.get(key, message.abort_count)
            count += 1
            line, number = self._lines[queue.number], 0
            last = line.last_number  # later readers have already searched the queue
            while key in queue.entries and key not in queue.locked:
                reader = line.first_after(number)
                if reader is None or reader.number > last:
                    break
                number = reader.number
                self._offer(reader, queue, key, message)
                message = None  # now owned by that reader
        if queue.arrived and not queue.waiters:
            queue.arrived.clear()
        return count

    def _offer(
        self, reader: WaitingMessageReadOperation, queue: Queue, position: int, message: Message | None = None
    ) -> bool:
        """Offer a message to a reader: build the answer, take the message, send the answer. A failure affects this
        reader only, and the message is available again. Returns False if the reader has no answer yet, because the
        message cannot be read, in general or by this reader."""
        if reader.transaction is not None and not reader.transaction.is_open:
            self._end(reader, HResult.MQ_ERROR_TRANSACTION_SEQUENCE)
            return True
        if message is None:
            try:
                message = queue.message(position)
            except UNREADABLE as error:
                self._holds.quarantine(queue, position, error)
                return False
            except OutOfResources as error:  # the message stays available to others
                logger.error("queue %s: message %#x can't be read now: %s", queue.properties.path_name, position, error)
                self._end(reader, error.hresult)
                return True
        if position not in queue.locked and self._holds.expire_if_due(queue, position, message):
            return False
        try:
            status = reader.accept(message)
        except (ValueError, struct.error) as error:
            logger.error(
                "queue %s: message %#x can't be encoded for a reader and was not returned to it: %s",
                queue.properties.path_name, position, error,
            )  # fmt: skip
            return False
        except Exception as error:  # error in one reader's protocol; the message stays
            status = int(HResult.MQ_ERROR)
            path_name, shortage = queue.properties.path_name, exhausted(error)
            if shortage is None:
                logger.exception("queue %s: returning message %#x to a reader failed", path_name, position)
            else:
                status = shortage.hresult
                logger.error("queue %s: message %#x stays in the queue: %s", path_name, position, shortage)
        self._leave(reader)
        cursor = reader.cursor
        if cursor is not None and not reader.destructive:
            cursor.peeked(position)  # whether or not its buffer was large enough: 3.2.7.2, 3.2.7.3
        if status == _OK and reader.destructive:
            status = self._take(reader, queue, position, message)
        if status != _OK:
            _answered(reader, status, None)
            return True
        reader.descriptor.taken += reader.destructive
        if not _answered(reader, _OK, message) and reader.destructive:
            reader.descriptor.taken -= 1
            self._undo(reader, queue, position, message)
        elif cursor is not None and reader.destructive:
            cursor.dequeued(position)
        return True

    def _undo(self, reader: WaitingMessageReadOperation, queue: Queue, position: int, message: Message) -> None:
        """Make a taken message available again, because the answer could not be sent to its reader."""
        if reader.transaction is not None:
            self._transactions.withdraw(reader.transaction, queue, position)
        elif reader.two_phase:
            reader.descriptor.held.discard(position)
            if position in queue.locked:
                self._holds.release(queue, position)
        elif not queue.deleted:  # removed already; needs a new number, so it becomes the latest
            message.lookup_identifier = lookup_id(message.priority, self._changes.next_sequence())
            change = ChangeSet(self._changes)
            change.insert(queue, message, message.size)
            with storing():
                change.commit()

    def _take(self, reader: WaitingMessageReadOperation, queue: Queue, position: int, message: Message) -> int:
        if reader.transaction is not None:
            self._transactions.receive(reader.transaction, queue, position, visible=reader.leaves_visible)
        elif reader.two_phase:
            is_alone = is_received_alone(self._changes, queue, message)
            queue.lock(position, Lock(_READ, reader.descriptor, is_alone=is_alone))
            reader.descriptor.held.add(position)
        else:
            try:
                self._holds.remove(queue, position, message, _ACK_RECEIVE)
            except MessageStorageFailed as error:
                return error.hresult
            except StoreFailed:
                return HResult.MQ_ERROR_MESSAGE_STORAGE_FAILED  # the daemon ends
        return _OK

    def end_two_phase(self, descriptor: OpenQueueDescriptor, lookup_identifier: int, delete: bool) -> None:
        """Dequeue Message End, [MS-MQDMPR] 3.1.7.1.12. Raises QueueDeleted (D-225), TransactionSequence."""
        queue = descriptor.queue
        if queue is None:
            raise QueueDeleted(detail=descriptor.name)
        lock = queue.locked.get(lookup_identifier)
        if lock is None or lock.kind is not _READ or lock.owner is not descriptor:
            raise TransactionSequence(detail=f"{descriptor.name}: the message is not locked by this reader")
        if not delete and not lock.purge_pending:
            self._holds.release(queue, lookup_identifier)
            descriptor.taken -= 1
        elif lock.purge_pending:
            message = self._holds.readable(queue, lookup_identifier)
            self._holds.remove(queue, lookup_identifier, message, MessageClass.NACK_Q_PURGED)
        else:
            self._holds.remove_received(queue, lookup_identifier, lock)
        descriptor.held.discard(lookup_identifier)

    def cancel(self, reader: WaitingMessageReadOperation, status: int = HResult.MQ_ERROR_OPERATION_CANCELLED) -> bool:
        """Cancel Waiting Message Read Request, 3.1.7.1.17. Returns False if the read has already ended."""
        if reader.number not in reader.descriptor.waiting:
            return False
        self._end(reader, status)
        return True

    def purge(self, descriptor: OpenQueueDescriptor) -> int:
        """Purge Queue, [MS-MQDMPR] 3.1.7.1.7. Locked messages are purged when their reader puts them back. Returns the
        number of messages purged immediately. Raises QueueDeleted, or MsmqError without receive access."""
        queue = descriptor.queue
        if not descriptor.destructive:
            raise MsmqError(HResult.MQ_ERROR_ACCESS_DENIED, f"{descriptor.name}: purging requires receive access")
        if queue is None:
            raise QueueDeleted(detail=descriptor.name)
        if descriptor.opener is not None:
            name = queue.properties.path_name
            self._auditor.record(AuditRecord(descriptor.opener, "messages.purge", "queue", name, count=len(queue)))
        for lock in queue.locked.values():
            if lock.kind is not LockKind.ENQUEUE:
                lock.purge_pending = True
        unreadable = [key for key, lock in queue.locked.items() if lock.kind is LockKind.QUARANTINE]
        keys = [*queue.available, *unreadable]
        with storing():
            self._holds.sweep(queue, keys, MessageClass.NACK_Q_PURGED)
        return len(keys)

    # -- waiting -----------------------------------------------------------------------------------------------

    def _wait(self, reader: WaitingMessageReadOperation, queue: Queue) -> None:
        """Add a read to the waiting reads of the queue."""
        if reader.cursor is not None:
            reader.cursor.wait(reader.destructive)
        line = self._lines.get(queue.number)
        if line is None:
            line = self._lines[queue.number] = WaitingLine()
        line.join(reader)
        reader.descriptor.waiting[reader.number] = reader
        queue.waiters += 1

    def _leave(self, reader: WaitingMessageReadOperation) -> None:
        """Remove a read from the waiting reads; does nothing if it is not waiting."""
        if reader.descriptor.waiting.pop(reader.number, None) is None:
            return
        queue = reader.descriptor.queue
        if queue is not None:
            line = self._lines[queue.number]
            line.leave()
            queue.waiters -= 1
            if not line:
                del self._lines[queue.number]
        if reader.cursor is not None:
            reader.cursor.wait_ended()

    def _end(self, reader: WaitingMessageReadOperation, status: int) -> None:
        """End a waiting read with a failure."""
        self._leave(reader)
        _answered(reader, status, None)

    def end_all(self, queue: Queue, status: int) -> None:
        """End all waiting reads of a queue with a failure."""
        line = self._lines.get(queue.number)
        for reader in line.all() if line is not None else ():
            self.cancel(reader, status)

    def expire(self, now: int) -> None:
        """Waiting Message Read Timer Expired, [MS-MQDMPR] 3.1.6.3, for all waiting reads that have timed out."""
        while (timeout := self.timeouts.pop(now)) is not None:
            self.cancel(timeout[1], HResult.MQ_ERROR_IO_TIMEOUT)


def _after(queue: Queue, position: int, destructive: bool) -> int | None:
    """Seek Available Message Position, [MS-MQDMPR] 3.1.7.3.2, forward."""
    return queue.after(position) if destructive else queue.visible_after(position)


def _before(queue: Queue, position: int, destructive: bool) -> int | None:
    """Like `_after`, backward."""
    return queue.before(position) if destructive else queue.visible_before(position)


# How a read by lookup identifier continues if the message cannot be read.
_NEIGHBOURS: Final[dict[MessageSeekAction, Callable[[Queue, int, bool], int | None]]] = {
    # Deviation D-02 from [MS-MQDMPR] 3.1.7.3.2: from START, return the first position, not the one after it.
    MessageSeekAction.FIRST: _after,
    MessageSeekAction.NEXT: _after,
    MessageSeekAction.LAST: _before,
    MessageSeekAction.PREVIOUS: _before,
    MessageSeekAction.CURRENT: lambda queue, position, destructive: None,
}


def _times_out(_: int, reader: WaitingMessageReadOperation) -> bool:
    return is_waiting(reader)


def _answered(reader: WaitingMessageReadOperation, status: int, message: Message | None) -> bool:
    """Call `reply` of a reader with its outcome. Returns False if that raised an exception, like `outbox.guarded`."""
    try:  # not `guarded`: building its arguments costs more than the reply
        reader.reply(status, message)
    except Exception:  # must not affect other readers
        logger.exception("queue %s: answering a read with status %#x failed", reader.descriptor.name, status)
        return False
    return True
