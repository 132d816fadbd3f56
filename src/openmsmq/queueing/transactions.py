"""Units of work from their beginning to their end ([MS-MQDMPR] 3.1.7.1.8, 3.1.4.3 to 3.1.4.5).

Nothing else advances the state of a transaction (`unit_of_work.TRANSITIONS`), or adds to its operations.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from openmsmq.model.constants import MessageClass
from openmsmq.model.errors import MessageStorageFailed, TransactionSequence
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

_COUNTS_BATCH = 512  # abort counts written by one record


class Transactions:
    """Owns the state of every transaction: those that are enlisted, by their unit of work, and those of stages."""

    def __init__(
        self,
        store: MessageStore,
        registry: Registry,
        changes: Changes,
        holds: MessageLocks,
        recovered_numbers: Iterable[int],
    ) -> None:
        """`recovered_numbers`: of transactions of an earlier run whose outcome was not known at the start."""
        self._store: Final = store
        self._registry: Final = registry
        self._changes: Final = changes
        self._holds: Final = holds
        self._recovered_numbers: Final = frozenset(recovered_numbers)
        self._enlisted: dict[bytes, Transaction] = {}
        self.ended: Final = {TransactionState.COMMITTED: 0, TransactionState.ABORTED: 0}  # how many, since the start

    # -- beginning ---------------------------------------------------------------------------------------------

    def begin(self, identifier: bytes) -> Transaction:
        """A transaction that nobody finds by its identifier (16 bytes), as that of a stage. Raises MessageStorageFailed
        (disk full).

        Its number names it in the store and in its messages (32 bits). It is taken from the sequence numbers, so that
        transactions before and after a restart differ."""
        with storing():
            while True:
                number = self._changes.next_sequence() & 0xFFFFFFFF
                if number and number not in self._recovered_numbers:
                    return Transaction(identifier, number)

    def create(self, identifier: bytes) -> Transaction:
        """Create Transaction, 3.1.7.1.8. Raises TransactionSequence if the identifier (16 bytes) is in use,
        MessageStorageFailed (disk full)."""
        if identifier in self._enlisted:
            raise TransactionSequence(detail="the unit of work is enlisted already")
        self._enlisted[identifier] = transaction = self.begin(identifier)
        return transaction

    def find(self, identifier: bytes) -> Transaction:
        """The transaction of a unit of work. Raises TransactionSequence."""
        transaction = self._enlisted.get(identifier)
        if transaction is None:
            raise TransactionSequence(detail="no such unit of work is enlisted")
        return transaction

    def get(self, identifier: bytes) -> Transaction | None:
        """The transaction of a unit of work, if it is enlisted."""
        return self._enlisted.get(identifier)

    def enlisted(self) -> list[Transaction]:
        """All that have not ended."""
        return list(self._enlisted.values())

    # -- work --------------------------------------------------------------------------------------------------

    def send(self, transaction: Transaction, copies: Sequence[tuple[Queue, Message, int]]) -> None:
        """Messages (with their queues and sizes) are sent: held until the commit. All but the last one are written
        ahead, so that a large transaction does not sit in memory; the last one waits until it is known to be the last.
        Raises TransactionSequence, and what the store raises."""
        transaction.check(TransactionEvent.WORK)
        if transaction.last_send is not None:
            self._write_ahead(transaction, transaction.last_send)  # may fail, so it comes before any change
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
        """A message is received: held until the end; others may peek at it if it is left `visible`. Raises
        TransactionSequence."""
        transaction.check(TransactionEvent.WORK)
        queue.lock(lookup_identifier, Lock(LockKind.DEQUEUE, transaction, is_visible=visible))
        transaction.operations.append(Dequeued(queue, lookup_identifier))

    def move(self, transaction: Transaction, queue: Queue, lookup_identifier: int, target: Queue) -> None:
        """A message is to be moved: held until the end. Raises TransactionSequence."""
        transaction.check(TransactionEvent.WORK)
        queue.lock(lookup_identifier, Lock(LockKind.DEQUEUE, transaction))
        transaction.operations.append(Moved(queue, lookup_identifier, target))

    def reject(self, queue: Queue, lookup_identifier: int, reason: MessageClass | None) -> bool:
        """Say why a message that a transaction has received will be removed; None only looks. Returns whether one has
        received it. Raises TransactionSequence."""
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
        """Take a receive out of a transaction: the message is available again. Nothing happens if the transaction or
        the queue is gone."""
        lock = queue.locked.get(lookup_identifier) if queue is not None else None
        if queue is None or lock is None or lock.owner is not transaction or not transaction.is_open:
            return
        transaction.operations = [
            o for o in transaction.operations
            if isinstance(o, Enqueued) or o.queue is not queue or o.lookup_identifier != lookup_identifier
        ]  # fmt: skip
        self._holds.release(queue, lookup_identifier)

    # -- ending ------------------------------------------------------------------------------------------------

    def _advance(self, transaction: Transaction, event: TransactionEvent) -> None:
        """Raises TransactionSequence."""
        transaction.advance(event)
        if transaction.has_ended:
            self.ended[transaction.state] += 1

    def close(self, transaction: Transaction) -> None:
        """Take no more work: votes are collected. Raises TransactionSequence."""
        self._advance(transaction, TransactionEvent.CLOSE)

    def prepare(self, transaction: Transaction, note: bytes | None = None) -> None:
        """Transaction Prepare, 3.1.4.3, of a distributed transaction: from now on it survives a restart. `note` is
        stored with the messages of a stage.

        Raises TransactionSequence if it has ended, MessageStorageFailed (disk full); it is then still open.
        """
        transaction.check(TransactionEvent.PREPARE)
        if transaction.is_prepared:
            return
        # Deviation D-06 from 3.1.4.3: the flags are those of the first and last send, not operation.
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
        """Transaction Commit, 3.1.4.4, with the flags that Transaction Prepare (3.1.4.3) sets: one atomic batch.
        `decision` joins it: what a coordinator has to remember. `event` is OUTCOME_COMMIT where another queue manager
        has decided.

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
            if last is not None:  # more may be sent before the next try
                last.message.last_in_transaction = False
            raise
        self._advance(transaction, event)
        self._enlisted.pop(transaction.identifier, None)

    def _gather(self, change: ChangeSet, operation: Enqueued | Dequeued | Moved) -> None:
        """Add an operation of a transaction that commits. Raises MessageStorageFailed for an unreadable message."""
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
        """Transaction Abort, 3.1.4.5: sends are discarded, receives are put back. No reply waits for the disk: what
        has not committed is aborted by a restart too. Raises TransactionSequence if it has ended."""
        is_stored = transaction.wrote_pending or transaction.is_prepared
        self._advance(transaction, TransactionEvent.ABORT)
        self._enlisted.pop(transaction.identifier, None)
        self._count_abort(transaction)
        if is_stored:
            try:
                self._store.abort(transaction.number)
            except StoreFull as error:  # a transaction that never commits is dropped at the next start anyway
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
        """Raise the abort counts of what the transaction received or moved. Done before anything is put back, for what
        is purged or has expired goes then, and its count with it."""
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
                "the abort counts of %d messages could not be stored and end with this run: %s", len(puts), error
            )

    def _target(self, move: Moved) -> Queue:
        """Where a move goes; a subqueue that vanished meanwhile, being empty and closed, is made again."""
        target = move.target
        if target.deleted and target.parent is not None:
            return self._registry.subqueue(target.parent, target.name)
        return target

    def settle(self, change: ChangeSet, committed: Sequence[Transaction], dropped: Sequence[Transaction]) -> None:
        """End many prepared transactions by one batch, which has the rest of `change` too. Raises TransactionSequence,
        MessageStorageFailed (disk full); then nothing has changed."""
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
        """Remove a transaction that holds no positions. Raises TransactionSequence, MessageStorageFailed."""
        transaction.check(TransactionEvent.ABORT)
        if transaction.wrote_pending or transaction.is_prepared:
            with storing():
                self._store.settle([], [transaction.number])
        self._advance(transaction, TransactionEvent.ABORT)

    # -- after a restart ---------------------------------------------------------------------------------------

    def recovered(self, identifier: bytes, number: int, superior: bytes = b"", *, pending: bool) -> Transaction:
        """A prepared transaction of an earlier run, whose outcome is not known; `pending` whether it had sent anything.
        Nobody finds it by its identifier."""
        return Transaction(
            identifier, number, superior=superior, wrote_pending=pending, state=TransactionState.PREPARED
        )

    def recover(self, number: int, note: bytes, pending: Mapping[int, QueueColumns]) -> None:
        """Take up a prepared transaction after a restart: what it sent, received and moved is held again."""
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
        """A message that was written ahead has moved in the log."""
        if isinstance(lock.owner, Transaction):
            for operation in lock.owner.operations:
                if isinstance(operation, Enqueued) and operation.location == old:
                    operation.location = new


def _written_ahead(transaction: Transaction, send: Enqueued, location: int, size: int) -> None:
    """A transactional send is in the store, pending, with a record of `size` bytes."""
    transaction.wrote_pending = True
    send.location, send.size = location, size
    send.queue.written(send.message.lookup_identifier, location, size)
    send.message.body = b""  # on disk now; only the headers are needed for what the commit entails
