"""Sending: checks, quotas, copies ([MS-MQDMPR] 3.1.7.1.27)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from openmsmq.model.admission import MAXIMUM_MESSAGE_FORMAT_NAME, check_message
from openmsmq.model.constants import INFINITE, Access, Delivery
from openmsmq.model.errors import (
    HResult,
    InsufficientResources,
    MessageStorageFailed,
    MsmqError,
    QueueDeleted,
    TransactionUsage,
)
from openmsmq.model.lookup_id import priority_part
from openmsmq.model.message import Message
from openmsmq.model.names import PrivateFormatName, parse_format_name
from openmsmq.queueing.change_set import ChangeSet
from openmsmq.queueing.changes import Changes, new_identifier
from openmsmq.queueing.descriptors import OpenQueueDescriptor
from openmsmq.queueing.properties import PRIV_LEVEL_BODY, PRIV_LEVEL_NONE
from openmsmq.queueing.queue import APPLICATION_QUEUES, Queue, QueueKind, over_quota, runs
from openmsmq.queueing.records import TIME_MASK, split_deadline_word
from openmsmq.queueing.transactions import Transactions
from openmsmq.queueing.unit_of_work import Transaction, TransactionEvent
from openmsmq.store import MessageRows, Operation, StoreFailed, StoreFull

#: Returns whether a body can be encrypted for a queue manager (GUID, 16 bytes) with at least a privacy level.
CanSeal: TypeAlias = Callable[[bytes, int], bool]
_SEND: Final = Access.SEND  # Enum member lookup is slow
_LONGEST_NAME: Final = MAXIMUM_MESSAGE_FORMAT_NAME // 2
_SEALING = 2048  # maximum bytes that encryption adds to a packet: padding and an RSA-encrypted key


def seals_nothing(machine: bytes, level: int) -> bool:
    """Null `CanSeal`, for a queue manager that has no public keys of others."""
    return False


class MessageBatch:
    """Messages for the fast path: non-transactional, whose arrival has no other consequences. Their records are
    complete.

    Attributes:
        queues: queue of each message, as returned by `SendOperations.fast_path_queues`.
        rows: their records; the keys begin with `changes.sequence` + 1.
        charged: array('I') with the bytes that each counts for in quotas (`Message.size`).
        recoverable: whether all are recoverable; otherwise all are express.
    """

    def __init__(self, queues: list[Queue], rows: MessageRows, charged: array[int], recoverable: bool) -> None:
        self.queues: Final = queues
        self.rows: Final = rows
        self.charged: Final = charged
        self.recoverable: Final = recoverable


class SendOperations:
    """Puts messages into queues."""

    def __init__(self, changes: Changes, transactions: Transactions, can_seal: CanSeal) -> None:
        self._changes: Final = changes
        self._can_seal: Final = can_seal
        self._transactions: Final = transactions

    def enqueue(
        self, descriptor: OpenQueueDescriptor, message: Message, transaction: Transaction | None = None
    ) -> bytes:
        """Enqueue Message To An Open Queue, [MS-MQDMPR] 3.1.7.1.27. Returns the message's identifier (20 bytes).

        Takes ownership of `message` and sets its fields in place. Raises QueueDeleted, TransactionUsage,
        InsufficientResources (quotas, size), MessageStorageFailed (disk full). With a multiple-element format name each
        queue gets a copy, all or none.
        """
        if descriptor.access is not _SEND:
            raise MsmqError(HResult.MQ_ERROR_ACCESS_DENIED, f"{descriptor.format_name} was not opened for sending")
        try:  # inlined `storing`, because this runs for every message
            return self._enqueue(descriptor, message, transaction)
        except (StoreFull, StoreFailed) as error:
            raise MessageStorageFailed(detail=str(error)) from error

    def _enqueue(self, descriptor: OpenQueueDescriptor, message: Message, transaction: Transaction | None) -> bytes:
        targets = descriptor.parts or [descriptor]
        message.destination_multi_queue_format_name = descriptor.name if descriptor.parts else ""
        if transaction is not None:
            transaction.check(TransactionEvent.WORK)
        change = ChangeSet(self._changes)
        copies: list[tuple[Queue, Message, int]] = []
        for target in targets:
            queue = target.queue
            if queue is None:
                raise QueueDeleted(detail=str(target.format_name))
            if transaction is not None and queue.exactly_once is not None:
                queue = queue.exactly_once
            copy = message if len(targets) == 1 else message.copy()
            copy.destination_queue_format_name = target.name
            if queue.kind is QueueKind.OUTGOING:  # [MS-MQDMPR] 3.1.1.12, note 12 (D-20): limited by the machine
                longest = self._changes.machine.default_time_to_reach_queue
                copy.time_to_reach_queue = min(copy.time_to_reach_queue, longest)
                copy.authentication_level = 0  # determined by the destination
            size = copy.size
            self.check(queue, copy, size, transaction is not None)
            if transaction is not None:
                copy.delivery_guarantee = Delivery.RECOVERABLE
                copy.priority = 0
                copy.transaction_identifier = new_identifier(self._changes.machine.identifier, transaction.number)
            if self._changes.throttled or not change.has_room(queue, size):
                raise InsufficientResources(detail=self._why_full(queue))
            self._changes.stamp(copy)
            copies.append((queue, copy, size))
            if transaction is None:
                change.insert(queue, copy, size)
                if copy.journaling_requested or copy.acknowledgements_requested:
                    change.arrive(queue, copy)
        if transaction is None:
            change.commit()
        else:
            self._transactions.send(transaction, copies)
        return copies[0][1].identifier

    @staticmethod
    def fast_path_queues(descriptors: Iterable[OpenQueueDescriptor]) -> list[Queue]:
        """Return the queues that accept `MessageBatch` without a check of each message, up to the first descriptor
        whose queue does not. The others need `enqueue`, which checks and refuses message by message."""
        queues: list[Queue] = []
        latest: Queue | None = None
        for descriptor in descriptors:
            queue = descriptor.queue
            if queue is None or descriptor.access is not _SEND or len(descriptor.name) > _LONGEST_NAME:
                break
            if queue is not latest and not accepts_batches(queue):
                break
            latest = queue
            queues.append(queue)
        return queues

    def enqueue_batch(self, messages: MessageBatch, also: Sequence[Operation] = ()) -> bool:
        """Put many messages into their queues, all or none; `also` joins the batch of recoverable ones. Returns False,
        with nothing changed, if a quota or the disk is full, or if sequence numbers must be reserved first."""
        changes, rows, recoverable = self._changes, messages.rows, messages.recoverable
        if changes.throttled or changes.has_failed or not changes.has_numbers(len(rows)):
            return False
        if not self._have_room(messages):
            return False
        try:
            locations = changes.store.insert_rows(rows, also) if recoverable else rows.keys
        except (StoreFull, StoreFailed):
            return False
        changes.next_sequences(len(rows))
        records = b"" if recoverable else bytes(rows.records)
        try:
            for queue, start, end in runs(messages.queues):
                if not recoverable:
                    deadlines = _hold(queue, messages, records, start, end)
                elif end - start == len(rows):
                    deadlines = queue.place(rows.keys, locations, rows.sizes, rows.deadlines)
                else:
                    part = slice(start, end)
                    deadlines = queue.place(rows.keys[part], locations[part], rows.sizes[part], rows.deadlines[part])
                for position, deadline in deadlines:
                    changes.deadlines.add(deadline, position, queue.number)
                if queue.kind is QueueKind.OUTGOING:
                    changes.outbox.arrived(queue, rows.keys[start])
        except Exception as error:
            changes.fail(error)
        return True

    def _have_room(self, messages: MessageBatch) -> bool:
        """Whether the quotas allow all messages."""
        changes, queues = self._changes, messages.queues
        limited = changes.machine.quota != INFINITE
        for queue, _, _ in runs(queues):
            limited = limited or queue.properties.quota != INFINITE
        if not limited:
            return True
        change = ChangeSet(changes)
        return all(change.charge(queue, size) for queue, size in zip(queues, messages.charged, strict=True))

    def _why_full(self, queue: Queue) -> str:
        if self._changes.throttled:
            return "the queue manager accepts no messages: its disk has less free space than minimum_free_megabytes"
        return over_quota(queue, self._changes.machine.quota)

    def check(self, queue: Queue, message: Message, size: int, transactional: bool) -> None:
        """Check that a queue accepts a message. `transactional`: it is sent in a transaction. Raises MsmqError."""
        is_outgoing = queue.kind is QueueKind.OUTGOING  # unknown whether the destination is transactional
        is_sealed_later = is_outgoing and bool(message.privacy_level) and not message.symmetric_key
        if is_sealed_later:
            self._check_sealing(message)
        if queue.properties.transactional and not transactional:
            raise TransactionUsage(detail=f"{queue.properties.path_name} takes messages in transactions only")
        if transactional and not queue.properties.transactional and not is_outgoing:
            raise TransactionUsage(detail=f"{queue.properties.path_name} is not transactional")
        overhead = _SEALING if is_sealed_later else 0
        if is_outgoing:
            overhead += _renaming(message, self._changes.machine.computer_name)
        check_message(message, overhead, size)
        # Deviation D-140: a signature without a sender identifier authenticates nobody.
        is_authentic = message.authentication_level and message.sender_identifier_type
        if queue.properties.authentication and not is_authentic:
            raise MsmqError(HResult.MQ_ERROR_MESSAGE_NOT_AUTHENTICATED, queue.properties.path_name)
        privacy = queue.properties.privacy_level
        if (privacy == PRIV_LEVEL_BODY and not message.privacy_level) or (
            privacy == PRIV_LEVEL_NONE and message.privacy_level
        ):
            raise MsmqError(HResult.MQ_ERROR_ILLEGAL_OPERATION, f"privacy level of {queue.properties.path_name}")

    def _check_sealing(self, message: Message) -> None:
        """Raises MsmqError unless the body can be encrypted for the destination. Direct format names do not identify
        the queue manager ([MS-MQQB] 3.1.7.1.5)."""
        name = message.destination_queue_format_name
        parsed, machine = parse_format_name(name), b""
        if isinstance(parsed, PrivateFormatName):
            machine = parsed.guid.bytes_le
        elif (place := self._changes.registry.place_of(parsed)) is not None:
            machine = place.machine
        if not (machine and self._can_seal(machine, message.privacy_level)):
            raise MsmqError(
                HResult.MQ_ERROR_PUBLIC_KEY_NOT_FOUND,
                f"no public key is known to encrypt the body for {name} with privacy level {message.privacy_level}",
            )


def _hold(queue: Queue, messages: MessageBatch, records: bytes, start: int, end: int) -> list[tuple[int, int]]:
    """Put express messages, whose `records` are those of the batch, into a queue. Returns (lookup identifier, deadline)
    of those that expire."""
    rows = messages.rows
    # As lists: compiled code takes three times as long for an item of an array.
    words: list[int] = rows.deadlines[start:end].tolist()
    keys: list[int] = rows.keys[start:end].tolist()
    bounds: list[int] = rows.bounds[start : end + 1].tolist()
    queue.hold(
        [priority_part(words[index]) | keys[index] for index in range(len(keys))],
        [records[bounds[index] : bounds[index + 1]] for index in range(len(keys))],
        messages.charged[start:end].tolist(),
    )
    return [split_deadline_word(words[index], keys[index]) for index in range(len(keys)) if words[index] & TIME_MASK]


def accepts_batches(queue: Queue) -> bool:
    """Whether a queue accepts `MessageBatch` without a check of each message."""
    return not queue.waiters and accepts_unchecked(queue)


def accepts_unchecked(queue: Queue) -> bool:
    """Whether a queue accepts messages without transaction, signature and encryption, so that none must be checked."""
    properties = queue.properties
    return not (
        (queue.kind not in APPLICATION_QUEUES and queue.kind is not QueueKind.OUTGOING)
        or properties.transactional or properties.authentication
        or properties.privacy_level == PRIV_LEVEL_BODY
    )  # fmt: skip


def _renaming(message: Message, computer_name: str) -> int:
    """Return how many bytes format names of local queues grow when the computer name replaces `.` or `localhost`
    (D-108)."""
    names = (
        message.administration_queue_format_name + "," + message.response_queue_format_name + ","
        + message.destination_multi_queue_format_name
    )  # fmt: skip
    local = names.count(":.\\") + names.lower().count(":localhost\\")
    return 2 * len(computer_name) * local
