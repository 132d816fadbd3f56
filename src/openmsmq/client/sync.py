"""The blocking client. Objects may be shared by threads: calls run on a pool of connections of one association."""

from __future__ import annotations

import os
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from openmsmq.client import operations as o
from openmsmq.model.bodies import BodyValue
from openmsmq.model.constants import INFINITE, Access, Action
from openmsmq.model.errors import HResult, MsmqError, ReceiveTimeout, error_for
from openmsmq.model.message import Message, identifier_text
from openmsmq.rpc import client as rpc
from openmsmq.rpc.credentials import Credentials
from openmsmq.rpc.errors import RpcConnectionError, RpcFault
from openmsmq.rpc.pdu import AuthLevel

STANDARD_PORT = 2103  # of qmcomm and qmcomm2, [MS-MQMP] 3.1.4.24
ALL_SECURITY = 0x7  # owner, group and DACL
_ANSWER_MARGIN = 30.0  # seconds a server may take beyond the time it was asked to wait
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

    def call(self, call: o.Call) -> Any:
        connection = self._take(call)
        stub = call.operation.encode_request(call.request)
        timeout = None if call.wait == INFINITE else call.wait / 1000 + _ANSWER_MARGIN
        try:
            answer = connection.call(call.operation.opnum, stub, timeout=timeout)
        except RpcFault as fault:
            self._give(connection)
            raise fault_error(fault, call.operation.name) from fault
        except BaseException:  # also KeyboardInterrupt: an answer may still come, so the connection is of no use
            self._drop(connection)
            raise
        self._give(connection)
        return call.operation.decode_response(answer)

    def _take(self, call: o.Call) -> rpc.Connection:
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
        except BaseException:
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

    def run(self, steps: o.Steps[o.T]) -> o.T:
        try:
            call = next(steps)
            while True:
                call = steps.send(self.call(call))
        except StopIteration as stop:
            value: o.T = stop.value
            return value


