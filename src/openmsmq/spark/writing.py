"""Write rows as messages: each task stages its rows, and one transaction of the queue manager makes them visible."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from openmsmq.bulk.client import BulkClient
from openmsmq.bulk.row_stream import Refusal
from openmsmq.model.bodies import encode_body
from openmsmq.model.constants import VarType
from openmsmq.model.errors import IllegalPropertyValue, MsmqError
from openmsmq.spark.collecting import Collected, Errors
from openmsmq.spark.options import DataSourceOptions, OptionError
from openmsmq.spark.plane import flight
from openmsmq.spark.retry import RetryingClient
from openmsmq.spark.schema import check_writable, plain_names

# Local properties of a streaming query's tasks: the batch number, and the query's identifier, stored in its
# checkpoint.
_BATCH_ID, _QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"
logger = logging.getLogger(__name__)

_MOST_AT_ONCE = 512 << 20  # maximum bytes of texts encoded together: offsets of their bodies have 31 bits
HELD_BYTES = 64 << 20  # of a task's rows, kept for a retry
_SIGN_OF_LIFE = 60.0  # seconds between keep-alives of a task; the queue manager drops the stages of a vanished writer


@dataclass
class WrittenStage(WriterCommitMessage):
    """Rows staged by a task; no handle if it had no rows. `errors` names its file of rows that cannot be sent; `query`
    is the query's identifier."""

    handle: str | None
    rows: int
    errors: str | None = None
    query: str = ""


class _Writing:
    def __init__(self, options: DataSourceOptions, schema: StructType) -> None:
        check_writable(schema)
        if options.defaultQueue is None and "destination_queue" not in plain_names(schema.names):
            raise OptionError("specify defaultQueue, or write rows with the column destination_queue")
        self.options = options
        self._errors("")  # report an unusable errorPath before any job starts

    def _errors(self, sink: str) -> Errors | None:
        return None if self.options.errorPath is None else Errors(self.options.errorPath, sink)

    def _stage(self, sink: str, batch: int, rows: Iterator[pa.RecordBatch], query: str = "") -> WrittenStage:
        with _signs_of_life(self.options, sink):
            return self._stage_rows(sink, batch, rows, query)

    def _stage_rows(self, sink: str, batch: int, rows: Iterator[pa.RecordBatch], query: str) -> WrittenStage:
        context = TaskContext.get()
        assert context is not None
        partition, attempt, tries = context.partitionId(), context.taskAttemptId(), 0
        repeatable = Repeatable(rows)
        with flight(self.options) as plane:
            while True:
                try:
                    return self._try(plane, (sink, batch, partition, f"{attempt}.{tries}"), repeatable, query)
                except ConnectionError as error:  # rows staged by the failed attempt are dropped when its batch ends
                    if not repeatable.is_whole:
                        raise ConnectionError(
                            f"partition {partition}: {error}; more than {HELD_BYTES >> 20} MiB of its rows were sent, "
                            "which only a new attempt of the task can repeat (spark.task.maxFailures)"
                        ) from error
                    plane.patience.wait(error)
                    tries += 1

    def _try(
        self, plane: RetryingClient, target: tuple[str, int, int, str], rows: Iterable[pa.RecordBatch], query: str
    ) -> WrittenStage:
        sink, batch, partition, _ = target
        options, errors = self.options, self._errors(sink)
        collected = None if errors is None else errors.attempt(batch, partition)
        batches = _prepared(rows, collected)
        try:
            first = next(batches, None)
            if first is None:  # no rows, or only unsendable ones
                return WrittenStage(None, 0, None if collected is None else collected.close(), query)
            staged = plane.stage(
                *target, chain([first], batches), options.defaultQueue, options.transactional,
                None if collected is None else collected.take, query,
            )  # fmt: skip
            plane.patience.answered()
            try:
                file = None if collected is None else collected.close()
            except BaseException:
                with suppress(MsmqError, ConnectionError):  # it is dropped after stage_time_limit anyway
                    plane.forget(sink, stages=[staged])
                raise
            return WrittenStage(staged.handle, staged.rows, file, query)
        except BaseException as error:
            if collected is not None:
                collected.discard()
            if isinstance(error, MsmqError):
                raise MsmqError(error.hresult, f"partition {partition}: {error.detail}") from error
            raise

    def _finalize(self, sink: str, batch: int, messages: list[Any], once: bool = False) -> None:
        if not messages:
            return  # a batch without partitions has nothing to send or repeat
        errors = self._errors(sink)
        with flight(self.options) as plane:
            if errors is not None and _is_open(plane, sink, batch):
                errors.publish(batch, _files(messages))
            plane.finalize(sink, batch, _handles(messages), messages[0].query, once)
        if errors is not None:
            errors.discard_all()

    def _forget(self, sink: str, batch: int, messages: list[Any]) -> None:
        """Drop the stages of a batch. A finalized batch is not undone: its stages no longer exist."""
        errors = self._errors(sink)
        with flight(self.options) as plane:
            plane.forget(sink, stages=_handles(messages))
            if errors is not None:
                errors.discard(_files(messages))
                if _is_open(plane, sink, batch):  # only now: a dropped stage cannot be finalized
                    errors.withdraw(batch)


