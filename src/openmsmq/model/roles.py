"""Roles at the HTTP server: each bounds what a login may do there, and gives no right that its user has not."""

from __future__ import annotations

from enum import IntEnum


class Role(IntEnum):
    """A role includes those before it. `ADMINISTRATOR` bounds nothing: what the user's rights allow."""

    MONITOR = 1  # figures, names and states; no messages
    OPERATOR = 2  # also messages: read, send, delete, move, return; pause queues, close sessions
    ADMINISTRATOR = 3

    @property
    def word(self) -> str:
        return self.name.lower()


WORDS = tuple(role.word for role in Role)


def role_of(word: str) -> Role:
    """Raises ValueError for a word that is no role."""
    try:
        return Role[word.upper()]
    except KeyError:
        raise ValueError(f"{word!r} is no role; allowed: {', '.join(WORDS)}") from None
