"""The compact form of message records: the C module and the Python functions give the same, and nothing is lost."""

from __future__ import annotations

from array import array
from itertools import accumulate
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.model.message import Message
from openmsmq.record.compact_record import (
    COMPACT,
    COMPACT_HEAD,
    compact,
    compact_in_python,
    compact_rows,
    compact_rows_in_python,
    expand,
    expand_head,
    expand_head_in_python,
    expand_in_python,
    split_rows,
    split_rows_in_python,
)
from openmsmq.record.fields import FIELDS, FIXED, OFFSET, PARTS
from openmsmq.record.message_record import decode_message, encode_message

MACHINE = bytes(range(16))
ORDINARY = Message(
    body=b"b" * 1000, label="label", destination_queue_format_name="DIRECT=OS:.\\private$\\q",
    source_machine_identifier=MACHINE, identifier=MACHINE + b"\1\0\0\0", sent_time=1_800_000_000,
    arrival_time=1_800_000_000, sent_milliseconds=5, delivery_guarantee=1, body_type=8,
)  # fmt: skip
ENDS = [*list(OFFSET.values())[1:], FIXED.size - 4 * len(PARTS)]


def some_record(random: Random) -> bytes:
    """Return the record of an ordinary message in which some fields have random bytes."""
    record = bytearray(encode_message(ORDINARY))
    for field, end in zip(FIELDS[1:], ENDS[1:], strict=True):
        if random.random() < 0.3:
            record[OFFSET[field.name] : end] = random.randbytes(end - OFFSET[field.name])
    for part in range(len(PARTS)):  # neither direction compares the lengths with the record
        if random.random() < 0.3:
            at = FIXED.size - 4 * len(PARTS) + 4 * part
            record[at : at + 4] = random.choice([0, 1, 127, 128, 16_383, 16_384, 2**32 - 1]).to_bytes(4, "little")
    return bytes(record) + random.randbytes(random.randrange(20))


@given(st.randoms(use_true_random=False))
def test_both_directions_keep_every_byte(random: Random) -> None:
    record = some_record(random)
    made = compact(record)
    assert made == compact_in_python(record)
    assert made[0] == COMPACT
    assert expand(made) == expand_in_python(made) == record
    assert expand(record) is record


def test_a_message_is_the_same_in_both_forms() -> None:
    for message in (ORDINARY, Message(), Message(priority=0, time_to_be_received=9, abort_count=1, extension=b"e")):
        record = encode_message(message)
        assert decode_message(compact(record), 7) == decode_message(record, 7)


def test_usual_fields_take_no_room() -> None:
    made = compact(encode_message(ORDINARY))
    # Version and masks, body_type, sent_time, sent_milliseconds, identifier; lengths of body, label and destination.
    parts = 1000 + len("label") + len("DIRECT=OS:.\\private$\\q")
    assert len(made) == 7 + 4 + 4 + 2 + 20 + 2 + 1 + 1 + parts


@given(st.randoms(use_true_random=False))
def test_heads_need_few_more_bytes(random: Random) -> None:
    record = some_record(random)
    made = compact(record)
    for length in ENDS:
        for form in (record, made):
            head = form[: length + COMPACT_HEAD]
            assert expand_head(head, length) == expand_head_in_python(head, length) == record[:length]


def test_the_head_of_the_shortest_record_is_read() -> None:
    made = compact(encode_message(Message(delivery_guarantee=1)))
    plain = expand(made)
    for length in ENDS:
        assert expand_head(made, length) == expand_head_in_python(made, length) == plain[:length]
    for function in (expand_head, expand_head_in_python):
        with pytest.raises(ValueError, match="too short"):
            function(b"", 1)


def outcome(function: Any, *values: Any) -> Any:
    try:
        return function(*values)
    except ValueError as error:
        return str(error)


