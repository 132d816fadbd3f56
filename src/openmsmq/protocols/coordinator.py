"""Distributed transactions: local work for the transaction manager, and the calls of MS-MQMP and MS-MQRR for
distributed transactions. docs/transactions.md describes both."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final
from uuid import UUID, uuid4

from openmsmq.model.errors import HResult, MsmqError, TransactionSequence
from openmsmq.oletx.manager import TransactionManager
from openmsmq.oletx.partners import Partners
from openmsmq.oletx.records import BadRecord
from openmsmq.oletx.session import CallSender, Cancellable
from openmsmq.oletx.structures import BadStructure, Partner, decode_stx_info, decode_token
from openmsmq.protocols.transaction_security import TransactionSecurity
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.unit_of_work import Transaction, TransactionEvent
from openmsmq.store import Drop, Put, StoreFull

logger = logging.getLogger(__name__)

_IDENTITY = b"tm/identity"  # contact identifier and identifier of its queue manager, 16 bytes each
_DECISION = b"decision/"


class Coordinator:
    """Distributed transactions of one queue manager; also implements `LocalWork` for the transaction manager.

    Attributes:
        transaction_manager: exists even if distributed transactions are off, for transactions in doubt.
        security_level: which partners are accepted.
        is_on: whether distributed transactions are on; otherwise no partner is called.
    """

    def __init__(
        self,
        manager: QueueManager,
        sender: CallSender,
        host: str,
        level: TransactionSecurity | None,
        when_durable: Callable[[Callable[[], object]], None],
    ) -> None:
        """`host` is the name under which partners call this host; `level` is None if distributed transactions are off.
        `when_durable` runs an action once everything written so far is on disk. Raises OldTransactions, StoreFull."""
        self._store, self._transactions, self._sender = manager.store, manager.transactions, sender
        self._when_durable: Final = when_durable
        self.is_on: Final = level is not None
        self.security_level = level or TransactionSecurity.MUTUAL
        local = Partner(self._contact_identifier(manager.machine.identifier), host)
        self.transaction_manager: Final = TransactionManager(local, sender, self, time.time)
        self._recover()

    def _contact_identifier(self, queue_manager: bytes) -> UUID:
        """Return the contact identifier. It is generated once, because the logs of partners contain it, and again for a
        copy of the store, which is a different queue manager."""
        kept = self._store.definitions.get(_IDENTITY)
        if kept is not None and kept[16:] == queue_manager:
            return UUID(bytes=kept[:16])
        identifier = uuid4()
        self._store.append([Put(_IDENTITY, identifier.bytes + queue_manager)])
        return identifier

    def _recover(self) -> None:
        notes = [(one.identifier, one.superior) for one in self._transactions.enlisted() if one.superior]
        decisions = [
            (name.removeprefix(_DECISION), value)
            for name, value in self._store.definitions.items()
            if name.startswith(_DECISION)
        ]
        try:
            self.transaction_manager.recover(notes, decisions)
        except BadRecord as error:
            raise OldTransactions(
                f"the store holds transactions that an earlier version has prepared or decided ({error}): start that "
                "version again with both queue managers running until they have ended, then upgrade"
            ) from error
        if (notes or decisions) and not self.is_on:
            logger.warning(
                "%d distributed transactions are in doubt and %d decisions are not confirmed, but "
                "distributed_transactions is off: messages stay locked; switch it on (`openmsmq transaction list` has "
                "them)",
                len(notes), len(decisions),
            )  # fmt: skip

    def start(self) -> None:
        """Start calling partners: ask for the outcome of transactions in doubt, and report decisions."""
        if self.is_on:
            self.transaction_manager.resume()

    def stop(self) -> None:
        """End all sessions, because the daemon stops."""
        self.partners.stop()

    @property
    def partners(self) -> Partners:
        """Sessions with other transaction managers."""
        return self.transaction_manager.partners

    # -- calls of clients ----------------------------------------------------------------------------------------

    def whereabouts(self) -> bytes:
        """Return SWhereabouts ([MS-MQMP] 3.1.4.12). Deviation D-210: created here. Raises MsmqError
        MQ_ERROR_DTC_CONNECT."""
        self._demand()
        return self.transaction_manager.whereabouts()

    def check_enlisted(self, uow: bytes, cookie: bytes) -> None:
        """R_QMEnlistTransaction ([MS-MQMP] 3.1.4.13): check that the client's transaction manager has pushed the
        transaction here, or that it was pulled (D-246). Raises MsmqError."""
        self._demand()
        try:
            named = decode_stx_info(cookie)
        except BadStructure as error:
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, str(error)) from error
        if named != uow:
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, "pbCookie is of another transaction than pUow")
        self.transaction_manager.check_enlisted(uow)

    def pull(self, uow: bytes, token: bytes, source: str = "") -> Coroutine[Any, Any, None]:
        """R_QMEnlistRemoteTransaction ([MS-MQRR] 3.1.4.12): take part in the transaction of a token. `source` is the
        address of the caller's host. Raises MsmqError, immediately or when awaited."""
        self._demand()
        try:
            decoded = decode_token(token)
        except BadStructure as error:
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, str(error)) from error
        return self._done(lambda done: self.transaction_manager.pull(uow, decoded, done, source))

    def _demand(self) -> None:
        if not self.is_on:
            raise MsmqError(
                HResult.MQ_ERROR_DTC_CONNECT, "distributed transactions are off (setting distributed_transactions)"
            )

    def check_new(self, uow: bytes) -> None:
        """Raises TransactionSequence if a distributed transaction with this unit of work has not ended everywhere:
        work in a second one could not be told apart from it."""
        if self.transaction_manager.is_distributed(uow):
            raise TransactionSequence(detail=f"distributed transaction {uow.hex()} has not ended at all participants")

    def is_distributed(self, transaction: Transaction) -> bool:
        """Whether others take part in a transaction, so that `commit` of this class must end it."""
        return self.transaction_manager.is_distributed(transaction.identifier)

    async def commit(self, transaction: Transaction) -> None:
        """Commit a transaction at all participants. Raises MsmqError if it was aborted instead."""
        await self._done(lambda done: self.transaction_manager.commit(transaction.identifier, done))

    def abort_everywhere(self, transaction: Transaction) -> None:
        """Abort an open transaction and notify the partners."""
        if self.is_distributed(transaction):
            self.transaction_manager.ended(transaction.identifier)
        else:
            self._transactions.abort(transaction)

    @staticmethod
    async def _done(begin: Callable[[Callable[[MsmqError | None], None]], None]) -> None:
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: MsmqError | None) -> None:
            if outcome.done():
                return
            if error is None:
                outcome.set_result(None)
            else:
                outcome.set_exception(error)

        begin(done)
        await outcome

    # -- transaction.LocalWork -------------------------------------------------------------------------------------

    def is_known(self, uow: bytes) -> bool:
        return self._transactions.get(uow) is not None

    def is_open(self, uow: bytes) -> bool:
        transaction = self._transactions.get(uow)
        return transaction is not None and transaction.is_open

    def has_work(self, uow: bytes) -> bool:
        transaction = self._transactions.get(uow)
        return transaction is not None and bool(transaction.operations)

    def begin(self, uow: bytes) -> None:
        self._transactions.create(uow)

    def close(self, uow: bytes) -> None:
        self._transactions.close(self._transactions.find(uow))

    def prepare(self, uow: bytes, note: bytes) -> None:
        transaction = self._acknowledged(uow)
        transaction.superior = note
        self._transactions.prepare(transaction)

    def commit_here(self, uow: bytes, decision: bytes | None) -> None:
        transaction = self._acknowledged(uow)
        writes = [] if decision is None else [Put(_DECISION + uow, decision)]
        event = TransactionEvent.OUTCOME_COMMIT if transaction.is_prepared else TransactionEvent.COMMIT
        self._transactions.commit(transaction, writes, event)

    def _acknowledged(self, uow: bytes) -> Transaction:
        """Return a transaction. Raises TransactionSequence if the client has not yet acknowledged a message that it
        receives through MS-MQRR."""
        transaction = self._transactions.find(uow)
        if transaction.unacknowledged and not transaction.is_prepared:
            detail = (
                f"{transaction.unacknowledged} messages are being received in it: R_EndTransactionalReceive is missing"
            )
            raise TransactionSequence(detail=detail)
        return transaction

    def abort(self, uow: bytes) -> None:
        transaction = self._transactions.get(uow)
        if transaction is not None and not transaction.has_ended:
            self._transactions.abort(transaction)

    def forget(self, uow: bytes) -> None:
        try:
            self._store.append([Drop(_DECISION + uow)])
        except StoreFull as error:  # repeated after a restart, which is harmless
            logger.warning("cannot remove a completed decision from the store; retrying after a restart: %s", error)

    def when_durable(self, action: Callable[[], None]) -> None:
        self._when_durable(action)

    def later(self, seconds: float, action: Callable[[], None]) -> Cancellable:
        return self._sender.later(seconds, action)


class OldTransactions(Exception):
    """The store contains transactions of a protocol that this version no longer supports."""
