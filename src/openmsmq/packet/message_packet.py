"""The Message Packet Structure of MS-MQRR: a UserMessage and the headers after it ([MS-MQRR] 2.2.5)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum

from openmsmq.packet.errors import BadPacket
from openmsmq.packet.reader import Reader, padded, wchars
from openmsmq.packet.user_message import UserMessage

_EXTENSION = struct.Struct("<IIB3x")
_SUBQUEUE = struct.Struct("<IIIII64s64s")
_ADDRESS = struct.Struct("<IHHI16s")
_DEAD_LETTER, _SUBQUEUE_PRESENT, _DEAD_LETTER_INVALID, _ADDRESS_PRESENT = 1, 2, 8, 16
MAXIMUM_SUBQUEUE_NAME = 31  # WCHARs without the terminator; also in model/names.py, which does not use this package


class AddressType(IntEnum):
    """AddressType of ExtendedAddressHeader (2.2.5.5)."""

    NONE = 0
    IPV4 = 1
    IPV6 = 6


@dataclass(slots=True)
class SubqueueHeader:
    """2.2.5.3; D-33 in docs/deviations.md describes the order of the bits. Meaningless if `subqueue` is empty.
    `last_move_time` is in milliseconds, modulo 2**32."""

    acknowledgement_class: int = 0
    abort_count: int = 0
    move_count: int = 0
    last_move_time: int = 0
    subqueue: str = ""
    target_subqueue: str = ""

    def pack(self) -> bytes:
        return _SUBQUEUE.pack(
            _SUBQUEUE.size, self.acknowledgement_class << 1, self.abort_count, self.move_count, self.last_move_time,
            _subqueue_name(self.subqueue), _subqueue_name(self.target_subqueue),
        )  # fmt: skip

    @classmethod
    def unpack(cls, reader: Reader) -> SubqueueHeader:
        with reader.header("SubqueueHeader"):
            _check_size(reader, _SUBQUEUE.size)
            values = _SUBQUEUE.unpack(reader.bytes(_SUBQUEUE.size))
            subqueue, target = (Reader(name, "SubqueueName").text(64) for name in values[5:])
        return cls(values[1] >> 1 & 0xFFFF, values[2], values[3], values[4], subqueue, target)


@dataclass(slots=True)
class ExtendedAddressHeader:
    """2.2.5.5: source of the message; `address` has 4 or 16 bytes, or none for a message of this host."""

    type: AddressType = AddressType.NONE
    scope: int = 0
    address: bytes = b""

    def pack(self) -> bytes:
        return _ADDRESS.pack(_ADDRESS.size, len(self.address), self.type, self.scope, self.address)

    @classmethod
    def unpack(cls, reader: Reader) -> ExtendedAddressHeader:
        with reader.header("ExtendedAddressHeader"):
            _check_size(reader, _ADDRESS.size)
            _, length, kind, scope, address = _ADDRESS.unpack(reader.bytes(_ADDRESS.size))
        if kind not in tuple(AddressType):
            raise BadPacket(f"ExtendedAddressHeader: AddressType {kind}, allowed: 0, 1 and 6")
        if length > len(address):
            raise BadPacket(f"ExtendedAddressHeader: AddressLength {length}, at most {len(address)}")
        return cls(AddressType(kind), scope, address[:length])


@dataclass(slots=True)
class MessagePacket:
    """Data of one message in a remote read. `dead_letter_queue` is the path of the sender's custom one, or empty."""

    message: UserMessage = field(default_factory=UserMessage)
    subqueue: SubqueueHeader | None = field(default_factory=SubqueueHeader)
    dead_letter_queue: str = ""
    dead_letter_queue_invalid: bool = False
    address: ExtendedAddressHeader | None = field(default_factory=ExtendedAddressHeader)

    def pack(self) -> bytes:
        return b"".join(self.pack_parts())

    def pack_parts(self) -> tuple[bytes, bytes, bytes]:
        """Return headers, payload and trailers; their concatenation is the packet."""
        headers, payload, trailers = self.message.pack_parts()
        return headers, payload, trailers + self._pack_extension()

    def _pack_extension(self) -> bytes:
        flags, data = 0, b""
        if self.subqueue is not None:
            flags |= _SUBQUEUE_PRESENT
            data += self.subqueue.pack()
        if self.dead_letter_queue:
            flags |= _DEAD_LETTER
            if self.dead_letter_queue_invalid:
                flags |= _DEAD_LETTER_INVALID
            path = padded(wchars(self.dead_letter_queue))
            data += (4 + len(path)).to_bytes(4, "little") + path
        if self.address is not None:
            flags |= _ADDRESS_PRESENT
            data += self.address.pack()
        return _EXTENSION.pack(_EXTENSION.size, len(data), flags) + data

    @classmethod
    def unpack(cls, data: bytes) -> MessagePacket:
        """Parse a whole packet. The headers after the UserMessage may be missing, because older senders omit them.

        Raises BadPacket.
        """
        reader = Reader(data)
        packet = cls(UserMessage.unpack(reader), None, address=None)
        if reader.remaining:
            packet._unpack_extension(reader)
        return packet

    def _unpack_extension(self, reader: Reader) -> None:
        with reader.header("ExtensionHeader"):
            _check_size(reader, _EXTENSION.size)
            _, size, flags = reader.unpack(_EXTENSION)
        with reader.restricted(size):
            if flags & _SUBQUEUE_PRESENT:
                self.subqueue = SubqueueHeader.unpack(reader)
            if flags & _DEAD_LETTER:
                self.dead_letter_queue = _unpack_dead_letter(reader)
                self.dead_letter_queue_invalid = bool(flags & _DEAD_LETTER_INVALID)
            if flags & _ADDRESS_PRESENT:
                self.address = ExtendedAddressHeader.unpack(reader)


def _unpack_dead_letter(reader: Reader) -> str:
    with reader.header("DeadLetterHeader"):
        size = reader.u32()
        if size < 4:
            raise BadPacket(f"DeadLetterHeader: HeaderSize {size}, at least 4")
        return reader.text(size - 4)


def _subqueue_name(name: str) -> bytes:
    encoded = name.encode("utf-16-le", "surrogatepass")
    if len(encoded) > 2 * MAXIMUM_SUBQUEUE_NAME:
        raise ValueError(f"the subqueue name {name!r} has more than {MAXIMUM_SUBQUEUE_NAME} characters")
    return encoded


def _check_size(reader: Reader, expected: int) -> None:
    """Check HeaderSize, with which every fixed header begins. Raises BadPacket."""
    size = reader.u32()
    if size != expected:
        raise BadPacket(f"{reader.name}: HeaderSize {size}, expected {expected}")
    reader.position -= 4
