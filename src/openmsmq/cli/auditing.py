"""`openmsmq audit`"""

from __future__ import annotations

from typing import Any

import click

from openmsmq.admin.audit import AuditFilter
from openmsmq.cli.output import json_option, print_json, print_table
from openmsmq.cli.places import AdminTarget, place_options


@click.command()
@click.option("--count", "-n", type=click.IntRange(min=0), default=20, show_default=True, help="The newest (0: all).")
@click.option("--action", default="*", help="Pattern for the action, such as queue.*.")
@click.option("--by", default="*", help="Pattern for who did it: name or SID.")
@click.option("--object", "name", default="*", help="Pattern for what it was done to, such as *orders*.")
@click.option("--denied", is_flag=True, help="Only what was denied.")
@json_option
@place_options
def audit(place: AdminTarget, count: int, action: str, by: str, name: str, denied: bool, as_json: bool) -> None:
    """Show who changed what, from where and how much: the audit log in the data directory of a daemon.

    With --url, of the daemon whose HTTP API that is, for administrators of the queue manager.
    """
    with place.open() as daemon:
        found = daemon.audit(AuditFilter(action, name, by, denied), count)
    if as_json:
        for record in found:
            print_json(record)
        return
    rows = [
        [r["time"], r["actor"]["name"], " ".join(filter(None, r["from"].values())), r["action"], r["object"]["name"],
         "" if r["count"] is None else r["count"], r["result"], _difference(r)]
        for r in found
    ]  # fmt: skip
    print_table(["time", "who", "from", "action", "object", "count", "result", "change"], rows)


def _difference(record: dict[str, Any]) -> str:
    before, after = record["before"] or {}, record["after"] or {}
    return ", ".join(
        f"{name}: {before[name]} -> {value}" if name in before else f"{name}: {value}" for name, value in after.items()
    )
