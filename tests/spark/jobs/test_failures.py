"""A failure of a job is one line with the cause, wherever it happened: in the driver, in Java, or in a worker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openmsmq.spark.jobs import PipelineError, Server, archive
from openmsmq.spark.jobs.session import failure


def refuse(_: Any) -> None:
    try:
        int("x")
    except ValueError as error:
        raise RuntimeError("refused by the worker\nHint: none") from error


def in_a_worker(spark: Any, _: Path) -> None:
    spark.range(1).rdd.map(refuse).collect()


def in_java(spark: Any, directory: Path) -> None:
    (directory / "part.parquet").write_bytes(b"not Parquet at all")
    spark.read.schema("a int").parquet(str(directory)).collect()


def on_a_file_system(spark: Any, _: Path) -> None:
    spark._jvm.org.apache.hadoop.fs.Path("nowhere://x").getFileSystem(spark._jsc.hadoopConfiguration())


def in_the_plan(spark: Any, _: Path) -> None:
    spark.range(1).select("color")


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (in_a_worker, "refused by the worker"),
        (in_java, "RuntimeException: file:.*part.parquet is not a Parquet file"),
        (on_a_file_system, 'UnsupportedFileSystemException: No FileSystem for scheme "nowhere"'),
        (in_the_plan, r"\[UNRESOLVED_COLUMN"),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
def test_the_cause_is_in_one_line(
    spark: Any, tmp_path: Path, work: Callable[[Any, Path], None], said: str, streams: bool
) -> None:
    (tmp_path / "work").mkdir()
    if streams:
        stream = spark.readStream.format("rate").load().writeStream
        writer = stream.foreachBatch(lambda frame, _: work(frame.sparkSession, tmp_path / "work"))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        with pytest.raises(Exception) as raised:
            query.awaitTermination(60)
    else:
        with pytest.raises(Exception) as raised:
            work(spark, tmp_path / "work")
    with pytest.raises(PipelineError, match=f"^{said}") as summary:
        raise failure(raised.value)
    assert "\n" not in str(summary.value)


def test_an_archive_says_what_failed_in_java(
    spark: Any, server: Server, filled: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "_staging").write_text("a file")
    with pytest.raises(PipelineError, match=r"^\w+Exception: .*_staging"):
        archive(spark, server, [filled(2)], str(tmp_path), group="g")
