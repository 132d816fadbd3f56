"""The schema of a document of definitions: every member, its type and its limits.

A document that `parse` accepts can still fail to import for reasons that only the queue manager knows: missing rights
or exceeded quotas.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from openmsmq.accounts.users import UsersFileError, check_account_name
from openmsmq.model.constants import INFINITE, MOST_DELIVERIES
from openmsmq.model.errors import MsmqError
from openmsmq.model.names import parse_format_name, parse_path_name
from openmsmq.model.rights import MACHINE_RIGHTS, QUEUE_RIGHTS, NamedRight, mask_of
from openmsmq.model.sddl import from_sddl

FORMAT: Final = 1
MAXIMUM_LABEL: Final = 124  # WCHARs, [MS-MQMQ] 2.3.1.8
_AT: Final = re.compile(r"(?s)(.*?)(?: - at `(?:key in )?\$\.?(.*)`)?")
_ENTRY: Final = re.compile(r"(queues|groups|users)\[(\d+)\]\.?(.*)")

Kilobytes = Annotated[int, Meta(ge=0, le=INFINITE)]


class DefinitionsError(Exception):
    """Invalid document of definitions; the message says where."""


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a document. Unknown members are errors; missing members mean unchanged."""


class Rights(_Part, frozen=True):
    """Owner and access control list: as words, or as SDDL if words cannot express them."""

    owner: Annotated[str, Meta(min_length=1)] | UnsetType | None = UNSET
    permissions: list[str] | UnsetType = UNSET
    sddl: str | UnsetType = UNSET


class QueueDefinition(Rights, frozen=True, kw_only=True):
    """A queue. `base_priority` was exported by earlier versions, and is ignored: private queues have none. `unreadable`
    maps the name of a part to the error that occurred when the export read it."""

    name: str
    label: str | UnsetType = UNSET
    transactional: bool | UnsetType = UNSET
    journal: bool | UnsetType = UNSET
    quota: Kilobytes | UnsetType = UNSET
    journal_quota: Kilobytes | UnsetType = UNSET
    authenticate: bool | UnsetType = UNSET
    priv_level: Literal[0, 1, 2] | UnsetType = UNSET
    base_priority: Annotated[int, Meta(ge=-32768, le=32767)] | UnsetType = UNSET
    type: UUID | UnsetType = UNSET
    multicast_address: str | UnsetType = UNSET
    delivery_limit: Annotated[int, Meta(ge=0, le=MOST_DELIVERIES)] | UnsetType = UNSET
    poison_to_deadletter: bool | UnsetType = UNSET
    unreadable: str | UnsetType = UNSET


class GroupDefinition(_Part, frozen=True):
    name: str
    members: list[str] | UnsetType = UNSET


class UserDefinition(_Part, frozen=True):
    name: str
    administrator: bool | UnsetType = UNSET
    role: Literal["monitor", "operator", "administrator"] | UnsetType = UNSET
    nt_hash: Annotated[str, Meta(pattern="^[0-9a-fA-F]{32}$")] | UnsetType = UNSET


class SettingDefinition(_Part, frozen=True):
    value: Any
    source: str


class DefinitionsDocument(_Part, frozen=True):
    format: Literal[1]
    computer: str | UnsetType = UNSET
    queues: list[QueueDefinition] | UnsetType = UNSET
    machine: Rights | UnsetType = UNSET
    groups: list[GroupDefinition] | UnsetType = UNSET
    users: list[UserDefinition] | UnsetType = UNSET
    settings: dict[str, SettingDefinition] | UnsetType = UNSET


