"""Which messages have come: duplicates of plain messages, and how far each source is with each transactional queue.

Both survive a restart: what is remembered joins the batch of the message as operations of the store.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openmsmq.model.shares import Shares
from openmsmq.peering import durable
from openmsmq.queueing.queue import IncomingTransferInfo, Queue
from openmsmq.store import Drop, Operation
from openmsmq.transport.history import LEAST_ENTRIES, LIFETIME, DuplicateHistory
from openmsmq.transport.sequence import Incoming, SequenceId, SequencePosition

logger = logging.getLogger(__name__)

# Recoverable messages that the store remembers as well: full windows of 128 sessions. More may be under way, and come
# twice if the power fails just then.
MOST_STORED = 65_536
MERGED = 256  # batches of few messages whose records become one
MOST_INCOMING = 200_000  # sequences of all sources together
INCOMING_OF_ADDRESS = 20_000  # of these, begun since the start by sessions from one address
MOST_TENTATIVE = 10_000  # sequences of which nothing was ever accepted


class _Kept:
    """A definition: its number, how many messages it names, and when the latest came."""

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
    """MessageIDHistoryTable. The latest recoverable messages are in the store: what came together is one definition,
    definitions of few messages are merged, and the oldest go after half an hour, or when enough others are there
    (deviation D-99)."""

    def __init__(self, definitions: Mapping[bytes, bytes], now: float, maximum: int = LEAST_ENTRIES) -> None:
        """`now` in milliseconds of a clock that never goes back; `maximum` entries in memory."""
        self._history = DuplicateHistory(max(maximum, LEAST_ENTRIES))
        kept = {
            int(name.removeprefix(durable.HISTORY_PREFIX)): durable.history_of(value)
            for name, value in definitions.items()
            if name.startswith(durable.HISTORY_PREFIX)
        }
        self._kept: deque[_Kept] = deque()  # the oldest first
        self._small: list[tuple[_Kept, Sequence[bytes]]] = []  # the latest, which have not been merged
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
        """The message has come."""
        self._history.add(*_key(identifier), now)

    def forget(self, identifier: bytes) -> None:
        """It could not be stored, and will be sent again."""
        self._history.forget(*_key(identifier))

    def plan(self, identifiers: Sequence[bytes], now: float) -> Plan:
        """Return the state that the batch of these recoverable messages must store. Changes nothing: `stored` does,
        once the batch is stored."""
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
        """The operations of the latest plan are stored."""
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
    """One source queue manager and one transactional queue, by one of its names: each of them is an outgoing queue with
    a sequence of its own at the source. `called` is that name; empty for private format names, and for messages that
    came before names were told apart. `reply` is the format name of the queue for its order acknowledgments, `peer` the
    queue manager on whose session the latest message came. `accessed` is LastAccessTime, seconds since 1970 UTC.
    `address` is that of the session that began it, empty if that was before the start."""

    source: bytes
    queue: int
    sequence: Incoming
    called: str = ""
    reply: str = ""
    peer: bytes = b""
    accessed: int = 0
    address: str = ""

    def info(self, format_name: str = "") -> IncomingTransferInfo:
        """For management."""
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

    Exactly once depends on it, so a sequence of which something was accepted is never forgotten while its queue is
    there: if the table is full, the messages of a new sequence are not accepted. For a sequence that was only ever
        refused nothing is stored, and forgetting it does no harm.
    """

    def __init__(self, definitions: Mapping[bytes, bytes], queues: Mapping[int, Queue]) -> None:
        """`queues` by number."""
        self._by_queue: dict[int, dict[tuple[bytes, str], SourceState]] = {}
        self._tentative: OrderedDict[tuple[int, tuple[bytes, str]], SourceState] = (
            OrderedDict()
        )  # the latest at the end
        self._shares: Shares[str] = Shares(MOST_INCOMING, min(INCOMING_OF_ADDRESS, MOST_INCOMING))
        self._queues_of: dict[bytes, int] = {}  # how many queues a source has sent to, by its identifier
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
        self.due: set[SourceState] = set()  # an OrderAck is to be sent

    def _add(self, source: SourceState) -> None:
        self._by_queue.setdefault(source.queue, {})[source.key] = source
        self._queues_of[source.source] = self._queues_of.get(source.source, 0) + 1

    def of(self, source: bytes, queue: Queue, called: str, identifier: SequenceId) -> SourceState:
        """Where a source stands with a queue that it calls by a name. `identifier` is that of the sequence of which a
        message has come: it may have begun before names were told apart."""
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
        """How many sequences there are."""
        return self._shares.held

    def is_kept(self, source: SourceState) -> bool:
        """Whether a message of this sequence was ever accepted."""
        return source.key in self._by_queue.get(source.queue, ())

    def knows(self, source: bytes) -> bool:
        """Whether a transactional message of this queue manager was ever accepted."""
        return source in self._queues_of

    def has_room(self, source: SourceState, address: str) -> bool:
        """Whether a message of this sequence may be accepted, which comes on a session from an address."""
        return self.is_kept(source) or self._shares.has_room(address)

    def keep(self, source: SourceState, address: str) -> None:
        """A message of this sequence was accepted, on a session from an address."""
        if not self.is_kept(source):
            self._tentative.pop((source.queue, source.key), None)
            source.address = address
            self._shares.charge(address)
            self._add(source)

    def try_out(self, source: SourceState) -> None:
        """A message of a sequence was refused of which nothing was accepted yet. Where it stands is known for a while,
        so that the messages behind it are judged in their order."""
        key = source.queue, source.key
        self._tentative[key] = source
        self._tentative.move_to_end(key)
        if len(self._tentative) > MOST_TENTATIVE:
            self._tentative.popitem(last=False)

    def of_queue(self, queue: int) -> list[SourceState]:
        """The sequences of a queue, by its number."""
        return list(self._by_queue.get(queue, {}).values())

    def queues(self) -> list[int]:
        """The numbers of all queues that have sequences."""
        return list(self._by_queue)

    def forget(self, source: SourceState) -> None:
        """A sequence was removed: what `removal` returned is stored."""
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
