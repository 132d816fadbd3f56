"""Merge the small files of an archive into few large ones.

A merge can be interrupted at any time; the next one continues it. Steps: write the merged file to the staging
directory; write a manifest that names it and the files that it replaces; move it to its place; delete the replaced
files; delete the manifest. The readers of `archived` evaluate manifests. Other readers may see messages twice between
the third step and the fourth.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from openmsmq.spark.jobs.archived import (
    ARCHIVE_SCHEMA,
    MANIFESTS,
    PARTITION_COLUMNS,
    data_files,
    is_delta,
    local,
    manifests,
)
from openmsmq.spark.jobs.files import ArchiveFiles, FileEntry
from openmsmq.spark.jobs.locking import locked
from openmsmq.spark.jobs.session import PipelineError

TARGET = 128 << 20  # bytes
_LOCK = f"{MANIFESTS}/_lock"


class AlreadyCompacting(PipelineError):
    """Another process is compacting the archive."""


class CompactionFailed(PipelineError):
    """The files were not merged. The archive is unchanged."""


@dataclass(slots=True)
class Compacted:
    """Numbers of replaced files and of merged files."""

    before: int = 0
    after: int = 0


def compact(
    spark: SparkSession,
    directory: str,
    *,
    target: int = TARGET,
    at_least: int = 2,
    on_merge: Callable[[Compacted], None] | None = None,
) -> Compacted:
    """Merge the small files of an archive, Parquet or Delta.

    Args:
        spark: the session.
        directory: directory of the archive.
        target: desired file size in bytes; larger files are not changed.
        at_least: minimum number of small files for a merge of a partition.
        on_merge: called after each merge with the result so far.

    Raises:
        AlreadyCompacting: another process is compacting the archive.
        CompactionFailed: deltalake cannot merge the files.
        PipelineError: there is no archive.
    """
    files = ArchiveFiles(spark, directory)
    if not files.exists(""):
        raise PipelineError(f"there is no archive at {directory}")
    if is_delta(files):
        return _compact_delta(files, target, at_least)
    done = Compacted()
    with locked(files, _LOCK, lambda told: AlreadyCompacting(f"{files.path()} is being compacted by {told}")):
        _recover(files)
        for group in _groups(files, target, at_least):
            _merge(spark, files, group)
            done.before, done.after = done.before + len(group), done.after + 1
            if on_merge is not None:
                on_merge(done)
    return done


def _compact_delta(files: ArchiveFiles, target: int, at_least: int) -> Compacted:
    from deltalake import DeltaTable, WriterProperties
    from deltalake.exceptions import DeltaError

    table = DeltaTable(local(files.path()))
    actions = pa.table(table.get_add_actions()).to_pylist()
    small = Counter(action["path"].rpartition("/")[0] for action in actions if action["size_bytes"] < target // 2)
    if max(small.values(), default=0) < at_least:
        return Compacted()
    try:
        metrics = table.optimize.compact(target_size=target, writer_properties=WriterProperties(compression="ZSTD"))
    except DeltaError as error:  # with deltalake 1.6, for queues with ~ in their names
        raise CompactionFailed(f"deltalake cannot merge the files of {files.path()}: {error}") from error
    return Compacted(metrics["numFilesRemoved"], metrics["numFilesAdded"])


def _groups(files: ArchiveFiles, target: int, at_least: int) -> Iterator[list[FileEntry]]:
    """Yield groups of small files of one partition, by name, of up to `target` bytes in total."""
    partitions: defaultdict[str, list[FileEntry]] = defaultdict(list)
    found = data_files(files)
    # Object stores move by copying, and a move that was interrupted is repeated, so a file that is still in the staging
    # directory must stay in its place. That directory is listed last: a batch may be moved meanwhile.
    half_moved = {_own_name(e) for e in files.files("_staging", visible=False)}
    for entry in found:
        if entry.size < target // 2 and _own_name(entry) not in half_moved:
            partitions[entry.name.rpartition("/")[0]].append(entry)
    for entries in partitions.values():
        if len(entries) < at_least:
            continue
        group: list[FileEntry] = []
        size = 0
        for entry in sorted(entries, key=lambda e: e.name):
            if group and size + entry.size > target:
                if len(group) > 1:
                    yield group
                group, size = [], 0
            group.append(entry)
            size += entry.size
        if len(group) > 1:
            yield group


def _own_name(entry: FileEntry) -> str:
    """Return the unique part of the file name assigned by Spark, which a move preserves."""
    return entry.name.rpartition("part-")[2]


def _merge(spark: SparkSession, files: ArchiveFiles, group: list[FileEntry]) -> None:
    identifier = str(uuid.uuid4())
    aside = f"{MANIFESTS}/{identifier}"
    partition = group[0].name.rpartition("/")[0]
    # Without the partition columns, which are in the path.
    columns = [name for name in ARCHIVE_SCHEMA.names if name not in PARTITION_COLUMNS]
    rows = spark.read.schema(ARCHIVE_SCHEMA).parquet(*[files.pattern(e.name) for e in group]).select(*columns)
    rows.coalesce(1).sortWithinPartitions("sequence").write.option("compression", "zstd").parquet(files.path(aside))
    (written,) = [e.name for e in files.files(aside) if e.name.endswith(".parquet")]
    manifest = {
        "written": written,
        "target": f"{partition}/merged-{identifier}.zstd.parquet",
        "replaces": [e.name for e in group],
    }
    files.write(f"{aside}.json", json.dumps(manifest))
    _finish(files, manifest)


def _finish(files: ArchiveFiles, manifest: dict[str, Any]) -> None:
    """Run the steps after the manifest was written. Each step may already have been done."""
    if files.exists(manifest["written"]):
        files.move(manifest["written"], manifest["target"])
    for name in manifest["replaces"]:
        files.delete(name)
    aside = manifest["written"].rpartition("/")[0]
    files.delete(f"{aside}.json")
    files.delete(aside)


def _recover(files: ArchiveFiles) -> None:
    for manifest in manifests(files):
        _finish(files, manifest)
    for name in files.children(MANIFESTS):  # in the staging directory, but in no manifest
        if name != _LOCK:
            files.delete(name)
