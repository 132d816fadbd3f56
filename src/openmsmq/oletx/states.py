"""The state tables of sessions and enlistments.

A row gives the effect of an event in a state: an action, which is a method of the class with the table, and the next
state. An event without a row is not allowed in that state; the class determines the answer.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, Literal, NamedTuple

# -- sessions, [MS-CMPO] 3.2.1.2, 3.3.4, 3.4.6 ---------------------------------------------------------------------


class PartnerSessionState(Enum):
    """The states of [MS-CMPO] 3.2.1.2; additionally NEW at the beginning and DOWN at the end."""

    NEW = "new"
    CONNECTING = "connecting"
    CONFIRMING = "confirming"
    ACTIVE = "active"
    REQUESTING_TEARDOWN = "requesting teardown"
    TEARDOWN = "teardown"
    DOWN = "down"


class PartnerSessionEvent(Enum):
    WANTED = auto()  # a local connection needs the session
    POKED = auto()  # Poke or PokeW of the secondary
    BUILD_CONTEXT = auto()  # BuildContext or BuildContextW of the partner
    BUILT = auto()  # the local BuildContextW has succeeded
    NOT_BUILT = auto()  # a local setup call has failed and may be repeated
    REFUSED = auto()  # permanent failure
    STOP = auto()  # the session is not needed, or the daemon stops
    BEGIN_TEARDOWN = auto()  # BeginTearDown of the secondary
    TEARDOWN = auto()  # TearDownContext of the partner
    TORN_DOWN = auto()  # the local teardown call was answered
    LOST = auto()  # lost the partner, its context handle, or the order of messages


class PartnerSessionRow(NamedTuple):
    action: str
    next: PartnerSessionState


def _rows(**rows: str) -> dict[PartnerSessionEvent, PartnerSessionRow]:
    """Return the rows of a state: `event="action NEXT_STATE"`."""
    table = {}
    for event, text in rows.items():
        action, following = text.split()
        table[PartnerSessionEvent[event]] = PartnerSessionRow(action, PartnerSessionState[following])
    return table


_GIVE_UP: Final = {"REFUSED": "give_up DOWN", "LOST": "give_up DOWN"}
SessionTable = dict[PartnerSessionState, dict[PartnerSessionEvent, PartnerSessionRow]]

#: Table of the partner with the greater contact identifier ([MS-CMPO] 1.3.1).
PRIMARY: Final[SessionTable] = {
    PartnerSessionState.NEW: _rows(WANTED="begin CONNECTING", POKED="begin CONNECTING", **_GIVE_UP),
    PartnerSessionState.CONNECTING: _rows(
        WANTED="nothing CONNECTING", POKED="nothing CONNECTING", BUILD_CONTEXT="confirm CONFIRMING",
        NOT_BUILT="repeat CONNECTING", STOP="give_up DOWN", **_GIVE_UP,
    ),
    PartnerSessionState.CONFIRMING: _rows(
        WANTED="nothing CONFIRMING", BUILT="establish ACTIVE", NOT_BUILT="repeat CONNECTING", STOP="give_up DOWN",
        TEARDOWN="give_up DOWN", BUILD_CONTEXT="confirm CONFIRMING", **_GIVE_UP,
    ),
    PartnerSessionState.ACTIVE: _rows(
        WANTED="nothing ACTIVE", POKED="probe ACTIVE", STOP="tear_down TEARDOWN", BEGIN_TEARDOWN="tear_down TEARDOWN",
        TEARDOWN="give_up DOWN", LOST="give_up DOWN",
    ),
    PartnerSessionState.TEARDOWN: _rows(
        BEGIN_TEARDOWN="nothing TEARDOWN", TEARDOWN="give_up DOWN", TORN_DOWN="nothing TEARDOWN", LOST="give_up DOWN",
        REFUSED="give_up DOWN",
    ),
    PartnerSessionState.DOWN: {},
}  # fmt: skip
#: Table of the partner with the smaller contact identifier.
SECONDARY: Final[SessionTable] = {
    PartnerSessionState.NEW: _rows(WANTED="begin CONNECTING", BUILD_CONTEXT="call_back CONFIRMING", **_GIVE_UP),
    PartnerSessionState.CONNECTING: _rows(
        WANTED="nothing CONNECTING", BUILD_CONTEXT="call_back CONFIRMING", NOT_BUILT="repeat CONNECTING",
        STOP="give_up DOWN", **_GIVE_UP,
    ),
    PartnerSessionState.CONFIRMING: _rows(
        WANTED="nothing CONFIRMING", BUILT="establish ACTIVE", NOT_BUILT="repeat CONFIRMING", STOP="give_up DOWN",
        **_GIVE_UP,
    ),
    PartnerSessionState.ACTIVE: _rows(
        WANTED="nothing ACTIVE", BUILD_CONTEXT="probe ACTIVE", STOP="request_teardown REQUESTING_TEARDOWN",
        TEARDOWN="answer_teardown TEARDOWN", LOST="give_up DOWN",
    ),
    PartnerSessionState.REQUESTING_TEARDOWN: _rows(
        TEARDOWN="answer_teardown TEARDOWN", LOST="give_up DOWN", REFUSED="give_up DOWN",
        TORN_DOWN="nothing REQUESTING_TEARDOWN",
    ),
    PartnerSessionState.TEARDOWN: _rows(TORN_DOWN="give_up DOWN", LOST="give_up DOWN", REFUSED="give_up DOWN"),
    PartnerSessionState.DOWN: {},
}  # fmt: skip

# -- enlistments, [MS-DTCO] 3.7.5, 3.7.7, 3.8.5, 3.8.7 -------------------------------------------------------------


class EnlistmentState(Enum):
    """State of an enlistment, at a superior for a subordinate and at a subordinate for its superior."""

    ENLISTING = "enlisting"  # PROPAGATE or BRANCHING is in progress
    ACTIVE = "active"
    PREPARING = "preparing"
    SINGLE_PHASE = "committing in a single phase"
    PREPARED = "prepared"
    IN_DOUBT = "in doubt"  # prepared, connection lost
    COMMITTING = "committing"
    ABORTING = "aborting"
    ENDED = "ended"


EnlistmentEvent = Literal[
    "enlisted", "refused", "lost", "invalid", "prepare", "commit", "abort", "vote_ok", "vote_read_only", "vote_abort",
    "abort_notify", "done", "aborted", "prepare_request", "single_phase_request", "commit_request", "abort_request",
    "phase_zero", "redelivered", "outcome_abort", "duplicate",
    "forgotten",
]  # fmt: skip


class EnlistmentStep(NamedTuple):
    action: str
    next: EnlistmentState


EnlistmentTable = dict[EnlistmentState, dict[str, EnlistmentStep]]


def _table(**states: str) -> EnlistmentTable:
    """Return a table: `STATE="event action NEXT_STATE; ..."`."""
    return {
        EnlistmentState[state]: {
            event: EnlistmentStep(action, EnlistmentState[following])
            for event, action, following in (row.split() for row in rows.split(";"))
        }
        for state, rows in states.items()
    }


#: Table of a superior for one subordinate ([MS-DTCO] 3.7; D-200, D-201, D-203, D-204, D-214).
SUPERIOR: Final = _table(
    ENLISTING="enlisted join ACTIVE; duplicate join_again ENDED; refused fail_push ENDED; lost fail_push ENDED;"
    "invalid fail_push ENDED; abort leave ENDED",
    ACTIVE="prepare request_prepare PREPARING; abort request_abort ABORTING; abort_notify abort_all ENDED;"
    "lost abort_all ENDED; invalid abort_all ENDED; phase_zero reject_phase_zero ACTIVE",
    PREPARING="vote_ok count_prepared PREPARED; vote_read_only count_read_only ENDED; vote_abort abort_all ENDED;"
    "abort_notify abort_all ENDED; lost abort_all ENDED; invalid abort_all ENDED; abort request_abort ABORTING",
    PREPARED="lost nothing IN_DOUBT; invalid close IN_DOUBT; commit request_commit COMMITTING;"
    "abort request_abort ABORTING",
    IN_DOUBT="commit redeliver COMMITTING; abort leave ENDED; redelivered finish ENDED",
    COMMITTING="done finish ENDED; lost redeliver COMMITTING; invalid redeliver COMMITTING; redelivered finish ENDED;"
    "forgotten leave ENDED",
    ABORTING="aborted leave ENDED; lost leave ENDED; invalid leave ENDED; vote_ok nothing ABORTING;"
    "vote_read_only leave ENDED; vote_abort leave ENDED; abort_notify leave ENDED; abort nothing ABORTING",
    ENDED="abort nothing ENDED; lost nothing ENDED; forgotten nothing ENDED",
)

#: Table of a subordinate for its superior ([MS-DTCO] 3.8).
SUBORDINATE: Final = _table(
    ENLISTING="enlisted join ACTIVE; refused fail_pull ENDED; lost fail_pull ENDED; invalid fail_pull ENDED;"
    "abort leave ENDED",
    ACTIVE="prepare_request begin_prepare PREPARING; single_phase_request begin_single_phase SINGLE_PHASE;"
    "abort_request abort_and_answer ENDED; lost abort_here ENDED; invalid abort_here ENDED; abort notify_abort ENDED",
    PREPARING="abort_request abort_and_answer ENDED; lost abort_here ENDED; invalid abort_here ENDED;"
    "vote_ok send_vote_ok PREPARED; vote_read_only send_vote_read_only ENDED; abort send_vote_abort ENDED",
    SINGLE_PHASE="vote_ok send_vote_committed ENDED; vote_read_only send_vote_read_only ENDED;"
    "abort send_vote_abort ENDED; lost close SINGLE_PHASE; invalid close SINGLE_PHASE",
    PREPARED="commit_request commit_here COMMITTING; abort_request abort_and_answer ENDED; lost ask IN_DOUBT;"
    "invalid ask IN_DOUBT; redelivered commit_here COMMITTING; abort leave ENDED; commit commit_here COMMITTING",
    IN_DOUBT="redelivered commit_here COMMITTING; outcome_abort abort_here ENDED; commit commit_here COMMITTING;"
    "abort leave ENDED",
    COMMITTING="done answer_done ENDED; lost close COMMITTING; invalid close COMMITTING",
    ENDED="lost nothing ENDED; abort nothing ENDED",
)
