"""Layout of an archive, and reading it.

    DIR/queue=…/date=YYYY-MM-DD/*.parquet     the messages; any reader of Parquet takes them
    DIR/_delta_log                            with format delta
    DIR/_checkpoint, _staging, _compaction    what the jobs need to go on after a crash

Columns are those of the data source, and two of the archive's own.
"""

from __future__ import annotations

import json
from typing import Any

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
        StructField("archived_at", TimestampType()),  # when its batch was begun
        StructField("removed", BooleanType()),  # whether it left its queue with its batch, or was only looked at
    ]
)
MANIFESTS = "_compaction"
_DELTA = "_delta_log"


def as_archived(frame: DataFrame, removed: bool) -> DataFrame:
    """Rows of the data source with the columns of an archive. Queues of the machine have no name but their source's."""
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
    """All messages of an archive, Parquet or Delta. Raises PipelineError if there is none."""
    files = ArchiveFiles(spark, directory)
    paths = _delta_paths(files.path()) if is_delta(files) else [files.path(e.name) for e in data_files(files)]
    if not paths:
        raise PipelineError(f"{directory} holds no archive: there are no files queue=…/date=…/*.parquet")
    # The schema is given, or Spark would take a queue named 123 for a number.
    return spark.read.schema(ARCHIVE_SCHEMA).option("basePath", files.path()).parquet(*paths)


def is_delta(files: ArchiveFiles) -> bool:
    return files.exists(_DELTA)


def data_files(files: ArchiveFiles) -> list[FileEntry]:
    """The files with messages, without those that a compaction has replaced and not removed yet."""
    replaced: set[str] = set()
    for manifest in manifests(files):
        if files.exists(manifest["target"]):
            replaced.update(manifest["replaces"])
    return [e for e in files.files() if e.name.endswith(".parquet") and e.name not in replaced]


def manifests(files: ArchiveFiles) -> list[dict[str, Any]]:
    """Return the manifests of finished and running compactions."""
    return [json.loads(files.read(name)) for name in files.children(MANIFESTS) if name.endswith(".json")]


def _delta_paths(directory: str) -> list[str]:
    from deltalake import DeltaTable

    return list(DeltaTable(local(directory)).file_uris())


def local(path: str) -> str:
    """A path as delta-rs takes it: Hadoop writes `file:/x`, which is no URL to others."""
    return path.removeprefix("file:") if path.startswith("file:") else path
