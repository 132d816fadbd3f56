"""Validation of records from other processes before they become messages."""

from __future__ import annotations

import struct
from array import array
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from openmsmq.model.constants import MAXIMUM_LABEL, MAXIMUM_MESSAGE_SIZE
from openmsmq.model.errors import HResult
from openmsmq.model.message import Message
from openmsmq.model.security import sid_bytes
from openmsmq.queueing.drafts import form_of, odd_drafts, odd_drafts_in_python, why_not
from openmsmq.queueing.stages import Draft
from openmsmq.record.message_record import decode_message, encode_message
from queueing.pipeline import draft
from queueing.world import ALICE, World

SENDER, QUEUE = sid_bytes("S-1-5-21-1-2-3-1001"), "DIRECT=OS:.\\private$\\q"
FORM = form_of(SENDER, QUEUE)
BODY_LENGTH_AT, FIXED_SIZE = 160, 208


def record(**values: Any) -> bytearray:
    known = {
        "destination_queue_format_name": QUEUE, "sender_identifier": SENDER, "sender_identifier_type": 1,
        "delivery_guarantee": 1,
    }  # fmt: skip
    return bytearray(encode_message(Message(**{**known, **values})))


def with_lengths(**lengths: int) -> bytearray:
    """Return a record whose stated lengths differ from its parts."""
    made = record(body=b"0123456789", extension=b"ext", label="label")
    places = {"body": 0, "extension": 1, "sender": 2, "label": 6, "destination": 7}
    for name, length in lengths.items():
        struct.pack_into("<I", made, BODY_LENGTH_AT + 4 * places[name], length & 0xFFFFFFFF)
    return made


