"""Connections that resolve transactions after a lost connection: REDELIVERCOMMIT and CHECKABORT ([MS-DTCO] 3.7.5.2,
3.8.5.2).

Both send an inquiry, and the answer is final or "ask again later". If the partner cannot be reached, the inquiry is
repeated after 1 s, then after doubling delays up to 30 s. In the specification it is repeated immediately and without
end (D-206).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from openmsmq.oletx.connections import Listen, Listener, PartnerConnection
from openmsmq.oletx.messages import ConnectionType, MessageType
from openmsmq.oletx.session import Cancellable
from openmsmq.oletx.structures import Partner

FIRST_PAUSE: Final = 1.0  # seconds, [MS-DTCO] notes 33 and 34
LONGEST_PAUSE: Final = 30.0


class Question(NamedTuple):
    """A question to a partner. `pause` is the delay in seconds after the answer `again`; `words` describes the attempt
    for operators."""

    connection: ConnectionType
    ask: MessageType
    end: MessageType
    again: MessageType
    pause: float
    words: str


REDELIVER_COMMIT: Final = Question(
    ConnectionType.REDELIVERCOMMIT, MessageType.REDELIVER_COMMITREQ, MessageType.REDELIVER_COMMITREQDONE,
    MessageType.REDELIVER_RETRY, 0.5, "telling it to commit",
)  # fmt: skip
CHECK_ABORT: Final = Question(
    ConnectionType.CHECKABORT, MessageType.CHECK, MessageType.ABORTED, MessageType.CHECK_RETRY, 1.0,
    "asking it for the outcome",
)  # fmt: skip


class Asking(Protocol):
    """Interface that an inquiry needs."""

    def open(
        self, partner: Partner, kind: ConnectionType, listen: Listen, message: MessageType,
        data: bytes,
    ) -> PartnerConnection: ...  # fmt: skip
    def later(self, seconds: float, action: Callable[[], None]) -> Cancellable: ...


class Inquiry:
    """Asks a partner about a transaction until it gets a final answer or is stopped.

    Attributes:
        question: the question.
        failure: why the last attempt failed; empty if the partner answered.
        is_answered: whether the partner answered the last attempt with "again later".
    """

    def __init__(
        self, question: Question, asking: Asking, partner: Partner, uow: bytes, ended: Callable[[], None]
    ) -> None:
        self.question: Final = question
        self._asking, self._partner, self._uow, self._ended = asking, partner, uow, ended
        self._connection: PartnerConnection | None = None
        self._timer: Cancellable | None = None
        self._pause = FIRST_PAUSE
        self._is_over = False
        self.failure = ""
        self.is_answered = False

    def ask(self) -> None:
        """Send the question now."""
        self._timer = None
        question = self.question

        def listen(connection: PartnerConnection) -> Listener:
            self._connection = connection
            return self

        self._asking.open(self._partner, question.connection, listen, question.ask, self._uow)

    def stop(self) -> None:
        """Stop asking."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._connection is not None:
            self._connection.close()

    # -- connections.Listener ------------------------------------------------------------------------------------

    def received(self, message: MessageType, data: bytes) -> None:
        if self._connection is not None:
            self._connection.close()
        self.failure, self.is_answered, self._pause = "", True, FIRST_PAUSE
        if self._is_over:
            return
        if message is self.question.end:
            self._is_over = True
            self._ended()
        else:
            self._timer = self._asking.later(self.question.pause, self.ask)

    def invalid(self, reason: str) -> None:
        self.lost(reason)

    def lost(self, reason: str) -> None:
        if self._is_over:
            return
        self.failure, self.is_answered = reason, False
        self._timer = self._asking.later(self._pause, self.ask)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
