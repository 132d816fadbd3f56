"""Bit flips and truncation at every byte are detected and quarantined, and nothing else is lost."""

from __future__ import annotations

import os
import random
from array import array
from collections.abc import Callable
from functools import cache

import pytest

from openmsmq.store import (
    DamagedRecord,
    DamagedStore,
    Drop,
    Insert,
    Put,
    Remove,
    RemoveMany,
    Store,
    StoreError,
    UnknownFormat,
)
from openmsmq.store import frames as f
from openmsmq.store.fsck import read_quarantine, repair, verify
from openmsmq.store.recovery import Damage, survey
from openmsmq.store.row_frames import MessageRows
from store.memory_vfs import Inode, MemoryVfs
from store.oracle import DIRECTORY, Oracle, Snapshot, snapshot

SEGMENT = 8192
PATH = f"{DIRECTORY}/segment-0000000000000001"
QUARANTINE = "/quarantine"
CODEC = f.Codec(bytes(16), SEGMENT)

Frame = tuple[f.Fields, bytes]


def make_store(vfs: MemoryVfs, checkpoint: bool = False) -> None:
    """Create a small store with every kind of frame, closed cleanly."""
    store = Store.open(DIRECTORY, vfs=vfs, segment_size=SEGMENT, entropy=bytes)
    first = store.insert(1, 1, 5, b"first message")
    store.sync()
    store.append([Insert(1, 2, 0, b"second"), Put(b"queue", b"old"), Insert(2, 3, 0, b"third" * 5)])
    store.append([Put(b"gone", b"x")])
    store.sync()
    store.append_pending(4, [Insert(1, 4, 0, b"pending"), Insert(3, 5, 0, b"")])
    store.append_pending(5, [Insert(1, 6, 0, b"aborted")])
    store.sync()
    store.reserve(1000)
    store.append([Remove(1, first)])
    store.commit(4, [Insert(2, 7, 0, b"with the commit"), Put(b"queue", b"new"), Drop(b"gone")])
    store.abort(5)
    store.sync()
    gone = [store.insert(2, key, 0, b"gone") for key in (8, 9)]
    store.append([RemoveMany([8, 9], gone)])
    store.sync()
    store.insert(2, 10, 0, b"last")
    store.close()
    if checkpoint:
        store = Store.open(DIRECTORY, vfs=vfs)
        store.checkpoint(store.recovered.queues)
        store.insert(2, 11, 0, b"after the checkpoint")
        store.close()


@cache
def image(checkpoint: bool = False) -> dict[str, bytes]:
    vfs = MemoryVfs()
    make_store(vfs, checkpoint)
    return {path: bytes(inode.content) for path, inode in vfs.names.items()}


def disk(files: dict[str, bytes]) -> MemoryVfs:
    vfs = MemoryVfs()
    vfs.names = {path: Inode(bytearray(data), bytearray(data)) for path, data in files.items()}
    vfs.durable_names = dict(vfs.names)
    return vfs


def log_frames(data: bytes) -> list[Frame]:
    start = SEGMENT
    return [
        (fields, data[fields[2] - start + f.HEADER_SIZE : fields[2] - start + f.HEADER_SIZE + fields[1]])
        for fields in CODEC.walk(data, f.FRAMES_START, start)
    ]


def without(frames: list[Frame], lost: int) -> Snapshot:
    """Return the state if one frame is lost, by a simple separate implementation."""
    messages: dict[int, tuple[int, bytes, int]] = {}
    definitions: dict[bytes, bytes] = {}
    pending: dict[int, dict[int, tuple[int, bytes, int]]] = {}
    for index, (fields, payload) in enumerate(frames):
        _, _, _, key, extra, queue, transaction, _, kind, _, _ = fields
        if index == lost:
            continue
        if kind == f.INSERT:
            messages[key] = (queue, payload, extra)
        elif kind == f.REMOVE:
            messages.pop(key, None)
        elif kind == f.REMOVE_MANY:
            for gone in f.unpack_removals(payload)[0]:
                messages.pop(gone, None)
        elif kind == f.PUT:
            name, value = f.unpack_definition(payload)
            definitions[name] = value
        elif kind == f.DROP:
            definitions.pop(payload, None)
        elif kind == f.PENDING:
            pending.setdefault(transaction, {})[key] = (queue, payload, extra)
        elif kind == f.COMMIT:
            messages.update(pending.pop(transaction, {}))
        elif kind == f.ABORT:
            pending.pop(transaction, None)
    return messages, definitions


