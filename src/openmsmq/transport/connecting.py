"""From messages that wait to a connection, and again after it is gone ([MS-MQQB] 3.1.5.2, 3.1.6.1), without I/O.

The initiator's states outside a session, for one destination. Each call returns what the owner is to do next, if
anything: resolve the destination, ping a hop, or connect to one. Times are milliseconds of a clock that never goes
back.
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
    """3.1.1.3.1.3. `identifier` is the queue manager's, NO_GUID for direct format names; see `Session.initiator`."""

    address: str
    host_name: str = ""
    identifier: bytes = NO_GUID


@dataclass(frozen=True, slots=True)
class Resolve:
    """Find the hops to the destination; answer with `resolved`."""


@dataclass(frozen=True, slots=True)
class ConnectPing:
    """Ask a hop whether it would accept a session; answer with `pinged`. Silence is noticed by `tick`."""

    hop: NextHop


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to a hop; answer with `connected` or `failed`. `without_ping` is for its EstablishConnection."""

    hop: NextHop
    without_ping: bool


ConnectCommand = Resolve | ConnectPing | Connect | None


class ConnectState(Enum):
    """Where the way to a destination stands."""

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
    ACCEPTED = auto()  # by the answer to a ping
    CONNECTED = auto()
    FAILED = auto()  # nothing resolved, ping refused or not answered, no connection
    ENDED = auto()  # the session has closed, and messages wait
    RETRY = auto()  # the timer, and there is another hop
    RETRY_ANEW = auto()  # the timer, after the last hop
    NOTHING_WAITS = auto()  # or nothing may be sent: on hold, offline


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

# What has no row is the answer to a question that is no longer asked, and changes nothing.
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
        ConnectEvent.RETRY_ANEW: ConnectRow(ConnectAction.RESOLVE, ConnectState.RESOLVING),
        ConnectEvent.NOTHING_WAITS: _STOP,
    },
}


class ConnectMachine:
    """`ping` asks the first hop before it is connected to, which firewalls often prevent; so a retry never does."""

    def __init__(self, ping: bool = False) -> None:
        self.state = ConnectState.IDLE
        self.next_deadline: float | None = None
        self._ping = ping
        self._is_retry = False  # what is resolved now
        self._hops: Sequence[NextHop] = ()
        self._index = 0

    @property
    def hop(self) -> NextHop | None:
        """The hop in use or last tried."""
        return self._hops[self._index] if self._hops else None

    def messages_wait(self, now: float) -> ConnectCommand:
        """There is something to send. It begins whenever nothing is under way (deviation D-101)."""
        return self._step(ConnectEvent.MESSAGES_WAIT, now)

    def nothing_waits(self, now: float) -> ConnectCommand:
        """There is nothing to send any more, or it must not be sent; what is going on is to be cancelled."""
        return self._step(ConnectEvent.NOTHING_WAITS, now)

    def resolved(self, hops: Sequence[NextHop], now: float) -> ConnectCommand:
        """The hops to try in turn; none if the destination could not be resolved (State NeedValidation)."""
        if self.state is not ConnectState.RESOLVING:
            return None
        self._hops, self._index = tuple(hops), 0
        if not hops:
            return self._step(ConnectEvent.FAILED, now)
        return self._step(
            ConnectEvent.RESOLVED_FOR_PING if self._ping and not self._is_retry else ConnectEvent.RESOLVED, now
        )

    def pinged(self, accepted: bool, now: float) -> ConnectCommand:
        """The hop has answered."""
        if self.state is not ConnectState.PINGING:
            return None
        return self._step(ConnectEvent.ACCEPTED if accepted else ConnectEvent.FAILED, now)

    def connected(self, now: float) -> ConnectCommand:
        """The connection is up: make a `Session.initiator`."""
        return self._step(ConnectEvent.CONNECTED, now)

    def failed(self, now: float) -> ConnectCommand:
        """The hop could not be connected to."""
        return self._step(ConnectEvent.FAILED, now) if self.state is ConnectState.CONNECTING else None

    def ended(self, messages_wait: bool, now: float) -> ConnectCommand:
        """The session has closed. `messages_wait` includes what it has left unacknowledged."""
        return self._step(ConnectEvent.ENDED if messages_wait else ConnectEvent.NOTHING_WAITS, now)

    def tick(self, now: float) -> ConnectCommand:
        """Time has passed."""
        if self.next_deadline is None or now < self.next_deadline:
            return None
        if self.state is ConnectState.PINGING:
            return self._step(ConnectEvent.FAILED, now)
        if self._index + 1 < len(self._hops):
            self._index += 1
            return self._step(ConnectEvent.RETRY, now)
        return self._step(ConnectEvent.RETRY_ANEW, now)

    def _step(self, stimulus: ConnectEvent, now: float) -> ConnectCommand:
        row = TABLE[self.state].get(stimulus)
        if row is None:
            return None
        after_ping = self.state is ConnectState.PINGING  # a retry is made without one (3.1.5.2.2)
        self.state, self.next_deadline = row.next, None
        match row.action:
            case ConnectAction.RESOLVE:
                self._is_retry = stimulus is ConnectEvent.RETRY_ANEW
                return Resolve()
            case ConnectAction.PING:
                self.next_deadline = now + PING_TIMEOUT
                return ConnectPing(self._hops[self._index])
            case ConnectAction.CONNECT:
                return Connect(self._hops[self._index], without_ping=not after_ping)
            case ConnectAction.START_TIMER:
                self.next_deadline = now + RETRY_TIMEOUT
        return None
