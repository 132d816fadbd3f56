"""Stubs of plain calls: native code returns the same result as the Python code, or none."""

from __future__ import annotations

import random
import struct
from array import array
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest

import seeds
from msrpc.ndr import NULL, BadStubData, NdrError
from openmsmq.conversion.packets import packet_of
from openmsmq.conversion.receive_buffer import BufferSizes, check_sizes, fill, receive_buffer
from openmsmq.conversion.send_buffer import message_from_send, send_buffer
from openmsmq.interfaces import ms_mqmp as m
from openmsmq.interfaces import ms_mqrr
from openmsmq.interfaces.ms_mqmp import CACTransferBufferV1
from openmsmq.interfaces.ms_mqmq import OBJECTID, XACTUOW
from openmsmq.model.constants import INFINITE, ReceiveAction
from openmsmq.model.errors import MsmqError
from openmsmq.model.lookup_id import lookup_id
from openmsmq.model.message import NULL_IDENTIFIER, Message
from openmsmq.packet.sections import divide
from openmsmq.protocols import receive_stubs, send_stubs, start_receive_stubs
from openmsmq.protocols.remote_read import RR_ACK, RR_NACK
from openmsmq.protocols.user_headers import UserHeaders
from openmsmq.record.fields import FIXED
from openmsmq.record.layouts import READ, WRITTEN
from openmsmq.record.message_record import encode_message

SEND = m.qmcomm2.operation("rpc_ACSendMessageEx")
RECEIVE = m.qmcomm2.operation("rpc_ACReceiveMessageEx")
START = ms_mqrr.RemoteRead.operation("R_StartReceive")
END = ms_mqrr.RemoteRead.operation("R_EndReceive")
LABELS = ("", "label", "Größe", "日本語", "😀", "a\0b", "x" * 249, "x" * 250, "é" * 200)
SIDS = (b"", bytes.fromhex("010500000000000515000000010000000200000003000000e9030000"), b"\1\2bad", bytes(16))
MACHINE, SID, NAME = bytes(range(1, 17)), SIDS[1], "DIRECT=OS:.\\private$\\größe"
CASES = 3000


def some_message(chance: random.Random) -> tuple[Message, dict[str, Any]]:
    """Return a message and, in half of all cases, a special value for a member of its buffer."""
    message = Message(
        body=chance.randbytes(chance.choice((0, 1, 10, 1000, 3000))), label=chance.choice(LABELS[:4]),
        delivery_guarantee=chance.randrange(2), priority=chance.randrange(8), application_tag=chance.randrange(1 << 32),
        body_type=chance.choice((0, 8, 0x1011)), time_to_reach_queue=chance.choice((INFINITE, 5, 0)),
    )  # fmt: skip
    if chance.random() < 0.3:
        message.correlation_identifier, message.extension = chance.randbytes(20), chance.randbytes(9)
    odd: dict[str, Any] = {}
    if chance.random() < 0.5:
        name, values = chance.choice((
            ("label", LABELS), ("time_to_be_received", (0, 1, 100)), ("journaling_requested", (1, 2, 3, 4)),
            ("acknowledgements_requested", (1, 2, 15, 16)), ("tracing_requested", (1, 2)), ("priority", (8, 255)),
            ("delivery_guarantee", (2,)), ("body_type", (0x10000,)), ("privacy_level", (1, 2, 4)),
            ("message_class", (1, 0x8000)), ("response_queue_format_name", ("DIRECT=OS:.\\private$\\a",)),
            ("administration_queue_format_name", ("DIRECT=OS:.\\private$\\b",)),
            ("connector_type_identifier", (bytes(range(16)),)), ("sender_certificate", (b"certificate",)),
            ("sender_identifier", SIDS), ("correlation_identifier", (NULL_IDENTIFIER,)),
        ))  # fmt: skip
        setattr(message, name, chance.choice(values))
        if name == "sender_identifier":
            message.sender_identifier_type = chance.choice((0, 1, 2, 3))
    if chance.random() < 0.3:
        name, values = chance.choice((
            ("pulHashAlg", (0, 0x8004, 0x8005)), ("pulEncryptAlg", (0x6602, 1)), ("pulSenderIDType", (0, 1, 2)),
            ("pulPrivLevel", (0, 1)), ("bEncrypted", (1,)), ("uSenderIDLen", (3,)), ("ulSenderCertLen", (1,)),
            ("pSentTime", (1,)), ("pulVersion", (16,)), ("pAuthenticated", (1,)), ("ppSrcQMID", (bytes(range(16)),)),
            ("ppMessageID", (OBJECTID(bytes(16), 7),)), ("ulAuthLevel", (9,)), ("pPriority", (None,)),
            ("pulRelativeTimeToQueue", (1,)), ("pulRelativeTimeToLive", (1,)), ("ulSignatureSize", (1,)),
        ))  # fmt: skip
        odd[name] = chance.choice(values)
    return message, odd


