"""Names of queues in packets of other queue managers, as this one understands them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from uuid import UUID

from openmsmq.conversion.packets import NAMES_KEPT
from openmsmq.model import names
from openmsmq.model.errors import IllegalFormatName
from openmsmq.model.message import NULL_GUID
from openmsmq.packet import UserMessage
from openmsmq.packet.queue_names import NameType, QueueName


def public_text(name: QueueName) -> str:
    """Return the format name in a packet if it may be that of a public queue, else an empty text."""
    if name.type is NameType.PUBLIC and not name.is_distribution_list:
        return str(names.PublicFormatName(UUID(bytes_le=name.guid)))
    is_direct = name.type is NameType.DIRECT and "private$" not in name.direct.lower()
    return f"DIRECT={name.direct}" if is_direct else ""


def parsed_single(format_name: str) -> names.SingleFormatName | None:
    """Return a format name of one queue; None for any other text."""
    try:
        name = names.parse_format_name(format_name)
    except IllegalFormatName:
        return None
    return None if isinstance(name, names.MultipleElementFormatName) else name


@lru_cache(NAMES_KEPT)
def named_here(format_name: str, identifier: bytes) -> names.SingleFormatName | None:
    """Return the name of the destination as a name of this queue manager."""
    name = parsed_single(format_name)
    if isinstance(name, names.DirectFormatName):
        return None if name.is_http else replace(name, protocol="OS", address=".")
    if isinstance(name, names.PrivateFormatName) and name.guid.bytes_le == NULL_GUID:
        return replace(name, guid=UUID(bytes_le=identifier))
    return name


def name_of_sequence(packet: UserMessage) -> str:
    """Return the name that a source uses for a queue (deviation D-97): it has a sequence for each name."""
    name = packet.user.destination
    if name is None or name.type not in (NameType.DIRECT, NameType.PUBLIC):
        return ""
    return name.direct.lower() if name.type is NameType.DIRECT else "public"


def name_elsewhere(format_name: str) -> names.PrivateFormatName | names.PublicFormatName | None:
    """Return the name of a private or public queue of another machine; only messages for these are routed (3.1.5.8.2,
    3.1.5.8.5)."""
    try:
        name = names.parse_format_name(format_name)
    except IllegalFormatName:
        return None
    return name if isinstance(name, (names.PrivateFormatName, names.PublicFormatName)) else None
