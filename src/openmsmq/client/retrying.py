"""When a call is made again after its connection was lost: the policy of both clients, without clock, randomness or I/O
of its own.

A call that was not sent may be made again, and so may one that does no harm when it is done twice. Any other ends with
an error that says what may have happened.
"""

from __future__ import annotations

from collections.abc import Callable

from openmsmq.client.calls import ClientCall, handle_lost
from openmsmq.model.errors import AnswerTimeout, BindError, RpcConnectionError

RECONNECT = 15.0  # seconds for which calls try to reach the server again, if not set otherwise
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds; each pause is twice as long as the one before


class Attempts:
    """The attempts at one call. `clock` is in seconds from any start, `random` draws from 0 to 1."""

    def __init__(
        self, call: ClientCall, seconds: float, clock: Callable[[], float], random: Callable[[], float]
    ) -> None:
        """`seconds` after the first failure the last attempt is over; 0 for a single attempt."""
        self._call, self._seconds, self._clock, self._random = call, seconds, clock, random
        self._until: float | None = None
        self._pause = FIRST_PAUSE

    def check(self) -> None:
        """Before an attempt. Raises HandleLost where it has no meaning any more."""
        lost = self._call.lost
        if lost is not None:
            raise handle_lost(self._call, lost, sent=False)

    def pause_after(self, error: RpcConnectionError, sent: bool) -> float:
        """Seconds to wait before the next attempt. Raises what the caller gets when there is none: HandleLost, or an
        RpcConnectionError that says what may have happened."""
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
