"""RPC server on asyncio: moves bytes between transports and `ServerConnection`, and passes calls to interfaces.

There is one `asyncio.Protocol` per connection, and no task or thread per connection or call. Replies of one connection
that become ready in the same event-loop iteration are sent in one write.

Invariant I6 (docs/architecture.md): nothing a peer sends, and nothing an interface raises, ends the server, and a peer
that does not read its replies delays no other peer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from msrpc.rpc.assembly import ReassemblyBudget
from msrpc.rpc.association import AssociationTable, Random
from msrpc.rpc.blocking_auth import AuthExecutor
from msrpc.rpc.call import Call, InterfaceTable
from msrpc.rpc.connection_states import (
    BY_POLLER,
    BY_TRANSPORT,
    CORKED,
    FLUSHED,
    LOGIN_ANSWERED,
    LOGIN_ASKED,
    PAUSED,
    READING,
    REPLIES_BLOCKED,
    RESUMED,
    SCHEDULED,
    TRANSITIONS,
    WRITE_BLOCKED,
    WRITE_UNBLOCKED,
)
from msrpc.rpc.dispatcher import Dispatcher, SecurityPolicy
from msrpc.rpc.limits import RpcLimits
from msrpc.rpc.security import AcceptorFactory, LoginObserver, NullObserver
from msrpc.rpc.server_connection import AuthQueryNeeded, CallCancelled, ConnectionEnded, Event, ServerConnection
from msrpc.rpc.sockets import DEAD_PEER, set_options
from msrpc.rpc.throttle import FailureLimits, PeerFailures

try:
    from msrpc.rpc import requests
except ImportError:  # not built here
    if not TYPE_CHECKING:
        requests = None

log = logging.getLogger(__name__)

# Seconds between checks of all connections for the timeouts below. One sweep costs less than a timer per connection.
SWEEP_PERIOD: Final = 5.0
# Seconds between checks, during a shutdown, whether all calls have ended.
SHUT_DOWN_POLL: Final = 0.02
FLUSH_TIME: Final = 0.5  # seconds that peers have to read their last replies during a shutdown
# Maximum number of connections that wait to be accepted: after a restart, all clients reconnect at once.
LISTEN_BACKLOG: Final = 1024
# Bytes of replies that are collected before they are passed to the transport, which detects a peer that does not read.
FLUSH_SIZE: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds for all connections together, and times in seconds.

    max_connections: keeps file descriptors free, which the store needs, too.
    max_connections_per_peer: per host, so that one host cannot use all; all loopback clients are one host.
    incomplete_requests: bytes of requests whose last fragment has not arrived, on all connections; 60 requests of
        maximum size. A request beyond it is refused with nca_s_fault_remote_no_memory.
    first_pdu: a connection without a bind is closed after this time.
    incomplete_pdu: maximum wait for the next complete PDU while a PDU or a fragmented request is incomplete.
    unread_bytes: bytes of unread replies per connection; 16 replies of maximum size.
    unread_replies: a connection whose peer does not read its replies is closed after this time.
    idle: a bound connection without calls is closed after this time. None for never: MSMQ clients hold context
        handles for days.
    """

    max_connections: int = 8192
    max_connections_per_peer: int = 4096
    failures: FailureLimits = FailureLimits()
    incomplete_requests: int = 256 * 1024 * 1024
    unread_bytes: int = 64 * 1024 * 1024
    first_pdu: float = 30.0
    incomplete_pdu: float = 60.0
    unread_replies: float = 120.0
    idle: float | None = None


class OpenConnection(NamedTuple):
    """An open connection, for lists. `host` is empty for a Unix socket. `users` have logged in on it, `interfaces` are
    the names of the bound interfaces, and `seconds` is its age."""

    host: str
    users: list[str]
    interfaces: list[str]
    seconds: float


