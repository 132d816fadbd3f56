"""Writing rows as messages: each task stages its rows, and one transaction of the queue manager makes them visible."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from openmsmq.model.bodies import encode_body
from openmsmq.model.errors import MsmqError
from openmsmq.model.names import parse_format_name
from openmsmq.spark.options import OptionError, Options
from openmsmq.spark.plane import flight
from openmsmq.spark.schema import check_writable

_BATCH_ID = "streaming.sql.batchId"  # the local property in which Spark tells a task its batch
_MAXIMUM_LABEL = 249
_BOUNDS = {"priority": 7, "acknowledgment": 0xF, "journaling": 3}
_QUEUES = ("destination_queue", "response_queue", "admin_queue")


@dataclass
class Stage(WriterCommitMessage):
    """What a task has staged; no handle if it had no rows."""

    handle: str | None
    rows: int
    collected: int = 0


class _Writing:
    def __init__(self, options: Options, schema: StructType) -> None:
        check_writable(schema)
        if options.defaultQueue is None and "destination_queue" not in schema.names:
            raise OptionError("give defaultQueue, or rows with the column destination_queue")
        self.options = options

    def _stage(self, sink: str, batch: int, rows: Iterator[pa.RecordBatch]) -> Stage:
        context = TaskContext.get()
        assert context is not None
        partition, attempt = context.partitionId(), context.taskAttemptId()
        options, counter = self.options, _Counter(self.options, f"{sink}-{batch}-{partition}-{attempt}")
        with flight(options) as plane:
            batches = counter.count(rows)
            first = next(batches, None)
            if first is None:
                return Stage(None, 0, counter.collected)
            try:
                staged = plane.stage(
                    sink, batch, partition, attempt, _chain(first, batches), options.defaultQueue, options.transactional
                )
            except MsmqError as error:
                raise MsmqError(error.hresult, f"partition {partition}: {error.detail}") from error
            return Stage(staged.handle, staged.rows, counter.collected)

    def _finalize(self, sink: str, batch: int, messages: list[Any]) -> None:
        with flight(self.options) as plane:
            plane.finalize(sink, batch, [m.handle for m in messages if m is not None and m.handle is not None])

    def _forget(self, sink: str, messages: list[Any]) -> None:
        """A batch that was finalised is not undone: its stages are gone, and forgetting finds none."""
        with flight(self.options) as plane:
            plane.forget(sink, stages=[m.handle for m in messages if m is not None and m.handle is not None])


class MsmqWriter(_Writing, DataSourceArrowWriter):
    """A batch write: all rows, or none."""

    def __init__(self, options: Options, schema: StructType) -> None:
        super().__init__(options, schema)
        self.sink = f"{options.sinkId or 'batch'}/{uuid.uuid4()}"  # written once; Spark has no number for it

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._stage(self.sink, 0, iterator)

    def commit(self, messages: list[Any]) -> None:
        self._finalize(self.sink, 0, messages)

    def abort(self, messages: list[Any]) -> None:
        self._forget(self.sink, messages)


class MsmqStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """A streaming write: each batch of the sink once."""

    @property
    def _sink(self) -> str:
        assert self.options.sinkId is not None
        return self.options.sinkId

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        batch = context.getLocalProperty(_BATCH_ID) if context is not None else None
        if batch is None:
            raise RuntimeError(f"Spark does not tell the number of the batch ({_BATCH_ID})")
        return self._stage(self._sink, int(batch), iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:
        self._finalize(self._sink, batchId, messages)

    def abort(self, messages: list[Any], batchId: int) -> None:
        self._forget(self._sink, messages)


class _Counter:
    """Rows on their way to a stage: text bodies become bytes, and with onError=collect bad rows are put aside."""

    def __init__(self, options: Options, name: str) -> None:
        self._options, self._name = options, name.replace("/", "_")
        self.collected = 0

    def count(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if self._options.onError == "collect":
                batch = self._without_bad(batch, number)
            if batch.num_rows:
                yield _with_bytes(batch)

    def _without_bad(self, batch: pa.RecordBatch, number: int) -> pa.RecordBatch:
        reasons = [_reason(row) for row in batch.to_pylist()]
        bad = [reason is not None for reason in reasons]
        if not any(bad):
            return batch
        assert self._options.errorPath is not None
        rows = batch.filter(pa.array(bad)).append_column("error", pa.array([r for r in reasons if r is not None]))
        directory = Path(self._options.errorPath)
        directory.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_batches([rows]), directory / f"{self._name}-{number}.parquet")
        self.collected += rows.num_rows
        return batch.filter(pa.array([not value for value in bad]))


def _reason(row: dict[str, Any]) -> str | None:
    """Why a row can't be sent, as far as it can be known without its queue; None if it can."""
    if row.get("body") is None:
        return "body is null"
    if len(row.get("label") or "") > _MAXIMUM_LABEL:
        return f"label has {len(row['label'])} characters, at most {_MAXIMUM_LABEL}"
    for name, maximum in _BOUNDS.items():
        if row.get(name) is not None and not 0 <= row[name] <= maximum:
            return f"{name} is {row[name]}, allowed are 0 to {maximum}"
    for name in _QUEUES:
        text = row.get(name)
        if text and "=" in text.partition("\\")[0]:
            try:
                parse_format_name(text)
            except MsmqError as error:
                return f"{name}: {error.detail}"
    return None


def _with_bytes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A body column of strings as bytes, with the body type of a string unless rows say their own."""
    index = batch.schema.get_field_index("body")
    if pa.types.is_binary(batch.column(index).type):
        return batch
    encoded = [(None, 0) if text is None else encode_body(text) for text in batch.column(index).to_pylist()]
    batch = batch.set_column(index, "body", pa.array([body for body, _ in encoded], pa.binary()))
    if "body_type" not in batch.schema.names:
        batch = batch.append_column("body_type", pa.array([kind for _, kind in encoded], pa.int32()))
    return batch


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
