"""Remove messages from another machine that are already stored here, before messages are sent back to it.

A crash or a lost connection leaves messages at the other machine that are stored here. If they were sent back, they
would be there twice. The queue on the other machine is therefore searched, and these messages are received.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from openmsmq.client import operations
from openmsmq.client.calls import UNANSWERED
from openmsmq.client.open_queue import OpenQueue
from openmsmq.client.runner import Runner
from openmsmq.model.constants import MessageSeekAction, ReceiveAction
from openmsmq.model.errors import MessageNotFound, MsmqError, ReceiveTimeout
from openmsmq.relaying.relay import Relay

logger = logging.getLogger(__name__)

PAUSE: Final = 2.0  # seconds between searches


async def settle(relay: Relay, runner: Runner, queue: OpenQueue) -> None:
    """Remove the taken messages until none is left. Raises the exceptions of calls."""
    while relay.progress.taken:
        seen = await _look_through(relay, runner, queue)
        if not relay.progress.taken or not await _some_are_hidden(relay, runner, seen):
            break
        await asyncio.sleep(PAUSE)
    relay.removed(list(relay.progress.taken))


async def _look_through(relay: Relay, runner: Runner, queue: OpenQueue) -> int:
    """Search the queue once. Return the number of messages that remain there."""
    seen = 0
    cursor = await runner.run(queue.create_cursor())
    action = ReceiveAction.PEEK_CURRENT
    try:
        while True:
            message = await runner.run(queue.peek(action, 0, cursor))
            action = ReceiveAction.PEEK_NEXT
            if not relay.is_taken(message):
                seen += 1
                continue
            taken = await runner.run(
                queue.take_by_lookup_identifier(message.lookup_identifier, MessageSeekAction.CURRENT)
            )
            if taken.request is not None:
                await runner.run(queue.end(taken.request, True))
            relay.removed([message.identifier])
    except (ReceiveTimeout, MessageNotFound):
        return seen
    finally:
        await runner.run(queue.close_cursor(cursor))


async def _some_are_hidden(relay: Relay, runner: Runner, seen: int) -> bool:
    """Whether the other machine has more messages than are visible, because it still holds the locks of a lost
    connection. False if it does not support MS-MQMR, which reports the number."""
    try:
        found = await runner.run(operations.management(str(relay.remote_name), "message_count"))
    except UNANSWERED:
        raise
    except MsmqError:
        return False
    count = found["message_count"]
    hidden = isinstance(count, int) and count > seen
    if hidden:
        logger.info(
            "queue %s: waiting until %s has put back %d messages that it had locked for a lost connection",
            relay.definition.queue, relay.remote_name, count - seen,
        )  # fmt: skip
    return hidden
