"""Model of a store: dictionaries of messages and definitions, and a list of all states so far."""

from __future__ import annotations

import random
from array import array
from dataclasses import dataclass, field
from itertools import accumulate

from openmsmq.store import Drop, Insert, MessageRows, Move, Operation, Put, QueueColumns, Remove, RemoveMany, Store, Vfs

DIRECTORY = "/store"
#: key -> (queue, payload, deadline), and the definitions
Snapshot = tuple[dict[int, tuple[int, bytes, int]], dict[bytes, bytes]]
Messages = dict[int, tuple[int, bytes, int]]


def snapshot(store: Store) -> Snapshot:
    """Return the recovered state, with every payload read."""
    messages: dict[int, tuple[int, bytes, int]] = {}
    for queue, columns in store.recovered.queues.items():
        assert list(columns.keys) == sorted(set(columns.keys))
        for key, location, size, deadline in zip(
            columns.keys, columns.locations, columns.sizes, columns.deadlines, strict=True
        ):
            assert key not in messages, "a message is there twice"
            payload = store.read(location)
            assert len(payload) == size
            messages[key] = (queue, payload, deadline)
    return messages, dict(store.recovered.definitions)


def prepared(store: Store) -> dict[int, tuple[bytes, Messages]]:
    """Return note and messages of each recovered prepared transaction."""
    result: dict[int, tuple[bytes, Messages]] = {}
    for transaction, found in store.recovered.prepared.items():
        messages: Messages = {}
        for queue, columns in found.queues.items():
            rows = zip(columns.keys, columns.locations, columns.deadlines, strict=True)
            for key, location, deadline in rows:
                assert key not in messages
                messages[key] = (queue, store.read(location), deadline)
        result[transaction] = (found.note, messages)
    return result


def columns_of(inserts: list[Insert]) -> tuple[array[int], array[int]]:
    """Return keys and deadlines."""
    return array("Q", [insert.key for insert in inserts]), array("Q", [insert.deadline for insert in inserts])


def is_empty(operation: Operation) -> bool:
    return isinstance(operation, RemoveMany) and not operation.keys


