"""Positions in a queue, and claims of consumer groups: how a data pipeline takes messages without losing or duplicating
any. Not part of the specifications; docs/bulk.md states the guarantees.

A position is a sequence number. Lookup identifiers increase within a priority only. Sequence numbers increase over the
whole queue manager, and a message gets its number when it enters its queue, locked or not. So every message that can
still appear in a queue below the latest number is locked there now: see `last_stable`.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from openmsmq.model.constants import MAXIMUM_GROUP_NAME, MessageClass
from openmsmq.model.errors import IllegalPropertyValue, QueueDeleted, TransactionSequence
from openmsmq.model.lookup_id import LAST_SEQUENCE, sequence_of
from openmsmq.queueing.change_set import ChangeSet
from openmsmq.queueing.changes import Changes
from openmsmq.queueing.consumer_group import BatchLimits, ConsumerGroup, Steps, parse_group_definition
from openmsmq.queueing.message_locks import MessageLocks
from openmsmq.queueing.queue import LockKind, Queue
from openmsmq.queueing.records import DRAFT_HEAD, final_ack_definition, is_asking
from openmsmq.queueing.registry import Registry
from openmsmq.queueing.staged_writes import StagedWrites
from openmsmq.queueing.storage import UNREADABLE, MessageStore, fetching, plain_heads, storing
from openmsmq.store import Drop, Operation, Put, RemoveMany

logger = logging.getLogger(__name__)

# Locks that do not hold back `last_stable`: claims are checked through their groups, the others are never put back.
_NEVER_APPEARS = (LockKind.CLAIM, LockKind.QUARANTINE)
_STEP = 1024  # positions per step of an operation
_BATCH = 1024  # messages removed per step of a commit
_SINGLE_STEPS = 32  # those with journal copies or acknowledgments, which take much longer


class ConsumerGroups:
    """Claims and positions of consumer groups. One operation at a time per queue; a caller that yields between steps
    must ensure that."""

    def __init__(
        self,
        store: MessageStore,
        registry: Registry,
        changes: Changes,
        holds: MessageLocks,
        staged: StagedWrites,
        random: Callable[[int], bytes],
    ) -> None:
        self._store: Final = store
        self._registry: Final = registry
        self._changes: Final = changes
        self._holds: Final = holds
        self._staged: Final = staged
        self._random: Final = random
        self._groups: dict[int, dict[str, ConsumerGroup]] = {}  # by queue number and group name

    # -- positions -----------------------------------------------------------------------------------------------

    def last_stable(self, queue: Queue, group: ConsumerGroup | None = None) -> int:
        """Return the last stable position: no message can appear at or below it any more.

        Only locked messages can appear: uncommitted sends (including staged and in-doubt ones), receives and moves in a
        transaction, two-phase reads, transfers, and claims of other groups. New messages get higher numbers. The
        position decreases when an old message is locked; readers that have passed it have seen that message. One
        exception: a message moved between a queue and its subqueues keeps its number, and appears below positions that
        were passed.
        """
        lowest = self._changes.sequence + 1
        groups = self._groups.get(queue.number, {}).values()
        if len(queue.locked) > sum(len(other.keys) for other in groups):
            held = (sequence_of(key) for key, lock in queue.locked.items() if lock.kind not in _NEVER_APPEARS)
            lowest = min(held, default=lowest)
        for other in groups:
            if other is not group and other.keys:
                lowest = min(lowest, sequence_of(other.keys[0]))
        return min(lowest, self._staged.lowest(queue, lowest)) - 1

    def divide(
        self,
        queue: Queue,
        start: int,
        end: int,
        partitions: int,
        limits: BatchLimits,
        group: ConsumerGroup | None = None,
    ) -> Steps[tuple[int, list[tuple[int, int, int, int]]]]:
        """Split the messages that readers may take (or the group has claimed) with start < sequence <= end into ranges
        of nearly equal count. Returns the end and (start, end, count, bytes) of each range."""
        check_positions(start=start, end=end)
        self._check_given(start)
        if limits == BatchLimits():
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
        self, queue: Queue, start: int, end: int, limits: BatchLimits, group: ConsumerGroup | None
    ) -> Steps[tuple[int, int]]:
        """Return the number of messages that the limits allow and the sequence of the last one; `end` if no limit is
        reached."""
        total = volume = 0
        position = start
        while keys := self.within(queue, position, end, min(_STEP, limits.messages - total), group):
            count, taken = queue.fitting(keys, limits.bytes - volume)
            if not total and not count:  # always the first one
                count, taken = 1, queue.size_of(keys[0])
            total, volume = total + count, volume + taken
            if count:
                position = sequence_of(keys[count - 1])
            if count < len(keys) or total >= limits.messages:
                return total, position
            yield
        return total, end

    def within(self, queue: Queue, start: int, end: int, limit: int, group: ConsumerGroup | None = None) -> list[int]:
        """Return the first `limit` positions with start < sequence <= end, in sequence order: of the available
        messages, or of those that the group has claimed."""
        if group is None:
            return queue.within(start, end, limit)
        first = group.until(start)
        return group.keys[first : min(first + limit, group.until(end))]

    # -- groups --------------------------------------------------------------------------------------------------

    def group(self, queue: Queue, name: str, token: str | None = None) -> ConsumerGroup | None:
        """Return a consumer group of the queue; None if it does not exist.

        Raises TransactionSequence if `token` is given and is not that of its latest claim.
        """
        group = self._groups.get(queue.number, {}).get(name)
        if token is not None and (group is None or group.token != token):
            raise TransactionSequence(detail=f"a newer claim of group {name!r} has fenced this one, or it was released")
        return group

    def claim(
        self, queue: Queue, name: str, start: int, limits: BatchLimits, token: str | None = None
    ) -> Steps[ConsumerGroup]:
        """Commit the group's previous claim up to `start` and release the rest of it, then claim the available messages
        after `start`, in sequence order, up to the last stable position. An existing claim that begins at `start` is
        claimed again. Either way the group gets a new token. If `token` is given, it must be that of the latest claim.

        Raises TransactionSequence if the group has removed messages after `start`, if `start` is beyond the latest
        sequence number, or if `token` is not the latest; IllegalPropertyValue for an invalid name or position,
        MessageStorageFailed (disk full), QueueDeleted.
        """
        check_positions(start=start)
        _check_exists(queue)
        self._check_given(start)
        if not name or len(name) > MAXIMUM_GROUP_NAME:
            raise IllegalPropertyValue(detail=f"{name!r}: the name of a group has 1 to {MAXIMUM_GROUP_NAME} characters")
        group = self.group(queue, name, token)
        before = None if group is None else group.cursor
        if group is None:
            group = ConsumerGroup(queue, name, start, end=start)
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
                self._store.append([self._definition_of(group, group.cursor)])
            except BaseException:
                self._unlock(group, group.keys)
                if before is None:
                    self._remove_group(group)
                raise
        return group

    def _add_group(self, group: ConsumerGroup) -> None:
        """Register a group unless it is registered."""
        groups = self._groups.setdefault(group.queue.number, {})
        if group.name not in groups:
            groups[group.name] = group
            group.queue.pins += 1

    def _remove_group(self, group: ConsumerGroup) -> None:
        del self._groups[group.queue.number][group.name]
        group.queue.pins -= 1
        self._registry.drop_unused(group.queue)

    def _check_given(self, start: int) -> None:
        """Raises TransactionSequence for an offset beyond the latest sequence number: it is from another queue manager,
        or from before the store was restored from a backup. A reader at that offset would miss the messages that arrive
        until the numbers reach it."""
        if start > self._changes.sequence:
            raise TransactionSequence(
                detail=f"start {start} lies beyond {self._changes.sequence}, the highest sequence that this queue "
                "manager has given: the offset is of another queue manager, or newer than the backup from which this "
                "one was restored. Begin with a new checkpoint, and a new or forgotten consumer group"
            )

    def _extend(self, group: ConsumerGroup, start: int, limits: BatchLimits) -> Steps[None]:
        """Lock messages in steps. Each step takes all available messages up to its end, and its end is stable, so no
        message that is put back between two steps can fall within the claim."""
        queue = group.queue
        with storing():
            self._holds.expire(self._changes.clock())  # the timer may be late after a step of the clock
        self._add_group(group)
        group.cursor = group.end = start
        group.overdue.clear()
        group.lock.purge_pending = False
        volume = 0
        while len(group.keys) < limits.messages:
            limit = min(_STEP, limits.messages - len(group.keys))
            keys = queue.within(group.end, self.last_stable(queue, group), limit)
            count, taken = queue.fitting(keys, limits.bytes - volume)
            fitting = keys[: count if count or group.keys else 1]  # always the first one
            if fitting:
                queue.lock_all(fitting, group.lock)
                group.keys += fitting
                group.end = sequence_of(fitting[-1])
            if len(fitting) < limit:
                return
            volume += taken
            yield
            _check_exists(queue)

    def commit_claim(self, group: ConsumerGroup, end: int) -> Steps[None]:
        """Receive the claimed messages at or below `end`, with all consequences: in steps, in sequence order; the
        cursor moves last. Does nothing if the cursor is at or beyond `end`.

        Raises TransactionSequence if the claim of the group ends before `end`, MessageStorageFailed, QueueDeleted.
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
                    self._store.append([self._definition_of(group, end)])
                    group.cursor = end
                    return
            yield
            _check_exists(queue)

    def _receive(self, group: ConsumerGroup, keys: list[int]) -> None:
        """Remove a first part of these messages: runs without consequences at once, up to `_SINGLE_STEPS` others one by
        one."""
        queue = group.queue
        places = self._locations_without_effects(queue, keys)
        done = single = 0
        try:
            while done < len(keys) and single < _SINGLE_STEPS:
                run = _until_none(places, done)
                if run:
                    plain = keys[done : done + len(run)]
                    self._store.append([RemoveMany([sequence_of(key) for key in plain], run)])
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
        """Receive a message with its consequences; one that cannot be decoded is removed without any."""
        change = ChangeSet(self._changes)
        try:
            message = queue.message(key)
        except UNREADABLE as error:
            logger.error(
                "queue %s: message %#x can't be decoded: received by its group without copy or acknowledgment: %s",
                queue.properties.path_name, key, error,
            )  # fmt: skip
            change.remove_without_effects(queue, key)
        else:
            change.remove(queue, key, message, MessageClass.ACK_RECEIVE)
        change.commit()

    def _locations_without_effects(self, queue: Queue, keys: list[int]) -> list[int | None]:
        """Return the locations of stored messages that can be received without other consequences; None for each other
        message."""
        if queue.is_destination and queue.properties.journaling:
            return [None] * len(keys)
        aborts, asking, notes = queue.aborts, queue.asking, self._store.definitions
        places = queue.locations(keys)
        if queue.properties.transactional:  # the sender may wait for a final acknowledgment, [MS-MQQB] 3.1.7.17
            places = [
                None if final_ack_definition(key) in notes else place for key, place in zip(keys, places, strict=True)
            ]
        if aborts or asking:
            places = [
                None if key in aborts or key in asking else place for key, place in zip(keys, places, strict=True)
            ]
        old = bisect_right(keys, queue.recovered_until, key=sequence_of)
        if old and queue.is_destination:
            stored_ones = [place for place in places[:old] if place is not None]
            try:
                with fetching():
                    heads = iter(plain_heads(self._store, stored_ones, DRAFT_HEAD))
            except UNREADABLE:  # at least one; `_receive_one` finds out which
                return [None] * old + places[old:]
            places[:old] = [None if place is None or is_asking(next(heads)) else place for place in places[:old]]
        return places

    def release_claim(self, group: ConsumerGroup, forget: bool = False) -> Steps[int]:
        """Put back the claimed messages; with `forget`, also remove the group. Returns the number of messages."""
        _check_exists(group.queue)
        keys, group.keys = group.keys, []
        with storing():
            try:
                change = Drop(group.definition) if forget else self._definition_of(group, group.cursor)
                self._store.append([change])
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

    def _unlock(self, group: ConsumerGroup, keys: list[int]) -> None:
        queue, clean = group.queue, not group.lock.purge_pending
        for key in list(keys):
            if key not in queue.locked:  # its queue was deleted or purged meanwhile
                continue
            if clean and key not in group.overdue:
                queue.unlock(key)
                self._changes.outbox.arrived(queue, key)
            else:
                self._holds.release(queue, key)
        if keys is group.keys:
            group.keys, group.end, group.token = [], group.cursor, ""

    @staticmethod
    def _definition_of(group: ConsumerGroup, cursor: int) -> Put:
        """Return the definition that stores a group."""
        return Put(group.definition, group.encode(cursor, group.keys, group.end if group.keys else cursor))

    def groups(self, queue: Queue) -> list[ConsumerGroup]:
        """Return the groups of a queue."""
        return list(self._groups.get(queue.number, {}).values())

    def by_queue(self) -> Iterator[tuple[Queue, list[ConsumerGroup]]]:
        """Yield each queue that has groups, with its groups."""
        for groups in list(self._groups.values()):
            if some := list(groups.values()):
                yield some[0].queue, some

    def drops(self, queues: Iterable[Queue]) -> list[Operation]:
        """Return the operations that delete the groups of deleted queues."""
        return [Drop(group.definition) for queue in queues for group in self._groups.get(queue.number, {}).values()]

    def forget(self, queue: Queue) -> None:
        """Forget the groups of a deleted queue."""
        self._groups.pop(queue.number, None)

    def recover(self, name: bytes, value: bytes) -> bool:
        """Restore a group after a restart and lock its claimed messages again. Returns whether its queue exists."""
        number, group_name = parse_group_definition(name)
        queue = self._registry.queues.get(number)
        if queue is None:
            return False
        group = ConsumerGroup(queue, group_name)
        group.restore(value)
        self._add_group(group)
        return True


def check_positions(**positions: int) -> None:
    """Raises IllegalPropertyValue for an invalid position."""
    for name, value in positions.items():
        if not 0 <= value <= LAST_SEQUENCE:
            raise IllegalPropertyValue(detail=f"{name} {value!r}: a position is 0 to {LAST_SEQUENCE}")


def _until_none(places: list[int | None], start: int) -> list[int]:
    """Return the elements from `start` up to the next None."""
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
