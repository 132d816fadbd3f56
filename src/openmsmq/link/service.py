"""Port 1801: sessions that others open and those that outgoing queues need, and what both carry."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

from openmsmq.directory.connection import DirectoryConnection
from openmsmq.link.arrival import ORDER_QUEUE_NUMBER, ORDER_QUEUE_PATH, Arrival, Fate, Origin, Policy, reply_to
from openmsmq.link.connection import CLOCK_STEP, Connection
from openmsmq.link.destination import Destination
from openmsmq.link.durable import Route
from openmsmq.link.holding import Holding
from openmsmq.link.memory import Duplicates, Source, Sources
from openmsmq.link.resolving import Resolver, Target, Unresolved, target_of, why
from openmsmq.link.sequences import QueueSequence, Sequences
from openmsmq.model import names
from openmsmq.model.constants import MessageClass
from openmsmq.model.errors import HResult, InsufficientResources, MessageStorageFailed, MsmqError
from openmsmq.model.lookup_id import lookup_id
from openmsmq.model.message import Message
from openmsmq.packet import BadPacket, UserMessage
from openmsmq.packet.headers import NO_GUID
from openmsmq.packet.internal import EstablishConnection, FinalAckBody, OrderAckBody
from openmsmq.packet.queue_names import NameType
from openmsmq.protection.arrival import ArrivalProtection
from openmsmq.protection.departure import DepartureProtection
from openmsmq.protection.faults import ProtectionError
from openmsmq.queueing.change_set import ORDER_LABEL
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import ConnectionStatus, OutgoingQueue, OutgoingState
from openmsmq.queueing.records import route_definition
from openmsmq.transfer.packets import NAMES_KEPT, user_message_of
from openmsmq.transport import Closed, MessageReceived, Reason, Session, Settings
from openmsmq.transport.reaching import Connect, NextHop, Ping, Resolve, Wish
from openmsmq.transport.routing import Routing
from openmsmq.transport.sequence import Position
from openmsmq.transport.settings import WINDOW_SIZE

logger = logging.getLogger(__name__)

PORT = 1801  # [MS-MQQB] 2.1
CONNECT_TIMEOUT = 20.0  # seconds for a TCP connection
BACKLOG = 512
CHUNK_MESSAGES, CHUNK_BYTES = 256, 1 << 20  # that get their sequence numbers by one record
HEARTBEAT = 1.0  # seconds between looks at the resend timers
STORE_RETRY = 5.0  # seconds until sequence numbers are tried again that a full disk refused
MOST_ORDER_ACKS = 64  # that wait in one outgoing queue; more of them would say nothing new


@dataclass(frozen=True, slots=True)
class Options:
    """`port` is where others listen, 1801 unless all of them were configured otherwise. `source` is the address that
    connections come from, empty for the system's choice. `buffered` bounds the bytes of packets that are not whole
    yet, of all sessions."""

    port: int = PORT
    source: str = ""
    max_sessions: int = 4096
    max_sessions_per_peer: int = 1024
    buffered: int = 256 << 20
    hosts: Mapping[str, tuple[str, int]] | None = None
    policy: Policy = Policy()
    routing: Routing | None = None
    directory: DirectoryConnection | None = None


class Protections(Protocol):
    """What security does for messages that come, and for those that leave."""

    @property
    def arrival(self) -> ArrivalProtection: ...

    @property
    def departure(self) -> DepartureProtection: ...


class Token(NamedTuple):
    """What was sent: the body is left out where nobody needs it any more. `number` of a transactional message."""

    queue: OutgoingQueue
    message: Message
    number: int | None


class MessageService:
    """Listens, and drains outgoing queues: `queueing.outgoing_queues.Transport`."""

    def __init__(
        self,
        manager: QueueManager,
        when_durable: Callable[[Callable[[], object]], None],
        protections: Protections,
        options: Options,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._departure = protections.departure
        self._manager, self._when_durable, self._options, self._loop = manager, when_durable, options, loop
        self._settings = Settings(manager.machine.identifier)
        self._routing = options.routing or Routing(manager.machine.identifier)
        self._resolver = Resolver(options.hosts or {}, self._routing, options.directory)
        definitions = manager.store.definitions
        self._sequences = Sequences(definitions, manager.registry.outgoing.values(), self._seconds)
        self._sources = Sources(definitions, manager.registry.queues)
        self._duplicates = Duplicates(definitions, self._now())
        self._arrival = Arrival(
            manager, self._duplicates, self._sources, options.policy, self._routing, protections.arrival, self._now
        )
        self._holding = Holding(protections.arrival.look_up, self._judge, loop)
        self._destinations: dict[Target, Destination] = {}
        self._serving: dict[Connection, set[Destination]] = {}  # every connection, and who sends on it
        self._living: dict[bytes, Connection] = {}  # open sessions by the identifier of the peer, the first of each
        # By lower-case format name: order queues of peers, and the peers whose own sessions lead back there.
        self._via: dict[str, bytes] = {}
        self._ready: dict[tuple[int, int], Message] = {}  # by queue and message: numbered, and not sent yet
        self._server: asyncio.Server | None = None
        self._order_timer: asyncio.TimerHandle | None = None
        self._heartbeat: asyncio.TimerHandle | None = None
        self._buffered = 0
        self._stopped = False

    def _now(self) -> float:
        return self._loop.time() * 1000

    def _seconds(self) -> int:
        return self._manager.clock() // 1000

    # -- start and stop ------------------------------------------------------------------------------------------

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen, and begin to send what waits. Returns the address. Raises OSError."""
        orphans = [*self._sequences.orphans, *self._sources.orphans]
        if orphans:
            self._manager.arrivals.note(orphans)
        self._server = await self._loop.create_server(self._accept, host, port, backlog=BACKLOG)
        address = self._server.sockets[0].getsockname()
        self._heartbeat = self._loop.call_later(HEARTBEAT, self._beat)
        self.wake()
        return str(address[0]), int(address[1])

    def stop(self) -> None:
        """Close every session; what is not acknowledged is sent again after the next start."""
        self._stopped = True
        if self._server is not None:
            self._server.close()
        for timer in (self._heartbeat, self._order_timer):
            if timer is not None:
                timer.cancel()
        for destination in self._destinations.values():
            self._cancel(destination)
        for connection in list(self._serving):
            connection.close()

    @property
    def sessions(self) -> int:
        """How many connections there are."""
        return len(self._serving)

    # -- Transport -----------------------------------------------------------------------------------------------

    def wake(self, queue: OutgoingQueue | None = None) -> None:
        """Something may have become transferable in a queue, or in any of them, or may not be transferred any more."""
        if self._stopped:
            return
        if not self._manager.outgoing.online:
            self._go_offline()
            return
        for one in [queue] if queue is not None else list(self._manager.registry.outgoing.values()):
            if one.deleted or not one.entries:
                continue
            destination = self._destination(one)
            if destination is not None:
                destination.add(one)
                self._want(destination)
        if queue is None:
            self._follow_pauses()

    def resend(self, queue: OutgoingQueue) -> None:
        """EOD_RESEND ([MS-MQMR] 3.1.4.2). Raises MsmqError if nothing waits for an OrderAck."""
        sequence = self._sequences.get(queue)
        if sequence is None or not sequence.core.unacknowledged:
            raise MsmqError(
                HResult.MQ_ERROR, f"no message of the outgoing queue for {queue.destination} waits for an order ack"
            )
        self._send_again(sequence)

    def _follow_pauses(self) -> None:
        """A window of 1 while all queues of a session are paused ([MS-MQQB] 3.1.7.13)."""
        for connection, destinations in self._serving.items():
            members = [queue for one in destinations for queue in one.members if not queue.deleted]
            paused = bool(members) and all(queue.on_hold for queue in members)
            connection.set_window(1 if paused else WINDOW_SIZE)

    def _go_offline(self) -> None:
        for destination in self._destinations.values():
            self._cancel(destination)
            if destination.connection is not None:
                destination.connection.close()

    # -- destinations --------------------------------------------------------------------------------------------

    def _destination(self, queue: OutgoingQueue) -> Destination | None:
        via = self._via.get(str(queue.destination).lower())
        if via is not None and via in self._living:
            target: Target | None = Target(identifier=via)
        else:
            place = self._manager.registry.place_of(queue.destination)
            target = target_of(queue.destination) if place is None else Target(identifier=place.machine)
        if target is None:  # a public queue that the directory has not been asked for yet, which it is every minute
            queue.link = OutgoingState.NEED_VALIDATION
            return None
        destination = self._destinations.get(target)
        if destination is None:
            destination = self._destinations[target] = Destination(target)
        return destination

    def _want(self, destination: Destination) -> None:
        """There is something to send: send it, or find the way."""
        living = self._living.get(destination.target.identifier)
        if destination.connection is None and living is not None and destination.target.identifier != NO_GUID:
            self._cancel(destination)
            self._use(destination, living)
        if destination.connection is not None:
            self._pump(destination)
        else:
            self._carry_out(destination, destination.reaching.messages_wait(self._now()))

    def _use(self, destination: Destination, connection: Connection) -> None:
        destination.connection, destination.trouble = connection, ""
        self._serving[connection].add(destination)
        destination.show(OutgoingState.CONNECTED)

    def _carry_out(self, destination: Destination, wish: Wish) -> None:
        match wish:
            case Resolve():
                destination.show(OutgoingState.WAITING)
                self._begin(destination, self._resolve(destination))
            case Connect(hop, without_ping):
                self._begin(destination, self._connect(destination, hop, without_ping))
            case Ping():
                raise AssertionError("no destination is pinged")
            case None:
                self._wait(destination)

    def _begin(self, destination: Destination, work: Any) -> None:
        if destination.attempt is not None:
            destination.attempt.cancel()
        destination.attempt = self._loop.create_task(work)

    def _wait(self, destination: Destination) -> None:
        deadline = destination.reaching.next_deadline
        if destination.timer is not None:
            destination.timer.cancel()
            destination.timer = None
        if deadline is not None:
            destination.timer = self._loop.call_at(deadline / 1000 + CLOCK_STEP, self._retry, destination)

    def _retry(self, destination: Destination) -> None:
        destination.timer = None
        if not destination.has_messages or not self._manager.outgoing.online:
            destination.reaching.nothing_waits(self._now())
            destination.show(None)
            return
        self._carry_out(destination, destination.reaching.tick(self._now()))

    def _cancel(self, destination: Destination) -> None:
        destination.reaching.nothing_waits(self._now())
        if destination.attempt is not None:
            destination.attempt.cancel()
            destination.attempt = None
        if destination.timer is not None:
            destination.timer.cancel()
            destination.timer = None

    async def _resolve(self, destination: Destination) -> None:
        hops: Sequence[NextHop] = ()
        try:
            hops = await self._resolver.hops(destination.target)
        except Unresolved as error:
            self._has_trouble(destination, str(error))
            destination.record(ConnectionStatus.DNS_FAILURE, self._seconds())
        destination.attempt = None
        wish = destination.reaching.resolved(hops, self._now())
        if not hops:
            destination.show(OutgoingState.NEED_VALIDATION)
        for queue in destination.members:
            queue.next_hops = [_hop_text(hop.address) for hop in hops]
        self._carry_out(destination, wish)

    async def _connect(self, destination: Destination, hop: NextHop, without_ping: bool) -> None:
        def make(now: float) -> Session[Token]:
            return Session.initiator(self._settings, now, hop.identifier, without_ping)

        destination.show(OutgoingState.WAITING)
        connection: Connection | None = None
        try:
            if len(self._serving) >= self._options.max_sessions:
                raise OSError(f"there are {len(self._serving)} sessions already (max_sessions)")
            source = self._options.source
            local = (source, 0) if source and (":" in source) == (":" in hop.address) else None
            async with asyncio.timeout(CONNECT_TIMEOUT):
                _, connection = await self._loop.create_connection(
                    lambda: self._make(make), hop.address, self._options.port, local_addr=local
                )
        except (OSError, TimeoutError) as error:
            destination.attempt = None
            reason = why(error) if isinstance(error, OSError) and error.errno else str(error)
            self._has_trouble(
                destination,
                f"{hop.address} port {self._options.port}: {reason or f'no answer within {CONNECT_TIMEOUT:.0f} s'}",
            )
            destination.record(ConnectionStatus.SOCKET_CONNECT_FAILURE, self._seconds(), hop)
            self._carry_out(destination, destination.reaching.failed(self._now()))
            return
        destination.attempt = None
        destination.reaching.connected(self._now())
        destination.record(ConnectionStatus.IN_PROCESS, self._seconds(), hop)
        if connection.is_over:
            self._ended(destination, connection)
        else:
            self._serving.setdefault(connection, set()).add(destination)

    def _has_trouble(self, destination: Destination, text: str) -> None:
        if destination.trouble != text:
            logger.warning("messages for %s wait: %s", destination.target, text)
        destination.trouble = text

    # -- connections ---------------------------------------------------------------------------------------------

    def _make(self, make_session: Callable[[float], Session[Token]]) -> Connection:
        connection = Connection(self._loop, self, make_session)
        self._serving[connection] = set()
        return connection

    def _accept(self) -> Connection:
        """For each connection that others make."""

        def make(now: float) -> Session[Token]:
            return Session.acceptor(self._settings, now, lambda request: self._admits(connection, request))

        connection = self._make(make)
        return connection

    def _admits(self, connection: Connection, request: EstablishConnection) -> bool:
        """Whether a peer may open a session: neither this queue manager itself, nor one too many."""
        same_peer = sum(1 for other in self._serving if other.address == connection.address)
        if request.client_guid == self._manager.machine.identifier:
            logger.warning("%s says that it is this queue manager: refused", connection.address)
            return False
        if len(self._serving) > self._options.max_sessions or same_peer > self._options.max_sessions_per_peer:
            logger.warning(
                "%s is refused: there are %d sessions, %d with it (max_sessions, max_sessions_per_peer)",
                connection.address, len(self._serving) - 1, same_peer - 1,
            )  # fmt: skip
            return False
        return True

    def connected(self, connection: Connection) -> bool:
        """See `connection.Owner`: twice as many connections as sessions may be there, half of them half open."""
        return len(self._serving) <= 2 * self._options.max_sessions

    def buffers(self, connection: Connection, change: int) -> bool:
        """See `connection.Owner`."""
        self._buffered += change
        if change <= 0 or self._buffered <= self._options.buffered:
            return True
        logger.warning(
            "%s is disconnected: packets that are not whole take %d bytes", connection.address, self._buffered
        )
        return False

    def identified(self, connection: Connection, peer: bytes) -> None:
        """See `connection.Owner`."""
        if connection.address:
            self._resolver.met(peer, connection.address)
        for destination in self._serving.get(connection, ()):
            destination.record(ConnectionStatus.ESTABLISH_PACKET_RECEIVED, self._seconds())

    def opened(self, connection: Connection) -> None:
        """See `connection.Owner`."""
        self._living.setdefault(connection.session.peer, connection)
        for destination in list(self._serving.get(connection, ())):
            self._use(destination, connection)
            destination.record(ConnectionStatus.ESTABLISHED, self._seconds(), destination.reaching.hop)
            for queue in destination.members:
                if (sequence := self._sequences.get(queue)) is not None:
                    sequence.rewind()
            self._pump(destination)

    def writable(self, connection: Connection) -> None:
        """See `connection.Owner`."""
        for destination in list(self._serving.get(connection, ())):
            self._pump(destination)

    def closed(self, connection: Connection, event: Closed[Token]) -> None:
        """See `connection.Owner`. What was sent and not acknowledged returns to its queue."""
        destinations = self._serving.pop(connection, set())
        peer = connection.session.peer
        if self._living.get(peer) is connection:
            del self._living[peer]
            self._via = {name: via for name, via in self._via.items() if via != peer}
        quiet = event.reason in (Reason.IDLE, Reason.LOCAL, Reason.DISCONNECTED)
        logger.log(
            logging.DEBUG if quiet else logging.WARNING,
            "session with %s ended: %s%s", connection.address, event.reason.value,
            f" ({event.detail})" if event.detail else "",
        )  # fmt: skip
        for token in event.unacknowledged:
            if token.number is None:
                self._put_back(token.queue, token.message.lookup_identifier)
        for destination in destinations:
            if event.reason is Reason.REFUSED:
                destination.record(ConnectionStatus.CONNECTION_REFUSED, self._seconds(), destination.reaching.hop)
            if event.reason not in (Reason.IDLE, Reason.LOCAL):
                detail = event.detail or event.reason.value
                self._has_trouble(destination, f"the session with {connection.address} ended: {detail}")
            self._ended(destination, connection)

    def _ended(self, destination: Destination, connection: Connection) -> None:
        """A destination has lost its connection."""
        if destination.connection is connection:
            destination.connection = None
        for queue in list(destination.members):
            if queue.deleted:
                destination.leave(queue)
            elif (sequence := self._sequences.get(queue)) is not None:
                self._release(sequence)
        waits = destination.has_messages and not self._stopped and self._manager.outgoing.online
        destination.show(OutgoingState.WAITING if waits else None)
        if waits and destination.reaching.state.name == "IDLE":  # another's session has carried its messages
            for queue in list(destination.members):
                if self._via.get(str(queue.destination).lower()):
                    destination.leave(queue)
                    self._loop.call_soon(self.wake, queue)
            if destination.has_messages:
                self._carry_out(destination, destination.reaching.messages_wait(self._now()))
            return
        self._carry_out(destination, destination.reaching.ended(waits, self._now()))
        if not destination.members and self._destinations.get(destination.target) is destination:
            self._cancel(destination)
            del self._destinations[destination.target]

    # -- sending -------------------------------------------------------------------------------------------------

    def _pump(self, destination: Destination) -> None:
        """Send what the window allows, a message of each queue in turn."""
        connection = destination.connection
        if connection is None or connection.is_over:
            return
        while connection.room and (queue := destination.next_queue()) is not None:
            following = self._next(queue, connection)
            if following is None:
                destination.nothing_from(queue)
                continue
            packet, token = following
            connection.send(packet, token)
            destination.turn()
        connection.flush()

    def _next(self, queue: OutgoingQueue, connection: Connection) -> tuple[UserMessage, Token] | None:
        """The next message of a queue, taken from it; None if it has nothing to send now."""
        outgoing = self._manager.outgoing
        if queue.deleted or queue.on_hold or not outgoing.online:
            return None
        sequence = self._sequences.get(queue)
        while sequence is not None and sequence.pending:
            number = sequence.pending.popleft()
            key = sequence.messages.get(number)
            if key is None or key not in queue.entries:
                sequence.withdraw(number)
                continue
            message = self._ready.pop((queue.number, key), None) or outgoing.take(queue, key)
            if message is not None and (found := self._numbered_packet(sequence, message, number, connection)):
                return found
        if sequence is not None and sequence.is_waiting:
            return None
        message = outgoing.take(queue)
        if message is None:
            return None
        if message.source_machine_identifier != self._manager.machine.identifier:
            return self._passed_on(message), _token(queue, message, None)
        if message.is_transactional:
            self._number(queue, message)
            return None
        packet = self._protected(queue, message)
        return None if packet is None else (packet, _token(queue, message, None))

    def _protected(self, queue: OutgoingQueue, message: Message) -> UserMessage | None:
        """The packet of a message, encrypted if that is asked for. None if it can't be: then the message is no more
        ([MS-MQQB] 3.1.7.1.5.1)."""
        packet = self._packet(queue, message)
        if not message.privacy_level:
            return packet
        try:
            self._departure.protect(packet, packet.user.queue_manager_address)
        except ProtectionError as error:
            logger.warning("message %s for %s can't be encrypted: %s", message.id, queue.destination, error.detail)
            destination = self._destination(queue)
            if destination is not None:
                destination.record(ConnectionStatus.CERTIFICATE_VALIDATION_FAILURE, self._seconds())
            with suppress(MessageStorageFailed):  # it stays locked, and is tried again with the next session
                self._manager.outgoing.refuse(queue, message, error.fault.value.message_class)
            return None
        return packet

    def _packet(self, queue: OutgoingQueue, message: Message) -> UserMessage:
        """A message on its way: names of queues of this machine have to be understood elsewhere."""
        machine = self._manager.machine
        administration = _named_for_others(message.administration_queue_format_name, machine.computer_name)
        response = _named_for_others(message.response_queue_format_name, machine.computer_name)
        if administration or response:
            message = replace(
                message,
                administration_queue_format_name=administration or message.administration_queue_format_name,
                response_queue_format_name=response or message.response_queue_format_name,
            )
        packet = user_message_of(message)
        if packet.user.destination is not None and packet.user.destination.type is NameType.PUBLIC:
            place = self._manager.registry.place_of(queue.destination)
            packet.user.queue_manager_address = place.machine if place is not None else NO_GUID
        return packet

    def _passed_on(self, message: Message) -> UserMessage:
        """A message of another queue manager, with what its packet said."""
        packet = user_message_of(message)
        value = self._manager.store.definitions.get(route_definition(message.lookup_identifier))
        if value is not None:
            route = Route.unpack(value)
            packet.user.routing_count = route.hops
            if packet.transaction is not None:
                header = packet.transaction
                header.sequence_ordinal, header.sequence_timestamp = route.ordinal, route.timestamp
                header.sequence_number, header.previous_sequence_number = route.number, route.previous
                header.final_ack_required = route.final_ack
        return packet

    def _numbered_packet(
        self, sequence: QueueSequence, message: Message, number: int, connection: Connection
    ) -> tuple[UserMessage, Token] | None:
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
        sequence.peer = connection.session.peer
        sequence.core.sent(self._now())
        return packet, _token(sequence.queue, message, number)

    def _number(self, queue: OutgoingQueue, first: Message) -> None:
        """Give sequence numbers to a message and those that follow it; they are sent when the numbers are durable."""
        outgoing, sequence = self._manager.outgoing, self._sequences.of(queue)
        if sequence.core.exhausted:
            self._put_back(queue, first.lookup_identifier)
            return
        messages, size = [first], len(first.body)
        while len(messages) < CHUNK_MESSAGES and size < CHUNK_BYTES:
            message = outgoing.take(queue)
            if message is None:
                break
            own = message.source_machine_identifier == self._manager.machine.identifier
            if not message.is_transactional or not own:
                self._put_back(queue, message.lookup_identifier)
                break
            messages.append(message)
            size += len(message.body)
        numbers, operations = sequence.number([message.lookup_identifier for message in messages])
        try:
            self._manager.arrivals.note(operations)
        except MessageStorageFailed as error:
            sequence.take_back(numbers)
            for message in messages:
                self._put_back(queue, message.lookup_identifier)
            logger.error(
                "messages for %s can't be sent now, next try in %d s: %s", queue.destination, STORE_RETRY, error
            )
            self._loop.call_later(STORE_RETRY, self.wake, queue)
            return
        sequence.stored()
        sequence.report(self._seconds())
        for message in messages:
            self._ready[queue.number, message.lookup_identifier] = message
        self._when_durable(partial(self._numbered, sequence, numbers))

    def _numbered(self, sequence: QueueSequence, numbers: list[int]) -> None:
        sequence.ready(numbers)
        if not self._stopped:
            self.wake(sequence.queue)

    def _put_back(self, queue: OutgoingQueue, lookup_identifier: int) -> None:
        if not queue.deleted and lookup_identifier in queue.entries:
            self._manager.outgoing.put_back(queue, lookup_identifier)

    def _release(self, sequence: QueueSequence) -> None:
        """Put back what a sequence holds, so that it can expire or be purged; it is to be sent again."""
        for key in list(sequence.messages.values()):
            self._ready.pop((sequence.queue.number, key), None)
            self._put_back(sequence.queue, key)
        sequence.rewind()

    def _send_again(self, sequence: QueueSequence) -> None:
        self._release(sequence)
        self.wake(sequence.queue)

    def acknowledged(self, connection: Connection, tokens: tuple[Token, ...]) -> None:
        """See `connection.Owner`. Transactional messages wait for their OrderAck besides."""
        by_queue: dict[OutgoingQueue, list[Message]] = {}
        for token in tokens:
            if token.number is None and not token.queue.deleted:
                by_queue.setdefault(token.queue, []).append(token.message)
        for queue, messages in by_queue.items():
            present = [message for message in messages if message.lookup_identifier in queue.entries]
            try:
                self._manager.outgoing.transferred(queue, present)
            except MessageStorageFailed as error:  # they are sent again, and known there
                logger.error("messages for %s were sent and can't be removed: %s", queue.destination, error)
                for message in present:
                    self._put_back(queue, message.lookup_identifier)
        for destination in list(self._serving.get(connection, ())):
            self._pump(destination)

    # -- receiving -----------------------------------------------------------------------------------------------

    def received(self, connection: Connection, messages: list[MessageReceived]) -> None:
        """See `connection.Owner`."""
        self._holding.received(connection, messages)

    def _judge(self, connection: Connection, messages: Sequence[MessageReceived]) -> None:
        receipts: list[int] = []
        moved: dict[Source, Position] = {}
        origin = Origin(connection.session.peer, connection.address)
        for received in messages:
            if connection.is_over and received.receipt is None:
                continue
            if self._is_acknowledgment(received.message):
                fate = self._acknowledgment(received.message, connection)
            else:
                if received.message.transaction is not None:
                    self._via[reply_to(received.message, origin).lower()] = origin.peer
                verdict = self._arrival.receive(received.message, origin)
                fate = verdict.fate
                if verdict.source is not None and fate is not Fate.OUT_OF_ORDER:
                    moved[verdict.source] = verdict.source.sequence.position
            if fate is Fate.COMES_AGAIN:
                connection.close()
                break
            if received.receipt is not None:
                receipts.append(received.receipt)
        if receipts or moved:
            self._when_durable(partial(self._stored, connection, receipts, moved))
        self._arm_order_timer()

    def _stored(self, connection: Connection, receipts: list[int], moved: dict[Source, Position]) -> None:
        now = self._now()
        for source, position in moved.items():
            source.sequence.durable(position, now)
            self._sources.due.add(source)
        connection.durable(receipts)
        self._arm_order_timer()

    def _is_acknowledgment(self, packet: UserMessage) -> bool:
        """Whether a packet is an OrderAck or FinalAck for this queue manager: it is for the order queue, with a class
        of theirs (deviation D-89)."""
        name, message_class = packet.user.destination, packet.properties.message_class
        if name is None or packet.user.queue_manager_address not in (NO_GUID, self._manager.machine.identifier):
            return False
        if message_class != MessageClass.ORDER_ACK and message_class < MessageClass.ACK_RECEIVE:
            return False
        if name.type is NameType.DIRECT:
            return name.direct.partition("\\")[2].lower() == ORDER_QUEUE_PATH
        return name.type is NameType.PRIVATE_ON_DESTINATION and name.number == ORDER_QUEUE_NUMBER

    def _may_acknowledge(self, sequence: QueueSequence | None, connection: Connection) -> bool:
        """Only the next hop, or a queue manager of the routing table, speaks for a destination: identifiers of
        sequences can be guessed."""
        peer = connection.session.peer
        return sequence is None or sequence.peer in (b"", peer) or self._routing.host(peer) is not None

    def _acknowledgment(self, packet: UserMessage, connection: Connection) -> Fate:
        """An OrderAck or a FinalAck ([MS-MQQB] 3.1.5.6, 3.1.5.7). What does not fit any message of ours is ignored."""
        properties = packet.properties
        try:
            if properties.message_class == MessageClass.ORDER_ACK:
                self._order_ack(OrderAckBody.parse(properties.body), connection)
            elif properties.message_class >= MessageClass.ACK_RECEIVE:
                self._final_ack(FinalAckBody.parse(properties.body), properties.message_class, connection)
        except BadPacket as error:
            logger.warning("%s sent an acknowledgment that can't be read: %s", connection.address, error)
        except MessageStorageFailed as error:
            logger.warning("an acknowledgment of %s has no room, and comes again: %s", connection.address, error)
            return Fate.COMES_AGAIN
        return Fate.ACCEPTED

    def _order_ack(self, body: OrderAckBody, connection: Connection) -> None:
        sequence = self._sequences.find(body)
        if sequence is None or not sequence.peer or not self._may_acknowledge(sequence, connection):
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
        sequence.report(self._seconds(), ordered=True)

    def _final_ack(self, body: FinalAckBody, message_class: int, connection: Connection) -> None:
        if body.source_queue_manager != self._manager.machine.identifier:
            return
        for queue in self._manager.registry.outgoing.values():
            key = self._find(queue, body.message_id)
            if key is None:
                continue
            if not self._may_acknowledge(self._sequences.get(queue), connection):
                return
            try:
                reason = MessageClass(message_class)
            except ValueError:  # whatever is at least 0x8000 is a refusal (deviation D-109)
                reason = MessageClass.NACK_BAD_DST_Q
            self._ready.pop((queue.number, key), None)
            self._manager.outgoing.finished(queue, key, reason)
            return

    def _find(self, queue: OutgoingQueue, message_id: int) -> int | None:
        """The message with this MessageID that waits for an acknowledgment: its low 32 bits are the identifier."""
        latest = self._manager.changes.sequence
        for high in {latest >> 32, max((latest >> 32) - 1, 0)}:
            key = lookup_id(0, high << 32 | message_id)
            if key in queue.entries or (queue.journal is not None and key in queue.journal.entries):
                return key
        return None

    # -- order acknowledgments and resending ---------------------------------------------------------------------

    def _arm_order_timer(self) -> None:
        deadlines = [one.sequence.next_deadline for one in self._sources.due]
        deadline = min((at for at in deadlines if at is not None), default=None)
        if self._order_timer is not None:
            self._order_timer.cancel()
            self._order_timer = None
        if deadline is not None and not self._stopped:
            self._order_timer = self._loop.call_at(deadline / 1000 + CLOCK_STEP, self._send_order_acks)

    def _send_order_acks(self) -> None:
        self._order_timer = None
        now = self._now()
        for source in list(self._sources.due):
            body = source.sequence.tick(now)
            if body is not None:
                with suppress(MsmqError):  # the next resend brings another one
                    self._send_order_ack(source, body)
            if source.sequence.next_deadline is None:
                self._sources.due.discard(source)
        self._arm_order_timer()

    def _send_order_ack(self, source: Source, body: OrderAckBody) -> None:
        """3.1.6.9 and 3.1.7.17: an express message to the order queue of whoever sent the sequence."""
        name = names.parse_format_name(source.reply)
        assert isinstance(name, (names.DirectFormatName, names.PrivateFormatName))
        try:
            queue = self._manager.changes.outgoing_for(name)
        except InsufficientResources as error:
            logger.warning("no order acknowledgment for %s: %s", name, error)
            return
        if len(queue) < MOST_ORDER_ACKS:
            self._manager.arrivals.send(queue, Message(
                message_class=MessageClass.ORDER_ACK, label=ORDER_LABEL, body=body.pack(),
                destination_queue_format_name=str(name), time_to_reach_queue=self._manager.changes.longest_way,
            ))  # fmt: skip

    def _has_place(self, queue: OutgoingQueue) -> bool:
        """Whether the directory has said where a public queue is, whose messages wait for that."""
        place = self._manager.registry.place_of(queue.destination)
        return place is not None and Target(identifier=place.machine) not in self._destinations

    def _beat(self) -> None:
        """Once a second: what waits for an OrderAck for too long is sent again (3.1.6.5)."""
        now = self._now()
        self._heartbeat = self._loop.call_later(HEARTBEAT, self._beat)
        for queue in list(self._manager.registry.outgoing.values()):
            if queue.entries and queue.link is OutgoingState.NEED_VALIDATION and self._has_place(queue):
                self.wake(queue)
        for sequence in self._sequences:
            if sequence.queue.deleted:
                with suppress(MsmqError):
                    self._manager.arrivals.note(self._sequences.forget(sequence.queue))
            elif sequence.core.tick(now):
                info = sequence.queue.transfer_info
                info.eod_resend_count += 1
                info.eod_resend_time = self._seconds()
                logger.warning(
                    "%d messages for %s have no order acknowledgment and are sent again",
                    len(sequence.core.unacknowledged), sequence.queue.destination,
                )  # fmt: skip
                self._send_again(sequence)


def _token(queue: OutgoingQueue, message: Message, number: int | None) -> Token:
    """What has to be known of a message until it is acknowledged: its body only for a journal copy. One that is stored
    is ours alone, as it was read; an express one is in its queue."""
    if message.recoverable and not message.journaling_requested:
        message.body = b""
    return Token(queue, message, number)


@lru_cache(NAMES_KEPT)
def _named_for_others(format_name: str, computer: str) -> str:
    """The format name under which another machine finds a queue that is named as one of this machine; empty if the
    name is good as it is (deviation D-108)."""
    if not format_name:
        return ""
    try:
        name = names.parse_format_name(format_name)
    except MsmqError:
        return ""
    if isinstance(name, names.DirectFormatName) and name.host.lower() in (".", "localhost"):
        return str(replace(name, protocol="OS", address=computer))
    return ""


def _hop_text(address: str) -> str:
    """An element of NextHops, [MS-MQMQ] 2.3.12.12."""
    return f"{'IPv6' if ':' in address else 'IP'}={address}"
