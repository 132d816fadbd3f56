"""Conversion between names and SIDs of domain accounts, for rights in words.

`DOMAIN\\name` and `name@domain` are users and groups of the domain of the controllers, or of another domain of its
forest (through the global catalog). `NT AUTHORITY\\…` and `BUILTIN\\…` are the same in every domain. Results are
cached: a result is used for `FRESH` seconds without a new query, and for `KEPT` seconds while the domain is
unavailable.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from openmsmq.directory.active.controllers import Controllers
from openmsmq.directory.active.forest import ForestDomain, forest_of, text
from openmsmq.directory.active.ldap_text import filter_text
from openmsmq.directory.active.objects import one, sid_of
from openmsmq.directory.active.session import DirectorySession, LdapEntry
from openmsmq.directory.provider import DirectoryError, DirectoryNotConnected, ObjectNotFound
from openmsmq.model.security import sid_text

FRESH: Final = 600.0  # seconds
KEPT: Final = 86_400.0  # seconds
MOST: Final = 2000  # maximum cached results

#: Accounts that are the same in every domain ([MS-DTYP] 2.4.2.4).
WELL_KNOWN: Final = {
    "NT AUTHORITY\\NETWORK": "S-1-5-2",
    "NT AUTHORITY\\ANONYMOUS LOGON": "S-1-5-7",
    "NT AUTHORITY\\Authenticated Users": "S-1-5-11",
    "NT AUTHORITY\\SYSTEM": "S-1-5-18",
    "NT AUTHORITY\\LOCAL SERVICE": "S-1-5-19",
    "NT AUTHORITY\\NETWORK SERVICE": "S-1-5-20",
    "BUILTIN\\Administrators": "S-1-5-32-544",
}
_SIDS: Final = {name.casefold(): sid for name, sid in WELL_KNOWN.items()}
_NAMES: Final = {sid: name for name, sid in WELL_KNOWN.items()}
_OF_A_DOMAIN: Final = "S-1-5-21-"


class _NoCatalog(DirectoryError):
    """No global catalog answers. The domain controller that was queried first is available."""


def is_account_name(name: str) -> bool:
    """Whether a name includes its domain."""
    return "\\" in name or "@" in name


class DomainAccounts:
    """See the module. Methods block. They raise ObjectNotFound for accounts that do not exist, DirectoryNotConnected
    for accounts that are not cached while the domain is unavailable, and DirectoryError, also for accounts of other
    domains while no global catalog answers."""

    def __init__(
        self, controllers: Controllers, clock: Callable[[], float], catalog: Controllers | None = None
    ) -> None:
        """`clock` is a monotonic clock in seconds. `catalog` are controllers at the port of the global catalog; None if
        there is none."""
        self._controllers: Final = controllers
        self._catalog: Final = catalog
        self._clock: Final = clock
        self._kept: Final[OrderedDict[str, tuple[float, tuple[str, ...]]]] = OrderedDict()  # the oldest first
        self._domains: tuple[ForestDomain, ...] = ()  # of the forest; the domain of the controllers first

    def sid_of(self, name: str) -> str:
        """Return the SID of `DOMAIN\\name` or `name@domain`, case-insensitive."""
        known = _SIDS.get(name.casefold())
        return (
            known or self._known(f"name {name.casefold()}", name, lambda session: (self._find_sid(session, name),))[0]
        )

    def name_of(self, sid: str) -> str:
        """Return the name of a SID as `DOMAIN\\name`."""
        known = _NAMES.get(sid)
        return known or self._known(f"sid {sid}", sid, lambda session: (self._find_name(session, sid),))[0]

    def groups_of(self, sid: str) -> tuple[str, ...]:
        """Return the SIDs of all groups of a user, including nested ones."""
        return self._known(f"groups {sid}", f"the groups of {sid}", lambda session: self._find_groups(session, sid))

    def _known(self, key: str, what: str, ask: Callable[[DirectorySession], tuple[str, ...]]) -> tuple[str, ...]:
        now, kept = self._clock(), self._kept.get(key)
        if kept is not None and now - kept[0] < FRESH:
            return kept[1]
        try:
            found = self._controllers.read_now(ask)
        except (DirectoryNotConnected, _NoCatalog) as error:
            if kept is not None and now - kept[0] < KEPT:
                return kept[1]
            if isinstance(error, _NoCatalog):
                raise DirectoryError(f"{what} was not asked for before, and {error}") from None
            raise DirectoryNotConnected(
                f"{what} was not asked for before, and the domain does not answer: {error}"
            ) from None
        except DirectoryError:
            self._kept.pop(key, None)
            raise
        self._kept[key] = now, found
        self._kept.move_to_end(key)
        if len(self._kept) > MOST:
            self._kept.popitem(last=False)
        return found

    def _find_sid(self, session: DirectorySession, name: str) -> str:
        domain, *others = self._forest(session)
        if "\\" in name:
            said, _, account = name.partition("\\")
            conditions = [f"(sAMAccountName={filter_text(account)})"]
        else:
            account, _, said = name.rpartition("@")
            conditions = [f"(userPrincipalName={filter_text(name)})", f"(sAMAccountName={filter_text(account)})"]
        if not domain.is_named(said):
            conditions = conditions[:-1]  # the suffix of a principal name may differ from the domain name
        for condition in conditions:
            found = session.search(domain.context, condition, ["objectSid"], limit=2)
            if len(found) == 1:
                return _counting(name, sid_of(found[0]))
        if domain.is_named(said):
            raise ObjectNotFound(f"{name!r}")
        elsewhere = next((other for other in others if other.is_named(said)), None)
        if elsewhere is not None:
            return self._in_catalog(name, elsewhere.context, f"(sAMAccountName={filter_text(account)})")
        if "\\" not in name:  # the suffix need not be a domain name
            return self._in_catalog(name, "", conditions[0])
        raise ObjectNotFound(
            f"{name!r} (the controllers are of the domain {domain.netbios_name}, {domain.dns_name}, whose forest "
            f"has no domain {said}; accounts of other forests are named by their SIDs)"
        )

    def _in_catalog(self, name: str, base: str, condition: str) -> str:
        """Return the SID of the single account in the catalog that satisfies a condition. Raises ObjectNotFound."""
        found = self._ask_catalog(lambda session: session.search(base, condition, ["objectSid"], limit=2))
        if len(found) != 1:
            raise ObjectNotFound(f"{name!r}")
        return _counting(name, sid_of(found[0]))

    def _ask_catalog(self, ask: Callable[[DirectorySession], list[LdapEntry]]) -> list[LdapEntry]:
        if self._catalog is None:
            return []
        try:
            return self._catalog.read_now(ask)
        except DirectoryNotConnected as error:
            raise _NoCatalog(f"no global catalog answers: {error}") from None

    def _find_name(self, session: DirectorySession, sid: str) -> str:
        domain, *others = self._forest(session)
        condition, wanted = f"(objectSid={filter_text(sid)})", ["sAMAccountName"]
        found = session.search(domain.context, condition, wanted, limit=1)
        if not found and others:
            found = self._ask_catalog(lambda catalog: catalog.search("", condition, wanted, limit=1))
            domain = next((other for other in others if found and other.has(found[0].name)), domain)
        if not found:
            raise ObjectNotFound(sid)
        return f"{domain.netbios_name}\\{text(found[0], 'sAMAccountName')}"

    def _find_groups(self, session: DirectorySession, sid: str) -> tuple[str, ...]:
        context = self._forest(session)[0].context
        found = session.search(context, f"(objectSid={filter_text(sid)})", ["objectSid"], limit=1)
        if not found:
            raise ObjectNotFound(sid)
        user = one(session, found[0].name, ["tokenGroups"])
        groups = (sid_text(value) for value in user.values.get("tokengroups", ()))
        return tuple(group for group in groups if group.startswith(_OF_A_DOMAIN))

    def _forest(self, session: DirectorySession) -> tuple[ForestDomain, ...]:
        """Return the domains of the forest, that of the controllers first."""
        if not self._domains:
            self._domains = forest_of(session)
        return self._domains


def _counting(name: str, sid: str) -> str:
    """Return the SID. Raises DirectoryError for a group local to the controllers, which no login here has."""
    if not sid.startswith(_OF_A_DOMAIN):
        raise DirectoryError(f"{name} ({sid}) is a group of the domain controllers alone: name a group of the domain")
    return sid
