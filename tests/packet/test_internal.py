"""Packets between queue managers: the frames of [MS-MQQB] 4.1 and hostile bytes.

The frames are the bytes of the dumps; the document's text differs in places (window of frame 6, GUIDs of frame 4).
"""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.packet import BadPacket, UserMessage
from openmsmq.packet.headers import NO_GUID, MessagePropertiesHeader, SessionHeader
from openmsmq.packet.internal import (
    ConnectionParameters,
    EstablishConnection,
    FinalAckBody,
    InternalPacket,
    OrderAckBody,
    PingPacket,
    SessionAck,
    parse_internal,
)
from openmsmq.packet.reader import Reader
from openmsmq.packet.stream import READ_SIZE, Framer
from openmsmq.packet.user_message import MAXIMUM_PACKET

CLIENT = bytes.fromhex("d1587355509195954997b6e611ea26c6")
SERVER = bytes.fromhex("0789cd434c39118f44459078909ea0fc")
PADDING = b"\x5a" * 512

PING = bytes.fromhex("017d4855 04000000") + CLIENT
PING_RESPONSE = bytes.fromhex("95b24855 04000000") + SERVER
ESTABLISH = (
    bytes.fromhex("10c00b00 4c494f52 3c020000 ffffffff 00000200") + CLIENT + SERVER
    + bytes.fromhex("4ecade1d 10030000") + PADDING
)  # fmt: skip
ESTABLISH_RESPONSE = (
    bytes.fromhex("105a0b00 4c494f52 3c020000 ffffffff 00000200 0523741f5ebe7741bc77c4dd7719e474")
    + bytes.fromhex("eb6a3a3c67f5434187d385cf4d68ceb4 4ecade1d 10030000") + PADDING
)  # fmt: skip
PARAMETERS = bytes.fromhex("10c00b00 4c494f52 20000000 ffffffff 00000300 d8050000 c0d40100 00004000")
USER_MESSAGE = (
    bytes.fromhex((Path(__file__).parent.parent / "vectors/packet/user-message.hex").read_text())
    + b"a\0" * 1000 + bytes(2)
)  # fmt: skip
SESSION_ACK = bytes.fromhex("10cd1b00 4c494f52 24000000 ffffffff 00000100 01000000 00000000 00000000 40000000")
FRAMES = [ESTABLISH, ESTABLISH_RESPONSE, PARAMETERS, USER_MESSAGE, SESSION_ACK]

u16, u32 = st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFFFF)
guid = st.binary(min_size=16, max_size=16)
flag = st.booleans()
session_headers = st.builds(SessionHeader, u16, u16, u32, u16, u16, u16)
internal_packets = (
    st.builds(EstablishConnection, guid, guid, u32, flag, flag, flag, flag)
    | st.builds(ConnectionParameters, st.integers(500, 120_000), st.integers(20_000, 120_000), u16, flag)
    | st.builds(SessionAck, session_headers)
)


def packets(data: bytes, framer: Framer | None = None) -> list[bytes]:
    framer = framer or Framer()
    framer.feed(data)
    found = []
    while (packet := framer.next()) is not None:
        found.append(packet)
    return found


def test_the_captured_packets_parse_to_their_fields() -> None:
    request = EstablishConnection.parse(ESTABLISH)
    assert request == EstablishConnection(CLIENT, SERVER, 0x1DDECA4E, without_ping=True, server_class=True)
    response = EstablishConnection.parse(ESTABLISH_RESPONSE)
    assert response.timestamp == request.timestamp and response.client_guid != CLIENT
    assert ConnectionParameters.parse(PARAMETERS) == ConnectionParameters(1496, 120_000, 64)
    assert SessionAck.parse(SESSION_ACK) == SessionAck(SessionHeader(1, 0, 0, 0, 0, 64))
    assert PingPacket.parse(PING) == PingPacket(4, CLIENT, workstation=True)
    assert PingPacket.parse(PING_RESPONSE) == PingPacket(4, SERVER, workstation=True)


