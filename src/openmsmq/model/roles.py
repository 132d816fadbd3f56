"""Roles at the HTTP server: each bounds what a login may do there, and gives no right that its user has not."""

from __future__ import annotations

from enum import IntEnum
from shlex import quote


class Role(IntEnum):
    """A role includes those before it. `ADMINISTRATOR` bounds nothing: what the user's rights allow."""

    MONITOR = 1  # figures, names and states; no messages
    OPERATOR = 2  # also messages: read, send, delete, move, return; pause queues, close sessions
    ADMINISTRATOR = 3

    @property
    def word(self) -> str:
        return self.name.lower()


def missing_role(wanted: Role, name: str, has: Role, token: str = "") -> str:
    """What a caller is told whose role is not enough, with the command that gives the role. `token` is the identifier
    of the token by which the caller has logged in."""
    needed = f"this needs the role {wanted.word}"
    if token:
        command = f"openmsmq token create NAME --role {wanted.word}"
        return f"{needed}; the token {token} has the role {has.word}. Make another: {command}"
    command = f"openmsmq user role {quote(name)} {wanted.word}"
    return f"{needed}; {name} has the role {has.word} here. An administrator gives it: {command}"


def missing_administrator(name: str) -> str:
    """What a caller is told who is no administrator of the queue manager, with the command that makes one."""
    command = f"openmsmq user admin {quote(name)}"
    return f"this is for administrators of the queue manager; {name} is none. An administrator makes one: {command}"


WORDS = tuple(role.word for role in Role)


def role_of(word: str) -> Role:
    """Raises ValueError for a word that is no role."""
    try:
        return Role[word.upper()]
    except KeyError:
        raise ValueError(f"{word!r} is no role; allowed: {', '.join(WORDS)}") from None
