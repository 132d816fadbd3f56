"""Archive the messages of queues, each message once.

Spark gives each batch a number and repeats it, with the same number, until it has been written. Parquet: a batch is
written to a staging directory of its run, then its files are moved to their final places. A completely written batch is
not written again; only its remaining files are moved. So a file that readers have seen is never removed. Delta: the
number is part of the commit of the rows, which fails if another run has committed the same number meanwhile.

A lock in the checkpoint excludes a second run. If it is removed by mistake, the run that is overtaken fails.

Power failures: a batch is marked as written only when its offsets and its files are durable, and its messages leave
their queue only when the moved files are.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Protocol

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from openmsmq.spark.jobs.archived import DELTA_LOG, PARTITION_COLUMNS, as_archived, data_files, is_delta, local
from openmsmq.spark.jobs.compaction import AlreadyCompacting, Compacted, CompactionFailed, compact
from openmsmq.spark.jobs.files import ArchiveFiles
from openmsmq.spark.jobs.location import Server
from openmsmq.spark.jobs.locking import locked
from openmsmq.spark.jobs.session import PipelineError, failure
from openmsmq.spark.options import OptionError, queue_list

logger = logging.getLogger(__name__)

_STAGING, _CHECKPOINT = "_staging", "_checkpoint"
_WRITTEN = "_written.json"  # in the staging directory of a batch: marks it as complete, and names its files
_LOCK = "_lock"  # in the checkpoint
_MANY = 16  # minimum number of small files in a directory for a merge at the end of a run
_BATCH_ROWS = 100_000
_NOT_FOR_DELTA = re.compile(r"[%\[\]^|\\\x00-\x1f]")
_LOOK = 1  # seconds between checks whether to stop

FORMATS = ("parquet", "delta")
SOURCES = ("queue", "journal", "deadletter", "xactdeadletter")


@dataclass(frozen=True, slots=True)
class ArchivedBatch:
    """Contents of a batch: messages, bytes of their bodies, and when the newest one arrived (ISO 8601; None without
    messages)."""

    number: int
    rows: int
    bytes: int
    newest: str | None

    @property
    def lag(self) -> float | None:
        """Seconds since the arrival of the newest message."""
        if self.newest is None:
            return None
        return (datetime.now(UTC) - datetime.fromisoformat(self.newest)).total_seconds()


@dataclass(slots=True)
class Archived:
    """Result of a run of `archive`."""

    batches: int = 0
    rows: int = 0
    bytes: int = 0
    compacted: Compacted | None = None


class _Sink(Protocol):
    def put(self, stream: str, number: int, frame: DataFrame) -> ArchivedBatch: ...


def archive(
    spark: SparkSession,
    server: Server,
    queues: Sequence[str],
    to: str,
    *,
    format: str = "parquet",
    source: str = "queue",
    group: str | None = None,
    continuous: float | None = None,
    checkpoint: str | None = None,
    batch_rows: int | None = None,
    on_batch: Callable[[ArchivedBatch], None] | None = None,
    stop: threading.Event | None = None,
) -> Archived:
    """Archive the messages of queues, continuing where the last run with the same checkpoint ended.

    Args:
        spark: the session.
        server: the queue manager.
        queues: path names; empty for system queues.
        to: directory on a file system that Spark supports; with delta, delta-rs must support it, too.
        format: one of FORMATS.
        source: one of SOURCES.
        group: consumer group, with which archived messages are removed from the queue. None: they stay.
        continuous: seconds between batches, until `stop`. None: archive the present messages, then merge small files.
        checkpoint: directory for the position of Spark; None for one in `to`, separate for each set of queues.
        batch_rows: maximum messages per batch. None for 100,000, or for the default of the data source if messages are
            removed with MS-MQRR, whose offsets are as long as their batches.
        on_batch: called after each written batch.
        stop: ends the run.

    Raises:
        PipelineError: an argument is invalid, another run uses the checkpoint, or a batch failed. Nothing is lost; the
            next run continues.
    """
    _check(format, source, queues)
    files = ArchiveFiles(spark, to)
    if format == "delta" and (bad := _NOT_FOR_DELTA.search(files.path())):
        raise PipelineError(f"deltalake cannot write to {to} because of {bad.group()!r}; use another name, or parquet")
    _make(files)
    there = "delta" if is_delta(files) else "parquet" if data_files(files) else format
    if there != format:
        raise PipelineError(f"{to} is an archive in the format {there}, not {format}")
    sink: _Sink = _DeltaSink(files) if format == "delta" else _ParquetSink(files)
    checkpoint = checkpoint or files.path(f"{_CHECKPOINT}/{_stream_name(server, source, queues, group)}")
    position = ArchiveFiles(spark, checkpoint)
    _make(position)
    done = Archived()

    def take(frame: DataFrame, number: int) -> None:
        position.sync()  # Spark has stored the offsets of this batch, and that the one before is complete
        identifier = json.loads(position.read("metadata"))["id"]  # Spark's identifier of the query
        try:
            batch = sink.put(identifier, number, as_archived(frame, removed=group is not None))
        except (Exception, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of deltalake; py4j would not report it, and Spark would wait
            raise PipelineError(f"{to}: {error!r}") from error
        files.sync()  # before Spark tells the queue manager that the messages may leave their queue
        done.batches, done.rows, done.bytes = done.batches + 1, done.rows + batch.rows, done.bytes + batch.bytes
        if on_batch is not None:
            on_batch(batch)

    def refused(told: str) -> PipelineError:
        return PipelineError(f"{to} is being filled from the same queues, with the checkpoint {checkpoint}, by {told}")

    with locked(position, _LOCK, refused, takes_over=True):
        for kept, log in ((position, ""), (files, DELTA_LOG)):
            _remove_incomplete(kept, log)
        frame = server.stream(spark, **_stream_options(server, queues, source, group, batch_rows))
        _run(spark, frame, take, checkpoint, continuous, stop)
    stopped = stop is not None and stop.is_set()
    if continuous is None and not stopped:
        try:
            done.compacted = compact(spark, to, at_least=_MANY)
        except AlreadyCompacting:
            pass
        except CompactionFailed as error:
            logger.warning("all messages are archived, but small files stay: %s", error)
    return done


def _run(
    spark: SparkSession, frame: DataFrame, take: Callable[[DataFrame, int], None], checkpoint: str,
    continuous: float | None, stop: threading.Event | None,
) -> None:  # fmt: skip
    """Run the query of an archive until it ends or `stop` is set. Raises PipelineError."""
    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
    trigger = {"availableNow": True} if continuous is None else {"processingTime": f"{continuous} seconds"}
    try:
        with _unfinished_checkpoint_allowed(spark):
            query = writer.trigger(**trigger).start()
            try:
                while not query.awaitTermination(_LOOK):
                    if stop is not None and stop.is_set():
                        break
            finally:
                query.stop()
    except Exception as error:
        raise failure(error) from error


def _remove_incomplete(files: ArchiveFiles, log: str) -> None:
    """Remove files of a checkpoint or of a Delta log that a power failure left empty: Spark or delta-rs would not read
    the others. Nothing depends on them, because they are synced before the next step."""
    for entry in list(files.files(log)) if files.is_local else ():
        if not entry.size:
            files.delete(entry.name)


@contextmanager
def _unfinished_checkpoint_allowed(spark: SparkSession) -> Iterator[None]:
    """Allow Spark to start with a checkpoint that has a temporary file of its first offset, left by a driver that
    crashed. Spark reads this setting of the session when the first batch begins."""
    key = "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart"
    before = spark.conf.get(key, None)
    spark.conf.set(key, "false")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, before)


def _make(files: ArchiveFiles) -> None:
    try:
        files.make()
    except OSError as error:  # a stream would only fail after minutes of retries, without the cause
        raise PipelineError(str(error)) from error


def _check(format: str, source: str, queues: Sequence[str]) -> None:
    if format not in FORMATS:
        raise PipelineError(f"format is {format!r}, allowed: {', '.join(FORMATS)}")
    if source not in SOURCES:
        raise PipelineError(f"source is {source!r}, allowed: {', '.join(SOURCES)}")
    if source in ("queue", "journal") and not queues:
        raise PipelineError(f"source {source} needs at least one queue")
    try:
        queue_list(queues)
    except OptionError as error:
        raise PipelineError(str(error)) from None


def _stream_options(
    server: Server, queues: Sequence[str], source: str, group: str | None, batch_rows: int | None
) -> dict[str, str]:
    options = {"source": source}
    if batch_rows is None and (group is None or server.has_flight):
        batch_rows = _BATCH_ROWS
    if batch_rows is not None:
        options["maxRecordsPerTrigger"] = str(batch_rows)
    if queues:
        options["queue"] = queue_list(queues)
    if group is None:
        options["failOnDataLoss"] = "false"  # without a group, other clients may receive the messages meanwhile
    else:
        options |= {"mode": "receive", "consumerGroup": group}
    return options


def _stream_name(server: Server, source: str, queues: Sequence[str], group: str | None) -> str:
    """Return the name of a stream: a position is valid only for the same queues and the same options."""
    what = json.dumps([server.host, server.port, source, sorted(queues), group])
    return f"{source}-{hashlib.sha256(what.encode()).hexdigest()[:16]}"


class _ParquetSink:
    """Writes batches as Parquet. The staging directory of a batch has one directory for each run that writes it, and is
    kept until the next batch begins, when Spark has committed it."""

    def __init__(self, files: ArchiveFiles) -> None:
        self._files = files

    def put(self, stream: str, number: int, frame: DataFrame) -> ArchivedBatch:
        """Write a batch, or move the remaining files of one that was written. Raises PipelineError if another run
        writes it, too."""
        staging = f"{_STAGING}/{stream}/{number}"
        for other in self._files.children(f"{_STAGING}/{stream}"):
            if other != staging:
                self._files.delete(other)
        if not self._files.exists(f"{staging}/{_WRITTEN}"):
            self._write(staging, number, frame)
        written = json.loads(self._files.read(f"{staging}/{_WRITTEN}"))
        directory = f"{staging}/{written.pop('directory')}" if "directory" in written else staging
        written.pop("files", None)
        for entry in list(self._files.files(directory)):
            partition, _, name = entry.name.removeprefix(f"{directory}/").rpartition("/")
            self._files.move(entry.name, f"{partition}/batch-{number:08}-{name}")
        return ArchivedBatch(**written)

    def _write(self, staging: str, number: int, frame: DataFrame) -> None:
        own, marker = str(uuid.uuid4()), f"{staging}/{_WRITTEN}"
        observed, observation = _observed(frame)
        writer = observed.write.partitionBy(*PARTITION_COLUMNS).option("compression", "zstd")
        writer.parquet(self._files.path(f"{staging}/{own}"))
        batch = _batch(number, observation)
        names = self._names(f"{staging}/{own}")
        if self._files.exists(marker) or (batch.rows and not names):
            raise self._overtaken(number)
        self._files.write(marker, json.dumps({**asdict(batch), "directory": own, "files": names}))
        if self._names(f"{staging}/{own}") != names:
            self._files.delete(marker)
            raise self._overtaken(number)

    def _names(self, directory: str) -> list[str]:
        return [entry.name for entry in self._files.files(directory)]

    def _overtaken(self, number: int) -> PipelineError:
        return PipelineError(f"{self._files.path()}: another run has written batch {number} meanwhile; end one of them")


class _DeltaSink:
    """Writes batches with delta-rs. A batch is held in the memory of the driver."""

    def __init__(self, files: ArchiveFiles) -> None:
        self._uri = local(files.path())

    def put(self, stream: str, number: int, frame: DataFrame) -> ArchivedBatch:
        """Write a batch, unless it was written. Raises DeltaError if another run writes it, too."""
        from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake

        table = DeltaTable(self._uri) if DeltaTable.is_deltatable(self._uri) else None
        last = None if table is None else table.transaction_version(stream)
        if last is not None and last >= number:
            return ArchivedBatch(number, 0, 0, None)  # an earlier run wrote it, but could not report it to Spark
        observed, observation = _observed(frame)
        rows = observed.toArrow()
        batch = _batch(number, observation)
        if batch.rows:
            # To the version whose transactions were checked: a commit of the same stream since then is a conflict.
            write_deltalake(
                self._uri if table is None else table,
                rows,
                mode="error" if table is None else "append",
                partition_by=list(PARTITION_COLUMNS),
                writer_properties=WriterProperties(compression="ZSTD"),
                commit_properties=CommitProperties(app_transactions=[Transaction(stream, number)]),
            )
        return batch


def _observed(frame: DataFrame) -> tuple[DataFrame, Observation]:
    observation = Observation()
    return frame.observe(
        observation,
        F.count(F.lit(1)).alias("rows"),
        F.coalesce(F.sum("body_size"), F.lit(0)).alias("bytes"),
        F.date_format(F.max(F.col("arrival_time")), "yyyy-MM-dd'T'HH:mm:ssXXX").alias("newest"),
    ), observation


def _batch(number: int, observation: Observation) -> ArchivedBatch:
    values = observation.get
    return ArchivedBatch(number, int(values["rows"]), int(values["bytes"]), values["newest"])
