"""Boxcars and messages: the examples of [MS-CMP] 4 and [MS-DTCO] 4.5, and false lengths."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmsmq.oletx import messages as m
from openmsmq.oletx.boxcar import LARGEST, BadBoxcar, Packet, PacketTag, decode_boxcar, encode_boxcar
from openmsmq.oletx.messages import ConnectionType, MessageType, Vote, check_message

TX = bytes.fromhex("7e0346402297c946988399062341cb35")
TX_4_1 = bytes.fromhex("37a3a89ff7ea30429232b57379d65077")


def head(tag: int, initiator: int, connection: int, kind: int, size: int) -> bytes:
    return struct.pack("<6I", tag, initiator, connection, kind, size, 0xCD64CD64)


def test_section_4_1_2_a_connection_with_its_first_message() -> None:
    """PROPAGATE has 60 bytes (D-211), padded to 64."""
    printed = (
        bytes.fromhex("00000000000000008000000002000000") + head(5, 1, 1, 0x101, 0) + head(0xFFF, 1, 1, 0x2001, 60)
        + TX_4_1 + b"\0\0\x10\0" + b"Example Transaction - 39 chars long...." + bytes(5)
    )  # fmt: skip
    description = b"Example Transaction - 39 chars long...."
    packets = [
        Packet(PacketTag.CONNECTION_REQ, True, 1, ConnectionType.PROPAGATE),
        Packet(PacketTag.USER_MESSAGE, True, 1, MessageType.PROPAGATE, m.propagate(TX_4_1, description)),
    ]
    assert encode_boxcar(packets) == printed
    assert decode_boxcar(printed, 2) == packets
    assert decode_boxcar(printed[:-4].replace(b"\x80\0\0\0\2", b"\x7c\0\0\0\2"), 2) == packets, "unpadded (D-220)"


@pytest.mark.parametrize(
    ("packet", "printed"),
    [
        (Packet(3, False, 1, 0, b"\5\0\7\x80"), head(3, 0, 1, 0, 4) + b"\5\0\7\x80" + bytes(4)),  # [MS-CMP] 4.2.1.1
        (Packet(1, True, 1, 0x101), head(1, 1, 1, 0x101, 0)),  # 4.2.2
        (Packet(2, False, 1), head(2, 0, 1, 0, 0)),
        (Packet(0xFFF, True, 1, 0x2051, TX), head(0xFFF, 1, 1, 0x2051, 16) + TX),  # [MS-DTCO] 4.2.3
        (Packet(0xFFF, False, 1, 0x2003, m.prepare_request()), head(0xFFF, 0, 1, 0x2003, 8) + bytes(8)),  # 4.5
        (Packet(0xFFF, True, 1, 0x2006, m.vote(Vote.OK)), head(0xFFF, 1, 1, 0x2006, 20) + bytes(24)),
    ],
)
def test_packets_of_the_examples(packet: Packet, printed: bytes) -> None:
    assert encode_boxcar([packet])[16:] == printed
    assert decode_boxcar(encode_boxcar([packet]), 1) == [packet]


@pytest.mark.parametrize("length", range(18))
def test_the_size_of_a_packet_is_what_it_takes_in_a_boxcar(length: int) -> None:
    packet = Packet(PacketTag.USER_MESSAGE, True, 1, 0x2001, bytes(length))
    assert packet.size == len(encode_boxcar([packet])) - 16


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (struct.pack("<4I", 0, 0, 40, 1) + head(4, 1, 0, 0, 0), 2),
        (struct.pack("<4I", 0, 0, 41, 1) + head(4, 1, 0, 0, 0), 1),
        (struct.pack("<4I", 0, 0, 40, 1) + head(4, 1, 0, 0, 1), 1),
        (struct.pack("<4I", 0, 0, 40, 1) + head(4, 1, 0, 0, 0xFFFFFFFF), 1),
        (struct.pack("<4I", 0, 0, 64, 1) + head(4, 1, 0, 0, 0) * 2, 1),
        (struct.pack("<4I", 0, 0, 40, 0) + head(4, 1, 0, 0, 0), 0),
        (struct.pack("<4I", 0, 0, 40, 2**31) + head(4, 1, 0, 0, 0), 2**31),
        (bytes(39), 1),
        (struct.pack("<4I", 0, 0, LARGEST + 8, 1) + bytes(LARGEST - 8), 1),
    ],
)
def test_wrong_lengths_are_refused(data: bytes, count: int) -> None:
    """T20."""
    with pytest.raises(BadBoxcar):
        decode_boxcar(data, count)


@given(st.binary(max_size=400), st.integers(0, 20))
def test_any_bytes_are_decoded_or_refused(data: bytes, count: int) -> None:
    for boxcar in (data, struct.pack("<4I", 0, 0, len(data) + 16, count) + data):
        with suppress(BadBoxcar):
            assert len(decode_boxcar(boxcar, count)) == count


def test_messages_have_an_end_that_may_send_them_and_a_least_length() -> None:
    assert check_message(0x101, 0x2001, bytes(60), from_initiator=True) is MessageType.PROPAGATE
    assert check_message(0x101, 0x2001, bytes(59), from_initiator=True) is None
    assert check_message(0x101, 0x2001, bytes(60), from_initiator=False) is None
    assert check_message(0x28, 0x6002, bytes(60), from_initiator=True) is None


def test_undefined_votes_are_refused() -> None:
    assert [m.read_vote(struct.pack("<I16x", value)) for value in (0, 4, 5, 2**31)] == [Vote.OK, 4, None, None]
