"""Packets of the simulated network follow the specifications."""

from __future__ import annotations

import asyncio

from openmsmq.model.message import Message
from packets.checker import Kind
from packets.conversation import Watch
from peering.conftest import Pair


def test_acknowledgments_break_no_rule(pair: Pair) -> None:
    watch = pair.network.watch = Watch()

    async def story() -> None:
        name = f"DIRECT=TCP:{pair.beta.address}\\private$\\tx"
        assert await pair.alpha.send(name, [Message(label="one")], transactional=True)
        while any(len(queue) for queue in pair.alpha.manager.registry.outgoing.values()):
            await asyncio.sleep(1)

    pair.run(story)
    watch.hold()
    assert watch.seen[Kind.ORDER_ACK] == 1
