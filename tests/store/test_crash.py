"""Crash tests: the power may fail before any call to the file system."""

from __future__ import annotations

import random

import pytest

from openmsmq.store import Insert, Store, checkpoints, frames
from openmsmq.store.segments import SPARES, segment_name
from seeds import by_night, several
from store.memory_vfs import SECTOR, MemoryVfs, put
from store.oracle import DIRECTORY, Oracle, snapshot
from tallies import tally

SEGMENT = 8192
# Share of the crashes whose recovery also crashes, before each of its calls: that makes fifty states of one.
NESTED, NESTED_BY_DAY = 0.1, 0.03
MUTATING = frozenset(("open", "pwrite", "fdatasync", "fsync_directory", "rename", "unlink"))


class CrashPoints:
    """Before every modifying call, tests the states that a crash at this point would leave."""

    def __init__(self, vfs: MemoryVfs, chance: random.Random, samples: int, nested: float) -> None:
        self.vfs = vfs
        self.chance = chance
        self.samples = samples
        self.nested = nested
        self.oracle: Oracle | None = None
        self.checked = 0

    def before(self, name: str, path: str) -> None:
        if name in MUTATING and self.oracle is not None and not path.endswith("/lock"):
            for state in self.vfs.crashes(self.chance, self.samples):
                self.try_state(state)
            if self.chance.random() < 0.2:
                self.try_kill()

    def try_state(self, state: MemoryVfs) -> None:
        assert self.oracle is not None
        self.checked += 1
        tally("crash states")
        if self.chance.random() < self.nested:
            state.before = lambda name, path: self.crash_during_recovery(state, name)
        store, found = self.oracle.check(state)
        state.before = lambda name, path: None
        if self.chance.random() < 0.3:
            self.go_on(store, state, found)

    def crash_during_recovery(self, state: MemoryVfs, name: str) -> None:
        assert self.oracle is not None
        if name in MUTATING:
            for second in state.crashes(self.chance, 1):
                self.oracle.check(second)

    def go_on(self, store: Store, state: MemoryVfs, found: tuple[dict[int, tuple[int, bytes, int]], object]) -> None:
        """Check that another recovery and further work give the same state, and that removed messages do not return."""
        again, second = self.oracle_check_exactly(state.crash(lambda index, total: False, 0))
        assert second == found
        key = again.high_key + 1
        for size in (self.chance.choice((0, 60, 700)), 16):
            again.insert(1, key, 0, bytes(size))
            found[0][key] = (1, bytes(size), 0)
            key += 1
            again.sync()
        power_lost = MemoryVfs.crash(again._vfs, lambda index, total: False, 0)  # type: ignore[arg-type]
        _, third = self.oracle_check_exactly(power_lost)
        assert third == found

    def oracle_check_exactly(self, vfs: MemoryVfs) -> tuple[Store, object]:
        store = Store.open(DIRECTORY, vfs=vfs, segment_size=SEGMENT, entropy=bytes)
        return store, snapshot(store)

    def try_kill(self) -> None:
        """Kill the process, let the next one answer from the data it read, then fail the power."""
        assert self.oracle is not None
        state = self.vfs.killed()
        store, found = self.oracle.check(state)
        for after in state.crashes(self.chance, 1):
            _, second = self.oracle_check_exactly(after)
            assert second == found, "what was answered after a restart is lost"
        self.go_on(store, state.crash(lambda index, total: False, 0), found)


def run(seed: int, steps: int, samples: int, nested: float = NESTED) -> int:
    chance = random.Random(seed)
    vfs = MemoryVfs()
    power = CrashPoints(vfs, random.Random(seed + 1000), samples, nested)
    vfs.before = power.before  # type: ignore[assignment]
    oracle = Oracle(Store.open(DIRECTORY, vfs=vfs, segment_size=SEGMENT, entropy=bytes), chance)
    power.oracle = oracle
    for _ in range(steps):
        oracle.step()
    oracle.sync()
    closing = len(oracle.history) - 1
    oracle.store.close()
    oracle.acknowledged = closing
    _, found = oracle.check(vfs)
    assert found == oracle.history[-1][0]
    return power.checked


@pytest.mark.parametrize("seed", by_night(several(20), 6))
def test_a_crash_at_any_call_loses_nothing_acknowledged_and_invents_nothing(seed: int) -> None:
    assert run(seed, steps=80, samples=1, nested=NESTED_BY_DAY) > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", several(60))
