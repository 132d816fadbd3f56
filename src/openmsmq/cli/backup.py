"""`openmsmq backup|restore`"""

from __future__ import annotations

from pathlib import Path

import click

from openmsmq.actions.backups import (
    MadeBackup,
    NamedBackup,
    NewBackup,
    back_up_to,
    document_of,
    list_backups,
    start_backup,
    verify_backup,
)
from openmsmq.actions.table import ActionsHere, Empty
from openmsmq.admin.backup import BackupError, verify
from openmsmq.admin.backup import restore as restore_backup
from openmsmq.cli.accounts import Accounts, accounts_options
from openmsmq.cli.derived import show
from openmsmq.cli.output import echo, json_option, report
from openmsmq.cli.places import Actions, AdminTarget, place_options
from openmsmq.cli.recording import LocalAudit
from openmsmq.model.text import counted


@click.command()
@click.argument("directory", required=False)
@click.option("--list", "listed", is_flag=True, help="With --url: show the backups made through HTTP.")
@click.option("--verify", "verified", is_flag=True, help="Verify the backup in DIRECTORY; make none.")
@json_option
@place_options
def backup(place: AdminTarget, directory: str | None, listed: bool, verified: bool, as_json: bool) -> None:
    """Copy the data directory of a daemon, which may be running, into a new DIRECTORY.

    The backup contains everything that was durable when it began. It does not contain express messages, which are in
    memory only. The command then reads and verifies the whole copy.

    With --url, DIRECTORY is a name in the server's backup_directory (default: the current time), and the copy stays
    there. For administrators of the queue manager. If this command is interrupted, the server still completes the
    backup.
    """
    if verified:
        if directory is None:
            raise click.UsageError("--verify needs the DIRECTORY of a backup")
        with place.open() as side:
            _verify(side, directory, as_json)
        return
    if listed:
        place.demand_http("--list")
        if directory is not None:
            raise click.UsageError("--list shows all backups and does not take a DIRECTORY")
        with place.open() as side:
            show(list_backups.commands[0].show, side.perform(list_backups, Empty()), as_json)
        return
    with place.open() as side:
        if not isinstance(side, ActionsHere):
            done: MadeBackup = side.perform(start_backup, NewBackup(directory))
        elif directory is not None:
            known = place.configuration()
            done = back_up_to(side.site, directory, (known.users_path, known.directory_file))
        else:
            raise click.UsageError(
                "DIRECTORY is missing: give a new directory, into which the data directory is copied"
            )
    for path in done.outside:
        echo(f"{path} is outside the data directory and not in the backup: back it up separately", err=True)
    parts = [counted(done.messages, "message")] if done.messages is not None else []
    if done.definitions is not None and done.segments is not None and done.files is not None:
        parts += [
            counted(done.definitions, "definition"),
            f"{counted(done.segments, 'segment')} of the log with {done.bytes:,} bytes",
            counted(done.files, "other file"),
        ]
    report(as_json, f"{done.where}: {', '.join(parts)}", document_of(done))


def _verify(side: Actions, directory: str, as_json: bool) -> None:
    if not isinstance(side, ActionsHere):
        started = side.perform(verify_backup, NamedBackup(directory)).job
        report(as_json, f"job {started.id} verifies it: openmsmq job show {started.id}", {"job": started.id})
        return
    try:
        done = verify(Path(directory))
    except (BackupError, OSError) as error:
        raise click.ClickException(str(error)) from None
    text = f"{directory} is intact: {counted(done.messages, 'message')}"
    report(as_json, text, {"backup": directory, "messages": done.messages})


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@json_option
@accounts_options
def restore(accounts: Accounts, directory: Path, as_json: bool) -> None:
    """Restore the backup in DIRECTORY into a data directory, which must be empty or new.

    On a machine with another name, the daemon does not start until the setting name_change says how to treat the
    change. As root, first create the data directory and give it to the daemon's user: the restored files get the same
    owner.
    """
    data_dir = accounts.configuration.data_dir
    try:
        done = restore_backup(directory, data_dir)
    except BackupError as error:
        raise click.ClickException(str(error)) from None
    LocalAudit(accounts.configuration)("backup.restore", "backup", str(directory), count=done.messages)
    report(
        as_json, f"restored {counted(done.messages, 'message')} into {data_dir}",
        {"data_dir": str(data_dir), "messages": done.messages, "definitions": done.definitions},
    )  # fmt: skip
