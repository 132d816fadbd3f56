"""`openmsmq dlq` and `openmsmq journal`: dead letters and journals."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import click

from openmsmq.admin.acting import MessageAction
from openmsmq.admin.dead_letters import groups
from openmsmq.admin.editing import MessageEdits
from openmsmq.admin.naming import DEAD_LETTER_QUEUES, path_of
from openmsmq.admin.selection import Chosen, Criteria, Selection, search, select
from openmsmq.cli import asking
from openmsmq.cli.connection import connected
from openmsmq.cli.editing import changes_options, edit_in_editor
from openmsmq.cli.numbers import COUNT, LIFETIME
from openmsmq.cli.output import echo, json_option, print_json, print_table
from openmsmq.cli.selecting import SelectionOptions, criteria_options, perform, selection_options
from openmsmq.cli.showing import show_message
from openmsmq.client.arguments import COUNTS
from openmsmq.client.sync import QueueManager
from openmsmq.model.errors import MsmqError, QueueNotFound
from openmsmq.model.reasons import reason_of
from openmsmq.model.remedies import for_terminal
from openmsmq.model.text import counted, some_of, time_text


def _checked(_context: click.Context, _parameter: click.Parameter, name: str | None) -> str | None:
    """Refuse a queue that holds messages which are alive."""
    owner, _, kind = path_of("deadletter" if name is None else name).lower().rpartition("\\")[2].rpartition(";")
    if kind in ("deadletter", "deadxact") and (owner == "system$" or owner.startswith("machine=")):
        return name
    raise click.BadParameter(f"{name!r}, allowed: deadletter, xactdeadletter, or the path name of such a queue")


_queue_option = click.option(
    "--queue",
    callback=_checked,
    help="Dead-letter queue: deadletter or xactdeadletter (default: both).",
    metavar="NAME",
)
_count = click.option("--count", "-n", type=COUNT, default=10, show_default=True, help="0: all.")
_transaction = click.option(
    "--transaction",
    is_flag=True,
    help="Send messages that were sent outside a transaction in one, to a transactional queue.",
)


def _queues(queue: str | None) -> list[str]:
    return [path_of(name) for name in ([queue] if queue else DEAD_LETTER_QUEUES)]


# -- dead letters --------------------------------------------------------------------------------------------------


@click.group()
def dlq() -> None:
    """Show why messages became dead letters; return, redirect or delete them."""


@dlq.command("list")
@_queue_option
@criteria_options
@json_option
@connected
def dlq_list(qm: QueueManager, queue: str | None, criteria: Criteria, as_json: bool) -> None:
    """Count dead letters by reason and destination, with the meaning and the remedy of each reason."""
    found = groups(select(qm, _queues(queue), criteria, time.time(), previews=False).chosen)
    if as_json:
        for group in found:
            print_json({"count": group.messages, "bytes": group.bytes, "reason": group.reason.name,
                        "slug": group.reason.slug, "code": f"0x{group.reason.code:04X}", "queue": group.destination,
                        "first_sent": time_text(group.first), "last_sent": time_text(group.last),
                        "meaning": group.reason.sentence, "remedy": group.reason.remedy})  # fmt: skip
        return
    if not found:
        echo("no dead letters")
        return
    print_table(
        ["count", "reason", "queue", "first sent", "last sent"],
        [[g.messages, g.reason.slug, g.destination, time_text(g.first), time_text(g.last)] for g in found],
    )
    echo()
    for reason in {group.reason.code: group.reason for group in found}.values():
        again = " Unchanged, it would become a dead letter again." if reason.fails_again else ""
        remedy = for_terminal(reason.remedy, reason.steps)
        echo(f"{reason.slug} ({reason.name}, 0x{reason.code:04X}): {reason.sentence} {remedy}{again}")


@dlq.command("show")
@_queue_option
@criteria_options
@_count
@json_option
@connected
def dlq_show(qm: QueueManager, queue: str | None, criteria: Criteria, count: int, as_json: bool) -> None:
    """Show dead letters with all their details."""
    found = Selection()
    for name in _queues(queue):
        with closing(search(qm, name, criteria, time.time(), found, limit=count, scan=0)) as look:
            for number, message in enumerate(look):
                show_message(message, number, as_json)
                if not as_json:
                    reason = reason_of(message.message_class)
                    echo(f"{'reason:':13}{reason.sentence} {for_terminal(reason.remedy, reason.steps)}")


@dlq.command("return")
@_queue_option
@selection_options
@click.option("--ttl", type=LIFETIME, help="New time limit to be received, in seconds from now.")
@click.option("--reach-ttl", type=LIFETIME, help="New time limit to reach the queue, in seconds from now.")
@_transaction
@connected
def dlq_return(
    qm: QueueManager, queue: str | None, wanted: SelectionOptions, ttl: int | None, reach_ttl: int | None,
    transaction: bool,
    dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Send dead letters to their original destinations, and remove them from the dead-letter queue.

    Messages that were sent in a transaction are moved in a transaction: each is in exactly one of the two queues at any
    time. All others are sent first and removed afterwards; if the command is killed in between, they are in both
    queues. The output shows which method was used.
    """
    changes = MessageEdits(time_to_be_received=ttl, time_to_reach_queue=reach_ttl)
    deed = MessageAction("return", tuple(_queues(queue)), changes=changes, in_transaction=transaction)
    perform(qm, wanted, deed, verb="returned", to=_destination, dry_run=dry_run, as_json=as_json)


