"""The controllers of a domain: query threads, cached sessions, and fail-over to the next controller."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from openmsmq.directory.active.locating import Locate
from openmsmq.directory.active.session import ControllerTimeout, DirectorySession, Scope, time_limit
from openmsmq.directory.provider import DirectoryError, DirectoryNotConnected

logger = logging.getLogger(__name__)

T = TypeVar("T")

THREADS: Final = 4  # parallel queries; others wait
SECONDS: Final = 8.0  # for all requests of one query to a controller; less than `connection.TIME_LIMIT`
IDLE_SECONDS: Final = 120.0  # after which a session is not used again: firewalls drop idle connections silently
RESTING_SECONDS: Final = 4.0  # after which controllers that may rest are not all tried


class Controllers:
    """Uses one controller until it fails, then the next one.

    A read is repeated at the next controller. A change is not, because it may have been made; a pooled session is
    therefore tested with a read before it is used for a change.
    """

    def __init__(
        self,
        locate: Locate,
        connect: Callable[[str], DirectorySession],
        rest: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`connect` logs in to a host; it raises DirectoryNotConnected. After a failure, no host is tried for
        `rest` seconds. `clock` is a monotonic clock in seconds. Nothing is sent yet."""
        self._locate: Final = locate
        self._connect: Final = connect
        self._rest: Final = rest
        self._clock: Final = clock
        self._resting = "", float("-inf")  # the failure, and until when it counts
        self._threads: Final = ThreadPoolExecutor(THREADS, "active-directory")
        self._lock: Final = threading.Lock()
        self._current = ""
        # Idle sessions, each with its host and the time of its last use; the latest use last.
        self._kept: list[tuple[str, DirectorySession, float]] = []

    async def read(self, work: Callable[[DirectorySession], T]) -> T:
        """Run a read in a thread, with fail-over. Raises DirectoryError."""
        return await self._in_thread(lambda: self.read_now(work))

    async def change(self, work: Callable[[DirectorySession], T]) -> T:
        """Run a change in a thread. Raises DirectoryError. If the connection was lost during the call, the change may
        have been made."""
        return await self._in_thread(lambda: self.change_now(work))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def read_now(self, work: Callable[[DirectorySession], T]) -> T:
        """Blocking form of `read`."""
        return self._each(lambda host, session: self._use(host, session or self._connect(host), work))

    def change_now(self, work: Callable[[DirectorySession], T]) -> T:
        """Blocking form of `change`."""
        host, session = self._each(self._fresh)
        try:
            return self._use(host, session, work)
        except DirectoryNotConnected as error:
            hosts = self._locate.hosts()
            if len(hosts) == 1:
                raise
            self._next(host, hosts, str(error))
            raise DirectoryError(
                f"{host} has gone while it was asked for a change ({error}), which may have been made: look whether it "
                "was, and try again, another controller is asked then"
            ) from None

    def _fresh(self, host: str, kept: DirectorySession | None) -> tuple[str, DirectorySession]:
        """Return a host and a session that answers."""
        session = kept or self._connect(host)
        if kept is not None:
            try:
                session.search("", "(objectClass=*)", ["dnsHostName"], Scope.BASE)
            except DirectoryError:
                session.close()
                raise
        return host, session

    def _each(self, attempt: Callable[[str, DirectorySession | None], T]) -> T:
        """Make one attempt per controller, the current one first; two if a pooled session has ended."""
        began = self._clock()
        failure, until = self._resting
        if began < until:
            raise DirectoryNotConnected(failure)
        reasons: list[str] = []
        hosts = self._locate.hosts()
        for _ in range(len(hosts)):
            host, kept = self._take(hosts)
            for session in (kept, None) if kept is not None else (None,):
                try:
                    return attempt(host, session)
                except DirectoryNotConnected as error:
                    reason = str(error)
                    if isinstance(error, ControllerTimeout):
                        break
            reasons.append(f"{host}: {reason}")
            self._next(host, hosts, reason)
            if self._rest and self._clock() - began > RESTING_SECONDS:
                break
        self._locate.failed()
        failure = "; ".join(reasons)
        self._resting = failure, self._clock() + self._rest
        raise DirectoryNotConnected(failure)

    def _use(self, host: str, session: DirectorySession, work: Callable[[DirectorySession], T]) -> T:
        try:
            with time_limit(SECONDS):
                answer = work(session)
        except DirectoryNotConnected:
            session.close()
            raise
        except BaseException:
            self._keep(host, session)
            raise
        self._keep(host, session)
        return answer

    def _take(self, hosts: Sequence[str]) -> tuple[str, DirectorySession | None]:
        with self._lock:
            if self._current not in hosts:
                self._current = hosts[0]
            while self._kept:
                host, session, used = self._kept.pop()
                if host == self._current and self._clock() - used < IDLE_SECONDS:
                    return host, session
                session.close()
            return self._current, None

    def _keep(self, host: str, session: DirectorySession) -> None:
        with self._lock:
            self._kept.append((host, session, self._clock()))

    def _next(self, host: str, hosts: Sequence[str], reason: str) -> None:
        with self._lock:
            if self._current != host or host not in hosts or len(hosts) == 1:
                return
            self._current = following = hosts[(hosts.index(host) + 1) % len(hosts)]
        logger.warning("the domain controller %s does not answer (%s): asking %s", host, reason, following)

    async def close(self) -> None:
        """Stop all queries. A thread that waits for an unresponsive controller ends after its timeout."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock, suppress(DirectoryError):
            for _, session, _ in self._kept:
                session.close()
            self._kept.clear()
