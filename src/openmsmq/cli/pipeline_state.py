"""`openmsmq pipeline groups|release|stages|forget`: claims and stages of streams: show and release them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from openmsmq.cli.connection import FLIGHT_PORT, Address, flight_options, server_options
from openmsmq.cli.numbers import COUNT
from openmsmq.cli.output import echo, json_option, print_json, print_table

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
    """List consumer groups: their positions, and the messages they have claimed, which other readers do not receive."""
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
@click.option("--forget", is_flag=True, help="Also delete the group and its position.")
@json_option
@_bulk
def release(bulk: BulkClient, queue: str, group: str, source: str, forget: bool, as_json: bool) -> None:
    """Release the claim of a consumer GROUP on QUEUE: other readers then receive the messages, and its stream claims
    new ones.
    """
    count = bulk.release(queue, group, source, forget=forget)
    if as_json:
        print_json({"released": count, "forgotten": forget})
    else:
        echo(f"{count} messages were put back into {queue}" + (f"; group {group} deleted" if forget else ""))


@click.command()
@json_option
@_bulk
def stages(bulk: BulkClient, as_json: bool) -> None:
    """List stages that are not finalized: your own, or, for an administrator, all."""
    found = bulk.stages()
    if as_json:
        for stage in found:
            print_json(asdict(stage))
        return
    columns = ("sink", "batch", "partition", "rows", "sealed", "idle_seconds", "owner")
    rows = [[*(getattr(stage, column) for column in columns), ", ".join(stage.queues)] for stage in found]
    print_table(("SINK", "BATCH", "PARTITION", "ROWS", "COMPLETE", "IDLE (S)", "OWNER", "TO"), rows)


@click.command()
@click.argument("sink")
@click.option("--batch", type=COUNT, help="Only stages of this batch.")
@click.option(
    "--sink",
    "memory",
    is_flag=True,
    help="Also delete the record of the sink's query and last batch, so that another query may write to it.",
)
@json_option
@_bulk
def forget(bulk: BulkClient, sink: str, batch: int | None, memory: bool, as_json: bool) -> None:
    """Drop the stages of a SINK whose stream will not resume: their rows are never sent."""
    count = bulk.forget(sink, batch, memory=memory)
    if as_json:
        print_json({"dropped": count, "sink_forgotten": memory})
    else:
        echo(f"{count} stages dropped" + (f", and another query may write to {sink}" if memory else ""))


COMMANDS = (groups, release, stages, forget)
