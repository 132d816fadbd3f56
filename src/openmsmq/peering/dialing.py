"""Establishes connections: name resolution, pings, connects and retries, controlled by `transport.connecting`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from openmsmq.model.once_a_minute import OnceAMinute
from openmsmq.model.text import reason_of
from openmsmq.model.waiting import answered_within
from openmsmq.peering.connection import CLOCK_STEP, PeerConnection
from openmsmq.peering.destination import Destination
from openmsmq.peering.known_addresses import KnownAddresses
from openmsmq.peering.limits import SessionLimits
from openmsmq.peering.options import TransferOptions
from openmsmq.peering.pinging import ask
from openmsmq.peering.resolving import Resolver, Unknown, Unresolved
from openmsmq.peering.sender import Sent
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.outgoing_queues import ConnectionStatus, OutgoingState
from openmsmq.transport import MqqbSession, SessionSettings
from openmsmq.transport.connecting import PING_TIMEOUT, Connect, ConnectCommand, ConnectPing, NextHop, Resolve

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT = 20.0  # seconds for a TCP connection


class PeerSessions(Protocol):
    """The existing connections."""

    def living(self, peer: bytes) -> PeerConnection | None:
        """Return the latest open session with a queue manager, by its identifier."""

    def living_at(self, peer: bytes, address: str) -> PeerConnection | None:
        """Return the latest open session with a queue manager at an address."""

    def take(self, destination: Destination, connection: PeerConnection) -> None:
        """Send the messages for a destination through an open session."""

    def make(self, make_session: Callable[[float], MqqbSession[Sent]]) -> PeerConnection:
        """Return the protocol of a new connection."""

    def connected_for(self, destination: Destination, connection: PeerConnection) -> None:
        """Called when the connection for a destination is established, or has already ended."""


class Dialer:
    """Executes the actions of `Destination.reaching`."""

    def __init__(
        self,
        manager: QueueManager,
        resolver: Resolver,
        known: KnownAddresses,
        sessions: PeerSessions,
        limits: SessionLimits,
        options: TransferOptions,
        settings: SessionSettings,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._manager, self._resolver, self._sessions, self._limits = manager, resolver, sessions, limits
        self._known = known
        self._options, self._settings, self._loop = options, settings, loop
        self._failures = OnceAMinute(loop.time)

    def _now(self) -> float:
        return self._loop.time() * 1000

    def _seconds(self) -> int:
        return self._manager.clock() // 1000

    def messages_wait(self, destination: Destination) -> None:
        """Start connecting to a destination that has messages to send and no connection."""
        self.carry_out(destination, destination.reaching.messages_wait(self._now()))

    def carry_out(self, destination: Destination, wish: ConnectCommand) -> None:
        match wish:
            case Resolve():
                destination.show(OutgoingState.WAITING)
                self._begin(destination, self._resolve(destination))
            case Connect(hop, without_ping):
                self._begin(destination, self._connect(destination, hop, without_ping))
            case ConnectPing(hop):
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
        self.carry_out(destination, destination.reaching.tick(self._now()))

    def cancel(self, destination: Destination) -> None:
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
            if (session := self._proper_session(destination)) is not None:
                destination.attempt = None
                destination.reaching.nothing_waits(self._now())
                self._known.met(destination.target.identifier, session.address)
                self._sessions.take(destination, session)
                return
            hops = self._proper_hops(destination)
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
        self.carry_out(destination, wish)

    def _proper_session(self, destination: Destination) -> PeerConnection | None:
        """Return the session for a queue manager whose address only it has claimed: one from the known address, or any
        session if no address is known (deviation D-107)."""
        identifier = destination.target.identifier
        latest = self._sessions.living(identifier)
        known = self._known.of(identifier)
        destination.claim = ""
        if latest is None or known is None or self._options.trust_queue_manager_identifiers:
            return latest
        proper = self._sessions.living_at(identifier, known)
        if proper is None:
            self._is_claimed(destination, latest.address, known)
        return proper

    def _is_claimed(self, destination: Destination, address: str, known: str) -> None:
        destination.claim = f"a session from {address} claims to be this queue manager and gets no messages"
        if destination.claimed_at == address:
            return
        destination.claimed_at = address
        logger.warning(
            "%s claims to be %s, which was at %s before: messages for it wait for a session with %s. If it has moved, "
            "say where it is in routing_file, or set trust_queue_manager_identifiers until it has connected",
            address, destination.target, known, known,
        )  # fmt: skip

    def _proper_hops(self, destination: Destination) -> list[NextHop]:
        """Return the hops for messages to a queue manager without an open session."""
        identifier = destination.target.identifier
        known = self._known.of(identifier)
        if known is None or self._options.trust_queue_manager_identifiers:
            return self._resolver.last_met(destination.target)
        return [NextHop(known, identifier=identifier)]

    def _is_unresolved(self, destination: Destination, error: Unresolved) -> None:
        self.record_failure(destination, str(error))
        destination.record(ConnectionStatus.DNS_FAILURE, self._seconds())

    async def _ping(self, destination: Destination, hop: NextHop) -> None:
        """Whether to connect to a hop: only if it answers that it would accept a session (3.1.5.2.2)."""
        destination.show(OutgoingState.WAITING)
        accepts, failure, port = False, "it accepts no sessions now", self._options.ping_port
        try:
            accepts = await ask(
                hop.address, port, self._manager.machine.identifier, PING_TIMEOUT / 1000, self._source_for(hop)
            )
        except TimeoutError:
            failure = "no answer to a ping: a firewall, or a queue manager that answers none (setting: ping)"
        except OSError as error:
            failure = reason_of(error)
        destination.attempt = None
        if not accepts:
            self.record_failure(destination, f"{hop.address} UDP port {port}: {failure}")
            destination.record(ConnectionStatus.PING_FAILURE, self._seconds(), hop)
        self.carry_out(destination, destination.reaching.pinged(accepts, self._now()))

    def _source_for(self, hop: NextHop) -> str:
        """Return the local address for connections to a hop; empty for the system's choice."""
        source = self._options.source
        return source if source and (":" in source) == (":" in hop.address) else ""

    async def _connect(self, destination: Destination, hop: NextHop, without_ping: bool) -> None:
        def make(now: float) -> MqqbSession[Sent]:
            return MqqbSession.initiator(self._settings, now, hop.identifier, without_ping)

        destination.show(OutgoingState.WAITING)
        connection: PeerConnection | None = None
        failure = ConnectionStatus.SOCKET_CONNECT_FAILURE
        try:
            if not self._limits.have_room:
                failure = ConnectionStatus.CONNECTION_LIMIT_REACHED
                raise OSError(f"there are {self._options.max_sessions} sessions, which is the limit (max_sessions)")
            source = self._source_for(hop)
            local = (source, 0) if source else None
            async with answered_within(CONNECT_TIMEOUT):
                _, connection = await self._loop.create_connection(
                    lambda: self._sessions.make(make), hop.address, self._options.port, local_addr=local
                )
        except OSError as error:
            destination.attempt = None
            self.record_failure(destination, f"{hop.address} port {self._options.port}: {reason_of(error)}")
            destination.record(failure, self._seconds(), hop)
            self.carry_out(destination, destination.reaching.failed(self._now()))
            return
        destination.attempt = None
        destination.reaching.connected(self._now())
        destination.record(ConnectionStatus.IN_PROCESS, self._seconds(), hop)
        self._sessions.connected_for(destination, connection)

    def record_failure(self, destination: Destination, text: str) -> None:
        """Log why messages wait: each reason once until the next connection, and once a minute if connections end."""
        if destination.claim:
            text = f"{text}; {destination.claim}"
        if text not in destination.logged and self._failures.is_due(f"{destination.target} {text}"):
            destination.logged.add(text)
            logger.warning("messages for %s wait: %s", destination.target, text)


def _hop_text(address: str) -> str:
    """Return an element of NextHops ([MS-MQMQ] 2.3.12.12)."""
    return f"{'IPv6' if ':' in address else 'IP'}={address}"