@contextmanager
def _signs_of_life(options: DataSourceOptions, sink: str) -> Iterator[None]:
    """Keep the stages of a sink alive while one of its tasks runs, even if rows arrive slowly."""
    done = threading.Event()

    def show() -> None:
        while not done.wait(_SIGN_OF_LIFE):
            try:
                with flight(options) as plane:
                    plane.renew(sink)
            except Exception as error:  # the next one may succeed
                logger.warning(
                    "sink %s: a keep-alive failed; without any for stage_time_limit, the queue manager drops the rows "
                    "staged by this task: %s", sink, error,
                )  # fmt: skip

    threading.Thread(target=show, name=f"keep-alives of {sink}", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _is_open(plane: BulkClient, sink: str, batch: int) -> bool:
    """Whether the batch is not yet finalized."""
    last = plane.last_batch(sink)
    return last is None or last < batch


def _handles(messages: list[Any]) -> list[str]:
    """Return the stage handles of tasks with rows. The commit message of a failed task is None."""
    return [message.handle for message in messages if message is not None and message.handle is not None]


def _files(messages: list[Any]) -> list[str]:
    return [message.errors for message in messages if message is not None and message.errors is not None]


class MsmqWriter(_Writing, DataSourceArrowWriter):
    """A batch write: all rows, or none."""

    def __init__(self, options: DataSourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.sink = f"{options.sinkId or 'batch'}/{uuid.uuid4()}"  # written once; Spark gives it no number

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._stage(self.sink, 0, iterator)

    def commit(self, messages: list[Any]) -> None:
        self._finalize(self.sink, 0, messages, once=True)

    def abort(self, messages: list[Any]) -> None:
        self._forget(self.sink, 0, messages)


class MsmqStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """A streaming write: sends each batch of the sink once."""

    @property
    def sink(self) -> str:
        assert self.options.sinkId is not None
        return self.options.sinkId

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        batch = context.getLocalProperty(_BATCH_ID) if context is not None else None
        if batch is None:
            raise RuntimeError(f"Spark does not set the number of the batch ({_BATCH_ID})")
        query = context.getLocalProperty(_QUERY_ID) if context is not None else None
        if not query:
            raise RuntimeError(f"Spark does not set the identifier of the query ({_QUERY_ID})")
        return self._stage(self.sink, int(batch), iterator, query)

    def commit(self, messages: list[Any], batchId: int) -> None:
        if None in messages:  # all tasks of a committed batch have succeeded; without tasks, nothing has called `write`
            raise OptionError("a continuous trigger writes nothing to this sink; allowed: processingTime, availableNow")
        self._finalize(self.sink, batchId, messages)

    def abort(self, messages: list[Any], batchId: int) -> None:
        self._forget(self.sink, batchId, messages)


class Repeatable:
    """Rows of a one-pass iterator, buffered up to a limit, so that an interrupted upload can be repeated.

    Attributes:
        is_whole: whether all rows so far are buffered.
    """

    def __init__(self, rows: Iterator[pa.RecordBatch]) -> None:
        self._rows = rows
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self.is_whole = True

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Iterate from the first row; allowed only while `is_whole`."""
        yield from list(self._held)
        for batch in self._rows:
            self._bytes += batch.nbytes
            if self._bytes > HELD_BYTES:
                self.is_whole = False
                self._held.clear()
            else:
                self._held.append(batch)
            yield batch


def _prepared(batches: Iterable[pa.RecordBatch], collected: Collected | None) -> Iterator[pa.RecordBatch]:
    """Yield rows in the form to send; keep the originals in case a row is refused. A row with text that is not valid
    UTF-8, which Spark allows, is refused here: otherwise the queue manager would refuse all rows with it."""
    first = 0
    for batch in batches:
        bad = _without_encoding(batch)
        if bad:
            if collected is None:
                row, column = next(iter(bad.items()))
                raise IllegalPropertyValue(detail=f"row {first + row}: {column} is not valid UTF-8")
            refused = [Refusal(row, IllegalPropertyValue(detail=f"{column} is not valid UTF-8"))
                       for row, column in bad.items()]  # fmt: skip
            collected.put_aside(batch, refused)
            batch = batch.take(pa.array([row for row in range(batch.num_rows) if row not in bad], pa.int64()))
        first += batch.num_rows + len(bad)
        if batch.num_rows:
            if collected is not None:
                collected.hold(batch)
            yield _with_bytes(batch.rename_columns(plain_names(batch.schema.names)))


def _without_encoding(batch: pa.RecordBatch) -> dict[int, str]:
    """Return the rows with text that is not valid UTF-8, each with such a column, in order."""
    found: dict[int, str] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not pa.types.is_string(column.type):
            continue
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            for row, raw in enumerate(column.cast(pa.binary()).to_pylist()):
                try:
                    str(raw or b"", "utf-8")
                except UnicodeDecodeError:
                    found.setdefault(row, name)
    return dict(sorted(found.items()))


def _with_bytes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert a body column of strings to bytes, with a string's body type unless the rows have their own."""
    index = batch.schema.get_field_index("body")
    if pa.types.is_binary(batch.column(index).type):
        return batch
    texts = batch.column(index)
    batch = batch.set_column(index, "body", _encoded(texts))
    if "body_type" not in batch.schema.names:
        kinds = pc.if_else(pc.is_valid(texts), pa.scalar(int(VarType.VT_BSTR), pa.int32()), pa.scalar(0, pa.int32()))
        batch = batch.append_column("body_type", kinds)
    return batch


def _encoded(texts: pa.StringArray) -> pa.BinaryArray:
    """Encode texts as bodies of type VT_BSTR (UTF-16); if all are ASCII, all rows at once."""
    if (
        texts.null_count
        or not len(texts)
        or texts.nbytes > _MOST_AT_ONCE
        or not pc.all(pc.string_is_ascii(texts)).as_py()
    ):
        return pa.array([None if text is None else encode_body(text)[0] for text in texts.to_pylist()], pa.binary())
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    characters = np.frombuffer(data or b"", np.uint8)[offsets[0] : offsets[-1]]
    buffers = [None, pa.py_buffer(2 * (offsets - offsets[0])), pa.py_buffer(characters.astype("<u2"))]
    return pa.Array.from_buffers(pa.binary(), len(texts), buffers)
