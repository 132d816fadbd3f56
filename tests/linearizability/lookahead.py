"""Recognize states from which the search cannot succeed: a message contradicts a later answer, and nothing removes it.

Without this, a wrong guess about an unknown operation shows only when its message reaches the head of the queue, or
when a crash unlocks it, thousands of operations later. The search would try all orders of those operations first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from linearizability.history import OK, UNKNOWN, Operation
from linearizability.model import State

NEVER = 1 << 63
TAKING = ("receive", "lock", "claim")
OPENING = ("begin", "lock", "claim", "stage")


@dataclass
class Placed:
    """An operation of the search: `end` is its last possible moment."""

    operation: Operation
    end: int
    optional: bool
    needs: Operation  # what the model has to do
    before: list[int] = field(default_factory=list)  # sends that have to be placed earlier

    @property
    def priority(self) -> int:
        return int(self.operation.argument[1]) if self.operation.kind == "send" else 0


class Remover(NamedTuple):
    """An operation that may remove a message: by itself, or at the end of an open transaction."""

    index: int
    transaction: str | None = None


class Proof(NamedTuple):
    """An answer that shows a message to be absent, and what may have removed it before."""

    index: int
    removers: tuple[Remover, ...]


class Locks:
    """When a message that an operation takes may be locked or gone, as times from and to."""

    def __init__(self, placed: Sequence[Placed]) -> None:
        self._crashes = sorted((p.operation.call, p.end) for p in placed if p.operation.kind == "crash")
        self._durable = {p.operation.transaction for p in placed if p.operation.kind == "claim"}
        self._committed = {p.operation.transaction for p in placed if p.operation.kind == "commit"}
        self._aborts = {
            p.operation.transaction: p for p in placed if p.operation.kind == "abort" and p.operation.outcome == OK
        }

    def absences(self, operation: Operation, last_look: int) -> list[tuple[int, int]]:
        """When a message may be locked or removed."""
        if operation.transaction is None or operation.transaction in self._committed:
            return [(operation.call, NEVER)]
        return self.spans(operation, last_look)

    def spans(self, operation: Operation, last_look: int) -> list[tuple[int, int]]:
        """Return when a message may be locked that was last seen at `last_look`, if no commit removes it.

        An unknown operation may begin its transaction after an abort "if open". Nothing ends the lock then, so nobody
        sees the message afterwards.
        """
        abort = self._aborts.get(operation.transaction)
        if abort is not None:
            span = (operation.call, abort.end)
            is_late = operation.outcome == UNKNOWN and abort.operation.argument is not None
            return [span, (max(operation.call, last_look), NEVER)] if is_late else [span]
        if operation.transaction in self._durable:
            return [(operation.call, NEVER)]
        is_once = operation.outcome == UNKNOWN and not operation.repeats
        at = bisect_right(self._crashes, (operation.call if is_once else operation.returned, NEVER))
        return [(operation.call, self._crashes[at][1] if at < len(self._crashes) else NEVER)]


class Lookahead:
    """Answers of the operations to be placed that contradict a state."""

    def __init__(self, placed: Sequence[Placed]) -> None:
        self.placed = placed
        self.senders = {value: p for p in placed for value in p.operation.sent}
        self.crashes = [index for index, p in enumerate(placed) if p.operation.kind == "crash"]
        self.seen: defaultdict[str, list[int]] = defaultdict(list)  # by which operations
        self.answers: defaultdict[str | None, list[int]] = defaultdict(list)  # of each queue
        self.doubtful: defaultdict[str | None, list[int]] = defaultdict(list)  # unknown operations that may take
        self.ending: defaultdict[str | None, list[int]] = defaultdict(list)  # commits and aborts
        self.commits: defaultdict[str | None, list[int]] = defaultdict(list)
        self.opening: defaultdict[str | None, list[int]] = defaultdict(list)
        self.locks = Locks(placed)
        for index, p in enumerate(placed):
            o = p.operation
            for value in o.seen:
                self.seen[value].append(index)
            if o.kind in (*TAKING, "peek") and o.outcome == OK:
                self.answers[o.queue].append(index)
            if o.kind in TAKING and o.outcome == UNKNOWN:
                self.doubtful[o.queue].append(index)
            if o.kind in ("commit", "abort"):
                self.ending[o.transaction].append(index)
            if o.kind == "commit":
                self.commits[o.transaction].append(index)
            if o.kind in OPENING:
                self.opening[o.transaction].append(index)
        self._proof = cache(self._find_proof)

    def is_hopeless(self, base: int, bits: int, state: State) -> bool:
        """Whether a message contradicts a later answer and nothing removes it before that.

        A message that stays locked contradicts each operation that sees it.
        """

        def left(index: int) -> bool:
            return index >= base and not bits >> index - base & 1

        def acts(remover: Remover) -> bool:
            if not left(remover.index):
                return False
            transaction = remover.transaction
            return transaction is None or state.is_open(transaction) or any(map(left, self.opening[transaction]))

        epoch = bisect_right(self.crashes, base)
        for _, entries in state.queues:
            for entry in entries:
                lock = str(entry.lock)
                is_ending = (lock, False) in state.open or any(map(left, self.ending[lock]))
                stays_locked = entry.lock is not None and not is_ending
                if any(map(left, self.seen[entry.value])):
                    if stays_locked:
                        return True
                    continue
                if entry.is_new and is_ending:
                    continue
                proof = self._next_proof(entry.value, stays_locked, epoch, left)
                if proof is not None and not any(map(acts, proof.removers)):
                    return True
        return False

    def _next_proof(self, value: str, is_locked: bool, epoch: int, left: Callable[[int], bool]) -> Proof | None:
        for number in range(epoch, len(self.crashes) + 1):
            proof = self._proof(value, is_locked, number)
            if proof is not None and left(proof.index):
                return proof
        return None

    def _find_proof(self, value: str, is_locked: bool, epoch: int) -> Proof | None:
        """Return the first answer between two crashes, `epoch` - 1 and `epoch`, that shows a message to be absent and
        not only locked."""
        queue = self.senders[value].operation.queue
        first = self.crashes[epoch - 1] if epoch else 0
        last = self.crashes[epoch] if epoch < len(self.crashes) else len(self.placed)
        answers = self.answers[queue]
        for at in range(bisect_right(answers, first), len(answers)):
            index = answers[at]
            if index > last:
                return None
            if self._shows_absence(value, is_locked, index):
                return Proof(index, () if is_locked else self._removers(value, self.placed[index].end))
        return None

    def _shows_absence(self, value: str, is_locked: bool, index: int) -> bool:
        answer = self.placed[index].operation
        if answer.kind == "claim":  # it would have ended before the message, or have it
            return value not in answer.seen and any(self._is_before(value, other) for other in answer.seen)
        if is_locked or not (answer.result is None or self._is_before(value, answer.result)):
            return False
        last_look = max((self.placed[look].operation.call for look in self.seen[value]), default=0)
        return not any(
            start <= answer.returned and end >= answer.call
            for taker in self._takers(value)
            if self.placed[taker].operation.transaction is not None
            for start, end in self.locks.spans(self.placed[taker].operation, last_look)
        )

    def _is_before(self, value: str, other: str) -> bool:
        """Whether `value` certainly has its place before `other`, if both are there."""
        one, two = self.senders[value], self.senders.get(other)
        if two is None or one is two:
            return False
        if one.priority != two.priority:
            return one.priority > two.priority
        return one.end < two.operation.call

    def _takers(self, value: str) -> list[int]:
        took = [index for index in self.seen[value] if self.placed[index].operation.kind in TAKING]
        return took + self.doubtful[self.senders[value].operation.queue]

    def _removers(self, value: str, until: int) -> tuple[Remover, ...]:
        found = []
        for taker in self._takers(value):
            transaction = self.placed[taker].operation.transaction
            if transaction is None:
                found.append(Remover(taker))
            else:
                found += [Remover(commit, transaction) for commit in self.commits[transaction]]
        return tuple(remover for remover in found if self.placed[remover.index].operation.call <= until)
