"""Streaming receives by MS-MQRR, from any MSMQ server: read and removed by lookup identifier.

The protocol has no positions, and a server that is not openmsmq does not report which transactions are open: messages
may come up below any that were seen. So an offset is the list of lookup identifiers of its batch. A batch is read again
from its list, whatever came meanwhile; it is removed by its list once Spark has committed it, and nothing else is.
While a stream runs, its planner has the queue open for itself (MQ_DENY_RECEIVE_SHARE): the server refuses other
receivers, and a second stream.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from openmsmq.spark.offsets import Offsets
from openmsmq.spark.options import Options
from openmsmq.spark.progress import Progress
from openmsmq.spark.reading import DataLoss, Fetching
from openmsmq.spark.remote_plane import RemotePlane

_BATCH = 2_000  # messages a batch, unless asked for otherwise: each takes two calls, and a place in the offset
_MOST = 10_000  # whatever was asked for
_PATIENCE = 0.5  # seconds that `latestOffset` waits for a first message
_PAUSE = 0.05  # seconds between two looks


@dataclass
class Listed(InputPartition):
    """A partition: messages of one queue by their lookup identifiers."""

    queue: str
    identifiers: list[int]


class RemoteReceiver(Fetching, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What `MsmqStreamReader` is for Arrow Flight; `consumerGroup` means nothing to the server here."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema, uses_flight=False)
        self._targets: dict[str, int] | None = None  # of Trigger.AvailableNow
        self._progress = Progress()
        self._removed: dict[str, list[int]] = {}  # the last list, which Spark shows again and again while it is idle

    @property
    def remote(self) -> RemotePlane:
        plane = self.plane
        assert isinstance(plane, RemotePlane)
        return plane

    def initialOffset(self) -> dict[str, Any]:
        initial: dict[str, Any] = {queue: [] for queue in self.queues()}
        self._progress.begun(initial)
        return initial

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.options.maxRecordsPerTrigger or _BATCH)

    def prepareForTriggerAvailableNow(self) -> None:
        self._targets = {q: self.remote.position(q, self.options.source).last for q in self.queues()}

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> dict[str, Any]:
        queues = self.queues_of(start)
        self._remove(start)
        self._progress.planned(start)
        deadline = time.monotonic() + (0 if self._targets is not None else _PATIENCE)
        rows = min(limit.max_rows, _MOST) if isinstance(limit, ReadMaxRows) else _BATCH
        while True:
            found = self._look(queues, rows)
            if any(found.values()):
                return found
            if time.monotonic() >= deadline:
                return dict(start)
            time.sleep(_PAUSE)

    def _look(self, queues: Sequence[str], rows: int) -> dict[str, list[int]]:
        """The first messages of each queue, by lookup identifier, within the limits of a batch."""
        size = self.options.maxBytesPerTrigger
        found: dict[str, list[int]] = {}
        for queue in queues:
            found[queue] = []
            target = None if self._targets is None else self._targets.get(queue, 0)
            if not rows or (size is not None and size <= 0):
                continue
            for message in self.remote.walk_as_receiver(queue, self.options.source):
                if target is not None and message.sequence > target:
                    continue
                found[queue].append(message.lookup_identifier)
                rows -= 1
                size = None if size is None else size - message.size
                if not rows or (size is not None and size <= 0):
                    break
        return found

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        self._progress.check(start)
        self.queues_of(end)
        options = self.options
        parts: list[InputPartition] = []
        for queue, identifiers in end.items():
            most = options.maxRecordsPerPartition or len(identifiers) or 1
            wanted = max(options.minPartitions, -(-len(identifiers) // most))
            share = max(1, -(-len(identifiers) // wanted))
            parts += [Listed(queue, identifiers[at : at + share]) for at in range(0, len(identifiers), share)]
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Listed):
            return
        rows = 0
        for batch in self.remote.read_listed(
            partition.queue, self.options.source, partition.identifiers, self.columns(), self.options.includeBody
        ):
            rows += batch.num_rows
            yield from self.shaped(batch)
        missing = len(partition.identifiers) - rows
        if missing and self.options.failOnDataLoss is not False:
            raise DataLoss(
                f"{missing} of {len(partition.identifiers)} messages of {partition.queue or self.options.source} are "
                "gone since the read was planned; failOnDataLoss=false goes on without them"
            )

    def commit(self, end: Offsets) -> None:
        self._progress.committed(end)
        self._remove(end)

    def _remove(self, end: Offsets) -> None:
        for queue, identifiers in end.items():
            if identifiers and self._removed.get(queue) != identifiers:
                self.remote.remove(queue, self.options.source, identifiers)
                self._removed[queue] = list(identifiers)