class RpcServer:
    """Serves interfaces on any number of endpoints, which share associations and therefore context handles.

    `acceptor` creates a security context for each authentication (see `spnego.acceptor`). `random` returns random
    bytes.
    """

    def __init__(
        self,
        interfaces: InterfaceTable | None = None,
        *,
        policy: SecurityPolicy | None = None,
        acceptor: AcceptorFactory | None = None,
        random: Random = os.urandom,
        limits: RpcLimits | None = None,
        server_limits: ServerLimits | None = None,
        sweep_period: float = SWEEP_PERIOD,
        dead_peer_seconds: int = DEAD_PEER,
    ) -> None:
        self.interfaces = interfaces or InterfaceTable()
        self.acceptor = acceptor
        self.limits = limits or RpcLimits()
        self.server_limits = server_limits or ServerLimits()
        self.associations = AssociationTable(random)
        self.budget = ReassemblyBudget(self.server_limits.incomplete_requests)
        self.failures = PeerFailures(time.monotonic, self.server_limits.failures)
        self.calls = Dispatcher(policy or SecurityPolicy(), self.failures, self, self.cut_off)
        self.statistics = self.calls.statistics
        self.connections: set[_Connection] = set()
        self.peers: Counter[str] = Counter()  # connections by host
        self.logins: LoginObserver = NullObserver()
        #: Whether replies may be sent; called before each write. If it returns false, the connection is closed.
        self.may_answer: Callable[[], bool] = _always
        self.ready: list[Any] = []  # sources with pending replies; see `requests`
        self.poller: requests.Poller | None = None
        self._unflushed: list[_Connection] = []
        self._is_held = False
        self.questions = AuthExecutor()
        self._servers: list[asyncio.Server] = []
        self._sweep_period = sweep_period
        self.dead_peer_seconds = dead_peer_seconds
        self._sweeper: asyncio.TimerHandle | None = None

    async def listen(self, host: str, port: int, interfaces: InterfaceTable | None = None) -> tuple[str, int]:
        """Open an endpoint and return its address; port 0 lets the system choose. Raises `OSError`."""
        loop = self._start()
        table = self.interfaces if interfaces is None else interfaces
        # Towers of the endpoint mapper and most clients use IPv4, so IPv6 is used only for an IPv6 address.
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # Any: uvloop's `sockets` is a list, not the tuple that asyncio declares.
        server: Any = await loop.create_server(
            lambda: _Connection(self, table), host, port, family=family, backlog=LISTEN_BACKLOG
        )
        self._servers.append(server)
        address = server.sockets[0].getsockname()
        return address[0], address[1]

    async def listen_unix(self, listener: socket.socket) -> None:
        """Serve connections to a bound Unix socket."""
        loop = self._start()
        server: Any = await loop.create_unix_server(
            lambda: _Connection(self, self.interfaces), sock=listener, backlog=LISTEN_BACKLOG
        )
        self._servers.append(server)

    def _start(self) -> asyncio.AbstractEventLoop:
        """Create the objects shared by all endpoints."""
        loop = self.calls.loop = asyncio.get_running_loop()
        if self._sweeper is None:
            self._sweeper = loop.call_later(self._sweep_period, self._sweep)
        if self.poller is None and self.calls.together is not None and requests is not None:
            self.poller = requests.Poller()
            loop.add_reader(self.poller.descriptor, self._readable)
        return loop

    def _readable(self) -> None:
        """Read all sources and serve their requests."""
        self.read_sources()
        self.calls.serve_turn()

    def read_sources(self) -> None:
        """Read all sources: collect their plain requests, and process all other PDUs."""
        if self.poller is not None:
            for source, rest in self.calls.read(self.poller):
                source.owner.received(rest)

    def flush_soon(self, connection: _Connection) -> None:
        """Schedule sending of the replies of a connection, in the next event-loop iteration together with others: one
        disk sync completes many replies."""
        if not self._unflushed and not self._is_held:
            asyncio.get_running_loop().call_soon(self.flush)
        self._unflushed.append(connection)

    def hold(self) -> None:
        """Schedule no flush until `flush` is called, which the caller does in the same event-loop iteration."""
        self._is_held = True

    def flush(self) -> None:
        """Send all pending replies now."""
        self._is_held = False
        connections, self._unflushed = self._unflushed, []
        if not connections and not self.ready:
            return
        allowed = self.may_answer()
        if self.ready:
            self._flush_sources(allowed)
        for connection in connections:
            try:
                connection.flush(allowed)
            except Exception:  # must not prevent the replies of other connections
                log.exception("cannot send replies")
                connection.close()

    def _flush_sources(self, allowed: bool) -> None:
        if allowed:
            self.statistics.packets_out += len(self.ready)
            for owner, rest in requests.flush(self.ready):
                owner.send(rest)
        else:
            sources, self.ready[:] = self.ready[:], []
            for source in sources:
                source.owner.close()

    @property
    def is_listening(self) -> bool:
        """Whether connections are accepted."""
        return bool(self._servers)

    def close_listeners(self) -> None:
        """Stop accepting connections."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    def open_connections(self) -> list[OpenConnection]:
        """Return the open connections."""
        found = (connection.described() for connection in self.connections)
        return [each for each in found if each is not None]

    def close(self) -> None:
        """Close all endpoints and connections. Pending calls are canceled and context handles are run down."""
        self.close_listeners()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for connection in tuple(self.connections):
            connection.close()
        if self.poller is not None:
            loop: Any = self.calls.loop  # the method of uvloop returns None, not the bool that asyncio declares
            loop.remove_reader(self.poller.descriptor)
            self.poller.close()
            self.poller = None

    async def shut_down(self, grace: float) -> None:
        """Stop accepting connections, wait at most `grace` seconds for pending calls, send the remaining replies, then
        close everything.

        Calls that wait for a message usually do not end in this time.
        """
        self.close_listeners()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace
        while any(connection.pending for connection in self.connections) and loop.time() < deadline:
            await asyncio.sleep(SHUT_DOWN_POLL)
        await asyncio.sleep(0)  # replies are sent in the next event-loop iteration
        for connection in tuple(self.connections):
            connection.finish()
        flushed = loop.time() + FLUSH_TIME
        while self.connections and loop.time() < flushed:
            await asyncio.sleep(SHUT_DOWN_POLL)
        self.close()

    def cut_off(self, call: Call) -> None:
        """Close the connection of a call in the next event-loop iteration."""
        for connection in tuple(self.connections):
            if connection.serves(call):
                asyncio.get_running_loop().call_soon(connection.close)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in tuple(self.connections):
            connection.check_time(now, self.server_limits)
        self._sweeper = loop.call_later(self._sweep_period, self._sweep)


class _Connection(asyncio.Protocol):
    """Connects a socket and a `ServerConnection`: reads, serves calls, sends replies, pauses and closes."""

    def __init__(self, server: RpcServer, interfaces: InterfaceTable) -> None:
        self._server = server
        self._interfaces = interfaces
        self._transport: asyncio.Transport | None = None
        self._descriptor = -1
        self._core: ServerConnection | None = None
        self._source: requests.Source | None = None
        self._known = 0  # value of `core.negotiations` when the source was last updated
        self._backlog: list[Event] = []
        self._read_state = READING
        self._reader = BY_TRANSPORT
        self._replies = FLUSHED
        self._connected = self._heard = 0.0
        self._incomplete_since: float | None = None
        self._blocked_since = 0.0  # valid in the state REPLIES_BLOCKED

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        server = self._server
        self._transport = cast(asyncio.Transport, transport)
        peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        is_unix = not isinstance(local, tuple)  # addresses of Unix sockets are paths
        host: str = peer[0] if isinstance(peer, tuple) else ""  # empty if the peer has already disconnected
        limits = server.server_limits
        if len(server.connections) >= limits.max_connections:
            log.warning("connection from %s refused: max_connections, %d, are open", host, limits.max_connections)
            self._transport.abort()
            return
        if server.peers[host] >= limits.max_connections_per_peer:
            maximum = limits.max_connections_per_peer
            log.warning("connection from %s refused: it has max_connections_per_peer, %d, open", host, maximum)
            self._transport.abort()
            return
        self._loop = asyncio.get_running_loop()
        self._connected = self._heard = self._loop.time()
        self._core = ServerConnection(
            self._interfaces,
            server.associations,
            peer_host=host,
            local_host="" if is_unix else local[0],
            # C706 12.6.4.4: the secondary address is the endpoint; for TCP, its port.
            secondary_address=b"" if is_unix else str(local[1]).encode(),
            acceptor=server.acceptor,
            limits=server.limits,
            budget=server.budget,
            failures=server.failures,
            logins=server.logins,
        )
        self._core.on_output = self._output_ready
        sock = transport.get_extra_info("socket")
        if sock is not None:
            self._descriptor = sock.fileno()
            set_options(sock, server.dead_peer_seconds)
            self._core.descriptor = self._descriptor
        if server.calls.together is not None and requests is not None and sock is not None:
            self._source = requests.Source(
                self, transport, self._descriptor, self._core.unanswered, self._core.output, server.ready,
                server.limits.max_fragment, server.limits.max_pending,
            )  # fmt: skip
        server.connections.add(self)
        server.peers[host] += 1
        server.statistics.connections += 1

    def described(self) -> OpenConnection | None:
        """Return the connection for lists; None if it is being closed."""
        core = self._core
        if core is None:
            return None
        interfaces = {bound.interface.name for bound in core.contexts.values()}
        return OpenConnection(core.peer_host, core.users, sorted(interfaces), self._loop.time() - self._connected)

    def data_received(self, data: bytes) -> None:
        if self._core is not None:
            self._server.statistics.packets_in += 1
            self._receive(self._core, data)

    def received(self, data: bytes | None) -> None:
        """Process bytes that the poller has read but the source has not handled. None: the connection has ended."""
        core, transport = self._core, self._transport
        if core is None or transport is None or transport.is_closing():
            return
        if data is not None:
            self._receive(core, data)
        else:  # the transport determines how the connection has ended
            self._stop_polling()
            transport.resume_reading()

    def _receive(self, core: ServerConnection, data: bytes) -> None:
        self._heard = self._loop.time()
        before = core.pdus_received
        self._serve(core, data)
        if not core.waits_for_bytes:
            self._incomplete_since = None
        elif self._incomplete_since is None or core.pdus_received != before:
            # A busy connection may always have an incomplete PDU; each complete one is progress.
            self._incomplete_since = self._heard

    def _open_source(self, core: ServerConnection, source: requests.Source) -> None:
        """Let the source handle requests, if no other PDUs are expected."""
        caller = core.default_caller
        if core.negotiations != self._known and core.association is not None and caller is not None:
            self._known = core.negotiations
            self._server.calls.serve_gathered()  # its requests get their caller from the source
            handles = core.association.held_by(caller, caller.identity.sid, caller.level)
            source.know(self._server.calls.contexts_of(core.contexts, caller), caller, handles, core.max_reply)
        source.is_open = core.bound and caller is not None and core.expects_whole_requests and not self._backlog
        poller, transport = self._server.poller, self._transport
        if poller is None or transport is None or self._reader == BY_POLLER or not source.is_open:
            return
        if not self._read_state & PAUSED and not transport.is_closing():
            try:
                poller.add(source)
            except OSError as error:  # the limit of epoll watches is reached
                log.warning("reading the connection from %s outside of batches: %s", core.peer_host, error)
                return
            transport.pause_reading()
            self._reader = BY_POLLER

    def call_of(self, request: requests.Request) -> Call:
        """See `ServerConnection.call_of`."""
        assert self._core is not None  # all received data is served before the connection is released
        return self._core.call_of(request)

    def respond(self, request: requests.Request, stub: bytes) -> None:
        """Send the response to a request that the `requests.Source` has taken."""
        if self._core is not None:
            self._core.respond(request.call_id, request.context_id, stub)
            self._output_ready()

    def _serve(self, core: ServerConnection, data: bytes) -> None:
        """Dispatch received data until it is used up, or the peer does not read the replies."""
        source = self._source
        if source is not None:
            source.is_open = False
        self._replies = CORKED
        try:
            events = core.receive_data(data)
            if self._backlog:
                events, self._backlog = self._backlog + events, []
            while True:
                done = 0
                while done < len(events):
                    event = events[done]
                    done += 1
                    if isinstance(event, Call):
                        self._server.calls.dispatch(event)
                    else:
                        self._server.calls.serve_gathered()  # the calls before it
                        self._process(core, event)
                    if core.output_size > FLUSH_SIZE:
                        self.flush()
                        if self._read_state & REPLIES_BLOCKED:
                            self._backlog += events[done:]
                            return
                if not core.more:
                    break
                self._server.calls.serve_gathered()
                events = core.receive_data(b"")
        except Exception:
            # Nothing above is expected to raise, so the state of the connection is unknown.
            log.exception("connection handler failed")
            self.close()
        finally:
            self._replies = FLUSHED
        self.flush()
        if source is not None:
            self._open_source(core, source)

    def _process(self, core: ServerConnection, event: CallCancelled | AuthQueryNeeded | ConnectionEnded) -> None:
        if isinstance(event, AuthQueryNeeded):
            self._ask(event)
        elif isinstance(event, ConnectionEnded):
            self._end(event)
        elif (call := core.waiting_call(event)) is not None:
            self._cancel(call)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._server.calls.serve_gathered()  # calls received before the connection was lost are still served
        core, self._core = self._core, None
        if self._source is not None:
            self._stop_polling()
            self._source.descriptor = -1
            self._source.is_open = False
            self._source = None
        if core is not None:
            core.descriptor = -1
            self._server.peers[core.peer_host] -= 1
            if not self._server.peers[core.peer_host]:
                del self._server.peers[core.peer_host]
            for call in core.connection_lost():
                self._cancel(call)
            core.leave()

    def pause_writing(self) -> None:
        # The peer does not read its replies, so no further requests are read from it.
        self._blocked_since = self._loop.time()
        self._read_state = TRANSITIONS[self._read_state][WRITE_BLOCKED]
        self._pause_reading()

    def resume_writing(self) -> None:
        self._read_state = TRANSITIONS[self._read_state][WRITE_UNBLOCKED]
        if self._core is not None:
            self._loop.call_soon(self._resume)

    def _ask(self, asked: AuthQueryNeeded) -> None:
        """Pause reading until the query is answered."""
        assert self._transport is not None
        self._read_state = TRANSITIONS[self._read_state][LOGIN_ASKED]
        self._pause_reading()
        self._server.questions.ask(asked.question, self._answered)

    def _answered(self) -> None:
        self._read_state = TRANSITIONS[self._read_state][LOGIN_ANSWERED]
        core = self._core
        if core is not None:
            core.answered()
            self._resume()
            if not core.waits_for_bytes:
                self._incomplete_since = None  # data that arrived in the meantime has been served

    def _resume(self) -> None:
        """Serve the data received before the pause, then continue reading unless the connection is paused again."""
        core = self._core
        if core is None or self._transport is None or self._read_state & PAUSED:
            return
        self._serve(core, b"")
        if self._read_state & PAUSED or self._transport.is_closing():
            return
        self._read_state = TRANSITIONS[self._read_state][RESUMED]
        if self._reader == BY_TRANSPORT:
            self._transport.resume_reading()
        elif self._source is not None and self._server.poller is not None:
            try:
                self._server.poller.add(self._source)
            except OSError as error:  # limit of epoll watches: the transport reads this connection again
                log.warning("cannot poll a connection; reading it alone: %s", error)
                self._reader = BY_TRANSPORT
                self._transport.resume_reading()

    def _pause_reading(self) -> None:
        if self._reader == BY_POLLER and self._source is not None and self._server.poller is not None:
            self._server.poller.remove(self._source)
        elif self._transport is not None:
            self._transport.pause_reading()

    def _stop_polling(self) -> None:
        if self._reader == BY_POLLER and self._source is not None and self._server.poller is not None:
            self._server.poller.remove(self._source)
        self._reader = BY_TRANSPORT

    @property
    def pending(self) -> int:
        """Number of calls without a reply."""
        return self._core.pending if self._core is not None else 0

    def serves(self, call: Call) -> bool:
        """Return whether the call arrived on this connection."""
        return self._core is call.connection

    def finish(self) -> None:
        """Close when all replies have been sent."""
        self._stop_polling()
        if self._transport is not None:
            self._transport.close()

    def close(self) -> None:
        """Close without waiting for a peer that does not read."""
        self._stop_polling()
        if self._transport is not None:
            self._transport.abort()

    def check_time(self, now: float, limits: ServerLimits) -> None:
        """Close the connection if it has been silent, slow or not reading for too long."""
        core = self._core
        if core is None:
            return
        blocked_since = self._blocked_since if self._read_state & REPLIES_BLOCKED else None
        reasons = (
            ("it has not bound", None if core.bound else self._connected, limits.first_pdu),
            ("a PDU is incomplete", self._waits_since, limits.incomplete_pdu),
            ("it does not read its replies", blocked_since, limits.unread_replies),
            ("it is idle", None if core.pending else self._last_heard, limits.idle),
        )
        for reason, since, allowed in reasons:
            if since is not None and allowed is not None and now - since > allowed:
                log.info("connection from %s closed: %s for %.0f s", core.peer_host, reason, now - since)
                self.close()
                return

    @property
    def _waits_since(self) -> float | None:
        """Time in seconds since which a PDU has been incomplete; None if none is."""
        since = self._incomplete_since
        return since if since is not None or self._source is None else self._source.incomplete_since or None

    @property
    def _last_heard(self) -> float:
        return self._heard if self._source is None else max(self._heard, self._source.heard)

    def _cancel(self, call: Call) -> None:
        try:
            call.cancel()
        except Exception:
            log.exception("canceling %s opnum %d failed", call.interface.name, call.opnum)

    def _end(self, event: ConnectionEnded) -> None:
        assert self._core is not None
        assert self._transport is not None
        log.info("connection from %s ended: %s", self._core.peer_host, event.reason)
        self.flush()
        self.finish()

    def _check_unread(self) -> None:
        """Close the connection if too many bytes of replies are unread: many waiting calls may be answered at
        once."""
        assert self._transport is not None
        size = self._transport.get_write_buffer_size()
        if size > self._server.server_limits.unread_bytes:
            log.info("connection closed: %d bytes of replies are unread", size)
            self.close()

    def _output_ready(self) -> None:
        if self._replies == FLUSHED:
            self._replies = SCHEDULED
            self._server.flush_soon(self)

    def _write(self, transport: asyncio.Transport, data: bytes) -> None:
        """Send as much as the socket accepts now, and pass the rest to the transport. Writing to the transport only
        would delay the reply to a later event-loop iteration."""
        if self._descriptor >= 0 and not transport.get_write_buffer_size():
            try:
                sent = os.write(self._descriptor, data)
            except OSError:  # the buffer is full or the peer has disconnected: the transport will notice
                sent = 0
            data = data[sent:]
        if data:
            transport.write(data)

    def flush(self, allowed: bool | None = None) -> None:
        """Send the pending replies; `allowed` means that `may_answer` was already checked."""
        if self._replies == SCHEDULED:
            self._replies = FLUSHED
        core = self._core
        if core is not None and core.output and self._transport is not None:
            data = core.data_to_send()
            if not self._transport.is_closing():
                if not (self._server.may_answer() if allowed is None else allowed):
                    self.close()
                    return
                self._server.statistics.packets_out += 1
                self._write(self._transport, data)
                if self._read_state & REPLIES_BLOCKED:
                    self._check_unread()

    def send(self, data: bytes) -> None:
        """Pass data that the socket did not accept immediately to the transport."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
            if self._read_state & REPLIES_BLOCKED:
                self._check_unread()


def _always() -> bool:
    return True
