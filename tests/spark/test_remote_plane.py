"""Reading through MS-MQRR, as from any MSMQ server: a cursor walks, nothing is taken."""

from __future__ import annotations

import time
from typing import Any

import pytest

from daemon import Daemon


@pytest.fixture
def queue(qm: Any, request: pytest.FixtureRequest) -> str:
    name = request.node.name[:60]
    qm.create_queue(f".\\private$\\{name}", journal=True)
    with qm.open(f".\\private$\\{name}", "send") as sender:
        for number in range(100):
            sender.send(f"body {number}", label=f"label {number}", priority=number % 8, recoverable=number % 2 == 0)
    return str(name)


def load(spark: Any, service: Daemon, **options: Any) -> Any:
    reader = spark.read.format("msmq").option("port", service.port).option("protocol", "remoteread")
    return reader.options(**options).load()


def test_a_queue_is_a_table(spark: Any, service: Daemon, queue: str, qm: Any) -> None:
    rows = load(spark, service, queue=queue, decode="text").orderBy("sequence").collect()
    assert [row.text for row in rows] == [f"body {number}" for number in range(100)]
    assert {row.queue for row in rows} == {queue}
    assert [row.priority for row in rows] == [number % 8 for number in range(100)]
    assert [row.recoverable for row in rows[:2]] == [True, False]
    first = rows[0]
    assert first.lookup_id == 7 << 56 | first.sequence
    assert abs(first.arrival_time.timestamp() - time.time()) < 120
    assert qm.counts(f".\\private$\\{queue}")["message_count"] == 100


def test_columns_rows_and_bodies_are_left_out(spark: Any, service: Daemon, queue: str) -> None:
    labels = spark.read.schema("label string, body_size bigint").format("msmq").option("port", service.port)
    rows = labels.option("queue", queue).option("protocol", "remoteread").load().collect()
    assert rows[0].asDict().keys() == {"label", "body_size"} and len(rows) == 100
    sequences = sorted(row.sequence for row in load(spark, service, queue=queue, includeBody=False).collect())
    some = load(
        spark, service, queue=queue, startingOffsets=f'{{"{queue}": {sequences[9]}}}',
        endingOffsets=f'{{"{queue}": {sequences[19]}}}',
    )  # fmt: skip
    assert some.count() == 10
    assert load(spark, service, queue=queue, startingTimestamp="2999-01-01").count() == 0


def test_journals_and_several_queues_are_read(spark: Any, service: Daemon, queue: str, qm: Any) -> None:
    with qm.open(f".\\private$\\{queue}") as opened:
        opened.receive(0)
    assert load(spark, service, queue=queue, source="journal").count() == 1
    qm.create_queue(".\\private$\\beside")
    assert load(spark, service, queue=f"{queue},beside").groupBy("queue").count().collect()[0]["count"] == 99
    assert load(spark, service, queuePattern=f".*{queue}").count() == 99


def test_a_stream_browses_what_comes(spark: Any, service: Daemon, queue: str, qm: Any, tmp_path: Any) -> None:
    def run() -> None:
        stream = spark.readStream.format("msmq").option("port", service.port).option("protocol", "remoteread")
        frame = stream.option("queue", queue).option("maxRecordsPerTrigger", 40).load()
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / "out"), format="parquet").awaitTermination()

    run()
    with qm.open(f".\\private$\\{queue}", "send") as sender:
        sender.send("late")
    run()
    rows = spark.read.parquet(str(tmp_path / "out")).select("sequence").collect()
    assert len(rows) == len({row.sequence for row in rows}) == 101


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queue": "missing"}, "MQ_ERROR_QUEUE_NOT_FOUND"),
        ({"queue": "q", "colour": "red"}, "unknown option 'colour'"),
        ({"queuePattern": "nothing like it"}, "matches no queue"),
    ],
)
def test_failures_name_what_is_wrong(spark: Any, service: Daemon, options: dict[str, str], said: str) -> None:
    with pytest.raises(Exception, match=said):
        load(spark, service, **options).count()


def test_receiving_needs_arrow_flight(spark: Any, service: Daemon, tmp_path: Any) -> None:
    stream = spark.readStream.format("msmq").option("port", service.port).option("protocol", "remoteread")
    frame = stream.options(queue="q", mode="receive", consumerGroup="g").load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match="mode=receive needs Arrow Flight"):
        query.awaitTermination(60)
