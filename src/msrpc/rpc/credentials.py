"""How a client authenticates: what the two clients share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msrpc.errors import BindError, LocalProtocolError, LoginRefused
from msrpc.rpc.bind_pdus import RejectReason
from msrpc.rpc.client_connection import ClientConnection
from msrpc.rpc.faults import RPC_S_ACCESS_DENIED
from msrpc.rpc.kerberos import KERBEROS_OIDS, KerberosCredentials, KerberosInitiator
from msrpc.rpc.ntlm import NtlmInitiator
from msrpc.rpc.pdu import AuthLevel, AuthType
from msrpc.rpc.security import SecurityContext
from msrpc.rpc.spnego import SpnegoInitiator
from msrpc.rpc.tickets import Ticket, TicketInitiator

# 1970 as FILETIME.
EPOCH_AS_FILETIME: Final = 116_444_736_000_000_000


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user with a password. `domain` may be empty for a server that is not a member of a domain."""

    user: str
    password: str = field(repr=False)
    domain: str = ""


# Statuses of a bind_nak or of a fault by which a server refuses a login, with what to check ([MS-RPCE] 2.2.2.5 and
# 3.3.1.5.2.1).
_REFUSALS: Final = {
    RPC_S_ACCESS_DENIED: "check the user name, the password and that the account is enabled",
    RejectReason.INVALID_CHECKSUM: "check the user name, the password and that the account is enabled",
    RejectReason.AUTHENTICATION_TYPE_NOT_RECOGNIZED: "the server does not accept this kind of login",
    RejectReason.TEMPORARY_CONGESTION: "too many logins from this address have failed, or the server is busy; wait a "
    "minute, then check the user name and the password",
}


@dataclass(frozen=True, slots=True)
class Login:
    """A login of one connection: `server` is its address, `user` the caller, empty for one without a name."""

    server: str
    user: str
    level: AuthLevel

    def is_refused(self, core: ClientConnection, status: int) -> bool:
        """Return whether a fault means that the login failed, rather than that a call was refused."""
        return bool(self.user) and core.login_open and status == RPC_S_ACCESS_DENIED

    def bind_refused(self, status: int, interface: object) -> BindError | LoginRefused:
        """Return the error for a refused bind; `status` is its reason or status."""
        if self.user and status in _REFUSALS:
            return self.refused(status)
        return BindError(f"{self.server}: the bind of {interface} was refused with {status:#x}", status)

    def refused(self, status: int = RPC_S_ACCESS_DENIED) -> LoginRefused:
        """Return the error for a refused login."""
        text = f"{self.server} refused the login of user {self.user}: {_REFUSALS[status]}"
        if status == RPC_S_ACCESS_DENIED and self.level < AuthLevel.PKT_PRIVACY:
            text += f"; or the server demands a higher level than {self.level.name}"
        return LoginRefused(text, self.user)


def login_of(server: str, credentials: Credentials | KerberosCredentials | Ticket | None, level: AuthLevel) -> Login:
    """Return the login of a connection with these credentials."""
    match credentials:
        case None:
            user = ""
        case Credentials(name, _, domain):
            user = f"{domain}\\{name}" if domain else name
        case KerberosCredentials():
            user = "of the Kerberos ticket"
        case _:
            user = ""  # a ticket of the daemon itself, for a Unix socket
    return Login(server, user, level)


def _nothing() -> None:
    """Do nothing: most contexts need no preparation."""


class SecurityChoice(NamedTuple):
    """Security of a bind; without a context it is not authenticated. `prepare` comes first and may wait for other
    services; it raises AuthenticationError."""

    auth_type: int
    level: AuthLevel
    context: SecurityContext | None
    prepare: Callable[[], None] = _nothing


def choose_security(
    credentials: Credentials | KerberosCredentials | Ticket | None,
    level: AuthLevel | None = None,
    *,
    spnego: bool = False,
) -> SecurityChoice:
    """Create a security context for one bind; the level defaults to PKT_INTEGRITY with credentials, else NONE. A ticket
    has no level: it is for a Unix socket, which no third party can observe. Raises KerberosUnavailable."""
    if isinstance(credentials, Ticket):
        return SecurityChoice(AuthType.TICKET, AuthLevel.CONNECT, TicketInitiator(credentials))
    if level is None:
        level = AuthLevel.PKT_INTEGRITY if credentials else AuthLevel.NONE
    if level <= AuthLevel.NONE:
        return SecurityChoice(AuthType.NONE, AuthLevel.NONE, None)
    if credentials is None:
        raise LocalProtocolError(f"level {level.name} needs credentials")
    if isinstance(credentials, KerberosCredentials):
        ticket = KerberosInitiator(credentials, level)
        if spnego:
            spnego_context = SpnegoInitiator(ticket, KERBEROS_OIDS)
            return SecurityChoice(AuthType.GSS_NEGOTIATE, level, spnego_context, ticket.begin)
        return SecurityChoice(AuthType.GSS_KERBEROS, level, ticket, ticket.begin)
    user = NtlmInitiator(credentials.user, credentials.password, credentials.domain, random=os.urandom, now=filetime)
    if spnego:
        return SecurityChoice(AuthType.GSS_NEGOTIATE, level, SpnegoInitiator(user))
    return SecurityChoice(AuthType.WINNT, level, user)


def filetime() -> int:
    """Return the time of the system clock as FILETIME ([MS-DTYP] 2.3.3): units of 100 ns since 1601 UTC."""
    return time.time_ns() // 100 + EPOCH_AS_FILETIME
