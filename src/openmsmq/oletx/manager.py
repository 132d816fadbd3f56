"""The transaction manager: superior of transactions that begin here, subordinate of pushed and pulled ones ([MS-DTCO]
3.2).

Facets for remote applications and resource managers are denied; begin, enlist, pull and push are local methods.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Literal, NamedTuple

from openmsmq.model.distributed_states import RESOLUTIONS, DistributedState, Resolution, refusal
from openmsmq.model.errors import HResult, MsmqError, TransactionSequence
from openmsmq.model.shares import Shares
from openmsmq.oletx.connections import E_ACCESSDENIED, E_INVALIDARG, Listen, Listener, PartnerConnection
from openmsmq.oletx.enlistments import Enlistment, SubordinateEnlistment, SuperiorEnlistment
from openmsmq.oletx.messages import ConnectionType, MessageType, propagate
from openmsmq.oletx.partners import Partners
from openmsmq.oletx.records import decode_decision, decode_note
from openmsmq.oletx.session import CallSender, Cancellable
from openmsmq.oletx.states import EnlistmentState
from openmsmq.oletx.structures import Partner, PropagationToken, encode_whereabouts
from openmsmq.oletx.transaction import DistributedTransaction, Done, LocalWork, Outcome

logger = logging.getLogger(__name__)

MOST_SUBORDINATES: Final = 64  # per transaction, [MS-DTCO] note 26
ENLISTING: Final = 12.0  # maximum seconds for a pull or a push
MOST_PULLS: Final = 1_000  # in progress
PULLS_OF_SOURCE: Final = 500  # in progress, requested by programs of one host

#: Connections of applications and resource managers ([MS-DTCO] 2.2.6.1).
_OF_APPLICATIONS: Final = frozenset(
    [0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x09, 0x11, 0x22, 0x24, 0x28, 0x33, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3D,
     0x46, 0x48]
)  # fmt: skip


class EnlistmentRow(NamedTuple):
    """An enlistment, for operators. `role` is that of the partner. `trying` describes what this transaction manager
    retries, `failure` why the last attempt failed or why the state was entered; both may be empty. `is_answered`: the
    partner has answered the last attempt, but without an outcome."""

    role: Literal["superior", "subordinate"]
    partner: Partner
    state: EnlistmentState
    trying: str
    failure: str
    is_answered: bool


#: State of the enlistment with the superior -> state of a branch without an outcome.
_AS_SUPERIOR_HAS_IT: Final[dict[EnlistmentState, DistributedState]] = {
    EnlistmentState.PREPARING: "preparing", EnlistmentState.SINGLE_PHASE: "preparing",
    EnlistmentState.PREPARED: "prepared", EnlistmentState.IN_DOUBT: "in doubt",
    EnlistmentState.COMMITTING: "committing",
}  # fmt: skip
_VOTING: Final = {EnlistmentState.PREPARING, EnlistmentState.PREPARED, EnlistmentState.IN_DOUBT}


class TransactionRow(NamedTuple):
    """A distributed transaction, for operators. `since` is in seconds since 1970 UTC."""

    uow: bytes
    outcome: str
    since: float
    enlistments: tuple[EnlistmentRow, ...]

    @property
    def is_in_doubt(self) -> bool:
        """Whether messages stay locked here until the superior reports its decision."""
        return self.state == "in doubt"

    @property
    def is_stuck(self) -> bool:
        """Whether it waits for another transaction manager after the first phase: it is in doubt, or subordinates have
        not confirmed the decision."""
        return self.state in ("in doubt", "unconfirmed")

    @property
    def state(self) -> DistributedState:
        """The state of the whole transaction."""
        superior = next((one.state for one in self.enlistments if one.role == "superior"), EnlistmentState.ENDED)
        below = {one.state for one in self.enlistments if one.role == "subordinate"}
        if self.outcome == Outcome.COMMITTED.value:
            return "unconfirmed" if EnlistmentState.COMMITTING in below else "committing"
        if self.outcome == Outcome.ABORTED.value:
            return "aborting"
        if (state := _AS_SUPERIOR_HAS_IT.get(superior)) is not None:
            return state
        return "preparing" if below & _VOTING else "active"


class TransactionManager:
    """See the module. `clock` returns seconds since 1970 UTC, for display to operators."""

    def __init__(self, local: Partner, sender: CallSender, work: LocalWork, clock: Callable[[], float]) -> None:
        self.local = local
        self.partners: Final = Partners(local, sender, self)
        self._sender, self._work, self._clock = sender, work, clock
        self._transactions: dict[bytes, DistributedTransaction] = {}
        self._pulls: Final[Shares[str]] = Shares(MOST_PULLS, PULLS_OF_SOURCE)  # by source

    # -- recovery.Asking -----------------------------------------------------------------------------------------

    def open(
        self, partner: Partner, kind: ConnectionType, listen: Listen, message: MessageType,
        data: bytes,
    ) -> PartnerConnection:  # fmt: skip
        """Open a connection to a partner; see `Partners.open`."""
        return self.partners.open(partner, kind, listen, message, data)

    def later(self, seconds: float, action: Callable[[], None]) -> Cancellable:
        """Run an action after `seconds`."""
        return self._sender.later(seconds, action)

    # -- requests of programs ------------------------------------------------------------------------------------

    def whereabouts(self) -> bytes:
        """Return SWhereabouts of this transaction manager."""
        return encode_whereabouts(self.local)

    def is_distributed(self, uow: bytes) -> bool:
        """Whether other transaction managers take part in a transaction, so that it must be ended with `commit` or
        `ended` of this class."""
        return uow in self._transactions

    def check_enlisted(self, uow: bytes) -> None:
        """Check that a transaction was pushed here or pulled, and accepts work. Raises MsmqError."""
        transaction = self._transactions.get(uow)
        if transaction is None or transaction.superior is None:
            raise MsmqError(
                HResult.MQ_ERROR_TRANSACTION_IMPORT,
                f"transaction {uow.hex()} is unknown: the transaction manager of the client must push it first",
            )
        if transaction.superior.state is not EnlistmentState.ACTIVE:
            raise MsmqError(
                HResult.MQ_ERROR_TRANSACTION_ENLIST, f"transaction {uow.hex()} is ending and accepts no more work"
            )

    def pull(self, uow: bytes, token: PropagationToken, done: Done, source: str = "") -> None:
        """Take part in the transaction of a token. Repeating it with the same superior has no effect (deviation D-24).
        `done` is called once, now or later. `source` is the address of the program's host."""
        if token.uow != uow:
            done(MsmqError(HResult.MQ_ERROR_INVALID_PARAMETER, "the token is for another transaction"))
            return
        transaction = self._transactions.get(uow)
        if transaction is not None:
            self._pull_again(transaction, token.superior, done)
            return
        if self._work.is_known(uow):
            done(TransactionSequence(detail="the unit of work is a transaction of another client here"))
        elif token.superior.cid == self.local.cid:
            done(MsmqError(HResult.MQ_ERROR_TRANSACTION_IMPORT, f"transaction {uow.hex()} is not here any more"))
        elif not self._pulls.take(source):
            text = (
                f"{self._pulls.of(source)} transactions of {source or 'this host'} wait for their transaction managers "
                f"already (limit {PULLS_OF_SOURCE}), and {self._pulls.held} in all (limit {MOST_PULLS})"
            )
            logger.warning("transaction %s is refused: %s", uow.hex(), text)
            done(MsmqError(HResult.MQ_ERROR_INSUFFICIENT_RESOURCES, text))
        else:
            self._pull(uow, token.superior, done, source)

    @staticmethod
    def _pull_again(transaction: DistributedTransaction, superior: Partner, done: Done) -> None:
        enlistment = transaction.superior
        if enlistment is None or enlistment.partner.key != superior.key:
            done(TransactionSequence(detail="the unit of work is already enlisted with another superior"))
        elif enlistment.state is EnlistmentState.ENLISTING:
            transaction.wait_for(done)
        elif enlistment.state is EnlistmentState.ACTIVE:
            done(None)
        else:
            done(TransactionSequence(detail=f"the transaction is {enlistment.state.value}: no more work"))

    def _pull(self, uow: bytes, superior: Partner, done: Done, source: str) -> None:
        try:
            self._work.begin(uow)
        except MsmqError as error:
            self._pulls.give_back(source)
            done(error)
            return
        transaction = self._new(uow)
        enlistment = transaction.superior = SuperiorEnlistment(self, transaction, superior, EnlistmentState.ENLISTING)
        timer = self.later(ENLISTING, partial(self._too_late, enlistment))

        def finished(error: MsmqError | None) -> None:
            self._pulls.give_back(source)
            timer.cancel()

        transaction.wait_for(finished)
        transaction.wait_for(done)
        self._enlist(enlistment, superior, ConnectionType.BRANCH, MessageType.BRANCHING, uow)

    def push(self, uow: bytes, subordinate: Partner, done: Done) -> None:
        """Add another transaction manager to a transaction that began here. `done` is called once, now or later."""
        transaction = self._joinable(uow)
        if isinstance(transaction, MessageType):
            done(TransactionSequence(detail=f"the transaction can't be pushed: {transaction.name}"))
            return
        enlistment = SubordinateEnlistment(self, transaction, subordinate, EnlistmentState.ENLISTING)
        transaction.subordinates.append(enlistment)
        transaction.wait_for(done)
        timer = self.later(ENLISTING, partial(self._too_late, enlistment))
        transaction.wait_for(lambda error: timer.cancel())
        self._enlist(enlistment, subordinate, ConnectionType.PROPAGATE, MessageType.PROPAGATE, propagate(uow))

    def _enlist(
        self, enlistment: Enlistment, partner: Partner, kind: ConnectionType, message: MessageType, data: bytes
    ) -> None:
        def listen(connection: PartnerConnection) -> Listener:
            enlistment.connection = connection
            return enlistment

        self.open(partner, kind, listen, message, data)

    @staticmethod
    def _too_late(enlistment: Enlistment) -> None:
        if enlistment.state is EnlistmentState.ENLISTING:
            enlistment.happened("lost", f"no answer within {ENLISTING:.0f} s")

    def commit(self, uow: bytes, done: Done) -> None:
        """Commit a transaction that began here, in two phases. `done` is called with the outcome once it is durable.
        Raises MsmqError if the transaction cannot be committed, also because it was aborted meanwhile."""
        transaction = self._transactions.get(uow)
        if transaction is None:
            detail = f"transaction {uow.hex()} was aborted: the connection to a queue manager in it was lost"
            raise MsmqError(HResult.MQ_ERROR_TRANSACTION_SEQUENCE, detail)
        transaction.commit(done)

    def ended(self, uow: bytes) -> None:
        """Abort a transaction that began here, on behalf of its program."""
        if (transaction := self._transactions.get(uow)) is not None:
            detail = f"transaction {transaction.name}: its program has aborted it"
            transaction.abort(MsmqError(HResult.MQ_ERROR_OPERATION_CANCELLED, detail))

    # -- requests of partners: connections.Acceptor ----------------------------------------------------------------

    def accept(self, connection: PartnerConnection) -> Listener | int:
        """Accept or deny a connection that a partner opens."""
        if connection.kind in _OF_APPLICATIONS:
            return E_ACCESSDENIED  # [MS-DTCO] 3.4.3, 3.6.3: no remote clients
        first = _FIRST.get(connection.kind)
        return E_INVALIDARG if first is None else _Arrival(self, connection, *first)

    def propagated(self, connection: PartnerConnection, uow: bytes) -> None:
        """Handle PROPAGATE: a superior pushes a transaction."""
        uow = uow[:16]
        if uow in self._transactions or self._work.is_known(uow):
            connection.send(MessageType.DUPLICATE)
            connection.close()
            return
        try:
            self._work.begin(uow)
        except MsmqError as error:
            logger.warning("transaction %s of %s is refused: %s", uow.hex(), connection.partner, error)
            connection.send(MessageType.LOG_FULL)
            connection.close()
            return
        transaction = self._new(uow)
        transaction.superior = SuperiorEnlistment(self, transaction, connection.partner, EnlistmentState.ACTIVE)
        connection.listener, transaction.superior.connection = transaction.superior, connection
        connection.send(MessageType.PROPAGATED)

    def branching(self, connection: PartnerConnection, uow: bytes) -> None:
        """Handle BRANCHING: a subordinate pulls a transaction."""
        transaction = self._joinable(uow[:16])
        if isinstance(transaction, MessageType):
            connection.send(transaction)
            connection.close()
            return
        enlistment = SubordinateEnlistment(self, transaction, connection.partner, EnlistmentState.ACTIVE)
        transaction.subordinates.append(enlistment)
        connection.listener, enlistment.connection = enlistment, connection
        connection.send(MessageType.BRANCHED)

    def _joinable(self, uow: bytes) -> DistributedTransaction | MessageType:
        """Return the transaction, or the message that tells why no subordinate can join it."""
        transaction = self._transactions.get(uow)
        if transaction is None and not self._work.is_known(uow):
            return MessageType.TX_NOT_FOUND
        superior = transaction.superior if transaction is not None else None
        if superior is not None and superior.state is EnlistmentState.ENLISTING:
            return MessageType.TX_NOT_FOUND  # 3.2.7.9: it is in the table when its superior has answered
        if not self._work.is_open(uow) or (transaction is not None and not transaction.is_open):
            return MessageType.TOO_LATE
        transaction = transaction or self._new(uow)
        transaction.subordinates = [one for one in transaction.subordinates if not one.has_ended]
        return transaction if len(transaction.subordinates) < MOST_SUBORDINATES else MessageType.TOO_MANY

    def checked(self, connection: PartnerConnection, uow: bytes) -> None:
        """Handle CHECK: a subordinate in doubt asks. An unknown transaction was aborted ([MS-DTCO] 3.7.5.2.1.1)."""
        uow = uow[:16]
        transaction = self._transactions.get(uow)
        aborted = not self._work.is_known(uow) if transaction is None else transaction.outcome is Outcome.ABORTED
        connection.send(MessageType.ABORTED if aborted else MessageType.CHECK_RETRY)

    def redelivered(self, connection: PartnerConnection, uow: bytes) -> None:
        """Handle a repeated COMMITREQ: the superior has not received the confirmation of its decision (3.8.5.2.2.1)."""
        uow = uow[:16]
        transaction = self._transactions.get(uow)
        is_unknown = transaction is None and not self._work.is_known(uow)
        if is_unknown or (transaction is not None and transaction.is_committed):  # committed or unknown
            connection.send(MessageType.REDELIVER_COMMITREQDONE)
            return
        superior = transaction.superior if transaction is not None else None
        if superior is None or superior.partner.key != connection.partner.key:  # deviation D-208
            logger.warning("refused commit by %s of transaction %s: it is not the superior",
                           connection.partner, uow.hex())  # fmt: skip
        elif superior.state in (EnlistmentState.PREPARED, EnlistmentState.IN_DOUBT):
            if connection not in superior.redeliveries:
                superior.redeliveries.append(connection)
            superior.happened("redelivered")
            return
        connection.send(MessageType.REDELIVER_RETRY)

    # -- the table -----------------------------------------------------------------------------------------------

    def _new(self, uow: bytes) -> DistributedTransaction:
        transaction = self._transactions[uow] = DistributedTransaction(uow, self._work, self._forget, self._clock())
        return transaction

    def _forget(self, transaction: DistributedTransaction) -> None:
        self._transactions.pop(transaction.uow, None)

    def recover(self, notes: Iterable[tuple[bytes, bytes]], decisions: Iterable[tuple[bytes, bytes]]) -> None:
        """Restore transactions after a start, before partners can connect (D-207): prepared ones with their notes, and
        decisions that not all subordinates have confirmed; both as (unit of work, record). Raises records.BadRecord."""
        for uow, data in notes:
            note = decode_note(data)
            transaction = self._new(uow)
            transaction.superior = SuperiorEnlistment(self, transaction, note.superior, EnlistmentState.IN_DOUBT)
            transaction.subordinates = [
                SubordinateEnlistment(self, transaction, one, EnlistmentState.IN_DOUBT) for one in note.subordinates
            ]
        for uow, data in decisions:
            transaction = self._new(uow)
            transaction.subordinates = [
                SubordinateEnlistment(self, transaction, one, EnlistmentState.COMMITTING)
                for one in decode_decision(data)
            ]
            transaction.recover_decision()

    def resume(self) -> None:
        """Ask for outcomes of transactions in doubt, and report decisions: after `recover`, once partners can be
        called."""
        for transaction in list(self._transactions.values()):
            if transaction.superior is None:
                transaction.redeliver()
            else:
                transaction.superior.recover()

    # -- operators -------------------------------------------------------------------------------------------------

    def rows(self) -> list[TransactionRow]:
        """Return all distributed transactions, oldest first."""
        found = sorted(self._transactions.values(), key=lambda one: (one.since, one.uow))
        return [_row_of(one) for one in found]

    def resolve(self, uow: bytes, resolution: Resolution) -> None:
        """End a transaction manually ([MS-DTCO] 3.2.7.30): commit or abort one in doubt, or forget a decision that
        subordinates do not confirm. Raises as `check_resolvable`."""
        transaction = self._resolvable(uow, resolution)
        superior = transaction.superior
        logger.warning(
            "transaction %s ended by an operator: %s; partners may decide otherwise: %s", transaction.name, resolution,
            ", ".join(str(one.partner) for one in _rows_of(transaction) if one.state is not EnlistmentState.ENDED),
        )  # fmt: skip
        if resolution == "forget":
            transaction.forget()
            return
        assert superior is not None
        superior.happened("commit" if resolution == "commit" else "outcome_abort", "an operator has decided so")

    def check_resolvable(self, uow: bytes, resolution: Resolution) -> None:
        """Raises TransactionSequence if the resolution is not possible for the transaction."""
        self._resolvable(uow, resolution)

    def _resolvable(self, uow: bytes, resolution: Resolution) -> DistributedTransaction:
        transaction = self._transactions.get(uow)
        if transaction is None:
            raise TransactionSequence(detail=f"there is no distributed transaction {uow.hex()}")
        state = _row_of(transaction).state
        if resolution not in RESOLUTIONS.get(state, ()):
            raise TransactionSequence(detail=refusal(transaction.name, state, resolution))
        return transaction


