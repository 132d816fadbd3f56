"""Random programs compared with an oracle of plain lists: nothing lost or duplicated, order and bytes correct."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from openmsmq.model.constants import Access, PropId, ReceiveAction
from openmsmq.model.errors import HResult
from openmsmq.queueing.queue import LockKind
from queueing.world import ALICE, World

QUEUES = ["plain", "other", "xact"]  # the last one is transactional
READABLE = [*QUEUES, "plain;s", "xact;s", "xact;t"]
MOVES = [("plain", "plain;s"), ("plain;s", "plain"), ("xact", "xact;s"), ("xact;s", "xact;t"), ("xact;t", "xact")]


def head(name: str) -> str:
    return name.partition(";")[0]


@dataclass
class Entry:
    """A message of the oracle. `held` names the holder that hides it from readers."""

    serial: int
    label: str
    priority: int
    recoverable: bool
    dies: int | None  # milliseconds
    held: Any = None
    purged: bool = False


@dataclass
class Oracle:
    """Model of a queue manager: lists in order of priority and arrival."""

    queues: dict[str, list[Entry]] = field(default_factory=lambda: {name: [] for name in READABLE})
    journals: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in QUEUES})
    journaling: set[str] = field(default_factory=set)

    def add(self, name: str, entry: Entry) -> None:
        self.queues[name].append(entry)
        self.queues[name].sort(key=lambda e: (-e.priority, e.serial))

    def visible(self, name: str) -> list[Entry]:
        return [e for e in self.queues[name] if e.held is None]

    def received(self, name: str, entry: Entry) -> None:
        self.queues[name].remove(entry)
        if head(name) in self.journaling:
            self.journals[head(name)].append(entry.label)

    def put_back(self, name: str, entry: Entry, now: int) -> None:
        entry.held = None
        if entry.purged or (entry.dies is not None and entry.dies <= now):
            self.queues[name].remove(entry)


@dataclass
class Work:
    """An open unit of work: messages sent (visible at the commit), received and moved."""

    real: Any
    sent: list[tuple[str, Entry]] = field(default_factory=list)
    received: list[tuple[str, Entry]] = field(default_factory=list)
    moved: list[tuple[str, str, Entry]] = field(default_factory=list)


class Program(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world, self.oracle = World(), Oracle()
        self.number = 0
        self.locks: list[tuple[str, Entry, Any, int]] = []
        self.work: dict[int, Work] = {}
        self.cursors: dict[str, tuple[Any, Any, Entry | None]] = {}
        self.seen: set[int] = set()

    @initialize()
    def create(self) -> None:
        for name in QUEUES:
            self.world.create(name, TRANSACTION=int(name == "xact"))
        self.open()

    def open(self) -> None:
        self.readers = {name: self.world.open(name) for name in READABLE}

    def _entry(self, priority: int, recoverable: bool, seconds: int | None) -> tuple[Entry, dict[str, Any]]:
        self.number += 1
        dies = None if seconds is None else self.world.now + seconds * 1000
        values: dict[str, Any] = {"priority": priority, "delivery_guarantee": int(recoverable), "body": b"body"}
        if seconds is not None:
            values["time_to_be_received"] = seconds
        return Entry(self.number, f"{self.number}é", priority, recoverable, dies), values

    # -- sending -----------------------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(QUEUES[:2]), priority=st.integers(0, 7), recoverable=st.booleans(),
        seconds=st.sampled_from([None, None, 1, 5, 60]),
    )  # fmt: skip
    def send(self, name: str, priority: int, recoverable: bool, seconds: int | None) -> None:
        entry, values = self._entry(priority, recoverable, seconds)
        self.world.send(name, entry.label, **values)
        self.oracle.add(name, entry)

    @rule(name=st.sampled_from(QUEUES[:2]))
    def send_to_a_waiting_reader(self, name: str) -> None:
        if self.oracle.visible(name):
            return
        outcome = self.world.wait(self.readers[name])
        entry, values = self._entry(3, True, None)
        self.world.send(name, entry.label, **values)
        self._check_seen(outcome.message)
        assert outcome.label == entry.label
        self.oracle.add(name, entry)
        self.oracle.received(name, entry)

    # -- reading -----------------------------------------------------------------------------------------------

    def _check_seen(self, message: Any) -> None:
        assert message.sequence not in self.seen, "received twice"
        self.seen.add(message.sequence)

    @rule(name=st.sampled_from(READABLE))
    def peek(self, name: str) -> None:
        outcome = self.world.read(self.readers[name], ReceiveAction.PEEK_CURRENT)
        visible = self.oracle.visible(name)
        assert (outcome.label if visible else outcome.status) == (
            visible[0].label if visible else HResult.MQ_ERROR_IO_TIMEOUT
        )

    @rule(name=st.sampled_from(READABLE))
    def receive(self, name: str) -> None:
        outcome = self.world.read(self.readers[name])
        visible = self.oracle.visible(name)
        if not visible:
            assert outcome.status == HResult.MQ_ERROR_IO_TIMEOUT
            return
        self._check_seen(outcome.message)
        assert outcome.label == visible[0].label
        self.oracle.received(name, visible[0])

    @rule(name=st.sampled_from(READABLE))
    def lock(self, name: str) -> None:
        visible = self.oracle.visible(name)
        outcome = self.world.read(self.readers[name], two_phase=True)
        if visible:
            assert outcome.label == visible[0].label
            visible[0].held = "lock"
            self.locks.append((name, visible[0], self.readers[name], outcome.message.lookup_identifier))

    @precondition(lambda self: self.locks)
    @rule(data=st.data(), delete=st.booleans())
    def unlock(self, data: st.DataObject, delete: bool) -> None:
        name, entry, reader, key = self.locks.pop(data.draw(st.integers(0, len(self.locks) - 1)))
        self.world.manager.reading.end_two_phase(reader, key, delete)
        if delete and not entry.purged:
            self.oracle.received(name, entry)
        elif delete:
            self.oracle.queues[name].remove(entry)
        else:
            self.oracle.put_back(name, entry, self.world.now)

    # -- cursors -----------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(READABLE))
    def move_cursor(self, name: str) -> None:
        """Move a new cursor over all visible messages."""
        reader = self.readers[name]
        cursor = self.world.manager.handles.open_cursor(reader)
        labels = []
        action = ReceiveAction.PEEK_CURRENT
        while (outcome := self.world.read(reader, action, cursor=cursor)).status == HResult.MQ_OK:
            labels.append(outcome.label)
            action = ReceiveAction.PEEK_NEXT
        self.world.manager.handles.close_cursor(cursor)
        assert labels == [e.label for e in self.oracle.visible(name)]

    @rule(name=st.sampled_from(READABLE), steps=st.integers(0, 3))
    def receive_with_cursor(self, name: str, steps: int) -> None:
        visible = self.oracle.visible(name)
        if steps >= len(visible):
            return
        reader = self.readers[name]
        cursor = self.world.manager.handles.open_cursor(reader)
        for step in range(steps + 1):
            self.world.read(reader, ReceiveAction.PEEK_NEXT if step else ReceiveAction.PEEK_CURRENT, cursor=cursor)
        outcome = self.world.read(reader, cursor=cursor)
        self.world.manager.handles.close_cursor(cursor)
        self._check_seen(outcome.message)
        assert outcome.label == visible[steps].label
        self.oracle.received(name, visible[steps])

    # -- subqueues ---------------------------------------------------------------------------------------------

    def _key(self, name: str, entry: Entry) -> int:
        queue = self.world.queue(name)
        return next(key for key in queue.entries if queue.message(key).label == entry.label)

    @rule(pair=st.sampled_from(MOVES), data=st.data(), number=st.sampled_from([None, None, 1, 2]))
    def move(self, pair: tuple[str, str], data: st.DataObject, number: int | None) -> None:
        source, target = pair
        visible = self.oracle.visible(source)
        if not visible or (number is not None and head(source) != "xact"):
            return
        entry = data.draw(st.sampled_from(visible))
        opened = self.world.open(target, Access.MOVE)
        key = self._key(source, entry)
        if number is None:
            self.world.manager.subqueues.move(self.readers[source], opened, key)
            self.oracle.queues[source].remove(entry)
            self.oracle.add(target, entry)
        else:
            work = self.work.get(number) or self.work.setdefault(number, Work(self.world.begin(number)))
            self.world.manager.subqueues.move(self.readers[source], opened, key, lambda: work.real)
            entry.held = work
            work.moved.append((source, target, entry))
        self.world.manager.handles.close_queue(opened)

    # -- transactions ------------------------------------------------------------------------------------------

    @rule(
        number=st.integers(1, 3),
        sends=st.integers(0, 3),
        receives=st.integers(0, 2),
        seconds=st.sampled_from([None, 5]),
    )
    def work_in_transaction(self, number: int, sends: int, receives: int, seconds: int | None) -> None:
        work = self.work.get(number) or self.work.setdefault(number, Work(self.world.begin(number)))
        for _ in range(sends):
            entry, values = self._entry(0, True, seconds)
            self.world.send("xact", entry.label, work.real, **values)
            entry.held = work
            self.oracle.add("xact", entry)
            work.sent.append(("xact", entry))
        for _ in range(receives):
            visible = self.oracle.visible("xact")
            outcome = self.world.read(self.readers["xact"], transaction=work.real)
            if visible:
                assert outcome.label == visible[0].label
                visible[0].held = work
                work.received.append(("xact", visible[0]))

    @rule(number=st.integers(1, 3))
    def commit(self, number: int) -> None:
        work = self.work.pop(number, None)
        if work is None:
            return
        self.world.manager.transactions.commit(work.real)
        for _, entry in work.sent:
            entry.held = None
        for name, entry in work.received:
            self.oracle.received(name, entry)
        for source, target, entry in work.moved:
            self.oracle.queues[source].remove(entry)
            entry.held, entry.purged = None, False
            self.oracle.add(target, entry)
        self.expire(0)

    @rule(number=st.integers(1, 3))
    def abort(self, number: int) -> None:
        work = self.work.pop(number, None)
        if work is None:
            return
        self.world.manager.transactions.abort(work.real)
        for name, entry in work.sent:
            self.oracle.queues[name].remove(entry)
        for name, entry in work.received:
            self.oracle.put_back(name, entry, self.world.now)
        for name, _, entry in work.moved:
            self.oracle.put_back(name, entry, self.world.now)

    # -- time, purge, journal, restart -------------------------------------------------------------------------

    @rule(milliseconds=st.sampled_from([1, 999, 1000, 5000, 60_000]))
    def expire(self, milliseconds: int) -> None:
        self.world.advance(milliseconds)
        for name, entries in self.oracle.queues.items():
            self.oracle.queues[name] = [
                e for e in entries if e.held is not None or e.dies is None or e.dies > self.world.now
            ]

    @rule(name=st.sampled_from(READABLE))
    def purge(self, name: str) -> None:
        count = self.world.manager.reading.purge(self.readers[name])
        visible = self.oracle.visible(name)
        assert count == len(visible)
        sent = [e for work in self.work.values() for _, e in work.sent]
        for entry in self.oracle.queues[name]:
            entry.purged = entry.purged or (entry.held is not None and not any(entry is s for s in sent))
        self.oracle.queues[name] = [e for e in self.oracle.queues[name] if e.held is not None]

    @rule(name=st.sampled_from(QUEUES), on=st.booleans())
    def journal(self, name: str, on: bool) -> None:
        self.world.manager.administration.set_properties(
            self.world.queue(name), {PropId.PROPID_Q_JOURNAL: int(on)}, ALICE
        )
        (self.oracle.journaling.add if on else self.oracle.journaling.discard)(name)

    @rule(name=st.sampled_from(READABLE))
    def reopen(self, name: str) -> None:
        self.world.manager.handles.close_queue(self.readers[name])
        self.readers[name] = self.world.open(name)
        for lock in [lock for lock in self.locks if lock[0] == name]:
            self.locks.remove(lock)
            self.oracle.put_back(name, lock[1], self.world.now)

    @rule(checkpoint=st.booleans())
    def restart(self, checkpoint: bool) -> None:
        self.world.restart(checkpoint)
        self.open()
        sent = [e for work in self.work.values() for _, e in work.sent]
        self.locks.clear()
        self.work.clear()
        for name, entries in self.oracle.queues.items():
            kept = [e for e in entries if e.recoverable and not any(e is s for s in sent)]
            for entry in kept:
                entry.held, entry.purged = None, False
            self.oracle.queues[name] = kept
        self._forget_express_journal()
        self.expire(0)

    def _forget_express_journal(self) -> None:
        """Forget express journal copies after a restart; the rest must match the world, in order."""
        for name in QUEUES:
            journal = self.world.queue(name).journal
            assert journal is not None
            left = self.world.labels(journal)
            expected = [label for label in self.oracle.journals[name] if label in set(left)]
            assert sorted(left) == sorted(expected)
            self.oracle.journals[name] = expected

    # -- invariants --------------------------------------------------------------------------------------------

    @invariant()
    def the_queues_are_what_the_oracle_says(self) -> None:
        if not self.world.registry.by_name:
            return
        for name in READABLE:
            queue = self.world.queue(name)
            assert self.world.labels(name) == [e.label for e in self.oracle.visible(name)]
            assert len(queue) == len(self.oracle.queues[name])
            assert len(queue) == len(queue.available) + len(queue.locked)
            assert queue.journal is not None
            assert sorted(self.world.labels(queue.journal)) == sorted(self.oracle.journals[head(name)])

    @invariant()
    def bytes_are_the_sum_of_what_is_there(self) -> None:
        for queue in self.world.registry.queues.values():
            found = [queue.entries[key] for key in queue.entries]
            sizes = [e.size if not isinstance(e, int) else e >> 64 for e in found]
            assert queue.total_bytes == sum(sizes) >= 0
        registry = self.world.registry
        assert registry.held.bytes == sum(queue.total_bytes for queue in registry.queues.values())

    @invariant()
    def every_lock_has_its_owner(self) -> None:
        locks = [lock for queue in self.world.registry.queues.values() for lock in queue.locked.values()]
        assert len([lock for lock in locks if lock.kind is LockKind.READ]) == len(self.locks)
        held = sum(len(work.sent) + len(work.received) + len(work.moved) for work in self.work.values())
        assert len([lock for lock in locks if lock.kind is not LockKind.READ]) == held


QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@pytest.mark.parametrize("examples", [60, pytest.param(250, marks=pytest.mark.slow)])
def test_random_programs_agree_with_the_oracle(examples: int) -> None:
    run_state_machine_as_test(
        Program,
        settings=settings(
            max_examples=examples, stateful_step_count=50, deadline=None, suppress_health_check=QUIET, database=None
        ),
    )


@pytest.mark.slow
def test_long_random_programs_agree_with_the_oracle() -> None:
    run_state_machine_as_test(
        Program,
        settings=settings(
            max_examples=600, stateful_step_count=120, deadline=None, suppress_health_check=QUIET, database=None
        ),
    )
