"""The two ends of an enlistment: a superior's state for a subordinate, and a subordinate's state for its superior
([MS-DTCO] 3.7 and 3.8).

Each follows a table in `states`, whose actions are the methods here.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import ClassVar, Final, Protocol

from openmsmq.model.errors import HResult, MsmqError
from openmsmq.oletx.connections import PartnerConnection
from openmsmq.oletx.messages import MessageType, Vote, prepare_request, read_prepare_request, read_vote, vote
from openmsmq.oletx.recovery import CHECK_ABORT, REDELIVER_COMMIT, Asking, Inquiry
from openmsmq.oletx.session import Cancellable
from openmsmq.oletx.states import SUBORDINATE, SUPERIOR, EnlistmentEvent, EnlistmentState, EnlistmentTable
from openmsmq.oletx.structures import Partner

logger = logging.getLogger(__name__)

ABORT_TIME: Final = 60.0  # maximum seconds for the answer to ABORTREQ


class EnlistmentTransaction(Protocol):
    """The transaction of an enlistment; `transaction.DistributedTransaction` is one."""

    @property
    def uow(self) -> bytes: ...
    @property
    def name(self) -> str: ...
    def abort(self, error: MsmqError) -> None: ...
    def voted(self) -> None: ...
    def prepare_branch(self, *, single_phase: bool) -> None: ...
    def commit_branch(self) -> None: ...
    def left(self) -> None: ...
    def joined(self, error: MsmqError | None) -> None: ...


class Enlistment(ABC):
    """Common part of both ends. `reason` is the reason of the latest event."""

    table: ClassVar[EnlistmentTable]

    def __init__(
        self, asking: Asking, transaction: EnlistmentTransaction, partner: Partner, state: EnlistmentState
    ) -> None:
        self._asking, self._transaction = asking, transaction
        self.partner, self.state = partner, state
        self.connection: PartnerConnection | None = None
        self.inquiry: Inquiry | None = None
        self.reason = ""
        self._timer: Cancellable | None = None

    @property
    def has_ended(self) -> bool:
        return self.state is EnlistmentState.ENDED

    def happened(self, event: EnlistmentEvent, reason: str = "") -> bool:
        """Handle an event according to the table; return False if it is not allowed in the current state."""
        row = self.table[self.state].get(event)
        if row is None:
            return False
        name, state = self._transaction.name, self.state.value
        logger.debug("transaction %s, %s: %s in state %s", name, self.partner, event, state)
        self.state, self.reason = row.next, reason
        getattr(self, f"_{row.action}")()
        if self.has_ended:
            self._transaction.left()
        return True

    # -- connections.Listener ------------------------------------------------------------------------------------

    def received(self, message: MessageType, data: bytes) -> None:
        event = self._event(message, data)
        if (event is None or not self.happened(event, message.name)) and self.connection is not None:
            self.connection.break_off(f"{message.name} in state {self.state.value}")

    def invalid(self, reason: str) -> None:
        logger.warning("transaction %s: protocol error with %s: %s", self._transaction.name, self.partner, reason)
        self.happened("invalid", reason)

    def lost(self, reason: str) -> None:
        self.happened("lost", reason)

    @abstractmethod
    def _event(self, message: MessageType, data: bytes) -> EnlistmentEvent | None:
        """Return the event of a message; None for a message that this end never receives."""

    # -- actions -------------------------------------------------------------------------------------------------

    def _nothing(self) -> None:  # noqa: B027 - an action of the tables, never overridden
        """Do nothing: the event only changes the state."""

    def _send(self, message: MessageType, data: bytes = b"") -> None:
        if self.connection is not None:
            self.connection.send(message, data)

    def _close(self) -> None:
        """Stop the timer and the inquiry, and close the connection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.inquiry is not None:
            self.inquiry.stop()
            self.inquiry = None
        if self.connection is not None:
            self.connection.close()

    _leave = _close

    def _failure(self, what: str) -> MsmqError:
        text = f"transaction {self._transaction.name}: {self.partner} {what}"
        return MsmqError(HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE, f"{text}: {self.reason}")


_FROM_SUBORDINATE: Final[dict[MessageType, EnlistmentEvent]] = {
    MessageType.PROPAGATED: "enlisted", MessageType.DUPLICATE: "duplicate", MessageType.NO_MEM: "refused",
    MessageType.LOG_FULL: "refused", MessageType.ABORTNOTIFY: "abort_notify", MessageType.ABORTREQDONE: "aborted",
    MessageType.COMMITREQDONE: "done", MessageType.PHASE0REGISTER: "phase_zero",
}  # fmt: skip
_VOTES: Final[dict[Vote | None, EnlistmentEvent]] = {
    Vote.OK: "vote_ok", Vote.ABORT: "vote_abort", Vote.READ_ONLY: "vote_read_only",
}  # fmt: skip


