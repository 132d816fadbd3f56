"""Positions in a queue, and claims of consumer groups: how a data pipeline takes messages without losing or doubling
one. No part of the specifications; docs/bulk.md says what is promised.

A position is a sequence number. Lookup identifiers rise within a priority only; sequence numbers rise over the whole
queue manager, and a message gets its number in the same moment in which it is in its queue, locked or not. So whatever
can still appear in a queue below the latest number is locked there now: see `last_stable`.
"""

from __future__ import annotations

import logging
import sys
from array import array
from bisect import bisect_right
from itertools import accumulate, takewhile

from openmsmq.model.constants import Access, MessageClass, Share
from openmsmq.model.errors import HResult, IllegalPropertyValue, MsmqError, QueueDeleted, TransactionSequence
from openmsmq.model.lookup_id import LAST_SEQUENCE, sequence_of
from openmsmq.model.names import DirectFormatName, FormatName, Suffix, parse_format_name, parse_path_name
from openmsmq.queueing.access import Caller
from openmsmq.queueing.columns import places_of
from openmsmq.queueing.core import UNREADABLE, storing
from openmsmq.queueing.groups import MAXIMUM_NAME, Group, Limits, Steps, parse_group_definition
from openmsmq.queueing.message_record import encode_message
from openmsmq.queueing.opening import Opening
from openmsmq.queueing.plan import Plan
from openmsmq.queueing.queue import LockKind, Queue
from openmsmq.queueing.records import DRAFT_HEAD, is_asking
from openmsmq.store import Drop, Put, RemoveMany

logger = logging.getLogger(__name__)

# Locks that do not hold back `last_stable`: claims are looked at by their groups, the others never come back.
_NEVER_APPEARS = (LockKind.CLAIM, LockKind.QUARANTINE)
_STEP = 1024  # positions that one step of an operation goes through
_BATCH = 1024  # messages that one step of a commit removes
_SINGLE_STEPS = 32  # of these with journal copies or acknowledgments, which take much longer
_SLICE_ROWS = 4096
_SLICE_BYTES = 8 << 20
_SLICE_RECORDS = 256  # their records are made by the event loop
_SYSTEM_QUEUES = {"journal": Suffix.JOURNAL, "deadletter": Suffix.DEADLETTER, "xactdeadletter": Suffix.DEADXACT}
SOURCES = ("queue", "journal", "deadletter", "xactdeadletter", "outgoing")