@given(st.randoms(use_true_random=False))
def test_damaged_records_are_refused_alike(random: Random) -> None:
    made = bytearray(compact(some_record(random)))
    del made[random.randrange(len(made)) :]
    for _ in range(random.randrange(4)):
        if made:
            made[random.randrange(min(len(made), 60))] = random.randrange(256)
    damaged = bytes(made)
    assert outcome(expand, damaged) == outcome(expand_in_python, damaged)
    length = random.choice(ENDS)
    assert outcome(expand_head, damaged, length) == outcome(expand_head_in_python, damaged, length)


@pytest.mark.parametrize("damaged", [
    b"\2", b"\2" + bytes(5), b"\2" + (1 << 31).to_bytes(4, "little") + bytes(2), b"\2" + bytes(4) + b"\0\x10",
    b"\2" + bytes(4) + b"\1\0" + b"\x80" * 4 + b"\x10", b"\2" + bytes(4) + b"\1\0" + b"\x80" * 6,
])  # fmt: skip
def test_an_invalid_record_is_refused(damaged: bytes) -> None:
    """Too short, an unknown field, an unknown part, and two lengths that do not fit into 32 bits."""
    for function in (expand, expand_in_python):
        with pytest.raises(ValueError, match=f"compact message record of {len(damaged)} bytes is not valid"):
            function(damaged)
    with pytest.raises(ValueError, match="not valid"):
        decode_message(damaged, 1)


@pytest.mark.parametrize("record", [b"", b"\1", compact(encode_message(ORDINARY))])
def test_only_the_plain_form_can_be_made_compact(record: bytes) -> None:
    for function in (compact, compact_in_python):
        with pytest.raises(ValueError, match="plain form"):
            function(record)


@pytest.mark.parametrize(("compacted", "split"), [
    (compact_rows, split_rows), (compact_rows_in_python, split_rows_in_python)
])  # fmt: skip
@given(st.randoms(use_true_random=False))
def test_rows_are_converted_like_single_records(compacted: Any, split: Any, random: Random) -> None:
    records = [some_record(random) for _ in range(random.randrange(5))]
    start = random.randrange(3)
    bounds = array("q", accumulate(map(len, records), initial=start))
    made, sizes, places = compacted(bytes(start) + b"".join(records), bounds)
    rows = [made[places[index] : places[index] + sizes[index]] for index in range(len(records))]
    assert rows == [compact(record) for record in records]
    assert list(places) == list(accumulate(sizes, initial=0))
    assert [expand(row) for row in rows] == records
    mixed = [random.choice([row, record]) for row, record in zip(rows, records, strict=True)]
    invalid = [b"", b"\2?", b"\1" + bytes(FIXED.size - 2), b"\3" + bytes(FIXED.size)]
    ends = list(accumulate(map(len, [*mixed, *invalid]), initial=start))
    buffer = bytes(start) + b"".join([*mixed, *invalid])
    fixed, begins = split(buffer, array("q", ends[:-1]), array("q", map(len, [*mixed, *invalid])))
    heads = [fixed[at : at + FIXED.size] for at in range(0, len(fixed), FIXED.size)]
    plain = [head + buffer[at:end] for head, at, end in zip(heads, begins, ends[1:], strict=True)]
    assert plain[: len(mixed)] == records
    assert heads[len(mixed) :] == [bytes(FIXED.size)] * len(invalid)
    assert list(begins[len(mixed) :]) == ends[len(mixed) : -1]


@pytest.mark.parametrize("compacted", [compact_rows, compact_rows_in_python])
def test_rows_outside_the_buffer_are_refused(compacted: Any) -> None:
    record = encode_message(ORDINARY)
    for bounds in ([0, len(record) + 1], [-1, len(record)], [len(record), 0], [0, 5]):
        with pytest.raises(ValueError, match="plain form"):
            compacted(record, array("q", bounds))


@pytest.mark.parametrize(("start", "size"), [(-1, 5), (0, -1), (0, 6), (6, 0), (3, 3), (1 << 62, 1 << 62)])
def test_records_outside_the_buffer_are_not_split(start: int, size: int) -> None:
    with pytest.raises(ValueError, match="not within"):
        split_rows(bytes(5), array("q", [start]), array("q", [size]))
