"""`openmsmq definitions export|import|diff`"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from openmsmq.cli.accounts import Accounts, accounts_options
from openmsmq.cli.connection import connected
from openmsmq.cli.output import echo, json_option, print_json
from openmsmq.cli.recording import LocalAudit
from openmsmq.client.sync import QueueManager
from openmsmq.model.errors import MsmqError
from openmsmq.model.text import counted, printable_json
from openmsmq.operating.definitions import DefinitionsError, Document, Step, check, export, plan
from openmsmq.operating.guards import Guard
from openmsmq.operating.settings import settings_in_force
from openmsmq.rpc.users import UsersFile, UsersFileError

_local = click.option(
    "--local", is_flag=True, help="Also users, groups, rights on the machine and settings, of the data directory."
)
_file = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


class _Local:
    """See `operating.definitions.Local`."""

    def __init__(self, accounts: Accounts) -> None:
        configuration = accounts.configuration
        record = LocalAudit(configuration)
        self.users = UsersFile(configuration.users_path, on_change=lambda action, name: record(action, "user", name))
        self.machine: Guard = accounts.machine()
        self.settings = settings_in_force(configuration.data_dir)


@click.group()
def definitions() -> None:
    """Write down queues, rights, users and settings; compare them with a file; make them as a file says."""


def _both(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `qm`, `accounts` and `local`, None without --local."""

    @_local
    @accounts_options
    @connected
    @functools.wraps(command)
    def wrapper(qm: QueueManager, *args: Any, local: bool, accounts: Accounts, **kwargs: Any) -> Any:
        return command(qm, *args, accounts=accounts, local=_Local(accounts) if local else None, **kwargs)

    return wrapper


@definitions.command("export")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("--secrets", is_flag=True, help="With the hashes of passwords, which are as good as passwords.")
@_both
def export_(qm: QueueManager, file: Path | None, secrets: bool, accounts: Accounts, local: _Local | None) -> None:
    """Write definitions as JSON to FILE or standard output, always in the same order."""
    if secrets and local is None:
        raise click.UsageError("--secrets needs --local")
    text = _text(_here(qm, accounts, local, secrets=secrets))
    if file is None:
        echo(text.rstrip("\n"), multiline=True)
        return
    file.touch(mode=0o600 if secrets else 0o644)
    if secrets:
        file.chmod(0o600)
    file.write_text(text, encoding="utf-8")
    echo(f"wrote {file}", err=True)


@definitions.command("diff")
@_file
@json_option
@_both
def diff(qm: QueueManager, file: Path, as_json: bool, accounts: Accounts, local: _Local | None) -> None:
    """Show what an import of FILE would change. Exit code 1 if there is anything."""
    steps = _plan(qm, file, accounts, local)
    _show(steps, as_json, done=False)
    sys.exit(1 if steps else 0)


@definitions.command("import")
@_file
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@json_option
@_both
def import_(
    qm: QueueManager, file: Path, dry_run: bool, as_json: bool, accounts: Accounts, local: _Local | None
) -> None:
    """Create and change what FILE has and is not so here. Nothing is deleted, and no message is touched.

    What cannot be done is named and left; the rest is done. Exit code 1 if something failed.
    """
    steps = _plan(qm, file, accounts, local)
    failed = _show(steps, as_json, done=not dry_run)
    count = sum(step.apply is not None for step in steps)
    if not as_json:
        echo(f"would be done: {counted(count, 'step')}" if dry_run else f"done: {counted(count - failed, 'step')}")
    if failed:
        raise click.ClickException(f"{counted(failed, 'step')} failed")


def _plan(qm: QueueManager, file: Path, accounts: Accounts, local: _Local | None) -> list[Step]:
    try:
        wanted = check(json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, DefinitionsError) as error:
        raise click.ClickException(f"{file}: {error}") from None
    return plan(qm, wanted, _here(qm, accounts, local), accounts.sid, local)


def _here(qm: QueueManager, accounts: Accounts, local: _Local | None, *, secrets: bool = False) -> Document:
    return export(qm, accounts.names(), local, local.settings if local else None, secrets=secrets)


def _show(steps: list[Step], as_json: bool, done: bool) -> int:
    """Show each step, and do it; returns how many failed."""
    failed = 0
    for step in steps:
        result = "" if step.apply is not None else "left"
        if done and step.apply is not None:
            try:
                step.apply()
                result = "done"
            except (MsmqError, UsersFileError, ValueError, click.UsageError) as error:
                result, failed = f"failed: {error}", failed + 1
        if as_json:
            print_json({"step": step.said, "result": result or "would be done"})
        else:
            echo(f"{step.said}{f'  [{result}]' if result else ''}")
    return failed


def _text(document: Document) -> str:
    """Escaped as `printable_json` does, on many lines."""
    return json.dumps(json.loads(printable_json(document)), indent=1, ensure_ascii=True) + "\n"
