"""Charts of figures over time, as coordinates for a template: no scripts, no library, a sentence beside each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from openmsmq.operating.series import Rates, shown, thinned

WIDTH, HEIGHT = 600, 120  # units of the drawing
POINTS: Final = 120  # at most, of a line


@dataclass(frozen=True, slots=True)
class Line:
    """`field` is the member of `Rates`; `points` as SVG has them; `values` are oldest first."""

    name: str
    field: str
    points: str
    values: list[float]


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
    """Of rates and of depth; empty for fewer than two points."""
    if len(found) < 2:
        return []
    kept = thinned(found, POINTS)
    return [
        _chart("Messages a second", "/s", kept, {"came": "came", "left": "left", "died": "dead"}),
        _chart("Messages in queues", "", kept, {"messages": "messages"}),
    ]


def seconds_of_a_point(found: Sequence[Rates]) -> int:
    """How many seconds a point of a chart stands for."""
    if len(found) < 2:
        return 1
    kept = thinned(found, POINTS)
    return max(1, round((kept[-1].at - kept[0].at) / (len(kept) - 1))) if len(kept) > 1 else 1


def _chart(title: str, unit: str, kept: list[Rates], fields: Mapping[str, str]) -> Chart:
    """`fields` by the name that people see."""
    values = {label: [float(getattr(rates, field)) for rates in kept] for label, field in fields.items()}
    top = nice(max(map(max, values.values())))
    lines = [Line(label, fields[label], _points(numbers, top), numbers) for label, numbers in values.items()]
    said = ", ".join(f"{label} {shown(numbers[-1])}{unit} (most {shown(max(numbers))})"
                     for label, numbers in values.items())  # fmt: skip
    return Chart(title, unit, lines, top, _clock(kept[0].at), _clock(kept[-1].at), f"Now: {said}.")


def _points(numbers: list[float], top: float) -> str:
    across, down = WIDTH / (len(numbers) - 1), HEIGHT / top
    return " ".join(f"{index * across:.1f},{HEIGHT - number * down:.1f}" for index, number in enumerate(numbers))


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
