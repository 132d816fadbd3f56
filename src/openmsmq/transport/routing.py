"""Binary Reliable Message Routing ([MS-MQBR]): find the next hops to a destination.

Without I/O: the input are tables as in a directory, the output are identifiers. Among gates or paths of equal cost, the
first one in table order is used, so that results are stable.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Manager:
    """A QueueManager, [MS-MQDMPR] 3.1.1.1. `host` is its name or address; lists contain identifiers, `sites` the keys
    of sites."""

    identifier: bytes
    host: str
    sites: tuple[str, ...] = ()
    routing_server: bool = False
    in_routing_servers: tuple[bytes, ...] = ()
    out_routing_servers: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Site:
    """A Site (3.1.1.7). `gates` are the identifiers of its site gates."""

    key: str
    gates: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class RoutingLink:
    """A bidirectional RoutingLink (3.1.1.8); `cost` is ActualCost."""

    one: str
    other: str
    cost: int


class RoutingFailed(Exception):
    """There is no next hop; the text gives the reason."""


class Routing:
    """Routing table of one queue manager."""

    def __init__(
        self,
        own: bytes,
        managers: Iterable[Manager] = (),
        sites: Iterable[Site] = (),
        links: Iterable[RoutingLink] = (),
    ) -> None:
        self._own = own
        self._managers = {manager.identifier: manager for manager in managers}
        self._sites = {site.key: site for site in sites}
        self._links = tuple(links)

    @property
    def is_router(self) -> bool:
        """Whether this queue manager is a routing server."""
        here = self._managers.get(self._own)
        return here is not None and here.routing_server

    def host(self, identifier: bytes) -> str | None:
        """Return the name or address of a queue manager; None if it is unknown."""
        manager = self._managers.get(identifier)
        return manager.host if manager is not None else None

    def next_hops(self, destination: bytes) -> tuple[bytes, ...]:
        """GetNextHops, 3.1.5.1. If this queue manager is not in the tables, the next hop is the destination.

        Raises RoutingFailed.
        """
        there, here = self._managers.get(destination), self._managers.get(self._own)
        if there is None:
            raise RoutingFailed("the destination is not in the routing table")
        if here is None:
            return (destination,)
        if here.routing_server:
            return self._for_router(here, there)
        if here.out_routing_servers:
            return here.out_routing_servers
        if set(here.sites) & set(there.sites):
            return there.in_routing_servers or (destination,)
        router = next(
            (one for one in self._managers.values() if one.routing_server and set(one.sites) & set(here.sites)), None
        )
        if router is None:
            raise RoutingFailed(f"no site of this queue manager ({', '.join(here.sites)}) has a routing server")
        return (router.identifier,)

    def _for_router(self, here: Manager, there: Manager) -> tuple[bytes, ...]:
        """GetNextHopsForRouter and GetNextHopsForSiteGate, 3.1.5.2 and 3.1.5.3."""
        if here.identifier in there.in_routing_servers:
            return (there.identifier,)
        if set(here.sites) & set(there.sites):
            return there.in_routing_servers or (there.identifier,)
        if not self._is_gate(here):
            return (self._gate_of(here.sites),)
        following = next((site for key in there.sites if (site := self._table.get(key)) is not None), None)
        if following is None:
            raise RoutingFailed(f"no routing link leads to a site of the destination ({', '.join(there.sites)})")
        return (self._gate_of([following]),)

    def _is_gate(self, manager: Manager) -> bool:
        """IsSiteGate, 3.1.5.8."""
        sites = (self._sites.get(key) for key in manager.sites)
        return any(site is not None and manager.identifier in site.gates for site in sites)

    def _gate_of(self, sites: Sequence[str]) -> bytes:
        """GetSiteGate and GetSiteGateForSite, 3.1.5.6 and 3.1.5.7."""
        for key in sites:
            site = self._sites.get(key)
            if site is not None and site.gates:
                return site.gates[0]
        raise RoutingFailed(f"no site gate in {', '.join(sites)}")

    @cached_property
    def _table(self) -> Mapping[str, str]:
        """RoutingTable, 3.1.1.2: destination site -> next site on the least-cost path (Dijkstra's algorithm)."""
        here = self._managers[self._own]
        neighbours: dict[str, list[tuple[int, str]]] = {}
        for link in self._links:
            neighbours.setdefault(link.one, []).append((link.cost, link.other))
            neighbours.setdefault(link.other, []).append((link.cost, link.one))
        table: dict[str, str] = {}
        done = set(here.sites)
        paths = [
            (cost, order, site, site)
            for order, start in enumerate(here.sites)
            for cost, site in neighbours.get(start, ())
        ]
        heapq.heapify(paths)
        order = len(here.sites)
        while paths:
            cost, _, site, first = heapq.heappop(paths)
            if site in done:
                continue
            done.add(site)
            table[site] = first
            for step, following in neighbours.get(site, ()):
                order += 1
                heapq.heappush(paths, (cost + step, order, following, first))
        return table
