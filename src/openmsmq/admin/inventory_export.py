"""Read the output of `tools/windows/Export-Msmq.ps1` as an inventory.

Its members are named as in the automation objects of [MC-MQAC]. Rights are security descriptors, with the names of
their accounts.
"""

from __future__ import annotations

import base64
import binascii
import codecs
from typing import Any, Final, Literal
from uuid import UUID

import msgspec

from openmsmq.admin.definitions import Document, defined
from openmsmq.admin.inventory import (
    Inventory,
    InventoryOutgoing,
    InventoryQueue,
    NotLearned,
    QueueGroup,
    named_accounts,
    short_name,
)
from openmsmq.model.constants import INFINITE
from openmsmq.model.errors import MsmqError
from openmsmq.model.security import SecurityDescriptor

_SYSTEM: Final = {"DEADLETTER": "deadletter", "DEADXACT": "xactdeadletter", "JOURNAL": "journal"}
# Enumerations of the IDL, [MC-MQAC] 6, without UNKNOWN.
_FOREIGN: Final = {0: True, 1: False}
_TRANSACTIONAL: Final = {0: True, 1: False}
_PUBLIC: Final = 0
_STATES: Final = {
    0: "LOCAL CONNECTION", 1: "DISCONNECTED", 2: "WAITING", 3: "NEED VALIDATION", 4: "ONHOLD", 5: "INACTIVE",
    6: "CONNECTED", 7: "DISCONNECTING", 8: "LOCKED",
}  # fmt: skip
#: Property in definitions -> property in the export and conversion. Quotas are signed numbers; -1 means none.
_PROPERTIES: Final[dict[str, tuple[str, Any]]] = {
    "label": ("Label", str), "transactional": ("IsTransactional2", bool), "journal": ("Journal", bool),
    "quota": ("Quota", lambda value: int(value) & INFINITE),
    "journal_quota": ("JournalQuota", lambda value: int(value) & INFINITE), "authenticate": ("Authenticate", bool),
    "priv_level": ("PrivLevel", int), "type": ("ServiceTypeGuid", UUID),
    "multicast_address": ("MulticastAddress", str),
}  # fmt: skip


#: Members of MSMQQueueInfo that are read.
OF_INFO: Final = tuple(name for name, _ in _PROPERTIES.values())


class _Export(msgspec.Struct, frozen=True):
    export: Literal[1]
    computer: str
    taken: int
    version: str = ""
    connected: bool | None = None
    directory_server: str | None = None
    bytes: str | None = None
    triggers: list[str] = []
    private: list[dict[str, Any]] = []
    active: list[dict[str, Any]] = []
    system: list[dict[str, Any]] = []
    accounts: dict[str, str] = {}
    errors: dict[str, str] = {}


def read_export(text: bytes, source: str = "Export-Msmq.ps1") -> Inventory:
    """Parse an export. `source` is the program that wrote it. Raises ValueError with the position of the error."""
    found = msgspec.json.decode(text.removeprefix(codecs.BOM_UTF8), type=_Export)
    errors = dict(found.errors)
    active = {str(each.get("FormatName") or each.get("format_name") or "").lower() for each in found.active}
    queues = [_queue(each, "private", active, errors) for each in found.private]
    queues += [_queue(each, "public", active, errors) for each in found.active if _is_public(each)]
    queues += [_queue(each, "system", active, errors) for each in found.system]
    queues.sort(key=lambda queue: (queue.kind == "system", queue.name.lower()))
    not_learned = [NotLearned(item, reason) for item, reason in errors.items()]
    not_learned.append(NotLearned("subqueues, first messages, senders", "the automation objects do not show them"))
    if found.triggers:
        not_learned.append(
            NotLearned("triggers and rules", f"the service Message Queuing Triggers exists: {found.triggers[0]}")
        )
    return Inventory(
        host=found.computer, source=source, taken=found.taken, version=found.version,
        connected={True: "CONNECTED", False: "DISCONNECTED"}.get(bool(found.connected), "")
        if found.connected is not None else "",
        directory_server=found.directory_server or "", bytes=_number(found.bytes),
        accounts=named_accounts(queues) | found.accounts, queues=queues,
        outgoing=[_outgoing(each) for each in found.active if each.get("IsLocal") is False], not_learned=not_learned,
    )  # fmt: skip


def _is_public(each: Document) -> bool:
    return each.get("IsLocal") is True and each.get("QueueType") == _PUBLIC


def _number(value: Any) -> int | None:
    """Convert a VARIANT that may be text; None if empty. Raises ValueError."""
    return None if value is None or value == "" else int(value)


def _queue(each: Document, kind: QueueGroup, active: set[str], errors: dict[str, str]) -> InventoryQueue:
    """Convert a queue. Its missing facts are removed from `errors`."""
    about = each.get("path_name") or each.get("format_name") or ""
    missing = [
        NotLearned(item.removeprefix(f"{about}: "), errors.pop(item))
        for item in list(errors) if item.startswith(f"{about}: ")
    ]  # fmt: skip
    name = _SYSTEM.get(about.rpartition(";")[2], about) if kind == "system" else short_name(about)
    descriptor = None
    if each.get("Security"):
        try:
            descriptor = SecurityDescriptor.parse(base64.b64decode(each["Security"], validate=True))
        except (MsmqError, ValueError, binascii.Error) as error:
            missing.append(NotLearned("rights", f"the descriptor can't be read: {error}"))
    values: Document = {}
    for ours, (theirs, read) in _PROPERTIES.items():
        if each.get(theirs) is not None:
            try:
                values[ours] = read(each[theirs])
            except (TypeError, ValueError):
                missing.append(NotLearned(theirs, f"the export has {each[theirs]!r}"))
    definition: Document = {"name": name} if kind == "system" else defined(name, values, descriptor, {})
    transactional = _TRANSACTIONAL.get(each.get("TransactionalStatus", 2), values.get("transactional"))
    if transactional is not None and kind != "system":
        definition = {"transactional": transactional} | definition
    return InventoryQueue(
        name=name, kind=kind, format_name=each.get("FormatName") or about, definition=definition,
        transactional=transactional, foreign=_FOREIGN.get(each.get("ForeignStatus", 2)),
        messages=_number(each.get("MessageCount")), bytes=_number(each.get("BytesInQueue")),
        journal_messages=_number(each.get("JournalMessageCount")), journal_bytes=_number(each.get("BytesInJournal")),
        open=str(each.get("FormatName") or "").lower() in active if kind != "system" else None, not_learned=missing,
    )  # fmt: skip


def _outgoing(each: Document) -> InventoryOutgoing:
    hops = each.get("NextHops") or []
    return InventoryOutgoing(
        format_name=each.get("FormatName") or each.get("format_name") or "",
        state=_STATES.get(each.get("State", -1), ""), next_hops=[hops] if isinstance(hops, str) else list(hops),
        messages=_number(each.get("MessageCount")), bytes=_number(each.get("BytesInQueue")),
        foreign=_FOREIGN.get(each.get("ForeignStatus", 2)),
    )  # fmt: skip
