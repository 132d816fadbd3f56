"""A queue manager on an in-memory store, with a clock and a full disk that the test controls."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from openmsmq.model import names, security
from openmsmq.model.constants import INFINITE, Access, PropId, ReceiveAction, Share
from openmsmq.model.default_descriptors import default_machine_security
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.message import Message
from openmsmq.queueing.auditing import Auditor, AuditRecord
from openmsmq.queueing.authorization import Caller
from openmsmq.queueing.descriptors import OpenQueueDescriptor, QueueCursor
from openmsmq.queueing.machine import Machine
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import OutgoingQueue, Transport
from openmsmq.queueing.queue import Queue
from openmsmq.queueing.unit_of_work import Transaction, TransactionEvent
from openmsmq.store import MessageRows, Operation, Store, StoreFull
from store.memory_vfs import MemoryVfs

ALICE = Caller.user("S-1-5-21-1-2-3-1001", "alice")
BOB = Caller.user("S-1-5-21-1-2-3-1002", "bob")
MACHINE = Machine("HERE", bytes(range(16)), "here.example.com", security=default_machine_security([security.EVERYONE]))
START = 1_700_000_000_000  # milliseconds
ACCEPT = int(HResult.MQ_OK)


class FullableStore:
    """A store whose disk is full while `full` is set."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.full = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _room(self) -> None:
        if self.full:
            raise StoreFull("the disk is full")

    def append(self, operations: Sequence[Operation]) -> list[int]:
        self._room()
        return self._store.append(operations)

    def remove(self, key: int, location: int) -> None:
        self._room()
        self._store.remove(key, location)

    def reserve(self, high: int) -> None:
        self._room()
        self._store.reserve(high)

    def insert_rows(self, rows: MessageRows, also: Sequence[Operation] = ()) -> array[int]:
        self._room()
        return self._store.insert_rows(rows, also)

    def append_pending(self, transaction: int, inserts: Sequence[Any]) -> list[int]:
        self._room()
        return self._store.append_pending(transaction, inserts)

    def commit(self, transaction: int, operations: Sequence[Operation] = ()) -> list[int]:
        self._room()
        return self._store.commit(transaction, operations)

    def prepare(self, transaction: int, note: bytes, inserts: Sequence[Any] = ()) -> list[int]:
        self._room()
        return self._store.prepare(transaction, note, inserts)

    def settle(self, commits: Sequence[int], aborts: Sequence[int], operations: Sequence[Operation] = ()) -> list[int]:
        self._room()
        return self._store.settle(commits, aborts, operations)

    def abort(self, transaction: int) -> None:
        self._room()
        self._store.abort(transaction)


class RecordingAuditor:
    """An auditor that keeps its records."""

    def __init__(self) -> None:
        self.records: list[AuditRecord] = []

    def record(self, record: AuditRecord) -> None:
        self.records.append(record)


