"""Find the controllers of a domain through DNS, those of this machine's site first ([MS-ADTS] 6.3.6).

Each controller is registered below `_msdcs` ([MS-ADTS] 6.3.2.3). Only controllers can map an address to a site; they
answer this query without a login (the LDAP ping, [MS-ADTS] 6.3.3).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Protocol

from openmsmq.directory.provider import DirectoryNotConnected
from openmsmq.model.errors import ClientError

logger = logging.getLogger(__name__)

FRESH: Final = 900.0  # lifetime of a DNS result in seconds
SOON: Final = 30.0  # seconds before DNS is queried again because no host in its answer was available
MOST: Final = 20  # maximum controllers used from a DNS result, in total and for the site
PINGED: Final = 3  # maximum controllers queried for the site
DNS_SECONDS: Final = 3.0
LDAP_PORT: Final = 389
_CATALOG_PORT: Final = 3268

_RESPONSE_EX: Final = (b"\x17\x00", b"\x19\x00")  # LOGON_SAM_LOGON_RESPONSE_EX, ..._USER_UNKNOWN_EX ([MS-ADTS] 6.3.1.3)
_NAMES_AT: Final = 24  # in NETLOGON_SAM_LOGON_RESPONSE_EX ([MS-ADTS] 6.3.1.9)
_CLIENT_SITE: Final = 7  # the eighth name
_MOST_LABELS: Final = 128


class DnsUnavailable(ClientError):
    """DNS lookup is configured, but its library is not available; the message has the remedy."""


@dataclass(frozen=True, slots=True)
class Service:
    """An SRV record (RFC 2782). `host` has no dot at its end."""

    priority: int
    weight: int
    port: int
    host: str

    @property
    def address(self) -> str:
        return self.host if self.port == LDAP_PORT else f"{self.host}:{self.port}"


#: Returns the SRV records of a name. Raises DirectoryNotConnected if DNS does not answer.
Resolve = Callable[[str], Sequence[Service]]
#: Queries a controller (host) about a client of a domain; returns its attribute Netlogon. Raises DirectoryNotConnected.
Ping = Callable[[str, str], bytes]


class Locate(Protocol):
    """Finds the controllers of a domain."""

    def hosts(self) -> Sequence[str]:
        """Return at least one host, the best first; each may have a port. May block. Raises DirectoryNotConnected if
        none is known."""

    def failed(self) -> None:
        """Report that none of the hosts has answered."""


class Named:
    """Controllers named in the settings."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts: Final = tuple(hosts)

    def hosts(self) -> Sequence[str]:
        return self._hosts

    def failed(self) -> None:
        """Do nothing: the settings are fixed."""


class Catalog:
    """The controllers at the port of the global catalog ([MS-ADTS] 3.1.1.3.2.3)."""

    def __init__(self, locate: Locate) -> None:
        self._locate: Final = locate

    def hosts(self) -> Sequence[str]:
        return tuple(dict.fromkeys(f"{host.partition(':')[0]}:{_CATALOG_PORT}" for host in self._locate.hosts()))

    def failed(self) -> None:
        """Do nothing: the controllers may be available, since not every controller has a catalog."""


