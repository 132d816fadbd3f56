"""Protocol towers: the encoding of an endpoint (C706 Appendix L and I).

A tower is a count and that many floors; each floor has a left side, which names a protocol, and a right side with the
protocol's address. Counts are little-endian in every data representation, a port is big-endian.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from msrpc.rpc.pdu import NDR, SyntaxId

# Protocol identifiers, C706 Appendix I.
UUID_DERIVED: Final = 0x0D
CONNECTION_ORIENTED: Final = 0x0B
TCP: Final = 0x07
IP: Final = 0x09

# A tower for TCP has five floors, one for HTTP six.
MAX_FLOORS: Final = 16


class BadTower(ValueError):
    """The octets are not a valid tower."""


@dataclass(frozen=True, slots=True)
class Tower:
    """An interface at a TCP port. `host` is an IPv4 address, or empty if it is not needed."""

    interface: SyntaxId
    port: int
    host: str = ""
    transfer_syntax: SyntaxId = NDR

    def pack(self) -> bytes:
        address = socket.inet_aton(self.host) if self.host else bytes(4)
        floors = (
            _syntax_floor(self.interface),
            _syntax_floor(self.transfer_syntax),
            _floor(bytes((CONNECTION_ORIENTED,)), bytes(2)),
            _floor(bytes((TCP,)), struct.pack(">H", self.port)),
            _floor(bytes((IP,)), address),
        )
        return struct.pack("<H", len(floors)) + b"".join(floors)

    @classmethod
    def unpack(cls, data: bytes) -> Tower | None:
        """Decode a tower; None if it is valid but not for TCP. Raises `BadTower`."""
        floors = _floors(data)
        if len(floors) < 4:
            raise BadTower("fewer than four floors")
        if [left[:1] for left, _ in floors[2:4]] != [bytes((CONNECTION_ORIENTED,)), bytes((TCP,))]:
            return None
        port = int.from_bytes(floors[3][1], "big")
        host = ""
        if len(floors) > 4 and floors[4][0] == bytes((IP,)) and len(floors[4][1]) == 4 and any(floors[4][1]):
            host = socket.inet_ntoa(floors[4][1])
        return cls(_syntax(*floors[0]), port, host, _syntax(*floors[1]))


def _floor(left: bytes, right: bytes) -> bytes:
    return struct.pack("<H", len(left)) + left + struct.pack("<H", len(right)) + right


def _syntax_floor(syntax: SyntaxId) -> bytes:
    major, minor = syntax.version
    return _floor(bytes((UUID_DERIVED,)) + syntax.uuid.bytes_le + struct.pack("<H", major), struct.pack("<H", minor))


def _syntax(left: bytes, right: bytes) -> SyntaxId:
    if len(left) != 19 or left[0] != UUID_DERIVED or len(right) != 2:
        raise BadTower("a floor does not name a syntax")
    (major,) = struct.unpack("<H", left[17:])
    (minor,) = struct.unpack("<H", right)
    return SyntaxId(UUID(bytes_le=left[1:17]), (major, minor))


def _floors(data: bytes) -> list[tuple[bytes, bytes]]:
    if len(data) < 2:
        raise BadTower("no count of floors")
    (count,) = struct.unpack_from("<H", data)
    if count > MAX_FLOORS:
        raise BadTower(f"{count} floors")
    at = 2
    sides = []
    for _ in range(2 * count):
        if at + 2 > len(data):
            raise BadTower("a floor is truncated")
        (length,) = struct.unpack_from("<H", data, at)
        at += 2 + length
        if at > len(data):
            raise BadTower("a floor is truncated")
        sides.append(data[at - length : at])
    return list(zip(sides[::2], sides[1::2], strict=True))
