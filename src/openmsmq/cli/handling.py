"""`openmsmq msg`: find messages and their bodies, move, copy, change, reject or delete them."""

from __future__ import annotations

import time
from contextlib import closing

import click

from openmsmq.admin.acting import Act, MessageAction
from openmsmq.admin.editing import MessageEdits
from openmsmq.admin.naming import path_of
from openmsmq.admin.selection import Criteria, Selection, search
from openmsmq.cli.connection import connected, protocol_option
from openmsmq.cli.dead_letters import purge, resend
from openmsmq.cli.editing import changes_options
from openmsmq.cli.output import echo, json_option
from openmsmq.cli.selecting import SelectionOptions, carry_out, criteria_options, perform, selection_options
from openmsmq.cli.showing import show_message, write_body
from openmsmq.client.open_queue import ProtocolWord
from openmsmq.client.sync import Cursor, QueueManager
from openmsmq.model.errors import MessageNotFound
from openmsmq.model.message import Message
from openmsmq.model.text import counted

_SCAN = 100_000  # messages that a search reads unless an option changes it
_FOUND = 100
_to_queue = click.option("--to-queue", help="Target queue, on this or another machine (DIRECT=OS:...).")
_transaction = click.option(
    "--transaction", is_flag=True, help="Treat the target as transactional (required if it is remote)."
)


@click.group()
def msg() -> None:
    """Find messages; move, copy, change, reject or delete individual messages."""


@msg.command()
@click.argument("queue")
@criteria_options
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=_FOUND,
    show_default=True,
    help="Maximum number of messages to show (0: all).",
)
@click.option(
    "--scan",
    type=click.IntRange(min=0),
    default=_SCAN,
    show_default=True,
    help="Maximum number of messages to read (0: all).",
)
@protocol_option
@json_option
@connected
def find(
    qm: QueueManager, queue: str, criteria: Criteria, limit: int, scan: int, protocol: ProtocolWord, as_json: bool
) -> None:
    """Show the messages of QUEUE that match all options."""
    found = Selection()
    look = search(qm, path_of(queue), criteria, time.time(), found, limit=limit, scan=scan, protocol=protocol)
    with closing(look):
        for number, message in enumerate(look):
            show_message(message, number, as_json)
    scanned = f"found {len(found.chosen)}, looked at {counted(found.scanned, 'message')}"
    echo(scanned if found.complete else f"{scanned}; stopped at a limit: see --limit and --scan", err=True)


@msg.command()
@click.argument("queue")
@click.argument("identifier", metavar="ID")
@protocol_option
@connected
def body(qm: QueueManager, queue: str, identifier: str, protocol: ProtocolWord) -> None:
    """Write the body of one message to standard output, byte for byte, and leave the message where it is.

    ID is the identifier of the message, as `msg find` shows it.
    """
    only = Criteria(ids=frozenset([identifier]))
    with closing(
        search(qm, path_of(queue), only, time.time(), Selection(), limit=1, scan=0, protocol=protocol)
    ) as found:
        message = next(found, None)
    if message is None:
        raise MessageNotFound(detail=f"no such message: {identifier}")
    write_body(message)


@msg.command()
@click.argument("queue")
@selection_options
@click.option("--to", "subqueue", default="", help="Subqueue to move to (default: the queue itself).")
@_to_queue
@_transaction
@connected
def move(
    qm: QueueManager, queue: str, wanted: SelectionOptions, subqueue: str, to_queue: str | None, transaction: bool,
    dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Move messages between QUEUE and its subqueues, or to another queue.

    QUEUE;NAME is a subqueue; it is created by moving a message into it. A move within a queue is atomic. A move to
    another queue is one transaction if both queues are on this server and transactional. Otherwise the message is sent
    first and removed afterwards. The output shows which method was used.
    """
    name = path_of(queue)
    if to_queue is not None:
        if subqueue:
            raise click.UsageError("give --to or --to-queue, not both")
        _send_on(qm, wanted, "move", name, to_queue, transaction, dry_run, as_json)
        return
    head = name.partition(";")[0]
    target = f"{head};{subqueue}" if subqueue else head
    if target.lower() == name.lower():
        raise click.UsageError(
            f"the messages are already in {queue}; give --to SUBQUEUE, QUEUE;SUBQUEUE without --to, or --to-queue"
        )
    with qm.open(name, protocol="remoteread") as opened:

        def action(_: Cursor, message: Message) -> str:
            opened.move(message.lookup_identifier, subqueue)
            return "moved"

        carry_out(qm, wanted, [name], action, verb="moved", to=lambda chosen: target, dry_run=dry_run, as_json=as_json)


def _send_on(
    qm: QueueManager, wanted: SelectionOptions, act: Act, queue: str, to_queue: str, transaction: bool, dry_run: bool,
    as_json: bool,
) -> None:  # fmt: skip
    target = path_of(to_queue)
    deed = MessageAction(act, (path_of(queue),), target, in_transaction=transaction)
    verb = "moved" if act == "move" else "copied"
    perform(qm, wanted, deed, verb=verb, to=lambda chosen: target, dry_run=dry_run, as_json=as_json)


@msg.command()
@click.argument("queue")
@selection_options
@click.option("--to-queue", required=True, help="Target queue, on this or another machine (DIRECT=OS:...).")
@_transaction
@connected
def copy(
    qm: QueueManager,
    queue: str,
    wanted: SelectionOptions,
    to_queue: str,
    transaction: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Send copies of messages of QUEUE to another queue, without removing them."""
    _send_on(qm, wanted, "copy", queue, to_queue, transaction, dry_run, as_json)


@msg.command("resend")
@click.argument("queue")
@selection_options
@changes_options
@click.option(
    "--to-queue",
    help="Target queue (default: QUEUE; if it is a journal, dead-letter queue or subqueue: the message's destination).",
)
@click.option("--keep", is_flag=True, help="Send a copy and leave the message where it is.")
@_transaction
@connected
def resend_(
    qm: QueueManager, queue: str, wanted: SelectionOptions, changes: MessageEdits, edit: bool, to_queue: str | None,
    keep: bool,
    transaction: bool, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Send changed copies of messages of QUEUE, with new identifiers and at the end of the queue, and remove the
    originals.
    """
    source = path_of(queue)
    target = to_queue or (None if ";" in source else queue)
    resend(
        qm, wanted, [source], changes, edit, target, transaction=transaction, keep=keep,
        dry_run=dry_run, as_json=as_json,
    )  # fmt: skip


@msg.command()
@click.argument("queue")
@selection_options
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@connected
def delete(qm: QueueManager, queue: str, wanted: SelectionOptions, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Delete messages of QUEUE: they are received and discarded."""
    purge(qm, wanted, [path_of(queue)], yes, dry_run, as_json)


@msg.command()
@click.argument("queue")
@selection_options
@connected
def reject(qm: QueueManager, queue: str, wanted: SelectionOptions, dry_run: bool, as_json: bool) -> None:
    """Reject messages of a transactional QUEUE: they are removed, and the sender's dead-letter copy and negative
    acknowledgment are made as the sender requested."""
    name = path_of(queue)
    with qm.open(name, protocol="remoteread") as remote:

        def action(cursor: Cursor, message: Message) -> str:
            with qm.transaction() as transaction:
                cursor.receive(0, transaction=transaction)
                remote.reject(message.lookup_identifier)
            return "rejected"

        carry_out(qm, wanted, [name], action, verb="rejected", to=lambda chosen: "", dry_run=dry_run, as_json=as_json)
