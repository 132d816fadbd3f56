"""The product's parser accepts packets of the independent builder, with the same values, and its own packets
conform."""

from __future__ import annotations

import dataclasses
import os
import random
import struct
from typing import Any

import pytest

from openmsmq.packet import UserMessage as Parsed
from openmsmq.packet.internal import FinalAckBody, OrderAckBody, PingPacket, SessionAck, parse_internal
from openmsmq.packet.queue_names import QueueName
from openmsmq.packet.reader import Reader
from openmsmq.packet.stream import Framer, is_internal
from openmsmq.peering.pinging import answer_to
from packets import building as make
from packets import checker, names, pings
from packets.checker import Packet
from seeds import chance
from tallies import tally

# 8 for each simulation that tests/peering/test_simulation.py runs; at night there are more.
COUNT = 8 * int(os.environ.get("SIMULATIONS", "24"))

# By header: fields of the specification, and the product's attributes for them.
SAME = {
    ("BaseHeader", "base"): {
        "Flags.PR": "priority", "Flags.TR": "tracing", "PacketSize": "packet_size",
        "TimeToReachQueue": "time_to_reach_queue",
    },
    ("UserHeader", "user"): {
        "SourceQueueManager": "source_queue_manager", "QueueManagerAddress": "queue_manager_address",
        "TimeToBeReceived": "time_to_be_received", "SentTime": "sent_time", "MessageID": "message_id",
        "Flags.RC": "routing_count", "Flags.DM": "delivery", "Flags.JN": "negative_journaling",
        "Flags.JP": "positive_journaling", "ConnectorType": "connector_type",
    },
    ("TransactionHeader", "transaction"): {
        "Flags.ID": "identifier", "Flags.FM": "first", "Flags.LM": "last", "Flags.FA": "final_ack_required",
        "TxSequenceNumber": "sequence_number", "PreviousTxSequenceNumber": "previous_sequence_number",
        "ConnectorQMGuid": "connector_queue_manager",
    },
    ("SecurityHeader", "security"): {
        "Flags.ST": "sender_type", "Flags.EB": "encrypted", "Flags.DE": "default_provider", "Flags.AU": "authenticated",
        "SecurityID": "sender", "EncryptionKey": "encryption_key", "Signature": "signature",
        "SenderCert": "certificate", "ProviderName": "provider_name",
    },
    ("MessagePropertiesHeader", "properties"): {
        "Flags": "acknowledge", "Label": "label", "MessageClass": "message_class", "CorrelationID": "correlation_id",
        "BodyType": "body_type", "ApplicationTag": "application_tag", "PrivacyLevel": "privacy_level",
        "HashAlgorithm": "hash_algorithm", "EncryptionAlgorithm": "encryption_algorithm",
        "ExtensionData": "extension", "MessageBody": "body",
    },
    ("DebugHeader", "debug"): {"QueueIdentifier": "queue"},
    ("SoapHeader", "soap"): {"Header": "header", "Body": "body"},
    ("MultiQueueFormatHeader", "multi_queue"): {"Signature": "signature"},
    ("SessionHeader", "session"): {
        "AckSequenceNumber": "ack_sequence_number", "RecoverableMsgAckSeqNumber": "recoverable_ack_sequence_number",
        "RecoverableMsgAckFlags": "recoverable_ack_flags", "UserMsgSequenceNumber": "user_sequence_number",
        "RecoverableMsgSeqNumber": "recoverable_sequence_number", "WindowSize": "window_size",
    },
}  # fmt: skip
QUEUES = {
    "DestinationQueue": ("DQ", "destination"), "AdminQueue": ("AQ", "administration"),
    "ResponseQueue": ("RQ", "response"),
}  # fmt: skip
LISTS = {"Destination": "destination", "Administration": "administration", "Response": "response"}
LIST_TYPES = {1: names.PUBLIC, 2: names.PRIVATE, 3: names.DIRECT}


def plain(name: QueueName | None) -> tuple[int, object]:
    """Return a name in the form of the independent reading: its type and its value."""
    if name is None:
        return names.NONE, None
    values: dict[int, object] = {
        names.SAME: None, names.PUBLIC: name.guid, names.DIRECT: name.direct, names.PRIVATE: (name.guid, name.number),
    }  # fmt: skip
    return int(name.type), values.get(name.type, name.number)


def parse(data: bytes) -> Parsed:
    """Parse data received in two pieces."""
    framer = Framer()
    framer.feed(data[:20])
    assert framer.next() is None
    framer.feed(data[20:])
    found = framer.next()
    assert found is not None and not is_internal(found) and framer.next() is None
    return Parsed.unpack(Reader(found))


