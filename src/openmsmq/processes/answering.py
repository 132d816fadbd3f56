"""Daemon end of the channel to a child process: each incoming frame is a request, and gets an answer."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final

from openmsmq.model.errors import HResult, MsmqError
from openmsmq.processes.channel import RequestChannel
from openmsmq.processes.framing import frame

logger = logging.getLogger(__name__)

#: Called with the values and the bytes of a request; returns the answer. An answer with bytes is a tuple of a
#: dictionary, whose `result` is the answer, and the bytes. Raises MsmqError.
Perform = Callable[[Any, bytearray], Awaitable[Any]]


class Answering:
    """Answers the requests of one connection concurrently."""

    def __init__(self, name: str, perform: Perform, describe: Callable[[Any], str]) -> None:
        """`name` is for the log; `describe` returns the values of a request as text, even if they are invalid."""
        self._name: Final = name
        self._perform: Final = perform
        self._describe: Final = describe

    async def serve(self, connection: socket.socket) -> None:
        """Answer requests until the child process closes the connection, or this task is canceled."""
        tasks: set[asyncio.Task[None]] = set()

        def receive(channel: RequestChannel, number: int, values: Any, data: bytearray) -> None:
            task = asyncio.create_task(self._answer(channel, number, values, data))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        channel = await RequestChannel.open(connection, receive, self._name)
        try:
            await channel.closed.wait()
        finally:
            channel.close()
            for task in list(tasks):
                task.cancel()

    async def _answer(self, channel: RequestChannel, number: int, values: Any, data: bytearray) -> None:
        try:
            answer = await self._perform(values, data)
            reply = frame(number, *answer) if isinstance(answer, tuple) else frame(number, {"result": answer})
        except MsmqError as error:
            reply = failure(number, error.hresult, error.detail)
        except Exception:  # a bug; without an answer the client would wait forever
            what = self._describe(values)
            logger.exception("%s: %s failed, its client got MQ_ERROR", self._name, what)
            reply = failure(number, HResult.MQ_ERROR, f"{what} failed, see the queue manager's log")
        await channel.send(reply)


def failure(number: int, hresult: int, detail: str) -> bytes:
    """Return the answer to a failed request."""
    return frame(number, {"hresult": hresult, "detail": detail})
