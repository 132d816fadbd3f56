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
class Ping:
    """Ask a hop whether it would accept a session; answer with `pinged`. Silence is noticed by `tick`."""

    hop: NextHop


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to a hop; answer with `connected` or `failed`. `without_ping` is for its EstablishConnection."""

    hop: NextHop
    without_ping: bool


Wish = Resolve | Ping | Connect | None


class Reach(Enum):
    """Where the way to a destination stands."""

    IDLE = auto()
    RESOLVING = auto()
    PINGING = auto()
    CONNECTING = auto()
    CONNECTED = auto()
    WAITING_RECONNECT = auto()


class Stimulus(Enum):
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


class Action(Enum):
    NOTHING = auto()
    RESOLVE = auto()
    PING = auto()
    CONNECT = auto()
    START_TIMER = auto()


class Row(NamedTuple):
    action: Action
    next: Reach


_STOP = Row(Action.NOTHING, Reach.IDLE)
_WAIT = Row(Action.START_TIMER, Reach.WAITING_RECONNECT)

# What has no row is the answer to a question that is no longer asked, and changes nothing.
TABLE: dict[Reach, dict[Stimulus, Row]] = {
    Reach.IDLE: {
        Stimulus.MESSAGES_WAIT: Row(Action.RESOLVE, Reach.RESOLVING),
    },
    Reach.RESOLVING: {
        Stimulus.RESOLVED: Row(Action.CONNECT, Reach.CONNECTING),
        Stimulus.RESOLVED_FOR_PING: Row(Action.PING, Reach.PINGING),
        Stimulus.FAILED: _WAIT,
        Stimulus.NOTHING_WAITS: _STOP,
    },
    Reach.PINGING: {
        Stimulus.ACCEPTED: Row(Action.CONNECT, Reach.CONNECTING),
        Stimulus.FAILED: _WAIT,
        Stimulus.NOTHING_WAITS: _STOP,
    },
    Reach.CONNECTING: {
        Stimulus.CONNECTED: Row(Action.NOTHING, Reach.CONNECTED),
        Stimulus.FAILED: _WAIT,
        Stimulus.NOTHING_WAITS: _STOP,
    },
    Reach.CONNECTED: {
        Stimulus.ENDED: _WAIT,
        Stimulus.NOTHING_WAITS: _STOP,
    },
    Reach.WAITING_RECONNECT: {
        Stimulus.RETRY: Row(Action.CONNECT, Reach.CONNECTING),
        Stimulus.RETRY_ANEW: Row(Action.RESOLVE, Reach.RESOLVING),
        Stimulus.NOTHING_WAITS: _STOP,
    },
}


class Reaching:
    """`ping` asks the first hop before it is connected to, which firewalls often prevent; so a retry never does."""

    def __init__(self, ping: bool = False) -> None:
        self.state = Reach.IDLE
        self.next_deadline: float | None = None
        self._ping = ping
        self._is_retry = False  # what is resolved now
        self._hops: Sequence[NextHop] = ()
        self._index = 0

    @property
    def hop(self) -> NextHop | None:
        """The hop in use or last tried."""
        return self._hops[self._index] if self._hops else None

    def messages_wait(self, now: float) -> Wish:
        """There is something to send. It begins whenever nothing is under way (deviation D-101)."""
        return self._step(Stimulus.MESSAGES_WAIT, now)

    def nothing_waits(self, now: float) -> Wish:
        """There is nothing to send any more, or it must not be sent; what is going on is to be cancelled."""
        return self._step(Stimulus.NOTHING_WAITS, now)

    def resolved(self, hops: Sequence[NextHop], now: float) -> Wish:
        """The hops to try in turn; none if the destination could not be resolved (State NeedValidation)."""
        if self.state is not Reach.RESOLVING:
            return None
        self._hops, self._index = tuple(hops), 0
        if not hops:
            return self._step(Stimulus.FAILED, now)
        return self._step(Stimulus.RESOLVED_FOR_PING if self._ping and not self._is_retry else Stimulus.RESOLVED, now)

    def pinged(self, accepted: bool, now: float) -> Wish:
        """The hop has answered."""
        if self.state is not Reach.PINGING:
            return None
        return self._step(Stimulus.ACCEPTED if accepted else Stimulus.FAILED, now)

    def connected(self, now: float) -> Wish:
        """The connection is up: make a `Session.initiator`."""
        return self._step(Stimulus.CONNECTED, now)

    def failed(self, now: float) -> Wish:
        """The hop could not be connected to."""
        return self._step(Stimulus.FAILED, now) if self.state is Reach.CONNECTING else None

    def ended(self, messages_wait: bool, now: float) -> Wish:
        """The session has closed. `messages_wait` includes what it has left unacknowledged."""
        return self._step(Stimulus.ENDED if messages_wait else Stimulus.NOTHING_WAITS, now)

    def tick(self, now: float) -> Wish:
        """Time has passed."""
        if self.next_deadline is None or now < self.next_deadline:
            return None
        if self.state is Reach.PINGING:
            return self._step(Stimulus.FAILED, now)
        if self._index + 1 < len(self._hops):
            self._index += 1
            return self._step(Stimulus.RETRY, now)
        return self._step(Stimulus.RETRY_ANEW, now)

    def _step(self, stimulus: Stimulus, now: float) -> Wish:
        row = TABLE[self.state].get(stimulus)
        if row is None:
            return None
        after_ping = self.state is Reach.PINGING  # a retry is made without one (3.1.5.2.2)
        self.state, self.next_deadline = row.next, None
        match row.action:
            case Action.RESOLVE:
                self._is_retry = stimulus is Stimulus.RETRY_ANEW
                return Resolve()
            case Action.PING:
                self.next_deadline = now + PING_TIMEOUT
                return Ping(self._hops[self._index])
            case Action.CONNECT:
                return Connect(self._hops[self._index], without_ping=not after_ping)
            case Action.START_TIMER:
                self.next_deadline = now + RETRY_TIMEOUT
        return None
