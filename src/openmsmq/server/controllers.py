"""The domain controllers of the settings, and sessions with them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from openmsmq.directory.active.controllers import Controllers
from openmsmq.directory.active.following import ForestSession
from openmsmq.directory.active.locating import Catalog, DnsControllers, DnsUnavailable, Locate, Named, dns_services
from openmsmq.directory.active.session import LdapCredentials, LdapSession, ping
from openmsmq.directory.provider import DirectoryNotConnected
from openmsmq.server.config import Configuration, ConfigurationError

CATALOG_REST: Final = 60.0  # seconds before the global catalog is queried again after no controller has answered


def located(configuration: Configuration) -> Locate | None:
    """Return the controllers of `directory_controllers`; otherwise those found through DNS for `directory_domain`. None
    if the settings name neither. Raises ConfigurationError."""
    if configuration.controllers:
        return Named(configuration.controllers)
    if not configuration.directory_domain:
        return None
    try:
        return DnsControllers(configuration.directory_domain, dns_services(), ping, time.monotonic)
    except DnsUnavailable as error:
        raise ConfigurationError(str(error)) from None


def controllers(locate: Locate, login: LdapCredentials) -> tuple[Controllers, Controllers]:
    """Return the controllers of the domain, and the same at the port of the global catalog. A session follows referrals
    to other domains of the forest with the same login."""
    connect = partial(LdapSession, login=login)
    domains = _Domains()

    def following(host: str) -> ForestSession:
        return ForestSession(connect(host), lambda host, patience: connect(host, patience=patience), domains.hosts)

    return Controllers(locate, following), Controllers(Catalog(locate), connect, CATALOG_REST)


class _Domains:
    """The controllers of other domains, from DNS."""

    def __init__(self) -> None:
        self._found: Final[dict[str, DnsControllers]] = {}  # by DNS name; only domains of the forest are queried

    def hosts(self, domain: str) -> Sequence[str]:
        """Return the controllers. Without a DNS answer, return the name of the domain itself, which resolves to its
        controllers."""
        try:
            if domain not in self._found:
                self._found[domain] = DnsControllers(domain, dns_services(), ping, time.monotonic)
            return self._found[domain].hosts()
        except (DirectoryNotConnected, DnsUnavailable):
            return (domain,)
