"""Plots as inline SVG, with text as text, and without external files or fonts."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, MultipleLocator, NullLocator

from openmsmq.spark.jobs.units import Unit

#: Colors that people with color blindness, and black-and-white printers, can tell apart (Okabe and Ito).
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999")
_SIZE = (5.4, 3.0)  # inches; with this width, text on a phone has the size of the page text
_LEGEND_ROW = 0.24  # inches
_SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # disable math mode, because queue names contain $
    "font.family": "sans-serif",
    "font.size": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#777777",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#dddddd",
    "axes.axisbelow": True,
    "legend.frameon": False,
}
_HOUR = timedelta(hours=1)


def stacked_hours(series: Mapping[str, Mapping[datetime, float]], unit: Unit, name: str) -> str:
    """Return a stacked bar chart with one bar per hour."""
    hours = sorted({hour for values in series.values() for hour in values})

    def draw(axes: Axes) -> None:
        floor = [0.0] * len(hours)
        for (label, values), color in zip(series.items(), COLORS, strict=False):
            heights = [values.get(hour, 0.0) for hour in hours]
            axes.bar(hours, heights, _HOUR * 0.9, floor, label=label, color=color, align="edge", linewidth=0)  # type: ignore[arg-type]
            floor = [below + height for below, height in zip(floor, heights, strict=True)]
        _time_axis(axes, hours)
        _mark_evenly(axes.yaxis, max(floor, default=0), unit)

    return _svg(draw, name)


def lines(series: Mapping[str, Mapping[datetime, float]], unit: Unit, name: str) -> str:
    """Return a line chart with a logarithmic axis. The first line is the widest, so that coinciding lines are all
    visible."""
    hours = sorted({hour for values in series.values() for hour in values})

    def draw(axes: Axes) -> None:
        for index, ((label, values), color, marker) in enumerate(zip(series.items(), COLORS, "os^Dv<>", strict=False)):
            known = sorted(values)
            middles: Any = [hour + _HOUR / 2 for hour in known]
            breadth = 1.5 * (len(series) - index)  # points
            axes.plot(
                middles, [values[h] for h in known], label=label, color=color, marker=marker,
                linewidth=breadth, markersize=3 + 1.5 * breadth,
            )  # fmt: skip
        _time_axis(axes, hours)
        _mark_powers(axes, [value for values in series.values() for value in values.values()], unit)

    return _svg(draw, name)


def bars(values: Sequence[tuple[str, float]], unit: Unit, name: str) -> str:
    """Return a horizontal bar chart, first value on top."""

    def draw(axes: Axes) -> None:
        places = range(len(values))
        axes.barh(places, [value for _, value in values], color=COLORS[0])
        axes.set_yticks(list(places), [_short(label) for label, _ in values])
        axes.invert_yaxis()
        axes.grid(axis="x")
        axes.grid(visible=False, axis="y")
        _mark_evenly(axes.xaxis, max((value for _, value in values), default=0), unit)

    return _svg(draw, name, height=max(1.2, 0.6 + 0.34 * len(values)))


def _time_axis(axes: Axes, hours: Sequence[datetime]) -> None:
    if hours:
        axes.set_xlim(hours[0] - _HOUR / 4, hours[-1] + _HOUR * 1.25)  # type: ignore[arg-type]
    locator = AutoDateLocator(tz=UTC, minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]


def _mark_evenly(axis: Axis, highest: float, unit: Unit) -> None:
    """Set three to five marks, starting at 0."""
    if unit.base == 2:
        step = 2.0 ** max(0, math.ceil(math.log2(max(highest, 1) / 4)))
        axis.set_major_locator(MultipleLocator(step))
    else:
        axis.set_major_locator(MaxNLocator(4, integer=True))
    axis.set_major_formatter(FuncFormatter(lambda value, _: unit.text(value)))


def _mark_powers(axes: Axes, values: Sequence[float], unit: Unit) -> None:
    """Set marks around the values; the lowest is 0 if a value is below the first mark."""
    lowest, highest = min(values, default=0.0), max(values, default=0.0)
    marks = (0.0, *unit.marks)
    first = max(mark for mark in marks if mark <= lowest)
    last = min((mark for mark in marks if mark >= highest and mark > first), default=highest)
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(first, last * 1.1)
    axes.yaxis.set_major_locator(FixedLocator([mark for mark in marks if first <= mark <= last]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: unit.text(value)))


def _short(label: str) -> str:
    return label if len(label) <= 24 else f"…{label[-23:]}"


def _svg(draw: Callable[[Axes], None], name: str, height: float = _SIZE[1]) -> str:
    """Return a figure as SVG. `name` is its accessible name, and makes identifiers unique among several plots."""
    with mpl.rc_context({**_SETTINGS, "svg.hashsalt": name}):
        figure = Figure(figsize=(_SIZE[0], height), layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        handles, labels = axes.get_legend_handles_labels()
        if len(handles) > 1:
            short = [_short(label) for label in labels]
            columns = 1 if max(map(len, short)) > 20 else 2 if max(map(len, short)) > 8 else 4
            figure.set_figheight(height + _LEGEND_ROW * -(-len(short) // columns))
            figure.legend(handles, short, loc="outside lower left", ncols=columns)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg [^>]*?) ?width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg [^>]*?) ?height="[^"]*"', r"\1", text, count=1)
    # Font families as on the page; matplotlib would list its own.
    text = re.sub(r"font(?:-family)?: ([\d.]+px) [^;\"]*", r"font: \1 system-ui, sans-serif", text)
    return text.replace("<svg ", '<svg role="img" ', 1).replace("<defs>", f"<title>{_escaped(name)}</title><defs>", 1)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
