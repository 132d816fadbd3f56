"""The queue manager: every event of [MS-MQDMPR] 3.1.7.1 that a protocol raises, on local queues.

Each method is one event: it checks, changes the state atomically and returns, or raises an MsmqError and changes
nothing. What it wrote is durable only after the owner of the store has synced it.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from openmsmq.model import names
from openmsmq.model.constants import (
    INFINITE,
    MAXIMUM_MESSAGE_SIZE,
    Access,
    Action,
    Delivery,
    MachineAccessMask,
    MessageClass,
    PropId,
    QueueAccessMask,
    SecurityInformation,
    Share,
)
from openmsmq.model.errors import (
    HResult,
    IllegalQueuePathName,
    InsufficientResources,
    InvalidHandle,
    MessageStorageFailed,
    MsmqError,
    QueueDeleted,
    QueueExists,
    QueueNotFound,
    SharingViolation,
    TransactionSequence,
    TransactionUsage,
)
from openmsmq.model.message import Message
from openmsmq.model.security import SecurityDescriptor
from openmsmq.queueing import properties as queue_properties
from openmsmq.queueing.access import Caller, default_queue_security, demand
from openmsmq.queueing.plan import Plan, new_identifier, store_insert
from openmsmq.queueing.properties import PRIV_LEVEL_BODY, PRIV_LEVEL_NONE, QueueProperties
from openmsmq.queueing.queue import Lock, LockKind, Queue, QueueKind, columns_of, entries_of
from openmsmq.queueing.readers import Accept, Cursor, OpenQueueDescriptor, Reply, WaitingMessageReadOperation
from openmsmq.queueing.records import TIME_MASK, decode_properties, encode_properties, split_deadline_word
from openmsmq.queueing.state import LAST_QUEUE_NUMBER, Machine, State, not_here
from openmsmq.queueing.storage import MessageStore
from openmsmq.queueing.timers import Timers
from openmsmq.queueing.transactions import Dequeued, Enqueued, Transaction
from openmsmq.store import DamagedRecord, Drop, Operation, Put, QueueColumns, Remove, StoreFull

logger = logging.getLogger(__name__)

_QUEUE_PREFIX = b"queue/"
_LAST_NUMBER = b"last-queue-number"
_FIRST_HANDLE = 0x100  # above the reserved cursor value 0x0000000b of [MS-MQMP] 3.1.4.19
_RETRY = 10_000  # milliseconds until an expired message that the full disk kept is tried again
_ORPHAN_BATCH = 512  # messages of deleted queues removed by one record at start-up

# Open for whom: the right that an access mode demands, by kind of queue.
_QUEUE_RIGHTS = {
    QueueKind.PRIVATE: {
        Access.RECEIVE: QueueAccessMask.RECEIVE_MESSAGE,
        Access.PEEK: QueueAccessMask.PEEK_MESSAGE,
        Access.SEND: QueueAccessMask.WRITE_MESSAGE,
    },
    QueueKind.JOURNAL: {
        Access.RECEIVE: QueueAccessMask.RECEIVE_JOURNAL_MESSAGE,
        Access.PEEK: QueueAccessMask.PEEK_MESSAGE,
    },
}


class QueueManager:
    """All operations on local queues. One thread; `clock` returns milliseconds since 1970 UTC."""

    def __init__(
        self,
        machine: Machine,
        store: MessageStore,
        clock: Callable[[], int],
        random: Callable[[int], bytes],
        recovered: Mapping[int, QueueColumns] | None = None,
    ) -> None:
        """`recovered` holds the live messages by queue number, as the store found them."""
        self.state = State(machine, store, clock)
        self.state.take = self._satisfy
        self._random = random
        self._handles = itertools.count(_FIRST_HANDLE)
        self._readers = itertools.count(1)
        self._transaction_numbers = itertools.count(1)
        self.descriptors: dict[int, OpenQueueDescriptor] = {}
        self.transactions: dict[bytes, Transaction] = {}
        self._timeouts: Timers[WaitingMessageReadOperation] = Timers(_is_waiting, self._tell_deadline)
        self._recover(recovered or {})

    def _tell_deadline(self) -> None:
        self.state.deadline_changed()

    # -- recovery and checkpoints ----------------------------------------------------------------------------

    def _recover(self, recovered: Mapping[int, QueueColumns]) -> None:
        state = self.state
        for name, value in state.store.definitions.items():
            if name.startswith(_QUEUE_PREFIX):
                state.register(int(name.removeprefix(_QUEUE_PREFIX)), decode_properties(value))
        orphans: list[Operation] = []
        for number, columns in recovered.items():
            queue = state.queues.get(number)
            if queue is None:  # deleted while a transaction had written ahead to it
                orphans += [Remove(*row) for row in zip(columns.keys, columns.locations, strict=True)]
                continue
            keys, values = entries_of(columns)
            queue.load(keys, values, sum(columns.sizes))
            for key, word in zip(keys, columns.deadlines, strict=True):
                if deadline := word & TIME_MASK:
                    state.expiry.add(deadline, key, number)
        for start in range(0, len(orphans), _ORPHAN_BATCH):
            state.store.append(orphans[start : start + _ORPHAN_BATCH])

    def columns(self) -> Iterator[tuple[int, QueueColumns]]:
        """The live messages for a checkpoint: committed ones, locked or not, sorted by sequence number."""
        deadlines: dict[int, dict[int, int]] = {}
        for deadline, key, number in self.state.expiry:
            deadlines.setdefault(number, {})[key] = deadline
        for queue in self.state.queues.values():
            for key, lock in queue.locked.items():  # the timer of one whose time came while it was locked is gone
                if lock.kind is not LockKind.ENQUEUE and queue.kind is QueueKind.PRIVATE:
                    with suppress(DamagedRecord, ValueError, OSError):
                        deadlines.setdefault(queue.number, {})[key] = queue.message(key).deadline()
            keys, values = queue.stored_entries()
            if keys:
                yield queue.number, columns_of(keys, values, deadlines.get(queue.number, {}))

    def is_live(self, number: int, sequence: int, word: int, location: int) -> bool:
        """For compaction: whether the store's message at this location is still one of ours."""
        queue = self.state.queues.get(number)
        key = split_deadline_word(word, sequence)[0]
        return queue is not None and key in queue.entries and queue.location(key) == location

    def relocated(self, number: int, sequence: int, word: int, old: int, new: int) -> None:
        """For compaction: a message has moved in the log."""
        queue = self.state.queues.get(number)
        if queue is None:
            return
        key = split_deadline_word(word, sequence)[0]
        queue.replace_location(key, old, new)
        lock = queue.locked.get(key)
        if lock is not None and isinstance(lock.owner, Transaction):
            for operation in lock.owner.operations:
                if isinstance(operation, Enqueued) and operation.location == old:
                    operation.location = new

    # -- queues ----------------------------------------------------------------------------------------------

    def create_queue(
        self,
        path_name: str,
        values: Mapping[int, Any],
        security: bytes | None,
        caller: Caller,
    ) -> Queue:
        """Create Queue, [MS-MQDMPR] 3.1.7.1.3: a private queue of this machine.

        `values` maps PROPIDs to values; `security` is a self-relative descriptor or None for the default. Raises
        IllegalQueuePathName, QueueExists, AccessDenied and what properties.changed raises.
        """
        state = self.state
        path = names.parse_path_name(path_name)
        if not state.machine.is_local(path.computer) or path.kind != "private" or path.subqueue:
            raise IllegalQueuePathName(
                detail=f"{path_name!r}: only private queues of this machine can be created, "
                f"for example .\\private$\\{path.name}"
            )
        if state.queue_for_path_name(path) is not None:
            raise QueueExists(detail=str(path))
        demand(state.security, caller, MachineAccessMask.CREATE_QUEUE, "the queue manager")
        if PropId.PROPID_Q_PATHNAME in values:
            repeated = names.parse_path_name(values[PropId.PROPID_Q_PATHNAME])
            if state.queue_for_path_name(repeated) is not None or repeated.name.lower() != path.name.lower():
                raise MsmqError(
                    HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE, f"PROPID_Q_PATHNAME {repeated} differs from {path}"
                )
        descriptor = default_queue_security(caller.sid)
        if security:
            given = SecurityDescriptor.parse(security)
            descriptor = replace(
                given,
                owner=given.owner or descriptor.owner,
                group=given.group or descriptor.group,
                dacl=descriptor.dacl if given.dacl is None else given.dacl,
            )
        now = state.clock() // 1000
        canonical = names.PathName(state.machine.computer_name, path.name)
        properties = QueueProperties(
            str(canonical), instance=self._random(16), security=descriptor.pack(), create_time=now, modify_time=now
        )
        properties = queue_properties.changed(properties, values, creating=True)
        number = self._new_queue_number()
        with storing():
            state.store.append(
                [Put(_definition(number), encode_properties(properties)), Put(_LAST_NUMBER, str(number).encode())]
            )
        return state.register(number, properties)

    def _new_queue_number(self) -> int:
        """A number that no queue has or had: messages of a deleted queue must not appear in a new one."""
        number = int(self.state.store.definitions.get(_LAST_NUMBER, b"0")) + 1
        if number > LAST_QUEUE_NUMBER:
            raise InsufficientResources(detail=f"all {LAST_QUEUE_NUMBER} queue numbers are used up")
        return number

    def delete_queue(self, queue: Queue, caller: Caller) -> None:
        """Delete Queue, [MS-MQDMPR] 3.1.7.1.4, with its journal and all its messages."""
        self.demand(queue, caller, QueueAccessMask.DELETE_QUEUE)
        if queue.kind is not QueueKind.PRIVATE:
            raise MsmqError(HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, "system queues and journals stay")
        with storing():
            for doomed in (queue, queue.journal):
                if doomed is not None:
                    self._remove_all(doomed, MessageClass.NACK_Q_DELETED)
            self.state.store.append([Drop(_definition(queue.number))])
        self.state.forget(queue)
        for closing in (queue, queue.journal):
            if closing is None:
                continue
            for reader in list(closing.waiting.values()):
                reader.end(HResult.MQ_ERROR_QUEUE_DELETED)
            for descriptor in closing.descriptors:
                descriptor.queue = None

    def _remove_all(self, queue: Queue, reason: MessageClass) -> None:
        """Remove everything but uncommitted sends, which were never in the queue for anybody; the end of their
        transaction finds its queue gone."""
        unsent = {key for key, lock in queue.locked.items() if lock.kind is LockKind.ENQUEUE}
        self._sweep(queue, [key for key in queue.entries if key not in unsent], reason)

    def _sweep(self, queue: Queue, keys: list[int], reason: MessageClass) -> None:
        """Remove many messages, a bounded batch at a time."""
        plan = Plan(self.state)
        for key in keys:
            plan.remove(queue, key, queue.message(key), reason)
            if plan.is_full:
                plan.carry_out()
                plan = Plan(self.state)
        plan.carry_out()

    def set_properties(self, queue: Queue, values: Mapping[int, Any], caller: Caller) -> None:
        """Change properties by PROPID; all or none. Raises what properties.changed raises, and AccessDenied."""
        self.demand(queue, caller, QueueAccessMask.SET_QUEUE_PROPERTIES)
        self._only_private(queue)
        updated = queue_properties.changed(queue.properties, values, creating=False)
        self._define(queue, replace(updated, modify_time=self.state.clock() // 1000))

    def get_properties(self, queue: Queue, propids: list[int], caller: Caller) -> list[Any]:
        """The values of PROPIDs, in order. Raises MsmqError for one that is no queue property, and AccessDenied."""
        self.demand(queue, caller, QueueAccessMask.GET_QUEUE_PROPERTIES)
        self._only_private(queue)
        machine = self.state.machine
        computed = {
            "path_name_dns": f"{machine.qualified_name}{queue.properties.path_name[len(machine.computer_name) :]}"
            if machine.qualified_name
            else "",
            "ads_path": "",
        }
        values = []
        for propid in propids:
            attribute = queue_properties.rule_for(propid).attribute
            values.append(computed[attribute] if attribute in computed else getattr(queue.properties, attribute))
        return values

    def set_security(self, queue: Queue, information: int, descriptor: bytes, caller: Caller) -> None:
        """Replace the parts of the security descriptor that `information` (SECURITY_INFORMATION) names."""
        wanted = 0
        if information & SecurityInformation.OWNER:
            wanted |= QueueAccessMask.TAKE_QUEUE_OWNERSHIP
        if information & ~SecurityInformation.OWNER:
            wanted |= QueueAccessMask.CHANGE_QUEUE_PERMISSIONS
        self.demand(queue, caller, wanted)
        self._only_private(queue)
        current = SecurityDescriptor.parse(queue.properties.security)
        merged = current.merge(SecurityDescriptor.parse(descriptor), information)
        self._define(queue, replace(queue.properties, security=merged.pack()))

    def get_security(self, queue: Queue, information: int, caller: Caller) -> bytes:
        """The parts of the security descriptor that `information` names, self-relative.

        Deviation from [MS-MQMP] 3.1.4.7: the published rules are chained with `Else if` and would return one part
        only; every part that is asked for is returned.
        """
        self.demand(queue, caller, QueueAccessMask.GET_QUEUE_PERMISSIONS)
        self._only_private(queue)
        return SecurityDescriptor.parse(queue.properties.security).select(information).pack()

    def _define(self, queue: Queue, properties: QueueProperties) -> None:
        with storing():
            self.state.store.append([Put(_definition(queue.number), encode_properties(properties))])
        self.state.update(queue, properties)

    def _only_private(self, queue: Queue) -> None:
        if queue.kind is not QueueKind.PRIVATE:
            raise MsmqError(
                HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
                f"{queue.properties.path_name} is a system queue or a journal",
            )

    def demand(self, queue: Queue, caller: Caller, wanted: int) -> None:
        """Access check on a queue; a journal is guarded by its queue's descriptor."""
        owner = queue
        if queue.kind is QueueKind.JOURNAL:
            owner = self.state.queues[queue.number & 0x7FFFFFFF]
        if owner.properties.security:
            demand(SecurityDescriptor.parse(owner.properties.security), caller, wanted, queue.properties.path_name)

    # -- opening and closing ---------------------------------------------------------------------------------

    def open_queue(
        self, format_name: names.FormatName, access: Access, share: Share, caller: Caller, owner: object = None
    ) -> OpenQueueDescriptor:
        """Open Queue, [MS-MQDMPR] 3.1.7.1.5.

        Raises QueueNotFound, SharingViolation, AccessDenied, or MsmqError for what a format name does not support or
        what another machine would have to do.
        """
        if isinstance(format_name, names.MultipleElementFormatName):
            return self._open_multiple(format_name, access, share, caller, owner)
        self._check_operation(format_name, access, share)
        queue = self.state.local_queue(format_name)
        if queue is None:
            raise self._not_found(format_name, access)
        if access in (Access.RECEIVE_ADMIN, Access.PEEK_ADMIN):
            raise QueueNotFound(detail=f"there is no outgoing queue for {format_name}")
        if access is Access.SEND and queue.kind is not QueueKind.PRIVATE:
            raise MsmqError(HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE, f"{format_name} can't be opened for sending")
        self._demand_open(queue, access, caller)
        self._check_sharing(queue, access, share)
        descriptor = OpenQueueDescriptor(next(self._handles), format_name, access, share, queue, owner)
        queue.descriptors.add(descriptor)
        self.descriptors[descriptor.handle] = descriptor
        return descriptor

    def _open_multiple(
        self, format_name: names.MultipleElementFormatName, access: Access, share: Share, caller: Caller, owner: object
    ) -> OpenQueueDescriptor:
        if access is not Access.SEND:
            raise MsmqError(
                HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, "a multiple-element format name is for sending only"
            )
        if share is not Share.DENY_NONE:
            raise MsmqError(HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE, "sending can't deny others")
        descriptor = OpenQueueDescriptor(next(self._handles), format_name, access, share, None, owner)
        seen: set[str] = set()
        for element in format_name.elements:
            if str(element).lower() in seen:
                continue
            seen.add(str(element).lower())
            try:
                descriptor.parts.append(self.open_queue(element, access, share, caller, owner))
            except MsmqError:
                self.close_queue(descriptor)
                raise
        self.descriptors[descriptor.handle] = descriptor
        return descriptor

    def _check_operation(self, name: names.SingleFormatName, access: Access, share: Share) -> None:
        sending = access is Access.SEND
        if sending and share is not Share.DENY_NONE:
            raise MsmqError(HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE, "sending can't deny others")
        if isinstance(name, names.DistributionListFormatName):
            raise MsmqError(HResult.MQ_ERROR_NO_DS, f"{name}: no directory to resolve a distribution list")
        is_http = isinstance(name, names.DirectFormatName) and name.is_http
        wrong = (
            (is_http or isinstance(name, names.MulticastFormatName)) and not sending,
            isinstance(name, names.MachineFormatName) and sending,
            isinstance(name, names.DirectFormatName) and bool(name.subqueue) and sending,
            isinstance(name, names.PublicFormatName) and sending,
        )
        if any(wrong):
            raise MsmqError(
                HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION, f"{name} can't be opened with {access.name} access"
            )

    def _not_found(self, name: names.SingleFormatName, access: Access) -> MsmqError:
        if access is Access.SEND and not self.state.is_local(name):
            return not_here(name)
        return QueueNotFound(detail=str(name))

    def _demand_open(self, queue: Queue, access: Access, caller: Caller) -> None:
        state = self.state
        if queue.kind is QueueKind.SYSTEM:
            if queue is state.system_journal:
                wanted = MachineAccessMask.PEEK_JOURNAL_QUEUE_MESSAGE
                if access is Access.RECEIVE:
                    wanted = MachineAccessMask.RECEIVE_JOURNAL_QUEUE_MESSAGE
            else:
                wanted = MachineAccessMask.PEEK_DEADLETTER_MESSAGE
                if access is Access.RECEIVE:
                    wanted = MachineAccessMask.RECEIVE_DEADLETTER_MESSAGE
            demand(state.security, caller, wanted, queue.properties.path_name)
        else:
            self.demand(queue, caller, _QUEUE_RIGHTS[queue.kind][access])

    def _check_sharing(self, queue: Queue, access: Access, share: Share) -> None:
        """The rules at the end of 3.1.7.1.5: who may read beside whom."""
        for other in queue.descriptors:
            exclusive = other.share is Share.DENY_RECEIVE_SHARE
            if exclusive and other.access is Access.RECEIVE:
                violated = share is Share.DENY_RECEIVE_SHARE or access is Access.RECEIVE
            elif exclusive:  # a peeker that denies receivers
                violated = access is Access.RECEIVE
            else:
                violated = other.access is Access.RECEIVE and share is Share.DENY_RECEIVE_SHARE
            if violated:
                raise SharingViolation(detail=f"{queue.properties.path_name} is open for reading already")

    def close_queue(self, descriptor: OpenQueueDescriptor) -> None:
        """Close Queue, [MS-MQDMPR] 3.1.7.1.6: waiting reads are cancelled, two-phase reads put back."""
        self.descriptors.pop(descriptor.handle, None)
        for part in descriptor.parts:
            self.close_queue(part)
        descriptor.cursors.clear()
        queue, descriptor.queue = descriptor.queue, None
        if queue is None:
            return
        queue.descriptors.discard(descriptor)
        for reader in [r for r in queue.waiting.values() if r.descriptor is descriptor]:
            queue.waiting.pop(reader.number, None)
            reader.end(HResult.MQ_ERROR_OPERATION_CANCELLED)
        for key in [k for k, lock in queue.locked.items() if lock.owner is descriptor]:
            self._release(queue, key)

    # -- sending ---------------------------------------------------------------------------------------------

    def enqueue(
        self, descriptor: OpenQueueDescriptor, message: Message, transaction: Transaction | None = None
    ) -> bytes:
        """Enqueue Message To An Open Queue, [MS-MQDMPR] 3.1.7.1.27. Returns the message's identifier (20 bytes).

        The message becomes the queue's: what the queue manager fills in, it fills into this very object.

        Raises QueueDeleted, TransactionUsage, InsufficientResources (quotas, size), MessageStorageFailed (disk full).
        With a multiple-element format name each queue gets its copy, all or none.
        """
        if descriptor.access is not Access.SEND:
            raise MsmqError(HResult.MQ_ERROR_ACCESS_DENIED, f"{descriptor.format_name} was not opened for sending")
        with storing():
            return self._enqueue(descriptor.parts or [descriptor], message, transaction)

    def _enqueue(self, targets: list[OpenQueueDescriptor], message: Message, transaction: Transaction | None) -> bytes:
        if transaction is not None and transaction.finished:
            raise TransactionSequence(detail="the transaction has ended")
        plan = Plan(self.state)
        copies: list[tuple[Queue, Message, int]] = []
        for target in targets:
            queue = target.queue
            if queue is None:
                raise QueueDeleted(detail=str(target.format_name))
            copy = message if len(targets) == 1 else replace(message)
            copy.destination_queue_format_name = target.name
            size = copy.size
            self._check_message(queue, copy, size, transaction)
            if not plan.has_room(queue, size):
                raise InsufficientResources(detail=f"the quota of {queue.properties.path_name} or of the machine")
            self.state.stamp(copy, queue)
            copies.append((queue, copy, size))
            if transaction is None:
                plan.insert(queue, copy, size)
                plan.arrive(queue, copy)
        if transaction is None:
            plan.carry_out()
        else:
            self._enqueue_in(transaction, copies)
        return copies[0][1].identifier

    def _check_message(self, queue: Queue, message: Message, size: int, transaction: Transaction | None) -> None:
        if queue.properties.transactional and transaction is None:
            raise TransactionUsage(detail=f"{queue.properties.path_name} takes messages in transactions only")
        if transaction is not None and not queue.properties.transactional:
            raise TransactionUsage(detail=f"{queue.properties.path_name} is not transactional")
        if size > MAXIMUM_MESSAGE_SIZE:
            raise InsufficientResources(
                detail=f"the message has {size} bytes with its headers, at most {MAXIMUM_MESSAGE_SIZE}"
            )
        if queue.properties.authentication:  # signatures can't be verified here, so none counts as authentic
            raise MsmqError(HResult.MQ_ERROR_MESSAGE_NOT_AUTHENTICATED, queue.properties.path_name)
        privacy = queue.properties.privacy_level
        if (privacy == PRIV_LEVEL_BODY and not message.privacy_level) or (
            privacy == PRIV_LEVEL_NONE and message.privacy_level
        ):
            raise MsmqError(HResult.MQ_ERROR_ILLEGAL_OPERATION, f"privacy level of {queue.properties.path_name}")
        if transaction is not None:
            message.delivery_guarantee = Delivery.RECOVERABLE
            message.priority = 0
            message.transaction_identifier = new_identifier(self.state.machine.identifier, transaction.number)

    def _enqueue_in(self, transaction: Transaction, copies: list[tuple[Queue, Message, int]]) -> None:
        """A send in a transaction: locked until commit. All but the last one are written ahead, so that a large
        transaction does not sit in memory; the last one waits until it is known to be the last."""
        if transaction.last_send is not None:
            self._write_ahead(transaction, transaction.last_send)  # may fail, so it comes before any change
        for queue, message, size in copies:
            message.first_in_transaction = transaction.last_send is None
            send = Enqueued(queue, message, size)
            queue.insert(message, None, size, Lock(LockKind.ENQUEUE, transaction))
            transaction.operations.append(send)
            transaction.last_send = send

    def _write_ahead(self, transaction: Transaction, send: Enqueued) -> None:
        if send.location is not None or send.queue.deleted:
            return
        insert = store_insert(send.queue, send.message)
        send.location = self.state.store.append_pending(transaction.number, [insert])[0]
        transaction.wrote_pending = True
        send.size = len(insert.payload)
        send.queue.settle(send.message.lookup_identifier, send.location, send.size)
        send.message.body = b""  # on disk now; only the headers are needed for what the commit entails

    # -- reading ---------------------------------------------------------------------------------------------

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

    @staticmethod
    def _may_join(transaction: Transaction, queue: Queue) -> bool:
        return not transaction.finished and (queue.properties.transactional or queue.kind is QueueKind.JOURNAL)

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
        if reader.transaction is not None and reader.transaction.finished:
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
        else:
            try:
                self._delete(queue, position, message, MessageClass.ACK_RECEIVE)
            except MessageStorageFailed as error:
                return error.hresult
        return HResult.MQ_OK

    def _delete(self, queue: Queue, lookup_identifier: int, message: Message, reason: MessageClass) -> None:
        with storing():
            plan = Plan(self.state)
            plan.remove(queue, lookup_identifier, message, reason)
            plan.carry_out()

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
            return
        reason = MessageClass.NACK_Q_PURGED if lock.purge_pending else MessageClass.ACK_RECEIVE
        self._delete(queue, lookup_identifier, queue.message(lookup_identifier), reason)

    def _release(self, queue: Queue, lookup_identifier: int) -> None:
        """Put a locked position back: purged if that was asked meanwhile, expired if its time came, else available."""
        lock = queue.locked[lookup_identifier]
        message = queue.message(lookup_identifier)
        deadline = message.deadline()
        reason = None
        if lock.purge_pending:
            # Deviation from [MS-MQDMPR] 3.1.4.5: not AckReceive, because nobody has received the message.
            reason = MessageClass.NACK_Q_PURGED
        elif deadline and deadline <= self.state.clock() and queue.kind is QueueKind.PRIVATE:
            reason = MessageClass.NACK_RECEIVE_TIMEOUT
        if reason is not None:
            try:
                self._delete(queue, lookup_identifier, message, reason)
                return
            except MessageStorageFailed as error:  # whoever puts it back is not to blame, and may hold more locks
                logger.error("%s: %#x stays: %s", queue.properties.path_name, lookup_identifier, error)
                if deadline:
                    self.state.expiry.add(self.state.clock() + _RETRY, lookup_identifier, queue.number)
        queue.unlock(lookup_identifier)
        self.state.serve(queue, lookup_identifier)

    def cancel(self, reader: WaitingMessageReadOperation, status: int = HResult.MQ_ERROR_OPERATION_CANCELLED) -> bool:
        """Cancel Waiting Message Read Request, 3.1.7.1.17. Returns False if the read is over already."""
        queue = reader.descriptor.queue
        if queue is None or queue.waiting.pop(reader.number, None) is None:
            return False
        reader.end(status)
        return True

    # -- cursors ---------------------------------------------------------------------------------------------

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

    # -- purging ---------------------------------------------------------------------------------------------

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

    # -- transactions ----------------------------------------------------------------------------------------

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

    def commit(self, transaction: Transaction) -> None:
        """Transaction Commit, 3.1.4.4, with the flags that Transaction Prepare (3.1.4.3) sets: one atomic batch.

        Raises MessageStorageFailed (disk full); the transaction is then still open.
        """
        if transaction.last_send is not None:
            transaction.last_send.message.last_in_transaction = True
        self._finish(transaction)
        try:
            with storing():
                plan = Plan(self.state)
                for operation in transaction.operations:
                    if isinstance(operation, Enqueued):
                        plan.commit_send(operation)
                    elif (key := operation.lookup_identifier) in operation.queue.entries:
                        plan.remove(operation.queue, key, operation.queue.message(key), MessageClass.ACK_RECEIVE)
                plan.carry_out(transaction)
        except MsmqError:
            if transaction.last_send is not None:  # more may be sent before the next try
                transaction.last_send.message.last_in_transaction = False
            transaction.finished = False
            self.transactions[transaction.identifier] = transaction
            raise

    def abort(self, transaction: Transaction) -> None:
        """Transaction Abort, 3.1.4.5: sends vanish, receives return to their place."""
        self._finish(transaction)
        if transaction.wrote_pending:
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

    def _finish(self, transaction: Transaction) -> None:
        if transaction.finished:
            raise TransactionSequence(detail="the transaction has ended")
        transaction.finished = True
        self.transactions.pop(transaction.identifier, None)

    # -- time ------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When `expire` has something to do, in milliseconds since 1970 UTC."""
        candidates = (self._timeouts.next(), self.state.expiry.next())
        return min((deadline for deadline in candidates if deadline is not None), default=None)

    def expire(self) -> None:
        """Waiting Message Read Timer Expired and Time To Be Received Timer Expired (3.1.6.3, 3.1.7.2.7)."""
        now = self.state.clock()
        for _, reader in self._timeouts.due(now):
            self.cancel(reader, HResult.MQ_ERROR_IO_TIMEOUT)
        for lookup_identifier, number in self.state.expiry.due(now):
            queue = self.state.queues[number]
            if lookup_identifier in queue.locked:
                continue  # looked at again when it is put back
            try:
                message = queue.message(lookup_identifier)
                self._delete(queue, lookup_identifier, message, MessageClass.NACK_RECEIVE_TIMEOUT)
            except (MessageStorageFailed, DamagedRecord, ValueError, OSError) as error:
                logger.error("%s: %#x stays: %s", queue.properties.path_name, lookup_identifier, error)
                self.state.expiry.add(now + _RETRY, lookup_identifier, number)

    # -- finding ---------------------------------------------------------------------------------------------

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


def _is_waiting(_: int, reader: WaitingMessageReadOperation) -> bool:
    queue = reader.descriptor.queue
    return queue is not None and reader.number in queue.waiting


@contextmanager
def storing() -> Iterator[None]:
    """A full disk is the operation's failure, with nothing changed; a failed store is the end of the process."""
    try:
        yield
    except StoreFull as error:
        raise MessageStorageFailed(detail=str(error)) from error


def _definition(number: int) -> bytes:
    return _QUEUE_PREFIX + str(number).encode()
