"""Inventory of another machine's queue manager, as one document: queues, rights, counts, outgoing queues, and missing
facts with the reason.

MS-MQMR provides names and counts, MS-MQMP properties and rights, and MS-MQRR or MS-MQMP the first message of a queue.
Windows may refuse all remote calls of MS-MQMP; the document then contains the rest. An error with one queue does not
affect the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Literal
from uuid import UUID

import msgspec

from openmsmq.admin.account_names import accounts_of
from openmsmq.admin.definitions import DEFINED, Document, defined
from openmsmq.admin.naming import SYSTEM_QUEUES
from openmsmq.client.asynchronous import QueueManager
from openmsmq.client.calls import UNANSWERED, CallerRefused, ProtocolUnavailable
from openmsmq.model.errors import BindError, MsmqError, ReceiveTimeout
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.model.message import NULL_GUID
from openmsmq.model.security import SecurityDescriptor

FORMAT: Final = 1
AT_ONCE: Final = 32  # concurrent queries for queues on one connection
#: Errors that mean that an interface is not available to this caller.
NOT_SERVED: Final = (CallerRefused, ProtocolUnavailable, BindError)
#: Accounts that every Windows machine has ([MS-DTYP] 2.4.2.4), with names for display; documents of definitions keep
#: the SIDs.
WELL_KNOWN_ACCOUNTS: Final[dict[str, str]] = {
    "S-1-1-0": "Everyone", "S-1-3-0": "Creator Owner", "S-1-5-2": "Network", "S-1-5-4": "Interactive",
    "S-1-5-6": "Service", "S-1-5-7": "Anonymous Logon", "S-1-5-11": "Authenticated Users",
    "S-1-5-18": "Local System", "S-1-5-19": "Local Service", "S-1-5-20": "Network Service",
    "S-1-5-32-544": "Administrators", "S-1-5-32-545": "Users", "S-1-5-32-546": "Guests",
    "S-1-5-32-551": "Backup Operators",
}  # fmt: skip
#: Objects that no protocol lists.
UNLISTED: Final = "public queues that are not open"
_YES_NO: Final[dict[str, bool | None]] = {"YES": True, "NO": False}

QueueGroup = Literal["private", "public", "system"]
Said = Callable[[int, int], None]


class NotLearned(msgspec.Struct, frozen=True):
    """A fact that is missing in the document, and the reason."""

    item: str
    reason: str


class SequenceSender(msgspec.Struct, frozen=True):
    """A queue manager that sends transactional messages to a queue ([MS-MQMQ] 2.3.12.24)."""

    queue_manager: str
    format_name: str
    rejected: int
    last: int  # seconds since 1970


class FirstMessage(msgspec.Struct, frozen=True):
    """The first message of a queue. It is the oldest one unless priorities differ."""

    sent: int  # seconds since 1970
    queue_manager: str
    response_queue: str
    connector: bool


class InventoryQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue. `definition` is its entry in a document of definitions, as far as known. None means unknown."""

    name: str
    kind: QueueGroup
    format_name: str = ""
    definition: Document = {}
    transactional: bool | None = None
    foreign: bool | None = None
    messages: int | None = None
    bytes: int | None = None
    journal_messages: int | None = None
    journal_bytes: int | None = None
    subqueues: list[str] = []
    open: bool | None = None
    first: FirstMessage | None = None
    senders: list[SequenceSender] = []
    not_learned: list[NotLearned] = []


class InventoryOutgoing(msgspec.Struct, frozen=True, kw_only=True):
    """An outgoing queue of the other machine."""

    format_name: str
    state: str = ""
    next_hops: list[str] = []
    messages: int | None = None
    bytes: int | None = None
    unacknowledged: int | None = None
    unread: int | None = None
    foreign: bool | None = None


class InventoryService(msgspec.Struct, frozen=True):
    """A protocol or port. `answer` is empty if it answers, else the reason."""

    name: str
    answer: str


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """The inventory of a machine. `source` is `protocols` or the name of the script that wrote it; `accounts`: SID ->
    name."""

    format: Literal[1] = FORMAT
    host: str
    source: str
    taken: int
    queue_manager: str = ""
    version: str = ""
    type: str = ""
    connected: str = ""
    directory_server: str = ""
    bytes: int | None = None
    accounts: dict[str, str] = {}
    services: list[InventoryService] = []
    queues: list[InventoryQueue] = []
    outgoing: list[InventoryOutgoing] = []
    not_learned: list[NotLearned] = []


def reason_of(error: Exception) -> str:
    """Return a short reason why a fact is missing."""
    name, text = error.name if isinstance(error, MsmqError) else type(error).__name__, str(error)
    return text if text.startswith(name) else f"{name}: {text}" if text else name