def reopen(vfs: MemoryVfs) -> Snapshot:
    store = Store.open(DIRECTORY, vfs=vfs)
    found = snapshot(store)
    assert store.high_key >= 1000
    store.close()
    return found


def end_of_log(data: bytes) -> int:
    last = log_frames(data)[-1][0]
    return last[2] - SEGMENT + f.frame_size(last[1])


def frame_at(frames: list[Frame], offset: int) -> int:
    """Return the index of the frame at an offset; -1 for padding."""
    for index, (fields, _) in enumerate(frames):
        start = fields[2] - SEGMENT
        if start <= offset < start + f.frame_size(fields[1]):
            return index if offset < start + f.HEADER_SIZE + fields[1] else -1
    raise AssertionError(offset)


def test_every_flipped_byte_is_detected_and_only_its_record_is_lost() -> None:
    data = image()[PATH]
    frames = log_frames(data)
    assert {fields[8] for fields, _ in frames} == f.KINDS - {f.SEAL, f.SKIP, f.STARTED, f.PREPARE}
    intact = without(frames, -1)
    chance = random.Random(5)
    for offset in range(f.FRAMES_START, end_of_log(data)):
        broken = bytearray(data)
        broken[offset] ^= 1 << chance.randrange(8)
        files = {**image(), PATH: bytes(broken)}
        index = frame_at(frames, offset)
        if index < 0 or index == len(frames) - 1:  # padding, or the clean-end mark
            assert reopen(disk(files)) == intact
            continue
        vfs = disk(files)
        with pytest.raises(DamagedStore) as caught:
            Store.open(DIRECTORY, vfs=vfs)
        start = frames[index][0][2] - SEGMENT
        assert (caught.value.path, caught.value.offset) == (PATH, start)
        report = verify(DIRECTORY, vfs)
        assert [(d.path, d.offset) for d in report.damages] == [(PATH, start)]
        messages, definitions = without(frames, index)
        assert (report.messages, report.definitions, report.records) == (
            len(messages), len(definitions), len(frames) - 1,
        )  # fmt: skip
        repaired = repair(DIRECTORY, QUARANTINE, vfs)
        assert repaired.after.clean
        (cover,) = [fields for fields, _ in log_frames(bytes(vfs.names[PATH].content)) if fields[8] == f.SKIP]
        assert (cover[2] - SEGMENT, cover[7], cover[9]) == (start, 0, f.ALONE), "a write of its own"
        ((path, at, raw),) = read_quarantine(bytes(vfs.names[QUARANTINE].content))
        assert (path, at) == (PATH, start)
        size = f.frame_size(frames[index][0][1])
        assert raw.ljust(size, b"\0") == bytes(broken[start : start + size])
        assert reopen(vfs) == without(frames, index)


def test_a_damaged_header_copy_loses_nothing_and_is_repaired() -> None:
    for copy in f.HEADER_COPIES:
        broken = bytearray(image()[PATH])
        broken[copy + 3] ^= 4
        vfs = disk({**image(), PATH: bytes(broken)})
        assert verify(DIRECTORY, vfs).weak
        assert reopen(vfs) == without(log_frames(image()[PATH]), -1)
        assert repair(DIRECTORY, QUARANTINE, vfs).after.clean
        assert not vfs.handles and bytes(vfs.names[PATH].content[: f.FRAMES_START]) == image()[PATH][: f.FRAMES_START]