def some_send(chance: random.Random, handle: bytes) -> bytes:
    message, odd = some_message(chance)
    ptb = send_buffer(message, chance.choice((None, None, None, bytes(16), b"u" * 16)))
    for name, value in odd.items():
        setattr(ptb.old, name, value)
    if chance.random() < 0.1:
        ptb.pbFirstInXact, ptb.ppXactID = 1, OBJECTID(bytes(16), 3)
    wanted = OBJECTID(bytes(16), 0) if chance.random() < 0.8 else None
    try:
        stub = SEND.encode_request(m.rpc_ACSendMessageEx_Request(handle, ptb, wanted))
    except NdrError:  # not encodable: try another one
        return some_send(chance, handle)
    return damaged(chance, stub)


def some_receive(chance: random.Random, context: int) -> bytes:
    sizes = BufferSizes(
        chance.choice((3000, 3000, 1000, 0)),
        chance.choice((9, 9, 0)),
        chance.choice((68, 0)),
        chance.choice((64, 0, 10)),
        *chance.choice(((9, 9, 9, 9), (9, 9, 9, 9), (0, 0, 0, 1), (0, 0, 0, 0))),
    )
    uow = chance.choice((None, None, bytes(16), b"u" * 16))
    ptb = receive_buffer(
        ReceiveAction.RECEIVE, chance.choice((0, 0, 0, INFINITE)), chance.choice((0, 0, 0, 1)), uow, sizes
    )
    old = ptb.old
    assert old.Receive is not None
    old.Receive.Action = int(
        chance.choice((ReceiveAction.RECEIVE, ReceiveAction.RECEIVE, ReceiveAction.RECEIVE, ReceiveAction.PEEK_CURRENT))
    )
    for name in CACTransferBufferV1.__slots__:
        if name.startswith("p") and chance.random() < 0.02:
            setattr(old, name, chance.choice((None, NULL)) if name.startswith("pp") else None)
    if chance.random() < 0.2:
        old.ppwcsProvName, old.ulProvNameLen = "\0" * 9, 9
        old.ppSignature, old.ulSignatureSize, old.pulSignatureSizeProp = bytes(9), 9, 0
    if chance.random() < 0.2:
        old.ppTitle, old.ulTitleBufferSizeInWCHARs = "\0" * 100, 100
        old.pulTitleBufferSizeInWCHARs = chance.randrange(120)
    if chance.random() < 0.2:
        old.ulAllocBodyBufferInBytes += chance.randrange(50)
    try:
        stub = RECEIVE.encode_request(m.rpc_ACReceiveMessageEx_Request(context, ptb))
    except NdrError:
        return some_receive(chance, context)
    return damaged(chance, stub)


def damaged(chance: random.Random, stub: bytes) -> bytes:
    """Return the stub, sometimes modified."""
    dice = chance.random()
    if dice < 0.1:
        changed = bytearray(stub)
        for _ in range(chance.randrange(1, 4)):
            at = chance.choice((chance.randrange(len(changed)), chance.randrange(20, 400) % len(changed)))
            changed[at] = chance.choice((0, 1, 0x7F, 0xFF, chance.randrange(256)))
        return bytes(changed)
    if dice < 0.13:
        return stub[: chance.randrange(len(stub))]
    return stub + chance.randbytes(5) if dice < 0.16 else stub