def fault_error(fault: RpcFault, operation: str) -> MsmqError:
    """Servers may raise an HRESULT as an exception ([MS-MQMP] 3.1.4.17), or refuse the caller."""
    if fault.status == 5:
        return error_for(HResult.MQ_ERROR_ACCESS_DENIED, f"{operation}: the server refuses this caller")
    if fault.status & 0xFFFF0000 == 0xC00E0000:
        return error_for(fault.status, operation)
    return MsmqError(HResult.MQ_ERROR, f"{operation}: {fault}")


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
    (PKT_INTEGRITY if not given); without, they are anonymous. `timeout` in seconds bounds the connect. Raises
    ConnectionError, AuthenticationError, or MsmqError when the server refuses the caller.
    """
    credentials = Credentials(user, password, domain) if user is not None else None
    security = {"credentials": credentials, "level": level, "spnego": spnego, "timeout": timeout}
    manager = QueueManager(_Pool(host, port if port is not None else STANDARD_PORT + port_offset, security))
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

    def __init__(self, pool: _Pool) -> None:
        self._pool = pool
        self._licence = os.urandom(16)  # LicenceGuid, [MS-MQMP] 3.2.1.1
        self._client = socket.gethostname()

    def close(self) -> None:
        """Close all connections: open queues and unfinished transactions end with them."""
        self._pool.close()

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

    def open(self, name: str, access: str | Access = "receive", *, exclusive: bool = False) -> MessageQueue:
        """Open a queue by path name or format name; `access` is "receive", "send" or "peek".

        `exclusive` denies other readers. Raises QueueNotFound, SharingViolation, AccessDenied.
        """
        opened = self._pool.run(o.open_queue(name, access, exclusive, self._client, self._licence))
        return MessageQueue(self._pool, opened)

    def transaction(self) -> Transaction:
        """A new internal transaction: `with qm.transaction() as tx: queue.send(message, transaction=tx)`."""
        return Transaction(self._pool, self._pool.run(o.enlist()))


class Transaction:
    """An internal transaction. As a context manager it commits, or aborts when an exception leaves the block."""

    def __init__(self, pool: _Pool, enlisted: o.Enlisted) -> None:
        self._pool, self._enlisted = pool, enlisted
        self.finished = False

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
    """An open queue. Iterating peeks at what is there, from first to last, and takes nothing away."""

    def __init__(self, pool: _Pool, opened: o.OpenQueue) -> None:
        self._pool, self._opened = pool, opened
        self._closed = False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._pool.run(o.close_queue(self._opened))

    @property
    def format_name(self) -> str:
        return self._pool.run(o.queue_format_name(self._opened))

    def send(self, message: Message | BodyValue, *, transaction: Transaction | None = None, **properties: Any) -> str:
        """Send a message, or a value as its body with properties by name (label="x", recoverable=True, ...).

        Returns the message identifier. Raises MsmqError; TransactionUsage where the queue and the send disagree about
        transactions.
        """
        message = as_message(message, properties)
        uow = transaction.uow if transaction is not None else None
        return identifier_text(self._pool.run(o.send(self._opened, message, uow)))

    def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> Message:
        """Take the first message; waits `timeout` seconds, for ever with None. Raises ReceiveTimeout."""
        uow = transaction.uow if transaction is not None else None
        return self._read(Action.RECEIVE, timeout, 0, uow)

    def peek(self, timeout: float | None = None) -> Message:
        """Look at the first message and leave it. Raises ReceiveTimeout."""
        return self._read(Action.PEEK_CURRENT, timeout, 0, None)

    def purge(self) -> None:
        """Delete all messages."""
        self._pool.run(o.purge(self._opened))

    def cursor(self) -> Cursor:
        """A cursor, to look at one message after the other and take the one it stands on."""
        return Cursor(self, self._pool.run(o.create_cursor(self._opened)))

    def __iter__(self) -> Iterator[Message]:
        with self.cursor() as cursor:
            try:
                yield cursor.peek(0)
                while True:
                    yield cursor.peek_next(0)
            except ReceiveTimeout:
                return

    def _read(self, action: Action, timeout: float | None, cursor: int, uow: bytes | None) -> Message:
        return self._pool.run(o.read(self._opened, action, o.milliseconds(timeout), cursor, uow))


class Cursor(_Closing):
    """[MS-MQDMPR] 3.2: `peek` begins, `peek_next` goes on, `receive` takes the message the cursor stands on."""

    def __init__(self, queue: MessageQueue, handle: int) -> None:
        self._queue, self._handle = queue, handle

    def close(self) -> None:
        if self._handle:
            handle, self._handle = self._handle, 0
            self._queue._pool.run(o.close_cursor(self._queue._opened, handle))

    def peek(self, timeout: float | None = None) -> Message:
        """The message the cursor stands on, or the first one. Raises ReceiveTimeout, MessageAlreadyReceived."""
        return self._queue._read(Action.PEEK_CURRENT, timeout, self._handle, None)

    def peek_next(self, timeout: float | None = None) -> Message:
        """Advance and look. Raises ReceiveTimeout; IllegalCursorAction before the first `peek`."""
        return self._queue._read(Action.PEEK_NEXT, timeout, self._handle, None)

    def receive(self, timeout: float | None = None, *, transaction: Transaction | None = None) -> Message:
        """Take the message the cursor stands on. Raises MessageAlreadyReceived, MessageNotFound, ReceiveTimeout."""
        uow = transaction.uow if transaction is not None else None
        return self._queue._read(Action.RECEIVE, timeout, self._handle, uow)


def as_message(value: Message | BodyValue, properties: dict[str, Any]) -> Message:
    """A message from a value and properties; `recoverable=True` is short for delivery_guarantee=1."""
    if "recoverable" in properties:
        properties["delivery_guarantee"] = int(bool(properties.pop("recoverable")))
    if isinstance(value, Message):
        if properties:
            raise TypeError(f"a Message has its own properties; not allowed beside it: {', '.join(properties)}")
        return value
    return Message.of(value, **properties)
