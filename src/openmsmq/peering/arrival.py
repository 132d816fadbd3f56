"""Disposition of a message from another queue manager ([MS-MQQB] 3.1.5.8), and its consequences.

No I/O: packets that arrive together form one change of `QueueManager.arrivals`, and the caller acknowledges them
according to the result of `receive`. The session has already counted the packets (deviation D-89). Checks run in this
order: destination machine, expiry, duplicates, queue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from openmsmq.conversion.packets import message_of, user_message_of
from openmsmq.model import names
from openmsmq.model.admission import check_message
from openmsmq.model.constants import INFINITE, Delivery, MessageClass
from openmsmq.model.errors import InsufficientResources, MessageStorageFailed, MsmqError
from openmsmq.model.message import NULL_GUID, Message
from openmsmq.model.security import ANONYMOUS, EVERYONE
from openmsmq.model.text import time_text
from openmsmq.packet import UserMessage
from openmsmq.packet.headers import TransactionHeader
from openmsmq.packet.internal import FinalAckBody
from openmsmq.packet.message_packet import MessagePacket
from openmsmq.packet.queue_names import ORDER_QUEUE_NUMBER
from openmsmq.peering.durable import route_of
from openmsmq.peering.memory import INCOMING_OF_ADDRESS, MOST_INCOMING, Duplicates, Sources, SourceState
from openmsmq.peering.names_in_packets import name_elsewhere, name_of_sequence, named_here, parsed_single, public_text
from openmsmq.protection.arrival import Accepted, ArrivalProtection, Demands, Rejected
from openmsmq.queueing.arrivals import Arriving
from openmsmq.queueing.authorization import Caller, Right
from openmsmq.queueing.change_set import ORDER_LABEL
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import order_queue_of, wire_name
from openmsmq.queueing.queue import Queue
from openmsmq.queueing.records import split_final_ack
from openmsmq.queueing.sending import accepts_batches
from openmsmq.queueing.storage import storing
from openmsmq.transport.rate import Rate
from openmsmq.transport.routing import Routing
from openmsmq.transport.sequence import SequenceId, SequencePosition

logger = logging.getLogger(__name__)

MAXIMUM_HOPS = 0x1D  # UserHeader.Flags.RC, [MS-MQMQ] 2.2.19.2


WARNINGS_PER_SECOND = 1  # in the log, at most, caused by unknown peers


class DeliveryResult(Enum):
    """Outcome of a packet."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    OUT_OF_ORDER = "out of order"
    REJECTED = "rejected"
    COMES_AGAIN = "sent again"  # storage is full: the caller closes the session without an acknowledgment


_RECOVERABLE = int(Delivery.RECOVERABLE)
_NOT_TAKEN = (DeliveryResult.COMES_AGAIN, DeliveryResult.OUT_OF_ORDER)


class Disposition(NamedTuple):
    """The result for a packet.

    Attributes:
        is_stored: something was written that must be durable before the packet is acknowledged.
        source: for a transactional message that was accepted or rejected in order, the position of its source.
        answer: reply to be sent on the session of the message, without being stored.
    """

    fate: DeliveryResult
    message_class: MessageClass | None = None
    is_stored: bool = False
    source: SourceState | None = None
    answer: UserMessage | None = None


@dataclass(frozen=True, slots=True)
class SenderTrustPolicy:
    """`trusts_sender_identifiers`: access checks use the SID in a message, although it is unproven. `groups_of` returns
    the SIDs of a sender's groups by its SID."""

    trusts_sender_identifiers: bool = False
    groups_of: Callable[[str], frozenset[str]] = lambda sid: frozenset()


class ArrivalOrigin(NamedTuple):
    """The peer of the session of a packet: identifier and address, to which order acknowledgments are sent."""

    peer: bytes
    address: str


class Arrived(NamedTuple):
    """A packet, its message, and its origin. Duplicates have the same `identifier`; `now` is in milliseconds of a
    monotonic clock."""

    packet: UserMessage
    message: Message
    origin: ArrivalOrigin
    identifier: bytes
    now: float


