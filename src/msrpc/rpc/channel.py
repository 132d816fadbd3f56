"""Protection of fragments with the security contexts of a connection ([MS-RPCE] 2.2.2.11-12 and 3.3.1.5.2)."""

from __future__ import annotations

import struct
from typing import Final

from msrpc.errors import AuthenticationError, RemoteProtocolError
from msrpc.rpc.pdu import (
    HEADER_SIZE,
    LITTLE_ENDIAN_DREP,
    PFC_FIRST_FRAG,
    PFC_LAST_FRAG,
    SEC_TRAILER_SIZE,
    AuthLevel,
    Header,
    sec_trailer,
)
from msrpc.rpc.security import MessageProtection, Question, SecurityContext

# [MS-RPCE] 2.2.2.11: the trailer of a protected fragment is aligned to this from the beginning of the stub.
SEC_TRAILER_ALIGNMENT: Final = 16
# The verifier that MIDL-style clients put on requests at level CONNECT; servers do not check it.
CONNECT_TOKEN: Final = b"\x01\0\0\0" + bytes(12)


class Channel:
    """A security context of one connection ([MS-RPCE] 3.3.1.5.4)."""

    __slots__ = (
        "_is_sealed", "_is_signed", "_last_leg", "_protection", "auth_type", "context", "context_id", "failed",
        "header_signing", "level",
    )  # fmt: skip

    def __init__(self, auth_type: int, level: int, context_id: int, context: SecurityContext) -> None:
        self.auth_type = auth_type
        self.level = level
        self.context_id = context_id
        self.context = context
        self.failed = False
        self.header_signing = False  # whether the connection has negotiated it
        self._is_signed = level >= AuthLevel.PKT
        self._is_sealed = level == AuthLevel.PKT_PRIVACY
        self._last_leg = b""
        self._protection: MessageProtection | None = None

    @property
    def usable(self) -> bool:
        return not self.failed and (self._protection is not None or self.context.complete)

    @property
    def protection(self) -> MessageProtection:
        """The keys of the context, which is complete."""
        protection = self._protection
        if protection is None:
            protection = self._protection = self.context.protection
        return protection

    @property
    def waits(self) -> bool:
        """Whether a further leg of the authentication is due."""
        return not self.failed and not self.context.complete

    def question(self, token: bytes) -> Question | None:
        """Return a query that must be answered before `step` takes this token."""
        return self.context.question(token)

    def step(self, token: bytes) -> bytes:
        """Process one leg of the authentication as the acceptor. Return the token of the reply."""
        self._last_leg = token
        return self.context.step(token)

    def repeats(self, auth_type: int, level: int, token: bytes) -> bool:
        """Whether this token repeats the leg that completed the context."""
        return self.usable and (auth_type, level, token) == (self.auth_type, self.level, self._last_leg)

    def open(self, header: Header, pdu: bytes, start: int) -> bytes:
        """Check the fragment's protection and return its stub, without padding.

        Raises `AuthenticationError` for a bad signature or a level other than the negotiated one, which indicates a
        downgrade attack.
        """
        end = header.body_end
        auth_type, level, pad = pdu[end], pdu[end + 1], pdu[end + 2]
        if auth_type != self.auth_type or (level != self.level and normal_level(level) != self.level):
            expected = f"{self.auth_type}/{self.level}"
            raise AuthenticationError(f"auth type {auth_type} level {level} on a context of {expected}")
        if pad > end - start:
            raise RemoteProtocolError(f"authentication padding {pad} exceeds the stub")
        token_at = end + SEC_TRAILER_SIZE
        if self._is_sealed:
            prefix, suffix = (pdu[:start], pdu[end:token_at]) if self.covers_headers else (b"", b"")
            stub = self.protection.unwrap(prefix, pdu[start:end], suffix, pdu[token_at:])
            return stub[: len(stub) - pad] if pad else stub
        if self._is_signed:
            self.protection.verify(pdu[:token_at] if self.covers_headers else pdu[start:end], pdu[token_at:])
        return pdu[start : end - pad]

    @property
    def covers_headers(self) -> bool:
        """Whether signatures, which the level has, cover header and trailer, too ([MS-RPCE] 3.3.1.5.2.2)."""
        return self.header_signing or self.protection.always_signs_headers

    @property
    def token_size(self) -> int:
        """Size in bytes of the authentication token of a fragment."""
        return self.protection.signature_size(self.level) if self._is_signed else len(CONNECT_TOKEN)

    def close(self, packet_type: int, flags: int, call_id: int, head: bytes, stub: bytes) -> bytes:
        """Return a complete protected fragment; `head` is the part between common header and stub."""
        pad = -len(stub) % SEC_TRAILER_ALIGNMENT
        trailer = sec_trailer(self.auth_type, self.level, pad, self.context_id)
        size = self.token_size
        length = HEADER_SIZE + len(head) + len(stub) + pad + SEC_TRAILER_SIZE + size
        prefix = _HEADER.pack(5, 0, packet_type, flags, LITTLE_ENDIAN_DREP, length, size, call_id) + head
        body = stub + bytes(pad) if pad else stub
        if not self._is_signed:
            return prefix + body + trailer + CONNECT_TOKEN
        before, after = (prefix, trailer) if self.covers_headers else (b"", b"")
        if self._is_sealed:
            body, token = self.protection.wrap(before, body, after)
        else:
            token = self.protection.sign(before + body + after)
        return prefix + body + trailer + token


_HEADER: Final = struct.Struct("<BBBB4sHHI")
_ALLOC_HINT: Final = struct.Struct("<I")


def normal_level(level: int) -> int:
    """CALL means PKT for connection-oriented protocols ([MS-RPCE] 2.2.1.1.8)."""
    return AuthLevel.PKT if level == AuthLevel.CALL else level


def fragments(
    packet_type: int, flags: int, call_id: int, head: bytes, stub: bytes, max_fragment: int, channel: Channel | None
) -> list[bytes]:
    """Split `stub` into PDUs of at most `max_fragment` bytes.

    `head` is what follows alloc_hint: context id, opnum (or cancel count) and object UUID; each fragment repeats it.
    """
    room = max_fragment - HEADER_SIZE - 4 - len(head)
    if channel is None:
        # C706 12.6.4.9: all fragments but the last carry a multiple of 8 octets.
        room -= room % 8
    else:
        room -= SEC_TRAILER_SIZE + channel.token_size
        room -= room % SEC_TRAILER_ALIGNMENT
    total = len(stub)
    result = []
    first = PFC_FIRST_FRAG
    for at in range(0, total or 1, room):
        piece = stub[at : at + room]
        pfc = flags | first | (PFC_LAST_FRAG if at + room >= total else 0)
        first = 0
        hinted = _ALLOC_HINT.pack(total - at) + head
        if channel is None:
            length = HEADER_SIZE + len(hinted) + len(piece)
            header = _HEADER.pack(5, 0, packet_type, pfc, LITTLE_ENDIAN_DREP, length, 0, call_id)
            result.append(header + hinted + piece)
        else:
            result.append(channel.close(packet_type, pfc, call_id, hinted, piece))
    return result
