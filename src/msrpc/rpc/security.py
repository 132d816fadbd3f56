"""Interface of a security provider to a connection, and protection of a fragment with it.

[MS-RPCE] 2.2.2.11-12 and 3.3.1.5.2. A provider (`ntlm`, `kerberos`, `spnego`) is a `SecurityContext`; a `Channel` is a
context of a connection, with its auth context id and level.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

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

# [MS-RPCE] 2.2.2.11: the trailer of a protected fragment is aligned to this from the beginning of the stub.
SEC_TRAILER_ALIGNMENT: Final = 16
# The verifier that MIDL-style clients put on requests at level CONNECT; servers do not check it.
CONNECT_TOKEN: Final = b"\x01\0\0\0" + bytes(12)


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity authenticated by a security provider. `sid` is None for ANONYMOUS LOGON.

    groups: SIDs of the groups that the provider knows the user to be in; they may change between logins.
    login: the mechanism: `ntlm`, `winbind`, `kerberos`, or `http`.
    origin: the entry point and the address (`http 10.0.0.7`) of a caller on whose behalf another process calls; empty
        for all others.
    """

    user: str
    domain: str
    sid: str | None
    groups: frozenset[str] = field(default=frozenset(), compare=False)
    login: str = field(default="", compare=False)
    origin: str = ""

    @property
    def anonymous(self) -> bool:
        return self.sid is None


ANONYMOUS: Final = Identity("", "", None)


class LoginObserver(Protocol):
    """Observer of successful and failed logins to a server. `peer` is the host. An attempt refused by the throttle of
    `PeerFailures` does not count."""

    def logged_in(self, identity: Identity, peer: str) -> None:
        """Record a login of a user who is not anonymous. Must not raise."""

    def refused(self, user: str, peer: str) -> None:
        """Record a failed login. `user` is the name given by the client; empty if it gave none. Must not raise."""


class NullObserver:
    """Null observer: ignores logins."""

    def logged_in(self, identity: Identity, peer: str) -> None:
        return None

    def refused(self, user: str, peer: str) -> None:
        return None


class SecurityContext(Protocol):
    """One side of an authentication exchange, and the resulting keys (RFC 2743 in DCE style).

    Every method raises `AuthenticationError` when the provider refuses. Protected messages must be processed in the
    order in which they travel: signatures carry sequence numbers.
    """

    @property
    def complete(self) -> bool:
        """Whether no further token is expected from the peer."""

    @property
    def identity(self) -> Identity | None:
        """The authenticated peer, once complete; None at the initiator."""

    @property
    def always_signs_headers(self) -> bool:
        """Whether signatures cover header and trailer even if that was not negotiated, as with NTLM."""

    def signature_size(self, level: int) -> int:
        """Size in bytes of the signature of `sign` or, at PKT_PRIVACY, of `wrap`."""

    def question(self, token: bytes) -> Question | None:
        """Return a query that must be answered before `step` takes this token; None if there is none. Its only effect
        on the context is that `step` knows the answer."""

    def step(self, token: bytes) -> bytes:
        """Process the token of the peer (empty at the start of the initiator). Return the next token to send, empty for
        none."""

    def sign(self, message: bytes) -> bytes:
        """Return the signature (GSS_GetMICEx)."""

    def verify(self, message: bytes, signature: bytes) -> None:
        """Verify the signature (GSS_VerifyMICEx)."""

    def wrap(self, prefix: bytes, body: bytes, suffix: bytes) -> tuple[bytes, bytes]:
        """Return the encrypted body, and the signature of all three parts (GSS_WrapEx)."""

    def unwrap(self, prefix: bytes, body: bytes, suffix: bytes, signature: bytes) -> bytes:
        """Return the decrypted body (GSS_UnwrapEx)."""


# A blocking query to another server; must not run in an event loop. Must not raise.
Question = Callable[[], None]
# (auth_type, level) -> a fresh acceptor, or None when the type is not offered.
AcceptorFactory = Callable[[int, int], SecurityContext | None]


class Channel:
    """A security context of one connection ([MS-RPCE] 3.3.1.5.4)."""

    __slots__ = ("_last_leg", "auth_type", "context", "context_id", "failed", "header_signing", "level")

    def __init__(self, auth_type: int, level: int, context_id: int, context: SecurityContext) -> None:
        self.auth_type = auth_type
        self.level = level
        self.context_id = context_id
        self.context = context
        self.failed = False
        self.header_signing = False  # whether the connection has negotiated it
        self._last_leg = b""

    @property
    def usable(self) -> bool:
        return self.context.complete and not self.failed

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
        if auth_type != self.auth_type or normal_level(level) != self.level:
            expected = f"{self.auth_type}/{self.level}"
            raise AuthenticationError(f"auth type {auth_type} level {level} on a context of {expected}")
        if pad > end - start:
            raise RemoteProtocolError(f"authentication padding {pad} exceeds the stub")
        token_at = end + SEC_TRAILER_SIZE
        if self.level == AuthLevel.PKT_PRIVACY:
            around = (pdu[:start], pdu[end:token_at]) if self._covers_headers else (b"", b"")
            stub = self.context.unwrap(around[0], pdu[start:end], around[1], pdu[token_at:])
            return stub[: len(stub) - pad]
        if self.level >= AuthLevel.PKT:
            self.context.verify(pdu[:token_at] if self._covers_headers else pdu[start:end], pdu[token_at:])
        return pdu[start : end - pad]

    @property
    def _covers_headers(self) -> bool:
        """Whether signatures cover header and trailer, too ([MS-RPCE] 3.3.1.5.2.2)."""
        return self.header_signing or self.context.always_signs_headers

    def close(self, packet_type: int, flags: int, call_id: int, head: bytes, stub: bytes) -> bytes:
        """Return a complete protected fragment; `head` is the part between common header and stub."""
        pad = -len(stub) % SEC_TRAILER_ALIGNMENT
        trailer = sec_trailer(self.auth_type, self.level, pad, self.context_id)
        protected = self.level >= AuthLevel.PKT
        size = self.context.signature_size(self.level) if protected else len(CONNECT_TOKEN)
        length = HEADER_SIZE + len(head) + len(stub) + pad + SEC_TRAILER_SIZE + size
        prefix = _HEADER.pack(5, 0, packet_type, flags, LITTLE_ENDIAN_DREP, length, size, call_id) + head
        body = stub + bytes(pad)
        around = (prefix, trailer) if self._covers_headers else (b"", b"")
        if self.level == AuthLevel.PKT_PRIVACY:
            body, token = self.context.wrap(around[0], body, around[1])
        elif protected:
            token = self.context.sign(around[0] + body + around[1])
        else:
            token = CONNECT_TOKEN
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
        size = channel.context.signature_size(channel.level) if channel.level >= AuthLevel.PKT else len(CONNECT_TOKEN)
        room -= SEC_TRAILER_SIZE + size
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
