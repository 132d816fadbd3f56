"""The UserMessage packet ([MS-MQMQ] 2.2.20, [MS-MQRR] 2.2.5.1): its headers in order, and their presence flags."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from openmsmq.packet.errors import BadPacket
from openmsmq.packet.headers import (
    BaseHeader,
    DebugHeader,
    MessagePropertiesHeader,
    MultiQueueFormatHeader,
    SecurityHeader,
    SessionHeader,
    SoapHeader,
    TransactionHeader,
    UserHeader,
)
from openmsmq.packet.queue_names import NameType, QueueName, pack_element, unpack_element
from openmsmq.packet.reader import Reader, padded

MAXIMUM_PACKET = 0x00400000  # bytes, BaseHeader.PacketSize
_ADDRESS = struct.Struct("<IHHI")
_DESTINATION, _ADMINISTRATION, _RESPONSE, _SIGNATURE = 0x0064, 0x00C8, 0x012C, 0x015E


@dataclass(slots=True)
class SrmpHeaders:
    """[MS-MQRR] 2.2.5.1.2: additional headers of messages received over HTTP, which are not interpreted here."""

    envelope_id: int
    envelope: bytes
    compound_id: int
    body_size: int
    body_offset: int
    compound: bytes


@dataclass(slots=True)
class UserMessage:
    """A UserMessage packet. `pack` sets the presence flags of headers according to the fields that are not None."""

    base: BaseHeader = field(default_factory=BaseHeader)
    user: UserHeader = field(default_factory=UserHeader)
    transaction: TransactionHeader | None = None
    security: SecurityHeader | None = None
    properties: MessagePropertiesHeader = field(default_factory=MessagePropertiesHeader)
    debug: DebugHeader | None = None
    srmp: SrmpHeaders | None = None
    soap: SoapHeader | None = None
    multi_queue: MultiQueueFormatHeader | None = None
    session: SessionHeader | None = None

    def pack(self) -> bytes:
        """Return the bytes; sets the presence flags and PacketSize."""
        return b"".join(self.pack_parts())

    def pack_parts(self) -> tuple[bytes, bytes, bytes]:
        """Return the packet as headers, payload and trailers, as in [MS-MQRR] 2.2.7; see `pack`.

        The payload is the body, or the CompoundMessageHeader of an SRMP message.
        """
        base, user = self.base, self.user
        base.has_session, base.has_debug = self.session is not None, self.debug is not None
        user.has_security, user.has_transaction = self.security is not None, self.transaction is not None
        user.has_multi_queue, user.has_soap = self.multi_queue is not None, self.soap is not None
        user.has_properties, user.from_http = True, self.srmp is not None
        headers = user.pack()
        headers += b"".join(header.pack() for header in (self.transaction, self.security) if header is not None)
        properties = self.properties.pack()
        debug = self.debug.pack() if self.debug is not None else b""
        if self.srmp is None:
            headers += properties[: len(properties) - len(self.properties.body)]
            payload = self.properties.body
            trailers = bytes(-len(properties) % 4) + debug
        else:
            headers += padded(properties) + debug + _pack_envelope(self.srmp)
            payload = _pack_compound(self.srmp)
            trailers = bytes(-len(payload) % 4)
        if self.soap is not None:
            trailers += self.soap.pack()
        if self.multi_queue is not None:
            trailers += _pack_multi_queue(self.multi_queue)
        base.packet_size = 16 + len(headers) + len(payload) + len(trailers)
        if self.session is not None:
            trailers += self.session.pack()
        return base.pack() + headers, payload, trailers

    @classmethod
    def unpack(cls, reader: Reader, partial: bool = False) -> UserMessage:
        """Parse a packet. `partial`: the body is truncated at the end of the data.

        Raises BadPacket.
        """
        start = reader.position
        message = cls(base=BaseHeader.unpack(reader), user=UserHeader.unpack(reader))
        user = message.user
        if user.has_transaction:
            message.transaction = TransactionHeader.unpack(reader)
        if user.has_security:
            message.security = SecurityHeader.unpack(reader)
        if user.has_properties:
            message.properties = MessagePropertiesHeader.unpack(reader, partial)
        if partial and not reader.remaining:
            return message
        if message.base.has_debug:
            message.debug = DebugHeader.unpack(reader)
        if user.from_http:
            message.srmp = _unpack_srmp(reader)
        if user.has_soap:
            message.soap = SoapHeader.unpack(reader)
        if user.has_multi_queue:
            message.multi_queue = _unpack_multi_queue(reader)
            _check_destinations(user.destination, message.multi_queue.destination)
        size = message.base.packet_size
        if not partial and (size > MAXIMUM_PACKET or size != reader.position - start):
            raise BadPacket(f"BaseHeader: PacketSize is {size}, the headers take {reader.position - start} bytes")
        if message.base.has_session:
            message.session = SessionHeader.unpack(reader)
        return message


def _pack_multi_queue(header: MultiQueueFormatHeader) -> bytes:
    lists = (
        (_DESTINATION, header.destination),
        (_ADMINISTRATION, header.administration),
        (_RESPONSE, header.response),
    )
    data = b"".join(padded(_pack_addresses(identifier, names)) for identifier, names in lists)
    return data + padded(struct.pack("<HHI", _SIGNATURE, 0, len(header.signature)) + header.signature)


def _pack_addresses(identifier: int, names: list[QueueName]) -> bytes:
    data = b""
    for name in names:
        data += pack_element(name, len(data))
    return _ADDRESS.pack(_ADDRESS.size + len(data), identifier, 0, len(names)) + data


def _unpack_multi_queue(reader: Reader) -> MultiQueueFormatHeader:
    header = MultiQueueFormatHeader(
        _unpack_addresses(reader, _DESTINATION),
        _unpack_addresses(reader, _ADMINISTRATION),
        _unpack_addresses(reader, _RESPONSE),
    )
    with reader.header("MQFSignatureHeader"):
        identifier, _ = reader.u16(), reader.u16()
        if identifier != _SIGNATURE:
            raise BadPacket(f"MQFSignatureHeader: identifier {identifier:#06x}")
        header.signature = reader.bytes(reader.u32())
        reader.align()
    return header


def _unpack_addresses(reader: Reader, expected: int) -> list[QueueName]:
    with reader.header("MQFAddressHeader"):
        size, identifier, _, count = reader.unpack(_ADDRESS)
        if identifier != expected or size < _ADDRESS.size:
            raise BadPacket(f"MQFAddressHeader: invalid identifier {identifier:#06x} or size {size}")
        names = []
        with reader.restricted(size - _ADDRESS.size):
            if count > reader.remaining // 2:
                raise BadPacket(f"MQFAddressHeader: {count} elements announced in {reader.remaining} bytes")
            for _ in range(count):
                names.append(unpack_element(reader))
            if reader.remaining not in (0, reader.padding()):
                raise BadPacket(
                    f"MQFAddressHeader: {count} elements leave {reader.remaining} bytes of HeaderSize, {size}"
                )
        reader.align()
    return names


def _check_destinations(name: QueueName | None, destinations: list[QueueName]) -> None:
    """Check that the list of destinations includes this one (2.2.20.1). Only public queues are checked, because other
    queues may have several names, and distribution lists do not contain their members (deviation D-183).

    Raises BadPacket.
    """
    if name is None or name.type is not NameType.PUBLIC or any(each.is_distribution_list for each in destinations):
        return
    if all(each.type is not NameType.PUBLIC or each.guid != name.guid for each in destinations):
        raise BadPacket("MultiQueueFormatHeader: Destination does not have the queue that the packet is for")


def _pack_envelope(headers: SrmpHeaders) -> bytes:
    length = len(headers.envelope) // 2
    return padded(struct.pack("<HHI", headers.envelope_id, 0, length) + headers.envelope)


def _pack_compound(headers: SrmpHeaders) -> bytes:
    sizes = (len(headers.compound), headers.body_size, headers.body_offset)
    return struct.pack("<HHIII", headers.compound_id, 0, *sizes) + headers.compound


def _unpack_srmp(reader: Reader) -> SrmpHeaders:
    with reader.header("SRMPEnvelopeHeader"):
        envelope_id, _ = reader.u16(), reader.u16()
        envelope = reader.bytes(2 * reader.u32())
        reader.align()
    with reader.header("CompoundMessageHeader"):
        compound_id, _, size = reader.u16(), reader.u16(), reader.u32()
        body_size, body_offset = reader.u32(), reader.u32()
        compound = reader.bytes(size)
        reader.align()
    if body_offset > size or body_size > size - body_offset:
        raise BadPacket(f"CompoundMessageHeader: a body at {body_offset} of {body_size} bytes in {size}")
    return SrmpHeaders(envelope_id, envelope, compound_id, body_size, body_offset, compound)
