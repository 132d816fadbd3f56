"""Two runs that archive the same queues at the same time: the second one is refused; without the lock, the run that is
overtaken fails, and each message is in the archive once."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake.exceptions import DeltaError

from openmsmq.spark.jobs import PipelineError, Server, archive, archiving, read_archive
from openmsmq.spark.jobs.archived import as_archived
from openmsmq.spark.jobs.archiving import _DeltaSink, _ParquetSink
from openmsmq.spark.jobs.files import ArchiveFiles
from openmsmq.spark.jobs.locking import locked
from spark.jobs.test_archive import FORMATS, Meanwhile, count, tags


@pytest.mark.parametrize("format", FORMATS)
def test_a_second_run_is_refused_at_once(
    spark: Any, server: Server, qm: Any, filled: Callable[..., str], tmp_path: Path, format: str
) -> None:
    queue, other, refused = filled(10), filled(3), []

    def again(_: Any) -> None:
        if refused:
            return
        with pytest.raises(PipelineError) as raised:
            archive(spark, server, [queue], str(tmp_path), format=format, group="g")
        refused.append(str(raised.value))

    archive(spark, server, [queue], str(tmp_path), format=format, group="g", batch_rows=5, on_batch=again)
    (said,) = refused
    assert f"{tmp_path} is being filled from the same queues" in said and f"by process {os.getpid()} of" in said
    assert "; if it is not, remove file:" in said and "\n" not in said
    assert tags(spark, tmp_path) == list(range(10)) and count(qm, queue) == 0
    assert not list(tmp_path.rglob("_lock"))
    assert archive(spark, server, [other], str(tmp_path), format=format, group="g").rows == 3


@pytest.mark.parametrize(
    ("holder", "said"),
    [({"pid": 1 << 30}, ""), ({"pid": os.getpid(), "start": "before the restart of the container"}, ""),
     ({"pid": 1, "host": "elsewhere"}, "is taken over from process 1 of elsewhere")],
)  # fmt: skip
def test_the_lock_of_a_run_that_has_crashed_or_is_of_another_machine_is_replaced(
    spark: Any, server: Server, filled: Callable[..., str], tmp_path: Path, holder: dict[str, Any], said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    lock = tmp_path / "checkpoint" / "_lock"
    lock.parent.mkdir()
    lock.write_text(json.dumps({"host": socket.gethostname(), "since": "2026-01-01", **holder}))
    to, checkpoint = str(tmp_path / "archive"), str(lock.parent)
    assert archive(spark, server, [filled(4)], to, group="g", checkpoint=checkpoint).rows == 4
    assert not lock.exists()
    assert ("taken over" in caplog.text) is bool(said) and said in caplog.text


def test_a_lock_that_was_taken_over_is_left_to_the_other_run(spark: Any, tmp_path: Path) -> None:
    files = ArchiveFiles(spark, str(tmp_path))
    with locked(files, "lock", PipelineError, takes_over=True):
        files.delete("lock")
        assert files.create("lock", "of the other run")
    assert files.read("lock") == "of the other run"


def test_a_checkpoint_that_cannot_be_made_is_named(spark: Any, server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PipelineError, match=r"cannot create the directory file:.*/file/checkpoint: ."):
        archive(spark, server, ["q"], str(tmp_path / "archive"), checkpoint=str(tmp_path / "file" / "checkpoint"))


@pytest.fixture
def batch(spark: Any, server: Server, filled: Callable[..., str]) -> Any:
    """A batch of 10 messages."""
    return as_archived(server.read(spark, queue=filled(10)), removed=True)


def before_the_end_of_a_batch(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Do something when the rows of the first batch are written or read, but it is not complete."""
    described, pending = archiving._batch, [work]

    def describe(number: int, observation: Any) -> Any:
        if pending:
            pending.pop()()
        return described(number, observation)

    monkeypatch.setattr(archiving, "_batch", describe)


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_run_that_is_overtaken_before_its_marker_fails(
    spark: Any, batch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    """The other run writes the same batch, and perhaps the next one, for which it deletes the staging directory."""
    files = ArchiveFiles(spark, str(tmp_path))

    def overtake() -> None:
        assert _ParquetSink(files).put("stream", 0, batch).rows == 10
        if goes_on:
            _ParquetSink(files).put("stream", 1, batch.limit(0))

    before_the_end_of_a_batch(monkeypatch, overtake)
    with pytest.raises(PipelineError, match="another run has written batch 0 meanwhile"):
        _ParquetSink(files).put("stream", 0, batch)
    assert tags(spark, tmp_path) == list(range(10))


def test_a_run_that_loses_its_files_at_its_marker_fails_and_leaves_no_marker(
    spark: Any, batch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, marker = ArchiveFiles(spark, str(tmp_path)), "_staging/stream/0/_written.json"
    sink = _ParquetSink(files)
    lost = Meanwhile(monkeypatch, "write", marker, lambda: files.delete("_staging/stream/0"))
    with pytest.raises(PipelineError, match="another run has written batch 0 meanwhile"):
        sink.put("stream", 0, batch)
    assert lost.done and not files.exists(marker)
    assert sink.put("stream", 0, batch).rows == 10 and tags(spark, tmp_path) == list(range(10))


def test_a_batch_that_an_earlier_version_has_written_is_moved(spark: Any, batch: Any, tmp_path: Path) -> None:
    files = ArchiveFiles(spark, str(tmp_path))
    batch.write.partitionBy("queue", "date").parquet(files.path("_staging/stream/0"))
    files.write("_staging/stream/0/_written.json", json.dumps({"number": 0, "rows": 10, "bytes": 60, "newest": None}))
    assert _ParquetSink(files).put("stream", 0, batch).rows == 10
    assert tags(spark, tmp_path) == list(range(10))


@pytest.mark.parametrize("exists", [True, False])
def test_a_delta_batch_that_another_run_has_committed_fails(
    spark: Any, batch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    files, number = ArchiveFiles(spark, str(tmp_path)), int(exists)
    if exists:
        _DeltaSink(files).put("another stream", 0, batch.limit(1))
    before_the_end_of_a_batch(monkeypatch, lambda: _DeltaSink(files).put("stream", number, batch))
    with pytest.raises(DeltaError):
        _DeltaSink(files).put("stream", number, batch)
    assert read_archive(spark, str(tmp_path)).count() == 10 + number
    assert _DeltaSink(files).put("stream", number, batch).rows == 0
