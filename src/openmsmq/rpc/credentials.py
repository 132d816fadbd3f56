"""How a client authenticates: what the two clients share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from openmsmq.rpc.errors import LocalProtocolError
from openmsmq.rpc.pdu import AuthLevel, AuthType
from openmsmq.rpc.security import SecurityContext


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user with a password. `domain` may be empty for a server that stands alone."""

    user: str
    password: str = field(repr=False)
    domain: str = ""


class SecurityChoice(NamedTuple):
    """What a bind is authenticated with; without a context it is not."""

    auth_type: int
    level: AuthLevel
    context: SecurityContext | None


def choose_security(
    credentials: Credentials | None, level: AuthLevel | None = None, *, spnego: bool = False
) -> SecurityChoice:
    """A fresh security context for one bind; the level defaults to PKT_INTEGRITY with credentials, else NONE."""
    if level is None:
        level = AuthLevel.PKT_INTEGRITY if credentials else AuthLevel.NONE
    if level <= AuthLevel.NONE:
        return SecurityChoice(AuthType.NONE, AuthLevel.NONE, None)
    if credentials is None:
        raise LocalProtocolError(f"level {level.name} needs credentials")
    raise NotImplementedError
