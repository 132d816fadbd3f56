"""Figures of a daemon over time: what a point has, and fewer points of many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

#: Ten minutes by the second, or a day by the minute.
Range = Literal["10m", "24h"]


class Rates(NamedTuple):
    """Of all application queues: messages that are there at a time in seconds since 1970, and messages a second up to
    that time that came, that left, and that nobody received (which are among those that left)."""

    at: float
    messages: int
    came: float
    left: float
    dead: float


def thinned(found: Sequence[Rates], points: int) -> list[Rates]:
    """At most so many, each the mean of those that it stands for; the last is the newest."""
    step = -(-len(found) // points)
    groups = [found[max(0, end - step) : end] for end in range(len(found), 0, -step)][::-1] if found else []
    return [
        Rates(group[-1].at, group[-1].messages, *(sum(rates[index] for rates in group) / len(group)
                                                  for index in (2, 3, 4)))
        for group in groups
    ]  # fmt: skip


def shown(number: float) -> str:
    """For people: whole numbers with their thousands, small ones with a digit more."""
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:,.1f}"
