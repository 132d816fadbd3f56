"""Work that continues when its waiter is canceled."""

from __future__ import annotations

import asyncio
import gc
import socket
from typing import Any
from uuid import UUID

import pytest

from msrpc.errors import RpcConnectionError
from msrpc.rpc.aio import connect
from msrpc.waiting import outcome_of


@pytest.fixture
def unnoticed() -> list[dict[str, Any]]:
    """What `run` found that asyncio would have logged with a traceback."""
    return []


def run(work: Any, unnoticed: list[dict[str, Any]]) -> None:
    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unnoticed.append(context))
        await work
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(watched())


def test_every_waiter_gets_the_outcome(unnoticed: list[dict[str, Any]]) -> None:
    async def work() -> None:
        good, bad = asyncio.get_running_loop().create_future(), asyncio.get_running_loop().create_future()
        good.set_result(7)
        bad.set_exception(ValueError("wrong"))
        assert await asyncio.gather(outcome_of(good), outcome_of(good)) == [7, 7]
        found = await asyncio.gather(outcome_of(bad), outcome_of(bad), return_exceptions=True)
        assert [str(error) for error in found] == ["wrong", "wrong"]

    run(work(), unnoticed)
    assert unnoticed == []


def test_work_continues_and_may_fail_without_its_waiter(unnoticed: list[dict[str, Any]]) -> None:
    async def fails() -> None:
        await asyncio.sleep(0.01)
        raise RpcConnectionError("too late")

    async def work() -> None:
        going = asyncio.ensure_future(fails())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await outcome_of(going)
        assert not going.done()
        await asyncio.wait([going])

    run(work(), unnoticed)
    assert unnoticed == []


def test_a_bind_that_nobody_waits_for_is_not_logged_when_its_connection_ends(unnoticed: list[dict[str, Any]]) -> None:
    async def work(silent: socket.socket) -> None:
        async with await connect(*silent.getsockname()) as connection:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await connection.bind(UUID(int=1), (1, 0))
        await asyncio.sleep(0.01)
        del connection

    with socket.create_server(("127.0.0.1", 0)) as silent:
        run(work(silent), unnoticed)
    assert unnoticed == []
