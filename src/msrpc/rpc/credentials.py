"""How a client authenticates: what the two clients share."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msrpc.errors import LocalProtocolError
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
    """A user with a password. `domain` may be empty for a server that stands alone."""

    user: str
    password: str = field(repr=False)
    domain: str = ""


def _nothing() -> None:
    """Most contexts have nothing to prepare."""


class SecurityChoice(NamedTuple):
    """What a bind is authenticated with; without a context it is not. `prepare` comes first and may wait for others;
    it raises AuthenticationError."""

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
    """A fresh security context for one bind; the level defaults to PKT_INTEGRITY with credentials, else NONE. A ticket
    has no level: it is for a Unix socket, on which nobody else listens. Raises KerberosUnavailable."""
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
    """The system's clock as FILETIME ([MS-DTYP] 2.3.3): 100 ns since 1601, UTC."""
    return time.time_ns() // 100 + EPOCH_AS_FILETIME
