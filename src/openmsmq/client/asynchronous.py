"""The client for asyncio: the names of `openmsmq`, with `await`.

A task may be cancelled at any moment. What a receive through MS-MQRR has locked by then is put back; where the message
is being removed already, the receive returns it, and the task's next receive raises CancelledError. A receive through
MS-MQMP that the server had answered already is lost with its message, unless it is in a transaction.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar
from weakref import WeakSet, WeakValueDictionary

from openmsmq.client import operations as o
from openmsmq.client import qm2qm, qmcomm, remote_read, transactions
from openmsmq.client.calls import (
    CALL_FAILURES,
    Call,
    CallerRefused,
    ProtocolUnavailable,
    Steps,
    T,
    fault_error,
    milliseconds,
)
from openmsmq.client.open_queue import (
    OpenQueue,
    Taken,
    candidates,
    check_second_handle,
    to_access,
    to_identifier,
    to_seek,
)
from openmsmq.client.sync import ALL_SECURITY, COUNTS, STANDARD_PORT, as_message
from openmsmq.model.bodies import BodyValue
from openmsmq.model.constants import Access, Action
from openmsmq.model.errors import MsmqError, ReceiveTimeout
from openmsmq.model.message import Message, identifier_text
from openmsmq.rpc import aio as rpc
from openmsmq.rpc.credentials import Credentials
from openmsmq.rpc.errors import BindError, RpcConnectionError, RpcFault
from openmsmq.rpc.pdu import AuthLevel

OpenedQueue = TypeVar("OpenedQueue", bound=OpenQueue)


class Runner:
    """Runs operations on a connection, which is made when the first of them needs it."""

    def __init__(self, host: str, port: int, security: dict[str, Any]) -> None:
        self._host, self._port, self._security = host, port, security
        self._connecting = asyncio.Lock()
        self._connection: rpc.AsyncConnection | None = None
        self._cleaning: set[asyncio.Task[Any]] = set()
        self._too_late: WeakSet[asyncio.Task[Any]] = WeakSet()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    async def run(self, steps: Steps[T]) -> T:
        """What `steps` return. When the task is cancelled, they may clean up; the task waits for that."""
        try:
            call = next(steps)
            while True:
                try:
                    answer = await self._call(call)
                except asyncio.CancelledError as error:
                    await self._clean_up(steps, error)
                    raise
                except BaseException as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(answer)
        except StopIteration as stop:
            value: T = stop.value
            return value

    async def _clean_up(self, steps: Steps[Any], error: BaseException) -> None:
        """Goes on in a task of its own, which a second cancellation does not reach."""
        try:
            call = steps.throw(error)
        except BaseException:
            return
        task = asyncio.get_running_loop().create_task(self.run(_resumed(steps, call)))
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)
        await asyncio.wait([task])

    async def finish(self, steps: Steps[Any]) -> bool:
        """Run `steps` to their end even if the task is cancelled meanwhile; returns whether it was."""
        task = asyncio.get_running_loop().create_task(self.run(steps))
        cancelled = False
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                cancelled = True
        try:
            task.result()
        except CALL_FAILURES as error:
            if cancelled:
                raise asyncio.CancelledError from error
            raise
        return cancelled

    async def open(self, steps: Steps[OpenedQueue]) -> OpenedQueue:
        """Open a queue. When the task is cancelled meanwhile, the queue is closed again as soon as it is open."""
        task = asyncio.get_running_loop().create_task(self.run(steps))
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.add_done_callback(self._close_unwanted)
            raise
        return task.result()

    def _close_unwanted(self, opening: asyncio.Task[OpenedQueue]) -> None:
        if opening.cancelled() or opening.exception() is not None:
            return
        task = asyncio.get_running_loop().create_task(self.run(opening.result().close()))
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)

    async def receive(self, steps: Steps[Taken], opened: OpenQueue) -> Message:
        """Take a message and remove it."""
        task = asyncio.current_task()
        assert task is not None
        if task in self._too_late:
            self._too_late.discard(task)
            if task.cancelling():
                raise asyncio.CancelledError
        taken = await self.run(steps)
        if taken.request is not None and await self.finish(opened.end(taken.request, True)):
            self._too_late.add(task)
        return taken.message

    async def _call(self, call: Call) -> Any:
        connection = await self._connected()
        syntax = await connection.bind(call.interface.uuid, call.interface.version)
        stub = call.operation.encode_request(call.request)
        try:
            answer = await connection.call(call.operation.opnum, stub, interface=syntax)
        except RpcFault as fault:
            raise fault_error(fault, call.operation.name) from fault
        return call.operation.decode_response(answer)

    async def _connected(self) -> rpc.AsyncConnection:
        if self._connection is None:
            async with self._connecting:
                if self._connection is None:
                    self._connection = await rpc.connect(self._host, self._port, **self._security)
        return self._connection


def _resumed(steps: Steps[T], call: Call) -> Steps[T]:
    """`steps` from the middle: they have yielded `call` already."""
    while True:
        try:
            answer = yield call
        except GeneratorExit:
            raise
        except BaseException as error:
            call = steps.throw(error)
        else:
            call = steps.send(answer)


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
    security = {"credentials": credentials, "level": level, "spnego": spnego, "timeout": timeout}
    port = port if port is not None else STANDARD_PORT + port_offset
    runner = private = Runner(host, port, security)
    if credentials is not None and level is None:
        private = Runner(host, port, security | {"level": AuthLevel.PKT_PRIVACY})
    manager = QueueManager(runner, private)
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

    def __init__(self, runner: Runner, private: Runner) -> None:
        """`private` is for calls that servers want protected; it may be the same."""
        self._runner, self._private = runner, private
        self._remote_read_checked = False
        self._remote_read_refused: MsmqError | None = None
        self._joining = asyncio.Lock()
        self._joined: WeakValueDictionary[bytes, Transaction] = WeakValueDictionary()
        self._licence = os.urandom(16)
        self._client = socket.gethostname()

    async def close(self) -> None:
        self._runner.close()
        self._private.close()

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

    async def open(
        self, name: str, access: str | Access = "receive", *, exclusive: bool = False, protocol: str = "auto"
    ) -> MessageQueue:
        access = to_access(access)
        wanted = candidates(protocol, access)
        if wanted[0] == "remoteread":
            try:
                await self._check_remote_read()
                opened = await self._private.open(remote_read.open_queue(name, access, exclusive, self._licence))
                return MessageQueue(self, self._private, opened)
            except (CallerRefused, ProtocolUnavailable) as error:
                self._remote_read_refused = error
                if len(wanted) == 1:
                    raise
        if wanted[0] == "qm2qm":
            session = await self._runner.run(qm2qm.open_queue(name, access, exclusive, self._licence))
            return MessageQueue(self, self._runner, session)
        return MessageQueue(self, self._runner, await self._open_qmcomm(name, access, exclusive))

    async def _check_remote_read(self) -> None:
        if self._remote_read_refused is not None:
            raise self._remote_read_refused
        if not self._remote_read_checked:
            try:
                await self._private.run(remote_read.check_offered())
            except BindError as error:
                raise ProtocolUnavailable(detail=f"RemoteRead: {error}") from error
            self._remote_read_checked = True

    async def _open_qmcomm(self, name: str, access: Access, exclusive: bool) -> qmcomm.QmcommQueue:
        return await self._runner.open(qmcomm.open_queue(name, access, exclusive, self._client, self._licence))

    async def transaction(self) -> Transaction:
        """`async with await qm.transaction() as tx: await queue.send(message, transaction=tx)`."""
        return Transaction(self, self._runner, await self._runner.run(o.enlist()))

    async def join(self, transaction: Transaction) -> None:
        async with self._joining:
            if transaction.manager is not self and transaction.uow not in self._joined:
                token = await transaction.token()
                await self._private.run(transactions.enlist_remote(transaction.uow, token))
                self._joined[transaction.uow] = transaction


class Transaction:
    """An internal transaction; see `openmsmq.Transaction`."""

    def __init__(self, manager: QueueManager, runner: Runner, enlisted: o.Enlisted) -> None:
        self.manager, self._runner, self._enlisted = manager, runner, enlisted
        self.finished = False

    async def token(self) -> bytes:
        return await self._runner.run(transactions.propagation_token(self.uow))

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
    """An open queue; `async for` peeks at what is there and takes nothing away. See `openmsmq.MessageQueue`."""

    def __init__(self, manager: QueueManager, runner: Runner, opened: OpenQueue) -> None:
        self._manager, self._runner, self._opened = manager, runner, opened
        self._qmcomm = opened if isinstance(opened, qmcomm.QmcommQueue) else None
        self._opening = asyncio.Lock()
        self._closed = False

    @property
    def protocol(self) -> str:
        return self._opened.protocol

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await self._runner.run(self._opened.close())
        finally:
            if self._qmcomm is not None and self._qmcomm is not self._opened:
                await self._manager._runner.run(self._qmcomm.close())

    async def _through_qmcomm(self, what: str) -> qmcomm.QmcommQueue:
        async with self._opening:
            if self._qmcomm is None:
                check_second_handle(self._opened, what)
                self._qmcomm = await self._manager._open_qmcomm(self._opened.name, self._opened.access, False)
            return self._qmcomm

    async def format_name(self) -> str:
        return await self._manager._runner.run((await self._through_qmcomm("the format name")).format_name())

    async def send(
        self, message: Message | BodyValue, *, transaction: Transaction | None = None, **properties: Any
    ) -> str:
        message = as_message(message, properties)
        uow = None
        if transaction is not None:
            await self._manager.join(transaction)
            uow = transaction.uow
        opened = self._qmcomm or await self._through_qmcomm("sending")
        return identifier_text(await self._manager._runner.run(opened.send(message, uow)))

    # -- taking messages ---------------------------------------------------------------------------------------

    async def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> Message:
        wait = milliseconds(timeout)
        if transaction is None:
            return await self._received(self._opened.take(wait))
        await self._manager.join(transaction)
        if transaction.manager is not self._manager and isinstance(self._opened, remote_read.RemoteReadQueue):
            return await self._received(self._opened.take_in_transaction(transaction.uow, wait))
        opened = await self._through_qmcomm("a receive in a transaction")
        return (await self._manager._runner.run(opened.take_in_transaction(transaction.uow, wait))).message

    @asynccontextmanager
    async def receive_lock(self, timeout: float | None = None) -> AsyncIterator[Message]:
        taken = await self._locked(timeout)
        try:
            yield taken.message
        except BaseException:
            await self._end(taken, False)
            raise
        await self._end(taken, True)

    async def consume(self, timeout: float | None = None) -> AsyncGenerator[Message, None]:
        """As `openmsmq.MessageQueue.consume`.

        After `break` the message is put back when the loop gets to close the iterator, at once with
        `contextlib.aclosing`.
        """
        while True:
            try:
                taken = await self._locked(timeout)
            except ReceiveTimeout:
                return
            done = False
            try:
                yield taken.message
                done = True
            finally:
                await self._end(taken, done)

    async def receive_by_lookup_id(self, identifier: int, direction: str = "current") -> Message:
        return await self._received(self._opened.take_by_lookup_identifier(identifier, to_seek(direction)))

    async def receive_by_correlation_id(self, identifier: bytes | str, timeout: float | None = None) -> Message:
        wait, wanted = milliseconds(timeout), to_identifier(identifier)
        return await self._received(self._opened.take_by_correlation_identifier(wanted, wait, time.monotonic))

    async def _locked(self, timeout: float | None) -> Taken:
        if not self._opened.two_phases:
            raise self._opened.lacks("two phases of a receive")
        return await self._runner.run(self._opened.take(milliseconds(timeout)))

    async def _received(self, steps: Steps[Taken]) -> Message:
        return await self._runner.receive(steps, self._opened)

    async def _end(self, taken: Taken, remove: bool) -> None:
        if taken.request is None:
            return
        try:
            if await self._runner.finish(self._opened.end(taken.request, remove)):
                raise asyncio.CancelledError
        except CALL_FAILURES:
            if remove:  # else the server puts it back by itself, when the queue is closed or some minutes have gone
                raise

    # -- looking and more --------------------------------------------------------------------------------------

    async def peek(self, timeout: float | None = None) -> Message:
        return await self._runner.run(self._opened.peek(Action.PEEK_CURRENT, milliseconds(timeout)))

    async def peek_by_lookup_id(self, identifier: int, direction: str = "current") -> Message:
        return await self._runner.run(self._opened.peek_by_lookup_identifier(identifier, to_seek(direction)))

    async def cancel(self) -> None:
        await self._runner.run(self._opened.cancel())

    async def move(self, identifier: int, to: str = "") -> None:
        await self._runner.run(self._opened.move(identifier, to, self._manager._licence))

    async def reject(self, identifier: int) -> None:
        await self._runner.run(self._opened.reject(identifier))

    async def purge(self) -> None:
        await self._runner.run(self._opened.purge())

    async def cursor(self) -> Cursor:
        return Cursor(self, await self._runner.run(self._opened.create_cursor()))

    async def __aiter__(self) -> AsyncIterator[Message]:
        async with await self.cursor() as cursor:
            try:
                yield await cursor.peek(0)
                while True:
                    yield await cursor.peek_next(0)
            except ReceiveTimeout:
                return


class Cursor(_Closing):
    """See `openmsmq.Cursor`."""

    def __init__(self, queue: MessageQueue, handle: int) -> None:
        self._queue, self._handle = queue, handle

    async def close(self) -> None:
        if self._handle:
            handle, self._handle = self._handle, 0
            await self._queue._runner.run(self._queue._opened.close_cursor(handle))

    async def peek(self, timeout: float | None = None) -> Message:
        return await self._peek(Action.PEEK_CURRENT, timeout)

    async def peek_next(self, timeout: float | None = None) -> Message:
        return await self._peek(Action.PEEK_NEXT, timeout)

    async def _peek(self, action: Action, timeout: float | None) -> Message:
        return await self._queue._runner.run(self._queue._opened.peek(action, milliseconds(timeout), self._handle))

    async def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> Message:
        opened, wait = self._queue._opened, milliseconds(timeout)
        if transaction is not None:
            await self._queue._manager.join(transaction)
            if transaction.manager is self._queue._manager and not isinstance(opened, qmcomm.QmcommQueue):
                raise opened.lacks("internal transactions", has="MS-MQMP has (protocol='qmcomm')")
            return await self._queue._received(opened.take_in_transaction(transaction.uow, wait, self._handle))
        return await self._queue._received(opened.take(wait, self._handle))
