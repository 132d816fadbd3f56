"""The client for asyncio: the names of `openmsmq`, with `await`. All calls share one connection.

A cancelled receive is cancelled on the server too. One that the server had answered already is lost with its message;
receive in a transaction where that matters.
"""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any, Self

from openmsmq.client import operations as o
from openmsmq.client.sync import ALL_SECURITY, COUNTS, STANDARD_PORT, as_message, fault_error
from openmsmq.model.bodies import BodyValue
from openmsmq.model.constants import Access, Action
from openmsmq.model.errors import MsmqError, ReceiveTimeout
from openmsmq.model.message import Message, identifier_text
from openmsmq.rpc import aio as rpc
from openmsmq.rpc.credentials import Credentials
from openmsmq.rpc.errors import RpcConnectionError, RpcFault
from openmsmq.rpc.pdu import AuthLevel


class _Runner:
    def __init__(self, connection: rpc.AsyncConnection) -> None:
        self.connection = connection

    async def run(self, steps: o.Steps[o.T]) -> o.T:
        try:
            call = next(steps)
            while True:
                call = steps.send(await self._call(call))
        except StopIteration as stop:
            value: o.T = stop.value
            return value

    async def _call(self, call: o.Call) -> Any:
        syntax = await self.connection.bind(call.interface.uuid, call.interface.version)
        stub = call.operation.encode_request(call.request)
        try:
            answer = await self.connection.call(call.operation.opnum, stub, interface=syntax)
        except RpcFault as fault:
            raise fault_error(fault, call.operation.name) from fault
        return call.operation.decode_response(answer)


async def connect(
    host: str = "localhost",
    port: int | None = None,
    *,
    port_offset: int = 0,
    user: str | None = None,
    password: str = "",
    domain: str = "",
    level: AuthLevel | None = None,
    spnego: bool = False,
    timeout: float = 10.0,
) -> QueueManager:
    """Connect to a queue manager; see `openmsmq.connect`."""
    credentials = Credentials(user, password, domain) if user is not None else None
    connection = await rpc.connect(
        host,
        port if port is not None else STANDARD_PORT + port_offset,
        credentials=credentials,
        level=level,
        spnego=spnego,
        timeout=timeout,
    )
    manager = QueueManager(_Runner(connection))
    try:
        await manager.machine_id()
    except BaseException:
        await manager.close()
        raise
    return manager


class _Closing(ABC):
    @abstractmethod
    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class QueueManager(_Closing):
    """A connection to a queue manager; see `openmsmq.QueueManager` for what each method does and raises."""

    def __init__(self, runner: _Runner) -> None:
        self._runner = runner
        self._licence = os.urandom(16)
        self._client = socket.gethostname()

    async def close(self) -> None:
        self._runner.connection.close()

    async def machine_id(self) -> str:
        return await self._runner.run(o.query(4))

    async def version(self) -> str:
        return await self._runner.run(o.query(3))

    async def create_queue(self, path_name: str, *, security: bytes | None = None, **properties: Any) -> str:
        return await self._runner.run(o.create_queue(path_name, properties, security))

    async def delete_queue(self, name: str) -> None:
        await self._runner.run(o.delete_queue(name))

    async def properties(self, name: str, *wanted: str) -> dict[str, Any]:
        return await self._runner.run(o.get_properties(name, wanted or tuple(o.PROPERTIES)))

    async def set_properties(self, name: str, **properties: Any) -> None:
        await self._runner.run(o.set_properties(name, properties))

    async def security(self, name: str, information: int = ALL_SECURITY) -> bytes:
        return await self._runner.run(o.get_security(name, information))

    async def set_security(self, name: str, descriptor: bytes, information: int) -> None:
        await self._runner.run(o.set_security(name, information, descriptor))

    async def format_name(self, path_name: str) -> str:
        return await self._runner.run(o.resolve(path_name))

    async def queues(self) -> list[str]:
        names: list[str] = (await self._runner.run(o.management(None, "private_queues")))["private_queues"]
        return names

    async def counts(self, name: str) -> dict[str, int]:
        return await self._runner.run(o.management(name, *COUNTS))

    async def management(self, name: str | None = None) -> dict[str, Any]:
        return await self._runner.run(o.management(name))

    async def outgoing(self) -> list[dict[str, Any]]:
        return await self._runner.run(o.outgoing())

    async def pause(self, name: str) -> None:
        await self._runner.run(o.act(name, "PAUSE"))

    async def resume(self, name: str) -> None:
        await self._runner.run(o.act(name, "RESUME"))

    async def connect_machine(self) -> None:
        await self._runner.run(o.act(None, "CONNECT"))

    async def disconnect_machine(self) -> None:
        await self._runner.run(o.act(None, "DISCONNECT"))

    async def tidy(self) -> None:
        await self._runner.run(o.act(None, "TIDY"))

    async def open(self, name: str, access: str | Access = "receive", *, exclusive: bool = False) -> MessageQueue:
        opened = await self._runner.run(o.open_queue(name, access, exclusive, self._client, self._licence))
        return MessageQueue(self._runner, opened)

    async def transaction(self) -> Transaction:
        """`async with await qm.transaction() as tx: await queue.send(message, transaction=tx)`."""
        return Transaction(self._runner, await self._runner.run(o.enlist()))


