"""Referrals to objects at other controllers (RFC 4511 4.1.10, 4.5.3), and which of them are followed.

Referrals are untrusted data. Only those to domains of this forest are followed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from openmsmq.directory.active.forest import ForestDomain, domain_of_host
from openmsmq.directory.active.session import Scope
from openmsmq.directory.provider import DirectoryError

MOST_PLACES: Final = 20  # maximum targets of one operation, in sequence or in parallel
_LDAP_PORT: Final = 389
_SCOPES: Final = {"base": Scope.BASE, "one": Scope.CHILDREN, "sub": Scope.SUBTREE}


@dataclass(frozen=True, slots=True)
class Referral:
    """An LDAP URL (RFC 4516). If it contains none, `base` is empty or `scope` is None, and that of the request
    applies."""

    host: str
    base: str = ""
    scope: Scope | None = None

    @classmethod
    def parse(cls, url: str) -> Referral:
        """Parse a URL. Raises ValueError for other schemes and other ports: tickets are for the service at this
        port."""
        parts = urlsplit(url)
        if parts.scheme.lower() != "ldap" or not parts.hostname or parts.port not in (None, _LDAP_PORT):
            raise ValueError(f"{url!r} is not the URL of a domain controller")
        _, scope, *_ = (*parts.query.split("?"), "", "")
        if scope and scope.lower() not in _SCOPES:
            raise ValueError(f"{url!r} has an unknown search scope")
        return cls(parts.hostname, unquote(parts.path.removeprefix("/")), _SCOPES.get(scope.lower()))


@dataclass(frozen=True, slots=True)
class ReferralTarget:
    """Target of a referral: a host, its domain in the forest, and a base there."""

    domain: ForestDomain
    host: str
    base: str
    scope: Scope | None

    @property
    def is_domain(self) -> bool:
        """Whether the host is the domain name, which stands for any of its controllers."""
        return self.host.casefold() == self.domain.dns_name.casefold()


class ReferredElsewhere(DirectoryError):
    """A referral that is not followed: it leads out of the forest, in a circle, or to too many places."""


class ReferralChain:
    """The referrals that one operation has followed, and checks for further ones."""

    def __init__(self, base: str, forest: Callable[[], Sequence[ForestDomain]]) -> None:
        """`forest` returns the domains, that of the own controller first; it is called with the first referral."""
        self._base: Final = base
        self._forest: Final = forest
        self._been: Final[set[tuple[str, str]]] = set()

    def next(self, urls: Sequence[str]) -> ReferralTarget:
        """Return the first target that may be followed. Raises ReferredElsewhere, DirectoryError."""
        reasons = []
        for url in urls:
            try:
                return self._enter(self._place(url))
            except (ValueError, ReferredElsewhere) as error:
                reasons.append(str(error))
        raise ReferredElsewhere(f"{self._base}: {'; '.join(reasons) or 'the referral names no controller'}")

    def elsewhere(self, url: str) -> ReferralTarget | None:
        """Return another place to search; None if it is not a domain, such as the Configuration naming context or a DNS
        zone, or if it was already searched. Raises ReferredElsewhere, ValueError, DirectoryError."""
        place = self._place(url)
        contexts = {domain.context.casefold() for domain in self._forest()}
        if place.base.casefold() not in contexts or self._key(place) in self._been:
            return None
        return self._enter(place)

    def _place(self, url: str) -> ReferralTarget:
        referral = Referral.parse(url)
        base, forest = referral.base or self._base, self._forest()
        if not self._been:
            self._been.add((forest[0].context.casefold(), self._base.casefold()))
        domain = domain_of_host(referral.host, forest)
        if domain is None:
            raise ReferredElsewhere(f"a referral to {referral.host}, a host outside this forest, is not followed")
        if not base.startswith("<") and not any(domain.has(base) for domain in forest):
            raise ReferredElsewhere(f"a referral to {base!r}, which is in no domain of this forest, is not followed")
        return ReferralTarget(domain, referral.host, base, referral.scope)

    def _enter(self, place: ReferralTarget) -> ReferralTarget:
        if self._key(place) in self._been:
            raise ReferredElsewhere(f"the referral to {place.host} leads in a circle")
        if len(self._been) > MOST_PLACES:
            raise ReferredElsewhere(f"more than {MOST_PLACES} referrals in one query")
        self._been.add(self._key(place))
        return place

    @staticmethod
    def _key(place: ReferralTarget) -> tuple[str, str]:
        return place.domain.context.casefold(), place.base.casefold()
