"""What an action works with: the files of a daemon, who asks, and the audit log."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.roles import Role

if TYPE_CHECKING:
    from openmsmq.admin.audit import AuditRecorder


@dataclass(frozen=True, slots=True)
class ActionCaller:
    """Who asks. `token` is the identifier of the token by which they log in, empty for none."""

    name: str
    sid: str
    administrator: bool
    role: Role
    token: str = ""

    @property
    def administers(self) -> bool:
        """Whether actions for administrators of the queue manager are for this caller."""
        return self.administrator and self.role is Role.ADMINISTRATOR


#: Whoever may write the files of a daemon.
OPERATOR_OF_FILES: Final = ActionCaller("", "", True, Role.ADMINISTRATOR)


@dataclass(frozen=True, slots=True)
class ActionSite:
    """The files of one daemon. `visible` has the names of the queues that the caller may see; None for all queues.
    `command` is the command that does the same as the action under way."""

    directory: Path
    users_file: Path
    caller: ActionCaller
    record: AuditRecorder = field(repr=False)
    machine: str = ""
    visible: Callable[[], Container[str]] | None = None
    command: str = ""

    @property
    def data_dir(self) -> Path:
        """Raises NoDataDirectory for a directory in which no daemon has started."""
        from openmsmq.admin import data_directories  # a command by HTTP does not need it

        return data_directories.demand(self.directory)

    def acting_for(self, user: str) -> ActionSite:
        """The same for a user of the users file. Raises UsersFileError, NoDataDirectory."""
        from openmsmq.accounts.users import NoSuchAccount, UsersFile
        from openmsmq.admin import data_directories

        if not self.users_file.exists():
            data_directories.demand(self.directory)
        wanted = user.casefold()
        found = next((each for each in UsersFile(self.users_file).list() if each.name.casefold() == wanted), None)
        if found is None:
            raise NoSuchAccount(f"there is no user {user} in {self.users_file}")
        return replace(self, caller=replace(self.caller, name=found.name, sid=found.sid))

    def demand_administrator(self) -> None:
        """Raises MsmqError unless the caller administers the queue manager."""
        if not self.caller.administers:
            raise MsmqError(HResult.MQ_ERROR_ACCESS_DENIED, "this is for administrators of the queue manager")
