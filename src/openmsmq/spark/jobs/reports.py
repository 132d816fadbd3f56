"""HTML reports of job results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime

from openmsmq.model.reasons import find_reason
from openmsmq.spark.jobs import plots
from openmsmq.spark.jobs.dead_letters import OTHERS, Count, DeadLetters
from openmsmq.spark.jobs.naming import without_beginning
from openmsmq.spark.jobs.page import Page
from openmsmq.spark.jobs.traffic import PERCENTILES, Figures, Traffic
from openmsmq.spark.jobs.units import COUNT, SECONDS, SIZE, count, seconds, size

_SHOWN = len(plots.COLORS) - 1  # maximum number of queues with separate colors
_OTHERS = "other queues"
_NO_NAMES = (OTHERS, "(none)", "(anonymous)", "(empty)")


def traffic_page(traffic: Traffic, about: str) -> str:
    """Return the traffic report as HTML."""
    page = Page("Queue traffic", about)
    total = traffic.total
    if total is None:
        page.empty("There are no messages.")
        return page.html()
    what = "age" if traffic.is_age else "time in queue"
    busiest = max(traffic.all_hours, key=lambda f: f.messages)
    facts = [
        ("messages", count(total.messages)),
        ("bytes of bodies", size(total.bytes)),
        ("busiest hour", f"{count(busiest.messages)} at {_hour(busiest)}"),
        ("size, p50 / p99", f"{size(total.sizes[0])} / {size(total.sizes[-1])}"),
    ]
    if total.times is not None:
        facts.append((f"{what}, p50 / p99", f"{seconds(total.times[0])} / {seconds(total.times[-1])}"))
    page.facts(facts)
    shown, left_out = without_beginning([_named(f) for f in traffic.queues])
    several = len(traffic.all_hours) > 1
    page.heading("Messages by hour")
    if several:
        page.figure(plots.stacked_hours(_by_queue(traffic, "messages", shown), COUNT, "Messages by hour"))
        page.heading("Bytes by hour")
        page.figure(plots.stacked_hours(_by_queue(traffic, "bytes", shown), SIZE, "Bytes by hour"))
    else:
        page.text(f"All in one hour, {_hour(busiest)} UTC: {count(total.messages)} messages, {size(total.bytes)}.")
    page.heading(what.capitalize())
    if any(f.times for f in traffic.all_hours):
        if several:
            page.figure(plots.lines(_percentiles(traffic.all_hours, "times"), SECONDS, f"{what} by hour"))
        page.text("Of messages that are in their queues still, until now." if traffic.is_age else
                  "From arrival to being received; in journals from sending, as journals do not keep the arrival. "
                  "Times of queues are whole seconds.")  # fmt: skip
    else:
        page.text("Not known: these messages were only looked at, not received.")
    if several:
        page.heading("Size by hour")
        page.figure(plots.lines(_percentiles(traffic.all_hours, "sizes"), SIZE, "Size by hour"))
    page.heading("Queues")
    if left_out:
        page.text(left_out)
    columns = ["messages", "bytes", *[f"size p{p}" for p in PERCENTILES], *[f"{what} p{p}" for p in PERCENTILES]]
    page.table(["queue", *columns], [[shown(_named(f)), *_cells(f)] for f in traffic.queues])
    page.heading("Queues by hour (UTC)")
    page.table(["hour", "queue", *columns], [[_hour(f), shown(_named(f)), *_cells(f)] for f in traffic.hours], 2)
    return page.html()


def dead_letters_page(letters: DeadLetters, about: str) -> str:
    """Return the report of dead letters as HTML."""
    page = Page("Dead letters", about)
    page.facts([("messages", count(letters.messages)), ("bytes of bodies", size(letters.bytes))])
    if not letters.messages:
        page.empty("No message died.")
    for aspect, counts in letters.by.items():
        if counts:
            _aspect(page, aspect, counts)
    return page.html()


def _aspect(page: Page, aspect: str, counts: list[Count]) -> None:
    page.heading(f"By {aspect}")
    shown, left_out = without_beginning([c.value for c in counts if c.value not in _NO_NAMES])
    if len(counts) > 1:
        bars = [(shown(c.value), c.messages) for c in counts[:12]]
        page.figure(plots.bars(bars, COUNT, f"Dead letters by {aspect}"))
    else:
        page.text(f"All have the same {aspect}.")
    if left_out:
        page.text(left_out)
    rows = [[shown(c.value), count(c.messages), size(c.bytes), f"{c.last:%Y-%m-%d %H:%M}"] for c in counts]
    page.table([aspect, "messages", "bytes", "last died (UTC)"], rows)
    if aspect == "class":
        for one in counts:
            _explain(page, one.value)


def _explain(page: Page, name: str) -> None:
    """Add the meaning of a reason, and the command that returns its messages."""
    try:
        reason = find_reason(name)
    except ValueError:  # the row that sums up all others
        return
    again = " Unchanged, they would become dead letters again." if reason.fails_again else ""
    command = f"openmsmq dlq return --reason {reason.slug} --dry-run"
    page.explained(reason.name, reason.slug, f"{reason.sentence} {reason.remedy}{again}", command)


def _by_queue(traffic: Traffic, what: str, shown: Callable[[str], str]) -> dict[str, dict[datetime, float]]:
    """Return the queues with the highest values of `what`, by their `shown` names, and the sum of all others."""
    most = sorted(traffic.queues, key=lambda figures: -getattr(figures, what))
    named = [_named(f) for f in most[:_SHOWN]]
    series: dict[str, Counter[datetime]] = {name: Counter() for name in named}
    for figures in traffic.hours:
        name = _named(figures)
        assert figures.hour is not None
        series.setdefault(name if name in named else _OTHERS, Counter())[figures.hour] += getattr(figures, what)
    return {name if name == _OTHERS else shown(name): dict(values) for name, values in series.items()}


def _percentiles(hours: Iterable[Figures], what: str) -> dict[str, dict[datetime, float]]:
    series: dict[str, dict[datetime, float]] = {f"p{percent}": {} for percent in PERCENTILES}
    for figures in hours:
        values = getattr(figures, what)
        assert figures.hour is not None
        for percent, value in zip(PERCENTILES, values or (), strict=False):
            series[f"p{percent}"][figures.hour] = value
    return series


def _named(figures: Figures) -> str:
    return figures.queue if figures.source == "queue" else f"{figures.queue} ({figures.source})"


def _hour(figures: Figures) -> str:
    return f"{figures.hour:%Y-%m-%d %H:00}"


def _cells(figures: Figures) -> list[str]:
    times = [seconds(value) for value in figures.times] if figures.times else ["–"] * len(PERCENTILES)
    return [count(figures.messages), size(figures.bytes), *map(size, figures.sizes), *times]
