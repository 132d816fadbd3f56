"""Work that goes on beside the calls for as long as the daemon runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger(__name__)


def in_background(what: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task. Should it fail, the log says that `what` has stopped and why: nobody waits for its result."""
    task = asyncio.get_running_loop().create_task(work, name=what)
    task.add_done_callback(_note_failure)
    return task


def _note_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("%s has stopped until the daemon is started again: %s", task.get_name(), error, exc_info=error)
