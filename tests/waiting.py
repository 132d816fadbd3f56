"""Wait for other processes, threads and tasks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
START = 120.0  # seconds to wait at most: a machine may be ten times slower than usual
_SHORTEST, _LONGEST = 0.02, 0.25  # seconds between two looks


def eventually(look: Callable[[], T], seconds: float = START) -> T:
    """Return the first true result of `look`; fail if there is none in time. The longer the wait, the longer are the
    pauses: what is looked at needs the processor, too."""
    deadline, pause = time.monotonic() + seconds, _SHORTEST
    while True:
        answer = look()
        if answer:
            return answer
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(pause)
        pause = min(1.3 * pause, _LONGEST)


async def until(look: Callable[[], object], seconds: float = START) -> None:
    """Let other tasks run until `look` returns true; fail if it does not in time."""
    deadline, pause = time.monotonic() + seconds, 0.0  # at first, tasks that are ready run without a pause
    while not look():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(pause)
        pause = min(pause + 0.001, _LONGEST)
