"""The blocking client with the interface of the asyncio one: each of its calls runs in a thread of a pool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Self

import openmsmq

_WRAPPED = (openmsmq.QueueManager, openmsmq.MessageQueue, openmsmq.Cursor, openmsmq.Transaction)


async def connect(threads: Executor, *arguments: Any, **named: Any) -> Threaded:
    manager: Threaded = await _in_thread(threads, openmsmq.connect, *arguments, **named)
    return manager


class Threaded:
    """Wraps `target`; results of its methods and properties are awaited. Threads cannot be canceled: canceling the
    task leaves the call running."""

    def __init__(self, target: Any, threads: Executor) -> None:
        self.target, self._threads = target, threads

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def ask(*arguments: Any, **named: Any) -> Any:
            found = getattr(self.target, name)
            return found(*arguments, **named) if callable(found) else found

        return partial(_in_thread, self._threads, ask)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await _in_thread(self._threads, self.target.close)

    @asynccontextmanager
    async def receive_lock(self, timeout: float | None = None) -> AsyncIterator[Any]:
        block = self.target.receive_lock(timeout)
        message = await _in_thread(self._threads, block.__enter__)
        try:
            yield message
        except BaseException as error:
            if not await _in_thread(self._threads, block.__exit__, type(error), error, error.__traceback__):
                raise
        else:
            await _in_thread(self._threads, block.__exit__, None, None, None)


async def _in_thread(threads: Executor, act: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    bare = [argument.target if isinstance(argument, Threaded) else argument for argument in arguments]
    more = {name: value.target if isinstance(value, Threaded) else value for name, value in named.items()}
    result = await asyncio.get_running_loop().run_in_executor(threads, partial(act, *bare, **more))
    return Threaded(result, threads) if isinstance(result, _WRAPPED) else result
