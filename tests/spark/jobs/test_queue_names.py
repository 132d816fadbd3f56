"""Queues whose names have characters with a meaning in paths, URIs, patterns or format names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openmsmq.spark.jobs import PipelineError, Server, archive, compact, read_archive, replay
from spark.jobs.sending import send
from spark.jobs.test_archive import FORMATS, count, tags

SLOW = [
    "a/b", "..", ".hidden", "_under", "{x}[z]", "star*q?", "col:on", "#hash^", "null", "123", "true", "2026-01-01",
    "queue=x", "__HIVE_DEFAULT_PARTITION__",
]  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", ["a=b %20'Ü😀", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_queue_of_any_name_is_archived_merged_and_replayed(
    spark: Any, server: Server, qm: Any, tmp_path: Path, name: str, format: str
) -> None:
    queue = f".\\private$\\{name if format == 'parquet' else name + '.'}"
    qm.create_queue(queue)
    send(qm, queue, range(4))
    archive(spark, server, [queue], str(tmp_path), group="g", batch_rows=2, format=format)
    for _ in range(2):
        rows = read_archive(spark, str(tmp_path)).collect()
        assert sorted(row.application_tag for row in rows) == list(range(4))
        assert {row.queue.partition("\\")[2] for row in rows} == {queue.partition("\\")[2]}
        compact(spark, str(tmp_path))
    replay(spark, server, str(tmp_path), queue)
    assert count(qm, queue) == 4


@pytest.mark.slow
def test_files_that_deltalake_cannot_merge_do_not_fail_an_archive(
    spark: Any, server: Server, qm: Any, tmp_path: Path
) -> None:
    queue = ".\\private$\\with ~"
    qm.create_queue(queue)
    send(qm, queue, range(32))
    done = archive(spark, server, [queue], str(tmp_path), group="g", batch_rows=2, format="delta")
    assert (done.rows, done.compacted) == (32, None)
    assert tags(spark, tmp_path) == list(range(32)) and count(qm, queue) == 0
    with pytest.raises(PipelineError, match="deltalake cannot merge the files of"):
        compact(spark, str(tmp_path))
