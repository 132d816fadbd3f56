"""Opening in asyncio: `await connect(...)`, or `async with connect(...) as qm`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar


class _Context(Protocol):
    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> bool | None: ...


P = ParamSpec("P")
C = TypeVar("C", bound=_Context)


class Opening(Coroutine[Any, Any, C], Generic[C]):
    """A coroutine that returns a context manager, and the same context manager at once."""

    def __init__(self, coroutine: Coroutine[Any, Any, C]) -> None:
        self._coroutine = coroutine
        self._opened: C | None = None

    def __await__(self) -> Generator[Any, Any, C]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    async def __aenter__(self) -> C:
        self._opened = await self._coroutine
        return await self._opened.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._opened is not None, "__aenter__ has opened it"
        return await self._opened.__aexit__(kind, error, trace)


def opening_context(opens: Callable[P, Coroutine[Any, Any, C]]) -> Callable[P, Opening[C]]:
    """Decorate a coroutine function whose result is a context manager."""

    @functools.wraps(opens)
    def opening(*arguments: P.args, **named: P.kwargs) -> Opening[C]:
        return Opening(opens(*arguments, **named))

    return opening