def _destination(chosen: Chosen) -> str:
    again = " (will fail again)" if reason_of(chosen.message_class).fails_again else ""
    return chosen.destination + again


@dlq.command("resend")
@_queue_option
@selection_options
@changes_options
@click.option("--to", help="Queue to send to (default: the original destination of each message).")
@_transaction
@connected
def dlq_resend(
    qm: QueueManager, queue: str | None, wanted: SelectionOptions, changes: MessageEdits, edit: bool, to: str | None,
    transaction: bool, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Change or redirect dead letters, send them, and remove them from the dead-letter queue."""
    resend(
        qm, wanted, _queues(queue), changes, edit, to, transaction=transaction, keep=False, dry_run=dry_run,
        as_json=as_json,
    )  # fmt: skip


@dlq.command("purge")
@_queue_option
@selection_options
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@connected
def dlq_purge(
    qm: QueueManager, queue: str | None, wanted: SelectionOptions, yes: bool, dry_run: bool, as_json: bool
) -> None:  # fmt: skip
    """Delete dead letters."""
    purge(qm, wanted, _queues(queue), yes, dry_run, as_json)


# -- journals ------------------------------------------------------------------------------------------------------


def _journal_of(queue: str | None) -> str:
    if queue is None:
        return path_of("journal")
    path = path_of(queue)
    return path if path.lower().endswith(";journal") else f"{path};journal"


def _journal(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `path`: the path name of the journal of a queue or of the machine."""

    @click.argument("queue", required=False)
    @functools.wraps(command)
    def wrapper(*args: Any, queue: str | None, **kwargs: Any) -> Any:
        return command(*args, path=_journal_of(queue), **kwargs)

    return wrapper


@click.group()
def journal() -> None:
    """Show the journal of a QUEUE, or of the machine if no queue is named."""


@journal.command("list")
@json_option
@connected
def journal_list(qm: QueueManager, as_json: bool) -> None:
    """List journals that contain messages. Exit code 1 if you may not see one of them; the others are listed."""
    rows, refused = [], []
    names = [None, *sorted(qm.queues())]
    found = qm.management_of_each((path_of("journal") if name is None else name for name in names), *COUNTS)
    for name, counts in zip(names, found, strict=True):
        if isinstance(counts, QueueNotFound):  # deleted in the meantime
            continue
        if isinstance(counts, MsmqError):
            refused.append(f"{name or 'journal'} ({counts.name})")
            continue
        if isinstance(counts, Exception):
            raise counts
        messages = counts["message_count" if name is None else "journal_message_count"]
        if messages:
            size = counts["bytes_in_queue" if name is None else "bytes_in_journal"]
            rows.append({"queue": name or "journal", "messages": messages, "bytes": size})
    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        print_table(["queue", "messages", "bytes"], [list(row.values()) for row in rows])
    elif not refused:
        echo("the journals are empty")
    if refused:
        raise click.ClickException(f"not shown: {some_of(refused)}")


@journal.command("show")
@_journal
@criteria_options
@_count
@json_option
@connected
def journal_show(qm: QueueManager, path: str, criteria: Criteria, count: int, as_json: bool) -> None:
    """Show messages of a journal."""
    with closing(search(qm, path, criteria, time.time(), Selection(), limit=count, scan=0)) as look:
        for number, message in enumerate(look):
            show_message(message, number, as_json)


@journal.command("resend")
@_journal
@selection_options
@changes_options
@click.option("--to", help="Queue to send to (default: the original destination of each message).")
@click.option("--remove", is_flag=True, help="Remove them from the journal.")
@_transaction
@connected
def journal_resend(
    qm: QueueManager, path: str, wanted: SelectionOptions, changes: MessageEdits, edit: bool, to: str | None, remove:
    bool,
    transaction: bool, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Send copies of the messages in a journal, which keeps them unless --remove is given."""
    resend(
        qm, wanted, [path], changes, edit, to, transaction=transaction, keep=not remove, dry_run=dry_run,
        as_json=as_json,
    )  # fmt: skip


@journal.command("purge")
@_journal
@selection_options
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@connected
def journal_purge(
    qm: QueueManager, path: str, wanted: SelectionOptions, yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Delete messages from a journal."""
    purge(qm, wanted, [path], yes, dry_run, as_json)


# -- shared by both ----------------------------------------------------------------------------------------------


def resend(
    qm: QueueManager, wanted: SelectionOptions, queues: list[str], changes: MessageEdits, edit: bool, to: str | None, *,
    transaction: bool, keep: bool, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Send changed copies, and remove the original messages unless `keep` is set."""
    target = path_of(to) if to else None
    deed = MessageAction("copy" if keep else "resend", tuple(queues), target, changes, transaction)
    perform(
        qm, wanted, deed, verb="sent again", to=lambda chosen: target or chosen.destination,
        edit=edit_in_editor if edit else None, dry_run=dry_run, as_json=as_json,
    )  # fmt: skip


def purge(
    qm: QueueManager, wanted: SelectionOptions, queues: list[str], yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Delete the selected messages; ask for confirmation unless `yes` is set."""

    def confirm(count: int) -> None:
        if count and not yes:
            asking.confirm(f"Delete {counted(count, 'message')}?")

    perform(
        qm, wanted, MessageAction("delete", tuple(queues)), verb="deleted", to=lambda chosen: "", confirm=confirm,
        dry_run=dry_run, as_json=as_json,
    )  # fmt: skip
