"""What every part of the queue manager needs: its tables, access checks, taking messages away and putting them back."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable
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
from openmsmq.queueing.plan import Plan, store_insert
from openmsmq.queueing.queue import Queue, QueueKind
from openmsmq.queueing.readers import OpenQueueDescriptor, WaitingMessageReadOperation
from openmsmq.queueing.stages import Stage
from openmsmq.queueing.state import State
from openmsmq.queueing.timers import Timers
from openmsmq.queueing.transactions import Enqueued, Transaction
from openmsmq.store import Drop, Operation, StoreFull

logger = logging.getLogger(__name__)

RANDOM_HANDLES = 0x40000000  # handles that nobody may guess are above; the counted ones do not get there
_FIRST_HANDLE = 0x100  # above the reserved cursor value 0x0000000b of [MS-MQMP] 3.1.4.19
RETRY = 10_000  # milliseconds until an expired message that the full disk kept is tried again


class Core:
    """State, tables and numbers of one queue manager."""

    def __init__(self, state: State, random: Callable[[int], bytes]) -> None:
        self.state = state
        self.descriptors: dict[int, OpenQueueDescriptor] = {}
        self.transactions: dict[bytes, Transaction] = {}
        self.groups: dict[int, dict[str, Group]] = {}  # consumer groups by number of their queue and name
        self.stages: dict[str, Stage] = {}  # by handle
        self._random = random
        self._handles = itertools.count(_FIRST_HANDLE)
        self._readers = itertools.count(1)
        self._transaction_numbers = itertools.count(1)
        self._timeouts: Timers[WaitingMessageReadOperation] = Timers(_is_waiting, self._tell_deadline)

    def _tell_deadline(self) -> None:
        self.state.deadline_changed()

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

    def write_ahead(self, transaction: Transaction, send: Enqueued) -> None:
        """Store a send of a transaction before its commit, pending. Raises what the store raises."""
        if send.location is not None or send.queue.deleted:
            return
        insert = store_insert(send.queue, send.message)
        send.location = self.state.store.append_pending(transaction.number, [insert])[0]
        transaction.wrote_pending = True
        send.size = len(insert.payload)
        send.queue.settle(send.message.lookup_identifier, send.location, send.size)
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
            plan.remove(queue, key, queue.message(key), reason)
            if plan.is_full:
                plan.carry_out()
                plan = Plan(self.state)
        plan.carry_out()

    def _release(self, queue: Queue, lookup_identifier: int) -> None:
        """Put a locked position back: purged if that was asked meanwhile, expired if its time came, else available."""
        lock = queue.locked[lookup_identifier]
        message = queue.message(lookup_identifier)
        deadline = queue.deadline_of(message)
        reason = None
        if lock.purge_pending:
            # Deviation from [MS-MQDMPR] 3.1.4.5: not AckReceive, because nobody has received the message.
            reason = MessageClass.NACK_Q_PURGED
        elif deadline and deadline <= self.state.clock():
            reason = queue.expiry_reason(message)
        if reason is not None:
            try:
                self._delete(queue, lookup_identifier, message, reason)
                return
            except MessageStorageFailed as error:  # whoever puts it back is not to blame, and may hold more locks
                logger.error("%s: %#x stays: %s", queue.properties.path_name, lookup_identifier, error)
                if deadline:
                    self.state.expiry.add(self.state.clock() + RETRY, lookup_identifier, queue.number)
        queue.unlock(lookup_identifier)
        self.state.serve(queue, lookup_identifier)


def _is_waiting(_: int, reader: WaitingMessageReadOperation) -> bool:
    queue = reader.descriptor.queue
    return queue is not None and reader.number in queue.waiting


class storing:
    """A full disk is the operation's failure, with nothing changed; a failed store is the end of the process."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, StoreFull):
            raise MessageStorageFailed(detail=str(error)) from error
