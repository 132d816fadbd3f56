"""Compare two queues message by message: messages in only one of them, and in both.

A message that is moved between queue managers keeps the properties set by its sender and the send time, but not always
its identifier. Messages are therefore compared by content.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from openmsmq.model.message import Message

MOST_NAMED: Final = 100  # messages listed per side
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
    """Comparison of two queues: the number of messages in each and in both, and at most `MOST_NAMED` messages that are
    in only one. `in_order`: the messages in both have the same order."""

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
    """Compare two queues. Memory use: a 16-byte digest and a position per message."""
    places: defaultdict[bytes, list[int]] = defaultdict(list)
    shown: dict[int, OneSided] = {}
    count_left = 0
    for message in left:
        places[_digest(message)].append(count_left)
        shown[count_left] = _shown(message)
        count_left += 1
    for standing in places.values():
        standing.reverse()  # so that pop() returns the first position
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
