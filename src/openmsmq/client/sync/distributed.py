"""Transactions in which databases take part; see `openmsmq.client.participants`.

Generated from asynchronous/distributed.py by tools/sync_client.py; never edited.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

from openmsmq.client import operations as o
from openmsmq.client.calls import ServerResource, answered
from openmsmq.client.open_queue import check_not_finished
from openmsmq.client.participants import Participant, outcome_body, participants_in, raise_first
from openmsmq.client.sync.queue import open_queue
from openmsmq.client.sync.session import ServerSession
from openmsmq.client.sync.transaction import Transaction
from openmsmq.model.errors import MessageNotFound, MsmqError, QueueNotFound, TransactionSequence

_HALF: Final = 8  # bytes of a GUID


class Outcomes:
    """The queue of outcomes: it has a message for each transaction with participants that has committed.
    `transaction` is an identifier, 32 hexadecimal digits."""

    def __init__(self, session: ServerSession, name: str) -> None:
        self._session, self._name = session, name

    def _tag(self) -> str:
        """Return the first half of the queue manager's GUID in hexadecimal digits."""
        return UUID(self._session.pool.run(o.query(4))).hex[: 2 * _HALF]

    def unit_of_work(self) -> bytes:
        """Return a new unit of work, 16 bytes. It begins like the GUID of the queue manager, so that `resolve` leaves
        transactions of other queue managers alone, of which it has no outcomes."""
        return bytes.fromhex(self._tag()) + os.urandom(_HALF)

    def record(self, transaction: Transaction, participants: int) -> None:
        """Record, in the transaction, that it commits."""
        with open_queue(self._session, self._name, "send") as queue:
            queue.send(outcome_body(participants), label=transaction.uow.hex(), transaction=transaction)

    def committed(self) -> dict[str, int]:
        """Return the committed transactions, and the number of their participants. Raises QueueNotFound."""
        found = {}
        with open_queue(self._session, self._name, "peek") as queue:
            for message in queue:
                if (number := participants_in(message.body)) is not None:
                    found[message.label] = number
        return found

    def has_committed(self, transaction: str) -> bool | None:
        """Whether a transaction has committed; None while it is in progress. One that can no longer be committed has
        not."""
        if transaction in self.committed():
            return True
        try:
            probe = self._session.pool.run(o.enlist(bytes.fromhex(transaction)))
        except TransactionSequence:
            return None
        try:
            return transaction in self.committed()  # it may have ended in the meantime
        finally:
            self._session.pool.run(o.abort(probe))

    def forget(self, transaction: str) -> None:
        """Delete the outcome, because all participants have been told."""
        with open_queue(self._session, self._name) as queue:
            for message in queue:
                if message.label == transaction and participants_in(message.body) is not None:
                    with suppress(MessageNotFound):
                        queue.receive_by_lookup_id(message.lookup_identifier)
                    return

    def resolve(self, participants: tuple[Participant, ...]) -> list[str]:
        """End transactions in doubt; see `QueueManager.resolve`."""
        run = self._session.pool
        tag = self._tag()
        try:
            self.committed()
        except QueueNotFound:  # no transaction was begun yet; otherwise this is the wrong queue
            for participant in participants:
                if self._in_doubt(participant, tag):
                    raise
            return []
        under_way: set[str] = set()
        told: set[str] = set()  # committed transactions that were in doubt
        failures: list[Exception] = []
        for participant in participants:
            try:
                for transaction in self._in_doubt(participant, tag):
                    committed = self.has_committed(transaction)
                    if committed is None:
                        under_way.add(transaction)
                    elif committed:
                        run.outcome(participant.commit(transaction))
                        told.add(transaction)
                    else:
                        run.outcome(participant.rollback(transaction))
            except Exception as error:
                failures.append(error)
        raise_first(failures)
        if told:  # a participant that was asked before another one may be in doubt about the same transaction by now
            for participant in participants:
                told.difference_update(self._in_doubt(participant, tag))
            known = self.committed()
            for transaction, number in known.items():
                if transaction in told and number <= len(participants):
                    self.forget(transaction)
        return sorted(under_way)

    def _in_doubt(self, participant: Participant, tag: str) -> list[str]:
        """Return what a participant has prepared for this queue manager."""
        found = list(self._session.pool.outcome(participant.in_doubt()))
        return [transaction for transaction in found if transaction.startswith(tag)]


class TransactionWithParticipants(Transaction):
    """A transaction that accepts participants."""

    def __init__(self, session: ServerSession, enlisted: o.Enlisted, held: ServerResource, outcomes: Outcomes) -> None:
        super().__init__(session, enlisted, held)
        self._outcomes = outcomes
        self._participants: list[Participant] = []
        self._is_in_doubt = False  # whether a commit was requested and has no answer: only `resolve` ends participants

    def enlist(self, participant: Participant) -> str:
        check_not_finished(self.finished)
        if participant not in self._participants:
            self._participants.append(participant)
        return self.uow.hex()

    def _commit(self) -> None:
        """Prepare all participants, commit at the queue manager, which decides, and then commit the participants."""
        if not self._participants:
            super()._commit()
            return
        identifier = self.uow.hex()
        try:
            self._outcomes.record(self, len(self._participants))
            for participant in self._participants:
                self.session.pool.outcome(participant.prepare(identifier))
        except BaseException:
            self.abort()
            raise
        self._is_in_doubt = True
        try:
            super()._commit()
        except MsmqError as error:
            if answered(error):
                self._is_in_doubt = False
                self.abort()
            raise
        self._is_in_doubt = False
        self._tell(lambda participant: participant.commit(identifier))
        self._outcomes.forget(identifier)

    def _abort(self) -> None:
        try:
            super()._abort()
        except MsmqError as error:
            if not (self._participants and answered(error)):  # it has already ended
                raise
        finally:
            if not self._is_in_doubt:
                self._tell(lambda participant: participant.rollback(self.uow.hex()))

    def _tell(self, tell: Callable[[Participant], Any]) -> None:
        """Call this for each participant, also after one has failed. Raises the first exception."""
        failures: list[Exception] = []
        for participant in self._participants:
            try:
                self.session.pool.outcome(tell(participant))
            except Exception as error:
                failures.append(error)
        raise_first(failures)
