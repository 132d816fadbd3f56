"""What administrators see of the daemon itself: its audit log, and its settings with where each came from."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from openmsmq.admin.audit import AuditFilter, AuditLog
from openmsmq.admin.settings import settings_in_force
from openmsmq.console.problems import Problem
from openmsmq.console.queues import Text
from openmsmq.console.table import HttpOperation, Input, Output, WebRequest

_LARGEST: Final = 1000


class AuditQuery(Input, frozen=True):
    """The newest records that fit, at most `limit` of them. `action`, `object` and `by`, which is a name or a SID, may
    have * and ?; `before` is the number of a record, and only older ones are shown."""

    action: Text = "*"
    object: Text = "*"
    by: Text = "*"
    denied: bool = False
    before: Annotated[int, msgspec.Meta(ge=1, le=(1 << 53) - 1)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=_LARGEST)] = 100


class ActorView(Output, frozen=True):
    name: str
    sid: str | None


class SettingOrigin(Output, frozen=True):
    door: str
    peer: str | None


class AuditRecordView(Output, frozen=True):
    """`seq` rises by one; `before` and `after` are the values that differ."""

    seq: str
    time: str
    actor: ActorView
    origin: SettingOrigin
    action: str
    type: str
    object: str
    count: int | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    result: str


class AuditPage(Output, frozen=True):
    """The newest first."""

    records: list[AuditRecordView]
    command: str


class SettingView(Output, frozen=True):
    """`source` is default, file, environment or option."""

    name: str
    value: Any
    source: str


class SettingList(Output, frozen=True):
    settings: list[SettingView]
    command: str


def list_records(asked: WebRequest) -> AuditPage:
    asked.services.demand_administrator(asked.caller)
    query: AuditQuery = asked.query
    wanted = AuditFilter(query.action, query.object, query.by, query.denied, query.before)
    newest: deque[AuditRecordView] = deque(maxlen=query.limit)
    try:
        for document in AuditLog(asked.services.settings.directory).read():
            if wanted.fits(document):
                newest.append(_record(document))
    except OSError as error:
        raise Problem(503, f"the audit log can't be read: {error}") from None
    return AuditPage(list(newest)[::-1], "openmsmq audit")


def _record(document: Mapping[str, Any]) -> AuditRecordView:
    actor, origin, thing = document["actor"], document["from"], document["object"]
    return AuditRecordView(
        document["seq"], document["time"], ActorView(actor["name"], actor["sid"]), SettingOrigin(origin["door"],
        origin["peer"]),
        document["action"], thing["type"], thing["name"], document["count"], document["before"], document["after"],
        document["result"],
    )  # fmt: skip


def list_settings(asked: WebRequest) -> SettingList:
    asked.services.demand_administrator(asked.caller)
    try:
        found = settings_in_force(asked.services.settings.directory)
    except OSError as error:
        raise Problem(503, str(error)) from None
    settings = [SettingView(name, entry["value"], entry["source"]) for name, entry in sorted(found.items())]
    return SettingList(settings, "openmsmq settings")


OPERATIONS: Final = (
    HttpOperation("GET", "/audit", list_records, "Who changed what", AuditPage, AuditQuery),
    HttpOperation("GET", "/settings", list_settings, "Settings in force, and where each came from", SettingList),
)
