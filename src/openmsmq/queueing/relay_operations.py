"""What relays do to queues of this machine: take in messages of another machine with their identity, and hand messages
on to it. No part of the specifications; docs/moving.md says what is promised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from openmsmq.model.admission import check_message
from openmsmq.model.constants import INFINITE, Acknowledge, Delivery, Journal, MessageClass
from openmsmq.model.errors import InsufficientResources, MessageStorageFailed, MsmqError, QueueDeleted, TransactionUsage
from openmsmq.model.message import Message
from openmsmq.model.names import SingleFormatName
from openmsmq.queueing.change_set import ChangeSet
from openmsmq.queueing.changes import Changes
from openmsmq.queueing.message_locks import MessageLocks
from openmsmq.queueing.queue import APPLICATION_QUEUES, Queue, over_quota
from openmsmq.queueing.storage import storing
from openmsmq.store import Operation

_NACK: Final = int(Acknowledge.NEG_ARRIVAL)
_DEADLETTER: Final = int(Journal.DEADLETTER)
_RECOVERABLE: Final = int(Delivery.RECOVERABLE)


class RelayOperations:
    """Each method is one atomic change; what it wrote is durable after the next sync."""

    def __init__(self, changes: Changes, holds: MessageLocks) -> None:
        self._changes: Final = changes
        self._holds: Final = holds

    def take_in(
        self, queue: Queue, messages: Sequence[Message], also: Callable[[list[Message]], Operation]
    ) -> list[MsmqError | None]:
        """Put messages that were read at another machine into a queue, with their identifiers, times and counts.

        The other machine acknowledges that they were received, when it removes them: nothing asks for that any more
        here. In a transactional queue nothing follows a message that is refused.

        Returns:
            For each message why it is refused, or None. Those behind the end of the list were not looked at.

        Raises MessageStorageFailed and QueueDeleted, with nothing changed. `also` gets the messages that are taken.
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
                change.also([also(taken)])
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
        if not change.has_room(queue, size):
            return InsufficientResources(detail=over_quota(queue, self._changes.machine.quota))
        return None

    def _place(self, change: ChangeSet, queue: Queue, message: Message, size: int) -> None:
        arrived = message.arrival_time
        self._changes.number(message, self._changes.clock())
        message.arrival_time = arrived or message.arrival_time
        change.insert(queue, message, size)

    def hand_on(
        self, queue: Queue, name: SingleFormatName, undelivered: str, limit: int, also: Callable[[list[Message]], Operation]
    ) -> int:
        """Receive up to `limit` messages of a queue and send them to a queue of another machine, in one change.

        They get identifiers of this machine: the other one would take what it has seen before for a duplicate, and
        sequences of transactions have one sender. The time of sending stays. What the other machine refuses comes to
        the queue `undelivered` (a format name), or to the dead letters if it is of a transaction.

        Returns how many. Raises MessageStorageFailed, InsufficientResources and what `check_message` raises, with
        nothing changed.
        """
        if queue.deleted:
            raise QueueDeleted(detail=f"{queue.properties.path_name} was deleted")
        keys = queue.heads(limit)
        if not keys:
            return 0
        handed_on = []
        with storing():
            outgoing = self._changes.outgoing_for(name)
            change = ChangeSet(self._changes)
            for key in keys:
                message = self._holds.readable(queue, key)
                change.remove(queue, key, message, MessageClass.ACK_RECEIVE)
                onward = self._onward(message, str(name), undelivered)
                size = onward.size
                check_message(onward, size=size)
                if not change.has_room(outgoing, size, reuse=True):
                    raise InsufficientResources(detail=over_quota(outgoing, self._changes.machine.quota))
                change.insert(outgoing, onward, size)
                handed_on.append(onward)
            change.also([also(handed_on)])
            change.commit()
        return len(handed_on)

    def _onward(self, message: Message, destination: str, undelivered: str) -> Message:
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
        onward.authentication_level = 0  # the destination finds it out
        onward.journaling_requested = _DEADLETTER
        onward.acknowledgements_requested = 0
        onward.abort_count = onward.move_count = onward.last_move_time = 0
        if message.is_transactional:  # each is a transaction of its own, with the message's number
            onward.transaction_identifier = onward.identifier
        else:
            onward.administration_queue_format_name, onward.acknowledgements_requested = undelivered, _NACK
        return onward
