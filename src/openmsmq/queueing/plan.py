"""One event of the model as one atomic change: gathered first, written to the store, then applied to the queues.

Nothing in memory changes before the store has taken the batch, so a full disk leaves everything as it was. What a
change entails (journal copies, acknowledgments, dead letters) joins the same batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from openmsmq.model.constants import INFINITE, Acknowledge, Delivery, Journal, MessageClass
from openmsmq.model.lookup_id import priority_part, sequence_of
from openmsmq.model.message import NULL_IDENTIFIER, Message
from openmsmq.queueing.aborts import abort_definition
from openmsmq.queueing.message_record import encode_message
from openmsmq.queueing.queue import Queue, QueueKind
from openmsmq.queueing.records import deadline_word
from openmsmq.queueing.transactions import Enqueued, Transaction
from openmsmq.store import Drop, Insert, Move, Operation, Remove, StoreFull

if TYPE_CHECKING:
    from openmsmq.queueing.stages import Stage
    from openmsmq.queueing.state import State

# Plain numbers: `&` with a member of an IntFlag makes a new member, which costs fifty times as much.
_JOURNAL, _DEADLETTER = int(Journal.JOURNAL), int(Journal.DEADLETTER)
_POS_ARRIVAL, _POS_RECEIVE = int(Acknowledge.POS_ARRIVAL), int(Acknowledge.POS_RECEIVE)
_NEG_ARRIVAL, _NEG_RECEIVE = int(Acknowledge.NEG_ARRIVAL), int(Acknowledge.NEG_RECEIVE)
_ARRIVED = 0x4000  # bit of a message class: the message had reached its queue
# Deviation D-58: why a message was discarded that was removed from an outgoing or a connector queue: it never was in
# its destination queue, so it was neither received nor purged there. Other reasons are what they are.
_IN_TRANSIT = {
    MessageClass.ACK_RECEIVE: MessageClass.NACK_DELETED,
    MessageClass.NACK_Q_PURGED: MessageClass.NACK_DELETED,
}
_SWEEP_MESSAGES = 512  # removals in one batch when a queue is purged or deleted
_SWEEP_BYTES = 1 << 20  # of copies and acknowledgments in one such batch
# Of non-transactional messages that reached their queue, only these end in the dead-letter queue; transactional ones
# do whenever they are not received.
_DEAD_LETTERED = frozenset([MessageClass.NACK_RECEIVE_TIMEOUT, MessageClass.NACK_REACH_QUEUE_TIMEOUT])


class Plan:
    """Gather with `insert`, `remove` and `commit_send`; then `carry_out` once."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._operations: list[Operation] = []
        self._removals: list[tuple[Queue, int]] = []
        self._inserts: list[tuple[Queue, Message, int, bool]] = []  # queue, message, size, whether it is stored
        self._sends: list[Enqueued] = []  # sends of the transaction that commits
        self._deadlines: list[tuple[int, int, int]] = []  # of staged messages: milliseconds, position, queue number
        self._added: dict[int, int] = {}  # bytes by queue number, for quotas within the plan
        self._freed: dict[int, int] = {}  # bytes of what is removed, by number of the queue whose quota they count for
        # What follows from the removals and arrivals, in the order of `_complete`.
        self._copies: list[tuple[Queue, Message, MessageClass | None, int]] = []
        self._acknowledgments: list[tuple[Message, MessageClass]] = []
        self._following = 0  # bytes of these

    # -- gathering -------------------------------------------------------------------------------------------

    def has_room(self, queue: Queue, size: int, *, reuse: bool = False) -> bool:
        """Whether the quotas of queue and machine allow so many bytes more; with `reuse` what this plan removes counts
        as gone."""
        state, quota = self._state, queue.properties.quota
        if quota != INFINITE:
            charged = queue.charged_bytes + state.staged_bytes(queue) + self._added.get(queue.number, 0)
            if reuse:
                charged -= self._freed.get(queue.number, 0)
            if charged + size > queue.quota_bytes:
                return False
        if state.machine.quota == INFINITE:
            return True
        return state.has_room(size + sum(self._added.values()) - (sum(self._freed.values()) if reuse else 0))

    @property
    def is_full(self) -> bool:
        """Whether a sweep over many messages should carry out this plan and begin another."""
        return len(self._removals) >= _SWEEP_MESSAGES or self._following >= _SWEEP_BYTES

    def insert(self, queue: Queue, message: Message, size: int) -> None:
        """Put a message, whose lookup identifier is set, into a queue."""
        is_stored = message.delivery_guarantee == Delivery.RECOVERABLE
        if is_stored:
            self._operations.append(store_insert(queue, message))
        self._inserts.append((queue, message, size, is_stored))
        self._added[queue.number] = self._added.get(queue.number, 0) + size

    def arrive(self, queue: Queue, message: Message) -> None:
        """What the arrival of a message in its destination queue entails; the sender is this queue manager too."""
        if not (message.journaling_requested or message.acknowledgements_requested):
            return
        if queue.kind is QueueKind.OUTGOING:  # it has not arrived yet
            return
        if message.journaling_requested & _JOURNAL:
            self._copy(self._state.system_journal, message, message.size)
        if message.acknowledgements_requested & _POS_ARRIVAL and queue.is_destination:
            self._acknowledge(message, MessageClass.ACK_REACH_QUEUE)

    def remove(self, queue: Queue, lookup_identifier: int, message: Message, reason: MessageClass) -> None:
        """Message Position Deleted ([MS-MQDMPR] 3.1.7.2.1) and what it entails ([MS-MQQB] 3.1.7.2)."""
        location = queue.location(lookup_identifier)
        if location is not None:
            self._operations.append(Remove(sequence_of(lookup_identifier), location))
        self._vacate(queue, lookup_identifier)
        size = self._free(queue, lookup_identifier)
        in_transit = False
        if not queue.is_destination:
            if queue.kind not in (QueueKind.OUTGOING, QueueKind.CONNECTOR):
                return
            if reason is MessageClass.ACK_RECEIVE and queue.kind is QueueKind.CONNECTOR:
                return  # D-53: with the connector application now, which sends the acknowledgments
            if reason is MessageClass.ACK_REACH_QUEUE:  # transferred; the destination sends the acknowledgments
                if message.journaling_requested & _JOURNAL:
                    self._copy(self._state.system_journal, message, size)
                return
            in_transit, reason = True, _IN_TRANSIT.get(reason, reason)
        if reason is MessageClass.ACK_RECEIVE:
            if queue.properties.journaling and queue.journal is not None:
                self._copy(queue.journal, message, size)
            if message.acknowledgements_requested & _POS_RECEIVE:
                self._acknowledge(message, reason)
            return
        if message.acknowledgements_requested & (_NEG_RECEIVE if reason & _ARRIVED else _NEG_ARRIVAL):
            self._acknowledge(message, reason)
        undelivered = in_transit or message.is_transactional or reason in _DEAD_LETTERED
        if message.journaling_requested & _DEADLETTER and undelivered:
            state = self._state
            target = state.transactional_dead_letters if message.is_transactional else state.dead_letters
            self._copy(target, message, size, reason)

    def remove_unreadable(self, queue: Queue, lookup_identifier: int) -> None:
        """Remove a message whose record can't be decoded: nothing follows, because nobody knows what it asked for."""
        location = queue.location(lookup_identifier)
        assert location is not None  # what is in memory needs no decoding
        self._operations.append(Remove(sequence_of(lookup_identifier), location))
        self._vacate(queue, lookup_identifier)
        self._free(queue, lookup_identifier)

    def _free(self, queue: Queue, lookup_identifier: int) -> int:
        """Bytes that a message leaves for what follows from its removal."""
        head, size = queue.parent or queue, queue.size_of(lookup_identifier)
        self._freed[head.number] = self._freed.get(head.number, 0) + size
        return size

    def _vacate(self, queue: Queue, lookup_identifier: int) -> None:
        if lookup_identifier in queue.aborts:
            self._operations.append(Drop(abort_definition(queue.number, lookup_identifier)))
        self._removals.append((queue, lookup_identifier))

    def move(self, queue: Queue, lookup_identifier: int, message: Message, target: Queue) -> None:
        """Move Message, [MS-MQDMPR] 3.1.7.1.16. The message keeps its lookup identifier, and with it its place in the
        order of arrival; it has arrived once, so nothing else follows."""
        moved = replace(
            message,
            abort_count=0,
            move_count=message.move_count + 1,
            last_move_time=self._state.clock() // 1000,
        )
        location = queue.location(lookup_identifier)
        if location is not None:
            sequence = sequence_of(lookup_identifier)
            word = deadline_word(lookup_identifier, moved.deadline())
            self._operations.append(Move(sequence, location, target.number, sequence, word, encode_message(moved)))
        self._vacate(queue, lookup_identifier)
        self._inserts.append((target, moved, moved.size, location is not None))

    def also(self, operations: Iterable[Operation]) -> None:
        """Write something else in the same batch."""
        self._operations += operations

    def discard(self, lookup_identifier: int, location: int) -> None:
        """Drop a staged message whose queue is no more; its stage commits in the same batch."""
        self._operations.append(Remove(sequence_of(lookup_identifier), location))

    def expire(self, queue: Queue, lookup_identifier: int, deadline: int) -> None:
        """A staged message that arrives has a deadline."""
        if deadline:
            self._deadlines.append((deadline, lookup_identifier, queue.number))

    def commit_send(self, send: Enqueued) -> None:
        """Make a send of a transaction visible; it is stored here unless it was written ahead."""
        self._sends.append(send)
        if send.queue.deleted:
            return
        message = send.message
        if send.location is None:
            self._operations.append(store_insert(send.queue, message))
        elif message.journaling_requested & _JOURNAL:
            message = send.queue.message(message.lookup_identifier)  # its body was written ahead
        self.arrive(send.queue, message)

    def _copy(self, queue: Queue, message: Message, size: int, reason: MessageClass | None = None) -> None:
        """`size` is what the original counts for."""
        self._copies.append((queue, message, reason, size))
        self._following += size

    def _acknowledge(self, message: Message, message_class: MessageClass) -> None:
        self._acknowledgments.append((message, message_class))
        self._following += message.size

    def _complete(self) -> None:
        """Add what follows from the removals and arrivals, as far as there is room. Dead letters and journal copies
        come first and may have the room of what this very plan removes: a copy is as large as its original, so the
        machine's quota never costs one."""
        for queue, message, reason, size in self._copies:
            self._insert_copy(queue, message, reason, size)
        for message, message_class in self._acknowledgments:
            self._insert_acknowledgment(message, message_class)

    def _insert_copy(self, queue: Queue, message: Message, reason: MessageClass | None, size: int) -> None:
        """A copy for a journal or dead-letter queue; discarded where that queue's quota is exceeded."""
        copy = replace(message, message_class=message.message_class if reason is None else reason)
        if not self.has_room(queue, size, reuse=True):
            self._state.note_discarded(queue, message)
            return
        self._state.number(copy, queue)
        self.insert(queue, copy, size)

    def _insert_acknowledgment(self, message: Message, message_class: MessageClass) -> None:
        """Send Administration Acknowledgment, [MS-MQQB] 3.1.7.15. Without a queue to go to it is discarded. A negative
        one carries the body, unless that is private."""
        queue = self._state.local_queue_for_text(message.administration_queue_format_name)
        if queue is None or queue.kind is not QueueKind.PRIVATE or queue.properties.transactional:
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
        )
        size = acknowledgment.size
        if not self.has_room(queue, size, reuse=True):
            self._state.note_discarded(queue, acknowledgment)
            return
        self._state.stamp(acknowledgment, queue)
        self.insert(queue, acknowledgment, size)

    # -- carrying out ----------------------------------------------------------------------------------------

    def carry_out(
        self, transaction: Transaction | None = None, stages: tuple[list[Stage], list[Stage]] | None = None
    ) -> None:
        """Write the batch and apply it; readers are offered what became available in a turn of their own. With it ends
        a transaction, or some stages are committed and others dropped.

        Raises what the store raises; then nothing was applied.
        """
        if self._copies or self._acknowledgments:
            self._complete()
        state = self._state
        committed = stages[0] if stages is not None else []
        if stages is not None:
            commits, aborts = ([stage.transaction.number for stage in some] for some in stages)
            locations = state.store.settle(commits, aborts, self._operations)
        elif transaction is not None and (transaction.wrote_pending or transaction.is_prepared):
            locations = state.store.commit(transaction.number, self._operations)
        else:
            locations = state.store.append(self._operations) if self._operations else []
        placed = self._placed(locations)
        for queue, lookup_identifier in self._removals:
            queue.remove(lookup_identifier)
        arrived = self._apply_sends(placed)
        arrived += self._apply_stages(committed)
        for queue, message, size, is_stored in self._inserts:
            key = message.lookup_identifier
            if is_stored:
                queue.insert(message, *placed[key])
            else:
                queue.insert(message, None, size)
            if deadline := queue.deadline_of(message):
                state.expiry.add(deadline, key, queue.number)
            arrived.append((queue, key))
        for queue, key in arrived:
            if queue.waiting or queue.kind is QueueKind.OUTGOING:
                state.outbox.arrived(queue, key)
        for queue, _ in self._removals:
            if queue.parent is not None:
                state.forget_unused(queue)

    def _placed(self, locations: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Lookup identifier -> (location, size) of everything this plan stored."""
        placed, places = {}, iter(locations)
        for operation in self._operations:
            if isinstance(operation, Insert | Move):
                assert operation.payload is not None
                key = priority_part(operation.deadline) | operation.key
                placed[key] = next(places), len(operation.payload)
        return placed

    def _apply_stages(self, stages: list[Stage]) -> list[tuple[Queue, int]]:
        state, arrived = self._state, []
        for stage in stages:
            for number, entries in stage.messages.items():
                queue = state.queues.get(number)
                if queue is not None:
                    queue.adopt(entries, stage.volume[number], stage.asking.get(number, ()))
                    if queue.waiting or queue.kind is QueueKind.OUTGOING:
                        arrived += [(queue, key) for key in entries]
        for deadline, key, number in self._deadlines:
            state.expiry.add(deadline, key, number)
        return arrived

    def _apply_sends(self, placed: dict[int, tuple[int, int]]) -> list[tuple[Queue, int]]:
        arrived = []
        for send in self._sends:
            queue, key = send.queue, send.message.lookup_identifier
            if queue.deleted:  # written ahead, and its queue went before the commit
                if send.location is not None:
                    with suppress(StoreFull):  # the commit stands; what stays behind goes at the next start
                        self._state.store.append([Remove(sequence_of(key), send.location)])
                continue
            if key in placed:
                queue.settle(key, *placed[key])
            queue.unlock(key)
            if deadline := queue.deadline_of(send.message):
                self._state.expiry.add(deadline, key, queue.number)
            arrived.append((queue, key))
        return arrived


def store_insert(queue: Queue, message: Message) -> Insert:
    """The operation that stores a message in a queue."""
    lookup_identifier = message.lookup_identifier
    return Insert(
        queue.number,
        sequence_of(lookup_identifier),
        deadline_word(lookup_identifier, queue.deadline_of(message)),
        encode_message(message),
    )


def new_identifier(machine: bytes, sequence: int) -> bytes:
    """An OBJECTID: the machine's GUID and the low 32 bits of the sequence number; never the null identifier."""
    identifier = machine + (sequence & 0xFFFFFFFF).to_bytes(4, "little")
    assert identifier != NULL_IDENTIFIER
    return identifier
