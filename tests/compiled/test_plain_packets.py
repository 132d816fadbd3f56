"""Plain packets: native code makes the same records as the Python code, and leaves to it what it does not know."""

from __future__ import annotations

import random
from array import array
from dataclasses import replace

import pytest

import seeds
from openmsmq.conversion.packets import message_of, user_message_of
from openmsmq.model.constants import INFINITE
from openmsmq.model.lookup_id import lookup_id
from openmsmq.model.message import Message
from openmsmq.packet import BadPacket, MessagePacket, UserMessage, plain_packets
from openmsmq.packet.headers import DebugHeader, SessionHeader, SoapHeader, TransactionHeader
from openmsmq.packet.reader import Reader
from openmsmq.record.layouts import WRITTEN
from openmsmq.record.message_record import encode_message

LABELS = ("", "label", "Größe", "日本語", "x" * 249)
SID = bytes.fromhex("010500000000000515000000010000000200000003000000e9030000")
SOURCE, OTHER = bytes(range(1, 17)), b"o" * 16
DESTINATIONS = (
    "DIRECT=TCP:10.0.0.1\\private$\\größe", "DIRECT=OS:x\\y", "PRIVATE=6f6f6f6f-6f6f-6f6f-6f6f-6f6f6f6f6f6f\\0000001a",
    "PUBLIC=6f6f6f6f-6f6f-6f6f-6f6f-6f6f6f6f6f6f",
)  # fmt: skip
NOW = 1_000_000
CASES = 3000


def some_message(chance: random.Random) -> Message:
    """Return a message whose packet is plain."""
    message = Message(
        source_machine_identifier=SOURCE, destination_queue_format_name=chance.choice(DESTINATIONS),
        delivery_guarantee=chance.randrange(2), time_to_reach_queue=chance.choice((INFINITE, 345_600)),
        journaling_requested=chance.choice((0, 0, 1, 2, 3)), acknowledgements_requested=chance.choice((0, 0, 15)),
        response_queue_format_name=chance.choice(("", "DIRECT=OS:a\\private$\\b", DESTINATIONS[2])),
        administration_queue_format_name=chance.choice(("", "DIRECT=OS:a\\private$\\b", DESTINATIONS[3])),
        time_to_be_received=chance.choice((INFINITE, 9)),
    )  # fmt: skip
    if chance.random() < 0.5:
        message.sender_identifier, message.sender_identifier_type = SID, 1
    return message


def vary(chance: random.Random, message: Message) -> Message:
    """Return a message with the same envelope."""
    return replace(
        message, identifier=SOURCE + chance.randbytes(4), sent_time=NOW - chance.randrange(100),
        body=chance.randbytes(chance.choice((0, 1, 10, 1000))), label=chance.choice(LABELS),
        extension=chance.randbytes(chance.choice((0, 0, 5))), priority=chance.randrange(8),
        application_tag=chance.randrange(1 << 32), body_type=chance.randrange(1 << 32),
        correlation_identifier=chance.randbytes(20), hash_algorithm=chance.choice((0x8004, 0x800C)),
        encryption_algorithm=chance.choice((0x6602, 0x6801)),
    )  # fmt: skip


def packed(chance: random.Random, message: Message) -> bytes:
    packet = user_message_of(message)
    if chance.random() < 0.2:
        packet.session = SessionHeader(1, 2, 3, 4, 5, 6)
    return packet.pack()


def form_of(message: Message) -> tuple[bytes, int]:
    bare = replace(message, body=b"", extension=b"", label="")
    return encode_message(bare), bare.size


def arrived(packet: bytes, seconds: int) -> Message:
    """Return the message in a packet, as Python reads it."""
    message = message_of(MessagePacket(UserMessage.unpack(Reader(packet))), absolute=False, here=OTHER)
    message.arrival_time = seconds
    return message


def test_records() -> None:
    chance = seeds.chance("plain packets")
    for sequence in range(1, CASES):
        shape = some_message(chance)
        first, second = (packed(chance, vary(chance, shape)) for _ in range(2))
        envelopes = plain_packets.envelopes([first, second])
        assert len(envelopes) == 2 and envelopes[0] is envelopes[1]
        expected = arrived(second, NOW)
        found = plain_packets.records([second], [form_of(arrived(first, NOW))], WRITTEN, sequence, NOW)
        records, bounds, keys, words, charged, identifiers = found
        assert records == encode_message(expected)
        assert plain_packets.delivery(second) == expected.delivery_guarantee
        assert (bounds, keys, words, charged, identifiers) == (
            array("q", [0, len(records)]), array("Q", [sequence]), array("Q", [lookup_id(expected.priority, 0)]),
            array("I", [expected.size]), [expected.identifier],
        )  # fmt: skip


