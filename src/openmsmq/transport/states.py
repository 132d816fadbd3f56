"""The state tables of a session over one TCP connection ([MS-MQQB] 3.1.1.1.1.1, 3.1.1.1.1.2).

A session begins when the connection is open. A row gives the effect of one kind of packet in one state: an action,
implemented by a method of `session.MqqbSession`, and the next state. A packet without a row is an error of the peer:
the session closes without sending anything, because the protocol has neither error nor close packets (3.1.5.1.3,
3.1.5.9).

The table of the states before and after a session, up to WAITING_RECONNECT, is in `connecting`.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple


class SessionState(Enum):
    """SessionState (3.1.1.3.1)."""

    WAITING_ECR_MSG = auto()  # initiator: EstablishConnection sent
    WAITING_CPR_MSG = auto()  # initiator: ConnectionParameters sent
    WAITING_EC_MSG = auto()  # acceptor: connection accepted
    WAITING_CP_MSG = auto()  # acceptor: EstablishConnection answered
    OPEN = auto()
    CLOSED = auto()


class SessionEvent(Enum):
    """Events from the peer."""

    ESTABLISH_VALID = auto()  # EstablishConnection that passes 3.1.5.3.1 or 3.1.5.3.2
    ESTABLISH_INVALID = auto()  # EstablishConnection that does not
    PARAMETERS = auto()
    PARAMETERS_REFUSED = auto()  # ConnectionParameters with CS (2.2.1)
    SESSION_ACK = auto()
    USER_MESSAGE = auto()  # also OrderAck and FinalAck


class SessionAction(Enum):
    """Reactions of a session."""

    SEND_PARAMETERS = auto()
    ANSWER_ESTABLISH = auto()
    REFUSE_ESTABLISH = auto()
    ANSWER_PARAMETERS = auto()
    ACCEPT_PARAMETERS = auto()
    GIVE_UP = auto()
    READ_ACKNOWLEDGMENT = auto()
    RECEIVE_MESSAGE = auto()


class SessionRow(NamedTuple):
    action: SessionAction
    next: SessionState


INITIAL_INITIATOR = SessionState.WAITING_ECR_MSG
INITIAL_ACCEPTOR = SessionState.WAITING_EC_MSG

TABLE: dict[SessionState, dict[SessionEvent, SessionRow]] = {
    SessionState.WAITING_ECR_MSG: {
        SessionEvent.ESTABLISH_VALID: SessionRow(SessionAction.SEND_PARAMETERS, SessionState.WAITING_CPR_MSG),
        SessionEvent.ESTABLISH_INVALID: SessionRow(SessionAction.GIVE_UP, SessionState.CLOSED),
    },
    SessionState.WAITING_CPR_MSG: {
        SessionEvent.PARAMETERS: SessionRow(SessionAction.ACCEPT_PARAMETERS, SessionState.OPEN),
        SessionEvent.PARAMETERS_REFUSED: SessionRow(SessionAction.GIVE_UP, SessionState.CLOSED),
    },
    SessionState.WAITING_EC_MSG: {
        SessionEvent.ESTABLISH_VALID: SessionRow(SessionAction.ANSWER_ESTABLISH, SessionState.WAITING_CP_MSG),
        SessionEvent.ESTABLISH_INVALID: SessionRow(SessionAction.REFUSE_ESTABLISH, SessionState.CLOSED),
    },
    SessionState.WAITING_CP_MSG: {
        SessionEvent.PARAMETERS: SessionRow(SessionAction.ANSWER_PARAMETERS, SessionState.OPEN),
        SessionEvent.PARAMETERS_REFUSED: SessionRow(SessionAction.GIVE_UP, SessionState.CLOSED),
    },
    SessionState.OPEN: {
        SessionEvent.SESSION_ACK: SessionRow(SessionAction.READ_ACKNOWLEDGMENT, SessionState.OPEN),
        SessionEvent.USER_MESSAGE: SessionRow(SessionAction.RECEIVE_MESSAGE, SessionState.OPEN),
    },
    SessionState.CLOSED: {},
}


class Timer(Enum):
    """The timers of a session (3.1.2), and one for incomplete packets."""

    INITIALIZATION = auto()
    CLEANUP = auto()
    ACK_WAIT = auto()
    ACK_SEND = auto()
    PACKET = auto()


class Expiry(Enum):
    """Reaction of a session to an expired timer."""

    CLOSE = auto()
    CLOSE_IF_IDLE = auto()  # 3.1.6.2
    CLOSE_IF_SILENT = auto()  # 3.1.6.3
    SEND_ACKNOWLEDGMENT = auto()  # 3.1.6.4


EXPIRIES: dict[Timer, Expiry] = {
    Timer.INITIALIZATION: Expiry.CLOSE,
    Timer.PACKET: Expiry.CLOSE,
    Timer.CLEANUP: Expiry.CLOSE_IF_IDLE,
    Timer.ACK_WAIT: Expiry.CLOSE_IF_SILENT,
    Timer.ACK_SEND: Expiry.SEND_ACKNOWLEDGMENT,
}
