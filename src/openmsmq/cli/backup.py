"""`openmsmq backup|restore`"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from openmsmq.cli.accounts import Accounts, accounts_options
from openmsmq.cli.output import echo, json_option, report
from openmsmq.cli.recording import LocalAudit
from openmsmq.model.text import counted
from openmsmq.operating.backup import BackupError, back_up
from openmsmq.operating.backup import restore as restore_backup


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
@json_option
@accounts_options
def backup(accounts: Accounts, directory: Path, as_json: bool) -> None:
    """Copy the data directory of a daemon, which may run meanwhile, into a new DIRECTORY.

    Everything that was durable when the backup began is in it. Express messages live in memory and are not. The copy is
    read through once, so a backup that is written is a sound one.
    """
    configuration = accounts.configuration
    try:
        done = back_up(configuration.data_dir, directory, datetime.now(UTC).isoformat(timespec="seconds"))
    except BackupError as error:
        raise click.ClickException(str(error)) from None
    LocalAudit(configuration)("backup.make", "backup", str(directory), count=done.messages)
    for setting, path in (("users_file", configuration.users_path), ("directory_path", configuration.directory_file)):
        if configuration.data_dir.resolve() not in path.resolve().parents and path.exists():
            echo(f"{setting} is {path}, outside of the data directory: back it up as well", err=True)
    text = (
        f"{directory}: {counted(done.messages, 'message')}, {counted(done.definitions, 'definition')}, "
        f"{counted(done.segments, 'segment')} of the log with {done.bytes:,} bytes, {counted(done.files, 'other file')}"
    )
    document = {"backup": str(directory), "messages": done.messages, "definitions": done.definitions,
                "segments": done.segments, "bytes": done.bytes, "files": done.files}  # fmt: skip
    report(as_json, text, document)


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@json_option
@accounts_options
def restore(accounts: Accounts, directory: Path, as_json: bool) -> None:
    """Make the data directory of a daemon from the backup in DIRECTORY; it must be empty or new.

    On a machine with another name the daemon asks at its start what is meant: see the setting name_change. As root,
    make the data directory first, and give it to the user of the daemon: the files get its owner.
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
