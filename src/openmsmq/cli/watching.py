"""`openmsmq tail`: watch a queue without changing it."""

from __future__ import annotations

from collections.abc import Callable

import click

from openmsmq.admin.naming import path_of
from openmsmq.cli.connection import connected, protocol_option
from openmsmq.cli.numbers import COUNT
from openmsmq.cli.output import json_option
from openmsmq.cli.showing import show_message
from openmsmq.client.open_queue import ProtocolWord
from openmsmq.client.sync import Cursor, QueueManager
from openmsmq.model.errors import ReceiveTimeout
from openmsmq.model.message import Message


@click.command()
@click.argument("queue")
@click.option("--from-start", is_flag=True, help="First show the messages that are already there.")
@click.option("--count", "-n", type=COUNT, default=0, help="Stop after this number of messages (0: never).")
@protocol_option
@json_option
@connected
def tail(qm: QueueManager, queue: str, from_start: bool, count: int, protocol: ProtocolWord, as_json: bool) -> None:
    """Show each message that arrives, without removing it. Ends with Ctrl-C.

    A message that is received immediately may not be shown. A message whose priority puts it before one that was
    already shown is not shown.
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
    """Return the action that peeks the next message to arrive. The cursor has passed the existing ones."""
    try:
        cursor.peek(0)
    except ReceiveTimeout:
        return cursor.peek
    try:
        while True:
            cursor.peek_next(0)
    except ReceiveTimeout:
        return cursor.peek_next
