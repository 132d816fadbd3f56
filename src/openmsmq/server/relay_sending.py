"""Move the messages of a queue here to the outgoing queue for a queue on another machine, and process its
acknowledgments."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from openmsmq.model.constants import MessageClass, PropId, QueueAccessMask
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.message import Message
from openmsmq.model.security import ADMINISTRATORS, EVERYONE, LOCAL_SYSTEM, SecurityDescriptor, allow
from openmsmq.model.text import counted
from openmsmq.queueing.authorization import SYSTEM
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import OutgoingQueue
from openmsmq.queueing.queue import Queue
from openmsmq.queueing.relay_operations import HELD
from openmsmq.relaying.records import put_progress
from openmsmq.relaying.relay import Relay
from openmsmq.server.relay_reading import check_connected
from openmsmq.store import Operation

logger = logging.getLogger(__name__)

#: Queue for acknowledgments and refusals by other machines.
ACKNOWLEDGMENTS: Final = ".\\private$\\relay_acknowledgments"
PERIOD: Final = 0.1  # seconds between checks
AT_ONCE: Final = 256  # messages in one change
MOST_UNDER_WAY: Final = 2_000  # maximum messages in the outgoing queue; the others remain readable here
PAUSE: Final = 5  # seconds until the next attempt after a failure
PATIENCE: Final = 60  # seconds after which it is reported that nothing leaves or is acknowledged


class RelaySender:
    """Runs a relay that sends messages to another machine, until it is canceled."""

    def __init__(
        self, relay: Relay, queue: Callable[[], Queue], manager: QueueManager, now: Callable[[], int],
        check_destination: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        """`queue` finds the queue here, and raises MsmqError; `now` returns seconds since 1970 UTC; `check_destination`
        raises MsmqError if the name of the other machine leads to this one."""
        self._relay, self._queue, self._manager, self._now = relay, queue, manager, now
        self._check_destination: Final = check_destination
        self._aside: Final[set[int]] = set()  # positions of messages that cannot be sent
        self._is_checked = False
        self._under_way, self._still_since, self._is_still = (0, 0), 0, False

    async def run(self) -> None:
        """Run until canceled. A cancellation never interrupts a change."""
        while True:
            try:
                if not self._is_checked:
                    await self._check_destination()
                    self._is_checked = True
                moved = self._turn()
            except MsmqError as error:
                self._is_checked = False
                if self._relay.fails(str(error), self._now()):
                    logger.warning(
                        "queue %s: cannot send messages to %s; retrying: %s",
                        self._relay.definition.queue, self._relay.remote_name, error,
                    )  # fmt: skip
                await asyncio.sleep(PAUSE)
                continue
            await asyncio.sleep(0 if moved == AT_ONCE else PERIOD)

    def _turn(self) -> int:
        """Send some messages; return their number."""
        relay, queue, now = self._relay, self._queue(), self._now()
        host = relay.definition.host
        check_connected(self._manager)
        if self._manager.machine.is_local(host):
            raise MsmqError(
                HResult.MQ_ERROR_ILLEGAL_OPERATION,
                f"{host} is a name of this machine, so its messages would stay here: remove {host} from the setting "
                "aliases and restart",
            )
        outgoing = _outgoing_queue(self._manager, relay)
        leaving, left = (len(outgoing), outgoing.left) if outgoing is not None else (0, 0)
        relay.waiting, relay.unacknowledged = len(queue), len(queue.subqueues.get(HELD, ()))
        self._look_for_standstill(leaving, left)
        if relay.waiting or leaving or relay.unacknowledged:
            relay.found_something(now)
        elif not relay.empty_since:
            relay.found_nothing(now)
            relay.works()
        limit = min(AT_ONCE, MOST_UNDER_WAY - max(leaving, relay.unacknowledged))
        # A clock that was set back does not make the pause longer.
        is_resting = relay.rests_until - PAUSE <= now < relay.rests_until
        if limit <= 0 or is_resting or queue.first() is None:
            return 0
        progress = relay.progress

        def also(messages: list[Message]) -> Operation:
            nonlocal progress
            progress = relay.handing_on(messages, now)
            return put_progress(relay.definition.queue, progress)

        def refuse(message: Message, error: MsmqError) -> None:
            relay.refuse(message, str(error), now)

        at = f"DIRECT=OS:{_acknowledgments(self._manager).properties.path_name}"
        moved = self._manager.relays.hand_on(queue, relay.remote_name, at, limit, also, self._aside, refuse)
        relay.progress = progress
        return moved

    def _look_for_standstill(self, leaving: int, left: int) -> None:
        """Report messages that do not leave for the other machine, and those that it has received, but for which no
        acknowledgment of the queue has arrived. `left` is the number of messages that have left so far."""
        relay, now = self._relay, self._now()
        under_way = (1, left) if leaving else (0, relay.unacknowledged)
        if under_way != self._under_way or now < self._still_since:  # the clock was set back
            self._under_way, self._still_since = under_way, now
            if self._is_still:
                self._is_still = False
                relay.works()
        if not (leaving or relay.unacknowledged) or now - self._still_since < PATIENCE:
            return
        self._is_still = True
        if leaving:
            relay.fails(
                f"{counted(leaving, 'message')} for {relay.definition.host} cannot leave; openmsmq outgoing show "
                f"'{relay.remote_name}' says why", now,
            )  # fmt: skip
        else:
            relay.fails(
                f"{relay.definition.host} has got {counted(relay.unacknowledged, 'message')} and does not say that "
                "they arrived: the queue may be missing there, refuse senders that do not log in, or take only signed "
                "or encrypted messages, or that machine does not find this one by its name "
                f"{self._manager.machine.computer_name}; its log says which. They are kept in the "
                f"subqueue {HELD}; if they did not arrive, send them again once the cause is gone: openmsmq msg move "
                f"'{relay.definition.queue};{HELD}' --all",
                now,
            )  # fmt: skip


async def take_acknowledgments(
    manager: QueueManager, relay_of: Callable[[Queue], Relay | None], now: Callable[[], int]
) -> None:
    """Process acknowledgments and refusals until canceled."""
    with suppress(MsmqError):  # the disk is full: the next start forgets them
        manager.relays.forget_lost()
    while True:
        await asyncio.sleep(PERIOD)
        queue = _known_acknowledgments(manager)
        while queue is not None and queue.first() is not None:
            try:
                refused = manager.relays.take_acknowledgments(queue, AT_ONCE)
            except MsmqError as error:
                logger.warning("cannot read acknowledgments of relays; retrying: %s", error)
                await asyncio.sleep(PAUSE)
                break
            for each in refused:
                relay = relay_of(each.queue)
                if relay is not None:
                    _refused(relay, each.message, each.message_class, now())
            await asyncio.sleep(0)


def _refused(relay: Relay, message: Message, message_class: int, now: int) -> None:
    """Record a refused message, which is back in its queue and is tried again later."""
    reason = f"{message_class:#06x}"
    with suppress(ValueError):
        reason = MessageClass(message_class).name
    relay.refuse(message, f"{relay.definition.host} does not take it: {reason}", now)
    relay.fails(f"{relay.definition.host} refuses messages, and they are sent again later: {reason}", now)
    relay.rests_until = now + PAUSE


def _outgoing_queue(manager: QueueManager, relay: Relay) -> OutgoingQueue | None:
    """Return the outgoing queue of a relay, or None."""
    return manager.registry.outgoing_queue(relay.remote_name)


def _known_acknowledgments(manager: QueueManager) -> Queue | None:
    return manager.registry.by_name.get(ACKNOWLEDGMENTS.rpartition("\\")[2])


def _acknowledgments(manager: QueueManager) -> Queue:
    """Return the queue for acknowledgments; create it if it is missing. Everyone may send to it, because other machines
    do not log in; administrators may read it."""
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