def _row_of(transaction: DistributedTransaction) -> TransactionRow:
    return TransactionRow(
        transaction.uow, transaction.outcome.value, transaction.since, tuple(_rows_of(transaction))
    )  # fmt: skip


def _rows_of(transaction: DistributedTransaction) -> list[EnlistmentRow]:
    superior = [transaction.superior] if transaction.superior is not None else []
    return [
        *(_enlistment_row("superior", one) for one in superior),
        *(_enlistment_row("subordinate", one) for one in transaction.subordinates),
    ]


def _enlistment_row(role: Literal["superior", "subordinate"], enlistment: Enlistment) -> EnlistmentRow:
    inquiry = enlistment.inquiry
    if inquiry is None:
        return EnlistmentRow(role, enlistment.partner, enlistment.state, "", enlistment.reason, False)
    failure = inquiry.failure or ("" if inquiry.is_answered else enlistment.reason)
    return EnlistmentRow(
        role, enlistment.partner, enlistment.state, inquiry.question.words, failure, inquiry.is_answered
    )


class _Arrival:
    """Listener of a partner's connection until its first message, which determines its purpose."""

    def __init__(
        self,
        manager: TransactionManager,
        connection: PartnerConnection,
        first: MessageType,
        begin: Callable[[TransactionManager, PartnerConnection, bytes], None],
    ) -> None:
        self._manager, self._connection, self._first, self._begin = manager, connection, first, begin
        self._has_begun = False

    def received(self, message: MessageType, data: bytes) -> None:
        if message is not self._first or (self._has_begun and message not in _REPEATED):
            self._connection.break_off(f"{message.name} is not expected")
            return
        self._has_begun = True
        self._begin(self._manager, self._connection, data)

    def invalid(self, reason: str) -> None:
        """Do nothing: there is no transaction yet."""

    def lost(self, reason: str) -> None:
        """Do nothing: there is no transaction yet."""


#: Questions that a partner may repeat on the same connection, which is idle again after an answer RETRY ([MS-DTCO]
#: 3.7.5.2.1.1, 3.8.5.2.2.1).
_REPEATED: Final = frozenset([MessageType.CHECK, MessageType.REDELIVER_COMMITREQ])
_FIRST: Final[dict[int, tuple[MessageType, Callable[[TransactionManager, PartnerConnection, bytes], None]]]] = {
    ConnectionType.PROPAGATE: (MessageType.PROPAGATE, TransactionManager.propagated),
    ConnectionType.BRANCH: (MessageType.BRANCHING, TransactionManager.branching),
    ConnectionType.CHECKABORT: (MessageType.CHECK, TransactionManager.checked),
    ConnectionType.REDELIVERCOMMIT: (MessageType.REDELIVER_COMMITREQ, TransactionManager.redelivered),
}
