"""`async with` opens and closes; `await` only opens."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

import openmsmq
import openmsmq.aio


def test_opened_objects_are_contexts_with_and_without_await(service, qm, queue):
    async def program():
        async with openmsmq.aio.connect("127.0.0.1", service.port) as manager, manager.open(queue, "send") as opened:
            await opened.send("a")
        with pytest.raises(openmsmq.MsmqError, match="closed"):
            await manager.queues()
        manager = await openmsmq.aio.connect("127.0.0.1", service.port)
        async with manager, await manager.open(queue) as opened, opened.cursor() as cursor:
            assert (await cursor.peek(0)).decode() == "a"
        task = asyncio.create_task(openmsmq.aio.connect("127.0.0.1", service.port))
        await (await task).close()
        gathered = await asyncio.gather(*(openmsmq.aio.connect("127.0.0.1", service.port) for _ in range(2)))
        for each in gathered:
            await each.close()

    asyncio.run(program())


def test_a_transaction_is_a_context_that_commits_or_aborts(service, qm):
    qm.create_queue("spent", transactional=True)

    async def program():
        async with openmsmq.aio.connect("127.0.0.1", service.port) as manager, manager.open("spent", "send") as opened:
            async with manager.transaction() as transaction:
                await opened.send("kept", transaction=transaction)
            with suppress(KeyError):
                async with manager.transaction() as transaction:
                    await opened.send("lost", transaction=transaction)
                    raise KeyError

    asyncio.run(program())
    with qm.open("spent") as opened:
        assert [message.decode() for message in opened] == ["kept"]
    qm.delete_queue("spent")


def test_a_failed_opening_raises_before_the_block(service):
    async def program():
        async with openmsmq.aio.connect("127.0.0.1", service.port) as manager:
            with pytest.raises(openmsmq.QueueNotFound):
                async with manager.open("missing"):
                    raise AssertionError("not reached")

    asyncio.run(program())
