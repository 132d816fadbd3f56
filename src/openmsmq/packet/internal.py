"""Packets that queue managers exchange in addition to UserMessages ([MS-MQQB] 2.2): one frozen dataclass each.

`pack` returns the bytes of a packet, or body; `parse` reads exactly one and raises BadPacket. GUIDs are 16 bytes in
wire format, times are milliseconds. Reserved fields are sent as specified and ignored on receipt.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum

from openmsmq.packet.errors import BadPacket
from openmsmq.packet.headers import NO_GUID, BaseHeader, SessionHeader
from openmsmq.packet.reader import Reader

RECOVERABLE_ACK_TIMEOUT = range(500, 120_000 + 1)  # ms, 2.2.2.1
ACK_TIMEOUT = range(20_000, 120_000 + 1)  # ms, 2.2.2.1
PING_SIGNATURE = 0x5548  # 2.2.7

_INTERNAL = struct.Struct("<HH")
_ESTABLISH = struct.Struct("<16s16sIHH512s")
_PARAMETERS = struct.Struct("<IIHH")
_PING = struct.Struct("<HHI16s")
_ORDER_ACK = struct.Struct("<IIII20x")
_FINAL_ACK = struct.Struct("<IIII16sI")

_OPERATING_SYSTEM = 0x10  # OperatingSystem.RE, its only valid value
_PADDING = b"\x5a" * 512


class InternalPacketType(IntEnum):
    """InternalHeader.Flags.PT (2.2.1)."""

    SESSION_ACK = 1
    ESTABLISH_CONNECTION = 2
    CONNECTION_PARAMETERS = 3


@dataclass(frozen=True, slots=True)
class InternalHeader:
    """2.2.1, after the BaseHeader. `connection_refused` is CS."""

    packet_type: InternalPacketType
    connection_refused: bool = False

    def pack(self) -> bytes:
        return _INTERNAL.pack(0, self.packet_type | self.connection_refused << 4)

    @classmethod
    def unpack(cls, reader: Reader) -> InternalHeader:
        with reader.header("InternalHeader"):
            _, flags = reader.unpack(_INTERNAL)
            if flags & 0xF not in tuple(InternalPacketType):
                raise BadPacket(f"InternalHeader: packet type {flags & 0xF}, allowed: 1, 2 and 3")
        return cls(InternalPacketType(flags & 0xF), bool(flags >> 4 & 1))


@dataclass(frozen=True, slots=True)
class EstablishConnection:
    """2.2.3, request and response. `server_guid` is NO_GUID in a request for a direct format name.

    `without_ping` is OperatingSystem.SE, `server_class` OS and `quality_of_service` QS.
    """

    client_guid: bytes
    server_guid: bytes = NO_GUID
    timestamp: int = 0
    without_ping: bool = True
    server_class: bool = True
    quality_of_service: bool = False
    connection_refused: bool = False

    SIZE = 572

    def pack(self) -> bytes:
        system = (
            _OPERATING_SYSTEM | self.without_ping << 8 | self.server_class << 9 | self.quality_of_service << 10
        )  # fmt: skip
        header = _ESTABLISH.pack(self.client_guid, self.server_guid, self.timestamp, system, 0, _PADDING)
        return _packet(InternalHeader(InternalPacketType.ESTABLISH_CONNECTION, self.connection_refused), header)

    @classmethod
    def parse(cls, data: bytes) -> EstablishConnection:
        reader, internal = _open(data, InternalPacketType.ESTABLISH_CONNECTION, cls.SIZE)
        client, server, timestamp, system, _, _ = _ESTABLISH.unpack(reader.bytes(_ESTABLISH.size))
        without_ping, server_class, quality = (bool(system >> shift & 1) for shift in (8, 9, 10))
        return cls(client, server, timestamp, without_ping, server_class, quality, internal.connection_refused)


@dataclass(frozen=True, slots=True)
class ConnectionParameters:
    """2.2.2, request and response. Timeouts in milliseconds; a packet with values out of range is invalid (deviation
    D-88)."""

    recoverable_ack_timeout: int
    ack_timeout: int
    window_size: int
    connection_refused: bool = False

    SIZE = 32

    def pack(self) -> bytes:
        header = _PARAMETERS.pack(self.recoverable_ack_timeout, self.ack_timeout, 0, self.window_size)
        return _packet(InternalHeader(InternalPacketType.CONNECTION_PARAMETERS, self.connection_refused), header)

    @classmethod
    def parse(cls, data: bytes) -> ConnectionParameters:
        reader, internal = _open(data, InternalPacketType.CONNECTION_PARAMETERS, cls.SIZE)
        recoverable, timeout, _, window = reader.unpack(_PARAMETERS)
        if recoverable not in RECOVERABLE_ACK_TIMEOUT or timeout not in ACK_TIMEOUT:
            raise BadPacket(f"ConnectionParametersHeader: timeouts of {recoverable} and {timeout} ms")
        return cls(recoverable, timeout, window, internal.connection_refused)


@dataclass(frozen=True, slots=True)
class SessionAck:
    """2.2.6: a separate SessionHeader. Its PacketSize includes the SessionHeader (deviation D-87)."""

    session: SessionHeader = field(default_factory=SessionHeader)

    SIZE = 36

    def pack(self) -> bytes:
        return _packet(InternalHeader(InternalPacketType.SESSION_ACK), self.session.pack(), has_session=True)

    @classmethod
    def parse(cls, data: bytes) -> SessionAck:
        reader, _ = _open(data, InternalPacketType.SESSION_ACK, cls.SIZE)
        return cls(SessionHeader.unpack(reader))


InternalPacket = EstablishConnection | ConnectionParameters | SessionAck


def parse_internal(data: bytes) -> InternalPacket:
    """Parse an internal packet according to InternalHeader.Flags.PT (3.1.5.1.1). Raises BadPacket."""
    reader = Reader(data)
    BaseHeader.unpack(reader)
    match InternalHeader.unpack(reader).packet_type:
        case InternalPacketType.ESTABLISH_CONNECTION:
            return EstablishConnection.parse(data)
        case InternalPacketType.CONNECTION_PARAMETERS:
            return ConnectionParameters.parse(data)
        case InternalPacketType.SESSION_ACK:
            return SessionAck.parse(data)


@dataclass(frozen=True, slots=True)
class PingPacket:
    """2.2.7, a datagram of 24 bytes. `workstation` is RC: the initiator is not server-class. `refused` is RF."""

    cookie: int
    queue_manager: bytes
    workstation: bool = False
    refused: bool = False

    def pack(self) -> bytes:
        return _PING.pack(self.workstation | self.refused << 1, PING_SIGNATURE, self.cookie, self.queue_manager)

    @classmethod
    def parse(cls, data: bytes) -> PingPacket:
        if len(data) != _PING.size:
            raise BadPacket(f"Ping: {len(data)} bytes, expected {_PING.size}")
        flags, signature, cookie, queue_manager = _PING.unpack(data)
        if signature != PING_SIGNATURE:
            raise BadPacket(f"Ping: signature {signature:#06x}")
        return cls(cookie, queue_manager, bool(flags & 1), bool(flags & 2))


@dataclass(frozen=True, slots=True)
class OrderAckBody:
    """2.2.4.1: all messages of the sequence up to `sequence_number` have been accepted or rejected."""

    sequence_ordinal: int
    sequence_timestamp: int
    sequence_number: int

    def pack(self) -> bytes:
        number = self.sequence_number
        return _ORDER_ACK.pack(self.sequence_ordinal, self.sequence_timestamp, number, number - 1)

    @classmethod
    def parse(cls, data: bytes) -> OrderAckBody:
        """Parse the body; the redundant TxPreviousSequenceNumber is ignored. Raises BadPacket."""
        ordinal, timestamp, number, _ = _body(data, "OrderAck", _ORDER_ACK)
        return cls(ordinal, timestamp, _numbered("OrderAck", number))


@dataclass(frozen=True, slots=True)
class FinalAckBody:
    """2.2.5.1: the outcome of one message, given by MessageClass."""

    sequence_ordinal: int
    sequence_timestamp: int
    sequence_number: int
    previous_sequence_number: int
    source_queue_manager: bytes
    message_id: int

    def pack(self) -> bytes:
        return _FINAL_ACK.pack(
            self.sequence_ordinal, self.sequence_timestamp, self.sequence_number, self.previous_sequence_number,
            self.source_queue_manager, self.message_id,
        )  # fmt: skip

    @classmethod
    def parse(cls, data: bytes) -> FinalAckBody:
        if len(data) != _FINAL_ACK.size:
            raise BadPacket(f"FinalAck: a body of {len(data)} bytes, expected {_FINAL_ACK.size}")
        ordinal, timestamp, number, previous, source, message_id = _FINAL_ACK.unpack(data)
        return cls(ordinal, timestamp, _numbered("FinalAck", number), previous, source, message_id)


def _packet(internal: InternalHeader, rest: bytes, has_session: bool = False) -> bytes:
    header = internal.pack() + rest
    base = BaseHeader(internal=True, has_session=has_session, packet_size=16 + len(header))
    return base.pack() + header


def _open(data: bytes, expected: InternalPacketType, size: int) -> tuple[Reader, InternalHeader]:
    """Check the headers of an internal packet; return them and a reader for the rest. Raises BadPacket."""
    reader = Reader(data, expected.name)
    base = BaseHeader.unpack(reader)
    internal = InternalHeader.unpack(reader)
    if not base.internal or internal.packet_type is not expected:
        raise BadPacket(f"{expected.name}: not a packet of this type")
    if base.packet_size != size or len(data) != size:
        raise BadPacket(f"{expected.name}: PacketSize {base.packet_size} in {len(data)} bytes, expected {size}")
    if base.has_session is not (expected is InternalPacketType.SESSION_ACK):
        raise BadPacket(f"{expected.name}: BaseHeader.Flags.SH is {int(base.has_session)}")
    return reader, internal


def _body(data: bytes, name: str, layout: struct.Struct) -> tuple[int, ...]:
    if len(data) != layout.size:
        raise BadPacket(f"{name}: a body of {len(data)} bytes, expected {layout.size}")
    return layout.unpack(data)


def _numbered(name: str, number: int) -> int:
    if not number:
        raise BadPacket(f"{name}: TxSequenceNumber is 0")
    return number