class Consuming(Opening):
    """The operations of consumer groups. One at a time for each queue: a caller that lets others have their turn
    between steps sees to that."""

    # -- queues and positions ------------------------------------------------------------------------------------

    def source(self, text: str, source: str, caller: Caller, access: Access = Access.PEEK) -> Queue:
        """The queue that a pipeline means, which the caller may open with this access.

        `text` is a path name, the name of a private queue, or a format name; empty for a queue of the machine. Raises
        what `open_queue` raises, IllegalPropertyValue for an unknown source.
        """
        if source == "outgoing":
            if access is not Access.PEEK:
                raise MsmqError(
                    HResult.MQ_ERROR_UNSUPPORTED_ACCESS_MODE,
                    f"{text}: messages of an outgoing queue can't be claimed",
                )
            access = Access.PEEK_ADMIN
        descriptor = self.open_queue(source_name(text, source), access, Share.DENY_NONE, caller)
        queue = descriptor.queue
        assert queue is not None  # it was opened a moment ago
        self.close_queue(descriptor)
        return queue

    def last_stable(self, queue: Queue, group: Group | None = None) -> int:
        """The highest sequence at or below which nothing can appear in the queue any more.

        What can appear is what somebody holds: a send that has not committed, also one whose outcome is in doubt or
        that is staged; a receive or move in a transaction, a read in two phases, a transfer, a claim of another group.
        Nothing else: what is sent now gets a higher number. It falls when somebody takes hold of an old message; who
        has passed that position has seen the message. One exception: a message that is moved between a queue
        and its subqueues keeps its number, and appears below positions that were passed.
        """
        lowest = self.state.sequence + 1
        groups = self.groups.get(queue.number, {}).values()
        if len(queue.locked) > sum(len(other.keys) for other in groups):
            held = (sequence_of(key) for key, lock in queue.locked.items() if lock.kind not in _NEVER_APPEARS)
            lowest = min(held, default=lowest)
        for other in groups:
            if other is not group and other.keys:
                lowest = min(lowest, sequence_of(other.keys[0]))
        return min(lowest, self.lowest_staged(queue, lowest)) - 1

    def divide(
        self, queue: Queue, start: int, end: int, partitions: int, limits: Limits, group: Group | None = None
    ) -> Steps[tuple[int, list[tuple[int, int, int, int]]]]:
        """What readers may take (or the group has claimed) with start < sequence <= end, as ranges of nearly equal
        count: the end and (start, end, count, bytes) of each."""
        check_positions(start=start, end=end)
        self._check_given(start)
        if limits == Limits():
            total = queue.count_within(start, end) if group is None else group.until(end) - group.until(start)
        else:
            total, end = yield from self._limited(queue, start, end, limits, group)
        ranges: list[tuple[int, int, int, int]] = []
        share = -(-total // max(1, partitions))
        begin = position = last = start
        count = volume = 0
        while keys := self.within(queue, position, end, _STEP, group):
            position = sequence_of(keys[-1])
            while keys:
                if count == share:
                    ranges.append((begin, last, count, volume))
                    begin, count, volume = last, 0, 0
                some, keys = keys[: share - count], keys[share - count :]
                count, volume, last = count + len(some), volume + queue.volume_of(some), sequence_of(some[-1])
            yield
        if count:
            ranges.append((begin, end, count, volume))
        return end, ranges

    def _limited(
        self, queue: Queue, start: int, end: int, limits: Limits, group: Group | None
    ) -> Steps[tuple[int, int]]:
        """How many messages the limits allow, and where they end; `end` if no limit is reached."""
        total = taken_bytes = 0
        position = start
        while keys := self.within(queue, position, end, _STEP, group):
            for key in keys:
                size = queue.size_of(key)
                if total and taken_bytes + size > limits.bytes:
                    return total, position
                total, taken_bytes, position = total + 1, taken_bytes + size, sequence_of(key)
                if total >= limits.messages:
                    return total, position
            yield
        return total, end

    def within(self, queue: Queue, start: int, end: int, limit: int, group: Group | None = None) -> list[int]:
        """The first positions with start < sequence <= end, in the order of their sequence: of what readers may take,
        or of what the group has claimed."""
        if group is None:
            return queue.within(start, end, limit)
        first = group.until(start)
        return group.keys[first : min(first + limit, group.until(end))]

    # -- groups --------------------------------------------------------------------------------------------------

    def group(self, queue: Queue, name: str, token: str | None = None) -> Group | None:
        """A consumer group of the queue, None if there is none of that name.

        Raises TransactionSequence if a token is given that is not the one of its latest claim.
        """
        group = self.groups.get(queue.number, {}).get(name)
        if token is not None and (group is None or group.token != token):
            raise TransactionSequence(detail=f"a newer claim of group {name!r} has fenced this one, or it was released")
        return group

    def claim(self, queue: Queue, name: str, start: int, limits: Limits, token: str | None = None) -> Steps[Group]:
        """Remove what the former claim of a group holds at or below `start`, and claim what lies behind, in the order
        of sequences, up to the last stable one. While a claim that begins at `start` stands, it is claimed again. The
        token is new in either case. With `token` only the holder of the latest claim gets on.

        Raises TransactionSequence if the group has removed what is behind `start`, if `start` lies beyond every number
        that was given, or if `token` is not the latest; IllegalPropertyValue for a name or position that is none,
        MessageStorageFailed (disk full), QueueDeleted.
        """
        check_positions(start=start)
        _check_exists(queue)
        self._check_given(start)
        if not name or len(name) > MAXIMUM_NAME:
            raise IllegalPropertyValue(detail=f"{name!r}: the name of a group has 1 to {MAXIMUM_NAME} characters")
        group = self.group(queue, name, token)
        before = None if group is None else group.cursor
        if group is None:
            group = Group(queue, name, start, end=start)
        elif start < group.cursor:
            raise TransactionSequence(
                detail=f"group {name!r} has removed everything up to {group.cursor}; {start} lies before that"
            )
        elif group.keys and start > group.cursor:
            yield from self.commit_claim(group, min(start, group.end))
            yield from self.release_claim(group)
        if not group.keys:
            yield from self._extend(group, start, limits)
        if not group.keys and before == start:
            return group
        group.token = self._random(8).hex()
        with storing():
            try:
                self.state.store.append([self._definition_of(group, group.cursor)])
            except BaseException:
                self._unlock(group, group.keys)
                if before is None:
                    self._remove_group(group)
                raise
        return group

    def _add_group(self, group: Group) -> None:
        """A group is there, if it was not."""
        groups = self.groups.setdefault(group.queue.number, {})
        if group.name not in groups:
            groups[group.name] = group
            group.queue.pins += 1

    def _remove_group(self, group: Group) -> None:
        del self.groups[group.queue.number][group.name]
        group.queue.pins -= 1
        self.state.forget_unused(group.queue)

    def _check_given(self, start: int) -> None:
        """Raises TransactionSequence for an offset of another time: of before a backup of the store was restored, or of
        another queue manager. Whoever waited there would wait for a long time, and miss what comes meanwhile."""
        if start > self.state.sequence:
            raise TransactionSequence(
                detail=f"start {start} lies beyond {self.state.sequence}, the highest sequence that this queue manager "
                "has given: the offset is of another queue manager, or newer than the backup from which this one was "
                "restored. Begin with a new checkpoint, and a new or forgotten consumer group"
            )

    def _extend(self, group: Group, start: int, limits: Limits) -> Steps[None]:
        """Lock step by step. Each step takes all there is up to where it ends, so nothing that comes back between two
        steps can come to lie within the claim."""
        queue = group.queue
        self._add_group(group)
        group.cursor = group.end = start
        group.overdue.clear()
        group.lock.purge_pending = False
        volume = 0
        while len(group.keys) < limits.messages:
            limit = min(_STEP, limits.messages - len(group.keys))
            keys = queue.within(group.end, self.last_stable(queue, group), limit)
            volumes = list(takewhile(limits.bytes.__ge__, accumulate(map(queue.size_of, keys), initial=volume)))
            fitting = keys[: max(len(volumes) - 1, 0 if group.keys else 1)]  # the first one in any case
            if fitting:
                queue.lock_all(fitting, group.lock)
                group.keys += fitting
                group.end = sequence_of(fitting[-1])
            if len(fitting) < limit:
                return
            volume = volumes[-1]
            yield
            _check_exists(queue)

    def commit_claim(self, group: Group, end: int) -> Steps[None]:
        """The claimed messages at or below `end` were received, with what follows from that: step by step in
        the order of sequences; the cursor moves last. Nothing happens if the cursor is there already.

        Raises TransactionSequence if the group has not claimed so far, MessageStorageFailed, QueueDeleted.
        """
        check_positions(end=end)
        queue = group.queue
        _check_exists(queue)
        if end <= group.cursor:
            return
        if end > group.end:
            raise TransactionSequence(
                detail=f"group {group.name!r} has claimed up to {group.end} only, {end} can't be committed"
            )
        while True:
            keys = group.keys[: min(_BATCH, group.until(end))]
            with storing():
                self._receive(group, keys)
                if group.until(end) == 0:
                    self.state.store.append([self._definition_of(group, end)])
                    group.cursor = end
                    return
            yield
            _check_exists(queue)

    def _receive(self, group: Group, keys: list[int]) -> None:
        """Remove the first of these messages: what has no consequences all at once, the others, fewer, as plans."""
        queue = group.queue
        places = self._plain_run(queue, keys)
        done = single = 0
        try:
            while done < len(keys) and single < _SINGLE_STEPS:
                run = _until_none(places, done)
                if run:
                    plain = keys[done : done + len(run)]
                    self.state.store.append([RemoveMany([sequence_of(key) for key in plain], run)])
                    queue.remove_locked(plain)
                    done += len(run)
                else:
                    self._receive_one(queue, keys[done])
                    single += 1
                    done += 1
        finally:
            group.overdue.difference_update(keys[:done])
            del group.keys[:done]

    def _receive_one(self, queue: Queue, key: int) -> None:
        """Remove a message with what follows from its receipt: nothing of one that can't be decoded."""
        plan = Plan(self.state)
        try:
            message = queue.message(key)
        except UNREADABLE as error:
            logger.error(
                "queue %s: message %#x can't be decoded: received by its group without copy or acknowledgment: %s",
                queue.properties.path_name, key, error,
            )  # fmt: skip
            plan.remove_unreadable(queue, key)
        else:
            plan.remove(queue, key, message, MessageClass.ACK_RECEIVE)
        plan.carry_out()

    def _plain_run(self, queue: Queue, keys: list[int]) -> list[int | None]:
        """Where the stored messages are from whose receiving nothing follows but that they go; None for others."""
        if queue.is_destination and queue.properties.journaling:
            return [None] * len(keys)
        aborts, asking = queue.aborts, queue.asking
        places = [None if key in aborts or key in asking else queue.location(key) for key in keys]
        old = bisect_right(keys, queue.recovered_until, key=sequence_of)
        if old and queue.is_destination:
            stored_ones = [place for place in places[:old] if place is not None]
            try:
                heads = iter(self.state.store.heads(stored_ones, DRAFT_HEAD))
            except UNREADABLE:  # one of them; `_receive_one` finds out which
                return [None] * old + places[old:]
            places[:old] = [None if place is None or is_asking(next(heads)) else place for place in places[:old]]
        return places

    def release_claim(self, group: Group, forget: bool = False) -> Steps[int]:
        """Put back what the group has claimed; with `forget` the group is no more. Returns how many there were."""
        _check_exists(group.queue)
        keys, group.keys = group.keys, []
        with storing():
            try:
                change = Drop(group.definition) if forget else self._definition_of(group, group.cursor)
                self.state.store.append([change])
            except BaseException:
                group.keys = keys
                raise
        group.end, group.token = group.cursor, ""
        for first in range(0, len(keys), _STEP):
            self._unlock(group, keys[first : first + _STEP])
            yield
        if forget and not group.queue.deleted:
            self._remove_group(group)
        return len(keys)

    def _unlock(self, group: Group, keys: list[int]) -> None:
        queue, clean = group.queue, not group.lock.purge_pending
        for key in list(keys):
            if key not in queue.locked:  # its queue was deleted, or emptied, meanwhile
                continue
            if clean and key not in group.overdue:
                queue.unlock(key)
                self.state.outbox.arrived(queue, key)
            else:
                self._release(queue, key)
        if keys is group.keys:
            group.keys, group.end, group.token = [], group.cursor, ""

    @staticmethod
    def _definition_of(group: Group, cursor: int) -> Put:
        """What to remember of a group."""
        return Put(group.definition, group.encode(cursor, group.keys, group.end if group.keys else cursor))

    def recover_group(self, name: bytes, value: bytes) -> bool:
        """Take up a group after a restart: what it had claimed is locked again. Returns whether its queue is there."""
        number, group_name = parse_group_definition(name)
        queue = self.state.queues.get(number)
        if queue is None:
            return False
        group = Group(queue, group_name)
        group.restore(value)
        self._add_group(group)
        return True


class Slice:
    """Positions for who reads the records elsewhere; full before that takes long.

    Attributes:
        keys: lookup identifiers.
    """

    def __init__(self) -> None:
        self.keys: list[int] = []
        self._places: list[bytes] = []
        self._sizes: list[bytes] = []
        self._records: list[bytes] = []  # of express messages, which nobody else can read
        self._volume = 0

    def is_full(self) -> bool:
        """Whether it takes no more."""
        return len(self.keys) >= _SLICE_ROWS or self._volume >= _SLICE_BYTES or len(self._records) >= _SLICE_RECORDS

    def take(self, queue: Queue, keys: list[int]) -> None:
        """Add positions of a queue, until it is full."""
        at = 0
        while at < len(keys) and not self.is_full():
            most, room = _SLICE_ROWS - len(self.keys), _SLICE_BYTES - self._volume
            places, sizes, volume = places_of(queue.entries, keys, at, most, room)
            if not places:
                record = encode_message(queue.message(keys[at]))
                places, sizes, volume = bytes(8), len(record).to_bytes(4, sys.byteorder), len(record)
                self._records.append(record + bytes(-volume % 8))
            self._places.append(places)
            self._sizes.append(sizes)
            self._volume += volume
            end = at + len(places) // 8
            self.keys += keys[at:end]
            at = end

    def data(self) -> bytes:
        """Lookup identifiers, locations (0 for a record that follows, padded to a multiple of eight), sizes."""
        return b"".join([array("Q", self.keys).tobytes(), *self._places, *self._sizes, *self._records])


def source_name(text: str, source: str) -> FormatName:
    """The format name of a queue that a pipeline names. Raises IllegalPropertyValue, IllegalFormatName,
    IllegalQueuePathName."""
    if source not in SOURCES:
        raise IllegalPropertyValue(detail=f"source {source!r}: one of {', '.join(SOURCES)}")
    if source in _SYSTEM_QUEUES and (source != "journal" or not text):
        return DirectFormatName("OS", ".", "SYSTEM$", _SYSTEM_QUEUES[source])
    name = queue_name(text)
    if source != "journal":
        return name
    return parse_format_name(f"{name};JOURNAL")


def queue_name(text: str) -> FormatName:
    """The format name for a path name, the name of a private queue, or a format name."""
    if "=" in text:
        return parse_format_name(text)
    path = parse_path_name(text if "\\" in text else f".\\private$\\{text}")
    return parse_format_name(f"DIRECT=OS:{path}")


def check_positions(**positions: int) -> None:
    """Raises IllegalPropertyValue for what is no position."""
    for name, value in positions.items():
        if not 0 <= value <= LAST_SEQUENCE:
            raise IllegalPropertyValue(detail=f"{name} {value!r}: a position is 0 to {LAST_SEQUENCE}")


def _until_none(places: list[int | None], start: int) -> list[int]:
    """What stands from `start` on before the next None."""
    found: list[int] = []
    for index in range(start, len(places)):
        place = places[index]
        if place is None:
            break
        found.append(place)
    return found


def _check_exists(queue: Queue) -> None:
    if queue.deleted:
        raise QueueDeleted(detail=queue.properties.path_name)
