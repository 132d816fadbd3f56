"""One event of the model as one atomic change: gathered first, written to the store, then applied to the queues.

1. Gather: `insert`, `remove`, `move`, `publish`, `publish_staged`, `also`. Nothing else changes.
2. Complete: the consequences of the change (journal copies, dead letters, acknowledgments) join it, as far as quotas
   allow.
3. Write: one batch.
4. Apply to queues, counts and deadlines: no I/O, no callbacks.
5. Notify: the outbox learns which messages became available.

Invariants (docs/architecture.md):

- I2: if step 3 raises, nothing has changed except that sequence numbers were used.
- I3: if step 4 raises, memory and log disagree. The store is marked as failed, which ends the process.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, TypeAlias

from openmsmq.model import names
from openmsmq.model.constants import INFINITE, Acknowledge, Delivery, Journal, MessageClass
from openmsmq.model.errors import IllegalFormatName, InsufficientResources
from openmsmq.model.lookup_id import sequence_of
from openmsmq.model.message import Message
from openmsmq.queueing.changes import Changes
from openmsmq.queueing.entries import Stored
from openmsmq.queueing.outgoing_queues import can_go_out, wire_name
from openmsmq.queueing.queue import APPLICATION_QUEUES, HeldRecord, Queue, QueueKind
from openmsmq.queueing.records import (
    abort_definition,
    deadline_word,
    final_ack_definition,
    route_definition,
    split_final_ack,
)
from openmsmq.record.compact_record import compact
from openmsmq.record.message_record import encode_message
from openmsmq.store import Drop, Insert, Move, Operation, Remove, StoreFailed, StoreFull

logger = logging.getLogger(__name__)

# Plain integers: `&` with a member of an IntFlag creates a new member, which takes 50 times as long.
_JOURNAL, _DEADLETTER = int(Journal.JOURNAL), int(Journal.DEADLETTER)
_POS_ARRIVAL, _POS_RECEIVE = int(Acknowledge.POS_ARRIVAL), int(Acknowledge.POS_RECEIVE)
_NEG_ARRIVAL, _NEG_RECEIVE = int(Acknowledge.NEG_ARRIVAL), int(Acknowledge.NEG_RECEIVE)
_RECOVERABLE = int(Delivery.RECOVERABLE)
_ARRIVED = 0x4000  # bit of a message class: the message reached its queue
# Deviation D-58: reasons that change for a message removed from an outgoing or connector queue. It never was in its
# destination queue, so it was neither received nor purged there. Other reasons stay the same.
_IN_TRANSIT = {
    MessageClass.ACK_RECEIVE: MessageClass.NACK_DELETED,
    MessageClass.NACK_Q_PURGED: MessageClass.NACK_DELETED,
}
ORDER_LABEL = "QM Ordering Ack"  # of both acknowledgments of transactional messages, [MS-MQQB] 2.2.4 and 2.2.5
_SWEEP_MESSAGES = 512  # removals per batch when a queue is purged or deleted
_SWEEP_BYTES = 1 << 20  # of copies and acknowledgments per such batch
# Reasons for which a non-transactional message that reached its queue becomes a dead letter. A transactional one does
# whenever it is not received.
_DEAD_LETTERED = frozenset([MessageClass.NACK_RECEIVE_TIMEOUT, MessageClass.NACK_REACH_QUEUE_TIMEOUT])
_OF_QUEUE_MANAGERS = frozenset(int(kind) for kind in MessageClass if kind is not MessageClass.NORMAL)


_Arrival: TypeAlias = tuple[Queue, int, Message | None]  # the message, if already decoded
_NOTHING_PLACED: Final[dict[int, tuple[int, int]]] = {}


class _Held:
    """Messages sent in transactions and stages that this change makes visible; most changes have none."""

    def __init__(self) -> None:
        self.reveals: list[tuple[Queue, Message, int | None]] = []  # locked sends, with the location if stored
        # Staged messages: entries by lookup identifier, total bytes, and lookup identifiers of those whose receipt must
        # be acknowledged.
        self.adoptions: list[tuple[Queue, dict[int, Stored], int, Sequence[int]]] = []
        self.deadlines: list[tuple[Queue, int, int]] = []  # of staged messages: position, milliseconds


class ChangeSet:
    """One atomic change: gather its parts, then call `commit` once."""

    def __init__(self, changes: Changes, charged_to: str = "") -> None:
        """`charged_to` is the host whose share of outgoing queues pays for acknowledgments; if empty, it is the queue
        manager that sent the acknowledged message."""
        self._changes = changes
        self._charged_to = charged_to
        self._operations: list[Operation] = []
        self._stored: list[tuple[int, int]] = []  # lookup identifier and bytes of the record, of each Insert and Move
        self._removals: list[tuple[Queue, int]] = []
        # Queue, message, its size, when it expires, and its record unless it is stored.
        self._inserts: list[tuple[Queue, Message, int, int, HeldRecord | None]] = []
        self._held: _Held | None = None
        self._leaves_subqueue = False
        self._added: dict[int, int] = {}  # bytes by queue number, for quotas within the change
        self._freed: dict[int, int] = {}  # removed bytes, by number of the queue whose quota they count against
        # Consequences of the removals and arrivals, in the order of `_complete`.
        self._copies: list[tuple[Queue, Message, MessageClass | None, int]] = []
        self._acknowledgments: list[tuple[Message, MessageClass]] = []
        self._final_acks: list[tuple[bytes, MessageClass]] = []  # value of `records.final_ack_definition`, reason
        self._following = 0  # bytes of these copies and acknowledgments
        self._deaths: list[MessageClass] = []  # reasons of messages discarded or refused

    # -- gathering -------------------------------------------------------------------------------------------

    def has_room(self, queue: Queue, size: int, *, reuse: bool = False) -> bool:
        """Whether the quotas of queue and machine allow `size` more bytes; with `reuse`, messages that this change
        removes no longer count."""
        if queue.properties.quota == INFINITE and self._changes.machine.quota == INFINITE:
            return True
        of_queue, of_machine = self._added.get(queue.number, 0), sum(self._added.values())
        if reuse:
            of_queue -= self._freed.get(queue.number, 0)
            of_machine -= sum(self._freed.values())
        return self._changes.has_room(queue, size, of_queue, of_machine)

    def charge(self, queue: Queue, size: int) -> bool:
        """Reserve quota for `size` bytes if `has_room` allows them; return whether it did."""
        has_room = self.has_room(queue, size)
        if has_room:
            self._added[queue.number] = self._added.get(queue.number, 0) + size
        return has_room

    def added_to(self, queue: Queue) -> int:
        """Return the bytes that this change adds to a queue."""
        return self._added.get(queue.number, 0)

    @property
    def is_full(self) -> bool:
        """Whether a sweep over many messages should carry out this change and begin another."""
        return len(self._removals) >= _SWEEP_MESSAGES or self._following >= _SWEEP_BYTES

    def insert(self, queue: Queue, message: Message, size: int) -> None:
        """Put a message, whose lookup identifier is set, into a queue."""
        number, deadline = queue.number, queue.deadline_of(message)
        held: HeldRecord | None = None
        charged = size
        if message.delivery_guarantee == _RECOVERABLE:
            charged = self._store(queue, message, deadline)
        else:
            held = HeldRecord(encode_message(message), size)
        self._inserts.append((queue, message, size, deadline, held))
        self._added[number] = self._added.get(number, 0) + charged

    def _store(self, queue: Queue, message: Message, deadline: int) -> int:
        """Write a message with this change. Returns the bytes that it will count for in quotas."""
        key, payload = message.lookup_identifier, compact(encode_message(message))
        self._operations.append(Insert(queue.number, sequence_of(key), deadline_word(key, deadline), payload))
        self._stored.append((key, len(payload)))
        return len(payload)

    def arrive(self, queue: Queue, message: Message) -> None:
        """Add the consequences of a message's arrival in its destination queue. Journal copies are made by the queue
        manager that sent it."""
        if not (message.journaling_requested or message.acknowledgements_requested):
            return
        if queue.kind is QueueKind.OUTGOING:  # it has not arrived yet
            return
        if message.journaling_requested & _JOURNAL and self._is_own(message):
            self._copy(self._changes.registry.system_journal, message, message.size)
        if message.acknowledgements_requested & _POS_ARRIVAL and queue.is_destination:
            self._acknowledge(message, MessageClass.ACK_REACH_QUEUE)

    def remove(self, queue: Queue, lookup_identifier: int, message: Message, reason: MessageClass) -> None:
        """Remove a message: Message Position Deleted ([MS-MQDMPR] 3.1.7.2.1) and its consequences ([MS-MQQB]
        3.1.7.2)."""
        size = self._take_out(queue, lookup_identifier)
        in_transit = False
        if not queue.is_destination:
            if queue.kind not in (QueueKind.OUTGOING, QueueKind.CONNECTOR):
                return
            if reason is MessageClass.ACK_RECEIVE and queue.kind is QueueKind.CONNECTOR:
                return  # D-53: the connector application now has it, and sends the acknowledgments
            if reason is MessageClass.ACK_REACH_QUEUE:  # transferred; the destination sends the acknowledgments
                if not self._is_own(message):
                    self._drop_notes(lookup_identifier)
                elif message.journaling_requested & _JOURNAL:
                    self._copy(self._changes.registry.system_journal, message, size)
                return
            in_transit, reason = True, _IN_TRANSIT.get(reason, reason)
        from_elsewhere = not self._is_own(message)
        if from_elsewhere and message.is_transactional:
            self._answer_finally(lookup_identifier, reason)
        if from_elsewhere and in_transit:
            self._drop_notes(lookup_identifier)
        if reason is MessageClass.ACK_RECEIVE:
            if queue.properties.journaling and queue.journal is not None:
                self._copy(queue.journal, message, size)
            if message.acknowledgements_requested & _POS_RECEIVE:
                self._acknowledge(message, reason)
            return
        self._deaths.append(reason)
        if message.acknowledgements_requested & (_NEG_RECEIVE if reason & _ARRIVED else _NEG_ARRIVAL):
            self._acknowledge(message, reason)
        if from_elsewhere and (message.is_transactional or in_transit):
            return  # the sender gets the final acknowledgment and keeps the dead letter
        # D-242: a plain message of another machine becomes a dead letter here.
        undelivered = in_transit or message.is_transactional or reason in _DEAD_LETTERED
        if message.journaling_requested & _DEADLETTER and undelivered:
            self._copy(self.dead_letters_for(message), message, size, reason)

    def discard_poison(self, queue: Queue, lookup_identifier: int, message: Message) -> None:
        """Remove a message at its delivery limit, as if its reader had rejected it. A copy is always kept: by the
        sender's queue manager if it keeps one, else in the dead-letter queue here, whether or not the sender requested
        it."""
        copies = len(self._copies)
        size = queue.size_of(lookup_identifier)
        self.remove(queue, lookup_identifier, message, MessageClass.NACK_RECEIVE_REJECTED)
        sender_keeps = (
            message.is_transactional and message.journaling_requested & _DEADLETTER and not self._is_own(message)
        )
        if len(self._copies) == copies and not sender_keeps:
            target = self.dead_letters_for(message)
            self._copy(target, message, size, MessageClass.NACK_RECEIVE_REJECTED)

    def dead_letters_for(self, message: Message) -> Queue:
        """Return the dead-letter queue of this machine for a message."""
        registry = self._changes.registry
        return registry.transactional_dead_letters if message.is_transactional else registry.dead_letters

    def finish(self, queue: Queue, lookup_identifier: int, message: Message, reason: MessageClass) -> None:
        """Record the outcome that the destination reported for a transactional message stored here: a copy goes to the
        journal, to the dead letters, or nowhere ([MS-MQQB] 3.1.5.7)."""
        size, registry = self._take_out(queue, lookup_identifier), self._changes.registry
        if reason is MessageClass.ACK_RECEIVE:
            if message.journaling_requested & _JOURNAL:
                self._copy(registry.system_journal, message, size)
            return
        self._deaths.append(reason)
        if message.journaling_requested & _DEADLETTER:
            self._copy(registry.transactional_dead_letters, message, size, reason)

    def reject(self, message: Message, reason: MessageClass, final_ack: bytes = b"") -> None:
        """Add the consequences of refusing a message from another queue manager ([MS-MQQB] 3.1.5.8). `final_ack` is the
        value that `records.final_ack_definition` would have kept."""
        self._deaths.append(reason)
        if message.acknowledgements_requested & _NEG_ARRIVAL:
            self._acknowledge(message, reason)
        if final_ack:
            self.acknowledge_finally(reason, final_ack)

    def acknowledge_finally(self, reason: MessageClass, final_ack: bytes) -> None:
        """Send a final acknowledgment; `final_ack` as for `reject`."""
        self._final_acks.append((final_ack, reason))

    def dead_letter(self, message: Message, reason: MessageClass) -> None:
        """Put a copy of a refused message into the dead-letter queue of this machine ([MS-MQQB] 3.1.5.8.8)."""
        self._copy(self._changes.registry.dead_letters, message, message.size, reason)

    def remove_without_effects(self, queue: Queue, lookup_identifier: int) -> None:
        """Remove a stored message whose removal has no effects, or whose effects can't be read."""
        assert queue.location(lookup_identifier) is not None  # a message in memory is never unreadable
        self._take_out(queue, lookup_identifier)

    def take_out(self, queue: Queue, lookup_identifier: int) -> None:
        """Remove a message without any consequences."""
        self._take_out(queue, lookup_identifier)

    def _is_own(self, message: Message) -> bool:
        """Whether this queue manager sent the message."""
        return self._changes.machine.has_identifier(message.source_machine_identifier)

    def _take_out(self, queue: Queue, lookup_identifier: int) -> int:
        """Remove a position from store and queue. Returns the bytes that this frees."""
        location = queue.location(lookup_identifier)
        if location is not None:
            self._operations.append(Remove(sequence_of(lookup_identifier), location))
        self._vacate(queue, lookup_identifier)
        return self._free(queue, lookup_identifier)

    def _answer_finally(self, lookup_identifier: int, reason: MessageClass) -> None:
        """Report the outcome of a transactional message to its sender, if the sender requested it ([MS-MQQB]
        3.1.7.2.2)."""
        name = final_ack_definition(lookup_identifier)
        value = self._changes.store.definitions.get(name)
        if value is not None:
            self._operations.append(Drop(name))
            self._final_acks.append((value, reason))

    def _drop_notes(self, lookup_identifier: int) -> None:
        """Drop the stored route and final acknowledgment of another queue manager's message, which the next hop now
        has."""
        for name in (route_definition(lookup_identifier), final_ack_definition(lookup_identifier)):
            if name in self._changes.store.definitions:
                self._operations.append(Drop(name))

    def _free(self, queue: Queue, lookup_identifier: int) -> int:
        """Note and return the bytes that the removal of a message frees for its consequences."""
        head, size = queue.parent or queue, queue.size_of(lookup_identifier)
        self._freed[head.number] = self._freed.get(head.number, 0) + size
        return size

    def _vacate(self, queue: Queue, lookup_identifier: int) -> None:
        if lookup_identifier in queue.aborts and queue.location(lookup_identifier) is not None:
            self._operations.append(Drop(abort_definition(queue.number, lookup_identifier)))
        self._removals.append((queue, lookup_identifier))
        if queue.parent is not None:
            self._leaves_subqueue = True

    def move(self, queue: Queue, lookup_identifier: int, message: Message, target: Queue) -> None:
        """Move Message, [MS-MQDMPR] 3.1.7.1.16. The message keeps its lookup identifier, and with it its place in the
        order of arrival. It has arrived before, so the move has no other consequences."""
        self._place(queue, lookup_identifier, replace(self._moved(message), abort_count=0), target)

    def move_poison(self, queue: Queue, lookup_identifier: int, message: Message, target: Queue) -> None:
        """Move a message like `move`, but keep its abort count, which is the reason for the move."""
        self._place(queue, lookup_identifier, self._moved(message), target)

    def _moved(self, message: Message) -> Message:
        return replace(message, move_count=message.move_count + 1, last_move_time=self._changes.clock() // 1000)

    def keep(self, queue: Queue, lookup_identifier: int, message: Message, target: Queue) -> None:
        """Move a message for the queue manager's own purposes: like `move`, but without changing the message."""
        self._place(queue, lookup_identifier, message, target)

    def _place(self, queue: Queue, lookup_identifier: int, moved: Message, target: Queue) -> None:
        location, deadline = queue.location(lookup_identifier), target.deadline_of(moved)
        record, held = encode_message(moved), None
        if location is None:
            held = HeldRecord(record, moved.size)
        else:
            payload = compact(record)
            sequence = sequence_of(lookup_identifier)
            word = deadline_word(lookup_identifier, deadline)
            self._operations.append(Move(sequence, location, target.number, sequence, word, payload))
            self._stored.append((lookup_identifier, len(payload)))
        self._vacate(queue, lookup_identifier)
        self._inserts.append((target, moved, moved.size, deadline, held))

    def also(self, operations: Iterable[Operation]) -> None:
        """Add other store operations to the batch."""
        self._operations += operations

    def publish(self, queue: Queue, message: Message, location: int | None) -> None:
        """Make a transactional send visible, and store it unless it was written ahead. Raises the errors of reading the
        store."""
        self._of_others().reveals.append((queue, message, location))
        if queue.deleted:
            return
        if location is None:
            self._store(queue, message, queue.deadline_of(message))
        elif message.journaling_requested & _JOURNAL:
            message = queue.message(message.lookup_identifier)  # its body was written ahead
        self.arrive(queue, message)

    def publish_staged(self, queue: Queue, entries: dict[int, Stored], size: int, asking: Sequence[int]) -> None:
        """Make staged messages of `size` bytes visible; `asking` are those whose receipt must be acknowledged."""
        self._of_others().adoptions.append((queue, entries, size, asking))

    def expire(self, queue: Queue, lookup_identifier: int, deadline: int) -> None:
        """Set when a staged message expires, in milliseconds since 1970 UTC; 0 for never."""
        if deadline:
            self._of_others().deadlines.append((queue, lookup_identifier, deadline))

    def discard(self, lookup_identifier: int, location: int) -> None:
        """Drop a staged message whose queue was deleted; its stage commits in the same batch."""
        self._operations.append(Remove(sequence_of(lookup_identifier), location))

    def _copy(self, queue: Queue, message: Message, size: int, reason: MessageClass | None = None) -> None:
        """Add a copy to the change; `size` is the number of bytes that the original counts for in quotas."""
        self._copies.append((queue, message, reason, size))
        self._following += size

    def _acknowledge(self, message: Message, message_class: MessageClass) -> None:
        """Add an acknowledgment to the change. Acknowledgments and reports are never acknowledged ([MS-MQQB] 3.1.7.15,
        notes 2 and 62)."""
        if message.message_class in _OF_QUEUE_MANAGERS:
            return
        self._acknowledgments.append((message, message_class))
        self._following += message.size

    def _complete(self) -> None:
        """Add the consequences of the removals and arrivals, as far as quotas allow. Dead letters and journal copies
        come first and may use the bytes that this change frees. A copy is as large as its original, so the machine's
        quota never causes the loss of one."""
        for queue, message, reason, size in self._copies:
            self._insert_copy(queue, message, reason, size)
        for message, message_class in self._acknowledgments:
            self._insert_acknowledgment(message, message_class)
        for kept, message_class in self._final_acks:
            self._insert_final_ack(kept, message_class)

    def _insert_copy(self, queue: Queue, message: Message, reason: MessageClass | None, size: int) -> None:
        """Insert a copy into a journal or dead-letter queue, or discard it if that would exceed the queue's quota."""
        copy = message.copy()
        if reason is not None:
            copy.message_class = reason
        if not self.has_room(queue, size, reuse=True):
            self._changes.note_discarded(queue, message)
            return
        self._changes.number(copy, self._changes.clock())
        self.insert(queue, copy, size)

    def _insert_acknowledgment(self, message: Message, message_class: MessageClass) -> None:
        """Send Administration Acknowledgment, [MS-MQQB] 3.1.7.15, with label and body type (D-243). It is discarded if
        its administration queue cannot be determined. A negative one includes the body of an unencrypted message."""
        charged_to = self._charged_to
        if not charged_to and not self._is_own(message):
            charged_to = message.source_machine_identifier.hex()
        queues = self._administration_queues(message.administration_queue_format_name, charged_to)
        if not queues:
            if message.administration_queue_format_name and self._changes.may_warn("acknowledgment"):
                logger.info(
                    "acknowledgment of message %s discarded: its administration queue %s takes none", message.id,
                    message.administration_queue_format_name,
                )  # fmt: skip
            return
        positive = message_class in (MessageClass.ACK_REACH_QUEUE, MessageClass.ACK_RECEIVE)
        bare = positive or bool(message.privacy_level)
        acknowledgment = Message(
            message_class=message_class,
            correlation_identifier=message.identifier,
            response_queue_format_name=message.destination_queue_format_name,
            destination_queue_format_name=message.administration_queue_format_name,
            delivery_guarantee=message.delivery_guarantee,
            label=message.label,
            body=b"" if bare else message.body,
            body_type=0 if bare else message.body_type,
            time_to_reach_queue=INFINITE if queues[0].is_destination else self._changes.longest_way,
        )
        for queue in queues:
            self.post(queue, replace(acknowledgment))

    def _administration_queues(self, format_name: str, charged_to: str) -> list[Queue]:
        """Return the queues for an acknowledgment: application queues of this machine and outgoing queues, which are
        created if needed. Raises the errors of the store."""
        if not format_name:
            return []
        try:
            parsed = names.parse_format_name(format_name)
        except IllegalFormatName:
            return []
        elements = parsed.elements if isinstance(parsed, names.MultipleElementFormatName) else (parsed,)
        return [queue for name in elements if (queue := self._queue_for_own(name, charged_to)) is not None]

    def _queue_for_own(self, name: names.SingleFormatName, charged_to: str = "") -> Queue | None:
        """Return the queue for a message of the queue manager itself: a non-transactional application queue of this
        machine, or an outgoing queue, which is created if needed. In that of a public queue, the message waits until
        the directory has been asked. None if the name denotes no such queue."""
        registry = self._changes.registry
        queue = registry.local_queue(name)
        if queue is not None:
            takes = queue.kind in APPLICATION_QUEUES and not queue.properties.transactional
            return queue if takes else None
        is_public = isinstance(name, names.PublicFormatName) and name.suffix is names.Suffix.NONE
        if registry.is_local(name) or not (can_go_out(name) or is_public):
            return None
        return self._outgoing(name, charged_to)

    def _outgoing(self, name: names.SingleFormatName, charged_to: str) -> Queue | None:
        """Return the outgoing queue for a message of the queue manager itself; None if no more outgoing queues are
        allowed."""
        try:
            return self._changes.outgoing_for(name, charged_to)
        except InsufficientResources as error:
            self._changes.discarded += 1
            if self._changes.may_warn("outgoing"):
                logger.warning(
                    "acknowledgment for %s discarded (%d in all since the start): %s",
                    name, self._changes.discarded, error,
                )  # fmt: skip
            return None

    def _insert_final_ack(self, kept: bytes, message_class: MessageClass) -> None:
        """Send Transactional Acknowledgment, [MS-MQQB] 3.1.7.17. It requests no acknowledgment, and its priority is 0,
        because all bits of BaseHeader.Flags are 0 (2.2.5)."""
        body, name = split_final_ack(kept)
        queue = self._outgoing(name, self._charged_to)
        if queue is None:
            return
        self.post(queue, Message(
            message_class=message_class, label=ORDER_LABEL, body=body, destination_queue_format_name=wire_name(name),
            delivery_guarantee=_RECOVERABLE, priority=0, time_to_reach_queue=self._changes.longest_way,
        ))  # fmt: skip

    def post_to(self, name: names.SingleFormatName, message: Message) -> None:
        """Post to a queue by its name, like `post`; discard the message if the name denotes no queue."""
        queue = self._queue_for_own(name)
        if queue is not None:
            message.time_to_reach_queue = INFINITE if queue.is_destination else self._changes.longest_way
            self.post(queue, message)

    def post(self, queue: Queue, message: Message) -> None:
        """Put a message of the queue manager itself into a queue, or discard it if a quota would be exceeded."""
        size = message.size
        if not self.has_room(queue, size, reuse=True):
            self._changes.note_discarded(queue, message)
            return
        self._changes.stamp(message)
        self.insert(queue, message, size)

    # -- writing and applying ----------------------------------------------------------------------------------

    def commit(
        self, transaction: int | None = None, settled: tuple[Sequence[int], Sequence[int]] | None = None
    ) -> None:
        """Write the batch and apply it.

        Args:
            transaction: number of the store transaction that commits with the batch.
            settled: numbers of the store transactions that commit with the batch, and of those that it drops.

        Raises the errors of the store; nothing was applied then.
        """
        if self._copies or self._acknowledgments or self._final_acks:
            self._complete()
        changes, operations = self._changes, self._operations
        if changes.has_failed:
            raise StoreFailed("an earlier change could not be applied")
        locations: Sequence[int] = ()
        if settled is not None:
            locations = changes.store.settle(settled[0], settled[1], operations)
        elif transaction is not None:
            locations = changes.store.commit(transaction, operations)
        elif operations:
            locations = changes.store.append(operations)
        try:
            arrived = self._apply(locations)
        except Exception as error:
            changes.fail(error)
        if arrived is not None:
            for queue, key, message in arrived:
                changes.outbox.arrived(queue, key, message)
        if self._deaths:
            changes.note_deaths(self._deaths)
        if self._leaves_subqueue or self._held is not None:
            self._clean_up()

    def _apply(self, locations: Sequence[int]) -> list[_Arrival] | None:
        """Change queues and deadlines. Returns the messages that became available and of which a reader or the
        transport must be notified."""
        arrived: list[_Arrival] | None = None
        deadlines = self._changes.deadlines
        placed = _NOTHING_PLACED
        if self._stored:
            assert len(locations) == len(self._stored)
            placed = {key: (locations[index], size) for index, (key, size) in enumerate(self._stored)}
        for queue, key in self._removals:
            queue.remove(key)
        if self._held is not None:
            arrived = self._apply_held(self._held, placed)
        for queue, message, size, deadline, held in self._inserts:
            key = message.lookup_identifier
            if held is None:
                location, size = placed[key]
                queue.insert(message, location, size)
            else:
                queue.insert(message, held, size)
            if deadline:
                deadlines.add(deadline, key, queue.number)
            if queue.waiters or queue.kind is QueueKind.OUTGOING:
                if arrived is None:
                    arrived = []
                arrived.append((queue, key, message))
        return arrived

    def _apply_held(self, held: _Held, placed: dict[int, tuple[int, int]]) -> list[_Arrival]:
        """Make messages sent in transactions and stages visible. Returns as `_apply`."""
        deadlines = self._changes.deadlines
        arrived: list[_Arrival] = []
        for queue, message, _ in held.reveals:
            if queue.deleted:
                continue
            key = message.lookup_identifier
            if key in placed:
                queue.written(key, *placed[key])
            queue.unlock(key)
            if deadline := queue.deadline_of(message):
                deadlines.add(deadline, key, queue.number)
            if queue.is_watched:
                arrived.append((queue, key, None))
        for queue, entries, volume, asking in held.adoptions:
            queue.adopt(entries, volume, asking)
            if queue.is_watched:
                arrived += [(queue, key, None) for key in entries]
        for queue, key, deadline in held.deadlines:
            deadlines.add(deadline, key, queue.number)
        return arrived

    def _of_others(self) -> _Held:
        if self._held is None:
            self._held = _Held()
        return self._held

    def _clean_up(self) -> None:
        """Run the follow-up work of a committed change; it may fail without harm."""
        changes = self._changes
        for queue, message, location in self._held.reveals if self._held is not None else ():
            if queue.deleted and location is not None:  # written ahead; its queue was deleted before the commit
                with suppress(StoreFull):  # leftovers are removed at the next start
                    changes.store.append([Remove(sequence_of(message.lookup_identifier), location)])
        for queue, _ in self._removals:
            if queue.parent is not None:
                changes.registry.drop_unused(queue)


def is_received_alone(changes: Changes, queue: Queue, message: Message) -> bool:
    """Whether receiving a message has no consequences, except a journal copy if the queue then has journaling
    enabled."""
    if not queue.is_destination or message.acknowledgements_requested & _POS_RECEIVE:
        return False
    return not message.is_transactional or changes.machine.has_identifier(message.source_machine_identifier)


def store_insert(queue: Queue, message: Message) -> Insert:
    """Return the operation that stores a message in a queue."""
    key, payload = message.lookup_identifier, compact(encode_message(message))
    return Insert(queue.number, sequence_of(key), deadline_word(key, queue.deadline_of(message)), payload)