class SubordinateEnlistment(Enlistment):
    """A superior's state for one of its subordinates."""

    table = SUPERIOR

    def _event(self, message: MessageType, data: bytes) -> EnlistmentEvent | None:
        if message is MessageType.PREPAREREQDONE:
            return _VOTES.get(read_vote(data))
        return _FROM_SUBORDINATE.get(message)

    @property
    def has_promised(self) -> bool:
        """Whether it has voted to commit and does not know the outcome yet."""
        return self.state in (EnlistmentState.PREPARED, EnlistmentState.IN_DOUBT)

    def recover(self) -> None:
        """Resume after a restart: the store has the decision to commit, which this subordinate has not confirmed."""
        self.state = EnlistmentState.COMMITTING
        self._redeliver()

    def _join(self) -> None:
        self._transaction.joined(None)

    def _join_again(self) -> None:
        self._close()
        self._transaction.joined(None)

    def _fail_push(self) -> None:
        self._close()
        self._transaction.joined(self._failure("can't take part"))

    def _abort_all(self) -> None:
        self._close()
        self._transaction.abort(self._failure("has not agreed to commit"))

    def _request_prepare(self) -> None:
        self._send(MessageType.PREPAREREQ, prepare_request())

    def _count_prepared(self) -> None:
        self._transaction.voted()

    def _count_read_only(self) -> None:
        self._close()
        self._transaction.voted()

    def _request_commit(self) -> None:
        self._send(MessageType.COMMITREQ)

    def _redeliver(self) -> None:
        self._close()
        self.inquiry = Inquiry(
            REDELIVER_COMMIT, self._asking, self.partner, self._transaction.uow, lambda: void(self.happened("done"))
        )
        self.inquiry.ask()

    def _finish(self) -> None:
        self._close()

    def _request_abort(self) -> None:
        self._send(MessageType.ABORTREQ)
        self._timer = self._asking.later(ABORT_TIME, lambda: void(self.happened("lost", "no answer to ABORTREQ")))

    def _reject_phase_zero(self) -> None:
        """Reject a phase zero registration, as [MS-DTCO] 3.7.7.5 allows: nothing here has work before the first
        phase."""
        self._send(MessageType.PHASE0REGISTER_REJECTED)


_FROM_SUPERIOR: Final[dict[MessageType, EnlistmentEvent]] = {
    MessageType.BRANCHED: "enlisted", MessageType.COMMITREQ: "commit_request", MessageType.ABORTREQ: "abort_request",
    MessageType.TX_NOT_FOUND: "refused", MessageType.TOO_LATE: "refused", MessageType.BRANCH_LOG_FULL: "refused",
    MessageType.BRANCH_NO_MEM: "refused", MessageType.TOO_MANY: "refused",
}  # fmt: skip
#: Errors for the client by reason of a refused pull.
_REFUSALS: Final[dict[str, HResult]] = {
    MessageType.TX_NOT_FOUND.name: HResult.MQ_ERROR_TRANSACTION_IMPORT,
    MessageType.TOO_LATE.name: HResult.MQ_ERROR_TRANSACTION_ENLIST,
    MessageType.BRANCH_LOG_FULL.name: HResult.MQ_ERROR_INSUFFICIENT_RESOURCES,
    MessageType.BRANCH_NO_MEM.name: HResult.MQ_ERROR_INSUFFICIENT_RESOURCES,
    MessageType.TOO_MANY.name: HResult.MQ_ERROR_INSUFFICIENT_RESOURCES,
}


class SuperiorEnlistment(Enlistment):
    """A subordinate's state for its superior."""

    table = SUBORDINATE

    def __init__(
        self, asking: Asking, transaction: EnlistmentTransaction, partner: Partner, state: EnlistmentState
    ) -> None:
        super().__init__(asking, transaction, partner, state)
        self.redeliveries: list[PartnerConnection] = []  # on which the superior has repeated the commit request

    def _event(self, message: MessageType, data: bytes) -> EnlistmentEvent | None:
        if message is MessageType.PREPAREREQ:
            return "single_phase_request" if read_prepare_request(data).single_phase else "prepare_request"
        return _FROM_SUPERIOR.get(message)

    def recover(self) -> None:
        """Resume after a restart: the transaction is prepared, and its outcome is unknown."""
        self._ask()

    def _join(self) -> None:
        self._transaction.joined(None)

    def _fail_pull(self) -> None:
        self._close()
        refusal = _REFUSALS.get(self.reason, HResult.MQ_ERROR_DTC_CONNECT)
        text = f"transaction {self._transaction.name} can't be joined at {self.partner}: {self.reason}"
        self._transaction.joined(MsmqError(refusal, text))

    def _begin_prepare(self) -> None:
        self._transaction.prepare_branch(single_phase=False)

    def _begin_single_phase(self) -> None:
        self._transaction.prepare_branch(single_phase=True)

    def _vote(self, value: Vote) -> None:
        self._send(MessageType.PREPAREREQDONE, vote(value))

    def _send_vote_ok(self) -> None:
        self._vote(Vote.OK)

    def _send_vote_read_only(self) -> None:
        self._vote(Vote.READ_ONLY)
        self._close()

    def _send_vote_committed(self) -> None:
        self._vote(Vote.SINGLEPHASE_COMMIT)
        self._close()

    def _send_vote_abort(self) -> None:
        self._vote(Vote.ABORT)
        self._close()

    def _notify_abort(self) -> None:
        self._send(MessageType.ABORTNOTIFY)
        self._close()

    def _abort_and_answer(self) -> None:
        self._transaction.abort(self._failure("has aborted it"))
        self._send(MessageType.ABORTREQDONE)
        self._close()

    def _abort_here(self) -> None:
        self._close()
        self._transaction.abort(self._failure("does not have it any more"))

    def _ask(self) -> None:
        """Ask the superior for the outcome, which only it knows."""
        self._close()
        self.state = EnlistmentState.IN_DOUBT
        self.inquiry = Inquiry(
            CHECK_ABORT, self._asking, self.partner, self._transaction.uow,
            lambda: void(self.happened("outcome_abort", "it was aborted")),
        )  # fmt: skip
        self.inquiry.ask()

    def _commit_here(self) -> None:
        if self.inquiry is not None:
            self.inquiry.stop()
            self.inquiry = None
        self._transaction.commit_branch()

    def _answer_done(self) -> None:
        self._send(MessageType.COMMITREQDONE)
        for connection in self.redeliveries:  # deviation D-205: on the connection of the request
            connection.send(MessageType.REDELIVER_COMMITREQDONE)
        self._close()


def void(_: object) -> None:
    """Discard the result of a callback."""