@dataclass(slots=True, eq=False)
class ArrivalBatch:
    """Messages that arrived together and are processed as one change.

    Attributes:
        address: address of the peer of the session.
        met: the sources of transactional messages, by identifier, queue and name; not all of them are kept yet.
        sources: the sequences that advance, with their previous state.
        tried: the same for sequences without an accepted message.
        identifiers: identifiers added to the history.
        recoverable: identifiers to be stored.
        arrived: data for management properties.
        refused: reasons of refusals, and the queue managers that sent the messages.
        allowed: whether a sender, authenticated or not, may send to a queue, by its number.
    """

    work: Arriving
    address: str
    is_empty: bool = True
    met: dict[tuple[bytes, int, str], SourceState] = field(default_factory=dict)
    sources: dict[SourceState, tuple[SequencePosition, int]] = field(default_factory=dict)
    tried: dict[SourceState, tuple[SequencePosition, int]] = field(default_factory=dict)
    identifiers: list[bytes] = field(default_factory=list)
    recoverable: list[bytes] = field(default_factory=list)
    arrived: list[tuple[Queue, SourceState, str]] = field(default_factory=list)
    refused: list[tuple[MessageClass, bytes]] = field(default_factory=list)
    allowed: dict[tuple[str, bool, int], bool] = field(default_factory=dict)


