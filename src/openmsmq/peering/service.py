"""Sessions on port 1801: incoming ones and those opened for outgoing queues, and their messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Final, Protocol
from uuid import UUID

from openmsmq.model import names
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.model.message import Message
from openmsmq.packet.headers import NO_GUID
from openmsmq.packet.queue_names import ORDER_QUEUE_NUMBER
from openmsmq.peering.arrival import Arrival
from openmsmq.peering.connection import PeerConnection
from openmsmq.peering.destination import Destination
from openmsmq.peering.dialing import Dialer
from openmsmq.peering.known_addresses import KnownAddresses
from openmsmq.peering.limits import SessionLimits
from openmsmq.peering.memory import Duplicates, Sources, SourceState
from openmsmq.peering.options import TransferOptions
from openmsmq.peering.order_acks import OrderAcks
from openmsmq.peering.pending_lookups import PendingLookups
from openmsmq.peering.plain_arrival import PlainArrival
from openmsmq.peering.receiver import MessageReceiver
from openmsmq.peering.reports import Reports
from openmsmq.peering.resolving import ResolvedTarget, Resolver, target_of
from openmsmq.peering.sender import MessageSender, Sent
from openmsmq.peering.sequences import QueueSequence, Sequences
from openmsmq.protection.arrival import ArrivalProtection
from openmsmq.protection.departure import DepartureProtection
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import ConnectionStatus, OutgoingQueue, OutgoingState, meant_machine
from openmsmq.queueing.queue import Queue
from openmsmq.store import Operation
from openmsmq.transport import Closed, CloseReason, MessageReceived, MqqbSession, SessionSettings
from openmsmq.transport.connecting import ConnectMachine, ConnectState
from openmsmq.transport.history import LIFETIME
from openmsmq.transport.routing import Routing
from openmsmq.transport.settings import WINDOW_SIZE

logger = logging.getLogger(__name__)

BACKLOG = 512
HEARTBEAT = 1.0  # seconds between checks of the resend timers
BEATS_BETWEEN_SWEEPS = 60


class MessageProtections(Protocol):
    """Security checks for incoming and outgoing messages."""

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
        protections: MessageProtections,
        options: TransferOptions,
        loop: asyncio.AbstractEventLoop,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        """`may_write` is called before each write."""
        self._may_write = may_write
        self._manager, self._options, self._loop = manager, options, loop
        self._settings = SessionSettings(manager.machine.identifier)
        self._routing = options.routing or Routing(manager.machine.identifier)
        self._destinations: dict[ResolvedTarget, Destination] = {}
        self._serving: dict[PeerConnection, set[Destination]] = {}  # connection -> destinations that send on it
        # Open sessions by the identifier of the peer. Acknowledgments use the last one: the one opened last, or the one
        # on which the peer last sent transactional messages.
        self._living: dict[bytes, list[PeerConnection]] = {}
        self._owed: dict[bytes, set[OutgoingQueue]] = {}  # acknowledgments for peers without a session
        self._limits = SessionLimits(options, self._serving, manager.machine.identifier)
        self._resolver = Resolver(options.hosts or {}, self._routing, options.directory, options.knows_keys)
        definitions = manager.store.definitions
        self._known = KnownAddresses(
            definitions, manager.arrivals.note, self._seconds, follow=options.trust_queue_manager_identifiers
        )  # fmt: skip
        self._dialer = Dialer(manager, self._resolver, self._known, self, self._limits, options, self._settings, loop)
        self._sequences = Sequences(definitions, manager.registry.outgoing.values(), self._seconds)
        self._sources = Sources(definitions, manager.registry.queues)
        self._duplicates = Duplicates(definitions, self._now(), options.max_sessions * WINDOW_SIZE)
        self._arrival = Arrival(
            manager, self._duplicates, self._sources, options.policy, self._routing, protections.arrival, self._now
        )
        self._sender = MessageSender(
            manager, self._sequences, protections.departure, self._routing, options.report_queue, when_durable,
            self.wake, loop.call_later, self._now,
        )  # fmt: skip
        self._order_acks = OrderAcks(manager, self._sources, loop)
        self._reports = Reports(manager, options.locate, loop) if options.report_messages else None
        plain = PlainArrival(self._arrival, manager, self._duplicates, self._now)
        judge = MessageReceiver(
            self._arrival, plain, self._sender, self._order_acks, self._reports, when_durable, self._answers_by,
            self._known.met, options.find,
        )  # fmt: skip
        self._holding = PendingLookups(protections.arrival.look_up, judge.judge, loop)
        self._server: asyncio.Server | None = None
        self._heartbeat: asyncio.TimerHandle | None = None
        self._locating: Final[set[asyncio.Task[None]]] = set()
        self._stopped = False
        self._beats = 0

    def _now(self) -> float:
        return self._loop.time() * 1000

    def fetched(self, messages: Iterable[Message]) -> tuple[list[Operation], Callable[[], None]]:
        """Record messages that a relay reads from another queue manager. If that one did not acknowledge them, their
        sender sends them here, too: then they are duplicates. Transactional messages are detected by their sequences
        instead.

        Returns operations for their batch, and a function to be called once the batch is stored, before other messages
        are processed.
        """
        now = self._now()
        late = self._seconds() - LIFETIME // 1000
        plain = [each for each in messages if not each.is_transactional and each.arrival_time >= late]
        plan = self._duplicates.plan([each.identifier for each in plain if each.recoverable], now)

        def stored() -> None:
            for each in plain:
                self._duplicates.add(each.identifier, now)
            self._duplicates.stored(plan)

        return list(plan.operations), stored

    def _seconds(self) -> int:
        return self._manager.clock() // 1000

    # -- start and stop ------------------------------------------------------------------------------------------

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen, and start sending waiting messages. Returns the address. Raises OSError."""
        orphans = [*self._sequences.orphans, *self._sources.orphans]
        if orphans:
            self._manager.arrivals.note(orphans)
        self._server = await self._loop.create_server(self._accept, host, port, backlog=BACKLOG)
        address = self._server.sockets[0].getsockname()
        self._heartbeat = self._loop.call_later(HEARTBEAT, self._beat)
        self.wake()
        return str(address[0]), int(address[1])

    def stop(self) -> None:
        """Close all sessions. Unacknowledged messages are resent after the next start."""
        self._stopped = True
        if self._server is not None:
            self._server.close()
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self._order_acks.stop()
        if self._reports is not None:
            self._reports.stop()
        for task in self._locating:
            task.cancel()
        for destination in list(self._destinations.values()):
            self._dialer.cancel(destination)
        for connection in list(self._serving):
            connection.close()

    @property
    def sessions(self) -> int:
        """Number of connections."""
        return len(self._serving)

    def open_sessions(self) -> list[tuple[str, str, float]]:
        """Return for each connection the address of the other queue manager, its identifier (empty until it is known),
        and the age of the connection in seconds."""
        return [
            (each.address, "" if each.session.peer == NO_GUID else str(UUID(bytes_le=each.session.peer)),
             (each.now - each.made) / 1000)
            for each in self._serving
        ]  # fmt: skip

    # -- Transport -----------------------------------------------------------------------------------------------

    def wake(self, queue: OutgoingQueue | None = None) -> None:
        """Handle a change in a queue, or in any queue: messages may be transferable now, or may not be transferred any
        longer."""
        if self._stopped:
            return
        if not self._manager.outgoing.online:
            self._go_offline()
            return
        queues = [queue] if queue is not None else list(self._manager.registry.outgoing.values())
        for _ in LEFT_OUT.each("outgoing queues", queues, self._wake_one, lambda one: one.destination):
            pass
        if queue is None:
            self._follow_pauses()

    def _wake_one(self, queue: OutgoingQueue) -> None:
        if queue.deleted or not queue.entries:
            return
        destination = self._destination(queue)
        if destination is not None:
            destination.add(queue)
            self._want(destination)

    def resend(self, queue: OutgoingQueue) -> None:
        """EOD_RESEND ([MS-MQMR] 3.1.4.2). Raises MsmqError if nothing waits for an OrderAck."""
        sequence = self._sequences.get(queue)
        if sequence is not None:
            sequence.withdraw_removed()
        if sequence is None or not sequence.core.unacknowledged:
            raise MsmqError(
                HResult.MQ_ERROR,
                f"no message of the outgoing queue for {queue.destination} waits for an order acknowledgment",
            )
        self._send_again(sequence)

    def _follow_pauses(self) -> None:
        """A window of 1 while all queues of a session are paused ([MS-MQQB] 3.1.7.13)."""
        for connection, destinations in self._serving.items():
            members = [queue for one in destinations for queue in one.members if not queue.deleted]
            paused = bool(members) and all(queue.on_hold for queue in members)
            connection.set_window(1 if paused else WINDOW_SIZE)

    def _go_offline(self) -> None:
        for destination in list(self._destinations.values()):  # closing forgets those that nothing waits for
            self._dialer.cancel(destination)
            if destination.connection is not None:
                destination.connection.close()

    # -- destinations --------------------------------------------------------------------------------------------

    def _destination(self, queue: OutgoingQueue) -> Destination | None:
        target = target_of(queue.destination)
        if target is not None and _is_order_queue(queue.destination):
            if target.identifier in self._living:
                target = ResolvedTarget(identifier=target.identifier, claimed=True)
            else:
                self._owed.setdefault(target.identifier, set()).add(queue)
        elif target is None:
            machine = self._sender.machine_of(queue.destination, queue.first())
            target = ResolvedTarget(identifier=machine) if machine != NO_GUID else None
        if target is None:  # a public queue that is not located yet
            if queue.link is not OutgoingState.NEED_VALIDATION:
                queue.link = OutgoingState.NEED_VALIDATION
                task = self._loop.create_task(self._locate(queue.destination))
                self._locating.add(task)
                task.add_done_callback(self._locating.discard)
            return None
        destination = self._destinations.get(target)
        if destination is None:
            destination = self._destinations[target] = Destination(target, ConnectMachine(self._options.ping))
        return destination

    async def _locate(self, name: names.SingleFormatName) -> None:
        """Ask the directory for the location of a public queue; `_beat` wakes the outgoing queue. If this fails, the
        directory is asked again within a minute, and the reason is logged then."""
        if self._options.locate is None or not isinstance(name, names.PublicFormatName):
            logger.warning("messages for %s wait: this queue manager has no directory", name)
            return
        with suppress(MsmqError):
            await self._options.locate(name)

    def _want(self, destination: Destination) -> None:
        """Send messages of a destination, or start connecting to it."""
        living = self.living(destination.target.identifier)
        if destination.connection is None and living is not None and destination.target.claimed:
            self._use(destination, living)
        if destination.connection is not None:
            self._pump(destination)
        else:
            self._dialer.messages_wait(destination)

    def _answers_by(self, connection: PeerConnection) -> None:
        """Use a session that delivers transactional messages for acknowledgments to its peer, even if other sessions
        claim to be with the same queue manager."""
        if self.living(connection.session.peer) is not connection and not connection.is_over:
            self._answer_on(connection)

    def _answer_on(self, connection: PeerConnection) -> None:
        peer = connection.session.peer
        sessions = self._living.setdefault(peer, [])
        if connection in sessions:
            sessions.remove(connection)
        sessions.append(connection)
        for queue in self._owed.pop(peer, ()):
            target = target_of(queue.destination)
            if target is not None and (waiting := self._destinations.get(target)) is not None:
                waiting.leave(queue)
            self.wake(queue)
        destination = self._destinations.get(ResolvedTarget(identifier=peer, claimed=True))
        if destination is not None and destination.connection is not connection:
            self._use(destination, connection)
            self._pump(destination)

    # -- dialing.PeerSessions ----------------------------------------------------------------------------------------

    def living(self, peer: bytes) -> PeerConnection | None:
        """See `dialing.PeerSessions`."""
        sessions = self._living.get(peer)
        return sessions[-1] if sessions else None

    def living_at(self, peer: bytes, address: str) -> PeerConnection | None:
        """See `dialing.PeerSessions`."""
        return next((one for one in reversed(self._living.get(peer, [])) if one.address == address), None)

    def take(self, destination: Destination, connection: PeerConnection) -> None:
        """See `dialing.PeerSessions`."""
        self._use(destination, connection)
        self._pump(destination)

    def make(self, make_session: Callable[[float], MqqbSession[Sent]]) -> PeerConnection:
        """See `dialing.PeerSessions`."""
        connection = PeerConnection(self._loop, self, make_session)
        self._serving[connection] = set()
        return connection

    def connected_for(self, destination: Destination, connection: PeerConnection) -> None:
        """See `dialing.PeerSessions`."""
        if connection.is_over:
            self._ended(destination, connection)
        else:
            self._serving.setdefault(connection, set()).add(destination)

    def _use(self, destination: Destination, connection: PeerConnection) -> None:
        destination.connection = connection
        destination.logged.clear()
        self._serving[connection].add(destination)
        destination.show(OutgoingState.CONNECTED)

    # -- connections ---------------------------------------------------------------------------------------------

    def _accept(self) -> PeerConnection:
        """Return the protocol of an incoming connection."""

        def make(now: float) -> MqqbSession[Sent]:
            return MqqbSession.acceptor(self._settings, now, lambda request: self._limits.admits(connection, request))

        connection = self.make(make)
        return connection

    def accepts(self, address: str) -> bool:
        """Whether a session opened now from an IP address would be accepted."""
        return self._limits.accepts(address)

    def connected(self, connection: PeerConnection) -> bool:
        """See `connection.ConnectionOwner`."""
        return self._limits.connected(connection.address)

    def buffers(self, connection: PeerConnection, change: int) -> bool:
        """See `connection.ConnectionOwner`."""
        return self._limits.buffers(connection, change)

    def identified(self, connection: PeerConnection, peer: bytes) -> None:
        """See `connection.ConnectionOwner`."""
        if connection.address:
            self._resolver.met(peer, connection.address)
        for destination in self._serving.get(connection, ()):
            destination.record(
                ConnectionStatus.ESTABLISH_PACKET_RECEIVED, self._seconds(), destination.reaching.hop
            )  # fmt: skip

    def opened(self, connection: PeerConnection) -> None:
        """See `connection.ConnectionOwner`."""
        self._answer_on(connection)
        for destination in list(self._serving.get(connection, ())):
            if destination.target == ResolvedTarget(identifier=connection.session.peer):
                self._known.met(connection.session.peer, connection.address)
            self._use(destination, connection)
            destination.record(ConnectionStatus.ESTABLISHED, self._seconds(), destination.reaching.hop)
            for queue in destination.members:
                if (sequence := self._sequences.get(queue)) is not None:
                    sequence.rewind()
            self._pump(destination)

    def writable(self, connection: PeerConnection) -> None:
        """See `connection.ConnectionOwner`."""
        for destination in list(self._serving.get(connection, ())):
            self._pump(destination)

    def may_write(self) -> bool:
        """See `connection.ConnectionOwner`."""
        return self._may_write()

    def closed(self, connection: PeerConnection, event: Closed[Sent]) -> None:
        """See `connection.ConnectionOwner`. Messages that were sent but not acknowledged are put back into their
        queue."""
        destinations = self._serving.pop(connection, set())
        self._limits.closed(connection.address)
        peer = connection.session.peer
        sessions = self._living.get(peer, [])
        if connection in sessions:
            sessions.remove(connection)
            if not sessions:
                del self._living[peer]
        expected = event.reason in (CloseReason.IDLE, CloseReason.LOCAL, CloseReason.DISCONNECTED)
        logger.log(
            logging.DEBUG if expected else logging.WARNING,
            "session with %s ended: %s%s", connection.address, event.reason.value,
            f" ({event.detail})" if event.detail else "",
        )  # fmt: skip
        for token in event.unacknowledged:
            if token is None:
                continue
            if self._options.transfers is not None and token.message is not None:
                self._options.transfers.lost(token.message)
            if token.number is None:
                self._sender.put_back(token.queue, token.key)
        for destination in destinations:
            if (failure := _failure(event.reason, destination.connection is connection)) is not None:
                destination.record(failure, self._seconds(), destination.reaching.hop)
            if event.reason not in (CloseReason.IDLE, CloseReason.LOCAL):
                detail = event.detail or event.reason.value
                self._dialer.record_failure(destination, f"the session with {connection.address} ended: {detail}")
            self._ended(destination, connection)

    def _ended(self, destination: Destination, connection: PeerConnection) -> None:
        """Handle the loss of the connection of a destination."""
        if destination.connection is connection:
            destination.connection = None
        for queue in list(destination.members):
            if queue.deleted:
                destination.leave(queue)
            elif (sequence := self._sequences.get(queue)) is not None:
                self._sender.release(sequence)
        waits = destination.has_messages and not self._stopped and self._manager.outgoing.online
        destination.show(OutgoingState.WAITING if waits else None)  # D-238
        if destination.target.claimed:  # remaining acknowledgments are sent to another destination
            for queue in list(destination.members):
                destination.leave(queue)
                self._loop.call_soon(self.wake, queue)
            return
        if (
            waits and destination.reaching.state is ConnectState.IDLE
        ):  # its messages were sent on the session of another destination
            self._dialer.messages_wait(destination)
            return
        self._dialer.carry_out(destination, destination.reaching.ended(waits, self._now()))
        if not destination.members and self._destinations.get(destination.target) is destination:
            self._dialer.cancel(destination)
            del self._destinations[destination.target]

    # -- sending -------------------------------------------------------------------------------------------------

    def _pump(self, destination: Destination) -> None:
        """Send messages, of each queue in rotation, until the window is full."""
        connection = destination.connection
        if connection is None or connection.is_over:
            return
        transfers = self._options.transfers
        share = max(1, connection.room // max(1, len(destination.queues)))
        while connection.room and (queue := destination.next_queue()) is not None:
            if transfers is None and self._send_plain(connection, queue, share):
                destination.turn()
                continue
            following = self._sender.next(queue, connection.session.peer)
            if following is None:
                destination.remove_idle(queue)
                continue
            packet, token = following
            connection.send(packet, token)
            if transfers is not None and token.message is not None:
                transfers.sent(str(queue.destination), token.message)
            if self._reports is not None:
                self._reports.sent(packet, connection.address)
            destination.turn()
        connection.flush()

    def _send_plain(self, connection: PeerConnection, queue: OutgoingQueue, share: int) -> bool:
        """Send plain messages of a queue, up to its share of the window. Returns whether there were any."""
        found = self._sender.next_plain(queue, min(share, connection.room))
        if found is None:
            return False
        plain, tokens = found
        sent = connection.send_packets(plain.packets, tokens, plain.recoverable)
        for token in tokens[sent:]:
            self._sender.put_back(queue, token.key)
        return sent > 0

    def acknowledged(self, connection: PeerConnection, tokens: tuple[Sent, ...]) -> None:
        """See `connection.ConnectionOwner`. Transactional messages also wait for their OrderAck."""
        self._sender.arrived(tokens)
        if self._options.transfers is not None:
            for token in tokens:
                if token is not None and token.message is not None:
                    self._options.transfers.acknowledged(token.message)
        for destination in list(self._serving.get(connection, ())):
            self._pump(destination)

    # -- receiving -----------------------------------------------------------------------------------------------

    def received(self, connection: PeerConnection, messages: list[MessageReceived]) -> None:
        """See `connection.ConnectionOwner`."""
        self._holding.received(connection, messages)

    # -- resending ---------------------------------------------------------------------

    def _send_again(self, sequence: QueueSequence) -> None:
        self._sender.release(sequence)
        self.wake(sequence.queue)

    def _sweep(self) -> None:
        """Remove the state of deleted queues. Not at each call, because there may be many queues."""
        self._beats += 1
        if self._beats % BEATS_BETWEEN_SWEEPS:
            return
        owed = ((peer, {each for each in queues if not each.deleted}) for peer, queues in self._owed.items())
        self._owed = {peer: queues for peer, queues in owed if queues}
        queues = self._manager.registry.queues
        for number in self._sources.queues():
            if number not in queues:
                try:
                    self._forget_sources(self._sources.of_queue(number))
                except MsmqError as error:  # retried at the next call
                    logger.warning("incoming sequences of a deleted queue stay in the store for now: %s", error)

    def forget_sequence(self, queue: Queue, source: bytes) -> bool:
        """Forget the position of a queue manager (its identifier, 16 bytes) in a queue: its next message starts a new
        sequence. Returns whether anything was known. Raises MessageStorageFailed."""
        known = [each for each in self._sources.of_queue(queue.number) if each.source == source]
        self._forget_sources(known)
        for each in known:
            queue.incoming.pop(each.key, None)
        return bool(known)

    def _forget_sources(self, sources: Collection[SourceState]) -> None:
        """Remove sequences. Raises MessageStorageFailed; then none is removed, in memory or in the store."""
        self._manager.arrivals.note([operation for each in sources for operation in self._sources.removal(each)])
        for each in sources:
            self._sources.forget(each)

    def _has_place(self, queue: OutgoingQueue) -> bool:
        """Whether the directory has reported the location of a public queue whose messages wait for it."""
        place = self._manager.registry.place_of(queue.destination)
        if place is None:
            return False
        destination = self._destinations.get(ResolvedTarget(identifier=place.machine))
        return destination is None or queue not in destination.members

    def _beat(self) -> None:
        """Run once per second: resend messages that have waited too long for an OrderAck (3.1.6.5), and remove obsolete
        state."""
        self._heartbeat = self._loop.call_later(HEARTBEAT, self._beat)
        for queue in list(self._manager.registry.outgoing.values()):
            if queue.entries and queue.link is OutgoingState.NEED_VALIDATION and self._has_place(queue):
                self.wake(queue)
        for destination in [one for one in self._destinations.values() if one.is_unused]:
            self._dialer.cancel(destination)
            del self._destinations[destination.target]
        self._sweep()
        for _ in LEFT_OUT.each(
            "outgoing sequences", list(self._sequences), self._resend_if_due, lambda each: each.queue.destination
        ):
            pass

    def _resend_if_due(self, sequence: QueueSequence) -> None:
        if sequence.queue.deleted:
            try:
                self._manager.arrivals.note(self._sequences.removal(sequence.queue))
                self._sequences.forget(sequence.queue)
            except MsmqError as error:  # retried at the next call
                logger.warning("the sequence of the deleted queue for %s stays: %s", sequence.queue.destination, error)
            return
        deadline = sequence.core.next_deadline
        if deadline is not None and self._now() >= deadline and sequence.withdraw_removed():
            sequence.report(self._now(), self._seconds())
        if sequence.core.tick(self._now()):
            sequence.report_resending(self._now(), self._seconds())
            logger.warning(
                "%d messages for %s have no order acknowledgment and are resent",
                len(sequence.core.unacknowledged), sequence.queue.destination,
            )  # fmt: skip
            self._send_again(sequence)
        elif sequence.core.next_deadline is None and sequence.queue.transfer_info.eod_resend_time:
            sequence.report_resending(self._now(), self._seconds())


def _is_order_queue(name: names.SingleFormatName) -> bool:
    """Whether an outgoing queue is for the acknowledgments that this queue manager owes."""
    return bool(meant_machine(name)) or (
        isinstance(name, names.PrivateFormatName) and name.number == ORDER_QUEUE_NUMBER
    )


def _failure(reason: CloseReason, was_open: bool) -> ConnectionStatus | None:
    """Return the entry of ConnectionHistory for the end of a session; None if it is not a failure."""
    if reason is CloseReason.REFUSED:
        return ConnectionStatus.CONNECTION_REFUSED
    normal = (CloseReason.IDLE, CloseReason.LOCAL)
    if reason in normal or (was_open and reason is CloseReason.DISCONNECTED):
        return None
    return ConnectionStatus.UNKNOWN_FAILURE
