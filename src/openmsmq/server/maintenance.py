"""Periodic work of the daemon, once a second: checkpoints, compaction, the throttle of a full disk, memory."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msrpc.rpc.assembly import ReassemblyBudget
from openmsmq.model.security import SecurityDescriptor
from openmsmq.queueing.manager import QueueManager
from openmsmq.server.memory import trim
from openmsmq.store import Store, StoreFailed, StoreFull
from openmsmq.store.committer import Committer

logger = logging.getLogger(__name__)

PERIOD: Final = 1.0  # seconds between runs
COMPACTION_PAUSE: Final = 0.005  # seconds between steps of compaction, so that calls are served
CHECKPOINTS_SHARE: Final = 0.05  # maximum share of event-loop time for checkpoints
# Minimum size of the log between checkpoints, relative to that of the last checkpoint. A checkpoint contains all
# messages: at a fixed distance, those of a long queue would cost more than its calls.
LOG_PER_CHECKPOINT: Final = 16
AFTER_A_BUG: Final = 60.0  # seconds until the next attempt after a failure
WORTH_RETURNING: Final = 16 << 20  # bytes of finished requests after which memory is returned, which takes milliseconds


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds in bytes: a checkpoint is written after at least that much log; messages are refused if less is free
    on the disk (0: never)."""

    checkpoint: int
    least_free: int


class Maintenance:
    """Writes checkpoints after enough new log, and compacts when garbage dominates or `tidy` is set."""

    def __init__(
        self, store: Store, manager: QueueManager, committer: Committer, machine: Callable[[], SecurityDescriptor],
        budget: ReassemblyBudget, tidy: asyncio.Event, thresholds: Thresholds, data_dir: Path, is_owner: Callable[[],
        bool],
    ) -> None:  # fmt: skip
        """`machine` reads the security descriptor of the queue manager, which commands change. `is_owner` checks
        whether the store still belongs to this daemon, and ends the daemon if not."""
        self._store, self._manager, self._committer = store, manager, committer
        self._machine, self._budget, self._tidy = machine, budget, tidy
        self._thresholds, self._data_dir, self._is_owner = thresholds, data_dir, is_owner
        self._checkpointed = store.end
        self._log_between = thresholds.checkpoint  # bytes until the next checkpoint
        self._no_checkpoint_before = self._no_work_before = 0.0  # monotonic seconds

    async def run(self) -> None:
        """Run until it is canceled, the store fails, or another daemon takes over the store."""
        while self._is_owner():
            self._throttle()
            self._return_memory()
            self._manager.authorization.machine = self._machine()
            if self._store.end != self._store.durable_end:  # nothing waits for it, but it should be durable soon
                self._committer.request()
            with suppress(TimeoutError):
                async with asyncio.timeout(PERIOD):
                    await self._tidy.wait()
            thorough = self._tidy.is_set()
            self._tidy.clear()
            if time.monotonic() < self._no_work_before:
                continue
            try:
                await self._checkpoint_if_due()
                await self._compact(thorough)
            except (OSError, StoreFull) as error:
                logger.error("checkpoint or compaction failed: %s", error)
            except StoreFailed:
                return  # already logged by the committer
            except Exception:  # a bug: disk checks and the detection of a take-over must continue
                logger.exception("checkpoint or compaction failed; next attempt in %.0f s", AFTER_A_BUG)
                self._no_work_before = time.monotonic() + AFTER_A_BUG

    def _throttle(self) -> None:
        """Refuse messages while the disk is nearly full, so that there is room for receives, commits and compaction.
        This ends when twice as much is free, so that it does not alternate frequently."""
        least = self._thresholds.least_free
        if not least:
            return
        changes, free = self._manager.changes, shutil.disk_usage(self._data_dir).free
        if not changes.throttled and free < least:
            changes.throttled = True
            logger.error(
                "%s: %d MB free, less than minimum_free_megabytes (%d): refusing messages until "
                "twice as much is free",
                self._data_dir, free >> 20, least >> 20,
            )  # fmt: skip
        elif changes.throttled and free >= 2 * least:
            changes.throttled = False
            logger.warning("%s: %d MB free: accepting messages again", self._data_dir, free >> 20)

    def _return_memory(self) -> None:
        """Return memory of large requests to the system; the C library would keep it."""
        budget = self._budget
        if budget.peak - budget.used > WORTH_RETURNING:
            budget.peak = budget.used
            trim()

    async def _checkpoint_if_due(self) -> None:
        written = self._store.end - self._checkpointed
        if written < self._log_between or time.monotonic() < self._no_checkpoint_before:
            return
        loop = asyncio.get_running_loop()
        rooms = await loop.run_in_executor(None, self._manager.rooms())
        started = time.monotonic()
        job = self._store.capture_checkpoint(self._manager.capture(rooms))
        self._checkpointed = job.position
        held = time.monotonic() - started
        self._no_checkpoint_before = started + held / CHECKPOINTS_SHARE
        size = await loop.run_in_executor(None, job.write)
        self._log_between = max(self._thresholds.checkpoint, LOG_PER_CHECKPOINT * size)
        await self._committer.drain()
        self._store.finish_checkpoint(job)
        logger.info("checkpoint written in %.2f s (event loop blocked for %.2f s)", time.monotonic() - started, held)

    async def _compact(self, thorough: bool) -> None:
        store, manager = self._store, self._manager
        while (thorough or store.wants_compaction) and store.compact_step(
            manager.is_live, manager.relocated, thorough=thorough
        ):
            await self._committer.drain()
            await asyncio.sleep(COMPACTION_PAUSE)
