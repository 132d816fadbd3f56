"""A session that follows referrals to other domains of the forest, with a separate login for each.

A ticket for another controller is valid only for its service, so data sent there cannot be used elsewhere. It is
requested only if `referrals.ReferralChain` allows the operation to continue there. The time limit covers the whole
operation.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Final, Protocol, TypeVar

from openmsmq.directory.active.forest import ForestDomain, forest_of
from openmsmq.directory.active.referrals import ReferralChain, ReferralTarget, ReferredElsewhere
from openmsmq.directory.active.session import CALL_SECONDS, DirectorySession, LdapEntry, Referred, Scope, SearchResult
from openmsmq.directory.provider import DirectoryError, DirectoryNotConnected, ObjectNotFound

logger = logging.getLogger(__name__)

T = TypeVar("T")

SECONDS: Final = 8.0  # for one operation including referrals; less than `connection.TIME_LIMIT`
_LEAST: Final = 0.1  # minimum remaining seconds for another query


class Controller(DirectorySession, Protocol):
    """A session of one controller, which reports referrals."""

    def look(
        self, base: str, condition: str, attributes: Sequence[str], scope: Scope, limit: int = 0, order: str = ""
    ) -> SearchResult:
        """Search at one controller. Raises Referred."""


#: Logs in at a host; the second argument limits each call there, in seconds. Raises DirectoryNotConnected.
Connect = Callable[[str, float], Controller]
#: Returns the controllers of a domain (DNS name), the best first. Raises DirectoryNotConnected.
ControllersOf = Callable[[str], Sequence[str]]


#: A query to a controller, with a base and, if a referral contains one, a scope.
Ask = Callable[[Controller, str, Scope | None], T]


class _Request:
    """One operation: its base, the referrals followed so far, and its deadline by the clock."""

    def __init__(
        self, forest: Callable[[], Sequence[ForestDomain]], base: str, until: float, *, is_change: bool = False
    ) -> None:
        self.is_change: Final = is_change
        self.base: Final = base
        self.trail: Final = ReferralChain(base, forest)
        self.until: Final = until


class ForestSession:
    """See `session.DirectorySession`."""

    def __init__(
        self, own: Controller, connect: Connect, controllers_of: ControllersOf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`own` is closed together with this session. `clock` is a monotonic clock in seconds."""
        self._own: Final = own
        self._connect: Final = connect
        self._controllers_of: Final = controllers_of
        self._clock: Final = clock
        self._forest: tuple[ForestDomain, ...] = ()

    def search(
        self, base: str, condition: str, attributes: Sequence[str], scope: Scope = Scope.SUBTREE, *,
        limit: int = 0, order: str = "", everywhere: bool = False,
    ) -> list[LdapEntry]:  # fmt: skip
        request = _Request(self._domains, base, self._clock() + SECONDS)
        found = self._follow(
            request, lambda session, name, narrowed: session.look(
                name, condition, attributes, scope if narrowed is None else narrowed, limit, order
            ),
        )  # fmt: skip
        entries, waiting = list(found.entries), deque(found.references if everywhere else ())
        while waiting and not (limit and len(entries) >= limit):
            more = self._in_other_domain(
                request, waiting.popleft(), lambda session, name, narrowed: session.look(
                    name, condition, attributes, Scope.SUBTREE if narrowed is None else narrowed, limit, order
                ),
            )  # fmt: skip
            entries += more.entries
            waiting.extend(more.references)
        return entries[:limit] if limit else entries

    def add(self, name: str, attributes: Mapping[str, Sequence[bytes]]) -> None:
        self._change(name, lambda session, there, _: session.add(there, attributes))

    def modify(self, name: str, attributes: Mapping[str, Sequence[bytes]]) -> None:
        self._change(name, lambda session, there, _: session.modify(there, attributes))

    def delete(self, name: str) -> None:
        self._change(name, lambda session, there, _: session.delete(there))

    def close(self) -> None:
        self._own.close()

    def _change(self, name: str, ask: Ask[None]) -> None:
        self._follow(_Request(self._domains, name, self._clock() + SECONDS, is_change=True), ask)

    def _follow(self, request: _Request, ask: Ask[T]) -> T:
        """Return the answer of the domain that has the base of the request. Raises DirectoryError."""
        try:
            return ask(self._own, request.base, None)
        except Referred as referred:
            urls = referred.urls
        while True:
            try:
                return self._at(request.trail.next(urls), request, ask)
            except Referred as referred:
                urls = referred.urls
            except ReferredElsewhere as error:
                logger.warning("%s", error)
                raise

    def _in_other_domain(self, request: _Request, url: str, ask: Ask[SearchResult]) -> SearchResult:
        """Return the results of another domain; an empty result, which is logged, if it cannot be queried."""
        try:
            place = request.trail.elsewhere(url)
            return SearchResult([]) if place is None else self._at(place, request, ask)
        except ObjectNotFound:
            return SearchResult([])
        except (DirectoryError, ValueError) as error:
            logger.warning("search of %s is incomplete: %s", request.base or "the forest", error)
            return SearchResult([])

    def _at(self, place: ReferralTarget, request: _Request, ask: Ask[T]) -> T:
        """Return the answer of a controller of another domain. Raises DirectoryError, but not DirectoryNotConnected:
        the own controller is available."""
        reasons: list[str] = []
        for host in self._hosts(place, reasons):
            left = request.until - self._clock()
            if left < _LEAST:
                reasons.append(f"no answer in {SECONDS:g} s")
                break
            try:
                session = self._connect(host, min(left, CALL_SECONDS))
            except DirectoryNotConnected as error:
                reasons.append(f"{host}: {error}")
                continue
            with closing(session):
                try:
                    return ask(session, place.base, place.scope)
                except DirectoryNotConnected as error:
                    reasons.append(f"{host}: {error}")
                    if request.is_change:  # the change may have been made
                        break
        failures = "; ".join(reasons)
        raise DirectoryError(f"{place.base} is in {place.domain.dns_name}, of which no controller answers: {failures}")

    def _hosts(self, place: ReferralTarget, reasons: list[str]) -> Sequence[str]:
        if not place.is_domain:
            return (place.host,)
        try:
            return self._controllers_of(place.domain.dns_name)
        except DirectoryNotConnected as error:
            reasons.append(str(error))
            return ()

    def _domains(self) -> Sequence[ForestDomain]:
        if not self._forest:
            self._forest = forest_of(self._own)
        return self._forest
