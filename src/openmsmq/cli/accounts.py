"""Resolve users and groups for commands that work on security descriptors.

Names come from the users file and, if the settings name controllers, from the domain. The domain is queried with the
caller's ticket.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from openmsmq.actions.errors import UnknownAccount
from openmsmq.actions.site import OPERATOR_OF_FILES, ActionSite
from openmsmq.admin.permissions import sid_for
from openmsmq.cli.output import echo
from openmsmq.directory.active.accounts import DomainAccounts, is_account_name
from openmsmq.directory.provider import DirectoryError, DirectoryNotConnected, ObjectNotFound
from openmsmq.model import security

if TYPE_CHECKING:
    from openmsmq.client.sync import QueueManager
    from openmsmq.server.config import Configuration

_OPTIONS = (
    click.option("--config", type=click.Path(path_type=Path), help="TOML file of the daemon."),
    click.option(
        "--data-dir", type=click.Path(path_type=Path), envvar="OPENMSMQ_DATA_DIR", help="Data directory of the daemon."
    ),
    click.option(
        "--users-file",
        type=click.Path(path_type=Path),
        envvar="OPENMSMQ_USERS_FILE",
        help="Users file (default: in --data-dir).",
    ),
    click.option(
        "--directory-controllers",
        envvar="OPENMSMQ_DIRECTORY_CONTROLLERS",
        help="Domain controllers to look up users and groups, separated by commas. Requires a ticket (kinit).",
    ),
    click.option(
        "--directory-domain",
        envvar="OPENMSMQ_DIRECTORY_DOMAIN",
        help="Domain whose controllers are found through DNS; --directory-controllers takes precedence.",
    ),
)


class Accounts:
    """The users file and the domain that the options name. Each is queried only when a name has to be resolved."""

    def __init__(
        self, config: Path | None, data_dir: Path | None, users_file: Path | None,
        directory_controllers: str | None, directory_domain: str | None,
    ) -> None:  # fmt: skip
        self._config = config
        self._options = {
            "data_dir": data_dir, "users_file": users_file, "directory_controllers": directory_controllers,
            "directory_domain": directory_domain,
        }  # fmt: skip

    @functools.cached_property
    def configuration(self) -> Configuration:
        """Raises UsageError."""
        from openmsmq.server.config import ConfigurationError
        from openmsmq.server.loading import load

        try:
            return load(self._config, options=self._options)
        except ConfigurationError as error:
            raise click.UsageError(str(error)) from None

    @functools.cached_property
    def domain(self) -> DomainAccounts | None:
        """Connect to the domain; None if no controllers are set. Raises UsageError if the libraries are missing."""
        from openmsmq.directory.active.session import LdapCredentials, LdapUnavailable, libraries
        from openmsmq.server.config import ConfigurationError
        from openmsmq.server.controllers import controllers, located

        try:
            locate = located(self.configuration)
            if locate is None:
                return None
            libraries()
        except (ConfigurationError, LdapUnavailable) as error:
            raise click.UsageError(str(error)) from None
        asked, catalog = controllers(locate, LdapCredentials())
        return DomainAccounts(asked, time.monotonic, catalog)

    def _of_domain(self, who: str) -> str | None:
        """Return the SID of a name with a domain part. Return None for other names, and if no domain is configured.
        Raises UnknownAccount, UsageError.
        """
        here = self.configuration.machine_name.casefold()
        if not is_account_name(who) or who.partition("\\")[0].casefold() in ("", here) or self.domain is None:
            return None
        try:
            return self.domain.sid_of(who)
        except ObjectNotFound as error:
            raise UnknownAccount(f"the domain has no user or group {error}") from None
        except DirectoryNotConnected as error:
            raise UnknownAccount(f"{error}; get a ticket with kinit") from None
        except DirectoryError as error:
            raise UnknownAccount(str(error)) from None

    def site(self, qm: QueueManager | None = None) -> ActionSite:
        """Return where actions run: the data directory and a queue manager. Raises UsageError."""
        from openmsmq.cli.recording import LocalAudit

        known = self.configuration
        return ActionSite(
            known.data_dir, known.users_path, OPERATOR_OF_FILES, LocalAudit(known), known.machine_name,
            manager=qm, accounts=self,  # type: ignore[arg-type]
        )  # fmt: skip

    def named(self, sids: Collection[str]) -> Mapping[str, str]:
        """Return `names`, which includes those of the domain."""
        return self.names()

    def sid(self, who: str) -> str:
        """Return the SID of a user or group. Raises UnknownAccount, UsersFileError."""
        from openmsmq.accounts.users import UsersFile

        found = self._of_domain(who)
        if found is not None:
            return found
        domain = who.rpartition("\\")[0].casefold()
        if domain not in ("", self.configuration.machine_name.casefold()):
            unset = "neither directory_controllers nor directory_domain is set"
            echo(f"looking up {who} in {self.configuration.users_path}: {unset}", err=True)
        try:
            return sid_for(who, lambda name: UsersFile(self.configuration.users_path).sid_of(name))
        except ValueError as error:
            raise UnknownAccount(f"{error} ({self.configuration.users_path})") from None

    def names(self) -> Mapping[str, str]:
        """Map SIDs to names. A SID is missing if the users file cannot be read or the domain does not answer."""
        from openmsmq.accounts.users import UsersFile, UsersFileError

        try:
            local = UsersFile(self.configuration.users_path).names()
        except UsersFileError:
            local = {}
        return local if self.domain is None else _Names(local, self.domain)

    def sids(self, who: str | None) -> frozenset[str]:
        """Return the SIDs in the token of a caller, as a daemon with this users file computes them. Groups that are
        unknown here are missing.
        """
        from openmsmq.accounts.users import UsersFile, UsersFileError

        if who is None:
            return frozenset([security.ANONYMOUS, security.EVERYONE])
        everybody = {security.EVERYONE, security.AUTHENTICATED_USERS}
        users = UsersFile(self.configuration.users_path)
        found = self._of_domain(who)
        if found is not None and self.domain is not None:
            try:
                return frozenset({found, *everybody, *self.domain.groups_of(found)})
            except DirectoryError as error:
                raise click.UsageError(f"cannot read the groups of {who}: {error}") from None
        try:
            sid = sid_for(who, users.sid_of)
        except (ValueError, UsersFileError):
            return frozenset(everybody)
        administrators: Iterable[str] = [security.ADMINISTRATORS] if users.is_administrator(sid) else []
        return frozenset({sid, *everybody, *users.groups_of(sid), *administrators})


class _Names(Mapping[str, str]):
    """Names of local accounts and, looked up one by one until a query fails, of domain accounts."""

    def __init__(self, local: Mapping[str, str], domain: DomainAccounts) -> None:
        self._local, self._domain = local, domain
        self._answers = True

    def __getitem__(self, sid: str) -> str:
        if sid in self._local or not self._answers:
            return self._local[sid]
        try:
            return self._domain.name_of(sid)
        except ObjectNotFound:
            raise KeyError(sid) from None
        except DirectoryError as error:
            self._answers = not isinstance(error, DirectoryNotConnected)
            echo(f"cannot show names of domain accounts: {error}", err=True)
            raise KeyError(sid) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._local)

    def __len__(self) -> int:
        return len(self._local)


def accounts_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `accounts`, from --config, --data-dir, --users-file, --directory-controllers and
    --directory-domain."""

    @functools.wraps(command)
    def wrapper(
        *args: Any, config: Path | None, data_dir: Path | None, users_file: Path | None,
        directory_controllers: str | None, directory_domain: str | None, **kwargs: Any,
    ) -> Any:  # fmt: skip
        accounts = Accounts(config, data_dir, users_file, directory_controllers, directory_domain)
        return command(*args, accounts=accounts, **kwargs)

    for option in reversed(_OPTIONS):
        wrapper = option(wrapper)
    return wrapper
