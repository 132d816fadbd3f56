"""Layout of an archive, and reading it.

    DIR/queue=…/date=YYYY-MM-DD/*.parquet     the messages, for any reader of Parquet
    DIR/_delta_log                            with format delta
    DIR/_checkpoint, _staging, _compaction    state for resuming after a crash

The columns are those of the data source and two additional ones.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DateType, StructField, StructType, TimestampType

from openmsmq.spark.jobs.files import ArchiveFiles, FileEntry
from openmsmq.spark.jobs.session import PipelineError
from openmsmq.spark.schema import spark_schema

PARTITION_COLUMNS = ("queue", "date")
ARCHIVE_SCHEMA = StructType(
    [
        *spark_schema("none").fields,
        StructField("date", DateType()),  # of arrival_time, UTC
        StructField("archived_at", TimestampType()),  # start time of the batch
        StructField("removed", BooleanType()),  # whether the message was removed from its queue with the batch
    ]
)
MANIFESTS = "_compaction"
DELTA_LOG = "_delta_log"


def as_archived(frame: DataFrame, removed: bool) -> DataFrame:
    """Return rows of the data source with the columns of an archive. System queues are named after their source."""
    return frame.select(
        F.when(F.col("queue") == "", F.col("source")).otherwise(F.col("queue")).alias("queue"),
        *[F.col(name) for name in frame.columns if name != "queue"],
        F.to_date(utc("arrival_time")).alias("date"),
        F.current_timestamp().alias("archived_at"),
        F.lit(removed).alias("removed"),
    ).select(*ARCHIVE_SCHEMA.names)


def utc(column: str) -> Column:
    """Return a time whose fields are in UTC, regardless of the session's time zone."""
    return F.to_utc_timestamp(F.col(column), F.current_timezone())


def read_archive(spark: SparkSession, directory: str) -> DataFrame:
    """Return all messages of an archive, Parquet or Delta. Raises PipelineError if there is none."""
    files = ArchiveFiles(spark, directory)
    delta = is_delta(files)
    names = _delta_files(files) if delta else [entry.name for entry in data_files(files)]
    if not names:
        raise PipelineError(f"{directory} is not an archive: it has no files queue=…/date=…/*.parquet")
    # Without a schema, Spark would read a queue named 123 as a number.
    found = spark.read.schema(ARCHIVE_SCHEMA).option("basePath", files.path()).parquet(*map(files.pattern, names))
    # delta-rs escapes the bytes of UTF-8 in names of directories; Spark takes each one for a character.
    return found.withColumn("queue", F.decode(F.encode("queue", "ISO-8859-1"), "UTF-8")) if delta else found


def is_delta(files: ArchiveFiles) -> bool:
    return files.exists(DELTA_LOG)


def data_files(files: ArchiveFiles) -> list[FileEntry]:
    """Return the files with messages, except those that a compaction has replaced but not yet removed.

    A compaction may run meanwhile. The files are listed before the manifests are read: if a merged file and those that
    it replaces are all listed, either its manifest is still there, or the replaced files no longer exist, and reading
    them fails.
    """
    found = [entry for entry in files.files() if entry.name.endswith(".parquet")]
    names = {entry.name for entry in found}
    replaced = {name for manifest in manifests(files) if manifest["target"] in names for name in manifest["replaces"]}
    return [entry for entry in found if entry.name not in replaced]


def manifests(files: ArchiveFiles) -> list[dict[str, Any]]:
    """Return the manifests of compactions that have not finished."""
    found = []
    for name in files.children(MANIFESTS):
        if name.endswith(".json"):
            with suppress(FileNotFoundError):  # the compaction has ended since
                found.append(json.loads(files.read(name)))
    return found


def _delta_files(files: ArchiveFiles) -> list[str]:
    """Return the names of the files of the last version. The log has them as relative URIs."""
    from deltalake import DeltaTable

    actions = pa.table(DeltaTable(local(files.path())).get_add_actions())
    return [unquote(path) for path in actions.column("path").to_pylist()]


def local(path: str) -> str:
    """Convert a path for delta-rs: Hadoop writes `file:/x`, which is not a valid URL for other programs."""
    return path.removeprefix("file:") if path.startswith("file:") else path
