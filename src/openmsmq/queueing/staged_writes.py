"""Sends in two steps: many writers write stages, then one finalization makes a batch of them visible, exactly once. Not
part of the specifications; docs/bulk.md states the guarantees.

A stage is a prepared transaction in the store. Its messages already have sequence numbers, so they hold back
`last_stable` of their queues, like every uncommitted send.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final

from openmsmq.model.admission import CLEARLY_SMALL
from openmsmq.model.constants import INFINITE, MAXIMUM_GROUP_NAME, Access, Share
from openmsmq.model.errors import (
    HResult,
    IllegalPropertyValue,
    InsufficientResources,
    MessageStorageFailed,
    MsmqError,
    QueueDeleted,
)
from openmsmq.model.left_out import LEFT_OUT
from openmsmq.model.lookup_id import lookup_id, priority_part
from openmsmq.model.message import Message
from openmsmq.model.names import MultipleElementFormatName
from openmsmq.model.security import ANONYMOUS, sid_bytes
from openmsmq.model.shares import Shares
from openmsmq.queueing.authorization import Authorization, Caller, Owned, Right
from openmsmq.queueing.change_set import ChangeSet
from openmsmq.queueing.changes import Changes, new_identifier
from openmsmq.queueing.drafts import form_of, odd_drafts, why_not
from openmsmq.queueing.entries import stored
from openmsmq.queueing.handles import Handles
from openmsmq.queueing.outgoing import OutgoingQueues
from openmsmq.queueing.queue import Queue, QueueKind, over_quota
from openmsmq.queueing.records import (
    DRAFT_HEAD,
    deadline_word,
    is_asking,
    is_eventful,
    stamp_draft,
    stamp_drafts,
)
from openmsmq.queueing.registry import Registry
from openmsmq.queueing.sending import SendOperations, accepts_unchecked
from openmsmq.queueing.sinks import Sinks
from openmsmq.queueing.source_names import queue_name
from openmsmq.queueing.stages import Draft, RefusedRow, Stage, StageTable, StageTarget, parse_note
from openmsmq.queueing.storage import UNREADABLE, MessageStore, fetching, plain_heads, storing
from openmsmq.queueing.transactions import Transactions
from openmsmq.record.compact_record import compact, compact_rows
from openmsmq.record.message_record import decode_message
from openmsmq.store import Insert, MessageRows, Operation, QueueColumns

logger = logging.getLogger(__name__)

_LOCATION_MASK = (1 << 64) - 1
_PLAIN: Final = Message()  # like all rows: without signature and encryption
LAST_BATCH = (1 << 63) - 1
MOST_STAGES, MOST_STAGES_OF_OWNER = 1_000_000, 500_000  # one per task of a Spark job


class StagedWrites:
    """The stages of all sinks."""

    def __init__(
        self,
        store: MessageStore,
        registry: Registry,
        authorization: Authorization,
        changes: Changes,
        transactions: Transactions,
        outgoing: OutgoingQueues,
        handles: Handles,
        sending: SendOperations,
        sinks: Sinks,
        random: Callable[[int], bytes],
    ) -> None:
        self._store: Final = store
        self._registry: Final = registry
        self._authorization: Final = authorization
        self._changes: Final = changes
        self._transactions: Final = transactions
        self._outgoing: Final = outgoing
        self._handles: Final = handles
        self._sending: Final = sending
        self._sinks: Final = sinks
        self._random: Final = random
        self._stages: Final = StageTable()
        self._shares: Shares[str] = Shares(MOST_STAGES, MOST_STAGES_OF_OWNER)  # stages by owner

    def stages(self) -> list[Stage]:
        """Return all stages."""
        return self._stages.all()

    def lowest(self, queue: Queue, otherwise: int) -> int:
        """Return the lowest sequence staged for a queue, or `otherwise` if that is lower."""
        return self._stages.lowest(queue.number, otherwise)

    def begin(self, sink: str, batch: int, partition: int, attempt: str, caller: Caller, query: str = "") -> Stage:
        """Create a stage; use it with `stage` or `stage_rows`, then `seal`. `query` identifies the query that writes
        the batch. Raises IllegalPropertyValue, MsmqError for a batch that is older than the last one of the sink or of
        another query, AccessDenied for a sink of another owner, InsufficientResources for too many stages,
        MessageStorageFailed."""
        if not sink or len(sink) > MAXIMUM_GROUP_NAME:
            raise IllegalPropertyValue(detail=f"{sink!r}: the name of a sink has 1 to {MAXIMUM_GROUP_NAME} characters")
        if not 0 <= batch <= LAST_BATCH or partition < 0:
            raise IllegalPropertyValue(detail=f"batch is {batch}, partition {partition}; allowed: 0 or more")
        self._sinks.check_batch(sink, batch, caller, query)
        if not self._shares.has_room(caller.sid):
            raise InsufficientResources(
                detail=f"{self._shares.of(caller.sid)} stages of {caller.name or caller.sid} and {self._shares.held} "
                f"in all are being written; the limits are {MOST_STAGES_OF_OWNER} and {MOST_STAGES}"
            )
        handle = self._random(16)
        transaction = self._transactions.begin(handle)
        stage = Stage(handle.hex(), sink, batch, partition, attempt, caller.sid, transaction, query)
        self._add(stage)
        self._sinks.saw_writer(sink)
        return stage

    def target(self, text: str, transactional: bool, caller: Caller) -> StageTarget:
        """Return the target for rows that name a queue: a local queue, or for a queue of another machine its outgoing
        queue or a connector queue. Rows for other machines are transactional messages if `transactional`. Opens and
        creates no queue.

        Raises the errors of opening for sending and of sending, such as an unknown queue, no access, or a queue that
        requires signatures or encryption.
        """
        name = queue_name(text)
        if isinstance(name, MultipleElementFormatName):
            raise MsmqError(
                HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
                f"{name}: multiple-element format names are not supported here; write one row per destination",
            )
        queue = self._handles.permitted(name, Access.SEND, Share.DENY_NONE, caller)
        sender = b"" if caller.sid == ANONYMOUS else sid_bytes(caller.sid)
        form = form_of(sender, str(name))
        if queue is None:
            return StageTarget(None, str(name), transactional, form)
        if queue.exactly_once is not None:
            queue = queue.exactly_once if transactional else queue
        elif queue.kind is not QueueKind.OUTGOING:
            transactional = bool(queue.properties.transactional)
        self._sending.check(queue, _PLAIN, 0, transactional)
        return StageTarget(queue, str(name), transactional, form)

    def _queue_of(self, target: StageTarget) -> Queue:
        """Return the queue of a target; an outgoing queue is created if it does not exist or was dropped meanwhile.
        Raises QueueDeleted, InsufficientResources, MessageStorageFailed."""
        if target.queue is None or (target.queue.deleted and target.queue.kind is QueueKind.OUTGOING):
            name = queue_name(target.name)
            assert not isinstance(name, MultipleElementFormatName)
            target.queue = self._outgoing.outgoing_for(name)
        if target.queue.deleted:
            raise QueueDeleted(detail=target.queue.properties.path_name)
        return target.queue

    def stage(self, stage: Stage, drafts: Sequence[Draft], *, last: bool, collect: bool = False) -> list[RefusedRow]:
        """Store rows in order; `last` marks the last call for the stage. Errors other than refused rows leave the stage
        unchanged.

        Returns:
            The refused rows (quotas, size, queue deleted, properties of the queue). With `collect`, the other rows are
            stored; otherwise only the first refused row is returned, and nothing is stored.

        Raises MsmqError for a stage that was dropped, MessageStorageFailed (disk full or nearly full).
        """
        if self._stages.get(stage.handle) is None:
            raise MsmqError(HResult.MQ_ERROR_OPERATION_CANCELLED, f"stage {stage.handle} was dropped")
        if self._changes.throttled:
            raise MessageStorageFailed(detail="the disk has less free space than minimum_free_megabytes")
        added: dict[int, int] = {}
        refused: list[RefusedRow] = []
        accepted: list[Draft] = []
        for place, draft in enumerate(drafts):
            error = self._why_not(draft, added)
            if error is None:
                accepted.append(draft)
            elif collect:
                refused.append(RefusedRow(place, error))
            else:
                return [RefusedRow(place, error)]
        before, held = stage.held, None
        ready = accepted if before is None else [before, *accepted]
        latest = _latest_of_transaction(ready)
        if latest is not None and not last:  # not known yet whether it is the last of its transaction
            held = ready[latest]
            ready = ready[:latest] + ready[latest + 1 :]
        self._write(stage, ready, latest if last else None)
        if before is not None:
            self._charge(stage, stage.held_in, -len(before.record))
        if held is not None:
            assert held.target.queue is not None  # checked by `_why_not`
            stage.held_in = held.target.queue.number
            self._charge(stage, stage.held_in, len(held.record))
        stage.held = held
        return refused

    def stage_rows(
        self, stage: Stage, target: StageTarget, records: bytearray, start: int, sizes: array[int], *, last: bool,
        collect: bool = False,
    ) -> list[RefusedRow]:  # fmt: skip
        """`stage` for rows of one target. Their records are concatenated in `records` from `start` on; `sizes` is
        array('I') with the bytes of each. Much faster if the rows need no individual checks."""
        bounds = array("q", accumulate(sizes, initial=start))
        queue = target.queue
        if queue is None or not self._can_stage_at_once(stage, target, queue, records, bounds, sizes):
            drafts = [Draft(target, records[begin:end]) for begin, end in pairwise(bounds)]
            return self.stage(stage, drafts, last=last, collect=collect)
        changes = self._changes
        with storing():
            first = changes.next_sequences(len(sizes))
        keys = array("Q", range(first, first + len(sizes)))
        words, remarkable = stamp_drafts(records, bounds, first, changes.clock(), changes.machine.identifier)
        positions = [word | key for word, key in zip(words, keys, strict=True)]
        eventful, asking = [], []
        for index in remarkable:
            record, position = bytes(records[bounds[index] : bounds[index + 1]]), positions[index]
            if is_eventful(record):
                eventful.append((queue.number, position))
                words[index] = deadline_word(position, queue.deadline_of(decode_message(record, position)))
            if is_asking(record):
                asking.append(position)
        stored_records, stored_sizes, places = compact_rows(records, bounds)
        rows = MessageRows(array("I", [queue.number]) * len(keys), stored_records, stored_sizes, places, keys, words)
        with storing():
            locations = self._store.append_rows(stage.transaction.number, rows)
        stage.transaction.wrote_pending = True
        stage.add_all(queue.number, positions, list(map(stored, locations, stored_sizes)))
        self._stages.wrote(stage)
        self._charge(stage, queue.number, places[-1])
        stage.eventful += eventful
        if asking:
            stage.asking.setdefault(queue.number, []).extend(asking)
        return []

    def _can_stage_at_once(
        self, stage: Stage, target: StageTarget, queue: Queue, records: bytearray, bounds: array[int],
        sizes: array[int],
    ) -> bool:  # fmt: skip
        """Whether rows can be staged all at once: the stage and the queue exist, disk and quotas allow all rows, each
        is a valid message that the queue accepts, and only identity and times need to be set."""
        if self._stages.get(stage.handle) is None or stage.held is not None or not sizes:
            return False
        if queue.kind is QueueKind.OUTGOING or queue.deleted or not accepts_unchecked(queue):
            return False
        if self._changes.throttled or max(sizes) > CLEARLY_SMALL or not self._changes.has_room(queue, sum(sizes)):
            return False
        odd = odd_drafts(records, bounds, target.form)
        return not any(why_not(records[bounds[place] : bounds[place + 1]], target.form) for place in odd)

    def _why_not(self, draft: Draft, added: dict[int, int]) -> MsmqError | None:
        """Return why a row cannot be staged in addition to the bytes in `added` (by queue number). If it can, add its
        size there and return None."""
        try:
            queue, size = self._queue_of(draft.target), len(draft.record)
            self._sending.check(queue, _PLAIN, 0, draft.target.is_transactional)
        except MessageStorageFailed:
            raise
        except MsmqError as refusal:
            return refusal
        if (error := why_not(draft.record, draft.target.form)) is not None:
            return error
        if not self._changes.has_room(queue, size, added.get(queue.number, 0), sum(added.values())):
            return InsufficientResources(detail=over_quota(queue, self._changes.machine.quota))
        added[queue.number] = added.get(queue.number, 0) + size
        return None

    def _write(self, stage: Stage, drafts: Sequence[Draft], last: int | None) -> None:
        """Number rows and write them; `last` is the index of the one that ends the transaction."""
        changes, machine, transaction = self._changes, self._changes.machine, stage.transaction
        now = changes.clock()
        inserts, eventful = [], []
        asking: dict[int, list[int]] = {}
        in_transaction = stage.in_transaction
        mark = new_identifier(machine.identifier, transaction.number)
        for index, (target, record) in enumerate(drafts):
            queue = target.queue
            assert queue is not None  # checked by `_why_not`
            sequence = changes.next_sequence()
            flags = 0
            if target.is_transactional:
                flags = int(in_transaction == 0) | int(index == last) << 1
                in_transaction += 1
            priority = stamp_draft(
                record, sequence, now, machine.identifier, mark if target.is_transactional else None, flags,
                machine.default_time_to_reach_queue if queue.kind is QueueKind.OUTGOING else INFINITE,
            )  # fmt: skip
            key = lookup_id(priority, sequence)
            deadline = 0
            if is_eventful(record):
                eventful.append((queue.number, key))
                deadline = queue.deadline_of(decode_message(bytes(record), key))
            if is_asking(record):
                asking.setdefault(queue.number, []).append(key)
            inserts.append(Insert(queue.number, sequence, deadline_word(key, deadline), compact(record)))
        if not inserts:
            return
        with storing():
            locations = self._store.append_pending(transaction.number, inserts)
        transaction.wrote_pending = True
        for insert, location in zip(inserts, locations, strict=True):
            key = priority_part(insert.deadline) | insert.key
            size = len(insert.payload)
            stage.add(insert.queue, key, stored(location, size))
            self._charge(stage, insert.queue, size)
        self._stages.wrote(stage)
        stage.rows += len(inserts)
        stage.in_transaction = in_transaction
        stage.eventful += eventful
        for number, keys in asking.items():
            stage.asking.setdefault(number, []).extend(keys)

    def seal(self, stage: Stage) -> None:
        """Complete a stage: from now on it survives a restart. Raises MessageStorageFailed."""
        self._transactions.prepare(stage.transaction, stage.note)

    def drop(self, stage: Stage) -> None:
        """Remove a stage, complete or not. Raises MessageStorageFailed."""
        if self._stages.get(stage.handle) is not None:
            self._transactions.drop(stage.transaction)
            self._gone(stage)

    def _charge(self, stage: Stage, queue: int, size: int) -> None:
        """Count `size` staged bytes for a queue (by number)."""
        stage.charge(queue, size)
        self._changes.charge_staged(queue, size)

    def _gone(self, stage: Stage) -> None:
        """Forget a stage that has ended."""
        self._stages.remove(stage)
        self._shares.give_back(stage.owner)
        for queue, size in stage.volume.items():
            self._changes.charge_staged(queue, -size)

    def finalize(
        self, sink: str, batch: int, handles: Iterable[str], caller: Caller, query: str = "", once: bool = False
    ) -> None:
        """Make exactly these stages visible, and drop all other stages of this and earlier batches of the sink, in one
        atomic store batch that also records batch number and query. Repeating it for the last batch of the same query
        has no effect. The record of a sink that is written `once` is dropped later.

        Raises MsmqError for an older batch, a batch of another query or an unknown stage, AccessDenied,
        MessageStorageFailed; nothing has changed then.
        """
        done = self._sinks.check_batch(sink, batch, caller, query) == batch
        chosen = [] if done else [self._chosen(sink, batch, handle, caller) for handle in dict.fromkeys(handles)]
        others = [
            stage for stage in self._stages.of_sink(sink)
            if stage.batch <= batch and stage.sealed and stage not in chosen
        ]  # fmt: skip
        if done and not others:
            return
        decision: list[Operation] = []
        if not done:
            decision.append(self._sinks.finalized(sink, batch, caller.sid, query, once))
        change = ChangeSet(self._changes)
        change.also(decision)
        for stage in chosen:
            self._gather(change, stage)
        self._transactions.settle(change, [one.transaction for one in chosen], [one.transaction for one in others])
        for stage in [*chosen, *others]:
            self._gone(stage)

    def _chosen(self, sink: str, batch: int, handle: str, caller: Caller) -> Stage:
        stage = self._stages.get(handle)
        if stage is None or not stage.sealed or stage.sink != sink or stage.batch != batch:
            raise MsmqError(
                HResult.MQ_ERROR_TRANSACTION_SEQUENCE, f"there is no stage {handle} of batch {batch} of sink {sink!r}"
            )
        self._authorization.authorize(caller, Owned(stage.owner, f"stage {handle}"), Right.USE_OWN)
        return stage

    def _gather(self, change: ChangeSet, stage: Stage) -> None:
        """Gather the changes of a stage's commit: its messages arrive; those of deleted queues are discarded."""
        for number, entries in stage.messages.items():
            queue = self._registry.queues.get(number)
            if queue is None:
                logger.warning(
                    "sink %s, batch %d: %d rows are discarded, because their queue was deleted after they were staged",
                    stage.sink, stage.batch, len(entries),
                )  # fmt: skip
                for key, entry in entries.items():
                    change.discard(key, entry & _LOCATION_MASK)
            else:
                change.publish_staged(queue, entries, stage.volume[number], stage.asking.get(number, ()))
        for number, key in stage.eventful:
            queue = self._registry.queues.get(number)
            if queue is not None:
                location = stage.messages[number][key] & _LOCATION_MASK
                try:
                    with fetching():
                        record = self._store.read(location)
                    message = decode_message(record, key)
                except UNREADABLE as error:
                    logger.error(
                        "queue %s: staged message %#x can't be decoded; it arrives without copy, acknowledgment and "
                        "time limit: %s", queue.properties.path_name, key, error,
                    )  # fmt: skip
                    continue
                change.arrive(queue, message)
                change.expire(queue, key, queue.deadline_of(message))

    def drop_abandoned(self, limit: int) -> int:
        """Drop the stages of sinks whose writers have sent no keep-alive for `limit` milliseconds, and the state of
        batch writes of that age. Returns the number of dropped stages."""
        sinks = self._stages.sinks()
        self._sinks.forget_writers(sinks)
        dropped = 0
        for sink in sinks:
            try:
                if (idle := self._sinks.writer_idle(sink)) >= limit:
                    dropped += self._drop_abandoned(sink, idle)
            except Exception as error:  # such as a full disk; continue with the other sinks
                LEFT_OUT.note("abandoned stages", f"sink {sink}", error)
        self._sinks.forget_batch_writes(self._changes.clock() // 1000 - limit // 1000)
        return dropped

    def _drop_abandoned(self, sink: str, idle: int) -> int:
        abandoned = self._stages.of_sink(sink)
        for stage in abandoned:
            self.drop(stage)
        logger.warning(
            "sink %s: dropped %d stages with %d rows, which were never finalized: no keep-alive from their writer %s "
            "for %d s (setting stage_time_limit)",
            sink, len(abandoned), sum(stage.rows for stage in abandoned), abandoned[0].owner, idle // 1000,
        )  # fmt: skip
        return len(abandoned)

    def forget(self, sink: str, batch: int | None, handles: Iterable[str] | None, caller: Caller) -> int:
        """Drop complete stages of a sink: of one batch or all, those with given handles or all. Returns the number of
        dropped stages. Raises AccessDenied."""
        wanted = None if handles is None else set(handles)
        dropped = [
            stage for stage in self._stages.of_sink(sink)
            if stage.sealed and (batch is None or stage.batch == batch)
            and (wanted is None or stage.handle in wanted)
        ]  # fmt: skip
        for stage in dropped:
            self._authorization.authorize(caller, Owned(stage.owner, f"stage {stage.handle}"), Right.USE_OWN)
        for stage in dropped:
            self.drop(stage)
        return len(dropped)

    def recover(self, number: int, note: bytes, pending: Mapping[int, QueueColumns]) -> bool:
        """Restore a stage after a restart. Returns False if the prepared transaction is not a stage."""
        fields = parse_note(note)
        if fields is None:
            return False
        transaction = self._transactions.recovered(bytes.fromhex(fields["handle"]), number, pending=bool(pending))
        stage = Stage(**fields, transaction=transaction)
        for queue, columns in pending.items():
            heads = plain_heads(self._store, columns.locations, DRAFT_HEAD)
            for (sequence, location, size, word), head in zip(columns.rows(), heads, strict=True):
                key = priority_part(word) | sequence
                stage.add(queue, key, stored(location, size))
                self._charge(stage, queue, size)
                if is_eventful(head):
                    stage.eventful.append((queue, key))
                if is_asking(head):
                    stage.asking.setdefault(queue, []).append(key)
        self._add(stage)
        return True

    def _add(self, stage: Stage) -> None:
        self._stages.add(stage)
        self._shares.charge(stage.owner)

    def relocated(self, queue: int, lookup_identifier: int, new: int) -> None:
        """Update the location of a message that has moved in the log, if it is staged."""
        for stage in self._stages.at(queue):
            entry = stage.messages.get(queue, {}).get(lookup_identifier)
            if entry is not None:
                stage.messages[queue][lookup_identifier] = stored(new, entry >> 64)


def _latest_of_transaction(drafts: Sequence[Draft]) -> int | None:
    return next((index for index in reversed(range(len(drafts))) if drafts[index].target.is_transactional), None)
