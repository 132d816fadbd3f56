"""Readers and writers survive a restart of the queue manager; they are driven as by Spark, without Spark."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StringType, StructField, StructType

from daemon import Daemon, free_port
from openmsmq.bulk.client import BulkClient
from openmsmq.spark.options import BATCH_WRITE, STREAM_READ, OptionError, parse
from openmsmq.spark.plane import flight
from openmsmq.spark.retry import RetryPolicy
from openmsmq.spark.schema import spark_schema
from openmsmq.spark.source import MsmqDataSource
from openmsmq.spark.streaming import MsmqStreamReader
from openmsmq.spark.writing import HELD_BYTES, MsmqWriter, Repeatable
from spark import lake


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "data", "--flight", "--flight-port", str(free_port("127.0.0.1"))) as daemon:
        lake.create(daemon, "q")
        yield daemon


@contextmanager
def restarting(daemon: Daemon) -> Iterator[None]:
    """Kill the daemon and start it again while the block runs."""
    daemon.kill()
    thread = threading.Thread(target=daemon.start)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def reader(daemon: Daemon, **options: Any) -> MsmqStreamReader:
    given = lake.reach(daemon, queue="q", retrySeconds=30, **options)
    return MsmqStreamReader(parse(given, STREAM_READ), spark_schema("none"))


@pytest.mark.parametrize(
    "options",
    [pytest.param({}, marks=pytest.mark.slow), {"mode": "receive", "consumerGroup": "g"}],
    ids=["browse", "receive"],
)
def test_a_stream_continues_after_a_restart(own: Daemon, options: dict[str, str]) -> None:
    lake.put(own, "q", "ab")
    stream = reader(own, **options)
    initial = stream.initialOffset()
    stream.plane.queues()
    with restarting(own):
        end = stream.latestOffset(initial, ReadAllAvailable())
    with restarting(own):
        parts = list(stream.partitions(initial, end))
    with restarting(own):
        found = [label for part in parts for batch in stream.read(part) for label in batch["label"].to_pylist()]
    assert found == ["a", "b"]
    with restarting(own):
        stream.commit(end)
    assert lake.left(own, "q") == ([] if options else ["a", "b"])


def as_an_executor_has_it(daemon: Daemon, **options: Any) -> Any:
    """Return what Spark sends to a micro-batch task: a pickled reader on which nothing was called."""
    given = lake.reach(daemon, queue="q", retrySeconds="30", mode="receive", consumerGroup="g", **options)
    return pickle.dumps(MsmqDataSource(given).streamReader(spark_schema("none")))


def labels_read_while_it_is_away(own: Daemon, sent: bytes, parts: list[Any]) -> list[str]:
    """Kill the daemon, read as an executor that starts before the restart, and return the labels."""
    own.kill()
    starting = threading.Timer(1, own.start)
    starting.start()
    found = [label for part in parts for batch in pickle.loads(sent).read(part) for label in batch["label"].to_pylist()]
    starting.join()
    return found


def test_a_task_that_begins_while_the_queue_manager_is_down_reads_what_was_planned(own: Daemon) -> None:
    lake.put(own, "q", "ab")
    planner, sent = reader(own, mode="receive", consumerGroup="g"), as_an_executor_has_it(own)
    initial = planner.initialOffset()
    parts = list(planner.partitions(initial, planner.latestOffset(initial, ReadAllAvailable())))
    assert labels_read_while_it_is_away(own, sent, parts) == ["a", "b"]


def test_a_remote_read_task_waits_for_the_queue_manager_too(own: Daemon) -> None:
    lake.put(own, "q", "ab")
    rpc = {"protocol": "remoteread", "port": own.port}
    sent = as_an_executor_has_it(own, **rpc)
    planner = pickle.loads(sent)
    end = planner.latestOffset(planner.initialOffset(), ReadAllAvailable())
    parts = list(planner.partitions({}, end))
    planner.plane.close()
    assert labels_read_while_it_is_away(own, sent, parts) == ["a", "b"]


def test_an_interrupted_read_resumes_after_its_last_row(own: Daemon) -> None:
    count = 20_000
    rows = pa.record_batch({"body": pa.array([bytes(1000)] * count), "label": pa.array(list(map(str, range(count))))})
    with BulkClient(port=lake.flight_port(own)) as client:
        client.finalize("s", 0, [client.stage("s", 0, 0, 0, [rows], "q")])
    stream = reader(own)
    (part,) = stream.partitions({"q": 0}, stream.latestOffset({"q": 0}, ReadAllAvailable()))
    batches = stream.read(part)
    found = next(batches)["label"].to_pylist()
    with restarting(own):
        found += [label for batch in batches for label in batch["label"].to_pylist()]
    assert found == list(map(str, range(count)))


class Task:
    """Spark's task context."""

    @staticmethod
    def partitionId() -> int:
        return 0

    @staticmethod
    def taskAttemptId() -> int:
        return 7


def test_an_interrupted_upload_starts_again(own: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openmsmq.spark.writing.TaskContext.get", lambda: Task)
    options = parse(lake.reach(own, defaultQueue="q", retrySeconds=30), BATCH_WRITE)
    writer = MsmqWriter(options, StructType([StructField(name, StringType()) for name in ("body", "label")]))
    starting: list[threading.Thread] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for number in range(20):
            if number == 10:
                own.kill()
                starting.append(threading.Thread(target=own.start))
                starting[0].start()
            labels = [f"{number}-{row}" for row in range(100)]
            yield pa.record_batch({"body": labels, "label": labels})

    message = writer.write(rows())
    starting[0].join()
    with restarting(own):
        writer.commit([message])
    assert lake.count(own, "q") == 2000
    with BulkClient(port=lake.flight_port(own)) as client:
        assert client.stages() == []


def test_few_rows_are_kept_for_a_retry() -> None:
    few = pa.record_batch({"body": pa.array([bytes(1000)])})
    rows = Repeatable(iter([few, few, few]))
    first = iter(rows)
    next(first), next(first)
    assert sum(batch.num_rows for batch in rows) == 3 and rows.is_whole
    much = pa.record_batch({"body": pa.array([bytes(HELD_BYTES)])})
    rows = Repeatable(iter([few, much]))
    assert len(list(rows)) == 2 and not rows.is_whole


def test_without_an_earlier_answer_calls_fail_at_once() -> None:
    options = parse({"flightPort": "1", "queue": "q", "protocol": "flight", "startingOffsets": "latest"}, STREAM_READ)
    begun = time.monotonic()
    with pytest.raises(ConnectionError):
        MsmqStreamReader(options, spark_schema("none")).initialOffset()
    assert time.monotonic() - begun < 20


def test_retries_end_with_an_error_that_names_the_option() -> None:
    options = parse({"flightPort": "1", "queue": "q", "retrySeconds": "1"}, STREAM_READ)
    with pytest.raises(ConnectionError, match=r"127.0.0.1:1 has not answered for 1 s \(option retrySeconds\)"):
        flight(options).position("q")
    with pytest.raises(OptionError, match="retrySeconds is '-1'"):
        parse({"queue": "q", "retrySeconds": "-1"}, STREAM_READ)
    with pytest.raises(ConnectionError, match="gone"):
        RetryPolicy(0, "here", is_known=True).wait(ConnectionError("gone"))
