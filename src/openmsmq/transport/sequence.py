"""Transactional sequences, end to end between source and destination ([MS-MQQB] 3.1.1.5, 3.1.1.6.2).

Pure state: what has to be durable before something leaves is named, and storing it is the owner's. Times are
milliseconds of a clock that never goes back.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple

from openmsmq.packet.internal import OrderAckBody

RESEND_INTERVALS = (30_000,) * 3 + (300_000,) * 3 + (1_800_000,) * 3 + (21_600_000,)  # note 24
ORDER_ACK_TIMEOUT = 500  # 3.1.2.7
MAXIMUM_ORDER_ACK_DELAY = 10_000  # 3.1.3.2, note 52
# A sequence that never runs empty gets no higher numbers; it ends when all of them are acknowledged.
LAST_NUMBER = 0xFFFF0000


class SequenceId(NamedTuple):
    """TxSequenceID ([MS-MQMQ] 2.2.18.1.2): ordered as the 64 bits whose upper half is the TimeStamp."""

    timestamp: int
    ordinal: int


class OutgoingSequence:
    """The sequence of one outgoing queue.

    `new_identifier` comes from one generator for the whole queue manager (deviation D-97): it returns a greater
    identifier each time, also after a restart. To go on after a restart, pass the identifier, next number, last
    acknowledged number and unacknowledged numbers that were stored.
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
        """Whether no more numbers can be given until all are acknowledged, and a new sequence begins."""
        return self.next_number > LAST_NUMBER

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
        """ResendIntervalIndex: how often all was sent again since the last OrderAck, up to the longest interval."""
        return self._interval

    def assign(self) -> int:
        """TxSequenceNumber for a message, given once and kept for its life (deviation D-97).

        It has to be durable before the first byte of the message leaves. Raises OverflowError when `exhausted`.
        """
        if self.exhausted:
            raise OverflowError(f"sequence {self.identifier} has no more numbers")
        number = self.next_number
        self.next_number += 1
        self._unacknowledged.append(number)
        return number

    def previous(self, number: int) -> int:
        """PreviousTxSequenceNumber at each sending (3.1.7.1.3): bridges the gaps that expired messages left."""
        before = bisect_left(self._unacknowledged, number)
        return self._unacknowledged[before - 1] if before else self.last_ack

    def sent(self, now: float) -> None:
        """A message of the sequence was sent: its OrderAck is waited for (3.1.2.6)."""
        if self._deadline is None:
            self._deadline = now + RESEND_INTERVALS[self._interval]

    def withdraw(self, number: int) -> None:
        """A message expired or was deleted before its OrderAck. Raises ValueError if it is not of the sequence."""
        self._unacknowledged.remove(number)
        if not self._unacknowledged:
            self._stop()

    def acknowledged(self, order_ack: OrderAckBody, now: float) -> tuple[int, ...]:
        """The numbers that an OrderAck completes (3.1.5.6); their messages leave the queue.

        One for another sequence, or for a number that was not given, completes nothing (deviation D-98). When all
        are complete a new sequence begins, which belongs into the same batch. If that cannot be stored, recreate the
        sequence from the stored state.
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
            self.identifier, self.next_number, self.last_ack = self._new_identifier(), 1, 0
        return done

    def tick(self, now: float) -> bool:
        """Whether all unacknowledged messages are to be sent again, in order (3.1.6.5; deviation D-98)."""
        if self._deadline is None or now < self._deadline:
            return False
        self._interval = min(self._interval + 1, len(RESEND_INTERVALS) - 1)
        self._deadline = now + RESEND_INTERVALS[self._interval]
        return True

    def _stop(self) -> None:
        self._interval = 0
        self._deadline = None


class SequencePosition(NamedTuple):
    """The last message that was accepted. What is greater came later."""

    identifier: SequenceId = SequenceId(0, 0)
    number: int = 0


class Incoming:
    """Messages from one source queue manager for one destination queue (deviation D-97)."""

    def __init__(self, synced: SequencePosition | None = None, reject_count: int = 0) -> None:
        self.synced = synced or SequencePosition()
        self.position = self.synced
        self.reject_count = reject_count  # TxMessageRejectCount
        self._deadline: float | None = None
        self._last_order_ack: float | None = None

    @property
    def next_deadline(self) -> float | None:
        """When to call `tick`."""
        return self._deadline

    def receive(self, identifier: SequenceId, number: int, previous: int, now: float) -> bool:
        """Whether a message is accepted, in order and for the first time (3.1.5.8.6; deviation D-100).

        If so, store it and `position` in one batch, then call `durable`. One that is not accepted is not stored; an
        OrderAck repeats what the sender needs to know.
        """
        accepted = self._accepts(identifier, number, previous)
        if accepted:
            self.position = SequencePosition(identifier, number)
            self.reject_count = 0
        else:
            self.reject_count += 1
        self._schedule(now)
        return accepted

    def durable(self, position: SequencePosition, now: float) -> None:
        """A batch with this position is synced, so an OrderAck may name it."""
        if position > self.synced:
            self.synced = position
            if self._deadline is None:
                self._schedule(now)

    def failed(self) -> None:
        """A batch could not be stored: what was not synced is forgotten, and will be sent again."""
        self.position = self.synced

    def tick(self, now: float) -> OrderAckBody | None:
        """The OrderAck to be sent now, if any (3.1.6.9)."""
        if self._deadline is None or now < self._deadline:
            return None
        self._deadline = None
        if not self.synced.number:
            return None
        self._last_order_ack = now
        identifier, number = self.synced
        return OrderAckBody(identifier.ordinal, identifier.timestamp, number)

    def _accepts(self, identifier: SequenceId, number: int, previous: int) -> bool:
        current, last = self.position
        if identifier == current:
            return number > last and previous <= last
        return identifier > current and previous == 0 and number > 0

    def _schedule(self, now: float) -> None:
        """Each message pushes the OrderAck back, until the last one is MAXIMUM_ORDER_ACK_DELAY ago."""
        running = self._deadline is not None
        recent = self._last_order_ack is not None and now - self._last_order_ack < MAXIMUM_ORDER_ACK_DELAY
        if not running or recent:
            self._deadline = now + ORDER_ACK_TIMEOUT
