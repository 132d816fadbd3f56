"""Two queues, message by message: what is in one only, and what is in both.

A message that went from one queue manager to another keeps what its programs gave it and the time of its sending, but
not always its identifier; so messages are compared by their content.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from openmsmq.model.message import Message

MOST_NAMED: Final = 100  # messages on each side
_COMPARED: Final = (
    "body", "body_type", "label", "priority", "message_class", "application_tag", "correlation_identifier", "extension",
    "sent_time", "response_queue_format_name", "delivery_guarantee",
)  # fmt: skip


class OneSided(NamedTuple):
    """A message that the other queue does not have."""

    id: str
    label: str
    sent: int  # seconds since 1970 UTC
    size: int  # bytes of the body


class Comparison(NamedTuple):
    """Comparison of two queues: numbers of messages, of those in both, and of those in one only, with the names of the
    first few. named. `in_order`: those in both are in the same order."""

    left: int
    right: int
    both: int
    in_order: bool
    left_only: list[OneSided]
    right_only: list[OneSided]

    @property
    def are_equal(self) -> bool:
        return self.both == self.left == self.right and self.in_order


def compare(left: Iterable[Message], right: Iterable[Message]) -> Comparison:
    """Compare two queues. A digest of 16 bytes and a position are kept per message."""
    places: defaultdict[bytes, list[int]] = defaultdict(list)
    shown: dict[int, OneSided] = {}
    count_left = 0
    for message in left:
        places[_digest(message)].append(count_left)
        shown[count_left] = _shown(message)
        count_left += 1
    for standing in places.values():
        standing.reverse()  # the first one is found first
    count_right = both = latest = 0
    in_order = True
    right_only: list[OneSided] = []
    for message in right:
        count_right += 1
        standing = places.get(_digest(message), [])
        if not standing:
            if len(right_only) < MOST_NAMED:
                right_only.append(_shown(message))
            continue
        place = standing.pop()
        both += 1
        in_order = in_order and place >= latest
        latest = place
    left_over = sorted(place for standing in places.values() for place in standing)
    return Comparison(
        count_left, count_right, both, in_order, [shown[place] for place in left_over[:MOST_NAMED]], right_only
    )


def _shown(message: Message) -> OneSided:
    return OneSided(message.id, message.label, message.sent_time, len(message.body))


def _digest(message: Message) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for name in _COMPARED:
        value = getattr(message, name)
        data = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.digest()
