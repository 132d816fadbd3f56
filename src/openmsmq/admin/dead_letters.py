"""Dead letters by reason and destination, with what an operator can do about each kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from openmsmq.admin.selection import Chosen
from openmsmq.model.reasons import DeadLetterReason, reason_of


class DeadLetterGroup(NamedTuple):
    """Dead letters of one reason that were meant for one queue; `first` and `last` are when they were sent."""

    reason: DeadLetterReason
    destination: str
    messages: int
    bytes: int
    first: int
    last: int


def groups(letters: Iterable[Chosen]) -> list[DeadLetterGroup]:
    """The largest first."""
    found: dict[tuple[int, str], DeadLetterGroup] = {}
    for letter in letters:
        key = letter.message_class, letter.destination
        known = found.get(key)
        if known is None:
            found[key] = DeadLetterGroup(
                reason_of(letter.message_class), letter.destination, 1, letter.size, letter.sent, letter.sent
            )
        else:
            found[key] = known._replace(
                messages=known.messages + 1, bytes=known.bytes + letter.size,
                first=min(known.first, letter.sent), last=max(known.last, letter.sent),
            )  # fmt: skip
    return sorted(found.values(), key=lambda group: (-group.messages, group.reason.code, group.destination))