RIGHT = {
    "nothing": record(),
    "all that a row may have": record(
        body=b"body", extension=b"ext", label="é" * MAXIMUM_LABEL, priority=7, acknowledgements_requested=0x0F,
        journaling_requested=3, application_tag=0xFFFFFFFF, body_type=0xFFFF, time_to_reach_queue=0,
        time_to_be_received=1, correlation_identifier=bytes(range(20)), delivery_guarantee=0,
        administration_queue_format_name=QUEUE, response_queue_format_name="DIRECT=OS:there\\q",
    ),
}  # fmt: skip
WRONG = {
    "shorter than the fixed part": record()[: FIXED_SIZE - 1],
    "nothing at all": bytearray(),
    "shorter than its parts": record(body=b"12345")[:-1],
    "longer than its parts": record() + b"x",
    "a body longer than the record": with_lengths(body=1 << 20),
    "lengths whose sum wraps around": with_lengths(body=-3, extension=16),
    "another version": b"\x02" + record()[1:],
    "a priority of 8": record(priority=8),
    "a delivery of 2": record(delivery_guarantee=2),
    "flags of acknowledgments that are none": record(acknowledgements_requested=0x10),
    "a class": record(message_class=0x8000),
    "an authentication": record(authentication_level=1),
    "a level of privacy": record(privacy_level=1),
    "a signature": record(signature=b"s"),
    "a signature for several queues": record(multiple_destination_signature=b"s"),
    "a provider of signatures": record(default_provider=True),
    "a symmetric key": record(symmetric_key=b"k"),
    "a certificate": record(sender_certificate=b"c"),
    "an identifier": record(identifier=b"\x01" * 20),
    "a source machine": record(source_machine_identifier=b"\x01" * 16),
    "a transaction": record(transaction_identifier=b"\x01" * 20),
    "a move count": record(move_count=1),
    "no sender": record(sender_identifier=b"", sender_identifier_type=0),
    "another sender": record(sender_identifier=sid_bytes("S-1-5-21-1-2-3-1002")),
    "a longer sender": record(sender_identifier=sid_bytes("S-1-5-21-1-2-3-1001-1")),
    "another queue": record(destination_queue_format_name=QUEUE[:-1] + "r"),
    "a label that is too long": record(label="x" * (MAXIMUM_LABEL + 1)),
    "a label of too many code units": record(label="\U0001f600" * 125),
    "a label with half a surrogate": record(label="\ud800"),
    "a response queue that is none": record(response_queue_format_name="nonsense"),
    "an administration queue that is none": record(administration_queue_format_name="nonsense"),
    "a message that is too large": record(body=bytes(MAXIMUM_MESSAGE_SIZE)),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_a_valid_record_becomes_a_message(name: str) -> None:
    assert why_not(RIGHT[name], FORM) is None
    decode_message(bytes(RIGHT[name]), 1)


@pytest.mark.parametrize("name", WRONG)
def test_an_invalid_record_is_refused_with_a_reason(name: str) -> None:
    error = why_not(WRONG[name], FORM)
    assert error is not None
    assert any(word in error.detail for word in ("allowed", "at most", "nonsense"))
    if len(WRONG[name]) <= MAXIMUM_MESSAGE_SIZE:  # sizes are checked first
        assert odd_drafts_in_python(WRONG[name], array("q", [0, len(WRONG[name])]), FORM) == [0]


@pytest.mark.parametrize("check", [odd_drafts, odd_drafts_in_python])
@pytest.mark.parametrize("name", ["administration_queue_format_name", "response_queue_format_name"])
def test_a_record_that_names_a_further_queue_needs_a_check(check: Any, name: str) -> None:
    made = record(**{name: QUEUE})
    assert check(made, array("q", [0, len(made)]), FORM) == [0]


def test_texts_in_any_language_take_the_fast_path() -> None:
    made = record(label="é\U0001f600" + "中" * (MAXIMUM_LABEL - 3))
    bounds = array("q", [0, len(made)])
    assert odd_drafts(made, bounds, FORM) == odd_drafts_in_python(made, bounds, FORM) == []


def test_an_anonymous_sender_has_no_identifier() -> None:
    form = form_of(b"", QUEUE)
    assert why_not(record(sender_identifier=b"", sender_identifier_type=0), form) is None
    assert why_not(record(), form) is not None


changes = st.lists(st.tuples(st.integers(0, 230), st.integers(0, 255)), max_size=3)


@given(st.sampled_from([*RIGHT.values(), *list(WRONG.values())[:-1]]), changes, st.integers(-2, 2))
@example(RIGHT["nothing"], [], 0)
def test_native_code_accepts_no_record_that_python_refuses(
    given_: bytearray, changes: list[tuple[int, int]], more: int
) -> None:
    made = bytearray(given_)
    for at, value in changes:
        if at < len(made):
            made[at] = value
    made = made + b"\0" * more if more > 0 else made[: len(made) + more]
    records = b"before" + made + bytes(record())
    bounds = array("q", accumulate([len(made), len(record())], initial=6))
    odd = odd_drafts(records, bounds, FORM)
    assert odd == odd_drafts_in_python(records, bounds, FORM)
    if not odd:
        assert why_not(made, FORM) is None
    if why_not(made, FORM) is None:
        decode_message(bytes(made), 1)


@pytest.mark.parametrize("bounds", [(-1, 5), (0, 6), (5, 3), (0, 1 << 62)])
def test_bounds_outside_of_the_records_are_refused(bounds: tuple[int, ...]) -> None:
    for function in (odd_drafts, odd_drafts_in_python):
        with pytest.raises(ValueError, match="bounds"):
            function(b"12345", array("q", bounds), FORM)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("collect", [False, True])
def test_no_wrong_record_is_stored_whoever_made_it(several: bool, collect: bool) -> None:
    world = World()
    world.create()
    world.create("r")
    manager = world.manager
    stage = manager.staged_writes.begin("s", 0, 0, "0", ALICE)
    target = manager.staged_writes.target("q", False, ALICE)
    good = draft(target, label="good")
    other = sid_bytes("S-1-5-21-1-2-3-1002")
    forged = Draft(target, good.record.replace(target.form.sender, other))
    rows = [good, forged, draft(target, label="good too")]
    if several:
        refused = manager.staged_writes.stage(stage, rows, last=True, collect=collect)
    else:
        sizes = array("I", [len(row.record) for row in rows])
        data = bytearray(b"".join(row.record for row in rows))
        refused = manager.staged_writes.stage_rows(stage, target, data, 0, sizes, last=True, collect=collect)
    assert [(one.place, one.error.hresult) for one in refused] == [(1, HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE)]
    if collect:
        manager.staged_writes.seal(stage)
        manager.staged_writes.finalize("s", 0, [stage.handle], ALICE)
        assert world.labels() == ["good", "good too"]
    else:
        assert not stage.messages


def test_a_row_is_admitted_by_the_same_checks_as_every_message() -> None:
    name = "DIRECT=OS:h\\private$\\q"
    assert why_not(record(response_queue_format_name=name), FORM) is None
    error = why_not(record(response_queue_format_name=",".join([name] * 50)), FORM)
    assert error is not None and error.hresult == HResult.MQ_ERROR_ILLEGAL_FORMATNAME
    largest = MAXIMUM_MESSAGE_SIZE - len(record())
    error = why_not(record(body=bytes(largest)), FORM)
    assert error is not None and error.hresult == HResult.MQ_ERROR_INSUFFICIENT_RESOURCES
