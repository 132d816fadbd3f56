"""What every part of the queue manager needs: its tables, access checks, taking messages away and putting them back."""

from __future__ import annotations

import itertools
import logging
import struct
from collections.abc import Callable, Container, Iterable
from types import TracebackType

from openmsmq.model import names
from openmsmq.model.constants import MessageClass
from openmsmq.model.errors import (
    HResult,
    InvalidHandle,
    MessageStorageFailed,
    MsmqError,
    QueueNotFound,
)
from openmsmq.model.message import Message
from openmsmq.model.security import SecurityDescriptor
from openmsmq.queueing.access import Caller, demand
from openmsmq.queueing.groups import Group
from openmsmq.queueing.outbox import answered
from openmsmq.queueing.plan import Plan, store_insert
from openmsmq.queueing.queue import Lock, LockKind, Queue, QueueKind
from openmsmq.queueing.readers import OpenQueueDescriptor, WaitingMessageReadOperation
from openmsmq.queueing.state import State
from openmsmq.queueing.timers import Timers
from openmsmq.queueing.transactions import Enqueued, Transaction
from openmsmq.store import DamagedRecord, Drop, Operation, StoreFailed, StoreFull

logger = logging.getLogger(__name__)

_FIRST_HANDLE = 0x100  # above the reserved cursor value 0x0000000b of [MS-MQMP] 3.1.4.19
RETRY = 10_000  # milliseconds until an expired message that the full disk kept is tried again
# What reading and decoding a stored record raises.
UNREADABLE = (DamagedRecord, ValueError, OSError, struct.error)


