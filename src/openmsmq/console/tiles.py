"""Figures at the top of pages, with their past."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from openmsmq.actions.queues import KindSum, Overview, QueueDetails
from openmsmq.admin.series import Rates, thinned
from openmsmq.admin.series import shown as figure
from openmsmq.console import charts
from openmsmq.console.queue_history import QueuePoint
from openmsmq.console.wording import of_quota, since, size

_RATE: Final = 60.0  # seconds, of which a rate of a queue is the mean
_POINTS: Final = 60  # of a line in a tile
_NONE: Final = KindSum(0, 0, 0)


class Tile(NamedTuple):
    """A figure at the top of a page; `drawn` are line and area of its past."""

    label: str
    value: str
    small: str = ""
    drawn: tuple[str, str] | None = None
    look: str = "depth"
    href: str | None = None
    live: str | None = None


def flow_of(points: list[QueuePoint]) -> list[tuple[float, float, float]]:
    """Times, and how many messages came and left a second until then; none across a restart of the daemon."""
    return [
        (after.at, (after.came - before.came) / (after.at - before.at), (after.left - before.left) / (after.at - before.at))
        for before, after in pairwise(points)
        if after.came >= before.came and after.left >= before.left
    ]  # fmt: skip


def tiles_of(found: QueueDetails, points: list[QueuePoint]) -> list[Tile]:
    """Those of a queue."""
    queue, flow = found.queue, flow_of(points)
    last = [each for each in flow if flow[-1][0] - each[0] < _RATE]
    percent = of_quota(queue)

    def rate(label: str, column: int, total: int, look: str) -> Tile:
        if not last:
            return Tile(label, f"{total:,}", "since the start")
        drawn = charts.spark([each[column] for each in flow])
        value = sum(each[column] for each in last) / len(last)
        return Tile(label, figure(value), f"a second, {total:,} in all", drawn, look)

    return [
        Tile("Messages", f"{queue.messages:,}",
             size(queue.bytes) if percent is None else f"{size(queue.bytes)}, {percent:.0f} % of quota",
             charts.spark([point.messages for point in points])),
        rate("In", 1, queue.came, "in"), rate("Out", 2, queue.left, "out"),
        Tile("Oldest message", since(found.oldest) if found.oldest else "none"),
        Tile("Readers", f"{queue.readers:,}", f"{queue.waiting:,} wait, open {queue.handles:,} times"),
    ]  # fmt: skip


def overview_tiles(found: Overview, rates: Sequence[Rates], now: Rates | None) -> list[Tile]:
    """Those of the overview. `now` is None for who may not see figures of all queues: they get sums of their own."""
    queues, dead, waiting = (found.sums.get(kind, _NONE) for kind in ("queue", "deadletter", "outgoing"))
    past = thinned(rates, _POINTS)
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
        Tile("Sync of the disk", "–" if now.sync is None else figure(now.sync * 1000), "ms",
             charts.spark([None if rate.sync is None else rate.sync * 1000 for rate in past]), "quiet-line"),
        Tile("Free disk", "–" if now.free is None else size(now.free), "",
             charts.spark([rate.free for rate in past]), "quiet-line"),
    ]  # fmt: skip
