"""`openmsmq top`: queues, while they change."""

from __future__ import annotations

import fnmatch
import sys
import time
from typing import Any

import click

from openmsmq.cli.connection import connected
from openmsmq.cli.output import json_option, live_table, print_json
from openmsmq.client.sync import QueueManager
from openmsmq.operating.overview import Row, look, rows, with_age

_COLUMNS = ("queue", "messages", "change/s", "bytes", "journal", "first is", "state")


@click.command()
@click.option("--interval", type=click.FloatRange(min=0.2), default=2.0, show_default=True, help="Seconds.")
@click.option("--count", "-n", type=click.IntRange(min=0), default=0, help="End after so many looks (0: with Ctrl-C).")
@click.option("--rows", "number", type=click.IntRange(min=1), default=20, show_default=True, help="Show the fullest.")
@click.option("--filter", "pattern", default="*", help="Only queues whose names match, such as *orders*.")
@click.option("--empty", is_flag=True, help="Also queues that are empty and do not change.")
@json_option
@connected
def top(
    qm: QueueManager, interval: float, count: int, number: int, pattern: str, empty: bool, as_json: bool
) -> None:  # fmt: skip
    """Show the fullest queues, again and again: messages, how their number changes, the age of the first.

    The protocols of MSMQ tell how many messages a queue holds, not how many came and went, nor who waits for them: so
    change/s is what came less what went.
    """
    before, then, looks = None, 0.0, 0
    with live_table(_COLUMNS, as_json) as show:
        while True:
            now, found = time.monotonic(), look(qm)
            everything = rows(found, before, now - then)
            shown = [
                row
                for row in everything
                if fnmatch.fnmatch(row.name.lower(), pattern.lower()) and (empty or row.depth.messages or row.change)
            ]
            lines = with_age(qm, shown[:number])
            if as_json:
                for row in lines:
                    print_json({"queue": row.name, **row.depth._asdict(), "change": row.change, "oldest": row.oldest})
                sys.stdout.flush()
            else:
                show([_cells(row, time.time()) for row in lines], f"{len(lines)} of {len(everything)} queues")
            before, then, looks = found, now, looks + 1
            if count and looks >= count:
                return
            time.sleep(interval)


def _cells(row: Row, now: float) -> list[Any]:
    change = "" if row.change is None else f"{row.change:+,.1f}"
    age = "" if row.oldest is None else _age(max(0, now - row.oldest))
    depth = row.depth
    return [row.name, f"{depth.messages:,}", change, f"{depth.bytes:,}", f"{depth.journal:,}", age, depth.state]


def _age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} old"
    return f"{seconds:.0f} s old"