def test_the_first_frame_of_a_torn_write_is_no_damage() -> None:
    vfs = MemoryVfs()
    store = Store.open(DIRECTORY, vfs=vfs, segment_size=SEGMENT, entropy=bytes)
    store.insert(1, 1, 0, b"durable")
    store.sync()
    lost = store.insert(1, 2, 0, b"lost") - SEGMENT
    store.insert(1, 3, 0, b"behind it")
    store.sync()
    files = {path: bytearray(inode.content) for path, inode in vfs.names.items()}  # as after a crash
    files[PATH][lost : lost + f.HEADER_SIZE] = bytes(f.HEADER_SIZE)
    vfs = disk({path: bytes(data) for path, data in files.items()})
    report = verify(DIRECTORY, vfs)
    assert (report.clean, report.messages, report.torn_bytes) == (True, 1, f.frame_size(len(b"behind it")))
    store = Store.open(DIRECTORY, vfs=vfs)
    assert set(snapshot(store)[0]) == {1}


def test_a_log_that_ends_at_its_checkpoint_is_no_damage() -> None:
    vfs = MemoryVfs()
    store = Store.open(DIRECTORY, vfs=vfs, segment_size=SEGMENT, entropy=bytes)
    store.insert(1, 1, 0, b"first")
    store.sync()
    store.checkpoint(store.recovered.queues)
    end = store.durable_end
    vfs = disk({path: bytes(inode.content) for path, inode in vfs.names.items()})  # as after a crash
    (state,) = survey(vfs, DIRECTORY).checkpoints
    assert state.position == end, "nothing was written after the checkpoint"
    report = verify(DIRECTORY, vfs)
    assert (report.damages, report.weak, report.torn_bytes) == ((), (), 0)


def test_both_header_copies_damaged_is_refused_and_repaired_from_another_file() -> None:
    broken = bytearray(image()[PATH])
    for copy in f.HEADER_COPIES:
        broken[copy + 3] ^= 4
    vfs = disk({**image(), PATH: bytes(broken)})
    with pytest.raises(DamagedStore):
        Store.open(DIRECTORY, vfs=vfs)
    assert repair(DIRECTORY, QUARANTINE, vfs).after.clean
    assert reopen(vfs) == without(log_frames(image()[PATH]), -1)


def test_an_unknown_version_is_refused() -> None:
    broken = bytearray(image()[PATH])
    for copy in f.HEADER_COPIES:
        broken[copy + 8] = 9
        body = bytes(broken[copy : copy + f._SEGMENT_HEADER.size - 4])
        broken[copy + len(body) : copy + len(body) + 4] = f.crc32c(body).to_bytes(4, "little")
    with pytest.raises(UnknownFormat, match="version 9"):
        Store.open(DIRECTORY, vfs=disk({**image(), PATH: bytes(broken)}))


def test_a_file_cut_off_at_any_place_is_refused_and_keeps_what_is_left() -> None:
    data = image()[PATH]
    frames = log_frames(data)
    for cut in range(0, end_of_log(data), 8):
        vfs = disk({**image(), PATH: data[:cut]})
        with pytest.raises(DamagedStore):
            Store.open(DIRECTORY, vfs=vfs)
        assert not verify(DIRECTORY, vfs).clean
        assert repair(DIRECTORY, QUARANTINE, vfs).after.clean
        whole = [frame for frame in frames if frame[0][2] - SEGMENT + f.HEADER_SIZE + frame[0][1] <= cut]
        store = Store.open(DIRECTORY, vfs=vfs)
        assert snapshot(store) == without(whole, -1)


def test_a_checkpoint_restores_messages_lost_from_the_log() -> None:
    files = image(True)
    data = files[PATH]
    frames = log_frames(data)
    for index, (fields, _) in enumerate(frames):
        start = fields[2] - SEGMENT
        broken = bytearray(data)
        broken[start + 20] ^= 1
        vfs = disk({**files, PATH: bytes(broken)})
        assert repair(DIRECTORY, QUARANTINE, vfs).after.clean
        expected = without(frames, -1)
        if fields[8] in (f.INSERT, f.PENDING):
            expected[0].pop(fields[3], None)
        assert reopen(vfs) == expected, index


