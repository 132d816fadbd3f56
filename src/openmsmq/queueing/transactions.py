"""Units of work from their beginning to their end ([MS-MQDMPR] 3.1.7.1.8, 3.1.4.3 to 3.1.4.5).

Nothing else advances the state of a transaction (`unit_of_work.TRANSITIONS`), or adds to its operations.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from openmsmq.model.constants import MessageClass
from openmsmq.model.errors import MessageNotFound, MessageStorageFailed, QueueDeleted, TransactionSequence
from openmsmq.model.message import Message
from openmsmq.queueing.change_set import ChangeSet, store_insert
from openmsmq.queueing.changes import Changes
from openmsmq.queueing.message_locks import MessageLocks
from openmsmq.queueing.queue import Lock, LockKind, Queue
from openmsmq.queueing.records import abort_definition, split_deadline_word
from openmsmq.queueing.registry import Registry
from openmsmq.queueing.storage import UNREADABLE, MessageStore, storing
from openmsmq.queueing.unit_of_work import (
    Dequeued,
    Enqueued,
    Moved,
    Transaction,
    TransactionEvent,
    TransactionState,
    decode_note,
    encode_note,
)
from openmsmq.record.message_record import decode_message
from openmsmq.store import Operation, Put, QueueColumns, StoreFull

logger = logging.getLogger(__name__)

_COUNTS_BATCH = 512  # abort counts written per batch


class Transactions:
    """Owns the state of every transaction: those of stages, and enlisted ones, by their unit of work."""

    def __init__(
        self,
        store: MessageStore,
        registry: Registry,
        changes: Changes,
        holds: MessageLocks,
        recovered_numbers: Iterable[int],
    ) -> None:
        """`recovered_numbers`: numbers of transactions of an earlier run whose outcome was unknown at the start."""
        self._store: Final = store
        self._registry: Final = registry
        self._changes: Final = changes
        self._holds: Final = holds
        self._recovered_numbers: Final = frozenset(recovered_numbers)
        self._enlisted: dict[bytes, Transaction] = {}
        self.ended: Final = {TransactionState.COMMITTED: 0, TransactionState.ABORTED: 0}  # counts since the start

    # -- beginning ---------------------------------------------------------------------------------------------

    def begin(self, identifier: bytes) -> Transaction:
        """Create a transaction that is not enlisted, so `find` does not return it: that of a stage. Raises
        MessageStorageFailed (disk full).

        Its number identifies it in the store and in its messages (32 bits). It is taken from the sequence numbers, so
        that transactions before and after a restart have different numbers."""
        with storing():
            while True:
                number = self._changes.next_sequence() & 0xFFFFFFFF
                if number and number not in self._recovered_numbers:
                    return Transaction(identifier, number)

    def create(self, identifier: bytes) -> Transaction:
        """Create Transaction, 3.1.7.1.8. Raises TransactionSequence if the identifier (16 bytes) is in use,
        MessageStorageFailed (disk full)."""
        if identifier in self._enlisted:
            raise TransactionSequence(detail="the unit of work is already enlisted")
        self._enlisted[identifier] = transaction = self.begin(identifier)
        return transaction

    def find(self, identifier: bytes) -> Transaction:
        """Return the transaction of a unit of work. Raises TransactionSequence if it is not enlisted."""
        transaction = self._enlisted.get(identifier)
        if transaction is None:
            raise TransactionSequence(detail="the unit of work is not enlisted")
        return transaction

    def get(self, identifier: bytes) -> Transaction | None:
        """Return the transaction of a unit of work; None if it is not enlisted."""
        return self._enlisted.get(identifier)

    def enlisted(self) -> list[Transaction]:
        """Return all enlisted transactions that have not ended."""
        return list(self._enlisted.values())

    # -- work --------------------------------------------------------------------------------------------------

    def send(self, transaction: Transaction, copies: Sequence[tuple[Queue, Message, int]]) -> None:
        """Send messages (with their queues and sizes); they are locked until the commit. All but the last one are
        written ahead, so that a large transaction does not fill memory; the last one waits until it is known to be the
        last. Raises TransactionSequence, and the errors of the store."""
        transaction.check(TransactionEvent.WORK)
        if transaction.last_send is not None:
            self._write_ahead(transaction, transaction.last_send)  # may fail, so before any change
        for queue, message, size in copies:
            message.first_in_transaction = transaction.last_send is None
            send = Enqueued(queue, message, size)
            queue.insert(message, message, size, Lock(LockKind.ENQUEUE, transaction))
            transaction.operations.append(send)
            transaction.last_send = send

    def _write_ahead(self, transaction: Transaction, send: Enqueued) -> None:
        if send.is_held:
            insert = store_insert(send.queue, send.message)
            location = self._store.append_pending(transaction.number, [insert])[0]
            _written_ahead(transaction, send, location, len(insert.payload))

    def receive(self, transaction: Transaction, queue: Queue, lookup_identifier: int, *, visible: bool = False) -> None:
        """Receive a message: lock it until the end of the transaction. Others may peek at it if `visible`. Raises
        TransactionSequence."""
        transaction.check(TransactionEvent.WORK)
        queue.lock(lookup_identifier, Lock(LockKind.DEQUEUE, transaction, is_visible=visible))
        transaction.operations.append(Dequeued(queue, lookup_identifier))

    def move(self, transaction: Transaction, queue: Queue, lookup_identifier: int, target: Queue) -> None:
        """Move a message: lock it until the end of the transaction. Raises TransactionSequence."""
        transaction.check(TransactionEvent.WORK)
        queue.lock(lookup_identifier, Lock(LockKind.DEQUEUE, transaction))
        transaction.operations.append(Moved(queue, lookup_identifier, target))

    def reject(self, queue: Queue, lookup_identifier: int, reason: MessageClass | None) -> bool:
        """Set the reason for the removal of a message that a transaction has received; None changes nothing. Returns
        whether a transaction has received it. Raises TransactionSequence."""
        lock = queue.locked.get(lookup_identifier)
        if lock is None or not isinstance(lock.owner, Transaction):
            return False
        for operation in lock.owner.operations:
            if not isinstance(operation, Dequeued) or operation.queue is not queue:
                continue
            if operation.lookup_identifier == lookup_identifier:
                lock.owner.check(TransactionEvent.WORK)
                operation.reason = operation.reason if reason is None else reason
                return True
        return False

    def withdraw(self, transaction: Transaction, queue: Queue | None, lookup_identifier: int) -> None:
        """Remove a receive from a transaction: the message is available again. Does nothing if the transaction has
        ended or is prepared, or the queue was deleted."""
        lock = queue.locked.get(lookup_identifier) if queue is not None else None
        if queue is None or lock is None or lock.owner is not transaction:
            return
        if transaction.has_ended or transaction.is_prepared:
            return
        transaction.operations = [
            o for o in transaction.operations
            if isinstance(o, Enqueued) or o.queue is not queue or o.lookup_identifier != lookup_identifier
        ]  # fmt: skip
        self._holds.release(queue, lookup_identifier)

    def check_received(self, transaction: Transaction, queue: Queue | None, lookup_identifier: int) -> None:
        """Check that a message which a transaction has received is still locked for it. Raises QueueDeleted,
        MessageNotFound, or TransactionSequence if the message is back in the queue."""
        if queue is None:
            raise QueueDeleted(detail="the queue of a received message")
        lock = queue.locked.get(lookup_identifier)
        if lock is not None and lock.owner is transaction:
            return
        if lookup_identifier not in queue.entries:
            raise MessageNotFound(detail=f"{queue.properties.path_name}: message {lookup_identifier:#x}")
        raise TransactionSequence(
            detail=f"{queue.properties.path_name}: message {lookup_identifier:#x} has left its transaction"
        )

    # -- ending ------------------------------------------------------------------------------------------------

    def _advance(self, transaction: Transaction, event: TransactionEvent) -> None:
        """Apply an event, and count transactions that end. Raises TransactionSequence."""
        transaction.advance(event)
        if transaction.has_ended:
            self.ended[transaction.state] += 1

    def close(self, transaction: Transaction) -> None:
        """Accept no more work, because votes are being collected. Raises TransactionSequence."""
        self._advance(transaction, TransactionEvent.CLOSE)

    def prepare(self, transaction: Transaction, note: bytes | None = None) -> None:
        """Transaction Prepare, 3.1.4.3, of a distributed transaction or a stage: from now on it survives a restart.
        `note` is stored with it; default: `encode_note`.

        Raises TransactionSequence if it has ended, MessageStorageFailed (disk full); it is then still open.
        """
        transaction.check(TransactionEvent.PREPARE)
        if transaction.is_prepared:
            return
        # Deviation D-06 from 3.1.4.3: the flags mark the first and last send, not the first and last operation.
        last = transaction.last_send
        if last is not None:
            last.message.last_in_transaction = True
        try:
            with storing():
                inserts = [] if last is None or not last.is_held else [store_insert(last.queue, last.message)]
                locations = self._store.prepare(transaction.number, note or encode_note(transaction), inserts)
        except BaseException:
            if last is not None:
                last.message.last_in_transaction = False
            raise
        for insert, location in zip(inserts, locations, strict=True):
            assert last is not None
            _written_ahead(transaction, last, location, len(insert.payload))
        self._advance(transaction, TransactionEvent.PREPARE)

    def commit(
        self,
        transaction: Transaction,
        decision: Iterable[Operation] = (),
        event: TransactionEvent = TransactionEvent.COMMIT,
    ) -> None:
        """Transaction Commit, 3.1.4.4, with the flags that Transaction Prepare (3.1.4.3) sets: one atomic batch, which
        `decision`, the record of a coordinator, joins. `event` is OUTCOME_COMMIT if another queue manager has decided.

        Raises TransactionSequence, MessageStorageFailed (disk full); the transaction is then still open.
        """
        transaction.check(event)
        last = transaction.last_send
        if last is not None:
            last.message.last_in_transaction = True
        try:
            with storing():
                change = ChangeSet(self._changes)
                change.also(decision)
                for operation in transaction.operations:
                    self._gather(change, operation)
                is_stored = transaction.wrote_pending or transaction.is_prepared
                change.commit(transaction.number if is_stored else None)
        except BaseException:
            if last is not None:  # more messages may be sent before a retry
                last.message.last_in_transaction = False
            raise
        self._advance(transaction, event)
        self._enlisted.pop(transaction.identifier, None)

    def _gather(self, change: ChangeSet, operation: Enqueued | Dequeued | Moved) -> None:
        """Add an operation of a committing transaction to the change. Raises MessageStorageFailed for an unreadable
        message."""
        if isinstance(operation, Enqueued):
            try:
                change.publish(operation.queue, operation.message, operation.location)
            except UNREADABLE as error:
                detail = f"a message sent to {operation.queue.properties.path_name} can't be read again: {error}"
                raise MessageStorageFailed(detail=detail) from error
            return
        queue, key = operation.queue, operation.lookup_identifier
        if key not in queue.entries:
            return
        if isinstance(operation, Dequeued):
            change.remove(queue, key, self._holds.readable(queue, key), operation.reason)
        else:
            change.move(queue, key, self._holds.readable(queue, key), self._target(operation))

    def abort(self, transaction: Transaction) -> None:
        """Transaction Abort, 3.1.4.5: discards sends and puts receives back. Replies need not wait for a sync, because
        a restart aborts an uncommitted transaction, too. Raises TransactionSequence if it has ended."""
        is_stored = transaction.wrote_pending or transaction.is_prepared
        self._advance(transaction, TransactionEvent.ABORT)
        self._enlisted.pop(transaction.identifier, None)
        self._count_abort(transaction)
        if is_stored:
            try:
                self._store.abort(transaction.number)
            except StoreFull as error:  # the next start drops it anyway
                logger.warning(
                    "transaction %d: the abort could not be stored and takes effect at the next start: %s",
                    transaction.number,
                    error,
                )
        for operation in transaction.operations:
            if isinstance(operation, Enqueued):
                if not operation.queue.deleted and operation.message.lookup_identifier in operation.queue.entries:
                    operation.queue.remove(operation.message.lookup_identifier)
            elif operation.lookup_identifier in operation.queue.locked:
                self._holds.release(operation.queue, operation.lookup_identifier)

    def _count_abort(self, transaction: Transaction) -> None:
        """Increment the abort counts of messages that the transaction received or moved. Must come before they are put
        back, which removes messages that were purged or have expired, and their counts."""
        puts: list[Operation] = []
        for operation in transaction.operations:
            queue = operation.queue
            if isinstance(operation, Enqueued) or operation.lookup_identifier not in queue.locked:
                continue
            if count := queue.note_abort(operation.lookup_identifier):
                name = abort_definition(queue.number, operation.lookup_identifier)
                puts.append(Put(name, str(count).encode()))
        try:
            for start in range(0, len(puts), _COUNTS_BATCH):
                self._store.append(puts[start : start + _COUNTS_BATCH])
        except StoreFull as error:
            logger.warning(
                "the abort counts of %d messages could not be stored and will be lost at the next restart: %s",
                len(puts),
                error,
            )

    def _target(self, move: Moved) -> Queue:
        """Return the target of a move; a subqueue that was deleted meanwhile, because it was empty and closed, is
        created again."""
        target = move.target
        if target.deleted and target.parent is not None:
            return self._registry.subqueue(target.parent, target.name)
        return target

    def settle(self, change: ChangeSet, committed: Sequence[Transaction], dropped: Sequence[Transaction]) -> None:
        """End many prepared transactions in one batch, together with the rest of `change`. Raises TransactionSequence,
        MessageStorageFailed (disk full); nothing has changed then."""
        for transaction in committed:
            transaction.check(TransactionEvent.OUTCOME_COMMIT)
        for transaction in dropped:
            transaction.check(TransactionEvent.ABORT)
        with storing():
            change.commit(settled=([one.number for one in committed], [one.number for one in dropped]))
        for transaction in committed:
            self._advance(transaction, TransactionEvent.OUTCOME_COMMIT)
        for transaction in dropped:
            self._advance(transaction, TransactionEvent.ABORT)

    def drop(self, transaction: Transaction) -> None:
        """Abort a transaction that holds no locks. Raises TransactionSequence, MessageStorageFailed."""
        transaction.check(TransactionEvent.ABORT)
        if transaction.wrote_pending or transaction.is_prepared:
            with storing():
                self._store.settle([], [transaction.number])
        self._advance(transaction, TransactionEvent.ABORT)

    # -- after a restart ---------------------------------------------------------------------------------------

    def recovered(self, identifier: bytes, number: int, superior: bytes = b"", *, pending: bool) -> Transaction:
        """Return a prepared transaction of an earlier run with unknown outcome; `pending`: it has sends in the store.
        It is not enlisted."""
        return Transaction(
            identifier, number, superior=superior, wrote_pending=pending, state=TransactionState.PREPARED
        )

    def recover(self, number: int, note: bytes, pending: Mapping[int, QueueColumns]) -> None:
        """Restore a prepared transaction after a restart: enlist it, and lock the messages that it sent, received and
        moved."""
        identifier, superior, work = decode_note(note)
        transaction = self.recovered(identifier, number, superior, pending=bool(pending))
        queues = self._registry.queues
        for queue_number, columns in pending.items():
            if (queue := queues.get(queue_number)) is not None:
                for key, location, size, word in columns.rows():
                    transaction.operations.append(self._sent(transaction, queue, key, location, size, word))
        for received in work:
            source = queues.get(received.queue)
            if source is None or received.lookup_identifier not in source.entries:
                continue
            source.lock(received.lookup_identifier, Lock(LockKind.DEQUEUE, transaction))
            target = queues.get(received.target)
            if target is None:
                reason = MessageClass(received.reason)
                transaction.operations.append(Dequeued(source, received.lookup_identifier, reason))
            else:
                target = self._registry.subqueue(target, received.subqueue) if received.subqueue else target
                transaction.operations.append(Moved(source, received.lookup_identifier, target))
        self._enlisted[identifier] = transaction

    def _sent(self, transaction: Transaction, queue: Queue, key: int, location: int, size: int, word: int) -> Enqueued:
        message = decode_message(self._store.read(location), split_deadline_word(word, key)[0])
        queue.insert(message, location, size, Lock(LockKind.ENQUEUE, transaction))
        message.body = b""
        return Enqueued(queue, message, size, location)

    def relocated(self, lock: Lock, old: int, new: int) -> None:
        """Update the location of a written-ahead message that has moved in the log."""
        if isinstance(lock.owner, Transaction):
            for operation in lock.owner.operations:
                if isinstance(operation, Enqueued) and operation.location == old:
                    operation.location = new


def _written_ahead(transaction: Transaction, send: Enqueued, location: int, size: int) -> None:
    """Note that a transactional send is in the store, pending, with a record of `size` bytes."""
    transaction.wrote_pending = True
    send.location, send.size = location, size
    send.queue.written(send.message.lookup_identifier, location, size)
    send.message.body = b""  # now on disk; the commit needs only the headers
