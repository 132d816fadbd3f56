"""A transaction that more than one transaction manager takes part in ([MS-DTCO] 3.2)."""

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

VOTING: Final = 60.0  # seconds from the commit to the last vote (D-222)
REPEAT: Final = 1.0  # seconds until a commit that did not fit on the disk is tried again

Done = Callable[[MsmqError | None], None]
Ended = Callable[["DistributedTransaction"], None]


class Outcome(Enum):
    UNDECIDED = "undecided"
    COMMITTED = "committed"
    ABORTED = "aborted"


class LocalWork(Protocol):
    """The queue manager's own part in transactions. What writes raises MsmqError, and then has changed nothing."""

    def is_known(self, uow: bytes) -> bool:
        """Whether a transaction has the identifier."""

    def is_open(self, uow: bytes) -> bool:
        """Whether it takes more work."""

    def has_work(self, uow: bytes) -> bool:
        """Whether it has done anything here."""

    def begin(self, uow: bytes) -> None:
        """Create the local part of another transaction manager's transaction."""

    def close(self, uow: bytes) -> None:
        """Let it take no more work."""

    def prepare(self, uow: bytes, note: bytes) -> None:
        """Write what its commit needs; also refuses what is not complete."""

    def commit_here(self, uow: bytes, decision: bytes | None) -> None:
        """Write the commit, with the decision in the same batch."""

    def abort(self, uow: bytes) -> None:
        """End it, if it has not ended."""

    def forget(self, uow: bytes) -> None:
        """Drop the decision."""

    def when_durable(self, action: Callable[[], None]) -> None:
        """Run an action once all that is written is on the disk."""

    def later(self, seconds: float, action: Callable[[], None]) -> Cancellable:
        """Run an action after `seconds`."""


class DistributedTransaction:
    """One transaction. With a `superior` it is a branch, otherwise it began here.

    Attributes:
        uow: its identifier, 16 bytes.
        outcome: what was decided.
        since: when it came to be, or was taken up after a restart, in seconds of the clock of the wall.
    """

    def __init__(self, uow: bytes, work: LocalWork, ended: Ended, now: float) -> None:
        """`ended` is called once, when nothing has to be done or remembered any more."""
        self.uow, self.since = uow, now
        self._work, self._ended = work, ended
        self.superior: SuperiorEnlistment | None = None
        self.subordinates: list[SubordinateEnlistment] = []
        self.outcome = Outcome.UNDECIDED
        self.is_voting = False
        self.is_committed = False  # and that is durable
        self._single_phase = False
        self._has_decision = False
        self._waiting: list[Done] = []  # for the enlistment that is under way, or for the outcome
        self._timer: Cancellable | None = None
        self._is_over = False

    @property
    def name(self) -> str:
        """The identifier, as operators see it."""
        return self.uow.hex()

    @property
    def is_open(self) -> bool:
        return self.outcome is Outcome.UNDECIDED and not self.is_voting

    # -- enlisting ---------------------------------------------------------------------------------------------

    def wait_for(self, done: Done) -> None:
        """`done` hears of the enlistment that is under way."""
        self._waiting.append(done)

    def joined(self, error: MsmqError | None) -> None:
        """An enlistment of this transaction manager's own has ended, with an error or without."""
        waiting, self._waiting = self._waiting, []
        if error is not None and self.superior is not None and self.superior.has_ended:
            self.outcome = Outcome.ABORTED
            self._work.abort(self.uow)
        for done in waiting:
            done(error)

    # -- the first phase ---------------------------------------------------------------------------------------

    def commit(self, done: Done) -> None:
        """Commit a transaction that began here. `done` hears of the outcome once it is durable."""
        self._work.close(self.uow)
        self._waiting.append(done)
        self._collect_votes()

    def prepare_branch(self, *, single_phase: bool) -> None:
        """The superior collects votes, or lets this transaction manager decide (`single_phase`)."""
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
        """A vote has come in. This transaction manager votes last (D-202)."""
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
        self.outcome = Outcome.COMMITTED  # of nothing
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
        """The decision is durable, and may be told."""
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
        """The superior has decided to commit. What does not fit on the disk is tried again."""
        try:
            self._write_commit(self._promised())
        except MsmqError as error:
            logger.warning("cannot commit transaction %s; next attempt in %.0f s: %s", self.name,
                           REPEAT, error)  # fmt: skip
            self._work.later(REPEAT, self.commit_branch)

    def abort(self, error: MsmqError) -> None:
        """Abort everywhere. Aborts are not remembered: what is not known was aborted."""
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
        """An enlistment may have ended."""
        enlistments = [*self.subordinates, *([self.superior] if self.superior is not None else [])]
        if self.outcome is Outcome.UNDECIDED or self._is_over or any(not one.has_ended for one in enlistments):
            return
        if self._waiting:
            return  # the outcome is not durable yet
        self._is_over = True
        if self._has_decision:
            self._work.forget(self.uow)
        self._ended(self)

    # -- after a restart, and operators ------------------------------------------------------------------------

    def recover_decision(self) -> None:
        """The store has a decision to commit that not all `subordinates` have confirmed."""
        self.outcome, self._has_decision, self.is_committed = Outcome.COMMITTED, True, True

    def redeliver(self) -> None:
        """Tell that decision to the `subordinates`."""
        for subordinate in list(self.subordinates):
            subordinate.recover()

    def forget(self) -> None:
        """An operator gives up what subordinates have not confirmed."""
        for subordinate in list(self.subordinates):
            subordinate.happened("forgotten", "an operator has decided so")
