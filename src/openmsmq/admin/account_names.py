"""Names of accounts of another machine, and what they are called here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from openmsmq.admin.definitions import Document
from openmsmq.admin.definitions_schema import DefinitionsError, parse_entry
from openmsmq.model.rights import QUEUE_RIGHTS
from openmsmq.model.sddl import from_sddl
from openmsmq.model.security import Ace, sid_at

Accounts = Mapping[str, str]  # name or SID there -> name or SID here
#: SIDs that mean the same everywhere begin with these; `S-1-5-21-` are accounts of a machine or domain.
_OF_SOMEBODY: Final = "s-1-5-21-"
_AUDIT: Final = 2  # SYSTEM_AUDIT_ACE_TYPE
_SID_OF_AUDIT: Final = 8  # bytes of header and mask


def read_accounts(value: Any) -> dict[str, str]:
    """A document of names and SIDs there, and what they are here. Raises ValueError."""
    if not isinstance(value, dict) or not all(isinstance(name, str) for pair in value.items() for name in pair):
        raise ValueError('a file of accounts is a JSON object such as {"OLD\\\\alice": "alice"}')
    return {name.casefold(): here for name, here in value.items()}


def mapped(queue: Document, accounts: Accounts) -> Document:
    """A queue of a document of definitions with the names of this machine. Raises DefinitionsError where a descriptor
    says more than words can, and has accounts that are called otherwise here."""
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
    """Kind, name, which may have spaces, and rights. What has no right that is known is all name."""
    try:
        return parse_entry(entry, QUEUE_RIGHTS)
    except ValueError:
        kind, _, name = entry.partition(" ")
        return kind, name, []


def _in_sddl(sddl: str) -> list[str]:
    """The SIDs in a descriptor: owner, group, and those of the entries, of auditing too."""
    descriptor = from_sddl(sddl)
    entries = (*(descriptor.dacl or ()), *(descriptor.sacl or ()))
    named = (descriptor.owner, descriptor.group, *map(_sid_of, entries))
    return [each for each in named if each]


def _sid_of(ace: Ace) -> str:
    """Empty for an entry of a kind that is kept as bytes; that of auditing has its SID behind the mask ([MS-DTYP]
    2.4.4.10)."""
    return sid_at(ace.raw, _SID_OF_AUDIT) if ace.raw and ace.type == _AUDIT else ace.sid


def accounts_of(queue: Document) -> list[str]:
    """The SIDs and names that the owner and the rights of a queue name, each once, also those in SDDL. Raises
    ValueError for SDDL that is wrong."""
    found = [queue.get("owner") or "", *(_parts(entry)[1] for entry in queue.get("permissions", ()))]
    found += _in_sddl(queue["sddl"]) if "sddl" in queue else []
    return [each for each in dict.fromkeys(found) if each]


def unknown(queues: list[Document]) -> dict[str, list[str]]:
    """SID of an account of the other machine or its domain -> names of queues that name it."""
    found: dict[str, list[str]] = {}
    for queue in queues:
        for account in accounts_of(queue):
            if account.casefold().startswith(_OF_SOMEBODY):
                found.setdefault(account, []).append(queue["name"])
    return found
