"""Work that continues when its waiter is canceled, and limited waits."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
from typing import Any
from uuid import UUID

import pytest

from msrpc.errors import RpcConnectionError
from msrpc.rpc.aio import connect
from msrpc.waiting import answered_within, outcome_of


@pytest.fixture
def unnoticed() -> list[dict[str, Any]]:
    """Errors that asyncio would have logged with a traceback; `run` collects them."""
    return []


def run(work: Any, unnoticed: list[dict[str, Any]]) -> None:
    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unnoticed.append(context))
        await work
        gc.collect()

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
    async def fails(late: asyncio.Event) -> None:
        await late.wait()
        raise RpcConnectionError("too late")

    async def work() -> None:
        late = asyncio.Event()
        going = asyncio.ensure_future(fails(late))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await outcome_of(going)
        assert not going.done()
        late.set()
        await asyncio.wait([going])

    run(work(), unnoticed)
    assert unnoticed == []


def test_a_bind_that_nobody_waits_for_is_not_logged_when_its_connection_ends(unnoticed: list[dict[str, Any]]) -> None:
    async def work(silent: socket.socket) -> None:
        async with await connect(*silent.getsockname()) as connection:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await connection.bind(UUID(int=1), (1, 0))
        assert connection._binding is not None
        await asyncio.wait([connection._binding])  # `connection_lost` has been called
        del connection

    with socket.create_server(("127.0.0.1", 0)) as silent:
        run(work(silent), unnoticed)
    assert unnoticed == []


def test_a_time_limit_says_that_there_was_no_answer() -> None:
    async def wait() -> None:
        async with answered_within(0.01):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match=r"^no answer within 0.01 s$"):
        asyncio.run(wait())


def test_an_error_within_a_time_limit_is_that_error() -> None:
    async def fail() -> None:
        async with answered_within(60):
            raise TimeoutError(errno.ETIMEDOUT, "of the network")

    with pytest.raises(TimeoutError, match="of the network"):
        asyncio.run(fail())
