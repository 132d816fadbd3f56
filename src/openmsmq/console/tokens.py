"""Tokens for scripts: who has which, a new one, and its end. Users see their own, administrators all."""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote
from typing import Annotated, Final, TypeVar

import msgspec

from openmsmq.admin.tokens import DAYS, LONGEST_DAYS, LONGEST_NAME, ApiToken, TokensFile, TokensFileError, read_uses
from openmsmq.console.problems import Problem
from openmsmq.console.recording import record
from openmsmq.console.table import ROLE_WORDS, HttpOperation, Input, Output, RoleWord, WebRequest
from openmsmq.model.errors import AccessDenied
from openmsmq.model.roles import Role, role_of

T = TypeVar("T")


class KnownToken(Output, frozen=True):
    """Times in seconds since 1970; `used` is when it was used last, to a minute, null for never."""

    id: str
    name: str
    user: str
    role: RoleWord
    created: int
    expires: int
    used: int | None


class TokenList(Output, frozen=True):
    """Of the user, or of all users for an administrator."""

    tokens: list[KnownToken]
    command: str


class NewToken(Input, frozen=True):
    """`role` bounds what the token may do; it can't be more than that of the session. `days` that it holds."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME)]
    role: RoleWord = "monitor"
    days: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_DAYS)] = DAYS


class CreatedToken(Output, frozen=True):
    """`secret` is shown once: `Authorization: Bearer SECRET`."""

    secret: str
    token: KnownToken
    command: str


class RevokedToken(Output, frozen=True):
    token: KnownToken
    command: str


def list_tokens(asked: WebRequest) -> TokenList:
    caller, uses = asked.caller, read_uses(asked.services.settings.directory)
    found = [
        _known(token, uses.get(token.id))
        for token in _asked(_file(asked).list)
        if caller.administers or token.sid == caller.sid
    ]
    return TokenList(found, "openmsmq token list")


def create_token(asked: WebRequest) -> CreatedToken:
    caller, body = asked.caller, asked.body
    role = role_of(body.role)
    if caller.token:
        raise AccessDenied(detail="a token makes no tokens: log in with a password")
    if role > caller.role:
        raise AccessDenied(detail=f"a token of the role {role.word} is more than your own role, {caller.role.word}")
    secret, token = _asked(lambda: _file(asked).create(body.name, caller.name, caller.sid, role, body.days))
    command = (
        f"openmsmq token create {quote(body.name)} --user {quote(caller.name)} --role {role.word} --days {body.days}"
    )
    return CreatedToken(secret, _known(token, None), command)


def revoke_token(asked: WebRequest) -> RevokedToken:
    file, identifier, caller = _file(asked), asked.path["token"], asked.caller
    found = next((token for token in _asked(file.list) if token.id == identifier), None)
    if found is None or not (caller.administers or found.sid == caller.sid):
        raise Problem(404, f"there is no token {identifier[:40]}")
    used = read_uses(asked.services.settings.directory).get(identifier)
    return RevokedToken(_known(_asked(lambda: file.revoke(identifier)), used), f"openmsmq token revoke {identifier}")


def _file(asked: WebRequest) -> TokensFile:
    """Changes are recorded."""

    def on_change(action: str, token: ApiToken) -> None:
        after = {"user": token.user, "token": token.id, "role": token.role.word, "expires": token.expires}
        record(asked, action, "token", token.name, after=after)

    return TokensFile(asked.services.settings.directory, on_change=on_change)


def _asked(work: Callable[[], T]) -> T:
    """Raises Problem for what can't be done with the file."""
    try:
        return work()
    except TokensFileError as error:
        raise Problem(409, str(error)) from None


def _known(token: ApiToken, used: int | None) -> KnownToken:
    return KnownToken(token.id, token.name, token.user, ROLE_WORDS[token.role], token.created, token.expires, used)


OPERATIONS: Final = (
    HttpOperation("GET", "/tokens", list_tokens, "Tokens for scripts", TokenList, statuses=(409,), role=Role.MONITOR),
    HttpOperation("POST", "/tokens", create_token, "A token for scripts", CreatedToken, body=NewToken, status=201,
              statuses=(409, 507), role=Role.MONITOR),
    HttpOperation("DELETE", "/tokens/{token}", revoke_token, "End a token", RevokedToken, statuses=(404, 409, 507),
              role=Role.MONITOR),
)  # fmt: skip