def test_packets_that_differ_in_anything_else_have_different_envelopes() -> None:
    shape = replace(some_message(seeds.chance("envelopes")), journaling_requested=2)
    others = [
        replace(shape, destination_queue_format_name="DIRECT=OS:other\\q"), replace(shape, delivery_guarantee=1),
        replace(shape, delivery_guarantee=0), replace(shape, time_to_reach_queue=77), replace(shape, message_class=1),
        replace(shape, time_to_be_received=7), replace(shape, acknowledgements_requested=3),
        replace(shape, journaling_requested=0), replace(shape, journaling_requested=1),
        replace(shape, source_machine_identifier=OTHER), replace(shape, response_queue_format_name="DIRECT=OS:r\\q"),
        replace(shape, sender_identifier=SID[:-1] + b"\1", sender_identifier_type=1),
    ]  # fmt: skip
    found = [plain_packets.envelopes([user_message_of(message).pack()])[0] for message in others]
    assert len(set(found)) == len(others)


def test_unusual_packets_are_left_to_python() -> None:
    chance = seeds.chance("unusual packets")
    usual = some_message(chance)
    unusual = [
        replace(usual, label="😀"), replace(usual, tracing_requested=1),
        replace(usual, connector_type_identifier=OTHER),
        replace(usual, privacy_level=1, symmetric_key=b"k"), replace(usual, signature=b"s", default_provider=True),
        replace(usual, sender_certificate=b"c"), replace(usual, transaction_identifier=SOURCE + b"\1\0\0\0"),
        replace(usual, destination_multi_queue_format_name="DIRECT=OS:a\\b,DIRECT=OS:c\\d"),
        replace(usual, body=bytes(1 << 20)),
    ]  # fmt: skip
    packets = [user_message_of(message) for message in unusual]
    for name, header in {"soap": SoapHeader(), "debug": DebugHeader(), "transaction": TransactionHeader()}.items():
        packet = user_message_of(usual)
        setattr(packet, name, header)
        packets.append(packet)
    assert [plain_packets.delivery(packet.pack()) for packet in packets] == [-1] * len(packets)
    plain = user_message_of(usual).pack()
    assert len(plain_packets.envelopes([plain, packets[0].pack(), plain])) == 1


def test_damaged_packets_are_never_read_otherwise_than_by_python() -> None:
    chance, plain = seeds.chance("damaged packets"), 0
    for _ in range(3 * CASES):
        changed = bytearray(packed(chance, vary(chance, some_message(chance))))
        for _ in range(chance.randrange(1, 4)):
            at = chance.choice((chance.randrange(len(changed)), chance.randrange(16, 150) % len(changed)))
            changed[at] = chance.choice((0, 1, 2, 4, 0x7F, 0xFF, chance.randrange(256)))
        if chance.random() < 0.2:
            del changed[chance.randrange(len(changed)) :]
        packet = bytes(changed)
        delivery = plain_packets.delivery(packet)
        if delivery < 0:
            assert plain_packets.envelopes([packet]) == []
            continue
        plain += 1
        reader = Reader(packet)
        message = UserMessage.unpack(reader)
        assert not reader.remaining and message.user.delivery == delivery
        assert (message.session is not None) == message.base.has_session
        expected = arrived(packet, NOW)
        records, *_ = plain_packets.records([packet], [form_of(expected)], WRITTEN, 1, expected.sent_time)
        expected.arrival_time = expected.sent_time
        assert records == encode_message(expected)
    assert plain > CASES / 2


@pytest.mark.parametrize("lifetime", [0, 5, 1000, INFINITE])
def test_expired_packets_are_left_to_python(lifetime: int) -> None:
    chance = seeds.chance("expired packets")
    message = replace(some_message(chance), time_to_reach_queue=lifetime, sent_time=NOW)
    packet, form = user_message_of(message).pack(), form_of(message)
    for age in (-1000, -1, 0, 1, lifetime - 1, lifetime, lifetime + 1):
        seconds = (NOW + age) % (1 << 32)
        signed = (age + (1 << 31)) % (1 << 32) - (1 << 31)  # as `Arrival` counts
        expired = lifetime != INFINITE and signed > lifetime
        assert len(plain_packets.records([packet], [form], WRITTEN, 1, seconds)[2]) == (not expired)


def test_a_packet_cut_anywhere_is_left_to_python() -> None:
    packet = user_message_of(replace(some_message(seeds.chance("cut")), body=b"body", label="label")).pack()
    for size in range(len(packet)):
        assert plain_packets.delivery(packet[:size]) == -1
        with pytest.raises(BadPacket):
            UserMessage.unpack(Reader(packet[:size]))


def test_arguments() -> None:
    packet, form = user_message_of(Message()).pack(), form_of(Message())
    assert plain_packets.delivery(bytearray(packet)) == -1  # type: ignore[arg-type]
    for packets, forms, layout in (
        ([packet], [], WRITTEN), ([packet], [form], WRITTEN[:-1]), ([packet], [(b"short", 1)], WRITTEN),
        ([packet], [form[0]], WRITTEN), ([packet], [(form[0], -1)], WRITTEN), ((packet,), [form], WRITTEN),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError, OverflowError)):
            plain_packets.records(packets, forms, layout, 1, 2)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        plain_packets.envelopes((packet,))  # type: ignore[arg-type]
