"""Decide whether a history of operations is linearizable.

The search is that of Wing and Gong with the memory of Lowe: it places one operation after the other, never one that was
called after another one, still to be placed, had returned; it remembers which sets of operations with which state it
has seen. An operation with the outcome unknown has the window that history.py describes; it is placed there or left
out.

What makes it fast enough for long histories:

- Queues that no transaction joins are checked alone (Herlihy and Wing: linearizability is local).
- Unknown sends and commits whose messages were received happened before that; other unknown sends are left out.
- Each value is sent once. If w was received while nobody could have taken or locked v, both of one priority,
  then w has to be placed before v. So the order of concurrent sends need not be guessed.
- No unknown operation removes a message that an operation still to be placed has seen.
- lookahead.py refuses a state with a message that contradicts a later answer and that nothing removes before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from linearizability.history import FAILED, OK, UNKNOWN, Operation
from linearizability.lookahead import NEVER, TAKING, Locks, Lookahead, Placed
from linearizability.model import EMPTY, State, steps


class Undecided(Exception):
    """The search took more steps than it was allowed."""


@dataclass
class Verdict:
    """Result of the search for an order of the operations of some queues."""

    queues: list[str]
    accepted: bool
    count: int
    steps: int
    prefix: list[Operation] = field(default_factory=list)  # the longest that could be placed, in that order
    pending: list[Operation] = field(default_factory=list)  # what could have come next
    state: State = EMPTY  # after the prefix

    def __str__(self) -> str:
        what = f"{', '.join(self.queues) or 'no queue'}: {self.count} operations"
        if self.accepted:
            return f"{what} are linearizable ({self.steps} steps)"
        lines = [f"{what} are not linearizable ({self.steps} steps)."]
        lines.append("The longest order that could be found ends with")
        lines += [f"  {operation}" for operation in self.prefix[-12:]] or ["  (nothing)"]
        lines.append("The queues then have (at most 10 messages of each are shown)")
        for queue, entries in self.state.queues:
            shown = [f"{e.value}{f' locked by {e.lock}' if e.lock else ''}" for e in entries[:10]]
            lines.append(f"  {queue} ({len(entries)} messages): {', '.join(shown)}")
        lines += [] if self.state.queues else ["  (no messages)"]
        lines.append("None of the next operations can follow, or what it leaves contradicts a later one:")
        lines += [f"  {operation}" for operation in self.pending]
        return "\n".join(lines)


def check(history: Iterable[Operation], most_steps: int = 5_000_000) -> list[Verdict]:
    """Return a verdict for each group of queues. Raises Undecided."""
    operations = list(history)
    _must_be_unique(operations)
    verdicts = [_Search(queues, part, most_steps).run() for queues, part in split(operations)]
    return [verdict for verdict in verdicts if verdict.queues or not verdict.accepted]


def is_linearizable(history: Iterable[Operation], most_steps: int = 5_000_000) -> bool:
    return all(verdict.accepted for verdict in check(history, most_steps))


def _must_be_unique(operations: Sequence[Operation]) -> None:
    values = [value for operation in operations for value in operation.sent]
    if len(set(values)) < len(values):
        raise ValueError("each value may be sent only once")


def split(operations: Sequence[Operation]) -> Iterator[tuple[list[str], list[Operation]]]:
    """The operations of each group of queues that transactions join; crashes belong to every group."""
    above: dict[str, str] = {}

    def root(name: str) -> str:
        while above.setdefault(name, name) != name:
            name = above[name]
        return name

    for operation in operations:
        if operation.queue is not None:
            root(f"queue {operation.queue}")
            if operation.transaction is not None:
                above[root(f"queue {operation.queue}")] = root(f"transaction {operation.transaction}")
    groups: defaultdict[str, list[Operation]] = defaultdict(list)
    queues: defaultdict[str, set[str]] = defaultdict(set)
    for operation in operations:
        if operation.queue is not None:
            group = root(f"queue {operation.queue}")
            queues[group].add(operation.queue)
        elif operation.transaction is not None:
            group = root(f"transaction {operation.transaction}")
        else:
            continue
        groups[group].append(operation)
    crashes = [operation for operation in operations if operation.kind == "crash"]
    for group, part in groups.items():
        yield sorted(queues[group]), part + crashes


def _windows(operations: Sequence[Operation]) -> list[Placed]:
    """Return the operations to place, sorted by the time of their calls, without those that can be left out."""
    crashes = sorted(operation.call for operation in operations if operation.kind == "crash")
    certain = {o.transaction for o in operations if o.outcome == OK}
    # Messages that nobody was given still matter for what a claim or a lock found.
    matters = any(
        o.kind == "claim" or (o.kind == "lock" and o.outcome == UNKNOWN and o.transaction in certain)
        for o in operations
    )
    seen: dict[str, int] = {}  # when the first client was given a value
    for operation in operations:
        for value in operation.seen:
            seen[value] = min(seen.get(value, NEVER), operation.returned)
    # When the first value of a transaction that another client received was received.
    sent_in: defaultdict[str | None, int] = defaultdict(lambda: NEVER)
    committed = {o.transaction for o in operations if o.kind == "commit" and o.outcome != FAILED}
    for operation in operations:
        if operation.transaction is not None:
            for value in operation.sent:
                sent_in[operation.transaction] = min(sent_in[operation.transaction], seen.get(value, NEVER))
    placed = []
    for operation in operations:
        if operation.outcome == FAILED:
            continue
        end, optional = operation.returned, False
        needs = operation
        if operation.kind == "send" and not matters and operation.transaction not in {None, *committed}:
            needs = replace(operation, argument=None)  # it was never visible; only its transaction has to be open
        if operation.outcome == UNKNOWN:
            since = operation.returned if operation.repeats else operation.call
            end, optional = next((crash - 1 for crash in crashes if crash > since), NEVER), True
            if operation.kind == "peek":
                continue
            if operation.sent:
                first = min(seen.get(value, NEVER) for value in operation.sent)
                if first < NEVER:
                    end, optional = min(end, first), False
                elif not matters and operation.transaction is None:
                    continue
            elif operation.kind == "commit" and sent_in[operation.transaction] < NEVER:
                end, optional = min(end, sent_in[operation.transaction]), False
        placed.append(Placed(operation, end, optional, needs))
    placed.sort(key=lambda p: (p.operation.call, p.end))
    _order_sends(placed)
    return placed


def _order_sends(placed: list[Placed]) -> None:
    """Set `before` of concurrent sends, by what was received first."""
    looks: defaultdict[str, list[Operation]] = defaultdict(list)  # of each value
    taken: defaultdict[str, list[Operation]] = defaultdict(list)
    gone: set[str] = set()  # values whose receive is certain and final
    doubtful: defaultdict[str | None, list[Operation]] = defaultdict(list)
    locks = Locks(placed)
    for p in placed:
        o = p.operation
        for value in o.seen:
            looks[value].append(o)
            if o.kind in TAKING:
                taken[value].append(o)
                if o.kind == "receive" and o.transaction is None:
                    gone.add(value)
        if o.kind in TAKING and o.outcome == UNKNOWN:
            doubtful[o.queue].append(o)
    visible: dict[str | None, int] = {}
    for p in placed:
        if p.operation.kind == "commit":
            visible[p.operation.transaction] = NEVER if p.optional else p.end
    sends = [(index, p) for index, p in enumerate(placed) if p.operation.sent]
    sender = {value: (index, p) for index, p in sends for value in p.operation.sent}
    for claim in placed:
        for earlier, later in pairwise(claim.operation.seen):  # a claim shows the order of its messages
            if earlier in sender and later in sender:
                (index, first), (other, second) = sender[earlier], sender[later]
                if index != other and first.priority == second.priority:
                    second.before.append(index)
    for v_index, (_, v) in enumerate(sends):
        o = v.operation
        since = 0 if o.transaction is None else visible.get(o.transaction, NEVER)
        if since == NEVER:
            continue
        value = o.sent[0]
        doubts = [
            doubt
            for doubt in doubtful[o.queue]
            if not (doubt.kind == "receive" and doubt.transaction is None and value in gone)
        ]
        last_look = max((look.call for look in looks[value]), default=0)
        absent = [span for taking in taken[value] + doubts for span in locks.absences(taking, last_look)]
        for step in (-1, 1):
            other = v_index + step
            while 0 <= other < len(sends) and abs(other - v_index) < 200:
                index, w = sends[other]
                other += step
                if step == 1 and w.operation.call > v.end:
                    break
                if w.operation.queue != o.queue or w.priority != v.priority or w.end < o.call:
                    continue
                # v would have been received instead of w.
                if any(
                    look.call >= since and all(end < look.call or look.returned < start for start, end in absent)
                    for value in w.operation.sent
                    for look in looks[value]
                ):
                    v.before.append(index)


class _Search:
    """The operations placed so far are a pair: all below the first number, and one bit for each from there on."""

    def __init__(self, queues: list[str], operations: Sequence[Operation], most_steps: int) -> None:
        self.queues, self.count, self.most_steps = queues, len(operations), most_steps
        self.placed = _windows(operations)
        self.must = sum(not p.optional for p in self.placed)
        self.steps = 0
        self.ahead = Lookahead(self.placed)

    def run(self) -> Verdict:
        """Depth first; the order of attempts is that in which operations have to be placed."""
        known: set[tuple[int, int, State]] = set()
        path: list[int] = []
        base, bits = self._over(0, 0, 0)
        stack = [(base, bits, 0, EMPTY, self._next(base, bits, 0, EMPTY))]
        best: tuple[int, list[int], tuple[int, int, int], State] = (-1, [], (0, 0, 0), EMPTY)
        required = 0
        while stack:
            base, bits, latest, state, following = stack[-1]
            if required == self.must:
                return Verdict(self.queues, True, self.count, self.steps, [self.placed[i].operation for i in path])
            for index, after in following:
                placed = self.placed[index]
                moment = max(latest, placed.operation.call)
                new = self._over(base, bits | 1 << index - base, moment)
                if (*new, after) not in known:
                    known.add((*new, after))
                    if self._needs_lookahead(placed) and self.ahead.is_hopeless(*new, after):
                        continue
                    path.append(index)
                    required += not placed.optional
                    stack.append((*new, moment, after, self._next(*new, moment, after)))
                    break
            else:
                if required > best[0]:
                    best = (required, path.copy(), (base, bits, latest), state)
                stack.pop()
                if path:
                    required -= not self.placed[path.pop()].optional
        _, path, where, state = best
        return Verdict(
            self.queues, False, self.count, self.steps, [self.placed[i].operation for i in path],
            [self.placed[i].operation for i in self._candidates(*where)], state,
        )  # fmt: skip

    @staticmethod
    def _needs_lookahead(placed: Placed) -> bool:
        """Whether the operation may leave or unlock a message that should be gone."""
        return placed.operation.outcome == UNKNOWN or placed.operation.kind in ("abort", "crash")

    def _over(self, base: int, bits: int, moment: int) -> tuple[int, int]:
        """Count optional operations whose window is over as placed, so that states with equal futures are equal."""
        index = base
        while index < len(self.placed) and self.placed[index].operation.call <= moment:
            placed = self.placed[index]
            if placed.optional and placed.end < moment:
                bits |= 1 << index - base
            index += 1
        ones = (~bits & (bits + 1)).bit_length() - 1
        return base + ones, bits >> ones

    def _candidates(self, base: int, bits: int, latest: int) -> list[int]:
        """Return the operations that may be next: no other one to be placed has returned before its call."""
        found, limit = [], NEVER
        for index in range(base, len(self.placed)):
            placed = self.placed[index]
            if placed.operation.call > limit:
                break
            if not bits >> index - base & 1:
                if not placed.optional:
                    limit = min(limit, placed.end)
                    found.append(index)
                elif placed.end >= latest:
                    found.append(index)
        found = [index for index in found if self.placed[index].operation.call <= limit]
        return sorted(found, key=lambda i: (self.placed[i].optional, self.placed[i].end))

    def _next(self, base: int, bits: int, latest: int, state: State) -> Iterator[tuple[int, State]]:
        for index in self._candidates(base, bits, latest):
            placed = self.placed[index]
            if any(other >= base and not bits >> other - base & 1 for other in placed.before):
                continue
            self.steps += 1
            if self.steps > self.most_steps:
                raise Undecided(f"{', '.join(self.queues)}: no verdict after {self.most_steps} steps")
            for after in steps(state, placed.needs):
                if (after != state or not placed.optional) and not self._is_missed(base, bits, index, state, after):
                    yield index, after

    def _is_missed(self, base: int, bits: int, index: int, state: State, after: State) -> bool:
        """Whether an unknown operation removes a message that an operation still to be placed has seen."""
        if self.placed[index].operation.outcome != UNKNOWN:
            return False
        gone = _values(state) - _values(after) if after.size < state.size else ()
        return any(
            other != index and other >= base and not bits >> other - base & 1
            for value in gone
            for other in self.ahead.seen[value]
        )


def _values(state: State) -> set[str]:
    return {entry.value for _, entries in state.queues for entry in entries}
