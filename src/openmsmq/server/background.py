"""Background tasks that run as long as the daemon."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from msrpc.waiting import outcome_of

logger = logging.getLogger(__name__)

T = TypeVar("T")


def start_background_task(what: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Start a task. If it fails, an error with `what` and the reason is logged, because nothing awaits its result."""
    task = asyncio.get_running_loop().create_task(work, name=what)
    task.add_done_callback(_note_failure)
    return task


async def completed(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """Return the result of `work`. A cancellation is delayed until it has ended, at most by `seconds`."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        return await outcome_of(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=seconds)
        task.cancel()
        raise


def _note_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("%s has stopped until the daemon is restarted: %s", task.get_name(), error, exc_info=error)


class BackgroundWork:
    """Several background tasks; see `DaemonPart`."""

    def __init__(self, work: Mapping[str, Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Take the tasks by their names in the log."""
        self._work: Final = work
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._tasks = [start_background_task(what, work()) for what, work in self._work.items()]

    async def stop(self, grace: float) -> None:
        for task in self._tasks:
            task.cancel()
