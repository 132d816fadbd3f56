"""Dead letters: iterating over a queue with a cursor that may receive, and sending a message again to its
destination."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from openmsmq.client.sync import Cursor, MessageQueue, QueueManager
from openmsmq.model.constants import MessageClass
from openmsmq.model.errors import HResult, MsmqError, ReceiveTimeout
from openmsmq.model.message import Message

DEAD_LETTER_QUEUES = ("DIRECT=OS:.\\SYSTEM$;DEADLETTER", "DIRECT=OS:.\\SYSTEM$;DEADXACT")


def walk(queue: MessageQueue) -> Iterator[tuple[Cursor, Message]]:
    """Each message, with a cursor that stands on it and may receive it."""
    with queue.cursor() as cursor:
        look: Callable[[float | None], Message] = cursor.peek
        while True:
            try:
                message = look(0)
            except ReceiveTimeout:
                return
            yield cursor, message
            # Once the cursor's message is taken, `peek` looks at the next one; otherwise it would stay.
            look = _next_of(cursor)


def _next_of(cursor: Cursor) -> Callable[[float | None], Message]:
    def look(timeout: float | None) -> Message:
        try:
            return cursor.peek_next(timeout)
        except MsmqError as error:
            if error.hresult != HResult.MQ_ERROR_ILLEGAL_CURSOR_ACTION:
                raise
        return cursor.peek(timeout)

    return look


def send_back(qm: QueueManager, cursor: Cursor, message: Message) -> None:
    """Send the message that the cursor stands on to its destination queue, and remove it.

    A transactional message is moved in a transaction: it is in one of the two places, never in both. Others are sent
    first and removed afterwards.
    """
    copy = replace(message, message_class=MessageClass.NORMAL)
    with qm.open(message.destination_queue_format_name, "send") as target:
        if message.is_transactional:
            with qm.transaction() as transaction:
                cursor.receive(0, transaction=transaction)
                target.send(copy, transaction=transaction)
        else:
            target.send(copy)
            cursor.receive(0)
