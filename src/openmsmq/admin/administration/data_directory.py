"""Administration in the data directory of a daemon, which may run meanwhile and notices changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

from openmsmq.admin import alarms, audit, backup, data_directories, settings
from openmsmq.admin.administration.interface import (
    AlarmEventInfo,
    AlarmInfo,
    BackupInfo,
    SettingInfo,
    TokenInfo,
    UserGroupInfo,
    UserInfo,
)
from openmsmq.admin.audit import AuditFilter
from openmsmq.admin.checked_json import Time
from openmsmq.admin.tokens import ApiToken, TokensFile, read_uses
from openmsmq.model.roles import Role
from openmsmq.rpc.users import NoSuchAccount, UsersFile


class AuditRecorder(Protocol):
    """Writes into the audit log before a change is made; may raise to prevent it."""

    def __call__(
        self, action: str, kind: str, name: str, before: dict[str, Any] | None = None,
        after: dict[str, Any] | None = None, count: int | None = None,
    ) -> None: ...  # fmt: skip


@dataclass(frozen=True, slots=True)
class AdminFiles:
    """Where a daemon has its files, and the name of its machine. `others` may be outside of the data directory."""

    data_dir: Path
    users: Path
    others: tuple[Path, ...]
    machine: str


class DataDirectory:
    """Raises UsersFileError, TokensFileError, BackupError and StoreError, OSError, ValueError; NoDataDirectory for a
    directory that is none, but where the first user or group is added."""

    def __init__(self, files: AdminFiles, record: AuditRecorder) -> None:
        self._files: Final = files
        self._record: Final = record
        self._all_users: Final = UsersFile(files.users, on_change=lambda action, name: record(action, "user", name))
        self._all_tokens: Final = TokensFile(files.data_dir, on_change=self._record_token)

    @property
    def _data_dir(self) -> Path:
        """Raises NoDataDirectory."""
        return data_directories.demand(self._files.data_dir)

    @property
    def _users(self) -> UsersFile:
        """Raises NoDataDirectory where neither the file nor the data directory is there."""
        if not self._files.users.exists():
            data_directories.demand(self._files.data_dir)
        return self._all_users

    @property
    def _tokens(self) -> TokensFile:
        """Raises NoDataDirectory."""
        data_directories.demand(self._files.data_dir)
        return self._all_tokens

    # -- users and groups ------------------------------------------------------------------------------------------

    def users(self) -> list[UserInfo]:
        groups = self._users.groups()
        return [
            UserInfo(user.name, user.sid, user.administrator, user.role.word,
                 [group.name for group in groups if user.sid in group.members])
            for user in self._users.list()
        ]  # fmt: skip

    def add_user(self, name: str, password: str, *, administrator: bool, role: Role) -> str:
        self._make_directory()
        return self._all_users.add(name, password, administrator=administrator, role=role).sid

    def set_password(self, name: str, password: str) -> None:
        self._users.set_password(name, password)

    def set_role(self, name: str, role: Role) -> None:
        self._users.set_role(name, role)

    def set_administrator(self, name: str, administrator: bool) -> None:
        self._users.set_administrator(name, administrator)

    def remove_user(self, name: str) -> None:
        self._users.remove(name)

    def groups(self) -> list[UserGroupInfo]:
        names = self._users.names()
        return [
            UserGroupInfo(group.name, group.sid, sorted(names.get(sid, sid) for sid in group.members))
            for group in self._users.groups()
        ]

    def add_group(self, name: str, members: Sequence[str]) -> str:
        self._make_directory()
        return self._all_users.add_group(name, members).sid

    def change_members(self, name: str, *, join: Sequence[str] = (), leave: Sequence[str] = ()) -> None:
        self._users.change_members(name, join, leave)

    def remove_group(self, name: str) -> None:
        self._users.remove_group(name)

    def _make_directory(self) -> None:
        """For users who are there before the daemon's first start."""
        self._files.users.parent.mkdir(parents=True, exist_ok=True, mode=0o700)

    # -- tokens ----------------------------------------------------------------------------------------------------

    def tokens(self) -> list[TokenInfo]:
        uses = read_uses(self._data_dir)
        return [_token(each, uses.get(each.id)) for each in self._tokens.list()]

    def create_token(self, name: str, user: str, role: Role, days: int) -> tuple[str, TokenInfo]:
        wanted = user.casefold()
        found = next((each for each in self._users.list() if each.name.casefold() == wanted), None)
        if found is None:
            raise NoSuchAccount(f"there is no user {user} in {self._files.users}")
        secret, made = self._tokens.create(name, found.name, found.sid, role, days)
        return secret, _token(made, None)

    def revoke_token(self, identifier: str) -> TokenInfo:
        used = read_uses(self._data_dir).get(identifier)
        return _token(self._tokens.revoke(identifier), used)

    def _record_token(self, action: str, token: ApiToken) -> None:
        after = {"user": token.user, "token": token.id, "role": token.role.word, "expires": token.expires}
        self._record(action, "token", token.name, after=after)

    # -- what the daemon writes down -------------------------------------------------------------------------------

    def audit(self, wanted: AuditFilter, count: int) -> list[dict[str, Any]]:
        found = [record for record in audit.AuditLog(self._data_dir).read() if wanted.fits(record)]
        return found[-count:] if count else found

    def alarms(self) -> list[AlarmInfo]:
        active = alarms.read_alarms(self._data_dir).active.values()
        return sorted(map(_alarm, active), key=lambda alarm: (alarm.since, alarm.name, alarm.queue))

    def alarm_events(self) -> list[AlarmEventInfo]:
        events = alarms.read_alarms(self._data_dir).events
        return [AlarmEventInfo(event.seq, event.state, Time(event.at), _alarm(event.alarm)) for event in events]

    def machine_name(self) -> str:
        return self._files.machine

    def settings(self) -> list[SettingInfo]:
        found = settings.settings_in_force(self._data_dir)
        return [SettingInfo(name, entry["value"], entry["source"]) for name, entry in sorted(found.items())]

    # -- backup ----------------------------------------------------------------------------------------------------

    def back_up(self, target: str) -> BackupInfo:
        """`target` is a new directory."""
        files = self._files
        done = backup.back_up(self._data_dir, Path(target), datetime.now(UTC).isoformat(timespec="seconds"))
        self._record("backup.make", "backup", target, count=done.messages)
        inside = self._data_dir.resolve()
        outside = [str(path) for path in files.others if path.exists() and inside not in path.resolve().parents]
        return BackupInfo(target, done.messages, done.definitions, done.segments, done.bytes, done.files, outside)


def _token(token: ApiToken, used: int | None) -> TokenInfo:
    return TokenInfo(
        token.id, token.name, token.user, token.role.word, Time(token.created), Time(token.expires),
        None if used is None else Time(used),
    )  # fmt: skip


def _alarm(alarm: alarms.Alarm) -> AlarmInfo:
    return AlarmInfo(
        alarm.name, alarm.queue, Time(alarm.since), alarm.value, alarm.threshold, alarms.BY_NAME[alarm.name].unit,
        alarm.sentence, alarm.remedy,
    )  # fmt: skip
