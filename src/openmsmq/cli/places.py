"""Where administration commands act: in the data directory of a daemon, or through its HTTP API."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import click
from click.core import ParameterSource

from openmsmq.actions.table import Action, ActionPlan, ActionsHere, Input
from openmsmq.cli.asking import ask_password
from openmsmq.cli.output import echo
from openmsmq.cli.web_api import ApiOptions

if TYPE_CHECKING:
    from openmsmq.actions.site import ActionSite
    from openmsmq.server.config import Configuration

_path = click.Path(path_type=Path)
_FILE_OPTIONS = (
    click.option("--config", type=_path, help="TOML file of the daemon."),
    click.option("--data-dir", type=_path, envvar="OPENMSMQ_DATA_DIR", help="Data directory of the daemon."),
    click.option("--users-file", type=_path, envvar="OPENMSMQ_USERS_FILE", help="Users file (default: in --data-dir)."),
)
_HTTP_OPTIONS = (
    click.option(
        "--url", envvar="OPENMSMQ_URL", help="URL of a daemon's HTTP API, local or remote; replaces local files."
    ),
    click.option(
        "--token-file", type=_path, envvar="OPENMSMQ_TOKEN_FILE",
        help="With --url: file with a token of the HTTP API (default: the token in OPENMSMQ_TOKEN).",
    ),
    click.option(
        "--tls-root", envvar="OPENMSMQ_TLS_ROOT",
        help="With --url: PEM file of certificates to trust; default: those of the system.",
    ),
)  # fmt: skip
_FILES, _ANSWERS = ("config", "data_dir", "users_file"), ("url", "token_file", "tls_root")


class Actions(Protocol):
    """Performs actions, in local files or through HTTP."""

    def perform(self, action: Action, given: Input) -> Any:
        """Return the output of an action. Raises what the action raises, ApiError."""

    def plan(self, action: Action, given: Input) -> ActionPlan[Any, Any]:
        """Plan an action in the same place."""


class Place(Protocol):
    """Where a command performs actions."""

    @property
    def is_here(self) -> bool: ...

    def demand_http(self, option: str) -> None: ...

    def check_daemon(self) -> None: ...

    def open(self, as_user: str = "", password: Callable[[], str] = str) -> AbstractContextManager[Actions]: ...


class AdminTarget(NamedTuple):
    """A target given by options: the HTTP API if there is a URL, otherwise a data directory of this machine."""

    config: Path | None
    data_dir: Path | None
    users_file: Path | None
    url: str | None
    token_file: Path | None
    tls_root: str | None

    @property
    def is_here(self) -> bool:
        """Return whether this is a data directory."""
        return self.url is None

    def demand_http(self, option: str) -> None:
        """Raise UsageError for an option that a data directory alone cannot serve."""
        if self.is_here:
            raise click.UsageError(f"{option} requires the HTTP API: give --url")

    @contextmanager
    def open(self, as_user: str = "", password: Callable[[], str] = str) -> Iterator[Actions]:
        """Return a performer of actions. With `as_user`, it acts as that user, who logs in to the HTTP API with
        `password`. Raises UsageError if options are missing, NoSuchAccount.
        """
        if self.is_here:
            yield ActionsHere(self._site(as_user))
            return
        from openmsmq.actions.by_http import ActionsByHttp
        from openmsmq.admin.http_requests import by_password

        api = ApiOptions(self.url, self.token_file, self.tls_root, Path())
        with api.client_as(by_password(as_user, password())) if as_user else api.client() as client:
            yield ActionsByHttp(client)

    def check_daemon(self) -> None:
        """Raise UsageError if a new data directory would be created while a running daemon uses another one."""
        data_dir = self.configuration().data_dir
        from openmsmq.admin.data_directories import is_started
        from openmsmq.cli.connection import answering_port

        if is_started(data_dir) or (port := answering_port()) is None:
            return
        problem = f"no daemon has started with {data_dir}, and the one that answers on port {port} reads other files"
        if self.config is None and self.data_dir is None and self.users_file is None:
            raise click.UsageError(f"{problem}: --data-dir or OPENMSMQ_DATA_DIR names its data directory")
        echo(f"{problem}: it will not know what is added here", err=True)

    def _site(self, as_user: str) -> ActionSite:
        """Raises NoSuchAccount."""
        from openmsmq.actions.site import OPERATOR_OF_FILES, ActionSite
        from openmsmq.cli.recording import LocalAudit

        known = self.configuration()
        site = ActionSite(known.data_dir, known.users_path, OPERATOR_OF_FILES, LocalAudit(known), known.machine_name)
        return site.acting_for(as_user) if as_user else site

    def configuration(self) -> Configuration:
        """Configuration of a local daemon. Raises UsageError."""
        from openmsmq.server.config import ConfigurationError
        from openmsmq.server.loading import load

        try:
            return load(self.config, options={"data_dir": self.data_dir, "users_file": self.users_file})
        except ConfigurationError as error:
            raise click.UsageError(str(error)) from None


def place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `place`, from --url, --token-file and --tls-root, or --config, --data-dir and --users-file."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        given = {name: _given(name, kwargs.pop(name)) for name in AdminTarget._fields}
        return command(*args, place=_place(given, _FILES), **kwargs)

    return _with_options(wrapper, (*_FILE_OPTIONS, *_HTTP_OPTIONS))


def http_options(*others: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command `place`, from --url, --token-file and --tls-root only. `others` are the parameters of the
    connection that is used if there is no URL.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            given = {name: _given(name, kwargs.pop(name) if name in _ANSWERS else None) for name in AdminTarget._fields}
            given |= {name: _given(name, None) for name in others}
            place = _place(given, others)._replace(config=None, data_dir=None, users_file=None)
            return command(*args, place=place, **kwargs)

        return _with_options(wrapper, _HTTP_OPTIONS)

    return decorate


def place_of_group(group: Callable[..., Any]) -> Callable[..., Any]:
    """Accept these options also before the name of a command in a group, for commands that have them."""

    @functools.wraps(group)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return group(*args, **{name: value for name, value in kwargs.items() if name not in AdminTarget._fields})

    return _with_options(wrapper, (*_FILE_OPTIONS, *_HTTP_OPTIONS))


def _with_options(command: Callable[..., Any], options: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


class _Given(NamedTuple):
    value: Any
    typed: bool  # and neither a default nor from the environment


def _given(name: str, value: Any) -> _Given:
    context: click.Context | None = click.get_current_context()
    while context is not None:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            return _Given(context.params[name], True)
        context = context.parent
    return _Given(value, False)


def _place(given: Mapping[str, _Given], others: Sequence[str]) -> AdminTarget:
    """Decide between a URL and the other way: a typed option of the other way overrides a URL from the environment.
    Raises UsageError if both are typed, and for options that require a URL if there is none.
    """
    here, there = (
        ["--" + name.replace("_", "-") for name in names if given[name].typed] for names in (others, _ANSWERS)
    )
    url = given["url"].value
    if here and there:
        raise click.UsageError(f"{here[0]} cannot be combined with {there[0]}, which selects the HTTP API")
    if there and url is None:
        raise click.UsageError(f"{there[0]} requires --url")
    values = {name: given[name].value for name in AdminTarget._fields}
    return AdminTarget(**{**values, "url": None if here else url})


def new_password(from_stdin: bool, prompt: str = "Password", *, confirm: bool = True) -> str:
    """Return a password from the first line of standard input, or the prompt; never from an argument, which other users
    can read.
    """
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    return ask_password(prompt, "give --password-stdin", twice=confirm)


password_stdin_option = click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
