"""Users and groups by name, for commands that work on security descriptors: names are in the users file only."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from openmsmq.model import security
from openmsmq.operating.permissions import sid_for

if TYPE_CHECKING:
    from openmsmq.operating.guards import Guard
    from openmsmq.server.config import Configuration

_OPTIONS = (
    click.option("--config", type=click.Path(path_type=Path), help="TOML file of the daemon."),
    click.option(
        "--data-dir", type=click.Path(path_type=Path), envvar="OPENMSMQ_DATA_DIR", help="Data directory of the daemon."
    ),
    click.option(
        "--users-file", type=click.Path(path_type=Path), envvar="OPENMSMQ_USERS_FILE", help="Default: in --data-dir."
    ),
)


class Accounts:
    """The users file that the options name; read when a name is asked for."""

    def __init__(self, config: Path | None, data_dir: Path | None, users_file: Path | None) -> None:
        self._config, self._options = config, {"data_dir": data_dir, "users_file": users_file}

    @functools.cached_property
    def configuration(self) -> Configuration:
        """Raises UsageError."""
        from openmsmq.server.config import ConfigurationError, load

        try:
            return load(self._config, options=self._options)
        except ConfigurationError as error:
            raise click.UsageError(str(error)) from None

    def machine(self) -> Guard:
        """Who may do what with the queue manager; changes are recorded."""
        from openmsmq.cli.recording import LocalAudit
        from openmsmq.operating.machine_guard import MachineGuard
        from openmsmq.queueing.authorization import default_machine_security

        record = LocalAudit(self.configuration)
        name = self.configuration.machine_name
        return MachineGuard(
            self.configuration.data_dir,
            default_machine_security(),
            lambda before, after: record(
                "machine.permissions", "machine", name, {"security": before}, {"security": after}
            ),
        )

    def sid(self, who: str) -> str:
        """Raises UsageError for a name that nobody knows, UsersFileError."""
        from openmsmq.rpc.users import UsersFile

        try:
            return sid_for(who, lambda name: UsersFile(self.configuration.users_path).sid_of(name))
        except ValueError as error:
            raise click.UsageError(f"{error} ({self.configuration.users_path})") from None

    def names(self) -> Mapping[str, str]:
        """SID -> name; empty where the file can't be read: SIDs are shown then."""
        from openmsmq.rpc.users import UsersFile, UsersFileError

        try:
            return UsersFile(self.configuration.users_path).names()
        except UsersFileError:
            return {}

    def sids(self, who: str | None) -> frozenset[str]:
        """All that a caller is, as a daemon with this users file sees it; as far as is known here."""
        from openmsmq.rpc.users import UsersFile, UsersFileError

        if who is None:
            return frozenset([security.ANONYMOUS, security.EVERYONE])
        everybody = {security.EVERYONE, security.AUTHENTICATED_USERS}
        users = UsersFile(self.configuration.users_path)
        try:
            sid = sid_for(who, users.sid_of)
        except (ValueError, UsersFileError):
            return frozenset(everybody)
        administrators: Iterable[str] = [security.ADMINISTRATORS] if users.is_administrator(sid) else []
        return frozenset({sid, *everybody, *users.groups_of(sid), *administrators})


def accounts_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `accounts`, from --config, --data-dir and --users-file."""

    @functools.wraps(command)
    def wrapper(*args: Any, config: Path | None, data_dir: Path | None, users_file: Path | None, **kwargs: Any) -> Any:
        return command(*args, accounts=Accounts(config, data_dir, users_file), **kwargs)

    for option in reversed(_OPTIONS):
        wrapper = option(wrapper)
    return wrapper
