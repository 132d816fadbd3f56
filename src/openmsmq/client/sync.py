"""The blocking client. Objects may be shared by threads: calls run on a pool of connections of one association.

Generated from asynchronous.py by tools/sync_client.py; never edited.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Self, Unpack
from weakref import WeakValueDictionary

from msrpc.rpc.kerberos import KerberosCredentials
from msrpc.rpc.pdu import AuthLevel
from msrpc.rpc.sockets import DEAD_PEER
from openmsmq.client import operations as o
from openmsmq.client import qm2qm, qmcomm, remote_read, transaction_calls
from openmsmq.client.arguments import ALL_SECURITY, COUNTS, STANDARD_PORT, as_message, credentials_of
from openmsmq.client.calls import (
    CALL_FAILURES,
    CallerRefused,
    ProtocolUnavailable,
    ServerResource,
    Steps,
    T,
    answered,
    holding,
    milliseconds,
    opening,
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
from openmsmq.client.participants import OUTCOMES, Participant, outcome_body, participants_in, raise_first
from openmsmq.client.pipelining import WINDOW, pipeline
from openmsmq.client.pool import Pool
from openmsmq.client.properties import MessageProperties, NewQueueProperties, QueuePropertyName
from openmsmq.client.reopening import CursorHandle, Locked, ReopeningQueue, countdown, open_handle
from openmsmq.client.retrying import RECONNECT
from openmsmq.model.bodies import BodyValue
from openmsmq.model.constants import Access, ReceiveAction
from openmsmq.model.errors import (
    AnswerTimeout,
    BindError,
    LoginRefused,
    MessageNotFound,
    MsmqError,
    QueueExists,
    QueueNotFound,
    ReceiveTimeout,
    RpcConnectionError,
    TransactionSequence,
    TransactionUsage,
)
from openmsmq.model.message import Message, identifier_text


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
    kerberos: bool | KerberosCredentials = False,
    timeout: float = 10.0,
    reconnect_seconds: float = RECONNECT,
    dead_peer_seconds: int = DEAD_PEER,
) -> QueueManager:
    """Connect to a queue manager.

    `port` defaults to 2103 + `port_offset`. With `user`, calls are authenticated with NTLM at `level` (default:
    PKT_INTEGRITY, but PKT_PRIVACY for RemoteRead, which servers require); otherwise they are anonymous. With
    `kerberos`, they are authenticated with a ticket: True for the ticket cache of the environment and the service
    `host/` plus `host`, which must be the name of the server in the domain; KerberosCredentials for another cache or
    service. `timeout` limits the connect and each bind, in seconds. If the connection is lost later, a call is retried
    for up to `reconnect_seconds`, provided that it was not sent or is idempotent. The connection is closed if the
    server's machine acknowledges no TCP data for `dead_peer_seconds`. Raises RpcConnectionError, AuthenticationError,
    LoginRefused for a wrong user or password, CallerRefused if the server accepts no anonymous callers,
    KerberosUnavailable, and ValueError if both a user and a ticket are given.
    """
    credentials = credentials_of(host, user, password, domain, kerberos)
    security = {
        "credentials": credentials, "level": level, "spnego": spnego, "timeout": timeout,
        "dead_peer_seconds": dead_peer_seconds,
    }  # fmt: skip
    port = port if port is not None else STANDARD_PORT + port_offset
    pool = private = Pool(host, port, security)
    if credentials is not None and level is None:
        private = Pool(host, port, security | {"level": AuthLevel.PKT_PRIVACY})
    manager = QueueManager(pool, private)
    try:
        manager._check_accepted()
    except BaseException as error:
        manager.close()
        if type(error) in (RpcConnectionError, AnswerTimeout) and not str(error).startswith(host):
            raise type(error)(f"{host}:{port}: {error}") from error
        raise
    pool.reconnect_seconds = private.reconnect_seconds = reconnect_seconds
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

    def __init__(self, pool: Pool, private: Pool) -> None:
        """`private` is the pool for calls that servers accept only at PKT_PRIVACY; it may be the same."""
        self._pool, self._private = pool, private
        self._remote_read_checked = False
        self._remote_read_refused: MsmqError | None = None
        self._has_own_transactions: bool | None = None
        self._joining = threading.Lock()
        self._joined: WeakValueDictionary[bytes, Transaction] = WeakValueDictionary()
        self._licence = os.urandom(16)  # LicenceGuid, [MS-MQMP] 3.2.1.1
        self._client = socket.gethostname()

    def close(self) -> None:
        """Close all connections: open queues and unfinished transactions end with them."""
        self._pool.close()
        self._private.close()

    def _check_accepted(self) -> None:
        """Check that the server is reachable and that one of its interfaces accepts this caller: Windows may refuse all
        remote calls of MS-MQMP, but not those of MS-MQMR and MS-MQRR."""
        try:
            self.machine_id  # noqa: B018 - asks
        except (CallerRefused, ProtocolUnavailable, BindError) as refused:
            try:
                self._pool.run(o.management(None, "type"))
            except (MsmqError, RpcConnectionError):
                raise refused from None

    @property
    def remote_read_refused(self) -> MsmqError | None:
        """The reason why the server refused reads through MS-MQRR; None if it did not, or no queue was opened yet."""
        return self._remote_read_refused

    @property
    def machine_id(self) -> str:
        """The GUID of the queue manager."""
        return self._pool.run(o.query(4))

    @property
    def version(self) -> str:
        """The MSMQ version that the server reports."""
        return self._pool.run(o.query(3))

    def create_queue(
        self, path_name: str, *, security: bytes | None = None, **properties: Unpack[NewQueueProperties]
    ) -> str:
        """Create a private queue, `orders` or `.\\private$\\orders`, or a public one, `.\\orders`, which the
        directory of an openmsmq server keeps; returns its format name.

        Properties by name: label, transactional, journal, quota and journal_quota (kilobytes), priv_level, type
        (UUID), authenticate, base_priority, multicast_address. Raises QueueExists, IllegalQueuePathName, ...
        """
        return self._pool.run(o.create_queue(path_name, dict(properties), security))

    def delete_queue(self, name: str) -> None:
        """Delete a queue, by name, path name or format name, with its messages."""
        self._pool.run(o.delete_queue(name))

    def properties(self, name: str, *wanted: QueuePropertyName) -> dict[str, Any]:
        """Return properties of a queue by name; all of them if no name is given."""
        return self._pool.run(o.get_properties(name, wanted or tuple(o.PROPERTIES)))

    def set_properties(self, name: str, **properties: Unpack[NewQueueProperties]) -> None:
        """Change properties of a queue: all of them, or none if one is invalid."""
        self._pool.run(o.set_properties(name, dict(properties)))

    def security(self, name: str, information: int = ALL_SECURITY) -> bytes:
        """Return the self-relative security descriptor of a queue; see `openmsmq.model.security`."""
        return self._pool.run(o.get_security(name, information))

    def set_security(self, name: str, descriptor: bytes, information: int) -> None:
        self._pool.run(o.set_security(name, information, descriptor))

    def format_name(self, path_name: str) -> str:
        """Return the private format name of a queue; for the path name of a public queue, PUBLIC= and its
        identifier."""
        return self._pool.run(o.resolve(path_name))

    def queues(self) -> list[str]:
        """Return the path names of all private queues."""
        names: list[str] = (self._pool.run(o.management(None, "private_queues")))["private_queues"]
        return names

    def counts(self, name: str) -> dict[str, int]:
        """Return message_count, bytes_in_queue, journal_message_count and bytes_in_journal of a queue."""
        return self._pool.run(o.management(name, *COUNTS))

    def subqueues(self, name: str) -> list[str]:
        """Return the names of the subqueues of a queue that have messages or are open."""
        names: list[str] = (self._pool.run(o.management(name, "subqueue_names")))["subqueue_names"]
        return names

    def management(self, name: str | None = None) -> dict[str, Any]:
        """Return management properties (MS-MQMR) of a queue, of an outgoing queue by the name of its destination, or of
        the machine. A property without a value is None."""
        return self._pool.run(o.management(name))

    def outgoing(self) -> list[dict[str, Any]]:
        """Return the management properties of each outgoing queue that has messages or is open."""
        return self._pool.run(o.outgoing())

    def pause(self, name: str) -> None:
        """Hold messages in the outgoing queue for a destination, until `resume` or a restart of the server. Like all
        actions, it requires an administrator. Raises AccessDenied, QueueNotFound."""
        self._pool.run(o.act(name, "PAUSE"))

    def resume(self, name: str) -> None:
        """Undo `pause`."""
        self._pool.run(o.act(name, "RESUME"))

    def connect_machine(self) -> None:
        """Make the server transfer messages to other machines again."""
        self._pool.run(o.act(None, "CONNECT"))

    def disconnect_machine(self) -> None:
        """Stop transfers to other machines, until `connect_machine` or a restart of the server."""
        self._pool.run(o.act(None, "DISCONNECT"))

    def tidy(self) -> None:
        """Make the server release unused disk space."""
        self._pool.run(o.act(None, "TIDY"))

    def open(
        self,
        name: str,
        access: AccessWord | Access = "receive",
        *,
        exclusive: bool = False,
        protocol: ProtocolWord = "auto",
        reconnect: bool = False,
    ) -> MessageQueue:
        """Open a queue by name (`orders`), path name or format name; `access` is "receive", "send" or "peek".

        `exclusive` denies other readers. `protocol` is "remoteread" (MS-MQRR), "qm2qm" (MS-MQQP), "qmcomm" (MS-MQMP),
        or "auto": RemoteRead for reading if the server offers it to this caller, else qmcomm; `MessageQueue.protocol`
        tells which. With `reconnect`, a queue whose handle was lost is opened again by its name, and the operation is
        repeated, unless it may have been executed. Raises QueueNotFound, SharingViolation, AccessDenied.
        """
        access = to_access(access)
        wanted = candidates(protocol, access)
        if wanted[0] == "remoteread":
            try:
                self._check_remote_read()
                steps = partial(remote_read.open_queue, name, access, exclusive, self._licence)
                handle = self._private.open(open_handle(name, steps, reconnect))
                return MessageQueue(self, self._private, handle, reconnect)
            except (CallerRefused, ProtocolUnavailable, LoginRefused) as error:
                if not isinstance(error, LoginRefused):  # which may succeed later
                    self._remote_read_refused = error
                if len(wanted) == 1:
                    raise
        if wanted[0] == "qm2qm":
            session = partial(qm2qm.open_queue, name, access, exclusive, self._licence)
            handle = self._pool.open(open_handle(name, session, reconnect))
            return MessageQueue(self, self._pool, handle, reconnect)
        handle = self._open_qmcomm(name, access, exclusive, reconnect)
        return MessageQueue(self, self._pool, handle, reconnect)

    def _check_remote_read(self) -> None:
        """Check once. Raises CallerRefused or ProtocolUnavailable, also if an earlier open was refused."""
        if self._remote_read_refused is not None:
            raise self._remote_read_refused
        if not self._remote_read_checked:
            try:
                self._private.run(remote_read.check_offered())
            except BindError as error:
                if error.reason is not None:  # the server refused the connection, for example because it is busy
                    raise
                raise ProtocolUnavailable(detail=f"RemoteRead: {error}") from error
            self._remote_read_checked = True

    def _open_qmcomm(self, name: str, access: Access, exclusive: bool, reconnect: bool) -> ReopeningQueue:
        steps = partial(qmcomm.open_queue, name, access, exclusive, self._client, self._licence)
        return self._pool.open(open_handle(name, steps, reconnect))

    def transaction(self, *, distributed: bool = False, outcomes: str = OUTCOMES) -> Transaction:
        """Begin an internal transaction:
        `with qm.transaction() as tx: queue.send(message, transaction=tx)`.

        With `distributed`, databases can take part in it (`Transaction.enlist`). `outcomes` is the transactional queue
        that records which of these transactions have committed; it is created if it is missing."""
        if distributed:
            with suppress(QueueExists):
                self.create_queue(outcomes, transactional=True, label="outcomes of transactions")
        held = ServerResource("transaction", "")
        enlisted = self._pool.run(opening(o.enlist(), held))
        return Transaction(self, self._pool, enlisted, held, outcomes if distributed else "")

    def resolve(self, *participants: Participant, outcomes: str = OUTCOMES) -> list[str]:
        """End transactions that are in doubt at participants after a crash of the program or a lost connection: commit
        those that have committed here, and roll back the others. Returns the transactions that are still in progress.
        Raises QueueNotFound if a transaction is in doubt and the queue of outcomes does not exist, and the first
        exception of a participant after trying the others.

        Pass all participants that a transaction may have: its outcome is deleted when it was in doubt at one of them
        and they are at least as many as took part. Outcomes of other programs stay.
        """
        try:
            self._outcomes(outcomes)
        except QueueNotFound:  # no transaction was begun yet; otherwise this is the wrong queue or queue manager
            for participant in participants:
                if list(self._pool.outcome(participant.in_doubt())):
                    raise
            return []
        under_way: set[str] = set()
        told: set[str] = set()  # committed transactions that were in doubt
        failures: list[Exception] = []
        for participant in participants:
            try:
                for transaction in list(self._pool.outcome(participant.in_doubt())):
                    committed = self._has_committed(transaction, outcomes)
                    if committed is None:
                        under_way.add(transaction)
                    elif committed:
                        self._pool.outcome(participant.commit(transaction))
                        told.add(transaction)
                    else:
                        self._pool.outcome(participant.rollback(transaction))
            except Exception as error:
                failures.append(error)
        raise_first(failures)
        known = self._outcomes(outcomes) if told else {}
        for transaction, number in known.items():
            if transaction in told and number <= len(participants):
                self._forget_outcome(transaction, outcomes)
        return sorted(under_way)

    def _outcomes(self, outcomes: str) -> dict[str, int]:
        """Return the committed transactions with participants, and the number of their participants."""
        found = {}
        with self.open(outcomes, "peek") as queue:
            for message in queue:
                if (number := participants_in(message.body)) is not None:
                    found[message.label] = number
        return found

    def _has_committed(self, transaction: str, outcomes: str) -> bool | None:
        """Whether a transaction has committed; None while it is in progress. One that can no longer be committed has
        not."""
        if transaction in self._outcomes(outcomes):
            return True
        try:
            probe = self._pool.run(o.enlist(bytes.fromhex(transaction)))
        except TransactionSequence:
            return None
        try:
            return transaction in self._outcomes(outcomes)  # it may have ended in the meantime
        finally:
            self._pool.run(o.abort(probe))

    def _forget_outcome(self, transaction: str, outcomes: str) -> None:
        """Delete the outcome, because all participants have been told."""
        with self.open(outcomes) as queue:
            for message in queue:
                if message.label == transaction and participants_in(message.body) is not None:
                    with suppress(MessageNotFound):
                        queue.receive_by_lookup_id(message.lookup_identifier)
                    return

    def join(self, transaction: Transaction) -> None:
        """Take part in a transaction of another queue manager. Sends and receives in a transaction call this
        themselves.

        The queue manager of the transaction must be openmsmq. This one must have a transaction manager with OleTx, and
        both must be able to connect to each other (docs/transactions.md). Raises MsmqError.
        """
        with self._joining:
            if transaction.manager is not self and transaction.uow not in self._joined:
                token = self._token_of(transaction)
                self._private.run(transaction_calls.enlist_remote(transaction.uow, token))
                self._pool.run(transaction_calls.enlist_for_sending(transaction.uow))
                self._joined[transaction.uow] = transaction

    def _token_of(self, transaction: Transaction) -> bytes:
        try:
            return transaction.token()
        except MsmqError as error:
            other = transaction.manager
            if answered(error) and other._pool.run(o.query(4)) == self._pool.run(o.query(4)):
                raise TransactionUsage(
                    detail="the transaction was begun through another connection to this queue manager; use the "
                    "QueueManager that began it"
                ) from error
            raise

    def _keeps_order(self) -> bool:
        """Whether the server serves concurrent calls of one connection in order. openmsmq does; RPC does not require it
        ([MS-RPCE] 3.3.1.5.8)."""
        if self._has_own_transactions is None:
            probe = self.transaction()
            try:
                return self._serves_own_transactions(probe)
            finally:
                probe.abort()
        return self._has_own_transactions

    def _serves_own_transactions(self, transaction: Transaction) -> bool:
        """Whether MS-MQRR of this queue manager receives in its internal transactions, as openmsmq does (D-70). Any
        other queue manager would receive in a transaction that nobody commits ([MS-MQRR] 3.1.4.13)."""
        if self._has_own_transactions is None:
            try:
                self._private.run(holding(transaction_calls.enlist_remote(transaction.uow, b""), transaction.held))
                self._has_own_transactions = True
            except MsmqError as error:
                if not answered(error):
                    raise
                self._has_own_transactions = False
        return self._has_own_transactions


class Transaction:
    """An internal transaction. As a context manager it commits at the end of the block, or aborts after an exception.

    If it is used with a queue of another queue manager, it becomes a distributed transaction: all of it commits, or
    nothing.
    """

    def __init__(
        self,
        manager: QueueManager,
        pool: Pool,
        enlisted: o.Enlisted,
        held: ServerResource,
        outcomes: str = "",
    ) -> None:
        """`outcomes` is the queue that records commits; without one the transaction accepts no participants."""
        self.manager, self._pool, self._enlisted, self.held = manager, pool, enlisted, held
        held.name = enlisted.uow.hex()
        self.finished = False
        self._outcomes = outcomes
        self._participants: list[Participant] = []
        self._interrupted = False

    def receive(self, pool: Pool, protocol: str, steps: Steps[Locked]) -> Message:
        """Receive a message in this transaction. A receive through MS-MQMP that ends without an answer may have taken a
        message, which only an abort puts back."""
        try:
            return pool.receive(steps)
        except BaseException as error:
            is_known = isinstance(error, MsmqError) and not getattr(error, "outcome_unknown", False)
            self._interrupted = self._interrupted or (protocol == "qmcomm" and not is_known)
            raise

    def enlist(self, participant: Participant) -> str:
        """Add a database as a participant. Returns the identifier of the transaction for it, 32 hexadecimal digits.
        Raises TransactionUsage if the transaction was not begun with distributed=True."""
        check_not_finished(self.finished)
        if not self._outcomes:
            raise TransactionUsage(detail="only a transaction begun with distributed=True accepts participants")
        if participant not in self._participants:
            self._participants.append(participant)
        return self.uow.hex()

    def token(self) -> bytes:
        """Return the propagation token: with it and `uow`, other queue managers can take part."""
        return self._pool.run(holding(transaction_calls.propagation_token(self.uow), self.held))

    @property
    def uow(self) -> bytes:
        """The unit of work, 16 bytes."""
        return self._enlisted.uow

    def commit(self) -> None:
        """Commit the transaction. Raises HandleLost with `outcome_unknown` if no reply arrived, TransactionUsage after
        the end of the transaction, and the exception of a participant that can't prepare.

        If the outcome is unknown, participants stay prepared until `QueueManager.resolve` ends them."""
        check_not_finished(self.finished)
        if self._interrupted:
            raise TransactionUsage(
                detail="a receive in this transaction was interrupted and may have taken a message, which a commit "
                "would lose: abort the transaction"
            )
        if self._participants:
            self._commit_with_participants()
            return
        self._pool.run(holding(o.commit(self._enlisted), self.held))
        self.finished = True

    def _commit_with_participants(self) -> None:
        """Prepare all participants, commit at the queue manager, which decides, and then commit the participants."""
        identifier = self.uow.hex()
        try:
            with self.manager.open(self._outcomes, "send") as outcomes:
                body = outcome_body(len(self._participants))
                outcomes.send(body, label=identifier, transaction=self)
            for participant in self._participants:
                self._pool.outcome(participant.prepare(identifier))
        except BaseException:
            self.abort()
            raise
        try:
            self._pool.run(holding(o.commit(self._enlisted), self.held))
        except MsmqError as error:
            if answered(error):
                self.abort()
            raise
        self.finished = True
        self._tell(lambda participant: participant.commit(identifier))
        self.manager._forget_outcome(identifier, self._outcomes)

    def abort(self) -> None:
        """Roll the transaction back. Raises TransactionUsage after the end of the transaction."""
        check_not_finished(self.finished)
        self.finished = True
        try:
            self._pool.run(holding(o.abort(self._enlisted), self.held))
        except MsmqError as error:
            if not (self._participants and answered(error)):  # it has already ended
                raise
        finally:
            self._tell(lambda participant: participant.rollback(self.uow.hex()))

    def _tell(self, tell: Callable[[Participant], Any]) -> None:
        """Call this for each participant, also after one has failed. Raises the first exception."""
        failures: list[Exception] = []
        for participant in self._participants:
            try:
                self._pool.outcome(tell(participant))
            except Exception as error:
                failures.append(error)
        raise_first(failures)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.finished:
            return
        if kind is None:
            try:
                self.commit()
            except MsmqError as error:
                if answered(error) and not self.finished:
                    with suppress(MsmqError):
                        self.abort()
                raise
            return
        with suppress(MsmqError):  # the server aborts it when the connection ends
            self.abort()


class MessageQueue(_Closing):
    """An open queue. Iterating peeks at its messages from first to last and removes none.

    Features that its protocol lacks and MS-MQMP has (transactions, `format_name`) use a second handle, opened through
    qmcomm.
    """

    def __init__(self, manager: QueueManager, pool: Pool, handle: ReopeningQueue, reconnect: bool) -> None:
        self._manager, self._pool, self._handle, self._reconnect = manager, pool, handle, reconnect
        self._qmcomm = handle if handle.queue.protocol == "qmcomm" else None
        self._opening = threading.Lock()
        self._closed = False

    @property
    def protocol(self) -> str:
        """The protocol it was opened through: "remoteread", "qm2qm" or "qmcomm"."""
        return self._handle.queue.protocol

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self._pool.run(self._handle.close())
        finally:
            if self._qmcomm is not None and self._qmcomm is not self._handle:
                self._manager._pool.run(self._qmcomm.close())

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
                self._qmcomm = self._manager._open_qmcomm(queue.name, queue.access, False, self._reconnect)
            return self._qmcomm

    @property
    def format_name(self) -> str:
        handle = self._through_qmcomm("the format name")
        return self._manager._pool.run(handle.run(lambda queue: queue.format_name()))

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
        handle = self._qmcomm if self._qmcomm and not self._closed else self._through_qmcomm("sending")
        uow, held = self._part_of(transaction)
        steps = handle.send(message, uow)
        return identifier_text(self._manager._pool.run(holding(steps, *held)))

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
        handle = self._qmcomm if self._qmcomm and not self._closed else self._through_qmcomm("sending")
        uow, held = self._part_of(transaction)
        if window > 1 and not self._manager._keeps_order():
            window = 1
        converted = (as_message(message, dict(properties)) for message in messages)
        work = pipeline(((holding(handle.send(each, uow), *held), each.size) for each in converted), window)
        self._manager._pool.run_all(work)
        return work.outcome(identifier_text)

    def _part_of(self, transaction: Transaction | None) -> tuple[bytes | None, tuple[ServerResource, ...]]:
        """Return the unit of work of a transaction, and the resource that it requires."""
        if transaction is None:
            return None, ()
        check_not_finished(transaction.finished)
        self._manager.join(transaction)
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
            pool, handle = self._manager._pool, self._through_qmcomm("a receive in a transaction")
        self._check_open()
        steps = handle.take(lambda queue: queue.take_in_transaction(uow, left()))
        return transaction.receive(pool, handle.queue.protocol, holding(steps, *held))

    def _takes_in(self, transaction: Transaction) -> bool:
        """Whether a receive in a transaction goes through the protocol that the queue was opened with."""
        if self._handle.queue.protocol != "remoteread":
            return self._handle.queue.protocol == "qmcomm"
        return transaction.manager is not self._manager or self._manager._serves_own_transactions(transaction)

    @contextmanager
    def receive_lock(self, timeout: float | None = None) -> Iterator[Message]:
        """Lock the first message; it is removed when the block succeeds, and an exception puts it back in its place.

        Other readers do not see it in the meantime. Waits like `receive`. Raises ReceiveTimeout; MsmqError if the queue
        is not open through MS-MQRR.
        """
        taken = self._locked(timeout)
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
        if not self._handle.queue.two_phases:
            raise self._handle.queue.lacks("two phases of a receive")
        self._demand(Access.RECEIVE, "receiving")
        left = countdown(milliseconds(timeout), time.monotonic)
        return self._pool.run(self._handle.take(lambda queue: queue.take(left())))

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
        self._run(lambda queue: queue.move(identifier, to, self._manager._licence))

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


class Cursor(_Closing):
    """[MS-MQDMPR] 3.2: `peek` starts, `peek_next` advances, `receive` removes the current message."""

    def __init__(self, queue: MessageQueue, handle: CursorHandle) -> None:
        self._queue, self._handle = queue, handle

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