def test_damage_to_a_checkpoint_loses_no_data() -> None:
    files = image(True)
    path = f"{DIRECTORY}/checkpoint-0"
    expected = without(log_frames(files[PATH]), -1)
    for offset in range(0, len(files[path]), 3):
        broken = bytearray(files[path])
        broken[offset] ^= 0x10
        for content in (bytes(broken), files[path][:offset]):
            vfs = disk({**files, path: content})
            store = Store.open(DIRECTORY, vfs=vfs)
            assert snapshot(store) == expected
            assert store.recovered.report.damaged_checkpoints == ("checkpoint-0",)


def test_a_damaged_message_before_the_checkpoint_is_noticed_when_it_is_read() -> None:
    files = image(True)
    (place,) = [fields[2] for fields, _ in log_frames(files[PATH]) if fields[8] == f.INSERT and fields[3] == 3]
    broken = bytearray(files[PATH])
    broken[place - SEGMENT + f.HEADER_SIZE] ^= 1
    vfs = disk({**files, PATH: bytes(broken)})
    store = Store.open(DIRECTORY, vfs=vfs)
    with pytest.raises(DamagedRecord):
        store.read(place)
    store.close()
    assert len(verify(DIRECTORY, vfs).damages) == 1
    repair(DIRECTORY, QUARANTINE, vfs)
    assert 3 not in reopen(vfs)[0]


def many_segments() -> tuple[MemoryVfs, dict[int, int]]:
    vfs = MemoryVfs()
    store = Store.open(DIRECTORY, vfs=vfs, segment_size=SEGMENT, entropy=bytes)
    places = {}
    for key in range(1, 40):
        places[key] = store.insert(1, key, 0, bytes([key]) * 500)
        store.sync()
    store.close()
    return vfs, places


