"""Two-phase commit between queue managers of this kind, with presumed abort: docs/transactions.md.

One queue manager coordinates: the one at which the client began its internal transaction. Others enlist by the
propagation token. The coordinator writes its decision to commit in one batch with its own part of the transaction, and
forgets it when all participants have committed; of a transaction that it does not know it says that it was aborted.
A participant that is prepared asks until it is told; one that is not, and can't reach its coordinator, gives up.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any, Protocol

from openmsmq.model.errors import HResult, MsmqError, TransactionSequence
from openmsmq.queueing.manager import QueueManager
from openmsmq.queueing.transactions import Transaction
from openmsmq.store import Drop, Put, StoreFull

logger = logging.getLogger(__name__)

_DECISION = b"decision/"
_MAGIC = b"openmsmq transaction 1 "
RETRY = 1.0  # seconds until what could not be said or asked is tried again
PATIENCE = 60.0  # seconds that a participant which is not prepared waits for a coordinator it can't reach


class Outcome(IntEnum):
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
            raise MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, f"these are no whereabouts: {error}") from error


@dataclass(frozen=True, slots=True)
class Token:
    """A propagation token: the transaction, a secret of its coordinator and participants, and the coordinator."""

    secret: bytes
    coordinator: Whereabouts

    def encode(self) -> bytes:
        return _MAGIC + self.secret + self.coordinator.encode()

    @classmethod
    def decode(cls, data: bytes) -> Token:
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
        here: Whereabouts,
        when_durable: Callable[[Callable[[], object]], None],
    ) -> None:
        """`here` is what others are told; `when_durable` runs an action once all that is written is on the disk."""
        self._manager, self._network, self.here, self._when_durable = manager, network, here, when_durable
        self._distributed: dict[bytes, _Distributed] = {}
        self._asked_since: dict[bytes, float] = {}  # when the coordinator of a transaction did not answer first

    # -- as coordinator ----------------------------------------------------------------------------------------

    def whereabouts(self) -> bytes:
        """SWhereabouts of [MS-MQMP] 3.1.4.12 are those of a Microsoft DTC, which is not here."""
        raise MsmqError(HResult.MQ_ERROR_DTC_CONNECT, "no distributed transaction coordinator of that kind")

    def token(self, transaction: Transaction) -> bytes:
        """The propagation token of an internal transaction, which may become a distributed one by it."""
        if not transaction.is_open:
            raise TransactionSequence(detail="the transaction has ended")
        distributed = self._distributed.get(transaction.identifier)
        if distributed is None:
            distributed = _Distributed(transaction, secrets.token_bytes(16))
            self._distributed[transaction.identifier] = distributed
        return Token(distributed.secret, self.here).encode()

    def add_participant(self, uow: bytes, secret: bytes, participant: bytes) -> None:
        """TmEnlist: another queue manager takes part. Raises TransactionSequence if it is too late."""
        distributed = self._distributed.get(uow)
        if distributed is None or not secrets.compare_digest(distributed.secret, secret):
            raise TransactionSequence(detail="no such unit of work")
        if not distributed.transaction.is_open:
            raise TransactionSequence(detail="the transaction has ended")
        where = Whereabouts.decode(participant)
        if where not in distributed.participants:
            distributed.participants.append(where)

    def is_distributed(self, transaction: Transaction) -> bool:
        """Whether others take part, so that it commits by `commit` of this class."""
        distributed = self._distributed.get(transaction.identifier)
        return distributed is not None and bool(distributed.participants)

    async def commit(self, transaction: Transaction) -> None:
        """Prepare everywhere, decide, and tell. Raises MsmqError after everything was aborted."""
        distributed = self._distributed[transaction.identifier]
        if not transaction.is_open:
            raise TransactionSequence(detail="the transaction has ended")
        transaction.sealed = True
        uow, secret, participants = transaction.identifier, distributed.secret, distributed.participants
        try:
            await asyncio.gather(*(self._network.prepare(where, uow, secret) for where in participants))
            decision = json.dumps([secret.hex(), [asdict(where) for where in participants]]).encode()
            self._manager.commit(transaction, [Put(_DECISION + uow, decision)])
        except MsmqError:
            self._manager.abort(transaction)
            await self._abort_elsewhere(distributed)
            raise
        finally:
            self._distributed.pop(uow, None)
        await self._tell_decision(_DECISION + uow)

    async def ended(self, transaction: Transaction) -> None:
        """A transaction has ended without `commit`. Participants are told that it was aborted; they would find out."""
        distributed = self._distributed.pop(transaction.identifier, None)
        if distributed is not None:
            await self._abort_elsewhere(distributed)

    async def _abort_elsewhere(self, distributed: _Distributed) -> None:
        for where in distributed.participants:
            with suppress(MsmqError):
                await self._network.abort(where, distributed.transaction.identifier, distributed.secret)

    def outcome(self, uow: bytes, secret: bytes) -> Outcome:
        """TmGetOutcome. What is not known was aborted."""
        decision = self._manager.state.store.definitions.get(_DECISION + uow)
        if decision is not None and secrets.compare_digest(bytes.fromhex(json.loads(decision)[0]), secret):
            return Outcome.COMMITTED
        return Outcome.IN_PROGRESS if uow in self._distributed else Outcome.ABORTED

    async def _tell_decision(self, name: bytes) -> None:
        """Let participants commit what has been decided, once that is durable; forget it when all have."""
        await self._durable()
        store = self._manager.state.store
        if name not in store.definitions:
            return
        secret, participants = json.loads(store.definitions[name])
        try:
            for where in participants:
                there = Whereabouts(where["name"], tuple(where["addresses"]), where["port"])
                await self._network.commit(there, name.removeprefix(_DECISION), bytes.fromhex(secret))
        except MsmqError as error:
            logger.info("a participant does not know of its commit yet: %s", error)
            return
        if name in store.definitions:  # another round may have been faster
            with suppress(StoreFull):
                store.append([Drop(name)])

    # -- as participant ----------------------------------------------------------------------------------------

    def enlist(self, uow: bytes, token: bytes) -> Coroutine[Any, Any, None]:
        """Take part in a transaction of another queue manager. Raises MsmqError, at once or when awaited."""
        decoded = Token.decode(token)
        if uow in self._manager.transactions:
            raise TransactionSequence(detail="the unit of work is enlisted already")
        return self._enlist(uow, token, decoded)

    async def _enlist(self, uow: bytes, token: bytes, decoded: Token) -> None:
        await self._network.enlist(decoded.coordinator, uow, decoded.secret, self.here.encode())
        self._manager.create_transaction(uow).coordinator = token

    def prepare_branch(self, uow: bytes, secret: bytes) -> None:
        """TmPrepare. Raises TransactionSequence, MessageStorageFailed; the coordinator then aborts."""
        transaction = self._branch(uow, secret)
        if transaction is None:
            raise TransactionSequence(detail="no such unit of work is enlisted")
        if not transaction.is_prepared:
            self._manager.prepare(transaction)

    def commit_branch(self, uow: bytes, secret: bytes) -> None:
        """TmCommit: of one that is not here the commit was carried out before."""
        transaction = self._branch(uow, secret)
        if transaction is not None:
            if not transaction.is_prepared:
                raise TransactionSequence(detail="the transaction is not prepared")
            self._manager.commit(transaction)

    def abort_branch(self, uow: bytes, secret: bytes) -> None:
        """TmAbort."""
        transaction = self._branch(uow, secret)
        if transaction is not None:
            self._manager.abort(transaction)

    def _branch(self, uow: bytes, secret: bytes) -> Transaction | None:
        transaction = self._manager.transactions.get(uow)
        if transaction is None:
            return None
        if not transaction.coordinator or not secrets.compare_digest(
            Token.decode(transaction.coordinator).secret, secret
        ):
            raise MsmqError(HResult.MQ_ERROR_ACCESS_DENIED, "the caller does not know the secret of the transaction")
        return transaction

    async def _ask_outcomes(self, now: float) -> None:
        """What a participant that heard nothing does."""
        for uow, transaction in list(self._manager.transactions.items()):
            if not transaction.coordinator:
                continue
            token = Token.decode(transaction.coordinator)
            try:
                outcome = await self._network.outcome(token.coordinator, uow, token.secret)
            except MsmqError as error:
                since = self._asked_since.setdefault(uow, now)
                if transaction.is_prepared or now - since < PATIENCE or transaction.finished:
                    continue
                logger.warning("a transaction is aborted, its coordinator can't be reached: %s", error)
                outcome = Outcome.ABORTED
            self._asked_since.pop(uow, None)
            if transaction.finished or outcome == Outcome.IN_PROGRESS:
                continue
            with suppress(MsmqError):  # a full disk: asked again
                if outcome == Outcome.ABORTED:
                    self._manager.abort(transaction)
                elif transaction.is_prepared:
                    self._manager.commit(transaction)

    # -- what runs beside --------------------------------------------------------------------------------------

    async def settle(self, now: float) -> None:
        """One round of telling and asking."""
        for name in [name for name in self._manager.state.store.definitions if name.startswith(_DECISION)]:
            await self._tell_decision(name)
        await self._ask_outcomes(now)

    async def run(self, clock: Callable[[], float]) -> None:
        """Rounds for ever. `clock` returns seconds, from any start."""
        while True:
            try:
                await self.settle(clock())
            except Exception:
                logger.exception("the transactions in doubt could not be settled")
            await asyncio.sleep(RETRY)

    async def _durable(self) -> None:
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def reach() -> Any:
            if not reached.done():
                reached.set_result(None)

        self._when_durable(reach)
        await reached
