"""Join and leave a domain as its administrator, in steps with descriptions, which also serve as a dry run.

The steps concern the account of the computer, its service principal names ([MS-KILE] 3.1.5.11) and password, and the
objects of its queue manager and queues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from openmsmq.directory.active import schema
from openmsmq.directory.active.ldap_text import child, filter_text
from openmsmq.directory.active.objects import identifier_of, octets, one
from openmsmq.directory.active.session import DirectorySession, LdapEntry, Scope
from openmsmq.directory.provider import DirectoryError, ObjectNotFound

_COMPUTER_CONTAINER: Final = "aa312825768811d1aded00c04fd8d5cd"  # GUID_COMPUTERS_CONTAINER_W, [MS-ADTS] 6.1.1.4.10
_WORKSTATION: Final = b"4096"  # ADS_UF_WORKSTATION_TRUST_ACCOUNT, [MS-ADTS] 2.2.16
_AES: Final = b"24"  # AES-128 and AES-256, [MS-KILE] 2.2.7
_PASSWORD: Final = "unicodePwd"
_SERVICES: Final = ("host", "RestrictedKrbHost", "MSMQ")
_WANTED: Final = ("cn", "servicePrincipalName", "msDS-SupportedEncryptionTypes", "dNSHostName")


@dataclass(frozen=True, slots=True)
class JoinStep:
    """A step. `said` describes it in the infinitive. `do` may raise DirectoryError."""

    said: str
    do: Callable[[], object]


@dataclass(frozen=True, slots=True)
class DomainMember:
    """Properties of the computer's account. `host_name` includes the domain; `container` is a distinguished name, empty
    for the default container for computers."""

    computer_name: str
    host_name: str
    container: str = ""

    @property
    def account(self) -> str:
        return f"{self.computer_name.upper()}$"

    @property
    def services(self) -> list[str]:
        names = dict.fromkeys((self.host_name, self.computer_name.upper()))
        return [f"{service}/{name}" for service in _SERVICES for name in names]


class AccountExists(DirectoryError):
    """The domain already has an account of this name, and the command was run without --reset-password."""


def realm_of(session: DirectorySession) -> str:
    """Return the realm of the domain, derived from its distinguished name. Raises DirectoryError."""
    parts = [part.partition("=") for part in _context(session).split(",")]
    return ".".join(value for kind, _, value in parts if kind.upper() == "DC").upper()


def account_steps(session: DirectorySession, member: DomainMember, password: str, *, reset: bool) -> list[JoinStep]:
    """Return the steps that create the account with this password. An existing account gets the password only with
    `reset`, because a machine with the old password loses its membership. Raises AccountExists, DirectoryError."""
    secret = [f'"{password}"'.encode("utf-16-le")]
    found = find_account(session, member.account)
    if found is not None:
        if not reset:
            raise AccountExists(
                f"the domain has {found.name} with the account {member.account}. If this machine is a member with this "
                "account (winbind, realmd), pass its keytab with --keytab. If the account is unused, set a new "
                "password with --reset-password"
            )
        step = f"set a new password for {member.account} ({found.name})"
        return [
            JoinStep(step, lambda: session.modify(found.name, {_PASSWORD: secret})),
            *service_steps(session, member),
        ]
    name = child(member.computer_name.upper(), member.container or _container(session))
    attributes = {
        "objectClass": [b"computer"],
        "sAMAccountName": [member.account.encode()],
        "userAccountControl": [_WORKSTATION],
        "dNSHostName": [member.host_name.encode()],
        "servicePrincipalName": [service.encode() for service in member.services],
        "msDS-SupportedEncryptionTypes": [_AES],
        _PASSWORD: secret,
    }
    step = f"create the account {member.account}, {name}, with the services {', '.join(member.services)}"
    return [JoinStep(step, lambda: session.add(name, attributes))]


def service_steps(session: DirectorySession, member: DomainMember) -> list[JoinStep]:
    """Return the steps that add missing parts of an existing account. Raises ObjectNotFound if there is no account,
    DirectoryError."""
    found = find_account(session, member.account)
    if found is None:
        raise ObjectNotFound(f"the account {member.account}")
    steps = []
    present = [value.decode() for value in found.values.get("serviceprincipalname", ())]
    known = {service.casefold() for service in present}
    missing = [service for service in member.services if service.casefold() not in known]
    if not octets(found, "dNSHostName"):
        name = {"dNSHostName": [member.host_name.encode()]}
        steps.append(
            JoinStep(
                f"set the DNS name of {member.account} to {member.host_name}", lambda: session.modify(found.name, name)
            )
        )
    if missing:
        values = {"servicePrincipalName": [service.encode() for service in (*present, *missing)]}
        step = f"add the services {', '.join(missing)} to {member.account}"
        steps.append(JoinStep(step, lambda: session.modify(found.name, values)))
    kinds = int(octets(found, "msDS-SupportedEncryptionTypes") or b"0")
    if not kinds & int(_AES):
        aes = {"msDS-SupportedEncryptionTypes": [str(kinds | int(_AES)).encode()]}
        steps.append(JoinStep(f"enable AES keys for {member.account}", lambda: session.modify(found.name, aes)))
    return steps


def identifier_of_object(session: DirectorySession, account: str) -> UUID | None:
    """Return the queue manager identifier of an account; None if it has no object yet. Raises DirectoryError."""
    found = find_account(session, account)
    try:
        return None if found is None else identifier_of(one(session, child("msmq", found.name), ["objectGUID"]))
    except ObjectNotFound:
        return None


def key_version(session: DirectorySession, account: str) -> int:
    """Return the version of the account's password ([MS-ADTS] 3.1.1.4.5.16). Raises ObjectNotFound, DirectoryError."""
    found = find_account(session, account, ("msDS-KeyVersionNumber",))
    if found is None:
        raise ObjectNotFound(f"the account {account}")
    return int(octets(found, "msDS-KeyVersionNumber") or b"0")


