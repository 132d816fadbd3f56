"""Read objects: by name, the computers of queue managers, and objects with a format name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from openmsmq.directory.active import schema
from openmsmq.directory.active.ldap_text import child, filter_text, parent_of
from openmsmq.directory.active.session import DirectorySession, LdapEntry, Scope
from openmsmq.directory.provider import DirectoryError, ObjectNotFound

OF_COMPUTER: Final = ("cn", "objectSid", "dNSHostName", "mSMQSignCertificates")
_ALIAS: Final = "msMQ-Recipient-FormatName"
_OF_MEMBER: Final = ("objectClass", "objectGUID", _ALIAS)


@dataclass(frozen=True, slots=True)
class Computer:
    """The attributes of an object of class computer."""

    name: str  # distinguished
    computer_name: str
    sid: str
    dns_name: str
    signing_keys: bytes

    @property
    def configuration(self) -> str:
        """The distinguished name of the object of its queue manager."""
        return child("msmq", self.name)


def computer_of(entry: LdapEntry) -> Computer:
    """Convert an entry to a Computer. Raises DirectoryError."""
    name, dns_name = (schema.value_of(entry.values, schema.text(attribute)) for attribute in ("cn", "dNSHostName"))
    return Computer(entry.name, name, sid_of(entry), dns_name, octets(entry, "mSMQSignCertificates"))


def one(session: DirectorySession, name: str, attributes: Sequence[str]) -> LdapEntry:
    """Return an object by its distinguished name. Raises ObjectNotFound."""
    found = session.search(name, "(objectClass=*)", attributes, Scope.BASE)
    if not found:
        raise ObjectNotFound(name)
    return found[0]


def octets(entry: LdapEntry, name: str) -> bytes:
    """Return the first value of an attribute; empty if there is none."""
    return next(iter(entry.values.get(name.lower(), ())), b"")


def identifier_of(entry: LdapEntry) -> UUID:
    identifier: UUID = schema.value_of(entry.values, schema.OF_QUEUE["identifier"])
    return identifier


def sid_of(entry: LdapEntry) -> str:
    """Return the SID of an entry. Raises DirectoryError."""
    text: str = schema.value_of(entry.values, schema.OBJECT_SID)
    return text


def site_of(session: DirectorySession) -> bytes:
    """Return the identifier of the controller's site, which is used as that of this machine."""
    server = octets(one(session, "", ["serverName"]), "serverName").decode()
    return octets(one(session, parent_of(parent_of(server)), ["objectGUID"]), "objectGUID")


def format_name_of(session: DirectorySession, name: str) -> str:
    """Return the format name of a queue, an alias or a group ([MS-MQDSSM] 3.1.6.9). Raises DirectoryError for an object
    without one."""
    return _format_name(one(session, name, _OF_MEMBER))


def format_names_of_members(session: DirectorySession, domain: str, group: LdapEntry) -> tuple[str, ...]:
    """Return the format names of the members of a group ([MS-MQDSSM] 3.1.6.9). Those in the domain (a distinguished
    name) are read by one search, because the controller may be far away. Raises DirectoryError."""
    condition = f"(memberOf={filter_text(group.name)})"
    near = {entry.name.casefold(): entry for entry in session.search(domain, condition, _OF_MEMBER)}
    members = (member.decode() for member in group.values.get("member", ()))
    return tuple(
        _format_name(near.get(name.casefold()) or one(session, name, _OF_MEMBER)) for name in members
    )  # fmt: skip


def _format_name(entry: LdapEntry) -> str:
    classes = {value.decode().casefold() for value in entry.values.get("objectclass", ())}
    if schema.QUEUE.casefold() in classes:
        return f"PUBLIC={identifier_of(entry)}"
    if "group" in classes:
        return f"DL={identifier_of(entry)}"
    alias = octets(entry, _ALIAS).decode()
    if not alias:
        raise DirectoryError(f"{entry.name} is neither a queue, an alias nor a group")
    return alias
