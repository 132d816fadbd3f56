"""The queue manager: every event of [MS-MQDMPR] 3.1.7.1 that a protocol raises, on local and outgoing queues.

Each method is one event: it checks, changes the state atomically and returns, or raises an MsmqError and changes
nothing. What it wrote is durable only after the owner of the store has synced it. The events come from one class for
each chapter, all over `core.Core`; here are recovery, checkpoints and timers.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from openmsmq.model.errors import HResult
from openmsmq.queueing.aborts import ABORT_PREFIX, parse_abort_definition
from openmsmq.queueing.connectors import CONNECTOR_PREFIX
from openmsmq.queueing.core import RETRY, UNREADABLE
from openmsmq.queueing.definitions import QUEUE_PREFIX
from openmsmq.queueing.foreign import Foreign
from openmsmq.queueing.groups import GROUP_PREFIX, Group
from openmsmq.queueing.outbox import Alone, Outside
from openmsmq.queueing.queue import LockKind, Queue, entries_of, stored
from openmsmq.queueing.records import TIME_MASK, decode_properties, split_deadline_word
from openmsmq.queueing.state import SUBQUEUE_PREFIX, Machine, State
from openmsmq.queueing.storage import MessageStore
from openmsmq.queueing.transactions import Enqueued, Transaction
from openmsmq.queueing.transferring import OUTGOING_PREFIX
from openmsmq.store import Drop, Operation, Prepared, QueueColumns, Remove, StoreFailed

logger = logging.getLogger(__name__)

_ORPHAN_BATCH = 512  # messages of deleted queues, and counts, removed by one record at start-up


class QueueManager(Foreign):
    """All operations on queues. One thread; `clock` returns milliseconds since 1970 UTC."""

    def __init__(
        self,
        machine: Machine,
        store: MessageStore,
        clock: Callable[[], int],
        random: Callable[[int], bytes],
        recovered: Mapping[int, QueueColumns] | None = None,
        prepared: Mapping[int, Prepared] | None = None,
        outside: Outside | None = None,
    ) -> None:
        """`outside` is the owner, who calls `turn` and `expire`. `recovered` holds the live messages by queue number,
        `prepared` the transactions whose outcome is not known, as the store found them."""
        super().__init__(State(machine, store, clock, outside or Alone()), random)
        self._recover(recovered or {})
        for number, transaction in (prepared or {}).items():
            if not self.recover_stage(number, transaction.note, transaction.queues):
                self.recover_transaction(number, transaction.note, transaction.queues)
        self._recovered_numbers = frozenset(prepared or {})
        for queue in list(self.state.queues.values()):
            self.state.forget_unused(queue)
        self.declare_sites()

    def _recover(self, recovered: Mapping[int, QueueColumns]) -> None:
        state = self.state
        for name, value in state.store.definitions.items():
            if name.startswith(QUEUE_PREFIX):
                state.register(int(name.removeprefix(QUEUE_PREFIX)), decode_properties(value))
            elif name.startswith(CONNECTOR_PREFIX):
                state.register_connector(int(name.removeprefix(CONNECTOR_PREFIX)), decode_properties(value))
            elif name.startswith(OUTGOING_PREFIX):
                self.recover_outgoing(int(name.removeprefix(OUTGOING_PREFIX)), value.decode())
        for name, value in state.store.definitions.items():
            if name.startswith(SUBQUEUE_PREFIX):
                parent, own_name = json.loads(value)
                if parent in state.queues:
                    state.register_subqueue(int(name.removeprefix(SUBQUEUE_PREFIX)), state.queues[parent], own_name)
        orphans: list[Operation] = []  # what has lost its queue or message
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
        for name, value in state.store.definitions.items():
            if name.startswith(GROUP_PREFIX):
                if not self.recover_group(name, value):
                    orphans.append(Drop(name))
            elif name.startswith(ABORT_PREFIX):
                number, key = parse_abort_definition(name)
                queue = state.queues.get(number)
                if queue is not None and key in queue.entries:
                    queue.aborts[key] = int(value)
                else:
                    orphans.append(Drop(name))
        for start in range(0, len(orphans), _ORPHAN_BATCH):
            state.store.append(orphans[start : start + _ORPHAN_BATCH])

    def columns(self) -> Iterator[tuple[int, QueueColumns]]:
        """The live messages for a checkpoint: committed ones, locked or not, sorted by sequence number."""
        deadlines: dict[int, dict[int, int]] = {}
        for deadline, key, number in self.state.expiry:
            deadlines.setdefault(number, {})[key] = deadline
        for queue in self.state.queues.values():
            for key, lock in queue.locked.items():  # the timer of one whose time came while it was locked is gone
                if isinstance(lock.owner, Group):
                    known = key not in lock.owner.overdue
                else:
                    known = lock.kind is LockKind.ENQUEUE
                if not known:
                    with suppress(*UNREADABLE):
                        deadlines.setdefault(queue.number, {})[key] = queue.deadline_of(queue.message(key))
            yield queue.number, queue.columns(deadlines.get(queue.number, {}))

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
        for stage in self.stages.values():
            if (entry := stage.messages.get(number, {}).get(key)) is not None:
                stage.messages[number][key] = stored(new, entry >> 64)
        lock = queue.locked.get(key)
        if lock is not None and isinstance(lock.owner, Transaction):
            for operation in lock.owner.operations:
                if isinstance(operation, Enqueued) and operation.location == old:
                    operation.location = new

    def next_deadline(self) -> int | None:
        """When `expire` has something to do, in milliseconds since 1970 UTC."""
        candidates = (self._timeouts.next(), self.state.expiry.next(), self._looks.next())
        return min((deadline for deadline in candidates if deadline is not None), default=None)

    def expire(self) -> None:
        """Waiting Message Read Timer Expired and Time To Be Received Timer Expired (3.1.6.3, 3.1.7.2.7)."""
        now = self.state.clock()
        while (timeout := self._timeouts.pop(now)) is not None:
            self.cancel(timeout[1], HResult.MQ_ERROR_IO_TIMEOUT)
        while (due := self.state.expiry.pop(now)) is not None:
            lookup_identifier, number = due
            queue = self.state.queues.get(number)
            if queue is None or lookup_identifier not in queue.entries:  # moved there and back, it is due twice
                continue
            try:
                self._expire_message(queue, lookup_identifier)
            except StoreFailed:
                raise  # the daemon ends
            except Exception as error:  # one message must not stop the timers of all others
                logger.error(
                    "queue %s: message %#x is due and could not be removed, next try in %d s: %s",
                    queue.properties.path_name, lookup_identifier, RETRY // 1000, error,
                )  # fmt: skip
                self.state.expiry.add(now + RETRY, lookup_identifier, number)
        self.drop_unused()

    def _expire_message(self, queue: Queue, lookup_identifier: int) -> None:
        """A message is due. One that is locked is looked at when it is put back."""
        lock = queue.locked.get(lookup_identifier)
        if lock is None:
            try:
                message = queue.message(lookup_identifier)
            except UNREADABLE as error:
                self.quarantine(queue, lookup_identifier, error)
                return
            self._delete(queue, lookup_identifier, message, queue.expiry_reason(message))
        elif isinstance(lock.owner, Group):
            lock.owner.overdue.add(lookup_identifier)
