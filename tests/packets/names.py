"""Queue names inside packets: MS-MQMQ 2.2.18.1.4, 2.2.18.1.5 and 2.2.18.1.7."""

from __future__ import annotations

import re
import struct

from packets.reading import Header, Reader, Violation, text

NONE, SAME, SOURCE, DESTINATION, WITH_ADMIN, PUBLIC, PRIVATE, DIRECT = range(8)

# MS-MQMQ 2.1.2 without "DIRECT="; the host has any form that the operating system accepts. MS-MQQB 2.2.4 adds SPX.
_PATH = r"(?:\\private\$|\\system\$)?[\\;][^\\]+"
_DIRECT_NAME = re.compile(
    rf"(?:(?:tcp|os|spx|ipx):[^\\/]+{_PATH}|https?://[^\\/]+[\\/].+)", re.IGNORECASE | re.DOTALL
)  # fmt: skip
_ADDRESS = r"(?:TCP:[0-9A-Fa-f.:%\[\]]+|SPX:[0-9A-F]{8}\.[0-9A-F]{12})"
# MS-MQQB 2.2.4; ABNF strings are case-insensitive (RFC 5234 2.3).
_ORDER_QUEUE = re.compile(_ADDRESS + r"\\PRIVATE\$\\order_queue\$", re.IGNORECASE)
_LIKE_ORDER_QUEUE = re.compile(r".*\\private\$\\order_queue\$", re.IGNORECASE | re.DOTALL)
ORDER_QUEUE = 4  # its PrivateQueueIdentifier, MS-MQQB 2.2.4


def queue(reader: Reader, header: Header, field: str, kind: int) -> None:
    """Read a queue name with the layout `kind` (Flags.DQ, AQ or RQ): an identifier, a GUID, both, or a direct name."""
    section, whole = header.section, reader.position
    if kind in (NONE, SAME):
        return
    if kind in (SOURCE, DESTINATION, WITH_ADMIN):
        reader.take(header, field, 4)
    elif kind == PUBLIC:
        reader.take(header, field, 16)
    elif kind == PRIVATE:
        guid = reader.take(header, f"{field}.SourceQueueManager", 16)
        header.must(f"{field}.SourceQueueManager", any(guid), "specifies the queue manager that hosts the queue")
        header.keep(field, (guid, reader.take(header, f"{field}.PrivateQueueIdentifier", 4)), whole)
    elif kind == DIRECT:
        size = reader.take(header, f"{field}.Count", 2)
        header.must(f"{field}.Count", size > 2, "the length of the name with its terminator", "MS-MQMQ 2.2.18.1.5.2")
        raw = f"{field}.DirectFormatName"
        reader.blob(header, raw, size)
        name = text(header, raw)
        _hold_direct_name(header, raw, name)
        header.keep(field, name, whole)
        reader.align(header)
    else:
        raise Violation(section, f"{header.name}.{field}", whole, kind, "no layout of a queue's name")


def _hold_direct_name(header: Header, field: str, name: str) -> None:
    header.must(field, bool(_DIRECT_NAME.fullmatch(name)), "a direct format name without DIRECT=", "MS-MQMQ 2.1.2")


def addresses_order_queue(user: Header) -> bool:
    """Whether a UserHeader's destination is the order queue, in any notation."""
    kind, name = user["Flags.DQ"], user.get("DestinationQueue")
    if kind == DESTINATION:
        return bool(name == ORDER_QUEUE)
    return kind == DIRECT and bool(_LIKE_ORDER_QUEUE.fullmatch(name or ""))


def hold_order_queue(user: Header, section: str) -> None:
    """Check `DestinationQueue` by MS-MQQB 2.2.4 and 2.2.5."""
    if user["Flags.DQ"] == DIRECT:
        name = user["DestinationQueue"]
        user.must("DestinationQueue", bool(_ORDER_QUEUE.fullmatch(name)), "orderQueueName of the ABNF", section)


def element(reader: Reader, header: Header, field: str) -> tuple[int, object]:
    """Read one MQFFormatNameElement: its FormatType and the name."""
    section = "MS-MQMQ 2.2.18.1.4"
    kind = reader.take(header, f"{field}.FormatType", 2)
    header.must(f"{field}.FormatType", kind in (1, 2, 3, 6), "1, 2, 3 or 6", section)
    if kind == 3:
        return kind, _unsized_direct_name(reader, header, field)
    reader.align(header)
    name: object = reader.take(header, f"{field}.FormatName", 16)
    if kind == 2:
        name = name, reader.take(header, f"{field}.PrivateQueueIdentifier", 4)
    return kind, name


def _unsized_direct_name(reader: Reader, header: Header, field: str) -> str:
    """Read an MQFDirectQueueFormatName, which has no length: it ends with its null character."""
    at = reader.position
    while at + 2 <= len(reader.data) and struct.unpack_from("<H", reader.data, at)[0]:
        at += 2
    reader.blob(header, f"{field}.FormatName", at + 2 - reader.position)
    name = text(header, f"{field}.FormatName")
    _hold_direct_name(header, f"{field}.FormatName", name)
    return name
