"""`openmsmq pipeline groups|release|stages|forget`: what streams hold in queues, and how to let go of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from openmsmq.cli.connection import FLIGHT_PORT, Address, flight_options, server_options
from openmsmq.cli.output import print_json, print_table
from openmsmq.cli.queues import json_option

if TYPE_CHECKING:
    from openmsmq.bulk.client import BulkClient

_SOURCES = ("queue", "journal", "deadletter", "xactdeadletter", "outgoing")


def _bulk(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `bulk`, a client of Arrow Flight."""

    @server_options
    @flight_options
    @functools.wraps(command)
    def wrapper(*args: Any, address: Address, flight_port: int | None, tls_root: str | None, **kwargs: Any) -> Any:
        try:
            from openmsmq.bulk.client import BulkClient
        except ModuleNotFoundError as missing:
            raise click.ClickException(f"this needs {missing.name}: pip install openmsmq[flight]") from None
        port = flight_port or FLIGHT_PORT + address.port_offset
        with BulkClient(address.host, port, address.user, address.password(), tls_root) as bulk:
            return command(bulk, *args, **kwargs)

    return wrapper


@click.command()
@json_option
@_bulk
def groups(bulk: BulkClient, as_json: bool) -> None:
    """Consumer groups: how far they are, and what they hold, hidden from ordinary readers."""
    found = bulk.groups()
    if as_json:
        for group in found:
            print_json(asdict(group))
        return
    columns = ("queue", "source", "group", "cursor", "end", "count")
    rows = [[getattr(group, column) for column in columns] for group in found]
    print_table(("QUEUE", "SOURCE", "GROUP", "REMOVED UP TO", "CLAIMED UP TO", "CLAIMED"), rows)


@click.command()
@click.argument("queue")
@click.argument("group")
@click.option("--source", type=click.Choice(_SOURCES), default="queue", show_default=True)
@click.option("--forget", is_flag=True, help="Drop the group and its position, too.")
@json_option
@_bulk
def release(bulk: BulkClient, queue: str, group: str, source: str, forget: bool, as_json: bool) -> None:
    """Put back what a consumer GROUP holds of QUEUE, for ordinary readers; its stream claims anew."""
    count = bulk.release(queue, group, source, forget=forget)
    if as_json:
        print_json({"released": count, "forgotten": forget})
    else:
        click.echo(f"{count} messages are back in {queue}" + (f", and {group} is no more" if forget else ""))


@click.command()
@json_option
@_bulk
def stages(bulk: BulkClient, as_json: bool) -> None:
    """What sinks have written and not made visible: yours, or everybody's for an administrator."""
    found = bulk.stages()
    if as_json:
        for stage in found:
            print_json(asdict(stage))
        return
    columns = ("sink", "batch", "partition", "rows", "sealed", "owner")
    rows = [[*(getattr(stage, column) for column in columns), ", ".join(stage.queues)] for stage in found]
    print_table(("SINK", "BATCH", "PARTITION", "ROWS", "COMPLETE", "OWNER", "TO"), rows)


@click.command()
@click.argument("sink")
@click.option("--batch", type=int, help="Of this batch only.")
@json_option
@_bulk
def forget(bulk: BulkClient, sink: str, batch: int | None, as_json: bool) -> None:
    """Drop what SINK has staged, for a stream that will not come back: its rows are never sent."""
    count = bulk.forget(sink, batch)
    if as_json:
        print_json({"dropped": count})
    else:
        click.echo(f"{count} stages dropped")


COMMANDS = (groups, release, stages, forget)