def answered(work: Callable[[], bytes | None]) -> bytes | None:
    """Return the result of the Python code; None for an error."""
    try:
        return work()
    except (BadStubData, MsmqError, NdrError):
        return None


def test_records_of_sends() -> None:
    chance, plain = seeds.chance("stubs of sends"), 0
    machine = Message(source_machine_identifier=MACHINE, identifier=MACHINE + bytes(4))
    template = encode_message(machine)[: FIXED.size]
    for sequence in range(1, CASES):
        stub, sender = some_send(chance, bytes(20)), chance.choice((b"", SID))
        longest = chance.choice((INFINITE, INFINITE, 60))
        form = (template, sender, NAME.encode(), len(NAME), longest)
        found, answers = send_stubs.records([stub], [form], WRITTEN, sequence, 1000, 7)
        if not answers:
            continue
        plain += 1
        request = SEND.decode_request(stub)
        message = message_from_send(request.ptb, sender)
        message.destination_queue_format_name, message.source_machine_identifier = NAME, MACHINE
        message.identifier = MACHINE + sequence.to_bytes(4, "little")
        message.sent_time = message.arrival_time = 1000
        message.sent_milliseconds = 7
        message.time_to_reach_queue = min(message.time_to_reach_queue, longest)
        expires = (1000 + message.time_to_reach_queue) * 1000 + 7 if longest != INFINITE else 0
        recoverable, records, bounds, keys, words, sizes, charged = found
        assert records == encode_message(message) and recoverable == message.recoverable
        assert (bounds, keys, words, sizes, charged) == (
            array("q", [0, len(records)]), array("Q", [sequence]),
            array("Q", [lookup_id(message.priority, 0) | expires]),
            array("I", [len(records)]), array("I", [message.size]),
        )  # fmt: skip
        identity = OBJECTID(MACHINE, sequence) if request.pMessageID is not None else None
        assert answers == [SEND.encode_response(m.rpc_ACSendMessageEx_Response(pMessageID=identity))]
        assert not (message.journaling_requested or message.acknowledgements_requested or message.deadline())
    assert plain > CASES / 4


def received(stub: bytes, message: Message) -> bytes | None:
    """Return the reply of the Python code to a plain receive."""
    ptb = RECEIVE.decode_request(stub).ptb
    receive = ptb.old.Receive
    if receive is None or receive.Action or receive.Cursor or (ptb.old.pUow or XACTUOW(bytes(16))).rgb.strip(b"\0"):
        return None
    check_sizes(ptb)
    if fill(ptb, message, 60) or message.acknowledgements_requested:
        return None
    return RECEIVE.encode_response(m.rpc_ACReceiveMessageEx_Response(ptb=ptb, result=0))


def to_receive(chance: random.Random) -> Message:
    message, _ = some_message(chance)
    message.sent_time, message.identifier, message.arrival_time = chance.randrange(100), chance.randbytes(20), 7
    message.destination_queue_format_name = chance.choice((NAME, "x" * 63, "x" * 64))
    message.authentication_provider_name = chance.choice(("", "", "provider"))
    return message


def test_answers_of_receives() -> None:
    chance, plain = seeds.chance("stubs of receives"), 0
    for _ in range(CASES):
        message, stub = to_receive(chance), some_receive(chance, 7)
        record = encode_message(message)
        found = next(iter(receive_stubs.answers([stub], [record], READ, 60)), None)
        plain += found is not None
        assert found is None or found == answered(partial(received, stub, message))
        assert receive_stubs.answers([stub], [record[: chance.randrange(len(record))]], READ, 60) == []
    assert plain > CASES / 30


