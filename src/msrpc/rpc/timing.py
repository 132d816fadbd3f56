"""How long calls take, by interface and operation, from their last fragment until their answer was handed over.

One of about sixteen calls is timed and counts for sixteen. This has no measurable cost, and with many calls it is as
accurate. The call is drawn at random, because clients repeat sequences of calls. Calls that wait for a message are left
out: the wait depends on senders, not on this server.
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
        """The number of the next call that is timed."""
        return number + 1 + self._draw(2 * STRIDE - 1)

    def ended(self, interface: str, opnum: int, started: float) -> None:
        """A call that was timed has been answered."""
        self._observe(interface, opnum, self.clock() - started)