async def take(
    manager: QueueManager, host: str, *, peek: bool = True, said: Said = lambda done, of: None,
    listed: Mapping[str, Document] | None = None,
) -> Inventory:  # fmt: skip
    """Take the inventory of a queue manager. With `peek`, the first message of each queue that is not empty is read.
    `listed` are the public queues of the machine in a directory, with their definitions; None if no directory was
    queried. `said` is called with the number of queried queues and their total. Raises MsmqError if MS-MQMR does not
    list the queues, and connection errors."""
    machine = await manager.management()
    qmcomm = await _refusal(manager.machine_id)
    inquiry = _Inquiry(manager, peek, qmcomm, listed or {})
    private = sorted(machine["private_queues"] or [], key=str.lower)
    active = machine["active_queues"] or []
    total, done = len(private) + len(active) + len(_SYSTEM), 0

    async def counted(step: Awaitable[Any]) -> Any:
        nonlocal done
        found = await step
        done += 1
        said(done, total)
        return found

    open_ones = await _at_once(counted(inquiry.active(name)) for name in active)
    locals_ = [found for found in open_ones if found is not None and found.get("location") == "LOCAL"]
    open_paths = {_without_computer(found["path_name"] or "").lower() for found in locals_}
    public = {name.lower(): name for name in listed or ()}
    for found in locals_:
        if found["type"] == "PUBLIC" and found["path_name"]:
            name = _without_computer(found["path_name"])
            public.setdefault(name.lower(), name)
    queues: list[InventoryQueue] = await _at_once(
        [counted(inquiry.queue(path, "private", open_paths)) for path in private]
        + [inquiry.queue(name, "public", open_paths) for name in sorted(public.values())]
        + [counted(inquiry.queue(name, "system", open_paths)) for name in _SYSTEM]
    )
    not_learned = list(inquiry.general)
    if qmcomm:
        not_learned.append(NotLearned("properties and rights of all queues", f"MS-MQMP is not served here: {qmcomm}"))
    if listed is None:
        not_learned.append(NotLearned(UNLISTED, "only a directory has them"))
    version = queue_manager = ""
    if not qmcomm:
        with suppress(MsmqError):
            queue_manager, version = await manager.machine_id(), await manager.version()
    return Inventory(
        host=host, source="protocols", taken=int(time.time()), queue_manager=queue_manager, version=version,
        type=machine["type"] or "", connected=machine["connected"] or "", directory_server=machine["ds_server"] or "",
        bytes=machine["bytes_in_all_queues"], accounts=named_accounts(queues),
        services=[
            InventoryService("MS-MQMR: names and counts", ""),
            InventoryService("MS-MQMP: properties and rights", qmcomm),
            *inquiry.reading(),
        ],
        queues=queues, outgoing=[outgoing_of(found) for found in open_ones if _is_outgoing(found)],
        not_learned=not_learned,
    )  # fmt: skip


_SYSTEM: Final = ("deadletter", "xactdeadletter", "journal")