class DnsControllers:
    """Controllers found through DNS. While DNS is unavailable, its last answer is used."""

    def __init__(
        self, domain: str, resolve: Resolve, ping: Ping, clock: Callable[[], float], draw: random.Random | None = None
    ) -> None:
        """`clock` is a monotonic clock in seconds."""
        self._domain: Final = domain
        self._resolve: Final = resolve
        self._ping: Final = ping
        self._clock: Final = clock
        self._draw: Final = draw or random.Random()
        self._hosts: tuple[str, ...] = ()
        self._site = ""
        self._until = float("-inf")

    def hosts(self) -> Sequence[str]:
        now = self._clock()
        if now >= self._until:
            try:
                self._hosts = self._found()
                self._until = now + FRESH
            except DirectoryNotConnected:
                if not self._hosts:
                    raise
                self._until = now + SOON
        return self._hosts

    def failed(self) -> None:
        self._until = min(self._until, self._clock() + SOON)

    def _found(self) -> tuple[str, ...]:
        everywhere = self._in_order(f"_ldap._tcp.dc._msdcs.{self._domain}")
        if not everywhere:
            raise DirectoryNotConnected(
                f"DNS has no domain controllers of {self._domain} (_ldap._tcp.dc._msdcs.{self._domain})"
            )
        site = self._own_site(everywhere)
        if site != self._site:
            logger.info("this machine is in the site %s of %s", site or "of none", self._domain)
            self._site = site
        near = self._in_order(f"_ldap._tcp.{site}._sites.dc._msdcs.{self._domain}") if site else []
        return tuple(dict.fromkeys([*near[:MOST], *everywhere[:MOST]]))

    def _own_site(self, hosts: Iterable[str]) -> str:
        """Return the site of this machine; empty if no controller knows it."""
        for host in list(hosts)[:PINGED]:
            try:
                return client_site(self._ping(host, self._domain))
            except (DirectoryNotConnected, ValueError) as error:
                logger.debug("controller %s did not return a site: %s", host, error)
        return ""

    def _in_order(self, name: str) -> list[str]:
        return [service.address for service in in_order(self._resolve(name), self._draw)]


def in_order(services: Iterable[Service], draw: random.Random) -> list[Service]:
    """Return services in the order in which to try them: by priority, then weighted at random (RFC 2782). A host "."
    means that there is no service."""
    ordered: list[Service] = []
    offered = sorted((s for s in services if s.host), key=lambda s: (s.priority, s.weight))
    for _, group in groupby(offered, key=lambda s: s.priority):
        waiting = list(group)
        while waiting:
            point, at = draw.uniform(0, sum(s.weight for s in waiting)), 0
            while point > waiting[at].weight and at < len(waiting) - 1:
                point -= waiting[at].weight
                at += 1
            ordered.append(waiting.pop(at))
    return ordered


def client_site(netlogon: bytes) -> str:
    """Return ClientSiteName from NETLOGON_SAM_LOGON_RESPONSE_EX ([MS-ADTS] 6.3.1.9), empty for an address without a
    site. Raises ValueError."""
    if netlogon[:2] not in _RESPONSE_EX:
        raise ValueError(f"{netlogon[:2].hex()} is not a response of the requested kind")
    at = _NAMES_AT
    for _ in range(_CLIENT_SITE):
        _, at = _name(netlogon, at)
    return _name(netlogon, at)[0]


def _name(data: bytes, at: int) -> tuple[str, int]:
    """Return a name in the compressed form of RFC 1035 4.1.4, and the offset of the next one. Raises ValueError."""
    labels: list[str] = []
    following = -1
    try:
        for _ in range(_MOST_LABELS):
            length = data[at]
            if not length:
                return ".".join(labels), at + 1 if following < 0 else following
            if length >= 0xC0:
                following = at + 2 if following < 0 else following
                at = int.from_bytes(data[at : at + 2], "big") & 0x3FFF
                continue
            labels.append(data[at + 1 : at + 1 + length].decode())
            at += 1 + length
    except (IndexError, UnicodeDecodeError):
        raise ValueError("a name in the response is truncated") from None
    raise ValueError("a name in the response is not terminated")


def dns_services() -> Resolve:
    """Return a function that uses the library dnspython and the machine's resolver. Raises DnsUnavailable."""
    try:
        import dns.exception
        import dns.resolver
    except ImportError as error:
        advice = "install it with pip install 'openmsmq[domain]', or name the controllers in directory_controllers"
        raise DnsUnavailable(f"directory_domain needs the library dnspython ({error}): {advice}") from None

    def resolve(name: str) -> Sequence[Service]:
        try:
            answer: Any = dns.resolver.Resolver().resolve(name, "SRV", lifetime=DNS_SECONDS)
        except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
            return ()
        except (dns.exception.DNSException, OSError) as error:
            raise DirectoryNotConnected(f"DNS does not answer for {name}: {error}") from None
        return [
            Service(r.priority, r.weight, r.port, r.target.to_text(omit_final_dot=True).rstrip(".")) for r in answer
        ]

    return resolve
