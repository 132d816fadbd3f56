"""Archives hold each message exactly once, also after crashes."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from openmsmq.spark.jobs import PipelineError, Server, archive, compact, read_archive
from openmsmq.spark.jobs.archived import MANIFESTS
from openmsmq.spark.jobs.files import ArchiveFiles
from spark.jobs.sending import send

FORMATS = ("parquet", "delta")


def tags(spark: Any, directory: Path) -> list[int]:
    return sorted(
        row.application_tag for row in read_archive(spark, str(directory)).select("application_tag").collect()
    )


def count(qm: Any, queue: str) -> int:
    return int(qm.counts(queue)["message_count"])


@pytest.mark.parametrize("format", FORMATS)
def test_messages_go_into_the_archive_and_leave_the_queue(
    spark: Any, server: Server, qm: Any, filled: Callable[..., str], tmp_path: Path, format: str
) -> None:
    queue, batches = filled(100), []
    done = archive(
        spark, server, [queue], str(tmp_path), format=format, group="g", batch_rows=30, on_batch=batches.append
    )
    assert (done.rows, done.batches) == (100, 4) and [b.rows for b in batches] == [30, 30, 30, 10]
    assert count(qm, queue) == 0
    rows = read_archive(spark, str(tmp_path)).orderBy("sequence").collect()
    assert [row.label for row in rows] == [f"label {number}" for number in range(100)]
    assert sum(row.body_size for row in rows) == done.bytes
    assert all(row.removed and row.archived_at >= row.arrival_time for row in rows)
    assert {row.queue.rpartition("\\")[2] for row in rows} == {queue.rpartition("\\")[2]}
    assert {row.date for row in rows} == {row.arrival_time.date() for row in rows}
    (path,) = {p.parent for p in tmp_path.glob("queue=*/date=*/*.parquet")}
    assert path.parent.name.startswith("queue=") and path.name == f"date={rows[0].date}"
    send(qm, queue, range(100, 105))
    assert archive(spark, server, [queue], str(tmp_path), format=format, group="g").rows == 5
    assert tags(spark, tmp_path) == list(range(105))


@pytest.mark.parametrize("protocol", ["flight", pytest.param("remoteread", marks=pytest.mark.slow)])
def test_browsing_leaves_the_queue_and_continues_where_it_ended(
    spark: Any, server: Server, service: Any, qm: Any, filled: Callable[..., str], tmp_path: Path, protocol: str
) -> None:
    queue = filled(20)
    browsing = Server(port=server.port, flight_port=server.flight_port, protocol=protocol)
    assert archive(spark, browsing, [queue], str(tmp_path)).rows == 20
    send(qm, queue, range(20, 25))
    assert archive(spark, browsing, [queue], str(tmp_path)).rows == 5
    assert tags(spark, tmp_path) == list(range(25)) and count(qm, queue) == 25
    assert {row.removed for row in read_archive(spark, str(tmp_path)).collect()} == {False}


def test_messages_leave_the_queue_without_flight_too(
    spark: Any, server: Server, qm: Any, filled: Callable[..., str], tmp_path: Path
) -> None:
    queue = filled(10)
    remote = Server(port=server.port, protocol="remoteread")
    assert archive(spark, remote, [queue], str(tmp_path), group="g").rows == 10
    assert tags(spark, tmp_path) == list(range(10)) and count(qm, queue) == 0


def test_a_checkpoint_with_an_incomplete_first_offset_is_resumed(
    spark: Any, server: Server, qm: Any, filled: Callable[..., str], tmp_path: Path
) -> None:
    """A killed driver leaves Spark's temporary file behind."""
    queue, checkpoint = filled(10), tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / ".0.5a52c1ad-ee7e-4053-93a1-c9f5e85c350d.tmp").touch()
    to = str(tmp_path / "archive")
    assert archive(spark, server, [queue], to, group="g", checkpoint=str(checkpoint)).rows == 10
    assert tags(spark, Path(to)) == list(range(10)) and count(qm, queue) == 0


def test_queues_and_journals_share_an_archive(
    spark: Any, server: Server, qm: Any, filled: Callable[..., str], tmp_path: Path
) -> None:
    first, second = filled(10, journal=True), filled(7)
    archive(spark, server, [first, second], str(tmp_path), group="g")
    archive(spark, server, [first], str(tmp_path), source="journal")
    counts = read_archive(spark, str(tmp_path)).groupBy("queue", "source").count().collect()
    assert sorted((row.source, row["count"]) for row in counts) == [("journal", 10), ("queue", 7), ("queue", 10)]


class Crash(Exception):
    pass


