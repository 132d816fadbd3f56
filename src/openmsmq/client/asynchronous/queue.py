"""Open queues and cursors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Unpack

from openmsmq.client import qm2qm, remote_read
from openmsmq.client.arguments import as_message
from openmsmq.client.asynchronous.session import Closing, ServerSession
from openmsmq.client.asynchronous.transaction import Transaction
from openmsmq.client.calls import (
    CALL_FAILURES,
    CallerRefused,
    ProtocolUnavailable,
    ServerResource,
    Steps,
    T,
    holding,
    milliseconds,
)
from openmsmq.client.open_queue import (
    AccessWord,
    DirectionWord,
    OpenQueue,
    ProtocolWord,
    TakenMessage,
    candidates,
    check_not_finished,
    check_second_handle,
    closed_queue,
    to_access,
    to_identifier,
    to_seek,
)
from openmsmq.client.opening import opening_context
from openmsmq.client.pipelining import WINDOW, pipeline
from openmsmq.client.properties import MessageProperties
from openmsmq.client.reopening import CursorHandle, Locked, ReopeningQueue, countdown, open_handle
from openmsmq.client.runner import Runner
from openmsmq.model.bodies import BodyValue
from openmsmq.model.constants import Access, ReceiveAction
from openmsmq.model.errors import LoginRefused, ReceiveTimeout
from openmsmq.model.message import Message, identifier_text


async def open_queue(
    session: ServerSession,
    name: str,
    access: AccessWord | Access = "receive",
    exclusive: bool = False,
    protocol: ProtocolWord = "auto",
    reconnect: bool = False,
) -> MessageQueue:
    """Open a queue; see `QueueManager.open`."""
    access = to_access(access)
    wanted = candidates(protocol, access)
    if wanted[0] == "remoteread":
        try:
            await session.check_remote_read()
            steps = partial(remote_read.open_queue, name, access, exclusive, session.license)
            handle = await session.private.open(open_handle(name, steps, reconnect))
            return MessageQueue(session, session.private, handle, reconnect)
        except (CallerRefused, ProtocolUnavailable, LoginRefused) as error:
            if not isinstance(error, LoginRefused):  # which may succeed later
                session.remote_read_refused = error
            if len(wanted) == 1:
                raise
    if wanted[0] == "qm2qm":
        exchange = partial(qm2qm.open_queue, name, access, exclusive, session.license)
        handle = await session.runner.open(open_handle(name, exchange, reconnect))
        return MessageQueue(session, session.runner, handle, reconnect)
    handle = await session.open_qmcomm(name, access, exclusive, reconnect)
    return MessageQueue(session, session.runner, handle, reconnect)


class MessageQueue(Closing):
    """An open queue. `async for` peeks at its messages from first to last and removes none.

    Features that its protocol lacks and MS-MQMP has (transactions, `format_name`) use a second handle, opened through
    qmcomm.
    """

    def __init__(self, session: ServerSession, runner: Runner, handle: ReopeningQueue, reconnect: bool) -> None:
        self._session, self._runner, self._handle, self._reconnect = session, runner, handle, reconnect
        self._qmcomm = handle if handle.queue.protocol == "qmcomm" else None
        self._opening = asyncio.Lock()
        self._closed = False

    @property
    def protocol(self) -> str:
        """The protocol it was opened through: "remoteread", "qm2qm" or "qmcomm"."""
        return self._handle.queue.protocol

    @property
    def can_lock(self) -> bool:
        """Whether `receive_lock` is available: the protocol has receives in two phases."""
        return self._handle.queue.two_phases

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await self._runner.run(self._handle.close())
        finally:
            if self._qmcomm is not None and self._qmcomm is not self._handle:
                await self._session.runner.run(self._qmcomm.close())

    async def _run(self, operation: Callable[[OpenQueue], Steps[T]]) -> T:
        self._check_open()
        return await self._runner.run(self._handle.run(operation))

    def _check_open(self) -> None:
        if self._closed:
            raise closed_queue(self._handle.queue.name)

    def _demand(self, access: Access, what: str) -> None:
        """Check that the queue is open with this access."""
        self._check_open()
        self._handle.queue.demand(access, what)

    async def _through_qmcomm(self, what: str) -> ReopeningQueue:
        self._check_open()
        async with self._opening:
            if self._qmcomm is None:
                queue = self._handle.queue
                check_second_handle(queue, what)
                self._qmcomm = await self._session.open_qmcomm(queue.name, queue.access, False, self._reconnect)
            return self._qmcomm

    async def format_name(self) -> str:
        handle = await self._through_qmcomm("the format name")
        return await self._session.runner.run(handle.run(lambda queue: queue.format_name()))

    async def send(
        self,
        message: Message | BodyValue,
        *,
        transaction: Transaction | None = None,
        **properties: Unpack[MessageProperties],
    ) -> str:
        """Send a message, or a value as its body with properties by name (label="x", recoverable=True, ...).

        Returns the message identifier. Raises MsmqError; TransactionUsage if only one of queue and send is
        transactional; RpcConnectionError with `outcome_unknown` if the message was sent and no reply arrived.
        """
        message = as_message(message, dict(properties))
        self._demand(Access.SEND, "sending")
        handle = self._qmcomm or await self._through_qmcomm("sending")
        uow, held = await self._part_of(transaction)
        steps = handle.send(message, uow)
        return identifier_text(await self._session.runner.run(holding(steps, *held)))

    async def send_many(
        self,
        messages: Iterable[Message | BodyValue],
        *,
        transaction: Transaction | None = None,
        window: int = WINDOW,
        **properties: Unpack[MessageProperties],
    ) -> list[str]:
        """Send messages in order on one connection, up to `window` of them concurrently. Returns their identifiers.
        Values have the same properties.

        No message is sent after one that failed. Raises MessagesNotSent, which has the outcome of each; in a
        transaction, abort it then. Other servers than openmsmq may serve calls in any order, so they get one at a
        time.
        """
        self._demand(Access.SEND, "sending")
        handle = self._qmcomm or await self._through_qmcomm("sending")
        uow, held = await self._part_of(transaction)
        if window > 1 and not await self._session.keeps_order():
            window = 1
        converted = (as_message(message, dict(properties)) for message in messages)
        work = pipeline(((holding(handle.send(each, uow), *held), each.size) for each in converted), window)
        await self._session.runner.run_all(work)
        return work.outcome(identifier_text)

    async def _part_of(self, transaction: Transaction | None) -> tuple[bytes | None, tuple[ServerResource, ...]]:
        """Return the unit of work of a transaction, and the resource that it requires."""
        if transaction is None:
            return None, ()
        check_not_finished(transaction.finished)
        await transaction.extend_to(self._session)
        return transaction.uow, (transaction.held,)

    # -- taking messages ---------------------------------------------------------------------------------------

    async def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> Message:
        """Receive the first message. Waits `timeout` seconds; None: forever. Raises ReceiveTimeout."""
        self._demand(Access.RECEIVE, "receiving")
        left = countdown(milliseconds(timeout), time.monotonic)
        if transaction is None:
            return await self._received(lambda queue: queue.take(left()))
        uow, held = await self._part_of(transaction)
        assert uow is not None
        runner, handle = self._runner, self._handle
        if not await self._takes_in(transaction):
            runner, handle = self._session.runner, await self._through_qmcomm("a receive in a transaction")
        self._check_open()
        steps = handle.take(lambda queue: queue.take_in_transaction(uow, left()))
        return await transaction.receive(runner, handle.queue.protocol, holding(steps, *held))

    async def _takes_in(self, transaction: Transaction) -> bool:
        """Whether a receive in a transaction goes through the protocol that the queue was opened with."""
        if self._handle.queue.protocol != "remoteread":
            return self._handle.queue.protocol == "qmcomm"
        if transaction.session is not self._session:
            return True
        return await self._session.serves_own_transactions(transaction.uow, transaction.held)

    @asynccontextmanager
    async def receive_lock(self, timeout: float | None = None) -> AsyncIterator[Message]:
        """Lock the first message; it is removed when the block succeeds, and an exception puts it back in its place.

        Other readers do not see it in the meantime. Waits like `receive`. Raises ReceiveTimeout; MsmqError if the queue
        is not open through MS-MQRR.
        """
        async with self._ending(await self._locked(timeout)) as message:
            yield message

    @asynccontextmanager
    async def receive_lock_by_lookup_id(self, identifier: int) -> AsyncIterator[Message]:
        """Lock the message with a lookup identifier, as `receive_lock` does. Raises MessageNotFound."""
        seek = to_seek("current")
        taken = await self._lock(
            lambda: self._handle.take(lambda queue: queue.take_by_lookup_identifier(identifier, seek))
        )
        async with self._ending(taken) as message:
            yield message

    @asynccontextmanager
    async def _ending(self, taken: Locked) -> AsyncIterator[Message]:
        """Remove a locked message when the block succeeds; an exception puts it back."""
        try:
            yield taken.message
        except BaseException:
            await self._end(taken, False)
            raise
        await self._end(taken, True)

    async def consume(self, timeout: float | None = None) -> AsyncGenerator[Message, None]:
        """Receive one message after the other: each is removed when the loop requests the next one.

        Leaving the loop by an exception, `break` or `return` puts the current message back. The iteration ends when no
        message has arrived for `timeout` seconds; with None it never ends.

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

    async def receive_by_lookup_id(self, identifier: int, direction: DirectionWord = "current") -> Message:
        """Receive the message with a lookup identifier, or the "next" or "previous" one. Raises MessageNotFound."""
        seek = to_seek(direction)
        return await self._received(lambda queue: queue.take_by_lookup_identifier(identifier, seek))

    async def receive_by_correlation_id(self, identifier: bytes | str, timeout: float | None = None) -> Message:
        """Receive the first message with a correlation identifier. Waits for one. Raises ReceiveTimeout."""
        left, wanted = countdown(milliseconds(timeout), time.monotonic), to_identifier(identifier)
        return await self._received(lambda queue: queue.take_by_correlation_identifier(wanted, left(), time.monotonic))

    async def _locked(self, timeout: float | None) -> Locked:
        left = countdown(milliseconds(timeout), time.monotonic)
        return await self._lock(lambda: self._handle.take(lambda queue: queue.take(left())))

    async def _lock(self, start: Callable[[], Steps[Locked]]) -> Locked:
        if not self.can_lock:
            raise self._handle.queue.lacks("two phases of a receive")
        self._demand(Access.RECEIVE, "receiving")
        return await self._runner.run(start())

    async def _received(self, operation: Callable[[OpenQueue], Steps[TakenMessage]]) -> Message:
        self._demand(Access.RECEIVE, "receiving")
        return await self._runner.receive(self._handle.take(operation))

    async def _end(self, taken: Locked, remove: bool) -> None:
        if not taken.locked:
            return
        try:
            await self._runner.end(taken.end(remove))
        except CALL_FAILURES:
            if remove:  # otherwise the server puts it back, when the queue is closed or after some minutes
                raise

    # -- looking and more --------------------------------------------------------------------------------------

    async def peek(self, timeout: float | None = None) -> Message:
        """Return the first message without removing it. Raises ReceiveTimeout."""
        left = countdown(milliseconds(timeout), time.monotonic)
        return await self._run(lambda queue: queue.peek(ReceiveAction.PEEK_CURRENT, left()))

    async def peek_by_lookup_id(self, identifier: int, direction: DirectionWord = "current") -> Message:
        """Return the message with a lookup identifier, or the "next" or "previous" one, without removing it. Raises
        MessageNotFound."""
        seek = to_seek(direction)
        return await self._run(lambda queue: queue.peek_by_lookup_identifier(identifier, seek))

    async def cancel(self) -> None:
        """End the receives and peeks of other tasks that wait at this queue: they raise OperationCancelled."""
        await self._run(lambda queue: queue.cancel())

    async def move(self, identifier: int, to: str = "") -> None:
        """Move a message, by its lookup identifier, to a subqueue by name, or back to the queue itself with ""."""
        await self._run(lambda queue: queue.move(identifier, to, self._session.license))

    async def reject(self, identifier: int) -> None:
        """Reject a message that was received in a transaction, by its lookup identifier."""
        await self._run(lambda queue: queue.reject(identifier))

    async def purge(self) -> None:
        """Delete all messages."""
        await self._run(lambda queue: queue.purge())

    @opening_context
    async def cursor(self) -> Cursor:
        """Return a cursor, which peeks at one message after the other and can receive its current one."""
        self._check_open()
        return Cursor(self, await self._runner.run(self._handle.cursor()))

    async def __aiter__(self) -> AsyncGenerator[Message, None]:
        async with self.cursor() as cursor:
            try:
                yield await cursor.peek(0)
                while True:
                    yield await cursor.peek_next(0)
            except ReceiveTimeout:
                return


