"""DUALSTRINGARRAY ([MS-DCOM] 2.2.19): addresses of an object resolver or exporter, and its authentication services."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from msrpc.interfaces.ms_dcom import DUALSTRINGARRAY
from msrpc.ndr import BadStubData

TCP = 7  # ncacn_ip_tcp ([C706] Appendix I)
# Every reference contains the bindings of its resolver, and there are few resolvers. Larger bindings are not cached.
_REMEMBERED: Final = 256
_REMEMBERED_SIZE: Final = 1024  # bytes
WINNT, SPNEGO = 10, 9  # RPC_C_AUTHN_WINNT and RPC_C_AUTHN_GSS_NEGOTIATE ([MS-RPCE] 2.2.1.1.7)


@dataclass(frozen=True, slots=True)
class Bindings:
    """`addresses` are (protocol sequence, network address); the address of an exporter is `host[port]`. `security` are
    (authentication service, principal), best first."""

    addresses: tuple[tuple[int, str], ...]
    security: tuple[tuple[int, str], ...] = ()

    def units(self) -> tuple[list[int], int]:
        """Return the 16-bit units of the array, and the index of the first unit of the security bindings."""
        words: list[int] = []
        for tower, address in self.addresses:
            words += [tower, *_units(address), 0]
        words.append(0)
        if not self.addresses:
            words.append(0)
        offset = len(words)
        for service, principal in self.security:
            words += [service, 0xFFFF, *_units(principal), 0]
        words.append(0)
        if not self.security:
            words.append(0)
        return words, offset

    def pack(self) -> bytes:
        """Encode the packet version, 2.2.19.1."""
        return _packed(self)

    def to_wire(self) -> DUALSTRINGARRAY:
        """Encode the IDL version, 2.2.19.2."""
        words, offset = self.units()
        return DUALSTRINGARRAY(len(words), offset, words)

    @classmethod
    def parse(cls, words: list[int], offset: int) -> Bindings:
        """Decode the units of an array. Raises BadStubData."""
        if offset > len(words):
            raise BadStubData(f"wSecurityOffset {offset} is behind the {len(words)} units of the string bindings")
        addresses, at = [], 0
        while at < offset and words[at]:
            address, end = _text(words, at + 1, offset)
            addresses.append((words[at], address))
            at = end
        security, at = [], offset
        while at < len(words) and words[at]:
            principal, end = _text(words, at + 2, len(words))
            security.append((words[at], principal))
            at = end
        return cls(tuple(addresses), tuple(security))

    @classmethod
    def from_wire(cls, wire: DUALSTRINGARRAY) -> Bindings:
        """Decode the IDL version. Raises BadStubData."""
        return cls.parse(wire.aStringArray, wire.wSecurityOffset)

    @classmethod
    def unpack(cls, data: bytes, at: int = 0) -> tuple[Bindings, int]:
        """Decode the packet version at an offset; also return its end offset. Raises BadStubData."""
        if len(data) - at < 4:
            raise BadStubData("a DUALSTRINGARRAY is truncated")
        count, offset = struct.unpack_from("<HH", data, at)
        end = at + 4 + 2 * count
        if end > len(data):
            raise BadStubData(f"a DUALSTRINGARRAY of {count} units is truncated")
        units = data[at + 4 : end]
        return (_parsed if len(units) <= _REMEMBERED_SIZE else _parsed.__wrapped__)(units, offset), end


@lru_cache(_REMEMBERED)
def _parsed(units: bytes, offset: int) -> Bindings:
    """Decode packed units (cached). Raises BadStubData."""
    return Bindings.parse(list(struct.unpack(f"<{len(units) // 2}H", units)), offset)


@lru_cache(_REMEMBERED)
def _packed(bindings: Bindings) -> bytes:
    words, offset = bindings.units()
    return struct.pack(f"<HH{len(words)}H", len(words), offset, *words)


def _units(text: str) -> tuple[int, ...]:
    raw = text.encode("utf-16-le", "surrogatepass")
    return struct.unpack(f"<{len(raw) // 2}H", raw)


def _text(words: list[int], start: int, end: int) -> tuple[str, int]:
    """Return a zero-terminated text, and the index after it."""
    at = start
    while at < end and words[at]:
        at += 1
    raw = struct.pack(f"<{max(at - start, 0)}H", *words[start:at])
    return raw.decode("utf-16-le", "replace"), at + 1
