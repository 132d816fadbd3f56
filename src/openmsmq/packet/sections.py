"""SectionBuffers: a message packet in one piece, or with a truncated payload ([MS-MQRR] 2.2.6, 2.2.7, 3.1.4.7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from openmsmq.packet.errors import BadPacket
from openmsmq.packet.message_packet import MessagePacket
from openmsmq.packet.reader import Reader
from openmsmq.packet.user_message import MAXIMUM_PACKET, UserMessage


class SectionType(IntEnum):
    """2.2.7."""

    FULL_PACKET = 0
    BINARY_FIRST = 1
    BINARY_SECOND = 2
    SRMP_FIRST = 3
    SRMP_SECOND = 4


@dataclass(frozen=True, slots=True)
class Section:
    """A SectionBuffer: `size_alloc` is the size of `data` with the whole payload, in bytes."""

    type: SectionType
    size_alloc: int
    data: bytes


def divide(packet: MessagePacket, maximum_body: int, maximum_compound: int) -> list[Section]:
    """Return the packet as one section, or as two if the payload exceeds the size that the reader requested.

    `maximum_body` and `maximum_compound` are dwMaxBodySize and dwMaxCompoundMessageSize, in bytes. Deviation D-34: the
    padding after the payload belongs to the second section, so that both sections, at their allocated sizes, form the
    whole packet.
    """
    headers, payload, trailers = packet.pack_parts()
    srmp = packet.message.srmp is not None
    maximum = maximum_compound if srmp else maximum_body
    if maximum >= len(payload):
        data = headers + payload + trailers
        return [Section(SectionType.FULL_PACKET, len(data), data)]
    first, second = (
        (SectionType.SRMP_FIRST, SectionType.SRMP_SECOND) if srmp
        else (SectionType.BINARY_FIRST, SectionType.BINARY_SECOND)
    )  # fmt: skip
    sections = [Section(first, len(headers) + len(payload), headers + payload[:maximum])]
    if trailers:
        sections.append(Section(second, len(trailers), trailers))
    return sections


def join(sections: Sequence[Section]) -> MessagePacket:
    """Return the packet in one or two sections. A truncated payload stays truncated.

    Raises BadPacket.
    """
    kinds = [section.type for section in sections]
    if kinds == [SectionType.FULL_PACKET]:
        return MessagePacket.unpack(sections[0].data)
    if kinds == [SectionType.BINARY_FIRST]:
        return MessagePacket(UserMessage.unpack(Reader(sections[0].data), partial=True), None, address=None)
    if kinds not in ([SectionType.BINARY_FIRST, SectionType.BINARY_SECOND],
                     [SectionType.SRMP_FIRST, SectionType.SRMP_SECOND]):  # fmt: skip
        raise BadPacket(f"the sections are {[kind.name for kind in kinds]}: no order that a packet can have")
    first, second = sections
    missing = first.size_alloc - len(first.data)
    if not 0 <= missing <= MAXIMUM_PACKET:
        raise BadPacket(f"SectionSizeAlloc is {first.size_alloc}, SectionSize {len(first.data)}")
    packet = MessagePacket.unpack(first.data + bytes(missing) + second.data)
    if kinds[0] is SectionType.BINARY_FIRST and missing:
        properties = packet.message.properties
        if missing > len(properties.body):
            raise BadPacket(
                f"the first section lacks {missing} bytes, more than the body of {len(properties.body)} bytes"
            )
        properties.body = properties.body[:-missing]
    return packet
