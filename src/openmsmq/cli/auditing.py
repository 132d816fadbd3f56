"""`openmsmq audit`, and records of what commands change in a data directory themselves."""

from __future__ import annotations

import fnmatch
import os
import pwd
from typing import TYPE_CHECKING, Any

import click

from openmsmq.cli.accounts import Accounts, accounts_options
from openmsmq.cli.output import echo, json_option, print_json, print_table
from openmsmq.operating.audit import AuditLog, Entry

if TYPE_CHECKING:
    from openmsmq.server.config import Configuration


class LocalAudit:
    """Records what this command changes, under the name of who runs it."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def __call__(
        self, action: str, kind: str, name: str, before: dict[str, Any] | None = None,
        after: dict[str, Any] | None = None, count: int | None = None,
    ) -> None:  # fmt: skip
        """Called before the change is made. Raises ClickException if it is not to be made then. Where there is no data
        directory there is no daemon, and nothing is recorded."""
        configuration = self._configuration
        if not configuration.audit or not configuration.data_dir.is_dir():
            return
        log = AuditLog(configuration.data_dir, size=configuration.audit_megabytes << 20)
        entry = Entry(action, kind, name, _who(), origin="cli", before=before, after=after, count=count)
        try:
            log.append(entry)
        except OSError as error:
            if configuration.audit_required:
                raise click.ClickException(
                    f"nothing was changed: the audit log can't be written ({error}), and audit_required is set"
                ) from None
            echo(f"the audit log can't be written: {error}", err=True)


def _who() -> str:
    """The user of the process, and behind sudo who that was."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = f"uid {os.getuid()}"
    return f"{name} (sudo: {os.environ['SUDO_USER']})" if os.environ.get("SUDO_USER") else name


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
