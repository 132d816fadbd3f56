"""A queue with priorities, locks and transactions, as MS-MQDMPR, MS-MQMP and MS-MQRR specify it: the sequential model.

- A queue is ordered by priority, highest first, then by arrival. A message has its place from its send on, also in a
  transaction; until the commit it is locked.
- A receive takes the first message that is not locked. In a transaction it locks the message, which keeps its place:
  a commit removes it, an abort unlocks it. A peek gives the first message that is not locked and changes nothing.
- If all messages are locked, or there are none, the result is a time-out (None).
- A commit makes all sends of the transaction visible at once; an abort removes them.
- A crash aborts all transactions except stages and claims of the bulk plane, which are kept on the disk.
- A claim locks the first messages, in the order of the queue, and ends before the first one that is locked.

States are immutable and hashable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from linearizability.history import OK, Operation


class Entry(NamedTuple):
    """A message in its place. `lock` is the transaction that sends (`is_new`) or receives it."""

    priority: int
    value: str
    lock: str | None = None
    is_new: bool = False


class State(NamedTuple):
    """Queues with their messages, by name, and the open transactions, each with whether it survives a crash."""

    queues: tuple[tuple[str, tuple[Entry, ...]], ...] = ()
    open: frozenset[tuple[str, bool]] = frozenset()

    @property
    def size(self) -> int:
        """Number of messages."""
        return sum(len(entries) for _, entries in self.queues)

    def entries(self, queue: str | None) -> tuple[Entry, ...]:
        return next((entries for name, entries in self.queues if name == queue), ())

    def with_entries(self, queue: str | None, entries: Iterable[Entry]) -> State:
        rest = [pair for pair in self.queues if pair[0] != queue]
        kept = tuple(entries)
        changed = sorted([*rest, (str(queue), kept)]) if kept else rest
        return State(tuple(changed), self.open)

    def is_open(self, transaction: str | None) -> bool:
        return any(name == transaction for name, _ in self.open)


EMPTY = State()


def steps(state: State, operation: Operation) -> list[State]:
    """Return the states after `operation`: none if it can't have the result that it has."""
    kind, transaction = operation.kind, operation.transaction
    if kind == "crash":
        return [_crashed(state)]
    if kind == "begin":
        return [] if state.is_open(transaction) else [_opened(state, transaction, False)]
    if kind == "commit":
        return _committed(state, operation) if state.is_open(transaction) else []
    if kind == "abort":
        if state.is_open(transaction):
            return [_ended(state, transaction, False)]
        return [state] if operation.argument == "if open" else []
    if kind == "send":
        if transaction is not None and not state.is_open(transaction):
            return []
        if operation.argument is None:  # nobody will see the message
            return [state]
        value, priority = operation.argument
        return [_inserted(state, operation.queue, Entry(priority, value, transaction, transaction is not None))]
    if kind == "stage":
        if state.is_open(transaction):
            return []
        staged = _opened(state, transaction, True)
        for value in operation.argument:
            staged = _inserted(staged, operation.queue, Entry(0, value, transaction, True))
        return [staged]
    if kind == "claim":
        return _claimed(state, operation)
    return _read(state, operation)


def _read(state: State, operation: Operation) -> list[State]:
    """After a receive, a peek or a lock."""
    kind, transaction = operation.kind, operation.transaction
    if kind == "receive" and transaction is not None and not state.is_open(transaction):
        return []
    if kind == "lock" and state.is_open(transaction):
        return []
    entries = state.entries(operation.queue)
    at = next((index for index, entry in enumerate(entries) if entry.lock is None), None)
    found = None if at is None else entries[at].value
    if operation.outcome == OK and found != operation.result:
        return []
    if at is None or kind == "peek":
        return [state]
    if transaction is None:
        return [state.with_entries(operation.queue, entries[:at] + entries[at + 1 :])]
    if kind == "lock":
        state = _opened(state, transaction, False)
    locked = entries[at]._replace(lock=transaction)
    return [state.with_entries(operation.queue, (*entries[:at], locked, *entries[at + 1 :]))]


def _claimed(state: State, operation: Operation) -> list[State]:
    if state.is_open(operation.transaction):
        return []
    entries = state.entries(operation.queue)
    count = 0
    while count < min(operation.argument, len(entries)) and entries[count].lock is None:
        count += 1
    if operation.outcome == OK and [entry.value for entry in entries[:count]] != list(operation.result):
        return []
    if not count:
        return [state]
    locked = (entry._replace(lock=operation.transaction) for entry in entries[:count])
    return [_opened(state, operation.transaction, True).with_entries(operation.queue, (*locked, *entries[count:]))]


def _committed(state: State, operation: Operation) -> list[State]:
    """After a commit. That of a claim (argument "in order") may have removed only the first messages at a crash."""
    after = [_ended(state, operation.transaction, True)]
    if operation.outcome != OK and operation.argument == "in order":
        entries = state.entries(operation.queue)
        mine = [index for index, entry in enumerate(entries) if entry.lock == operation.transaction]
        for count in range(1, len(mine)):
            gone = set(mine[:count])
            kept = (entry for index, entry in enumerate(entries) if index not in gone)
            after.append(state.with_entries(operation.queue, kept))
    return after


def _inserted(state: State, queue: str | None, entry: Entry) -> State:
    entries = state.entries(queue)
    at = len(entries)
    while at and entries[at - 1].priority < entry.priority:
        at -= 1
    return state.with_entries(queue, (*entries[:at], entry, *entries[at:]))


def _opened(state: State, transaction: str | None, survives: bool) -> State:
    return State(state.queues, state.open | {(str(transaction), survives)})


def _ended(state: State, transaction: str | None, committed: bool) -> State:
    """Sends stay after a commit, receives after an abort."""
    for queue, entries in state.queues:
        if any(entry.lock == transaction for entry in entries):
            kept = [
                entry._replace(lock=None, is_new=False) if entry.lock == transaction else entry
                for entry in entries
                if entry.lock != transaction or entry.is_new == committed
            ]
            state = state.with_entries(queue, kept)
    return State(state.queues, frozenset(pair for pair in state.open if pair[0] != transaction))


def _crashed(state: State) -> State:
    for transaction, survives in state.open:
        if not survives:
            state = _ended(state, transaction, False)
    return state
