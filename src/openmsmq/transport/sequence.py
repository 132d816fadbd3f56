"""Transactional sequences between source and destination ([MS-MQQB] 3.1.1.5, 3.1.1.6.2).

Without I/O: the docstrings state what must be durable before data is sent; the owner stores it. Times are milliseconds
of a monotonic clock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple

from openmsmq.packet.internal import OrderAckBody

RESEND_INTERVALS = (30_000,) * 3 + (300_000,) * 3 + (1_800_000,) * 3 + (21_600_000,)  # note 24
ORDER_ACK_TIMEOUT = 500  # 3.1.2.7
MAXIMUM_ORDER_ACK_DELAY = 10_000  # 3.1.3.2, note 52
# Highest number of a sequence. A new sequence begins when all numbers are acknowledged.
LAST_NUMBER = 0xFFFF0000


class SequenceId(NamedTuple):
    """TxSequenceID ([MS-MQMQ] 2.2.18.1.2), ordered as a 64-bit number with the TimeStamp as upper half."""

    timestamp: int
    ordinal: int


class OutgoingSequence:
    """The sequence of one outgoing queue.

    `new_identifier` comes from one generator for the whole queue manager (deviation D-97): each identifier is greater
    than the previous one, also after a restart. To continue after a restart, pass the stored identifier, next number,
    last acknowledged number and unacknowledged numbers.
    """

    def __init__(
        self,
        new_identifier: Callable[[], SequenceId],
        identifier: SequenceId | None = None,
        next_number: int = 1,
        last_ack: int = 0,
        unacknowledged: Iterable[int] = (),
    ) -> None:
        self._new_identifier = new_identifier
        self.identifier = identifier or new_identifier()
        self.next_number = next_number
        self.last_ack = last_ack
        self.last_ack_count = 0  # LastAckCount, for EodLastAckCount
        self._unacknowledged = sorted(unacknowledged)
        self._interval = 0
        self._deadline: float | None = None

    @property
    def unacknowledged(self) -> tuple[int, ...]:
        """UnackedSequence: the numbers without an OrderAck, in order."""
        return tuple(self._unacknowledged)

    @property
    def exhausted(self) -> bool:
        """Whether no number is left until all messages are acknowledged or gone and a new sequence begins."""
        return self.next_number > LAST_NUMBER and bool(self._unacknowledged)

    @property
    def next_deadline(self) -> float | None:
        """ResendTime: when to call `tick`."""
        return self._deadline

    @property
    def resend_interval(self) -> int:
        """ResendInterval, in milliseconds."""
        return RESEND_INTERVALS[self._interval]

    @property
    def resend_index(self) -> int:
        """ResendIntervalIndex: number of resends since the last OrderAck, limited by the longest interval."""
        return self._interval

    def assign(self) -> int:
        """Return a new TxSequenceNumber for a message, which keeps it permanently (deviation D-97).

        It must be durable before the message is sent. Raises OverflowError when `exhausted`.
        """
        if self.exhausted:
            raise OverflowError(f"sequence {self.identifier} has no more numbers")
        number = self.next_number
        self.next_number += 1
        self._unacknowledged.append(number)
        return number

    def previous(self, number: int) -> int:
        """Return the current PreviousTxSequenceNumber of a message (3.1.7.1.3); it skips gaps left by expired
        messages."""
        before = bisect_left(self._unacknowledged, number)
        return self._unacknowledged[before - 1] if before else self.last_ack

    def sent(self, now: float) -> None:
        """Note that a message was sent, and start the timer for its OrderAck (3.1.2.6)."""
        if self._deadline is None:
            self._deadline = now + RESEND_INTERVALS[self._interval]

    def withdraw(self, number: int) -> None:
        """Remove a message that expired or was deleted before its OrderAck. Raises ValueError if it is not in the
        sequence."""
        self._unacknowledged.remove(number)
        if not self._unacknowledged:
            self._stop()

    def acknowledged(self, order_ack: OrderAckBody, now: float) -> tuple[int, ...]:
        """Return the numbers that an OrderAck acknowledges (3.1.5.6); their messages leave the queue.

        An OrderAck for another sequence, or for an unassigned number, acknowledges nothing (deviation D-98). When all
        numbers are acknowledged, a new sequence begins, which must be stored in the same batch. If that fails, recreate
        the sequence from the stored state.
        """
        identifier = SequenceId(order_ack.sequence_timestamp, order_ack.sequence_ordinal)
        number = order_ack.sequence_number
        if identifier != self.identifier or number >= self.next_number:
            return ()
        self.last_ack_count += 1
        if number <= self.last_ack:
            return ()
        self.last_ack = number
        count = bisect_right(self._unacknowledged, number)
        done = tuple(self._unacknowledged[:count])
        del self._unacknowledged[:count]
        self._stop()
        if self._unacknowledged:
            self._deadline = now + RESEND_INTERVALS[0]
        else:
            self.renew()
        return done

    def renew(self) -> None:
        """Begin a new sequence, which the owner stores, because no number is left without an OrderAck."""
        self.identifier, self.next_number, self.last_ack = self._new_identifier(), 1, 0

    def tick(self, now: float) -> bool:
        """Return whether all unacknowledged messages must be sent again, in order (3.1.6.5; deviation D-98)."""
        if self._deadline is None or now < self._deadline:
            return False
        self._interval = min(self._interval + 1, len(RESEND_INTERVALS) - 1)
        self._deadline = now + RESEND_INTERVALS[self._interval]
        return True

    def _stop(self) -> None:
        self._interval = 0
        self._deadline = None


class SequencePosition(NamedTuple):
    """Position of the last accepted message. Later positions are greater."""

    identifier: SequenceId = SequenceId(0, 0)
    number: int = 0


class Incoming:
    """Messages from one source queue manager for one destination queue (deviation D-97)."""

    def __init__(self, synced: SequencePosition | None = None, reject_count: int = 0) -> None:
        self.synced = synced or SequencePosition()
        self.position = self.synced
        self.reject_count = reject_count  # TxMessageRejectCount
        self._latest = SequencePosition()  # of the latest message, accepted or not
        self._deadline: float | None = None
        self._last_order_ack: float | None = None

    @property
    def next_deadline(self) -> float | None:
        """When to call `tick`."""
        return self._deadline

    def receive(
        self, identifier: SequenceId, number: int, previous: int, now: float, *, from_source: bool = False
    ) -> bool:
        """Return whether a message is accepted: in order and for the first time (3.1.5.8.6; deviation D-100).
        `from_source`: it came on a session of its source, not of a router.

        If so, store it and `position` in one batch, then call `durable`. Otherwise do not store it; the next OrderAck
        tells the sender the position.
        """
        resent = from_source and identifier == self._latest.identifier and number <= self._latest.number
        self._latest = SequencePosition(identifier, number)
        accepted = self._accepts(identifier, number, previous, resent)
        if accepted:
            self.position = SequencePosition(identifier, number)
            self.reject_count = 0
        else:
            self.reject_count += 1
        self._schedule(now)
        return accepted

    def durable(self, position: SequencePosition, now: float) -> None:
        """Note that a batch with this position is synced, so that an OrderAck may contain it."""
        if position > self.synced:
            self.synced = position
            if self._deadline is None:
                self._schedule(now)

    def failed(self) -> None:
        """Go back to the last synced position, because a batch could not be stored. The peer will send the messages
        again."""
        self.position = self.synced

    def tick(self, now: float) -> OrderAckBody | None:
        """Return the OrderAck to send now, or None (3.1.6.9)."""
        if self._deadline is None or now < self._deadline:
            return None
        self._deadline = None
        if not self.synced.number:
            return None
        self._last_order_ack = now
        identifier, number = self.synced
        return OrderAckBody(identifier.ordinal, identifier.timestamp, number)

    def _accepts(self, identifier: SequenceId, number: int, previous: int, resent: bool) -> bool:
        current, last = self.position
        if identifier == current:
            return number > last and previous <= last
        # Deviation D-260: a source resends all messages without OrderAck in order, so the first one is the next one.
        begins = previous == 0 or (resent and not last)
        return identifier > current and begins and number > 0

    def _schedule(self, now: float) -> None:
        """Schedule the OrderAck. Each message postpones it, until the last OrderAck was MAXIMUM_ORDER_ACK_DELAY ago."""
        running = self._deadline is not None
        recent = self._last_order_ack is not None and now - self._last_order_ack < MAXIMUM_ORDER_ACK_DELAY
        if not running or recent:
            self._deadline = now + ORDER_ACK_TIMEOUT
