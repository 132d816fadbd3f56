"""The retry policy of both clients for calls whose connection was lost, without its own clock, randomness or I/O.

A call that was not sent, or that is idempotent, may be repeated. Any other call ends with an error that lists the
possible outcomes.
"""

from __future__ import annotations

from collections.abc import Callable

from openmsmq.client.calls import ClientCall, handle_lost
from openmsmq.model.errors import AnswerTimeout, BindError, RpcConnectionError

RECONNECT = 15.0  # seconds for which calls try to reconnect by default
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds; each pause is twice as long as the one before


class Attempts:
    """The attempts at one call. `clock` is in seconds from any start, `random` draws from 0 to 1."""

    def __init__(
        self, call: ClientCall, seconds: float, clock: Callable[[], float], random: Callable[[], float]
    ) -> None:
        """The last attempt ends `seconds` after the first failure; 0 for a single attempt."""
        self._call, self._seconds, self._clock, self._random = call, seconds, clock, random
        self._until: float | None = None
        self._pause = FIRST_PAUSE

    def check(self) -> None:
        """Check before an attempt. Raises HandleLost if the call can't succeed any longer."""
        lost = self._call.lost
        if lost is not None:
            raise handle_lost(self._call, lost, sent=False)

    def pause_after(self, error: RpcConnectionError, sent: bool) -> float:
        """Return the seconds to wait before the next attempt. If there is none, raises the error for the caller:
        HandleLost, or an RpcConnectionError with the possible outcomes."""
        call, fate = self._call, self._call.fate
        lost = call.lost
        if lost is not None:
            raise handle_lost(call, lost, sent) from error
        if sent and fate.unknown:
            raise type(error)(f"{call.operation.name}: {error}; {fate.unknown}", outcome_unknown=True) from error
        if isinstance(error, BindError | AnswerTimeout) or (sent and not fate.repeatable):
            raise error
        now = self._clock()
        if self._until is None:
            self._until = now + self._seconds
        pause = self._pause * (0.5 + self._random() / 2)
        if now + pause >= self._until:
            raise error
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return pause
