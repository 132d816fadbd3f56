"""Roles at the HTTP server. A role limits what a login may do there; it grants no rights beyond those of the user."""

from __future__ import annotations

from enum import IntEnum
from shlex import quote


class Role(IntEnum):
    """A role, which includes the roles before it. `ADMINISTRATOR` has no limit other than the user's rights."""

    MONITOR = 1  # figures, names and states; no messages
    OPERATOR = 2  # also messages: read, send, delete, move, return; pause queues, close sessions
    ADMINISTRATOR = 3

    @property
    def word(self) -> str:
        return self.name.lower()


def missing_role(wanted: Role, name: str, has: Role, token: str = "") -> str:
    """Return the refusal for a caller whose role is too low, with the command that grants the role. `token` is the
    identifier of the token used to log in."""
    needed = f"this needs the role {wanted.word}"
    if token:
        command = f"openmsmq token create NAME --role {wanted.word}"
        return f"{needed}; the token {token} has the role {has.word}. Create another one: {command}"
    command = f"openmsmq user role {quote(name)} {wanted.word}"
    return f"{needed}; {name} has the role {has.word} here. An administrator grants it: {command}"


def missing_administrator(name: str) -> str:
    """Return the refusal for a caller who is not an administrator of the queue manager, with the command that makes
    one."""
    command = f"openmsmq user admin {quote(name)}"
    needed = f"this is for administrators of the queue manager, and {name} is not one"
    return f"{needed}. Another administrator grants it: {command}"


WORDS = tuple(role.word for role in Role)


def role_of(word: str) -> Role:
    """Parse a role. Raises ValueError for an unknown word."""
    try:
        return Role[word.upper()]
    except KeyError:
        raise ValueError(f"unknown role {word!r}; allowed: {', '.join(WORDS)}") from None
