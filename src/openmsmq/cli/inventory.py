"""`openmsmq adopt inventory`: list queues, rights and settings of the machine to be replaced."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import click
import msgspec

from openmsmq.admin.definitions import Document
from openmsmq.admin.inventory import Inventory, InventoryQueue, InventoryService, take
from openmsmq.admin.inventory_export import read_export
from openmsmq.admin.inventory_remarks import definitions_of, remarks
from openmsmq.cli import inventory_report, inventory_sources
from openmsmq.cli.account_maps import accounts_in, accounts_option
from openmsmq.cli.connection import Address, connect_async, level_option, login_options
from openmsmq.cli.inventory_report import number, yes_no
from openmsmq.cli.output import echo, json_option, print_json, print_table
from openmsmq.model.text import counted, printable_json, reason_of, time_text
from openmsmq.peering.resolving import NOT_REACHED
from openmsmq.server.config import Configuration, ConfigurationError
from openmsmq.server.loading import load

_PORT_PATIENCE: Final = 3.0  # seconds
_PORTS: Final = ((135, "automation objects"), (1801, "messages of queue managers, for the way back"))
_EVERY: Final = 2.0  # seconds between two lines of progress
_file = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("host", required=False)
@click.option("--file", "export", type=_file, help="Output of tools/windows/Export-Msmq.ps1, to use instead of HOST.")
@click.option("--report", "html", type=_file, help="Write the inventory as an HTML page.")
@click.option("--definitions", type=_file, help="Write the queues to a file for `openmsmq definitions import`.")
@click.option(
    "--by",
    type=click.Choice(["protocols", "com"]),
    default="protocols",
    show_default=True,
    help="com: use the automation objects of HOST through DCOM; --port is then the port of the endpoint mapper "
    "(default 135).",
)
@click.option("--directory", is_flag=True, help="Include the public queues of HOST in the directory of this machine.")
@click.option("--directory-name", metavar="NAME", help="Name of HOST in the directory (default: HOST).")
@click.option("--config", type=_file, help="TOML file of the daemon here, for --directory.")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    envvar="OPENMSMQ_DATA_DIR",
    help="Data directory of the daemon here, for --directory.",
)
@click.option("--peek/--no-peek", default=True, show_default=True, help="Read the first message of each queue.")
@accounts_option
@login_options
@level_option
@json_option
def inventory(
    host: str | None, export: Path | None, html: Path | None, definitions: Path | None, by: str, directory: bool,
    directory_name: str | None, config: Path | None, data_dir: Path | None, peek: bool, accounts: Path | None,
    address_of: Callable[[str], Address], level: str | None, as_json: bool,
) -> None:  # fmt: skip
    """List the queues and rights of HOST, what could not be read, and what needs work or will not work here.

    HOST is not changed. Queues and counts are read through MS-MQMR, properties and rights through MS-MQMP, first
    messages through MS-MQRR. If Windows refuses one of these protocols, the rest is still shown. With --by com,
    properties are also available where MS-MQMP is refused, and rights if HOST returns them, but not first messages,
    subqueues and senders.
    """
    if (host is None) == (export is None):
        raise click.UsageError("give HOST, or --file with the output of Export-Msmq.ps1")
    if directory and (by == "com" or export is not None):
        raise click.UsageError("--directory requires --by protocols")
    known = accounts_in(accounts)
    if export is not None:
        found = _read(export)
    elif by == "com":
        found = inventory_sources.by_com(address_of(host or ""), level)
    else:
        listed = None
        if directory:
            listed = inventory_sources.from_directory(_configuration(config, data_dir), directory_name or host or "")
        found = asyncio.run(_take(address_of(host or ""), level, peek, listed))
    notes = remarks(found)
    if definitions is not None:
        wanted = definitions_of(found, known)
        _write(definitions, printable_json(wanted.document, indent=2) + "\n")
        for name, why in wanted.left_out.items():
            echo(f"not in {definitions}: queue {name}: {why}", err=True)
    if html is not None:
        _write(html, inventory_report.report(found, notes))
    if as_json:
        print_json(msgspec.to_builtins(found) | {"remarks": [each._asdict() for each in notes]})
        return
    print_table(_COLUMNS, [_cells(queue) for queue in found.queues])
    for each in found.outgoing:
        echo(f"outgoing {each.format_name}: {each.state}, {number(each.messages)} messages")
    for service in found.services:
        echo(f"{service.name}: {service.answer or 'answers'}")
    for remark in notes:
        echo(f"{remark.weight}: {remark.about}: {remark.said}: {remark.do}")


def _read(export: Path) -> Inventory:
    try:
        return read_export(export.read_bytes())
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{export}: {error}") from None


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(str(error)) from None


def _configuration(config: Path | None, data_dir: Path | None) -> Configuration:
    try:
        return load(config, options={"data_dir": data_dir})
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None


async def _take(
    address: Address, level: str | None, peek: bool, listed: Mapping[str, Document] | None
) -> Inventory:  # fmt: skip
    async with await connect_async(address, level) as manager:
        found = await take(manager, address.host, peek=peek, said=_Progress(), listed=listed)
    services = list(found.services)
    for port, what in _PORTS:
        services.append(await port_answer(address.host, port + address.port_offset, what))
    return msgspec.structs.replace(found, services=services)


async def port_answer(host: str, port: int, what: str) -> InventoryService:
    """Whether a TCP port can be reached."""
    name = f"port {port} ({what})"
    try:
        async with asyncio.timeout(_PORT_PATIENCE):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return InventoryService(name, f"nothing answered for {_PORT_PATIENCE:.0f} s; a firewall may drop it")
    except NOT_REACHED as error:
        return InventoryService(name, reason_of(error))
    writer.close()
    return InventoryService(name, "")


class _Progress:
    """Print a progress line on standard error every few seconds."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _EVERY

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _EVERY
            echo(f"{done:,} of {counted(total, 'queue')} asked", err=True)
            sys.stderr.flush()


_COLUMNS: Final = (
    "queue", "kind", "transactional", "messages", "bytes", "journal", "subqueues", "first is of", "not learned",
)  # fmt: skip


def _cells(queue: InventoryQueue) -> tuple[str, ...]:
    return (
        queue.name, queue.kind, yes_no(queue.transactional), number(queue.messages), number(queue.bytes),
        number(queue.journal_messages), ", ".join(queue.subqueues), time_text(queue.first.sent) if queue.first else "",
        ", ".join(each.item for each in queue.not_learned),
    )  # fmt: skip
