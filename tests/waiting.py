"""Wait for other processes and threads."""

from __future__ import annotations

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
