"""Charts of figures over time as SVG coordinates for a template, each with a sentence; they need no scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from openmsmq.admin.series import Rates, shown, thinned

WIDTH, HEIGHT = 600, 120  # units of the drawing
POINTS: Final = 120  # maximum per line


class Drawn(NamedTuple):
    """A line to draw: `field` is a member of `Rates`, which is multiplied by `scale`. A point that covers several
    samples shows their mean, or the last one if `mean` is false. `look` is the class of its color in style.css."""

    name: str
    field: str
    scale: float = 1
    mean: bool = True
    look: str = "in"


class Subject(NamedTuple):
    """Definition of a chart."""

    title: str
    unit: str
    lines: tuple[Drawn, ...]


SUBJECTS: Final = (
    Subject(
        "Messages a second", "/s",
        (Drawn("came", "came"), Drawn("left", "left", look="out"), Drawn("died", "dead", look="dead")),
    ),
    Subject("Messages in queues", "", (Drawn("messages", "messages", mean=False, look="depth"),)),
    Subject(
        "Mean latency", " ms",
        (Drawn("sync of the disk", "sync", 1000), Drawn("call by RPC", "call", 1000, look="out")),
    ),
    Subject("Free on the disk of the data directory", " GB",
            (Drawn("free", "free", 2**-30, mean=False, look="quiet-line"),)),
)  # fmt: skip
_TIMES: Final = 5  # labels below a chart


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart: `path` and the `area` below it are SVG path data. `values` are scaled, oldest first, None
    where unknown."""

    drawn: Drawn
    path: str
    values: list[float | None]
    area: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines that share one scale, from 0 to `top`. `start` and `end` are times, `sentence` describes the chart in
    words. `ticks` are the numbers next to the chart, largest first, at `heights`; `clocks` are the times below it; `at`
    is the time of each point in seconds since 1970."""

    title: str
    unit: str
    lines: list[Line]
    top: float
    start: str
    end: str
    sentence: str
    ticks: list[str]
    heights: list[float]
    clocks: list[str]
    at: list[float | None]


def charts(found: Sequence[Rates]) -> list[Chart]:
    """Return a chart for each of `SUBJECTS`; empty for fewer than two points."""
    if len(found) < 2:
        return []
    kept = thinned(found, POINTS)
    return [_chart(subject, kept) for subject in SUBJECTS]


def seconds_of_a_point(found: Sequence[Rates]) -> int:
    """Return the number of seconds that a point of a chart covers."""
    if len(found) < 2:
        return 1
    kept = thinned(found, POINTS)
    return max(1, round((kept[-1].at - kept[0].at) / (len(kept) - 1))) if len(kept) > 1 else 1


def _chart(subject: Subject, kept: list[Rates]) -> Chart:
    columns = [[_value(rates, drawn) for rates in kept] for drawn in subject.lines]
    return chart(subject, [rates.at for rates in kept], columns)


def chart(subject: Subject, at: Sequence[float], columns: Sequence[list[float | None]]) -> Chart:
    """Return a chart of values at the times `at` (at least two), with a column for each line."""
    top = nice(max((value for values in columns for value in values if value is not None), default=0))
    lines = [
        Line(drawn, path(values, top), values, area(values, top))
        for drawn, values in zip(subject.lines, columns, strict=True)
    ]
    latest = ", ".join(_said(line, subject.unit) for line in lines)
    steps = parts_of(top)
    return Chart(
        subject.title, subject.unit, lines, top, _clock(at[0]), _clock(at[-1]), f"Now: {latest}.",
        [shown(top * step / steps) for step in range(steps, -1, -1)],
        [HEIGHT * step / steps for step in range(steps + 1)], _clocks(at), list(at),
    )  # fmt: skip


def parts_of(top: float) -> int:
    """Return the number of parts into which grid lines divide a scale, so that their numbers have few digits."""
    return 4 if str(top).startswith("2") else 5


def _clocks(at: Sequence[float]) -> list[str]:
    """Return at most `_TIMES` evenly spaced times, including the first and last; with seconds for less than 5
    minutes."""
    pattern = "%H:%M" if at[-1] - at[0] >= 300 else "%H:%M:%S"
    times = min(_TIMES, len(at))
    places = [round(step * (len(at) - 1) / (times - 1)) for step in range(times)]
    return [datetime.fromtimestamp(at[place], UTC).strftime(pattern) for place in places]


def spark(values: Sequence[float | None], width: int = 92, height: int = 24) -> tuple[str, str]:
    """Return line and area of a small chart without axes; empty strings for fewer than two values."""
    if len(values) < 2:
        return "", ""
    top = max((value for value in values if value is not None), default=0) * 1.1 or 1
    return path(values, top, width, height), area(values, top, width, height)


def _value(rates: Rates, drawn: Drawn) -> float | None:
    value = getattr(rates, drawn.field)
    return None if value is None else float(value) * drawn.scale


def _said(line: Line, unit: str) -> str:
    known = [value for value in line.values if value is not None]
    if not known:
        return f"{line.drawn.name} none"
    now = line.values[-1]
    return f"{line.drawn.name} {'none' if now is None else shown(now) + unit} (most {shown(max(known))})"


def path(values: Sequence[float | None], top: float, width: int = WIDTH, height: int = HEIGHT) -> str:
    """Return the line as SVG path data, with a gap at each None; a value between two gaps is a dot."""
    across, down = width / (len(values) - 1), height / top
    parts, begun = [], False
    for index, value in enumerate(values):
        if value is not None:
            point = f"{index * across:.1f},{height - value * down:.1f}"
            parts.append(f"L{point}" if begun else f"M{point}h0")
        begun = value is not None
    return "".join(parts)


def area(values: Sequence[float | None], top: float, width: int = WIDTH, height: int = HEIGHT) -> str:
    """Return the area below a line as SVG path data."""
    across, down = width / (len(values) - 1), height / top
    parts: list[str] = []
    for index, value in enumerate(values):
        if value is None:
            continue
        if index == 0 or values[index - 1] is None:
            parts.append(f"M{index * across:.1f},{height}")
        parts.append(f"L{index * across:.1f},{height - value * down:.1f}")
        if index == len(values) - 1 or values[index + 1] is None:
            parts.append(f"L{index * across:.1f},{height}Z")
    return "".join(parts)


def nice(most: float) -> float:
    """Round up to 1, 2 or 5 times a power of ten; at least 1."""
    step = 1.0
    while True:
        for factor in (1, 2, 5):
            if most <= factor * step:
                return factor * step
        step *= 10


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S UTC")
