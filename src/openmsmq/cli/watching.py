"""`openmsmq tail` and `openmsmq dlq`: watch queues and dead letters without changing them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import click

from openmsmq.cli.connection import connected, protocol_option
from openmsmq.cli.output import echo, json_option, print_json, print_table, time_text
from openmsmq.cli.showing import class_name, show_message
from openmsmq.client.dead_letters import DEAD_LETTER_QUEUES
from openmsmq.client.sync import Cursor, QueueManager
from openmsmq.model.errors import ReceiveTimeout
from openmsmq.model.message import Message
from openmsmq.operating.naming import path_of


@click.command()
@click.argument("queue")
@click.option("--from-start", is_flag=True, help="First show the messages that are already there.")
@click.option(
    "--count", "-n", type=click.IntRange(min=0), default=0, help="Stop after this number of messages (0: never)."
)
@protocol_option
@json_option
@connected
def tail(qm: QueueManager, queue: str, from_start: bool, count: int, protocol: str, as_json: bool) -> None:
    """Show each message that arrives and leave it in the queue. Ends with Ctrl-C.

    A message that is received immediately may not be shown; among messages with priorities, one that arrives in
    front of what was shown already is not seen.
    """
    with qm.open(path_of(queue), "peek", protocol=protocol) as opened, opened.cursor() as cursor:
        look = cursor.peek if from_start else _behind_the_last(cursor)
        shown = 0
        while not count or shown < count:
            message = look(None)
            look = cursor.peek_next
            show_message(message, shown, as_json)
            shown += 1


def _behind_the_last(cursor: Cursor) -> Callable[[float | None], Message]:
    """How to look at the first message to come: the cursor has gone past those that are there."""
    try:
        cursor.peek(0)
    except ReceiveTimeout:
        return cursor.peek
    try:
        while True:
            cursor.peek_next(0)
    except ReceiveTimeout:
        return cursor.peek_next


@click.group()
def dlq() -> None:
    """Show why messages became dead letters."""


@dlq.command()
@json_option
@connected
def reasons(qm: QueueManager, as_json: bool) -> None:
    """Count the messages in both dead-letter queues by reason and by destination queue."""
    counts: Counter[tuple[str, str]] = Counter()
    latest: dict[tuple[str, str], int] = {}
    for name in DEAD_LETTER_QUEUES:
        with qm.open(name, "peek") as opened:
            for message in opened:
                key = class_name(message.message_class), message.destination_queue_format_name
                counts[key] += 1
                latest[key] = max(latest.get(key, 0), message.sent_time)
    rows = [
        {"count": count, "reason": reason, "queue": queue, "last_sent": time_text(latest[reason, queue])}
        for (reason, queue), count in counts.most_common()
    ]
    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        print_table(list(rows[0]), [list(row.values()) for row in rows])
    else:
        echo("no dead letters")
