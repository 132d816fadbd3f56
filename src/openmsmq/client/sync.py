"""The blocking client. Objects may be shared by threads: calls run on a pool of connections of one association."""

from __future__ import annotations

import os
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self
from weakref import WeakValueDictionary

from openmsmq.client import operations as o
from openmsmq.client import qm2qm, qmcomm, remote_read, transactions
from openmsmq.client.calls import Call, CallerRefused, ProtocolUnavailable, Steps, T, fault_error, milliseconds
from openmsmq.client.open_queue import (
    OpenQueue,
    Taken,
    candidates,
    check_second_handle,
    to_access,
    to_identifier,
    to_seek,
)
from openmsmq.model.bodies import BodyValue
from openmsmq.model.constants import INFINITE, Access, Action
from openmsmq.model.errors import HResult, MsmqError, ReceiveTimeout
from openmsmq.model.message import Message, identifier_text
from openmsmq.rpc import client as rpc
from openmsmq.rpc.credentials import Credentials
from openmsmq.rpc.errors import BindError, RpcConnectionError, RpcFault
from openmsmq.rpc.pdu import AuthLevel

STANDARD_PORT = 2103  # of qmcomm and qmcomm2, [MS-MQMP] 3.1.4.24
ALL_SECURITY = 0x7  # owner, group and DACL
_ANSWER_MARGIN = 30.0  # seconds a server may take beyond the time it was asked to wait
_FAREWELL = 2.0  # seconds for a server to notice that a connection was given up
COUNTS = ("message_count", "bytes_in_queue", "journal_message_count", "bytes_in_journal")