def crashing(monkeypatch: pytest.MonkeyPatch, target: Any, name: str, at: int, after: bool) -> None:
    """Make call number `at` of a function fail, before or after its work."""
    real, calls = getattr(target, name), []

    def call(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == at and not after:
            raise Crash("crash")
        result = real(*arguments, **named)
        if len(calls) == at:
            raise Crash("crash")
        return result

    monkeypatch.setattr(target, name, call)


@pytest.mark.parametrize(
    ("step", "at", "after", "group"),
    [
        ("write", 1, False, "g"),  # written, but not recorded
        pytest.param("write", 1, True, "g", marks=pytest.mark.slow),
        ("move", 1, True, "g"),  # half moved
        pytest.param("move", 1, True, None, marks=pytest.mark.slow),
        ("move", 2, True, "g"),  # complete, but not reported to Spark
    ],
)
def test_a_batch_that_crashed_is_finished_and_not_duplicated(
    spark: Any, server: Server, filled: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    step: str, at: int, after: bool, group: str | None,
) -> None:  # fmt: skip
    queues = [filled(10), filled(10)]  # a batch has a file for each queue, so it can be half moved
    with monkeypatch.context() as patched:
        crashing(patched, ArchiveFiles, step, at, after)
        with pytest.raises(PipelineError, match="crash"):
            archive(spark, server, queues, str(tmp_path), group=group, batch_rows=12)
    archive(spark, server, queues, str(tmp_path), group=group, batch_rows=12)
    assert tags(spark, tmp_path) == sorted([*range(10), *range(10)])


@pytest.mark.slow
def test_a_delta_batch_not_confirmed_to_spark_is_not_duplicated(
    spark: Any, server: Server, filled: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import deltalake

    queue = filled(20)
    with monkeypatch.context() as patched:
        crashing(patched, deltalake, "write_deltalake", 2, after=True)
        with pytest.raises(PipelineError, match="crash"):
            archive(spark, server, [queue], str(tmp_path), format="delta", group="g", batch_rows=10)
    archive(spark, server, [queue], str(tmp_path), format="delta", group="g", batch_rows=10)
    assert tags(spark, tmp_path) == list(range(20))


def test_a_continuous_archive_receives_until_it_is_stopped(
    spark: Any, server: Server, qm: Any, filled: Callable[..., str], tmp_path: Path
) -> None:
    queue, stop, seen = filled(5), threading.Event(), []

    def on_batch(batch: Any) -> None:
        seen.append(batch.rows)
        if sum(seen) == 5 and len(seen) == 1:
            send(qm, queue, range(5, 8))
        if sum(seen) == 8:
            stop.set()

    archive(spark, server, [queue], str(tmp_path), group="g", continuous=0.1, on_batch=on_batch, stop=stop)
    assert tags(spark, tmp_path) == list(range(8))


def test_small_files_are_merged_into_one(spark: Any, fragmented: Path) -> None:
    before = sorted(map(str, read_archive(spark, str(fragmented)).collect()))
    done = compact(spark, str(fragmented))
    assert (done.before, done.after) == (4, 1)
    assert len(list(fragmented.glob("queue=*/date=*/*.parquet"))) == 1
    assert sorted(map(str, read_archive(spark, str(fragmented)).collect())) == before
    assert not list((fragmented / "_compaction").iterdir())
    assert compact(spark, str(fragmented)).before == 0


@pytest.mark.parametrize(
    ("step", "at", "after"),
    [("write", 1, False), ("write", 1, True), ("move", 1, True), *[("delete", at, True) for at in (1, 3, 4, 5, 6)]],
)
def test_a_merge_that_crashed_is_finished_and_duplicates_nothing(
    spark: Any, fragmented: Path, monkeypatch: pytest.MonkeyPatch, step: str, at: int, after: bool
) -> None:
    with monkeypatch.context() as patched:
        crashing(patched, ArchiveFiles, step, at, after)
        with pytest.raises(Crash):
            compact(spark, str(fragmented))
    assert tags(spark, fragmented) == list(range(40))
    compact(spark, str(fragmented))
    assert tags(spark, fragmented) == list(range(40))
    assert len(list(fragmented.glob("queue=*/date=*/*.parquet"))) == 1


@pytest.mark.slow
def test_many_small_files_are_merged_at_the_end_of_a_run(
    spark: Any, server: Server, filled: Callable[..., str], tmp_path: Path
) -> None:
    done = archive(spark, server, [filled(32)], str(tmp_path), batch_rows=2)
    assert done.compacted is not None and (done.compacted.before, done.compacted.after) == (16, 1)
    assert tags(spark, tmp_path) == list(range(32))


class Meanwhile:
    """Does something once, before or after a call of `ArchiveFiles` for a name, as another process could."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str, name: str, work: Callable[[], object]) -> None:
        self.real, self.name, self.work = getattr(ArchiveFiles, method), name, work
        self.done = False
        monkeypatch.setattr(ArchiveFiles, method, partialmethod(self))

    def __call__(self, files: ArchiveFiles, *arguments: Any) -> Any:
        if self.done or arguments[:1] != (self.name,):
            return self.real(files, *arguments)
        self.done = True
        self.before()
        result = self.real(files, *arguments)
        self.after()
        return result

    def before(self) -> None:
        self.work()

    def after(self) -> None:
        pass


class Later(Meanwhile):
    def before(self) -> None:
        pass

    def after(self) -> None:
        self.work()


def merge_until_moved(spark: Any, archived: Path) -> None:
    """Do what a compaction does until the merged file and those that it replaces are in their places."""
    with pytest.MonkeyPatch.context() as patched:
        crashing(patched, ArchiveFiles, "move", 1, after=True)
        with pytest.raises(Crash):
            compact(spark, str(archived))


@pytest.mark.parametrize("order", [Meanwhile, Later])
def test_a_reader_sees_each_message_once_while_files_are_merged(
    spark: Any, fragmented: Path, monkeypatch: pytest.MonkeyPatch, order: type[Meanwhile]
) -> None:
    merging = order(monkeypatch, "children", MANIFESTS, lambda: merge_until_moved(spark, fragmented))
    assert tags(spark, fragmented) == list(range(40)) and merging.done
    assert tags(spark, fragmented) == list(range(40))


def test_a_reader_fails_if_a_merge_ends_while_it_lists_files(
    spark: Any, fragmented: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only then could it read messages twice: its list has the merged file and the files that are deleted."""
    merge_until_moved(spark, fragmented)
    Later(monkeypatch, "children", MANIFESTS, lambda: compact(spark, str(fragmented)))
    with pytest.raises(Exception, match=r"does not exist|PATH_NOT_FOUND"):
        tags(spark, fragmented)
    assert tags(spark, fragmented) == list(range(40))


def locked_by(archived: Path, holder: str) -> Path:
    lock = archived / MANIFESTS / "_lock"
    lock.parent.mkdir(exist_ok=True)
    lock.write_text(holder)
    return lock


def process(pid: int, host: str = "") -> str:
    return json.dumps({"host": host or socket.gethostname(), "pid": pid, "since": "2026-01-01"})


ENDED = 1 << 30  # larger than any process identifier


@pytest.mark.parametrize(
    ("holder", "said"),
    [(process(1, "elsewhere"), "by process 1 of elsewhere"), (process(1), "by process 1 of"),
     ("", "by a process that has not written its name into the lock; if it is not, remove .*/_lock")],
)  # fmt: skip
def test_one_merge_at_a_time(spark: Any, fragmented: Path, holder: str, said: str) -> None:
    lock = locked_by(fragmented, holder)
    with pytest.raises(PipelineError, match=f"being compacted {said}"):
        compact(spark, str(fragmented))
    assert lock.read_text() == holder


def test_the_lock_of_a_process_that_has_ended_is_replaced(spark: Any, fragmented: Path) -> None:
    locked_by(fragmented, process(ENDED))
    assert compact(spark, str(fragmented)).after == 1
    assert not list((fragmented / MANIFESTS).iterdir())


def test_of_two_processes_one_replaces_a_lock(spark: Any, fragmented: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = locked_by(fragmented, process(ENDED))
    name = f"{MANIFESTS}/_lock-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    other = Meanwhile(monkeypatch, "create", name, lambda: lock.write_text(process(1)))
    with pytest.raises(PipelineError, match="being compacted by process 1 of"):
        compact(spark, str(fragmented))
    assert other.done and lock.read_text() == process(1)


def test_an_archive_is_not_merged_while_another_process_does_so(
    spark: Any, server: Server, filled: Callable[..., str], fragmented: Path
) -> None:
    locked_by(fragmented, process(1))
    done = archive(spark, server, [filled(5)], str(fragmented))
    assert done.rows == 5 and done.compacted is None


@pytest.mark.slow
def test_delta_archives_are_compacted(spark: Any, server: Server, filled: Callable[..., str], tmp_path: Path) -> None:
    archive(spark, server, [filled(20)], str(tmp_path), format="delta", batch_rows=10)
    done = compact(spark, str(tmp_path))
    assert (done.before, done.after) == (2, 1) and tags(spark, tmp_path) == list(range(20))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"format": "csv"}, "format is 'csv', allowed: parquet, delta"),
        ({"source": "trash"}, "source is 'trash', allowed: queue"),
        ({"queues": []}, "source queue needs at least one queue"),
        ({"queues": ["missing"]}, "MQ_ERROR_QUEUE_NOT_FOUND"),
    ],
)
def test_errors_are_one_line(spark: Any, server: Server, tmp_path: Path, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(PipelineError, match=said) as raised:
        archive(spark, server, arguments.pop("queues", ["q"]), str(tmp_path), **arguments)
    assert "\n" not in str(raised.value)


def test_an_archive_keeps_its_format(spark: Any, server: Server, fragmented: Path) -> None:
    with pytest.raises(PipelineError, match="is an archive in the format parquet, not delta"):
        archive(spark, server, ["q"], str(fragmented), format="delta")
    with pytest.raises(PipelineError, match="is not an archive"):
        read_archive(spark, str(fragmented / "nothing"))


def test_a_directory_that_cannot_be_made_is_named_at_once(
    spark: Any, server: Server, filled: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    began = time.monotonic()
    with pytest.raises(PipelineError, match=r"cannot create the directory file:.*/file/archive: ."):
        archive(spark, server, [filled(1)], str(tmp_path / "file" / "archive"))
    assert time.monotonic() - began < 20
