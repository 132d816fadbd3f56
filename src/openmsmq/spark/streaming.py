"""Streaming reads: browse queues by position, or receive, which removes messages once their batch is committed.

Spark commits the last batch of a run only when it plans the next one, perhaps never. So `latestOffset` removes all
messages before its start, because they are already in Spark's log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from openmsmq.model.errors import MsmqError
from openmsmq.spark.batches import Batches, Browsing, ClaimedBatches, Listing
from openmsmq.spark.hosts import FLIGHT
from openmsmq.spark.offsets import Offsets, offset, sequence_of, store_of
from openmsmq.spark.options import DataSourceOptions, OptionError
from openmsmq.spark.progress import Progress
from openmsmq.spark.reading import NO_QUEUE, DataLoss, Fetching, logger, queue_lost
from openmsmq.spark.shares import shares

T = TypeVar("T")
_PATIENCE = 0.5  # seconds that `latestOffset` waits for a message; otherwise Spark would call it 80 times a second
_PAUSE = 0.02  # seconds between checks
_COUNTED = 10_000  # maximum messages counted per queue for byte shares if counting means reading


class MsmqStreamReader(Fetching, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream reader. An offset maps each queue to an offset defined by `batches`. It holds no resources that need
    closing, because Spark does not close a reader."""

    def __init__(self, options: DataSourceOptions, schema: StructType, uses_flight: bool | None = None) -> None:
        super().__init__(options, schema, uses_flight)
        self._targets: dict[str, int] | None = None  # end of Trigger.AvailableNow
        self._progress = Progress()
        self._batches: Batches | None = None
        self._stores: dict[str, str | None] = {}  # host -> incarnation when the last batch was planned
        self._turn = 0
        self._reached: Offsets | None = None  # according to the last planned batch

    @property
    def batches(self) -> Batches:
        if self._batches is None:
            if self.options.mode == "browse":
                self._batches = Browsing(self)
            else:
                self._batches = ClaimedBatches(self) if isinstance(self.plane, FLIGHT) else Listing(self)
        return self._batches

    @property
    def _fails_on_loss(self) -> bool:
        return self.options.failOnDataLoss is not False

    # -- positions ---------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        def begin(queue: str) -> Any:
            self.plane.check(queue, self.options.source)
            return batches.begin(queue)

        batches = self.batches
        # A running stream may continue without a queue or host; a new one may not begin without it.
        initial = self.each(self.queues(), begin, is_needed=True)
        self._progress.begun(initial)
        return initial

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self.batches.rows(self.options.maxRecordsPerTrigger)
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        def target(queue: str) -> int:
            self.plane.check(queue, self.options.source)
            return batches.target(queue)

        batches = self.batches
        self._targets = self._present(self.queues(), target)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> dict[str, Any]:
        self._progress.planned(start)
        self._check_offsets(start)
        queues = self.queues_of(start)
        moved = self._of_this_store(start, queues)
        if moved != dict(start):  # an empty batch, so that the checkpoint refers to this store
            return moved
        deadline = time.monotonic() + (0 if self._targets is not None else _PATIENCE)
        rows = self.batches.rows(limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        while True:
            end = self._advance(start, queues, rows)
            if end != dict(start) or time.monotonic() >= deadline:
                self._reached = end
                return end
            time.sleep(_PAUSE)

    def _check_offsets(self, offsets: Offsets) -> None:
        """Raise OptionError for offsets of the other protocol: lists for receiving by MS-MQRR, otherwise positions."""
        lists, options = isinstance(self.batches, Listing), self.options
        if all(isinstance(value, list) is lists for value in offsets.values()):
            return
        flight, rpc = (f"Arrow Flight (port {options.flightPort}, protocol=flight)", "MS-MQRR (protocol=remoteread)")
        before, now = (flight, rpc) if lists else (rpc, flight)
        raise OptionError(
            f"protocol is {options.protocol!r}, and {options.host} is read by {now}, but the checkpoint is of a stream "
            f"that receives by {before}: a stream continues with the protocol that it began with. Make that one "
            "available, or begin with a new checkpoint"
        )

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the query progress: the position of each queue and its number of waiting messages."""
        if self._reached is None or not isinstance(self.plane, FLIGHT):  # with MS-MQRR, counting means reading
            return None
        reached = self._reached

        def waiting(queue: str) -> dict[str, int] | None:
            try:
                lag = self.plane.lag(
                    queue, self.options.source, sequence_of(reached[queue]), self.options.consumerGroup
                )
            except (MsmqError, ConnectionError):  # the next batch detects it
                return None
            return {"sequence": lag.stable, "lag": lag.count}

        return {queue: found for queue, found in self.each(reached, waiting).items() if found is not None}

    def _present(self, queues: Iterable[str], ask: Callable[[str], T], *, is_needed: bool = False) -> dict[str, T]:
        """Return the results of `ask` for existing queues. Raises DataLoss for a missing one, unless the options allow
        it, and HostAway like `each`."""

        def of(queue: str) -> tuple[T] | None:
            try:
                return (ask(queue),)
            except NO_QUEUE as error:
                self._without(queue, error)
                return None

        return {queue: found[0] for queue, found in self.each(queues, of, is_needed=is_needed).items() if found}

    def _without(self, queue: str, error: MsmqError) -> None:
        """Handle a missing queue: raise DataLoss, unless the options allow continuing without it."""
        if self._fails_on_loss:
            raise queue_lost(queue or self.options.source, error) from error
        logger.warning("queue %s was deleted: going on without it (failOnDataLoss=false)", queue)

    def _of_this_store(self, start: Offsets, queues: Sequence[str]) -> dict[str, Any]:
        """Return offsets valid for their host's store. Offsets without incarnation pass. If one is from another
        incarnation, raise DataLoss, or, if the options allow it, replace it with the store's current position."""
        self._stores |= self.incarnations(queues)
        others = [queue for queue, value in start.items() if self._is_other_store(queue, value)]
        moved = self._present(others, lambda queue: self._moved(queue, sequence_of(start[queue])), is_needed=True)
        if isinstance(self.batches, Browsing):
            self.batches.stores = self._stores
        return {
            queue: moved.get(queue, value) for queue, value in start.items() if queue in moved or queue not in others
        }

    def _is_other_store(self, queue: str, value: Any) -> bool:
        store = self._stores.get(self.host(queue))
        return store is not None and store_of(value) not in (None, store)

    def _moved(self, queue: str, at: int) -> dict[str, Any]:
        source = self.options.source
        everything = self.plane.lag(queue, source)
        if self._fails_on_loss:
            raise DataLoss(
                f"the offset {at} of {queue or source} belongs to an earlier incarnation of the store, which was "
                "restored from a backup or replaced: messages that arrived since then may never be read. Begin with a "
                "new checkpoint, and with mode=receive a new or forgotten consumerGroup; failOnDataLoss=false "
                f"continues after {min(at, everything.stable)}"
            )
        goes_on = min(at, everything.stable)
        skipped = everything.count - self.plane.lag(queue, source, goes_on).count
        logger.warning(
            "%s: the store was restored from a backup after the offset %d; failOnDataLoss=false: continuing after %d, "
            "%d earlier messages in the queue are not read",
            queue or source, at, goes_on, skipped,
        )  # fmt: skip
        return offset(goes_on, 0, self._stores[self.host(queue)])

    def _advance(self, start: Offsets, queues: Sequence[str], rows: int | None) -> dict[str, Any]:
        given = self._shares(start, queues, rows, self.options.maxBytesPerTrigger)
        end: dict[str, Any] = {}
        rest: dict[str, Any] = {}  # offsets of queues without messages in this batch
        for taken, passed in self.by_host(
            given, lambda names: self._take(start, {name: given[name] for name in names})
        ):
            end |= taken
            rest |= passed
        # An unreachable host keeps its offsets.
        rest |= {queue: value for queue, value in start.items() if queue not in end and self.is_away(queue)}
        if not end:
            return {queue: start[queue] for queue in start if queue in rest}
        return {queue: end[queue] if queue in end else rest[queue] for queue in queues if queue in end or queue in rest}

    def _take(
        self, start: Offsets, given: Mapping[str, tuple[int | None, int | None]]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the offsets of one host's queues: of those with messages in the batch, and of those without."""
        end: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        limits = [most_bytes for _, most_bytes in given.values() if most_bytes is not None]
        size = sum(limits) if limits else None
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
        return end, rest

    def _target(self, queue: str) -> int | None:
        return None if self._targets is None else self._targets.get(queue, 0)

    def _value(self, start: Offsets, queue: str) -> Any:
        """Return the offset of a queue; a newly named one is read from its first message."""
        return start[queue] if queue in start else [] if isinstance(self.batches, Listing) else 0

    def _shares(
        self, start: Offsets, queues: Sequence[str], rows: int | None, size: int | None
    ) -> dict[str, tuple[int | None, int | None]]:
        """Return the maximum messages and bytes per existing queue in a batch, None for no limit; in the order in which
        the queues are served."""
        turn = self._turn % max(1, len(queues))
        self._turn += 1
        order = [*queues[turn:], *queues[:turn]]
        if len(queues) <= 1 or (rows is None and size is None):
            return dict.fromkeys(order, (rows, size))
        batches = self.batches
        waiting = self._present(
            order,
            lambda queue: batches.waiting(queue, self._value(start, queue), self._target(queue), rows or _COUNTED),
        )
        total = sum(waiting.values())
        by_rows = {} if rows is None else shares(waiting, min(rows, total))
        by_bytes = {} if size is None else shares(waiting, size)
        return {queue: (by_rows.get(queue), by_bytes.get(queue)) for queue in waiting}

    # -- batches -----------------------------------------------------------------------------------------------

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        if self.options.mode == "receive":
            self._progress.check(start)
        self._check_offsets(end)
        self.queues_of(end)
        moved = [queue for queue, value in end.items() if value != start.get(queue)]
        self._check_store(end, moved)
        batches = self.batches
        found = self._present(
            moved, lambda queue: batches.parts(queue, self._value(start, queue), end[queue]), is_needed=True
        )
        for queue, (_, count, planned) in found.items():
            if planned is not None and count < planned:
                self.lost(
                    f"{planned - count} of {planned} messages of {queue or self.options.source} between "
                    f"{sequence_of(self._value(start, queue))} and {sequence_of(end[queue])} "
                    "are gone since the batch was planned",
                    self._fails_on_loss,
                )
        return [part for parts, _, _ in found.values() for part in parts]

    def _check_store(self, end: Offsets, queues: Sequence[str]) -> None:
        """Raise DataLoss if a batch planned before a restart belongs to another incarnation of the store."""
        self._stores |= self.incarnations(
            [queue for queue in queues if self.host(queue) not in self._stores], is_needed=True
        )
        others = [queue for queue in queues if self._is_other_store(queue, end[queue])]
        if others:
            self.lost(
                f"the batch of {', '.join(others)} was planned before the queue manager's store was restored from a "
                "backup: what it had may be gone",
                self._fails_on_loss,
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if type(partition) is InputPartition:  # Spark creates one partition if there is none
            return iter(())
        return self.batches.read(partition)

    def commit(self, end: Offsets) -> None:
        self._progress.committed(end)
        batches = self.batches
        # A host that misses this commit receives it with its next batch.
        self._present(end, lambda queue: batches.remove(queue, end[queue]))
