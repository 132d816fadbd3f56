"""Internal transactions: create, commit, abort ([MS-MQDMPR] 3.1.7.1.8, 3.1.4.3 to 3.1.4.5)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from openmsmq.model.constants import MessageClass
from openmsmq.model.errors import MsmqError, TransactionSequence
from openmsmq.queueing.aborts import abort_definition
from openmsmq.queueing.core import storing
from openmsmq.queueing.notes import decode_note, encode_note
from openmsmq.queueing.plan import Plan
from openmsmq.queueing.queue import Lock, LockKind, Queue
from openmsmq.queueing.readers import OpenQueueDescriptor
from openmsmq.queueing.records import decode_message, split_deadline_word
from openmsmq.queueing.subqueues import Subqueues
from openmsmq.queueing.transactions import Dequeued, Enqueued, Moved, Transaction
from openmsmq.store import Operation, Put, QueueColumns, StoreFull

logger = logging.getLogger(__name__)

_COUNTS_BATCH = 512  # abort counts written by one record


class Committing(Subqueues):
    """The operations on transactions."""

    def create_transaction(self, identifier: bytes) -> Transaction:
        """Create Transaction, 3.1.7.1.8. Raises TransactionSequence if the identifier (16 bytes) is in use."""
        if identifier in self.transactions:
            raise TransactionSequence(detail="the unit of work is enlisted already")
        transaction = Transaction(identifier, next(self._transaction_numbers) & 0xFFFFFFFF)
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
        if transaction.finished:
            raise TransactionSequence(detail="the transaction has ended")
        last = transaction.last_send
        if last is not None:
            last.message.last_in_transaction = True
        try:
            with storing():
                if last is not None:
                    self.write_ahead(transaction, last)
                self.state.store.prepare(transaction.number, encode_note(transaction))
        except MsmqError:
            if last is not None:
                last.message.last_in_transaction = False
            raise
        transaction.sealed = transaction.is_prepared = True

    def recover_transaction(self, number: int, note: bytes, pending: Mapping[int, QueueColumns]) -> None:
        """Take up a prepared transaction after a restart: what it sent, received and moved is locked again."""
        identifier, coordinator, work = decode_note(note)
        transaction = Transaction(identifier, number, coordinator=coordinator, sealed=True, is_prepared=True)
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

    def commit(self, transaction: Transaction, decision: Iterable[Operation] = ()) -> None:
        """Transaction Commit, 3.1.4.4, with the flags that Transaction Prepare (3.1.4.3) sets: one atomic batch.
        `decision` joins it: what a coordinator has to remember.

        Raises MessageStorageFailed (disk full); the transaction is then still open.
        """
        if transaction.last_send is not None:
            transaction.last_send.message.last_in_transaction = True
        self._finish(transaction)
        try:
            with storing():
                plan = Plan(self.state)
                plan.also(decision)
                for operation in transaction.operations:
                    if isinstance(operation, Enqueued):
                        plan.commit_send(operation)
                        continue
                    queue, key = operation.queue, operation.lookup_identifier
                    if key not in queue.entries:
                        continue
                    if isinstance(operation, Dequeued):
                        plan.remove(queue, key, queue.message(key), operation.reason)
                    else:
                        plan.move(queue, key, queue.message(key), self._target(operation))
                plan.carry_out(transaction)
        except MsmqError:
            if transaction.last_send is not None:  # more may be sent before the next try
                transaction.last_send.message.last_in_transaction = False
            transaction.finished = False
            self.transactions[transaction.identifier] = transaction
            raise

    def abort(self, transaction: Transaction) -> None:
        """Transaction Abort, 3.1.4.5: sends vanish, receives return to their place. Nobody need wait for the disk: what
        has not committed is aborted by a restart too."""
        self._finish(transaction)
        self._count_abort(transaction)
        if transaction.wrote_pending or transaction.is_prepared:
            try:
                self.state.store.abort(transaction.number)
            except StoreFull as error:  # what never commits is dropped at the next start all the same
                logger.warning("the abort of a transaction found no room: %s", error)
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
            logger.warning("the abort counts of %d messages end with this run: %s", len(puts), error)

    def withdraw(self, transaction: Transaction, descriptor: OpenQueueDescriptor, lookup_identifier: int) -> None:
        """Take a receive out of a transaction: the message is available again. Nothing happens if the transaction or
        the queue is gone."""
        queue = descriptor.queue
        lock = queue.locked.get(lookup_identifier) if queue is not None else None
        if queue is None or lock is None or lock.owner is not transaction or transaction.sealed:
            return
        transaction.operations = [
            o for o in transaction.operations
            if isinstance(o, Enqueued) or o.queue is not queue or o.lookup_identifier != lookup_identifier
        ]  # fmt: skip
        self._release(queue, lookup_identifier)

    def _target(self, move: Moved) -> Queue:
        """Where a move goes; a subqueue that vanished meanwhile, being empty and closed, is made again."""
        target = move.target
        if target.deleted and target.parent is not None:
            return self.subqueue(target.parent, target.name)
        return target

    def _finish(self, transaction: Transaction) -> None:
        if transaction.finished:
            raise TransactionSequence(detail="the transaction has ended")
        transaction.finished = True
        self.transactions.pop(transaction.identifier, None)
