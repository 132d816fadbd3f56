"""What becomes of messages that a connection has brought, all that one read has brought as one change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from openmsmq.link.arrival import Arrival, Batch, Fate, Origin, reply_to
from openmsmq.link.connection import Connection
from openmsmq.link.departing import Departing
from openmsmq.link.memory import Source
from openmsmq.link.order_acks import OrderAcks
from openmsmq.link.reports import Reports
from openmsmq.packet import UserMessage
from openmsmq.packet.queue_names import NameType
from openmsmq.transport import MessageReceived
from openmsmq.transport.sequence import Position

logger = logging.getLogger(__name__)


class Judge:
    """Gives messages to queues (`arrival`), and acknowledgments to what they acknowledge (`departing`). `answers_by` is
    told that answers to a format name may go back to a peer, by its identifier."""

    def __init__(
        self,
        arrival: Arrival,
        departing: Departing,
        order_acks: OrderAcks,
        reports: Reports | None,
        when_durable: Callable[[Callable[[], object]], None],
        answers_by: Callable[[str, bytes], None],
    ) -> None:
        self._arrival, self._departing, self._order_acks, self._reports = arrival, departing, order_acks, reports
        self._when_durable, self._answers_by = when_durable, answers_by

    def judge(self, connection: Connection, messages: Sequence[MessageReceived]) -> None:
        """Decide about messages, as one change. Whatever goes wrong ends this connection, and they come again."""
        batch = self._arrival.begin()
        try:
            self._judge_together(connection, messages, batch)
        except Exception:  # what the batch has taken note of would make duplicates of messages that nobody has
            logger.exception("messages from %s can't be judged; the connection is closed", connection.address)
            self._arrival.withdraw(batch)
            connection.close()

    def _judge_together(self, connection: Connection, messages: Sequence[MessageReceived], batch: Batch) -> None:
        receipts: list[int] = []
        moved: dict[Source, Position] = {}
        origin = Origin(connection.session.peer, connection.address)
        again = False
        for received in messages:
            if connection.is_over and received.receipt is None:
                continue
            fate, source = self._judge_one(connection, received.message, origin, batch)
            if fate is Fate.COMES_AGAIN:
                again = True
                break
            if source is not None and fate is not Fate.OUT_OF_ORDER:
                moved[source] = source.sequence.position
            if received.receipt is not None:
                receipts.append(received.receipt)
        if not self._arrival.finish(batch):
            connection.close()
            return
        if again:
            connection.close()
        if receipts or moved:
            self._when_durable(partial(self._stored, connection, receipts, moved))
        self._order_acks.arm()

    def _judge_one(
        self, connection: Connection, packet: UserMessage, origin: Origin, batch: Batch
    ) -> tuple[Fate, Source | None]:
        if self._departing.is_acknowledgment(packet):
            stored = self._departing.acknowledge(packet, origin.peer)
            return Fate.ACCEPTED if stored else Fate.COMES_AGAIN, None
        if packet.transaction is not None and _answers_here(packet, origin):
            self._answers_by(reply_to(packet, origin), origin.peer)
        verdict = self._arrival.receive(packet, origin, batch)
        if verdict.fate is Fate.ACCEPTED and self._reports is not None:
            self._reports.received(packet)
        return verdict.fate, verdict.source

    def _stored(self, connection: Connection, receipts: list[int], moved: dict[Source, Position]) -> None:
        self._order_acks.durable(moved)
        connection.durable(receipts)


def _answers_here(packet: UserMessage, origin: Origin) -> bool:
    """Whether acknowledgments of a transactional message may go back on the session that brought it: its source is at
    the other end, or says nothing but that. Those for others find their own way."""
    destination = packet.user.destination
    is_direct = destination is not None and destination.type is NameType.DIRECT
    return is_direct or packet.user.source_queue_manager == origin.peer
