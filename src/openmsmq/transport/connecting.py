"""Connect to a destination when messages wait, and reconnect when the connection is lost ([MS-MQQB] 3.1.5.2, 3.1.6.1),
without I/O.

These are the initiator's states outside a session, for one destination. Each call returns the owner's next task, if
any: resolve the destination, ping a hop, or connect to one. Times are milliseconds of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from openmsmq.packet.headers import NO_GUID

RETRY_TIMEOUT = 5_000  # Session Retry Connect Timer, 3.1.2.3 and note 45
PING_TIMEOUT = 1_000  # Ping Response Timer, 3.1.2.9


@dataclass(frozen=True, slots=True)
class NextHop:
    """3.1.1.3.1.3. `identifier` is that of the queue manager, NO_GUID for direct format names; see
    `MqqbSession.initiator`."""

    address: str
    host_name: str = ""
    identifier: bytes = NO_GUID


@dataclass(frozen=True, slots=True)
class Resolve:
    """Command: find the hops to the destination; answer with `resolved`."""


@dataclass(frozen=True, slots=True)
class ConnectPing:
    """Command: ask a hop whether it would accept a session; answer with `pinged`. `tick` handles the time-out."""

    hop: NextHop


@dataclass(frozen=True, slots=True)
class Connect:
    """Command: connect to a hop; answer with `connected` or `failed`. `without_ping` is a field of
    EstablishConnection."""

    hop: NextHop
    without_ping: bool


ConnectCommand = Resolve | ConnectPing | Connect | None


class ConnectState(Enum):
    """State of the connection to a destination."""

    IDLE = auto()
    RESOLVING = auto()
    PINGING = auto()
    CONNECTING = auto()
    CONNECTED = auto()
    WAITING_RECONNECT = auto()


class ConnectEvent(Enum):
    MESSAGES_WAIT = auto()
    RESOLVED = auto()
    RESOLVED_FOR_PING = auto()
    ACCEPTED = auto()  # the ping was answered positively
    CONNECTED = auto()
    FAILED = auto()  # no hops, ping refused or not answered, or no connection
    ENDED = auto()  # the session has closed while messages wait
    RETRY = auto()  # timer expired, and there is another hop
    RETRY_RESOLVE = auto()  # timer expired after the last hop
    NOTHING_WAITS = auto()  # or none may be sent, because the queue is paused or the machine offline


class ConnectAction(Enum):
    NOTHING = auto()
    RESOLVE = auto()
    PING = auto()
    CONNECT = auto()
    START_TIMER = auto()


class ConnectRow(NamedTuple):
    action: ConnectAction
    next: ConnectState


_STOP = ConnectRow(ConnectAction.NOTHING, ConnectState.IDLE)
_WAIT = ConnectRow(ConnectAction.START_TIMER, ConnectState.WAITING_RECONNECT)

# Events without a row are answers to obsolete commands, and change nothing.
TABLE: dict[ConnectState, dict[ConnectEvent, ConnectRow]] = {
    ConnectState.IDLE: {
        ConnectEvent.MESSAGES_WAIT: ConnectRow(ConnectAction.RESOLVE, ConnectState.RESOLVING),
    },
    ConnectState.RESOLVING: {
        ConnectEvent.RESOLVED: ConnectRow(ConnectAction.CONNECT, ConnectState.CONNECTING),
        ConnectEvent.RESOLVED_FOR_PING: ConnectRow(ConnectAction.PING, ConnectState.PINGING),
        ConnectEvent.FAILED: _WAIT,
        ConnectEvent.NOTHING_WAITS: _STOP,
    },
    ConnectState.PINGING: {
        ConnectEvent.ACCEPTED: ConnectRow(ConnectAction.CONNECT, ConnectState.CONNECTING),
        ConnectEvent.FAILED: _WAIT,
        ConnectEvent.NOTHING_WAITS: _STOP,
    },
    ConnectState.CONNECTING: {
        ConnectEvent.CONNECTED: ConnectRow(ConnectAction.NOTHING, ConnectState.CONNECTED),
        ConnectEvent.FAILED: _WAIT,
        ConnectEvent.NOTHING_WAITS: _STOP,
    },
    ConnectState.CONNECTED: {
        ConnectEvent.ENDED: _WAIT,
        ConnectEvent.NOTHING_WAITS: _STOP,
    },
    ConnectState.WAITING_RECONNECT: {
        ConnectEvent.RETRY: ConnectRow(ConnectAction.CONNECT, ConnectState.CONNECTING),
        ConnectEvent.RETRY_RESOLVE: ConnectRow(ConnectAction.RESOLVE, ConnectState.RESOLVING),
        ConnectEvent.NOTHING_WAITS: _STOP,
    },
}


class ConnectMachine:
    """State machine of the connection to one destination. With `ping`, the first hop is pinged before connecting.
    Firewalls often block pings, so retries do not ping."""

    def __init__(self, ping: bool = False) -> None:
        self.state = ConnectState.IDLE
        self.next_deadline: float | None = None
        self._ping = ping
        self._is_retry = False  # whether the current resolution is a retry
        self._hops: Sequence[NextHop] = ()
        self._index = 0

    @property
    def hop(self) -> NextHop | None:
        """The hop in use or last tried."""
        return self._hops[self._index] if self._hops else None

    def messages_wait(self, now: float) -> ConnectCommand:
        """Start connecting if idle, because messages wait (deviation D-101)."""
        return self._step(ConnectEvent.MESSAGES_WAIT, now)

    def nothing_waits(self, now: float) -> ConnectCommand:
        """Return to idle, because no message waits or may be sent. The owner must cancel the command in progress."""
        return self._step(ConnectEvent.NOTHING_WAITS, now)

    def resolved(self, hops: Sequence[NextHop], now: float) -> ConnectCommand:
        """Set the hops to try in order; empty if the destination could not be resolved (State NeedValidation)."""
        if self.state is not ConnectState.RESOLVING:
            return None
        self._hops, self._index = tuple(hops), 0
        if not hops:
            return self._step(ConnectEvent.FAILED, now)
        return self._step(
            ConnectEvent.RESOLVED_FOR_PING if self._ping and not self._is_retry else ConnectEvent.RESOLVED, now
        )

    def pinged(self, accepted: bool, now: float) -> ConnectCommand:
        """Process the reply of a hop to a ping."""
        if self.state is not ConnectState.PINGING:
            return None
        return self._step(ConnectEvent.ACCEPTED if accepted else ConnectEvent.FAILED, now)

    def connected(self, now: float) -> ConnectCommand:
        """Record that the connection is open; the owner creates a `MqqbSession.initiator`."""
        return self._step(ConnectEvent.CONNECTED, now)

    def failed(self, now: float) -> ConnectCommand:
        """Record that the connection to the hop failed."""
        return self._step(ConnectEvent.FAILED, now) if self.state is ConnectState.CONNECTING else None

    def ended(self, messages_wait: bool, now: float) -> ConnectCommand:
        """Record that the session has closed. `messages_wait`: there are messages to send, including unacknowledged
        ones."""
        return self._step(ConnectEvent.ENDED if messages_wait else ConnectEvent.NOTHING_WAITS, now)

    def tick(self, now: float) -> ConnectCommand:
        """Handle the expiry of a timer."""
        if self.next_deadline is None or now < self.next_deadline:
            return None
        if self.state is ConnectState.PINGING:
            return self._step(ConnectEvent.FAILED, now)
        if self._index + 1 < len(self._hops):
            self._index += 1
            return self._step(ConnectEvent.RETRY, now)
        return self._step(ConnectEvent.RETRY_RESOLVE, now)

    def _step(self, event: ConnectEvent, now: float) -> ConnectCommand:
        row = TABLE[self.state].get(event)
        if row is None:
            return None
        after_ping = self.state is ConnectState.PINGING  # retries do not ping (3.1.5.2.2)
        self.state, self.next_deadline = row.next, None
        match row.action:
            case ConnectAction.RESOLVE:
                self._is_retry = event is ConnectEvent.RETRY_RESOLVE
                return Resolve()
            case ConnectAction.PING:
                self.next_deadline = now + PING_TIMEOUT
                return ConnectPing(self._hops[self._index])
            case ConnectAction.CONNECT:
                return Connect(self._hops[self._index], without_ping=not after_ping)
            case ConnectAction.START_TIMER:
                self.next_deadline = now + RETRY_TIMEOUT
        return None
