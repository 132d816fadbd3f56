"""The three NTLM messages and the structures in them ([MS-NLMP] 2.2)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

from msrpc.errors import AuthenticationError

SIGNATURE: Final = b"NTLMSSP\0"
# VERSION (2.2.2.10) is for debugging only; a strict client insists that the CHALLENGE has one.
VERSION: Final = bytes.fromhex("0a00614a0000000f")
# Maximum number of AV pairs in a message; nine kinds are defined.
MAX_AV_PAIRS: Final = 32


class NegotiateFlags(IntFlag):
    """The flags of [MS-NLMP] 2.2.2.5 that are used here."""

    UNICODE = 0x00000001
    OEM = 0x00000002
    REQUEST_TARGET = 0x00000004
    SIGN = 0x00000010
    SEAL = 0x00000020
    DATAGRAM = 0x00000040
    LM_KEY = 0x00000080
    NTLM = 0x00000200
    ANONYMOUS = 0x00000800
    ALWAYS_SIGN = 0x00008000
    TARGET_TYPE_DOMAIN = 0x00010000
    TARGET_TYPE_SERVER = 0x00020000
    EXTENDED_SESSION_SECURITY = 0x00080000
    IDENTIFY = 0x00100000
    TARGET_INFO = 0x00800000
    VERSION = 0x02000000
    KEY_128 = 0x20000000
    KEY_EXCH = 0x40000000
    KEY_56 = 0x80000000


class AvId(IntEnum):
    """[MS-NLMP] 2.2.2.1."""

    EOL = 0
    NB_COMPUTER_NAME = 1
    NB_DOMAIN_NAME = 2
    DNS_COMPUTER_NAME = 3
    DNS_DOMAIN_NAME = 4
    DNS_TREE_NAME = 5
    FLAGS = 6
    TIMESTAMP = 7
    SINGLE_HOST = 8
    TARGET_NAME = 9
    CHANNEL_BINDINGS = 10


AV_FLAG_MIC_PROVIDED: Final = 0x2

AvPairs = tuple[tuple[int, bytes], ...]


def pack_av_pairs(pairs: Iterable[tuple[int, bytes]]) -> bytes:
    """Encode AV pairs with their terminator."""
    return b"".join(struct.pack("<HH", kind, len(value)) + value for kind, value in pairs) + bytes(4)


def unpack_av_pairs(data: bytes) -> AvPairs:
    """Decode the AV pairs before the terminator; bytes after it are padding. Raises `AuthenticationError`."""
    pairs: list[tuple[int, bytes]] = []
    at = 0
    while at + 4 <= len(data) and len(pairs) < MAX_AV_PAIRS:
        kind, length = struct.unpack_from("<HH", data, at)
        at += 4
        if kind == AvId.EOL:
            return tuple(pairs)
        if at + length > len(data):
            break
        pairs.append((kind, data[at : at + length]))
        at += length
    raise AuthenticationError("AV pairs are malformed")


@dataclass(frozen=True, slots=True)
class Negotiate:
    """NEGOTIATE_MESSAGE (2.2.1.1); the domain and workstation it may carry are ignored."""

    flags: int

    def pack(self) -> bytes:
        nothing = struct.pack("<HHI", 0, 0, 40)
        return SIGNATURE + struct.pack("<II", 1, self.flags) + nothing + nothing + VERSION

    @classmethod
    def unpack(cls, data: bytes) -> Negotiate:
        _check(data, 1, 16)
        return cls(*struct.unpack_from("<I", data, 12))


@dataclass(frozen=True, slots=True)
class Challenge:
    """CHALLENGE_MESSAGE (2.2.1.2). Its payload starts behind the VERSION field, at 56."""

    flags: int
    server_challenge: bytes
    target_name: str
    target_info: bytes

    def pack(self) -> bytes:
        name = self.target_name.encode("utf-16-le")
        fields = struct.pack("<HHI", len(name), len(name), 56)
        info = struct.pack("<HHI", len(self.target_info), len(self.target_info), 56 + len(name))
        head = SIGNATURE + struct.pack("<I", 2) + fields + struct.pack("<I", self.flags) + self.server_challenge
        return head + bytes(8) + info + VERSION + name + self.target_info

    @classmethod
    def unpack(cls, data: bytes) -> Challenge:
        _check(data, 2, 32)
        (flags,) = struct.unpack_from("<I", data, 20)
        name = _text(_field(data, 12), flags) if flags & NegotiateFlags.REQUEST_TARGET else ""
        info = _field(data, 40) if flags & NegotiateFlags.TARGET_INFO else b""
        return cls(flags, data[24:32], name, info)


@dataclass(frozen=True, slots=True)
class Authenticate:
    """AUTHENTICATE_MESSAGE (2.2.1.3). `mic` is None when the message does not hold one."""

    flags: int
    lm_response: bytes
    nt_response: bytes
    domain: str
    user: str
    workstation: str
    session_key: bytes
    mic: bytes | None = None

    MIC_OFFSET = 72

    def pack(self) -> bytes:
        payload = b""
        fields = b""
        parts = (
            self.lm_response,
            self.nt_response,
            self.domain.encode("utf-16-le"),
            self.user.encode("utf-16-le"),
            self.workstation.encode("utf-16-le"),
            self.session_key,
        )
        base = self.MIC_OFFSET + (16 if self.mic is not None else 0)
        for part in parts:
            fields += struct.pack("<HHI", len(part), len(part), base + len(payload))
            payload += part
        head = SIGNATURE + struct.pack("<I", 3) + fields + struct.pack("<I", self.flags) + VERSION
        return head + (self.mic or b"") + payload

    @classmethod
    def unpack(cls, data: bytes) -> Authenticate:
        _check(data, 3, 64)
        (flags,) = struct.unpack_from("<I", data, 60)
        lm, nt, domain, user, workstation, key = (_field(data, at) for at in range(12, 60, 8))
        offsets = [struct.unpack_from("<HHI", data, at)[::2] for at in range(12, 60, 8)]
        first = min((offset for length, offset in offsets if length), default=len(data))
        mic = data[72:88] if first >= 88 and len(data) >= 88 else None
        texts = (_text(domain, flags), _text(user, flags), _text(workstation, flags))
        return cls(flags, lm, nt, *texts, key, mic)


def _check(data: bytes, kind: int, size: int) -> None:
    if len(data) < size or data[:8] != SIGNATURE or data[8:12] != kind.to_bytes(4, "little"):
        raise AuthenticationError(f"not an NTLM message of type {kind}")


def _field(data: bytes, at: int) -> bytes:
    if at + 8 > len(data):
        raise AuthenticationError("NTLM message is truncated")
    length, _, offset = struct.unpack_from("<HHI", data, at)
    if length and offset + length > len(data):
        raise AuthenticationError("NTLM field exceeds its message")
    return data[offset : offset + length] if length else b""


def _text(data: bytes, flags: int) -> str:
    try:
        return data.decode("utf-16-le" if flags & NegotiateFlags.UNICODE else "latin-1")
    except UnicodeDecodeError as error:
        raise AuthenticationError("NTLM name is not UTF-16") from error
