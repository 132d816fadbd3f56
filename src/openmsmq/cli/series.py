"""`openmsmq series`: the charts of the console as text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple, cast

import click
import msgspec

from openmsmq.actions.by_http import perform
from openmsmq.actions.series import SeriesQuery
from openmsmq.actions.series import series as series_over_time
from openmsmq.admin.series import Range, Rates, shown, thinned
from openmsmq.cli.output import echo, json_option, print_json, print_table
from openmsmq.cli.web_api import ApiOptions, api_options

_BARS = "▁▂▃▄▅▆▇█"
_POINTS = 60  # characters in a line


class _Line(NamedTuple):
    """A member of `Rates`, and the factor by which it is multiplied for display."""

    label: str
    name: str
    scale: float = 1


_LINES = (
    _Line("came, /s", "came"), _Line("left, /s", "left"), _Line("died, /s", "dead"), _Line("in queues", "messages"),
    _Line("sync, ms", "sync", 1000), _Line("call, ms", "call", 1000), _Line("disk free, MB", "free", 2**-20),
)  # fmt: skip


@click.command()
@click.argument("span", metavar="[10m|24h]", type=click.Choice(["10m", "24h"]), default="10m")
@json_option
@api_options
def series(api: ApiOptions, span: str, as_json: bool) -> None:
    """Chart message rates and counts, sync and call times, and free disk space over ten minutes or a day.

    Messages are those of all application queues; removed messages include dead letters. Times are means; intervals
    without events are gaps. The resolution is a second for ten minutes and a minute for a day.

    The command uses the HTTP API, with a token of the role monitor; if anonymous callers are not accepted, the token
    must belong to an administrator. The HTTP server keeps the data in memory, so a restart loses them.
    """
    with api.client() as client:
        found = perform(client, series_over_time, SeriesQuery(cast("Range", span))).points
    if as_json:
        for point in found:
            print_json(msgspec.structs.asdict(point))
    elif len(found) < 2:
        echo("no data yet: the HTTP server has just started")
    else:
        kept = thinned(found, _POINTS)
        columns = ["", "now", "least", "most", f"{_clock(found[0])} to {_clock(found[-1])} UTC"]
        print_table(columns, [_row(line, found, kept) for line in _LINES])


def _row(line: _Line, found: Sequence[Rates], kept: Sequence[Rates]) -> list[str]:
    values = [value for value in _values(line, found) if value is not None]
    figures = [shown(values[-1]), shown(min(values)), shown(max(values))] if values else ["-"] * 3
    return [line.label, *figures, sparkline(_values(line, kept))]


def _values(line: _Line, points: Sequence[Rates]) -> list[float | None]:
    found = [getattr(point, line.name) for point in points]
    return [None if value is None else value * line.scale for value in found]


def sparkline(values: Sequence[float | None]) -> str:
    """Draw a bar for each value, scaled to the maximum. Only 0 has the lowest bar; an unknown value is a gap."""
    most = max((value for value in values if value is not None), default=0.0)
    return "".join(" " if value is None else _bar(value, most) for value in values)


def _bar(value: float, most: float) -> str:
    steps = len(_BARS) - 1
    return _BARS[0 if value <= 0 else max(1, round(value / most * steps))]


def _clock(point: Rates) -> str:
    return datetime.fromtimestamp(point.at, UTC).strftime("%H:%M:%S")
