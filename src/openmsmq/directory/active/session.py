"""A connection to a domain controller by LDAP, signed and sealed with Kerberos.

The library is python-ldap (the extra `openmsmq[domain]`), loaded on first use; it supports the security layer of SASL,
which controllers require. Its calls block up to the time limits, so that `controllers` runs them in threads. Failures
are DirectoryErrors ([MS-MQDSSM] 2.2.6), or `DirectoryNotConnected` if another controller may succeed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from openmsmq.directory.active.ldap_text import filter_text
from openmsmq.directory.active.schema import Values
from openmsmq.directory.provider import (
    DirectoryDenied,
    DirectoryError,
    DirectoryNotConnected,
    ObjectExists,
    ObjectNotFound,
)
from openmsmq.model.errors import ClientError

CONNECT_SECONDS: Final = 3.0
CALL_SECONDS: Final = 4.0  # so that a second controller can be tried within `connection.TIME_LIMIT`
MOST_ENTRIES: Final = 100_000  # maximum entries of one search
MOST_REFERENCES: Final = 100  # maximum references of one response
PING_SECONDS: Final = 1.0
_NETLOGON: Final = "Netlogon"
_NT_VERSION: Final = "\\06\\00\\00\\00"  # NETLOGON_NT_VERSION_5 and _5EX ([MS-ADTS] 6.3.1.1)
_PAGE: Final = 500  # a controller's MaxPageSize is 1000 ([MS-ADTS] 3.1.1.3.4.6)
_LEAST_SSF: Final = 56  # encryption with any cipher
_SD_FLAGS: Final = "1.2.840.113556.1.4.801"  # [MS-ADTS] 3.1.1.3.4.1.11
_OWNER_GROUP_DACL: Final = bytes.fromhex("3003020107")
_GROUP_DACL: Final = bytes.fromhex("3003020106")
_DESCRIPTOR: Final = "nTSecurityDescriptor"


class LdapUnavailable(ClientError):
    """Active Directory is configured, but its libraries are not available; the message has the remedy."""


class ControllerTimeout(DirectoryNotConnected):
    """A controller has not answered in time."""


class Referred(DirectoryError):
    """A controller does not have the object and refers to other servers (RFC 4511 4.1.10).

    Attributes:
        urls: LDAP URLs, as received.
    """

    def __init__(self, what: str, urls: Sequence[str]) -> None:
        super().__init__(f"{what} is on another controller; the referral names {', '.join(urls) or 'none'}")
        self.urls = tuple(urls)


class Scope(IntEnum):
    """Scope of a search, numbered as in RFC 4511 4.5.1.2."""

    BASE = 0
    CHILDREN = 1
    SUBTREE = 2


@dataclass(frozen=True, slots=True)
class LdapEntry:
    """An object: its distinguished name, and its values by attribute name in lower case."""

    name: str
    values: Values


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Results of one controller, and the LDAP URLs of other places with possible results (RFC 4511 4.5.3)."""

    entries: list[LdapEntry]
    references: Sequence[str] = ()


class DirectorySession(Protocol):
    """Queries to a controller. Methods block, and raise DirectoryError."""

    def search(
        self, base: str, condition: str, attributes: Sequence[str], scope: Scope = Scope.SUBTREE, *,
        limit: int = 0, order: str = "", everywhere: bool = False,
    ) -> list[LdapEntry]:  # fmt: skip
        """Return at most `limit` (0: all) objects at or below `base` that satisfy a filter, sorted by the attribute
        `order`. With `everywhere`, referrals to other domains of the forest below `base` are followed. Raises
        ObjectNotFound if `base` does not exist."""

    def add(self, name: str, attributes: Mapping[str, Sequence[bytes]]) -> None:
        """Create an object. Raises ObjectExists, DirectoryDenied."""

    def modify(self, name: str, attributes: Mapping[str, Sequence[bytes]]) -> None:
        """Replace values; an attribute without values is removed. Raises ObjectNotFound, DirectoryDenied."""

    def delete(self, name: str) -> None:
        """Delete an object. Raises ObjectNotFound, DirectoryDenied."""

    def close(self) -> None:
        """Close the connection. Raises nothing."""