@pytest.mark.parametrize("number", range(1, 6))
def test_a_missing_segment_is_refused_and_loses_only_its_messages(number: int) -> None:
    vfs, places = many_segments()
    del vfs.names[f"{DIRECTORY}/segment-{number:016x}"]
    if number > 1:
        with pytest.raises(DamagedStore, match="missing"):
            Store.open(DIRECTORY, vfs=vfs)
        path = f"{DIRECTORY}/segment-{number:016x}"
        assert verify(DIRECTORY, vfs).damages[0] == Damage(path, 0, 0, "segment file is missing")
    repair(DIRECTORY, QUARANTINE, vfs)
    store = Store.open(DIRECTORY, vfs=vfs)
    assert set(snapshot(store)[0]) == {key for key, place in places.items() if place // SEGMENT != number}


def test_all_segments_up_to_the_checkpoint_are_expected() -> None:
    vfs, _ = many_segments()
    store = Store.open(DIRECTORY, vfs=vfs)
    store.checkpoint(store.recovered.queues)
    store.close()
    last = survey(vfs, DIRECTORY).checkpoints[0].position // SEGMENT
    paths = [f"{DIRECTORY}/segment-{number:016x}" for number in range(last - 1, last + 3)]
    for path in paths:
        vfs.names.pop(path, None)
    missing = [d for d in verify(DIRECTORY, vfs).damages if d.reason == "segment file is missing"]
    assert missing == [Damage(path, 0, 0, "segment file is missing") for path in paths[:2]]


def test_each_missing_segment_is_reported_once() -> None:
    vfs, _ = many_segments()
    for _ in range(2):
        store = Store.open(DIRECTORY, vfs=vfs)
        store.insert(1, 1000, 0, b"x" * 500)
        store.sync()
        store.checkpoint(store.recovered.queues)
        store.close()
    last = max(state.position // SEGMENT for state in survey(vfs, DIRECTORY).checkpoints)
    paths = [f"{DIRECTORY}/segment-{number:016x}" for number in (3, 4, last)]
    for path in (*paths, *(f"{DIRECTORY}/segment-{number:016x}" for number in (last + 1, last + 2))):  # unused so far
        vfs.names.pop(path, None)
    missing = [d.path for d in verify(DIRECTORY, vfs).damages if d.reason == "segment file is missing"]
    assert missing == paths


def test_damaged_bytes_are_durable_in_the_quarantine_before_they_are_overwritten() -> None:
    broken = bytearray(image()[PATH])
    broken[f.FRAMES_START + 20] ^= 1
    vfs = disk({**image(), PATH: bytes(broken)})
    overwritten = []

    def check(call: str, path: str) -> None:
        if call == "pwrite" and path == PATH:
            is_named = ("fsync_directory", os.path.dirname(QUARANTINE)) in vfs.calls
            overwritten.append(is_named and bool(vfs.names[QUARANTINE].durable))

    vfs.before = check
    repair(DIRECTORY, QUARANTINE, vfs)
    assert overwritten and all(overwritten)


def test_a_short_segment_lacks_the_bytes_behind_its_end() -> None:
    vfs, _ = many_segments()
    path = f"{DIRECTORY}/segment-{2:016x}"
    del vfs.names[path].content[5000:]
    assert verify(DIRECTORY, vfs).damages[0] == Damage(path, 5000, SEGMENT - 5000, "file is too short")


def test_a_segment_may_end_within_the_padding_of_a_frame() -> None:
    cuts = 0
    for fields, _ in log_frames(image()[PATH]):
        start = fields[2] % SEGMENT
        for size in range(start + f.HEADER_SIZE + fields[1], start + f.frame_size(fields[1])):
            vfs = disk(image())
            del vfs.names[PATH].content[size:]
            assert verify(DIRECTORY, vfs).damages[0] == Damage(PATH, size, SEGMENT - size, "file is too short")
            assert repair(DIRECTORY, QUARANTINE, vfs).after.clean
            Store.open(DIRECTORY, vfs=vfs).close()
            cuts += 1
    assert cuts > 20


def test_a_chain_of_which_the_end_of_a_segment_is_lost_counts_as_far_as_it_is_readable() -> None:
    vfs = MemoryVfs()
    store = Store.open(DIRECTORY, vfs=vfs, segment_size=SEGMENT, entropy=bytes)
    places = store.append([Insert(1, key, 0, b"x" * 1000) for key in (1, 2, 3)])
    store.sync()
    following = store.insert(1, 4, 0, b"y" * 2000)
    assert following // SEGMENT == places[-1] // SEGMENT + 1
    store.close()
    vfs.names[PATH].content[places[-1] - SEGMENT :] = bytes(2 * SEGMENT - places[-1])
    report = verify(DIRECTORY, vfs)
    assert (len(report.damages), report.messages) == (1, 3)
    assert repair(DIRECTORY, QUARANTINE, vfs).after.messages == 3
    covers = [fields for fields, _ in log_frames(bytes(vfs.names[PATH].content)) if fields[8] in (f.SKIP, f.SEAL)]
    assert [(fields[8], fields[7]) for fields in covers] == [(f.SKIP, 0), (f.SEAL, 0)], "writes of their own"
    store = Store.open(DIRECTORY, vfs=vfs)
    assert set(snapshot(store)[0]) == {1, 2, 4}


@pytest.mark.parametrize("number", range(1, 6))
def test_a_segment_of_random_bytes_loses_only_its_messages(number: int) -> None:
    vfs, places = many_segments()
    inode = vfs.names[f"{DIRECTORY}/segment-{number:016x}"]
    inode.content[:] = random.Random(1).randbytes(SEGMENT)
    with pytest.raises(DamagedStore):
        Store.open(DIRECTORY, vfs=vfs)
    repair(DIRECTORY, QUARANTINE, vfs)
    store = Store.open(DIRECTORY, vfs=vfs)
    assert set(snapshot(store)[0]) == {key for key, place in places.items() if place // SEGMENT != number}


def hurt(vfs: MemoryVfs, chance: random.Random) -> dict[str, list[tuple[int, int]]]:
    """Damage some files; return the damaged ranges."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for _ in range(chance.randrange(1, 4)):
        path = chance.choice(sorted(vfs.names))
        content = vfs.names[path].content
        if not content:
            continue
        start = chance.randrange(len(content))
        end = min(len(content), start + chance.choice((1, 3, 60, 512, 4096)))
        kind = chance.randrange(5)
        if kind == 0 and "segment" in path:
            del content[start:]
            end = SEGMENT
        elif kind == 1 and path != min(name for name in vfs.names if "segment" in name) and "segment" in path:
            del vfs.names[path]
            start, end = 0, SEGMENT
        elif kind == 2:
            content[start:end] = bytes(end - start)
        else:
            content[start:end] = chance.randbytes(end - start)
        ranges.setdefault(path, []).append((start, end))
    return ranges


def check_repair(seed: int) -> None:
    chance = random.Random(seed)
    vfs = MemoryVfs()
    oracle = Oracle(Store.open(DIRECTORY, vfs=vfs, segment_size=SEGMENT, entropy=bytes), chance)
    for _ in range(chance.randrange(10, 120)):
        oracle.step()
    oracle.store.close()
    # Without the clean-end mark, damage to the last write is a torn write; without COMMIT, all of it is undone.
    guards = {
        (path, fields[2] % SEGMENT)
        for path, inode in vfs.names.items()
        if "segment" in path
        for fields in CODEC.search(inode.content, f.FRAMES_START, int(path[-16:], 16) * SEGMENT)
        if fields[8] in (f.COMMIT, f.STOPPED)
    }
    ranges = hurt(vfs, chance)

    def is_hurt(path: str, start: int, end: int) -> bool:
        return any(start < high and low < end for low, high in ranges.get(path, ()))

    try:
        repaired = repair(DIRECTORY, QUARANTINE, vfs)
    except StoreError as error:
        if "no valid segment header" not in str(error):
            raise
        return
    assert repaired.after.clean
    store = Store.open(DIRECTORY, vfs=vfs)
    found = snapshot(store)[0]
    ever = {key: message for (messages, _), _, _ in oracle.history for key, message in messages.items()}
    assert set(found) <= set(ever), "a message that never counted"
    if any(is_hurt(path, offset, offset + f.HEADER_SIZE) for path, offset in guards):
        return
    for key, message in oracle.messages.items():
        number, offset = divmod(oracle.locations[key], SEGMENT)
        path = f"{DIRECTORY}/segment-{number:016x}"
        if not is_hurt(path, offset, offset + f.frame_size(len(message[1]))):
            assert found.get(key) == message, key
    store.close()


@pytest.mark.parametrize("seed", range(40))
def test_a_repaired_store_opens_and_has_every_message_that_was_not_hit(seed: int) -> None:
    for part in range(5):
        check_repair(seed * 100 + part)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_many_repaired_stores_open_with_their_messages(seed: int) -> None:
    for part in range(40):
        check_repair(seed * 100 + part)


def append_one(store: Store) -> None:
    store.append([Insert(1, 2001, 0, b"x")])


def append_more(store: Store) -> None:
    store.append([Insert(1, 2001, 0, b"x"), Put(b"n", b"v")])


def insert(store: Store) -> None:
    store.insert(1, 2001, 0, b"x")


def insert_rows(store: Store) -> None:
    queues, sizes, bounds = array("I", [1, 1]), array("I", [1, 2]), array("q", [0, 1, 3])
    store.insert_rows(MessageRows(queues, b"xyy", sizes, bounds, array("Q", [2001, 2002]), array("Q", [0, 0])))


def remove(store: Store) -> None:
    columns = store.recovered.queues[1]
    store.remove(columns.keys[0], columns.locations[0])


def nothing(store: Store) -> None:
    """Opening writes nothing, either."""


@pytest.mark.parametrize("change", [append_one, append_more, insert, insert_rows, remove, nothing])
def test_a_closed_log_ends_with_one_mark_of_a_clean_end(change: Callable[[Store], None]) -> None:
    vfs = disk(image())
    before = len(log_frames(image()[PATH]))
    store = Store.open(DIRECTORY, vfs=vfs)
    change(store)
    store.close()
    kinds = [fields[8] for fields, _ in log_frames(bytes(vfs.names[PATH].content))]
    assert kinds[-1] == f.STOPPED and f.STOPPED not in kinds[before:-1]
    assert (len(kinds) == before) == (change is nothing)
