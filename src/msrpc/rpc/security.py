"""Interface of a security provider to a connection ([MS-RPCE] 2.2.1.1.7).

Providers are `ntlm`, `kerberos`, `spnego` and `tickets`; a `channel.Channel` protects fragments with one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol


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


class MessageProtection(Protocol):
    """Keys of a completed authentication exchange (RFC 2743 in DCE style).

    Every method raises `AuthenticationError` when the provider refuses. Protected messages must be processed in the
    order in which they travel: signatures carry sequence numbers.
    """

    @property
    def always_signs_headers(self) -> bool:
        """Whether signatures cover header and trailer even if that was not negotiated, as with NTLM."""

    def signature_size(self, level: int) -> int:
        """Size in bytes of the signature of `sign` or, at PKT_PRIVACY, of `wrap`."""

    def sign(self, message: bytes) -> bytes:
        """Return the signature (GSS_GetMICEx)."""

    def verify(self, message: bytes, signature: bytes) -> None:
        """Verify the signature (GSS_VerifyMICEx)."""

    def wrap(self, prefix: bytes, body: bytes, suffix: bytes) -> tuple[bytes, bytes]:
        """Return the encrypted body, and the signature of all three parts (GSS_WrapEx)."""

    def unwrap(self, prefix: bytes, body: bytes, suffix: bytes, signature: bytes) -> bytes:
        """Return the decrypted body (GSS_UnwrapEx)."""


class SecurityContext(Protocol):
    """One side of an authentication exchange (RFC 2743 in DCE style). Its methods raise `AuthenticationError` when the
    provider refuses."""

    @property
    def complete(self) -> bool:
        """Whether no further token is expected from the peer. It stays true."""

    @property
    def identity(self) -> Identity | None:
        """The authenticated peer, once complete; None at the initiator."""

    @property
    def protection(self) -> MessageProtection:
        """The keys, once complete. Raises `LocalProtocolError` before."""

    def question(self, token: bytes) -> Question | None:
        """Return a query that must be answered before `step` takes this token; None if there is none. Its only effect
        on the context is that `step` knows the answer."""

    def step(self, token: bytes) -> bytes:
        """Process the token of the peer (empty at the start of the initiator). Return the next token to send, empty for
        none."""


# A blocking query to another server; must not run in an event loop. Must not raise.
Question = Callable[[], None]
# (auth_type, level) -> a fresh acceptor, or None when the type is not offered.
AcceptorFactory = Callable[[int, int], SecurityContext | None]
