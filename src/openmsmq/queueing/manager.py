"""The queue manager: creates and connects its parts.

Every event of [MS-MQDMPR] 3.1.7.1 is a method of a part: it checks, changes the state atomically and returns, or raises
an MsmqError and changes nothing. Its writes are durable only after the owner of the store has synced them. Callers use
the parts; this class implements recovery, turns, timers, and the interface of checkpoints and compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from openmsmq.model.default_descriptors import default_machine_security
from openmsmq.queueing.administration import Administration
from openmsmq.queueing.arrivals import Arrivals
from openmsmq.queueing.auditing import Auditor, NoAudit
from openmsmq.queueing.authorization import Authorization
from openmsmq.queueing.changes import Changes
from openmsmq.queueing.consumer_group import GROUP_PREFIX
from openmsmq.queueing.consumer_groups import ConsumerGroups
from openmsmq.queueing.entries import NO_ROOMS, CaptureBuffers, CapturedEntries
from openmsmq.queueing.handles import Handles
from openmsmq.queueing.machine import Machine
from openmsmq.queueing.message_locks import MessageLocks
from openmsmq.queueing.outbox import STEPS, NullHost, Outbox, QueueManagerHost, guarded
from openmsmq.queueing.outgoing import OutgoingQueues
from openmsmq.queueing.outgoing_queues import NoTransport, Transport
from openmsmq.queueing.reading import ReadOperations
from openmsmq.queueing.records import (
    ABORT_PREFIX,
    FINAL_ACK_PREFIX,
    ROUTE_PREFIX,
    parse_abort_definition,
    split_deadline_word,
)
from openmsmq.queueing.registry import Registry
from openmsmq.queueing.relay_operations import RelayOperations
from openmsmq.queueing.sending import CanSeal, SendOperations, seals_nothing
from openmsmq.queueing.sinks import Sinks
from openmsmq.queueing.staged_writes import StagedWrites
from openmsmq.queueing.storage import MessageStore
from openmsmq.queueing.subqueues import Subqueues
from openmsmq.queueing.transactions import Transactions
from openmsmq.store import Drop, Operation, Prepared, QueueColumns, Remove

_ORPHAN_BATCH = 512  # orphaned messages and definitions removed per batch at start-up

LONGEST_SLEEP: Final = 5_000  # milliseconds; limits the delay until a step of the wall clock is noticed


class QueueManager:
    """A queue manager and its parts. Not thread-safe."""

    def __init__(
        self,
        machine: Machine,
        store: MessageStore,
        clock: Callable[[], int],
        random: Callable[[int], bytes],
        recovered: Mapping[int, QueueColumns] | None = None,
        prepared: Mapping[int, Prepared] | None = None,
        outside: QueueManagerHost | None = None,
        transport: Transport | None = None,
        can_seal: CanSeal = seals_nothing,
        auditor: Auditor | None = None,
        monotonic: Callable[[], int] | None = None,
    ) -> None:
        """
        Args:
            clock: returns milliseconds since 1970 UTC; may be set forward and back.
            recovered: live messages by queue number, from the store.
            prepared: transactions with unknown outcome, from the store.
            outside: the owner, which calls `turn` and `expire`.
            transport: drains outgoing queues.
            can_seal: returns whether a body can be encrypted for a recipient.
            auditor: stores audit records.
            monotonic: returns milliseconds of a monotonic clock; default: `clock`.
        """
        self.machine: Final = machine
        self.store: Final = store
        self.clock: Final = clock
        self.monotonic: Final = monotonic or clock
        auditor = auditor or NoAudit()
        self.authorization: Final = Authorization(machine.security or default_machine_security(), auditor)
        self.registry: Final = Registry(machine, store)
        self._outbox: Final = Outbox(outside or NullHost())
        self.changes: Final = Changes(store, self.registry, self._outbox, clock, self.monotonic)
        self.holds: Final = MessageLocks(self.registry, self.changes, self._outbox, clock)
        self.transactions: Final = Transactions(store, self.registry, self.changes, self.holds, prepared or ())
        self.sending: Final = SendOperations(self.changes, self.transactions, can_seal)
        self.reading: Final = ReadOperations(
            self.changes, self.holds, self.transactions, self._outbox, self.monotonic, auditor
        )
        self.subqueues: Final = Subqueues(self.changes, self.holds, self.transactions)
        self.outgoing: Final = OutgoingQueues(
            self.registry, self.changes, self.holds, self._outbox, clock, transport or NoTransport()
        )
        self.arrivals: Final = Arrivals(self.changes)
        self.relays: Final = RelayOperations(self.changes, self.holds)
        self.handles: Final = Handles(
            self.registry, self.authorization, self.outgoing, self.reading, self.holds, clock, random, auditor
        )
        self.sinks: Final = Sinks(store, self.authorization, clock, self.monotonic)
        self.staged_writes: Final = StagedWrites(
            store, self.registry, self.authorization, self.changes, self.transactions, self.outgoing, self.handles,
            self.sending, self.sinks, random,
        )  # fmt: skip
        self.consumer_groups: Final = ConsumerGroups(
            store, self.registry, self.changes, self.holds, self.staged_writes, random
        )
        self.administration: Final = Administration(
            self.registry, self.authorization, self.holds, self.reading, self.handles, self.consumer_groups, clock,
            random, auditor,
        )  # fmt: skip
        self._recover(recovered or {}, prepared or {})
        for queue in self.outgoing.declare_sites(machine.foreign_sites, random):
            self.registry.drop(queue, self.consumer_groups.drops([queue]))
            self.consumer_groups.forget(queue)

    # -- recovery ----------------------------------------------------------------------------------------------

    def _recover(self, recovered: Mapping[int, QueueColumns], prepared: Mapping[int, Prepared]) -> None:
        """Restore queues, messages and locks after a restart. Removes messages and definitions whose queue is gone."""
        self.registry.recover()
        self.outgoing.recover()
        orphans = [*self._recover_messages(recovered), *self._recover_definitions()]
        for start in range(0, len(orphans), _ORPHAN_BATCH):
            self.store.append(orphans[start : start + _ORPHAN_BATCH])
        for number, transaction in prepared.items():
            if not self.staged_writes.recover(number, transaction.note, transaction.queues):
                self.transactions.recover(number, transaction.note, transaction.queues)
        for queue in list(self.registry.queues.values()):
            self.registry.drop_unused(queue)

    def _recover_messages(self, recovered: Mapping[int, QueueColumns]) -> list[Operation]:
        """Fill the queues. Returns the operations that remove messages of deleted queues."""
        orphans: list[Operation] = []
        for number, columns in recovered.items():
            queue = self.registry.queues.get(number)
            if queue is None:  # deleted after a transaction had written ahead to it
                orphans += [Remove(*row) for row in zip(columns.keys, columns.locations, strict=True)]
                continue
            for key, deadline in queue.load(columns):
                self.changes.deadlines.add(deadline, key, number)
        return orphans

    def _recover_definitions(self) -> list[Operation]:
        """Restore consumer groups and abort counts. Returns the operations that drop definitions whose queue or message
        is gone."""
        orphans: list[Operation] = []
        notes: dict[int, list[bytes]] = {}  # final acknowledgments and routes, by message
        for name, value in self.store.definitions.items():
            if name.startswith(GROUP_PREFIX):
                if not self.consumer_groups.recover(name, value):
                    orphans.append(Drop(name))
            elif name.startswith(ABORT_PREFIX):
                number, key = parse_abort_definition(name)
                queue = self.registry.queues.get(number)
                if queue is not None and key in queue.entries:
                    queue.aborts[key] = int(value)
                else:
                    orphans.append(Drop(name))
            elif name.startswith((FINAL_ACK_PREFIX, ROUTE_PREFIX)):
                notes.setdefault(int(name.partition(b"/")[2]), []).append(name)
        queues = [queue for queue in self.registry.queues.values() if queue.entries]
        lost = set(notes)
        for queue in queues:  # as few steps as possible: there may be many queues, and many notes
            if not lost:
                break
            if len(lost) <= len(queue.entries):
                lost = {key for key in lost if key not in queue.entries}
            else:
                lost.difference_update(queue.entries)
        orphans += [Drop(name) for key in notes if key in lost for name in notes[key]]
        return orphans

    # -- turns and timers --------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Serve the entries of the outbox: offer new messages to waiting readers, and wake the transport. Called from
        an empty stack; failures are logged and affect one reader only."""
        outbox, left = self._outbox, STEPS
        if outbox.is_empty:
            return
        outbox.begin()
        while (queue := outbox.take_queue()) is not None:
            left -= self.reading.deliver(queue, left)
            if queue.arrived:
                outbox.put_back(queue)
                break
        for queue in outbox.take_wakes():
            guarded("waking the transport", partial(self.outgoing.transport.wake, queue))

    def next_expiry(self) -> int | None:
        """Return in how many milliseconds to call `expire`; None for never. At most `LONGEST_SLEEP` while any message
        may expire, because the wall clock may be set forward."""
        candidates = []
        durations = [at for at in (self.reading.timeouts.next(), self.changes.looks.next()) if at is not None]
        if durations:
            candidates.append(min(durations) - self.monotonic())
        expires = self.changes.deadlines.next()
        if expires is not None:
            candidates.append(min(expires - self.clock(), LONGEST_SLEEP))
        return max(0, min(candidates)) if candidates else None

    def expire(self) -> None:
        """End waiting reads that have timed out, remove expired messages, and drop unused outgoing queues. Timeouts use
        the monotonic clock, message lifetimes the wall clock."""
        now = self.monotonic()
        self.reading.expire(now)
        self.holds.expire(self.clock())
        self.outgoing.drop_unused(now)

    # -- interface of checkpoints and compaction ---------------------------------------------------------------

    def rooms(self) -> Callable[[], CaptureBuffers]:
        """See `MessageLocks.rooms`."""
        return self.holds.rooms()

    def capture(self, rooms: CaptureBuffers = NO_ROOMS) -> Iterator[tuple[int, CapturedEntries]]:
        """Yield queue number and committed messages, locked or not, of each queue for a checkpoint."""
        return self.holds.capture(rooms)

    def is_live(self, number: int, sequence: int, word: int, location: int) -> bool:
        """For compaction: whether the store's message at this location is still in its queue."""
        queue = self.registry.queues.get(number)
        key = split_deadline_word(word, sequence)[0]
        return queue is not None and key in queue.entries and queue.location(key) == location

    def relocated(self, number: int, sequence: int, word: int, old: int, new: int) -> None:
        """For compaction: note that a message has moved in the log."""
        queue = self.registry.queues.get(number)
        if queue is None:
            return
        key = split_deadline_word(word, sequence)[0]
        queue.replace_location(key, old, new)
        self.staged_writes.relocated(number, key, new)
        lock = queue.locked.get(key)
        if lock is not None:
            self.transactions.relocated(lock, old, new)