def leaving_steps(session: DirectorySession, account: str, *, with_account: bool) -> list[JoinStep]:
    """Return the steps that delete the objects of the queue manager and its queues and, `with_account`, the account.
    Raises DirectoryError."""
    found = find_account(session, account)
    if found is None:
        return []
    steps = _object_steps(session, child("msmq", found.name))
    if with_account:
        others = [e.name for e in session.search(found.name, "(objectClass=*)", ["cn"], Scope.CHILDREN)]
        others = [name for name in others if name.casefold() != child("msmq", found.name).casefold()]
        if others:
            raise DirectoryError(
                f"{found.name} has other child objects, such as {others[0]}: delete it with the tools of the domain"
            )
        steps.append(JoinStep(f"delete the account {account}, {found.name}", lambda: session.delete(found.name)))
    return steps


def _object_steps(session: DirectorySession, name: str) -> list[JoinStep]:
    try:
        queues = session.search(name, f"(objectClass={schema.QUEUE})", ["cn"], Scope.CHILDREN)
    except ObjectNotFound:
        return []
    steps = [JoinStep(f"delete the public queue {queue.name}", _deletion(session, queue.name)) for queue in queues]
    return [*steps, JoinStep(f"delete the object of the queue manager, {name}", _deletion(session, name))]


def _deletion(session: DirectorySession, name: str) -> Callable[[], object]:
    return lambda: session.delete(name)


def find_account(session: DirectorySession, account: str, attributes: Sequence[str] = _WANTED) -> LdapEntry | None:
    """Return the computer with this sAMAccountName; None if there is none. Raises DirectoryError."""
    condition = f"(&(objectClass=computer)(sAMAccountName={filter_text(account)}))"
    found = session.search(_context(session), condition, attributes, limit=1)
    return found[0] if found else None


def _context(session: DirectorySession) -> str:
    return octets(one(session, "", ["defaultNamingContext"]), "defaultNamingContext").decode()


def _container(session: DirectorySession) -> str:
    """Return the default container for new computers."""
    return one(session, f"<WKGUID={_COMPUTER_CONTAINER},{_context(session)}>", ["objectGUID"]).name
