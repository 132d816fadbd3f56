"""Two-phase commit between queue managers of this kind, with presumed abort: docs/transactions.md.

One queue manager coordinates: the one at which the client began its internal transaction. Others enlist by the
propagation token. The coordinator writes its decision to commit in one batch with its own part of the transaction, and
forgets it when all participants have committed; of a transaction that it does not know it says that it was aborted.
A prepared participant asks for the outcome until it gets one; an unprepared one whose coordinator can't be reached
aborts.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any, Protocol

from openmsmq.model.errors import HResult, MsmqError, TransactionSequence
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.unit_of_work import Transaction, TransactionEvent
from openmsmq.store import Drop, Put, StoreFull

logger = logging.getLogger(__name__)

_DECISION = b"decision/"
_MAGIC = b"openmsmq transaction 1 "
RETRY = 1.0  # seconds until what could not be said or asked is tried again
PATIENCE = 60.0  # seconds that a participant which is not prepared waits for a coordinator it can't reach


class TransactionOutcome(IntEnum):
    """What TmGetOutcome says."""

    IN_PROGRESS = 0
    COMMITTED = 1
    ABORTED = 2


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """How to reach a queue manager: by its name, if the one who asks knows it, or at one of its addresses."""

    name: str
    addresses: tuple[str, ...]
    port: int

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Whereabouts:
        """Raises MsmqError for what is none."""
        try:
            values = json.loads(data)
            return cls(str(values["name"]), tuple(map(str, values["addresses"])), int(values["port"]))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise MsmqError(
                HResult.MQ_ERROR_INVALID_PARAMETER, f"not a valid transaction manager address (whereabouts): {error}"
            ) from error


@dataclass(frozen=True, slots=True)
class PropagationToken:
    """A propagation token: the transaction, a secret of its coordinator and participants, and the coordinator."""

    secret: bytes
    coordinator: Whereabouts

    def encode(self) -> bytes:
        return _MAGIC + self.secret + self.coordinator.encode()

    @classmethod
    def decode(cls, data: bytes) -> PropagationToken:
        """Raises MsmqError MQ_ERROR_DTC_CONNECT for a token of another transaction manager."""
        if not data.startswith(_MAGIC):
            raise MsmqError(HResult.MQ_ERROR_DTC_CONNECT, "a token of another transaction manager")
        at = len(_MAGIC)
        return cls(data[at : at + 16], Whereabouts.decode(data[at + 16 :]))


class TransactionNetwork(Protocol):
    """The operations of other queue managers. They raise MsmqError."""

    async def enlist(self, where: Whereabouts, uow: bytes, secret: bytes, participant: bytes) -> None: ...
    async def prepare(self, where: Whereabouts, uow: bytes, secret: bytes) -> None: ...
    async def commit(self, where: Whereabouts, uow: bytes, secret: bytes) -> None: ...
    async def abort(self, where: Whereabouts, uow: bytes, secret: bytes) -> None: ...
    async def outcome(self, where: Whereabouts, uow: bytes, secret: bytes) -> int: ...


@dataclass(slots=True)
class _Distributed:
    """A transaction that this queue manager coordinates, until it is decided."""

    transaction: Transaction
    secret: bytes
    participants: list[Whereabouts] = field(default_factory=list)


class Coordinator:
    """Both roles, for all transactions of one queue manager."""

    def __init__(
        self,
        manager: QueueManager,
        network: TransactionNetwork,
        here: Callable[[], Whereabouts],
        when_durable: Callable[[Callable[[], object]], None],
    ) -> None:
        """`here` returns the address that participants get; `when_durable` runs an action once all that is written is
        on the disk."""
        self._store, self._transactions, self._network = manager.store, manager.transactions, network
        self.here, self._when_durable = here, when_durable
        self._distributed: dict[bytes, _Distributed] = {}
        self._asked_since: dict[bytes, float] = {}  # when the coordinator of a transaction did not answer first

    # -- as coordinator ----------------------------------------------------------------------------------------

    def whereabouts(self) -> bytes:
        """SWhereabouts of [MS-MQMP] 3.1.4.12 are those of a Microsoft DTC, which is not here."""
        raise MsmqError(HResult.MQ_ERROR_DTC_CONNECT, "no distributed transaction coordinator of that kind")

    def token(self, transaction: Transaction) -> bytes:
        """The propagation token of an internal transaction, which may become a distributed one by it."""
        transaction.check(TransactionEvent.WORK)
        distributed = self._distributed.get(transaction.identifier)
        if distributed is None:
            distributed = _Distributed(transaction, secrets.token_bytes(16))
            self._distributed[transaction.identifier] = distributed
        return PropagationToken(distributed.secret, self.here()).encode()

    def add_participant(self, uow: bytes, secret: bytes, participant: bytes) -> None:
        """TmEnlist: another queue manager takes part. Raises TransactionSequence if it is too late."""
        distributed = self._distributed.get(uow)
        if distributed is None or not secrets.compare_digest(distributed.secret, secret):
            raise TransactionSequence(detail="no such unit of work")
        distributed.transaction.check(TransactionEvent.WORK)
        where = Whereabouts.decode(participant)
        if where not in distributed.participants:
            distributed.participants.append(where)

    def is_distributed(self, transaction: Transaction) -> bool:
        """Whether others take part, so that it commits by `commit` of this class."""
        distributed = self._distributed.get(transaction.identifier)
        return distributed is not None and bool(distributed.participants)

    async def commit(self, transaction: Transaction) -> None:
        """Prepare everywhere, decide, and send the decision. Raises MsmqError after everything was aborted."""
        distributed = self._distributed[transaction.identifier]
        self._transactions.close(transaction)
        uow, secret, participants = transaction.identifier, distributed.secret, distributed.participants
        try:
            await asyncio.gather(*(self._network.prepare(where, uow, secret) for where in participants))
            decision = json.dumps([secret.hex(), [asdict(where) for where in participants]]).encode()
            self._transactions.commit(transaction, [Put(_DECISION + uow, decision)])
        except MsmqError:
            self._transactions.abort(transaction)
            await self._abort_elsewhere(distributed)
            raise
        finally:
            self._distributed.pop(uow, None)
        await self._send_decision(_DECISION + uow)

    async def ended(self, transaction: Transaction) -> None:
        """A transaction has ended without `commit`. Participants are notified of the abort."""
        distributed = self._distributed.pop(transaction.identifier, None)
        if distributed is not None:
            await self._abort_elsewhere(distributed)

    async def _abort_elsewhere(self, distributed: _Distributed) -> None:
        for where in distributed.participants:
            try:
                await self._network.abort(where, distributed.transaction.identifier, distributed.secret)
            except MsmqError as error:  # it asks for the outcome by itself
                uow = distributed.transaction.identifier.hex()
                logger.info("transaction %s: %s has not been told of its abort: %s", uow, where.name, error)

    def outcome(self, uow: bytes, secret: bytes) -> TransactionOutcome:
        """TmGetOutcome. What is not known was aborted."""
        decision = self._store.definitions.get(_DECISION + uow)
        if decision is not None and secrets.compare_digest(bytes.fromhex(json.loads(decision)[0]), secret):
            return TransactionOutcome.COMMITTED
        return TransactionOutcome.IN_PROGRESS if uow in self._distributed else TransactionOutcome.ABORTED

    async def _send_decision(self, name: bytes) -> None:
        """Let participants commit what has been decided, once that is durable; forget it when all have."""
        await self._durable()
        store = self._store
        if name not in store.definitions:
            return
        secret, participants = json.loads(store.definitions[name])
        try:
            for where in participants:
                there = Whereabouts(where["name"], tuple(where["addresses"]), where["port"])
                await self._network.commit(there, name.removeprefix(_DECISION), bytes.fromhex(secret))
        except MsmqError as error:
            uow = name.removeprefix(_DECISION).hex()
            logger.info("transaction %s: a participant has not confirmed the commit and is asked again: %s", uow, error)
            return
        if name in store.definitions:  # another round may have been faster
            try:
                store.append([Drop(name)])
            except StoreFull as error:  # the next round
                logger.warning("a decision that all participants know stays in the store for now: %s", error)

    # -- as participant ----------------------------------------------------------------------------------------

    def enlist(self, uow: bytes, token: bytes) -> Coroutine[Any, Any, None]:
        """Take part in a transaction of another queue manager; once more with the same token changes nothing, because
        clients enlist whenever they open a queue ([MS-MQRR] 3.2.4.2). Raises MsmqError, at once or when awaited."""
        decoded = PropagationToken.decode(token)
        self._is_enlisted(uow, token)
        return self._enlist(uow, token, decoded)

    async def _enlist(self, uow: bytes, token: bytes, decoded: PropagationToken) -> None:
        if self._is_enlisted(uow, token):
            return
        await self._network.enlist(decoded.coordinator, uow, decoded.secret, self.here().encode())
        if not self._is_enlisted(uow, token):  # by another call meanwhile
            self._transactions.create(uow).coordinator = token

    def _is_enlisted(self, uow: bytes, token: bytes) -> bool:
        """Raises TransactionSequence if the unit of work is another transaction's. Deviation D-24 from [MS-MQRR]
        3.1.4.12: enlisting again with the same token changes nothing."""
        transaction = self._transactions.get(uow)
        if transaction is not None and transaction.coordinator != token:
            raise TransactionSequence(detail="the unit of work is enlisted already, with another token")
        return transaction is not None

    def prepare_branch(self, uow: bytes, secret: bytes) -> None:
        """TmPrepare. Raises TransactionSequence, MessageStorageFailed; the coordinator then aborts."""
        transaction = self._branch(uow, secret)
        if transaction is None:
            raise TransactionSequence(detail="no such unit of work is enlisted")
        self._transactions.prepare(transaction)

    def commit_branch(self, uow: bytes, secret: bytes) -> None:
        """TmCommit: of one that is not here the commit was carried out before."""
        transaction = self._branch(uow, secret)
        if transaction is not None:
            self._transactions.commit(transaction, event=TransactionEvent.OUTCOME_COMMIT)

    def abort_branch(self, uow: bytes, secret: bytes) -> None:
        """TmAbort."""
        transaction = self._branch(uow, secret)
        if transaction is not None:
            self._transactions.abort(transaction)

    def _branch(self, uow: bytes, secret: bytes) -> Transaction | None:
        transaction = self._transactions.get(uow)
        if transaction is None:
            return None
        if not transaction.coordinator or not secrets.compare_digest(
            PropagationToken.decode(transaction.coordinator).secret, secret
        ):
            raise MsmqError(HResult.MQ_ERROR_ACCESS_DENIED, "the caller does not know the secret of the transaction")
        return transaction

    async def _ask_outcomes(self, now: float) -> None:
        """What a participant that heard nothing does."""
        for transaction in self._transactions.enlisted():
            try:
                await self._ask_outcome(transaction, now)
            except Exception as error:  # the others go on
                LEFT_OUT.note("transactions in doubt", transaction.identifier.hex(), error)

    async def _ask_outcome(self, transaction: Transaction, now: float) -> None:
        if not transaction.coordinator:
            return
        uow = transaction.identifier
        token = PropagationToken.decode(transaction.coordinator)
        try:
            outcome = await self._network.outcome(token.coordinator, uow, token.secret)
        except MsmqError as error:
            since = self._asked_since.setdefault(uow, now)
            if transaction.is_prepared or now - since < PATIENCE or transaction.has_ended:
                return
            logger.warning("transaction %s is aborted, because its coordinator can't be reached: %s", uow.hex(), error)
            outcome = TransactionOutcome.ABORTED
        self._asked_since.pop(uow, None)
        if transaction.has_ended or outcome == TransactionOutcome.IN_PROGRESS:
            return
        try:
            if outcome == TransactionOutcome.ABORTED:
                self._transactions.abort(transaction)
            elif transaction.is_prepared:
                self._transactions.commit(transaction, event=TransactionEvent.OUTCOME_COMMIT)
        except MsmqError as error:  # asked again
            logger.warning("transaction %s stays in doubt for now: %s", uow.hex(), error)

    # -- what runs beside --------------------------------------------------------------------------------------

    async def resolve(self, now: float) -> None:
        """Send decisions to participants once, and ask for the outcome of transactions in doubt."""
        for name in [name for name in self._store.definitions if name.startswith(_DECISION)]:
            try:
                await self._send_decision(name)
            except Exception as error:  # the others go on
                LEFT_OUT.note("decisions of transactions", name.removeprefix(_DECISION).hex(), error)
        await self._ask_outcomes(now)

    async def run(self, clock: Callable[[], float]) -> None:
        """Rounds for ever. `clock` returns seconds, from any start."""
        while True:
            try:
                await self.resolve(clock())
            except Exception:
                logger.exception("transactions in doubt could not be resolved; next attempt in %d s", RETRY)
            await asyncio.sleep(RETRY)

    async def _durable(self) -> None:
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def reach() -> Any:
            if not reached.done():
                reached.set_result(None)

        self._when_durable(reach)
        await reached
