"""`openmsmq audit`"""

from __future__ import annotations

import fnmatch
from typing import Any

import click

from openmsmq.cli.accounts import Accounts, accounts_options
from openmsmq.cli.output import json_option, print_json, print_table
from openmsmq.operating.audit import AuditLog


@click.command()
@click.option("--count", "-n", type=click.IntRange(min=0), default=20, show_default=True, help="The newest (0: all).")
@click.option("--action", default="*", help="Pattern for the action, such as queue.*.")
@click.option("--by", default="*", help="Pattern for who did it.")
@click.option("--object", "name", default="*", help="Pattern for what it was done to, such as *orders*.")
@click.option("--denied", is_flag=True, help="Only what was denied.")
@json_option
@accounts_options
def audit(
    accounts: Accounts, count: int, action: str, by: str, name: str, denied: bool, as_json: bool
) -> None:  # fmt: skip
    """Show who changed what, from where and how much: the audit log in the data directory of a daemon."""
    found = [
        record
        for record in AuditLog(accounts.configuration.data_dir).read()
        if fnmatch.fnmatchcase(record["action"], action)
        and fnmatch.fnmatchcase(record["actor"]["name"].lower(), by.lower())
        and fnmatch.fnmatchcase(record["object"]["name"].lower(), name.lower())
        and (not denied or record["result"] == "denied")
    ]
    found = found[-count:] if count else found
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
