"""Machine code makes the same columns as Python does."""

from __future__ import annotations

import gc
import sys
from array import array
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmsmq import compiled
from openmsmq.model.message import Message
from openmsmq.queueing import packed_columns
from openmsmq.queueing.packed_columns import (
    columns_in_python,
    columns_of,
    places_in_python,
    places_of,
    stamp_in_python,
    stamp_records,
)
from openmsmq.queueing.queue import stored

keys = st.integers(0, 7 << 56 | (1 << 56) - 1)
entry = st.builds(stored, st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 32) - 1)) | st.just(Message())
queues = st.dictionaries(keys, entry, max_size=40)


def test_machine_code_is_used_where_it_is_compiled() -> None:
    assert (packed_columns.packing is not None) == compiled.is_native()


@given(queues, st.data())
def test_columns(entries: dict[int, Any], data: st.DataObject) -> None:
    some = st.sets(st.sampled_from(sorted(entries) or [0]))
    times = data.draw(st.dictionaries(st.sampled_from(sorted(entries) or [0]), st.integers(0, (1 << 56) - 1)))
    left_out = data.draw(some)
    made = columns_of(entries, left_out, times)
    assert sorted(made.rows()) == sorted(columns_in_python(entries, left_out, times).rows())
    assert list(made.keys) == sorted(made.keys)
    assert len(made) == sum(isinstance(entries[key], int) for key in entries.keys() - left_out)


@given(queues, st.integers(0, 45), st.integers(0, 1 << 34), st.data())
def test_places(entries: dict[int, Any], most: int, volume: int, data: st.DataObject) -> None:
    chosen = data.draw(st.permutations(list(entries)))
    start = data.draw(st.integers(0, len(chosen)))
    assert places_of(entries, chosen, start, most, volume) == places_in_python(entries, chosen, start, most, volume)


def test_a_position_that_is_not_there() -> None:
    with pytest.raises(KeyError, match="2"):
        places_of({1: stored(8, 5)}, [1, 2], 0, 10, 1 << 30)


patches = st.lists(st.tuples(st.integers(0, 20), st.binary(max_size=6)), max_size=8)
sizes = st.lists(st.integers(26, 60), max_size=9)


@given(sizes, patches, st.integers(0, 22), st.integers(0, (1 << 40) - 1), st.integers(0, 26), st.integers(0, 5))
def test_stamps(
    sizes: list[int], patches: list[tuple[int, bytes]], counter_at: int, counter: int, head: int, start: int
) -> None:
    bounds = array("q", accumulate(sizes, initial=start))
    made, expected = bytearray(range(100)) * 6, bytearray(range(100)) * 6
    heads = stamp_in_python(expected, bounds, patches, counter_at, counter, head)
    assert stamp_records(made, bounds, patches, counter_at, counter, head) == heads
    assert made == expected


@pytest.mark.parametrize("bounds", [(0, 9), (0, 10, 19), (0, 101), (95, 105), (0, 20, 10)])
def test_records_that_are_too_short_are_not_stamped(bounds: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="at least 10 bytes"):
        stamp_records(bytearray(100), array("q", bounds), [(4, b"six...")], 0, 1, 8)


def test_nothing_is_kept() -> None:
    entries = {(key * 7919 % 1009) | 3 << 56: stored(key << 40, 1000) for key in range(1009)}
    times = dict.fromkeys(entries, 5)

    def work() -> None:
        made = columns_of(entries, set(list(entries)[:3]), times)
        assert len(made) == 1006 and made.find(17) is not None
        places_of(entries, list(entries), 0, 500, 1 << 30)
        with pytest.raises(KeyError):
            places_of(entries, [1], 0, 1, 1)
        stamp_records(bytearray(100), array("q", (0, 50, 100)), [(4, b"six...")], 0, 1, 8)

    work()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(50):
        work()
    gc.collect()
    assert sys.getallocatedblocks() - before < 40