async def _at_once(steps: Iterable[Awaitable[Any]]) -> list[Any]:
    """Run at most `AT_ONCE` steps concurrently. Return their results in order."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(step: Awaitable[Any]) -> Any:
        async with limit:
            return await step

    tasks = [asyncio.ensure_future(one(step)) for step in steps]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _refusal(call: Callable[[], Awaitable[object]]) -> str:
    """Return why an interface is not available to this caller; empty if it is, even if this call fails for another
    reason."""
    try:
        await call()
    except NOT_SERVED as error:
        return reason_of(error)
    except UNANSWERED:
        raise
    except MsmqError:
        pass
    return ""


class _Inquiry:
    """Queries single queues and records which protocols are not available."""

    def __init__(self, manager: QueueManager, peek: bool, qmcomm: str, listed: Mapping[str, Document]) -> None:
        """`listed`: definitions of public queues in the directory."""
        self._listed: Final = {name.lower(): definition for name, definition in listed.items()}
        self.general: list[NotLearned] = []
        self._manager, self._peek, self._qmcomm = manager, peek, qmcomm
        self._read_by: set[str] = set()

    def reading(self) -> list[InventoryService]:
        """Return the protocols by which messages were read."""
        refused = self._manager.remote_read_refused
        if refused is not None:
            return [InventoryService("MS-MQRR: reading", reason_of(refused))]
        return [InventoryService("MS-MQRR: reading", "")] if "remoteread" in self._read_by else []

    async def active(self, name: str) -> Document | None:
        """Return the management properties of a queue that is open or has messages; None if it is gone or access is
        refused."""
        try:
            return await self._manager.management(name)
        except UNANSWERED:
            raise
        except Exception as error:
            self.general.append(NotLearned(f"open queue {name}", self._reason("inventories", name, error)))
            return None

    async def queue(self, path: str, kind: QueueGroup, open_paths: set[str]) -> InventoryQueue:
        """Query a queue. `path` is the path name, for public queues without the computer, or the short name of a system
        queue."""
        missing: list[NotLearned] = []
        name = SYSTEM_QUEUES[path] if kind == "system" else f".\\{_without_computer(path)}"
        short = path if kind == "system" else short_name(path)
        figures: Document = await self._learn(missing, "counts", name, self._manager.management(name)) or {}
        definition: Document = {"name": short}
        known = self._listed.get(short.lower(), {}) if kind == "public" else {}
        if kind != "system" and not self._qmcomm:
            values = await self._learn(missing, "properties", name, self._manager.properties(name, *DEFINED))
            security = await self._learn(missing, "rights", name, self._manager.security(name))
            if isinstance(security, bytes):
                security = await self._learn(missing, "rights", name, _parsed(security))
            definition = defined(short, values, security, {})
        definition = known | definition
        if "sddl" in definition and "permissions" in definition:  # one from the directory, one from the machine
            del definition["permissions" if "sddl" in known else "sddl"]
        first = None
        if self._peek and kind != "system" and figures.get("message_count", 1):
            first = await self._learn(missing, "first message", name, self._first(name))
        transactional = _YES_NO.get(figures.get("transactional") or "", definition.get("transactional"))
        if transactional is not None and "transactional" not in definition:
            definition["transactional"] = transactional
        return InventoryQueue(
            name=short, kind=kind, format_name=figures.get("format_name") or "", definition=definition,
            transactional=transactional, foreign=_YES_NO.get(figures.get("foreign") or ""),
            messages=figures.get("message_count"), bytes=figures.get("bytes_in_queue"),
            journal_messages=figures.get("journal_message_count"), journal_bytes=figures.get("bytes_in_journal"),
            subqueues=list(figures.get("subqueue_names") or ()),
            open=_without_computer(path).lower() in open_paths if kind != "system" else None, first=first,
            senders=[sender_of(row) for row in figures.get("eod_source_info") or ()], not_learned=missing,
        )  # fmt: skip

    async def _learn(self, missing: list[NotLearned], item: str, queue: str, step: Awaitable[Any]) -> Any:
        """Return the result of a step; None, and an entry in `missing`, if it fails."""
        try:
            return await step
        except BindError as error:  # the connection is intact, but the interface is not available
            missing.append(NotLearned(item, reason_of(error)))
        except UNANSWERED:
            raise
        except Exception as error:
            missing.append(NotLearned(item, self._reason("inventories", queue, error)))
        return None

    @staticmethod
    def _reason(where: str, item: str, error: Exception) -> str:
        if not isinstance(error, MsmqError):
            LEFT_OUT.note(where, item, error)
        return reason_of(error)

    async def _first(self, name: str) -> FirstMessage | None:
        async with await self._manager.open(name, "peek") as queue:
            self._read_by.add(queue.protocol)
            try:
                message = await queue.peek(0)
            except ReceiveTimeout:
                return None
        return FirstMessage(
            message.sent_time, str(UUID(bytes_le=message.source_machine_identifier)),
            message.response_queue_format_name, message.connector_type_identifier != NULL_GUID,
        )  # fmt: skip


async def _parsed(security: bytes) -> SecurityDescriptor:
    return SecurityDescriptor.parse(security)


def _without_computer(path: str) -> str:
    """Return `private$\\orders` for `OLD\\private$\\orders`."""
    computer, separator, rest = path.partition("\\")
    return rest if separator and not computer.lower().startswith("private$") else path


def short_name(path: str) -> str:
    """Return `orders` for `OLD\\private$\\orders` and for `OLD\\orders`."""
    return path.rpartition("\\")[2]


def _is_outgoing(found: Document | None) -> bool:
    return found is not None and (found["location"] == "REMOTE" or found["type"] == "CONNECTOR")


def outgoing_of(found: Mapping[str, Any]) -> InventoryOutgoing:
    """Convert the management properties of an outgoing queue."""
    return InventoryOutgoing(
        format_name=found.get("format_name") or "", state=found.get("state") or "",
        next_hops=list(found.get("next_hops") or ()), messages=found.get("message_count"),
        bytes=found.get("bytes_in_queue"), unacknowledged=found.get("eod_no_ack_count"),
        unread=found.get("eod_no_read_count"), foreign=_YES_NO.get(found.get("foreign") or ""),
    )  # fmt: skip


def sender_of(row: Mapping[str, Any]) -> SequenceSender:
    return SequenceSender(str(row["sender"]), row["format_name"] or "", row["reject_count"], row["last_access_time"])


def named_accounts(queues: Iterable[InventoryQueue]) -> dict[str, str]:
    """Return the well-known accounts that queues use: SID -> name."""
    used = {account for queue in queues for account in accounts_of(queue.definition)}
    return {sid: name for sid, name in WELL_KNOWN_ACCOUNTS.items() if sid in used}
