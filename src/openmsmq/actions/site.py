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
    """Users and groups in security descriptors."""

    def names(self) -> Mapping[str, str]:
        """Return all known names: SID -> name."""

    def named(self, sids: Collection[str]) -> Mapping[str, str]:
        """Return the names of these SIDs, including those that `names` does not list."""

    def sid(self, who: str) -> str:
        """Return the SID of a user or group. Raises UnknownAccount, MsmqError."""

    def sids(self, who: str | None) -> Collection[str]:
        """Return all SIDs of a user, or of an anonymous caller (None), in an access check. Raises UnknownAccount,
        MsmqError."""


class DaemonCalls(Protocol):
    """Operations that only the running daemon can do, as the caller."""

    def queues(self, *, newest: bool = False) -> list[dict[str, Any]]:
        """Return a row for each queue that the caller may see. They may be some seconds old if there are very many;
        with `newest`, they are at most a second old."""

    def queue(self, identifier: str) -> dict[str, Any]:
        """Return the row of a queue. Raises QueueNotFound, also if the caller may not see the queue."""

    def call(self, operation: str, **given: Any) -> Any:
        """Call an operation of `gateways.console` and return its result. Raises MsmqError."""

    def change(self, operation: str, **given: Any) -> Any:
        """Call an operation that makes a change, which is recorded in the audit log."""

    def lines(self, operation: str) -> bytes:
        """Call an operation that returns lines of JSON."""

    def changed(self) -> None:
        """Drop cached rows of queues, because they have changed."""

    def rates(self, span: Range) -> list[Rates]:
        """Return figures over time. Raises AccessDenied."""

    def seal(self, document: Any) -> str:
        """Convert a document to text that the server can verify later."""

    def unseal(self, text: str, what: str) -> Any:
        """Return a sealed document. Raises ActionRefused if this server did not seal it."""


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
        """Whether the caller may perform actions for administrators of the queue manager."""
        return self.administrator and self.role is Role.ADMINISTRATOR


#: The caller of commands that write the files of a daemon.
OPERATOR_OF_FILES: Final = ActionCaller("", "", True, Role.ADMINISTRATOR)


@dataclass(frozen=True, slots=True)
class ActionSite:
    """The files of one daemon, and its queues.

    `visible` returns the names of the queues that the caller may see; None for all queues. `command` is the command
    equivalent to the current action. `manager` is the queue manager, for actions that call it, and `queue` the queue
    that the input names. `backups` are those made through HTTP. Only in the HTTP process, the following are set:
    `daemon`, `jobs`, `connect` (which gives background work its own client of the queue manager), and `origin` for
    audit records.
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
        """The data directory. Raises NoDataDirectory if no daemon has been started with it."""
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
        """Check that the caller administers the queue manager. Raises MsmqError."""
        if not self.caller.administers:
            caller = self.caller
            lacks = (
                missing_role(Role.ADMINISTRATOR, caller.name, caller.role, caller.token) if caller.administrator
                else missing_administrator(caller.name)
            )  # fmt: skip
            raise MsmqError(HResult.MQ_ERROR_ACCESS_DENIED, lacks)
