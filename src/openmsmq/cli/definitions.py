"""`openmsmq definitions export|import|diff`"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import click

from openmsmq.accounts.users import UsersFile
from openmsmq.admin.administration.by_http import HttpAdministration, PlannedStepInfo
from openmsmq.admin.checked_json import strict
from openmsmq.admin.data_directories import demand
from openmsmq.admin.definitions import DONE, LEFT, Document, apply, export, plan, unreadable
from openmsmq.admin.definitions_schema import DefinitionsError, parse
from openmsmq.admin.guards import Guard
from openmsmq.admin.http_requests import ApiError
from openmsmq.admin.settings import settings_in_force
from openmsmq.cli.accounts import Accounts, accounts_options
from openmsmq.cli.connection import Address, connect, level_option, server_options
from openmsmq.cli.output import echo, json_option, print_json
from openmsmq.cli.places import AdminTarget, http_options
from openmsmq.cli.recording import LocalAudit
from openmsmq.client.sync import QueueManager
from openmsmq.model.text import counted, printable_json

_local = click.option(
    "--local",
    is_flag=True,
    help="Also users, groups, rights on the machine and settings: of the data directory, or by the HTTP API of --url.",
)
_file = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


class _Local:
    """See `operating.definitions.Local`."""

    def __init__(self, accounts: Accounts) -> None:
        configuration = accounts.configuration
        record = LocalAudit(configuration)
        self.users = UsersFile(configuration.users_path, on_change=lambda action, name: record(action, "user", name))
        self.machine: Guard = accounts.machine()
        self.settings = settings_in_force(demand(configuration.data_dir))


@click.group()
def definitions() -> None:
    """Write down queues, rights, users and settings; compare them with a file; make them as a file says.

    With --url, the HTTP API of a daemon is asked for all of it, and goes before --host.
    """


class _Steps(NamedTuple):
    """What an import does. `said` and whether it can be done, of each step; `results` does them, and says of each
    `done`, `left`, or what was wrong."""

    planned: list[PlannedStepInfo]
    results: Callable[[], Iterator[str]]


class _Side(Protocol):
    """A queue manager whose definitions are meant."""

    def export(self, *, secrets: bool) -> Document: ...

    def plan(self, wanted: Document) -> _Steps:
        """Raises DefinitionsError."""


class _ByRpc:
    """By the protocols of MSMQ; what they do not carry is in the data directory."""

    def __init__(self, qm: QueueManager, accounts: Accounts, local: bool) -> None:
        self._qm, self._accounts = qm, accounts
        self._local = _Local(accounts) if local else None

    def export(self, *, secrets: bool) -> Document:
        local = self._local
        if secrets and local is None:
            raise click.UsageError("--secrets needs --local")
        settings = local.settings if local is not None else None
        return export(self._qm, self._accounts.names(), local, settings, secrets=secrets)

    def plan(self, wanted: Document) -> _Steps:
        steps = plan(self._qm, wanted, self.export(secrets=False), self._sid, self._local)
        return _Steps([PlannedStepInfo(step.said, step.apply is not None) for step in steps], lambda: map(apply, steps))

    def _sid(self, who: str) -> str:
        """Raises ValueError for a name that nobody knows."""
        try:
            return self._accounts.sid(who)
        except click.UsageError as error:
            raise ValueError(error.message) from None


class _ByHttp:
    """By the HTTP API alone."""

    def __init__(self, http: HttpAdministration, local: bool) -> None:
        self._http, self._local = http, local

    def export(self, *, secrets: bool) -> Document:
        if secrets:
            raise click.UsageError("--secrets is for a data directory: the HTTP API gives no hashes of passwords")
        return self._http.definitions(local=self._local)

    def plan(self, wanted: Document) -> _Steps:
        steps, token = self._http.differences(wanted, local=self._local)

        def results() -> Iterator[str]:
            done = self._http.import_definitions(wanted, token, local=self._local)
            if len(done) != len(steps):
                raise ApiError(f"the import has {counted(len(done), 'step')}, and its dry run {len(steps):,}")
            for step in done:
                yield step.result

        return _Steps(steps, results)


def _side(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `side`."""

    @_local
    @http_options("host", "port", "port_offset", "user", "kerberos", "config", "data_dir", "users_file")
    @accounts_options
    @server_options
    @level_option
    @functools.wraps(command)
    def wrapper(
        *args: Any,
        place: AdminTarget,
        accounts: Accounts,
        address: Address,
        level: str | None,
        local: bool,
        **kwargs: Any,
    ) -> Any:
        if place.is_here:
            with connect(address, level) as qm:
                return command(*args, side=_ByRpc(qm, accounts, local), **kwargs)
        with place.http() as http:
            return command(*args, side=_ByHttp(http, local), **kwargs)

    return wrapper


@definitions.command("export")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("--secrets", is_flag=True, help="With the hashes of passwords, which are as good as passwords.")
@_side
def export_(side: _Side, file: Path | None, secrets: bool) -> None:
    """Write definitions as JSON to FILE or standard output, always in the same order.

    Exit code 1 if a queue, or its permissions, can't be read by you; the others are written.
    """
    document = side.export(secrets=secrets)
    text = _text(document)
    if file is None:
        echo(text.rstrip("\n"), multiline=True)
    else:
        file.touch(mode=0o600 if secrets else 0o644)
        if secrets:
            file.chmod(0o600)
        file.write_text(text, encoding="utf-8")
        echo(f"wrote {file}", err=True)
    if missing := unreadable(document):
        raise click.ClickException(
            f"not complete: {counted(len(missing), 'queue')} can't be read by you, or not their permissions: "
            f"{', '.join(missing)}"
        )


@definitions.command("diff")
@_file
@json_option
@_side
def diff(side: _Side, file: Path, as_json: bool) -> None:
    """Show what an import of FILE would change. Exit code 1 if there is anything."""
    steps = _plan(side, file)
    _show(steps, as_json, done=False)
    sys.exit(1 if steps.planned else 0)


@definitions.command("import")
@_file
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@json_option
@_side
def import_(side: _Side, file: Path, dry_run: bool, as_json: bool) -> None:
    """Create and change what FILE has and is not so here. Nothing is deleted, and no message is touched.

    Nothing is changed if anything in FILE is wrong. What cannot be done is named and left; the rest is done. Exit code
    1 if something failed.
    """
    steps = _plan(side, file)
    failed = _show(steps, as_json, done=not dry_run)
    count = sum(step.can for step in steps.planned)
    if not as_json:
        echo(f"would be done: {counted(count, 'step')}" if dry_run else f"done: {counted(count - failed, 'step')}")
    if failed:
        raise click.ClickException(f"{counted(failed, 'step')} failed")


def _plan(side: _Side, file: Path) -> _Steps:
    try:
        document = strict(file.read_bytes())
        return side.plan(parse(document))
    except (ValueError, DefinitionsError) as error:
        raise click.ClickException(f"{file}: {error}") from None


def _show(steps: _Steps, as_json: bool, done: bool) -> int:
    """Show each step, and do it; returns how many failed."""
    failed = 0
    results = steps.results() if done and steps.planned else ("" if step.can else LEFT for step in steps.planned)
    for step, result in zip(steps.planned, results, strict=True):
        failed += result not in ("", DONE, LEFT)
        if as_json:
            print_json({"step": step.said, "result": result or "would be done"})
        else:
            echo(f"{step.said}{f'  [{result}]' if result else ''}")
    return failed


def _text(document: Document) -> str:
    """Escaped as `printable_json` does, on many lines."""
    return json.dumps(json.loads(printable_json(document)), indent=1, ensure_ascii=True) + "\n"
