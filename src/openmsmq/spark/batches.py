"""Sources of stream batches: positions (messages stay), claims of a consumer group (Arrow Flight), lists of lookup
identifiers (MS-MQRR). Their common code is in `streaming`.

MS-MQRR has no positions, and a server that is not openmsmq does not report which transactions are open: messages
may appear below messages already seen. So an offset is the list of lookup identifiers of its batch. A repeated batch is
read from its list, regardless of newer messages. Once Spark has committed a batch, exactly the messages of its list are
removed. While a stream runs, its planner has the queue open exclusively (MQ_DENY_RECEIVE_SHARE): the server refuses
other receivers, including a second stream.
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

_LISTED = 2_000  # default messages per batch of lists: each costs two calls and an entry in the offset
_MOST_LISTED = 10_000  # upper bound of the option


class TakenBatch(NamedTuple):
    """Batch taken from a queue: its end offset, number of messages, bytes."""

    value: Any
    messages: int
    bytes: int


class Batches(Protocol):
    """Interface of batch sources. Methods take a queue and its offset `value`; they raise NO_QUEUE if it is deleted."""

    def rows(self, asked: int | None) -> int | None:
        """Return the maximum number of messages in a batch."""

    def begin(self, queue: str) -> Any:
        """Return the initial offset of a stream."""

    def target(self, queue: str) -> int:
        """Return the last sequence to read with Trigger.AvailableNow."""

    def waiting(self, queue: str, value: Any, target: int | None, most: int) -> int:
        """Count waiting messages; 0 if `take` would return none. If counting means reading, stop at `most`."""

    def take(self, queue: str, value: Any, target: int | None, rows: int | None, size: int | None) -> TakenBatch | None:
        """Take the next messages; None if there are none. Remove those before `value`, which are in Spark's log."""

    def resting(self, value: Any) -> Any:
        """Return the offset of a queue without messages in a batch."""

    def parts(self, queue: str, start: Any, end: Any) -> tuple[list[InputPartition], int, int | None]:
        """Return the partitions of a batch, their number of messages, and the planned number."""

    def read(self, part: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""

    def remove(self, queue: str, value: Any) -> None:
        """Remove the messages up to this offset, which Spark has committed."""


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
        if not count:  # keep the offset; otherwise each move of the position would plan an empty batch
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
    """Messages claimed by a consumer group of the queue manager."""

    def __init__(self, reader: Fetching) -> None:
        super().__init__(reader)
        self._claims: dict[str, Claim] = {}  # latest claim of each queue
        self._removed: dict[str, int] = {}  # last committed sequence of each queue

    @property
    def _bulk(self) -> BulkClient | ManyHosts:
        """Return the client. Arrow Flight was available during planning, or this class would not be used."""
        plane = self._reader.plane
        if not isinstance(plane, FLIGHT):
            raise OptionError("mode=receive by consumer group needs Arrow Flight, which no longer responds")
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
        """Return the size of a claim in bytes, if a byte limit is set."""
        if size is None or not claim.count:
            return 0
        plan = self._bulk.plan(
            queue, self._source, claim.start, claim.end, group=self._group, token=claim.token
        )  # fmt: skip
        return sum(part.bytes for part in plan.ranges)

    def _claim(self, queue: str, at: int, rows: int | None = None, size: int | None = None) -> Claim:
        """Claim the messages after `at`, which removes all messages up to `at`. Raises MsmqError if another stream has
        taken over the group since the last claim."""
        claim = self._bulk.claim(
            queue, self._group, at, rows, size, source=self._source, token=self._token(queue)
        )  # fmt: skip
        self._claims[queue] = claim
        return claim

    def _token(self, queue: str) -> str | None:
        """Return the token of this reader's latest claim; a new reader takes over the group."""
        claim = self._claims.get(queue)
        return None if claim is None else claim.token or None

    def parts(self, queue: str, start: Any, end: Any) -> tuple[list[InputPartition], int, int | None]:
        at, until = sequence_of(start), sequence_of(end)
        if until <= at:
            return [], 0, None
        return *self._ranges(queue, at, until, self._claim_again(queue, at, until)), planned_of(end)

    def _claim_again(self, queue: str, at: int, until: int) -> Claim:
        """Return the claim of a planned batch; after a restart, request it again."""
        claim = self._claims.get(queue)
        if claim is None or claim.start != at:
            claim = self._claim(queue, at)
        if claim.end != until and self._reader.options.failOnDataLoss is not False:
            raise DataLoss(
                f"the batch of {queue or self._source} from {at} to {until} differs from the claim of "
                f"consumerGroup {self._group}, which ends at {claim.end}: another stream uses the group, or it "
                "was released; failOnDataLoss=false continues with the present messages"
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
            # This reader has no claim on the queue; possibly no reader ever had: the limits went to other queues.
            if self._bulk.cursor(queue, self._group, self._source) is not None:
                logger.warning(
                    "%s: messages read up to %d could not be removed and stay in the queue: %s", queue, at, error
                )
            self._removed[queue] = at


@dataclass
class Listed(InputPartition):
    """A partition: lookup identifiers of messages of one queue."""

    queue: str
    identifiers: list[int]


class Listing:
    """Messages of any MSMQ server, by lists; ignores `consumerGroup`."""

    def __init__(self, reader: Fetching) -> None:
        self._reader = reader
        self._source = reader.options.source
        self._removed: dict[str, list[int]] = {}  # the last list, which Spark passes repeatedly while it is idle

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
