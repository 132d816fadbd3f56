"""Authentication by a ticket: a child process acts for a user that the daemon has authenticated.

This mechanism does not exist in [MS-RPCE]. It is offered only on the daemon's own Unix socket. A ticket is sent
unchanged, in one leg, and gives no protection of messages, which a Unix socket does not need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from msrpc.errors import AuthenticationError
from msrpc.rpc.pdu import AuthType
from msrpc.rpc.security import AcceptorFactory, Identity, MessageProtection, Question, SecurityContext

MAXIMUM_TICKET: Final = 4096  # bytes, with the peer; a name of 256 characters takes up to 3072 of them


@dataclass(frozen=True, slots=True)
class Ticket:
    """`text` is the daemon's ticket for a login; `peer` is the client of the current call, for the audit log."""

    text: str = field(repr=False)
    peer: str

    def pack(self) -> bytes:
        return f"{self.peer}\n{self.text}".encode()


class _OneLeg:
    """Base of both sides: no signatures, no keys."""

    complete = False
    identity: Identity | None = None

    def question(self, token: bytes) -> Question | None:
        return None

    @property
    def protection(self) -> MessageProtection:
        raise AuthenticationError("ticket authentication supports neither signatures nor encryption")


class TicketInitiator(_OneLeg):
    """The child process."""

    def __init__(self, ticket: Ticket) -> None:
        self._ticket = ticket

    def step(self, token: bytes) -> bytes:
        self.complete = True
        return self._ticket.pack()


class TicketAcceptor(_OneLeg):
    """The daemon."""

    def __init__(self, check: Callable[[str, str], Identity]) -> None:
        """`check` gets the text of a ticket and a peer, and raises AuthenticationError."""
        self._check = check

    def step(self, token: bytes) -> bytes:
        if len(token) > MAXIMUM_TICKET:
            raise AuthenticationError(f"a ticket of {len(token)} bytes, allowed: {MAXIMUM_TICKET}")
        try:
            peer, separator, text = token.decode().partition("\n")
        except UnicodeDecodeError:
            peer, separator, text = "", "", ""
        if not separator:
            raise AuthenticationError("not a valid ticket")
        self.identity = self._check(text, peer)
        self.complete = True
        return b""


def ticket_acceptor(check: Callable[[str, str], Identity]) -> AcceptorFactory:
    """Return an acceptor that takes tickets only."""

    def accept(auth_type: int, level: int) -> SecurityContext | None:
        return TicketAcceptor(check) if auth_type == AuthType.TICKET else None

    return accept