@dataclass(frozen=True, slots=True)
class LdapCredentials:
    """Credentials: the key of an account in a keytab, its password, or, without both, the caller's ticket (KRB5CCNAME).
    `account` is `MQ1$` or `MQ1$@EXAMPLE.COM`."""

    account: str = ""
    keytab: Path | None = None
    password: str = field(default="", repr=False)


def libraries() -> Any:
    """Import the libraries. Raises LdapUnavailable."""
    try:
        import gssapi
        import ldap
        import ldap.controls
        import ldap.controls.sss
        import ldap.sasl
    except (ImportError, OSError) as error:
        raise LdapUnavailable(
            f"Active Directory needs the libraries python-ldap and gssapi, which can't be loaded ({error}): install "
            "them with pip install 'openmsmq[domain]', which needs gcc and Debian's libldap2-dev, libsasl2-dev and "
            "libkrb5-dev"
        ) from None
    return gssapi, ldap


def ping(host: str, domain: str) -> bytes:
    """Query a controller about this client without a login: the LDAP ping ([MS-ADTS] 6.3.3) over TCP. Raises
    DirectoryNotConnected."""
    _, ldap = libraries()
    condition = f"(&(DnsDomain={filter_text(domain)})(NtVer={_NT_VERSION}))"
    try:
        connection = ldap.initialize(f"ldap://{host}")
        connection.set_option(ldap.OPT_NETWORK_TIMEOUT, PING_SECONDS)
        connection.set_option(ldap.OPT_TIMEOUT, PING_SECONDS)
        found = connection.search_s("", int(Scope.BASE), condition, [_NETLOGON])
        connection.unbind_s()
    except ldap.LDAPError as error:
        raise DirectoryNotConnected(_reason(error)) from None
    values = [value for _, attributes in found for value in _lowered(attributes).get(_NETLOGON.lower(), ())]
    if not values:
        raise DirectoryNotConnected(f"{host} is not a controller of {domain}")
    octets: bytes = values[0]
    return octets


