"""Several queue managers as one table: two daemons at two addresses, with the same Arrow Flight port."""

from __future__ import annotations

import json
import logging
import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import openmsmq
from daemon import Daemon, eventually, free_port
from openmsmq.model.errors import QueueNotFound
from openmsmq.spark import hosts
from openmsmq.spark.hosts import HostAway, ManyHosts
from openmsmq.spark.jobs.location import Server
from openmsmq.spark.options import BATCH_READ, BATCH_WRITE, STREAM_READ, OptionError, parse
from openmsmq.spark.reading import FilteringReader, MsmqReader, QueueRange
from openmsmq.spark.schema import spark_schema
from openmsmq.spark.streaming import MsmqStreamReader
from spark import lake

A, B = "127.0.0.1", "127.0.0.2"


class SecondDaemon(Daemon):
    """A daemon at the second address."""

    def connect(self, **security: Any) -> openmsmq.QueueManager:
        return openmsmq.connect(B, self.port, **security)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Daemon]]:
    directory, port = tmp_path_factory.mktemp("hosts"), str(free_port(A, B))
    options = ("--flight", "--flight-port", port)
    one = Daemon(directory / "a", "--listen", A, *options)
    with one, SecondDaemon(directory / "b", "--listen", B, *options) as other:
        yield {A: one, B: other}


