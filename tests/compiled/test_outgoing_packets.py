"""Packets of records: native code makes the same packets as the Python code."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

import seeds
from openmsmq.conversion.packets import user_message_of
from openmsmq.model.message import Message
from openmsmq.packet import outgoing_packets, plain_packets
from openmsmq.record.compact_record import compact
from openmsmq.record.layouts import READ, WRITTEN
from openmsmq.record.message_record import decode_message, encode_message

from .test_plain_packets import CASES, LABELS, OTHER, some_message, vary

UNUSUAL = (
    {"acknowledgements_requested": 1}, {"transaction_identifier": OTHER + bytes(4)}, {"first_in_transaction": True},
    {"destination_multi_queue_format_name": "DIRECT=OS:a\\b,DIRECT=OS:c\\d"}, {"label": "x" * 250},
    {"multiple_destination_signature": b"s"},
)  # fmt: skip


def template_of(message: Message) -> tuple[bytes, int]:
    packet = user_message_of(message).pack()
    return packet, plain_packets.properties(packet)


def test_packets() -> None:
    chance = seeds.chance("outgoing packets")
    for _ in range(CASES):
        shape = replace(some_message(chance), acknowledgements_requested=0)
        first, second = (vary(chance, shape) for _ in range(2))
        second = replace(
            second, label=chance.choice((*LABELS, "😀\ud800")), hash_algorithm=chance.choice((0, 0x8004)),
            encryption_algorithm=chance.choice((0, 0x6602)), arrival_time=chance.randrange(9), sent_milliseconds=7,
        )  # fmt: skip
        form = chance.choice((bytes, compact))
        records = [form(encode_message(first)), form(encode_message(second))]
        shapes = outgoing_packets.shapes(records, READ)
        assert len(shapes) == 2 and shapes[0] == shapes[1]
        template = template_of(first)
        expected = [user_message_of(message).pack() for message in (first, second)]
        assert outgoing_packets.packets(records, [template, template], READ) == expected


def test_records_that_differ_in_anything_else_have_different_shapes() -> None:
    shape = replace(some_message(seeds.chance("shapes")), acknowledgements_requested=0, journaling_requested=0)
    others = [
        shape, replace(shape, destination_queue_format_name="DIRECT=OS:other\\q"), replace(shape, privacy_level=1),
        replace(shape, delivery_guarantee=1 - shape.delivery_guarantee), replace(shape, time_to_reach_queue=77),
        replace(shape, time_to_be_received=7), replace(shape, journaling_requested=1), replace(shape, message_class=1),
        replace(shape, source_machine_identifier=OTHER), replace(shape, tracing_requested=1),
        replace(shape, response_queue_format_name="DIRECT=OS:r\\q"), replace(shape, connector_type_identifier=OTHER),
        replace(shape, administration_queue_format_name="DIRECT=OS:r\\q"), replace(shape, signature=b"s"),
        replace(shape, sender_identifier=b"sid", sender_identifier_type=1), replace(shape, sender_certificate=b"c"),
        replace(shape, authentication_level=1), replace(shape, symmetric_key=b"k"), replace(shape, abort_count=1),
        replace(shape, authentication_provider_name="p"),
    ]  # fmt: skip
    found = outgoing_packets.shapes([encode_message(message) for message in others], READ)
    assert len(found) == len(set(found)) == len(others)


@pytest.mark.parametrize("values", UNUSUAL, ids=lambda values: next(iter(values)))
def test_unusual_messages_are_left_to_python(values: dict[str, object]) -> None:
    usual = replace(some_message(seeds.chance("usual")), acknowledgements_requested=0)
    record, unusual = encode_message(usual), encode_message(replace(usual, **values))  # type: ignore[arg-type]
    assert outgoing_packets.shapes([unusual], READ) == []
    assert len(outgoing_packets.shapes([record, unusual, record], READ)) == 1
    template = template_of(usual)
    assert len(outgoing_packets.packets([record, unusual, record], [template] * 3, READ)) == 1


def test_damaged_records_are_never_read_otherwise_than_by_python() -> None:
    chance, read = seeds.chance("damaged records"), 0
    for _ in range(CASES):
        usual = replace(some_message(chance), acknowledgements_requested=0)
        changed = bytearray(chance.choice((bytes, compact))(encode_message(vary(chance, usual))))
        for _ in range(chance.randrange(1, 4)):
            changed[chance.choice((chance.randrange(len(changed)), chance.randrange(min(300, len(changed)))))] ^= (
                1 << chance.randrange(8)
            )
        record = bytes(changed)
        if not outgoing_packets.shapes([record], READ):
            continue
        message = decode_message(record, 1)
        if message.priority > 7 or message.delivery_guarantee > 1:  # no such message is stored
            continue
        try:
            packet = user_message_of(message).pack()
        except (struct.error, ValueError):  # the ordinary path reports it
            continue
        if plain_packets.properties(packet) >= 0:
            read += 1
            assert outgoing_packets.packets([record], [template_of(message)], READ) == [packet]
    assert read > CASES / 10


def test_arguments() -> None:
    record, template = (
        encode_message(Message()),
        template_of(replace(Message(), destination_queue_format_name="DIRECT=OS:a\\b")),
    )
    for records, templates, layout in (
        ([record], [], READ), ([record], [template], WRITTEN), ([record], [(template[0], -1)], READ),
        ([record], [(template[0], len(template[0]))], READ), ([record], [template[0]], READ),
        ((record,), [template], READ), ([record], [(template[0], 10)], READ),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError, OverflowError)):
            outgoing_packets.packets(records, templates, layout)  # type: ignore[arg-type]
    with pytest.raises((TypeError, ValueError)):
        outgoing_packets.shapes([record], WRITTEN)
    assert outgoing_packets.shapes([bytearray(record)], READ) == []  # type: ignore[list-item]
