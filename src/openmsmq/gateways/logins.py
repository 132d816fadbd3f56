"""Logins by HTTP: the daemon checks passwords against its users file; a ticket identifies the user afterwards."""

from __future__ import annotations

import hmac
import json
import secrets
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from msrpc.rpc.ntlm import nt_hash
from openmsmq.accounts.login_links import redeem_link
from openmsmq.accounts.users import UsersFile
from openmsmq.admin.tokens import ApiToken, TokensFile, TokensFileError
from openmsmq.model.errors import AccessDenied, HResult, MsmqError
from openmsmq.model.roles import Role

LONGEST: Final = 12 * 3600  # minimum lifetime of a ticket in seconds; the maximum is one hour more
_HOUR: Final = 3600


class Known(NamedTuple):
    """Identity of a ticket, its limits, and the identifier of the token used to log in; empty for a password."""

    sid: str
    name: str
    role: Role = Role.ADMINISTRATOR
    token: str = ""


class Tickets:
    """Issues and verifies tickets. A ticket ends when it expires, when the daemon stops, and when the user's password
    changes or the token used to log in ends.

    A ticket is `[SID, name, end, token, signature]` as JSON. The hash of the password or token is also signed.
    """

    def __init__(self, users: UsersFile, tokens: TokensFile, clock: Callable[[], float] = time.monotonic) -> None:
        self._users: Final = users
        self._tokens: Final = tokens
        self._clock: Final = clock
        self._secret: Final = secrets.token_bytes(32)

    def login(self, name: str, password: str) -> str | None:
        """Return the ticket of a user, which is the same within an hour; None for an unknown user or a wrong
        password."""
        found = self._users.lookup("", name)
        given = nt_hash(password)
        if found is None or not password or not hmac.compare_digest(found[0], given):
            return None
        return self._ticket(found[1], name, "", found[0])

    def login_by_link(self, secret: str) -> str | None:
        """Return the ticket for a one-time link; None if the link is not valid."""
        user = redeem_link(self._tokens.data_dir, secret)
        found = self._users.lookup("", user) if user is not None else None
        return None if user is None or found is None else self._ticket(found[1], user, "", found[0])

    def login_proven(self, name: str) -> str | None:
        """Return the ticket of a user authenticated by an OpenID provider; None for an unknown user."""
        found = self._users.lookup("", name)
        return None if found is None else self._ticket(found[1], name, "", found[0])

    def login_by_token(self, secret: str) -> str | None:
        """Return the ticket for a token; None if the token is not valid. Raises MsmqError if tokens cannot be read."""
        token = _readable(lambda: self._tokens.find(secret))
        found = self._users.lookup("", token.user) if token is not None else None
        if token is None or found is None or found[1] != token.sid:
            return None
        return self._ticket(token.sid, token.user, token.id, token.hash.encode())

    def check(self, ticket: str) -> Known:
        """Return the identity of a ticket. Raises AccessDenied if it was not issued here or is no longer valid."""
        role = Role.ADMINISTRATOR
        try:
            sid, name, end, identifier, signature = json.loads(ticket)
            found = self._users.lookup("", name)
            basis = found[0] if found is not None else b""
            if identifier:
                token = _readable(lambda: self._tokens.get(identifier))
                role, basis = (token.role, token.hash.encode()) if token is not None else (role, b"")
            genuine = (
                basis != b""
                and found is not None
                and found[1] == sid
                and hmac.compare_digest(signature, self._signature(sid, name, end, identifier, basis))
            )
        except (ValueError, TypeError, AttributeError, RecursionError):
            genuine = False
        if not genuine or self._clock() >= end:
            raise AccessDenied(detail="this login is no longer valid: log in again")
        return Known(sid, name, min(role, self._users.role_of(name)), identifier)

    def _ticket(self, sid: str, name: str, identifier: str, basis: bytes) -> str:
        end = (int(self._clock()) // _HOUR + 1) * _HOUR + LONGEST
        return json.dumps([sid, name, end, identifier, self._signature(sid, name, end, identifier, basis)])

    def _signature(self, sid: str, name: str, end: int, identifier: str, basis: bytes) -> str:
        return hmac.digest(self._secret, json.dumps([sid, name, end, identifier]).encode() + basis, "sha256").hex()


def _readable(work: Callable[[], ApiToken | None]) -> ApiToken | None:
    try:
        return work()
    except TokensFileError as error:
        raise MsmqError(HResult.MQ_ERROR, str(error)) from None
