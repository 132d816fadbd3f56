"""Faults on the Nth call: a clear error, nothing partially applied, no acknowledged data missing (I2, I4)."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from openmsmq.store import Insert, Remove, Store, StoreFailed, StoreFull
from store.memory_vfs import MemoryVfs
from store.oracle import DIRECTORY, Oracle, snapshot
from tallies import tally

SEGMENT = 8192


def open_store(vfs: MemoryVfs) -> Store:
    return Store.open(DIRECTORY, vfs=vfs, segment_size=SEGMENT, entropy=bytes)


def fail_at(call: int, kinds: set[str], error: int, lasting: bool = False) -> Callable[[str, str], str | None]:
    """Fail only the Nth call of these kinds; if `lasting`, all later calls too."""
    seen = 0

    def before(name: str, path: str) -> str | None:
        nonlocal seen
        if name in kinds:
            seen += 1
            if seen == call or (lasting and seen > call):
                raise OSError(error, "injected", path)
        return None

    return before


FAULTS = [
    ({"pwrite"}, errno.EIO),
    ({"pwrite"}, errno.ENOSPC),
    ({"fdatasync"}, errno.EIO),
    ({"fsync_directory"}, errno.EIO),
    ({"open"}, errno.EMFILE),
    ({"open"}, errno.ENOSPC),
    ({"rename", "unlink"}, errno.EIO),
    ({"pread"}, errno.EIO),
    ({"listdir"}, errno.EIO),
]


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize(("kinds", "error"), FAULTS, ids=[f"{min(names)}-{error}" for names, error in FAULTS])
def test_a_fault_at_any_call_never_loses_acknowledged_data(kinds: set[str], error: int, lasting: bool) -> None:
    for call in range(1, 60):
        tally("failed calls")
        vfs = MemoryVfs()
        vfs.before = fail_at(call, kinds, error, lasting)
        try:
            store = open_store(vfs)
        except (OSError, StoreFull):
            vfs.before = lambda name, path: None
            vfs.handles.clear()
            assert not vfs.locks, "the lock stays behind"
            open_store(vfs).close()
            continue
        oracle = Oracle(store, random.Random(call))
        failed = False
        for _ in range(40):
            try:
                oracle.step()
            except StoreFailed:
                failed = True
                break
            except StoreFull:
                break  # the model is ahead; the states before and after are both in its history
            except OSError:
                break
        if failed:
            with pytest.raises(StoreFailed):
                store.sync()
            with pytest.raises(StoreFailed):
                store.insert(1, 10**6, 0, b"")
            oracle.store.close()
        vfs.before = lambda name, path: None
        for state in [vfs.killed(), *vfs.crashes(random.Random(call), 1)]:
            again, found = oracle.check(state)
            again.close()
            assert snapshot(open_store(state)) == found


def test_after_a_failed_sync_nothing_is_accepted_and_no_sync_is_tried_again() -> None:
    vfs = MemoryVfs()
    store = open_store(vfs)
    store.insert(1, 1, 0, b"x")
    vfs.before = fail_at(1, {"fdatasync"}, errno.EIO)
    with pytest.raises(StoreFailed, match="injected"):
        store.sync()
    vfs.calls.clear()
    with pytest.raises(StoreFailed):
        store.sync()
    with pytest.raises(StoreFailed):
        store.append([Insert(1, 2, 0, b"y")])
    with pytest.raises(StoreFailed):
        store.remove(1, 1)
    assert store.durable_end < store.end
    store.close()
    assert not [name for name, _ in vfs.calls if name in ("fdatasync", "pwrite")]


def test_short_writes_are_continued() -> None:
    vfs = MemoryVfs()
    store = open_store(vfs)
    vfs.before = lambda name, path: "short" if name == "pwrite" else None
    for key in range(1, 30):
        store.insert(1, key, 0, bytes([key]) * 700)
        store.sync()
    store.close()
    vfs.before = lambda name, path: None
    assert snapshot(open_store(vfs))[0] == {key: (1, bytes([key]) * 700, 0) for key in range(1, 30)}


def test_on_a_full_disk_inserts_are_refused_whole_and_removals_make_room() -> None:
    vfs = MemoryVfs()
    capacity = 12

    def before(name: str, path: str) -> None:
        files = sum("segment" in file for file in vfs.names)
        if name == "open" and path.endswith(".tmp") and path not in vfs.names and files >= capacity:
            raise OSError(errno.ENOSPC, "no space left", path)

    vfs.before = before  # type: ignore[assignment]
    store = open_store(vfs)
    places: dict[int, int] = {}
    key = 1
    while True:
        position = store.end
        try:
            batch = [Insert(1, key, 0, bytes(500)), Insert(2, key + 1, 0, bytes(500))]
            places[key], places[key + 1] = store.append(batch)
        except StoreFull:
            assert store.end == position
            break
        store.sync()
        key += 2
    for gone in range(1, key):
        store.append([Remove(gone, places.pop(gone))])
        store.sync()
    assert not places
    for again in range(key, key + 20):
        places[again] = store.insert(3, again, 0, bytes(500))
        store.sync()
    store.close()
    assert set(snapshot(open_store(vfs))[0]) == set(places)


@pytest.mark.parametrize("failing", ["open", "pwrite", "fdatasync"])
def test_a_checkpoint_that_cannot_be_written_leaves_the_store_usable(failing: str) -> None:
    vfs = MemoryVfs()
    store = open_store(vfs)
    store.insert(1, 1, 0, b"x")
    store.sync()
    held = set(vfs.handles)
    vfs.before = lambda name, path: fail(name == failing and "checkpoint" in path)
    with pytest.raises(OSError, match="injected"):
        store.checkpoint({})
    vfs.before = lambda name, path: None
    assert set(vfs.handles) == held
    store.insert(1, 2, 0, b"y")
    store.close()
    assert set(snapshot(open_store(vfs))[0]) == {1, 2}


def fail(condition: bool) -> None:
    if condition:
        raise OSError(errno.ENOSPC, "injected")
