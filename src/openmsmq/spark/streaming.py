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

from openmsmq.bulk.client import BulkClient
from openmsmq.model.errors import MsmqError
from openmsmq.spark.batches import Batches, Browsing, Claiming, Listing
from openmsmq.spark.offsets import Offsets, offset, sequence_of, store_of
from openmsmq.spark.options import Options
from openmsmq.spark.progress import Progress
from openmsmq.spark.reading import NO_QUEUE, DataLoss, Fetching, logger, queue_lost
from openmsmq.spark.shares import shares

_PATIENCE = 0.5  # seconds that `latestOffset` waits for a first message; Spark would ask 80 times a second
_PAUSE = 0.02  # seconds between two looks
_COUNTED = 10_000  # messages of each queue that are counted for shares of bytes, where counting is reading


class MsmqStreamReader(Fetching, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are by queue, and each is what `batches` makes of it. Nothing is held that would have to be released:
    Spark does not close a reader."""

    def __init__(self, options: Options, schema: StructType, uses_flight: bool | None = None) -> None:
        super().__init__(options, schema, uses_flight)
        self._targets: dict[str, int] | None = None  # of Trigger.AvailableNow
        self._progress = Progress()
        self._batches: Batches | None = None
        self._store: str | None = None  # incarnation when a batch was planned last
        self._turn = 0
        self._reached: Offsets | None = None  # by the last batch that was planned

    @property
    def batches(self) -> Batches:
        if self._batches is None:
            if self.options.mode == "browse":
                self._batches = Browsing(self)
            else:
                self._batches = Claiming(self) if isinstance(self.plane, BulkClient) else Listing(self)
        return self._batches

    @property
    def _fails_on_loss(self) -> bool:
        return self.options.failOnDataLoss is not False

    # -- positions ---------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        queues = self.queues()
        for queue in queues:  # a stream may go on without a queue that it had, but not begin without one
            self.plane.check(queue, self.options.source)
        initial = {queue: self.batches.begin(queue) for queue in queues}
        self._progress.begun(initial)
        return initial

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self.batches.rows(self.options.maxRecordsPerTrigger)
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._targets = {}
        for queue in self._present(self.queues()):
            self._targets[queue] = self.batches.target(queue)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> dict[str, Any]:
        self._progress.planned(start)
        queues = self.queues_of(start)
        moved = self._of_this_store(start)
        if moved != dict(start):  # a batch of nothing, so that the checkpoint is of this store
            return moved
        deadline = time.monotonic() + (0 if self._targets is not None else _PATIENCE)
        rows = self.batches.rows(limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        while True:
            end = self._advance(start, queues, rows)
            if end != dict(start) or time.monotonic() >= deadline:
                self._reached = end
                return end
            time.sleep(_PAUSE)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the progress of the query: how far each queue has got, and how many messages wait there."""
        if self._reached is None or not isinstance(self.plane, BulkClient):  # by MS-MQRR counting is reading
            return None
        latest = {}
        for queue, value in self._reached.items():
            try:
                lag = self.plane.lag(queue, self.options.source, sequence_of(value), self.options.consumerGroup)
            except (MsmqError, ConnectionError):  # the next batch finds out
                continue
            latest[queue] = {"sequence": lag.stable, "lag": lag.count}
        return latest

    def _present(self, queues: Iterable[str]) -> Iterator[str]:
        """The queues that are there. Raises DataLoss for another one, unless the options say to go on without."""
        for queue in queues:
            try:
                self.plane.check(queue, self.options.source)
            except NO_QUEUE as error:
                self._without(queue, error)
                continue
            yield queue

    def _without(self, queue: str, error: MsmqError) -> None:
        """A queue is not there any more. Raises DataLoss, unless the options say to go on without."""
        if self._fails_on_loss:
            raise queue_lost(queue or self.options.source, error) from error
        logger.warning("queue %s was deleted: going on without it (failOnDataLoss=false)", queue)

    def _of_this_store(self, start: Offsets) -> dict[str, Any]:
        """Offsets that are of this incarnation of the store, or of one that is not known. Raises DataLoss for others,
        unless the options say to go on: they are where this store is then."""
        self._store = self.plane.incarnation()
        moved = dict(start)
        for queue, value in start.items():
            if not self._is_other_store(value):
                continue
            try:
                moved[queue] = self._moved(queue, sequence_of(value))
            except NO_QUEUE as error:
                self._without(queue, error)
                del moved[queue]
        if isinstance(self.batches, Browsing):
            self.batches.store = self._store
        return moved

    def _is_other_store(self, value: Any) -> bool:
        return self._store is not None and store_of(value) not in (None, self._store)

    def _moved(self, queue: str, at: int) -> dict[str, Any]:
        source = self.options.source
        everything = self.plane.lag(queue, source)
        if self._fails_on_loss:
            raise DataLoss(
                f"the offset {at} of {queue or source} is of another life of the queue manager's store, which was "
                "restored from a backup (or replaced) since: messages that came then may never be read. Begin with a "
                "new checkpoint, and with mode=receive a new or forgotten consumerGroup; failOnDataLoss=false goes on "
                f"behind {min(at, everything.stable)}"
            )
        goes_on = min(at, everything.stable)
        skipped = everything.count - self.plane.lag(queue, source, goes_on).count
        logger.warning(
            "%s: the queue manager's store was restored from a backup since the offset %d; failOnDataLoss=false: going "
            "on behind %d, %d messages before that are in the queue and are not read",
            queue or source, at, goes_on, skipped,
        )  # fmt: skip
        return offset(goes_on, 0, self._store)

    def _advance(self, start: Offsets, queues: Sequence[str], rows: int | None) -> dict[str, Any]:
        size = self.options.maxBytesPerTrigger
        end: dict[str, Any] = {}
        rest: dict[str, Any] = {}  # offsets of queues that have nothing in this batch
        given = self._shares(start, queues, rows, size)
        for queue, (most_rows, most_bytes) in given.items():
            value = self._value(start, queue)
            try:
                taken = None
                if most_rows == 0 or most_bytes == 0 or (size is not None and size <= 0):
                    self.batches.remove(queue, value)
                else:
                    asked = None if size is None else min(size, most_bytes or size)
                    taken = self.batches.take(queue, value, self._target(queue), most_rows, asked)
            except NO_QUEUE as error:
                self._without(queue, error)
                continue
            if taken is None:
                if queue in start:
                    rest[queue] = self.batches.resting(value)
                continue
            end[queue] = taken.value
            size = None if size is None else size - taken.bytes
        if not end:
            return {queue: start[queue] for queue in rest}
        return {queue: end[queue] if queue in end else rest[queue] for queue in queues if queue in end or queue in rest}

    def _target(self, queue: str) -> int | None:
        return None if self._targets is None else self._targets.get(queue, 0)

    def _value(self, start: Offsets, queue: str) -> Any:
        """The offset of a queue; one that is named anew is read from its first message."""
        return start[queue] if queue in start else [] if isinstance(self.batches, Listing) else 0

    def _shares(
        self, start: Offsets, queues: Sequence[str], rows: int | None, size: int | None
    ) -> dict[str, tuple[int | None, int | None]]:
        """How many messages and bytes a batch has of each queue that is there, None without a limit; in the order in
        which they have their turn."""
        turn = self._turn % max(1, len(queues))
        self._turn += 1
        order = [*queues[turn:], *queues[:turn]]
        if len(queues) <= 1 or (rows is None and size is None):
            return dict.fromkeys(order, (rows, size))
        waiting: dict[str, int] = {}
        for queue in order:
            try:
                waiting[queue] = self.batches.waiting(
                    queue, self._value(start, queue), self._target(queue), rows or _COUNTED
                )
            except NO_QUEUE as error:
                self._without(queue, error)
        total = sum(waiting.values())
        by_rows = {} if rows is None else shares(waiting, min(rows, total))
        by_bytes = {} if size is None else shares(waiting, size)
        return {queue: (by_rows.get(queue), by_bytes.get(queue)) for queue in waiting}

    # -- batches -----------------------------------------------------------------------------------------------

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        if self.options.mode == "receive":
            self._progress.check(start)
        self.queues_of(end)
        self._check_store(end)
        parts: list[InputPartition] = []
        for queue, value in end.items():
            try:
                found, count, planned = self.batches.parts(queue, self._value(start, queue), value)
            except NO_QUEUE as error:
                self._without(queue, error)
                continue
            parts += found
            if planned is not None and count < planned:
                self.lost(
                    f"{planned - count} of {planned} messages of {queue or self.options.source} between "
                    f"{sequence_of(self._value(start, queue))} and {sequence_of(value)} "
                    "are gone since the batch was planned",
                    self._fails_on_loss,
                )
        return parts

    def _check_store(self, end: Offsets) -> None:
        """A batch that was planned before a restart may be of another life of the store. Raises DataLoss."""
        if self._store is None:
            self._store = self.plane.incarnation()
        others = [queue for queue, value in end.items() if self._is_other_store(value)]
        if others:
            self.lost(
                f"the batch of {', '.join(others)} was planned before the queue manager's store was restored from a "
                "backup: what it had may be gone",
                self._fails_on_loss,
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if type(partition) is InputPartition:  # Spark makes one where there are none
            return iter(())
        return self.batches.read(partition)

    def commit(self, end: Offsets) -> None:
        self._progress.committed(end)
        for queue, value in end.items():
            try:
                self.batches.remove(queue, value)
            except NO_QUEUE as error:
                self._without(queue, error)