def test_answers_of_receives_with_times_of_a_clock_that_is_ahead() -> None:
    stub = RECEIVE.encode_request(
        m.rpc_ACReceiveMessageEx_Request(7, receive_buffer(ReceiveAction.RECEIVE, 0, 0, None, BufferSizes(9, 9, 9, 9)))
    )
    for seconds in (60, INFINITE - 1, INFINITE):
        for sent in (0, 59, 60, 61, 1000):
            message = Message(sent_time=sent, time_to_reach_queue=seconds, time_to_be_received=seconds)
            found = receive_stubs.answers([stub], [encode_message(message)], READ, 60)
            assert found == [received(stub, message)]


def test_answers_to_equal_requests_differ_as_their_messages_do() -> None:
    """Native code reuses the layout of the last reply for texts of the same length and for bytes that fit."""
    chance, plain = seeds.chance("equal receives"), 0
    labels = ("label", "other", "Größ", "日本", "\u0416abc", "", "a")
    for _ in range(CASES // 10):
        stub = some_receive(chance, 7)
        for _ in range(20):
            message = to_receive(chance)
            message.label, message.destination_queue_format_name = chance.choice(labels), "DIRECT=OS:a\\b"
            message.authentication_provider_name = ""
            message.signature, message.sender_certificate = chance.choice(((b"", b""), (b"sign", b"certify")))
            found = next(iter(receive_stubs.answers([stub], [encode_message(message)], READ, 60)), None)
            plain += found is not None
            assert found is None or found == answered(partial(received, stub, message))
    assert plain > CASES / 10


DESTINATIONS = (
    NAME, "DIRECT=TCP:192.0.2.1\\private$\\a", "PUBLIC=01020304-0506-0708-090a-0b0c0d0e0f10", "odd", "", "\udcff",
    "PRIVATE=01020304-0506-0708-090a-0b0c0d0e0f10\\0000002a", "DIRECT=OS:a\\b,DIRECT=OS:c\\d",
    "DL=01020304-0506-0708-090a-0b0c0d0e0f10",
)  # fmt: skip
OF_MACHINE = f"PRIVATE={UUID(bytes_le=MACHINE)}\\0000002a"


def test_answers_of_receives_in_two_phases() -> None:
    chance, plain, headers = seeds.chance("stubs of receives in two phases"), 0, UserHeaders()
    simple: list[tuple[bytes, int, int, bytes]] = []
    for _ in range(CASES):
        message, _ = some_message(chance)
        message.sent_time, message.arrival_time = chance.choice((7, 0xFFFFFFF0)), 9
        message.source_machine_identifier = chance.choice((MACHINE, bytes(16)))
        message.identifier = message.source_machine_identifier + chance.randbytes(4)
        message.destination_queue_format_name = chance.choice(DESTINATIONS)
        if chance.random() < 0.3:
            message.response_queue_format_name = chance.choice((*DESTINATIONS, OF_MACHINE))
        if chance.random() < 0.1:
            message.administration_queue_format_name = chance.choice((*DESTINATIONS, OF_MACHINE))
        if chance.random() < 0.5:
            message.sender_identifier_type, message.sender_identifier = chance.choice((0, 1, 1, 16)), SID[:-1]
        if chance.random() < 0.2:
            message.abort_count, message.move_count, message.last_move_time = 3, 4, 0x12345678
        if chance.random() < 0.1:
            name = chance.choice(("symmetric_key", "signature", "sender_certificate"))
            setattr(message, name, b"something")
        if chance.random() < 0.1:
            message.authentication_level = 4
        sequence, maximum = chance.randrange(1 << 56), chance.choice((1 << 20, 1000, 0))
        record = encode_message(message)
        found = start_receive_stubs.answers([record], READ, headers, [sequence], [maximum])
        damaged = record[: chance.randrange(len(record))]
        assert start_receive_stubs.answers([damaged, record], READ, headers, [1, 2], [1 << 20] * 2) == []
        if not found:
            continue
        plain += 1
        simple.append((record, sequence, maximum, found[0]))
        assert not message.acknowledgements_requested
        sections = [
            ms_mqrr.SectionBuffer(section.type, section.size_alloc, len(section.data), section.data)
            for section in divide(packet_of(message), maximum, 0)
        ]
        assert found == [START.encode_response(ms_mqrr.R_StartReceive_Response(9, sequence, len(sections), sections))]
    assert plain > CASES / 5
    records, sequences, sizes, each = (list(column) for column in zip(*simple, strict=True))
    assert start_receive_stubs.answers(records, READ, headers, sequences, sizes) == each
    assert len(headers) > len(DESTINATIONS)


def test_requests_of_simple_receives_are_read_up_to_the_first_other_one() -> None:
    handle = bytes(range(20))

    def start(number: int, **other: int) -> bytes:
        request = ms_mqrr.R_StartReceive_Request(
            handle, ulTimeout=5, dwRequestId=number, dwMaxBodySize=number + 1, dwMaxCompoundMessageSize=7, **other
        )
        return START.encode_request(request)

    def end(number: int, acknowledgment: int = RR_ACK) -> bytes:
        return END.encode_request(ms_mqrr.R_EndReceive_Request(handle, acknowledgment, number))

    others = [start(3, LookupId=1), start(3, LookupId=1 << 40), start(3, hCursor=1), start(3, ulAction=0x80000000)]
    for other in [*others, start(3) + b"x", start(3)[:-1], b"", end(3), bytearray(start(3)), None]:
        stubs: list[Any] = [start(0xFFFFFFFE), start(1), other, start(4)]
        assert start_receive_stubs.starts(stubs) == ([0xFFFFFFFE, 1], [0xFFFFFFFF, 2]), other
    for other in (end(3, RR_NACK), bytes(20) + struct.pack("<2I", 0, 3), end(3) + b"x", end(3)[:-1], start(3), None):
        stubs = [end(0xFFFFFFFF), end(1), other, end(4)]
        assert start_receive_stubs.acknowledgments(stubs) == [0xFFFFFFFF, 1], other
    for read in (start_receive_stubs.starts, start_receive_stubs.acknowledgments):
        with pytest.raises(TypeError, match="list"):
            read((b"",))  # type: ignore[operator]


def test_headers_of_names_are_bounded() -> None:
    headers, machine = UserHeaders(), bytes(16)
    for number in range(5000):
        name = f"DIRECT=OS:a\\{number}".encode()
        assert headers[machine + struct.pack("<3I", len(name), 0, 0) + name]
    long = b"DIRECT=OS:" + b"x" * 5000
    assert headers[machine + struct.pack("<3I", len(long), 0, 0) + long]
    assert len(headers) == 5000 - 4096


def test_an_invalid_header_of_names_is_refused() -> None:
    record = encode_message(Message(source_machine_identifier=MACHINE, identifier=MACHINE + bytes(4)))
    for headers, error in (({}, KeyError), (None, TypeError)):
        with pytest.raises(error):
            start_receive_stubs.answers([record], READ, headers, [1], [1])  # type: ignore[arg-type]
    for header in (b"", "text", bytes(0x10000)):
        with pytest.raises(TypeError, match="UserHeader"):
            start_receive_stubs.answers([record], READ, defaultdict(lambda header=header: header), [1], [1])


def test_an_invalid_layout_is_refused() -> None:
    for layout in (b"", READ[:-1], READ + b"\0"):
        with pytest.raises(ValueError, match="layout"):
            start_receive_stubs.answers([b""], layout, {}, [1], [1])
        with pytest.raises(ValueError, match="layout"):
            receive_stubs.answers([b""], [b""], layout, 1)


def test_an_invalid_form_is_refused() -> None:
    form = (bytes(4), b"", b"", 0, INFINITE)
    for stubs, forms, layout, error in (
        ([b""], [], WRITTEN, ValueError), ([b""], [form], WRITTEN[1:], ValueError),
        ([b""], [form[:4]], WRITTEN, TypeError), ([1], [form], WRITTEN, TypeError), ([b""], [form], WRITTEN, TypeError),
        ([b""], [(bytes(FIXED.size), b"", b"", -1, INFINITE)], WRITTEN, OverflowError),
    ):  # fmt: skip
        with pytest.raises(error):
            send_stubs.records(stubs, forms, layout, 1, 2, 3)  # type: ignore[arg-type]
