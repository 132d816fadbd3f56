"""Names of queues and directories with characters that have a meaning in paths, URIs, patterns or format names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from openmsmq.spark.jobs import PipelineError, Server, archive, compact, read_archive, replay
from spark.jobs.sending import send
from spark.jobs.test_archive import count, tags

SLOW = [
    "a/b", "..", ".hidden", "_under", "{x}[z]", "star*q?", "col:on", "#hash^", "null", "123", "true", "2026-01-01",
    "queue=x", "__HIVE_DEFAULT_PARTITION__",
]  # fmt: skip


@pytest.mark.parametrize("format", [pytest.param("parquet", marks=pytest.mark.slow), "delta"])
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


@pytest.mark.parametrize("format", [pytest.param("parquet", marks=pytest.mark.slow), "delta"])
@pytest.mark.parametrize(
    "name",
    [
        "my lake Ü{a,b}*?",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("a=b", "#x", "a:b", "_x", ".x", "~")),
    ],
)
def test_an_archive_may_be_in_a_directory_of_any_name(
    spark: Any, server: Server, filled: Callable[..., str], tmp_path: Path, name: str, format: str
) -> None:
    to = str(tmp_path / name)
    archive(spark, server, [filled(4)], to, group="g", batch_rows=2, format=format)
    assert tags(spark, Path(to)) == list(range(4))
    compact(spark, to)
    assert tags(spark, Path(to)) == list(range(4))
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_directory_that_deltalake_cannot_use_is_named(spark: Any, server: Server, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="because of '%'"):
        archive(spark, server, ["orders"], str(tmp_path / "50%"), format="delta")
    assert not (tmp_path / "50%").exists()


@pytest.mark.slow
def test_a_panic_of_deltalake_fails_the_batch(
    spark: Any, server: Server, qm: Any, filled: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import deltalake

    class Panic(BaseException):
        pass

    monkeypatch.setattr(deltalake, "write_deltalake", Mock(side_effect=Panic("index out of bounds")))
    queue = filled(2)
    with pytest.raises(PipelineError, match="index out of bounds"):
        archive(spark, server, [queue], str(tmp_path), format="delta", group="g")
    monkeypatch.undo()
    assert archive(spark, server, [queue], str(tmp_path), format="delta", group="g").rows == 2


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
