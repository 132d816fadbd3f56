"""Guarantees of the store to its caller, on real files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from openmsmq.store import (
    DamagedRecord,
    Drop,
    Insert,
    Move,
    OsVfs,
    Put,
    RecordTooLarge,
    Remove,
    RemoveMany,
    Store,
    StoreFailed,
    StoreInUse,
    checkpoints,
)
from openmsmq.store.frames import HEADER_SIZE, MOST_REMOVALS
from store.memory_vfs import MemoryVfs
from store.oracle import snapshot

SMALL = 16384


def contents(store: Store) -> dict[int, dict[int, bytes]]:
    """Return recovered messages by queue and key."""
    return {
        queue: {key: store.read(location) for key, location in zip(columns.keys, columns.locations, strict=True)}
        for queue, columns in store.recovered.queues.items()
    }


def test_a_synced_message_is_there_after_reopening(tmp_path: Path) -> None:
    store = Store.open(tmp_path, segment_size=SMALL)
    location = store.insert(7, 1, 99, b"hello")
    assert store.read(location) == b"hello"
    store.sync()
    assert store.read(location) == b"hello"
    assert store.durable_end == store.end
    store.close()
    again = Store.open(tmp_path)
    assert contents(again) == {7: {1: b"hello"}}
    assert list(again.recovered.queues[7].deadlines) == [99]
    assert list(again.recovered.queues[7].sizes) == [5]
    again.close()


def test_removed_and_moved_messages_and_definitions_survive(tmp_path: Path) -> None:
    store = Store.open(tmp_path, segment_size=SMALL)
    a, b, c = store.append([Insert(1, 1, 0, b"a"), Insert(1, 2, 0, b"b"), Insert(1, 3, 0, b"c" * 100)])
    store.append([Put(b"queue", b"one"), Put(b"other", b"two")])
    store.append([Remove(1, a), Move(2, b, 5, 10, 4), Move(3, c, 5, 3, 0), Drop(b"other"), Put(b"queue", b"three")])
    store.close()
    again = Store.open(tmp_path)
    assert contents(again) == {5: {10: b"b", 3: b"c" * 100}}
    assert again.recovered.definitions == {b"queue": b"three"}
    assert again.high_key == 10
    again.close()


def test_a_transaction_counts_when_it_commits_and_only_then(tmp_path: Path) -> None:
    store = Store.open(tmp_path, segment_size=SMALL)
    (kept,) = store.append([Insert(1, 1, 0, b"kept")])
    store.append_pending(5, [Insert(1, 2, 0, b"x"), Insert(2, 3, 0, b"y")])
    store.append_pending(6, [Insert(1, 4, 0, b"aborted")])
    store.append_pending(7, [Insert(1, 5, 0, b"open")])
    store.commit(5, [Remove(1, kept), Insert(3, 6, 0, b"z")])
    store.abort(6)
    store.close()
    again = Store.open(tmp_path)
    assert contents(again) == {1: {2: b"x"}, 2: {3: b"y"}, 3: {6: b"z"}}
    assert again.recovered.report.dropped_transactions
    again.commit(7)
    again.close()
    third = Store.open(tmp_path)
    assert contents(third) == {1: {2: b"x"}, 2: {3: b"y"}, 3: {6: b"z"}}
    third.close()


def test_numbers_are_never_given_out_again(tmp_path: Path) -> None:
    store = Store.open(tmp_path, segment_size=SMALL)
    store.reserve(65536)
    store.close()
    again = Store.open(tmp_path)
    assert again.recovered.high_key == 65536
    again.close()


def test_messages_spread_over_many_segments_come_back(tmp_path: Path) -> None:
    store = Store.open(tmp_path, segment_size=SMALL)
    for key in range(1, 200):
        store.insert(key % 3, key, 0, bytes([key]) * (key * 7))
        if key % 10 == 0:
            store.sync()
    store.close()
    again = Store.open(tmp_path)
    assert contents(again) == {
        queue: {key: bytes([key]) * (key * 7) for key in range(1, 200) if key % 3 == queue} for queue in range(3)
    }
    again.close()


def test_a_checkpoint_gives_the_same_state_as_the_log(tmp_path: Path) -> None:
    store = Store.open(tmp_path, segment_size=SMALL)
    locations = {key: store.insert(key % 2, key, 0, b"payload" * 20) for key in range(1, 100)}
    store.append([Put(b"n", b"v"), *[Remove(key, locations[key]) for key in range(1, 30)]])
    store.append_pending(9, [Insert(1, 200, 3, b"late")])
    store.close()
    store = Store.open(tmp_path)
    store.append_pending(9, [Insert(1, 201, 3, b"late")])
    store.checkpoint(store.recovered.queues)
    (place,) = store.commit(9, [Insert(0, 202, 0, b"after"), Remove(31, locations[31])])
    store.append([Remove(202, place)])
    store.close()
    fast = Store.open(tmp_path)
    assert fast.recovered.report.from_checkpoint
    state = contents(fast)
    assert 201 in state[1]
    assert 202 not in state[0]
    assert 31 not in state[1]
    fast.close()
    for name in ("checkpoint-0", "checkpoint-1"):
        (tmp_path / name).unlink(missing_ok=True)
    slow = Store.open(tmp_path)
    assert not slow.recovered.report.from_checkpoint
    assert contents(slow) == state
    assert slow.recovered.definitions == {b"n": b"v"}
    assert slow.recovered.high_key == fast.recovered.high_key == 202
    slow.close()


def test_a_drained_store_keeps_three_segments(tmp_path: Path) -> None:
    store = Store.open(tmp_path, segment_size=SMALL)
    places = {key: store.insert(1, key, 0, bytes(1000)) for key in range(1, 200)}
    store.sync()
    assert len(list(tmp_path.glob("segment-*"))) > 12
    for key, location in places.items():
        store.append([Remove(key, location)])
    store.sync()
    assert len(list(tmp_path.glob("segment-*"))) <= 3
    store.close()
    again = Store.open(tmp_path)
    assert contents(again) == {}
    assert again.high_key == 199
    again.close()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    store = Store.open(tmp_path, segment_size=SMALL)
    program = (
        "import sys\nfrom openmsmq.store import Store, StoreInUse\n"
        "try:\n    Store.open(sys.argv[1])\nexcept StoreInUse as error:\n    print('refused:', error)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.startswith("refused:")
    with pytest.raises(StoreInUse):
        Store.open(tmp_path)
    store.close()
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""


def test_a_payload_that_no_segment_can_hold_is_refused(tmp_path: Path) -> None:
    store = Store.open(tmp_path, segment_size=SMALL)
    with pytest.raises(RecordTooLarge):
        store.append([Insert(1, 1, 0, b"fits"), Insert(1, 2, 0, bytes(SMALL))])
    largest = bytes(store.largest_payload)
    location = store.insert(1, 3, 0, largest)
    store.sync()
    assert store.read(location) == largest
    store.close()
    again = Store.open(tmp_path)
    assert contents(again) == {1: {3: largest}}
    again.close()


def test_reading_at_a_location_without_message_is_an_error(tmp_path: Path) -> None:
    store = Store.open(tmp_path, segment_size=SMALL)
    location = store.insert(1, 1, 0, b"x")
    store.sync()
    for wrong in (0, location + 8, location - 48, 1 << 60):
        with pytest.raises(DamagedRecord):
            store.read(wrong)
    store.close()
    with pytest.raises(StoreFailed):
        store.insert(1, 2, 0, b"closed")


def test_a_clean_reopen_writes_no_frames(tmp_path: Path) -> None:
    store = Store.open(tmp_path, segment_size=SMALL)
    store.insert(1, 1, 0, b"x")
    store.close()
    again = Store.open(tmp_path)
    position = again.end
    again.close()
    third = Store.open(tmp_path, vfs=OsVfs())
    assert third.end == position
    third.close()


def test_old_messages_do_not_pin_the_log(tmp_path: Path) -> None:
    store = Store.open(tmp_path, segment_size=SMALL)
    store.append([Put(b"definition", b"value" * 10)])
    index: dict[int, int] = {}
    store.append_pending(3, [Insert(9, 1000, 5, b"pending")])
    for key in range(1, 400):
        index[key] = store.insert(1, key, key, bytes([key & 255]) * 1000)
        if key % 7 == 0:
            store.sync()
    for key in [key for key in index if key % 40]:
        store.append([Remove(key, index.pop(key))])
    store.sync()
    late: list[int] = []

    def relocated(queue: int, key: int, deadline: int, old: int, new: int) -> None:
        if key == 1000:
            late.append(new)
        else:
            assert index[key] == old
            index[key] = new

    for _ in range(500):
        still_there = lambda queue, key, deadline, location: index.get(key) == location  # noqa: E731
        if not store.compact_step(still_there, relocated, budget=3000):
            break
        store.sync()
    store.sync()
    assert late
    assert len(list(tmp_path.glob("segment-*"))) <= 6
    for key, location in index.items():
        assert store.read(location) == bytes([key & 255]) * 1000
    store.commit(3)
    assert store.read(late[-1]) == b"pending"
    store.close()
    again = Store.open(tmp_path)
    assert contents(again) == {1: {key: bytes([key & 255]) * 1000 for key in index}, 9: {1000: b"pending"}}
    assert again.definitions == {b"definition": b"value" * 10}
    assert dict(zip(again.recovered.queues[1].keys, again.recovered.queues[1].locations, strict=True)) == index
    again.close()


def test_the_bytes_written_to_a_segment_are_known_after_a_restart(tmp_path: Path) -> None:
    """Compaction uses this number; single frames and those of transactions count alike."""
    store = Store.open(tmp_path, segment_size=SMALL)
    places = {key: store.insert(1, key, 0, b"m" * 100) for key in range(1, 11)}
    store.append_pending(3, [Insert(1, key, 0, b"p" * 50) for key in range(11, 15)])
    store.commit(3)
    store.append([Put(b"definition", b"value")])
    for key in range(2, 11):
        store.append([Remove(key, places[key])])
    store.sync()
    before = {number: (each.live, each.ever, each.volume) for number, each in store._books.segments.items()}
    assert before == {1: (6, 15, 10 * 100 + 4 * 50 + 4 + len(b"definition") + len(b"value"))}
    share = store._books.live_share
    assert share == pytest.approx(6 * (HEADER_SIZE + before[1][2] / 15) / SMALL)
    store.close()
    again = Store.open(tmp_path)
    assert {number: (s.live, s.ever, s.volume) for number, s in again._books.segments.items()} == before
    assert again._books.live_share == share
    again.close()


def test_many_messages_are_removed_together_from_any_segment(tmp_path: Path) -> None:
    """More than fit in one frame, some of them relocated since the caller learned their locations."""
    store = Store.open(tmp_path, segment_size=SMALL)
    count = 3 * MOST_REMOVALS + 5
    places = {key: store.insert(1, key, 0, bytes(40)) for key in range(1, count + 1)}
    store.sync()
    moved = store.append([Move(key, places[key], 2, key, 0) for key in (1, 7, count)])
    store.append([RemoveMany(range(1, count), [places[key] for key in range(1, count)]), Put(b"cursor", b"here")])
    store.close()
    store = Store.open(tmp_path)
    assert snapshot(store) == ({count: (2, bytes(40), 0)}, {b"cursor": b"here"})
    store.append([RemoveMany([count], [moved[2]])])
    store.sync()
    while store.compact_step(lambda *_: False, lambda *_: None, thorough=True):
        store.sync()
    assert len(list(tmp_path.glob("segment-*"))) <= 5, "the segments know that nobody needs them"
    store.close()


def test_definitions_do_not_keep_a_drained_store_large(tmp_path: Path) -> None:
    store = Store.open(tmp_path, segment_size=SMALL)
    store.append([Put(b"definition", b"value" * 10)])
    for key in range(1, 300):
        place = store.insert(1, key, 0, bytes(1000))
        store.sync()
        store.remove(key, place)
        store.sync()
        while store.compact_step(lambda queue, key, deadline, location: False, lambda *moved: None):
            store.sync()
        assert len(list(tmp_path.glob("segment-*"))) <= 5
    while store.compact_step(lambda queue, key, deadline, location: False, lambda *moved: None, thorough=True):
        store.sync()
    store.sync()
    assert len(list(tmp_path.glob("segment-*"))) <= 3
    store.close()
    again = Store.open(tmp_path)
    assert again.definitions == {b"definition": b"value" * 10}
    again.close()


def test_a_prepared_transaction_survives_restarts_until_it_ends(tmp_path: Path) -> None:
    store = Store.open(tmp_path, segment_size=SMALL)
    (kept,) = store.append([Insert(1, 1, 0, b"to be removed")])
    store.append_pending(5, [Insert(2, 2, 7, b"pending")])
    store.prepare(5, b"removes 1")
    store.append_pending(6, [Insert(2, 3, 0, b"not prepared")])
    store.close()
    for _ in range(2):
        store = Store.open(tmp_path)
        assert contents(store) == {1: {1: b"to be removed"}}
        assert list(store.recovered.prepared) == [5]
        found = store.recovered.prepared[5]
        assert found.note == b"removes 1"
        assert store.read(found.queues[2].locations[0]) == b"pending"
        store.checkpoint(store.recovered.queues)
        store.close()
    store = Store.open(tmp_path)
    store.commit(5, [Remove(1, kept)])
    store.close()
    store = Store.open(tmp_path)
    assert contents(store) == {2: {2: b"pending"}}
    assert not store.recovered.prepared
    store.close()


def test_a_store_that_is_closed_has_no_file_open() -> None:
    vfs = MemoryVfs()
    store = Store.open("/store", vfs=vfs, segment_size=1 << 16)
    for number in range(300):
        store.append([Insert(1, number + 1, 0, b"x" * 1000)])
    store.sync()
    held = set(vfs.handles)
    store.checkpoint({})
    assert set(vfs.handles) <= held, "the checkpoint has its own file"
    store.close()
    assert not vfs.handles and not vfs.locks


def test_a_checkpoint_is_written_in_pieces_of_a_mebibyte() -> None:
    """So no write occupies the disk for long, even for large columns."""
    mebibyte = 1 << 20
    pieces = [bytes(10), bytes(3 * mebibyte), bytes(mebibyte), bytes(5)]
    written = [len(part) for part in checkpoints._slices(pieces)]
    assert sum(written) == 4 * mebibyte + 15 and max(written) <= mebibyte + 10
    assert [len(part) for part in checkpoints._slices([bytes(2 * mebibyte)])] == [mebibyte, mebibyte]


def test_a_synced_directory_is_closed(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        OsVfs().fsync_directory(str(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == before
