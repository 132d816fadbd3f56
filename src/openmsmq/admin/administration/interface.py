"""What an administrator asks for beside queues, wherever it is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from openmsmq.admin.audit import AuditFilter
from openmsmq.admin.checked_json import Time
from openmsmq.model.roles import Role


class UserInfo(NamedTuple):
    """`role` bounds what the user may do by HTTP; `groups` are names."""

    name: str
    sid: str
    administrator: bool
    role: str
    groups: list[str]


class UserGroupInfo(NamedTuple):
    """`members` are names of users, or SIDs of those that are gone."""

    name: str
    sid: str
    members: list[str]


class TokenInfo(NamedTuple):
    """`used` is when it was used last, to a minute; None for never."""

    id: str
    name: str
    user: str
    role: str
    created: Time
    expires: Time
    used: Time | None


class AlarmInfo(NamedTuple):
    """One that is on. `queue` is the object's name, empty for the machine; `value` and `threshold`, in `unit`, are
    those when it was raised."""

    name: str
    queue: str
    since: Time
    value: int
    threshold: int
    unit: str
    sentence: str
    remedy: str


class AlarmEventInfo(NamedTuple):
    """An alarm was raised or cleared."""

    seq: int
    state: str
    at: Time
    alarm: AlarmInfo


class SettingInfo(NamedTuple):
    """A setting in force. `source` is default, file, environment or option."""

    name: str
    value: Any
    source: str


class BackupInfo(NamedTuple):
    """One that is made. `where` is its directory; what is not known is None; `outside` are files that are not in the
    data directory, so not in the backup."""

    where: str
    messages: int | None
    definitions: int | None
    segments: int | None
    bytes: int | None
    files: int | None
    outside: list[str]


class AdminOperations(Protocol):
    """A daemon, as its administrators see it. Each operation raises what the place where it is done raises: errors of
    the files of a data directory, or `ApiError`."""

    def users(self) -> list[UserInfo]: ...

    def add_user(self, name: str, password: str, *, administrator: bool, role: Role) -> str:
        """Returns the SID."""

    def set_password(self, name: str, password: str) -> None: ...

    def set_role(self, name: str, role: Role) -> None: ...

    def set_administrator(self, name: str, administrator: bool) -> None: ...

    def remove_user(self, name: str) -> None: ...

    def groups(self) -> list[UserGroupInfo]: ...

    def add_group(self, name: str, members: Sequence[str]) -> str:
        """Returns the SID."""

    def change_members(self, name: str, *, join: Sequence[str] = (), leave: Sequence[str] = ()) -> None: ...

    def remove_group(self, name: str) -> None: ...

    def tokens(self) -> list[TokenInfo]: ...

    def create_token(self, name: str, user: str, role: Role, days: int) -> tuple[str, TokenInfo]:
        """The secret, and the token."""

    def revoke_token(self, identifier: str) -> TokenInfo: ...

    def audit(self, wanted: AuditFilter, count: int) -> list[dict[str, Any]]:
        """The newest `count` records, all for 0; the oldest of them first."""

    def alarms(self) -> list[AlarmInfo]:
        """Those that are on, the longest first."""

    def alarm_events(self) -> list[AlarmEventInfo]:
        """The last ones, the oldest first."""

    def machine_name(self) -> str: ...

    def settings(self) -> list[SettingInfo]:
        """Those in force, by name."""

    def back_up(self, target: str) -> BackupInfo:
        """Make a backup, and wait until it is made. `target` is what the place calls it."""
