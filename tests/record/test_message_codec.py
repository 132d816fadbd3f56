"""The C modules do the same as their functions in Python: records of messages, copies and sizes."""

from __future__ import annotations

from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.model.constants import Delivery, MessageClass
from openmsmq.model.message import Message, copy_in_python
from openmsmq.record.compact_record import compact
from openmsmq.record.fields import FIELDS, FIXED, PARTS
from openmsmq.record.message_record import (
    decode_message,
    decode_message_in_python,
    encode_message,
    encode_message_in_python,
)

MOST = {"B": (1 << 8) - 1, "H": (1 << 16) - 1, "I": (1 << 32) - 1}
TEXTS = ["", "label", "\u00fc\u4e2d", "\U0001f600", "half \ud800"]


def some_message(chance: Random) -> Message:
    """Return a message in which some attributes have other values than usual."""
    values: dict[str, Any] = {}
    for name, code in FIELDS:
        if chance.random() < 0.3 and name not in ("version", "flags", "tail_size"):
            is_bytes = code.endswith("s")
            values[name] = chance.randbytes(int(code[:-1])) if is_bytes else chance.choice((0, 1, MOST[code]))
    for name, is_text in PARTS:
        if chance.random() < 0.3:
            values[name] = chance.choice(TEXTS) if is_text else chance.randbytes(chance.choice((0, 1, 300)))
    for name in ("first_in_transaction", "last_in_transaction", "default_provider"):
        values[name] = chance.random() < 0.2
    if chance.random() < 0.2:
        values["multiple_destination_signature"] = chance.randbytes(5)
    if chance.random() < 0.2:
        values["destination_multi_queue_format_name"] = chance.choice(TEXTS)
    return Message(**values)


def outcome(function: Any, *arguments: Any) -> object:
    """Return the result of a function, or the type and text of its error."""
    try:
        return function(*arguments)
    except Exception as error:
        return type(error), str(error)


@given(st.randoms(use_true_random=False))
def test_any_message_has_the_same_record(chance: Random) -> None:
    message = some_message(chance)
    record = encode_message(message)
    assert record == encode_message_in_python(message)
    copy = message.copy()
    assert copy == message == copy_in_python(message) and copy is not message
    several = message.destination_multi_queue_format_name
    texts = [several, *(getattr(message, name) for name, is_text in PARTS if is_text)]
    parts = [
        message.multiple_destination_signature,
        *(getattr(message, name) for name, is_text in PARTS if not is_text),
    ]
    assert message.size == 256 + 2 * len("".join(texts)) + len(b"".join(parts))
    for form in (record, compact(record)):
        found = decode_message(form, 7)
        assert found == decode_message_in_python(form, 7)
        assert found == replace(message, lookup_identifier=7)
        assert [type(getattr(found, field.name)) for field in fields(Message)] == [
            type(getattr(message, field.name)) for field in fields(Message)
        ]


@given(st.randoms(use_true_random=False), st.integers(0, FIXED.size + 20), st.integers(0, 255), st.integers(0, 3))
def test_a_damaged_record_gives_the_same_message_or_error(chance: Random, at: int, value: int, cut: int) -> None:
    record = encode_message(some_message(chance))
    damaged = bytearray(chance.choice((record, compact(record))))
    damaged[at % len(damaged)] = value
    damaged = damaged[: len(damaged) - cut]
    assert outcome(decode_message, bytes(damaged), 7) == outcome(decode_message_in_python, bytes(damaged), 7)


@pytest.mark.parametrize("values", [
    {"priority": 256}, {"priority": -1}, {"priority": 1 << 70}, {"priority": None}, {"priority": 1.5},
    {"delivery_guarantee": Delivery.RECOVERABLE}, {"message_class": MessageClass.REPORT}, {"priority": True},
    {"identifier": b"short"}, {"identifier": bytes(30)}, {"identifier": "text"}, {"sent_time": 1 << 32},
    {"body": bytearray(b"body")}, {"body": memoryview(b"body")}, {"body": "text"}, {"label": b"bytes"}, {"label": None},
    {"first_in_transaction": 1}, {"last_in_transaction": None}, {"multiple_destination_signature": None},
    {"destination_multi_queue_format_name": None},
])  # fmt: skip
def test_unusual_values_give_the_same_record_or_error(values: dict[str, Any]) -> None:
    message = Message(body=b"body")
    for name, value in values.items():
        setattr(message, name, value)
    assert_same_outcomes(message)


def assert_same_outcomes(message: Message) -> None:
    assert outcome(encode_message, message) == outcome(encode_message_in_python, message)
    assert outcome(message.copy) == outcome(copy_in_python, message)


@pytest.mark.parametrize("values", [{"body": None}, {"label": 5}, {"signature": 1.5}])
def test_the_size_of_a_message_with_other_types_is_an_error(values: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="has no len"):
        assert replace(Message(), **values).size


def test_a_message_without_an_attribute_gives_the_same_error() -> None:
    for field in fields(Message):
        message = Message()
        delattr(message, field.name)
        assert_same_outcomes(message)


def test_other_arguments_give_the_same_error() -> None:
    record = encode_message(Message(body=b"body"))
    for wrong in (None, 5, "text", bytearray(record), memoryview(record), b"", b"\2", record[:100]):
        assert outcome(decode_message, wrong, 7) == outcome(decode_message_in_python, wrong, 7)
        assert outcome(encode_message, wrong) == outcome(encode_message_in_python, wrong)
