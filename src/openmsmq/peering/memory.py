"""State of received messages: identifiers for the detection of duplicates, and the position of each source in each
transactional queue.

Both survive a restart: their changes are stored in the same batch as the message.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from openmsmq.model.constants import MessageClass
from openmsmq.model.shares import Shares
from openmsmq.peering import durable
from openmsmq.queueing.queue import IncomingTransferInfo, Queue
from openmsmq.store import Drop, Operation
from openmsmq.transport.history import LEAST_ENTRIES, LIFETIME, DuplicateHistory
from openmsmq.transport.sequence import Incoming, SequenceId, SequencePosition

logger = logging.getLogger(__name__)

# Maximum number of recoverable messages whose identifiers are stored: full windows of 128 sessions. If more are in
# transit during a power failure, some may be delivered twice.
MOST_STORED = 65_536
MERGED = 256  # number of small definitions that are merged into one
MOST_INCOMING = 200_000  # maximum sequences of all sources
INCOMING_OF_ADDRESS = 20_000  # maximum of those started since the start of the daemon by sessions from one address
MOST_TENTATIVE = 10_000  # maximum sequences without an accepted message
MOST_UNCONFIRMED = 16  # maximum final acknowledgments kept of each of them


class _Kept:
    """A stored definition: its number, the number of its identifiers, and the arrival time of the latest one."""

    def __init__(self, number: int, count: int, latest: float) -> None:
        self.number = number
        self.count = count
        self.latest = latest


@dataclass(slots=True)
class Plan:
    """Work for `Duplicates.stored` once `operations` are stored: drop the oldest definitions, merge those of few
    messages, add a new one for `identifiers`."""

    operations: list[Operation]
    new: _Kept | None = None
    identifiers: Sequence[bytes] = ()
    dropped: int = 0
    merges: bool = False


class Duplicates:
    """MessageIDHistoryTable. The identifiers of the latest recoverable messages are stored: one definition per batch.
    Small definitions are merged. The oldest are deleted after half an hour, or when there are enough later ones
    (deviation D-99)."""

    def __init__(self, definitions: Mapping[bytes, bytes], now: float, maximum: int = LEAST_ENTRIES) -> None:
        """`now` is a time in milliseconds of a monotonic clock; `maximum` is the maximum number of entries in
        memory."""
        self._history = DuplicateHistory(max(maximum, LEAST_ENTRIES))
        kept = {
            int(name.removeprefix(durable.HISTORY_PREFIX)): durable.history_of(value)
            for name, value in definitions.items()
            if name.startswith(durable.HISTORY_PREFIX)
        }
        self._kept: deque[_Kept] = deque()  # oldest first
        self._small: list[tuple[_Kept, Sequence[bytes]]] = []  # the latest definitions that have not been merged
        for number in sorted(kept):
            self._kept.append(_Kept(number, len(kept[number]), now))
            for identifier in kept[number]:
                self._history.add(*_key(identifier), now)
        self._stored = sum(each.count for each in self._kept)

    def seen(self, identifier: bytes, now: float) -> bool:
        """Whether the message with this OBJECTID has arrived before. The key of a message in transit has one more byte,
        its hop count: a message that returns is in a routing loop, and is not a duplicate."""
        return self._history.seen(*_key(identifier), now)

    def add(self, identifier: bytes, now: float) -> None:
        """Record that a message has arrived."""
        self._history.add(*_key(identifier), now)

    def add_all(self, identifiers: Sequence[bytes], now: float) -> bool:
        """Record that messages have arrived. Returns False, with nothing changed, if one of them has arrived before."""
        at = 0
        while at < len(identifiers):
            source, start, numbers = identifiers[at][:16], at, []
            while at < len(identifiers) and identifiers[at].startswith(source):
                numbers.append(int.from_bytes(identifiers[at][16:], "little"))
                at += 1
            if not self._history.add_all(source, numbers, now):
                for identifier in identifiers[:start]:
                    self.forget(identifier)
                return False
        return True

    def forget(self, identifier: bytes) -> None:
        """Forget a message that could not be stored: the peer will resend it."""
        self._history.forget(*_key(identifier))

    def plan(self, identifiers: Sequence[bytes], now: float) -> Plan:
        """Return the operations to store with the batch of these recoverable messages. The state changes only when
        `stored` is called."""
        if not identifiers:
            return Plan([])
        new = _Kept(self._kept[-1].number + 1 if self._kept else 1, len(identifiers), now)
        plan = Plan([], new, identifiers, merges=len(self._small) >= MERGED)
        if plan.merges:
            plan.operations += self._merging()
        plan.operations.append(durable.put_history(new.number, identifiers))
        left = self._stored + new.count
        for oldest in self._kept:
            if plan.merges and oldest.number >= self._small[0][0].number:
                break
            if left - oldest.count < MOST_STORED and oldest.latest > now - LIFETIME:
                break
            left -= oldest.count
            plan.dropped += 1
            plan.operations.append(durable.drop_history(oldest.number))
        return plan

    def stored(self, plan: Plan) -> None:
        """Apply the latest plan, whose operations have been stored."""
        if plan.new is None:
            return
        for _ in range(plan.dropped):
            self._stored -= self._kept.popleft().count
        if plan.merges:
            small, self._small = self._small, []
            gone = {each.number for each, _ in small[:-1]}
            self._kept = deque(each for each in self._kept if each.number not in gone)
            small[-1][0].count = sum(each.count for each, _ in small)
        self._kept.append(plan.new)
        self._stored += plan.new.count
        if plan.new.count < MERGED:
            self._small.append((plan.new, list(plan.identifiers)))
        if self._small and self._small[0][0].number < self._kept[0].number:
            self._small = [each for each in self._small if each[0].number >= self._kept[0].number]

    def _merging(self) -> list[Operation]:
        """Return the operations that merge definitions of few messages into one, under the number of the last of
        them."""
        merged = [identifier for _, identifiers in self._small for identifier in identifiers]
        gone = [each.number for each, _ in self._small[:-1]]
        return [durable.put_history(self._small[-1][0].number, merged), *map(durable.drop_history, gone)]


def _key(identifier: bytes) -> tuple[bytes, int]:
    return identifier[:16], int.from_bytes(identifier[16:], "little")


@dataclass(slots=True, eq=False)
class SourceState:
    """State of the sequence from one source queue manager to one transactional queue, by the name that the source uses:
    at the source, each name is an outgoing queue with its own sequence. `called` is that name; empty for private format
    names, and in stores of versions that did not distinguish names. `reply` is the format name of the queue for order
    acknowledgments, `peer` the queue manager whose session delivered the latest message. `accessed` is LastAccessTime
    in seconds since 1970 UTC. `address` is that of the session that began the sequence; empty if it began before the
    start of the daemon. `unconfirmed` are final acknowledgments (values of `records.final_ack_definition`, with the
    reason) that were only sent on the session, because no message had been accepted yet."""

    source: bytes
    queue: int
    sequence: Incoming
    called: str = ""
    reply: str = ""
    peer: bytes = b""
    accessed: int = 0
    address: str = ""
    unconfirmed: dict[bytes, MessageClass] = field(default_factory=dict)

    def note_unconfirmed(self, final_ack: bytes, reason: MessageClass) -> None:
        """Keep a final acknowledgment that is only sent on the session, instead of the oldest one if there are many."""
        self.unconfirmed[final_ack] = reason
        if len(self.unconfirmed) > MOST_UNCONFIRMED:
            del self.unconfirmed[next(iter(self.unconfirmed))]

    def info(self, format_name: str = "") -> IncomingTransferInfo:
        """Return the state for management properties."""
        position = self.sequence.position
        identifier = position.identifier.timestamp << 32 | position.identifier.ordinal
        return IncomingTransferInfo(
            format_name, self.source, identifier, position.number, self.accessed, self.sequence.reject_count
        )

    def operations(self) -> list[Operation]:
        """Return the operations that store this state with the batch of a message."""
        one = self.sequence
        return [
            durable.put_incoming(
                self.source, self.queue, self.called, one.position, one.reject_count, self.accessed
            )
        ]  # fmt: skip

    @property
    def key(self) -> tuple[bytes, str]:
        """Return the key that distinguishes the sequences of a queue."""
        return self.source, self.called


class Sources:
    """IncomingTransactionalTransferInfo ([MS-MQDMPR] 3.1.1.5) of all queues.

    Exactly-once delivery depends on it, so a sequence with an accepted message is kept as long as its queue exists. If
    the table is full, messages of new sequences are not accepted. A sequence without an accepted message is not stored
    and may be forgotten.
    """

    def __init__(self, definitions: Mapping[bytes, bytes], queues: Mapping[int, Queue]) -> None:
        """`queues`: number -> queue."""
        self._by_queue: dict[int, dict[tuple[bytes, str], SourceState]] = {}
        self._tentative: OrderedDict[tuple[int, tuple[bytes, str]], SourceState] = OrderedDict()  # latest last
        self._shares: Shares[str] = Shares(MOST_INCOMING, min(INCOMING_OF_ADDRESS, MOST_INCOMING))
        self._queues_of: dict[bytes, int] = {}  # source -> number of queues to which it has sent
        self.orphans: list[Operation] = []
        for name, value in definitions.items():
            if name.startswith(durable.INCOMING_PREFIX):
                source, queue, called, position, reject_count, accessed = durable.incoming_of(name, value)
                if queue in queues:
                    known = SourceState(source, queue, Incoming(position, reject_count), called, accessed=accessed)
                    self._add(known)
                    self._shares.charge("")
                    queues[queue].incoming[known.key] = known.info()
                else:
                    self.orphans.append(Drop(name))
        self.due: set[SourceState] = set()  # sequences for which an OrderAck must be sent

    def _add(self, source: SourceState) -> None:
        self._by_queue.setdefault(source.queue, {})[source.key] = source
        self._queues_of[source.source] = self._queues_of.get(source.source, 0) + 1

    def of(self, source: bytes, queue: Queue, called: str, identifier: SequenceId) -> SourceState:
        """Return the state of a source for a queue that it addresses as `called`. `identifier` is that of the sequence
        of the received message, which may have been stored by a version that did not distinguish names."""
        kept, key = self._by_queue.get(queue.number, {}), (source, called)
        known = kept.get(key) or self._tentative.get((queue.number, key))
        if known is not None:
            return known
        older, position = kept.get((source, "")), SequencePosition()
        if older is not None and older.sequence.position.identifier == identifier:
            position = older.sequence.position
        return SourceState(source, queue.number, Incoming(position), called)

    @property
    def count(self) -> int:
        """Number of sequences with an accepted message."""
        return self._shares.held

    def is_kept(self, source: SourceState) -> bool:
        """Whether a message of this sequence was ever accepted."""
        return source.key in self._by_queue.get(source.queue, ())

    def knows(self, source: bytes) -> bool:
        """Whether a transactional message of this queue manager was ever accepted."""
        return source in self._queues_of

    def has_room(self, source: SourceState, address: str) -> bool:
        """Whether a message of this sequence, from a session with this address, may be accepted."""
        return self.is_kept(source) or self._shares.has_room(address)

    def keep(self, source: SourceState, address: str) -> None:
        """Record that a message of this sequence was accepted, from a session with this address."""
        if not self.is_kept(source):
            self._tentative.pop((source.queue, source.key), None)
            source.address = address
            self._shares.charge(address)
            self._add(source)

    def keep_tentative(self, source: SourceState) -> None:
        """Keep the state of a sequence whose first message was refused for a while, so that later messages are checked
        in order."""
        key = source.queue, source.key
        self._tentative[key] = source
        self._tentative.move_to_end(key)
        if len(self._tentative) > MOST_TENTATIVE:
            self._tentative.popitem(last=False)

    def of_queue(self, queue: int) -> list[SourceState]:
        """Return the sequences of a queue, given its number."""
        return list(self._by_queue.get(queue, {}).values())

    def queues(self) -> list[int]:
        """Return the numbers of all queues that have sequences."""
        return list(self._by_queue)

    def forget(self, source: SourceState) -> None:
        """Remove a sequence, after the operations of `removal` have been stored."""
        self.due.discard(source)
        self._tentative.pop((source.queue, source.key), None)
        if not self.is_kept(source):
            return
        of_queue = self._by_queue[source.queue]
        del of_queue[source.key]
        if not of_queue:
            del self._by_queue[source.queue]
        self._shares.give_back(source.address)
        self._queues_of[source.source] -= 1
        if not self._queues_of[source.source]:
            del self._queues_of[source.source]

    def removal(self, source: SourceState) -> list[Operation]:
        """Return the operations that remove a sequence from the store; empty if it is not there. Changes nothing."""
        if not self.is_kept(source):
            return []
        return [durable.drop_incoming(source.source, source.queue, source.called)]
