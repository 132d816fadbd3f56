"""A transaction with more than one transaction manager ([MS-DTCO] 3.2)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from openmsmq.model.errors import HResult, MsmqError
from openmsmq.oletx.enlistments import SubordinateEnlistment, SuperiorEnlistment
from openmsmq.oletx.records import Note, encode_decision, encode_note
from openmsmq.oletx.session import Cancellable
from openmsmq.oletx.states import EnlistmentState

logger = logging.getLogger(__name__)

VOTING: Final = 60.0  # maximum seconds from the commit to the last vote (D-222)
REPEAT: Final = 1.0  # seconds until a commit is retried after a full disk

Done = Callable[[MsmqError | None], None]
Ended = Callable[["DistributedTransaction"], None]


class Outcome(Enum):
    UNDECIDED = "undecided"
    COMMITTED = "committed"
    ABORTED = "aborted"


class LocalWork(Protocol):
    """The queue manager's part in transactions. Methods that write raise MsmqError, with nothing changed."""

    def is_known(self, uow: bytes) -> bool:
        """Whether a transaction with the identifier exists."""

    def is_open(self, uow: bytes) -> bool:
        """Whether the transaction accepts more work."""

    def has_work(self, uow: bytes) -> bool:
        """Whether the transaction has operations here."""

    def begin(self, uow: bytes) -> None:
        """Create the local part of another transaction manager's transaction."""

    def close(self, uow: bytes) -> None:
        """Accept no more work for the transaction."""

    def prepare(self, uow: bytes, note: bytes) -> None:
        """Write the data needed for the commit; refuses an incomplete transaction."""

    def commit_here(self, uow: bytes, decision: bytes | None) -> None:
        """Write the commit, and the decision in the same batch."""

    def abort(self, uow: bytes) -> None:
        """Abort the transaction, if it has not ended."""

    def forget(self, uow: bytes) -> None:
        """Drop the decision."""

    def when_durable(self, action: Callable[[], None]) -> None:
        """Run an action once everything written so far is on disk."""

    def later(self, seconds: float, action: Callable[[], None]) -> Cancellable:
        """Run an action after `seconds`."""


