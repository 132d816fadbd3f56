"""The domains of a forest, as its Configuration naming context lists them ([MS-ADTS] 6.1.1.2.1.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from openmsmq.directory.active.objects import octets, one
from openmsmq.directory.active.session import DirectorySession, LdapEntry
from openmsmq.directory.provider import DirectoryError

_MOST_DOMAINS: Final = 1000


@dataclass(frozen=True, slots=True)
class ForestDomain:
    """A domain. `context` is its distinguished name."""

    context: str
    netbios_name: str
    dns_name: str

    def has(self, name: str) -> bool:
        """Whether an object with this distinguished name is in this domain, and not in a child domain."""
        parts = [part for part in name.casefold().split(",") if part.startswith("dc=")]
        return ",".join(parts) == self.context.casefold()

    def is_named(self, name: str) -> bool:
        return name.casefold() in (self.netbios_name.casefold(), self.dns_name.casefold())


def forest_of(session: DirectorySession) -> tuple[ForestDomain, ...]:
    """Return the domains of the forest, that of the controller first. Raises DirectoryError."""
    root = one(session, "", ["defaultNamingContext", "configurationNamingContext"])
    context = text(root, "defaultNamingContext")
    places = f"CN=Partitions,{text(root, 'configurationNamingContext')}"
    wanted = ["nCName", "nETBIOSName", "dnsRoot"]
    found = session.search(places, "(&(objectClass=crossRef)(nETBIOSName=*))", wanted, limit=_MOST_DOMAINS)
    domains = [ForestDomain(*(text(entry, name) for name in wanted)) for entry in found]
    own = [domain for domain in domains if domain.context.casefold() == context.casefold()]
    if not own:
        raise DirectoryError(f"the directory has no name of the domain {context}")
    return (*own, *(domain for domain in domains if domain not in own))


def domain_of_host(host: str, domains: Iterable[ForestDomain]) -> ForestDomain | None:
    """Return the domain that has the DNS name `host` or contains that host; None if there is none in the forest."""
    inside = [domain for domain in domains if f".{host}".casefold().endswith(f".{domain.dns_name}".casefold())]
    return max(inside, key=lambda domain: len(domain.dns_name), default=None)


def text(entry: LdapEntry, name: str) -> str:
    """Return the first value of an attribute as text."""
    return octets(entry, name).decode()