class Core:
    """State, tables and numbers of one queue manager."""

    def __init__(self, state: State, random: Callable[[int], bytes]) -> None:
        self.state = state
        self.descriptors: dict[int, OpenQueueDescriptor] = {}
        self.transactions: dict[bytes, Transaction] = {}
        self.groups: dict[int, dict[str, Group]] = {}  # consumer groups by number of their queue and name
        self.stages = state.stages
        self.writers_seen: dict[str, int] = {}  # sink -> milliseconds since 1970 UTC of the last keep-alive
        self._random = random
        self._readers = itertools.count(1)
        self._recovered_numbers: frozenset[int] = frozenset()  # of transactions and stages of an earlier run
        self._timeouts: Timers[WaitingMessageReadOperation] = Timers(_is_waiting, state.outbox.deadline_changed)

    def lowest_staged(self, queue: Queue, otherwise: int) -> int:
        """The lowest sequence that is staged for a queue."""
        return min((stage.lowest.get(queue.number, otherwise) for stage in self.stages.values()), default=otherwise)

    def drop_groups(self, queues: Iterable[Queue]) -> list[Operation]:
        """What the deletion of queues has to write for their consumer groups."""
        groups = [group for queue in queues for group in self.groups.get(queue.number, {}).values()]
        return [Drop(group.definition) for group in groups]

    def demand(self, queue: Queue, caller: Caller, wanted: int) -> None:
        """Access check on a queue; a journal and a subqueue are guarded by their queue's descriptor."""
        owner = queue
        if queue.kind is QueueKind.JOURNAL:
            owner = self.state.owner_of(queue)
        elif queue.parent is not None:
            owner = queue.parent
        if owner.properties.security:
            demand(SecurityDescriptor.parse(owner.properties.security), caller, wanted, queue.properties.path_name)

    def queue_for(self, format_name: names.FormatName) -> Queue:
        """The local queue of a format name. Raises QueueNotFound, or MsmqError for another machine's."""
        queue = self.state.local_queue(format_name)
        if queue is None:
            if not isinstance(format_name, names.MultipleElementFormatName) and not self.state.is_local(format_name):
                raise MsmqError(
                    HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, f"{format_name} is not a queue of this machine"
                )
            raise QueueNotFound(detail=str(format_name))
        return queue

    def descriptor(self, handle: int) -> OpenQueueDescriptor:
        """The open queue descriptor of a handle value. Raises InvalidHandle."""
        try:
            return self.descriptors[handle]
        except KeyError:
            raise InvalidHandle(detail=f"no open queue has the handle {handle:#x}") from None

    def new_transaction_number(self) -> int:
        """The number of a transaction, in the store and in its messages (32 bits). Taken from the sequence numbers, so
        that transactions before and after a restart differ. Raises MessageStorageFailed (disk full)."""
        with storing():
            while True:
                number = self.state.next_sequence() & 0xFFFFFFFF
                if number and number not in self._recovered_numbers:
                    return number

    def unused_handle(self, used: Container[int]) -> int:
        """A random value for a DWORD that names an open queue or a cursor: nobody finds one by trying those near to
        it."""
        while True:
            handle = int.from_bytes(self._random(4), "little")
            if handle >= _FIRST_HANDLE and handle not in used:
                return handle

    def readable(self, queue: Queue, lookup_identifier: int) -> Message:
        """The message at a position. Raises MessageStorageFailed if its record can't be read or decoded; the position
        is then in quarantine, unless somebody holds it."""
        try:
            return queue.message(lookup_identifier)
        except UNREADABLE as error:
            if lookup_identifier not in queue.locked:
                self.quarantine(queue, lookup_identifier, error)
            detail = f"message {lookup_identifier:#x} of {queue.properties.path_name} can't be read: {error}"
            raise MessageStorageFailed(detail=detail) from error

    def quarantine(self, queue: Queue, lookup_identifier: int, error: BaseException) -> None:
        """Keep a position whose record can't be decoded out of the way of readers. It stays in the store, where
        `openmsmq fsck` finds it, and goes when the queue is purged or deleted."""
        logger.error(
            "queue %s: message %#x can't be decoded and is hidden from readers until the queue is purged: %s",
            queue.properties.path_name, lookup_identifier, error,
        )  # fmt: skip
        lock = Lock(LockKind.QUARANTINE, None)
        if lookup_identifier in queue.locked:
            queue.locked[lookup_identifier] = lock
        else:
            queue.lock(lookup_identifier, lock)

    def end_read(self, reader: WaitingMessageReadOperation, status: int) -> None:
        """A read that waits ends without a message."""
        reader.leave()
        answered(reader, status, None)

    def write_ahead(self, transaction: Transaction, send: Enqueued) -> None:
        """Store a send of a transaction before its commit, pending. Raises what the store raises."""
        if send.is_held:
            insert = store_insert(send.queue, send.message)
            location = self.state.store.append_pending(transaction.number, [insert])[0]
            self.written_ahead(transaction, send, location, len(insert.payload))

    @staticmethod
    def written_ahead(transaction: Transaction, send: Enqueued, location: int, size: int) -> None:
        """A send of a transaction is in the store, pending, with a record of so many bytes."""
        transaction.wrote_pending = True
        send.location, send.size = location, size
        send.queue.settle(send.message.lookup_identifier, location, size)
        send.message.body = b""  # on disk now; only the headers are needed for what the commit entails

    def _delete(self, queue: Queue, lookup_identifier: int, message: Message, reason: MessageClass) -> None:
        with storing():
            plan = Plan(self.state)
            plan.remove(queue, lookup_identifier, message, reason)
            plan.carry_out()

    def _sweep(self, queue: Queue, keys: list[int], reason: MessageClass) -> None:
        """Remove many messages, a bounded batch at a time."""
        plan = Plan(self.state)
        for key in keys:
            try:
                message = queue.message(key)
            except UNREADABLE as error:
                path_name = queue.properties.path_name
                logger.error("queue %s: message %#x is removed; it could not be decoded: %s", path_name, key, error)
                plan.remove_unreadable(queue, key)
            else:
                plan.remove(queue, key, message, reason)
            if plan.is_full:
                plan.carry_out()
                plan = Plan(self.state)
        plan.carry_out()

    def _release(self, queue: Queue, lookup_identifier: int) -> None:
        """Put a locked position back: purged if that was asked meanwhile, expired if its time came, else available."""
        lock = queue.locked[lookup_identifier]
        try:
            message = queue.message(lookup_identifier)
        except UNREADABLE as error:
            self.quarantine(queue, lookup_identifier, error)
            return
        deadline = queue.deadline_of(message)
        reason = None
        if lock.purge_pending:
            # Deviation D-04 from [MS-MQDMPR] 3.1.4.5: not AckReceive, because nobody has received the message.
            reason = MessageClass.NACK_Q_PURGED
        elif deadline and deadline <= self.state.clock():
            # Deviation D-05 from [MS-MQDMPR] 3.1.7.2.7: decided when the transaction has ended.
            reason = queue.expiry_reason(message)
        if reason is not None:
            try:
                self._delete(queue, lookup_identifier, message, reason)
                return
            except MessageStorageFailed as error:  # whoever puts it back is not to blame, and may hold more locks
                name = queue.properties.path_name
                logger.error("queue %s: message %#x could not be removed: %s", name, lookup_identifier, error)
                if deadline:
                    self.state.expiry.add(self.state.clock() + RETRY, lookup_identifier, queue.number)
        queue.unlock(lookup_identifier)
        self.state.outbox.arrived(queue, lookup_identifier)


def _is_waiting(_: int, reader: WaitingMessageReadOperation) -> bool:
    return reader.number in reader.descriptor.waiting


class storing:
    """A full disk is the operation's failure, with nothing changed. A failed store is the end of the process, and until
    then the failure of every operation: whoever comes in between gets an answer."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, StoreFull | StoreFailed):
            raise MessageStorageFailed(detail=str(error)) from error
