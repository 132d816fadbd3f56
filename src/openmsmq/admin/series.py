"""Figures of a daemon over time: what a point has, and fewer points of many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

#: Ten minutes by the second, or a day by the minute.
Range = Literal["10m", "24h"]


class Rates(msgspec.Struct, frozen=True):
    """Figures of all application queues at a time.

    Times that something took are means, and null where there was nothing.
    """

    at: Annotated[float, Meta(ge=0, lt=253_402_300_800, description="The time, in seconds since 1970.")]
    messages: Annotated[int, Meta(description="Messages in queues.")]
    came: Annotated[float, Meta(description="Messages a second that came.")]
    left: Annotated[float, Meta(description="Messages a second that left.")]
    dead: Annotated[float, Meta(description="Messages per second that were removed without being received.")]
    sync: Annotated[float | None, Meta(description="Seconds that a sync of the disk took.")]
    call: Annotated[float | None, Meta(description="Seconds that a call by RPC took.")]
    free: Annotated[int | None, Meta(description="Free bytes on the disk of the data directory.")]


def thinned(found: Sequence[Rates], points: int) -> list[Rates]:
    """Reduce to at most `points`, each the mean of its group; messages and bytes are the newest of the group, and the
    last point is the newest."""
    step = -(-len(found) // points)
    groups = [found[max(0, end - step) : end] for end in range(len(found), 0, -step)][::-1] if found else []
    return [
        msgspec.structs.replace(
            group[-1],
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
