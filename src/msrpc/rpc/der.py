"""The subset of DER (X.690) that SPNEGO tokens need: definite lengths, low tags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msrpc.errors import AuthenticationError

OID: Final = 0x06
OCTET_STRING: Final = 0x04
ENUMERATED: Final = 0x0A
SEQUENCE: Final = 0x30


def wrap(tag: int, *contents: bytes) -> bytes:
    """Encode an element."""
    content = b"".join(contents)
    length = len(content)
    if length < 0x80:
        return bytes((tag, length)) + content
    size = (length.bit_length() + 7) // 8
    return bytes((tag, 0x80 | size)) + length.to_bytes(size, "big") + content


def unwrap(data: bytes, tag: int) -> bytes:
    """Return the content of `data`, which must be exactly one element. Raises `AuthenticationError`."""
    found, content, rest = _read(data)
    if found != tag or rest:
        raise AuthenticationError(f"DER element {found:#x} instead of {tag:#x}")
    return content


def elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Return tag and content of consecutive elements. Raises `AuthenticationError`."""
    while data:
        tag, content, data = _read(data)
        yield tag, content


def _read(data: bytes) -> tuple[int, bytes, bytes]:
    if len(data) < 2:
        raise AuthenticationError("DER element is truncated")
    tag, length, at = data[0], data[1], 2
    if length & 0x80:
        size = length & 0x7F
        # Two octets of length are more than a PDU can hold.
        if not 1 <= size <= 4 or len(data) < 2 + size:
            raise AuthenticationError("DER length is malformed")
        at += size
        length = int.from_bytes(data[2:at], "big")
    if length > len(data) - at:
        raise AuthenticationError("DER element exceeds its parent")
    return tag, data[at : at + length], data[at + length :]