class Arrival:
    """Accepts or refuses messages for queues of this machine."""

    def __init__(
        self,
        manager: QueueManager,
        duplicates: Duplicates,
        sources: Sources,
        policy: SenderTrustPolicy,
        routing: Routing,
        protection: ArrivalProtection,
        monotonic: Callable[[], float],
    ) -> None:
        """`monotonic` returns milliseconds of a monotonic clock."""
        self._routing, self._protection = routing, protection
        self._manager, self._duplicates, self._sources = manager, duplicates, sources
        self._policy, self._monotonic = policy, monotonic
        self._warnings = Rate(WARNINGS_PER_SECOND)
        self.rejected = 0

    def begin(self, origin: ArrivalOrigin) -> ArrivalBatch:
        """Begin a batch of packets, which are processed as one change. Outgoing queues for replies to them count
        against the limit of the sending host, unless it is a known queue manager."""
        known = self._is_known(origin.peer)
        return ArrivalBatch(self._manager.arrivals.begin("" if known else origin.address), origin.address)

    def _is_known(self, identifier: bytes) -> bool:
        """Whether a queue manager is in the routing table, or has sent transactional messages that were accepted."""
        return self._routing.host(identifier) is not None or self._sources.knows(identifier)

    def receive(self, packet: UserMessage, origin: ArrivalOrigin, batch: ArrivalBatch) -> Disposition:
        """Decide about one packet; `finish` executes the decision."""
        try:
            return self._receive(packet, origin, batch)
        except MessageStorageFailed as error:
            peer = _text(origin.peer)
            logger.warning("could not store a message from queue manager %s; the peer will resend it: %s", peer, error)
            return Disposition(DeliveryResult.COMES_AGAIN)

    def refuse_unread(self, packet: UserMessage, origin: ArrivalOrigin, batch: ArrivalBatch) -> Disposition:
        """Refuse a packet for which `receive` failed because of a bug. Only its headers are used: a source that waits
        for an acknowledgment is told that the queue does not exist."""
        source = packet.user.source_queue_manager
        message = Message(
            identifier=source + packet.user.message_id.to_bytes(4, "little"), source_machine_identifier=source,
            destination_queue_format_name="(not read)",
        )  # fmt: skip
        arrived = Arrived(packet, message, origin, message.identifier, self._monotonic())
        return self._reject(arrived, MessageClass.NACK_BAD_DST_Q, None, batch)

    def finish(self, batch: ArrivalBatch) -> bool:
        """Execute the decisions. Returns False if they could not be stored; then nothing has changed, and the peer will
        resend all packets of the batch."""
        if not batch.is_empty:
            remembered = self._duplicates.plan(batch.recoverable, self._monotonic())
            also = list(remembered.operations)
            for source in batch.sources:
                also += source.operations()
                for final_ack, reason in source.unconfirmed.items():  # a repetition is not answered any more
                    batch.work.acknowledge_finally(reason, final_ack)
            try:
                batch.work.commit(also)
            except MessageStorageFailed as error:
                logger.warning("could not store messages from a queue manager; it will resend them: %s", error)
                self.withdraw(batch)
                return False
            self._duplicates.stored(remembered)
        for source in batch.sources:
            source.unconfirmed.clear()
            self._sources.keep(source, batch.address)
        for source in batch.tried:
            if source not in batch.sources:
                self._sources.keep_tentative(source)
        for reason, sender in batch.refused:
            self._manager.changes.note_refused(reason, _text(sender))
        for queue, source, format_name in batch.arrived:
            queue.incoming[source.key] = source.info(format_name)
        return True

    def withdraw(self, batch: ArrivalBatch) -> None:
        """Undo the history of a batch that was not stored, so that its messages do not count as duplicates when they
        are resent."""
        for identifier in batch.identifiers:
            self._duplicates.forget(identifier)
        for source, (position, reject_count) in (*batch.sources.items(), *batch.tried.items()):
            source.sequence.position, source.sequence.reject_count = position, reject_count

    def _receive(self, packet: UserMessage, origin: ArrivalOrigin, batch: ArrivalBatch) -> Disposition:
        now = self._monotonic()
        transaction = packet.transaction
        is_local = self._is_local(packet)
        here = self._manager.machine.identifier if is_local else NULL_GUID
        message = message_of(MessagePacket(packet), absolute=False, here=here)
        passes = not is_local and self._routing.is_router  # D-240
        identifier = message.identifier + bytes([packet.user.routing_count]) if passes else message.identifier
        if transaction is None and self._duplicates.seen(identifier, now):
            return Disposition(DeliveryResult.DUPLICATE)
        arrived = Arrived(packet, message, origin, identifier, now)
        if passes:
            return self._pass_on(arrived, batch)
        queue = self._destination(message) if is_local else None
        if transaction is None or queue is None:
            return self._decide(arrived, queue, None, batch)
        return self._take_in_order(arrived, queue, transaction, batch)

    def _take_in_order(
        self, arrived: Arrived, queue: Queue, header: TransactionHeader, batch: ArrivalBatch
    ) -> Disposition:
        """Apply 3.1.5.8.6: a transactional message is accepted only if it is the next one of its sequence."""
        origin = arrived.packet.user.source_queue_manager
        called = name_of_sequence(arrived.packet)
        identifier = SequenceId(header.sequence_timestamp, header.sequence_ordinal)
        key = origin, queue.number, called
        source = batch.met.get(key) or self._sources.of(origin, queue, called, identifier)
        batch.met[key] = source
        source.peer, source.reply = arrived.origin.peer, reply_to(arrived.packet, arrived.origin)
        source.accessed = self._manager.clock() // 1000
        before = source.sequence.position, source.sequence.reject_count
        number, previous = header.sequence_number, header.previous_sequence_number
        from_source = origin == arrived.origin.peer
        accepted = source.sequence.receive(identifier, number, previous, arrived.now, from_source=from_source)
        is_kept = source in batch.sources or self._sources.is_kept(source)
        if is_kept:
            self._sources.due.add(source)
        if not accepted:
            if source.key in queue.incoming:
                batch.arrived.append((queue, source, arrived.message.destination_queue_format_name))
            if is_kept:
                return Disposition(DeliveryResult.OUT_OF_ORDER, source=source)
            batch.tried.setdefault(source, before)
            return Disposition(DeliveryResult.OUT_OF_ORDER, source=source, answer=self._answer_again(arrived, source))
        verdict = Disposition(DeliveryResult.COMES_AGAIN)
        try:
            verdict = self._decide(arrived, queue, source, batch, is_kept)
        finally:
            if verdict.fate in _NOT_TAKEN:  # and it must not be recorded as received
                source.sequence.position, source.sequence.reject_count = before
            elif is_kept or verdict.fate is DeliveryResult.ACCEPTED:
                batch.sources.setdefault(source, batch.tried.get(source, before))
                self._sources.due.add(source)
            else:
                batch.tried.setdefault(source, before)
                assert verdict.message_class is not None
                if not self._is_known(origin):  # to a known one, the final acknowledgment is sent as a message
                    source.note_unconfirmed(_refusal_of(arrived), verdict.message_class)
        return verdict

    def _answer_again(self, arrived: Arrived, source: SourceState) -> UserMessage | None:
        """Answer the repetition of a message that was refused when no message of its sequence had been accepted: the
        sender has not received the final acknowledgment. None for a message that was not refused before."""
        final_ack = _refusal_of(arrived)
        reason = source.unconfirmed.get(final_ack)
        return None if reason is None else self._answer(final_ack, reason, arrived)

    def _pass_on(self, arrived: Arrived, batch: ArrivalBatch) -> Disposition:
        """Put a message for another machine into an outgoing queue, because this queue manager is a router (3.1.5.8.2,
        3.1.5.8.5). Only its source and its destination handle its sequence."""
        packet, message = arrived.packet, arrived.message
        hops = packet.user.routing_count + 1
        if hops > MAXIMUM_HOPS:
            return self._reject(arrived, MessageClass.NACK_HOP_COUNT_EXCEEDED, None, batch)
        if self._has_expired(message):
            return self._reject(arrived, MessageClass.NACK_REACH_QUEUE_TIMEOUT, None, batch)
        name = name_elsewhere(message.destination_queue_format_name)
        if name is None:
            return self._reject(arrived, MessageClass.NACK_BAD_DST_Q, None, batch)
        try:
            queue = self._manager.changes.outgoing_for(name, batch.work.charged_to)
        except InsufficientResources as error:
            raise MessageStorageFailed(detail=str(error)) from error
        size = message.size
        if not batch.work.may_store(queue, size):
            return Disposition(DeliveryResult.COMES_AGAIN)
        final_ack = _final_ack(packet, message, arrived.origin, always=True)
        batch.work.accept(queue, message, size, final_ack, route_of(packet, message, hops).pack())
        self._remember(arrived, None, batch)
        return Disposition(DeliveryResult.ACCEPTED, is_stored=True)

    def _decide(
        self,
        arrived: Arrived,
        queue: Queue | None,
        source: SourceState | None,
        batch: ArrivalBatch,
        is_kept: bool = True,
    ) -> Disposition:
        """Return the disposition. `is_kept`: a message of this sequence was accepted before."""
        packet, message = arrived.packet, arrived.message
        refusal = self._refusal(packet, message, queue, batch)
        size = message.size  # of the decrypted body
        if refusal is None and queue is not None and not batch.work.has_room(queue, size):
            refusal = MessageClass.NACK_Q_EXCEED_QUOTA
        if refusal is None:
            assert queue is not None
            if not batch.work.may_store(queue, size):
                return Disposition(DeliveryResult.COMES_AGAIN)
            if source is not None and not is_kept and not self._has_room_for(source, queue, arrived.origin):
                return Disposition(DeliveryResult.OUT_OF_ORDER)
            try:
                batch.work.accept(queue, message, size, _final_ack(packet, message, arrived.origin))
            except MessageStorageFailed:
                raise
            except MsmqError as error:  # no reader could decode the message
                logger.warning("refusing a message for %s: %s", queue.properties.path_name, error)
                refusal = MessageClass.NACK_Q_EXCEED_QUOTA
            else:
                if source is not None:
                    batch.arrived.append((queue, source, message.destination_queue_format_name))
                self._remember(arrived, source, batch)
                return Disposition(DeliveryResult.ACCEPTED, is_stored=message.recoverable, source=source)
        return self._reject(arrived, refusal, source if is_kept else None, batch)

    def _has_room_for(self, source: SourceState, queue: Queue, origin: ArrivalOrigin) -> bool:
        """Whether another transactional sequence can be kept. If not, its messages stay at their sender."""
        if self._sources.has_room(source, origin.address):
            return True
        if self._warnings.allows(self._monotonic()):
            logger.warning(
                "no transactional messages of queue manager %s are accepted for %s: there are %d sequences, at most %d "
                "of those that sessions from %s have begun since the start, %d in all; "
                "`openmsmq sequence forget` removes sequences of queue managers that no longer exist",
                _text(source.source), queue.properties.path_name, self._sources.count, INCOMING_OF_ADDRESS,
                origin.address, MOST_INCOMING,
            )  # fmt: skip
        return False

    def _remember(
        self, arrived: Arrived, source: SourceState | None, batch: ArrivalBatch, *, is_refused: bool = False
    ) -> None:
        """Remember the message as received, in its batch. A refused message would be refused again after a restart, so
        it is recorded only in memory."""
        batch.is_empty = False
        if source is None and arrived.packet.transaction is None:
            self._duplicates.add(arrived.identifier, arrived.now)
            batch.identifiers.append(arrived.identifier)
            if arrived.message.recoverable and not is_refused:
                batch.recoverable.append(arrived.identifier)

    def _reject(
        self, arrived: Arrived, reason: MessageClass, source: SourceState | None, batch: ArrivalBatch
    ) -> Disposition:
        packet, message = arrived.packet, arrived.message
        self.rejected += 1
        logger.info(
            "rejecting message %s from queue manager %s for %s: %s%s",
            message.id, _text(packet.user.source_queue_manager), message.destination_queue_format_name, reason.name,
            _times_of(message) if reason is MessageClass.NACK_REACH_QUEUE_TIMEOUT else "",
        )  # fmt: skip
        if not self._protection.acknowledges(packet, reason):
            message.acknowledgements_requested = 0
        answer: UserMessage | None = None
        final_ack = _refusal_of(arrived)
        if final_ack and source is None and not self._is_known(packet.user.source_queue_manager):
            answer, final_ack = self._answer(final_ack, reason, arrived), b""
        dead_letter = (
            reason is MessageClass.NACK_Q_EXCEED_QUOTA and packet.transaction is None
            and packet.user.negative_journaling
        )  # fmt: skip
        batch.work.reject(message, reason, final_ack, dead_letter)
        batch.refused.append((reason, packet.user.source_queue_manager))
        self._remember(arrived, source, batch, is_refused=not dead_letter)
        return Disposition(DeliveryResult.REJECTED, reason, is_stored=True, source=source, answer=answer)

    def _answer(self, final_ack: bytes, reason: MessageClass, arrived: Arrived) -> UserMessage | None:
        """Return the final acknowledgment for an unknown source whose sequence is not kept (D-236). It is sent on the
        session; if it is lost, the message is resent, and answered again. None if the source is not the peer of the
        session, because its address is unknown."""
        packet, origin = arrived.packet, arrived.origin
        direct = packet.user.destination is not None and packet.user.destination.direct
        if not direct and packet.user.source_queue_manager != origin.peer:
            return None
        body, name = split_final_ack(final_ack)
        message = Message(
            message_class=reason, label=ORDER_LABEL, body=body, destination_queue_format_name=wire_name(name),
            priority=0, delivery_guarantee=_RECOVERABLE,
        )  # fmt: skip
        with storing():
            self._manager.changes.stamp(message)
        return user_message_of(message)

    def plain_target(self, packet: UserMessage, batch: ArrivalBatch) -> tuple[Queue, Message] | None:
        """Return the queue and the message of a packet whose arrival has no other consequences, except that duplicates
        must be detected; None for others, and if it would be refused. Quotas are not checked."""
        if not self._is_local(packet):
            return None
        here = self._manager.machine
        message = message_of(MessagePacket(packet), absolute=False, here=here.identifier)
        queue = self._destination(message)
        if queue is None or not accepts_batches(queue) or message.time_to_be_received != INFINITE:
            return None
        if message.message_class or message.acknowledgements_requested:
            return None
        if here.has_identifier(message.source_machine_identifier):  # its journal copy is due
            return None
        if self._refusal(packet, message, queue, batch) is not None:
            return None
        try:
            check_message(message)
        except MsmqError:
            return None
        return queue, message

    # -- the checks --------------------------------------------------------------------------------------------

    def _is_local(self, packet: UserMessage) -> bool:
        """Whether this queue manager is the destination: the packet names it, or no queue manager (direct format
        names)."""
        address = packet.user.queue_manager_address
        return address == NULL_GUID or self._manager.machine.has_identifier(address)

    def unknown_queues(self, packet: UserMessage) -> list[names.SingleFormatName]:
        """Return the names of the destination and of the administration queue, if they may be public queues of this
        machine that are not known here."""
        registry = self._manager.registry
        destination, administration = packet.user.destination, packet.user.administration
        found: list[names.SingleFormatName | None] = []
        if destination is not None and self._is_local(packet):
            found.append(named_here(public_text(destination), self._manager.machine.identifier))
        if administration is not None and packet.properties.acknowledge:
            name = parsed_single(public_text(administration))
            if name is not None and (isinstance(name, names.PublicFormatName) or registry.is_local(name)):
                found.append(name)
        return [
            name for name in found
            if name is not None and registry.local_queue(name) is None and registry.place_of(name) is None
        ]  # fmt: skip

    def _destination(self, message: Message) -> Queue | None:
        """Return the destination queue on this machine. In a direct format name, only the part after the computer name
        is compared, because the sender may use any name of this machine."""
        name = named_here(message.destination_queue_format_name, self._manager.machine.identifier)
        if name is None:
            return None
        queue = self._manager.registry.local_queue(name)
        return queue if queue is not None and queue.is_destination else None

    def _refusal(
        self, packet: UserMessage, message: Message, queue: Queue | None, batch: ArrivalBatch
    ) -> MessageClass | None:
        """Return the reason to refuse a message, or None; the queue's quota is not checked. Decrypts the message."""
        if self._has_expired(message):
            return MessageClass.NACK_REACH_QUEUE_TIMEOUT
        if queue is None:
            return MessageClass.NACK_BAD_DST_Q
        if packet.transaction is not None and not queue.properties.transactional:
            return MessageClass.NACK_NOT_TRANSACTIONAL_Q
        if packet.transaction is None and queue.properties.transactional:
            return MessageClass.NACK_NOT_TRANSACTIONAL_MSG
        return self._security(packet, message, queue, batch)

    def _has_expired(self, message: Message) -> bool:
        """Whether a message has expired (3.1.7.1.2). If it was sent in the future, the clocks differ, and its age is
        0."""
        lifetime = _lifetime(message)
        if lifetime == INFINITE:
            return False
        age = (self._manager.clock() // 1000 - message.sent_time + (1 << 31)) % (1 << 32) - (1 << 31)
        return age > lifetime

    def _security(
        self, packet: UserMessage, message: Message, queue: Queue, batch: ArrivalBatch
    ) -> MessageClass | None:
        """Check signature, encryption and access (3.1.5.8.3). The results are set in the message."""
        demands = Demands(bool(queue.properties.authentication), queue.properties.privacy_level)
        verdict = self._protection.judge(packet, demands)
        if isinstance(verdict, Rejected):
            logger.info("message %s: %s", message.id, verdict.detail)
            return verdict.message_class
        verdict.apply(message)
        asked = verdict.sender, verdict.authentication_level > 0, queue.number
        allowed = batch.allowed.get(asked)
        if allowed is None:
            allowed = self._manager.authorization.allows(self._caller(verdict), queue, Right.SEND)
            batch.allowed[asked] = allowed
        return None if allowed else MessageClass.NACK_ACCESS_DENIED

    def _caller(self, verdict: Accepted) -> Caller:
        """Return the sender of a message for the access check. A SID without a valid signature is only a claim
        (deviation D-105)."""
        proved = verdict.authentication_level > 0 or self._policy.trusts_sender_identifiers
        if not proved or verdict.sender in (ANONYMOUS, EVERYONE):
            return Caller.anonymous()
        return Caller.user(verdict.sender, groups=self._policy.groups_of(verdict.sender))


def _final_ack(packet: UserMessage, message: Message, origin: ArrivalOrigin, *, always: bool = False) -> bytes:
    """Return the final acknowledgment to be sent when a message leaves its queue, in the format of
    `records.final_ack_definition`; empty if none is due. A refusal is `always` answered."""
    transaction = packet.transaction
    if transaction is None:
        return b""
    if not (always or message.journaling_requested or transaction.final_ack_required):
        return b""
    body = FinalAckBody(
        transaction.sequence_ordinal, transaction.sequence_timestamp, transaction.sequence_number,
        transaction.previous_sequence_number, packet.user.source_queue_manager, packet.user.message_id,
    )  # fmt: skip
    return body.pack() + reply_to(packet, origin).encode()


def _refusal_of(arrived: Arrived) -> bytes:
    """Return the final acknowledgment of a message that is refused."""
    return _final_ack(arrived.packet, arrived.message, arrived.origin, always=True)


def reply_to(packet: UserMessage, origin: ArrivalOrigin) -> str:
    """Return the outgoing queue for order acknowledgments of a message (3.1.7.17; deviation D-106). For a direct format
    name it contains the address of the session and its queue manager, because several may share an address. `wire_name`
    is the name in packets."""
    if packet.user.destination is not None and packet.user.destination.direct:
        return order_queue_of(origin.address, origin.peer)
    return str(names.PrivateFormatName(UUID(bytes_le=packet.user.source_queue_manager), ORDER_QUEUE_NUMBER))


def _lifetime(message: Message) -> int:
    """Return the seconds after which a message that has not arrived expires."""
    return min(message.time_to_reach_queue, message.time_to_be_received)


def _times_of(message: Message) -> str:
    """Return the times of a message that arrived too late: the clocks of the machines may differ."""
    sent = time_text(message.sent_time)
    return f": its limit is {_lifetime(message)} s, and by its sender's clock it was sent at {sent}"


def _text(guid: bytes) -> str:
    return str(UUID(bytes_le=guid)) if len(guid) == 16 else "?"
