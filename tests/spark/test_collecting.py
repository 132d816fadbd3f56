"""onError=collect: every row becomes one message or one row in errorPath; valid rows keep their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from daemon import Daemon, eventually
from openmsmq.bulk.client import BulkClient
from openmsmq.bulk.row_stream import Refusal
from openmsmq.model.constants import MAXIMUM_MESSAGE_SIZE
from openmsmq.model.errors import MsmqError, QueueNotFound
from openmsmq.model.security import SecurityDescriptor
from openmsmq.spark import writing
from openmsmq.spark.collecting import Collected, Errors
from openmsmq.spark.options import BATCH_WRITE, STREAM_WRITE, OptionError, parse
from openmsmq.spark.writing import MsmqStreamWriter, MsmqWriter, WrittenStage
from spark import lake

COLUMNS = "body binary, label string, priority int, destination_queue string, response_queue string"
FULL = "MQ_ERROR_INSUFFICIENT_RESOURCES: "


@pytest.fixture
def queue(service: Daemon, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name.replace("[", "-").replace("]", "")[:60]
    lake.create(service, name)
    return name


def errors(directory: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(directory).to_pylist() if directory.exists() else []
    return found


def collecting(service: Daemon, queue: str, directory: Path, **options: Any) -> dict[str, str]:
    return lake.reach(service, defaultQueue=queue, onError="collect", errorPath=directory, **options)


def save(frame: Any, options: dict[str, str]) -> None:
    frame.write.format("msmq").options(**options).mode("append").save()


def row(
    label: str, body: bytes | None = b"x", priority: int = 3, to: str | None = None, back: str | None = None
) -> Any:
    return (body, label, priority, to, back)


def bad_rows(service: Daemon, queue: str) -> dict[str, Any]:
    """Return pairs of the beginning of an error and a row that causes it."""
    closed, full, picky = f"{queue}-closed", f"{queue}-full", f"{queue}-picky"
    lake.create(service, closed)
    lake.create(service, full, quota=1)
    lake.create(service, picky, authenticate=True)
    with service.connect() as manager:
        manager.set_security(f".\\private$\\{closed}", SecurityDescriptor(dacl=()).pack(), 4)
    return {
        "MQ_ERROR_LABEL_TOO_LONG: a label has at most 249": row("l" * 250),
        "MQ_ERROR_ILLEGAL_PROPERTY_VALUE: body is null": row("no body", None),
        "MQ_ERROR_ILLEGAL_PROPERTY_VALUE: priority 8: 0 to 7": row("urgent", priority=8),
        "MQ_ERROR_ILLEGAL_FORMATNAME: 'DIRECT=nonsense'": row("nonsense", to="DIRECT=nonsense"),
        "MQ_ERROR_ILLEGAL_FORMATNAME: response_queue: 'somewhere'": row("answer", back="somewhere"),
        "MQ_ERROR_QUEUE_NOT_FOUND: DIRECT=OS:": row("nowhere", to="nowhere"),
        "MQ_ERROR_ACCESS_DENIED: ": row("closed", to=closed),
        "MQ_ERROR_MESSAGE_NOT_AUTHENTICATED: ": row("unsigned", to=picky),
        f"{FULL}queue ": row("full", bytes(2000), to=full),
        f"{FULL}the message has 4194": row("large", bytes(MAXIMUM_MESSAGE_SIZE)),
    }


def test_each_reason_is_collected_among_rows_that_are_sent_in_order(
    spark: Any, service: Daemon, queue: str, tmp_path: Path
) -> None:
    bad = bad_rows(service, queue)
    rows = [row("0")]
    for number, one in enumerate(bad.values(), 1):
        rows += [one, *(row(f"{number}") for _ in range(2))]
    frame = spark.createDataFrame(rows, COLUMNS).coalesce(1)
    save(frame, collecting(service, queue, tmp_path))
    assert lake.left(service, queue) == ["0", *(str(n) for n in range(1, len(bad) + 1) for _ in range(2))]
    found = errors(tmp_path)
    assert [tuple(one[name] for name in frame.columns) for one in found] == list(bad.values())
    for one, reason in zip(found, bad, strict=True):
        assert one["error"].startswith(reason)
    assert not list(tmp_path.glob("_attempts/*"))


def test_the_quota_of_the_machine_is_a_reason(spark: Any, tmp_path: Path) -> None:
    options = ("--flight", "--flight-port", "0", "--machine-quota", "64")
    with Daemon(tmp_path / "data", *options) as service:
        lake.create(service, "q")
        rows = [row("a"), row("b", bytes(70_000)), row("c"), row("d", bytes(62_000)), row("e", bytes(3000)), row("f")]
        save(spark.createDataFrame(rows, COLUMNS).coalesce(1), collecting(service, "q", tmp_path / "errors"))
        assert lake.left(service, "q") == ["a", "c", "d", "f"]
        assert [(e["label"], "the machine's (64 KB)" in e["error"]) for e in errors(tmp_path / "errors")] == [
            ("b", True), ("e", True),
        ]  # fmt: skip


def test_collected_rows_are_unchanged(spark: Any, service: Daemon, queue: str, tmp_path: Path) -> None:
    rows = [("täxt", "y" * 300), (None, "z"), ("good", "x")]
    save(spark.createDataFrame(rows, "body string, label string"), collecting(service, queue, tmp_path))
    assert lake.left(service, queue) == ["x"]
    assert sorted((e["body"], e["label"]) for e in errors(tmp_path) if e["body"]) == [("täxt", "y" * 300)]
    assert all(set(e) == {"body", "label", "error"} for e in errors(tmp_path)) and len(errors(tmp_path)) == 2


@pytest.mark.parametrize("column", ["body", "label"])
def test_text_that_is_not_utf_8_is_a_reason(
    spark: Any, service: Daemon, queue: str, tmp_path: Path, column: str
) -> None:
    """Spark does not validate UTF-8: casting bytes to a string can give invalid text."""
    other = "label" if column == "body" else "body"
    frame = spark.sql(
        f"select '1' {other}, 'good' {column} union all select '2', cast(X'41FF42' as string) union all "
        f"select '3', '{'y' * 300}' union all select '4', null"
    ).coalesce(1)
    bad = spark.sql(f"select '5' {other}, cast(X'FF' as string) {column}")
    save(frame, collecting(service, queue, tmp_path))
    save(bad, collecting(service, queue, tmp_path))
    refused = {"2": f"{column} is not valid UTF-8", "5": f"{column} is not valid UTF-8"}
    refused |= {"3": "a label has at most"} if column == "label" else {"4": "body is null"}
    found = spark.read.parquet(str(tmp_path)).collect()
    assert {row[other]: next((r for r in refused.values() if r in row.error), row.error) for row in found} == refused
    assert lake.count(service, queue) == 2
    with pytest.raises(Exception, match=f"row 1: {column} is not valid UTF-8"):
        save(frame, lake.reach(service, defaultQueue=queue))
    assert lake.count(service, queue) == 2


def test_a_row_that_is_refused_and_not_held_is_an_error(tmp_path: Path) -> None:
    collected = Collected(fs.LocalFileSystem(), str(tmp_path / "x.parquet"))
    collected.hold(pa.record_batch({"body": pa.array([b"a", b"b"])}))
    with pytest.raises(RuntimeError, match=r"row 2 is refused .* not held"):
        collected.take(3, [Refusal(0, MsmqError(detail="this")), Refusal(2, MsmqError(detail="that"))])


def test_files_of_attempts_that_cannot_be_removed_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError("not yours")

    found = Errors(str(tmp_path), "s")
    found.discard_all()
    assert not caplog.text
    monkeypatch.setattr(found, "_system", SimpleNamespace(delete_dir=refuse))
    found.discard_all()
    assert "_attempts/s: cannot remove files of failed attempts: not yours" in caplog.text


def test_a_keep_alive_that_fails_is_in_the_log_and_the_next_one_follows(
    service: Daemon, queue: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def renew(self: BulkClient, sink: str) -> None:
        seen.append(sink)
        if len(seen) == 1:
            raise MsmqError(detail="not now")

    monkeypatch.setattr(BulkClient, "renew", renew)
    monkeypatch.setattr(writing, "_SIGN_OF_LIFE", 0.01)
    with writing._signs_of_life(parse(lake.reach(service, defaultQueue=queue), BATCH_WRITE), "s"):
        eventually(lambda: len(seen) >= 2)
    assert caplog.text.count("sink s: a keep-alive failed") == 1 and "not now" in caplog.text


def test_if_no_row_can_be_sent_all_are_collected(spark: Any, service: Daemon, queue: str, tmp_path: Path) -> None:
    frame = spark.range(20_000).selectExpr("cast(null as binary) body", "cast(id as string) label").coalesce(1)
    save(frame, collecting(service, queue, tmp_path))
    assert lake.count(service, queue) == 0
    assert [int(e["label"]) for e in errors(tmp_path)] == list(range(20_000))


def failing(times: int) -> Any:
    """Return a step that fails after its rows in the first `times` attempts."""

    def step(rows: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        yield from rows
        if TaskContext.get().attemptNumber() < times:
            raise ValueError("this attempt fails")

    return step


@pytest.mark.parametrize("times", [1, 3])
def test_attempts_that_fail_leave_no_errors(
    spark: Any, service: Daemon, queue: str, tmp_path: Path, times: int
) -> None:
    bad = "if(id % 3 = 0, null, cast('x' as binary)) body"
    frame = spark.range(9000).selectExpr(bad, "cast(id as string) label").repartition(2)
    frame = spark.createDataFrame(frame.rdd.mapPartitions(failing(times)), frame.schema)
    if times < 3:
        save(frame, collecting(service, queue, tmp_path))
    else:
        with pytest.raises(Exception, match="this attempt fails"):
            save(frame, collecting(service, queue, tmp_path))
    sent, collected = lake.left(service, queue), [e["label"] for e in errors(tmp_path)]
    expected = range(9000) if times < 3 else range(0)
    assert sorted(map(int, sent + collected)) == list(expected)
    assert all(int(label) % 3 == 0 for label in collected)
    assert not list(tmp_path.glob("_attempts/*/*"))
    with BulkClient(port=lake.flight_port(service)) as client:
        assert not [stage for stage in client.stages() if queue in stage.queues[0]]


class CopyingQuery:
    """A query from files to a queue, one file per batch; some rows name the missing queue `QUEUE-later`."""

    def __init__(self, spark: Any, service: Daemon, queue: str, directory: Path) -> None:
        self.spark, self.service, self.queue, self.directory = spark, service, queue, directory
        rows = spark.range(60).selectExpr(
            "cast(id as string) body", "cast(id as string) label",
            f"if(id % 10 = 0, '{queue}-later', null) destination_queue",
        )  # fmt: skip
        rows.repartition(3).write.parquet(str(directory / "in"))

    def run(self) -> None:
        spark = self.spark
        schema = "body string, label string, destination_queue string"
        frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(self.directory / "in"))
        options = collecting(self.service, self.queue, self.directory / "errors", sinkId=self.queue)
        writer = frame.writeStream.format("msmq").options(**options)
        writer = writer.option("checkpointLocation", str(self.directory / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def lose_last_commit(self) -> None:
        last = max((self.directory / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)

    def check(self) -> None:
        sent = sorted(map(int, lake.left(self.service, self.queue)))
        assert sent == [number for number in range(60) if number % 10]
        collected = errors(self.directory / "errors")
        assert sorted(int(e["label"]) for e in collected) == list(range(0, 60, 10))
        assert all(e["error"].startswith("MQ_ERROR_QUEUE_NOT_FOUND") for e in collected)


def test_a_stream_collects_once_also_when_a_batch_is_repeated_that_was_applied(
    spark: Any, service: Daemon, queue: str, tmp_path: Path
) -> None:
    copying = CopyingQuery(spark, service, queue, tmp_path)
    copying.run()
    copying.check()
    copying.lose_last_commit()
    lake.create(service, f"{queue}-later")  # the refused rows could be sent now
    copying.run()
    copying.check()
    assert lake.count(service, f"{queue}-later") == 0


def test_errors_that_do_not_concern_rows_fail_the_task(spark: Any, service: Daemon, queue: str, tmp_path: Path) -> None:
    copying = CopyingQuery(spark, service, queue, tmp_path)
    with BulkClient(port=lake.flight_port(service)) as client:
        client.finalize(queue, 99, [])
    with pytest.raises(Exception, match="older than its last, 99"):
        copying.run()
    assert errors(tmp_path / "errors") == [] and lake.count(service, queue) == 0


# -- commits that fail, without Spark --------------------------------------------------------------------------------


def message(service: Daemon, queue: str, directory: Path, label: str) -> WrittenStage:
    """Return the commit message of a task with a staged row and a row that cannot be sent."""
    with BulkClient(port=lake.flight_port(service)) as client:
        rows = pa.record_batch({"body": pa.array([b""]), "label": pa.array([label])})
        staged = client.stage(queue, 3, 0, 0, [rows], queue)
    return WrittenStage(staged.handle, 1, attempt(Errors(str(directory), queue), 3, 0, f"bad {label}"))


@pytest.mark.parametrize("arrives", [False, True])
def test_errors_are_those_of_the_commit_that_took_effect(
    service: Daemon, queue: str, tmp_path: Path, arrives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = StructType([StructField("body", BinaryType()), StructField("label", StringType())])
    writer = MsmqStreamWriter(parse(collecting(service, queue, tmp_path, sinkId=queue), STREAM_WRITE), schema)
    finalize = BulkClient.finalize

    def lost(client: BulkClient, *arguments: Any) -> None:
        if arrives:
            finalize(client, *arguments)
        raise ConnectionError("the answer did not come")

    first = [message(service, queue, tmp_path, "first")]
    with monkeypatch.context() as patch:
        patch.setattr(BulkClient, "finalize", lost)
        with pytest.raises(ConnectionError):
            writer.commit(first, 3)
    assert labels(tmp_path) == ["bad first"]
    second = [message(service, queue, tmp_path, "second")]
    if not arrives:
        writer.abort([*first, None], 3)  # not reached if the driver is killed
        assert labels(tmp_path) == []
    writer.commit(second, 3)
    writer.abort(second, 3)
    label = "first" if arrives else "second"
    assert lake.left(service, queue) == [label] and labels(tmp_path) == [f"bad {label}"]
    assert not list(tmp_path.glob("_attempts/*"))


# -- the files, without Spark ----------------------------------------------------------------------------------------


def attempt(files: Errors, batch: int, partition: int, *labels: str) -> str:
    collected = files.attempt(batch, partition)
    collected.hold(pa.record_batch({"label": pa.array(labels)}))
    collected.take(len(labels), [Refusal(number, QueueNotFound()) for number in range(len(labels))])
    name = collected.close()
    assert name is not None
    return name


def labels(directory: Path) -> list[str]:
    return sorted(e["label"] for e in errors(directory))


@pytest.mark.parametrize("kind", ["path", "file", "other"])
def test_files_of_an_attempt_are_visible_when_published_and_replace_earlier_ones(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    system: fs.FileSystem = fs.LocalFileSystem()
    where = {"path": str(tmp_path), "file": f"file:{tmp_path}", "other": "other://bucket/errors/"}[kind]
    directory = str(tmp_path)
    if kind == "other":  # an in-memory file system with only the required features
        system, directory = fs._MockFileSystem(), "bucket/errors"
        monkeypatch.setattr("openmsmq.spark.collecting._opened", {where: (system, directory)}.__getitem__)

    def seen() -> list[str]:
        found = system.get_file_info(fs.FileSelector(directory, allow_not_found=True))
        tables = [pq.read_table(file.path, filesystem=system) for file in found if file.extension == "parquet"]
        return sorted(label for table in tables for label in table["label"].to_pylist())

    files = Errors(where, "a/b")
    old = [attempt(files, 7, partition, f"old {partition}") for partition in range(2)]
    assert seen() == []
    files.publish(7, old)
    files.publish(6, [attempt(files, 6, 0, "six")])
    Errors(where, "a/b-7").publish(1, [attempt(Errors(where, "a/b-7"), 1, 0, "other sink")])
    assert seen() == ["old 0", "old 1", "other sink", "six"]
    files.publish(7, [attempt(files, 7, 1, "new 1")])
    assert seen() == ["new 1", "other sink", "six"]
    files.withdraw(7)
    failed = attempt(files, 8, 1, "failed")
    files.discard([failed, "8-2-gone.parquet"])
    left = system.get_file_info(fs.FileSelector(f"{directory}/_attempts", allow_not_found=True, recursive=True))
    assert failed not in [file.base_name for file in left]
    attempt(files, 8, 0, "never chosen")
    files.discard_all()
    assert seen() == ["other sink", "six"]
    with pytest.raises(OptionError, match="a directory that the driver and all executors share"):
        files.publish(8, ["8-0-gone.parquet"])


def test_an_unsupported_file_system_is_named(service: Daemon, queue: str) -> None:
    options = parse(lake.reach(service, onError="collect", errorPath="ftp://x/y", defaultQueue=queue), BATCH_WRITE)
    with pytest.raises(OptionError, match=r"errorPath is 'ftp://x/y': .*; allowed: a directory, file://, s3://"):
        MsmqWriter(options, StructType([StructField("body", BinaryType())]))


def test_a_directory_that_is_not_shared_is_named(tmp_path: Path) -> None:
    name = attempt(Errors(str(tmp_path / "executor"), "s"), 0, 0, "a")
    with pytest.raises(OptionError, match="a directory that the driver and all executors share"):
        Errors(str(tmp_path / "driver"), "s").publish(0, [name])


@pytest.mark.parametrize(
    "accepted",
    [
        pytest.param(lambda row: False, id="none"),
        pytest.param(lambda row: row % 500 > 0, id="most"),
        pytest.param(lambda row: row == 0, id="only the first"),
    ],
)
def test_the_number_of_held_rows_is_bounded(
    service: Daemon, queue: str, tmp_path: Path, accepted: Callable[[int], bool]
) -> None:
    """100 MB are sent; rows that the queue manager has received are dropped. 32 MiB may be without a reply, and 8 MiB
    of refused rows wait until they are written, each with a batch more."""
    collected = Collected(fs.LocalFileSystem(), str(tmp_path / "errors.parquet"))
    most, size, count = 0, 500, 200

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for first in range(0, size * count, size):
            bodies = [bytes(1000) for _ in range(size)]
            labels = [str(row) if accepted(row) else "x" * 250 for row in range(first, first + size)]
            batch = pa.record_batch({"body": pa.array(bodies, pa.binary()), "label": pa.array(labels)})
            collected.hold(batch)
            most = max(most, sum(one.nbytes for one in collected._held) + sum(g.nbytes for g in collected._gathered))
            yield batch

    with BulkClient(port=lake.flight_port(service)) as client:
        staged = client.stage(queue, 0, 0, 0, rows(), queue, collect=collected.take)
        client.forget(queue)
    name = collected.close()
    good = sum(map(accepted, range(size * count)))
    assert name is not None and most < 42 << 20
    assert pq.read_metadata(tmp_path / name).num_rows == size * count - good
    assert staged.rows == good


def test_an_error_while_collecting_is_the_one_that_is_raised(service: Daemon, queue: str) -> None:
    def broken(through: int, refused: list[Refusal]) -> None:
        raise OSError("no room for errors")

    with BulkClient(port=lake.flight_port(service)) as client:
        batch = pa.record_batch({"body": pa.array([None, b"x"] * 500, pa.binary())})
        with pytest.raises(OSError, match="no room for errors"):
            client.stage(queue, 0, 0, 0, [batch] * 20, queue, collect=broken)
        assert not [stage for stage in client.stages() if stage.sink == queue]
        with pytest.raises(OSError, match="no room for errors"):  # also if all rows were sent before the error
            client.stage(queue, 0, 0, 0, [batch.slice(0, 1)], queue, collect=broken)
        assert not [stage for stage in client.stages() if stage.sink == queue]
        with pytest.raises(MsmqError, match="row 0"):
            client.stage(queue, 0, 0, 0, [batch], queue)
