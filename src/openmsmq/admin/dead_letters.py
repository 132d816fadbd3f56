"""Dead letters grouped by reason and destination, with possible actions for each reason."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from openmsmq.admin.selection import Chosen
from openmsmq.model.reasons import DeadLetterReason, reason_of


class DeadLetterGroup(NamedTuple):
    """Dead letters with the same reason and destination; `first` and `last` are send times."""

    reason: DeadLetterReason
    destination: str
    messages: int
    bytes: int
    first: int
    last: int


def groups(letters: Iterable[Chosen]) -> list[DeadLetterGroup]:
    """Return the groups of dead letters, the largest first."""
    found: dict[tuple[int, str], DeadLetterGroup] = {}
    for letter in letters:
        key = letter.message_class, letter.destination.casefold()
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
