"""Outgoing messages: packets of outgoing queues in order, sequence numbers, and completion by acknowledgments.

This module has no connections: `service` requests the next message of a queue and reports its outcome.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeAlias
from uuid import UUID

from openmsmq.conversion.packets import user_message_of
from openmsmq.model import names
from openmsmq.model.constants import INFINITE, MessageClass
from openmsmq.model.errors import MessageStorageFailed, MsmqError
from openmsmq.model.exhaustion import OutOfResources
from openmsmq.model.lookup_id import lookup_id
from openmsmq.model.message import Message
from openmsmq.model.names_elsewhere import name_for_others
from openmsmq.packet import BadPacket, UserMessage
from openmsmq.packet.headers import NO_GUID, DebugHeader
from openmsmq.packet.internal import FinalAckBody, OrderAckBody
from openmsmq.packet.queue_names import NameType
from openmsmq.peering.durable import Route
from openmsmq.peering.plain_departure import PlainDeparture, PlainPackets
from openmsmq.peering.sequences import QueueSequence, Sequences
from openmsmq.protection.departure import DepartureProtection
from openmsmq.protection.faults import ProtectionError
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import ConnectionEvent, ConnectionStatus, OutgoingQueue
from openmsmq.queueing.records import route_definition
from openmsmq.transport.routing import Routing

logger = logging.getLogger(__name__)

CHUNK_MESSAGES, CHUNK_BYTES = 256, 1 << 20  # maximum messages whose sequence numbers are stored in one record
STORE_RETRY = 5.0  # seconds until the next attempt to store sequence numbers after a full disk


class SentMessage(NamedTuple):
    """A sent message.

    Attributes:
        queue: where it is.
        key: its lookup identifier.
        message: None if it is plain (`plain_departure`); its body is dropped when it is no longer needed.
        number: the sequence number of a transactional message.
    """

    queue: OutgoingQueue
    key: int
    message: Message | None
    number: int | None


Sent: TypeAlias = SentMessage | None  # value passed to the session for a packet; None for an answer, which is not kept


class MessageSender:
    """Sends the messages of outgoing queues. `wake` is called with a queue that may have messages to send again,
    `later` calls a function after a delay in seconds."""

    def __init__(
        self,
        manager: QueueManager,
        sequences: Sequences,
        protection: DepartureProtection,
        routing: Routing,
        report_queue: bytes | None,
        when_durable: Callable[[Callable[[], object]], None],
        wake: Callable[[OutgoingQueue], None],
        later: Callable[[float, Callable[[], object]], object],
        monotonic: Callable[[], float],
    ) -> None:
        self._manager, self._sequences, self._departure, self._routing = manager, sequences, protection, routing
        self._report_queue, self._when_durable, self._wake, self._later = report_queue, when_durable, wake, later
        self._now = monotonic
        self._plain = PlainDeparture(manager, self._packet)
        self._ready: dict[tuple[int, int], Message] = {}  # queue and message -> numbered message that was not sent yet
        self._unsynced: set[OutgoingQueue] = set()  # they are woken after the next sync

    def _seconds(self) -> int:
        return self._manager.clock() // 1000

    # -- packets -------------------------------------------------------------------------------------------------

    def next(self, queue: OutgoingQueue, peer: bytes) -> tuple[UserMessage, SentMessage] | None:
        """Take the next message of a queue for a session with `peer`; None if there is nothing to send now."""
        if queue.deleted or queue.on_hold or queue in self._unsynced or not self._manager.outgoing.online:
            return None
        try:
            return self._next(queue, peer)
        except OutOfResources as error:  # the messages stay in the queue
            logger.error("messages for %s wait; next attempt in %d s: %s", queue.destination, STORE_RETRY, error)
            self._later(STORE_RETRY, partial(self._wake, queue))
            return None

    def next_plain(self, queue: OutgoingQueue, most: int) -> tuple[PlainPackets, list[SentMessage]] | None:
        """Take the next messages of a queue, at most `most`, if the first one is plain; see `plain_departure`."""
        if self._sequences.get(queue) is not None or queue in self._unsynced:
            return None
        found = self._plain.packets(queue, most)
        if found is None:
            return None
        self._manager.outgoing.lock(queue, found.keys)
        return found, [SentMessage(queue, key, None, None) for key in found.keys]

    def _next(self, queue: OutgoingQueue, peer: bytes) -> tuple[UserMessage, SentMessage] | None:
        outgoing = self._manager.outgoing
        sequence = self._sequences.get(queue)
        while sequence is not None and sequence.pending:
            number = sequence.pending[0]
            key = sequence.messages.get(number)
            if key is None or key not in queue.entries:
                sequence.pending.popleft()
                sequence.withdraw(number)
                continue
            message = self._ready.pop((queue.number, key), None) or outgoing.take(queue, key)
            sequence.pending.popleft()
            if message is not None and (found := self._numbered_packet(sequence, message, number, peer)):
                return found
        if sequence is not None and sequence.is_waiting:
            return None
        message = outgoing.take(queue)
        if message is None:
            self._wake_after_sync(queue)
            return None
        if message.source_machine_identifier != self._manager.machine.identifier:
            return self._passed_on(message), _token(queue, message, None)
        if message.is_transactional:
            self._number(queue, message)
            return None
        packet = self._protected(queue, message)
        return None if packet is None else (packet, _token(queue, message, None))

    def _wake_after_sync(self, queue: OutgoingQueue) -> None:
        if queue not in self._unsynced and self._manager.outgoing.awaits_sync(queue):
            self._unsynced.add(queue)
            self._when_durable(partial(self._synced, queue))

    def _synced(self, queue: OutgoingQueue) -> None:
        self._unsynced.discard(queue)
        self._wake(queue)

    def _protected(self, queue: OutgoingQueue, message: Message) -> UserMessage | None:
        """Return the packet of a message, encrypted if requested. None if encryption fails; then the message is removed
        ([MS-MQQB] 3.1.7.1.5.1)."""
        packet = self._packet(queue, message)
        if not message.privacy_level:
            return packet
        try:
            self._departure.protect(packet, packet.user.queue_manager_address)
        except ProtectionError as error:
            logger.warning("cannot encrypt message %s for %s: %s", message.id, queue.destination, error.detail)
            queue.connection_history.append(
                ConnectionEvent(ConnectionStatus.CERTIFICATE_VALIDATION_FAILURE, self._seconds())
            )
            try:
                self._manager.outgoing.refuse(queue, message, error.fault.value.message_class)
            except MessageStorageFailed as full:
                logger.error("message %s for %s stays until the next session: %s", message.id, queue.destination, full)
            return None
        return packet

    def _packet(self, queue: OutgoingQueue, message: Message) -> UserMessage:
        """Return the packet of a message, with names of local queues that other machines understand."""
        if not (message.signature or message.multiple_destination_signature):  # a signature covers these names
            computer = self._manager.machine.computer_name
            administration = name_for_others(message.administration_queue_format_name, computer)
            response = name_for_others(message.response_queue_format_name, computer)
            destinations = name_for_others(message.destination_multi_queue_format_name, computer)
            if (
                administration != message.administration_queue_format_name
                or response != message.response_queue_format_name
                or destinations != message.destination_multi_queue_format_name
            ):
                message = replace(
                    message,
                    destination_multi_queue_format_name=destinations,
                    administration_queue_format_name=administration,
                    response_queue_format_name=response,
                )
        packet = user_message_of(message)
        if packet.user.destination is not None and packet.user.destination.type is NameType.PUBLIC:
            packet.user.queue_manager_address = self.machine_of(queue.destination, None)
        if message.message_class and message.time_to_reach_queue == self._manager.changes.longest_way:
            packet.base.time_to_reach_queue = INFINITE  # D-104: it expires here, by the clock of this machine
        if packet.debug is not None and self._report_queue:
            packet.debug = DebugHeader(self._report_queue)
        return packet

    def _passed_on(self, message: Message) -> UserMessage:
        """Return the packet of a routed message, with the routing state of the packet in which it arrived."""
        packet = user_message_of(message)
        value = self._manager.store.definitions.get(route_definition(message.lookup_identifier))
        if value is not None:
            route = Route.unpack(value)
            packet.user.routing_count = route.hops
            route.restore_names(packet.user)
            if packet.debug is not None and route.report_queue:
                packet.debug = DebugHeader(route.report_queue)
            if packet.transaction is not None:
                header = packet.transaction
                header.sequence_ordinal, header.sequence_timestamp = route.ordinal, route.timestamp
                header.sequence_number, header.previous_sequence_number = route.number, route.previous
                header.final_ack_required = route.final_ack
        destination = packet.user.destination
        if destination is not None and destination.type is NameType.PUBLIC:
            packet.user.queue_manager_address = self.machine_of(
                names.PublicFormatName(UUID(bytes_le=destination.guid)), message.lookup_identifier
            )
        return packet

    def machine_of(self, name: names.SingleFormatName, lookup_identifier: int | None) -> bytes:
        """Return the queue manager of a public queue: from the directory, or else from the packet of a routed message;
        16 zero bytes if neither is known."""
        place = self._manager.registry.place_of(name)
        if place is not None:
            return place.machine
        value = None
        if lookup_identifier is not None:
            value = self._manager.store.definitions.get(route_definition(lookup_identifier))
        return (Route.unpack(value).machine if value is not None else b"") or NO_GUID

    def _numbered_packet(
        self, sequence: QueueSequence, message: Message, number: int, peer: bytes
    ) -> tuple[UserMessage, SentMessage] | None:
        packet = self._protected(sequence.queue, message)
        if packet is None:
            sequence.withdraw(number)
            return None
        header = packet.transaction
        assert header is not None
        identifier = sequence.core.identifier
        header.sequence_ordinal, header.sequence_timestamp = identifier.ordinal, identifier.timestamp
        header.sequence_number, header.previous_sequence_number = number, sequence.previous(number)
        header.final_ack_required = bool(message.journaling_requested)
        sequence.peer = peer
        if sequence.core.next_deadline is None:
            sequence.core.sent(self._now())
            sequence.report_resending(self._now(), self._seconds())
        return packet, _token(sequence.queue, message, number)

    def _number(self, queue: OutgoingQueue, first: Message) -> None:
        """Assign sequence numbers to a message and its successors; they are sent when the numbers are durable."""
        outgoing, sequence = self._manager.outgoing, self._sequences.of(queue)
        if sequence.core.exhausted:
            self.put_back(queue, first.lookup_identifier)
            return
        messages, size = [first], len(first.body)
        while len(messages) < CHUNK_MESSAGES and size < CHUNK_BYTES:
            try:
                message = outgoing.take(queue)
            except OutOfResources:  # the numbered messages are sent; the next attempt reports the shortage
                break
            if message is None:
                break
            own = message.source_machine_identifier == self._manager.machine.identifier
            if not message.is_transactional or not own:
                self.put_back(queue, message.lookup_identifier)
                break
            messages.append(message)
            size += len(message.body)
        numbers, operations = sequence.number([message.lookup_identifier for message in messages])
        try:
            self._manager.arrivals.note(operations)
        except MessageStorageFailed as error:
            sequence.take_back(numbers)
            for message in messages:
                self.put_back(queue, message.lookup_identifier)
            logger.error(
                "cannot send messages for %s now; next attempt in %d s: %s", queue.destination, STORE_RETRY, error
            )
            self._later(STORE_RETRY, lambda: self._wake(queue))
            return
        sequence.stored()
        sequence.report(self._now(), self._seconds())
        for message in messages:
            self._ready[queue.number, message.lookup_identifier] = message
        self._when_durable(partial(self._numbered, sequence, numbers))

    def _numbered(self, sequence: QueueSequence, numbers: list[int]) -> None:
        sequence.ready(numbers)
        self._wake(sequence.queue)

    def put_back(self, queue: OutgoingQueue, lookup_identifier: int) -> None:
        """Put back a message that was not sent or not acknowledged."""
        if not queue.deleted and lookup_identifier in queue.entries:
            self._manager.outgoing.put_back(queue, lookup_identifier)

    def release(self, sequence: QueueSequence) -> None:
        """Put back the messages of a sequence, so that they can expire or be purged; they will be sent again."""
        for key in list(sequence.messages.values()):
            self._ready.pop((sequence.queue.number, key), None)
            self.put_back(sequence.queue, key)
        sequence.rewind()

    # -- acknowledgments -----------------------------------------------------------------------------------------

    def arrived(self, tokens: Iterable[Sent]) -> None:
        """Complete messages that the peer has acknowledged. Transactional messages also wait for their OrderAck."""
        by_queue: dict[OutgoingQueue, list[Message]] = {}
        plain: dict[OutgoingQueue, list[int]] = {}
        for token in tokens:
            if token is None or token.number is not None or token.queue.deleted:
                continue
            if token.message is None:
                plain.setdefault(token.queue, []).append(token.key)
            else:
                by_queue.setdefault(token.queue, []).append(token.message)
        for queue, keys in plain.items():
            left = [key for key in keys if key in queue.entries]
            if not self._manager.outgoing.transferred_alone(queue, left):  # resent; the peer detects duplicates
                why = "the disk is full, or the store has failed"
                logger.error("messages for %s were sent but cannot be removed: %s", queue.destination, why)
                for key in left:
                    self.put_back(queue, key)
        for queue, messages in by_queue.items():
            present = [message for message in messages if message.lookup_identifier in queue.entries]
            try:
                self._manager.outgoing.transferred(queue, present)
            except MessageStorageFailed as error:  # they are resent, and the peer detects duplicates
                logger.error("messages for %s were sent but cannot be removed: %s", queue.destination, error)
                for message in present:
                    self.put_back(queue, message.lookup_identifier)

    def is_acknowledgment(self, packet: UserMessage) -> bool:
        """Whether a packet is an OrderAck or FinalAck for this queue manager: a message of these classes for the order
        queue (deviation D-89)."""
        name, message_class = packet.user.destination, packet.properties.message_class
        address = packet.user.queue_manager_address
        if name is None or not (address == NO_GUID or self._manager.machine.has_identifier(address)):
            return False
        if message_class != MessageClass.ORDER_ACK and message_class < MessageClass.ACK_RECEIVE:
            return False
        return name.is_order_queue

    def _may_acknowledge(self, sequence: QueueSequence | None, peer: bytes) -> bool:
        """Whether a peer may acknowledge for a destination: the next hop, and queue managers of the routing table.
        Identifiers of sequences can be guessed (D-241)."""
        return sequence is None or sequence.peer in (b"", peer) or self._routing.host(peer) is not None

    def acknowledge(self, packet: UserMessage, peer: bytes) -> bool:
        """Process an OrderAck or a FinalAck ([MS-MQQB] 3.1.5.6, 3.1.5.7). One that matches no message is ignored.

        Returns False if it could not be stored and must be resent."""
        properties = packet.properties
        try:
            if properties.message_class == MessageClass.ORDER_ACK:
                self._order_ack(OrderAckBody.parse(properties.body), peer)
            elif properties.message_class >= MessageClass.ACK_RECEIVE:
                self._final_ack(FinalAckBody.parse(properties.body), properties.message_class, peer)
        except BadPacket as error:
            logger.warning("queue manager %s sent an invalid acknowledgment: %s", _text(peer), error)
        except MessageStorageFailed as error:
            logger.warning("could not store an acknowledgment; the peer will resend it: %s", error)
            return False
        return True

    def _order_ack(self, body: OrderAckBody, peer: bytes) -> None:
        sequence = self._sequences.find(body)
        if sequence is None:
            logger.debug("queue manager %s acknowledged an unknown sequence", _text(peer))
            return
        if not sequence.peer or not self._may_acknowledge(sequence, peer):
            _ignored(sequence.queue, peer)
            return
        queue = sequence.queue
        present, operations = sequence.acknowledged(body, self._now())
        for key in present:
            self._ready.pop((queue.number, key), None)
        try:
            if operations and not queue.deleted:
                self._manager.outgoing.ordered(queue, present, operations)
        except MsmqError:
            self._sequences.reload(self._manager.store.definitions, queue)
            raise
        sequence.report(self._now(), self._seconds(), ordered=True)

    def _final_ack(self, body: FinalAckBody, message_class: int, peer: bytes) -> None:
        if body.source_queue_manager != self._manager.machine.identifier:
            return
        for queue in self._manager.registry.outgoing.values():
            key = self._find(queue, body.message_id)
            if key is None:
                continue
            if not self._may_acknowledge(self._sequences.get(queue), peer):
                _ignored(queue, peer)
                return
            try:
                reason = MessageClass(message_class)
            except ValueError:  # every value of at least 0x8000 is a refusal (deviation D-109)
                reason = MessageClass.NACK_BAD_DST_Q
            self._ready.pop((queue.number, key), None)
            self._manager.outgoing.finished(queue, key, reason)
            return

    def _find(self, queue: OutgoingQueue, message_id: int) -> int | None:
        """Find the message with this MessageID that waits for an acknowledgment: its low 32 bits are the identifier."""
        latest = self._manager.changes.sequence
        for high in {latest >> 32, max((latest >> 32) - 1, 0)}:
            key = lookup_id(0, high << 32 | message_id)
            if key in queue.entries or (queue.journal is not None and key in queue.journal.entries):
                return key
        return None


def _text(identifier: bytes) -> str:
    return str(UUID(bytes_le=identifier))


def _ignored(queue: OutgoingQueue, peer: bytes) -> None:
    logger.warning(
        "messages for %s wait for an acknowledgment of their next hop; one came from queue manager %s and is ignored. "
        "If a router forwards messages to it, add both to routing_file", queue.destination, _text(peer),
    )  # fmt: skip


def _token(queue: OutgoingQueue, message: Message, number: int | None) -> SentMessage:
    """Return the fields of a message that are needed until it is acknowledged: its body only for a journal copy."""
    if not message.journaling_requested:
        message.body = b""
    return SentMessage(queue, message.lookup_identifier, message, number)
