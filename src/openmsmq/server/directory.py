"""The directory of the daemon: creation from the settings, and periodic synchronization with it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from functools import partial

from msrpc.rpc.kerberos import check_keytab
from openmsmq.directory.active.provider import ActiveDirectory
from openmsmq.directory.active.session import LdapCredentials, LdapUnavailable, libraries
from openmsmq.directory.connection import ONLINE_PERIOD, DirectoryConnection
from openmsmq.directory.embedded import EmbeddedDirectory
from openmsmq.directory.provider import DirectoryError
from openmsmq.model.errors import KerberosUnavailable, MsmqError
from openmsmq.protocols.certificates import certificates_in, certificates_to
from openmsmq.protocols.public_queues import PublicQueues
from openmsmq.server.config import Configuration, ConfigurationError
from openmsmq.server.controllers import controllers, located
from openmsmq.store import StoreFailed

logger = logging.getLogger(__name__)


def connect_to_directory(configuration: Configuration) -> DirectoryConnection:
    """Return the configured directory; nothing is opened yet. Raises ConfigurationError if its provider is not
    available."""
    match configuration.directory_provider:
        case "none":
            return DirectoryConnection(None)
        case "active-directory":
            return DirectoryConnection(_active_directory(configuration))
    return DirectoryConnection(EmbeddedDirectory(configuration.directory_file))


def _active_directory(configuration: Configuration) -> ActiveDirectory:
    keytab, account = configuration.kerberos_keytab, configuration.account_name
    assert keytab is not None
    try:
        libraries()
        check_keytab(keytab)
    except (LdapUnavailable, KerberosUnavailable) as error:
        raise ConfigurationError(f"directory_provider: {error}") from None
    locate = located(configuration)
    assert locate is not None
    asked, catalog = controllers(locate, LdapCredentials(account, keytab))
    return ActiveDirectory(asked, account.partition("@")[0], certificates_in, certificates_to, catalog)


def identifier_drawing(configuration: Configuration, directory: DirectoryConnection) -> Callable[[], bytes]:
    """Return a function that creates the identifier (16 bytes) of a new queue manager. With Active Directory, the
    directory assigns it, because no other identifier can be registered there; the function raises DirectoryError if
    the directory does not."""
    provider = directory.provider
    if not isinstance(provider, ActiveDirectory):
        return partial(os.urandom, 16)
    return partial(_enrolled, configuration, provider)


def _enrolled(configuration: Configuration, provider: ActiveDirectory) -> bytes:
    try:
        return provider.enrol(configuration.machine_name).bytes_le
    except DirectoryError as error:  # not a ConfigurationError: a later start may succeed with the same settings
        raise DirectoryError(
            f"directory_provider: a queue manager that starts for the first time gets its identifier from Active "
            f"Directory, which did not assign one: {error}"
        ) from None


async def synchronize(public_queues: PublicQueues, period: float = ONLINE_PERIOD) -> None:
    """Register the queue manager, and apply changes in the directory every `period` seconds.

    A directory that is unavailable at the start of the daemon does not delay the start; it is tried again later.
    """
    failure = ""
    while public_queues.directory.exists:
        try:
            await public_queues.synchronize()
            failure = ""
        except StoreFailed:
            return  # the daemon ends
        except MsmqError as error:
            if str(error) != failure:
                logger.error(
                    "cannot synchronize public queues with the directory; next attempt in %g s: %s", period, error
                )
            failure = str(error)
        except Exception:  # for example a malformed directory file; known public queues remain usable
            logger.exception("cannot synchronize public queues with the directory; next attempt in %g s", period)
        await asyncio.sleep(period)