@pytest.mark.parametrize("frame", [ESTABLISH, ESTABLISH_RESPONSE, PARAMETERS, SESSION_ACK])
def test_a_captured_packet_is_packed_into_the_same_bytes_but_the_reserved_one(frame: bytes) -> None:
    assert parse_internal(frame).pack() == frame[:1] + b"\0" + frame[2:]


@given(internal_packets)
def test_internal_packets_survive_the_round_trip(packet: InternalPacket) -> None:
    assert parse_internal(packet.pack()) == packet


@given(st.builds(PingPacket, u32, guid, flag, flag))
def test_pings_survive_the_round_trip(ping: PingPacket) -> None:
    assert PingPacket.parse(ping.pack()) == ping


@given(st.builds(FinalAckBody, u32, u32, st.integers(1, 0xFFFFFFFF), u32, guid, u32))
def test_acknowledgment_bodies_have_36_bytes(final: FinalAckBody) -> None:
    assert len(final.pack()) == 36 and FinalAckBody.parse(final.pack()) == final
    order = OrderAckBody(final.sequence_ordinal, final.sequence_timestamp, final.sequence_number)
    assert len(order.pack()) == 36 and OrderAckBody.parse(order.pack()) == order
    assert order.pack()[12:16] == (order.sequence_number - 1).to_bytes(4, "little")


@pytest.mark.parametrize("parse", [OrderAckBody.parse, FinalAckBody.parse])
@pytest.mark.parametrize("data", [b"", bytes(35), bytes(37), bytes(36)])
def test_acknowledgment_bodies_of_other_sizes_or_of_number_0_are_refused(
    parse: Callable[[bytes], object], data: bytes
) -> None:
    with pytest.raises(BadPacket):
        parse(data)


@pytest.mark.parametrize("data", [b"", PING[:-1], PING + b"\0", PING[:2] + b"\0\0" + PING[4:]])
def test_other_datagrams_are_no_pings(data: bytes) -> None:
    with pytest.raises(BadPacket):
        PingPacket.parse(data)


@pytest.mark.parametrize("frame", FRAMES, ids=["establish", "response", "parameters", "message", "ack"])
def test_a_packet_split_at_any_byte_is_the_same_packet(frame: bytes) -> None:
    for at in range(len(frame) + 1):
        framer = Framer()
        first = packets(frame[:at], framer)
        assert first + packets(frame[at:], framer) == [frame]
        assert not framer.has_partial


def test_packets_in_one_segment_are_separated() -> None:
    assert packets(b"".join(FRAMES)) == FRAMES


def test_packets_arrive_in_single_bytes() -> None:
    framer = Framer()
    found = [packet for byte in b"".join(FRAMES) for packet in packets(bytes([byte]), framer)]
    assert found == FRAMES


def test_the_session_header_of_a_user_message_is_beyond_its_packet_size() -> None:
    message = UserMessage(session=SessionHeader(5, 1, 3, 7, 2, 64))
    message.properties = MessagePropertiesHeader(body=b"LIOR" * 10)
    data = message.pack()
    assert int.from_bytes(data[8:12], "little") == len(data) - 16
    for at in range(len(data)):
        framer = Framer()
        assert packets(data[:at], framer) == []
        assert packets(data[at:] + SESSION_ACK, framer) == [data, SESSION_ACK]
    assert UserMessage.unpack(Reader(data)).session == message.session


def header(size: int, flags: int = 3, version: int = 0x10, signature: bytes = b"LIOR") -> bytes:
    return struct.pack("<BBH4sII", version, 0, flags, signature, size, 0xFFFFFFFF)


@pytest.mark.parametrize("size", [0, 15, MAXIMUM_PACKET + 1, 0x7FFFFFFF, 0xFFFFFFFF])
def test_packet_sizes_out_of_range_end_the_stream_before_their_bytes_come(size: int) -> None:
    with pytest.raises(BadPacket):
        packets(header(size))


@pytest.mark.parametrize("data", [header(32, version=0x11), header(32, signature=b"ROIL"), b"GET / HTTP/1.1\r\n"])
def test_other_versions_and_signatures_end_the_stream(data: bytes) -> None:
    with pytest.raises(BadPacket):
        packets(data)


