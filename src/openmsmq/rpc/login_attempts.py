"""Logins of all entry points in one place: counted by source and by user, throttled, logged and reported.

RPC and DCOM are throttled by `rpc.server_binding` and tell `LoginAttempts` what has happened; HTTP and Arrow Flight ask
it. All share one `PeerFailures`, so that a host does not get a second allowance at another entry point.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from openmsmq.rpc.security import Identity
from openmsmq.rpc.throttle import Attempt, PeerFailures

logger = logging.getLogger(__name__)

DOORS: Final = ("rpc", "http", "flight")
OUTCOMES: Final = ("ok", "refused", "delayed")
THROTTLED: Final = 10.0  # seconds that a host with too many failures waits
_FIRST_DELAY, _LONGEST_DELAY = 1.0, 900.0  # seconds after failures; they double
_FREE: Final = 3  # failures before the first delay: people mistype
_REMEMBERED: Final = 10_000  # users at hosts


class Reporter(Protocol):
    """Who wants to know of logins: the audit log. Neither method raises."""

    def succeeded(self, door: str, sid: str, user: str, peer: str, token: str) -> None: ...

    def failed(self, door: str, user: str, peer: str) -> None: ...


class NoReporter:
    """Nobody wants to know of logins."""

    def succeeded(self, door: str, sid: str, user: str, peer: str, token: str) -> None:
        """Nothing to do."""

    def failed(self, door: str, user: str, peer: str) -> None:
        """Nothing to do."""


class Delays:
    """How long a user at an address has to wait after wrong passwords: 1 s after three failures, twice as long after
    each further one. Who fails at one address is not kept out at another."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._failures: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()

    def left(self, user: str, peer: str) -> float:
        """Seconds until the next try; 0 for none."""
        _, until = self._failures.get((user.casefold(), peer), (0, 0.0))
        return max(0.0, until - self._clock())

    def failed(self, user: str, peer: str) -> None:
        key = (user.casefold(), peer)
        count = self._failures.pop(key, (0, 0.0))[0] + 1
        delay = 0.0 if count < _FREE else min(_FIRST_DELAY * 2 ** min(count - _FREE, 20), _LONGEST_DELAY)
        self._failures[key] = count, self._clock() + delay
        if len(self._failures) > _REMEMBERED:
            self._failures.popitem(last=False)

    def succeeded(self, user: str, peer: str) -> None:
        self._failures.pop((user.casefold(), peer), None)


class LoginAttempts:
    """Of one daemon. A `door` is "http", "flight" or "rpc"; a `peer` is a host. An empty user is one that is not named
    before the login, as with a token.

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
        """Seconds until a login is looked at; 0 for now. A login that has to wait is counted."""
        throttled = THROTTLED if self._failures.refuses(peer, Attempt.LOGIN) else 0.0
        seconds = max(self._delays.left(user, peer) if user else 0.0, throttled)
        if seconds:
            self.counts[door, "delayed"] += 1
        return seconds

    def failed(self, door: str, user: str, peer: str) -> None:
        """A password or a token was wrong."""
        self.counts[door, "refused"] += 1
        self._failures.count(peer, Attempt.LOGIN)
        if user:
            self._delays.failed(user, peer)
        self._reporter.failed(door, user, peer)
        logger.warning("login by %s from %s refused", door, peer)

    def succeeded(self, door: str, sid: str, user: str, peer: str, token: str = "") -> None:
        """Somebody has logged in, with the token of that identifier if there is one."""
        self.counts[door, "ok"] += 1
        self._delays.succeeded(user, peer)
        self._reporter.succeeded(door, sid, user, peer, token)

    # -- rpc.security.LoginObserver ------------------------------------------------------------------------------

    def logged_in(self, identity: Identity, peer: str) -> None:
        """Somebody has logged in by RPC."""
        self.counts["rpc", "ok"] += 1
        self._reporter.succeeded("rpc", identity.sid or "", identity.user, peer, "")

    def refused(self, user: str, peer: str) -> None:
        """Somebody has failed by RPC, which has counted and logged that."""
        self.counts["rpc", "refused"] += 1
        self._reporter.failed("rpc", user or "a user without name", peer)
