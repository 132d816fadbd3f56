"""Tiles at the top of pages: figures with their history."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from openmsmq.actions.queues import KindSum, Overview, QueueDetails
from openmsmq.admin.series import Rates, thinned
from openmsmq.admin.series import shown as figure
from openmsmq.console import charts
from openmsmq.console.queue_history import STEP, QueuePoint
from openmsmq.console.wording import of_quota, since, size

_RATE: Final = 60.0  # seconds over which the rate of a queue is averaged
_MISSED: Final = 2  # samples that may be missing before a line has a gap
_POINTS: Final = 60  # points of a line in a tile
_NONE: Final = KindSum(0, 0, 0)


class Tile(NamedTuple):
    """A figure at the top of a page; `drawn` are line and area of its history."""

    label: str
    value: str
    small: str = ""
    drawn: tuple[str, str] | None = None
    look: str = "depth"
    href: str | None = None
    live: str | None = None


def flow_of(points: list[QueuePoint]) -> list[tuple[float, float, float]]:
    """Return time, arrivals per second and departures per second between consecutive points; a restart of the daemon,
    which resets the counters, is skipped."""
    found = []
    for before, after in pairwise(points):
        seconds = after.at - before.at
        if after.came >= before.came and after.left >= before.left:
            found.append((after.at, (after.came - before.came) / seconds, (after.left - before.left) / seconds))
    return found


def evenly(at: Sequence[float], values: Sequence[float], step: float = STEP) -> list[float | None]:
    """Resample values to times `step` seconds apart, from the first to the last time; None in long gaps."""
    if not at:
        return []
    found: list[float | None] = [None] * (round((at[-1] - at[0]) / step) + 1)
    for when, value in zip(at, values, strict=True):
        found[round((when - at[0]) / step)] = value
    known = 0
    for index, each in enumerate(found):
        if each is not None:
            known = index
        elif index - known <= _MISSED and any(later is not None for later in found[index : known + _MISSED + 2]):
            found[index] = found[known]
    return found


def even_times(first: float, count: int, step: float = STEP) -> list[float]:
    """Return the times of the values that `evenly` returns."""
    return [first + index * step for index in range(count)]


def depth_of(points: Sequence[QueuePoint]) -> tuple[str, str]:
    """Return line and area of the number of messages in a queue."""
    return charts.spark(evenly([point.at for point in points], [point.messages for point in points]))


def tiles_of(found: QueueDetails, points: list[QueuePoint]) -> list[Tile]:
    """Return the tiles of a queue."""
    queue, flow = found.queue, flow_of(points)
    last = [each for each in flow if flow[-1][0] - each[0] < _RATE]
    percent = of_quota(queue)

    def rate(label: str, column: int, total: int, look: str) -> Tile:
        if not last:
            return Tile(label, f"{total:,}", "since the start")
        drawn = charts.spark(evenly([each[0] for each in flow], [each[column] for each in flow]))
        value = sum(each[column] for each in last) / len(last)
        return Tile(label, figure(value), f"a second, {total:,} in all", drawn, look)

    return [
        Tile("Messages", f"{queue.messages:,}",
             size(queue.bytes) if percent is None else f"{size(queue.bytes)}, {percent:.0f} % of quota",
             depth_of(points)),
        rate("In", 1, queue.came, "in"), rate("Out", 2, queue.left, "out"),
        Tile("Oldest message", since(found.oldest) if found.oldest else "none"),
        Tile("Readers", f"{queue.readers:,}", f"{queue.waiting:,} wait, open {queue.handles:,} times"),
    ]  # fmt: skip


def overview_tiles(found: Overview, rates: Sequence[Rates], now: Rates | None) -> list[Tile]:
    """Return the tiles of the overview. `now` is None for a user who may not see figures of all queues; the tiles are
    then sums over the queues that the user may see."""
    queues, dead, waiting = (found.sums.get(kind, _NONE) for kind in ("queue", "deadletter", "outgoing"))
    past = thinned(rates, _POINTS)
    syncs = [rate.sync for rate in rates if rate.sync is not None]
    if now is None:
        return [
            Tile("Messages in queues", f"{queues.messages:,}", size(queues.bytes), href="/queues?sort=-messages"),
            Tile("Queues", f"{queues.queues:,}", href="/queues"),
            Tile("Waiting for other machines", f"{waiting.messages:,}", size(waiting.bytes), href="/outgoing"),
        ]
    died = sum(rate.dead * (rate.at - before.at) for before, rate in pairwise(rates))
    span = "a day" if len(rates) > 1 and rates[-1].at - rates[0].at > 2 * 600 else "10 minutes"
    return [
        Tile("Messages in queues", f"{now.messages:,}", size(queues.bytes),
             charts.spark([rate.messages for rate in past]), "depth", "/queues?sort=-messages", "messages"),
        Tile("In", figure(now.came), "a second", charts.spark([rate.came for rate in past]), "in", None, "came"),
        Tile("Out", figure(now.left), "a second", charts.spark([rate.left for rate in past]), "out", None, "left"),
        Tile("Dead letters", f"{dead.messages:,}", f"{died:,.0f} died in {span}",
             charts.spark([rate.dead for rate in past]), "dead", "/deadletters"),
        Tile("Sync of the disk", f"{figure(syncs[-1] * 1000)} ms" if syncs else "none", "the last one" if syncs else "",
             charts.spark([None if rate.sync is None else rate.sync * 1000 for rate in past]), "quiet-line"),
        Tile("Free disk", "–" if now.free is None else size(now.free), "",
             charts.spark([rate.free for rate in past]), "quiet-line"),
    ]  # fmt: skip
