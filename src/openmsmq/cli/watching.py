"""`openmsmq tail`: watch a queue without changing it."""

from __future__ import annotations

from collections.abc import Callable

import click

from openmsmq.admin.naming import path_of
from openmsmq.cli.connection import connected, protocol_option
from openmsmq.cli.numbers import COUNT
from openmsmq.cli.output import echo, json_option
from openmsmq.cli.showing import show_message
from openmsmq.client.calls import HandleLost
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
    already shown is not shown. If the queue manager restarts, the queue is opened again.
    """
    passed: int | None = 0 if from_start else None
    shown = 0
    while True:
        with qm.open(path_of(queue), "peek", protocol=protocol) as opened, opened.cursor() as cursor:
            try:
                look: Callable[[float | None], Message] = cursor.peek
                if passed is None:
                    look, passed = _behind_the_last(cursor)
                while not count or shown < count:
                    message = look(None)
                    look = cursor.peek_next
                    if passed and message.lookup_identifier <= passed:  # shown before the connection was lost
                        continue
                    show_message(message, shown, as_json)
                    shown += 1
                    passed = message.lookup_identifier or None  # without one, older messages cannot be recognized
                return
            except HandleLost:
                missed = "" if passed is not None else "; messages that arrive meanwhile are not shown"
                echo(f"openmsmq: the connection was lost; opening {queue} again{missed}", err=True)


def _behind_the_last(cursor: Cursor) -> tuple[Callable[[float | None], Message], int | None]:
    """Return the action that peeks the next message to arrive, and the lookup identifier of the last message: 0 if
    there is none, None if it is unknown. The cursor has passed the existing messages."""
    try:
        last = cursor.peek(0)
    except ReceiveTimeout:
        return cursor.peek, 0
    try:
        while True:
            last = cursor.peek_next(0)
    except ReceiveTimeout:
        return cursor.peek_next, last.lookup_identifier or None
