"""Where the batches of a stream come from: messages that stay, by position; claims of a consumer group by Arrow Flight;
lists of lookup identifiers by MS-MQRR. `streaming` has what they share.

MS-MQRR has no positions, and a server that is not openmsmq does not report which transactions are open: messages
may come up below any that were seen. So an offset is the list of lookup identifiers of its batch. A batch is read again
from its list, regardless of newer messages; it is removed by its list once Spark has committed it, and nothing else is.
While a stream runs, its planner has the queue open for itself (MQ_DENY_RECEIVE_SHARE): the server refuses other
receivers, and a second stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from openmsmq.bulk.client import BulkClient, Claim
from openmsmq.model.errors import TransactionSequence
from openmsmq.model.message import Message
from openmsmq.spark.hosts import FLIGHT, ManyHosts
from openmsmq.spark.offsets import offset, planned_of, sequence_of
from openmsmq.spark.options import OptionError
from openmsmq.spark.reading import DataLoss, Fetching, QueueRange, logger, named_offset

if TYPE_CHECKING:
    from openmsmq.spark.remote_plane import RemotePlane

_LISTED = (
    2_000  # messages a batch of lists, unless asked for otherwise: each takes two calls, and a place in the offset
)
_MOST_LISTED = 10_000  # upper bound of the option


class TakenBatch(NamedTuple):
    """Result of taking a batch from a queue: the offset where it ends, messages, bytes."""

    value: Any
    messages: int
    bytes: int


class Batches(Protocol):
    """One queue at a time; `value` is the offset of a queue. All of them raise NO_QUEUE for one that is gone."""

    def rows(self, asked: int | None) -> int | None:
        """How many messages a batch has at most."""

    def begin(self, queue: str) -> Any:
        """The offset with which a stream begins."""

    def target(self, queue: str) -> int:
        """The last sequence that a stream reads that ends when it has all there is."""

    def waiting(self, queue: str, value: Any, target: int | None, most: int) -> int:
        """How many messages wait; 0 if `take` would have none. Where counting is reading, `most` are counted."""

    def take(self, queue: str, value: Any, target: int | None, rows: int | None, size: int | None) -> TakenBatch | None:
        """The next messages; None if there are none. What lies before `value` is in Spark's log, and is removed."""

    def resting(self, value: Any) -> Any:
        """The offset of a queue that has nothing in a batch."""

    def parts(self, queue: str, start: Any, end: Any) -> tuple[list[InputPartition], int, int | None]:
        """The partitions of a batch, how many messages they have, and how many were planned."""

    def read(self, part: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""

    def remove(self, queue: str, value: Any) -> None:
        """Spark has committed all up to here."""


class Browsing:
    """Messages stay in their queue."""

    def __init__(self, reader: Fetching) -> None:
        self._reader = reader
        self._source = reader.options.source
        self.stores: Mapping[str, str | None] = {}  # incarnation by host, for offsets

    def _offset(self, queue: str, sequence: int, planned: int) -> Any:
        return offset(sequence, planned, self.stores.get(self._reader.host(queue)))

    def rows(self, asked: int | None) -> int | None:
        return asked

    def begin(self, queue: str) -> Any:
        start = named_offset("startingOffsets", self._reader.options.startingOffsets, queue)
        if start == "latest":
            return self._reader.plane.position(queue, self._source).stable
        return start if isinstance(start, int) else 0

    def target(self, queue: str) -> int:
        return self._reader.plane.position(queue, self._source, self._reader.options.consumerGroup).stable

    def waiting(self, queue: str, value: Any, target: int | None, most: int) -> int:
        at, group = sequence_of(value), self._reader.options.consumerGroup
        if target is not None and target <= at:
            return 0
        return self._reader.plane.lag(queue, self._source, at, group).count

    def take(self, queue: str, value: Any, target: int | None, rows: int | None, size: int | None) -> TakenBatch | None:
        at = sequence_of(value)
        if target is not None and target <= at:
            return None
        plan = self._reader.plane.plan(queue, self._source, at, target, 1, rows, size)
        count = sum(part.count for part in plan.ranges)
        if not count:  # the offset stays: a batch of nothing would be planned for each move of the position
            return None
        return TakenBatch(self._offset(queue, plan.end, count), count, sum(part.bytes for part in plan.ranges))

    def resting(self, value: Any) -> Any:
        return value

    def parts(self, queue: str, start: Any, end: Any) -> tuple[list[InputPartition], int, int | None]:
        at, until = sequence_of(start), sequence_of(end)
        if until <= at:
            return [], 0, None
        return *self._ranges(queue, at, until, None), planned_of(end)

    def _ranges(self, queue: str, at: int, until: int, claim: Claim | None) -> tuple[list[InputPartition], int]:
        held = (None, None) if claim is None else (self._reader.options.consumerGroup, claim.token)
        found = [part for part in self._reader.ranges(queue, at, until, claim) if part.count]
        parts = [QueueRange(queue, part.start, part.end, part.count, *held) for part in found]
        return [*parts], sum(part.count for part in parts)

    def read(self, part: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(part, QueueRange)
        return self._reader.fetch(part, self._reader.options.failOnDataLoss is not False)

    def remove(self, queue: str, value: Any) -> None:
        """Nothing is removed."""


class ClaimedBatches(Browsing):
    """A consumer group of the queue manager claims what it reads."""

    def __init__(self, reader: Fetching) -> None:
        super().__init__(reader)
        self._claims: dict[str, Claim] = {}  # the latest of each queue
        self._removed: dict[str, int] = {}  # sequence up to which each queue was committed last

    @property
    def _bulk(self) -> BulkClient | ManyHosts:
        """Arrow Flight was served when the stream was planned, or this would not be here."""
        plane = self._reader.plane
        if not isinstance(plane, FLIGHT):
            raise OptionError("mode=receive by consumer group needs Arrow Flight, which does not answer any more")
        return plane

    @property
    def _group(self) -> str:
        group = self._reader.options.consumerGroup
        assert group is not None
        return group

    def begin(self, queue: str) -> Any:
        return self._bulk.cursor(queue, self._group, self._source) or 0

    def take(self, queue: str, value: Any, target: int | None, rows: int | None, size: int | None) -> TakenBatch | None:
        at = sequence_of(value)
        if target is not None and target <= at:
            self.remove(queue, value)
            return None
        claim = self._claim(queue, at, rows, size)
        if claim.end <= at:
            return None
        return TakenBatch(self._offset(queue, claim.end, claim.count), claim.count, self._bytes(queue, claim, size))

    def _bytes(self, queue: str, claim: Claim, size: int | None) -> int:
        """Return the bytes of a claim, if a limit in bytes needs them."""
        if size is None or not claim.count:
            return 0
        plan = self._bulk.plan(
            queue, self._source, claim.start, claim.end, group=self._group, token=claim.token
        )  # fmt: skip
        return sum(part.bytes for part in plan.ranges)

    def _claim(self, queue: str, at: int, rows: int | None = None, size: int | None = None) -> Claim:
        """Claim the messages after `at`; everything at or below it is removed by this. Raises MsmqError if another
        stream has taken the group over since this one claimed."""
        claim = self._bulk.claim(
            queue, self._group, at, rows, size, source=self._source, token=self._token(queue)
        )  # fmt: skip
        self._claims[queue] = claim
        return claim

    def _token(self, queue: str) -> str | None:
        """Return the token of this reader's latest claim; a new reader takes the group over."""
        claim = self._claims.get(queue)
        return None if claim is None else claim.token or None

    def parts(self, queue: str, start: Any, end: Any) -> tuple[list[InputPartition], int, int | None]:
        at, until = sequence_of(start), sequence_of(end)
        if until <= at:
            return [], 0, None
        return *self._ranges(queue, at, until, self._claim_again(queue, at, until)), planned_of(end)

    def _claim_again(self, queue: str, at: int, until: int) -> Claim:
        """The claim of a planned batch, which after a restart has to be asked for again."""
        claim = self._claims.get(queue)
        if claim is None or claim.start != at:
            claim = self._claim(queue, at)
        if claim.end != until and self._reader.options.failOnDataLoss is not False:
            raise DataLoss(
                f"the batch of {queue or self._source} from {at} to {until} is not what consumerGroup "
                f"{self._group} holds, which ends at {claim.end}: somebody else uses the group, or it "
                "was released; failOnDataLoss=false goes on with what there is"
            )
        return claim

    def remove(self, queue: str, value: Any) -> None:
        token, at = self._token(queue), sequence_of(value)
        if self._removed.get(queue, 0) == at:
            return
        try:
            self._bulk.commit(queue, self._group, at, self._source, token)
            self._removed[queue] = at
        except TransactionSequence as error:
            if token is not None:  # fenced
                raise
            # This reader has claimed nothing of the queue. Perhaps nobody has ever: its limits were spent on others.
            if self._bulk.cursor(queue, self._group, self._source) is not None:
                logger.warning("%s: what was read up to %d is not removed and stays in the queue: %s", queue, at, error)
            self._removed[queue] = at


@dataclass
class Listed(InputPartition):
    """A partition: messages of one queue by their lookup identifiers."""

    queue: str
    identifiers: list[int]


class Listing:
    """Messages of any MSMQ server; `consumerGroup` means nothing to it."""

    def __init__(self, reader: Fetching) -> None:
        self._reader = reader
        self._source = reader.options.source
        self._removed: dict[str, list[int]] = {}  # the last list, which Spark shows again and again while it is idle

    @property
    def _remote(self) -> RemotePlane:
        from openmsmq.spark.remote_plane import RemotePlane  # not above: see `plane.connect`

        plane = self._reader.plane
        assert isinstance(plane, RemotePlane)
        return plane

    def rows(self, asked: int | None) -> int | None:
        return min(asked or _LISTED, _MOST_LISTED)

    def begin(self, queue: str) -> Any:
        return []

    def target(self, queue: str) -> int:
        return self._remote.position(queue, self._source).last

    def waiting(self, queue: str, value: Any, target: int | None, most: int) -> int:
        self.remove(queue, value)
        return sum(1 for _ in zip(range(most), self._walk(queue, target), strict=False))

    def _walk(self, queue: str, target: int | None) -> Iterator[Message]:
        for message in self._remote.walk_as_receiver(queue, self._source):
            if target is None or message.sequence <= target:
                yield message

    def take(self, queue: str, value: Any, target: int | None, rows: int | None, size: int | None) -> TakenBatch | None:
        self.remove(queue, value)
        found: list[int] = []
        taken = 0
        for message in self._walk(queue, target):
            found.append(message.lookup_identifier)
            taken += message.size
            if len(found) == rows or (size is not None and taken >= size):
                break
        return TakenBatch(found, len(found), taken) if found else None

    def resting(self, value: Any) -> Any:
        return []

    def parts(self, queue: str, start: Any, end: Any) -> tuple[list[InputPartition], int, int | None]:
        identifiers: Sequence[int] = end
        options = self._reader.options
        wanted = max(options.minPartitions, -(-len(identifiers) // (options.maxRecordsPerPartition or _MOST_LISTED)))
        share = max(1, -(-len(identifiers) // wanted))
        parts = [Listed(queue, list(identifiers[at : at + share])) for at in range(0, len(identifiers), share)]
        return [*parts], len(identifiers), None

    def read(self, part: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(part, Listed)
        reader = self._reader
        batches = self._remote.read_listed(
            part.queue, self._source, part.identifiers, reader.columns(), reader.options.includeBody
        )
        wanted = len(part.identifiers)
        which = f"of {part.queue or self._source}"
        return reader.complete(part.queue, which, wanted, batches, reader.options.failOnDataLoss is not False)

    def remove(self, queue: str, value: Any) -> None:
        if value and self._removed.get(queue) != value:
            self._remote.remove(queue, self._source, value)
            self._removed[queue] = list(value)
