"""Queue names inside packets ([MS-MQMQ] 2.2.18.1.4, 2.2.18.1.5 and 2.2.18.1.7)."""

from __future__ import annotations

import struct
from collections.abc import Container
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from openmsmq.packet.errors import BadPacket
from openmsmq.packet.reader import Reader, padded, terminated_text, wchars

# The order queue of every queue manager, [MS-MQQB] 2.2.4; in a direct name, the host precedes the path.
ORDER_QUEUE_NUMBER = 4
ORDER_QUEUE_PATH = "private$\\order_queue$"


class NameType(IntEnum):
    """Flags.DQ, AQ and RQ of the UserHeader: how a queue is named."""

    NONE = 0
    SAME_AS_ADMINISTRATION = 1
    PRIVATE_ON_SOURCE = 2
    PRIVATE_ON_DESTINATION = 3
    PRIVATE_ON_ADMINISTRATION = 4
    PUBLIC = 5
    PRIVATE = 6
    DIRECT = 7


class ElementType(IntEnum):
    """FormatType of MQFFormatNameElement."""

    PUBLIC = 1
    PRIVATE = 2
    DIRECT = 3
    DISTRIBUTION_LIST = 6


@dataclass(frozen=True, slots=True)
class QueueName:
    """`guid` for public and foreign private queues, `number` for private ones, `direct` without `DIRECT=`."""

    type: NameType
    guid: bytes = b""
    number: int = 0
    direct: str = ""
    is_distribution_list: bool = False

    @property
    def is_order_queue(self) -> bool:
        """Whether it is the queue for OrderAck and FinalAck packets, on any host ([MS-MQQB] 2.2.4, 2.2.5)."""
        if self.type is NameType.DIRECT:
            return self.direct.partition("\\")[2].lower() == ORDER_QUEUE_PATH
        return self.type is NameType.PRIVATE_ON_DESTINATION and self.number == ORDER_QUEUE_NUMBER


_NAME_TYPES = tuple(NameType)  # by number
_MAXIMUM_KEPT = 512  # maximum bytes of a cached name
#: Types of private queues that are identified only by number.
ON_SOME_HOST = (
    NameType.PRIVATE_ON_SOURCE,
    NameType.PRIVATE_ON_DESTINATION,
    NameType.PRIVATE_ON_ADMINISTRATION,
)


def pack_name(name: QueueName | None) -> tuple[int, bytes]:
    """Return (type, bytes) of a name in a UserHeader."""
    if name is None:
        return NameType.NONE, b""
    if name.type is NameType.DIRECT:
        text = wchars(name.direct)
        return name.type, padded(struct.pack("<H", len(text)) + text)
    if name.type in ON_SOME_HOST:
        return name.type, struct.pack("<I", name.number)
    if name.type is NameType.PUBLIC:
        return name.type, name.guid
    if name.type is NameType.PRIVATE:
        return name.type, name.guid + struct.pack("<I", name.number)
    return name.type, b""


def unpack_name(reader: Reader, kind: int, field: str, allowed: Container[int]) -> QueueName | None:
    """Parse a name of type `kind`. Raises BadPacket for a type that is not allowed for the field."""
    if kind not in allowed:
        raise BadPacket(f"{reader.name}: {field} of type {kind}")
    if not kind:
        return None
    name_type = _NAME_TYPES[kind]
    if name_type is NameType.DIRECT:
        size = reader.u16()
        name = _kept(reader.bytes(size)) if 0 < size <= _MAXIMUM_KEPT and not size % 2 else None
        if name is None:
            name = QueueName(name_type, direct=reader.terminated(size))
        reader.align()
        return name
    if name_type in ON_SOME_HOST:
        return QueueName(name_type, number=reader.u32())
    if name_type is NameType.PUBLIC:
        return QueueName(name_type, guid=reader.bytes(16))
    if name_type is NameType.PRIVATE:
        return QueueName(name_type, guid=reader.bytes(16), number=reader.u32())
    return QueueName(name_type)


@lru_cache(4096)
def _kept(text: bytes) -> QueueName:
    """Parse a direct format name. Cached, because consecutive messages often go to the same queue."""
    return QueueName(NameType.DIRECT, direct=terminated_text(text, "UserHeader"))


def pack_element(name: QueueName, position: int) -> bytes:
    """Return an MQFFormatNameElement at offset `position` of its list."""
    if name.is_distribution_list:
        return _at(ElementType.DISTRIBUTION_LIST, name.guid, position, 4)
    match name.type:
        case NameType.PUBLIC:
            return _at(ElementType.PUBLIC, name.guid, position, 4)
        case NameType.PRIVATE:
            return _at(ElementType.PRIVATE, name.guid + struct.pack("<I", name.number), position, 4)
        case NameType.DIRECT:
            return _at(ElementType.DIRECT, wchars(name.direct), position, 2)
    raise ValueError(f"{name.type.name} is not allowed in a multiple-element format name")


def unpack_element(reader: Reader) -> QueueName:
    """Parse an MQFFormatNameElement. Alignment is relative to the start of the header (deviation D-183)."""
    kind = reader.u16()
    if kind == ElementType.DIRECT:
        reader.align(2)
        return QueueName(NameType.DIRECT, direct=_terminated(reader))
    reader.align(4)
    if kind == ElementType.PUBLIC:
        return QueueName(NameType.PUBLIC, guid=reader.bytes(16))
    if kind == ElementType.PRIVATE:
        return QueueName(NameType.PRIVATE, guid=reader.bytes(16), number=reader.u32())
    if kind == ElementType.DISTRIBUTION_LIST:
        return QueueName(NameType.PUBLIC, guid=reader.bytes(16), is_distribution_list=True)
    raise BadPacket(f"{reader.name}: a format name element of type {kind}")


def _at(kind: ElementType, data: bytes, position: int, alignment: int) -> bytes:
    return struct.pack("<H", kind) + bytes(-(position + 2) % alignment) + data


def _terminated(reader: Reader) -> str:
    """Parse a null-terminated text without a length field."""
    end = reader.position
    while end + 2 <= reader.end:
        if reader.data[end : end + 2] == b"\0\0":
            return reader.terminated(end + 2 - reader.position)
        end += 2
    raise BadPacket(f"{reader.name}: a direct format name without terminator")
