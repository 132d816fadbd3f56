"""Transport of the asyncio client: one connection for the calls of all tasks, replaced when it is lost."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from msrpc.rpc import aio as rpc
from msrpc.rpc.client_connection import ResponseReceived
from msrpc.rpc.faults import RpcFault
from msrpc.rpc.pdu import SyntaxId
from msrpc.rpc.responses import decoded
from openmsmq.client.calls import (
    CALL_FAILURES,
    ClientAssociation,
    ClientCall,
    ClientClosed,
    Steps,
    T,
    fault_error,
    resumed,
    spoken,
    transfer_syntaxes,
)
from openmsmq.client.pipelining import Pipeline
from openmsmq.client.reopening import Locked
from openmsmq.client.retrying import Attempts
from openmsmq.model.errors import AnswerTimeout, LoginRefused, MsmqError, RpcConnectionError
from openmsmq.model.message import Message


class _Closeable(Protocol):
    def close(self) -> Steps[None]: ...


Opened = TypeVar("Opened", bound=_Closeable)
_PATIENCE = 2.0  # seconds that a canceled receive waits for its answer, which may have a message
_parent_connections: list[rpc.AsyncConnection] = []  # in a forked child: referenced, so that they are never closed


class Runner:
    """Runs operations on a connection that is opened on first use."""

    def __init__(self, host: str, port: int, security: dict[str, Any], reconnect_seconds: float = 0.0) -> None:
        """A call tries to reconnect for up to `reconnect_seconds`."""
        self._host, self._port, self._security = host, port, security
        self.reconnect_seconds = reconnect_seconds
        self._connecting = asyncio.Lock()
        self._connection: rpc.AsyncConnection | None = None
        self._association = ClientAssociation()
        self._closed = False
        self._process = os.getpid()
        self._cleaning: set[asyncio.Task[Any]] = set()
        self._cancelled_late: WeakSet[asyncio.Task[Any]] = WeakSet()

    def close(self) -> None:
        self._closed = True
        if self._connection is not None and self._process == os.getpid():
            self._connection.close()

    async def run(self, steps: Steps[T]) -> T:
        """Run `steps` and return their result. When the task is canceled, they may clean up; the task waits for
        that."""
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

    async def run_all(self, work: Pipeline[T]) -> None:
        """Run operations concurrently; their calls are sent in order. If the task is canceled, they are canceled,
        too."""
        loop = asyncio.get_running_loop()
        under_way: dict[asyncio.Task[T], int] = {}
        try:
            while True:
                while (begun := work.begin()) is not None:
                    index, steps = begun
                    under_way[loop.create_task(self.run(steps))] = index
                if not under_way:
                    return
                done, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    self._ended(work, under_way.pop(task), task)
        finally:
            for task in under_way:
                task.cancel()
            if under_way:
                await asyncio.wait(under_way)

    @staticmethod
    def _ended(work: Pipeline[T], index: int, task: asyncio.Task[T]) -> None:
        try:
            work.done(index, task.result())
        except MsmqError as error:
            work.failed(index, error)

    async def _clean_up(self, steps: Steps[Any], error: BaseException) -> None:
        """Clean up in a separate task, which a second cancellation does not affect."""
        try:
            call = steps.throw(error)
        except BaseException:
            return
        task = asyncio.get_running_loop().create_task(self.run(resumed(steps, call)))
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)
        await asyncio.wait([task])

    @staticmethod
    async def outcome(result: T | Awaitable[T]) -> T:
        """Return the result of a method that may be a coroutine function."""
        return await result if isinstance(result, Awaitable) else result

    async def finish(self, steps: Steps[Any]) -> bool:
        """Run `steps` to their end even if the task is canceled meanwhile; return whether it was."""
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

    async def end(self, steps: Steps[Any]) -> None:
        """Do what `finish` does, but raise CancelledError afterwards if the task was canceled meanwhile."""
        if await self.finish(steps):
            raise asyncio.CancelledError

    async def open(self, steps: Steps[Opened]) -> Opened:
        """Open a queue. If the task is canceled meanwhile, the queue is closed as soon as it is open."""
        task = asyncio.get_running_loop().create_task(self.run(steps))
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.add_done_callback(self._close_unwanted)
            raise
        return task.result()

    def _close_unwanted(self, opened: asyncio.Task[Opened]) -> None:
        if opened.cancelled() or opened.exception() is not None:
            return
        task = asyncio.get_running_loop().create_task(self.run(opened.result().close()))
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)

    async def receive(self, steps: Steps[Locked]) -> Message:
        """Receive a message and remove it."""
        task = asyncio.current_task()
        assert task is not None
        if task in self._cancelled_late:
            self._cancelled_late.discard(task)
            if task.cancelling():
                raise asyncio.CancelledError
        taken = await self.run(steps)
        if taken.locked and await self.finish(taken.end(True)):
            self._cancelled_late.add(task)
        return taken.message

    # -- calls ---------------------------------------------------------------------------------------------------

    async def _call(self, call: ClientCall) -> Any:
        attempts = Attempts(call, self.reconnect_seconds, time.monotonic, random.random)
        stub = call.operation.encode_request(call.request)
        while True:
            if self._closed:
                raise ClientClosed
            self._detect_loss()
            attempts.check()
            sent = False
            try:
                connection = await self._connected()
                interface = call.interface
                syntax = await connection.bind(interface.uuid, interface.version, transfer_syntaxes(interface))
                operation = spoken(call.operation, connection.core.transfer_syntaxes[syntax])
                self._detect_loss()
                attempts.check()
                association, sent = self._association, True
                fitting = stub if operation is call.operation else operation.encode_request(call.request)
                answer = await self._exchange(connection, call, fitting, syntax)
            except rpc.AnsweredLate as late:
                return self._taken_late(decoded(operation, late.response.stub, late.response.byte_order), late)
            except RpcConnectionError as error:
                if self._closed:
                    raise ClientClosed(call if sent else None) from error
                self._detect_loss()
                pause = attempts.pause_after(error, sent)
            else:
                if call.opens is not None:
                    call.opens.association = association
                return decoded(operation, answer.stub, answer.byte_order)
            await asyncio.sleep(pause)

    def _taken_late(self, response: Any, late: rpc.AnsweredLate) -> Any:
        """Return the response of a receive whose task was canceled, if it has a message: the task's next receive then
        raises CancelledError."""
        task = asyncio.current_task()
        if response.result or task is None:
            raise asyncio.CancelledError from late
        self._cancelled_late.add(task)
        return response

    async def _exchange(
        self, connection: rpc.AsyncConnection, call: ClientCall, stub: bytes, syntax: SyntaxId
    ) -> ResponseReceived:
        try:
            async with asyncio.timeout(call.timeout):
                patience = _PATIENCE if call.removes else 0.0
                return await connection.exchange(call.operation.opnum, stub, interface=syntax, patience=patience)
        except RpcFault as fault:
            raise fault_error(fault, call.operation.name, self._security.get("credentials") is None) from fault
        except LoginRefused:
            connection.close()
            raise
        except TimeoutError as error:
            if connection.silence >= (call.timeout or 0):  # otherwise calls of other tasks still get answers
                connection.close()
            raise AnswerTimeout("the server did not answer in time") from error

    def _detect_loss(self) -> None:
        """Detect a lost connection, and a fork: in both cases, server resources of this client are lost."""
        if self._process != os.getpid():
            if self._connection is not None:
                _parent_connections.append(self._connection)
            self._process, self._connecting = os.getpid(), asyncio.Lock()
            self._reset("the connection belongs to the parent process, which forked this one")
        elif self._connection is not None and not self._connection.is_open:
            self._connection.close()
            self._reset("the connection to the server was lost")

    def _reset(self, reason: str) -> None:
        self._association.end(reason)
        self._connection, self._association = None, ClientAssociation()

    async def _connected(self) -> rpc.AsyncConnection:
        if self._closed:
            raise ClientClosed
        if self._connection is None:
            async with self._connecting:
                if self._connection is None:
                    connection = await rpc.connect(self._host, self._port, **self._security)
                    if self._closed:  # meanwhile
                        connection.close()
                        raise ClientClosed
                    self._connection = connection
        return self._connection
