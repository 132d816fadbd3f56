"""A queue and its positions ([MS-MQDMPR] 3.1.1.2 and 3.1.1.11), in a form compact enough for millions of messages.

`entries` has every position: an express message, or the location of a recoverable one in the store. `available` is the
ordered list of lookup identifiers that readers may take; `locked` has the locks of the others. The order of a queue
is that of its lookup identifiers, whose upper byte is 7 - priority.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final, NamedTuple

from openmsmq.model.constants import INFINITE, Acknowledge, MessageClass
from openmsmq.model.exhaustion import exhausted
from openmsmq.model.lookup_id import PRIORITY_PARTS, PRIORITY_STEP, sequence_of
from openmsmq.model.message import Message
from openmsmq.queueing.deadlines import CapturedDeadlines
from openmsmq.queueing.entries import CapturedEntries, Entries, Stored
from openmsmq.queueing.properties import QueueProperties
from openmsmq.queueing.sorted_keys import SortedKeys
from openmsmq.record.message_record import decode_message
from openmsmq.store import QueueColumns

SYSTEM_JOURNAL: Final = 0x7FFFFFF1  # numbers of the system queues
SYSTEM_DEADLETTER: Final = 0x7FFFFFF2
SYSTEM_DEADXACT: Final = 0x7FFFFFF3
MOST_ABORTS: Final = 0xFFFF  # maximum abort count: the field of the record has 16 bits
_POS_RECEIVE = int(Acknowledge.POS_RECEIVE)  # operations on IntFlag members are slow


class QueueKind(Enum):
    PRIVATE = "private"
    PUBLIC = "public"  # like a private queue; its properties are also in the directory
    SUBQUEUE = "subqueue"
    JOURNAL = "journal"
    SYSTEM = "system"
    OUTGOING = "outgoing"
    CONNECTOR = "connector"
    AWAITING = "awaiting"  # messages sent to another machine, kept until their final acknowledgment


#: Queues that applications create, send to and receive from.
APPLICATION_QUEUES: Final = (QueueKind.PRIVATE, QueueKind.PUBLIC)


class LockKind(Enum):
    ENQUEUE = "enqueue"  # sent in an uncommitted transaction
    DEQUEUE = "dequeue"  # received in an uncommitted transaction
    READ = "read"  # read in two phases, not yet acknowledged
    TRANSFER = "transfer"  # being sent to another machine, not yet acknowledged
    CLAIM = "claim"  # claimed by a consumer group
    QUARANTINE = "quarantine"  # its record cannot be decoded; it can only be purged or deleted


class IncomingTransferInfo(NamedTuple):
    """IncomingTransactionalTransferInfo, [MS-MQDMPR] 3.1.1.5. `last_access_time` in seconds since 1970 UTC."""

    format_name: str
    sender: bytes
    sequence_identifier: int
    sequence_number: int
    last_access_time: int
    reject_count: int


class Lock:
    """Lock on one message or many.

    Attributes:
        is_visible: Message.AllowPeekWhenLocked ([MS-MQDMPR] 3.1.1.12).
        is_alone: for a read: receiving the message has no consequences, except a journal copy if the queue then has
            journaling enabled.
        overdue: for a lock on many positions: those that have become due since.
    """

    # Explicit __init__, as in all classes instantiated per message: that of a dataclass would be interpreted, not
    # compiled.
    def __init__(
        self, kind: LockKind, owner: Any, *, is_visible: bool = False, is_alone: bool = False,
        overdue: set[int] | None = None,
    ) -> None:  # fmt: skip
        self.kind: Final = kind
        self.owner: Final = owner
        self.purge_pending = False
        self.is_visible: Final = is_visible
        self.is_alone: Final = is_alone
        self.overdue: Final = overdue


class HeldRecord:
    """An express message in memory: its record, and the bytes that it counts for in quotas. A queue never holds a
    `Message` of its own, so readers that modify one cannot change the queue."""

    def __init__(self, record: bytes, size: int) -> None:
        self.record: Final = record
        self.size: Final = size


class HeldBytes:
    """Bytes of the messages of all queues of a queue manager."""

    def __init__(self) -> None:
        self.bytes = 0


class Queue:
    """A queue.

    Attributes:
        number: identifies the queue in the store.
        journal: None for journals and system queues; a subqueue has its parent's.
        owner: for a journal: the queue to which it belongs.
        exactly_once: for a connector queue of non-transactional messages: the one of transactional messages.
        subqueues: subqueues by lower-case name.
        aborts: number of receives and moves that were rolled back, by lookup identifier; also in the log for stored
            messages, see `records.abort_definition`.
        asking: lookup identifiers of messages whose receipt must be acknowledged. For messages up to the sequence
            `recovered_until`, only the record tells.
        openers, receivers, exclusive_receivers, exclusive_peekers: number of open descriptors by kind; kept by
            `handles`.
        waiters: number of waiting reads; kept by `reading`.
        arrived: positions not yet offered to waiting reads, with their messages if decoded; None before the first one;
            kept by `outbox`.
        pins: number of consumer groups; a subqueue that has any is not dropped when it is empty and closed.
        incoming: transactional sequences of other queue managers, by their identifier and their name for the queue.
        held: sum to which `total_bytes` is added; kept by `registry`.
        came, left: number of messages added and removed since the start; transactional sends count on commit."""

    # Explicit __init__, because a restart creates two objects per queue: that of a dataclass would be interpreted.
    def __init__(
        self, number: int, kind: QueueKind, properties: QueueProperties, read: Callable[[int], bytes],
        journal: Queue | None = None, parent: Queue | None = None,
    ) -> None:  # fmt: skip
        self.number: Final = number
        self.kind: Final = kind
        self.properties = properties
        self.read: Final = read
        self.journal: Final = journal
        self.parent: Final = parent
        self.owner: Queue | None = None
        self.exactly_once: Queue | None = None
        self.subqueues: dict[str, Queue] = {}
        self.deleted = False
        self.entries = Entries()
        self.available = SortedKeys()
        self.locked: dict[int, Lock] = {}
        self.visible: list[int] = []  # sorted; locked positions that peeks see, and stale ones
        self.held = HeldBytes()
        self.total_bytes = 0  # deviation D-07: changed by insertion and deletion only
        self.aborts: dict[int, int] = {}
        self.asking: set[int] = set()
        self.recovered_until = 0
        self.openers = self.receivers = self.exclusive_receivers = self.exclusive_peekers = 0
        self.waiters = 0
        self.arrived: deque[tuple[int, Message | None]] | None = None  # on demand: takes hundreds of bytes
        self.pins = 0
        self.incoming: dict[tuple[bytes, str], IncomingTransferInfo] = {}
        self.came = self.left = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __bool__(self) -> bool:
        """Return True even for an empty queue."""
        return True

    @property
    def quota_bytes(self) -> int:
        return self.properties.quota * 1024

    @property
    def charged_bytes(self) -> int:
        """Bytes that count against the quota: those of the queue and its subqueues."""
        return self.total_bytes + sum(subqueue.total_bytes for subqueue in self.subqueues.values())

    @property
    def is_destination(self) -> bool:
        """Whether the queue is the destination of its messages: they expire here, and their outcome is acknowledged.
        Other queues contain copies or messages in transit."""
        kind = self.kind  # called for each message, so no tuple search
        return kind is QueueKind.PRIVATE or kind is QueueKind.PUBLIC or kind is QueueKind.SUBQUEUE

    @property
    def name(self) -> str:
        """Last component of the path name; for a subqueue its own name."""
        return self.properties.path_name.rpartition(";" if self.parent else "\\")[2]

    @property
    def is_active(self) -> bool:
        """Queue.Active, [MS-MQDMPR] 3.1.1.2: whether the queue is open."""
        return self.openers > 0

    @property
    def is_watched(self) -> bool:
        """Whether waiting readers or the transport must be notified of messages that become available."""
        return self.waiters > 0 or self.kind is QueueKind.OUTGOING

    def deadline_of(self, message: Message) -> int:
        """Return when a message expires in this queue, in milliseconds since 1970 UTC; 0 for never. Copies in journals
        and dead-letter queues do not expire."""
        return message.deadline() if self.is_destination else 0

    def expiry_reason(self, message: Message) -> MessageClass:
        """Return the message class for a message that expires here."""
        return MessageClass.NACK_RECEIVE_TIMEOUT

    # -- reading ---------------------------------------------------------------------------------------------

    def message(self, lookup_identifier: int) -> Message:
        """Return a new copy of the message at a position. Raises KeyError, OutOfResources, or the errors of the store
        if it cannot be read."""
        location = self.entries.location(lookup_identifier)
        if location is None:
            held = self.entries[lookup_identifier]
            if not isinstance(held, HeldRecord):  # an uncommitted send, which its transaction owns
                assert isinstance(held, Message)
                return held.copy()
            message = decode_message(held.record, lookup_identifier)
        else:
            try:
                record = self.read(location)
            except OSError as error:  # not `fetching`, which is too slow for each message read
                raise exhausted(error) or error from None
            message = decode_message(record, lookup_identifier)
        if self.aborts:
            message.abort_count = self.aborts.get(lookup_identifier, message.abort_count)
        return message

    def location(self, lookup_identifier: int) -> int | None:
        """Return the location of a message in the store; None for an express message."""
        return self.entries.location(lookup_identifier)

    def held_record(self, lookup_identifier: int) -> bytes | None:
        """Return the record of an express message; None for an uncommitted send."""
        held = self.entries.get(lookup_identifier)
        return held.record if isinstance(held, HeldRecord) else None

    def first(self) -> int | None:
        """Return the first available position."""
        return self.available.first()

    def heads(self, limit: int) -> list[int]:
        """Return the first `limit` available positions."""
        return self.available.heads(limit)

    def after(self, position: int) -> int | None:
        """Return the first available position after `position`, which need not exist any more."""
        return self.available.after(position)

    def before(self, position: int) -> int | None:
        """Return the last available position before `position`."""
        return self.available.before(position)

    def last(self) -> int | None:
        return self.available.last()

    def within(self, start: int, end: int, limit: int) -> list[int]:
        """Return the first `limit` available positions with start < sequence <= end, in sequence order."""
        found: list[int] = []
        priorities = 0
        for upper in PRIORITY_PARTS:
            if part := self.available.between(upper | start + 1, upper | end, limit):
                found += part
                priorities += 1
        if priorities > 1:
            found.sort(key=sequence_of)
            del found[limit:]
        return found

    def count_within(self, start: int, end: int) -> int:
        """Return the number of available positions with start < sequence <= end."""
        return sum(self.available.count(upper | start + 1, upper | end) for upper in PRIORITY_PARTS)

    def ends(self) -> list[int]:
        """Return the first and last available position of each priority, which include the lowest and highest
        sequence."""
        found = []
        for upper in PRIORITY_PARTS:
            first, last = self.available.after(upper - 1), self.available.before(upper + PRIORITY_STEP)
            if first is not None and last is not None and first <= last:
                found += [first, last]
        return found

    def locations(self, positions: list[int]) -> list[int | None]:
        """Return the `location` of each position."""
        return self.entries.locations(positions)

    def size_of(self, lookup_identifier: int) -> int:
        """Return the bytes of a message."""
        return self.entries.size(lookup_identifier)

    def volume_of(self, lookup_identifiers: list[int]) -> int:
        """Return the total bytes of some messages."""
        return self.entries.volume(lookup_identifiers)

    def fitting(self, lookup_identifiers: list[int], room: int) -> tuple[int, int]:
        """Return how many of these messages, from the first one on, take at most `room` bytes, and their bytes."""
        count, volume = len(lookup_identifiers), self.entries.volume(lookup_identifiers)
        while count and volume > room:
            count -= 1
            volume -= self.entries.size(lookup_identifiers[count])
        return count, volume

    def visible_after(self, position: int) -> int | None:
        """Return the next position after `position` for a peek, which also sees some locked messages."""
        found = self.available.after(position)
        if self.visible:
            self._forget_invisible()
            at = bisect_right(self.visible, position)
            if at < len(self.visible) and (found is None or self.visible[at] < found):
                return self.visible[at]
        return found

    def visible_before(self, position: int) -> int | None:
        """Return the last position before `position` for a peek, which also sees some locked messages."""
        found = self.available.before(position)
        if self.visible:
            self._forget_invisible()
            at = bisect_left(self.visible, position)
            if at and (found is None or self.visible[at - 1] > found):
                return self.visible[at - 1]
        return found

    def may_be_peeked(self, position: int) -> bool:
        """Whether a peek sees an existing position."""
        lock = self.locked.get(position)
        return lock is None or lock.is_visible

    def position_of(self, lookup_identifier: int) -> int | None:
        """Return the position of a lookup identifier with or without its upper byte (deviation D-37); None if there is
        none."""
        if lookup_identifier in self.entries:
            return lookup_identifier
        sequence = sequence_of(lookup_identifier)
        candidates = (upper | sequence for upper in PRIORITY_PARTS)
        return next((key for key in candidates if key in self.entries), None)

    # -- changing --------------------------------------------------------------------------------------------

    def _count(self, size: int) -> None:
        """Add bytes of messages, or subtract them."""
        self.total_bytes += size
        self.held.bytes += size

    def insert(
        self, message: Message, content: int | HeldRecord | Message, size: int, lock: Lock | None = None
    ) -> None:  # fmt: skip
        """Add a position for `message`. `content` is its location in the store, its record if it stays in memory, or
        the message itself while only its transaction sees it."""
        key = message.lookup_identifier
        if isinstance(content, int):
            self.entries.place(key, content, size)
        else:
            self.entries[key] = content
        self.total_bytes += size
        self.held.bytes += size  # not by `_count`: a call for each message
        if message.acknowledgements_requested & _POS_RECEIVE:
            self.asking.add(key)
        if lock is None:
            self.available.add(key)
            self.came += 1
        else:
            self.locked[key] = lock

    def place(
        self, keys: array[int], locations: array[int], sizes: array[int], words: array[int]
    ) -> list[tuple[int, int]]:
        """Add available positions whose messages are stored; the arguments are the columns of `QueueColumns`. Returns
        (lookup identifier, deadline) of those that expire."""
        positions, volume, deadlines = self.entries.load(keys, locations, sizes, words)
        self.total_bytes += volume
        self.held.bytes += volume
        self.available.append(positions)
        self.came += len(keys)
        return deadlines

    def hold(self, lookup_identifiers: list[int], records: list[bytes], sizes: list[int]) -> None:
        """Add available positions whose messages are express; `sizes` are the bytes that each counts for."""
        entries = self.entries
        for index in range(len(lookup_identifiers)):
            entries[lookup_identifiers[index]] = HeldRecord(records[index], sizes[index])
        self._count(sum(sizes))
        self.available.append(array("Q", sorted(lookup_identifiers)))
        self.came += len(lookup_identifiers)

    def load(self, columns: QueueColumns) -> list[tuple[int, int]]:
        """Fill an empty queue with recovered messages. Returns (lookup identifier, deadline) of those that expire."""
        loaded = self.entries.load(columns.keys, columns.locations, columns.sizes, columns.deadlines)
        keys, size, deadlines = loaded
        self._count(size)
        self.available = SortedKeys(keys)
        self.recovered_until = max(columns.keys, default=0)
        return deadlines

    def adopt(self, entries: dict[int, Stored], total_bytes: int, asking: Iterable[int]) -> None:
        """Add stored messages, all of them available."""
        self.entries.update(entries)
        self.asking.update(asking)
        self.available.update(entries)
        self._count(total_bytes)
        self.came += len(entries)

    def replace_location(self, lookup_identifier: int, old: int, new: int) -> None:
        """Update the location of a stored message that has moved in the log."""
        entries = self.entries
        if lookup_identifier in entries and entries.location(lookup_identifier) == old:
            entries.place(lookup_identifier, new, entries.size(lookup_identifier))

    def written(self, lookup_identifier: int, location: int, size: int) -> None:
        """Set the location and size of a message that was in memory and is now in the store."""
        self._count(size - self.entries.size(lookup_identifier))
        self.entries.place(lookup_identifier, location, size)

    def lock(self, lookup_identifier: int, lock: Lock) -> None:
        self.available.remove(lookup_identifier)
        if lock.is_visible:
            if len(self.visible) > len(self.locked):
                self._forget_invisible()
            insort(self.visible, lookup_identifier)
        self.locked[lookup_identifier] = lock

    def _forget_invisible(self) -> None:
        self.visible = sorted({key for key in self.visible if key in self.locked and self.locked[key].is_visible})

    def lock_all(self, lookup_identifiers: list[int], lock: Lock) -> None:
        """Lock available positions."""
        self.available.remove_all(lookup_identifiers)
        self.locked.update(dict.fromkeys(lookup_identifiers, lock))

    def lock_each(self, lookup_identifiers: list[int], locks: list[Lock]) -> None:
        """Lock available positions, each with an invisible lock of its own."""
        self.available.remove_all(lookup_identifiers)
        self.locked.update(zip(lookup_identifiers, locks, strict=True))

    def unlock(self, lookup_identifier: int) -> Lock:
        """Make a locked position available again."""
        lock = self.locked.pop(lookup_identifier)
        self.available.add(lookup_identifier)
        if lock.kind is LockKind.ENQUEUE:
            self.came += 1
        return lock

    def note_abort(self, lookup_identifier: int) -> int:
        """Count a rolled-back receive or move of a message. Returns the new count for the log; 0 for an express
        message, which is not in the log."""
        count = min(self.aborts.get(lookup_identifier, 0) + 1, MOST_ABORTS)
        self.aborts[lookup_identifier] = count
        return count if self.entries.location(lookup_identifier) is not None else 0

    def remove(self, lookup_identifier: int) -> None:
        """Delete a position, available or locked."""
        self._count(-self.entries.remove(lookup_identifier))
        self.aborts.pop(lookup_identifier, None)
        self.asking.discard(lookup_identifier)
        lock = self.locked.pop(lookup_identifier, None)
        if lock is None:
            self.available.remove(lookup_identifier)
        if lock is None or lock.kind is not LockKind.ENQUEUE:
            self.left += 1

    def remove_available(self, lookup_identifiers: list[int]) -> None:
        """Delete available positions."""
        self._count(-self.entries.remove_all(lookup_identifiers))
        self.available.remove_all(lookup_identifiers)
        self._forget(lookup_identifiers)

    def remove_locked(self, lookup_identifiers: list[int]) -> None:
        """Delete locked positions."""
        self._count(-self.entries.remove_all(lookup_identifiers))
        locked = self.locked
        for key in lookup_identifiers:
            del locked[key]
        self._forget(lookup_identifiers)

    def _forget(self, lookup_identifiers: list[int]) -> None:
        if self.aborts:
            for key in lookup_identifiers:
                self.aborts.pop(key, None)
        if self.asking:
            self.asking.difference_update(lookup_identifiers)
        self.left += len(lookup_identifiers)

    def capture(self, deadlines: CapturedDeadlines, others: dict[int, int], room: bytearray | None) -> CapturedEntries:
        """Capture the columns of the queue for the store, without uncommitted sends; `others` are deadlines by lookup
        identifier."""
        left_out = {key for key, lock in self.locked.items() if lock.kind is LockKind.ENQUEUE}
        return CapturedEntries(self.number, self.entries.capture(room), left_out, deadlines, others)


def runs(queues: list[Queue]) -> list[tuple[Queue, int, int]]:
    """Return each run of the same queue as (queue, index of the first, index after the last)."""
    found: list[tuple[Queue, int, int]] = []
    start = 0
    for index in range(1, len(queues) + 1):
        if index == len(queues) or queues[index] is not queues[start]:
            found.append((queues[start], start, index))
            start = index
    return found


def locations_of(queues: list[Queue], positions: list[int]) -> list[int | None]:
    """Return the store locations of messages at positions, one queue per position; None for a message in memory."""
    if len(positions) == 1:
        return queues[0].locations(positions)
    found: list[int | None] = []
    for queue, start, end in runs(queues[: len(positions)]):
        found += queue.locations(positions[start:end])
    return found


def over_quota(queue: Queue, machine_quota: int) -> str:
    """Return the error text for a message that exceeds a quota, with the quotas of queue and machine in kilobytes."""
    quotas = (queue.properties.quota, machine_quota)
    of_queue, of_machine = ["unlimited" if quota == INFINITE else f"{quota} KB" for quota in quotas]
    return f"queue {queue.properties.path_name}: its quota ({of_queue}) or the machine's ({of_machine}) is exceeded"
