"""Admission of messages: limits on both sides; an admitted message fits every form that it may be converted to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.conversion.packets import packet_of, user_message_of
from openmsmq.conversion.receive_buffer import BufferSizes, fill, receive_buffer
from openmsmq.model.admission import (
    MAXIMUM_MESSAGE_FORMAT_NAME,
    MAXIMUM_SECURITY_PART,
    check_message,
    packed_size,
    utf16_units,
)
from openmsmq.model.constants import MAXIMUM_LABEL, MAXIMUM_MESSAGE_SIZE
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.message import Message
from openmsmq.record.message_record import decode_message, encode_message

EMOJI = "\U0001f600"
GUID = "5f1b2c3d-0000-1111-2222-333344445555"
HERE = "DIRECT=OS:here\\private$\\q"


def refusal(**values: Any) -> HResult | None:
    try:
        check_message(Message(**{"destination_queue_format_name": HERE, **values}))
    except MsmqError as error:
        return HResult(error.hresult)
    return None


@pytest.mark.parametrize(
    ("values", "beyond", "error"),
    [
        ({"label": "x" * MAXIMUM_LABEL}, {"label": "x" * 250}, HResult.MQ_ERROR_LABEL_TOO_LONG),
        ({"label": EMOJI * 124}, {"label": EMOJI * 125}, HResult.MQ_ERROR_LABEL_TOO_LONG),
        ({"label": "x" + EMOJI * 124}, {"label": "xx" + EMOJI * 124}, HResult.MQ_ERROR_LABEL_TOO_LONG),
        ({"label": ""}, {"label": "a\0b"}, HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
        ({"signature": bytes(65535)}, {"signature": bytes(65536)}, HResult.MQ_ERROR_ILLEGAL_PROPERTY_SIZE),
        ({"symmetric_key": bytes(65535)}, {"symmetric_key": bytes(65536)}, HResult.MQ_ERROR_ILLEGAL_PROPERTY_SIZE),
        ({"sender_identifier": bytes(65535)}, {"sender_identifier": bytes(65536)},
         HResult.MQ_ERROR_ILLEGAL_PROPERTY_SIZE),
        ({"response_queue_format_name": "DIRECT=OS:h\\" + "x" * (MAXIMUM_MESSAGE_FORMAT_NAME - 12)},
         {"response_queue_format_name": "DIRECT=OS:h\\" + "x" * (MAXIMUM_MESSAGE_FORMAT_NAME - 11)},
         HResult.MQ_ERROR_ILLEGAL_FORMATNAME),
        ({"administration_queue_format_name": EMOJI * 511}, {"administration_queue_format_name": EMOJI * 512},
         HResult.MQ_ERROR_ILLEGAL_FORMATNAME),
        ({"authentication_provider_name": "p" * 1023}, {"authentication_provider_name": "p" * 1024},
         HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
        ({"authentication_provider_name": "p"}, {"authentication_provider_name": "p\0"},
         HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
        ({"body_type": 0xFFFFFFFF}, {"body_type": 1 << 32}, HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
        ({"application_tag": 0}, {"application_tag": -1}, HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
        ({"priority": 7}, {"priority": 256}, HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
        ({"message_class": 0xFFFF}, {"message_class": 0x10000}, HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
        ({"correlation_identifier": bytes(20)}, {"correlation_identifier": bytes(19)},
         HResult.MQ_ERROR_ILLEGAL_PROPERTY_SIZE),
    ],
)  # fmt: skip
def test_a_part_may_be_as_large_as_its_limit_and_no_larger(
    values: dict[str, Any], beyond: dict[str, Any], error: HResult
) -> None:
    assert refusal(**values) is None
    assert refusal(**beyond) is error


def test_the_packet_of_a_message_is_as_large_as_packet_size_allows_and_no_larger() -> None:
    name = "DIRECT=OS:" + "h" * 200 + "\\private$\\" + "q" * 124
    message = Message(
        label="x" * 249, destination_queue_format_name=name, administration_queue_format_name=name,
        response_queue_format_name=",".join([name] * 2), extension=bytes(5), tracing_requested=1,
    )  # fmt: skip
    message.body = bytes(MAXIMUM_MESSAGE_SIZE - packed_size(message))
    check_message(message)
    assert len(user_message_of(message).pack()) <= MAXIMUM_MESSAGE_SIZE
    with pytest.raises(MsmqError, match="at most 4194304") as raised:
        check_message(replace(message, body=message.body + b"x"))
    assert raised.value.hresult == HResult.MQ_ERROR_INSUFFICIENT_RESOURCES
    with pytest.raises(MsmqError):
        check_message(message, overhead=1)


_TEXT = st.text(st.characters(exclude_characters="\0"), max_size=260) | st.text("x" + EMOJI, max_size=260)
_DIRECT = st.builds(
    "DIRECT=OS:{}\\private$\\{}".format, st.text("hé" + EMOJI, min_size=1, max_size=100),
    st.text("q" + EMOJI, min_size=1, max_size=60),
)  # fmt: skip
_NAME = st.one_of(_DIRECT, st.just(f"PUBLIC={GUID}"), st.just(f"PRIVATE={GUID}\\0000000f"))
_NAMES = st.lists(_NAME, max_size=8).map(",".join)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    small = st.binary(max_size=200)
    security = small | st.sampled_from([bytes(65535), bytes(65536)])
    return Message(
        body=draw(small | st.just(bytes(70_000))), label=draw(_TEXT), body_type=draw(st.integers(0, 0xFFFF)),
        priority=draw(st.integers(0, 7)), delivery_guarantee=draw(st.integers(0, 1)),
        acknowledgements_requested=draw(st.integers(0, 15)), journaling_requested=draw(st.integers(0, 3)),
        tracing_requested=draw(st.integers(0, 1)), extension=draw(small), application_tag=draw(st.integers(0, 2**32)),
        time_to_reach_queue=draw(st.integers(0, 2**32 - 1)), time_to_be_received=draw(st.integers(0, 2**32 - 1)),
        destination_queue_format_name=draw(_DIRECT), administration_queue_format_name=draw(_NAMES),
        response_queue_format_name=draw(_NAMES), sender_identifier=draw(small), sender_identifier_type=1,
        sender_certificate=draw(small), symmetric_key=draw(security), signature=draw(security),
        authentication_provider_name=draw(_TEXT), authentication_provider_type=1, lookup_identifier=5,
    )  # fmt: skip


@given(message=messages())
def test_every_admitted_message_can_be_encoded_in_every_protocol_and_in_the_store(message: Message) -> None:
    try:
        check_message(message)
    except MsmqError:
        return
    packet = packet_of(message, "s" * 31).pack()
    packed = user_message_of(message).pack()
    assert len(packed) <= packed_size(message) and len(packet) > len(packed)
    assert decode_message(encode_message(message), 5) == message
    sizes = BufferSizes(len(message.body), len(message.extension), 400, 1024, 1 << 16, 1 << 16, 1 << 16, 1024)
    assert fill(receive_buffer(0, 0, sizes=sizes), message, 0) == HResult.MQ_OK  # type: ignore[arg-type]


def test_utf_16_units_count_what_the_wire_counts() -> None:
    assert [utf16_units(text) for text in ("", "abc", "é", EMOJI, "\ud83d", "a" + EMOJI)] == [0, 3, 1, 2, 1, 3]
    assert MAXIMUM_SECURITY_PART == 65535
