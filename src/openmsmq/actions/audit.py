"""The audit log, for administrators."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from openmsmq.actions.errors import ActionRefused
from openmsmq.actions.fields import CommandText, doc
from openmsmq.actions.site import ActionSite
from openmsmq.actions.table import ActionCommand, CountOption, Input, Output, Pages, Rows, action
from openmsmq.admin.audit import VERSION, AuditFilter, AuditLog

_LARGEST: Final = 1000  # maximum records in a response
Pattern = Annotated[str, Meta(max_length=1024)]


class AuditQuery(Input, frozen=True):
    """Selects records."""

    action: Annotated[Pattern, doc("Pattern for the action, such as queue.*.", "queue.*")] = "*"
    object: Annotated[Pattern, doc("Pattern for the name of the object, such as *orders*.", "*orders*")] = "*"
    by: Annotated[Pattern, doc("Pattern for the name or SID of the user.", "alice")] = "*"
    denied: Annotated[bool, doc("Only denied actions.")] = False
    before: Annotated[Annotated[int, Meta(ge=1, le=(1 << 53) - 1)] | None, doc("Only records before that number.")] = (
        None
    )
    limit: Annotated[int, Meta(ge=1, le=_LARGEST, description="Maximum number of records; the newest are shown.")] = 100


class ActorView(Output, frozen=True):
    """The user who made a change."""

    name: Annotated[str, doc("Name of the user.")]
    sid: Annotated[str | None, doc("SID of the user; null for users of the operating system.")]


class SettingOrigin(Output, frozen=True):
    """The origin of a change."""

    door: Annotated[str, doc("Entry point.", "rpc", "http", "flight", "cli")]
    peer: Annotated[str | None, doc("Address of the peer; null if there is none.")]


class AuditRecordView(Output, frozen=True):
    """A record of the audit log."""

    seq: Annotated[str, doc("Number of the record; increases by one.", "17")]
    time: Annotated[str, doc("When it was recorded (UTC).", "2026-11-22T12:00:00.000Z")]
    actor: Annotated[ActorView, doc("Who made the change.")]
    origin: Annotated[SettingOrigin, doc("Origin of the change.")]
    action: Annotated[str, doc("The action.", "queue.create")]
    type: Annotated[str, doc("Type of the object.", "queue")]
    object: Annotated[str, doc("Name of the object.")]
    count: Annotated[int | None, doc("Number of affected messages or other objects; null if it is one.")]
    before: Annotated[dict[str, Any] | None, doc("The values that differ, before the change.")]
    after: Annotated[dict[str, Any] | None, doc("The values that differ, after the change.")]
    result: Annotated[str, doc("`ok`, or `denied`.")]


class AuditPage(Output, frozen=True):
    """Records of the audit log."""

    records: Annotated[list[AuditRecordView], doc("Records, newest first.")]
    command: CommandText


def _document(record: AuditRecordView, found: AuditPage) -> dict[str, Any]:
    """Return the record as it is in the log."""
    return {
        "v": VERSION, "seq": record.seq, "time": record.time, "actor": msgspec.structs.asdict(record.actor),
        "from": msgspec.structs.asdict(record.origin), "action": record.action,
        "object": {"type": record.type, "name": record.object}, "count": record.count, "before": record.before,
        "after": record.after, "result": record.result,
    }  # fmt: skip


def _cells(record: AuditRecordView) -> list[Any]:
    origin = " ".join(filter(None, (record.origin.door, record.origin.peer)))
    count = "" if record.count is None else record.count
    return [record.time, record.actor.name, origin, record.action, record.object, count, record.result,
            _difference(record)]  # fmt: skip


def _difference(record: AuditRecordView) -> str:
    before, after = record.before or {}, record.after or {}
    return ", ".join(
        f"{name}: {before[name]} -> {value}" if name in before else f"{name}: {value}" for name, value in after.items()
    )


@action(
    "audit.list", http="GET /audit", administrators=True,
    pages=Pages("records", "limit", _LARGEST, "before", lambda record: record.seq),
    commands=(
        ActionCommand(
            "audit",
            {
                "limit": CountOption("--count -n", 20, "The newest (0: all)."), "action": "--action", "by": "--by",
                "object": "--object", "denied": "--denied",
            },
            Rows(
                lambda found: found.records[::-1],
                ("time", "who", "from", "action", "object", "count", "result", "change"), _cells, _document,
            ),
            help="Show who changed what, when and from where: the audit log in the data directory of a daemon.\n\n"
            "With --url, of the daemon whose HTTP API that is, for administrators of the queue manager.",
        ),
    ),
)  # fmt: skip
def list_records(site: ActionSite, given: AuditQuery) -> AuditPage:
    """Show who changed what, from where and how much: the newest matching records.

    Patterns can contain * and ?.
    """
    wanted = AuditFilter(given.action, given.object, given.by, given.denied, given.before)
    log = AuditLog(site.data_dir)
    try:
        found = list(islice(filter(wanted.fits, log.read()), given.limit or None))
    except OSError as error:
        raise ActionRefused(503, f"the audit log can't be read: {error}") from None
    return AuditPage([_record(document) for document in found], site.command)


def _record(document: Mapping[str, Any]) -> AuditRecordView:
    actor, origin, thing = document["actor"], document["from"], document["object"]
    return AuditRecordView(
        document["seq"], document["time"], ActorView(actor["name"], actor["sid"]),
        SettingOrigin(origin["door"], origin["peer"]), document["action"], thing["type"], thing["name"],
        document["count"], document["before"], document["after"], document["result"],
    )  # fmt: skip


ACTIONS: Final = (list_records,)
