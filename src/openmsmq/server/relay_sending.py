"""Hands the messages of a queue here to the outgoing queue for a queue of another machine, in turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from openmsmq.model.constants import PropId, QueueAccessMask
from openmsmq.model.errors import MsmqError
from openmsmq.model.message import Message
from openmsmq.model.security import ADMINISTRATORS, EVERYONE, LOCAL_SYSTEM, SecurityDescriptor, allow
from openmsmq.queueing.authorization import SYSTEM
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import OutgoingQueue
from openmsmq.queueing.queue import Queue
from openmsmq.relaying.records import put_progress
from openmsmq.relaying.relay import Relay
from openmsmq.store import Operation

logger = logging.getLogger(__name__)

#: Where messages come back that the other machine refuses, as negative acknowledgments with their bodies.
UNDELIVERED: Final = ".\\private$\\relay_undelivered"
PERIOD: Final = 0.1  # seconds between looks
AT_ONCE: Final = 256  # messages in one change
MOST_WAITING: Final = 2_000  # messages in the outgoing queue; more stay where programs here can still read them
PAUSE: Final = 5.0  # seconds after something has failed


class RelaySender:
    """The work of a relay whose messages go to another machine, until it is cancelled."""

    def __init__(
        self, relay: Relay, queue: Callable[[], Queue], manager: QueueManager, now: Callable[[], int]
    ) -> None:
        """`queue` finds the queue here, and raises MsmqError; `now` returns seconds since 1970 UTC."""
        self._relay, self._queue, self._manager, self._now = relay, queue, manager, now

    async def run(self) -> None:
        """Until it is cancelled, which never interrupts a change."""
        while True:
            try:
                moved = self._turn()
            except MsmqError as error:
                if self._relay.fails(str(error), self._now()):
                    logger.warning(
                        "queue %s: no messages can be sent to %s, and that is tried again: %s",
                        self._relay.definition.queue, self._relay.remote_name, error,
                    )  # fmt: skip
                await asyncio.sleep(PAUSE)
                continue
            self._relay.works()
            await asyncio.sleep(0 if moved == AT_ONCE else PERIOD)

    def _turn(self) -> int:
        relay, queue = self._relay, self._queue()
        outgoing = outgoing_queue(self._manager, relay)
        under_way = len(outgoing) if outgoing is not None else 0
        relay.waiting = len(queue)
        if relay.waiting or under_way:
            relay.empty_since = 0
        elif not relay.empty_since:
            relay.empty_since = self._now()
        limit = min(AT_ONCE, MOST_WAITING - under_way)
        if limit <= 0 or queue.first() is None:
            return 0
        progress = relay.progress

        def also(messages: list[Message]) -> Operation:
            nonlocal progress
            progress = relay.handing_on(messages, self._now())
            return put_progress(relay.definition.queue, progress)

        undelivered = ensure_undelivered(self._manager)
        moved = self._manager.relays.hand_on(queue, relay.remote_name, undelivered, limit, also)
        relay.progress = progress
        return moved


def outgoing_queue(manager: QueueManager, relay: Relay) -> OutgoingQueue | None:
    """The outgoing queue that a relay uses, if there is one now."""
    return manager.registry.outgoing_queue(relay.remote_name)


def ensure_undelivered(manager: QueueManager) -> str:
    """The format name of the queue for what other machines refuse, which is made if it is not there. Anybody may send
    to it, as acknowledgments come from machines that do not log in; administrators read it."""
    path = manager.registry.by_name.get(UNDELIVERED.rpartition("\\")[2])
    if path is None:
        everything = QueueAccessMask.GENERIC_ALL
        descriptor = SecurityDescriptor(
            owner=ADMINISTRATORS, group=ADMINISTRATORS,
            dacl=(
                allow(ADMINISTRATORS, everything), allow(LOCAL_SYSTEM, everything),
                allow(EVERYONE, QueueAccessMask.WRITE_MESSAGE),
            ),
        )  # fmt: skip
        label = {PropId.PROPID_Q_LABEL: "messages that other machines refused"}
        manager.administration.create_queue(UNDELIVERED, label, descriptor.pack(), SYSTEM)
    return f"DIRECT=OS:{UNDELIVERED}"
