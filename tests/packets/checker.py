"""Checks MS-MQQB packets from the bytes of a TCP connection against every MUST that can be verified from the bytes.

`check` takes one packet, `Stream` splits one direction of a connection into packets; `conversation` has the rules
that a session must obey across packets. With `strict`, reserved fields that SHOULD NOT be set are errors, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from packets import headers, names, reports
from packets.reading import Header, Reader, Violation

_FRAME = struct.Struct("<BxH4sI")  # VersionNumber, Flags, Signature, PacketSize
_INTERNAL, _SESSION = 0x08, 0x10  # bits of Flags
ACKNOWLEDGMENT_LABEL = "QM Ordering Ack"


class Kind(Enum):
    """Packet types, MS-MQQB 3.1.5.1.1."""

    ESTABLISH_CONNECTION = auto()
    CONNECTION_PARAMETERS = auto()
    SESSION_ACK = auto()
    USER_MESSAGE = auto()
    ORDER_ACK = auto()
    FINAL_ACK = auto()


@dataclass
class Packet:
    """A parsed packet with its headers by name."""

    kind: Kind
    data: bytes
    headers: dict[str, Header] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Header:
        return self.headers[name]

    def get(self, name: str) -> Header | None:
        return self.headers.get(name)

    def __repr__(self) -> str:
        return f"<{self.kind.name}: {len(self.data)} bytes, {', '.join(self.headers)}>"


INTERNAL = {
    headers.ESTABLISH_CONNECTION: (Kind.ESTABLISH_CONNECTION, headers.establish_connection),
    headers.CONNECTION_PARAMETERS: (Kind.CONNECTION_PARAMETERS, headers.connection_parameters),
    headers.SESSION_ACK: (Kind.SESSION_ACK, headers.session),
}


def size(data: bytes | bytearray) -> int | None:
    """Return the size of the packet that starts here, with its SessionHeader; None if fewer than 16 bytes are known.

    PacketSize excludes the SessionHeader (MS-MQMQ 2.2.19.1), except in a SessionAck packet, where the capture of
    MS-MQQB 4.1.8 counts it.
    """
    if len(data) < 16:
        return None
    version, flags, signature, wanted = _FRAME.unpack_from(data)
    if version != 0x10 or signature != b"LIOR" or not 16 <= wanted <= headers.MAX_PACKET:
        headers.base(Reader(bytes(data[:16]), strict=False))  # raises Violation
    return int(wanted) + (16 if flags & (_SESSION | _INTERNAL) == _SESSION else 0)


def check(data: bytes, strict: bool = True) -> Packet:
    """Parse and check one whole packet. Raises Violation."""
    reader = Reader(data, strict)
    base = headers.base(reader)
    base.must("PacketSize", size(data) == len(data), f"the size of the packet: {len(data)} bytes are here")
    packet = _internal(reader, base) if base["Flags.IN"] else _message(reader, base)
    _hold_end(reader, base, len(data))
    return packet


def _hold_end(reader: Reader, base: Header, end: int) -> None:
    if reader.position != end:
        raise Violation(base.section, "BaseHeader.PacketSize", 8, base["PacketSize"], f"ends at {reader.position}")


def _internal(reader: Reader, base: Header) -> Packet:
    internal = headers.internal(reader, base)
    kind, read = INTERNAL[internal["Flags.PT"]]
    last = read(reader)
    return Packet(kind, reader.data, {"BaseHeader": base, "InternalHeader": internal, last.name: last})


def _message(reader: Reader, base: Header) -> Packet:
    """Read a UserMessage packet (MS-MQMQ 2.2.20): flags determine which headers are present, and their order is
    fixed."""
    packet = Packet(Kind.USER_MESSAGE, reader.data, {"BaseHeader": base})
    user = headers.user(reader)
    base.must("Flags.PR", not user["Flags.TH"] or base["Flags.PR"] == 0, "0 in transactional messages")
    packet.headers["UserHeader"] = user
    for present, read in (
        (user["Flags.TH"], headers.transaction),
        (user["Flags.SH"], headers.security),
        (True, headers.message_properties),
        (base["Flags.DH"], headers.debug),
        (user["Flags.HH"], headers.soap),
        (user["Flags.MQ"], headers.multiple_queues),
    ):
        if present:
            header = read(reader)
            packet.headers[header.name] = header
    _hold_end(reader, base, base["PacketSize"])
    if base["Flags.SH"]:
        packet.headers["SessionHeader"] = headers.session(reader)
    _hold_between(packet)
    reports.hold(user, packet["MessagePropertiesHeader"])
    if names.addresses_order_queue(user):
        _hold_acknowledgment(packet)
    return packet


def _hold_between(packet: Packet) -> None:
    """Check the rules between headers of a UserMessage packet."""
    user, properties, security = packet["UserHeader"], packet["MessagePropertiesHeader"], packet.get("SecurityHeader")
    asked = any(properties[f"Flags.{bit}"] for bit in ("PA", "PR", "NA", "NR"))
    # The capture of MS-MQQB 4.1.7 breaks the reverse rule: a requested acknowledgment needs an administration queue.
    user.must("Flags.AQ", asked or not user["Flags.AQ"], "no administration queue where no acknowledgment is asked for")
    level, algorithm = properties["PrivacyLevel"], properties["EncryptionAlgorithm"]
    encrypted = security is not None and bool(security["Flags.EB"])
    properties.must("PrivacyLevel", encrypted == (level != 0), "SecurityHeader.Flags.EB says the same of the body")
    many = packet.get("MultiQueueFormatHeader")
    if many is not None and user["Flags.DQ"] == names.PUBLIC:
        found = [value for kind, value in many["Destination"] if kind == 1]
        lists = any(kind == 6 for kind, _ in many["Destination"])
        many.must("Destination", lists or user["DestinationQueue"] in found, "has the queue that the packet is for")
    if security is None:
        return
    if encrypted:
        named = struct.unpack_from("<I", security["EncryptionKey"], 4)[0]
        security.must("EncryptionKey", named == algorithm, f"for algorithm {algorithm:#x}", "MS-MQQB 2.4.2")
        block = headers.BLOCKS.get(algorithm, 1)
        body = properties["MessageSize"]
        properties.must("MessageSize", body % block == 0 and (block == 1 or body > 0), f"padded to {block} bytes")


def _hold_acknowledgment(packet: Packet) -> None:
    """Check OrderAck and FinalAck packets, MS-MQQB 2.2.4 and 2.2.5."""
    base, user, properties = packet["BaseHeader"], packet["UserHeader"], packet["MessagePropertiesHeader"]
    order = properties["MessageClass"] == headers.ORDER_ACK
    packet.kind = Kind.ORDER_ACK if order else Kind.FINAL_ACK
    section = "MS-MQQB 2.2.4" if order else "MS-MQQB 2.2.5"
    base.must("Flags", base["Flags"] == 0, "all bits are 0", section)
    base.must("TimeToReachQueue", base["TimeToReachQueue"] == headers.INFINITE, "0xFFFFFFFF: no UserMessage packet")
    final = properties["MessageClass"] in {headers.ACK_RECEIVE} | headers.NEGATIVE
    properties.must("MessageClass", order or final, "ORDER_ACK, ACK_RECEIVE, or a negative acknowledgment", section)
    # The texts contradict each other on DM of an OrderAck: 2.2.4 requires 0, 3.1.7.17 makes it recoverable.
    user.must("Flags.DM", order or user["Flags.DM"] == 1, "1: recoverable", section)
    # The sender sets RC to 0, too, but each routing server increments it (3.1.5.8.2).
    others = {"JN", "JP", "AQ", "RQ", "SH", "TH", "CQ", "MQ", "HH"}
    user.must("Flags", not any(user[f"Flags.{bit}"] for bit in others), "0 except for DQ, DM and MP", section)
    names.hold_order_queue(user, section)
    properties.must("LabelLength", properties["LabelLength"] == len(ACKNOWLEDGMENT_LABEL) + 1, "16", section)
    properties.must("Label", properties["Label"] == ACKNOWLEDGMENT_LABEL, "QM Ordering Ack", section)
    properties.must("MessageSize", properties["MessageSize"] == 0x24, "0x24", section)
    properties.must("Flags", properties["Flags"] == 0, "all bits are 0", section)
    properties.must("BodyType", properties["BodyType"] == 0, "VT_EMPTY", section)
    _read_body(packet, properties, order)


def _read_body(packet: Packet, properties: Header, order: bool) -> None:
    """Read OrderAck Body and FinalAck Body, MS-MQQB 2.2.4.1 and 2.2.5.1."""
    name, section = ("OrderAckBody", "MS-MQQB 2.2.4.1") if order else ("FinalAckBody", "MS-MQQB 2.2.5.1")
    fields = {"TxSequenceID": 8, "TxSequenceNumber": 4, "TxPreviousSequenceNumber": 4}
    fields |= {"Reserved": 20} if order else {"SourceGUID": 16, "MessageID": 4}
    reader = Reader(packet.data)
    reader.position = properties["MessageBody.offset"]
    body = reader.header(section, name, fields)
    number, previous = body["TxSequenceNumber"], body["TxPreviousSequenceNumber"]
    body.must("TxSequenceNumber", number >= 1, "at least 1")
    if order:
        body.must("TxPreviousSequenceNumber", previous == number - 1, "TxSequenceNumber - 1")
        body.must("Reserved", not any(body["Reserved"]), "zeros")
    else:
        body.must("TxPreviousSequenceNumber", previous < number, "that of a message that comes before")
        body.must("SourceGUID", any(body["SourceGUID"]), "the GUID of the source queue manager")
    packet.headers[name] = body


class Stream:
    """One direction of a TCP connection."""

    def __init__(self, strict: bool = True) -> None:
        self.strict = strict
        self._buffer = bytearray()

    @property
    def rest(self) -> int:
        """Return the bytes of an incomplete packet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[Packet]:
        """Add bytes and return the packets that are now complete. Raises Violation."""
        self._buffer += data
        while (wanted := size(self._buffer[:16])) is not None and wanted <= len(self._buffer):
            packet = bytes(memoryview(self._buffer)[:wanted])
            del self._buffer[:wanted]
            yield check(packet, self.strict)
