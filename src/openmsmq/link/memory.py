"""Which messages have come: duplicates of plain messages, and how far each source is with each transactional queue.

Both survive a restart: what is remembered joins the batch of the message as operations of the store.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openmsmq.link import durable
from openmsmq.queueing.queue import IncomingTransferInfo, Queue
from openmsmq.store import Drop, Operation
from openmsmq.transport.history import MAXIMUM_ENTRIES, History
from openmsmq.transport.sequence import Incoming

logger = logging.getLogger(__name__)

MAXIMUM_INCOMING = 20_000  # sequences of all sources; the one that was unused for longest is dropped


class Duplicates:
    """MessageIDHistoryTable. The latest recoverable messages are in the store: what came together is one definition,
    and the oldest go when enough others are there (deviation D-99)."""

    def __init__(self, definitions: Mapping[bytes, bytes], now: float) -> None:
        """`now` in milliseconds of a clock that never goes back."""
        self._history = History()
        kept = {
            int(name.removeprefix(durable.HISTORY_PREFIX)): durable.history_of(value)
            for name, value in definitions.items()
            if name.startswith(durable.HISTORY_PREFIX)
        }
        self._kept: deque[tuple[int, int]] = deque()  # number of a definition, and how many it has, the oldest first
        for number in sorted(kept):
            self._kept.append((number, len(kept[number])))
            for identifier in kept[number]:
                self._history.add(*_key(identifier), now)
        self._stored = sum(count for _, count in self._kept)

    def seen(self, identifier: bytes, now: float) -> bool:
        """Whether the message with this OBJECTID has come before. What is passed on has one byte more, the hops that it
        has made: a message that comes back runs in a circle, and is no duplicate."""
        return self._history.seen(*_key(identifier), now)

    def add(self, identifier: bytes, now: float) -> None:
        """The message has come."""
        self._history.add(*_key(identifier), now)

    def forget(self, identifier: bytes) -> None:
        """It could not be stored, and comes again."""
        self._history.forget(*_key(identifier))

    def operations(self, identifiers: Sequence[bytes]) -> list[Operation]:
        """What the batch of these recoverable messages has to remember."""
        if not identifiers:
            return []
        number = self._kept[-1][0] + 1 if self._kept else 1
        self._kept.append((number, len(identifiers)))
        self._stored += len(identifiers)
        operations: list[Operation] = [durable.put_history(number, identifiers)]
        while self._stored - self._kept[0][1] >= MAXIMUM_ENTRIES:
            oldest, count = self._kept.popleft()
            self._stored -= count
            operations.append(durable.drop_history(oldest))
        return operations


def _key(identifier: bytes) -> tuple[bytes, int]:
    return identifier[:16], int.from_bytes(identifier[16:], "little")


@dataclass(slots=True, eq=False)
class Source:
    """One source queue manager and one transactional queue. `reply` is the format name of the queue for its order
    acknowledgments, `peer` the queue manager on whose session the latest message came. `accessed` is LastAccessTime,
    seconds since 1970 UTC."""

    source: bytes
    queue: int
    sequence: Incoming
    reply: str = ""
    peer: bytes = b""
    accessed: int = 0

    def info(self, format_name: str = "") -> IncomingTransferInfo:
        """For management."""
        position = self.sequence.position
        identifier = position.identifier.timestamp << 32 | position.identifier.ordinal
        return IncomingTransferInfo(
            format_name, self.source, identifier, position.number, self.accessed, self.sequence.reject_count
        )

    def operations(self) -> list[Operation]:
        """What the batch of a message has to remember."""
        one = self.sequence
        return [durable.put_incoming(self.source, self.queue, one.position, one.reject_count, self.accessed)]


class Sources:
    """IncomingTransactionalTransferInfo ([MS-MQDMPR] 3.1.1.5) of all queues."""

    def __init__(self, definitions: Mapping[bytes, bytes], queues: Mapping[int, Queue]) -> None:
        """`queues` by number."""
        self._sources: dict[tuple[bytes, int], Source] = {}
        self.orphans: list[Operation] = []
        for name, value in definitions.items():
            if name.startswith(durable.INCOMING_PREFIX):
                source, queue, position, reject_count, accessed = durable.incoming_of(name, value)
                if queue in queues:
                    known = Source(source, queue, Incoming(position, reject_count), accessed=accessed)
                    self._sources[source, queue] = known
                    queues[queue].incoming[source] = known.info()
                else:
                    self.orphans.append(Drop(name))
        self.due: set[Source] = set()  # an OrderAck is to be sent

    def of(self, source: bytes, queue: Queue) -> Source:
        """Where a source stands with a queue."""
        known = self._sources.get((source, queue.number))
        return known or Source(source, queue.number, Incoming())

    def keep(self, source: Source) -> list[Operation]:
        """A message of this source was accepted. Returns what joins its batch beside `Source.operations`."""
        key = source.source, source.queue
        if key in self._sources:
            return []
        dropped: list[Operation] = []
        if len(self._sources) >= MAXIMUM_INCOMING:
            oldest = min(self._sources.values(), key=lambda one: one.accessed)
            logger.warning(
                "more than %d transactional sequences come in: the one of queue manager %s for queue %d, unused since "
                "%d, is forgotten", MAXIMUM_INCOMING, oldest.source.hex(), oldest.queue, oldest.accessed,
            )  # fmt: skip
            dropped = self.forget(oldest)
        self._sources[key] = source
        return dropped

    def forget(self, source: Source) -> list[Operation]:
        """A sequence is no more. Returns what removes it from the store."""
        self._sources.pop((source.source, source.queue), None)
        self.due.discard(source)
        return [durable.drop_incoming(source.source, source.queue)]
