"""Connections to queue managers, and what a program can ask of one.

Generated from asynchronous/manager.py by tools/sync_client.py; never edited.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Unpack

from msrpc.rpc.kerberos import KerberosCredentials
from msrpc.rpc.pdu import AuthLevel
from msrpc.rpc.sockets import DEAD_PEER
from openmsmq.client import operations as o
from openmsmq.client.arguments import ALL_SECURITY, COUNTS, STANDARD_PORT, credentials_of
from openmsmq.client.calls import Steps, T
from openmsmq.client.open_queue import AccessWord, ProtocolWord
from openmsmq.client.participants import OUTCOMES, Participant
from openmsmq.client.pipelining import pipeline_of_reads
from openmsmq.client.pool import Pool
from openmsmq.client.properties import NewQueueProperties, QueuePropertyName
from openmsmq.client.retrying import RECONNECT
from openmsmq.client.sync.distributed import Outcomes, TransactionWithParticipants
from openmsmq.client.sync.queue import MessageQueue, open_queue
from openmsmq.client.sync.session import Closing, ServerSession
from openmsmq.client.sync.transaction import Transaction
from openmsmq.model.constants import Access
from openmsmq.model.errors import AnswerTimeout, MsmqError, QueueExists, RpcConnectionError


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
        manager._session.check_accepted()
    except BaseException as error:
        manager.close()
        if type(error) in (RpcConnectionError, AnswerTimeout) and not str(error).startswith(host):
            raise type(error)(f"{host}:{port}: {error}") from error
        raise
    pool.reconnect_seconds = private.reconnect_seconds = reconnect_seconds
    return manager


class QueueManager(Closing):
    """A connection to a queue manager; see `connect`."""

    def __init__(self, pool: Pool, private: Pool) -> None:
        """`private` is the pool for calls that servers accept only at PKT_PRIVACY; it may be the same."""
        self._session = ServerSession(pool, private)

    def close(self) -> None:
        """Close all connections: open queues and unfinished transactions end with them."""
        self._session.close()

    @property
    def remote_read_refused(self) -> MsmqError | None:
        """The reason why the server refused reads through MS-MQRR; None if it did not, or no queue was opened yet."""
        return self._session.remote_read_refused

    @property
    def machine_id(self) -> str:
        """The GUID of the queue manager."""
        return self._session.pool.run(o.query(4))

    @property
    def version(self) -> str:
        """The MSMQ version that the server reports."""
        return self._session.pool.run(o.query(3))

    def create_queue(
        self, path_name: str, *, security: bytes | None = None, **properties: Unpack[NewQueueProperties]
    ) -> str:
        """Create a private queue, `orders` or `.\\private$\\orders`, or a public one, `.\\orders`, which the
        directory of an openmsmq server keeps; returns its format name.

        Properties by name: label, transactional, journal, quota and journal_quota (kilobytes), priv_level, type
        (UUID), authenticate, base_priority, multicast_address. Raises QueueExists, IllegalQueuePathName, ...
        """
        return self._session.pool.run(o.create_queue(path_name, dict(properties), security))

    def delete_queue(self, name: str) -> None:
        """Delete a queue, by name, path name or format name, with its messages."""
        self._session.pool.run(o.delete_queue(name))

    def properties(self, name: str, *wanted: QueuePropertyName) -> dict[str, Any]:
        """Return properties of a queue by name; all of them if no name is given."""
        return self._session.pool.run(o.get_properties(name, wanted or tuple(o.PROPERTIES)))

    def set_properties(self, name: str, **properties: Unpack[NewQueueProperties]) -> None:
        """Change properties of a queue: all of them, or none if one is invalid."""
        self._session.pool.run(o.set_properties(name, dict(properties)))

    def security(self, name: str, information: int = ALL_SECURITY) -> bytes:
        """Return the self-relative security descriptor of a queue; see `openmsmq.model.security`."""
        return self._session.pool.run(o.get_security(name, information))

    def set_security(self, name: str, descriptor: bytes, information: int) -> None:
        self._session.pool.run(o.set_security(name, information, descriptor))

    def format_name(self, path_name: str) -> str:
        """Return the private format name of a queue; for the path name of a public queue, PUBLIC= and its
        identifier."""
        return self._session.pool.run(o.resolve(path_name))

    def queues(self) -> list[str]:
        """Return the path names of all private queues."""
        names: list[str] = (self._session.pool.run(o.management(None, "private_queues")))["private_queues"]
        return names

    def counts(self, name: str) -> dict[str, int]:
        """Return message_count, bytes_in_queue, journal_message_count and bytes_in_journal of a queue."""
        return self._session.pool.run(o.management(name, *COUNTS))

    def subqueues(self, name: str) -> list[str]:
        """Return the names of the subqueues of a queue that have messages or are open."""
        names: list[str] = (self._session.pool.run(o.management(name, "subqueue_names")))["subqueue_names"]
        return names

    def management(self, name: str | None = None, *wanted: str) -> dict[str, Any]:
        """Return management properties (MS-MQMR) of a queue, of an outgoing queue by the name of its destination, or of
        the machine: the named ones, or all. A property without a value is None."""
        return self._session.pool.run(o.management(name, *wanted))

    def management_of_each(self, names: Iterable[str], *wanted: str) -> list[dict[str, Any] | Exception]:
        """Return what `management` returns for each of these queues, or the error that it raises for it. Many calls are
        sent at once, so that this takes much less time than a call of `management` for each queue."""
        return self._each(o.management(name, *wanted) for name in names)

    def properties_of_each(self, names: Iterable[str], *wanted: QueuePropertyName) -> list[dict[str, Any] | Exception]:
        """Return what `properties` returns for each of these queues, or the error; see `management_of_each`."""
        return self._each(o.get_properties(name, wanted or tuple(o.PROPERTIES)) for name in names)

    def security_of_each(self, names: Iterable[str], information: int = ALL_SECURITY) -> list[bytes | Exception]:
        """Return what `security` returns for each of these queues, or the error; see `management_of_each`."""
        return self._each(o.get_security(name, information) for name in names)

    def _each(self, reads: Iterable[Steps[T]]) -> list[T | Exception]:
        work = pipeline_of_reads(reads)
        self._session.pool.run_all(work)
        return work.answers()

    def outgoing(self) -> list[dict[str, Any]]:
        """Return the management properties of each outgoing queue that has messages or is open."""
        active: list[str] = (self.management(None, "active_queues"))["active_queues"]
        return o.outgoing_of(self.management_of_each(active))

    def pause(self, name: str) -> None:
        """Hold messages in the outgoing queue for a destination, until `resume` or a restart of the server. Like all
        actions, it requires an administrator. Raises AccessDenied, QueueNotFound."""
        self._session.pool.run(o.act(name, "PAUSE"))

    def resume(self, name: str) -> None:
        """Undo `pause`."""
        self._session.pool.run(o.act(name, "RESUME"))

    def connect_machine(self) -> None:
        """Make the server transfer messages to other machines again."""
        self._session.pool.run(o.act(None, "CONNECT"))

    def disconnect_machine(self) -> None:
        """Stop transfers to other machines, until `connect_machine` or a restart of the server."""
        self._session.pool.run(o.act(None, "DISCONNECT"))

    def tidy(self) -> None:
        """Make the server release unused disk space."""
        self._session.pool.run(o.act(None, "TIDY"))

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
        return open_queue(self._session, name, access, exclusive, protocol, reconnect)

    def transaction(self, *, distributed: bool = False, outcomes: str = OUTCOMES) -> Transaction:
        """Begin an internal transaction:
        `with qm.transaction() as tx: queue.send(message, transaction=tx)`.

        With `distributed`, databases can take part in it (`Transaction.enlist`). `outcomes` is the transactional queue
        that records which of these transactions have committed; it is created if it is missing."""
        if not distributed:
            return Transaction(self._session, *self._session.enlist())
        with suppress(QueueExists):
            self.create_queue(outcomes, transactional=True, label="outcomes of transactions")
        known = Outcomes(self._session, outcomes)
        enlisted, held = self._session.enlist(known.unit_of_work())
        return TransactionWithParticipants(self._session, enlisted, held, known)

    def resolve(self, *participants: Participant, outcomes: str = OUTCOMES) -> list[str]:
        """End transactions that are in doubt at participants after a crash of the program or a lost connection: commit
        those that have committed here, and roll back the others. Returns the transactions that are still in progress.
        Raises QueueNotFound if a transaction is in doubt and the queue of outcomes does not exist, and the first
        exception of a participant after trying the others.

        Pass all participants that a transaction may have: its outcome is deleted when it was in doubt at one of them
        and they are at least as many as took part. Outcomes of other programs stay, and so does what participants have
        prepared for other queue managers.
        """
        return Outcomes(self._session, outcomes).resolve(participants)

    def join(self, transaction: Transaction) -> None:
        """Take part in a transaction of another queue manager. Sends and receives in a transaction call this
        themselves.

        The queue manager of the transaction must be openmsmq. This one must have a transaction manager with OleTx, and
        both must be able to connect to each other (docs/transactions.md). Raises MsmqError.
        """
        transaction.extend_to(self._session)