class DistributedTransaction:
    """A transaction. If it has a `superior`, it is a branch; otherwise it began here.

    Attributes:
        uow: its identifier, 16 bytes.
        outcome: the decision.
        since: when it was created, or restored after a restart, in seconds since 1970 UTC.
    """

    def __init__(self, uow: bytes, work: LocalWork, ended: Ended, now: float) -> None:
        """`ended` is called once, when nothing is left to be done or stored."""
        self.uow, self.since = uow, now
        self._work, self._ended = work, ended
        self.superior: SuperiorEnlistment | None = None
        self.subordinates: list[SubordinateEnlistment] = []
        self.outcome = Outcome.UNDECIDED
        self.is_voting = False
        self.is_committed = False  # durably
        self._single_phase = False
        self._has_decision = False
        self._waiting: list[Done] = []  # callbacks for the enlistment in progress or the outcome
        self._timer: Cancellable | None = None
        self._is_over = False

    @property
    def name(self) -> str:
        """The identifier as text, for operators."""
        return self.uow.hex()

    @property
    def is_open(self) -> bool:
        return self.outcome is Outcome.UNDECIDED and not self.is_voting

    # -- enlisting ---------------------------------------------------------------------------------------------

    def wait_for(self, done: Done) -> None:
        """Call `done` with the result of the enlistment in progress."""
        self._waiting.append(done)

    def joined(self, error: MsmqError | None) -> None:
        """Handle the end of an enlistment that this transaction manager requested, with or without an error."""
        waiting, self._waiting = self._waiting, []
        if error is not None and self.superior is not None and self.superior.has_ended:
            self.outcome = Outcome.ABORTED
            self._work.abort(self.uow)
        for done in waiting:
            done(error)

    # -- the first phase ---------------------------------------------------------------------------------------

    def commit(self, done: Done) -> None:
        """Commit a transaction that began here. `done` is called with the outcome once it is durable."""
        self._work.close(self.uow)
        self._waiting.append(done)
        self._collect_votes()

    def prepare_branch(self, *, single_phase: bool) -> None:
        """Prepare for the superior, or decide in its place (`single_phase`): collect votes."""
        self._single_phase = single_phase
        self._collect_votes()

    def _collect_votes(self) -> None:
        self.is_voting = True
        self._timer = self._work.later(VOTING, self._votes_are_late)
        for subordinate in list(self.subordinates):
            if subordinate.state is EnlistmentState.ENLISTING:
                subordinate.happened("abort", "the transaction is committed already")
            elif subordinate.state is EnlistmentState.ACTIVE:
                subordinate.happened("prepare")
        self.voted()

    def _votes_are_late(self) -> None:
        late = ", ".join(str(one.partner) for one in self.subordinates if one.state is EnlistmentState.PREPARING)
        text = f"transaction {self.name}: no vote within {VOTING:.0f} s from {late}"
        self.abort(MsmqError(HResult.MQ_ERROR_REMOTE_MACHINE_NOT_AVAILABLE, text))

    def voted(self) -> None:
        """Handle a vote. This transaction manager votes last (D-202)."""
        if not self.is_voting or self.outcome is not Outcome.UNDECIDED:
            return
        if any(one.state is EnlistmentState.PREPARING for one in self.subordinates):
            return
        self.is_voting = False
        if self._timer is not None:
            self._timer.cancel()
        self._decide() if self.superior is None or self._single_phase else self._vote()

    def _promised(self) -> list[SubordinateEnlistment]:
        return [one for one in self.subordinates if one.has_promised]

    def _vote(self) -> None:
        assert self.superior is not None
        promised = self._promised()
        if not promised and not self._work.has_work(self.uow):
            self._end_read_only()
            return
        note = Note(self.superior.partner, tuple(one.partner for one in promised))
        try:
            self._work.prepare(self.uow, encode_note(note))
        except MsmqError as error:
            self.abort(error)
            return
        self._work.when_durable(self._voted_ok)

    def _voted_ok(self) -> None:
        if self.superior is not None:
            self.superior.happened("vote_ok")

    def _end_read_only(self) -> None:
        assert self.superior is not None
        self.outcome = Outcome.COMMITTED  # without any changes
        self._work.abort(self.uow)
        self.superior.happened("vote_read_only")

    # -- the second phase --------------------------------------------------------------------------------------

    def _decide(self) -> None:
        promised = self._promised()
        if self.superior is not None and not promised and not self._work.has_work(self.uow):
            self._end_read_only()
            return
        try:
            self._write_commit(promised)
        except MsmqError as error:
            self.abort(error)

    def _write_commit(self, promised: list[SubordinateEnlistment]) -> None:
        decision = encode_decision(one.partner for one in promised) if promised else None
        self._work.commit_here(self.uow, decision)
        self.outcome, self._has_decision = Outcome.COMMITTED, decision is not None
        self._work.when_durable(self._is_committed)

    def _is_committed(self) -> None:
        """Report the decision, which is durable now."""
        self.is_committed = True
        waiting, self._waiting = self._waiting, []
        for subordinate in self._promised():
            subordinate.happened("commit")
        if self.superior is not None:
            self.superior.happened("vote_ok" if self._single_phase else "done")
        for done in waiting:
            done(None)
        self.left()

    def commit_branch(self) -> None:
        """Commit, as the superior has decided. Retries if the disk is full."""
        try:
            self._write_commit(self._promised())
        except MsmqError as error:
            logger.warning("cannot commit transaction %s; next attempt in %.0f s: %s", self.name,
                           REPEAT, error)  # fmt: skip
            self._work.later(REPEAT, self.commit_branch)

    def abort(self, error: MsmqError) -> None:
        """Abort everywhere. Aborts are not stored: an unknown transaction counts as aborted."""
        if self.outcome is not Outcome.UNDECIDED:
            return
        logger.info("%s", error)
        self.outcome, self.is_voting = Outcome.ABORTED, False
        if self._timer is not None:
            self._timer.cancel()
        self._work.abort(self.uow)
        for subordinate in list(self.subordinates):
            subordinate.happened("abort", str(error))
        if self.superior is not None:
            self.superior.happened("abort", str(error))
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(error)
        self.left()

    def left(self) -> None:
        """End the transaction if all its enlistments have ended."""
        enlistments = [*self.subordinates, *([self.superior] if self.superior is not None else [])]
        if self.outcome is Outcome.UNDECIDED or self._is_over or any(not one.has_ended for one in enlistments):
            return
        if self._waiting:
            return  # outcome not durable yet
        self._is_over = True
        if self._has_decision:
            self._work.forget(self.uow)
        self._ended(self)

    # -- after a restart, and operators ------------------------------------------------------------------------

    def recover_decision(self) -> None:
        """Restore the decision to commit, which not all `subordinates` have confirmed."""
        self.outcome, self._has_decision, self.is_committed = Outcome.COMMITTED, True, True

    def redeliver(self) -> None:
        """Send the restored decision to the `subordinates`."""
        for subordinate in list(self.subordinates):
            subordinate.recover()

    def forget(self) -> None:
        """Forget the unconfirmed decision, as an operator requested."""
        for subordinate in list(self.subordinates):
            subordinate.happened("forgotten", "an operator has decided so")
