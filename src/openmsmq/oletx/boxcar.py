"""Boxcars: the packets in one call of SendReceive ([MS-CMP] 2.1.1, 2.2)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

SMALLEST: Final = 40  # minimum and maximum bytes of a boxcar, [MS-CMPO] 6
LARGEST: Final = 81_920
MOST_MESSAGES: Final = 3_412

_HEAD: Final = struct.Struct("<IIII")
_PACKET: Final = struct.Struct("<IIIIII")  # MESSAGE_PACKET, [MS-CMP] 2.2.2
_RESERVED: Final = 0xCD64_CD64  # dwReserved1: ignored; value as in the examples of [MS-CMP] 4
LARGEST_DATA: Final = LARGEST - _HEAD.size - _PACKET.size


class BadBoxcar(ValueError):
    """A boxcar with invalid lengths."""


class PacketTag(IntEnum):
    """MsgTag ([MS-CMP] 2.2.2)."""

    DISCONNECT = 1
    DISCONNECTED = 2
    CONNECTION_REQ_DENIED = 3
    PING = 4
    CONNECTION_REQ = 5
    USER_MESSAGE = 0xFFF


class Packet(NamedTuple):
    """MESSAGE_PACKET. `tag` may be a value that is not a PacketTag; `from_initiator` is fIsMaster."""

    tag: int
    from_initiator: bool
    connection: int
    kind: int = 0  # dwUserMsgType: a connection type, or the type of a user message
    data: bytes = b""

    @property
    def size(self) -> int:
        """Bytes in a boxcar, including padding."""
        return _PACKET.size + len(self.data) + -len(self.data) % 8


def encode_boxcar(packets: Sequence[Packet]) -> bytes:
    """Return a boxcar with packets, which must fit (`LARGEST`, `MOST_MESSAGES`)."""
    pieces = [b""]
    for tag, from_initiator, connection, kind, data in packets:
        pieces.append(_PACKET.pack(tag, from_initiator, connection, kind, len(data), _RESERVED))
        pieces.append(data + bytes(-len(data) % 8))
    total = _HEAD.size + sum(map(len, pieces))
    pieces[0] = _HEAD.pack(0, 0, total, len(packets))
    return b"".join(pieces)


def decode_boxcar(data: bytes, count: int) -> list[Packet]:
    """Return the packets of a boxcar; `count` is their number according to SendReceive. The last one may be unpadded
    (D-220). Raises BadBoxcar."""
    if not SMALLEST <= len(data) <= LARGEST:
        raise BadBoxcar(f"{len(data)} bytes, allowed: {SMALLEST} to {LARGEST}")
    _, _, total, messages = _HEAD.unpack_from(data)
    if total != len(data) or messages != count or not 1 <= messages <= MOST_MESSAGES:
        raise BadBoxcar(f"the header says {total} bytes and {messages} messages, the call {len(data)} and {count}")
    packets, at = [], _HEAD.size
    for number in range(messages):
        if len(data) - at < _PACKET.size:
            raise BadBoxcar(f"message {number + 1} of {messages} is truncated")
        tag, from_initiator, connection, kind, size, _ = _PACKET.unpack_from(data, at)
        at += _PACKET.size
        if size > len(data) - at:
            raise BadBoxcar(f"message {number + 1} has {size} bytes, but only {len(data) - at} remain")
        packets.append(Packet(tag, bool(from_initiator), connection, kind, data[at : at + size]))
        at += size + -size % 8
    if at < len(data):
        raise BadBoxcar(f"{len(data) - at} bytes follow the last message")
    return packets