_limits: Final = threading.local()


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Limit the requests of this thread, which may be many: after `seconds`, each raises ControllerTimeout. An outer
    limit takes precedence."""
    if getattr(_limits, "until", None) is not None:
        yield
        return
    _limits.until, _limits.seconds = time.monotonic() + seconds, seconds
    try:
        yield
    finally:
        _limits.until = None


def _check_time() -> None:
    until = getattr(_limits, "until", None)
    if until is not None and time.monotonic() >= until:
        raise ControllerTimeout(f"no complete answer in {_limits.seconds:.3g} s")


class LdapSession:
    """A session with one controller; see `DirectorySession`. If it refers to another controller, `Referred` is raised,
    or the referral is left out of search results."""

    def __init__(self, host: str, login: LdapCredentials, patience: float = CALL_SECONDS) -> None:
        """Log in; `host` may have a port. A call takes at most `patience` seconds. Raises DirectoryNotConnected, and
        LdapUnavailable without the libraries."""
        gss, self._ldap = libraries()
        ldap = self._ldap
        _get_ticket(gss, login)
        self._connection = connection = ldap.initialize(f"ldap://{host}")
        # The library would follow referrals to any host, without a login; `following.ForestSession` follows them
        # instead.
        connection.set_option(ldap.OPT_REFERRALS, 0)
        connection.set_option(ldap.OPT_X_SASL_NOCANON, 1)
        connection.set_option(ldap.OPT_X_SASL_SSF_MIN, _LEAST_SSF)
        connection.set_option(ldap.OPT_NETWORK_TIMEOUT, min(CONNECT_SECONDS, patience))
        connection.set_option(ldap.OPT_TIMEOUT, patience)
        self._patience = patience
        # The login is the only call that holds Python's lock, so it would stop the queue manager if a server did not
        # answer. Two calls that do not hold it find out first.
        _get_service_ticket(gss, host)
        try:
            connection.search_s("", int(Scope.BASE), attrlist=["supportedSASLMechanisms"])
        except ldap.TIMEOUT:
            raise DirectoryNotConnected(f"{host}: no answer in {patience:.3g} s") from None
        except ldap.LDAPError as error:
            raise DirectoryNotConnected(f"{host}: {_reason(error)}") from None
        try:
            connection.sasl_interactive_bind_s("", ldap.sasl.sasl({}, "GSSAPI"))
        except ldap.AUTH_METHOD_NOT_SUPPORTED:
            raise DirectoryNotConnected(
                "SASL lacks the GSSAPI plugin, which Active Directory requires: install libsasl2-modules-gssapi-mit"
            ) from None
        except ldap.LDAPError as error:
            raise DirectoryNotConnected(f"{host} does not let this account log in: {_reason(error)}") from None

    def search(
        self, base: str, condition: str, attributes: Sequence[str], scope: Scope = Scope.SUBTREE, *,
        limit: int = 0, order: str = "", everywhere: bool = False,
    ) -> list[LdapEntry]:  # fmt: skip
        return self.look(base, condition, attributes, scope, limit, order).entries

    def look(
        self, base: str, condition: str, attributes: Sequence[str], scope: Scope, limit: int = 0, order: str = ""
    ) -> SearchResult:
        """Search this controller; the result includes its referrals. Raises Referred if it does not have `base`."""
        controls = self._ldap.controls
        page = controls.SimplePagedResultsControl(True, size=min(limit or _PAGE, _PAGE), cookie="")
        wanted = [page]
        if order:
            wanted.append(controls.sss.SSSRequestControl(True, [order]))
        if _DESCRIPTOR in attributes:
            wanted.append(controls.LDAPControl(_SD_FLAGS, True, encodedControlValue=_OWNER_GROUP_DACL))
        found: list[LdapEntry] = []
        references: dict[str, None] = {}
        while True:
            with self._failures(base):
                call = self._connection.search_ext(base, int(scope), condition, list(attributes), serverctrls=wanted)
                _, results, _, answered = self._connection.result3(call)
            for name, values in results:
                if name is None:
                    references.update(dict.fromkeys(values[: MOST_REFERENCES - len(references)]))
                else:
                    found.append(LdapEntry(name, _lowered(values)))
            page.cookie = next((c.cookie for c in answered if c.controlType == page.controlType), b"")
            if limit and len(found) >= limit:
                return SearchResult(found[:limit], tuple(references))
            if not page.cookie:
                return SearchResult(found, tuple(references))
            if not results or len(found) > MOST_ENTRIES:
                raise DirectoryError(f"a search for {condition} found more than {MOST_ENTRIES} objects, or has no end")

    def add(self, name: str, attributes: Mapping[str, Sequence[bytes]]) -> None:
        with self._failures(name):
            self._connection.add_s(name, [(key, list(values)) for key, values in attributes.items() if values])

    def modify(self, name: str, attributes: Mapping[str, Sequence[bytes]]) -> None:
        changes = [(self._ldap.MOD_REPLACE, key, list(values) or None) for key, values in attributes.items()]
        flags = []
        if _DESCRIPTOR in attributes:
            flags.append(self._ldap.controls.LDAPControl(_SD_FLAGS, True, encodedControlValue=_GROUP_DACL))
        with self._failures(name):
            self._connection.modify_ext_s(name, changes, serverctrls=flags)

    def delete(self, name: str) -> None:
        with self._failures(name):
            self._connection.delete_s(name)

    def close(self) -> None:
        with suppress(self._ldap.LDAPError):  # the peer may have closed it
            self._connection.unbind_s()

    @contextmanager
    def _failures(self, what: str) -> Iterator[None]:
        ldap = self._ldap
        _check_time()
        try:
            yield
        except ldap.NO_SUCH_OBJECT:
            raise ObjectNotFound(what) from None
        except ldap.ALREADY_EXISTS:
            raise ObjectExists(what) from None
        except ldap.INSUFFICIENT_ACCESS as error:
            raise DirectoryDenied(f"{what}: {_reason(error)}") from None
        except ldap.REFERRAL as error:
            raise Referred(what, _urls(error)) from None
        except ldap.TIMEOUT:
            raise ControllerTimeout(f"no answer in {self._patience:.3g} s") from None
        except (ldap.SERVER_DOWN, ldap.CONNECT_ERROR, ldap.UNAVAILABLE, ldap.BUSY) as error:
            raise DirectoryNotConnected(_reason(error)) from None
        except (ldap.DECODING_ERROR, ldap.LOCAL_ERROR) as error:  # no LDAP, or the security layer has failed
            raise DirectoryNotConnected(f"its answer can't be read: {_reason(error)}") from None
        except ldap.LDAPError as error:
            raise DirectoryError(f"{what}: {_reason(error)}") from None


def _get_ticket(gss: Any, login: LdapCredentials) -> None:
    """Obtain a ticket for SASL, which uses the ticket cache of the process. The library fills the cache from the keytab
    if it has no valid ticket. Raises DirectoryNotConnected."""
    if login.keytab is None and not login.password:
        return
    tickets = f"MEMORY:openmsmq-{hash((login.account, login.keytab)) & 0xFFFFFFFF:08x}"
    os.environ["KRB5CCNAME"] = tickets
    kerberos = [gss.MechType.kerberos]
    try:
        name = gss.Name(login.account, gss.NameType.kerberos_principal)
        if login.keytab is None:
            made = gss.raw.acquire_cred_with_password(name, login.password.encode(), mechs=kerberos, usage="initiate")
            store = {"ccache": tickets}
            gss.raw.store_cred_into(store, made.creds, usage="initiate", mech=kerberos[0], overwrite=True)
        else:
            store = {"client_keytab": f"FILE:{login.keytab}", "ccache": tickets}
            gss.Credentials(usage="initiate", name=name, mechs=kerberos, store=store)
    except gss.exceptions.GSSError as error:
        reason = " ".join(str(error.gen_message()).split())
        advice = f"`klist -k {login.keytab}` shows whose keys it has" if login.keytab else "is the password right?"
        raise DirectoryNotConnected(f"no Kerberos ticket for {login.account}: {reason}; {advice}") from None


def _get_service_ticket(gss: Any, host: str) -> None:
    """Obtain the ticket for a controller, which the login then finds in the cache. Raises DirectoryNotConnected."""
    try:
        name = gss.Name(f"ldap@{urlsplit(f'ldap://{host}').hostname}", gss.NameType.hostbased_service)
        gss.SecurityContext(name=name, mech=gss.MechType.kerberos, usage="initiate").step()
    except gss.exceptions.GSSError as error:
        reason = " ".join(str(error.gen_message()).split())
        raise DirectoryNotConnected(f"{host} does not let this account log in: no Kerberos ticket: {reason}") from None


def _lowered(values: Mapping[str, list[bytes]]) -> dict[str, list[bytes]]:
    """Return values by attribute in lower case. A controller returns at most 1500 values, and then adds their range to
    the name ([MS-ADTS] 3.1.1.3.1.3.3), such as `member;range=0-1499`."""
    found: dict[str, list[bytes]] = {}
    for name, given in values.items():
        found.setdefault(name.lower().partition(";range=")[0], []).extend(given)
    return found


def _urls(error: Any) -> list[str]:
    """Return the URLs in a result with referrals: the library lists them as lines after a heading."""
    details = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
    lines = str(details.get("info", "")).splitlines()
    return [line.strip() for line in lines if "://" in line][:MOST_REFERENCES]


def _reason(error: Any) -> str:
    """Return the error text of the library and the controller, in one line."""
    details = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
    info = " ".join(str(details.get("info", "")).split())
    description = details.get("desc") or type(error).__name__
    return f"{description} ({info})" if info else str(description)
