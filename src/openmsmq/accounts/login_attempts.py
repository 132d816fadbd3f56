"""Logins of all entry points: counted by source and by user, throttled, logged and reported.

`rpc.server_binding` throttles RPC and DCOM and reports outcomes to `LoginAttempts`; HTTP and Arrow Flight query it
before a login. All share one `PeerFailures`, so that a host does not get separate allowances at different entry points.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from msrpc.rpc.security import Identity
from msrpc.rpc.throttle import Attempt, PeerFailures

logger = logging.getLogger(__name__)

DOORS: Final = ("rpc", "http", "flight")
OUTCOMES: Final = ("ok", "refused", "delayed")
THROTTLED: Final = 10.0  # delay in seconds for a host with too many failures
_FIRST_DELAY, _LONGEST_DELAY = 1.0, 900.0  # seconds; the delay doubles with each failure
_FREE: Final = 3  # failures until the first delay, to allow for typing errors
REMEMBERED: Final = 10_000  # maximum entries (a user at a host)
USERS_OF_PEER: Final = 256  # of these, per host
FORGOTTEN_AFTER: Final = 2 * _LONGEST_DELAY  # seconds after the last failure
_ALL_OTHERS: Final = "\0"  # shared entry of the other users of a host


class _Failures(NamedTuple):
    """Failures of a user at a host: `until` when further attempts are delayed, and `at` when the last one failed, in
    seconds of the clock."""

    tries: int
    until: float
    at: float


class Reporter(Protocol):
    """Observer of logins: the audit log. Neither method raises."""

    def succeeded(self, door: str, sid: str, user: str, peer: str, token: str) -> None: ...

    def failed(self, door: str, user: str, peer: str) -> None: ...


class NoReporter:
    """Null reporter: ignores logins."""

    def succeeded(self, door: str, sid: str, user: str, peer: str, token: str) -> None:
        """Do nothing."""

    def failed(self, door: str, user: str, peer: str) -> None:
        """Do nothing."""


class Delays:
    """Delays of a user at an address after wrong passwords: 1 s after three failures, twice as long after each further
    failure. Failures at one address do not delay logins from another.

    The table holds `USERS_OF_PEER` users per address; further ones share one entry, so that failures under other names
    do not end existing delays. A user without attempts for `FORGOTTEN_AFTER` seconds is forgotten.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._failures: OrderedDict[tuple[str, str], _Failures] = OrderedDict()  # latest failure last
        self._users: Counter[str] = Counter()  # entries by peer

    def __len__(self) -> int:
        return len(self._failures)

    def left(self, user: str, peer: str) -> float:
        """Return the seconds until the next attempt is allowed; 0 for now."""
        known = self._failures.get(self._key(user, peer))
        return max(0.0, known.until - self._clock()) if known is not None else 0.0

    def failed(self, user: str, peer: str) -> None:
        now = self._clock()
        while self._failures and next(iter(self._failures.values())).at < now - FORGOTTEN_AFTER:
            self._forget(next(iter(self._failures)))
        key = self._key(user, peer)
        known = self._failures.get(key)
        count = 1 if known is None else known.tries + 1
        delay = 0.0 if count < _FREE else min(_FIRST_DELAY * 2 ** min(count - _FREE, 20), _LONGEST_DELAY)
        self._forget(key)
        self._failures[key] = _Failures(count, now + delay, now)
        self._users[peer] += 1
        if len(self._failures) > REMEMBERED:
            self._forget(next(iter(self._failures)))

    def succeeded(self, user: str, peer: str) -> None:
        self._forget((user.casefold(), peer))

    def _key(self, user: str, peer: str) -> tuple[str, str]:
        key = user.casefold(), peer
        return key if key in self._failures or self._users.get(peer, 0) < USERS_OF_PEER else (_ALL_OTHERS, peer)

    def _forget(self, key: tuple[str, str]) -> None:
        if self._failures.pop(key, None) is not None:
            peer = key[1]
            self._users[peer] -= 1
            if not self._users[peer]:
                del self._users[peer]


class LoginAttempts:
    """Failed logins at one daemon. A `door` is an entry point: "rpc", "http" or "flight". A `peer` is a host. The user
    is empty if it is unknown before the login, as with a token.

    Attributes:
        counts: logins by door and outcome: ok, refused, delayed.
    """

    def __init__(
        self, failures: PeerFailures, reporter: Reporter | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._failures: Final = failures
        self._reporter: Final[Reporter] = reporter or NoReporter()
        self._delays: Final = Delays(clock)
        self.counts: Final[Counter[tuple[str, str]]] = Counter(
            {(door, outcome): 0 for door in DOORS for outcome in OUTCOMES}
        )

    def wait(self, door: str, user: str, peer: str) -> float:
        """Return the seconds until a login attempt is allowed; 0 for now. A delayed attempt is counted."""
        throttled = THROTTLED if self._failures.refuses(peer, Attempt.LOGIN) else 0.0
        seconds = max(self._delays.left(user, peer) if user else 0.0, throttled)
        if seconds:
            self.counts[door, "delayed"] += 1
        return seconds

    def failed(self, door: str, user: str, peer: str) -> None:
        """Record a wrong password or token."""
        self.counts[door, "refused"] += 1
        self._failures.count(peer, Attempt.LOGIN)
        if user:
            self._delays.failed(user, peer)
        self._reporter.failed(door, user, peer)
        logger.warning("login by %s from %s refused", door, peer)

    def succeeded(self, door: str, sid: str, user: str, peer: str, token: str = "") -> None:
        """Record a login; `token` is the identifier of the token used, if any."""
        self.counts[door, "ok"] += 1
        self._delays.succeeded(user, peer)
        self._reporter.succeeded(door, sid, user, peer, token)

    # -- rpc.security.LoginObserver ------------------------------------------------------------------------------

    def logged_in(self, identity: Identity, peer: str) -> None:
        """Record an RPC login."""
        self.counts["rpc", "ok"] += 1
        self._reporter.succeeded("rpc", identity.sid or "", identity.user, peer, "")

    def refused(self, user: str, peer: str) -> None:
        """Record a failed RPC login, which the RPC server has already counted for throttling and logged."""
        self.counts["rpc", "refused"] += 1
        self._reporter.failed("rpc", user or "a user without name", peer)
