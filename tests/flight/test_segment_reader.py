"""Reading records from segment files while the store uses them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.flight.segment_reader import GONE, Array, SegmentReader, checksums_of
from openmsmq.flight.slices import SliceReader
from openmsmq.store import Insert, Remove, Store
from openmsmq.store.segments import segment_name

COUNT = 300


def payload(key: int) -> bytes:
    return bytes([key & 0xFF]) * (key % 90 + 1)


def arrays(places: dict[int, int]) -> tuple[Array, Array, Array]:
    keys = np.array(list(places), np.uint64)
    return keys, np.array(list(places.values()), np.uint64), np.array([len(payload(key)) for key in places])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path, segment_size=8192)


def fill(store: Store, first: int = 1) -> dict[int, int]:
    places = {key: store.append([Insert(1, key, 0, payload(key))])[0] for key in range(first, first + COUNT)}
    store.sync()
    return places


def test_records_of_many_segments_are_read_in_any_order(store: Store) -> None:
    places = fill(store)
    shuffled = {key: places[key] for key in sorted(places, key=lambda key: key * 7919 % 1009)}
    reader = SegmentReader(store.directory, **store.layout)
    keys, locations, sizes = arrays(shuffled)
    buffer, starts = reader.read(keys, locations, sizes)
    assert not (starts % 8).any()
    found = [bytes(buffer[start : start + size]) for start, size in zip(starts, sizes, strict=True)]
    assert found == [payload(key) for key in shuffled]
    opened = len(os.listdir("/proc/self/fd"))
    reader.close()
    reader.close()
    assert len(os.listdir("/proc/self/fd")) < opened


@pytest.mark.parametrize("what", ["key", "location", "size", "damage"])
def test_a_missing_record_is_reported_as_gone(store: Store, what: str) -> None:
    keys, locations, sizes = arrays(fill(store))
    change = {"key": (keys, 1), "location": (locations, 8), "size": (sizes, 1)}
    if what == "damage":
        segment = Path(store.directory) / segment_name(int(locations[5]) // 8192)
        data = bytearray(segment.read_bytes())
        data[int(locations[5]) % 8192 + 50] ^= 1
        segment.write_bytes(data)
    else:
        values, step = change[what]
        values[5] += step
    _, starts = SegmentReader(store.directory, **store.layout).read(keys, locations, sizes)
    assert (starts == GONE).nonzero()[0].tolist() == [5]


def compacted(store: Store, places: dict[int, int]) -> dict[int, int]:
    """Remove all but every tenth message, compact, and reuse the old files. Returns the new locations by key."""
    moved = {key: place for key, place in places.items() if key % 10 == 0}
    for key, place in places.items():
        if key not in moved:
            store.append([Remove(key, place)])
    store.sync()

    def is_live(queue: int, key: int, word: int, location: int) -> bool:
        return moved.get(key) == location

    def relocated(queue: int, key: int, word: int, old: int, new: int) -> None:
        moved[key] = new

    while store.compact_step(is_live, relocated, thorough=True):
        store.sync()
    for first in range(1000, 10_000, 1000):
        fill(store, first)
    return moved


def slice_of(places: dict[int, int], inline: tuple[bytes, ...] = ()) -> tuple[Array, memoryview]:
    """Return a slice as made by the daemon, with `inline` as express messages, which get the highest keys."""
    keys, locations, sizes = arrays(places)
    keys = np.concatenate((keys, np.arange(50_000, 50_000 + len(inline), dtype=np.uint64)))
    locations = np.concatenate((locations, np.zeros(len(inline), np.uint64)))
    sizes = np.concatenate((sizes, list(map(len, inline)))).astype(np.uint32)
    records = b"".join(record + bytes(-len(record) % 8) for record in inline)
    return keys, memoryview(keys.tobytes() + locations.tobytes() + sizes.tobytes() + records)


def test_a_slice_is_read_although_compaction_moved_its_messages(store: Store) -> None:
    places = fill(store)
    moved = compacted(store, places)
    reader = SegmentReader(store.directory, **store.layout)
    taken = {20, 50}
    asked: list[int] = []

    def locate(data: bytes) -> memoryview:
        keys = np.frombuffer(data, np.uint64).tolist()
        asked.extend(keys)
        answer = [0 if key in taken or key not in moved else moved[key] for key in keys]
        return memoryview(np.array(answer, np.uint64).tobytes())

    keys, data = slice_of({key: places[key] for key in range(10, 200, 10)}, (b"express", b"", b"12345678"))
    found, buffer, starts, sizes, damaged = SliceReader(reader, locate).read(keys, data)
    records = [bytes(buffer[a : a + size]) for a, size in zip(starts, sizes, strict=True)]
    assert len(asked) >= 10 and taken & set(asked)
    there = [key for key in range(10, 200, 10) if key not in taken & set(asked)]
    assert found.tolist() == [*there, 50_000, 50_001, 50_002]
    assert records == [*map(payload, there), b"express", b"", b"12345678"]
    assert not len(damaged)


def test_a_message_never_found_at_its_location_is_reported_and_the_others_are_read(store: Store) -> None:
    places = fill(store)
    places[7] += 8
    wrong = memoryview(np.array([places[7]], np.uint64).tobytes())
    found = SliceReader(SegmentReader(store.directory, **store.layout), lambda keys: wrong).read(*slice_of(places))
    assert found.damaged.tolist() == [7]
    assert found.keys.tolist() == [key for key in sorted(places) if key != 7]


@given(st.lists(st.tuples(st.integers(0, 4096), st.integers(0, 3000)), max_size=20), st.integers(0, (1 << 32) - 1))
def test_checksums_of_many_records(places: list[tuple[int, int]], seed: int) -> None:
    data = np.frombuffer(random.Random(seed).randbytes(8192), np.uint8)
    starts, sizes = (np.array(column, np.int64) for column in (zip(*places, strict=True) if places else ((), ())))
    expected = [crc32c(data.data[start : start + size], seed) for start, size in places]
    assert np.frombuffer(checksums_of(data, starts, sizes, seed), np.uint32).tolist() == expected
