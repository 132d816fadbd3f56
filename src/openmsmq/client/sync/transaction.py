"""Transactions of queue managers.

Generated from asynchronous/transaction.py by tools/sync_client.py; never edited.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Self
from weakref import WeakSet

from openmsmq.client import operations as o
from openmsmq.client import transaction_calls
from openmsmq.client.calls import ServerResource, Steps, answered, holding
from openmsmq.client.open_queue import check_not_finished
from openmsmq.client.participants import Participant
from openmsmq.client.pool import Pool
from openmsmq.client.reopening import Locked
from openmsmq.client.sync.session import ServerSession
from openmsmq.model.errors import MsmqError, TransactionUsage
from openmsmq.model.message import Message


class Transaction:
    """An internal transaction. As a context manager it commits at the end of the block, or aborts after an exception.

    If it is used with a queue of another queue manager, it becomes a distributed transaction: all of it commits, or
    nothing.
    """

    def __init__(self, session: ServerSession, enlisted: o.Enlisted, held: ServerResource) -> None:
        self.session, self._enlisted, self.held = session, enlisted, held
        self.finished = False
        self._interrupted = False
        self._joining = threading.Lock()
        self._joined: WeakSet[ServerSession] = WeakSet()

    @property
    def uow(self) -> bytes:
        """The unit of work, 16 bytes."""
        return self._enlisted.uow

    def token(self) -> bytes:
        """Return the propagation token: with it and `uow`, other queue managers can take part."""
        return self.session.pool.run(holding(transaction_calls.propagation_token(self.uow), self.held))

    def enlist(self, participant: Participant) -> str:
        """Add a database as a participant. Returns the identifier of the transaction for it, 32 hexadecimal digits.
        Raises TransactionUsage if the transaction was not begun with distributed=True."""
        check_not_finished(self.finished)
        raise TransactionUsage(detail="only a transaction begun with distributed=True accepts participants")

    def extend_to(self, other: ServerSession) -> None:
        """Let another queue manager take part; see `QueueManager.join`. Raises MsmqError."""
        with self._joining:
            if other is not self.session and other not in self._joined:
                self._enlist_at(other)
                other.pool.run(transaction_calls.enlist_for_sending(self.uow))
                self._joined.add(other)

    def _enlist_at(self, other: ServerSession) -> None:
        try:
            token = self.token()
            other.private.run(transaction_calls.enlist_remote(self.uow, token))
        except MsmqError as error:
            if answered(error) and self.session.pool.run(o.query(4)) == other.pool.run(o.query(4)):
                raise TransactionUsage(
                    detail="the transaction was begun through another connection to this queue manager; use the "
                    "QueueManager that began it"
                ) from error
            raise

    def receive(self, pool: Pool, protocol: str, steps: Steps[Locked]) -> Message:
        """Receive a message in this transaction. A receive through MS-MQMP that ends without an answer may have taken a
        message, which only an abort puts back."""
        try:
            return pool.receive(steps)
        except BaseException as error:
            is_known = isinstance(error, MsmqError) and not getattr(error, "outcome_unknown", False)
            self._interrupted = self._interrupted or (protocol == "qmcomm" and not is_known)
            raise

    def commit(self) -> None:
        """Commit the transaction. Raises HandleLost with `outcome_unknown` if no reply arrived, TransactionUsage after
        the end of the transaction, and the exception of a participant that can't prepare.

        If the outcome is unknown, participants stay prepared until `QueueManager.resolve` ends them; `abort` does not
        tell them anything then."""
        check_not_finished(self.finished)
        if self._interrupted:
            raise TransactionUsage(
                detail="a receive in this transaction was interrupted and may have taken a message, which a commit "
                "would lose: abort the transaction"
            )
        self._commit()

    def _commit(self) -> None:
        self.session.pool.run(holding(o.commit(self._enlisted), self.held))
        self.finished = True

    def abort(self) -> None:
        """Roll the transaction back. Raises TransactionUsage after the end of the transaction."""
        check_not_finished(self.finished)
        self.finished = True
        self._abort()

    def _abort(self) -> None:
        self.session.pool.run(holding(o.abort(self._enlisted), self.held))

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
