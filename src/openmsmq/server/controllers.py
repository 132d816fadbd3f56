"""Which domain controllers the settings mean."""

from __future__ import annotations

import time

from openmsmq.directory.active.locating import DnsUnavailable, Found, Locate, Named, dns_services
from openmsmq.directory.active.session import ping
from openmsmq.server.config import Configuration, ConfigurationError


def located(configuration: Configuration) -> Locate | None:
    """Those of `directory_controllers`; otherwise those that DNS has of `directory_domain`. None where the settings
    name neither. Raises ConfigurationError."""
    if configuration.controllers:
        return Named(configuration.controllers)
    if not configuration.directory_domain:
        return None
    try:
        return Found(configuration.directory_domain, dns_services(), ping, time.monotonic)
    except DnsUnavailable as error:
        raise ConfigurationError(str(error)) from None
