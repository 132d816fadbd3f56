"""Growth of queues in the last minutes, from samples of the depths of queues that are not empty."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from openmsmq.queueing.queue import Queue

PERIOD: Final = 60.0  # seconds between two samples
MINUTES: Final = 5
_SLICE: Final = 1000  # queues per event-loop iteration


class DepthTrend:
    """Growth per queue of one queue manager, keyed by queue number; numbers are never reused."""

    def __init__(self, queues: Callable[[], Mapping[int, Queue]]) -> None:
        self._queues: Final = queues
        self._looks: Final[deque[dict[int, int]]] = deque(maxlen=MINUTES)

    def of(self, queue: Queue) -> int:
        """Return the change of the depth since `MINUTES` minutes ago or the first sample; negative if it shrank."""
        return len(queue) - self._looks[0].get(queue.number, 0) if self._looks else 0

    async def watch(self) -> None:
        """Take samples periodically until canceled."""
        while True:
            await self.sample()
            await asyncio.sleep(PERIOD)

    async def sample(self) -> None:
        """Record the current depth of all queues."""
        held: dict[int, int] = {}
        for count, queue in enumerate(list(self._queues().values()), 1):
            if queue.entries:
                held[queue.number] = len(queue)
            if count % _SLICE == 0:
                await asyncio.sleep(0)
        self._looks.append(held)
