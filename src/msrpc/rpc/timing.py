"""Latencies of calls by interface and operation, from the last fragment of the request until the reply is passed on.

About one in 16 calls, chosen at random, is timed and counted 16 times. Random, because clients repeat sequences of
calls. Calls that wait for a message are excluded: their time depends on senders.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

STRIDE: Final = 16  # calls between two that are timed, on average


class Timings:
    """Latencies of one server. `observe` gets name of the interface, number of the operation, and seconds, for `STRIDE`
    calls."""

    def __init__(
        self,
        observe: Callable[[str, int, float], object],
        clock: Callable[[], float],
        draw: Callable[[int], int] = random.randrange,
    ) -> None:
        self._observe: Final = observe
        self._draw: Final = draw
        self.clock: Final = clock

    def next_after(self, number: int) -> int:
        """Return the number of the next call to time."""
        return number + 1 + self._draw(2 * STRIDE - 1)

    def ended(self, interface: str, opnum: int, started: float) -> None:
        """Record the latency of a call that was timed."""
        self._observe(interface, opnum, self.clock() - started)
