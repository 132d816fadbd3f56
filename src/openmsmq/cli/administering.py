"""`openmsmq machine|outgoing`: the queue manager as a whole, and its outgoing queues."""

from __future__ import annotations

from typing import Any, Final

import click

from openmsmq.actions import outgoing as outgoing_actions
from openmsmq.actions import permissions, queues
from openmsmq.actions.by_http import perform
from openmsmq.actions.outgoing import delete_outgoing
from openmsmq.actions.queues import QueueRemoval, queue_named
from openmsmq.admin.explaining import explanation
from openmsmq.admin.naming import path_of
from openmsmq.cli.asking import confirm
from openmsmq.cli.connection import Address, connect, connected, level_option, server_options
from openmsmq.cli.derived import add_commands
from openmsmq.cli.messages import show_first
from openmsmq.cli.numbers import COUNT
from openmsmq.cli.output import dry_run_option, echo, json_option, management_rows, print_json, print_table, report
from openmsmq.cli.web_api import ApiOptions, api_options
from openmsmq.client.sync import QueueManager
from openmsmq.model.constants import Access
from openmsmq.model.text import counted

_MOST_NAMES: Final = 20  # names of queues that are shown for a machine


@click.group(invoke_without_command=True)
@json_option
@server_options
@level_option
@click.pass_context
def machine(context: click.Context, address: Address, level: str | None, as_json: bool) -> None:
    """Show the properties of the queue manager, or act on it as an administrator."""
    if context.invoked_subcommand is None:
        with connect(address, level) as qm:
            _show_machine(qm, as_json)


add_commands(machine, permissions.ACTIONS)


@machine.command("show")
@json_option
@connected
def machine_show(qm: QueueManager, as_json: bool) -> None:
    """Show the properties of the queue manager."""
    _show_machine(qm, as_json)


def _show_machine(qm: QueueManager, as_json: bool) -> None:
    properties = {"machine_id": qm.machine_id, "version": qm.version, **qm.management()}
    if as_json:
        print_json(properties)
    else:
        shown = {name: _shortened(value) if isinstance(value, list) else value for name, value in properties.items()}
        print_table(["property", "value"], management_rows(shown))


def _shortened(names: list[Any]) -> list[Any]:
    """Return the first names, and how many more there are: a machine may have 99,000 queues."""
    more = len(names) - _MOST_NAMES
    return names if more <= 0 else [*names[:_MOST_NAMES], f"and {more:,} more (openmsmq queue list, or --json)"]


@machine.command("connect")
@json_option
@connected
def machine_connect(qm: QueueManager, as_json: bool) -> None:
    """Resume the transfer of messages to other machines. For administrators."""
    qm.connect_machine()
    report(as_json, "connect: done", {"action": "connect"})


@machine.command("disconnect")
@json_option
@connected
def machine_disconnect(qm: QueueManager, as_json: bool) -> None:
    """Pause the transfer of messages to other machines until `connect` or a restart. For administrators."""
    qm.disconnect_machine()
    report(as_json, "disconnect: done", {"action": "disconnect"})


@machine.command("tidy")
@json_option
@connected
def machine_tidy(qm: QueueManager, as_json: bool) -> None:
    """Release disk space that is not needed; no message is deleted. For administrators."""
    qm.tidy()
    report(as_json, "tidy: done", {"action": "tidy"})


@click.group()
def outgoing() -> None:
    """Manage outgoing queues, which hold messages for other machines.

    NAME is the format name of the destination (DIRECT=OS:server\\private$\\orders) or its path name.
    """


add_commands(outgoing, (*outgoing_actions.ACTIONS, *queues.ACTIONS))


@outgoing.command("list")
@json_option
@connected
def list_(qm: QueueManager, as_json: bool) -> None:
    """List the outgoing queues that have messages or are open."""
    found = sorted(qm.outgoing(), key=lambda row: str(row["format_name"]).lower())
    if as_json:
        for properties in found:
            print_json(properties)
        return
    columns = ["format_name", "state", "message_count", "bytes_in_queue"]
    print_table(["queue", "state", "messages", "bytes"], [[row[c] for c in columns] for row in found])


@outgoing.command()
@click.argument("name")
@json_option
@connected
def show(qm: QueueManager, name: str, as_json: bool) -> None:
    """Show why messages wait, and what to do about it."""
    properties = qm.management(path_of(name))
    state = explanation(properties, qm.management(None, "connected")["connected"])
    if as_json:
        print_json({**properties, "explanation": state})
        return
    for line in state:
        echo(line)
    print_table(["property", "value"], management_rows(properties))


@outgoing.command()
@click.argument("name")
@click.option(
    "--count", "-n", type=COUNT, default=10, show_default=True, help="Maximum number of messages (0: no limit)."
)
@json_option
@connected
def peek(qm: QueueManager, name: str, count: int, as_json: bool) -> None:
    """Show messages that wait for transfer. For administrators."""
    show_first(qm, path_of(name), Access.PEEK_ADMIN, count, as_json)


@outgoing.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@dry_run_option
@json_option
@api_options
def delete(api: ApiOptions, name: str, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Delete an outgoing queue and its messages, which are then never delivered.

    If their senders asked for it, they become dead letters or are negatively acknowledged. This includes messages that
    the destination has received but not yet finally acknowledged. No published protocol offers this, so the command
    uses the HTTP API of a daemon. For administrators of the queue manager, with a token of the role administrator. The
    audit log records it.
    """
    with api.client() as client:
        queue = queue_named(client, name)
        if queue.kind != "outgoing":
            raise click.UsageError(f"{queue.name} is not an outgoing queue")
        count = queue.messages
        document = {"queue": queue.name, "messages": count, "done": not dry_run}
        if dry_run:
            report(as_json, f"would be deleted: {queue.name}, {counted(count, 'message')}", document)
            return
        if count and not yes:
            confirm(f"Delete {counted(count, 'message')} waiting for {queue.name}?")
        gone = perform(client, delete_outgoing, QueueRemoval(queue.id, count))
    text = f"deleted {queue.name}: {counted(gone.messages, 'message')}"
    report(as_json, text, {**document, "messages": gone.messages})
