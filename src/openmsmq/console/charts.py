"""Charts of figures over time, as coordinates for a template: no scripts, no library, a sentence for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from openmsmq.admin.series import Rates, shown, thinned

WIDTH, HEIGHT = 600, 120  # units of the drawing
POINTS: Final = 120  # at most, of a line


class Drawn(NamedTuple):
    """A line to draw: a member of `Rates`, by what it is multiplied to be shown, whether a point that stands for some
    time has the mean of it or what it was in the end, and the class of its color in style.css."""

    name: str
    field: str
    scale: float = 1
    mean: bool = True
    look: str = "in"


class Subject(NamedTuple):
    """A chart to draw."""

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
_TIMES: Final = 5  # below a chart


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is drawn by `path`, as SVG has it, over the `area` below it; `values`, as they are shown, are oldest
    first and None where there is none."""

    drawn: Drawn
    path: str
    values: list[float | None]
    area: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines that share one scale, from 0 to `top`. `start` and `end` are times, `sentence` says what is to be seen.
    `ticks` are the numbers next to the chart, the largest first; `heights` where they are, `clocks` the times below it;
    `at` has the time of each point in seconds since 1970."""

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
    """How many seconds a point of a chart stands for."""
    if len(found) < 2:
        return 1
    kept = thinned(found, POINTS)
    return max(1, round((kept[-1].at - kept[0].at) / (len(kept) - 1))) if len(kept) > 1 else 1


def _chart(subject: Subject, kept: list[Rates]) -> Chart:
    columns = [[_value(rates, drawn) for rates in kept] for drawn in subject.lines]
    return chart(subject, [rates.at for rates in kept], columns)


def chart(subject: Subject, at: Sequence[float], columns: Sequence[list[float | None]]) -> Chart:
    """Return a chart of values at some times, at least two of them: a column for each line."""
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
    """Into how many parts lines divide a scale, so that each has a number with few digits."""
    return 4 if str(top).startswith("2") else 5


def _clocks(at: Sequence[float]) -> list[str]:
    """Some of the times, from the first one to the last one; with seconds where there are less than five minutes."""
    pattern = "%H:%M" if at[-1] - at[0] >= 300 else "%H:%M:%S"
    times = min(_TIMES, len(at))
    places = [round(step * (len(at) - 1) / (times - 1)) for step in range(times)]
    return [datetime.fromtimestamp(at[place], UTC).strftime(pattern) for place in places]


def spark(values: Sequence[float | None], width: int = 92, height: int = 24) -> tuple[str, str]:
    """Line and area of a small chart without axes; empty for fewer than two values."""
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
    """With gaps where there is no value; what stands between two of them is a dot."""
    across, down = width / (len(values) - 1), height / top
    parts, begun = [], False
    for index, value in enumerate(values):
        if value is not None:
            point = f"{index * across:.1f},{height - value * down:.1f}"
            parts.append(f"L{point}" if begun else f"M{point}h0")
        begun = value is not None
    return "".join(parts)


def area(values: Sequence[float | None], top: float, width: int = WIDTH, height: int = HEIGHT) -> str:
    """Return the area below a line, as SVG path."""
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
    """The next of 1, 2 and 5 times a power of ten; at least 1."""
    step = 1.0
    while True:
        for factor in (1, 2, 5):
            if most <= factor * step:
                return factor * step
        step *= 10


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S UTC")
