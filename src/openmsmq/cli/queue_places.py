"""Where commands perform actions on queues: at a queue manager, or through the HTTP API of a daemon."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from openmsmq.actions.by_http import ActionsByHttp
from openmsmq.actions.queues import queue_named
from openmsmq.actions.site import OPERATOR_OF_FILES, ActionSite
from openmsmq.actions.table import Action, ActionPlan, ActionsHere, Input
from openmsmq.admin.naming import path_of
from openmsmq.cli.accounts import Accounts, accounts_options
from openmsmq.cli.connection import Address, connect, level_option, server_options
from openmsmq.cli.places import Actions
from openmsmq.cli.web_api import ApiOptions, api_options


class NamedPlace(NamedTuple):
    """A place that the options name completely."""

    actions: Callable[[], AbstractContextManager[Actions]]
    is_here: bool = True

    def demand_http(self, option: str) -> None:
        raise AssertionError(option)

    def check_daemon(self) -> None:
        pass

    def open(self, as_user: str = "", password: Callable[[], str] = str) -> AbstractContextManager[Actions]:
        return self.actions()


class AtQueueManager(ActionsHere):
    """Performs actions at a queue manager, which identifies queues by name."""

    def _named(self, given: Input) -> ActionsHere:
        name = getattr(given, "queue", None)
        if name is None:
            return ActionsHere(self.site)
        path = path_of(name)
        return ActionsHere(replace(self.site, queue={"name": path, "open": path, "kind": ""}))

    def perform(self, action: Action, given: Input) -> Any:
        return self._named(given).perform(action, given)

    def plan(self, action: Action, given: Input) -> ActionPlan[Any, Any]:
        return self._named(given).plan(action, given)


class AtDaemon(ActionsByHttp):
    """Performs actions through the HTTP API of a daemon, which identifies queues by identifier."""

    def perform(self, action: Action, given: Input) -> Any:
        return super().perform(action, self._identified(given))

    def plan(self, action: Action, given: Input) -> ActionPlan[Any, Any]:
        return super().plan(action, self._identified(given))

    def _identified(self, given: Input) -> Input:
        name = getattr(given, "queue", None)
        return given if name is None else msgspec.structs.replace(given, queue=queue_named(self.http, name).id)


def daemon_place(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `place`, a daemon, from --url, --token-file, --tls-root and --data-dir."""

    @api_options
    @functools.wraps(command)
    def wrapper(*args: Any, api: ApiOptions, **kwargs: Any) -> Any:
        @contextmanager
        def actions() -> Iterator[Actions]:
            with api.client() as client:
                yield AtDaemon(client)

        return command(*args, place=NamedPlace(actions), **kwargs)

    return wrapper


def account_place(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `place`, a data directory, from the options of `accounts`."""

    @accounts_options
    @functools.wraps(command)
    def wrapper(*args: Any, accounts: Accounts, **kwargs: Any) -> Any:
        return command(*args, place=NamedPlace(lambda: nullcontext(ActionsHere(accounts.site()))), **kwargs)

    return wrapper


def queue_manager_place(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `place`, a queue manager, from the server options and --level."""

    @server_options
    @level_option
    @functools.wraps(command)
    def wrapper(*args: Any, address: Address, level: str | None, **kwargs: Any) -> Any:
        @contextmanager
        def site() -> Iterator[Actions]:
            with connect(address, level) as qm:
                yield AtQueueManager(ActionSite(Path(), Path(), OPERATOR_OF_FILES, _nothing, manager=qm))

        return command(*args, place=NamedPlace(site), **kwargs)

    return wrapper


def queue_with_accounts_place(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `queue_manager_place` and those of `accounts`, which resolve users and groups."""

    @server_options
    @level_option
    @accounts_options
    @functools.wraps(command)
    def wrapper(*args: Any, address: Address, level: str | None, accounts: Accounts, **kwargs: Any) -> Any:
        @contextmanager
        def site() -> Iterator[Actions]:
            with connect(address, level) as qm:
                known = accounts.site(qm)
                caller = replace(known.caller, name=address.user or "")
                yield AtQueueManager(replace(known, caller=caller))

        return command(*args, place=NamedPlace(site), **kwargs)

    return wrapper


def _nothing(*given: Any, **named: Any) -> None:
    """Do nothing: the daemon records changes made through MSMQ protocols."""


OPTIONS = {
    "daemon": daemon_place, "accounts": account_place,
    "queue manager": queue_manager_place, "queue manager and accounts": queue_with_accounts_place,
}  # fmt: skip
