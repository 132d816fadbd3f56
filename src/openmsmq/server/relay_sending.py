"""Hands the messages of a queue here to the outgoing queue for a queue of another machine, and takes what that machine
says about them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from openmsmq.model.constants import MessageClass, PropId, QueueAccessMask
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.message import Message
from openmsmq.model.security import ADMINISTRATORS, EVERYONE, LOCAL_SYSTEM, SecurityDescriptor, allow
from openmsmq.queueing.authorization import SYSTEM
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import OutgoingQueue
from openmsmq.queueing.queue import Queue
from openmsmq.queueing.relay_operations import HELD
from openmsmq.relaying.records import put_progress
from openmsmq.relaying.relay import Relay
from openmsmq.store import Operation

logger = logging.getLogger(__name__)

#: Where other machines acknowledge that messages have arrived, or say why not.
ACKNOWLEDGMENTS: Final = ".\\private$\\relay_acknowledgments"
PERIOD: Final = 0.1  # seconds between looks
AT_ONCE: Final = 256  # messages in one change
MOST_UNDER_WAY: Final = 2_000  # messages; more stay where programs here can still read them
PAUSE: Final = 5  # seconds after something has failed
PATIENCE: Final = 60  # seconds until it is said that acknowledgments are missing


class RelaySender:
    """The work of a relay whose messages go to another machine, until it is cancelled."""

    def __init__(self, relay: Relay, queue: Callable[[], Queue], manager: QueueManager, now: Callable[[], int]) -> None:
        """`queue` finds the queue here, and raises MsmqError; `now` returns seconds since 1970 UTC."""
        self._relay, self._queue, self._manager, self._now = relay, queue, manager, now
        self._missing, self._missing_since = 0, 0

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
            await asyncio.sleep(0 if moved == AT_ONCE else PERIOD)

    def _turn(self) -> int:
        """Hand some messages on; returns how many."""
        relay, queue, now = self._relay, self._queue(), self._now()
        host = relay.definition.host
        if self._manager.machine.is_local(host):
            raise MsmqError(
                HResult.MQ_ERROR_ILLEGAL_OPERATION,
                f"{host} is a name of this machine, so messages for it would stay here: remove {host} from the setting "
                "aliases and restart",
            )
        outgoing = _outgoing_queue(self._manager, relay)
        leaving = len(outgoing) if outgoing is not None else 0
        relay.waiting, relay.unacknowledged = len(queue), len(queue.subqueues.get(HELD, ()))
        self._look_for_missing(leaving)
        if relay.waiting or leaving or relay.unacknowledged:
            relay.found_something(now)
        elif not relay.empty_since:
            relay.found_nothing(now)
            relay.works()
        limit = min(AT_ONCE, MOST_UNDER_WAY - max(leaving, relay.unacknowledged))
        if limit <= 0 or now < relay.rests_until or queue.first() is None:
            return 0
        progress = relay.progress

        def also(messages: list[Message]) -> Operation:
            nonlocal progress
            progress = relay.handing_on(messages, now)
            return put_progress(relay.definition.queue, progress)

        at = f"DIRECT=OS:{_acknowledgments(self._manager).properties.path_name}"
        moved = self._manager.relays.hand_on(queue, relay.remote_name, at, limit, also)
        relay.progress = progress
        return moved

    def _look_for_missing(self, leaving: int) -> None:
        """Says so where the other machine has got messages, and does not say that they arrived in the queue."""
        relay, now = self._relay, self._now()
        missing = 0 if leaving else relay.unacknowledged
        if missing != self._missing:
            self._missing, self._missing_since = missing, now
        if missing and now - self._missing_since >= PATIENCE:
            relay.fails(
                f"{relay.definition.host} has got {missing} messages and does not say that they arrived: the queue may "
                "be missing there or refuse senders that do not log in, or that machine does not find this one by its "
                f"name {self._manager.machine.computer_name}. They are kept in the subqueue {HELD}", now,
            )  # fmt: skip


async def take_acknowledgments(
    manager: QueueManager, relay_of: Callable[[Queue], Relay | None], now: Callable[[], int]
) -> None:
    """Carry out what other machines say about messages, until it is cancelled."""
    while True:
        await asyncio.sleep(PERIOD)
        queue = _known_acknowledgments(manager)
        while queue is not None and queue.first() is not None:
            try:
                refused = manager.relays.take_acknowledgments(queue, AT_ONCE)
            except MsmqError as error:
                logger.warning("acknowledgments of relays can't be read, and that is tried again: %s", error)
                await asyncio.sleep(PAUSE)
                break
            for each in refused:
                relay = relay_of(each.queue)
                if relay is not None:
                    _refused(relay, each.message, each.message_class, now())
            await asyncio.sleep(0)


def _refused(relay: Relay, message: Message, message_class: int, now: int) -> None:
    """A message is in its place again; it is tried again after a while."""
    reason = f"{message_class:#06x}"
    with suppress(ValueError):
        reason = MessageClass(message_class).name
    relay.refuse(message, f"{relay.definition.host} does not take it: {reason}", now)
    relay.fails(f"{relay.definition.host} refuses messages, and they are sent again later: {reason}", now)
    relay.rests_until = now + PAUSE


def _outgoing_queue(manager: QueueManager, relay: Relay) -> OutgoingQueue | None:
    """The outgoing queue that a relay uses, if there is one now."""
    return manager.registry.outgoing_queue(relay.remote_name)


def _known_acknowledgments(manager: QueueManager) -> Queue | None:
    return manager.registry.by_name.get(ACKNOWLEDGMENTS.rpartition("\\")[2])


def _acknowledgments(manager: QueueManager) -> Queue:
    """The queue for acknowledgments, which is made if it is not there. Anybody may send to it, as other machines do not
    log in; administrators read it."""
    found = _known_acknowledgments(manager)
    if found is not None:
        return found
    everything = QueueAccessMask.GENERIC_ALL
    descriptor = SecurityDescriptor(
        owner=ADMINISTRATORS, group=ADMINISTRATORS,
        dacl=(
            allow(ADMINISTRATORS, everything), allow(LOCAL_SYSTEM, everything),
            allow(EVERYONE, QueueAccessMask.WRITE_MESSAGE),
        ),
    )  # fmt: skip
    label = {int(PropId.PROPID_Q_LABEL): "acknowledgments of other machines"}
    return manager.administration.create_queue(ACKNOWLEDGMENTS, label, descriptor.pack(), SYSTEM)
