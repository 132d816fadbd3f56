"""Objects shared by the parts of a daemon."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from openmsmq.directory.connection import DirectoryConnection
from openmsmq.model.histogram import Histogram
from openmsmq.queueing.manager import QueueManager
from openmsmq.server.auditing import Audit
from openmsmq.server.config import Configuration
from openmsmq.server.listening import Ports
from openmsmq.server.protections import Protections
from openmsmq.store import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class DaemonContext:
    """The queue manager, and objects that exist before the first call.

    Attributes:
        qualified_name: DNS name of this machine.
        audit: the audit log; None if it is off.
        syncs: the durations of syncs of the store.
        tidy: set when an administrator requests the disk space of deleted messages.
        is_owner: returns whether the store still belongs to this daemon; otherwise the daemon ends.
        store_failed: ends the daemon.
    """

    configuration: Configuration
    store: Store
    manager: QueueManager
    directory: DirectoryConnection
    protections: Protections
    ports: Ports
    qualified_name: str
    audit: Audit | None
    syncs: Histogram
    tidy: asyncio.Event
    is_owner: Callable[[], bool]
    store_failed: Callable[[BaseException], None]


class DaemonPart(Protocol):
    """A part that runs from `start` to `stop`. `stop` is also called when `start` has failed."""

    async def start(self) -> None: ...

    async def stop(self, grace: float) -> None:
        """Stop. `grace`: seconds that requests in progress may take to end."""


class Parts:
    """The parts that were started, in this order; they stop in the reverse order."""

    def __init__(self) -> None:
        self._started: list[DaemonPart] = []

    async def start(self, part: DaemonPart) -> None:
        """Start a part. Raises the exceptions of `part.start`."""
        self._started.append(part)
        await part.start()

    async def stop(self, grace: float) -> None:
        while self._started:
            part = self._started.pop()
            try:
                await part.stop(grace)
            except OSError as error:  # for example a file system that became read-only
                logger.warning("%s did not stop cleanly: %s", type(part).__name__, error)
