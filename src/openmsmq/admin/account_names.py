"""Mapping of accounts of another machine to accounts of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from openmsmq.admin.definitions import Document
from openmsmq.admin.definitions_schema import DefinitionsError, parse_entry
from openmsmq.model.rights import QUEUE_RIGHTS
from openmsmq.model.sddl import from_sddl
from openmsmq.model.security import Ace, sid_at

Accounts = Mapping[str, str]  # name or SID there -> name or SID here
#: Prefix of SIDs of a machine or domain; all other SIDs have the same meaning on every machine.
_OF_SOMEBODY: Final = "s-1-5-21-"
_AUDIT: Final = 2  # SYSTEM_AUDIT_ACE_TYPE
_SID_OF_AUDIT: Final = 8  # bytes of header and mask


def read_accounts(value: Any) -> dict[str, str]:
    """Check a JSON document that maps names and SIDs there to those here, and return the mapping with case-folded keys.
    Raises ValueError."""
    if not isinstance(value, dict) or not all(isinstance(name, str) for pair in value.items() for name in pair):
        raise ValueError('the file of accounts must be a JSON object such as {"OLD\\\\alice": "alice"}')
    return {name.casefold(): here for name, here in value.items()}


def mapped(queue: Document, accounts: Accounts) -> Document:
    """Return a queue definition with its accounts replaced by those of this machine. Raises DefinitionsError if
    accounts must be replaced in a descriptor that is only available as SDDL."""
    found = dict(queue)
    if found.get("owner"):
        found["owner"] = accounts.get(found["owner"].casefold(), found["owner"])
    if "permissions" in found:
        found["permissions"] = [_entry(entry, accounts) for entry in found["permissions"]]
    if "sddl" in found:
        changed = [name for name in _in_sddl(found["sddl"]) if name.casefold() in accounts]
        if changed:
            raise DefinitionsError(
                f"queue {queue['name']}: its permissions need SDDL, in which accounts are not replaced: {changed[0]}"
            )
    return found


def _entry(entry: str, accounts: Accounts) -> str:
    kind, name, rights = _parts(entry)
    return " ".join((kind, accounts.get(name.casefold(), name), *rights))


def _parts(entry: str) -> tuple[str, str, list[str]]:
    """Split an entry into kind, name (which may contain spaces) and rights. If no right is known, the rest is the
    name."""
    try:
        return parse_entry(entry, QUEUE_RIGHTS)
    except ValueError:
        kind, _, name = entry.partition(" ")
        return kind, name, []


def _in_sddl(sddl: str) -> list[str]:
    """Return the SIDs in a descriptor: owner, group, and those of all entries, including audit entries."""
    descriptor = from_sddl(sddl)
    entries = (*(descriptor.dacl or ()), *(descriptor.sacl or ()))
    named = (descriptor.owner, descriptor.group, *map(_sid_of, entries))
    return [each for each in named if each]


def _sid_of(ace: Ace) -> str:
    """Return the SID of an entry; empty for types that are stored as bytes. An audit entry is also stored as bytes,
    with its SID after the mask ([MS-DTYP] 2.4.4.10)."""
    return sid_at(ace.raw, _SID_OF_AUDIT) if ace.raw and ace.type == _AUDIT else ace.sid


def accounts_of(queue: Document) -> list[str]:
    """Return the distinct SIDs and names in the owner, rights and SDDL of a queue definition. Raises ValueError for
    invalid SDDL."""
    found = [queue.get("owner") or "", *(_parts(entry)[1] for entry in queue.get("permissions", ()))]
    found += _in_sddl(queue["sddl"]) if "sddl" in queue else []
    return [each for each in dict.fromkeys(found) if each]


def unknown(queues: list[Document]) -> dict[str, list[str]]:
    """Return a mapping: SID of an account of the other machine or its domain -> names of the queues that use it."""
    found: dict[str, list[str]] = {}
    for queue in queues:
        for account in accounts_of(queue):
            if account.casefold().startswith(_OF_SOMEBODY):
                found.setdefault(account, []).append(queue["name"])
    return found
