"""Extract TCP streams from a capture by tcpdump, in the classic format of libpcap. No I/O.

The format is described in draft-ietf-opsawg-pcap: a header of 24 bytes, then packets, each with a header of 16 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final, NamedTuple

_MAGICS: Final = {
    bytes.fromhex("d4c3b2a1"): "<", bytes.fromhex("a1b2c3d4"): ">",
    bytes.fromhex("4d3cb2a1"): "<", bytes.fromhex("a1b23c4d"): ">",  # timestamps in nanoseconds
}  # fmt: skip
_PCAPNG: Final = bytes.fromhex("0a0d0d0a")
_ETHERTYPES: Final = {0x0800: 4, 0x86DD: 6}
_VLAN: Final = (0x8100, 0x88A8)
_TCP: Final = 6
_SYN = 0x02
_HALF: Final = 1 << 31  # sequence numbers wrap


class BadCapture(ValueError):
    """The bytes are not a readable capture; the message gives the reason."""


class TcpSegment(NamedTuple):
    """One TCP segment. `source` and `destination` are `address:port`."""

    source: str
    destination: str
    sequence: int
    flags: int
    data: bytes


class Piece(NamedTuple):
    """Contiguous bytes of one direction. `error` is set if bytes before them, or at the end, are missing."""

    source: str
    destination: str
    data: bytes
    error: str = ""


def is_capture(data: bytes) -> bool:
    """Return whether the bytes begin like a capture, including captures that `pieces` refuses."""
    return data[:4] in _MAGICS or data[:4] == _PCAPNG


def pieces(data: bytes) -> Iterator[Piece]:
    """Yield the data of the connections in a capture, in order. Raises BadCapture, possibly after a readable part."""
    streams: dict[tuple[str, str], _Stream] = {}
    for segment in segments(data):
        stream = streams.get((segment.source, segment.destination))
        if stream is None or segment.flags & _SYN:
            stream = streams[segment.source, segment.destination] = _Stream(segment)
        ready = stream.take(segment)
        if ready:
            yield Piece(segment.source, segment.destination, ready)
    for (source, destination), stream in streams.items():
        if stream.ahead:
            yield Piece(source, destination, b"", f"{stream.missing} bytes are missing from the capture")


class _Stream:
    """One direction of a connection. Segments that arrive early wait until the gap before them is filled."""

    def __init__(self, first: TcpSegment) -> None:
        self._next = first.sequence
        self.ahead: dict[int, bytes] = {}

    @property
    def missing(self) -> int:
        return min((sequence - self._next) % (2 * _HALF) for sequence in self.ahead)

    def take(self, segment: TcpSegment) -> bytes:
        """Add a segment and return the bytes that are now contiguous. Duplicate bytes are dropped."""
        if segment.flags & _SYN:
            self._next = (segment.sequence + 1) % (2 * _HALF)
            return b""
        if segment.data:
            known = self.ahead.get(segment.sequence, b"")
            self.ahead[segment.sequence] = max(segment.data, known, key=len)
        ready = bytearray()
        found = True
        while found:
            found = False
            for sequence in list(self.ahead):
                old = (self._next - sequence) % (2 * _HALF)
                if old < _HALF:  # it begins at or before this position
                    data = self.ahead.pop(sequence)[old:]
                    ready += data
                    self._next = (self._next + len(data)) % (2 * _HALF)
                    found = True
        return bytes(ready)


def segments(data: bytes) -> Iterator[TcpSegment]:
    """Yield the TCP segments of a capture. Raises BadCapture."""
    order = _MAGICS.get(data[:4])
    if data[:4] == _PCAPNG:
        raise BadCapture(
            "this is pcapng; convert it to pcap with `editcap -F pcap` of Wireshark, or capture with tcpdump"
        )
    if order is None or len(data) < 24:
        raise BadCapture("not a capture in the format of libpcap")
    link_type = struct.unpack_from(f"{order}I", data, 20)[0] & 0xFFFF
    if link_type not in _LINKS:
        raise BadCapture(f"link type {link_type} is not supported; supported link types: {', '.join(map(str, _LINKS))}")
    at = 24
    while at < len(data):
        if at + 16 > len(data):
            raise BadCapture("the capture is truncated in the header of a packet")
        captured, original = struct.unpack_from(f"{order}8xII", data, at)
        packet = data[at + 16 : at + 16 + captured]
        if len(packet) < captured:
            raise BadCapture(f"the capture is truncated: a packet has {len(packet)} of {captured} bytes")
        segment = _segment(packet, link_type)
        if segment is not None:
            if captured < original:
                raise BadCapture(f"only {captured} of the {original} bytes of a packet were captured; use tcpdump -s 0")
            yield segment
        at += 16 + captured


def _raw(packet: bytes) -> tuple[int, int]:
    return 0x86DD if packet[:1] >= b"\x60" else 0x0800, 0


def _cooked(packet: bytes) -> tuple[int, int]:
    return int.from_bytes(packet[14:16], "big"), 16


def _cooked_2(packet: bytes) -> tuple[int, int]:
    return int.from_bytes(packet[0:2], "big"), 20


def _ethernet(packet: bytes) -> tuple[int, int]:
    at = 12
    while int.from_bytes(packet[at : at + 2], "big") in _VLAN:
        at += 4
    return int.from_bytes(packet[at : at + 2], "big"), at + 2


# Return the EtherType of a packet's payload, and its offset, for a link type.
_LINKS: Final = {1: _ethernet, 101: _raw, 113: _cooked, 276: _cooked_2}  # Linux cooked capture: `tcpdump -i any`


def _segment(packet: bytes, link_type: int) -> TcpSegment | None:
    """Return the segment of a packet, or None if the packet is not TCP over IP, is an IP fragment, or is too short."""
    ethertype, at = _LINKS[link_type](packet)
    match _ETHERTYPES.get(ethertype):
        case 4 if len(packet) >= at + 20:
            total, fragment = struct.unpack_from(">2xH2xH", packet, at)
            protocol, size = packet[at + 9], 4 * (packet[at] & 15)
            addresses = packet[at + 12 : at + 16], packet[at + 16 : at + 20]
            if fragment & 0x3FFF:
                return None
        case 6 if len(packet) >= at + 40:
            total = 40 + int.from_bytes(packet[at + 4 : at + 6], "big")
            protocol, size = packet[at + 6], 40
            addresses = packet[at + 8 : at + 24], packet[at + 24 : at + 40]
        case _:
            return None
    end, at = at + total, at + size
    if protocol != _TCP or len(packet) < at + 20:
        return None
    source, destination, sequence = struct.unpack_from(">HHI", packet, at)
    data = packet[at + 4 * (packet[at + 12] >> 4) : end]
    return TcpSegment(_end(addresses[0], source), _end(addresses[1], destination), sequence, packet[at + 13], data)


def _end(address: bytes, port: int) -> str:
    return f"[{ip_address(address)}]:{port}" if len(address) == 16 else f"{ip_address(address)}:{port}"
