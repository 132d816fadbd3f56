"""Random programs compared with a dictionary, with reopening at any moment."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from openmsmq.store import Store
from store.memory_vfs import MemoryVfs
from store.oracle import DIRECTORY, Oracle, prepared, snapshot


class StoreMachine(RuleBasedStateMachine):
    """Hypothesis chooses the operations and the seed of their contents."""

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.vfs = MemoryVfs()
        self.chance = random.Random(seed)
        self.oracle = self.open()

    def open(self) -> Oracle:
        return Oracle(Store.open(DIRECTORY, vfs=self.vfs, segment_size=8192, entropy=bytes), self.chance)

    @rule()
    def batch(self) -> None:
        self.oracle.batch()

    @rule()
    def sync(self) -> None:
        self.oracle.sync()

    @rule()
    def sync_in_steps(self) -> None:
        self.oracle.sync_in_steps()

    @rule()
    def begin(self) -> None:
        self.oracle.begin()

    @precondition(lambda self: self.oracle.pending)
    @rule(data=st.data(), end=st.sampled_from(("commit", "abort", "add_pending", "add_rows", "prepare")))
    def end(self, data: st.DataObject, end: str) -> None:
        getattr(self.oracle, end)(data.draw(st.sampled_from(sorted(self.oracle.pending))))

    @rule()
    def reserve(self) -> None:
        self.oracle.reserve()

    @rule()
    def checkpoint(self) -> None:
        self.oracle.checkpoint()

    @rule(steps=st.integers(1, 5))
    def compact(self, steps: int) -> None:
        for _ in range(steps):
            self.oracle.compact()
        self.oracle.sync()

    @rule()
    def remove_everything(self) -> None:
        for key in sorted(self.oracle.messages):
            del self.oracle.messages[key]
            self.oracle.store.remove(key, self.oracle.locations.pop(key))
            self.oracle.remember()

    @rule()
    def reopen(self) -> None:
        notes = self.oracle.history[-1][2]
        expected = (dict(self.oracle.messages), dict(self.oracle.definitions))
        high_key = self.oracle.store.high_key
        self.oracle.store.close()
        self.oracle = self.open()
        assert snapshot(self.oracle.store) == expected
        assert prepared(self.oracle.store) == notes
        assert self.oracle.store.high_key == high_key >= max(expected[0], default=0)

    @rule(choice=st.integers(0, 2**32))
    def power_fails(self, choice: int) -> None:
        states = self.vfs.crashes(random.Random(choice), 1)
        self.vfs = states[choice % len(states)]
        store, _ = self.oracle.check(self.vfs)
        self.oracle = Oracle(store, self.chance)

    @invariant()
    def every_message_can_be_read(self) -> None:
        for key, place in self.oracle.locations.items():
            assert self.oracle.store.read(place) == self.oracle.messages[key][1]

    @invariant()
    def a_drained_store_is_small(self) -> None:
        oracle = self.oracle
        drained = not oracle.messages and not oracle.definitions and not oracle.pending
        if drained and oracle.store.durable_end == oracle.store.end:
            assert sum("segment" in path for path in self.vfs.names) <= 3


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
