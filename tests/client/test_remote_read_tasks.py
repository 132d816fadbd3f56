"""The RemoteRead client for asyncio against a running daemon: two phases, and tasks that are canceled."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

import pytest

import openmsmq
import openmsmq.aio
from client.queues import left, put
from openmsmq.model.errors import OperationCancelled

CORRELATION = bytes(range(20))


def test_the_asyncio_client_reads_in_two_phases(service, qm, queue):
    async def program():
        async with await openmsmq.aio.connect("127.0.0.1", service.port) as manager:
            async with await manager.open(queue) as opened:
                assert opened.protocol == "remoteread"
                put(qm, queue, *range(6), correlation_identifier=CORRELATION)
                assert (await opened.receive(0)).decode() == 0
                with pytest.raises(RuntimeError):  # noqa: PT012
                    async with opened.receive_lock(0) as message:
                        assert message.decode() == 1
                        raise RuntimeError
                async with opened.receive_lock(0) as message:
                    assert message.decode() == 1
                async with aclosing(opened.consume(0)) as messages:
                    async for message in messages:
                        if message.decode() == 3:
                            break
                assert left(qm, queue) == [3, 4, 5]
                identifier = (await opened.peek(0)).lookup_identifier
                assert (await opened.peek_by_lookup_id(identifier, "next")).decode() == 4
                assert (await opened.receive_by_lookup_id(identifier)).decode() == 3
                assert (await opened.receive_by_correlation_id(CORRELATION, 0)).decode() == 4
                async with await opened.cursor() as cursor:
                    assert (await cursor.peek(0)).decode() == (await cursor.receive(0)).decode() == 5
                waiting = asyncio.create_task(opened.receive())
                while not opened._handle.queue.waiting:
                    await asyncio.sleep(0)
                await opened.cancel()
                with pytest.raises(OperationCancelled):
                    await waiting
                async with await manager.transaction() as transaction:
                    with pytest.raises(openmsmq.TransactionUsage):
                        await opened.receive(0, transaction=transaction)
                assert (await opened.format_name()).lower() == f"direct=os:{queue}".lower()
                for operation in (opened.move(identifier, "sub"), opened.reject(identifier)):
                    with pytest.raises(openmsmq.MsmqError):
                        await operation

    asyncio.run(program())


@pytest.mark.parametrize("protocol", ["remoteread", "qm2qm", "qmcomm"])
def test_a_task_that_is_cancelled_at_any_moment_loses_no_message(service, qm, queue, protocol):
    """A message is present or arrives; afterwards, either the task has returned it, or it is in the queue."""

    async def program():
        returned = 0
        async with await openmsmq.aio.connect("127.0.0.1", service.port) as manager:
            reading, sending = manager.open(queue, protocol=protocol), manager.open(queue, "send")
            async with await reading as opened, await sending as sender:
                for turns in range(120):
                    await sender.send(turns)
                    receiving = asyncio.create_task(opened.receive())
                    until = time.perf_counter() + turns * 15e-6
                    while time.perf_counter() < until:
                        await asyncio.sleep(0)
                    receiving.cancel()
                    try:
                        got = await receiving
                        returned += 1
                    except asyncio.CancelledError:
                        got = await opened.receive(5)
                    assert got.decode() == turns
                    with pytest.raises(openmsmq.ReceiveTimeout):
                        await opened.peek(0)
        assert returned < 120

    asyncio.run(program())


@pytest.mark.parametrize("protocol", ["remoteread", "qm2qm", "qmcomm"])
def test_a_peek_that_is_cancelled_at_any_moment_skips_no_message(service, qm, queue, protocol):
    async def program():
        put(qm, queue, *range(60))
        async with await openmsmq.aio.connect("127.0.0.1", service.port) as manager:
            async with await manager.open(queue, "peek", protocol=protocol) as opened, opened.cursor() as cursor:
                seen = [(await cursor.peek(0)).decode()]
                for turns in range(1, 60):
                    looking = asyncio.create_task(cursor.peek_next(0))
                    until = time.perf_counter() + turns * 30e-6
                    while time.perf_counter() < until:
                        await asyncio.sleep(0)
                    looking.cancel()
                    try:
                        seen.append((await looking).decode())
                    except asyncio.CancelledError:
                        seen.append((await cursor.peek_next(0)).decode())
                assert seen == list(range(60))
                with pytest.raises(openmsmq.ReceiveTimeout):
                    await cursor.peek_next(0)

    asyncio.run(program())


@pytest.mark.parametrize("protocol", ["remoteread", "qmcomm"])
def test_a_cancelled_open_excludes_nobody(service, queue, protocol):
    """It does not break the connection either, although the interface was being bound."""

    async def program():
        for turns in range(40):
            async with await openmsmq.aio.connect("127.0.0.1", service.port) as manager:
                opening = asyncio.create_task(manager.open(queue, exclusive=True, protocol=protocol))
                until = time.perf_counter() + turns * 30e-6
                while time.perf_counter() < until:
                    await asyncio.sleep(0)
                opening.cancel()
                await asyncio.wait([opening])
                if not opening.cancelled():
                    await (await opening).close()
                deadline = time.monotonic() + 5
                while True:
                    try:
                        opened = await manager.open(queue, exclusive=True, protocol=protocol)
                        break
                    except openmsmq.SharingViolation:
                        assert time.monotonic() < deadline
                receiving = asyncio.create_task(opened.receive())
                await asyncio.sleep(0)
                receiving.cancel()
                await asyncio.wait([receiving])
                with pytest.raises(openmsmq.ReceiveTimeout):
                    await opened.receive(0)

    asyncio.run(program())


def test_cancelling_the_block_puts_the_message_back(service, qm, queue):
    async def program():
        async with await openmsmq.aio.connect("127.0.0.1", service.port) as manager:
            async with await manager.open(queue) as opened:
                put(qm, queue, "kept")
                locked = asyncio.Event()

                async def work():
                    async with opened.receive_lock():
                        locked.set()
                        await asyncio.Event().wait()

                task = asyncio.create_task(work())
                await locked.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert (await opened.receive(0)).decode() == "kept"

    asyncio.run(program())
