"""Order acknowledgments of this queue manager: due times and destinations ([MS-MQQB] 3.1.6.9)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from openmsmq.model import names
from openmsmq.model.constants import MessageClass
from openmsmq.model.errors import InsufficientResources, MsmqError
from openmsmq.model.message import Message
from openmsmq.packet.internal import OrderAckBody
from openmsmq.peering.connection import CLOCK_STEP
from openmsmq.peering.memory import Sources, SourceState
from openmsmq.queueing.change_set import ORDER_LABEL
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import wire_name
from openmsmq.transport.sequence import SequencePosition

logger = logging.getLogger(__name__)

MOST_ORDER_ACKS = 64  # maximum in one outgoing queue; more would contain no additional information


class OrderAcks:
    """Sends order acknowledgments through outgoing queues, as express messages."""

    def __init__(self, manager: QueueManager, sources: Sources, loop: asyncio.AbstractEventLoop) -> None:
        self._manager, self._sources, self._loop = manager, sources, loop
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def _now(self) -> float:
        return self._loop.time() * 1000

    def stop(self) -> None:
        """Stop sending."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def durable(self, moved: Mapping[SourceState, SequencePosition]) -> None:
        """Note that these sequences are durable up to these positions."""
        now = self._now()
        for source, position in moved.items():
            source.sequence.durable(position, now)
            self._sources.due.add(source)
        self.arm()

    def arm(self) -> None:
        """Set the timer for the next due acknowledgment. A timer that is already set expires early enough, because an
        acknowledgment is due at the earliest after ORDER_ACK_TIMEOUT."""
        if self._timer is not None:
            return
        deadlines = [one.sequence.next_deadline for one in self._sources.due]
        deadline = min((at for at in deadlines if at is not None), default=None)
        if deadline is not None and not self._stopped:
            self._timer = self._loop.call_at(deadline / 1000 + CLOCK_STEP, self._send_all)

    def _send_all(self) -> None:
        self._timer = None
        now = self._now()
        for source in list(self._sources.due):
            body = source.sequence.tick(now)
            if body is not None:
                try:
                    self._send(source, body)
                except MsmqError as error:  # the next resend triggers another one
                    logger.warning(
                        "cannot send an order acknowledgment to %s; it will resend its messages: %s",
                        source.reply, error,
                    )  # fmt: skip
            if source.sequence.next_deadline is None:
                self._sources.due.discard(source)
        self.arm()

    def _send(self, source: SourceState, body: OrderAckBody) -> None:
        """Send an express message of priority 0 to the order queue of the sender of the sequence (3.1.6.9,
        3.1.7.17)."""
        name = names.parse_format_name(source.reply)
        assert isinstance(name, (names.DirectFormatName, names.PrivateFormatName))
        try:
            charged_to = "" if self._sources.is_kept(source) else source.address
            queue = self._manager.changes.outgoing_for(name, charged_to)
        except InsufficientResources as error:
            logger.warning("no order acknowledgment for %s: %s", name, error)
            return
        if len(queue) < MOST_ORDER_ACKS:
            self._manager.arrivals.send(queue, Message(
                message_class=MessageClass.ORDER_ACK, label=ORDER_LABEL, body=body.pack(),
                destination_queue_format_name=wire_name(name), priority=0,
                time_to_reach_queue=self._manager.changes.longest_way,
            ))  # fmt: skip
