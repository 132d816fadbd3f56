"""Take-over of a store: the earlier owner changes nothing any more, wherever it was stopped and resumes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import seeds
from daemon import eventually
from openmsmq.admin.backup import back_up, restore
from openmsmq.store import DamagedStore, Store, StoreError, StoreFenced, StoreInUse, fsck
from openmsmq.store import ownership as owning
from openmsmq.store.ownership import StoreLocation, claim, current
from openmsmq.store.segments import SPARES, segment_name
from openmsmq.store.vfs import OsVfs
from store.memory_vfs import MemoryVfs
from store.oracle import DIRECTORY, Oracle, snapshot

SEGMENT = 8192
MUTATING = frozenset(("open", "pwrite", "fdatasync", "fsync_directory", "rename", "unlink"))
STEPS = 60


def open_store(vfs: MemoryVfs, *, take_over: bool = False) -> Store:
    return Store.open(DIRECTORY, vfs=vfs, segment_size=SEGMENT, entropy=bytes, take_over=take_over)


def contents(vfs: MemoryVfs) -> dict[str, bytes]:
    return {name: bytes(inode.content) for name, inode in vfs.names.items()}


def before_call(vfs: MemoryVfs, number: int, happens: Callable[[], object]) -> None:
    """Run something before the call with this number, counted from now."""
    left = number

    def before(name: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            vfs.before = lambda name, path: None
            happens()

    vfs.before = before  # type: ignore[assignment]


def program(vfs: MemoryVfs, seed: int) -> Oracle:
    return Oracle(open_store(vfs), random.Random(seed))


class TakeOver:
    """Takes over the store once; then the store keeps its content despite the earlier owner."""

    def __init__(self, vfs: MemoryVfs) -> None:
        self.vfs = vfs
        self.has_begun = False
        self.oracle: Oracle | None = None
        self.store: Store | None = None

    def __call__(self) -> None:
        self.has_begun = True
        if self.oracle is None:  # before the earlier owner opened it
            store, self.found = open_store(self.vfs, take_over=True), ({}, {})
        else:
            store, self.found = self.oracle.check(self.vfs, take_over=True)
        self.contents = contents(self.vfs)
        self.store = store

    def wait(self) -> None:
        """Wait: the call may come from the thread that prepares segments."""
        eventually(lambda: self.store is not None)

    def check(self) -> None:
        assert self.store is not None
        assert contents(self.vfs) == self.contents, "the earlier owner has written"
        if self.oracle is not None:
            told = self.oracle.history[self.oracle.acknowledged :]
            assert self.found in [state for state, _, _ in told], "it has acknowledged what the new owner does not have"
        self.store.insert(1, self.store.high_key + 1, 0, b"of the new owner")
        self.store.sync()
        messages, definitions = snapshot(open_store(self.vfs, take_over=True))
        assert messages.pop(self.store.high_key)[1] == b"of the new owner"
        assert (messages, definitions) == self.found


def send(store: Store) -> None:
    store.insert(1, store.high_key + 1, 0, b"late")
    store.sync()


def go_on(oracle: Oracle) -> None:
    for _ in range(STEPS):
        oracle.step()
    oracle.sync()
    oracle.store.close()


@pytest.mark.parametrize("seed", seeds.several(6))
def test_an_owner_that_stops_before_any_call_changes_nothing_after_a_take_over(seed: int) -> None:
    calls = MemoryVfs()
    oracle = program(calls, seed)
    opening = len(calls.calls)
    go_on(oracle)
    numbers = range(1, len(calls.calls) - opening)  # how many depends on the seed
    fenced = 0
    for number in random.Random(seed).sample(numbers, min(50, len(numbers))):
        vfs = MemoryVfs()
        oracle = program(vfs, seed)
        take = TakeOver(vfs)
        take.oracle = oracle
        before_call(vfs, number, take)
        try:
            go_on(oracle)
        except (StoreError, OSError) as error:  # OSError: names that it knows no longer exist
            fenced += isinstance(error, StoreFenced)
        if not take.has_begun:
            continue  # the thread that prepares segments has made fewer calls than the first time
        take.wait()
        with pytest.raises(StoreError):
            send(oracle.store)
        take.check()
    assert fenced > 5  # 19 to 50 of 50: others stop with OSError


def test_an_owner_that_stops_while_it_opens_the_store_changes_nothing_after_a_take_over() -> None:
    made = MemoryVfs()
    oracle = program(made, 1)
    for _ in range(STEPS):
        oracle.step()
    oracle.sync()
    torn = made.crash(lambda index, total: index % 2 == 0, 0)
    calls = torn.killed()
    open_store(calls)
    for number in range(1, len(calls.calls) + 1):
        vfs = torn.killed()
        take = TakeOver(vfs)
        take.oracle = oracle
        before_call(vfs, number, take)
        with pytest.raises((StoreError, OSError)):
            send(open_store(vfs))
        take.check()


def test_only_one_of_two_concurrent_take_overs_succeeds() -> None:
    made = MemoryVfs()
    oracle = program(made, 2)
    for _ in range(STEPS):
        oracle.step()
    oracle.sync()
    calls = made.killed()
    open_store(calls, take_over=True)
    for number in range(1, len(calls.calls) + 1):
        vfs = made.killed()
        take = TakeOver(vfs)
        take.oracle = oracle
        before_call(vfs, number, take)
        try:
            send(open_store(vfs, take_over=True))
        except (StoreError, OSError):
            take.check()
        else:  # it began only after the other one had finished, and took the store from it
            assert take.store is not None
            with pytest.raises(StoreFenced):
                send(take.store)


@pytest.mark.parametrize("seed", seeds.several(6))
def test_a_crash_at_any_call_of_a_take_over_loses_nothing(seed: int) -> None:
    chance = random.Random(seed)
    made = MemoryVfs()
    oracle = program(made, seed)
    for _ in range(STEPS):
        oracle.step()
    vfs = made.killed()
    tried = 0

    def before(name: str, path: str) -> None:
        nonlocal tried
        if name in MUTATING:
            for state in [*vfs.crashes(chance, 1), vfs.killed()]:
                store, found = oracle.check(state, take_over=chance.random() < 0.5)
                store.insert(1, store.high_key + 1, 0, b"on it goes")
                store.sync()
                again = snapshot(open_store(state, take_over=True))
                assert again[0].pop(store.high_key)[1] == b"on it goes"
                assert again == found
                tried += 1

    vfs.before = before  # type: ignore[assignment]
    open_store(vfs, take_over=True)
    assert tried > 50


def test_a_take_over_that_was_not_finished_is_finished_by_the_next_start() -> None:
    vfs = MemoryVfs()
    store = open_store(vfs)
    store.insert(1, 1, 0, b"kept")
    store.sync()
    vfs.rename(DIRECTORY, f"{DIRECTORY}.epoch-1.unfinished")
    again = open_store(vfs.killed())
    assert (again.epoch, again.directory) == (2, f"{DIRECTORY}.epoch-2")
    assert snapshot(again)[0][1][1] == b"kept"


# -- on files --------------------------------------------------------------------------------------------------------


def test_the_epoch_counts_take_overs_and_an_ordinary_start_keeps_it(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    first = Store.open(directory)
    with pytest.raises(StoreInUse):
        Store.open(directory)
    assert (first.epoch, first.directory) == (0, str(directory))
    second = Store.open(directory, take_over=True)
    assert (second.epoch, second.directory) == (1, f"{directory}.epoch-1")
    assert not directory.exists()
    with pytest.raises(StoreInUse):
        Store.open(directory)
    second.close()
    third = Store.open(directory)
    assert (third.epoch, third.recovered.report.torn_bytes) == (1, 0)
    third.close()
    assert Store.open(directory, take_over=True).epoch == 2


def test_a_fenced_owner_reports_it_each_time(tmp_path: Path) -> None:
    old = Store.open(tmp_path / "store")
    old.check_owner()
    old.insert(1, 1, 0, b"never acknowledged")
    Store.open(tmp_path / "store", take_over=True).close()
    for attempt in (old.sync, old.sync, lambda: old.insert(1, 2, 0, b""), old.check_owner):
        with pytest.raises(
            StoreFenced, match=r"another daemon has taken this store over \(the epoch here was 0\)"
        ) as raised:
            attempt()
    assert str(tmp_path / "store") in str(raised.value)
    old.close()


@pytest.mark.sources
def test_an_owner_checks_again_after_a_millisecond(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(owning, "_now", lambda: now)
    old = Store.open(tmp_path / "store")
    old.check_owner()
    Store.open(tmp_path / "store", take_over=True).close()
    old.check_owner()
    now += 2 * owning.FRESH
    with pytest.raises(StoreFenced):
        old.check_owner()


@pytest.mark.sources
def test_a_store_recreated_under_the_same_name_is_another_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Store.open(tmp_path / "store")
    old.check_owner()
    (tmp_path / "store").rename(tmp_path / "away")
    Store.open(tmp_path / "store").close()
    monkeypatch.setattr(owning, "_now", lambda: time.clock_gettime(time.CLOCK_BOOTTIME) + 2 * owning.IDENTIFIED)
    with pytest.raises(StoreFenced):
        old.check_owner()


def test_files_held_open_by_an_earlier_owner_are_not_read_again(tmp_path: Path) -> None:
    """Files that it is writing stay its own; completed files are moved, not copied."""
    old = Store.open(tmp_path / "store", segment_size=SEGMENT)
    for key in range(1, 40):
        old.insert(1, key, 0, bytes(700))
        old.sync()
    before = {path.name: path.stat().st_ino for path in (tmp_path / "store").iterdir()}
    tail = max(name for name in before if name.startswith("segment"))
    with (tmp_path / "store" / f"{tail}.tmp").open("wb") as half_made:
        claim(OsVfs(), str(tmp_path / "store"), take_over=True).release()
        half_made.write(b"late")
    after = {path.name: path.stat().st_ino for path in (tmp_path / "store.epoch-1").iterdir()}
    segments = sorted(name for name in after if name.startswith("segment"))
    assert len(segments) > 3
    assert all(after[name] == before[name] for name in segments[:-1])
    assert after[segments[-1]] != before[segments[-1]]
    assert after["lock"] != before["lock"]
    assert not [name for name in after if name.endswith(".tmp")]
    assert not (tmp_path / "store.epoch-1" / segments[-1]).read_bytes().startswith(b"late")


def test_damage_is_found_after_a_take_over_as_before_it(tmp_path: Path) -> None:
    """The segments after the damage are not mistaken for prepared ones."""
    old = Store.open(tmp_path / "store", segment_size=SEGMENT)
    for key in range(1, 40):
        old.insert(1, key, 0, bytes(700))
        old.sync()
    full = tmp_path / "store" / segment_name(old.end // SEGMENT - 1)
    with full.open("r+b") as file:
        file.seek(5000)
        file.write(b"damaged")
    before = sorted(path.name for path in (tmp_path / "store").glob("segment-*"))
    with pytest.raises(DamagedStore) as raised:
        Store.open(tmp_path / "store", take_over=True)
    assert raised.value.path == f"{tmp_path}/store.epoch-1/{full.name}"
    after = sorted(path.name for path in (tmp_path / "store.epoch-1").glob("segment-*"))
    assert after == before[: len(after)]
    assert len(after) >= len(before) - SPARES


def test_unrelated_directories_next_to_a_store_are_left_alone(tmp_path: Path) -> None:
    for name in ("store.epoch-", "store.epoch-x", "store.epoch-1.old", "store.epoch-٣", "stores"):
        (tmp_path / name).mkdir()
    assert current(OsVfs(), str(tmp_path / "store")) is None
    (tmp_path / "store.epoch-2.unfinished").mkdir()
    (tmp_path / "store.epoch-1").mkdir()
    assert current(OsVfs(), str(tmp_path / "store")) == StoreLocation(f"{tmp_path}/store.epoch-2.unfinished", 2, True)


def test_commands_find_a_store_that_was_taken_over(tmp_path: Path) -> None:
    data = tmp_path / "data"
    Store.open(data / "store").close()
    store = Store.open(data / "store", take_over=True)
    store.insert(1, 1, 0, b"kept")
    store.sync()
    assert back_up(data, tmp_path / "backup", "now").messages == 1
    with pytest.raises(StoreInUse):
        fsck.verify(str(data / "store"))
    store.close()
    assert fsck.verify(str(data / "store")).messages == 1
    assert fsck.repair(str(data / "store"), str(tmp_path / "quarantine")).after.clean
    restore(tmp_path / "backup", tmp_path / "restored")
    assert snapshot(Store.open(tmp_path / "restored" / "store"))[0][1][1] == b"kept"
    assert sorted(path.name for path in (tmp_path / "restored").iterdir()) == ["restored", "store"]
