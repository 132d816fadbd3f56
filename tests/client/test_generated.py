"""The blocking client is generated from the asyncio client."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from openmsmq.client import asynchronous, sync
from openmsmq.client.calls import ServerResource
from openmsmq.model.errors import InvalidHandle, TransactionSequence

TOOL = Path(__file__).parents[2] / "tools" / "sync_client.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sync_client", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_blocking_client_is_what_the_tool_makes_of_the_other(tool: ModuleType) -> None:
    assert tool.synchronous(tool.sources()) == {path.name: path.read_text() for path in tool.TARGET.glob("*.py")}


def test_a_missing_passage_is_named(tool: ModuleType) -> None:
    with pytest.raises(ValueError, match="other tasks that wait"):
        tool.synchronous(
            {name: text.replace("other tasks that wait", "tasks that wait") for name, text in tool.sources().items()}
        )


def test_no_trace_of_asyncio_is_left_in_the_blocking_client(tool: ModuleType) -> None:
    code = "".join(path.read_text() for path in tool.TARGET.glob("*.py")).replace("Generated from asynchronous/", "")
    assert [word for word in ("async", "await", "unner") if word in code] == []


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "format_name": lambda queue: queue.format_name(),
    "send": lambda queue: queue.send("body"),
    "send_many": lambda queue: queue.send_many(["body"]),
    "receive": lambda queue: queue.receive(0),
    "receive_by_lookup_id": lambda queue: queue.receive_by_lookup_id(1),
    "receive_by_correlation_id": lambda queue: queue.receive_by_correlation_id(bytes(20)),
    "receive_lock": lambda queue: queue.receive_lock(0),
    "receive_lock_by_lookup_id": lambda queue: queue.receive_lock_by_lookup_id(1),
    "peek": lambda queue: queue.peek(0),
    "peek_by_lookup_id": lambda queue: queue.peek_by_lookup_id(1),
    "cancel": lambda queue: queue.cancel(),
    "move": lambda queue: queue.move(1, "sub"),
    "reject": lambda queue: queue.reject(1),
    "purge": lambda queue: queue.purge(),
    "cursor": lambda queue: queue.cursor(),
}


async def awaited(result: Any) -> None:
    """Wait for a result of either client; enter it if it is a context manager."""
    if hasattr(result, "__await__"):
        await result
    elif hasattr(result, "__aenter__"):
        async with result:
            pass
    elif hasattr(result, "__enter__"):
        with result:
            pass


@pytest.mark.parametrize("protocol", ["qmcomm", "remoteread"])
@pytest.mark.parametrize("client", [asynchronous, sync])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_call_on_a_closed_queue_reports_that_it_is_closed_and_makes_no_call(
    client: Any, protocol: str, operation: str
) -> None:
    class Handle:
        queue = SimpleNamespace(name="q", protocol=protocol, two_phases=True)

        def close(self) -> str:
            return "close"

    class Calls:
        """Records calls."""

        def __init__(self) -> None:
            self.made: list[Any] = []

        def run(self, steps: Any) -> Any:
            self.made.append(steps)
            return asyncio.sleep(0) if client is asynchronous else None

    async def program() -> None:
        calls = Calls()
        queue = client.MessageQueue(mock.NonCallableMock(spec_set=()), calls, Handle(), False)
        await awaited(queue.close())
        await awaited(queue.close())
        with pytest.raises(InvalidHandle, match="q was closed by this program; open it again"):
            await awaited(OPERATIONS[operation](queue))
        assert calls.made == ["close"]

    asyncio.run(program())


@pytest.mark.parametrize("client", [asynchronous, sync])
def test_a_block_that_fails_aborts_its_transaction_and_raises_its_error_even_if_the_abort_fails(client: Any) -> None:
    class Calls:
        """A queue manager that has lost the transaction."""

        def __init__(self) -> None:
            self.made = 0

        def run(self, steps: Any) -> Any:
            self.made += 1
            raise TransactionSequence(detail="unknown")

    async def block(transaction: Any, error: Exception | None) -> None:
        if client is asynchronous:
            async with transaction:
                if error is not None:
                    raise error
        else:
            with transaction:
                if error is not None:
                    raise error

    async def program() -> None:
        for error, raised in ((KeyError("own"), KeyError), (None, TransactionSequence)):
            calls = Calls()
            enlisted = SimpleNamespace(uow=bytes(16))
            transaction = client.Transaction(
                SimpleNamespace(runner=calls, pool=calls), enlisted, ServerResource("transaction", "")
            )
            with pytest.raises(raised):
                await block(transaction, error)
            assert calls.made == (1 if error is not None else 2), "a failed commit is followed by an abort"
            assert transaction.finished

    asyncio.run(program())
