"""Random programs of applications and pipelines on the same queues: no message appears below a passed position, and a
consumer group gets every message once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from openmsmq.model.lookup_id import sequence_of
from openmsmq.queueing.consumer_group import BatchLimits
from queueing.pipeline import claim, claimed, commit, done, finalize, stage
from queueing.world import ALICE, World

QUEUES = ["p", "x"]  # the second one is transactional
queues = st.sampled_from(QUEUES)


class Program(RuleBasedStateMachine):
    @initialize()
    def create(self) -> None:
        self.world = World()
        for name in QUEUES:
            self.world.create(name, TRANSACTION=int(name == "x"))
        self.number = 0
        self.batch = 0
        self.transactions: list[Any] = []
        self.reads: list[tuple[Any, int]] = []
        self.stages: list[tuple[str, Any, list[str]]] = []
        self.lasting: dict[str, set[str]] = {name: set() for name in QUEUES}  # committed, recoverable
        self.pending: dict[int, list[tuple[str, str]]] = {}
        self.received: dict[str, list[str]] = {name: [] for name in QUEUES}  # received by applications
        self.consumed: dict[str, list[str]] = {name: [] for name in QUEUES}  # received by the group
        self.offset = dict.fromkeys(QUEUES, 0)  # position of a browsing stream
        self.seen: dict[str, set[int]] = {name: set() for name in QUEUES}
        self.position = dict.fromkeys(QUEUES, 0)  # position of the group
        self.claims: dict[str, tuple[int, list[str]]] = {}

    def label(self) -> str:
        self.number += 1
        return str(self.number)

    # -- applications ------------------------------------------------------------------------------------------

    @rule(priority=st.integers(0, 7), recoverable=st.booleans())
    def send(self, priority: int, recoverable: bool) -> None:
        label = self.label()
        self.world.send("p", label, priority=priority, delivery_guarantee=int(recoverable))
        if recoverable:
            self.lasting["p"].add(label)

    @rule()
    def begin(self) -> None:
        self.number += 1
        transaction = self.world.begin(self.number)
        self.transactions.append((transaction, [], []))

    @rule(pick=st.integers(0, 9))
    def send_in_transaction(self, pick: int) -> None:
        if self.transactions:
            transaction, sent, _ = self.transactions[pick % len(self.transactions)]
            sent.append(self.label())
            self.world.send("x", sent[-1], transaction)

    @rule(pick=st.integers(0, 9))
    def receive_in_transaction(self, pick: int) -> None:
        if self.transactions:
            transaction, _, received = self.transactions[pick % len(self.transactions)]
            outcome = self.world.read(self.world.open("x"), transaction=transaction)
            if outcome.status == 0:
                received.append(outcome.label)

    @rule(pick=st.integers(0, 9), commit=st.booleans())
    def end(self, pick: int, commit: bool) -> None:
        if self.transactions:
            transaction, sent, received = self.transactions.pop(pick % len(self.transactions))
            if commit:
                self.world.manager.transactions.commit(transaction)
                self.lasting["x"].update(sent)
                self.received["x"] += received
            else:
                self.world.manager.transactions.abort(transaction)

    @rule(name=queues, two_phase=st.booleans())
    def receive(self, name: str, two_phase: bool) -> None:
        descriptor = self.world.open(name)
        outcome = self.world.read(descriptor, two_phase=two_phase)
        if outcome.status == 0 and two_phase:
            self.reads.append((descriptor, outcome.message.lookup_identifier, name, outcome.label))
        elif outcome.status == 0:
            self.received[name].append(outcome.label)

    @rule(pick=st.integers(0, 9), delete=st.booleans())
    def end_read(self, pick: int, delete: bool) -> None:
        if self.reads:
            descriptor, key, name, label = self.reads.pop(pick % len(self.reads))
            self.world.manager.reading.end_two_phase(descriptor, key, delete)
            if delete:
                self.received[name].append(label)

    # -- pipelines ---------------------------------------------------------------------------------------------

    @rule(count=st.integers(0, 4))
    def stage(self, count: int) -> None:
        labels = [str(self.number + index + 1) for index in range(count)]
        self.number += count
        self.stages.append((stage(self.world, self.batch, labels, QUEUES).handle, labels))  # type: ignore[arg-type]

    @rule(chosen=st.integers(0, 15))
    def finalize(self, chosen: int) -> None:
        manager = self.world.manager
        some = [one for index, one in enumerate(self.stages) if chosen >> index & 1]
        known = {one.handle: one for one in manager.staged_writes.stages()}
        finalize(self.world, self.batch, *(known[handle] for handle, _ in some))
        for _, labels in some:
            for index, label in enumerate(labels):
                self.lasting[QUEUES[index % 2]].add(label)
        self.batch += 1
        self.stages = []

    @rule()
    def forget(self) -> None:
        assert self.world.manager.staged_writes.forget("s", None, None, ALICE) == len(self.stages)
        self.stages = []

    @rule(name=queues)
    def browse(self, name: str) -> None:
        queue, manager = self.world.queue(name), self.world.manager
        stable = max(
            self.offset[name], manager.consumer_groups.last_stable(queue)
        )  # it falls when a seen message is received
        self.seen[name].update(manager.consumer_groups.within(queue, self.offset[name], stable, 1000))
        self.offset[name] = stable

    @rule(name=queues, limit=st.integers(1, 4))
    def claim(self, name: str, limit: int) -> None:
        group = claim(self.world, self.position[name], limit, queue=name)
        if name in self.claims:  # a restarted driver
            assert (group.end, claimed(group)) == self.claims[name]
        elif group.keys:
            self.claims[name] = group.end, claimed(group)

    @rule(name=queues, explicit=st.booleans())
    def process(self, name: str, explicit: bool) -> None:
        if name in self.claims:
            end, labels = self.claims.pop(name)
            self.consumed[name] += labels
            if explicit:
                commit(self.world, end, queue=name)
            self.position[name] = end
            if not explicit:  # the next claim removes it
                self.claim(name, 2)

    @rule(name=queues)
    def release(self, name: str) -> None:
        group = self.world.manager.consumer_groups.group(self.world.queue(name), "g")
        if group is not None and self.claims.pop(name, None):
            done(self.world.manager.consumer_groups.release_claim(group))

    @rule(checkpoint=st.booleans())
    def restart(self, checkpoint: bool) -> None:
        self.world.restart(checkpoint)
        self.transactions.clear()
        self.reads.clear()
        for name, (end, labels) in self.claims.items():
            self.claims[name] = end, [label for label in labels if label in self.lasting[name]]
        for name in [name for name, (_, labels) in self.claims.items() if not labels]:
            del self.claims[name]  # all express
            (group,) = self.world.manager.consumer_groups.groups(self.world.queue(name))
            commit(self.world, group.end, queue=name)
            self.position[name] = group.cursor

    # -- invariants --------------------------------------------------------------------------------------------

    @invariant()
    def nothing_appears_below_a_position_that_was_passed(self) -> None:
        for name in QUEUES:
            queue = self.world.queue(name)
            below = {key for key in queue.available if sequence_of(key) <= self.offset[name]}
            assert below <= self.seen[name]

    @invariant()
    def nothing_is_there_twice(self) -> None:
        for name in QUEUES:
            gone = self.received[name] + self.consumed[name]
            assert len(gone) == len(set(gone))
            assert not set(gone) & set(self.world.labels(name))

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.restart(False)
        self.world.manager.staged_writes.forget("s", None, None, ALICE)
        for name in QUEUES:
            self.process(name, True)
            group = done(
                self.world.manager.consumer_groups.claim(
                    self.world.queue(name), "g", self.position[name], BatchLimits()
                )
            )
            rest = claimed(group)
            left = set(self.world.labels(name))  # aborted, or put back, below the position of the group
            assert not left
            assert set(self.received[name] + self.consumed[name] + rest) >= self.lasting[name]
            commit(self.world, group.end, queue=name)
            assert not self.world.queue(name).entries


@pytest.mark.parametrize("examples", [40, pytest.param(2000, marks=pytest.mark.slow)])
def test_streams_and_groups_work_alongside_applications(examples: int) -> None:
    run_state_machine_as_test(
        Program,
        settings=settings(
            max_examples=examples, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
