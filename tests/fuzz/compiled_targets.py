"""Fuzz targets for C modules that read the bytes of strangers instead of Python code: they return what the Python code
returns, or decline. Where they have not been compiled, there is nothing to compare."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

from fuzz.network_targets import parts
from openmsmq.conversion.packets import packet_of, user_message_of
from openmsmq.conversion.send_buffer import message_from_send
from openmsmq.interfaces import ms_mqmp, ms_mqrr
from openmsmq.interfaces.ms_mqmq import OBJECTID
from openmsmq.model.message import Message
from openmsmq.model.security import sid_bytes
from openmsmq.packet.reader import Reader
from openmsmq.packet.sections import divide
from openmsmq.packet.user_message import UserMessage
from openmsmq.protocols.user_headers import UserHeaders
from openmsmq.record.fields import FIXED
from openmsmq.record.layouts import READ, WRITTEN
from openmsmq.record.message_record import decode_message, encode_message

IS_COMPILED = find_spec("openmsmq.packet.plain_packets") is not None
if IS_COMPILED:
    from compiled import test_plain_packets as plain
    from compiled import test_stubs as stubs
    from openmsmq.packet import outgoing_packets, plain_packets
    from openmsmq.protocols import receive_stubs, send_stubs, start_receive_stubs

MACHINE, SID, NAME = bytes(range(1, 17)), sid_bytes("S-1-5-21-1-2-3-1001"), "DIRECT=OS:.\\private$\\größe"


def _check_arrivals(packets: list[bytes]) -> None:
    """Packets of another queue manager. Those with the same envelope as the first one have the same form."""
    envelopes = plain_packets.envelopes(packets)
    deliveries = [plain_packets.delivery(packet) for packet in packets]
    plain_ones = next((at for at, delivery in enumerate(deliveries) if delivery < 0), len(packets))
    assert len(envelopes) == plain_ones
    for packet, delivery, envelope in zip(packets, deliveries, envelopes, strict=False):
        reader = Reader(packet)
        message = UserMessage.unpack(reader)
        assert not reader.remaining and message.user.delivery == delivery
        if envelope is not envelopes[0]:
            continue
        expected = plain.arrived(packet, 0)
        expected.arrival_time = expected.sent_time
        form = plain.form_of(plain.arrived(packets[0], expected.sent_time))
        records, *_ = plain_packets.records([packet], [form], WRITTEN, 1, expected.sent_time)
        assert records == encode_message(expected)


def _check_departures(records: list[bytes]) -> None:
    """Records of messages for another queue manager. Those with the same shape as the first one have its template."""
    shapes = outgoing_packets.shapes(records, READ)
    for record, shape in zip(records, shapes, strict=False):
        message = decode_message(record, 1)
        if message.priority > 7 or message.delivery_guarantee > 1:  # no such message is stored
            return
        try:
            packet = user_message_of(message).pack()
            template = user_message_of(decode_message(records[0], 1)).pack()
        except (struct.error, ValueError):  # the ordinary path reports it
            return
        properties = plain_packets.properties(template)
        if properties >= 0 and shape == shapes[0]:
            assert outgoing_packets.packets([record], [(template, properties)], READ) == [packet]


def fuzz_packets_c(data: bytes) -> None:
    """An odd first byte selects records that become packets, an even one packets that become records; each is preceded
    by its length."""
    if IS_COMPILED:
        check = _check_departures if data[:1] and data[0] % 2 else _check_arrivals
        check(list(parts(data[1:])))


def _check_send(stub: bytes) -> None:
    """A request to send. Native code returns the record that its message becomes, and the answer."""
    template = encode_message(Message(source_machine_identifier=MACHINE, identifier=MACHINE + bytes(4)))[: FIXED.size]
    form = template, SID, NAME.encode(), len(NAME), 60
    (recoverable, record, *_), answers = send_stubs.records([stub], [form], WRITTEN, 7, 1000, 7)
    if not answers:
        return
    request = stubs.SEND.decode_request(stub)
    message = message_from_send(request.ptb, SID)
    message.destination_queue_format_name, message.source_machine_identifier = NAME, MACHINE
    message.identifier = MACHINE + (7).to_bytes(4, "little")
    message.sent_time = message.arrival_time = 1000
    message.sent_milliseconds = 7
    message.time_to_reach_queue = min(message.time_to_reach_queue, 60)
    assert record == encode_message(message) and recoverable == message.recoverable
    identity = OBJECTID(MACHINE, 7) if request.pMessageID is not None else None
    assert answers == [stubs.SEND.encode_response(ms_mqmp.rpc_ACSendMessageEx_Response(pMessageID=identity))]


def _check_receive(stub: bytes, record: bytes) -> None:
    """A request to receive, and the record of a stored message."""
    found = receive_stubs.answers([stub], [record], READ, 60)
    if found and _is_stored(record):
        assert found == [stubs.answered(partial(stubs.received, stub, decode_message(record, 1)))]


def _check_start(record: bytes) -> None:
    """A record of a stored message that a receive in two phases returns."""
    for maximum in (0, 1000, 1 << 20):
        found = start_receive_stubs.answers([record], READ, UserHeaders(), [5], [maximum])
        if not found or not _is_stored(record):
            continue
        message = decode_message(record, 5)
        sections = [
            ms_mqrr.SectionBuffer(section.type, section.size_alloc, len(section.data), section.data)
            for section in divide(packet_of(message), maximum, 0)
        ]
        expected = ms_mqrr.R_StartReceive_Response(message.arrival_time, 5, len(sections), sections)
        assert found == [stubs.START.encode_response(expected)]


def _check_requests(stub: bytes) -> None:
    """A request of a receive in two phases: of its first or of its second call."""
    numbers, sizes = start_receive_stubs.starts([stub])
    if numbers:
        start = stubs.START.decode_request(stub)
        assert (start.LookupId, start.hCursor, start.ulAction) == (0, 0, 0)
        assert (numbers, sizes) == ([start.dwRequestId], [start.dwMaxBodySize])
    acknowledged = start_receive_stubs.acknowledgments([stub])
    if acknowledged:
        end = stubs.END.decode_request(stub)
        assert (end.dwAck, acknowledged) == (stubs.RR_ACK, [end.dwRequestId])


def _is_stored(record: bytes) -> bool:
    """Whether a record is as the encoder writes it."""
    try:
        return encode_message(decode_message(record, 1)) == record
    except ValueError:
        return False


def fuzz_stubs_c(data: bytes) -> None:
    """The first byte selects an operation. A receive has a request and a record, each preceded by its length."""
    if not IS_COMPILED:
        return
    choice, data = (data[0] if data else 0) % 4, data[1:]
    if choice == 0:
        _check_send(data)
    elif choice == 1:
        stub, record, *_ = (*parts(data), b"", b"")
        _check_receive(stub, record)
    elif choice == 2:
        _check_start(data)
    else:
        _check_requests(data)


TARGETS: dict[str, Callable[[bytes], None]] = {"packets_c": fuzz_packets_c, "stubs_c": fuzz_stubs_c}
