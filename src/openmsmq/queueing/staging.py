"""Sends in two steps: stages are written by many, and one finalization makes a batch of them visible, exactly once.
No part of the specifications; docs/bulk.md says what is promised.

A stage is a prepared transaction in the store. Its messages have their numbers, so they hold back `last_stable` of
their queues, as every send does that has not committed.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise

from openmsmq.model.admission import CLEARLY_SMALL
from openmsmq.model.constants import INFINITE, Access, Share
from openmsmq.model.errors import HResult, IllegalPropertyValue, InsufficientResources, MsmqError, QueueDeleted
from openmsmq.model.lookup_id import lookup_id, priority_part
from openmsmq.model.message import NULL_IDENTIFIER, Message
from openmsmq.model.security import ANONYMOUS, sid_bytes
from openmsmq.queueing.access import Caller
from openmsmq.queueing.consuming import Consuming, queue_name
from openmsmq.queueing.core import UNREADABLE, storing
from openmsmq.queueing.drafts import form_of, odd_drafts, why_not
from openmsmq.queueing.groups import MAXIMUM_NAME
from openmsmq.queueing.message_record import decode_message
from openmsmq.queueing.plan import Plan, new_identifier
from openmsmq.queueing.queue import Queue, QueueKind, over_quota, stored
from openmsmq.queueing.records import DRAFT_HEAD, deadline_word, is_asking, is_eventful, stamp_draft, stamp_drafts
from openmsmq.queueing.stages import (
    SINK_PREFIX,
    Draft,
    Refusal,
    SinkMemory,
    Stage,
    Target,
    decode_sink,
    sink_definition,
    stage_of_note,
)
from openmsmq.queueing.transactions import Transaction, TransactionEvent
from openmsmq.store import Drop, Insert, Operation, Put, QueueColumns, Rows

logger = logging.getLogger(__name__)

_LOCATION_MASK = (1 << 64) - 1
LAST_BATCH = (1 << 63) - 1
_FORGOTTEN_AT_ONCE = 1000  # definitions in one batch


class Staging(Consuming):
    """The operations on stages and sinks."""

    def begin_stage(
        self, sink: str, batch: int, partition: int, attempt: str, caller: Caller, query: str = ""
    ) -> Stage:
        """A stage to `add` to and to `seal`. `query` identifies whose batch it is. Raises IllegalPropertyValue,
        MsmqError for a batch that is older than the last one of the sink, or of another query, AccessDenied for a sink
        of somebody else."""
        if not sink or len(sink) > MAXIMUM_NAME:
            raise IllegalPropertyValue(detail=f"{sink!r}: the name of a sink has 1 to {MAXIMUM_NAME} characters")
        if not 0 <= batch <= LAST_BATCH or partition < 0:
            raise IllegalPropertyValue(detail=f"batch {batch}, partition {partition}: numbers from 0")
        self._check_batch(sink, batch, caller, query)
        handle = self._random(16)
        transaction = Transaction(handle, self.new_transaction_number())
        stage = Stage(handle.hex(), sink, batch, partition, attempt, caller.sid, transaction, query)
        self.stages[stage.handle] = stage
        self.saw_writer(sink)
        return stage

    def stage_target(self, text: str, transactional: bool, caller: Caller) -> Target:
        """Where rows go that name a queue so: a queue of this machine, or another's by its outgoing queue or
        the connector queues of its site, which is sent to as messages of a transaction if `transactional`.

        Raises what opening for sending and sending raise: no such queue, no access, signatures or encryption wanted.
        """
        name = queue_name(text)
        descriptor = self.open_queue(name, Access.SEND, Share.DENY_NONE, caller)
        queue = descriptor.queue
        self.close_queue(descriptor)
        if queue is None:
            raise MsmqError(
                HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
                f"{name}: multiple-element format names are not supported here; write one row per destination",
            )
        if queue.exactly_once is not None:
            queue = queue.exactly_once if transactional else queue
        elif queue.kind is not QueueKind.OUTGOING:
            transactional = bool(queue.properties.transactional)
        transaction = Transaction(NULL_IDENTIFIER[:16], 0) if transactional else None
        self._check_message(queue, Message(), 0, transaction)
        sender = b"" if caller.sid == ANONYMOUS else sid_bytes(caller.sid)
        return Target(queue, str(name), transactional, form_of(sender, str(name)))

    def stage(self, stage: Stage, drafts: Sequence[Draft], *, last: bool, collect: bool = False) -> list[Refusal]:
        """Store some rows, in their order; `last` says that no more come for the stage. What is no row's fault leaves
        the stage as it was.

        Returns:
            The rows that are refused (quotas, size, queue deleted). With `collect` the others are stored; otherwise
            nothing is, and it is the first one alone.

        Raises MsmqError for a stage that was dropped, MessageStorageFailed (disk full).
        """
        if stage.handle not in self.stages:
            raise MsmqError(HResult.MQ_ERROR_OPERATION_CANCELLED, f"stage {stage.handle} was dropped")
        added: dict[int, int] = {}
        refused: list[Refusal] = []
        accepted: list[Draft] = []
        for place, draft in enumerate(drafts):
            error = self._why_not(draft, added)
            if error is None:
                accepted.append(draft)
            elif collect:
                refused.append(Refusal(place, error))
            else:
                return [Refusal(place, error)]
        ready = accepted if stage.held is None else [stage.held, *accepted]
        latest = _latest_of_transaction(ready)
        held = None
        if latest is not None and not last:  # whether it is the last one of its transaction, later rows tell
            held = ready[latest]
            ready = ready[:latest] + ready[latest + 1 :]
        self._store(stage, ready, latest if last else None)
        stage.held = held
        for number, size in added.items():
            stage.charge(number, size)
        return refused

    def stage_rows(
        self, stage: Stage, target: Target, records: bytearray, start: int, sizes: array[int], *, last: bool,
        collect: bool = False,
    ) -> list[Refusal]:  # fmt: skip
        """`stage` for rows that go to one queue, whose records lie end to end from `start` on; `sizes`, array('I'), has
        the bytes of each. In a fraction of the time, if there is nothing special about them."""
        bounds = array("q", accumulate(sizes, initial=start))
        if not self._are_plain(stage, target, records, bounds, sizes):
            drafts = [Draft(target, records[begin:end]) for begin, end in pairwise(bounds)]
            return self.stage(stage, drafts, last=last, collect=collect)
        state, queue = self.state, target.queue
        first = state.next_sequences(len(sizes))
        keys = array("Q", range(first, first + len(sizes)))
        words, remarkable = stamp_drafts(records, bounds, first, state.clock(), state.machine.identifier)
        positions = [word | key for word, key in zip(words, keys, strict=True)]
        eventful, asking = [], []
        for index in remarkable:
            record, position = bytes(records[bounds[index] : bounds[index + 1]]), positions[index]
            if is_eventful(record):
                eventful.append((queue.number, position))
                words[index] = deadline_word(position, queue.deadline_of(decode_message(record, position)))
            if is_asking(record):
                asking.append(position)
        rows = Rows(queue.number, records, sizes, bounds, keys, words)
        with storing():
            locations = state.store.append_rows(stage.transaction.number, rows)
        stage.transaction.wrote_pending = True
        stage.add_all(queue.number, positions, list(map(stored, locations, sizes)))
        stage.charge(queue.number, bounds[-1] - start)
        stage.eventful += eventful
        if asking:
            stage.asking.setdefault(queue.number, []).extend(asking)
        return []

    def _are_plain(
        self, stage: Stage, target: Target, records: bytearray, bounds: array[int], sizes: array[int]
    ) -> bool:
        """Whether rows can be staged all at once: the stage and the queue are there, there is room for all, each is a
        message, and nothing is to be filled in but identity and times."""
        queue = target.queue
        if stage.handle not in self.stages or stage.held is not None or not sizes:
            return False
        if target.is_transactional or queue.kind is QueueKind.OUTGOING or queue.deleted:
            return False
        if max(sizes) > CLEARLY_SMALL or not self._has_room_to_stage(queue, sum(sizes), {}):
            return False
        odd = odd_drafts(records, bounds, target.form)
        return not any(why_not(records[bounds[place] : bounds[place + 1]], target.form) for place in odd)

    def _why_not(self, draft: Draft, added: dict[int, int]) -> MsmqError | None:
        """Why a row can't be staged beside those that have `added` so many bytes by queue number; None if it can, and
        has added its own."""
        queue, size = draft.target.queue, len(draft.record)
        if queue.deleted:
            return QueueDeleted(detail=queue.properties.path_name)
        if (error := why_not(draft.record, draft.target.form)) is not None:
            return error
        if not self._has_room_to_stage(queue, size, added):
            return InsufficientResources(detail=over_quota(queue, self.state.machine.quota))
        added[queue.number] = added.get(queue.number, 0) + size
        return None

    def _store(self, stage: Stage, drafts: Sequence[Draft], last: int | None) -> None:
        """Give rows their numbers and write them; `last` is the index of the one that ends the transaction."""
        state, transaction = self.state, stage.transaction
        now = state.clock()
        inserts, eventful = [], []
        asking: dict[int, list[int]] = {}
        in_transaction = stage.in_transaction
        mark = new_identifier(state.machine.identifier, transaction.number)
        for index, (target, record) in enumerate(drafts):
            queue = target.queue
            sequence = state.next_sequence()
            flags = 0
            if target.is_transactional:
                flags = int(in_transaction == 0) | int(index == last) << 1
                in_transaction += 1
            priority = stamp_draft(
                record, sequence, now, state.machine.identifier, mark if target.is_transactional else None, flags,
                state.machine.default_time_to_reach_queue if queue.kind is QueueKind.OUTGOING else INFINITE,
            )  # fmt: skip
            key = lookup_id(priority, sequence)
            deadline = 0
            if is_eventful(record):
                eventful.append((queue.number, key))
                deadline = queue.deadline_of(decode_message(bytes(record), key))
            if is_asking(record):
                asking.setdefault(queue.number, []).append(key)
            inserts.append(Insert(queue.number, sequence, deadline_word(key, deadline), bytes(record)))
        if not inserts:
            return
        with storing():
            locations = state.store.append_pending(transaction.number, inserts)
        transaction.wrote_pending = True
        for insert, location in zip(inserts, locations, strict=True):
            key = priority_part(insert.deadline) | insert.key
            stage.add(insert.queue, key, stored(location, len(insert.payload)))
        stage.rows += len(inserts)
        stage.in_transaction = in_transaction
        stage.eventful += eventful
        for number, keys in asking.items():
            stage.asking.setdefault(number, []).extend(keys)

    def seal(self, stage: Stage) -> None:
        """The stage is complete; from now on it survives a restart. Raises MessageStorageFailed."""
        with storing():
            self.state.store.prepare(stage.transaction.number, stage.note)
        stage.transaction.advance(TransactionEvent.PREPARE)

    def drop_stage(self, stage: Stage) -> None:
        """The stage is no more, complete or not."""
        if stage.handle in self.stages and (stage.transaction.wrote_pending or stage.sealed):
            with storing():
                self.state.store.settle([], [stage.transaction.number])
        self.stages.pop(stage.handle, None)

    def finalize(
        self, sink: str, batch: int, handles: Iterable[str], caller: Caller, query: str = "", once: bool = False
    ) -> None:
        """Make exactly these stages visible, and drop all others of this and earlier batches of the sink: one atomic
        batch, which also remembers the number and the query. A second time, for the last batch of the same query, it
        changes nothing. What is remembered of a sink that is written `once` goes some time later.

        Raises MsmqError for an older batch, a batch of another query or a stage that is not there, AccessDenied,
        MessageStorageFailed; then nothing has changed.
        """
        done = self._check_batch(sink, batch, caller, query) == batch
        chosen = [] if done else [self._chosen(sink, batch, handle, caller) for handle in dict.fromkeys(handles)]
        others = [
            stage for stage in self.stages.values()
            if stage.sink == sink and stage.batch <= batch and stage.sealed and stage not in chosen
        ]  # fmt: skip
        if done and not others:
            return
        decision: list[Operation] = []
        if not done:
            now = self.state.clock() // 1000
            memory = SinkMemory(batch, caller.sid, query, now if once else 0)
            decision.append(Put(sink_definition(sink), memory.encode()))
        with storing():
            plan = Plan(self.state)
            plan.also(decision)
            for stage in chosen:
                self._commit_stage(plan, stage)
            plan.carry_out(stages=(chosen, others))
        for stage in [*chosen, *others]:
            del self.stages[stage.handle]

    def _chosen(self, sink: str, batch: int, handle: str, caller: Caller) -> Stage:
        stage = self.stages.get(handle)
        if stage is None or not stage.sealed or stage.sink != sink or stage.batch != batch:
            raise MsmqError(
                HResult.MQ_ERROR_TRANSACTION_SEQUENCE, f"there is no stage {handle} of batch {batch} of sink {sink!r}"
            )
        self._check_owner(stage.owner, f"stage {handle}", caller)
        return stage

    def _commit_stage(self, plan: Plan, stage: Stage) -> None:
        """Gather what the end of a stage entails: its messages arrive; those whose queue was deleted go."""
        for number, entries in stage.messages.items():
            if number not in self.state.queues:
                for key, entry in entries.items():
                    plan.discard(key, entry & _LOCATION_MASK)
        for number, key in stage.eventful:
            queue = self.state.queues.get(number)
            if queue is not None:
                location = stage.messages[number][key] & _LOCATION_MASK
                try:
                    message = decode_message(self.state.store.read(location), key)
                except UNREADABLE as error:
                    logger.error(
                        "queue %s: staged message %#x can't be decoded; it arrives without copy, acknowledgment and "
                        "time limit: %s", queue.properties.path_name, key, error,
                    )  # fmt: skip
                    continue
                plan.arrive(queue, message)
                plan.expire(queue, key, queue.deadline_of(message))

    def last_batch(self, sink: str) -> int | None:
        """The number of the sink's batch that was finalized last."""
        memory = self._memory_of(sink)
        return None if memory is None else memory.batch

    def _memory_of(self, sink: str) -> SinkMemory | None:
        name = sink_definition(sink)
        value = self.state.store.definitions.get(name)
        return None if value is None else decode_sink(name, value)

    def forget_sink(self, sink: str, caller: Caller) -> bool:
        """Drop what is remembered of a sink, so that another query may write it. Returns whether there was anything.
        Raises AccessDenied, MessageStorageFailed."""
        memory = self._memory_of(sink)
        if memory is None:
            return False
        self._check_owner(memory.owner, f"sink {sink!r}", caller)
        with storing():
            self.state.store.append([Drop(sink_definition(sink))])
        return True

    # -- writers that are gone ---------------------------------------------------------------------------------

    def saw_writer(self, sink: str) -> None:
        """A keep-alive from the writer of a sink: the idle time of its stages starts again."""
        self.writers_seen[sink] = self.state.clock()

    def writer_idle(self, sink: str) -> int:
        """Milliseconds since the last keep-alive from the writer of a sink; since the start at most."""
        now = self.state.clock()
        return now - self.writers_seen.setdefault(sink, now)

    def drop_abandoned(self, limit: int) -> int:
        """Drop the stages of sinks whose writers have sent no keep-alive for so many milliseconds, and what is
        remembered of batch writes of that age. Returns how many stages were dropped."""
        sinks = {stage.sink for stage in self.stages.values()}
        for sink in self.writers_seen.keys() - sinks:
            del self.writers_seen[sink]
        dropped = 0
        for sink in sinks:
            if (idle := self.writer_idle(sink)) >= limit:
                dropped += self._drop_abandoned(sink, idle)
        self._forget_batch_writes(self.state.clock() // 1000 - limit // 1000)
        return dropped

    def _drop_abandoned(self, sink: str, idle: int) -> int:
        abandoned = [stage for stage in self.stages.values() if stage.sink == sink]
        for stage in abandoned:
            self.drop_stage(stage)
        logger.warning(
            "sink %s: dropped %d stages with %d rows, which were never finalized: no keep-alive from their writer %s "
            "for %d s (setting stage_time_limit)",
            sink, len(abandoned), sum(stage.rows for stage in abandoned), abandoned[0].owner, idle // 1000,
        )  # fmt: skip
        return len(abandoned)

    def _forget_batch_writes(self, before: int) -> None:
        """Drop what is remembered of batch writes that ended before a time (seconds): nobody repeats them now."""
        definitions = self.state.store.definitions
        old: list[Operation] = [
            Drop(name) for name, value in definitions.items()
            if name.startswith(SINK_PREFIX) and 0 < decode_sink(name, value).once < before
        ]  # fmt: skip
        with storing():
            for start in range(0, len(old), _FORGOTTEN_AT_ONCE):
                self.state.store.append(old[start : start + _FORGOTTEN_AT_ONCE])

    def forget_stages(self, sink: str, batch: int | None, handles: Iterable[str] | None, caller: Caller) -> int:
        """Drop stages of a sink: of one batch or of all, named ones or all. Returns how many."""
        wanted = None if handles is None else set(handles)
        dropped = [
            stage for stage in self.stages.values()
            if stage.sink == sink and stage.sealed and (batch is None or stage.batch == batch)
            and (wanted is None or stage.handle in wanted)
        ]  # fmt: skip
        for stage in dropped:
            self._check_owner(stage.owner, f"stage {stage.handle}", caller)
        for stage in dropped:
            self.drop_stage(stage)
        return len(dropped)

    def recover_stage(self, number: int, note: bytes, pending: Mapping[int, QueueColumns]) -> bool:
        """Take up a stage after a restart. Returns whether the prepared transaction is one."""
        stage = stage_of_note(number, note)
        if stage is None:
            return False
        stage.transaction.wrote_pending = bool(pending)
        for queue, columns in pending.items():
            heads = self.state.store.heads(columns.locations, DRAFT_HEAD)
            for (sequence, location, size, word), head in zip(columns.rows(), heads, strict=True):
                key = priority_part(word) | sequence
                stage.add(queue, key, stored(location, size))
                stage.charge(queue, size)
                if is_eventful(head):
                    stage.eventful.append((queue, key))
                if is_asking(head):
                    stage.asking.setdefault(queue, []).append(key)
        self.stages[stage.handle] = stage
        return True

    def _check_batch(self, sink: str, batch: int, caller: Caller, query: str) -> int | None:
        """The last batch of the sink, which is not newer than `batch`, and is of the same query."""
        memory = self._memory_of(sink)
        if memory is None:
            return None
        self._check_owner(memory.owner, f"sink {sink!r}", caller)
        if memory.query and memory.query != query:
            raise MsmqError(
                HResult.MQ_ERROR_TRANSACTION_SEQUENCE,
                f"sink {sink!r} belongs to query {memory.query}, whose batch {memory.batch} was sent last; this is "
                f"batch {batch} of query {query or '(none)'}. A second stream needs a sinkId of its own. If "
                f"it replaces the other one, or its checkpoint was replaced: openmsmq pipeline forget --sink '{sink}'",
            )
        if batch < memory.batch:
            raise MsmqError(
                HResult.MQ_ERROR_TRANSACTION_SEQUENCE,
                f"batch {batch} of sink {sink!r} is older than its last, {memory.batch}: its rows were sent, or its "
                f"checkpoint was replaced; then: openmsmq pipeline forget --sink '{sink}'",
            )
        return memory.batch

    def _check_owner(self, owner: str, what: str, caller: Caller) -> None:
        if owner != caller.sid:
            self.demand_administrator(caller, what)

    def _has_room_to_stage(self, queue: Queue, size: int, added: Mapping[int, int]) -> bool:
        if queue.properties.quota != INFINITE:
            charged = queue.charged_bytes + self.state.staged_bytes(queue) + added.get(queue.number, 0)
            if charged + size > queue.quota_bytes:
                return False
        return self.state.has_room(sum(added.values()) + size)


def _latest_of_transaction(drafts: Sequence[Draft]) -> int | None:
    return next((index for index in reversed(range(len(drafts))) if drafts[index].target.is_transactional), None)