class _Pool:
    """Idle connections of one association group; a call takes one, or opens another when all are busy."""

    def __init__(self, host: str, port: int, security: dict[str, Any]) -> None:
        self._host, self._port, self._security = host, port, security
        self._lock = threading.Lock()
        self._idle: list[rpc.Connection] = []
        self._all: set[rpc.Connection] = set()
        self._group = 0
        self._closed = False

    def call(self, call: Call) -> Any:
        connection = self._take(call)
        stub = call.operation.encode_request(call.request)
        timeout = None if call.wait == INFINITE else call.wait / 1000 + _ANSWER_MARGIN
        try:
            answer = connection.call(call.operation.opnum, stub, timeout=timeout)
        except RpcFault as fault:
            self._give(connection)
            raise fault_error(fault, call.operation.name) from fault
        except ConnectionError:
            self._drop(connection)
            raise
        except BaseException:  # also KeyboardInterrupt: an answer may still come, so the connection is of no use
            connection.abandon(_FAREWELL)
            self._drop(connection)
            raise
        self._give(connection)
        return call.operation.decode_response(answer)

    def _take(self, call: Call) -> rpc.Connection:
        with self._lock:
            if self._closed:
                raise MsmqError(HResult.MQ_ERROR_SERVICE_NOT_AVAILABLE, "the connection is closed")
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = rpc.connect(self._host, self._port, assoc_group_id=self._group, **self._security)
            with self._lock:
                self._all.add(connection)
        try:
            connection.bind(call.interface.uuid, call.interface.version)
        except BaseException as error:
            if isinstance(error, BindError) and connection.core.contexts:
                self._give(connection)  # it serves other interfaces, and may be the last one of open queues
            else:
                self._drop(connection)
            raise
        self._group = self._group or connection.core.assoc_group_id
        return connection

    def _give(self, connection: rpc.Connection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(connection)

    def _drop(self, connection: rpc.Connection) -> None:
        connection.close()
        with self._lock:
            self._all.discard(connection)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            connections, self._all = self._all, set()
        for connection in connections:
            connection.close()

    def run(self, steps: Steps[T]) -> T:
        try:
            call = next(steps)
            while True:
                try:
                    answer = self.call(call)
                except BaseException as error:
                    call = steps.throw(error)
                else:
                    call = steps.send(answer)
        except StopIteration as stop:
            value: T = stop.value
            return value


def connect(
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
    """Connect to a queue manager.

    `port` defaults to 2103 + `port_offset`. With `user` the calls are authenticated by NTLM at `level`
    (PKT_INTEGRITY if not given, but PKT_PRIVACY for RemoteRead, as servers demand); without, they are anonymous.
    `timeout` in seconds bounds the connect. Raises ConnectionError, AuthenticationError, or MsmqError when the server
    refuses the caller.
    """
    credentials = Credentials(user, password, domain) if user is not None else None
    security = {"credentials": credentials, "level": level, "spnego": spnego, "timeout": timeout}
    port = port if port is not None else STANDARD_PORT + port_offset
    pool = private = _Pool(host, port, security)
    if credentials is not None and level is None:
        private = _Pool(host, port, security | {"level": AuthLevel.PKT_PRIVACY})
    manager = QueueManager(pool, private)
    try:
        manager.machine_id  # noqa: B018 - proves that the server is there and accepts us
    except BaseException:
        manager.close()
        raise
    return manager


class _Closing(ABC):
    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class QueueManager(_Closing):
    """A connection to a queue manager; see `connect`."""

    def __init__(self, pool: _Pool, private: _Pool) -> None:
        """`private` is for calls that servers want protected; it may be the same."""
        self._pool, self._private = pool, private
        self._remote_read_checked = False
        self._remote_read_refused: MsmqError | None = None
        self._joining = threading.Lock()
        self._joined: WeakValueDictionary[bytes, Transaction] = WeakValueDictionary()
        self._licence = os.urandom(16)  # LicenceGuid, [MS-MQMP] 3.2.1.1
        self._client = socket.gethostname()

    def close(self) -> None:
        """Close all connections: open queues and unfinished transactions end with them."""
        self._pool.close()
        self._private.close()

    @property
    def machine_id(self) -> str:
        """The GUID of the queue manager."""
        return self._pool.run(o.query(4))

    @property
    def version(self) -> str:
        """The MSMQ version that the server says it is."""
        return self._pool.run(o.query(3))

    def create_queue(self, path_name: str, *, security: bytes | None = None, **properties: Any) -> str:
        """Create a private queue, for example `.\\private$\\orders`; returns its format name.

        Properties by name: label, transactional, journal, quota and journal_quota (kilobytes), priv_level, type
        (UUID), authenticate, base_priority, multicast_address. Raises QueueExists, IllegalQueuePathName, ...
        """
        return self._pool.run(o.create_queue(path_name, properties, security))

    def delete_queue(self, name: str) -> None:
        """Delete a queue, by path name or format name, with its messages."""
        self._pool.run(o.delete_queue(name))

    def properties(self, name: str, *wanted: str) -> dict[str, Any]:
        """Properties of a queue by name; all of them if none is named."""
        return self._pool.run(o.get_properties(name, wanted or tuple(o.PROPERTIES)))

    def set_properties(self, name: str, **properties: Any) -> None:
        """Change properties of a queue, all or none."""
        self._pool.run(o.set_properties(name, properties))

    def security(self, name: str, information: int = ALL_SECURITY) -> bytes:
        """The security descriptor of a queue, self-relative; see `openmsmq.model.security`."""
        return self._pool.run(o.get_security(name, information))

    def set_security(self, name: str, descriptor: bytes, information: int) -> None:
        self._pool.run(o.set_security(name, information, descriptor))

    def format_name(self, path_name: str) -> str:
        """The private format name of a queue."""
        return self._pool.run(o.resolve(path_name))

    def queues(self) -> list[str]:
        """The path names of all private queues."""
        names: list[str] = self._pool.run(o.management(None, "private_queues"))["private_queues"]
        return names

    def counts(self, name: str) -> dict[str, int]:
        """message_count, bytes_in_queue, journal_message_count and bytes_in_journal of a queue."""
        return self._pool.run(o.management(name, *COUNTS))

    def management(self, name: str | None = None) -> dict[str, Any]:
        """Everything MS-MQMR tells about a queue, an outgoing one by the name of its destination, or about the
        machine; None for what there is no value of."""
        return self._pool.run(o.management(name))

    def outgoing(self) -> list[dict[str, Any]]:
        """The management properties of each outgoing queue that has messages or is open."""
        return self._pool.run(o.outgoing())

    def pause(self, name: str) -> None:
        """Let nothing out of the outgoing queue for a destination, until `resume` or the end of the server. For
        administrators, as all actions. Raises AccessDenied, QueueNotFound."""
        self._pool.run(o.act(name, "PAUSE"))

    def resume(self, name: str) -> None:
        """Undo `pause`."""
        self._pool.run(o.act(name, "RESUME"))

    def connect_machine(self) -> None:
        """Let the server transfer messages to other machines again."""
        self._pool.run(o.act(None, "CONNECT"))

    def disconnect_machine(self) -> None:
        """Let the server transfer no messages to other machines, until `connect_machine` or its end."""
        self._pool.run(o.act(None, "DISCONNECT"))

    def tidy(self) -> None:
        """Make the server give back disk space that it does not need."""
        self._pool.run(o.act(None, "TIDY"))

    def open(
        self, name: str, access: str | Access = "receive", *, exclusive: bool = False, protocol: str = "auto"
    ) -> MessageQueue:
        """Open a queue by path name or format name; `access` is "receive", "send" or "peek".

        `exclusive` denies other readers. `protocol` is "remoteread" (MS-MQRR), "qm2qm" (MS-MQQP), "qmcomm" (MS-MQMP),
        or "auto": for reading RemoteRead where the server offers it to this caller, else qmcomm;
        `MessageQueue.protocol` tells which. Raises QueueNotFound, SharingViolation, AccessDenied.
        """
        access = to_access(access)
        wanted = candidates(protocol, access)
        if wanted[0] == "remoteread":
            try:
                self._check_remote_read()
                opened = self._private.run(remote_read.open_queue(name, access, exclusive, self._licence))
                return MessageQueue(self, self._private, opened)
            except (CallerRefused, ProtocolUnavailable) as error:
                self._remote_read_refused = error
                if len(wanted) == 1:
                    raise
        if wanted[0] == "qm2qm":
            session = self._pool.run(qm2qm.open_queue(name, access, exclusive, self._licence))
            return MessageQueue(self, self._pool, session)
        return MessageQueue(self, self._pool, self._open_qmcomm(name, access, exclusive))

    def _check_remote_read(self) -> None:
        """Once; raises CallerRefused or ProtocolUnavailable, also when an open was refused before."""
        if self._remote_read_refused is not None:
            raise self._remote_read_refused
        if not self._remote_read_checked:
            try:
                self._private.run(remote_read.check_offered())
            except BindError as error:
                raise ProtocolUnavailable(detail=f"RemoteRead: {error}") from error
            self._remote_read_checked = True

    def _open_qmcomm(self, name: str, access: Access, exclusive: bool) -> qmcomm.QmcommQueue:
        return self._pool.run(qmcomm.open_queue(name, access, exclusive, self._client, self._licence))

    def transaction(self) -> Transaction:
        """A new internal transaction: `with qm.transaction() as tx: queue.send(message, transaction=tx)`."""
        return Transaction(self, self._pool, self._pool.run(o.enlist()))

    def join(self, transaction: Transaction) -> None:
        """Take part in a transaction of another queue manager; sends and receives in it do so by themselves.

        Both have to be openmsmq: a Microsoft DTC is not spoken. Raises MsmqError.
        """
        with self._joining:
            if transaction.manager is not self and transaction.uow not in self._joined:
                self._private.run(transactions.enlist_remote(transaction.uow, transaction.token()))
                self._joined[transaction.uow] = transaction


class Transaction:
    """An internal transaction. As a context manager it commits, or aborts when an exception leaves the block.

    Used with a queue of another queue manager it becomes a distributed one: all of it commits, or nothing.
    """

    def __init__(self, manager: QueueManager, pool: _Pool, enlisted: o.Enlisted) -> None:
        self.manager, self._pool, self._enlisted = manager, pool, enlisted
        self.finished = False

    def token(self) -> bytes:
        """The propagation token: with it and `uow` other queue managers take part."""
        return self._pool.run(transactions.propagation_token(self.uow))

    @property
    def uow(self) -> bytes:
        """The unit of work, 16 bytes."""
        return self._enlisted.uow

    def commit(self) -> None:
        self._pool.run(o.commit(self._enlisted))
        self.finished = True

    def abort(self) -> None:
        self.finished = True
        self._pool.run(o.abort(self._enlisted))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.finished:
            return
        if kind is None:
            self.commit()
        else:
            try:
                self.abort()
            except (MsmqError, RpcConnectionError):
                if error is None:  # the server aborts it by itself when the connection goes
                    raise


class MessageQueue(_Closing):
    """An open queue. Iterating peeks at what is there, from first to last, and takes nothing away.

    What its protocol lacks and MS-MQMP has (transactions, `format_name`) goes by a second handle of qmcomm.
    """

    def __init__(self, manager: QueueManager, pool: _Pool, opened: OpenQueue) -> None:
        self._manager, self._pool, self._opened = manager, pool, opened
        self._qmcomm = opened if isinstance(opened, qmcomm.QmcommQueue) else None
        self._lock = threading.Lock()
        self._closed = False

    @property
    def protocol(self) -> str:
        """The protocol it was opened through: "remoteread", "qm2qm" or "qmcomm"."""
        return self._opened.protocol

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._pool.run(self._opened.close())
        finally:
            if self._qmcomm is not None and self._qmcomm is not self._opened:
                self._manager._pool.run(self._qmcomm.close())

    def _through_qmcomm(self, what: str) -> qmcomm.QmcommQueue:
        with self._lock:
            if self._qmcomm is None:
                check_second_handle(self._opened, what)
                self._qmcomm = self._manager._open_qmcomm(self._opened.name, self._opened.access, False)
            return self._qmcomm

    @property
    def format_name(self) -> str:
        return self._manager._pool.run(self._through_qmcomm("the format name").format_name())

    def send(self, message: Message | BodyValue, *, transaction: Transaction | None = None, **properties: Any) -> str:
        """Send a message, or a value as its body with properties by name (label="x", recoverable=True, ...).

        Returns the message identifier. Raises MsmqError; TransactionUsage where the queue and the send disagree about
        transactions.
        """
        message = as_message(message, properties)
        uow = None
        if transaction is not None:
            self._manager.join(transaction)
            uow = transaction.uow
        return identifier_text(self._manager._pool.run(self._through_qmcomm("sending").send(message, uow)))

    # -- taking messages ---------------------------------------------------------------------------------------

    def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> Message:
        """Take the first message; waits `timeout` seconds, for ever with None. Raises ReceiveTimeout."""
        wait = milliseconds(timeout)
        if transaction is None:
            return self._received(self._opened.take(wait))
        self._manager.join(transaction)
        if transaction.manager is not self._manager and isinstance(self._opened, remote_read.RemoteReadQueue):
            return self._received(self._opened.take_in_transaction(transaction.uow, wait))
        opened = self._through_qmcomm("a receive in a transaction")
        return self._manager._pool.run(opened.take_in_transaction(transaction.uow, wait)).message

    @contextmanager
    def receive_lock(self, timeout: float | None = None) -> Iterator[Message]:
        """Take the first message when the block succeeds; an exception puts it back in its place.

        Meanwhile nobody else sees it. Waits as `receive` does. Raises ReceiveTimeout; MsmqError if the queue is not
        open through MS-MQRR.
        """
        taken = self._locked(timeout)
        try:
            yield taken.message
        except BaseException:
            self._end(taken, False)
            raise
        self._end(taken, True)

    def consume(self, timeout: float | None = None) -> Generator[Message, None, None]:
        """Take one message after the other: each is removed when the loop asks for the next one.

        Leaving the loop by an exception, `break` or `return` puts the current message back. Ends when none has come
        for `timeout` seconds, never with None.
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

    def receive_by_lookup_id(self, identifier: int, direction: str = "current") -> Message:
        """Take the message with a lookup identifier, or the "next" or "previous" one. Raises MessageNotFound."""
        return self._received(self._opened.take_by_lookup_identifier(identifier, to_seek(direction)))

    def receive_by_correlation_id(self, identifier: bytes | str, timeout: float | None = None) -> Message:
        """Take the first message with a correlation identifier; waits for one to come. Raises ReceiveTimeout."""
        wait, wanted = milliseconds(timeout), to_identifier(identifier)
        return self._received(self._opened.take_by_correlation_identifier(wanted, wait, time.monotonic))

    def _locked(self, timeout: float | None) -> Taken:
        if not self._opened.two_phases:
            raise self._opened.lacks("two phases of a receive")
        return self._pool.run(self._opened.take(milliseconds(timeout)))

    def _received(self, steps: Steps[Taken]) -> Message:
        taken = self._pool.run(steps)
        self._end(taken, True)
        return taken.message

    def _end(self, taken: Taken, remove: bool) -> None:
        if taken.request is None:
            return
        try:
            self._pool.run(self._opened.end(taken.request, remove))
        except (MsmqError, ConnectionError):
            if remove:  # else the server puts it back by itself, when the queue is closed or some minutes have gone
                raise

    # -- looking and more --------------------------------------------------------------------------------------

    def peek(self, timeout: float | None = None) -> Message:
        """Look at the first message and leave it. Raises ReceiveTimeout."""
        return self._pool.run(self._opened.peek(Action.PEEK_CURRENT, milliseconds(timeout)))

    def peek_by_lookup_id(self, identifier: int, direction: str = "current") -> Message:
        """Look at the message with a lookup identifier, or the "next" or "previous" one. Raises MessageNotFound."""
        return self._pool.run(self._opened.peek_by_lookup_identifier(identifier, to_seek(direction)))

    def cancel(self) -> None:
        """End the receives and peeks of other threads that wait at this queue: they raise OperationCancelled."""
        self._pool.run(self._opened.cancel())

    def move(self, identifier: int, to: str = "") -> None:
        """Move a message, by its lookup identifier, to a subqueue by name, or back to the queue itself with ""."""
        self._pool.run(self._opened.move(identifier, to, self._manager._licence))

    def reject(self, identifier: int) -> None:
        """Reject a message that was received in a transaction, by its lookup identifier."""
        self._pool.run(self._opened.reject(identifier))

    def purge(self) -> None:
        """Delete all messages."""
        self._pool.run(self._opened.purge())

    def cursor(self) -> Cursor:
        """A cursor, to look at one message after the other and take the one it stands on."""
        return Cursor(self, self._pool.run(self._opened.create_cursor()))

    def __iter__(self) -> Iterator[Message]:
        with self.cursor() as cursor:
            try:
                yield cursor.peek(0)
                while True:
                    yield cursor.peek_next(0)
            except ReceiveTimeout:
                return


class Cursor(_Closing):
    """[MS-MQDMPR] 3.2: `peek` begins, `peek_next` goes on, `receive` takes the message the cursor stands on."""

    def __init__(self, queue: MessageQueue, handle: int) -> None:
        self._queue, self._handle = queue, handle

    def close(self) -> None:
        if self._handle:
            handle, self._handle = self._handle, 0
            self._queue._pool.run(self._queue._opened.close_cursor(handle))

    def peek(self, timeout: float | None = None) -> Message:
        """The message the cursor stands on, or the first one. Raises ReceiveTimeout, MessageAlreadyReceived."""
        return self._peek(Action.PEEK_CURRENT, timeout)

    def peek_next(self, timeout: float | None = None) -> Message:
        """Advance and look. Raises ReceiveTimeout; IllegalCursorAction before the first `peek`."""
        return self._peek(Action.PEEK_NEXT, timeout)

    def _peek(self, action: Action, timeout: float | None) -> Message:
        return self._queue._pool.run(self._queue._opened.peek(action, milliseconds(timeout), self._handle))

    def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> Message:
        """Take the message the cursor stands on. Raises MessageAlreadyReceived, MessageNotFound, ReceiveTimeout.

        In a transaction only if the queue was opened with protocol="qmcomm".
        """
        opened, wait = self._queue._opened, milliseconds(timeout)
        if transaction is not None:
            self._queue._manager.join(transaction)
            if transaction.manager is self._queue._manager and not isinstance(opened, qmcomm.QmcommQueue):
                raise opened.lacks("internal transactions", has="MS-MQMP has (protocol='qmcomm')")
            return self._queue._received(opened.take_in_transaction(transaction.uow, wait, self._handle))
        return self._queue._received(opened.take(wait, self._handle))


def as_message(value: Message | BodyValue, properties: dict[str, Any]) -> Message:
    """A message from a value and properties; `recoverable=True` is short for delivery_guarantee=1."""
    if "recoverable" in properties:
        properties["delivery_guarantee"] = int(bool(properties.pop("recoverable")))
    if isinstance(value, Message):
        if properties:
            raise TypeError(f"a Message has its own properties; not allowed beside it: {', '.join(properties)}")
        return value
    return Message.of(value, **properties)
