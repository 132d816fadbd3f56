"""Counters of failures by peer: a peer that guesses group identifiers, passwords or handles gets a few attempts at a
time.

A peer is a host. When it has used up its attempts of one kind, further attempts of this kind are refused unchecked for
the rest of the period. Everything else from this host is served.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

log = logging.getLogger(__name__)

PERIOD = 10.0  # seconds
_MAXIMUM_PEERS = 4096  # maximum number of hosts; the host whose last failure is oldest is forgotten first


class Attempt(Enum):
    """Kinds of repeated attempts."""

    JOIN = "joins of association groups that do not exist or belong to others"
    LOGIN = "failed authentications"
    CALL = "calls with handles of others or without the right to call"


@dataclass(frozen=True, slots=True)
class FailureLimits:
    """Maximum number of failures of one host within `PERIOD`, by kind.

    join: after a restart of the server all clients of a host try their old groups once. A group identifier has 32 bits,
        so with a hundred tries a second one takes eight months on average, and its handles are the caller's own.
    login: many users may share a host, and each mistypes at times.
    call: disconnected clients use hundreds of stale handles; guessing one takes billions of attempts.
    """

    join: int = 1000
    login: int = 100
    call: int = 2000


class PeerFailures:
    """The failures of all peers; `clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float], limits: FailureLimits | None = None) -> None:
        limits = limits or FailureLimits()
        self._clock = clock
        self._limits = {Attempt.JOIN: limits.join, Attempt.LOGIN: limits.login, Attempt.CALL: limits.call}
        self._failures: OrderedDict[tuple[str, Attempt], tuple[float, int]] = OrderedDict()

    def count(self, host: str, attempt: Attempt) -> None:
        """Count a failed attempt."""
        key, now = (host, attempt), self._clock()
        since, count = self._failures.pop(key, (now, 0))
        if now - since >= PERIOD:
            since, count = now, 0
        self._failures[key] = since, count + 1
        if count + 1 == self._limits[attempt]:
            log.warning(
                "%s: %d %s within %.0f s; more are refused for the rest of that time",
                host, count + 1, attempt.value, PERIOD,
            )  # fmt: skip
        while self._failures:  # the oldest failure is first
            began, _ = next(iter(self._failures.values()))
            if len(self._failures) <= _MAXIMUM_PEERS and now - began < PERIOD:
                break
            self._failures.popitem(last=False)

    @property
    def remembered(self) -> int:
        """Number of remembered hosts, counted once for each kind of failure."""
        return len(self._failures)

    def refuses(self, host: str, attempt: Attempt) -> bool:
        """Whether the host has used up its attempts."""
        since, count = self._failures.get((host, attempt), (0.0, 0))
        return count >= self._limits[attempt] and self._clock() - since < PERIOD