class Transaction:
    """An internal transaction; see `openmsmq.Transaction`."""

    def __init__(self, runner: _Runner, enlisted: o.Enlisted) -> None:
        self._runner, self._enlisted = runner, enlisted
        self.finished = False

    @property
    def uow(self) -> bytes:
        return self._enlisted.uow

    async def commit(self) -> None:
        await self._runner.run(o.commit(self._enlisted))
        self.finished = True

    async def abort(self) -> None:
        self.finished = True
        await self._runner.run(o.abort(self._enlisted))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self.finished:
            return
        if kind is None:
            await self.commit()
            return
        try:
            await self.abort()
        except (MsmqError, RpcConnectionError):
            if error is None:
                raise


class MessageQueue(_Closing):
    """An open queue; `async for` peeks at what is there and takes nothing away."""

    def __init__(self, runner: _Runner, opened: o.OpenQueue) -> None:
        self._runner, self._opened = runner, opened
        self._closed = False

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._runner.run(o.close_queue(self._opened))

    async def format_name(self) -> str:
        return await self._runner.run(o.queue_format_name(self._opened))

    async def send(
        self, message: Message | BodyValue, *, transaction: Transaction | None = None, **properties: Any
    ) -> str:
        message = as_message(message, properties)
        uow = transaction.uow if transaction is not None else None
        return identifier_text(await self._runner.run(o.send(self._opened, message, uow)))

    async def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> Message:
        uow = transaction.uow if transaction is not None else None
        return await self._read(Action.RECEIVE, timeout, 0, uow)

    async def peek(self, timeout: float | None = None) -> Message:
        return await self._read(Action.PEEK_CURRENT, timeout, 0, None)

    async def purge(self) -> None:
        await self._runner.run(o.purge(self._opened))

    async def cursor(self) -> Cursor:
        return Cursor(self, await self._runner.run(o.create_cursor(self._opened)))

    async def __aiter__(self) -> AsyncIterator[Message]:
        async with await self.cursor() as cursor:
            try:
                yield await cursor.peek(0)
                while True:
                    yield await cursor.peek_next(0)
            except ReceiveTimeout:
                return

    async def _read(self, action: Action, timeout: float | None, cursor: int, uow: bytes | None) -> Message:
        return await self._runner.run(o.read(self._opened, action, o.milliseconds(timeout), cursor, uow))


class Cursor(_Closing):
    """See `openmsmq.Cursor`."""

    def __init__(self, queue: MessageQueue, handle: int) -> None:
        self._queue, self._handle = queue, handle

    async def close(self) -> None:
        if self._handle:
            handle, self._handle = self._handle, 0
            await self._queue._runner.run(o.close_cursor(self._queue._opened, handle))

    async def peek(self, timeout: float | None = None) -> Message:
        return await self._queue._read(Action.PEEK_CURRENT, timeout, self._handle, None)

    async def peek_next(self, timeout: float | None = None) -> Message:
        return await self._queue._read(Action.PEEK_NEXT, timeout, self._handle, None)

    async def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> Message:
        uow = transaction.uow if transaction is not None else None
        return await self._queue._read(Action.RECEIVE, timeout, self._handle, uow)
