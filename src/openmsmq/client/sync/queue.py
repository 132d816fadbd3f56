"""Open queues and cursors.

Generated from asynchronous/queue.py by tools/sync_client.py; never edited.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Unpack

from openmsmq.client import qm2qm, remote_read
from openmsmq.client.arguments import as_message
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
from openmsmq.client.pipelining import WINDOW, pipeline
from openmsmq.client.pool import Pool
from openmsmq.client.properties import MessageProperties
from openmsmq.client.reopening import CursorHandle, Locked, ReopeningQueue, countdown, open_handle
from openmsmq.client.sync.session import Closing, ServerSession
from openmsmq.client.sync.transaction import Transaction
from openmsmq.model.bodies import BodyValue
from openmsmq.model.constants import Access, ReceiveAction
from openmsmq.model.errors import LoginRefused, ReceiveTimeout
from openmsmq.model.message import Message, identifier_text


def open_queue(
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
            session.check_remote_read()
            steps = partial(remote_read.open_queue, name, access, exclusive, session.license)
            handle = session.private.open(open_handle(name, steps, reconnect))
            return MessageQueue(session, session.private, handle, reconnect)
        except (CallerRefused, ProtocolUnavailable, LoginRefused) as error:
            if not isinstance(error, LoginRefused):  # which may succeed later
                session.remote_read_refused = error
            if len(wanted) == 1:
                raise
    if wanted[0] == "qm2qm":
        exchange = partial(qm2qm.open_queue, name, access, exclusive, session.license)
        handle = session.pool.open(open_handle(name, exchange, reconnect))
        return MessageQueue(session, session.pool, handle, reconnect)
    handle = session.open_qmcomm(name, access, exclusive, reconnect)
    return MessageQueue(session, session.pool, handle, reconnect)


class MessageQueue(Closing):
    """An open queue. Iterating peeks at its messages from first to last and removes none.

    Features that its protocol lacks and MS-MQMP has (transactions, `format_name`) use a second handle, opened through
    qmcomm.
    """

    def __init__(self, session: ServerSession, pool: Pool, handle: ReopeningQueue, reconnect: bool) -> None:
        self._session, self._pool, self._handle, self._reconnect = session, pool, handle, reconnect
        self._qmcomm = handle if handle.queue.protocol == "qmcomm" else None
        self._opening = threading.Lock()
        self._closed = False

    @property
    def protocol(self) -> str:
        """The protocol it was opened through: "remoteread", "qm2qm" or "qmcomm"."""
        return self._handle.queue.protocol

    @property
    def can_lock(self) -> bool:
        """Whether `receive_lock` is available: the protocol has receives in two phases."""
        return self._handle.queue.two_phases

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._pool.run(self._handle.close())
        finally:
            if self._qmcomm is not None and self._qmcomm is not self._handle:
                self._session.pool.run(self._qmcomm.close())

    def _run(self, operation: Callable[[OpenQueue], Steps[T]]) -> T:
        self._check_open()
        return self._pool.run(self._handle.run(operation))

    def _check_open(self) -> None:
        if self._closed:
            raise closed_queue(self._handle.queue.name)

    def _demand(self, access: Access, what: str) -> None:
        """Check that the queue is open with this access."""
        self._check_open()
        self._handle.queue.demand(access, what)

    def _through_qmcomm(self, what: str) -> ReopeningQueue:
        self._check_open()
        with self._opening:
            if self._qmcomm is None:
                queue = self._handle.queue
                check_second_handle(queue, what)
                self._qmcomm = self._session.open_qmcomm(queue.name, queue.access, False, self._reconnect)
            return self._qmcomm

    @property
    def format_name(self) -> str:
        handle = self._through_qmcomm("the format name")
        return self._session.pool.run(handle.run(lambda queue: queue.format_name()))

    def send(
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
        handle = self._qmcomm or self._through_qmcomm("sending")
        uow, held = self._part_of(transaction)
        steps = handle.send(message, uow)
        return identifier_text(self._session.pool.run(holding(steps, *held)))

    def send_many(
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
        handle = self._qmcomm or self._through_qmcomm("sending")
        uow, held = self._part_of(transaction)
        if window > 1 and not self._session.keeps_order():
            window = 1
        converted = (as_message(message, dict(properties)) for message in messages)
        work = pipeline(((holding(handle.send(each, uow), *held), each.size) for each in converted), window)
        self._session.pool.run_all(work)
        return work.outcome(identifier_text)

    def _part_of(self, transaction: Transaction | None) -> tuple[bytes | None, tuple[ServerResource, ...]]:
        """Return the unit of work of a transaction, and the resource that it requires."""
        if transaction is None:
            return None, ()
        check_not_finished(transaction.finished)
        transaction.extend_to(self._session)
        return transaction.uow, (transaction.held,)

    # -- taking messages ---------------------------------------------------------------------------------------

    def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> Message:
        """Receive the first message. Waits `timeout` seconds; None: forever. Raises ReceiveTimeout."""
        self._demand(Access.RECEIVE, "receiving")
        left = countdown(milliseconds(timeout), time.monotonic)
        if transaction is None:
            return self._received(lambda queue: queue.take(left()))
        uow, held = self._part_of(transaction)
        assert uow is not None
        pool, handle = self._pool, self._handle
        if not self._takes_in(transaction):
            pool, handle = self._session.pool, self._through_qmcomm("a receive in a transaction")
        self._check_open()
        steps = handle.take(lambda queue: queue.take_in_transaction(uow, left()))
        return transaction.receive(pool, handle.queue.protocol, holding(steps, *held))

    def _takes_in(self, transaction: Transaction) -> bool:
        """Whether a receive in a transaction goes through the protocol that the queue was opened with."""
        if self._handle.queue.protocol != "remoteread":
            return self._handle.queue.protocol == "qmcomm"
        if transaction.session is not self._session:
            return True
        return self._session.serves_own_transactions(transaction.uow, transaction.held)

    @contextmanager
    def receive_lock(self, timeout: float | None = None) -> Iterator[Message]:
        """Lock the first message; it is removed when the block succeeds, and an exception puts it back in its place.

        Other readers do not see it in the meantime. Waits like `receive`. Raises ReceiveTimeout; MsmqError if the queue
        is not open through MS-MQRR.
        """
        with self._ending(self._locked(timeout)) as message:
            yield message

    @contextmanager
    def receive_lock_by_lookup_id(self, identifier: int) -> Iterator[Message]:
        """Lock the message with a lookup identifier, as `receive_lock` does. Raises MessageNotFound."""
        seek = to_seek("current")
        taken = self._lock(lambda: self._handle.take(lambda queue: queue.take_by_lookup_identifier(identifier, seek)))
        with self._ending(taken) as message:
            yield message

    @contextmanager
    def _ending(self, taken: Locked) -> Iterator[Message]:
        """Remove a locked message when the block succeeds; an exception puts it back."""
        try:
            yield taken.message
        except BaseException:
            self._end(taken, False)
            raise
        self._end(taken, True)

    def consume(self, timeout: float | None = None) -> Generator[Message, None, None]:
        """Receive one message after the other: each is removed when the loop requests the next one.

        Leaving the loop by an exception, `break` or `return` puts the current message back. The iteration ends when no
        message has arrived for `timeout` seconds; with None it never ends.
        """
        while True:
            try:
                taken = self._locked(timeout)
            except ReceiveTimeout:
                return
            done = False
            try:
                yield taken.message
                done = True
            finally:
                self._end(taken, done)

    def receive_by_lookup_id(self, identifier: int, direction: DirectionWord = "current") -> Message:
        """Receive the message with a lookup identifier, or the "next" or "previous" one. Raises MessageNotFound."""
        seek = to_seek(direction)
        return self._received(lambda queue: queue.take_by_lookup_identifier(identifier, seek))

    def receive_by_correlation_id(self, identifier: bytes | str, timeout: float | None = None) -> Message:
        """Receive the first message with a correlation identifier. Waits for one. Raises ReceiveTimeout."""
        left, wanted = countdown(milliseconds(timeout), time.monotonic), to_identifier(identifier)
        return self._received(lambda queue: queue.take_by_correlation_identifier(wanted, left(), time.monotonic))

    def _locked(self, timeout: float | None) -> Locked:
        left = countdown(milliseconds(timeout), time.monotonic)
        return self._lock(lambda: self._handle.take(lambda queue: queue.take(left())))

    def _lock(self, start: Callable[[], Steps[Locked]]) -> Locked:
        if not self.can_lock:
            raise self._handle.queue.lacks("two phases of a receive")
        self._demand(Access.RECEIVE, "receiving")
        return self._pool.run(start())

    def _received(self, operation: Callable[[OpenQueue], Steps[TakenMessage]]) -> Message:
        self._demand(Access.RECEIVE, "receiving")
        return self._pool.receive(self._handle.take(operation))

    def _end(self, taken: Locked, remove: bool) -> None:
        if not taken.locked:
            return
        try:
            self._pool.end(taken.end(remove))
        except CALL_FAILURES:
            if remove:  # otherwise the server puts it back, when the queue is closed or after some minutes
                raise

    # -- looking and more --------------------------------------------------------------------------------------

    def peek(self, timeout: float | None = None) -> Message:
        """Return the first message without removing it. Raises ReceiveTimeout."""
        left = countdown(milliseconds(timeout), time.monotonic)
        return self._run(lambda queue: queue.peek(ReceiveAction.PEEK_CURRENT, left()))

    def peek_by_lookup_id(self, identifier: int, direction: DirectionWord = "current") -> Message:
        """Return the message with a lookup identifier, or the "next" or "previous" one, without removing it. Raises
        MessageNotFound."""
        seek = to_seek(direction)
        return self._run(lambda queue: queue.peek_by_lookup_identifier(identifier, seek))

    def cancel(self) -> None:
        """End the receives and peeks of other threads that wait at this queue: they raise OperationCancelled."""
        self._run(lambda queue: queue.cancel())

    def move(self, identifier: int, to: str = "") -> None:
        """Move a message, by its lookup identifier, to a subqueue by name, or back to the queue itself with ""."""
        self._run(lambda queue: queue.move(identifier, to, self._session.license))

    def reject(self, identifier: int) -> None:
        """Reject a message that was received in a transaction, by its lookup identifier."""
        self._run(lambda queue: queue.reject(identifier))

    def purge(self) -> None:
        """Delete all messages."""
        self._run(lambda queue: queue.purge())

    def cursor(self) -> Cursor:
        """Return a cursor, which peeks at one message after the other and can receive its current one."""
        self._check_open()
        return Cursor(self, self._pool.run(self._handle.cursor()))

    def __iter__(self) -> Generator[Message, None, None]:
        with self.cursor() as cursor:
            try:
                yield cursor.peek(0)
                while True:
                    yield cursor.peek_next(0)
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

    def close(self) -> None:
        self._queue._pool.run(self._handle.close())

    def peek(self, timeout: float | None = None) -> Message:
        """Return the cursor's current message, or the first one. Raises ReceiveTimeout, MessageAlreadyReceived."""
        return self._peek(ReceiveAction.PEEK_CURRENT, timeout)

    def peek_next(self, timeout: float | None = None) -> Message:
        """Move to the next message and return it. Raises ReceiveTimeout; IllegalCursorAction before the first
        `peek`."""
        return self._peek(ReceiveAction.PEEK_NEXT, timeout)

    def _peek(self, action: ReceiveAction, timeout: float | None) -> Message:
        self._queue._check_open()
        return self._queue._pool.run(self._handle.peek(action, milliseconds(timeout)))

    def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> Message:
        """Receive the cursor's current message. Raises MessageAlreadyReceived, MessageNotFound, ReceiveTimeout.

        In a transaction, this requires a queue that was opened with protocol="qmcomm", or through MS-MQRR of an
        openmsmq server.
        """
        self._queue._demand(Access.RECEIVE, "receiving")
        wait, pool = milliseconds(timeout), self._queue._pool
        if transaction is None:
            return pool.receive(self._handle.take(lambda queue, cursor: queue.take(wait, cursor)))
        uow, held = self._queue._part_of(transaction)
        assert uow is not None
        if not self._queue._takes_in(transaction):
            raise self._handle.queue.lacks("internal transactions", has="MS-MQMP has (protocol='qmcomm')")
        steps = self._handle.take(lambda queue, cursor: queue.take_in_transaction(uow, wait, cursor))
        return transaction.receive(pool, self._handle.queue.protocol, holding(steps, *held))

    @contextmanager
    def receive_lock(self, timeout: float | None = None) -> Iterator[Message]:
        """Lock the cursor's current message, as `MessageQueue.receive_lock` does with the first one. Raises as
        `receive`."""
        wait = milliseconds(timeout)
        taken = self._queue._lock(lambda: self._handle.take(lambda queue, cursor: queue.take(wait, cursor)))
        with self._queue._ending(taken) as message:
            yield message