@pytest.fixture
def queue(two: dict[str, Daemon], request: pytest.FixtureRequest) -> str:
    name: str = request.node.name.replace("[", "-").replace("]", "")[:80]
    for daemon in two.values():
        if not daemon.alive:
            daemon.start()
        lake.create(daemon, name)
    return name


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry an unavailable host with each call."""
    monkeypatch.setattr(hosts, "_AGAIN", 0.0)


def reach(two: dict[str, Daemon], **options: Any) -> dict[str, str]:
    return lake.reach(two[A], **{"host": f"{A}, {B}", "retrySeconds": 0, **options})


def put(two: dict[str, Daemon], queue: str, labels: str) -> None:
    """Send lower-case labels to the first address and upper-case labels to the second."""
    lake.put(two[A], queue, labels.lower())
    lake.put(two[B], queue, labels.upper())


class Stream:
    """Drives a streaming reader like Spark."""

    def __init__(self, two: dict[str, Daemon], queue: str, **options: Any) -> None:
        given = reach(two, queue=queue, **options)
        self.reader = MsmqStreamReader(parse(given, STREAM_READ), spark_schema("none", True))

    def latest(self, start: dict[str, Any], rows: int | None = None) -> dict[str, Any]:
        return dict(self.reader.latestOffset(start, ReadAllAvailable() if rows is None else ReadMaxRows(rows)))

    def labels(self, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
        """Read as tasks do, each with a copy of the reader."""
        parts = self.reader.partitions(start, json.loads(json.dumps(end)))
        copy = pickle.loads(pickle.dumps(self.reader))
        return [label for part in parts for batch in copy.read(part) for label in batch["label"].to_pylist()]


def test_queues_of_two_hosts_are_one_table(spark: Any, two: dict[str, Daemon], queue: str) -> None:
    put(two, queue, "abc")
    frame = spark.read.format("msmq").options(**reach(two, queue=queue)).load()
    rows = frame.select("host", "label").collect()
    assert sorted((row.host, row.label) for row in rows) == [
        (A, "a"), (A, "b"), (A, "c"), (B, "A"), (B, "B"), (B, "C"),
    ]  # fmt: skip
    pattern = spark.read.format("msmq").options(**reach(two, queuePattern=r".*\\" + queue)).load()
    assert Counter(row.host for row in pattern.collect()) == {A: 3, B: 3}
    chosen = spark.read.format("msmq").schema("HOST string").options(**reach(two, queue=queue)).load()
    assert Counter(row.HOST for row in chosen.collect()) == {A: 3, B: 3}


def test_one_host_has_no_column_host(two: dict[str, Daemon], queue: str) -> None:
    """Existing tables and checkpoints have no such column."""
    assert "host" not in spark_schema("none").names and spark_schema("text", True).names[-2:] == ["text", "host"]
    put(two, queue, "a")
    reader = MsmqReader(parse(reach(two, queue=queue, host=B), BATCH_READ), spark_schema("none"))
    (part,) = reader.partitions()
    assert isinstance(part, QueueRange) and part.queue == queue


def test_a_filter_on_the_host_leaves_the_others_alone(two: dict[str, Daemon], queue: str) -> None:
    put(two, queue, "ab")
    reader = FilteringReader(parse(reach(two, queue=queue, pushFilters="true"), BATCH_READ), spark_schema("none", True))
    assert list(reader.pushFilters([EqualTo(("host",), B)])) == []
    (part,) = reader.partitions()
    assert [label for batch in reader.read(part) for label in batch["label"].to_pylist()] == ["A", "B"]


@pytest.mark.parametrize("mode", ["browse", "receive"])
def test_a_stream_reads_each_message_of_both_hosts_once(
    spark: Any, two: dict[str, Daemon], queue: str, tmp_path: Path, mode: str
) -> None:
    group = {"consumerGroup": "lake"} if mode == "receive" else {}
    put(two, queue, "abcdefghij")
    for expected in (20, 22):
        frame = spark.readStream.format("msmq").options(
            **reach(two, queue=queue, mode=mode, maxRecordsPerTrigger=7, **group)
        )
        lake.to_parquet(frame.load(), tmp_path).awaitTermination()
        found = lake.labels(spark, tmp_path)
        assert len(found) == sum(found.values()) == expected
        put(two, queue, "x" if expected == 20 else "y")
    left = [lake.left(daemon, queue) for daemon in two.values()]
    assert left == ([["y"], ["Y"]] if mode == "receive" else [[*"abcdefghijxy"], [*"ABCDEFGHIJXY"]])


def test_offsets_are_by_host_and_queue(two: dict[str, Daemon], queue: str) -> None:
    put(two, queue, "ab")
    stream = Stream(two, queue)
    start = stream.reader.initialOffset()
    end = stream.latest(start)
    assert list(start) == list(end) == [f"{A}/{queue}", f"{B}/{queue}"]
    assert len({value["store"] for value in end.values()}) == 2, "each host has a store of its own"
    assert sorted(stream.labels(start, end)) == ["A", "B", "a", "b"]
    later = Stream(two, queue)
    assert later.labels(start, end) == stream.labels(start, end)
    assert later.latest(end) == end
    assert {name: value["lag"] for name, value in (later.reader.reportLatestOffset() or {}).items()} == {
        f"{A}/{queue}": 0, f"{B}/{queue}": 0,
    }  # fmt: skip


@pytest.mark.parametrize("named", [{}, {"queue": "", "queuePattern": ".*"}])
def test_a_checkpoint_of_one_host_is_refused_for_several(
    two: dict[str, Daemon], queue: str, named: dict[str, str]
) -> None:
    given = {name: value for name, value in reach(two, **{"queue": queue, **named}).items() if value}
    reader = MsmqStreamReader(parse(given, STREAM_READ), spark_schema("none", True))
    with pytest.raises(OptionError, match=f"the checkpoint is of '{queue}'"):
        reader.latestOffset({queue: {"sequence": 1, "planned": 1}}, ReadAllAvailable())
    with pytest.raises(OptionError, match=f"Name '127.0.0.9/{queue}' too"):
        reader.latestOffset({f"127.0.0.9/{queue}": 0}, ReadAllAvailable())


def test_hosts_are_asked_at_the_same_time(two: dict[str, Daemon], queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(two, queue, "a")
    both, plan = Barrier(2, timeout=60), ManyHosts.plan

    def slow(self: ManyHosts, *values: Any, **options: Any) -> Any:
        both.wait()  # until the other host is called too
        return plan(self, *values, **options)

    monkeypatch.setattr(ManyHosts, "plan", slow)
    reader = MsmqReader(parse(reach(two, queue=queue), BATCH_READ), spark_schema("none", True))
    assert len(reader.partitions()) == 2


def test_an_unreachable_host_is_named_and_fails_the_query(two: dict[str, Daemon], queue: str) -> None:
    put(two, queue, "a")
    stream = Stream(two, queue)
    start = stream.reader.initialOffset()
    two[B].stop()
    for ask in (
        lambda: stream.latest(start),
        Stream(two, queue).reader.initialOffset,
        Stream(two, queue, failOnDataLoss="false").reader.initialOffset,
        MsmqReader(parse(reach(two, queue=queue), BATCH_READ), spark_schema("none", True)).partitions,
    ):
        with pytest.raises(HostAway, match=f"queue manager {B} does not answer.*failOnDataLoss=false"):
            ask()


def test_a_batch_read_continues_without_a_host_if_allowed(
    two: dict[str, Daemon], queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(two, queue, "ab")
    two[B].stop()
    given = reach(two, queue=queue, failOnDataLoss="false")
    reader = MsmqReader(parse(given, BATCH_READ), spark_schema("none", True))
    assert [part.queue for part in reader.partitions() if isinstance(part, QueueRange)] == [f"{A}/{queue}"]
    assert f"queue manager {B} does not answer" in caplog.text


@pytest.mark.parametrize("mode", ["browse", "receive"])
@pytest.mark.usefixtures("at_once")
def test_a_stream_continues_without_a_host_if_allowed_and_loses_nothing(
    two: dict[str, Daemon], queue: str, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    options = {"mode": mode, "failOnDataLoss": "false", **({"consumerGroup": "lake"} if mode == "receive" else {})}
    stream = Stream(two, queue, **options)
    start = stream.reader.initialOffset()
    put(two, queue, "a")
    at = stream.latest(start)
    seen = stream.labels(start, at)
    stream.reader.commit(at)
    lake.put(two[B], queue, "B")
    two[B].stop()
    lake.put(two[A], queue, "b")
    with caplog.at_level(logging.WARNING):
        end = stream.latest(at)
    assert end[f"{B}/{queue}"] == at[f"{B}/{queue}"] and caplog.text.count("does not answer") == 1
    seen += stream.labels(at, end)
    stream.reader.commit(end)
    two[B].start()
    last = eventually(lambda: (found := stream.latest(end)) != end and found)
    seen += stream.labels(end, last)
    stream.reader.commit(last)
    assert sorted(seen) == ["A", "B", "a", "b"]
    left = [lake.left(daemon, queue) for daemon in two.values()]
    assert left == ([[], []] if mode == "receive" else [["a", "b"], ["A", "B"]])


def test_a_batch_that_was_planned_is_not_run_without_its_host(two: dict[str, Daemon], queue: str) -> None:
    put(two, queue, "a")
    stream = Stream(two, queue, failOnDataLoss="false", mode="receive", consumerGroup="lake")
    start = stream.reader.initialOffset()
    end = stream.latest(start)
    two[B].stop()
    with pytest.raises(HostAway, match=B):
        Stream(two, queue, failOnDataLoss="false", mode="receive", consumerGroup="lake").labels(start, end)


def test_a_queue_that_one_host_does_not_have_is_named_with_its_host(two: dict[str, Daemon], queue: str) -> None:
    lake.create(two[A], f"{queue}-more")
    reader = MsmqReader(parse(reach(two, queue=f"{queue}-more"), BATCH_READ), spark_schema("none", True))
    with pytest.raises(QueueNotFound, match=f"{B}: .*{queue}-more"):
        reader.partitions()


@pytest.mark.parametrize("named", [{}, {"queue": "", "queuePattern": ".*"}, {"queue": "", "source": "deadletter"}])
def test_a_queue_manager_with_two_of_the_hosts_is_named(
    two: dict[str, Daemon], queue: str, named: dict[str, str]
) -> None:
    given = reach(two, **{"host": f"{A}, {B}, localhost", "queue": queue, **named})
    given = {name: value for name, value in given.items() if value}
    said = f"host names one queue manager twice, as '{A}' and 'localhost', allowed: each queue manager once"
    for plan in (
        MsmqReader(parse(given, BATCH_READ), spark_schema("none", True)).partitions,
        MsmqStreamReader(parse(given, STREAM_READ), spark_schema("none", True)).initialOffset,
    ):
        with pytest.raises(OptionError, match=said):
            plan()
    reader = FilteringReader(parse(given | {"pushFilters": "true"}, BATCH_READ), spark_schema("none", True))
    assert list(reader.pushFilters([EqualTo(("host",), "localhost")])) == []
    assert reader.queues()


@pytest.mark.parametrize(
    ("where", "options", "said"),
    [
        (BATCH_READ, {"host": "a,b", "queue": "q", "protocol": "remoteread"}, "read by Arrow Flight"),
        (STREAM_READ, {"host": "a,b,a", "queue": "q"}, "'a' twice"),
        (BATCH_WRITE, {"host": "a,b", "defaultQueue": "q"}, "allowed for a batch write: one queue manager"),
    ],
)
def test_options_incompatible_with_several_hosts_are_named(where: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse(options, where)


def test_a_job_has_one_host() -> None:
    with pytest.raises(OptionError, match="allowed for a job: one queue manager"):
        Server(host="a,b").check([], "queue")
