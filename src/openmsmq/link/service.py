"""Port 1801: sessions that others open and those that outgoing queues need, and what both carry."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from openmsmq.directory.connection import DirectoryConnection
from openmsmq.link.arrival import Arrival, Batch, Fate, Origin, Policy, reply_to
from openmsmq.link.connection import CLOCK_STEP, Connection
from openmsmq.link.departing import Departing, Token
from openmsmq.link.destination import Destination
from openmsmq.link.holding import Holding
from openmsmq.link.memory import Duplicates, Source, Sources
from openmsmq.link.order_acks import OrderAcks
from openmsmq.link.pinging import PORT as PING_PORT
from openmsmq.link.pinging import ask
from openmsmq.link.reports import Locate, Reports
from openmsmq.link.resolving import Resolver, Target, Unknown, Unresolved, target_of, why
from openmsmq.link.sequences import QueueSequence, Sequences
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.packet import UserMessage
from openmsmq.packet.internal import EstablishConnection
from openmsmq.packet.queue_names import NameType
from openmsmq.protection.arrival import ArrivalProtection
from openmsmq.protection.departure import DepartureProtection
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import ConnectionStatus, OutgoingQueue, OutgoingState
from openmsmq.transport import Closed, MessageReceived, Reason, Session, Settings
from openmsmq.transport.reaching import PING_TIMEOUT, Connect, NextHop, Ping, Reach, Reaching, Resolve, Wish
from openmsmq.transport.routing import Routing
from openmsmq.transport.sequence import Position
from openmsmq.transport.settings import WINDOW_SIZE

logger = logging.getLogger(__name__)

PORT = 1801  # [MS-MQQB] 2.1
CONNECT_TIMEOUT = 20.0  # seconds for a TCP connection
BACKLOG = 512
HEARTBEAT = 1.0  # seconds between looks at the resend timers


@dataclass(frozen=True, slots=True)
class Options:
    """`port` is where others listen, 1801 unless all of them were configured otherwise. `source` is the address that
    connections come from, empty for the system's choice. `buffered` bounds the bytes of packets that are not whole
    yet, of all sessions. `report_messages` says whether reports of traced messages are sent, to queues that `locate`
    finds; `report_queue` (16 bytes, or none) is the public queue for reports that messages sent here name. With `ping`
    the hosts of other queue managers are asked by UDP, at `ping_port`, before a connection is made."""

    port: int = PORT
    source: str = ""
    max_sessions: int = 4096
    max_sessions_per_peer: int = 1024
    buffered: int = 256 << 20
    hosts: Mapping[str, tuple[str, int]] | None = None
    policy: Policy = Policy()
    routing: Routing | None = None
    directory: DirectoryConnection | None = None
    report_messages: bool = False
    report_queue: bytes = b""
    locate: Locate | None = None
    ping: bool = False
    ping_port: int = PING_PORT


class Protections(Protocol):
    """What security does for messages that come, and for those that leave."""

    @property
    def arrival(self) -> ArrivalProtection: ...

    @property
    def departure(self) -> DepartureProtection: ...


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
        self._departing = Departing(
            manager, self._sequences, protections.departure, self._routing, options.report_queue, when_durable,
            self.wake, loop.call_later, self._now,
        )  # fmt: skip
        self._order_acks = OrderAcks(manager, self._sources, loop)
        self._reports = Reports(manager, options.locate, loop) if options.report_messages else None
        self._holding = Holding(protections.arrival.look_up, self._judge, loop)
        self._destinations: dict[Target, Destination] = {}
        self._serving: dict[Connection, set[Destination]] = {}  # every connection, and who sends on it
        self._living: dict[bytes, Connection] = {}  # open sessions by the identifier of the peer, the first of each
        # By lower-case format name: order queues of peers, and the peers whose own sessions lead back there.
        self._via: dict[str, bytes] = {}
        self._server: asyncio.Server | None = None
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
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self._order_acks.stop()
        if self._reports is not None:
            self._reports.stop()
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
            target: Target | None = Target(identifier=via, claimed=True)
        else:
            place = self._manager.registry.place_of(queue.destination)
            target = target_of(queue.destination) if place is None else Target(identifier=place.machine)
        if target is None:  # a public queue that the directory has not been asked for yet, which it is every minute
            queue.link = OutgoingState.NEED_VALIDATION
            return None
        destination = self._destinations.get(target)
        if destination is None:
            destination = self._destinations[target] = Destination(target, Reaching(self._options.ping))
        return destination

    def _want(self, destination: Destination) -> None:
        """There is something to send: send it, or find the way."""
        living = self._living.get(destination.target.identifier)
        if destination.connection is None and living is not None and destination.target.claimed:
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
            case Ping(hop):
                self._begin(destination, self._ping(destination, hop))
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
        except Unknown as error:
            if (living := self._living.get(destination.target.identifier)) is not None:
                destination.attempt = None
                destination.reaching.nothing_waits(self._now())
                self._use(destination, living)
                self._pump(destination)
                return
            hops = self._resolver.last_met(destination.target)
            if not hops:
                self._is_unresolved(destination, error)
        except Unresolved as error:
            self._is_unresolved(destination, error)
        destination.attempt = None
        wish = destination.reaching.resolved(hops, self._now())
        if not hops:
            destination.show(OutgoingState.NEED_VALIDATION)
        for queue in destination.members:
            queue.next_hops = [_hop_text(hop.address) for hop in hops]
        self._carry_out(destination, wish)

    def _is_unresolved(self, destination: Destination, error: Unresolved) -> None:
        self._has_trouble(destination, str(error))
        destination.record(ConnectionStatus.DNS_FAILURE, self._seconds())

    async def _ping(self, destination: Destination, hop: NextHop) -> None:
        """3.1.5.2.2: connect to a hop only if it says that it would accept a session."""
        destination.show(OutgoingState.WAITING)
        accepts, trouble, port = False, "it accepts no sessions now", self._options.ping_port
        try:
            accepts = await ask(
                hop.address, port, self._manager.machine.identifier, PING_TIMEOUT / 1000, self._source_for(hop)
            )
        except TimeoutError:
            trouble = "no answer to a ping: a firewall, or a queue manager that answers none (setting: ping)"
        except OSError as error:
            trouble = why(error)
        destination.attempt = None
        if not accepts:
            self._has_trouble(destination, f"{hop.address} UDP port {port}: {trouble}")
            destination.record(ConnectionStatus.PING_FAILURE, self._seconds(), hop)
        self._carry_out(destination, destination.reaching.pinged(accepts, self._now()))

    def _source_for(self, hop: NextHop) -> str:
        """The address to reach a hop from, empty for the system's choice."""
        source = self._options.source
        return source if source and (":" in source) == (":" in hop.address) else ""

    async def _connect(self, destination: Destination, hop: NextHop, without_ping: bool) -> None:
        def make(now: float) -> Session[Token]:
            return Session.initiator(self._settings, now, hop.identifier, without_ping)

        destination.show(OutgoingState.WAITING)
        connection: Connection | None = None
        try:
            if len(self._serving) >= self._options.max_sessions:
                raise OSError(f"there are {len(self._serving)} sessions already (max_sessions)")
            source = self._source_for(hop)
            local = (source, 0) if source else None
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
        same_peer = self._connections_with(connection.address)
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

    def accepts(self, address: str) -> bool:
        """Whether a session that a host, by its IP address, opened now would be accepted."""
        of_peer, options = self._connections_with(address), self._options
        return len(self._serving) < options.max_sessions and of_peer < options.max_sessions_per_peer

    def _connections_with(self, address: str) -> int:
        return sum(1 for connection in self._serving if connection.address == address)

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
        expected = event.reason in (Reason.IDLE, Reason.LOCAL, Reason.DISCONNECTED)
        logger.log(
            logging.DEBUG if expected else logging.WARNING,
            "session with %s ended: %s%s", connection.address, event.reason.value,
            f" ({event.detail})" if event.detail else "",
        )  # fmt: skip
        for token in event.unacknowledged:
            if token.number is None:
                self._departing.put_back(token.queue, token.message.lookup_identifier)
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
                self._departing.release(sequence)
        waits = destination.has_messages and not self._stopped and self._manager.outgoing.online
        destination.show(OutgoingState.WAITING if waits else None)
        if destination.target.claimed:  # acknowledgments that are left have to find another way
            for queue in list(destination.members):
                destination.leave(queue)
                self._loop.call_soon(self.wake, queue)
            return
        if waits and destination.reaching.state is Reach.IDLE:  # another's session has carried its messages
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
            following = self._departing.next(queue, connection.session.peer)
            if following is None:
                destination.nothing_from(queue)
                continue
            packet, token = following
            connection.send(packet, token)
            if self._reports is not None:
                self._reports.sent(packet, connection.address)
            destination.turn()
        connection.flush()

    def acknowledged(self, connection: Connection, tokens: tuple[Token, ...]) -> None:
        """See `connection.Owner`. Transactional messages wait for their OrderAck besides."""
        self._departing.arrived(tokens)
        for destination in list(self._serving.get(connection, ())):
            self._pump(destination)

    # -- receiving -----------------------------------------------------------------------------------------------

    def received(self, connection: Connection, messages: list[MessageReceived]) -> None:
        """See `connection.Owner`."""
        self._holding.received(connection, messages)

    def _judge(self, connection: Connection, messages: Sequence[MessageReceived]) -> None:
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
            self._via[reply_to(packet, origin).lower()] = origin.peer
        verdict = self._arrival.receive(packet, origin, batch)
        if verdict.fate is Fate.ACCEPTED and self._reports is not None:
            self._reports.received(packet)
        return verdict.fate, verdict.source

    def _stored(self, connection: Connection, receipts: list[int], moved: dict[Source, Position]) -> None:
        self._order_acks.durable(moved)
        connection.durable(receipts)

    # -- resending ---------------------------------------------------------------------

    def _send_again(self, sequence: QueueSequence) -> None:
        self._departing.release(sequence)
        self.wake(sequence.queue)

    def _has_place(self, queue: OutgoingQueue) -> bool:
        """Whether the directory has said where a public queue is, whose messages wait for that."""
        place = self._manager.registry.place_of(queue.destination)
        return place is not None and Target(identifier=place.machine) not in self._destinations

    def _beat(self) -> None:
        """Once a second: what waits for an OrderAck for too long is sent again (3.1.6.5), and what is gone is
        forgotten."""
        now = self._now()
        self._heartbeat = self._loop.call_later(HEARTBEAT, self._beat)
        for queue in list(self._manager.registry.outgoing.values()):
            if queue.entries and queue.link is OutgoingState.NEED_VALIDATION and self._has_place(queue):
                self.wake(queue)
        for destination in [one for one in self._destinations.values() if one.is_unused]:
            self._cancel(destination)
            del self._destinations[destination.target]
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


def _answers_here(packet: UserMessage, origin: Origin) -> bool:
    """Whether acknowledgments of a transactional message may go back on the session that brought it: its source is at
    the other end, or says nothing but that. Those for others find their own way."""
    destination = packet.user.destination
    is_direct = destination is not None and destination.type is NameType.DIRECT
    return is_direct or packet.user.source_queue_manager == origin.peer


def _hop_text(address: str) -> str:
    """An element of NextHops, [MS-MQMQ] 2.3.12.12."""
    return f"{'IPv6' if ':' in address else 'IP'}={address}"
