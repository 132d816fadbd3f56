"""Checks of ping packets, MS-MQQB 2.1.2 and 2.2.7: datagrams, which have none of the headers of other packets."""

from __future__ import annotations

from packets.headers import NULL_GUID
from packets.reading import Header, Reader

SIGNATURE = 0x5548


def check(data: bytes, question: Header | None = None, strict: bool = True) -> Header:
    """Check a Ping Request, or the Ping Response to `question`. Raises Violation."""
    reader = Reader(data, strict)
    ping = reader.header("MS-MQQB 2.2.7", "PingPacket", {"Flags": 2, "Signature": 2, "Cookie": 4, "QMGuid": 16})
    ping.bits("Flags", {"RC": 1, "RF": 1, "X": 14})
    ping.must("QMGuid", reader.position == len(data), "the end of the packet")
    ping.must("Signature", ping["Signature"] == SIGNATURE, "0x5548")
    ping.must("QMGuid", ping["QMGuid"] != NULL_GUID, "the GUID of the queue manager that made the packet")
    if strict:
        ping.unused("Flags.X")
    if question is None:
        ping.must("Flags.RF", not ping["Flags.RF"], "clear in a request")
        return ping
    for field in ("Cookie", "Flags.RC"):
        ping.must(field, ping[field] == question[field], f"{question[field]}, as in the request")
    return ping
