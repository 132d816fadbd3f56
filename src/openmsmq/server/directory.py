"""The daemon's directory: which one, and keeping in step with it."""

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
    """The one that is configured; nothing is opened yet. Raises ConfigurationError for one that is not available."""
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
    """Return a function that gives a new queue manager its identifier, 16 bytes: Active Directory, if configured,
    because no other can be registered there."""
    provider = directory.provider
    if not isinstance(provider, ActiveDirectory):
        return partial(os.urandom, 16)
    return partial(_enrolled, configuration, provider)


def _enrolled(configuration: Configuration, provider: ActiveDirectory) -> bytes:
    try:
        return provider.enrol(configuration.machine_name).bytes_le
    except DirectoryError as error:
        raise ConfigurationError(
            f"directory_provider: a queue manager that starts for the first time gets its identifier from Active "
            f"Directory, which gives none: {error}"
        ) from None


async def keep_in_step(public_queues: PublicQueues, period: float = ONLINE_PERIOD) -> None:
    """Register the queue manager, and follow what others change in the directory, every `period` seconds.

    A directory that is unavailable when the daemon starts does not delay the start: it is tried again.
    """
    failing = False
    while public_queues.directory.exists:
        try:
            await public_queues.synchronize()
            failing = False
        except StoreFailed:
            return  # the daemon ends
        except MsmqError as error:
            if not failing:
                logger.error("public queues are not in step with the directory, retrying every %g s: %s", period, error)
            failing = True
        except Exception:  # of a file that is not what this program writes; what is here stays usable
            logger.exception("public queues are not in step with the directory, retrying every %g s", period)
        await asyncio.sleep(period)
