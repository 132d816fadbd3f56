"""C code checks its arguments before it accesses memory."""

from __future__ import annotations

from array import array
from itertools import product
from typing import Any

import numpy as np
import pytest

from msrpc.rpc.whole_pdus import request, response
from openmsmq.flight.segment_reader import checksums_of
from openmsmq.queueing.deadlines import Heap
from openmsmq.queueing.entries import Entries
from openmsmq.queueing.stamping import stamp_records
from openmsmq.store import MessageRows
from openmsmq.store.frames import PENDING
from openmsmq.store.row_frames import frames_of, payloads_of
from store.test_row_frames import CODEC, rows


def test_checksums_outside_the_buffer_are_refused() -> None:
    data = np.zeros(100, np.uint8)
    for start, size in ((0, 101), (101, 0), (-1, 5), (5, -1), (1 << 62, 1 << 62)):
        with pytest.raises(ValueError, match="within the data"):
            checksums_of(data, np.array([start]), np.array([size]), 0)
    with pytest.raises(ValueError, match="int64"):
        checksums_of(data, np.array([0]), np.array([0, 1]), 0)
    with pytest.raises(ValueError, match="int64"):
        checksums_of(data, np.array([0], np.uint32), np.array([0], np.uint32), 0)


def test_invalid_queue_entries_are_refused() -> None:
    entries = Entries()
    for key, entry in ((1, 1 << 128), (1, -1), (1, (1 << 32) - 1 << 64), (1 << 64, 1), (-1, 1), ("a", 1)):
        with pytest.raises((OverflowError, TypeError)):
            entries[key] = entry  # type: ignore[index]
        with pytest.raises((OverflowError, TypeError)):
            entries.update({key: entry})  # type: ignore[dict-item]
    assert not entries and not list(entries)
    looks = (
        entries.remove, entries.location, entries.size, entries.get, entries.pop, entries.__getitem__,
        entries.__contains__, entries.__delitem__,
    )  # fmt: skip
    for key, look in product((-1, 1 << 64, "a"), looks):
        with pytest.raises((OverflowError, TypeError)):
            look(key)  # type: ignore[arg-type]
    sizes = ((1, 1, -1), (1, 1, (1 << 32) - 2))
    for key, location, size in ((-1, 1, 1), (1, -1, 1), (1 << 64, 1, 1), (1, 1 << 64, 1), *sizes):
        with pytest.raises(OverflowError):
            entries.place(key, location, size)
    with pytest.raises(TypeError):
        entries.place(1, 2)  # type: ignore[call-arg]
    entries[1] = 1
    with pytest.raises(OverflowError):
        entries.columns(entries.capture(None), set(), b"", {1: 1 << 64})
    with pytest.raises(OverflowError):
        entries.columns(entries.capture(None), {-1}, b"", {})
    with pytest.raises(TypeError):
        entries.columns("text", set(), b"", {})  # type: ignore[arg-type]
    for start, most in ((2, 1), (-1, 1), (0, -1)):
        with pytest.raises(ValueError, match="keys"):
            entries.places([1], start, most, 1)
    for words in (array("Q", [1]), array("Q", [1, 2, 3])):
        with pytest.raises(ValueError, match="columns"):
            Entries().load(array("Q", [1, 2]), array("Q", [1, 2]), array("I", [1, 2]), words)


def test_stamps_outside_the_buffer_are_refused() -> None:
    record, bounds = bytearray(100), array("q", (0, 100))
    for at, patch in ((-1, b"a"), (1 << 40, b"a"), (99, b"ab")):
        with pytest.raises(ValueError, match=r"place|at least"):
            stamp_records(record, bounds, [(at, patch)], 0, 1, 8)
    for counter_at, head in ((-1, 8), (97, 8), (0, -1), (0, 101)):
        with pytest.raises(ValueError, match="at least"):
            stamp_records(record, bounds, [], counter_at, 1, head)
    with pytest.raises(ValueError, match="at most"):
        stamp_records(record, bounds, [(0, b"")] * 9, 0, 1, 8)
    for places in (array("q"), array("q", (-5, 30))):
        with pytest.raises(ValueError, match="at least"):
            stamp_records(record, places, [], 0, 1, 8)


def test_invalid_bounds_are_refused() -> None:
    good = rows([b"abc", b"de"])
    for bounds in ((4, 7, 10), (4, 3, 9), (-1, 7, 9), (4, 7)):
        bad = MessageRows(good.queues, good.records, good.sizes, array("q", bounds), good.keys, good.deadlines)
        with pytest.raises(ValueError, match="bounds"):
            frames_of(CODEC, bad, 0, PENDING, 1, 4096, 0, 4000)
    with pytest.raises(ValueError, match="bounds"):
        frames_of(CODEC, good, 3, PENDING, 1, 4096, 0, 4000)
    with pytest.raises(OverflowError, match="negative"):
        frames_of(CODEC, good, -1, PENDING, 1, 4096, 0, 4000)


def test_payloads_outside_the_buffer_are_refused() -> None:
    for locations, first in ((["a"], 0), ([-1], 0), ([1 << 64], 0), ([8], -1), (5, 0)):
        with pytest.raises((TypeError, ValueError, OverflowError)):
            payloads_of(CODEC, bytes(100), 0, locations, first)  # type: ignore[arg-type]
    assert payloads_of(CODEC, bytes(100), 0, [0, 99, 100, 1 << 63], 0) == []
    assert payloads_of(CODEC, b"", 0, [0], 1) == []


def test_headers_of_invalid_pdus_are_refused() -> None:
    for arguments in ((), (b"", 0), ("", 0, 100), (b"", "a", 100), (b"", 1 << 64, 100)):
        with pytest.raises((TypeError, OverflowError)):
            request(*arguments)  # type: ignore[call-arg,arg-type]
    for at in (-1, 25, 1 << 40):
        assert request(bytes(24), at, 5840) is None
    for arguments in ((-1, 0, b""), (1 << 32, 0, b""), (1, 1 << 16, b""), (1, 1, bytes(65512))):
        with pytest.raises((ValueError, OverflowError)):
            response(*arguments)


def test_deadlines_that_are_no_integers_are_refused() -> None:
    heap: Any = Heap()
    with pytest.raises(IndexError):
        heap.drop_first()
    for bad in ((1, 2), (1, 2, "3"), (-1, 2, 3), (1 << 64, 2, 3)):
        with pytest.raises((TypeError, OverflowError)):
            heap.add(*bad)
    with pytest.raises(TypeError, match="room is a bytearray or None"):
        heap.capture(b"")
    for key in range(5000):
        heap.add(key, key, 1)

    def fails(key: int, number: int) -> bool:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        heap.tidy(fails)

    def clears(key: int, number: int) -> bool:  # changes the heap while it is checked
        while len(heap) > 10:
            heap.drop_first()
        return False

    heap.tidy(clears)
    assert len(heap) == 10 and heap.first() == (4990, 4990, 1)
