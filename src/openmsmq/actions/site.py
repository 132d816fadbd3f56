"""Environment of an action: the files of a daemon, a queue manager, the caller, and the audit log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from openmsmq.model.errors import HResult, MsmqError
from openmsmq.model.roles import Role, missing_administrator, missing_role

if TYPE_CHECKING:
    from openmsmq.actions.background import Jobs
    from openmsmq.actions.backup_job import BackupJob
    from openmsmq.admin.audit import AuditRecorder
    from openmsmq.admin.series import Range, Rates
    from openmsmq.client.sync import QueueManager


class AccountNames(Protocol):
    """Users and groups, as security descriptors name them."""

    def names(self) -> Mapping[str, str]:
        """Names by SID."""

    def named(self, sids: Collection[str]) -> Mapping[str, str]:
        """Names of these SIDs, also of those that `names` does not list."""

    def sid(self, who: str) -> str:
        """Raises UnknownAccount, MsmqError."""

    def sids(self, who: str | None) -> Collection[str]:
        """All that a user is in an access check, or an anonymous caller. Raises UnknownAccount, MsmqError."""


class DaemonCalls(Protocol):
    """Operations that only the running daemon can do, as the caller."""

    def queues(self) -> list[dict[str, Any]]:
        """A row for each queue that the caller may see."""

    def queue(self, identifier: str) -> dict[str, Any]:
        """The row of a queue. Raises QueueNotFound, also for one that the caller may not see."""

    def call(self, operation: str, **given: Any) -> Any:
        """The answer of an operation of `doors.console`. Raises MsmqError."""

    def change(self, operation: str, **given: Any) -> Any:
        """Do an operation that changes something, which is recorded in the audit log."""

    def lines(self, operation: str) -> bytes:
        """Do an operation that answers with lines of JSON."""

    def changed(self) -> None:
        """Rows of queues are not what they were."""

    def rates(self, span: Range) -> list[Rates]:
        """Figures over time. Raises AccessDenied."""

    def seal(self, document: Any) -> str:
        """A document as text that the server knows again."""

    def unseal(self, text: str, what: str) -> Any:
        """Raises ActionRefused for a text that is not of this server."""


ConnectManager = Callable[[], "AbstractContextManager[QueueManager]"]


@dataclass(frozen=True, slots=True)
class ActionCaller:
    """The caller. `token` is the identifier of the token used to log in, empty for none; `csrf` is the secret of a
    session with a cookie."""

    name: str
    sid: str
    administrator: bool
    role: Role
    token: str = ""
    csrf: str | None = field(default=None, repr=False)

    @property
    def administers(self) -> bool:
        """Whether actions for administrators of the queue manager are for this caller."""
        return self.administrator and self.role is Role.ADMINISTRATOR


#: A user who may write the files of a daemon.
OPERATOR_OF_FILES: Final = ActionCaller("", "", True, Role.ADMINISTRATOR)


@dataclass(frozen=True, slots=True)
class ActionSite:
    """The files of one daemon, and its queues.

    `visible` has the names of the queues that the caller may see; None for all queues. `command` is the command that
    does the same as the action under way. `manager` is the queue manager, for actions that ask it, and `queue` the one
    of its queues that the input names. `backups` are those by HTTP. `daemon` is there where its HTTP process acts; as
    are `jobs`, `connect`, which gives work in the background its own use of the queue manager, and `origin`, as audit
    records have it.
    """

    directory: Path
    users_file: Path
    caller: ActionCaller
    record: AuditRecorder = field(repr=False)
    machine: str = ""
    visible: Callable[[], Container[str]] | None = None
    command: str = ""
    manager: QueueManager = field(default=None, repr=False)  # type: ignore[assignment]
    accounts: AccountNames = field(default=None, repr=False)  # type: ignore[assignment]
    daemon: DaemonCalls | None = field(default=None, repr=False)
    backups: BackupJob = field(default=None, repr=False)  # type: ignore[assignment]
    jobs: Jobs = field(default=None, repr=False)  # type: ignore[assignment]
    connect: ConnectManager = field(default=None, repr=False)  # type: ignore[assignment]
    origin: str = ""
    queue: Mapping[str, Any] = field(default_factory=dict)

    @property
    def data_dir(self) -> Path:
        """Raises NoDataDirectory for a directory in which no daemon has started."""
        from openmsmq.admin import data_directories  # a command by HTTP does not need it

        return data_directories.demand(self.directory)

    def acting_for(self, user: str) -> ActionSite:
        """Return the site for a user of the users file. Raises UsersFileError, NoDataDirectory."""
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
            caller = self.caller
            lacks = (
                missing_role(Role.ADMINISTRATOR, caller.name, caller.role, caller.token) if caller.administrator
                else missing_administrator(caller.name)
            )  # fmt: skip
            raise MsmqError(HResult.MQ_ERROR_ACCESS_DENIED, lacks)
