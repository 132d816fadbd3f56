"""The daemon's directory: which one, and keeping in step with it."""

from __future__ import annotations

import asyncio
import logging

from openmsmq.directory.connection import ONLINE_PERIOD, DirectoryConnection
from openmsmq.directory.embedded import EmbeddedDirectory
from openmsmq.model.errors import MsmqError
from openmsmq.protocols.public_queues import PublicQueues
from openmsmq.server.config import Configuration
from openmsmq.store import StoreFailed

logger = logging.getLogger(__name__)


def connect_to_directory(configuration: Configuration) -> DirectoryConnection:
    """The one that is configured; nothing is opened yet."""
    if configuration.directory_provider == "none":
        return DirectoryConnection(None)
    return DirectoryConnection(EmbeddedDirectory(configuration.directory_file))


async def keep_in_step(public_queues: PublicQueues, period: float = ONLINE_PERIOD) -> None:
    """Register the queue manager, and follow what others change in the directory, every `period` seconds.

    A directory that is away when the daemon starts holds nothing up: it is tried again.
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
