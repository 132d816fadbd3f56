"""Common parts of connection-oriented PDUs: header, auth verifier, syntax identifiers.

C706 12.6.3 and [MS-RPCE] 2.2.2. The bodies are in `bind_pdus` and `call_pdus`, which also has `decode` for all PDUs.
Integers are read in the byte order of the data representation, and written little-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal
from uuid import UUID

from msrpc.errors import RemoteProtocolError
from msrpc.ndr.runtime import guid_from_big_endian

ByteOrder = Literal["<", ">"]

HEADER_SIZE: Final = 16
SEC_TRAILER_SIZE: Final = 8

# C706 12.6.3.1: maximum size of a fragment, received or sent. The known clients offer 5840 (four Ethernet segments).
MAX_FRAGMENT: Final = 5840
# Minimum of that size: a fragment must have room for header, verifier and stub data.
MIN_FRAGMENT: Final = 128
# Presentation contexts in one bind or alter_context. A fragment could hold 130; clients offer at most one for each
# transfer syntax and the feature negotiation.
MAX_CONTEXTS_PER_BIND: Final = 64
# Transfer syntaxes in one context element; clients send one.
MAX_TRANSFER_SYNTAXES: Final = 16


class PacketType(IntEnum):
    """C706 12.6.4 and [MS-RPCE] 2.2.2.10."""

    REQUEST = 0
    RESPONSE = 2
    FAULT = 3
    BIND = 11
    BIND_ACK = 12
    BIND_NAK = 13
    ALTER_CONTEXT = 14
    ALTER_CONTEXT_RESP = 15
    AUTH3 = 16
    SHUTDOWN = 17
    CO_CANCEL = 18
    ORPHANED = 19


# Flags, C706 12.6.3.1 and [MS-RPCE] 2.2.2.3. Plain integers, because arithmetic of IntFlag costs a microsecond.
PFC_FIRST_FRAG: Final = 0x01
PFC_LAST_FRAG: Final = 0x02
PFC_WHOLE: Final = 0x03
PFC_SUPPORT_HEADER_SIGN: Final = 0x04
PFC_CONC_MPX: Final = 0x10
PFC_DID_NOT_EXECUTE: Final = 0x20
PFC_OBJECT_UUID: Final = 0x80


class AuthType(IntEnum):
    """[MS-RPCE] 2.2.1.1.7; TICKET is our own, for Unix sockets of the daemon (`tickets`)."""

    NONE = 0
    GSS_NEGOTIATE = 9
    WINNT = 10
    GSS_KERBEROS = 16
    TICKET = 0xE0
    DEFAULT = 0xFF


class AuthLevel(IntEnum):
    """[MS-RPCE] 2.2.1.1.8."""

    DEFAULT = 0
    NONE = 1
    CONNECT = 2
    CALL = 3
    PKT = 4
    PKT_INTEGRITY = 5
    PKT_PRIVACY = 6


# C706 14.1: integer representation in the high nibble of the first octet, character set in the low one, floating
# point in the second. Only ASCII and IEEE are supported, as on Windows.
LITTLE_ENDIAN_DREP: Final = b"\x10\x00\x00\x00"
_BYTE_ORDERS: Final[dict[int, ByteOrder]] = {0x10: "<", 0x00: ">"}

_HEADER: Final = {"<": struct.Struct("<BBBB4sHHI"), ">": struct.Struct(">BBBB4sHHI")}
_SEC_TRAILER: Final = {"<": struct.Struct("<BBBBI"), ">": struct.Struct(">BBBBI")}
_HEADER_LITTLE: Final = _HEADER["<"]
_SEC_TRAILER_LITTLE: Final = _SEC_TRAILER["<"]


class Header:
    """The common header, C706 12.6.3.1; its version is 5.0."""

    __slots__ = ("auth_length", "byte_order", "call_id", "flags", "frag_length", "packet_type")

    def __init__(
        self, packet_type: int, flags: int, byte_order: ByteOrder, frag_length: int, auth_length: int, call_id: int
    ) -> None:
        self.packet_type = packet_type
        self.flags = flags
        self.byte_order: ByteOrder = byte_order
        self.frag_length = frag_length
        self.auth_length = auth_length
        self.call_id = call_id

    @property
    def body_end(self) -> int:
        """Offset of the end of the body, including authentication padding ([MS-RPCE] 2.2.2.11)."""
        return self.frag_length - (self.auth_length + SEC_TRAILER_SIZE if self.auth_length else 0)

    @classmethod
    def unpack(cls, data: bytes | bytearray, maximum: int = MAX_FRAGMENT) -> Header:
        """Read the header at the start of `data`, which holds at least 16 bytes.

        Raises `RemoteProtocolError` for a version other than 5.0 (3.3.1.5.1), an unsupported data representation, and
        lengths that contradict each other or exceed `maximum`.
        """
        major, minor, packet_type, flags = data[0], data[1], data[2], data[3]
        if major != 5 or minor != 0:
            raise RemoteProtocolError(f"protocol version {major}.{minor}, not 5.0")
        order = _BYTE_ORDERS.get(data[4])
        if order is None or data[5]:
            raise RemoteProtocolError(f"data representation {bytes(data[4:8]).hex()} is not supported")
        _, _, _, _, _, frag_length, auth_length, call_id = _HEADER[order].unpack_from(data)
        if not HEADER_SIZE <= frag_length <= maximum:
            raise RemoteProtocolError(f"fragment length {frag_length} outside {HEADER_SIZE}..{maximum}")
        if auth_length and auth_length + SEC_TRAILER_SIZE + HEADER_SIZE > frag_length:
            raise RemoteProtocolError(f"auth length {auth_length} exceeds the fragment of {frag_length}")
        return cls(packet_type, flags, order, frag_length, auth_length, call_id)


@dataclass(frozen=True, slots=True)
class AuthVerifier:
    """sec_trailer and authentication token, [MS-RPCE] 2.2.2.11; `padding` are the octets before the trailer."""

    auth_type: int
    level: int
    context_id: int
    value: bytes
    padding: bytes = b""

    def pack(self) -> bytes:
        """Encode padding, trailer and token."""
        return self.padding + sec_trailer(self.auth_type, self.level, len(self.padding), self.context_id) + self.value

    @classmethod
    def unpack(cls, data: bytes, header: Header, body_start: int) -> AuthVerifier | None:
        """Decode the verifier at the end of a PDU whose body starts at `body_start`; None if there is none."""
        if not header.auth_length:
            return None
        at = header.body_end
        auth_type, level, pad, _, context_id = _SEC_TRAILER[header.byte_order].unpack_from(data, at)
        if pad > at - body_start:
            raise RemoteProtocolError(f"authentication padding {pad} exceeds the body")
        return cls(auth_type, level, context_id, bytes(data[at + SEC_TRAILER_SIZE :]), bytes(data[at - pad : at]))


@dataclass(frozen=True, slots=True)
class SyntaxId:
    """p_syntax_id_t (C706 12.6.3.1): an interface or a transfer syntax with its version."""

    uuid: UUID
    version: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.uuid} v{self.version[0]}.{self.version[1]}"

    def pack(self) -> bytes:
        return self.uuid.bytes_le + struct.pack("<HH", *self.version)

    @classmethod
    def unpack(cls, data: bytes, offset: int, order: ByteOrder) -> SyntaxId:
        # if_version is one 32-bit integer with the major version in its low half, so the halves swap with the order.
        (version,) = struct.unpack_from(order + "I", data, offset + 16)
        return cls(read_uuid(data, offset, order), (version & 0xFFFF, version >> 16))


NDR: Final = SyntaxId(UUID("8a885d04-1ceb-11c9-9fe8-08002b104860"), (2, 0))
NDR64: Final = SyntaxId(UUID("71710533-beba-4937-8319-b5dbef9ccc36"), (1, 0))  # [MS-RPCE] 2.2.5.1
NULL_SYNTAX: Final = SyntaxId(UUID(int=0), (0, 0))


def read_uuid(data: bytes, offset: int, order: ByteOrder) -> UUID:
    """Decode a UUID with integer fields in `order` ([MS-RPCE] 2.2.1.1.3)."""
    return UUID(bytes_le=read_uuid_bytes(data, offset, order))


def read_uuid_bytes(data: bytes, offset: int, order: ByteOrder) -> bytes:
    """Return the 16 bytes of a UUID, little-endian; otherwise as `read_uuid`."""
    raw = bytes(data[offset : offset + 16])
    return raw if order == "<" else guid_from_big_endian(raw)


def sec_trailer(auth_type: int, level: int, pad_length: int, context_id: int) -> bytes:
    """Encode sec_trailer, the eight octets before the authentication token."""
    return _SEC_TRAILER_LITTLE.pack(auth_type, level, pad_length, 0, context_id)


def frame(packet_type: int, flags: int, call_id: int, body: bytes, verifier: AuthVerifier | None = None) -> bytes:
    """Encode a little-endian PDU of header, body and verifier."""
    tail = verifier.pack() if verifier else b""
    auth_length = len(verifier.value) if verifier else 0
    length = HEADER_SIZE + len(body) + len(tail)
    head = _HEADER_LITTLE.pack(5, 0, packet_type, flags, LITTLE_ENDIAN_DREP, length, auth_length, call_id)
    return head + body + tail


def padded_verifier(auth_type: int, level: int, context_id: int, value: bytes) -> AuthVerifier | None:
    """Return a verifier for bind PDUs and replies, whose bodies end at a multiple of 4; None for an empty token.

    [MS-RPCE] 2.2.2.11 requires 16-octet alignment, but all known implementations align to 4 in these PDUs, and readers
    locate the trailer from the end.
    """
    return AuthVerifier(auth_type, level, context_id, value) if value else None