def test_internal_packets_are_small() -> None:
    with pytest.raises(BadPacket):
        packets(header(573, flags=0xB))


def test_packets_before_a_bad_one_are_not_lost() -> None:
    framer = Framer()
    framer.feed(PARAMETERS + header(0))
    assert framer.next() is not None
    with pytest.raises(BadPacket):
        framer.next()


def test_a_smaller_maximum_holds_for_the_packets_to_come() -> None:
    framer = Framer(572)
    framer.feed(ESTABLISH + USER_MESSAGE + header(573))
    assert framer.next() is not None
    framer.maximum = len(USER_MESSAGE)
    assert framer.next() is not None
    framer.maximum = 572
    with pytest.raises(BadPacket):
        framer.next()


def test_what_is_buffered_has_a_limit() -> None:
    framer = Framer(572)
    framer.feed(bytes(READ_SIZE))
    with pytest.raises(BadPacket):
        framer.feed(bytes(1000))


def test_a_large_packet_in_small_pieces_takes_linear_time() -> None:
    data = header(MAXIMUM_PACKET) + bytes(MAXIMUM_PACKET - 16)
    framer = Framer()
    found = [packet for at in range(0, len(data), 1000) for packet in packets(data[at : at + 1000], framer)]
    assert found == [data]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(PARAMETERS[:18] + b"\x07" + PARAMETERS[19:], id="packet type 7"),
        pytest.param(PARAMETERS[:18] + b"\x00" + PARAMETERS[19:], id="packet type 0"),
        pytest.param(PARAMETERS[:18] + b"\x01" + PARAMETERS[19:], id="a SessionAck of 32 bytes"),
        pytest.param(PARAMETERS[:-1], id="cut off"),
        pytest.param(PARAMETERS + b"\0", id="too long"),
        pytest.param(PARAMETERS[:8] + b"\x21" + PARAMETERS[9:], id="another PacketSize"),
        pytest.param(PARAMETERS[:2] + b"\x1b" + PARAMETERS[3:], id="SH in ConnectionParameters"),
        pytest.param(SESSION_ACK[:2] + b"\x0b" + SESSION_ACK[3:], id="SessionAck without SH"),
        pytest.param(PARAMETERS[:16], id="no InternalHeader"),
        pytest.param(ConnectionParameters(499, 20_000, 1).pack(), id="RecoverableAckTimeout 499"),
        pytest.param(ConnectionParameters(120_001, 20_000, 1).pack(), id="RecoverableAckTimeout 120,001"),
        pytest.param(ConnectionParameters(500, 19_999, 1).pack(), id="AckTimeout 19,999"),
        pytest.param(ConnectionParameters(500, 120_001, 1).pack(), id="AckTimeout 120,001"),
    ],
)
def test_invalid_internal_packets_are_refused(data: bytes) -> None:
    with pytest.raises(BadPacket):
        parse_internal(data)


@given(st.sampled_from(FRAMES), st.data())
def test_changed_packets_are_read_or_refused(frame: bytes, data: st.DataObject) -> None:
    changed = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    try:
        for packet in packets(bytes(changed)):
            if packet[2] & 8:
                parse_internal(packet)
            else:
                UserMessage.unpack(Reader(packet))
    except BadPacket:
        pass


def test_a_request_for_a_direct_name_names_no_server() -> None:
    assert EstablishConnection(CLIENT).pack()[36:52] == NO_GUID


def test_padding_counts_from_the_start_of_the_header_or_of_the_data() -> None:
    reader = Reader(bytes(range(12)))
    assert (reader.position, reader.padding()) == (0, 0)
    reader.bytes(1)
    assert (reader.padding(), reader.padding(2), reader.padding(8)) == (3, 1, 7)
    with reader.header("inner"):
        assert reader.padding() == 0
        reader.bytes(2)
        reader.align()
        assert reader.position == 5
    assert reader.padding() == 3, "the outer start counts again"
    reader.align(8)
    reader.bytes(3)
    reader.align(16)
    assert (reader.position, reader.remaining) == (12, 0), "padding ends with the data"