class Outcome:
    """Result of a read after the queue manager's turn; `over` is False while it waits."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.answers: list[tuple[int, Message | None]] = []

    def __call__(self, status: int, message: Message | None) -> None:
        assert not self.answers, "a read answers once"
        self.answers.append((status, message))

    @property
    def over(self) -> bool:
        self.world.turn()
        return bool(self.answers)

    @property
    def status(self) -> HResult:
        assert self.over, "the read waits"
        return HResult(self.answers[0][0])

    @property
    def message(self) -> Message:
        assert self.over, "the read waits"
        message = self.answers[0][1]
        assert message is not None, self.status.name
        return message

    @property
    def label(self) -> str:
        return self.message.label


class World:
    owner = ALICE
    auditor: Auditor | None = None  # of handles opened from now on

    def __init__(self, machine: Machine = MACHINE, transport: Transport | None = None) -> None:
        self.machine, self.transport = machine, transport
        self._turn_wanted = False
        self.failure: BaseException | None = None
        self.vfs = MemoryVfs()
        self.now = START
        self.passed = 0  # elapsed milliseconds, independent of the clock
        self._entropy = 0
        self._open()

    def _random(self, count: int) -> bytes:
        self._entropy += 1
        return self._entropy.to_bytes(count, "little")

    def _open(self) -> None:
        real = Store.open("/store", vfs=self.vfs, segment_size=1 << 20, entropy=self._random)
        self.store = FullableStore(real)
        self.manager = QueueManager(
            self.machine, self.store, lambda: self.now, self._random, real.recovered.queues, real.recovered.prepared,
            self, self.transport, auditor=self.auditor, monotonic=lambda: self.passed,
        )  # fmt: skip
        self.registry = self.manager.registry

    def turn_wanted(self) -> None:
        self._turn_wanted = True

    def deadline_changed(self) -> None:
        """Do nothing: tests call `advance`."""

    def failed(self, error: BaseException) -> None:
        self.failure = error

    def turn(self) -> None:
        """Run an event-loop iteration."""
        while self._turn_wanted:
            self._turn_wanted = False
            self.manager.turn()

    def restart(self, checkpoint: bool = False) -> None:
        """Close and reopen; with a checkpoint, the index is read from it."""
        if checkpoint:
            self.store.checkpoint(self.manager.capture())
        self.store.close()
        self._open()

    def advance(self, milliseconds: int) -> None:
        """Let time pass and run the timers due at its end."""
        self.now += milliseconds
        self.passed += milliseconds
        self.turn()
        self.manager.expire()
        self.turn()

    def step(self, milliseconds: int) -> None:
        """Set the clock; no time passes and no timer fires."""
        self.now += milliseconds

    # -- queues ----------------------------------------------------------------------------------------------

    def create(self, name: str = "q", caller: Caller = ALICE, **properties: Any) -> Queue:
        """Create a queue; `properties` are named by the last part of their PROPID: create(JOURNAL=1, QUOTA=1)."""
        values = {PropId[f"PROPID_Q_{key}"]: value for key, value in properties.items()}
        return self.manager.administration.create_queue(f".\\private$\\{name}", values, None, caller)

    def queue(self, name: str = "q") -> Queue:
        """Return a private queue, or one of its subqueues for `name;subqueue`."""
        head, _, subqueue = name.partition(";")
        queue = self.registry.by_name[head]
        return queue.subqueues[subqueue] if subqueue else queue

    def open(
        self, name: str = "q", access: Access = Access.RECEIVE, share: Share = Share.DENY_NONE, caller: Caller = ALICE
    ) -> OpenQueueDescriptor:
        """Open a queue; `name` is that of a private queue, or a format name."""
        text = name if "=" in name else f"DIRECT=OS:.\\private$\\{name}"
        return self.manager.handles.open_queue(names.parse_format_name(text), access, share, caller)

    # -- messages --------------------------------------------------------------------------------------------

    def send(self, name: str = "q", label: str = "", transaction: Transaction | None = None, **values: Any) -> bytes:
        descriptor = self.open(name, Access.SEND)
        try:
            return self.manager.sending.enqueue(descriptor, Message(label=label, **values), transaction)
        finally:
            self.manager.handles.close_queue(descriptor)

    def read(
        self,
        descriptor: OpenQueueDescriptor,
        action: ReceiveAction = ReceiveAction.RECEIVE,
        timeout: int = 0,
        cursor: QueueCursor | None = None,
        transaction: Transaction | None = None,
        two_phase: bool = False,
        accept: int = ACCEPT,
    ) -> Outcome:
        outcome = Outcome(self)
        self.manager.reading.read(
            descriptor, action, timeout, lambda message: accept, outcome,
            cursor=cursor, transaction=transaction, two_phase=two_phase,
        )  # fmt: skip
        return outcome

    def wait(
        self, descriptor: OpenQueueDescriptor, action: ReceiveAction = ReceiveAction.RECEIVE, **values: Any
    ) -> Outcome:
        outcome = self.read(descriptor, action, values.pop("timeout", INFINITE), **values)
        assert not outcome.over
        return outcome

    def begin(self, number: int = 1) -> Transaction:
        return self.manager.transactions.create(number.to_bytes(16, "little"))

    def decide(self, transaction: Transaction) -> None:
        """Commit a prepared transaction, as decided by its coordinator."""
        self.manager.transactions.commit(transaction, event=TransactionEvent.OUTCOME_COMMIT)

    def labels(self, queue: Queue | str = "q") -> list[str]:
        """Return the labels that a reader would find, in order."""
        self.turn()
        found = self.queue(queue) if isinstance(queue, str) else queue
        return [found.message(key).label for key in found.available]

    def messages(self, queue: Queue) -> list[Message]:
        return [queue.message(key) for key in queue.available]


def next_to_transfer(world: World) -> tuple[OutgoingQueue, Message] | None:
    """Sync, and return the message that a transport with a single connection would take: the most urgent of all
    queues."""
    world.store.sync()
    queues = [queue for queue in world.registry.outgoing.values() if queue.first() is not None]
    for queue in sorted(queues, key=lambda queue: queue.first() or 0):
        if (message := world.manager.outgoing.take(queue)) is not None:
            return queue, message
    return None


def refused(hresult: HResult) -> Any:
    """Expect an operation to fail with this code."""
    return pytest.raises(MsmqError, check=lambda error: error.hresult == hresult)


def snapshot(world: World) -> Any:
    """Return the state that a refused operation must not change."""
    return {q.number: (list(q.entries), list(q.available), set(q.locked), q.total_bytes)
            for q in world.registry.queues.values()}  # fmt: skip
