"""Requests to a directory that is slow or unavailable, or refuses them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from openmsmq.directory.connection import DirectoryConnection
from openmsmq.directory.provider import (
    DirectoryDenied,
    DirectoryError,
    DirectoryNotConnected,
    ObjectExists,
    ObjectNotFound,
)
from openmsmq.model.errors import (
    AccessDenied,
    HResult,
    IllegalPropertyValue,
    IllegalQueuePathName,
    MsmqError,
    QueueExists,
    QueueNotFound,
)


class Provider:
    """A provider that returns or raises `answer`."""

    def __init__(self, answer: Any = "answer", seconds: float = 0.0) -> None:
        self.answer, self.seconds, self.asked = answer, seconds, 0

    async def machines(self) -> Any:
        self.asked += 1
        await asyncio.sleep(self.seconds)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    async def close(self) -> None:
        """Do nothing."""


def connected(provider: Provider | None, time_limit: float = 10.0) -> DirectoryConnection:
    return DirectoryConnection(provider, time_limit)  # type: ignore[arg-type]


def question(d: Any) -> Any:
    return d.machines()


def failure(provider: Provider | None, **more: Any) -> MsmqError:
    with pytest.raises(MsmqError) as caught:
        asyncio.run(connected(provider).ask(question, **more))
    return caught.value


def test_without_a_directory_there_is_no_answer() -> None:
    assert failure(None).hresult == HResult.MQ_ERROR_NO_DS
    assert not connected(None).exists


@pytest.mark.parametrize(
    ("error", "kind", "hresult"),
    [
        (DirectoryNotConnected("down"), MsmqError, HResult.MQ_ERROR_NO_DS),
        (ObjectNotFound("queue"), QueueNotFound, HResult.MQ_ERROR_QUEUE_NOT_FOUND),
        (ObjectExists("queue"), QueueExists, HResult.MQ_ERROR_QUEUE_EXISTS),
        (DirectoryDenied("queue"), AccessDenied, HResult.MQ_ERROR_ACCESS_DENIED),
        (DirectoryError("odd"), MsmqError, HResult.MQ_ERROR_DS_ERROR),
        (OverflowError("large"), IllegalPropertyValue, HResult.MQ_ERROR_ILLEGAL_PROPERTY_VALUE),
        (ValueError("no UTF-8"), MsmqError, HResult.MQ_ERROR_DS_ERROR),
        (IllegalQueuePathName(detail="long"), IllegalQueuePathName, HResult.MQ_ERROR_ILLEGAL_QUEUE_PATHNAME),
    ],
)
def test_failures_are_those_that_callers_get(error: Exception, kind: type[MsmqError], hresult: HResult) -> None:
    found = failure(Provider(error))
    assert isinstance(found, kind)
    assert found.hresult == hresult


def test_what_is_not_found_has_the_error_of_its_kind() -> None:
    found = failure(Provider(ObjectNotFound("machine")), not_found=HResult.MQ_ERROR_MACHINE_NOT_FOUND)
    assert found.hresult == HResult.MQ_ERROR_MACHINE_NOT_FOUND


def test_an_unavailable_directory_is_not_queried_until_it_returns() -> None:
    async def work() -> None:
        provider = Provider(DirectoryNotConnected("down"))
        connection = connected(provider)
        for _ in range(3):
            with pytest.raises(MsmqError):
                await connection.ask(question)
        assert connection.offline
        assert provider.asked == 1
        provider.answer = "back"
        assert await connection.ask(question, force=True) == "back"
        assert await connection.ask(question) == "back"
        assert not connection.offline

    asyncio.run(work())


def test_a_directory_that_refuses_is_available() -> None:
    async def work() -> None:
        provider = Provider(DirectoryNotConnected("down"))
        connection = connected(provider)
        for error in (DirectoryNotConnected("down"), DirectoryDenied("no")):
            provider.answer = error
            with pytest.raises(MsmqError):
                await connection.ask(question, force=True)
        provider.answer = "answer"
        assert await connection.ask(question) == "answer"

    asyncio.run(work())


def test_a_slow_directory_times_out_and_other_calls_continue() -> None:
    async def work() -> None:
        connection = connected(Provider(seconds=60), time_limit=0.1)
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        with pytest.raises(MsmqError) as caught:
            await connection.ask(question)
        task.cancel()
        assert caught.value.hresult == HResult.MQ_ERROR_NO_RESPONSE_FROM_OBJECT_SERVER
        assert connection.offline
        assert turns > 50

    asyncio.run(work())


def test_a_value_that_no_directory_can_keep_is_refused() -> None:
    def surrogate(d: Any) -> Any:
        "\ud800".encode()

    async def ask(work: Callable[[Any], Any]) -> None:
        await connected(Provider()).ask(work)

    with pytest.raises(IllegalPropertyValue):
        asyncio.run(ask(surrogate))
