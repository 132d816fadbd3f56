"""Sequence numbers, quotas and expiry times shared by all changes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NoReturn

from openmsmq.model import names
from openmsmq.model.constants import INFINITE, MessageClass
from openmsmq.model.lookup_id import lookup_id
from openmsmq.model.message import NULL_IDENTIFIER, Message
from openmsmq.queueing.deadlines import Deadlines
from openmsmq.queueing.machine import Machine
from openmsmq.queueing.outbox import Outbox
from openmsmq.queueing.outgoing_queues import OutgoingQueue
from openmsmq.queueing.queue import Queue
from openmsmq.queueing.registry import Registry
from openmsmq.queueing.storage import MessageStore
from openmsmq.queueing.timers import Timers

logger = logging.getLogger(__name__)

UNUSED_PERIOD = 300_000  # milliseconds between two scans for unused outgoing queues
MOST_REFUSED: Final = 200  # pairs of class and source that are counted separately
OTHERS: Final = "others"  # the source under which the rest is counted
_SECONDS: Final = 0xFFFFFFFF  # times are 32 bits on the wire and in records
RETRY: Final = 10_000  # milliseconds until the removal of an expired message is tried again
SEQUENCE_BLOCK: Final = 1 << 16  # sequence numbers reserved in the store at a time, so that express ones need no record


class Changes:
    """State shared by all changes: sequence numbers, quotas and counters. `change_set.ChangeSet` carries out one
    change.

    Attributes:
        deadlines: when messages expire, by lookup identifier and queue number.
        looks: when to check whether an outgoing queue is unused.
        throttled: no messages are accepted (Begin and End Flow Control, [MS-MQDMPR] 3.1.7.2.5 and 6).
        discarded: number of copies and acknowledgments discarded because of a quota.
        poisoned: number of messages moved away at the delivery limit of their queue.
        deaths: number of messages discarded without being received, by message class, with or without a dead
            letter.
        refused: number of refused messages of other queue managers, by message class and source.
        has_failed: a change was written but could not be applied; no other change may follow.
        sequence: the latest SequentialID.
    """

    def __init__(
        self, store: MessageStore, registry: Registry, outbox: Outbox, clock: Callable[[], int],
        monotonic: Callable[[], int],
    ) -> None:  # fmt: skip
        """`clock` returns milliseconds since 1970 UTC, `monotonic` milliseconds of a monotonic clock."""
        self.monotonic: Final = monotonic
        self.store: Final = store
        self.registry: Final = registry
        self.outbox: Final = outbox
        self.clock: Final = clock
        self.machine: Final[Machine] = registry.machine
        self.sequence = store.high_key
        self._reserved = store.high_key
        self.deadlines: Deadlines = Deadlines(self._is_present, outbox.deadline_changed)
        self.looks: Timers[OutgoingQueue] = Timers(_is_kept, outbox.deadline_changed)
        self.throttled = False
        self.discarded = 0
        self.poisoned = 0
        self.deaths: dict[int, int] = {}
        self.has_failed = False
        self.refused: dict[tuple[int, str], int] = {}
        self._warned: dict[str, int] = {}  # second of the monotonic clock of the last warning, by kind of event
        self._late_until = 0  # latest retry of `expire_later`
        self._staged: dict[int, int] = {}  # bytes by queue number
        self._staged_bytes = 0

    def _is_present(self, lookup_identifier: int, queue_number: int) -> bool:
        queue = self.registry.queues.get(queue_number)
        return queue is not None and lookup_identifier in queue.entries

    @property
    def longest_way(self) -> int:
        """TimeToReachQueue of messages that the queue manager itself sends to other machines, in seconds (deviation
        D-104)."""
        return self.machine.default_time_to_reach_queue

    # -- outgoing queues -----------------------------------------------------------------------------------------

    def outgoing_for(self, name: names.SingleFormatName, charged_to: str = "") -> OutgoingQueue:
        """Return the outgoing queue for a format name; create it if needed. `charged_to` is the host against whose
        share of outgoing queues it counts: the host whose messages require an answer. Raises InsufficientResources,
        MessageStorageFailed."""
        queue = self.registry.outgoing_queue(name)
        if queue is None:
            queue = self.registry.create_outgoing(name, charged_to)
            self.look_later(queue)
        queue.touched = True
        return queue

    def look_later(self, queue: OutgoingQueue) -> None:
        """Check after `UNUSED_PERIOD` whether an outgoing queue is unused."""
        self.looks.add(self.monotonic() + UNUSED_PERIOD, queue.number, queue)

    def is_something_due(self) -> bool:
        """Whether an expired message may still be in its queue."""
        first = self.deadlines.first()
        if first is None:
            return False
        now = self.clock()
        return first <= now or now < self._late_until

    def expire_later(self, lookup_identifier: int, queue_number: int, now: int) -> None:
        """Schedule the next attempt to remove an expired message. Until then it is in its queue."""
        self._late_until = now + RETRY
        self.deadlines.add(self._late_until, lookup_identifier, queue_number)

    # -- numbers -----------------------------------------------------------------------------------------------

    def next_sequence(self) -> int:
        """Return the next SequentialID. It increases over the whole queue manager and is never reused, even after a
        restart."""
        return self.next_sequences(1)

    def has_numbers(self, count: int) -> bool:
        """Whether `count` sequence numbers are available without a record in the log."""
        return self.sequence + count <= self._reserved

    def next_sequences(self, count: int) -> int:
        """Reserve `count` consecutive numbers and return the first. Raises StoreFull."""
        first = self.sequence + 1
        last = self.sequence + count
        if last > self._reserved:
            self.store.reserve(last + SEQUENCE_BLOCK)  # if the disk is full, it raises and reserves nothing
            self._reserved = last + SEQUENCE_BLOCK
        self.sequence = last
        return first

    def number(self, message: Message, now: int) -> None:
        """Set the lookup identifier, and thereby the place in the queue, and the arrival time. `now` is in milliseconds
        since 1970 UTC.

        Deviation D-01 from [MS-MQDMPR] 3.1.7.1.9: the upper byte is 7 - Priority for every message; as written, only
        for transactional ones, which would not preserve the order of arrival within a priority (3.1.1.2).
        """
        message.lookup_identifier = lookup_id(message.priority, self.next_sequences(1))
        message.arrival_time = now // 1000 & _SECONDS

    def stamp(self, message: Message) -> None:
        """Number a message and give it an identity: identifier, source machine and time of sending."""
        now, machine, sequence = self.clock(), self.machine.identifier, self.next_sequences(1)
        message.lookup_identifier = lookup_id(message.priority, sequence)
        message.identifier = new_identifier(machine, sequence)
        message.source_machine_identifier = machine
        message.arrival_time = message.sent_time = now // 1000 & _SECONDS
        message.sent_milliseconds = now % 1000

    # -- quotas ------------------------------------------------------------------------------------------------

    def has_room(self, queue: Queue, size: int, of_queue: int = 0, of_machine: int = 0) -> bool:
        """Whether the quotas allow `size` more bytes in addition to `of_queue` and `of_machine`, which the same change
        adds to the queue and the machine (negative if it frees more than it adds)."""
        if queue.properties.quota != INFINITE:
            charged = queue.charged_bytes + self._staged.get(queue.number, 0) + of_queue
            if charged + size > queue.quota_bytes:
                return False
        if self.machine.quota == INFINITE:
            return True
        charged = self.registry.held.bytes + self._staged_bytes + of_machine
        return charged + size <= self.machine.quota * 1024

    def charge_staged(self, queue: int, size: int) -> None:
        """Count `size` more (or fewer) staged bytes for a queue (by number). Quotas treat them as stored."""
        self._staged[queue] = self._staged.get(queue, 0) + size
        self._staged_bytes += size
        if not self._staged[queue]:
            del self._staged[queue]

    def staged_bytes(self, queue: Queue) -> int:
        """Return the bytes staged for a queue."""
        return self._staged.get(queue.number, 0)

    def note_discarded(self, queue: Queue, message: Message) -> None:
        """Count and log a copy or acknowledgment that was discarded because of a quota."""
        self.discarded += 1
        if self.may_warn("copy"):
            logger.warning(
                "queue %s is over its quota: discarded a copy of message %s (%d copies and acknowledgments in all "
                "since the start)", queue.properties.path_name, message.id, self.discarded,
            )  # fmt: skip

    def note_refused(self, reason: MessageClass, source: str) -> None:
        """Count a refused message of another queue manager; `source` is its identifier."""
        key = int(reason), source
        if key not in self.refused and len(self.refused) >= MOST_REFUSED:
            key = int(reason), OTHERS
        self.refused[key] = self.refused.get(key, 0) + 1

    def may_warn(self, kind: str) -> bool:
        """Whether another warning may be logged about events of this kind, of which other hosts can cause thousands in
        a second: at most one per second."""
        second = self.monotonic() // 1000
        if self._warned.get(kind) == second:
            return False
        self._warned[kind] = second
        return True

    def note_deaths(self, reasons: list[MessageClass]) -> None:
        """Count messages that were discarded, or refused on arrival."""
        for reason in reasons:
            self.deaths[reason] = self.deaths.get(reason, 0) + 1

    # -- failure -----------------------------------------------------------------------------------------------

    def fail(self, error: Exception) -> NoReturn:
        """Stop because memory and log disagree: mark the store as failed, which ends the process. Raises
        StoreFailed."""
        logger.critical("a change was written but could not be applied; the log is authoritative", exc_info=error)
        self.has_failed = True
        self.outbox.failed(error)
        self.store.fail(error)


def _is_kept(_: int, queue: OutgoingQueue) -> bool:
    return not queue.deleted


def new_identifier(machine: bytes, sequence: int) -> bytes:
    """Return an OBJECTID: the machine's GUID and the low 32 bits of the sequence number; never the null identifier."""
    identifier = machine + (sequence & 0xFFFFFFFF).to_bytes(4, "little")
    assert identifier != NULL_IDENTIFIER
    return identifier
