"""Stores the messages that a connection delivers; the messages of one read are one change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from openmsmq.packet import UserMessage
from openmsmq.peering.arrival import Arrival, ArrivalBatch, ArrivalOrigin, DeliveryResult
from openmsmq.peering.connection import PeerConnection
from openmsmq.peering.memory import SourceState
from openmsmq.peering.order_acks import OrderAcks
from openmsmq.peering.reports import Reports
from openmsmq.peering.sender import MessageSender
from openmsmq.transport import MessageReceived
from openmsmq.transport.sequence import SequencePosition

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ReceivedOutcome:
    """Decisions about a batch of messages.

    Attributes:
        receipts: acknowledged once the change is durable.
        moved: sequences whose positions may be acknowledged once the change is durable.
        answers: sent back at once.
        comes_again: there was no room for one of the messages.
        accepted: at least one message was accepted."""

    receipts: list[int] = field(default_factory=list)
    moved: dict[SourceState, SequencePosition] = field(default_factory=dict)
    answers: list[UserMessage | None] = field(default_factory=list)
    comes_again: bool = False
    accepted: bool = False


class MessageReceiver:
    """Gives messages to queues (`arrival`), and acknowledgments to what they acknowledge (`departing`). `answers_by` is
    told that a session brings transactional messages, so that the acknowledgments for its peer go back on it; `met`
    gets the identifier and the address of a peer of which a message was accepted."""

    def __init__(
        self,
        arrival: Arrival,
        departing: MessageSender,
        order_acks: OrderAcks,
        reports: Reports | None,
        when_durable: Callable[[Callable[[], object]], None],
        answers_by: Callable[[PeerConnection], None],
        met: Callable[[bytes, str], None],
    ) -> None:
        self._arrival, self._departing, self._order_acks, self._reports = arrival, departing, order_acks, reports
        self._when_durable, self._answers_by, self._met = when_durable, answers_by, met

    def judge(self, connection: PeerConnection, messages: Sequence[MessageReceived]) -> None:
        """Decide about messages as one change. If that fails because of a bug, each message is decided about on its
        own, so that the one that triggers the bug is refused alone."""
        if self._judge_safely(connection, messages):
            return
        for received in messages:
            if connection.is_over:
                return
            if not self._judge_safely(connection, [received]):
                self._refuse(connection, received)

    def _judge_safely(self, connection: PeerConnection, messages: Sequence[MessageReceived]) -> bool:
        """Decide about messages as one change. Returns False if that failed; then nothing has changed."""
        batch, outcome = self._arrival.begin(_origin(connection)), ReceivedOutcome()
        try:
            self._decide(connection, messages, batch, outcome)
            stored = self._arrival.finish(batch)
        except Exception:  # what the batch has taken note of would make duplicates of messages that nobody has
            if len(messages) == 1:
                logger.exception("a message from %s caused an internal error", connection.address)
            else:
                logger.warning(
                    "%d messages from %s caused an internal error; each is checked alone",
                    len(messages), connection.address, exc_info=True,
                )  # fmt: skip
            self._arrival.withdraw(batch)
            return False
        if stored:
            _answer(connection, outcome.answers)
        if outcome.comes_again or not stored:
            connection.close()
        if stored and (outcome.receipts or outcome.moved):
            self._when_durable(partial(self._stored, connection, outcome.receipts, outcome.moved))
        if stored:
            self._order_acks.arm()
            if outcome.accepted:
                self._met(connection.session.peer, connection.address)
        return True

    def _refuse(self, connection: PeerConnection, received: MessageReceived) -> None:
        """Refuse a message that triggers a bug. Otherwise it would be sent again and again and block its sender
        forever."""
        origin = _origin(connection)
        batch = self._arrival.begin(origin)
        try:
            verdict = self._arrival.refuse_unread(received.message, origin, batch)
        except Exception:
            logger.exception("a message from %s can't be refused; closing the connection", connection.address)
            self._arrival.withdraw(batch)
            connection.close()
            return
        if not self._arrival.finish(batch):
            connection.close()
            return
        _answer(connection, [verdict.answer])
        if received.receipt is not None:
            self._when_durable(partial(self._stored, connection, [received.receipt], {}))

    def _decide(
        self, connection: PeerConnection, messages: Sequence[MessageReceived], batch: ArrivalBatch, outcome:
        ReceivedOutcome
    ) -> None:  # fmt: skip
        origin = _origin(connection)
        for received in messages:
            if connection.is_over and received.receipt is None:
                continue
            fate, source, answer = self._judge_one(connection, received.message, origin, batch)
            if fate is DeliveryResult.COMES_AGAIN:
                outcome.comes_again = True
                break
            if source is not None and fate is not DeliveryResult.OUT_OF_ORDER:
                outcome.moved[source] = source.sequence.position
            outcome.answers.append(answer)
            outcome.accepted |= fate is DeliveryResult.ACCEPTED
            if received.receipt is not None:
                outcome.receipts.append(received.receipt)

    def _judge_one(
        self, connection: PeerConnection, packet: UserMessage, origin: ArrivalOrigin, batch: ArrivalBatch
    ) -> tuple[DeliveryResult, SourceState | None, UserMessage | None]:
        if self._departing.is_acknowledgment(packet):
            stored = self._departing.acknowledge(packet, origin.peer)
            return DeliveryResult.ACCEPTED if stored else DeliveryResult.COMES_AGAIN, None, None
        if packet.transaction is not None:
            self._answers_by(connection)
        verdict = self._arrival.receive(packet, origin, batch)
        if verdict.fate is DeliveryResult.ACCEPTED and self._reports is not None:
            self._reports.received(packet)
        return verdict.fate, verdict.source, verdict.answer

    def _stored(
        self, connection: PeerConnection, receipts: list[int], moved: dict[SourceState, SequencePosition]
    ) -> None:
        self._order_acks.durable(moved)
        connection.durable(receipts)


def _origin(connection: PeerConnection) -> ArrivalOrigin:
    return ArrivalOrigin(connection.session.peer, connection.address)


def _answer(connection: PeerConnection, answers: list[UserMessage | None]) -> None:
    """Send answers on the session of the messages, as far as its window has room."""
    for answer in answers:
        if answer is not None and connection.room:
            connection.send(answer, None)
    connection.flush()
