"""Figures of a daemon over time: the type of a point, and thinning of points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

#: Ten minutes with one point per second, or a day with one point per minute.
Range = Literal["10m", "24h"]


class Rates(msgspec.Struct, frozen=True):
    """Figures of all application queues at a time.

    Durations are means, and null if there were no operations.
    """

    at: Annotated[float, Meta(ge=0, lt=253_402_300_800, description="The time, in seconds since 1970.")]
    messages: Annotated[int, Meta(description="Messages in queues.")]
    came: Annotated[float, Meta(description="Messages per second that were enqueued.")]
    left: Annotated[float, Meta(description="Messages per second that were removed.")]
    dead: Annotated[float, Meta(description="Messages per second that were removed without being received.")]
    sync: Annotated[float | None, Meta(description="Seconds per disk sync.")]
    call: Annotated[float | None, Meta(description="Seconds per RPC call.")]
    free: Annotated[int | None, Meta(description="Free bytes on the disk of the data directory.")]


def thinned(found: Sequence[Rates], points: int) -> list[Rates]:
    """Reduce to at most `points` points, each the mean of a group; messages and bytes are the newest values of the
    group. The last point is the newest."""
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
    """Format a number for display: with thousands separators, and small fractions with one digit."""
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:,.1f}"
