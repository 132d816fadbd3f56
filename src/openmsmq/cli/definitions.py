"""`openmsmq definitions export|import|diff`"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from openmsmq.actions.definitions import (
    DefinitionsQuery,
    DefinitionsRequest,
    DoneStep,
    PlannedStep,
    definitions_of,
    export_definitions,
    import_definitions,
)
from openmsmq.actions.errors import ActionIncomplete, ActionRefused
from openmsmq.actions.table import ActionPlan, ActionsHere
from openmsmq.admin.checked_json import strict
from openmsmq.admin.definitions import DONE, LEFT, Document, unreadable
from openmsmq.admin.definitions_schema import DefinitionsError, parse
from openmsmq.admin.http_requests import ApiError
from openmsmq.cli.accounts import Accounts, accounts_options
from openmsmq.cli.connection import Address, connect, level_option, server_options
from openmsmq.cli.output import echo, json_option, output_file, print_json
from openmsmq.cli.places import Actions, AdminTarget, http_options
from openmsmq.client.sync import QueueManager
from openmsmq.model.text import counted, printable_json, some_of

_local = click.option(
    "--local",
    is_flag=True,
    help="Include users, groups, rights on the machine and settings, from the data directory or the HTTP API of --url.",
)
_file = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.group()
def definitions() -> None:
    """Export queues, rights, users and settings to a file, compare them with a file, or import a file.

    With --url, all data comes from the HTTP API of a daemon; --url takes precedence over --host.
    """


def _side(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `side` and `local`."""

    @_local
    @http_options("host", "port", "port_offset", "user", "kerberos", "config", "data_dir", "users_file")
    @accounts_options
    @server_options
    @level_option
    @functools.wraps(command)
    def wrapper(
        *args: Any, place: AdminTarget, accounts: Accounts, address: Address, level: str | None, **kwargs: Any
    ) -> Any:
        if place.is_here:
            with connect(address, level) as qm:
                return command(*args, side=ActionsHere(accounts.site(qm)), **kwargs)
        with place.open() as side:
            return command(*args, side=side, **kwargs)

    return wrapper


@definitions.command("export")
@output_file
@click.option("--secrets", is_flag=True, help="Include password hashes, which are as sensitive as passwords.")
@_side
def export_(side: Actions, local: bool, file: Path | None, secrets: bool) -> None:
    """Write definitions as JSON to FILE or standard output (-), always in the same order.

    Public queues are not included: they are in the directory, which `openmsmq directory queues` lists.

    Exit code 1 if you may not read a queue or its permissions; the others are written.
    """
    if not secrets:
        document = side.perform(export_definitions, DefinitionsQuery(local))
    elif not isinstance(side, ActionsHere):
        raise click.UsageError("--secrets requires a data directory: the HTTP API does not return password hashes")
    elif not local:
        raise click.UsageError("--secrets needs --local")
    else:
        document = definitions_of(side.site, local=True, secrets=True)
    text = _text(document)
    if file is None:
        echo(text.rstrip("\n"), multiline=True)
    else:
        file.touch(mode=0o600 if secrets else 0o644)
        if secrets:
            file.chmod(0o600)
        file.write_text(text, encoding="utf-8")
        echo(f"wrote {file}", err=True)
    if isinstance(side, ActionsHere) and (public := _public_queues(side.site.manager)):
        echo(f"not included: {counted(public, 'open public queue')}; the directory has public queues", err=True)
    if missing := unreadable(document):
        raise click.ClickException(
            f"incomplete: you may not read {counted(len(missing), 'queue')}, or their permissions: {some_of(missing)}"
        )


def _public_queues(qm: QueueManager) -> int:
    """Return the number of public queues that are open; no published protocol lists the others."""
    active = qm.management(None, "active_queues")["active_queues"]
    return sum(name.startswith("PUBLIC=") for name in active)


@definitions.command("diff")
@_file
@json_option
@_side
def diff(side: Actions, local: bool, file: Path, as_json: bool) -> None:
    """Show what an import of FILE would change. Exit code 1 if there are differences."""
    steps = _plan(side, file, local).would().steps
    _show(steps, as_json)
    sys.exit(1 if steps else 0)


@definitions.command("import")
@_file
@click.option("--dry-run", is_flag=True, help="Only show the changes, without making them.")
@json_option
@_side
def import_(side: Actions, local: bool, file: Path, dry_run: bool, as_json: bool) -> None:
    """Create missing objects and change those that differ from FILE. Nothing is deleted, and no message is touched.

    If FILE contains any error, nothing is changed. Changes that fail are reported, and the others are made. Exit code 1
    if one failed.
    """
    plan = _plan(side, file, local)
    planned = plan.would().steps
    failed = 0
    if dry_run or not planned:
        _show(planned, as_json)
    else:
        try:
            done = plan.carry_out()
        except ActionIncomplete as incomplete:
            done = incomplete.output
        if len(done.steps) != len(planned):
            raise ApiError(f"the import had {counted(len(done.steps), 'step')}, but its dry run had {len(planned):,}")
        _show(done.steps, as_json)
        failed = sum(step.result not in (DONE, LEFT) for step in done.steps)
    count = sum(step.can for step in planned)
    if not as_json:
        echo(f"would be done: {counted(count, 'step')}" if dry_run else f"done: {counted(count - failed, 'step')}")
    if failed:
        raise click.ClickException(f"{counted(failed, 'step')} failed")


def _plan(side: Actions, file: Path, local: bool) -> ActionPlan[Any, Any]:
    try:
        return side.plan(import_definitions, DefinitionsRequest(parse(strict(file.read_bytes())), local))
    except (ValueError, DefinitionsError, ActionRefused) as error:
        raise click.ClickException(f"{file}: {error}") from None


def _show(steps: list[PlannedStep] | list[DoneStep], as_json: bool) -> None:
    for step in steps:
        result = step.result if isinstance(step, DoneStep) else "" if step.can else LEFT
        if as_json:
            print_json({"step": step.said, "result": result or "would be done"})
        else:
            echo(f"{step.said}{f'  [{result}]' if result else ''}")


def _text(document: Document) -> str:
    """Return JSON with line breaks and the escapes of `printable_json`."""
    return json.dumps(json.loads(printable_json(document)), indent=1, ensure_ascii=True) + "\n"