def compare(packet: Packet, parsed: Parsed) -> None:
    for (header, attribute), fields in SAME.items():
        there, made = packet.get(header), getattr(parsed, attribute)
        assert (there is None) == (made is None), header
        if there is None:
            continue
        for field, name in fields.items():
            value = there.get(field)
            assert (value or None) == (getattr(made, name) or None), (header, field)
    user = packet["UserHeader"]
    for field, (kind, attribute) in QUEUES.items():
        assert plain(getattr(parsed.user, attribute)) == (user[f"Flags.{kind}"], user.get(field)), field
    if (transaction := packet.get("TransactionHeader")) is not None:
        assert parsed.transaction is not None
        ordinal, stamp = struct.unpack("<II", transaction["TxSequenceID"])
        assert (parsed.transaction.sequence_ordinal, parsed.transaction.sequence_timestamp) == (ordinal, stamp)
    if (several := packet.get("MultiQueueFormatHeader")) is not None:
        assert parsed.multi_queue is not None
        for field, attribute in LISTS.items():
            listed = [
                (6, name.guid) if name.is_distribution_list else plain(name)
                for name in getattr(parsed.multi_queue, attribute)
            ]
            assert listed == [(LIST_TYPES.get(kind, kind), value) for kind, value in several[field]], field


def unused_bits(luck: random.Random, message: make.UserMessage) -> make.UserMessage:
    """Return the message with random bits where receivers must ignore them."""
    base = message.base | {"X": luck.randrange(128), "X8": luck.randrange(2), "X9": luck.randrange(2)}
    bits = message.bits | {"X1": 1, "X2": luck.randrange(2), "X3": luck.randrange(4), "X4": luck.randrange(8)}
    for header in (message.transaction, message.security):
        if header is not None:
            header.bits["X"] = luck.randrange(16)
    return dataclasses.replace(message, base=base, bits=bits)


@pytest.mark.parametrize("strict", [True, False])
def test_the_product_reads_what_the_second_reading_builds(strict: bool) -> None:
    luck = chance(f"packets for the product {strict}")
    tally("packets", COUNT)
    for _ in range(COUNT):
        message = make.random_user_message(luck)
        data = (message if strict else unused_bits(luck, message)).encode()
        compare(checker.check(data, strict), parse(data))


def test_what_the_product_writes_again_breaks_no_rule_and_says_the_same() -> None:
    luck = chance("packets that the product writes")
    tally("packets", COUNT)
    for _ in range(COUNT):
        parsed = parse(make.random_user_message(luck).encode())
        data = parsed.pack()
        compare(checker.check(data), parse(data))


def test_packets_that_negotiate_and_acknowledge_are_read_with_the_same_values() -> None:
    luck = chance("internal packets for the product")
    for _ in range(100):
        flags = luck.randrange(8)
        client, server = luck.randbytes(16), luck.choice([bytes(16), luck.randbytes(16)])
        establish: Any = parse_internal(make.establish_connection(
            client, server, stamp=luck.randrange(1 << 32), system=0x10 | flags << 8, padding=luck.randbytes(512),
        ))  # fmt: skip
        assert (establish.client_guid, establish.server_guid) == (client, server)
        assert establish.without_ping | establish.server_class << 1 | establish.quality_of_service << 2 == flags
        recoverable, timeout = luck.randint(0x1F4, 0x1D4C0), luck.randint(0x4E20, 0x1D4C0)
        parameters: Any = parse_internal(make.connection_parameters(
            recoverable=recoverable, timeout=timeout, window=luck.randrange(1 << 16), PR=luck.randrange(8),
        ))  # fmt: skip
        assert (parameters.recoverable_ack_timeout, parameters.ack_timeout) == (recoverable, timeout)
        values = [luck.randrange(1, 1 << 16) for _ in range(5)]
        received, first, sent, recoverable, window = values
        bits = luck.randrange(1 << 32) | 1
        body = make.session_header(received, first, bits, sent, recoverable, window, luck.randrange(1 << 16))
        acknowledgment = parse_internal(make.session_ack(body))
        assert isinstance(acknowledgment, SessionAck)
        assert dataclasses.astuple(acknowledgment.session) == (received, first, bits, sent, recoverable, window)


def test_bodies_of_acknowledgments_are_read_with_the_same_values() -> None:
    luck = chance("acknowledgments for the product")
    for _ in range(50):
        sequence, number = luck.randrange(1, 1 << 64), luck.randrange(1, 1 << 32)
        previous, source = luck.randrange(number), luck.randbytes(15) + b"\1"
        identifier = (sequence & 0xFFFFFFFF, sequence >> 32)
        order = OrderAckBody.parse(parse(make.order_ack(sequence, number).encode()).properties.body)
        assert dataclasses.astuple(order)[:3] == (*identifier, number)
        packet = parse(make.final_ack(sequence, number, previous, source=source).encode())
        final = FinalAckBody.parse(packet.properties.body)
        assert dataclasses.astuple(final) == (*identifier, number, previous, source, 5)


def test_questions_and_answers_of_pings_break_no_rule() -> None:
    luck = chance("pings of the product")
    for _ in range(50):
        here, there = luck.randbytes(15) + b"\1", luck.randbytes(15) + b"\2"
        question = PingPacket(luck.randrange(1 << 32), there, bool(luck.randrange(2))).pack()
        asked, accepts = pings.check(question), bool(luck.randrange(2))
        answer = answer_to(question, here, accepts)
        assert answer is not None
        read = pings.check(answer, asked)
        assert (read["QMGuid"], read["Flags.RF"]) == (here, not accepts)
