"""Internal transactions: create, commit, abort ([MS-MQDMPR] 3.1.7.1.8, 3.1.4.3 to 3.1.4.5)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from openmsmq.model.constants import MessageClass
from openmsmq.model.errors import MessageStorageFailed, TransactionSequence
from openmsmq.queueing.aborts import abort_definition
from openmsmq.queueing.core import UNREADABLE, storing
from openmsmq.queueing.message_record import decode_message
from openmsmq.queueing.notes import decode_note, encode_note
from openmsmq.queueing.plan import Plan, store_insert
from openmsmq.queueing.queue import Lock, LockKind, Queue
from openmsmq.queueing.records import split_deadline_word
from openmsmq.queueing.subqueues import Subqueues
from openmsmq.queueing.transactions import Dequeued, Enqueued, Moved, Transaction, TransactionEvent, TransactionState
from openmsmq.store import Operation, Put, QueueColumns, StoreFull

logger = logging.getLogger(__name__)

_COUNTS_BATCH = 512  # abort counts written by one record


class Committing(Subqueues):
    """The operations on transactions."""

    def create_transaction(self, identifier: bytes) -> Transaction:
        """Create Transaction, 3.1.7.1.8. Raises TransactionSequence if the identifier (16 bytes) is in use,
        MessageStorageFailed (disk full)."""
        if identifier in self.transactions:
            raise TransactionSequence(detail="the unit of work is enlisted already")
        transaction = Transaction(identifier, self.new_transaction_number())
        self.transactions[identifier] = transaction
        return transaction

    def transaction(self, identifier: bytes) -> Transaction:
        """The transaction of a unit of work. Raises TransactionSequence."""
        try:
            return self.transactions[identifier]
        except KeyError:
            raise TransactionSequence(detail="no such unit of work is enlisted") from None

    def prepare(self, transaction: Transaction) -> None:
        """Transaction Prepare, 3.1.4.3, of a distributed transaction: from now on it survives a restart.

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
                locations = self.state.store.prepare(transaction.number, encode_note(transaction), inserts)
        except BaseException:
            if last is not None:
                last.message.last_in_transaction = False
            raise
        for insert, location in zip(inserts, locations, strict=True):
            assert last is not None
            self.written_ahead(transaction, last, location, len(insert.payload))
        transaction.advance(TransactionEvent.PREPARE)

    def recover_transaction(self, number: int, note: bytes, pending: Mapping[int, QueueColumns]) -> None:
        """Take up a prepared transaction after a restart: what it sent, received and moved is locked again."""
        identifier, coordinator, work = decode_note(note)
        transaction = Transaction(identifier, number, coordinator=coordinator, state=TransactionState.PREPARED)
        transaction.wrote_pending = bool(pending)
        queues = self.state.queues
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
                target = self.subqueue(target, received.subqueue) if received.subqueue else target
                transaction.operations.append(Moved(source, received.lookup_identifier, target))
        self.transactions[identifier] = transaction

    def _sent(self, transaction: Transaction, queue: Queue, key: int, location: int, size: int, word: int) -> Enqueued:
        message = decode_message(self.state.store.read(location), split_deadline_word(word, key)[0])
        queue.insert(message, location, size, Lock(LockKind.ENQUEUE, transaction))
        message.body = b""
        return Enqueued(queue, message, size, location)

    def close(self, transaction: Transaction) -> None:
        """Take no more work: votes are collected. Raises TransactionSequence."""
        transaction.advance(TransactionEvent.CLOSE)

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
                plan = Plan(self.state)
                plan.also(decision)
                for operation in transaction.operations:
                    self._gather(plan, operation)
                plan.carry_out(transaction)
        except BaseException:
            if last is not None:  # more may be sent before the next try
                last.message.last_in_transaction = False
            raise
        transaction.advance(event)
        self.transactions.pop(transaction.identifier, None)

    def _gather(self, plan: Plan, operation: Enqueued | Dequeued | Moved) -> None:
        """Add an operation of a transaction that commits. Raises MessageStorageFailed for an unreadable message."""
        if isinstance(operation, Enqueued):
            try:
                plan.commit_send(operation)
            except UNREADABLE as error:
                detail = f"a message sent to {operation.queue.properties.path_name} can't be read again: {error}"
                raise MessageStorageFailed(detail=detail) from error
            return
        queue, key = operation.queue, operation.lookup_identifier
        if key not in queue.entries:
            return
        if isinstance(operation, Dequeued):
            plan.remove(queue, key, self.readable(queue, key), operation.reason)
        else:
            plan.move(queue, key, self.readable(queue, key), self._target(operation))

    def abort(self, transaction: Transaction) -> None:
        """Transaction Abort, 3.1.4.5: sends are discarded, receives are put back. No reply waits for the disk: what
        has not committed is aborted by a restart too. Raises TransactionSequence if it has ended."""
        is_stored = transaction.wrote_pending or transaction.is_prepared
        transaction.advance(TransactionEvent.ABORT)
        self.transactions.pop(transaction.identifier, None)
        self._count_abort(transaction)
        if is_stored:
            try:
                self.state.store.abort(transaction.number)
            except StoreFull as error:  # what never commits is dropped at the next start all the same
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
                self._release(operation.queue, operation.lookup_identifier)

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
                self.state.store.append(puts[start : start + _COUNTS_BATCH])
        except StoreFull as error:
            logger.warning(
                "the abort counts of %d messages could not be stored and end with this run: %s", len(puts), error
            )

    def _target(self, move: Moved) -> Queue:
        """Where a move goes; a subqueue that vanished meanwhile, being empty and closed, is made again."""
        target = move.target
        if target.deleted and target.parent is not None:
            return self.subqueue(target.parent, target.name)
        return target
