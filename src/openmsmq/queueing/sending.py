"""Sending: checks, quotas, copies, writing ahead of a commit ([MS-MQDMPR] 3.1.7.1.27)."""

from __future__ import annotations

from dataclasses import replace

from openmsmq.model.admission import check_message
from openmsmq.model.constants import Access, Delivery
from openmsmq.model.errors import (
    HResult,
    InsufficientResources,
    MsmqError,
    QueueDeleted,
    TransactionUsage,
)
from openmsmq.model.message import Message
from openmsmq.queueing.core import storing
from openmsmq.queueing.plan import Plan, new_identifier
from openmsmq.queueing.properties import PRIV_LEVEL_BODY, PRIV_LEVEL_NONE
from openmsmq.queueing.queue import Lock, LockKind, Queue, QueueKind, over_quota
from openmsmq.queueing.readers import OpenQueueDescriptor
from openmsmq.queueing.reading import Reading
from openmsmq.queueing.transactions import Enqueued, Transaction, TransactionEvent


class Sending(Reading):
    """The operation that puts messages into queues."""

    def enqueue(
        self, descriptor: OpenQueueDescriptor, message: Message, transaction: Transaction | None = None
    ) -> bytes:
        """Enqueue Message To An Open Queue, [MS-MQDMPR] 3.1.7.1.27. Returns the message's identifier (20 bytes).

        The message becomes the queue's: what the queue manager fills in, it fills into this very object.

        Raises QueueDeleted, TransactionUsage, InsufficientResources (quotas, size), MessageStorageFailed (disk full).
        With a multiple-element format name each queue gets its copy, all or none.
        """
        if descriptor.access is not Access.SEND:
            raise MsmqError(HResult.MQ_ERROR_ACCESS_DENIED, f"{descriptor.format_name} was not opened for sending")
        with storing():
            return self._enqueue(descriptor.parts or [descriptor], message, transaction)

    def _enqueue(self, targets: list[OpenQueueDescriptor], message: Message, transaction: Transaction | None) -> bytes:
        if transaction is not None:
            transaction.check(TransactionEvent.WORK)
        plan = Plan(self.state)
        copies: list[tuple[Queue, Message, int]] = []
        for target in targets:
            queue = target.queue
            if queue is None:
                raise QueueDeleted(detail=str(target.format_name))
            if transaction is not None and queue.exactly_once is not None:
                queue = queue.exactly_once
            copy = message if len(targets) == 1 else replace(message)
            copy.destination_queue_format_name = target.name
            if queue.kind is QueueKind.OUTGOING:  # [MS-MQDMPR] 3.1.1.12, note 12 (D-20): the machine has a maximum
                longest = self.state.machine.default_time_to_reach_queue
                copy.time_to_reach_queue = min(copy.time_to_reach_queue, longest)
            size = copy.size
            self._check_message(queue, copy, size, transaction)
            if self.state.throttled or not plan.has_room(queue, size):
                raise InsufficientResources(detail=self._why_full(queue))
            self.state.stamp(copy, queue)
            copies.append((queue, copy, size))
            if transaction is None:
                plan.insert(queue, copy, size)
                plan.arrive(queue, copy)
        if transaction is None:
            plan.carry_out()
        else:
            self._enqueue_in(transaction, copies)
        return copies[0][1].identifier

    def _why_full(self, queue: Queue) -> str:
        if self.state.throttled:
            return "the queue manager accepts no messages: its disk has less free space than minimum_free_megabytes"
        return over_quota(queue, self.state.machine.quota)

    def _check_message(self, queue: Queue, message: Message, size: int, transaction: Transaction | None) -> None:
        is_outgoing = queue.kind is QueueKind.OUTGOING  # nobody here knows whether the destination is transactional
        if is_outgoing and message.privacy_level:
            raise MsmqError(HResult.MQ_ERROR_PUBLIC_KEY_NOT_FOUND, f"no key of {queue.properties.path_name}")
        if queue.properties.transactional and transaction is None:
            raise TransactionUsage(detail=f"{queue.properties.path_name} takes messages in transactions only")
        if transaction is not None and not queue.properties.transactional and not is_outgoing:
            raise TransactionUsage(detail=f"{queue.properties.path_name} is not transactional")
        check_message(message, 0, size)
        if queue.properties.authentication:  # signatures can't be verified here, so none counts as authentic
            raise MsmqError(HResult.MQ_ERROR_MESSAGE_NOT_AUTHENTICATED, queue.properties.path_name)
        privacy = queue.properties.privacy_level
        if (privacy == PRIV_LEVEL_BODY and not message.privacy_level) or (
            privacy == PRIV_LEVEL_NONE and message.privacy_level
        ):
            raise MsmqError(HResult.MQ_ERROR_ILLEGAL_OPERATION, f"privacy level of {queue.properties.path_name}")
        if transaction is not None:
            message.delivery_guarantee = Delivery.RECOVERABLE
            message.priority = 0
            message.transaction_identifier = new_identifier(self.state.machine.identifier, transaction.number)

    def _enqueue_in(self, transaction: Transaction, copies: list[tuple[Queue, Message, int]]) -> None:
        """A send in a transaction: locked until commit. All but the last one are written ahead, so that a large
        transaction does not sit in memory; the last one waits until it is known to be the last."""
        if transaction.last_send is not None:
            self.write_ahead(transaction, transaction.last_send)  # may fail, so it comes before any change
        for queue, message, size in copies:
            message.first_in_transaction = transaction.last_send is None
            send = Enqueued(queue, message, size)
            queue.insert(message, None, size, Lock(LockKind.ENQUEUE, transaction))
            transaction.operations.append(send)
            transaction.last_send = send
