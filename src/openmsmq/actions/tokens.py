"""Tokens for scripts: users see and revoke their own, administrators all."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from openmsmq.actions.errors import ActionRefused
from openmsmq.actions.fields import ROLE_WORDS, CommandText, EpochSeconds, RoleWord, doc
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import ActionCommand, Empty, Input, LineView, Output, Rows, action
from openmsmq.admin.tokens import (
    DAYS,
    LONGEST_DAYS,
    LONGEST_NAME,
    TOKENS_FILE,
    ApiToken,
    TokensFile,
    TokensFileError,
    read_uses,
)
from openmsmq.model.errors import AccessDenied
from openmsmq.model.roles import Role, role_of
from openmsmq.model.text import time_text

_REFUSES: Final = {TokensFileError: 409}
_CREATE: Final = """Make a token and print it, which can't be done later: the file has its hash.

It ends with its days, with `revoke`, and with the user; a new password does not end it. With --url a user makes their
own, with their password, because a token cannot create tokens.
"""


class KnownToken(Output, frozen=True):
    """A token, without its secret."""

    id: Annotated[str, doc("Identifier of the token.", "5f0c21ab")]
    name: Annotated[str, doc("What the token is for.", "nightly backup")]
    user: Annotated[str, doc("User whose rights the token has.", "alice")]
    role: Annotated[RoleWord, doc("Highest role of the token.")]
    created: Annotated[EpochSeconds, doc("When it was created, in seconds since 1970.")]
    expires: Annotated[EpochSeconds, doc("When it expires, in seconds since 1970.")]
    used: Annotated[
        EpochSeconds | None,
        doc("Time of last use in seconds since 1970, accurate to a minute; null for never."),
    ]


class TokenList(Output, frozen=True):
    """Tokens, by user and name."""

    tokens: Annotated[list[KnownToken], doc("Tokens of the user (for administrators, of all users).")]
    command: CommandText


class NewToken(Input, frozen=True):
    """A token to create."""

    name: Annotated[
        str,
        Meta(
            min_length=1, max_length=LONGEST_NAME, examples=["nightly backup"],
            description="What the token is for; no two tokens of a user share it.",
        ),
    ]  # fmt: skip
    role: Annotated[RoleWord, doc("Highest role of the token; at most that of the user who creates it.")] = "monitor"
    days: Annotated[int, Meta(ge=1, le=LONGEST_DAYS, description="Days until it expires.", examples=[30])] = DAYS


class CreatedToken(Output, frozen=True):
    """A new token with its secret."""

    secret: Annotated[str, doc("Shown only once; scripts send `Authorization: Bearer SECRET`.", "omq_…")]
    token: Annotated[KnownToken, doc("The token.")]
    command: CommandText


class TokenRevocation(Input, frozen=True):
    """A token to revoke."""

    token: Annotated[str, doc("Identifier of the token.", "5f0c21ab")]


class RevokedToken(Output, frozen=True):
    """A revoked token."""

    token: Annotated[KnownToken, doc("The token.")]
    command: CommandText


def _cells(each: KnownToken) -> list[str]:
    used = "never" if each.used is None else time_text(each.used)
    return [each.id, each.name, each.user, each.role, time_text(each.expires), used]


@action(
    "token.list", http="GET /tokens", role=Role.MONITOR, refuses=_REFUSES,
    commands=(
        ActionCommand(
            "token list",
            show=Rows(lambda found: found.tokens, ("token", "name", "user", "role", "ends", "used"), _cells),
        ),
    ),
)  # fmt: skip
def list_tokens(site: ActionSite, given: Empty) -> TokenList:
    """Show tokens: identifier, name, user, role, expiry, and time of last use with an accuracy of one minute."""
    caller, uses = site.caller, read_uses(site.data_dir)
    found = [_known(token, uses) for token in _file(site).list() if caller.administers or token.sid == caller.sid]
    return TokenList(found, site.command)


@action(
    "token.create", http="POST /tokens", status=201, effect="changes", role=Role.MONITOR,
    audit=("token.create",),
    refuses=_REFUSES,
    commands=(
        ActionCommand(
            "token create", {"name": "NAME", "role": "--role", "days": "--days"},
            LineView(
                lambda made: made.secret,
                lambda made: {"secret": made.secret, "id": made.token.id, "expires": made.token.expires},
            ),
            help=_CREATE, as_user="Whose rights it has; with --url, whose password is asked for.",
        ),
    ),
)  # fmt: skip
def create_token(site: ActionSite, given: NewToken) -> CreatedToken:
    """Create a token for scripts.

    It ends when it expires or is revoked, or when the user is removed; a new password does not end it. Users create
    their own tokens, with their password, because a token cannot create tokens.
    """
    caller, role = site.caller, role_of(given.role)
    if caller.token:
        raise AccessDenied(detail="a token cannot create tokens: log in with a password")
    if role > caller.role:
        raise AccessDenied(detail=f"a token of the role {role.word} exceeds your own role, {caller.role.word}")
    secret, token = _file(site).create(given.name, caller.name, caller.sid, role, given.days)
    return CreatedToken(secret, _known(token, {}), site.command)


@action(
    "token.revoke", http="DELETE /tokens/{token}", effect="destroys", role=Role.MONITOR,
    audit=("token.revoke",),
    refuses=_REFUSES,
    commands=(
        ActionCommand(
            "token revoke", {"token": "TOKEN"},
            LineView(lambda gone: f"revoked {gone.token.name} of {gone.token.user}", err=True),
            help="End a token at once; TOKEN is its identifier, as `token list` shows it.",
        ),
    ),
)  # fmt: skip
def revoke_token(site: ActionSite, given: TokenRevocation) -> RevokedToken:
    """Revoke a token with immediate effect."""
    file, caller = _file(site), site.caller
    found = next((token for token in file.list() if token.id == given.token), None)
    if found is None or not (caller.administers or found.sid == caller.sid):
        raise ActionRefused(404, f"there is no token {given.token[:40]}; `openmsmq token list` shows all")
    return RevokedToken(_known(file.revoke(given.token), read_uses(site.data_dir)), site.command)


def revoke_all(site: ActionSite, sid: str) -> None:
    """Revoke all tokens of a user. Raises TokensFileError."""
    if (site.directory / TOKENS_FILE).exists():
        file = _file(site)
        for token in file.list():
            if token.sid == sid:
                file.revoke(token.id)


def _file(site: ActionSite) -> TokensFile:
    def on_change(name: str, token: ApiToken) -> None:
        after: dict[str, Any] = {
            "user": token.user, "token": token.id, "role": token.role.word, "expires": token.expires,
        }  # fmt: skip
        site.record(name, "token", token.name, after=after)

    return TokensFile(site.data_dir, on_change=on_change)


def _known(token: ApiToken, uses: dict[str, int]) -> KnownToken:
    return KnownToken(
        token.id, token.name, token.user, ROLE_WORDS[token.role], token.created, token.expires, uses.get(token.id)
    )


ACTIONS: Final = (list_tokens, create_token, revoke_token)