def test_a_crash_at_any_call_of_a_long_program(seed: int) -> None:
    run(seed, steps=250, samples=4)


def test_a_crash_while_the_store_is_made_leaves_a_store_that_opens() -> None:
    vfs = MemoryVfs()
    chance = random.Random(1)

    def before(name: str, path: str) -> None:
        if name in MUTATING:
            for state in vfs.crashes(chance, 3):
                store = Store.open(DIRECTORY, vfs=state, segment_size=SEGMENT, entropy=bytes)
                assert snapshot(store) == ({}, {})
                store.insert(1, 1, 0, b"x")
                store.close()

    vfs.before = before  # type: ignore[assignment]
    Store.open(DIRECTORY, vfs=vfs, segment_size=SEGMENT, entropy=bytes)


def test_what_a_recovery_has_erased_does_not_return_after_a_power_failure() -> None:
    """Frames of a torn write that reached the next segment would become valid when this one is full."""
    vfs = MemoryVfs()
    store = Store.open(DIRECTORY, vfs=vfs, segment_size=SEGMENT, entropy=bytes)
    store.insert(1, 1, 0, b"acknowledged")
    store.sync()
    places = store.append([Insert(1, key, 0, bytes(3000)) for key in (2, 3)])
    assert places[1] // SEGMENT == places[0] // SEGMENT + 1
    states: list[MemoryVfs] = []

    def before(name: str, path: str) -> None:
        if name == "fdatasync":
            states.append(vfs.crash(lambda index, total: True, len(vfs.changes)))

    vfs.before = before  # type: ignore[assignment]
    store.sync()
    state = states[-1]
    torn = state.names[f"{DIRECTORY}/{segment_name(places[0] // SEGMENT)}"]
    put(torn.content, places[0] % SEGMENT, bytes(SECTOR))
    torn.durable = torn.content[:]
    for dropped in (True, False):
        opened = Store.open(DIRECTORY, vfs=state, segment_size=SEGMENT, entropy=bytes)
        assert (opened.recovered.report.torn_bytes > 0) == dropped
        assert snapshot(opened)[0] == {1: (1, b"acknowledged", 0)}
        state = state.crash(lambda index, total: False, 0)


@pytest.mark.sources
@pytest.mark.parametrize("messages", [1, 30])
def test_a_crash_while_a_store_of_version_1_is_opened_loses_nothing(
    messages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The headers of the segments that will be appended to become those of version 2, and only these."""
    vfs, chance = MemoryVfs(), random.Random(messages)
    with monkeypatch.context() as patch:
        patch.setattr(frames, "VERSION", 1)
        patch.setattr(checkpoints, "VERSION", 1)
        store = Store.open(DIRECTORY, vfs=vfs, segment_size=SEGMENT, entropy=bytes)
        for key in range(1, messages + 1):
            store.insert(1, key, 0, bytes(600))
        store.close()
    before = versions(vfs)
    assert {version for copies in before.values() for version in copies} == {1}
    expected = snapshot(Store.open(DIRECTORY, vfs=vfs.killed(), segment_size=SEGMENT, entropy=bytes))
    assert len(expected[0]) == messages
    checked = 0

    def check(name: str, path: str) -> None:
        nonlocal checked
        if name in MUTATING:
            for state in vfs.crashes(chance, 3):
                assert snapshot(Store.open(DIRECTORY, vfs=state, segment_size=SEGMENT, entropy=bytes)) == expected
                checked += 1

    vfs.before = check  # type: ignore[assignment]
    assert snapshot(Store.open(DIRECTORY, vfs=vfs, segment_size=SEGMENT, entropy=bytes)) == expected
    vfs.before = lambda name, path: None
    upgraded = [name for name, copies in versions(vfs).items() if copies == [2, 2]]
    assert upgraded == sorted(before)[-len(upgraded) :] and 1 < len(upgraded) <= 1 + SPARES
    assert messages == 1 or len(upgraded) < len(before)
    assert all(copies == before[name] for name, copies in versions(vfs).items() if name not in upgraded)
    assert all(not inode.sectors() for inode in vfs.names.values()), "a header is not on the disk"
    assert checked >= 2 * 2 * len(upgraded)


def versions(vfs: MemoryVfs) -> dict[str, list[int]]:
    """Return the versions in both copies of the header of each segment."""
    found = {name: inode.content for name, inode in vfs.names.items() if "segment-" in name}
    return {name: [data[at + 8] for at in frames.HEADER_COPIES] for name, data in sorted(found.items())}
