"""Stores the messages that a connection delivers; the messages of one read are one change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

from openmsmq.packet import UserMessage
from openmsmq.peering.arrival import Arrival, ArrivalBatch, ArrivalOrigin, DeliveryResult
from openmsmq.peering.connection import PeerConnection
from openmsmq.peering.memory import SourceState
from openmsmq.peering.options import FindQueue
from openmsmq.peering.order_acks import OrderAcks
from openmsmq.peering.pending_lookups import MessagesWaiting
from openmsmq.peering.plain_arrival import PlainArrival
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
        must_resend: a message could not be stored, so the peer must resend it.
        accepted: at least one message was accepted.
    """

    receipts: list[int] = field(default_factory=list)
    moved: dict[SourceState, SequencePosition] = field(default_factory=dict)
    answers: list[UserMessage | None] = field(default_factory=list)
    must_resend: bool = False
    accepted: bool = False


class MessageReceiver:
    """Passes messages to queues (`plain`, `arrival`), and acknowledgments to `sender`. `answers_by` is called with a
    session that delivers transactional messages, so that acknowledgments for its peer are sent on it. `met` is called
    with identifier and address of a peer from which a message was accepted. `find` returns what a message for,
    or to be acknowledged to, a queue that is not known here waits for, or None."""

    def __init__(
        self,
        arrival: Arrival,
        plain: PlainArrival,
        sender: MessageSender,
        order_acks: OrderAcks,
        reports: Reports | None,
        when_durable: Callable[[Callable[[], object]], None],
        answers_by: Callable[[PeerConnection], None],
        met: Callable[[bytes, str], None],
        find: FindQueue | None = None,
    ) -> None:
        self._arrival, self._plain = arrival, plain
        self._sender, self._order_acks, self._reports = sender, order_acks, reports
        self._when_durable, self._answers_by, self._met, self._find = when_durable, answers_by, met, find

    def judge(self, connection: PeerConnection, messages: Sequence[MessageReceived]) -> MessagesWaiting | None:
        """Process plain messages, then the rest as one change, up to one that has to wait."""
        count = self._take_plain(connection, messages)
        rest = messages[count:]
        if self._find is not None:
            for index, received in enumerate(rest):
                for name in self._arrival.unknown_queues(received.message):
                    if (look_up := self._find(name)) is not None:
                        self._judge_all(connection, rest[:index])
                        return MessagesWaiting(count + index, look_up)
        self._judge_all(connection, rest)
        return None

    def _judge_all(self, connection: PeerConnection, messages: Sequence[MessageReceived]) -> None:
        """Process messages as one change. If that fails because of a bug, each message is processed separately, so that
        only the one that triggers the bug is refused."""
        if not messages or self._try_as_one_change(connection, messages):
            return
        for received in messages:
            if connection.is_over:
                return
            if not self._try_as_one_change(connection, [received]):
                self._refuse(connection, received)

    def _take_plain(self, connection: PeerConnection, messages: Sequence[MessageReceived]) -> int:
        """Accept plain messages at the beginning. Returns their number."""
        if connection.is_over:
            return 0
        count = self._plain.take([each.packet for each in takewhile(_is_plain, messages)], _origin(connection))
        if count:
            self._met(connection.session.peer, connection.address)
            receipts = [each.receipt for each in messages[:count] if each.receipt is not None]
            if receipts:
                self._when_durable(partial(self._stored, connection, receipts, {}))
        return count

    def _try_as_one_change(self, connection: PeerConnection, messages: Sequence[MessageReceived]) -> bool:
        """Process messages as one change. Returns False if that failed; then nothing has changed."""
        batch, outcome = self._arrival.begin(_origin(connection)), ReceivedOutcome()
        try:
            self._decide(connection, messages, batch, outcome)
            stored = self._arrival.finish(batch)
        except Exception:  # otherwise messages that were not stored would count as duplicates
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
        if outcome.must_resend or not stored:
            connection.close()
        if stored and (outcome.receipts or outcome.moved):
            self._when_durable(partial(self._stored, connection, outcome.receipts, outcome.moved))
        if stored:
            self._order_acks.arm()
            if outcome.accepted:
                self._met(connection.session.peer, connection.address)
        return True

    def _refuse(self, connection: PeerConnection, received: MessageReceived) -> None:
        """Refuse a message that triggers a bug. Otherwise the peer would resend it forever, and its other messages
        would wait."""
        origin = _origin(connection)
        batch = self._arrival.begin(origin)
        try:
            verdict = self._arrival.refuse_unread(received.message, origin, batch)
        except Exception:
            logger.exception("cannot refuse a message from %s; closing the connection", connection.address)
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
                outcome.must_resend = True
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
        if self._sender.is_acknowledgment(packet):
            stored = self._sender.acknowledge(packet, origin.peer)
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


def _is_plain(received: MessageReceived) -> bool:
    return received.is_plain


def _origin(connection: PeerConnection) -> ArrivalOrigin:
    return ArrivalOrigin(connection.session.peer, connection.address)


def _answer(connection: PeerConnection, answers: list[UserMessage | None]) -> None:
    """Send answers on the session of the messages, as far as its window allows."""
    for answer in answers:
        if answer is not None and connection.room:
            connection.send(answer, None)
    connection.flush()
