"""Streaming reads: browsing queues by position, or receiving: messages leave the queue with the batch that has them.

Spark commits the last batch of a run only when it plans the next one, and perhaps never. So `latestOffset` removes all
that lies before its start: that much is in Spark's own log already.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from openmsmq.bulk.client import BulkClient, Claim
from openmsmq.spark.options import OptionError, Options
from openmsmq.spark.progress import Offsets, Progress
from openmsmq.spark.reading import DataLoss, Fetching, QueueRange, named_offset

_PATIENCE = 0.5  # seconds that `latestOffset` waits for a first message; Spark would ask 80 times a second
_PAUSE = 0.02  # seconds between two looks


class MsmqStreamReader(Fetching, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are the sequence by queue. Nothing is held that would have to be given back: Spark never says goodbye."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self._targets: dict[str, int] | None = None  # of Trigger.AvailableNow
        self._claims: dict[tuple[str, int], Claim] = {}
        self._progress = Progress()

    @property
    def _fails_on_loss(self) -> bool:
        return self.options.failOnDataLoss is not False

    @property
    def bulk(self) -> BulkClient:
        """For mode=receive, which comes here only where Arrow Flight was served when the stream was planned."""
        plane = self.plane
        if not isinstance(plane, BulkClient):
            raise OptionError("mode=receive by consumer group needs Arrow Flight, which does not answer any more")
        return plane

    # -- positions ---------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        initial = {queue: self._initial(queue) for queue in self.queues()}
        self._progress.begun(initial)
        return initial

    def _initial(self, queue: str) -> int:
        options = self.options
        if options.mode == "receive":
            assert options.consumerGroup is not None
            return self.bulk.cursor(queue, options.consumerGroup, options.source) or 0
        start = named_offset("startingOffsets", options.startingOffsets, queue)
        if start == "latest":
            return self.plane.position(queue, options.source).stable
        return start if isinstance(start, int) else 0

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self.options.maxRecordsPerTrigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        group = self.options.consumerGroup
        self._targets = {q: self.plane.position(q, self.options.source, group).stable for q in self.queues()}

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> dict[str, Any]:
        self._progress.planned(start)
        deadline = time.monotonic() + (0 if self._targets is not None else _PATIENCE)
        while True:
            end = self._advance(start, limit)
            if end != dict(start) or time.monotonic() >= deadline:
                return end
            time.sleep(_PAUSE)

    def _advance(self, start: Offsets, limit: ReadLimit) -> dict[str, Any]:
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        size = self.options.maxBytesPerTrigger
        end: dict[str, Any] = dict(start)
        for queue in dict.fromkeys([*start, *self.queues()]):
            at = start.get(queue, 0)
            if rows == 0 or size == 0:
                continue
            if self.options.mode == "receive":
                claim = self._claim(queue, at, rows, size)
                reached, count = claim.end, claim.count
                taken_bytes = 0
            else:
                reached, count, taken_bytes = self._look(queue, at, rows, size)
            if reached > at:
                end[queue] = reached
            rows = None if rows is None else max(0, rows - count)
            size = None if size is None else max(0, size - taken_bytes)
        return end

    def _look(self, queue: str, at: int, rows: int | None, size: int | None) -> tuple[int, int, int]:
        """How far a browsing batch gets: end, messages, bytes."""
        until = None if self._targets is None else self._targets.get(queue, at)
        if until is not None and until <= at:
            return at, 0, 0
        plan = self.plane.plan(queue, self.options.source, at, until, 1, rows, size)
        count = sum(part.count for part in plan.ranges)
        # Without messages the offset stays: a batch of nothing would be planned for each move of the position.
        return (plan.end if count else at), count, sum(part.bytes for part in plan.ranges)

    def _claim(self, queue: str, at: int, rows: int | None = None, size: int | None = None) -> Claim:
        """What the group holds behind `at`; everything at or below it is removed by this."""
        group = self.options.consumerGroup
        assert group is not None
        if self._targets is not None and self._targets.get(queue, at) <= at:
            self.bulk.commit(queue, group, at, self.options.source)
            return Claim(at, at, 0, "")
        claim = self.bulk.claim(queue, group, at, rows, size, source=self.options.source)
        self._claims = {key: value for key, value in self._claims.items() if key[0] != queue}
        self._claims[queue, at] = claim
        return claim

    # -- batches -----------------------------------------------------------------------------------------------

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        if self.options.mode == "receive":
            self._progress.check(start)
        parts: list[InputPartition] = []
        for queue, until in end.items():
            at = start.get(queue, 0)
            if until <= at:
                continue
            claim = self._claim_again(queue, at, until) if self.options.mode == "receive" else None
            held = (None, None) if claim is None else (self.options.consumerGroup, claim.token)
            for part in self.ranges(queue, at, until, claim):
                if part.count:
                    parts.append(QueueRange(queue, part.start, part.end, part.count, *held))
        return parts

    def _claim_again(self, queue: str, at: int, until: int) -> Claim:
        """The claim of a planned batch, which after a restart has to be asked for again."""
        claim = self._claims.get((queue, at)) or self._claim(queue, at)
        if claim.end != until and self._fails_on_loss:
            raise DataLoss(
                f"the batch of {queue or self.options.source} from {at} to {until} is not what consumerGroup "
                f"{self.options.consumerGroup} holds, which ends at {claim.end}: somebody else uses the group, or it "
                "was released; failOnDataLoss=false goes on with what there is"
            )
        return claim

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, QueueRange):
            return iter(())
        return self.fetch(partition, self._fails_on_loss)

    def commit(self, end: Offsets) -> None:
        self._progress.committed(end)
        group = self.options.consumerGroup
        if group is not None:
            for queue, until in end.items():
                self.bulk.commit(queue, group, until, self.options.source)
