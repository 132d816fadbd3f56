"""The transactional sequences of outgoing queues, and the messages that have their numbers.

A number is durable before its message is sent, and is never changed (deviation D-97). `QueueSequence.number` assigns
numbers to many messages at once; `ready` is called when they are durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from openmsmq.packet.internal import OrderAckBody
from openmsmq.peering import durable
from openmsmq.queueing.outgoing_queues import OutgoingQueue, SequenceInfo
from openmsmq.store import Drop, Operation
from openmsmq.transport.sequence import OutgoingSequence, SequenceId


class Identifiers:
    """Assigns TxSequenceIDs, each higher than all earlier ones, also after a restart (deviation D-97)."""

    def __init__(self, last: SequenceId, seconds: Callable[[], int]) -> None:
        """`seconds` is the time since 1970 UTC."""
        self._last, self._seconds = last, seconds

    def new(self) -> SequenceId:
        now = max(self._seconds(), 1) & 0xFFFFFFFF
        last = self._last
        self._last = SequenceId(now, 1) if now > last.timestamp else SequenceId(last.timestamp, last.ordinal + 1)
        return self._last


@dataclass(slots=True, eq=False)
class QueueSequence:
    """The sequence of one outgoing queue.

    Attributes:
        peer: the queue manager on whose session the latest message was sent; empty before.
        pending: durable numbers of messages to be sent, in order.
        is_waiting: numbers were assigned that are not durable yet.
        last_ordered: the number in the latest OrderAck; the next one may be of another sequence.
    """

    queue: OutgoingQueue
    core: OutgoingSequence
    peer: bytes = b""
    pending: deque[int] = field(default_factory=deque)
    is_waiting: bool = False
    messages: dict[int, int] = field(default_factory=dict)  # number -> lookup identifier, unacknowledged
    chunks: dict[int, int] = field(default_factory=dict)  # first number -> last number of each stored record
    is_stored: bool = False
    last_ordered: SequenceInfo = SequenceInfo()

    def number(self, lookup_identifiers: Sequence[int]) -> tuple[list[int], list[Operation]]:
        """Assign numbers to messages. The returned operations must be durable before `ready` is called; if they cannot
        be stored, call `take_back`."""
        core, number = self.core, self.queue.number
        operations = self._renew() if self._is_done() else []
        first = core.next_number
        numbers = [core.assign() for _ in lookup_identifiers]
        self.messages.update(zip(numbers, lookup_identifiers, strict=True))
        self.chunks[first] = numbers[-1]
        operations.append(durable.put_numbers(number, first, lookup_identifiers))
        if not self.is_stored:
            operations += self._put_sequence()
        self.is_waiting = True
        return numbers, operations

    def _is_done(self) -> bool:
        """Whether the sequence has had messages, and all have left the queue; withdraws the first ones that have."""
        while self.messages and not self._is_there(number := next(iter(self.messages))):
            self.withdraw(number)
        return not self.messages and self.core.next_number > 1

    def _renew(self) -> list[Operation]:
        """Begin a new sequence, because the last messages left the queue without an OrderAck: a receiver that has lost
        its position would refuse messages that follow them (D-261)."""
        self.core.renew()
        operations: list[Operation] = [durable.drop_numbers(self.queue.number, first) for first in self.chunks]
        self.chunks.clear()
        self.pending.clear()
        self.is_stored = False
        return operations

    def stored(self) -> None:
        """Record that the operations returned by `number` are stored, possibly not yet durably."""
        self.is_stored = True

    def take_back(self, numbers: Sequence[int]) -> None:
        """Release the numbers assigned by `number` for reuse, because its operations could not be stored."""
        self.is_waiting = False
        self.chunks.pop(numbers[0], None)
        for number in numbers:
            self.withdraw(number)

    def ready(self, numbers: Iterable[int]) -> None:
        """Record that these numbers are durable."""
        self.is_waiting = False
        self.pending.extend(number for number in numbers if number in self.messages)

    def rewind(self) -> None:
        """Mark all unacknowledged messages to be resent in order."""
        if not self.is_waiting:
            self.pending = deque(self.core.unacknowledged)
        else:  # numbers that are not durable yet follow when they are
            durable_until = max((last for first, last in self.chunks.items() if last < self._newest), default=0)
            self.pending = deque(number for number in self.core.unacknowledged if number <= durable_until)

    @property
    def _newest(self) -> int:
        return max(self.chunks.values(), default=0)

    def previous(self, number: int) -> int:
        """Return PreviousTxSequenceNumber of a message that is sent now; messages that were removed from the queue are
        skipped (D-235)."""
        while (before := self.core.previous(number)) in self.messages and not self._is_there(before):
            self.withdraw(before)
        return before

    def _is_there(self, number: int) -> bool:
        return self.messages[number] in self.queue.entries

    def withdraw(self, number: int) -> None:
        """Record that the message of a number was removed from the queue without an OrderAck."""
        if self.messages.pop(number, None) is not None:
            self.core.withdraw(number)

    def withdraw_removed(self) -> bool:
        """Withdraw the numbers of messages that left the queue without an OrderAck: they were refused, have expired
        or were purged ([MS-MQQB] 3.1.5.7, 3.1.7.1.2). Returns whether there were any."""
        gone = [number for number, key in self.messages.items() if key not in self.queue.entries]
        for number in gone:
            self.withdraw(number)
        return bool(gone)

    def acknowledged(self, body: OrderAckBody, now: float) -> tuple[list[int], list[Operation]]:
        """Return the messages that an OrderAck completes, and operations for the batch of their removal."""
        before, identifier = self.core.last_ack, self.core.identifier
        done = self.core.acknowledged(body, now)
        if self.core.last_ack == before and self.core.identifier == identifier:
            return [], []
        of_ack = body.sequence_timestamp << 32 | body.sequence_ordinal
        self.last_ordered = SequenceInfo(of_ack, body.sequence_number, max(body.sequence_number - 1, 0))
        keys = [key for number in done if (key := self.messages.pop(number, None)) is not None]
        operations: list[Operation] = []
        renewed = self.core.identifier != identifier
        for first, last in list(self.chunks.items()):
            if renewed or last <= self.core.last_ack:
                del self.chunks[first]
                operations.append(durable.drop_numbers(self.queue.number, first))
        if renewed:
            self.messages.clear()
            operations.append(durable.drop_sequence(self.queue.number))
            self.is_stored = False
        else:
            operations += self._put_sequence()
        acknowledged = set(done)
        self.pending = deque(number for number in self.pending if number not in acknowledged)
        present = [key for key in keys if key in self.queue.entries]
        return present, operations

    def _put_sequence(self) -> list[Operation]:
        core = self.core
        stored = durable.StoredSequence(core.identifier, core.last_ack)
        return [durable.put_identifier(core.identifier), durable.put_sequence(self.queue.number, stored)]

    def report_resending(self, now: float, seconds: int) -> None:
        """Update the time of the next resend for management ([MS-MQQB] 3.1.5.6, 3.1.5.8.8). `now` is a time of the
        monotonic clock of the sequence, which corresponds to `seconds` since 1970 UTC."""
        core, info = self.core, self.queue.transfer_info
        deadline = core.next_deadline
        info.eod_resend_interval = core.resend_interval // 1000
        info.eod_resend_count = core.resend_index
        info.eod_resend_time = 0 if deadline is None else seconds + int(max(0.0, deadline - now)) // 1000

    def report(self, now: float, seconds: int, *, ordered: bool = False) -> None:
        """Update OutgoingTransferInfo ([MS-MQQB] 3.1.5.8.8). `ordered`: an OrderAck has just arrived."""
        self.report_resending(now, seconds)
        core, info = self.core, self.queue.transfer_info
        unacknowledged = core.unacknowledged
        info.eod_next_seq = self._info(core.next_number, core.next_number - 1)
        info.eod_no_ack_count = len(unacknowledged)
        info.eod_first_non_ack = self._info(unacknowledged[0], core.last_ack) if unacknowledged else SequenceInfo()
        last = unacknowledged[-1] if unacknowledged else 0
        info.eod_last_non_ack = self._info(last, core.previous(last)) if last else SequenceInfo()
        info.eod_last_ack_count = core.last_ack_count
        if ordered:
            info.eod_last_ack_time = seconds
            info.eod_last_ack = self.last_ordered

    def _info(self, number: int, previous: int) -> SequenceInfo:
        identifier = self.core.identifier
        return SequenceInfo(identifier.timestamp << 32 | identifier.ordinal, number, previous)


class Sequences:
    """The sequences of all outgoing queues that have sent transactional messages."""

    def __init__(
        self, definitions: Mapping[bytes, bytes], queues: Iterable[OutgoingQueue], seconds: Callable[[], int]
    ) -> None:
        self._identifiers = Identifiers(durable.identifier_of(definitions.get(durable.LAST_IDENTIFIER)), seconds)
        self._by_queue: dict[OutgoingQueue, QueueSequence] = {}
        self._by_identifier: dict[SequenceId, OutgoingQueue] = {}
        self.orphans: list[Operation] = []
        self._recover(definitions, {queue.number: queue for queue in queues})

    def _recover(self, definitions: Mapping[bytes, bytes], queues: Mapping[int, OutgoingQueue]) -> None:
        """Resume sequences with messages that wait for an OrderAck; the others are restarted when needed."""
        numbers: dict[int, dict[int, tuple[int, ...]]] = {}
        for name, value in definitions.items():
            if name.startswith(durable.NUMBERS_PREFIX):
                queue, first, keys = durable.numbers_of(name, value)
                numbers.setdefault(queue, {})[first] = keys
        for name, value in definitions.items():
            if not name.startswith(durable.OUTGOING_PREFIX):
                continue
            number = int(name.removeprefix(durable.OUTGOING_PREFIX))
            chunks = numbers.pop(number, {})
            found = queues.get(number)
            sequence = self._recovered(found, durable.sequence_of(value), chunks) if found is not None else None
            if found is not None and sequence is not None:
                self._by_queue[found] = sequence
                self._by_identifier[sequence.core.identifier] = found
            else:
                self.orphans += [Drop(name), *(durable.drop_numbers(number, first) for first in chunks)]
        for number, left in numbers.items():
            self.orphans += [durable.drop_numbers(number, first) for first in left]

    def _recovered(
        self, queue: OutgoingQueue, stored: durable.StoredSequence, chunks: Mapping[int, tuple[int, ...]]
    ) -> QueueSequence | None:
        """Return the recovered sequence; None if none of its messages is left in the queue."""
        messages = {
            number: key
            for first, keys in chunks.items()
            for number, key in enumerate(keys, first)
            if number > stored.last_ack and key in queue.entries
        }
        if not messages:
            return None
        following = max(first + len(keys) for first, keys in chunks.items())
        new = partial(self._new_identifier, queue)
        core = OutgoingSequence(new, stored.identifier, following, stored.last_ack, sorted(messages))
        sequence = QueueSequence(queue, core, messages=messages, is_stored=True)
        sequence.chunks = {first: first + len(keys) - 1 for first, keys in chunks.items()}
        sequence.rewind()
        return sequence

    def of(self, queue: OutgoingQueue) -> QueueSequence:
        """Return the sequence of a queue; create it if there is none."""
        sequence = self._by_queue.get(queue)
        if sequence is None:
            core = OutgoingSequence(partial(self._new_identifier, queue))
            sequence = self._by_queue[queue] = QueueSequence(queue, core)
        return sequence

    def _new_identifier(self, queue: OutgoingQueue) -> SequenceId:
        """Return the identifier with which the sequence of a queue starts, a new one if it already has one."""
        if (known := self._by_queue.get(queue)) is not None:
            self._by_identifier.pop(known.core.identifier, None)
        identifier = self._identifiers.new()
        self._by_identifier[identifier] = queue
        return identifier

    def get(self, queue: OutgoingQueue) -> QueueSequence | None:
        """Return the sequence of a queue, or None."""
        return self._by_queue.get(queue)

    def find(self, body: OrderAckBody) -> QueueSequence | None:
        """Return the sequence that an OrderAck names."""
        queue = self._by_identifier.get(SequenceId(body.sequence_timestamp, body.sequence_ordinal))
        return None if queue is None else self._by_queue.get(queue)

    def reload(self, definitions: Mapping[bytes, bytes], queue: OutgoingQueue) -> None:
        """Restore a sequence from the store, because a change of it could not be stored."""
        self.forget(queue)
        of_queue = {
            name: value
            for name, value in definitions.items()
            if name == durable.drop_sequence(queue.number).name
            or name.startswith(durable.NUMBERS_PREFIX + b"%d/" % queue.number)
        }
        self._recover(of_queue, {queue.number: queue})

    def __iter__(self) -> Iterator[QueueSequence]:
        return iter(list(self._by_queue.values()))

    def forget(self, queue: OutgoingQueue) -> None:
        """Remove a sequence, after the operations of `removal` have been stored."""
        if (sequence := self._by_queue.pop(queue, None)) is not None:
            self._by_identifier.pop(sequence.core.identifier, None)

    def removal(self, queue: OutgoingQueue) -> list[Operation]:
        """Return the operations that remove the sequence of a deleted queue from the store. Changes nothing."""
        sequence = self._by_queue.get(queue)
        if sequence is None or not sequence.is_stored:
            return []
        return [
            durable.drop_sequence(queue.number),
            *(durable.drop_numbers(queue.number, first) for first in sequence.chunks),
        ]
