"""`openmsmq msg`: move or reject single messages, and return dead letters to their destination queues."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from openmsmq.cli.body_text import show
from openmsmq.cli.connection import connected
from openmsmq.cli.output import echo, json_option, print_json, print_table, time_text
from openmsmq.cli.showing import class_name
from openmsmq.client.dead_letters import DEAD_LETTER_QUEUES, send_back, walk
from openmsmq.client.sync import Cursor, QueueManager
from openmsmq.model.constants import MessageClass
from openmsmq.model.errors import MessageNotFound, ReceiveTimeout
from openmsmq.model.message import Message
from openmsmq.model.text import printable
from openmsmq.operating.naming import path_of

_PREVIEW = 200  # characters of a body

dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be done.")
id_option = click.option("--id", "ids", multiple=True, help="Message identifier, as peek shows it; may be repeated.")
all_option = click.option("--all", "everything", is_flag=True, help="All messages of the queue.")


@click.group()
def msg() -> None:
    """Move or reject single messages; return dead letters to their destination queues."""


@msg.command()
@click.argument("queue")
@id_option
@all_option
@click.option("--to", "subqueue", default="", help="Subqueue to move to; without it back to the queue itself.")
@dry_run_option
@json_option
@connected
def move(
    qm: QueueManager, queue: str, ids: tuple[str, ...], everything: bool, subqueue: str, dry_run: bool, as_json: bool
) -> None:
    """Move messages between QUEUE and its subqueues. QUEUE;NAME is a subqueue; it is created by moving a message into
    it."""
    name = path_of(queue)
    head = name.partition(";")[0]
    target = f"{head};{subqueue}" if subqueue else head
    if target.lower() == name.lower():
        raise click.UsageError(
            f"the messages are already in {queue}; give --to SUBQUEUE, or QUEUE;SUBQUEUE without --to"
        )
    wanted = _selection(ids, everything)
    with qm.open(name, protocol="remoteread") as opened:
        chosen = [message for message in opened if wanted(message)]
        _check_found(ids, chosen)
        done = []
        for message in chosen:
            if not dry_run:
                try:
                    opened.move(message.lookup_identifier, subqueue)
                except MessageNotFound:  # somebody was faster
                    continue
            done.append(message)
    _show_done(done, as_json, dry_run, "moved", lambda message: target)


@msg.command()
@click.argument("queue")
@id_option
@dry_run_option
@json_option
@connected
def reject(qm: QueueManager, queue: str, ids: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Reject messages of a transactional QUEUE: they are removed, and the sender's dead-letter copy and negative
    acknowledgment are made as the sender requested."""
    if not ids:
        raise click.UsageError("give --id for each message to reject")
    name = path_of(queue)
    with qm.open(name, "peek", protocol="remoteread") as remote:
        chosen = [message for message in remote if message.id in ids]
    _check_found(ids, chosen)
    if not dry_run:
        with qm.open(name, protocol="remoteread") as remote, qm.open(name, protocol="qmcomm") as local:
            for message in chosen:
                with qm.transaction() as transaction, local.cursor() as cursor:
                    _stand_on(cursor, message.id)
                    cursor.receive(0, transaction=transaction)
                    remote.reject(message.lookup_identifier)
    _show_done(chosen, as_json, dry_run, "rejected", lambda message: class_name(MessageClass.NACK_RECEIVE_REJECTED))


def _reason(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """The name of a class of dead letters, which may be given without NACK_, or its number."""
    if value is None:
        return None
    if re.fullmatch("0x[0-9a-f]{1,4}", value.lower()):
        return class_name(int(value, 16))
    known = [kind.name for kind in MessageClass if kind.name.startswith("NACK_")]
    for name in (value.upper(), f"NACK_{value.upper()}"):
        if name in known:
            return name
    raise click.BadParameter(f"{value!r}, allowed: {', '.join(known)}, or a number like 0x8001")


@msg.command("return")
@click.argument("queue", required=False)
@id_option
@all_option
@click.option("--reason", callback=_reason, help="Only messages with this reason: a class as `dlq reasons` shows it.")
@click.option("--meant-for", help="Only those whose destination contains this text.")
@dry_run_option
@json_option
@connected
def return_(
    qm: QueueManager,
    queue: str | None,
    ids: tuple[str, ...],
    everything: bool,
    reason: str | None,
    meant_for: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Send dead letters again to their destination queues, and remove them from the dead-letter queue.

    Without QUEUE from both dead-letter queues. Each transactional message is moved in a transaction: it is in one of
    the two places, never in both. Others are sent first and removed afterwards.
    """
    filtered = reason is not None or meant_for is not None
    wanted = _selection(ids, everything or (filtered and not ids))
    done: list[Message] = []
    for name in [path_of(queue)] if queue else DEAD_LETTER_QUEUES:
        with qm.open(name, protocol="qmcomm") as dead:
            for cursor, message in walk(dead):
                named = reason is None or class_name(message.message_class) == reason
                meant = meant_for is None or meant_for.lower() in message.destination_queue_format_name.lower()
                if named and meant and wanted(message):
                    if not dry_run:
                        send_back(qm, cursor, message)
                    done.append(message)
    _check_found(ids, done)
    _show_done(done, as_json, dry_run, "returned", lambda message: message.destination_queue_format_name)


def _stand_on(cursor: Cursor, identifier: str) -> None:
    """Move a new cursor to a message. Raises MessageNotFound."""
    try:
        message = cursor.peek(0)
        while message.id != identifier:
            message = cursor.peek_next(0)
    except ReceiveTimeout:
        raise MessageNotFound(detail=f"message {identifier} is no longer in the queue") from None


def _selection(ids: tuple[str, ...], everything: bool) -> Callable[[Message], bool]:
    if bool(ids) == everything:
        raise click.UsageError("give either --id, which may be repeated, or --all")
    return (lambda message: message.id in ids) if ids else (lambda message: True)


def _check_found(ids: tuple[str, ...], found: list[Message]) -> None:
    missing = set(ids) - {message.id for message in found}
    if missing:
        raise MessageNotFound(detail=f"no such message: {', '.join(sorted(missing))}")


def _show_done(
    messages: list[Message], as_json: bool, dry_run: bool, verb: str, where: Callable[[Message], str]
) -> None:
    """A line for each message; people get a table with a preview."""
    rows: list[dict[str, Any]] = [
        {
            "id": message.id,
            "sent": time_text(message.sent_time),
            "reason": class_name(message.message_class),
            "label": message.label,
            "to": where(message),
            "body": _preview(message),
        }
        for message in messages
    ]
    if as_json:
        for row in rows:
            print_json({**row, "done": not dry_run})
        return
    if rows:
        print_table(list(rows[0]), [list(row.values()) for row in rows])
    echo(f"{'would be ' if dry_run else ''}{verb}: {len(rows)}")


def _preview(message: Message) -> str:
    text = printable(" ".join(show(message).text.split()))
    return text if len(text) <= _PREVIEW else text[: _PREVIEW - 1] + "…"
