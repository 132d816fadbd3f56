"""Wait for other processes and threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
START = 120.0  # seconds to wait at most: a machine may be ten times slower than usual


def eventually(look: Callable[[], T], seconds: float = START) -> T:
    """Return the first true result of `look`; fail if there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        answer = look()
        if answer:
            return answer
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
