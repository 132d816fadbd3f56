"""Many waiting receives on one queue: each message reaches exactly one of them."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from daemon import Daemon
from openmsmq import aio

QUEUE = ".\\private$\\waited"
CONNECTIONS, EACH = 20, 5


@pytest.mark.parametrize("protocol", ["remoteread", "qm2qm", "qmcomm"])
def test_each_message_reaches_exactly_one_of_a_hundred_waiters(daemon: Daemon, protocol: str) -> None:
    async def run() -> None:
        managers = [await aio.connect("127.0.0.1", daemon.port) for _ in range(CONNECTIONS)]
        await managers[0].create_queue(QUEUE)
        queues = [await manager.open(QUEUE, protocol=protocol) for manager in managers]
        waiting = [asyncio.ensure_future(queue.receive(20)) for queue in queues for _ in range(EACH)]
        await asyncio.sleep(0)
        for manager in managers:
            await manager.machine_id()  # after the receives on its connection: they have all arrived
        async with await managers[0].open(QUEUE, "send") as sender:
            texts = [str(number) for number in range(len(waiting))]
            for text in texts[:-1]:
                await sender.send(text)
            received = Counter()
            for done in asyncio.as_completed(waiting):
                received[str((await done).decode())] += 1
                if received.total() == len(texts) - 1:  # and the last one waits until it gets its own message
                    await sender.send(texts[-1])
        assert received == Counter(texts)
        assert (await managers[0].counts(QUEUE))["message_count"] == 0
        await managers[0].delete_queue(QUEUE)
        for manager in managers:
            await manager.close()

    asyncio.run(run())
