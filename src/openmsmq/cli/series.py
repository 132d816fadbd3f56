"""`openmsmq series`: the charts of the console in text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

import click

from openmsmq.cli.output import echo, json_option, print_json, print_table
from openmsmq.cli.web_api import ApiOptions, api_options
from openmsmq.operating.series import Range, Rates, shown, thinned

_BARS = "▁▂▃▄▅▆▇█"
_POINTS = 60  # of a line
_LINES = {"came": "came, /s", "left": "left, /s", "dead": "died, /s", "messages": "in queues"}


@click.command()
@click.argument("span", metavar="[10m|24h]", type=click.Choice(["10m", "24h"]), default="10m")
@json_option
@api_options
def series(api: ApiOptions, span: str, as_json: bool) -> None:
    """Show how many messages came, left and died a second, and how many were in queues: ten minutes, or a day.

    Of all application queues, by the second for ten minutes and by the minute for a day. The HTTP API of the daemon is
    asked, with a token of the role monitor, of an administrator of the queue manager where anonymous callers are not
    accepted. The process of the HTTP server keeps the figures: a restart begins them anew.
    """
    with api.client() as client:
        found = client.series(cast("Range", span))
    if as_json:
        for point in found:
            print_json(point._asdict())
    elif len(found) < 2:
        echo("there are no figures yet: the HTTP server has just started")
    else:
        kept = thinned(found, _POINTS)
        columns = ["", "now", "least", "most", f"{_clock(found[0])} to {_clock(found[-1])} UTC"]
        print_table(columns, [_row(label, name, found, kept) for name, label in _LINES.items()])


def _row(label: str, name: str, found: Sequence[Rates], kept: Sequence[Rates]) -> list[str]:
    values, drawn = ([float(getattr(point, name)) for point in points] for points in (found, kept))
    return [label, shown(values[-1]), shown(min(values)), shown(max(values)), sparkline(drawn)]


def sparkline(values: Sequence[float]) -> str:
    """A bar for each value, from 0 to the greatest; values of 0 have the lowest bar, and nothing else has."""
    most = max(values)
    steps = len(_BARS) - 1
    return "".join(_BARS[0 if value <= 0 else max(1, round(value / most * steps))] for value in values)


def _clock(point: Rates) -> str:
    return datetime.fromtimestamp(point.at, UTC).strftime("%H:%M:%S")
