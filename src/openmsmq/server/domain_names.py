"""Lookup of domain accounts for the daemon: for the console, and for settings that contain names."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from msrpc.waiting import answered_within
from openmsmq.directory.active.accounts import DomainAccounts, is_account_name
from openmsmq.directory.active.session import LdapCredentials, LdapUnavailable, libraries
from openmsmq.directory.provider import DirectoryError, DirectoryNotConnected, ObjectNotFound
from openmsmq.model.errors import HResult, MsmqError
from openmsmq.server.config import Configuration, ConfigurationError
from openmsmq.server.controllers import controllers, located

logger = logging.getLogger(__name__)

T = TypeVar("T")
AT_A_TIME: Final = 2  # concurrent queries
SECONDS: Final = 10.0  # time limit of a query in seconds
AGAIN: Final = 60.0  # seconds until unresolved names are queried again


class DomainNames:
    """Queries the domain with the account of the machine, in threads. See `gateways.console.AccountLookup`."""

    def __init__(self, accounts: DomainAccounts) -> None:
        self._accounts: Final = accounts
        self._asking: Final = asyncio.Semaphore(AT_A_TIME)

    async def sid_of(self, name: str) -> str | None:
        """Return the SID of a name; None if the domain has no such account. Raises MsmqError MQ_ERROR_NO_DS,
        MQ_ERROR_DS_ERROR."""
        return await self._ask(lambda: self._accounts.sid_of(name))

    async def groups_of(self, sid: str) -> Sequence[str]:
        """Return the groups of an account; empty for an account unknown to the domain. Raises MsmqError."""
        return await self._ask(lambda: self._accounts.groups_of(sid)) or ()

    async def names_of(self, sids: Sequence[str]) -> dict[str, str]:
        """Return the known names. A failure is logged with its reason; if the domain does not answer, the other names
        are not looked up."""
        found = {}
        for sid in sids:
            try:
                name = await self._ask(partial(self._accounts.name_of, sid))
            except MsmqError as error:
                logger.warning("cannot look up names in the domain: %s", error)
                if error.hresult == HResult.MQ_ERROR_NO_DS:
                    break
                continue
            if name is not None:
                found[sid] = name
        return found

    async def _ask(self, question: Callable[[], T]) -> T | None:
        async with self._asking:
            try:
                async with answered_within(SECONDS):
                    return await asyncio.to_thread(question)
            except ObjectNotFound:
                return None
            except (TimeoutError, DirectoryNotConnected) as error:
                raise MsmqError(HResult.MQ_ERROR_NO_DS, str(error)) from None
            except DirectoryError as error:
                raise MsmqError(HResult.MQ_ERROR_DS_ERROR, str(error)) from None


def domain_names(configuration: Configuration) -> DomainNames | None:
    """Return the lookup; None if the settings name no domain, or no keytab for it. Raises ConfigurationError."""
    locate, keytab = located(configuration), configuration.kerberos_keytab
    if locate is None or keytab is None:
        return None
    try:
        libraries()
    except LdapUnavailable as error:
        raise ConfigurationError(f"directory_controllers: {error}") from None
    asked, catalog = controllers(locate, LdapCredentials(configuration.account_name, keytab))
    return DomainNames(DomainAccounts(asked, time.monotonic, catalog))


def names_of_domain(configuration: Configuration, names: Sequence[str]) -> list[str]:
    """Return the names to be looked up in the domain: those with a domain other than this machine."""
    if located(configuration) is None or configuration.kerberos_keytab is None:
        return []
    here = configuration.machine_name.casefold()
    return [name for name in names if is_account_name(name) and name.partition("\\")[0].casefold() not in ("", here)]


async def resolve(setting: str, names: Sequence[str], domain: DomainNames, found: Callable[[str], object]) -> None:
    """Call `found` with the SID of each name once it is resolved. The start of the daemon does not wait for the
    domain."""
    waiting, reported = list(names), dict.fromkeys(names, "")
    while waiting:
        for name in tuple(waiting):
            try:
                sid = await domain.sid_of(name)
                failure = "the domain does not know it"
            except MsmqError as error:
                sid, failure = None, str(error)
            if sid is not None:
                found(sid)
                waiting.remove(name)
            elif failure != reported[name]:
                logger.error("setting %s: account %s could not be resolved and is ignored until it can be: %s",
                             setting, name, failure)  # fmt: skip
                reported[name] = failure
        if waiting:
            await asyncio.sleep(AGAIN)
