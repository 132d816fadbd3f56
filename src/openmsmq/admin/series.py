"""Figures of a daemon over time: what a point has, and fewer points of many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

#: Ten minutes by the second, or a day by the minute.
Range = Literal["10m", "24h"]


class Rates(NamedTuple):
    """Of all application queues: messages that are there at a time in seconds since 1970, and messages a second up to
    that time that came, that left, and that nobody received (which are among those that left). `sync` and `call` are
    how long a sync of the disk and a call by RPC took on average, in seconds, None where there was none; `free` are
    bytes of the disk of the data directory, None where that is not known."""

    at: float
    messages: int
    came: float
    left: float
    dead: float
    sync: float | None = None
    call: float | None = None
    free: int | None = None


def thinned(found: Sequence[Rates], points: int) -> list[Rates]:
    """At most so many, each the mean of those that it stands for; of messages and bytes the newest, and the last is the
    newest."""
    step = -(-len(found) // points)
    groups = [found[max(0, end - step) : end] for end in range(len(found), 0, -step)][::-1] if found else []
    return [
        group[-1]._replace(
            came=sum(rates.came for rates in group) / len(group),
            left=sum(rates.left for rates in group) / len(group),
            dead=sum(rates.dead for rates in group) / len(group),
            sync=_mean([rates.sync for rates in group]),
            call=_mean([rates.call for rates in group]),
        )
        for group in groups
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def shown(number: float) -> str:
    """For people: whole numbers with their thousands, small ones with a digit more."""
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:,.1f}"