def parse(document: Any) -> dict[str, Any]:
    """Check a document and return it in canonical form. Raises DefinitionsError that names the first invalid member."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise DefinitionsError(f"this is not a document of definitions of format {FORMAT}")
    try:
        parsed = msgspec.convert(document, DefinitionsDocument)
    except msgspec.ValidationError as error:
        raise DefinitionsError(_said(document, str(error))) from None
    for part in ("queues", "groups", "users"):
        _names(part, getattr(parsed, part) or [])
    for queue in parsed.queues or []:
        _checked(f"queue {_short(queue.name)!r}", lambda queue=queue: _check_queue(queue))
    if parsed.machine:
        machine = parsed.machine
        _checked("the queue manager", lambda: _check_rights(machine, MACHINE_RIGHTS))
    for account in (*(parsed.groups or ()), *(parsed.users or ())):
        _checked("the account", lambda account=account: check_account_name(account.name))
    found: dict[str, Any] = msgspec.to_builtins(parsed)
    return found


def _said(document: dict[str, Any], text: str) -> str:
    """Return msgspec's message, with the name of the queue, group or user instead of its number."""
    found = _AT.fullmatch(text)
    assert found is not None
    said, at = found.group(1), found.group(2) or ""
    entry = _ENTRY.fullmatch(at)
    if entry is not None:
        part, number, rest = entry.groups()
        name = document[part][int(number)]
        name = name.get("name") if isinstance(name, dict) else None
        at = f"{part[:-1]} {_short(name)!r}" if isinstance(name, str) else f"{part}[{number}]"
        at += f": {rest}" if rest else ""
    unknown = re.search(r"unknown field `(.*)`", said)
    if unknown:
        return f"{at or 'the document'}: {unknown.group(1)!r} is unknown"
    return f"{at or 'the document'}: {said}"


def _short(name: str) -> str:
    return name if len(name) <= 60 else name[:57] + "..."


def _checked(said: str, check: Any) -> None:
    try:
        check()
    except (MsmqError, ValueError, UsersFileError) as error:
        detail = getattr(error, "detail", "") or str(error)
        raise DefinitionsError(f"{said}: {detail}") from None


def _names(part: str, entries: list[Any]) -> None:
    seen: set[str] = set()
    for entry in entries:
        if entry.name.casefold() in seen:
            raise DefinitionsError(f"{part}: duplicate name: {_short(entry.name)!r}")
        seen.add(entry.name.casefold())


def _check_queue(queue: QueueDefinition) -> None:
    path = parse_path_name(f".\\private$\\{queue.name}")
    if path.kind != "private" or path.subqueue or path.name != queue.name:
        raise ValueError("the name of a private queue is meant, without its computer")
    if queue.label and len(queue.label.encode("utf-16-le", "surrogatepass")) > 2 * MAXIMUM_LABEL:
        raise ValueError(f"the label has more than {MAXIMUM_LABEL} characters")
    if queue.multicast_address:
        parse_format_name(f"MULTICAST={queue.multicast_address}")
    _check_rights(queue, QUEUE_RIGHTS)


def _check_rights(rights: Rights, known: tuple[NamedRight, ...]) -> None:
    if rights.sddl is not UNSET:
        if rights.owner is not UNSET or rights.permissions is not UNSET:
            raise ValueError("specify either sddl, or owner and permissions")
        from_sddl(rights.sddl)
    for text in rights.permissions or []:
        parse_entry(text, known)


def parse_entry(text: str, rights: tuple[NamedRight, ...]) -> tuple[str, str, list[str]]:
    """Parse `allow NAME RIGHT...`. The name may contain spaces: the trailing words that are known rights are the
    rights. Raises ValueError."""
    kind, _, rest = text.partition(" ")
    words = rest.split(" ")
    cut = len(words)
    while cut > 1 and _is_right(words[cut - 1], rights):
        cut -= 1
    if kind not in ("allow", "deny") or cut == len(words):
        raise ValueError(f"{text!r} is not a valid entry; allowed: allow or deny, a name, and rights")
    return kind, " ".join(words[:cut]), words[cut:]


def _is_right(word: str, rights: tuple[NamedRight, ...]) -> bool:
    try:
        return bool(mask_of([word], rights))
    except ValueError:
        return False