class Cursor(Closing):
    """[MS-MQDMPR] 3.2: `peek` starts, `peek_next` advances, `receive` removes the current message."""

    def __init__(self, queue: MessageQueue, handle: CursorHandle) -> None:
        self._queue, self._handle = queue, handle

    @property
    def queue_name(self) -> str:
        """The name with which its queue was opened."""
        return self._handle.queue.name

    @property
    def can_lock(self) -> bool:
        """Whether `receive_lock` is available."""
        return self._queue.can_lock

    async def close(self) -> None:
        await self._queue._runner.run(self._handle.close())

    async def peek(self, timeout: float | None = None) -> Message:
        """Return the cursor's current message, or the first one. Raises ReceiveTimeout, MessageAlreadyReceived."""
        return await self._peek(ReceiveAction.PEEK_CURRENT, timeout)

    async def peek_next(self, timeout: float | None = None) -> Message:
        """Move to the next message and return it. Raises ReceiveTimeout; IllegalCursorAction before the first
        `peek`."""
        return await self._peek(ReceiveAction.PEEK_NEXT, timeout)

    async def _peek(self, action: ReceiveAction, timeout: float | None) -> Message:
        self._queue._check_open()
        return await self._queue._runner.run(self._handle.peek(action, milliseconds(timeout)))

    async def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> Message:
        """Receive the cursor's current message. Raises MessageAlreadyReceived, MessageNotFound, ReceiveTimeout.

        In a transaction, this requires a queue that was opened with protocol="qmcomm", or through MS-MQRR of an
        openmsmq server.
        """
        self._queue._demand(Access.RECEIVE, "receiving")
        wait, runner = milliseconds(timeout), self._queue._runner
        if transaction is None:
            return await runner.receive(self._handle.take(lambda queue, cursor: queue.take(wait, cursor)))
        uow, held = await self._queue._part_of(transaction)
        assert uow is not None
        if not await self._queue._takes_in(transaction):
            raise self._handle.queue.lacks("internal transactions", has="MS-MQMP has (protocol='qmcomm')")
        steps = self._handle.take(lambda queue, cursor: queue.take_in_transaction(uow, wait, cursor))
        return await transaction.receive(runner, self._handle.queue.protocol, holding(steps, *held))

    @asynccontextmanager
    async def receive_lock(self, timeout: float | None = None) -> AsyncIterator[Message]:
        """Lock the cursor's current message, as `MessageQueue.receive_lock` does with the first one. Raises as
        `receive`."""
        wait = milliseconds(timeout)
        taken = await self._queue._lock(lambda: self._handle.take(lambda queue, cursor: queue.take(wait, cursor)))
        async with self._queue._ending(taken) as message:
            yield message
