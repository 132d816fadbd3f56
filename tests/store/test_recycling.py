"""Old bytes in recycled files, and payloads that look like frames, never count."""

from __future__ import annotations

import random
from array import array
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.store import QueueColumns, Store, StoreError
from openmsmq.store import frames as f
from openmsmq.store.columns import count_by_segment
from store.memory_vfs import MemoryVfs
from store.oracle import DIRECTORY, snapshot

SEGMENT = 8192


def open_store(vfs: MemoryVfs) -> Store:
    return Store.open(DIRECTORY, vfs=vfs, segment_size=SEGMENT, entropy=bytes)


def test_stale_bytes_of_recycled_segments_never_come_back() -> None:
    vfs = MemoryVfs()
    store = open_store(vfs)
    key = 0
    chance = random.Random(3)
    for _ in range(60):
        places = []
        for _ in range(20):
            key += 1
            places.append((key, store.insert(1, key, 0, key.to_bytes(4, "big") * 40)))
        store.sync()
        for gone, place in places:
            store.remove(gone, place)
            store.sync()
        assert len([path for path in vfs.names if "segment" in path]) <= 4
        for state in [*vfs.crashes(chance, 1), vfs.killed()]:
            again = open_store(state)
            assert snapshot(again) == ({}, {})
            assert again.high_key == key
    renames = [path for name, path in vfs.calls if name == "rename" and path.endswith(".tmp")]
    assert len(renames) > 10, "segments were recycled"


def test_a_large_write_that_was_lost_leaves_no_surplus_of_segments() -> None:
    vfs = MemoryVfs()
    store = open_store(vfs)
    store.sync()
    for key in range(1, 11):
        store.insert(1, key, 0, bytes(3900))  # never synced
    assert len([path for path in vfs.names if "segment" in path]) >= 6
    for state in vfs.crashes(random.Random(4), 20):
        again = open_store(state)
        kept = sorted(snapshot(again)[0])
        assert len([path for path in state.names if "segment" in path]) <= 3 + len(kept)
        places = [again.insert(1, key, 0, bytes([key]) * 3900) for key in range(21, 31)]
        again.sync()
        assert [again.read(place)[0] for place in places] == list(range(21, 31))
        assert sorted(snapshot(open_store(state.killed()))[0]) == [*kept, *range(21, 31)]


def test_a_payload_made_of_frames_is_only_a_payload() -> None:
    """This holds even for a payload with the right identity and location, after a gap."""
    vfs = MemoryVfs()
    store = open_store(vfs)
    stranger = f.Codec(b"another store!!!", SEGMENT)
    forged = b"".join(stranger.header(f.INSERT, f.ALONE, position, 0, b"", 666) for position in range(12288, 16384, 8))[
        :3000
    ]
    store.insert(1, 1, 0, forged)
    store.sync()
    store.insert(1, 2, 0, forged)
    for state in vfs.crashes(random.Random(1), 8):
        found = snapshot(open_store(state))[0]
        assert found[1][1] == forged
        assert 666 not in found


def test_recovery_gives_the_same_state_with_and_without_checkpoints() -> None:
    chance = random.Random(8)
    vfs = MemoryVfs()
    store = open_store(vfs)
    live: dict[int, int] = {}
    for key in range(1, 600):
        live[key] = store.insert(1, key, 0, bytes(100))
        if len(live) > 20:
            gone = chance.choice(sorted(live))
            store.remove(gone, live.pop(gone))
        if key % 10 == 0:
            store.sync()
            store.compact_step(
                lambda queue, k, deadline, place: live.get(k) == place,
                lambda queue, k, deadline, old, new: live.update({k: new}),
            )
        if key % 50 == 0:
            columns = QueueColumns()
            for k in sorted(live):
                columns.append(k, live[k], 100, 0)
            store.checkpoint({1: columns})
    columns = QueueColumns()
    for k in sorted(live):
        columns.append(k, live[k], 100, 0)
    store.checkpoint({1: columns})
    store.remove(599, live.pop(599))
    store.close()
    with_checkpoint = open_store(vfs)
    assert with_checkpoint.recovered.report.from_checkpoint
    expected = {key: live[key] for key in sorted(live)}
    columns = with_checkpoint.recovered.queues[1]
    assert dict(zip(columns.keys, columns.locations, strict=True)) == expected
    with_checkpoint.close()
    for name in ("checkpoint-0", "checkpoint-1"):
        vfs.unlink(f"{DIRECTORY}/{name}")
    without = open_store(vfs)
    columns = without.recovered.queues[1]
    assert dict(zip(columns.keys, columns.locations, strict=True)) == expected
    assert without.high_key == 599


def test_a_failing_newest_checkpoint_falls_back_to_the_older_one() -> None:
    vfs = MemoryVfs()
    store = open_store(vfs)
    columns = QueueColumns()
    for key in range(1, 4):
        columns.append(key, store.insert(1, key, 0, b"x"), 1, 0)
        store.checkpoint({1: columns})
    store.close()
    newest = max(
        (f"{DIRECTORY}/{name}" for name in store._checkpoints.positions),
        key=lambda path: store._checkpoints.positions[path.rpartition("/")[2]],
    )
    vfs.names[newest].content[50] ^= 1
    again = open_store(vfs)
    assert again.recovered.report.from_checkpoint
    assert len(again.recovered.report.damaged_checkpoints) == 1
    assert set(snapshot(again)[0]) == {1, 2, 3}


def test_a_checkpoint_is_not_put_in_force_before_the_log_is_durable_up_to_it() -> None:
    store = open_store(MemoryVfs())
    columns = QueueColumns()
    columns.append(1, store.insert(1, 1, 0, b"x"), 1, 0)
    job = store.capture_checkpoint({1: columns})
    job.write()
    with pytest.raises(StoreError, match="ahead"):
        store.finish_checkpoint(job)
    store.sync()
    store.finish_checkpoint(job)
    store.close()


@given(st.lists(st.integers(0, 20 * SEGMENT)), st.booleans())
def test_locations_are_counted_by_segment_in_any_order(locations: list[int], in_order: bool) -> None:
    locations = sorted(locations) if in_order else locations
    counted = Counter(location // SEGMENT for location in locations)
    assert count_by_segment(locations, SEGMENT) == count_by_segment(array("Q", locations), SEGMENT) == counted
