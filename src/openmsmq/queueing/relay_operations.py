"""Operations of relays on queues of this machine: accept messages of another machine with their identity, and forward
messages to it. Not part of the specifications; docs/moving.md states the guarantees."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from openmsmq.model.admission import check_message
from openmsmq.model.constants import INFINITE, Acknowledge, Delivery, Journal, MessageClass
from openmsmq.model.errors import (
    HResult,
    InsufficientResources,
    MessageStorageFailed,
    MsmqError,
    QueueDeleted,
    TransactionUsage,
)
from openmsmq.model.message import Message
from openmsmq.model.names import DirectFormatName, SingleFormatName
from openmsmq.model.text import time_text
from openmsmq.queueing.change_set import ChangeSet
from openmsmq.queueing.changes import Changes
from openmsmq.queueing.message_locks import MessageLocks
from openmsmq.queueing.queue import APPLICATION_QUEUES, Queue, over_quota
from openmsmq.queueing.storage import storing
from openmsmq.store import Drop, Operation, Put

HELD: Final = "relay"  # subqueue of forwarded messages that are not yet acknowledged
HELD_PREFIX: Final = b"relay-held/"  # position of the original, by identifier of the forwarded message
MOST_LATE: Final = 60_000  # milliseconds since the end of its time after which a message is not taken in
_DROPS: Final = 1000  # records that one change drops
_HELD: Final = struct.Struct("<IQ")  # number of the subqueue, lookup identifier
_ARRIVAL: Final = int(Acknowledge.FULL_REACH_QUEUE)
_DEADLETTER: Final = int(Journal.DEADLETTER)
_RECOVERABLE: Final = int(Delivery.RECOVERABLE)


class RefusedOnward(NamedTuple):
    """A message that another machine refused, its queue, and the class of the acknowledgment."""

    queue: Queue
    message: Message
    message_class: int


class RelayOperations:
    """Operations of relays. Each method is one atomic change, durable after the next sync."""

    def __init__(self, changes: Changes, holds: MessageLocks) -> None:
        self._changes: Final = changes
        self._holds: Final = holds

    def take_in(
        self, queue: Queue, messages: Sequence[Message], also: Callable[[list[Message]], Sequence[Operation]]
    ) -> list[MsmqError | None]:
        """Put messages that were read at another machine into a queue, with their identifiers, times and counts.

        The other machine acknowledges their receipt when it removes them, so no acknowledgment is requested here. In a
        transactional queue, the first refused message ends the operation.

        Args:
            also: called with the accepted messages; returns operations that join the batch.

        Returns:
            For each message why it was refused, or None. Messages beyond the end of the list were not processed.

        Raises MessageStorageFailed and QueueDeleted, with nothing changed.
        """
        if queue.deleted:
            raise QueueDeleted(detail=f"{queue.properties.path_name} was deleted")
        if self._changes.throttled:
            raise MessageStorageFailed(detail="the disk has less free space than minimum_free_megabytes")
        change = ChangeSet(self._changes)
        outcomes: list[MsmqError | None] = []
        taken = []
        with storing():
            for message in messages:
                message.acknowledgements_requested = 0
                size = message.size
                error = self._why_not(change, queue, message, size)
                outcomes.append(error)
                if error is None:
                    self._place(change, queue, message, size)
                    taken.append(message)
                elif queue.properties.transactional:
                    break
            if taken:
                change.also(also(taken))
                change.commit()
        return outcomes

    def _why_not(self, change: ChangeSet, queue: Queue, message: Message, size: int) -> MsmqError | None:
        if queue.kind in APPLICATION_QUEUES and message.is_transactional != bool(queue.properties.transactional):
            kind = "a transaction" if message.is_transactional else "no transaction"
            return TransactionUsage(
                detail=f"the message is of {kind}, and {queue.properties.path_name} "
                f"{'takes' if queue.properties.transactional else 'does not take'} messages of transactions"
            )
        try:
            check_message(message, size=size)
        except MsmqError as error:
            return error
        deadline = queue.deadline_of(message)
        if deadline and self._changes.clock() - deadline > MOST_LATE:
            return MsmqError(
                HResult.MQ_ERROR,
                f"by the clock of this machine its time was over at {time_text(deadline // 1000)}, so it would expire "
                "at once; if it does not expire at the other machine, the clocks differ",
            )
        if not change.has_room(queue, size):
            return InsufficientResources(detail=over_quota(queue, self._changes.machine.quota))
        return None

    def _place(self, change: ChangeSet, queue: Queue, message: Message, size: int) -> None:
        arrived = message.arrival_time
        self._changes.number(message, self._changes.clock())
        message.arrival_time = arrived or message.arrival_time
        change.insert(queue, message, size)

    def hand_on(
        self, queue: Queue, name: SingleFormatName, acknowledged_at: str, limit: int,
        also: Callable[[list[Message]], Operation], aside: set[int], refuse: Callable[[Message, MsmqError], None],
    ) -> int:  # fmt: skip
        """Send up to `limit` messages of a queue to a queue of another machine, in one change.

        They get new identifiers of this machine: the other machine would discard known identifiers as duplicates, and a
        transactional sequence has one sender. The time of sending is kept. Transactional messages are thereby received
        here; a refusal by the other machine makes a dead letter. Others are kept in a subqueue until the other machine
        acknowledges their arrival at the queue `acknowledged_at` (a format name); see `take_acknowledgments`.

        A message that becomes too large for a packet by the further names, or whose body was encrypted on its way here
        and could not be on its way on, stays in the queue: `refuse` is called, its position is added to `aside`, and
        messages at these positions are left out from then on. In a transactional queue, which keeps its order, those
        before it are sent, and the error is raised if it is the first.

        Returns the number of messages; it is smaller if the quota of the machine lacks room for more. Raises
        QueueDeleted, MessageStorageFailed, InsufficientResources if there is no room for one message, and, for a
        transactional queue, the errors of `_check_onward`, with nothing changed.
        """
        if queue.deleted:
            raise QueueDeleted(detail=f"{queue.properties.path_name} was deleted")
        aside -= {key for key in aside if key not in queue.entries}
        keys = [key for key in queue.heads(limit + len(aside)) if key not in aside][:limit]
        if not keys:
            return 0
        handed_on: list[Message] = []
        with storing():
            outgoing = self._changes.outgoing_for(name)
            change = ChangeSet(self._changes)
            for key in keys:
                message = self._holds.readable(queue, key)
                onward = self._onward(message, str(name), acknowledged_at)
                size = onward.size
                try:
                    _check_onward(onward, size, name)
                except MsmqError as error:
                    if not queue.properties.transactional:
                        aside.add(key)
                        refuse(message, error)
                        continue
                    if not handed_on:
                        raise
                    break  # those before it are sent; the next call raises
                if message.is_transactional:
                    change.remove(queue, key, message, MessageClass.ACK_RECEIVE)
                else:
                    held = self._changes.registry.subqueue(queue, HELD)
                    change.keep(queue, key, message, held)
                    change.also([Put(HELD_PREFIX + onward.identifier, _HELD.pack(held.number, key))])
                if not change.has_room(outgoing, size, reuse=True):
                    if handed_on:  # there is room for these; `change` also has this one, and is dropped
                        return self.hand_on(queue, name, acknowledged_at, len(handed_on), also, aside, refuse)
                    raise InsufficientResources(detail=over_quota(outgoing, self._changes.machine.quota))
                change.insert(outgoing, onward, size)
                handed_on.append(onward)
            if handed_on:
                change.also([also(handed_on)])
                change.commit()
        return len(handed_on)

    def take_acknowledgments(self, queue: Queue, limit: int) -> list[RefusedOnward]:
        """Process up to `limit` acknowledgments in a queue. Messages that reached the other machine are received here;
        refused ones return to their place. Acknowledgments of unknown messages are dropped.

        Returns the refused messages. Raises MessageStorageFailed, with nothing changed.
        """
        refused = []
        with storing():
            change = ChangeSet(self._changes)
            for key in queue.heads(limit):
                acknowledgment = self._holds.readable(queue, key)
                change.take_out(queue, key)
                found = self._held(acknowledgment.correlation_identifier)
                if found is None:
                    continue
                held, lookup_identifier = found
                change.also([Drop(HELD_PREFIX + acknowledgment.correlation_identifier)])
                if held is None or lookup_identifier not in held.entries or lookup_identifier in held.locked:
                    continue
                message = self._holds.readable(held, lookup_identifier)
                if acknowledgment.message_class == MessageClass.ACK_REACH_QUEUE:
                    change.remove(held, lookup_identifier, message, MessageClass.ACK_RECEIVE)
                elif held.parent is not None:
                    change.keep(held, lookup_identifier, message, held.parent)
                    refused.append(RefusedOnward(held.parent, message, acknowledgment.message_class))
            change.commit()
        return refused

    def forget_lost(self) -> None:
        """Drop what is recorded of forwarded messages that are no longer kept: a restart loses express messages, and a
        queue may have been deleted; no acknowledgment may ever come. Raises MessageStorageFailed."""
        definitions, queues = self._changes.store.definitions, self._changes.registry.queues
        lost = []
        for name in [name for name in definitions if name.startswith(HELD_PREFIX)]:
            number, lookup_identifier = _HELD.unpack(definitions[name])
            held = queues.get(number)
            if held is None or lookup_identifier not in held.entries:
                lost.append(name)
        for start in range(0, len(lost), _DROPS):
            with storing():
                change = ChangeSet(self._changes)
                change.also([Drop(name) for name in lost[start : start + _DROPS]])
                change.commit()

    def _held(self, identifier: bytes) -> tuple[Queue | None, int] | None:
        value = self._changes.store.definitions.get(HELD_PREFIX + identifier)
        if value is None:
            return None
        number, lookup_identifier = _HELD.unpack(value)
        return self._changes.registry.queues.get(number), lookup_identifier

    def _onward(self, message: Message, destination: str, acknowledged_at: str) -> Message:
        sent = message.sent_time, message.sent_milliseconds
        onward = message.copy()
        if message.is_transactional:
            onward.delivery_guarantee, onward.priority = _RECOVERABLE, 0
            onward.first_in_transaction = onward.last_in_transaction = True
        self._changes.stamp(onward)
        onward.sent_time, onward.sent_milliseconds = sent
        onward.destination_queue_format_name = destination
        onward.destination_multi_queue_format_name = ""
        onward.time_to_reach_queue = INFINITE
        # The signature covers the names and the queue manager of the original; the key is that of a body which is
        # stored in plain text.
        onward.signature = onward.multiple_destination_signature = onward.symmetric_key = b""
        onward.authentication_level = 0  # determined by the destination
        onward.journaling_requested = _DEADLETTER if message.is_transactional else 0
        onward.acknowledgements_requested = 0
        onward.abort_count = onward.move_count = onward.last_move_time = 0
        if message.is_transactional:  # a transaction per message, with the number of the message
            onward.transaction_identifier = onward.identifier
        else:
            onward.administration_queue_format_name, onward.acknowledgements_requested = acknowledged_at, _ARRIVAL
        return onward


def _check_onward(message: Message, size: int, name: SingleFormatName) -> None:
    """Check that a message can be sent to a queue of another machine. Raises MsmqError."""
    if message.privacy_level and isinstance(name, DirectFormatName):  # [MS-MQQB] 3.1.7.1.5
        raise MsmqError(
            HResult.MQ_ERROR_UNSUPPORTED_FORMATNAME_OPERATION,
            f"its sender requested encryption of the body, and no key is known for the machine in {name}",
        )
    check_message(message, size=size)
