"""What the jobs found, as pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from openmsmq.spark.jobs import plots
from openmsmq.spark.jobs.letters import DeadLetters
from openmsmq.spark.jobs.page import Page
from openmsmq.spark.jobs.traffic import PERCENTILES, Figures, Traffic
from openmsmq.spark.jobs.units import COUNT, SECONDS, SIZE, count, seconds, size

_SHOWN = len(plots.COLOURS) - 1  # queues with a colour of their own
_OTHERS = "other queues"


def traffic_page(traffic: Traffic, about: str) -> str:
    """HTML."""
    page = Page("Queue traffic", about)
    total = traffic.total
    if total is None:
        page.text("There are no messages.")
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
    page.heading("Messages by hour")
    page.figure(plots.stacked_hours(_by_queue(traffic, "messages"), COUNT, "Messages by hour"))
    page.heading("Bytes by hour")
    page.figure(plots.stacked_hours(_by_queue(traffic, "bytes"), SIZE, "Bytes by hour"))
    page.heading(what.capitalize())
    if any(f.times for f in traffic.all_hours):
        page.figure(plots.lines(_percentiles(traffic.all_hours, "times"), SECONDS, f"{what} by hour"))
        page.text("Of messages that are in their queues still, until now." if traffic.is_age else
                  "From arrival to being received; in journals from sending, as journals do not keep the arrival. "
                  "Times of queues are whole seconds.")  # fmt: skip
    else:
        page.text("Not known: these messages were only looked at, not received.")
    page.heading("Size by hour")
    page.figure(plots.lines(_percentiles(traffic.all_hours, "sizes"), SIZE, "Size by hour"))
    page.heading("Queues")
    columns = ["messages", "bytes", *[f"size p{p}" for p in PERCENTILES], *[f"{what} p{p}" for p in PERCENTILES]]
    page.table(["queue", *columns], [[_named(f), *_cells(f)] for f in traffic.queues])
    page.heading("Queues by hour (UTC)")
    page.table(["hour", "queue", *columns], [[_hour(f), _named(f), *_cells(f)] for f in traffic.hours], 2)
    return page.html()


def dead_letters_page(letters: DeadLetters, about: str) -> str:
    """HTML."""
    page = Page("Dead letters", about)
    page.facts([("messages", count(letters.messages)), ("bytes of bodies", size(letters.bytes))])
    if not letters.messages:
        page.text("No message died.")
    for aspect, counts in letters.by.items():
        if counts:
            page.heading(f"By {aspect}")
            page.figure(plots.bars([(c.value, c.messages) for c in counts[:12]], COUNT, f"Dead letters by {aspect}"))
            rows = [[c.value, count(c.messages), size(c.bytes), f"{c.last:%Y-%m-%d %H:%M}"] for c in counts]
            page.table([aspect, "messages", "bytes", "last died (UTC)"], rows)
    return page.html()


def _by_queue(traffic: Traffic, what: str) -> dict[str, dict[datetime, float]]:
    """The queues with most messages, and the others together."""
    named = [_named(f) for f in traffic.queues[:_SHOWN]]
    series: dict[str, Counter[datetime]] = {name: Counter() for name in named}
    for figures in traffic.hours:
        name = _named(figures)
        assert figures.hour is not None
        series.setdefault(name if name in named else _OTHERS, Counter())[figures.hour] += getattr(figures, what)
    return {name: dict(values) for name, values in series.items()}


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
