"""Two queue managers on a quiet simulated network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from peering.network import Network, Node


class Pair:
    """ALPHA sends, BETA has the queues `plain`, `tx` and `other`. `run` runs a coroutine function to its end."""

    def __init__(self, seed: int = 1) -> None:
        self.network = Network(seed)
        self.alpha = Node(self.network, "ALPHA", "127.0.0.11", 1)
        self.beta = Node(self.network, "BETA", "127.0.0.12", 2)
        self.network.resolver = {node.name.lower(): node.address for node in (self.alpha, self.beta)}
        asyncio.set_event_loop(self.network.loop)
        self.run(self._start)

    async def _start(self) -> None:
        for node in (self.alpha, self.beta):
            await node.start()
            node.create("admin")
            node.create("plain")
            node.create("other")
            node.create("tx", transactional=True)
            await node.committer.drain()

    def run(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.network.loop.run_until_complete(story())


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    asyncio.set_event_loop(None)
    pair.network.loop.close()
