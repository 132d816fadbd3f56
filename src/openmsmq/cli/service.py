"""`openmsmq serve|fsck|protocols`"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import click

from openmsmq.cli.output import echo, json_option, print_json, print_table
from openmsmq.server.config import Configuration, ConfigurationError
from openmsmq.server.interfaces import check_interfaces
from openmsmq.server.loading import load

_KINDS = {"int": int, "int | None": int, "float": float, "str": str, "bool": bool}


def _settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each setting of the configuration."""
    for field in reversed(fields(Configuration)):
        if "file_only" in field.metadata or "internal" in field.metadata:
            continue
        kind = str(field.type)
        flag = "--" + field.name.replace("_", "-")
        text = field.metadata["help"]
        if "bool" in kind:
            command = click.option(f"{flag}/--no-{flag[2:]}", field.name, default=None, help=text)(command)
        else:
            option_type = click.Path(path_type=Path) if "Path" in kind else _KINDS[kind]
            shown = text if "default" in text or field.default is None else f"{text} (default {field.default})"
            command = click.option(flag, field.name, type=option_type, default=None, help=shown)(command)
    return command


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="TOML file with the same settings.")
@_settings
def serve(config: Path | None, **options: Any) -> None:
    """Run the queue manager until SIGTERM.

    Prints one line of JSON when it accepts calls; logs go to standard error. Every setting can also be given in
    --config (rpc_port = 2103) or in the environment (OPENMSMQ_RPC_PORT=2103).
    """
    from openmsmq.server.daemon import check_interpreter, run

    try:
        check_interpreter()
        configuration = load(config, options=options)
        check_interfaces(configuration)
        code = run(configuration)  # finds settings that do not match the store
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None
    sys.exit(code)


class NotVerified(click.ClickException):
    """The store could not be read, so nothing is known about it."""

    exit_code = 2


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--repair", is_flag=True, help="Move damaged records into a quarantine file; keep all other records.")
@click.option("--quarantine", type=click.Path(path_type=Path), help="Quarantine file; default: DIRECTORY/quarantine-N.")
@json_option
def fsck(directory: Path, repair: bool, quarantine: Path | None, as_json: bool) -> None:
    """Verify the complete store in a data DIRECTORY; the daemon reads only the log since the last checkpoint.

    Exit code 0 if it is intact, 1 if not, 2 if it was not verified: DIRECTORY contains no store, a daemon uses it, a
    newer version wrote it, or a file cannot be read.
    """
    from openmsmq.store import fsck as store_fsck
    from openmsmq.store.errors import NoStore, StoreInUse, UnknownFormat
    from openmsmq.store.ownership import current
    from openmsmq.store.vfs import OsVfs

    store = directory / "store"
    if current(OsVfs(), str(store.absolute())) is None:
        store = directory
    try:
        _fsck(store_fsck, store, directory, repair, quarantine, as_json)
    except (NoStore, StoreInUse) as error:
        raise click.UsageError(str(error)) from None
    except (UnknownFormat, OSError) as error:
        raise NotVerified(f"{error}; the store was not verified") from None


def _fsck(store_fsck: Any, store: Path, directory: Path, repair: bool, quarantine: Path | None, as_json: bool) -> None:
    if repair:
        target = quarantine or _unused(directory)
        repaired = store_fsck.repair(str(store), str(target))
        report = repaired.after
        if repaired.quarantined:
            echo(f"{len(repaired.quarantined)} damaged ranges moved to {target}", err=as_json)
    else:
        report = store_fsck.verify(str(store))
    if as_json:
        print_json({**asdict(report), "clean": report.clean})
    else:
        for damage in report.damages:
            echo(f"DAMAGED {damage}")
        for damage in report.weak:
            echo(f"weak    {damage}")
        echo(
            f"{len(report.segments)} segments, {report.records} records, {report.messages} messages, "
            f"{report.definitions} definitions, {report.torn_bytes} torn bytes"
        )
        echo("clean" if report.clean else "DAMAGED: openmsmq fsck --repair")
    sys.exit(0 if report.clean else 1)


def _unused(directory: Path) -> Path:
    return next(path for n in itertools.count(1) if not (path := directory / f"quarantine-{n}").exists())


@click.command()
@json_option
@click.option("--markdown", is_flag=True, help="Print the table as Markdown, for docs/operations.md.")
@click.option(
    "--summary", is_flag=True, help="Print the number of operations per interface as Markdown, for the README."
)
def protocols(as_json: bool, markdown: bool, summary: bool) -> None:
    """List the interfaces and operations that are implemented, with the tests that verify them."""
    from openmsmq.cli.protocol_table import markdown_summary, markdown_table, rows

    if as_json:
        print_json(rows())
    elif markdown:
        echo(markdown_table(), multiline=True)
    elif summary:
        echo(markdown_summary(), multiline=True)
    else:
        print_table(["interface", "opnum", "operation", "state", "test"], [list(row.values()) for row in rows()])
