"""Native code stamps records like Python."""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import kept_by
from openmsmq import compiled
from openmsmq.model.constants import Acknowledge, Journal
from openmsmq.model.message import Message
from openmsmq.queueing import stamping
from openmsmq.queueing.records import is_eventful
from openmsmq.queueing.stamping import (
    stamp_in_python,
    stamp_records,
)
from openmsmq.record.message_record import encode_message


def test_native_code_is_used_where_it_is_compiled() -> None:
    assert (stamping.packing is not None) == compiled.is_native()


patches = st.lists(st.tuples(st.integers(0, 20), st.binary(max_size=6)), max_size=8)
sizes = st.lists(st.integers(26, 60), max_size=9)


@given(sizes, patches, st.integers(0, 22), st.integers(0, (1 << 40) - 1), st.integers(0, 26), st.integers(0, 5))
def test_records_are_stamped(
    sizes: list[int], patches: list[tuple[int, bytes]], counter_at: int, counter: int, head: int, start: int
) -> None:
    bounds = array("q", accumulate(sizes, initial=start))
    made, expected = bytearray(range(100)) * 6, bytearray(range(100)) * 6
    heads = stamp_in_python(expected, bounds, patches, counter_at, counter, head)
    assert stamp_records(made, bounds, patches, counter_at, counter, head) == heads
    assert made == expected


@pytest.mark.parametrize("stamp", [stamp_records, stamp_in_python])
@pytest.mark.parametrize("bounds", [(0, 9), (0, 10, 19), (0, 101), (95, 105), (0, 20, 10)])
@pytest.mark.parametrize(("patch", "counter_at", "head"), [(b"six...", 0, 8), (b"", 6, 8), (b"", 0, 10)])
def test_records_that_are_too_short_are_not_stamped(
    stamp: Any, bounds: tuple[int, ...], patch: bytes, counter_at: int, head: int
) -> None:
    """The patch, the counter or the head ends at byte 10."""
    with pytest.raises(ValueError, match="at least 10 bytes"):
        stamp(bytearray(100), array("q", bounds), [(4, patch)], counter_at, 1, head)


def test_nothing_is_kept() -> None:
    def work() -> None:
        stamp_records(bytearray(100), array("q", (0, 50, 100)), [(4, b"six...")], 0, 1, 8)

    assert kept_by(work) < 40


@pytest.mark.parametrize(
    ("values", "eventful"),
    [
        ({}, False),
        ({"acknowledgements_requested": Acknowledge.POS_ARRIVAL}, True),
        ({"acknowledgements_requested": Acknowledge.POS_RECEIVE}, False),
        ({"journaling_requested": Journal.JOURNAL}, True),
        ({"journaling_requested": Journal.DEADLETTER}, False),
        ({"time_to_reach_queue": 5}, True),
        ({"time_to_be_received": 5}, True),
    ],
)
def test_each_consequence_of_its_arrival_makes_a_message_eventful(values: dict[str, Any], eventful: bool) -> None:
    assert is_eventful(encode_message(Message(**values))) is eventful