@dataclass
class Oracle:
    """Drives a store with a random program and records its expected state after every batch.

    Attributes:
        history: state after each batch; a crash must leave one of those from `acknowledged` on.
        acknowledged: index of the state covered by the last successful sync.
    """

    store: Store
    chance: random.Random
    messages: dict[int, tuple[int, bytes, int]] = field(default_factory=dict)
    locations: dict[int, int] = field(default_factory=dict)
    definitions: dict[bytes, bytes] = field(default_factory=dict)
    pending: dict[int, dict[int, tuple[int, bytes, int]]] = field(default_factory=dict)
    pending_locations: dict[int, int] = field(default_factory=dict)
    high_key: int = 0
    next_transaction: int = 1
    notes: dict[int, bytes] = field(default_factory=dict)
    history: list[tuple[Snapshot, int, dict[int, tuple[bytes, Messages]]]] = field(default_factory=list)
    acknowledged: int = 0
    largest: int = 900

    def __post_init__(self) -> None:
        self.high_key = self.store.high_key
        self.messages, self.definitions = snapshot(self.store)
        for columns in self.store.recovered.queues.values():
            self.locations.update(zip(columns.keys, columns.locations, strict=True))
        for transaction, (note, messages) in prepared(self.store).items():
            self.notes[transaction] = note
            self.pending[transaction] = messages
            for columns in self.store.recovered.prepared[transaction].queues.values():
                self.pending_locations.update(zip(columns.keys, columns.locations, strict=True))
            self.next_transaction = max(self.next_transaction, transaction + 1)
        self.remember()

    def remember(self) -> None:
        notes = {transaction: (note, dict(self.pending[transaction])) for transaction, note in self.notes.items()}
        self.history.append(((dict(self.messages), dict(self.definitions)), self.high_key, notes))

    # ------------------------------------------------------------------------------------------------ operations

    def new_message(self) -> Insert:
        self.high_key += 1
        size = self.chance.choice((0, 1, 7, 100, 400, self.largest))
        payload = self.chance.randbytes(size)
        return Insert(self.chance.randrange(1, 4), self.high_key, self.chance.randrange(3), payload)

    def batch(self) -> None:
        """Run a batch with operations of every kind."""
        inserts = [self.new_message() for _ in range(self.chance.randrange(3))]
        operations: list[Operation] = list(inserts)
        changes = self.changes()
        operations += changes
        self.expect(operations)
        places = self.store.append(operations)
        self.settle(operations, places)

    def changes(self) -> list[Operation]:
        """Run operations on existing messages and definitions."""
        operations: list[Operation] = []
        free = sorted(self.messages)
        self.chance.shuffle(free)
        for key in free[: self.chance.randrange(4)]:
            if self.chance.random() < 0.7:
                operations.append(Remove(key, self.locations[key]))
            else:
                if self.chance.random() < 0.5:
                    self.high_key += 1
                    new_key = self.high_key
                else:
                    new_key = key
                payload = self.chance.randbytes(30) if self.chance.random() < 0.3 else None
                operations.append(Move(key, self.locations[key], 3, new_key, self.messages[key][2], payload))
        if self.chance.random() < 0.2:
            gone = free[4 : self.chance.randrange(4, 10)]
            operations.append(RemoveMany(gone, [self.locations[key] for key in gone]))
        if self.chance.random() < 0.3:
            name = b"name%d" % self.chance.randrange(3)
            operations.append(Put(name, self.chance.randbytes(20)) if self.chance.random() < 0.7 else Drop(name))
        return operations

    def expect(self, operations: list[Operation]) -> None:
        """Apply to the model before the store: a crash during the call may leave the new state."""
        for operation in operations:
            match operation:
                case Insert(queue=queue, key=key, deadline=deadline, payload=payload):
                    self.messages[key] = (queue, payload, deadline)
                case Remove(key=key):
                    del self.messages[key]
                case RemoveMany(keys=keys):
                    for key in keys:
                        del self.messages[key]
                case Move(key, _, queue, new_key, deadline, payload):
                    kept = self.messages.pop(key)[1]
                    self.messages[new_key] = (queue, kept if payload is None else payload, deadline)
                case Put(name, value):
                    self.definitions[name] = value
                case Drop(name):
                    self.definitions.pop(name, None)
        self.remember()

    def settle(self, operations: list[Operation], places: list[int]) -> None:
        remaining = iter(places)
        for operation in operations:
            match operation:
                case Insert(key=key):
                    self.locations[key] = next(remaining)
                case Remove(key=key):
                    del self.locations[key]
                case RemoveMany(keys=keys):
                    for key in keys:
                        del self.locations[key]
                case Move(key, _, _, new_key, _, _):
                    self.locations.pop(key)
                    self.locations[new_key] = next(remaining)

    def begin(self) -> None:
        transaction = self.next_transaction
        self.next_transaction += 1
        self.pending[transaction] = {}
        self.add_pending(transaction)

    def add_pending(self, transaction: int) -> None:
        if transaction in self.notes:
            return
        inserts = [self.new_message() for _ in range(self.chance.randrange(1, 3))]
        self.remember()
        for insert, place in zip(inserts, self.store.append_pending(transaction, inserts), strict=True):
            self.pending[transaction][insert.key] = (insert.queue, insert.payload, insert.deadline)
            self.pending_locations[insert.key] = place

    def add_rows(self, transaction: int) -> None:
        """Call `add_pending` for several messages of one queue at once."""
        if transaction in self.notes:
            return
        inserts = [self.new_message() for _ in range(self.chance.randrange(1, 9))]
        queue = inserts[0].queue
        sizes = array("I", [len(insert.payload) for insert in inserts])
        records = bytearray(b"".join(insert.payload for insert in inserts))
        keys, deadlines = columns_of(inserts)
        self.remember()
        bounds = array("q", accumulate(sizes, initial=0))
        rows = MessageRows(array("I", [queue]) * len(keys), records, sizes, bounds, keys, deadlines)
        for insert, place in zip(inserts, self.store.append_rows(transaction, rows), strict=True):
            self.pending[transaction][insert.key] = (queue, insert.payload, insert.deadline)
            self.pending_locations[insert.key] = place

    def insert_rows(self) -> None:
        """Insert messages for several queues at once, each in its own batch, or all in one with other operations."""
        also: list[Operation] = []
        if self.chance.random() < 0.5:
            also = [each for each in self.changes() if not isinstance(each, Move) and not is_empty(each)]
        inserts = [self.new_message() for _ in range(self.chance.randrange(1, 9))]
        sizes = array("I", [len(insert.payload) for insert in inserts])
        queues = array("I", [insert.queue for insert in inserts])
        keys, deadlines = columns_of(inserts)
        records = b"".join(insert.payload for insert in inserts)
        rows = MessageRows(queues, records, sizes, array("q", accumulate(sizes, initial=0)), keys, deadlines)
        if also:
            self.expect([*also, *inserts])
        else:
            for insert in inserts:
                self.expect([insert])
        places = self.store.insert_rows(rows, also)
        self.settle([*also, *inserts], list(places))

    def prepare(self, transaction: int) -> None:
        self.notes[transaction] = self.chance.randbytes(9)
        self.remember()
        self.store.prepare(transaction, self.notes[transaction])

    def commit(self, transaction: int) -> None:
        self.notes.pop(transaction, None)
        messages = self.pending.pop(transaction)
        operations = self.changes()
        self.messages.update(messages)
        self.expect(operations)
        self.settle(operations, self.store.commit(transaction, operations))
        for key in messages:
            self.locations[key] = self.pending_locations.pop(key)

    def abort(self, transaction: int) -> None:
        self.notes.pop(transaction, None)
        for key in self.pending.pop(transaction):
            del self.pending_locations[key]
        self.remember()
        self.store.abort(transaction)

    def reserve(self) -> None:
        self.high_key += 100
        self.remember()
        self.store.reserve(self.high_key)

    def sync(self) -> None:
        covered = len(self.history) - 1
        self.store.sync()
        self.acknowledged = covered

    def sync_in_steps(self) -> None:
        """Sync in steps, as with a thread: append more while a batch is being written."""
        covered = len(self.history) - 1
        batch = self.store.take_batch()
        if batch is None:
            self.acknowledged = covered
            return
        for _ in range(self.chance.randrange(3)):
            self.batch()
        batch.write()
        batch.sync()
        self.store.finish_batch(batch)
        self.acknowledged = covered

    def checkpoint_in_steps(self) -> None:
        job = self.store.capture_checkpoint(self.columns())
        self.batch()
        self.sync()
        job.write()
        self.batch()
        self.store.finish_checkpoint(job)

    def columns(self) -> dict[int, QueueColumns]:
        queues: dict[int, QueueColumns] = {}
        for key in sorted(self.messages):
            queue, payload, deadline = self.messages[key]
            queues.setdefault(queue, QueueColumns()).append(key, self.locations[key], len(payload), deadline)
        return queues

    def checkpoint(self) -> None:
        self.store.checkpoint(self.columns())
        self.acknowledged = len(self.history) - 1

    def compact(self) -> None:
        self.store.compact_step(
            lambda queue, key, deadline, place: self.locations.get(key) == place, self.relocated, budget=4000
        )

    def relocated(self, queue: int, key: int, deadline: int, old: int, new: int) -> None:
        places = self.locations if key in self.locations else self.pending_locations
        assert places[key] == old
        places[key] = new

    def step(self) -> None:
        """Run one random step of a program."""
        dice = self.chance.random()
        if dice < 0.34:
            self.batch()
        elif dice < 0.40:
            self.insert_rows()
        elif dice < 0.52:
            self.sync()
        elif dice < 0.60:
            self.sync_in_steps()
        elif dice < 0.66:
            self.begin()
        elif dice < 0.76 and self.pending:
            transaction = self.chance.choice(sorted(self.pending))
            self.chance.choice((self.commit, self.abort, self.add_pending, self.add_rows, self.prepare))(transaction)
        elif dice < 0.78:
            self.reserve()
        elif dice < 0.81:
            self.chance.choice((self.checkpoint, self.checkpoint_in_steps))()
        else:
            self.compact()

    # --------------------------------------------------------------------------------------------------- checking

    def check(self, vfs: Vfs, since: int | None = None, *, take_over: bool = False) -> tuple[Store, Snapshot]:
        """Open the store after a crash; its state must be one since the last acknowledged one."""
        store = Store.open(DIRECTORY, vfs=vfs, segment_size=8192, entropy=bytes, take_over=take_over)
        found = snapshot(store)
        allowed = self.history[self.acknowledged if since is None else since :]
        matching = [high for state, high, notes in allowed if state == found and notes == prepared(store)]
        assert matching, "recovered a state that never was"
        assert store.high_key >= self.history[self.acknowledged][1], "numbers would be given out again"
        assert store.high_key >= max(found[0], default=0)
        return store, found
