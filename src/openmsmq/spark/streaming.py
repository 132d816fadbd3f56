"""Streaming reads: browsing queues by position, or receiving: messages leave the queue with the batch that has them.

Spark commits the last batch of a run only when it plans the next one, and perhaps never. So `latestOffset` removes all
that lies before its start: that much is in Spark's own log already.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from openmsmq.bulk.client import BulkClient, Claim
from openmsmq.model.errors import MsmqError
from openmsmq.spark.offsets import Offsets, offset, planned_of, sequence_of
from openmsmq.spark.options import OptionError, Options
from openmsmq.spark.progress import Progress
from openmsmq.spark.reading import NO_QUEUE, DataLoss, Fetching, QueueRange, logger, named_offset, queue_lost

_PATIENCE = 0.5  # seconds that `latestOffset` waits for a first message; Spark would ask 80 times a second
_PAUSE = 0.02  # seconds between two looks


class MsmqStreamReader(Fetching, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are those of `offsets`, by queue. Nothing is held that would have to be released: Spark does not close a
    reader."""

    def __init__(self, options: Options, schema: StructType, uses_flight: bool | None = None) -> None:
        super().__init__(options, schema, uses_flight)
        self._targets: dict[str, int] | None = None  # of Trigger.AvailableNow
        self._claims: dict[str, Claim] = {}  # the latest of each queue
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
        queues = self.queues()
        for queue in queues:  # a stream may go on without a queue that it had, but not begin without one
            self.plane.position(queue, self.options.source)
        initial = {queue: self._initial(queue) for queue in queues}
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
        self._targets = {}
        for queue in self._present(self.queues()):
            self._targets[queue] = self.plane.position(queue, self.options.source, self.options.consumerGroup).stable

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> dict[str, Any]:
        self._progress.planned(start)
        queues = self.queues_of(start)
        deadline = time.monotonic() + (0 if self._targets is not None else _PATIENCE)
        while True:
            end = self._advance(start, queues, limit)
            if end != dict(start) or time.monotonic() >= deadline:
                return end
            time.sleep(_PAUSE)

    def _present(self, queues: Iterable[str]) -> Iterator[str]:
        """The queues that are there. Raises DataLoss for another one, unless the options say to go on without."""
        for queue in queues:
            try:
                self.plane.position(queue, self.options.source)
            except NO_QUEUE as error:
                self._without(queue, error)
                continue
            yield queue

    def _without(self, queue: str, error: MsmqError) -> None:
        """A queue is not there any more. Raises DataLoss, unless the options say to go on without."""
        if self._fails_on_loss:
            raise queue_lost(queue or self.options.source, error) from error
        logger.warning("queue %s was deleted: going on without it (failOnDataLoss=false)", queue)

    def _advance(self, start: Offsets, queues: Sequence[str], limit: ReadLimit) -> dict[str, Any]:
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        size = self.options.maxBytesPerTrigger
        end: dict[str, Any] = dict(start)
        for queue in queues:
            at = sequence_of(start.get(queue, 0))
            if rows == 0 or size == 0:
                continue
            try:
                reached, count, taken_bytes = self._next(queue, at, rows, size)
            except NO_QUEUE as error:
                self._without(queue, error)
                end.pop(queue, None)
                continue
            if reached > at:
                end[queue] = offset(reached, count)
            rows = None if rows is None else max(0, rows - count)
            size = None if size is None else max(0, size - taken_bytes)
        return end

    def _next(self, queue: str, at: int, rows: int | None, size: int | None) -> tuple[int, int, int]:
        """How far a batch gets in a queue: end, messages, bytes."""
        if self.options.mode == "receive":
            claim = self._claim(queue, at, rows, size)
            return claim.end, claim.count, 0
        return self._look(queue, at, rows, size)

    def _look(self, queue: str, at: int, rows: int | None, size: int | None) -> tuple[int, int, int]:
        until = None if self._targets is None else self._targets.get(queue, at)
        if until is not None and until <= at:
            return at, 0, 0
        plan = self.plane.plan(queue, self.options.source, at, until, 1, rows, size)
        count = sum(part.count for part in plan.ranges)
        # Without messages the offset stays: a batch of nothing would be planned for each move of the position.
        return (plan.end if count else at), count, sum(part.bytes for part in plan.ranges)

    def _claim(self, queue: str, at: int, rows: int | None = None, size: int | None = None) -> Claim:
        """What the group holds behind `at`; everything at or below it is removed by this. Raises MsmqError if another
        stream has taken the group over since this one claimed."""
        group, source = self.options.consumerGroup, self.options.source
        assert group is not None
        if self._targets is not None and self._targets.get(queue, at) <= at:
            self.bulk.commit(queue, group, at, source, self._token(queue))
            return Claim(at, at, 0, "")
        claim = self.bulk.claim(queue, group, at, rows, size, source=source, token=self._token(queue))
        self._claims[queue] = claim
        return claim

    def _token(self, queue: str) -> str | None:
        """Of the latest claim of this reader; a new reader takes the group over."""
        claim = self._claims.get(queue)
        return None if claim is None else claim.token or None

    # -- batches -----------------------------------------------------------------------------------------------

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        if self.options.mode == "receive":
            self._progress.check(start)
        self.queues_of(end)
        parts: list[InputPartition] = []
        for queue, value in end.items():
            at, until = sequence_of(start.get(queue, 0)), sequence_of(value)
            if until > at:
                try:
                    parts += self._parts(queue, at, until, planned_of(value))
                except NO_QUEUE as error:
                    self._without(queue, error)
        return parts

    def _parts(self, queue: str, at: int, until: int, planned: int | None) -> list[QueueRange]:
        """The partitions of a queue. Raises DataLoss if there are fewer messages than the batch was planned with, by
        this reader or before a restart."""
        claim = self._claim_again(queue, at, until) if self.options.mode == "receive" else None
        held = (None, None) if claim is None else (self.options.consumerGroup, claim.token)
        parts = [
            QueueRange(queue, part.start, part.end, part.count, *held)
            for part in self.ranges(queue, at, until, claim) if part.count
        ]  # fmt: skip
        count = sum(part.count for part in parts)
        if planned is not None and count < planned:
            loss = (
                f"{planned - count} of {planned} messages of {queue or self.options.source} between {at} and {until} "
                "are gone since the batch was planned"
            )
            if self._fails_on_loss:
                raise DataLoss(f"{loss}; failOnDataLoss=false goes on without them")
            logger.warning("%s; failOnDataLoss=false: going on without them", loss)
        return parts

    def _claim_again(self, queue: str, at: int, until: int) -> Claim:
        """The claim of a planned batch, which after a restart has to be asked for again."""
        claim = self._claims.get(queue)
        if claim is None or claim.start != at:
            claim = self._claim(queue, at)
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
        if group is None:
            return
        for queue, value in end.items():
            try:
                self.bulk.commit(queue, group, sequence_of(value), self.options.source, self._token(queue))
            except NO_QUEUE as error:
                self._without(queue, error)
