"""Writing rows as messages: each task stages its rows, and one transaction of the queue manager makes them visible."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from openmsmq.bulk.client import BulkClient
from openmsmq.model.bodies import encode_body
from openmsmq.model.errors import MsmqError
from openmsmq.spark.collecting import Collected, Errors
from openmsmq.spark.options import OptionError, Options
from openmsmq.spark.plane import flight
from openmsmq.spark.schema import check_writable

_BATCH_ID = "streaming.sql.batchId"  # the local property in which Spark tells a task its batch


@dataclass
class Stage(WriterCommitMessage):
    """What a task has staged; no handle if it had no rows. `errors` is its file of rows that can't be sent."""

    handle: str | None
    rows: int
    errors: str | None = None


class _Writing:
    def __init__(self, options: Options, schema: StructType) -> None:
        check_writable(schema)
        if options.defaultQueue is None and "destination_queue" not in schema.names:
            raise OptionError("give defaultQueue, or rows with the column destination_queue")
        self.options = options
        self._errors("")  # an errorPath that can't be is told before any job starts

    def _errors(self, sink: str) -> Errors | None:
        return None if self.options.errorPath is None else Errors(self.options.errorPath, sink)

    def _stage(self, sink: str, batch: int, rows: Iterator[pa.RecordBatch]) -> Stage:
        context = TaskContext.get()
        assert context is not None
        partition, attempt = context.partitionId(), context.taskAttemptId()
        options, errors = self.options, self._errors(sink)
        collected = None if errors is None else errors.attempt(batch, partition)
        batches = _prepared(rows, collected)
        first = next(batches, None)
        if first is None:
            return Stage(None, 0)
        try:
            with flight(options) as plane:
                staged = plane.stage(
                    sink, batch, partition, attempt, chain([first], batches), options.defaultQueue,
                    options.transactional, None if collected is None else collected.take,
                )  # fmt: skip
                try:
                    file = None if collected is None else collected.close()
                except BaseException:
                    with suppress(MsmqError, ConnectionError):
                        plane.forget(sink, stages=[staged])
                    raise
            return Stage(staged.handle, staged.rows, file)
        except BaseException as error:
            if collected is not None:
                collected.discard()
            if isinstance(error, MsmqError):
                raise MsmqError(error.hresult, f"partition {partition}: {error.detail}") from error
            raise

    def _finalize(self, sink: str, batch: int, messages: list[Any]) -> None:
        errors = self._errors(sink)
        with flight(self.options) as plane:
            if errors is not None and _is_open(plane, sink, batch):
                errors.publish(batch, _files(messages))
            plane.finalize(sink, batch, _handles(messages))
        if errors is not None:
            errors.discard_all()

    def _forget(self, sink: str, batch: int, messages: list[Any]) -> None:
        """A batch that was finalised is not undone: its stages are gone, and forgetting finds none."""
        errors = self._errors(sink)
        with flight(self.options) as plane:
            plane.forget(sink, stages=_handles(messages))
            if errors is not None:
                errors.discard(_files(messages))
                if _is_open(plane, sink, batch):  # not before: what is forgotten can't be finalized any more
                    errors.withdraw(batch)


def _is_open(plane: BulkClient, sink: str, batch: int) -> bool:
    """Whether the batch is not finalized yet."""
    last = plane.last_batch(sink)
    return last is None or last < batch


def _handles(messages: list[Any]) -> list[str]:
    """Of the tasks that have staged something; a task that failed has no message."""
    return [message.handle for message in messages if message is not None and message.handle is not None]


def _files(messages: list[Any]) -> list[str]:
    return [message.errors for message in messages if message is not None and message.errors is not None]


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
        self._forget(self.sink, 0, messages)


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
        if None in messages:  # of a batch that is committed all tasks have succeeded, so nobody has called `write`
            raise OptionError("a continuous trigger writes nothing to this sink; allowed: processingTime, availableNow")
        self._finalize(self._sink, batchId, messages)

    def abort(self, messages: list[Any], batchId: int) -> None:
        self._forget(self._sink, batchId, messages)


def _prepared(batches: Iterator[pa.RecordBatch], collected: Collected | None) -> Iterator[pa.RecordBatch]:
    """Rows as they are sent; as they came, they are held for the case that one is refused."""
    for batch in batches:
        if batch.num_rows:
            if collected is not None:
                collected.hold(batch)
            yield _with_bytes(batch)


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
