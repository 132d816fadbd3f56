"""Charts of figures over time, as coordinates for a template: no scripts, no library, a sentence beside each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from openmsmq.admin.series import Rates, shown, thinned

WIDTH, HEIGHT = 600, 120  # units of the drawing
POINTS: Final = 120  # at most, of a line


class Drawn(NamedTuple):
    """A line to draw: a member of `Rates`, by what it is multiplied to be shown, and whether a point that stands for
    some time has the mean of it or what it was in the end."""

    name: str
    field: str
    scale: float = 1
    mean: bool = True


class Subject(NamedTuple):
    """A chart to draw."""

    title: str
    unit: str
    lines: tuple[Drawn, ...]


SUBJECTS: Final = (
    Subject("Messages a second", "/s", (Drawn("came", "came"), Drawn("left", "left"), Drawn("died", "dead"))),
    Subject("Messages in queues", "", (Drawn("messages", "messages", mean=False),)),
    Subject("Mean latency", " ms", (Drawn("sync of the disk", "sync", 1000), Drawn("call by RPC", "call", 1000))),
    Subject("Free on the disk of the data directory", " GB", (Drawn("free", "free", 2**-30, mean=False),)),
)


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is drawn by `path`, as SVG has it; `values`, as they are shown, are oldest first and None where there
    is none."""

    drawn: Drawn
    path: str
    values: list[float | None]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines that share one scale, from 0 to `top`. `start` and `end` are times, `sentence` says what is to be seen."""

    title: str
    unit: str
    lines: list[Line]
    top: float
    start: str
    end: str
    sentence: str


def charts(found: Sequence[Rates]) -> list[Chart]:
    """Of each of `SUBJECTS`; empty for fewer than two points."""
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
    top = nice(max((value for values in columns for value in values if value is not None), default=0))
    lines = [Line(drawn, _path(values, top), values) for drawn, values in zip(subject.lines, columns, strict=True)]
    said = ", ".join(_said(line, subject.unit) for line in lines)
    return Chart(subject.title, subject.unit, lines, top, _clock(kept[0].at), _clock(kept[-1].at), f"Now: {said}.")


def _value(rates: Rates, drawn: Drawn) -> float | None:
    value = getattr(rates, drawn.field)
    return None if value is None else float(value) * drawn.scale


def _said(line: Line, unit: str) -> str:
    known = [value for value in line.values if value is not None]
    if not known:
        return f"{line.drawn.name} none"
    now = line.values[-1]
    return f"{line.drawn.name} {'none' if now is None else shown(now) + unit} (most {shown(max(known))})"


def _path(values: Sequence[float | None], top: float) -> str:
    """With gaps where there is no value; what stands between two of them is a dot."""
    across, down = WIDTH / (len(values) - 1), HEIGHT / top
    parts, begun = [], False
    for index, value in enumerate(values):
        if value is not None:
            point = f"{index * across:.1f},{HEIGHT - value * down:.1f}"
            parts.append(f"L{point}" if begun else f"M{point}h0")
        begun = value is not None
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
