"""The queue manager: its parts, made once and given to each other, and what concerns several of them.

Every event of [MS-MQDMPR] 3.1.7.1 is a method of a part: it checks, changes the state atomically and returns, or raises
an MsmqError and changes nothing. What it wrote is durable only after the owner of the store has synced it. Callers use
the parts; here are recovery, turns, timers, and what checkpoints and compaction ask.
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

_ORPHAN_BATCH = 512  # messages of deleted queues, and counts, removed by one record at start-up

LONGEST_SLEEP: Final = 5_000  # milliseconds until a step of the wall clock is noticed


class QueueManager:
    """The parts of one queue manager. One thread; `clock` returns milliseconds since 1970 UTC."""

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
            clock: milliseconds since 1970 UTC; may be set in both directions.
            recovered, prepared: live messages by queue number, and transactions whose outcome is not known, as the
                store found them.
            outside: the owner, who calls `turn` and `expire`.
            transport: drains outgoing queues.
            can_seal: knows for which recipients it can encrypt.
            auditor: keeps what callers change.
            monotonic: milliseconds of a clock that never goes back; `clock` where it is left out.
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
        """Take up what an earlier run has left: queues, messages, who holds them; what has lost its queue goes."""
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
        """Fill the queues. Returns what removes the messages of queues that were deleted."""
        orphans: list[Operation] = []
        for number, columns in recovered.items():
            queue = self.registry.queues.get(number)
            if queue is None:  # deleted while a transaction had written ahead to it
                orphans += [Remove(*row) for row in zip(columns.keys, columns.locations, strict=True)]
                continue
            for key, deadline in queue.load(columns):
                self.changes.deadlines.add(deadline, key, number)
        return orphans

    def _recover_definitions(self) -> list[Operation]:
        """Consumer groups, abort counts, what is noted of messages. Returns what drops those that have lost their
        queue or message."""
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
        lost = [key for key in notes if not any(key in queue.entries for queue in queues)]
        orphans += [Drop(name) for key in lost for name in notes[key]]
        return orphans

    # -- turns and timers --------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Serve the entries of the outbox: readers whose message has come, and the transport. Called from an empty
        stack; failures are logged and affect one reader only."""
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
        """In how many milliseconds `expire` has something to do; None for never. No more than `LONGEST_SLEEP` while a
        message may expire, because the wall clock may be set forward meanwhile."""
        candidates = []
        durations = [at for at in (self.reading.timeouts.next(), self.changes.looks.next()) if at is not None]
        if durations:
            candidates.append(min(durations) - self.monotonic())
        expires = self.changes.deadlines.next()
        if expires is not None:
            candidates.append(min(expires - self.clock(), LONGEST_SLEEP))
        return max(0, min(candidates)) if candidates else None

    def expire(self) -> None:
        """End the reads that have waited long enough, remove the messages whose time has come, and drop outgoing queues
        that nobody uses. Durations are those of the clock that never goes back, lifetimes those of the wall clock."""
        now = self.monotonic()
        self.reading.expire(now)
        self.holds.expire(self.clock())
        self.outgoing.drop_unused(now)

    # -- what checkpoints and compaction ask -------------------------------------------------------------------

    def rooms(self) -> Callable[[], CaptureBuffers]:
        """See `MessageLocks.rooms`."""
        return self.holds.rooms()

    def capture(self, rooms: CaptureBuffers = NO_ROOMS) -> Iterator[tuple[int, CapturedEntries]]:
        """The live messages for a checkpoint, by queue number: committed ones, held or not."""
        return self.holds.capture(rooms)

    def is_live(self, number: int, sequence: int, word: int, location: int) -> bool:
        """For compaction: whether the store's message at this location is still one of ours."""
        queue = self.registry.queues.get(number)
        key = split_deadline_word(word, sequence)[0]
        return queue is not None and key in queue.entries and queue.location(key) == location

    def relocated(self, number: int, sequence: int, word: int, old: int, new: int) -> None:
        """For compaction: a message has moved in the log."""
        queue = self.registry.queues.get(number)
        if queue is None:
            return
        key = split_deadline_word(word, sequence)[0]
        queue.replace_location(key, old, new)
        self.staged_writes.relocated(number, key, new)
        lock = queue.locked.get(key)
        if lock is not None:
            self.transactions.relocated(lock, old, new)
