"""Names of accounts of another machine, and what they are called here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from openmsmq.admin.definitions import Document
from openmsmq.admin.definitions_schema import DefinitionsError
from openmsmq.model.sddl import from_sddl, to_sddl

Accounts = Mapping[str, str]  # name or SID there -> name or SID here
#: SIDs that mean the same everywhere begin with these; `S-1-5-21-` are accounts of a machine or domain.
_OF_SOMEBODY: Final = "s-1-5-21-"


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
        descriptor = to_sddl(from_sddl(found["sddl"]))
        changed = [name for name in accounts if name in descriptor.casefold()]
        if changed:
            raise DefinitionsError(
                f"queue {queue['name']}: its permissions need SDDL, in which accounts are not replaced: {changed[0]}"
            )
    return found


def _entry(entry: str, accounts: Accounts) -> str:
    kind, _, rest = entry.partition(" ")
    for name, here in accounts.items():  # a name may have spaces, the rights behind it have none
        if rest.casefold().startswith(f"{name} "):
            return f"{kind} {here}{rest[len(name) :]}"
    return entry


def unknown(queues: list[Document]) -> dict[str, list[str]]:
    """SID of an account of the other machine or its domain -> names of queues that name it."""
    found: dict[str, list[str]] = {}
    for queue in queues:
        texts = [queue.get("owner") or "", *(entry.split(" ")[1] for entry in queue.get("permissions", []))]
        for text in dict.fromkeys(texts):
            if text.casefold().startswith(_OF_SOMEBODY):
                found.setdefault(text, []).append(queue["name"])
    return found
