"""Administration by the HTTP API of a daemon, as the user of a token, or of a password."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

from openmsmq.admin.administration.interface import (
    AlarmEventInfo,
    AlarmInfo,
    BackupInfo,
    SettingInfo,
    TokenInfo,
    UserGroupInfo,
    UserInfo,
)
from openmsmq.admin.audit import VERSION, AuditFilter
from openmsmq.admin.checked_json import Time
from openmsmq.admin.http_requests import MOST_PAGES, ApiError, ApiNotFound, HttpRequests, step
from openmsmq.model.roles import Role

_RECORDS: Final = 1000  # of the audit log, that an answer has at most
_LOOK: Final = 1.0  # seconds between looks whether a backup is made

Row = TypeVar("Row")


class _KnownAlarm(NamedTuple):
    """As it travels."""

    alarm: str
    queue: str
    since: Time
    value: int
    threshold: int
    unit: str
    sentence: str
    remedy: str


class _Event(NamedTuple):
    seq: int
    state: str
    at: Time
    alarm: _KnownAlarm


class _Alarms(NamedTuple):
    active: list[_KnownAlarm]
    events: list[_Event]


class _Actor(NamedTuple):
    name: str
    sid: str | None


class _Origin(NamedTuple):
    door: str
    peer: str | None


class _Record(NamedTuple):
    seq: str
    time: str
    actor: _Actor
    origin: _Origin
    action: str
    type: str
    object: str
    count: int | None  # type: ignore[assignment]  # in place of that of tuples
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    result: str


class _NewToken(NamedTuple):
    secret: str
    token: TokenInfo


class KnownBackup(NamedTuple):
    """A backup that was made by HTTP, or is being made: `state` is running, done, failed (with `error`) or
    unfinished; `time` is when it began."""

    name: str
    state: str
    time: str | None
    messages: int | None
    error: str | None


class PlannedStepInfo(NamedTuple):
    """`can`: an import does it; otherwise `said` says why not."""

    said: str
    can: bool


class DifferencesInfo(NamedTuple):
    """What an import would do, in this order. `token` is what it needs."""

    steps: list[PlannedStepInfo]
    token: str


class DoneStepInfo(NamedTuple):
    """`result` is done, left, or what was wrong."""

    said: str
    result: str


class _Backups(NamedTuple):
    directory: str
    backups: list[KnownBackup]
    outside: list[str]


class HttpAdministration:
    """Raises ApiError."""

    def __init__(self, requests: HttpRequests, wait: Callable[[float], object] = time.sleep) -> None:
        self._http: Final = requests
        self._wait: Final = wait

    # -- users and groups ------------------------------------------------------------------------------------------

    def users(self) -> list[UserInfo]:
        return self._list("/users", "users", UserInfo)

    def add_user(self, name: str, password: str, *, administrator: bool, role: Role) -> str:
        body = {"name": name, "password": password, "administrator": administrator, "role": role.word}
        self._http.ask("POST", "/users", body=body)
        return self._sid_of(name, self.users())

    def set_password(self, name: str, password: str) -> None:
        self._change_user(name, password=password)

    def set_role(self, name: str, role: Role) -> None:
        self._change_user(name, role=role.word)

    def set_administrator(self, name: str, administrator: bool) -> None:
        self._change_user(name, administrator=administrator)

    def remove_user(self, name: str) -> None:
        self._http.ask("DELETE", f"/users/{step(name)}")

    def groups(self) -> list[UserGroupInfo]:
        return self._list("/users", "groups", UserGroupInfo)

    def add_group(self, name: str, members: Sequence[str]) -> str:
        self._http.ask("POST", "/groups", body={"name": name, "members": list(members)})
        return self._sid_of(name, self.groups())

    def change_members(self, name: str, *, join: Sequence[str] = (), leave: Sequence[str] = ()) -> None:
        self._http.ask("PATCH", f"/groups/{step(name)}", body={"join": list(join), "leave": list(leave)})

    def remove_group(self, name: str) -> None:
        self._http.ask("DELETE", f"/groups/{step(name)}")

    def _change_user(self, name: str, **change: str | bool) -> None:
        self._http.ask("PATCH", f"/users/{step(name)}", body=change)

    def _sid_of(self, name: str, found: Sequence[UserInfo | UserGroupInfo]) -> str:
        sid = next((each.sid for each in found if each.name.casefold() == name.casefold()), None)
        if sid is None:
            raise ApiNotFound(f"{self._http.url}: {name} was added, and is not there any more")
        return sid

    # -- tokens ----------------------------------------------------------------------------------------------------

    def tokens(self) -> list[TokenInfo]:
        """Of the user, or of all users for an administrator."""
        return self._list("/tokens", "tokens", TokenInfo)

    def create_token(self, name: str, user: str, role: Role, days: int) -> tuple[str, TokenInfo]:
        """Of the user whose password this asks with; `user` is that one. A token makes no tokens."""
        made = self._http.ask("POST", "/tokens", body={"name": name, "role": role.word, "days": days})
        return tuple(self._http.value(made, _NewToken))

    def revoke_token(self, identifier: str) -> TokenInfo:
        gone = self._http.ask("DELETE", f"/tokens/{step(identifier)}")
        return cast("TokenInfo", self._http.member(gone, "token", TokenInfo))

    # -- what the daemon writes down -------------------------------------------------------------------------------

    def audit(self, wanted: AuditFilter, count: int) -> list[dict[str, Any]]:
        query = {"action": wanted.action, "object": wanted.name, "by": wanted.by}
        query |= {"denied": "true"} if wanted.denied else {}
        newest: list[_Record] = []
        before = wanted.before
        for _ in range(MOST_PAGES):
            size = min(count - len(newest), _RECORDS) if count else _RECORDS
            limits = {"limit": str(size)} | ({} if before is None else {"before": str(before)})
            page = self._list("/audit", "records", _Record, {**query, **limits})
            newest += page
            if len(page) < size or len(newest) == count:
                return [_document(record) for record in reversed(newest)]
            before = self._number(page[-1], before)
        raise ApiError(f"{self._http.url}: more than {len(newest):,} records: ask for fewer")

    def _number(self, record: _Record, before: int | None) -> int:
        """Of the last record of a page, from which the next one goes on: they fall, or there would be no end."""
        number = int(record.seq) if record.seq.isdecimal() and len(record.seq) < 20 else 0
        if number < 1 or (before is not None and number >= before):
            raise ApiError(f"{self._http.url}: the numbers of records of the audit log do not fall")
        return number

    def alarms(self) -> list[AlarmInfo]:
        return [AlarmInfo(*alarm) for alarm in self._alarms().active]

    def alarm_events(self) -> list[AlarmEventInfo]:
        return [
            AlarmEventInfo(seq, state, at, AlarmInfo(*alarm))
            for seq, state, at, alarm in reversed(self._alarms().events)
        ]

    def _alarms(self) -> _Alarms:
        return cast("_Alarms", self._http.value(self._http.ask("GET", "/alarms"), _Alarms))

    def machine_name(self) -> str:
        return str(self._http.member(self._http.ask("GET", "/overview"), "machine", str))

    def settings(self) -> list[SettingInfo]:
        return self._list("/settings", "settings", SettingInfo)

    # -- definitions -----------------------------------------------------------------------------------------------

    def definitions(self, *, local: bool) -> dict[str, Any]:
        """The document of `operating.definitions`; with users, groups, rights on the machine and settings if `local`,
        but without hashes of passwords."""
        return self._http.ask("GET", "/definitions", {"local": "true"} if local else {})

    def differences(self, document: Mapping[str, Any], *, local: bool) -> DifferencesInfo:
        """What an import of a document would do."""
        body = {"document": document, "local": local}
        return cast(
            "DifferencesInfo",
            self._http.value(self._http.ask("POST", "/definitions/dry-runs", body=body), DifferencesInfo),
        )

    def import_definitions(self, document: Mapping[str, Any], token: str, *, local: bool) -> list[DoneStepInfo]:
        """Do just what `differences`, which gave the token, has said. The results also where steps failed."""
        body = {"document": document, "local": local, "token": token}
        try:
            answer: Mapping[str, Any] = self._http.ask("POST", "/definitions", body=body)
        except ApiError as error:
            if "steps" not in error.problem:
                raise
            answer = error.problem
        done = self._http.member(answer, "steps", list[DoneStepInfo])
        return cast("list[DoneStepInfo]", done)

    # -- backup ----------------------------------------------------------------------------------------------------

    def back_up(self, target: str) -> BackupInfo:
        """`target` is the name of a new directory in `backup_directory` of the server; the time if it is empty."""
        started = self._http.ask("POST", "/backups", body={"name": target} if target else {})
        name = self._http.member(started, "name", str)
        while True:
            known = self._backups()
            where = f"{known.directory}/{name}"
            made = next((each for each in known.backups if each.name == name), None)
            if made is None or made.state not in ("running", "done"):
                said = "it is not there any more" if made is None else made.error or f"it is {made.state}"
                raise ApiError(f"{self._http.url}: the backup {where} failed: {said}")
            if made.state == "done":
                return BackupInfo(where, made.messages, None, None, None, None, known.outside)
            self._wait(_LOOK)

    def backups(self) -> list[KnownBackup]:
        """The newest first."""
        return self._backups().backups

    def _backups(self) -> _Backups:
        return cast("_Backups", self._http.value(self._http.ask("GET", "/backups"), _Backups))

    # -- lists -----------------------------------------------------------------------------------------------------

    def _list(self, path: str, name: str, kind: type[Row], query: Mapping[str, str] | None = None) -> list[Row]:
        return cast("list[Row]", self._http.member(self._http.ask("GET", path, query), name, list[kind]))  # type: ignore[valid-type]


def _document(record: _Record) -> dict[str, Any]:
    """As the log has it."""
    return {
        "v": VERSION, "seq": record.seq, "time": record.time, "actor": record.actor._asdict(),
        "from": record.origin._asdict(), "action": record.action,
        "object": {"type": record.type, "name": record.object}, "count": record.count, "before": record.before,
        "after": record.after, "result": record.result,
    }  # fmt: skip
