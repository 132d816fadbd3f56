"""Reading through MS-MQRR, as from any MSMQ server: a cursor scans without removing."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from daemon import Daemon
from openmsmq.bulk.client import QueuePosition
from openmsmq.bulk.message_columns import MESSAGE_SCHEMA
from openmsmq.client import remote_read
from openmsmq.model.errors import SharingViolation
from openmsmq.model.message import Message
from openmsmq.packet.errors import BadPacket
from openmsmq.spark.options import BATCH_READ, STREAM_READ, parse
from openmsmq.spark.reading import DataLoss, MsmqReader
from openmsmq.spark.remote_plane import RemotePlane, record_batch
from openmsmq.spark.schema import spark_schema
from openmsmq.spark.streaming import MsmqStreamReader
from spark import lake


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
    flight = load(spark, service, queue=queue, **lake.reach(service, protocol="flight"))
    by_flight = {row.queue for row in flight.collect()}
    rows = load(spark, service, queue=queue, decode="text").orderBy("sequence").collect()
    assert [row.text for row in rows] == [f"body {number}" for number in range(100)]
    assert {row.queue for row in rows} == by_flight
    assert [row.priority for row in rows] == [number % 8 for number in range(100)]
    assert [row.recoverable for row in rows[:2]] == [True, False]
    first = rows[0]
    assert first.lookup_id == 7 << 56 | first.sequence
    assert abs(first.arrival_time.timestamp() - time.time()) < 900
    assert qm.counts(f".\\private$\\{queue}")["message_count"] == 100


def test_positions_are_those_of_the_messages_and_zero_in_an_empty_queue(service: Daemon, queue: str, qm: Any) -> None:
    options = parse({"port": str(service.port), "protocol": "remoteread", "queue": queue}, BATCH_READ)
    with closing(RemotePlane(options)) as plane:
        found = plane.position(queue)
        assert (found.count, found.last - found.first) == (100, 99)
        with qm.open(f".\\private$\\{queue}") as opened:
            opened.purge()
        assert plane.position(queue) == QueuePosition(0, 0, 0, 0)


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
    qm.create_queue(".\\private$\\second")
    assert load(spark, service, queue=f"{queue},second").groupBy("queue").count().collect()[0]["count"] == 99
    assert load(spark, service, queuePattern=f".*{queue}").count() == 99


def test_a_stream_browses_new_messages(spark: Any, service: Daemon, queue: str, qm: Any, tmp_path: Any) -> None:
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
        ({"queue": "q", "color": "red"}, "unknown option 'color'"),
        ({"queue": "DIRECT=OS:other\\private$\\q", "source": "outgoing"}, "needs Arrow Flight"),
        ({"queuePattern": "nothing like it"}, "matches no queue"),
    ],
)
def test_failures_name_what_is_wrong(spark: Any, service: Daemon, options: dict[str, str], said: str) -> None:
    with pytest.raises(Exception, match=said):
        load(spark, service, **options).count()


def receive(spark: Any, service: Daemon, queue: str, directory: Any, **options: Any) -> Any:
    """Start a query that moves messages through MS-MQRR to Parquet until the queue is empty."""
    stream = spark.readStream.format("msmq").option("port", service.port).option("protocol", "remoteread")
    frame = stream.options(queue=queue, mode="receive", consumerGroup="lake", maxRecordsPerTrigger=30, **options).load()
    writer = frame.writeStream.option("checkpointLocation", str(directory / "checkpoint"))
    return writer.trigger(availableNow=True).start(str(directory / "out"), format="parquet")


def test_a_stream_takes_messages_by_lookup_identifier(
    spark: Any, service: Daemon, queue: str, qm: Any, tmp_path: Any
) -> None:
    path = f".\\private$\\{queue}"
    receive(spark, service, queue, tmp_path, minPartitions=2).awaitTermination()
    assert qm.counts(path)["message_count"] == 0, "the last batch is removed too"
    assert qm.counts(path)["journal_message_count"] == 100
    with qm.open(path, "send") as sender:
        sender.send("late", label="label late", priority=7)
    receive(spark, service, queue, tmp_path).awaitTermination()
    labels = sorted(row.label for row in spark.read.parquet(str(tmp_path / "out")).select("label").collect())
    assert labels == sorted([f"label {number}" for number in range(100)] + ["label late"])


def test_a_restarted_driver_gets_its_batch_again_and_only_that(service: Daemon, queue: str, qm: Any) -> None:
    path, options = f".\\private$\\{queue}", {"port": str(service.port), "protocol": "remoteread"}
    wanted = parse(options | {"queue": queue, "mode": "receive", "consumerGroup": "lake"}, STREAM_READ)

    def read(reader: MsmqStreamReader, start: Any, end: Any) -> list[str]:
        batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
        return [label for batch in batches for label in batch.column("label").to_pylist()]

    reader = MsmqStreamReader(wanted, spark_schema("none"))
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadMaxRows(10))
    first = read(reader, begin, end)
    with pytest.raises(SharingViolation), qm.open(path) as other:
        other.receive(0)
    reader.plane.close()

    # A message that arrives ahead of all others is not in the batch: it is neither read nor removed with it.
    with qm.open(path, "send") as sender:
        sender.send("ahead", label="ahead", priority=7)
    again = MsmqStreamReader(wanted, spark_schema("none"))
    assert read(again, begin, end) == first and len(first) == 10
    after = again.latestOffset(end, ReadMaxRows(500))
    again.commit(end)
    labels = read(again, end, after)
    assert "ahead" in labels and len(labels) == 91 and not set(labels) & set(first)
    assert qm.counts(path)["message_count"] == 91
    again.commit(after)
    again.commit(after)
    assert qm.counts(path)["message_count"] == 0
    again.plane.close()


def test_a_purge_while_a_batch_runs_is_a_loss(service: Daemon, queue: str, qm: Any) -> None:
    options = {"port": str(service.port), "protocol": "remoteread", "queue": queue, "mode": "receive"}
    for tolerant in ("false", "true"):
        wanted = parse(options | {"consumerGroup": "lake", "failOnDataLoss": tolerant}, STREAM_READ)
        reader = MsmqStreamReader(wanted, spark_schema("none"))
        parts = reader.partitions({queue: []}, {queue: [1, 2, 3]})
        if tolerant == "false":
            assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == 0
        else:
            with pytest.raises(DataLoss, match="3 of 3 messages"):
                list(reader.read(parts[0]))
        reader.plane.close()


def test_an_invalid_unicode_label_does_not_fail_a_batch_over_either_protocol() -> None:
    names = ["label", "response_queue"]
    message = Message(label="a\ud800b", response_queue_format_name="DIRECT=OS:h\\\ud83d\ude00")
    row = record_batch([message], "q", "queue", names).to_pylist()
    assert row == [{"label": "a\ufffdb", "response_queue": "DIRECT=OS:h\\\U0001f600"}]


def test_out_of_range_numbers_of_a_sender_do_not_fail_a_batch() -> None:
    """Numbers are unsigned on the wire and signed in Spark; Arrow Flight gives the same bits."""
    message = Message(body_type=2**32 - 1, privacy_level=2**31, sender_identifier_type=2**32 - 2)
    (row,) = record_batch([message], "q", "queue", MESSAGE_SCHEMA.names).to_pylist()
    assert (row["body_type"], row["privacy_level"], row["sender_id_type"]) == (-1, -(2**31), -2)


def test_an_unreadable_message_is_omitted_and_reported(
    service: Daemon, queue: str, qm: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = remote_read._message

    def odd(sections: Any) -> Message:
        message = made(sections)
        if message.label in ("label 0", "label 50", "label 99"):
            raise BadPacket("this one is none")
        return message

    monkeypatch.setattr(remote_read, "_message", odd)
    given = {"port": str(service.port), "protocol": "remoteread", "queue": queue}
    reader = MsmqReader(parse(given, BATCH_READ), spark_schema("none"))
    labels = [
        label for part in reader.partitions() for batch in reader.read(part) for label in batch["label"].to_pylist()
    ]
    assert sorted(labels) == sorted(f"label {number}" for number in range(100) if number not in (0, 50, 99))
    assert f"messages of {queue} by MS-MQRR: sequence" in caplog.text and "this one is none" in caplog.text
    reader.plane.close()
    options = given | {"mode": "receive", "consumerGroup": "lake"}
    stream = MsmqStreamReader(parse(options, STREAM_READ), spark_schema("none"))
    end = stream.latestOffset(stream.initialOffset(), ReadMaxRows(200))
    assert len(end[queue]) == 97
    stream.commit(end)
    assert qm.counts(f".\\private$\\{queue}")["message_count"] == 3
    stream.plane.close()


def test_a_receive_by_lookup_identifier_continues_without_a_deleted_queue_if_allowed(
    service: Daemon, queue: str, qm: Any
) -> None:
    qm.create_queue(f".\\private$\\{queue}-gone")
    options = {"port": str(service.port), "protocol": "remoteread", "queue": f"{queue}-gone,{queue}"}
    options |= {"mode": "receive", "consumerGroup": "lake"}
    strict = MsmqStreamReader(parse(options, STREAM_READ), spark_schema("none"))
    begin = strict.initialOffset()
    strict.plane.close()
    qm.delete_queue(f".\\private$\\{queue}-gone")
    strict = MsmqStreamReader(parse(options, STREAM_READ), spark_schema("none"))
    with pytest.raises(DataLoss, match="-gone, which this query reads, no longer exists"):
        strict.latestOffset(begin, ReadMaxRows(10))
    tolerant = MsmqStreamReader(parse(options | {"failOnDataLoss": "false"}, STREAM_READ), spark_schema("none"))
    end = tolerant.latestOffset(begin, ReadMaxRows(10))
    assert list(end) == [queue] and len(end[queue]) == 10
    tolerant.plane.close()


def test_queues_share_the_limit_of_a_receive_by_lookup_identifier(service: Daemon, queue: str, qm: Any) -> None:
    qm.create_queue(f".\\private$\\{queue}-few")
    with qm.open(f".\\private$\\{queue}-few", "send") as sender:
        for number in range(5):
            sender.send("few", label=f"few {number}")
    options = {"port": str(service.port), "protocol": "remoteread", "queue": f"{queue},{queue}-few"}
    wanted = parse(options | {"mode": "receive", "consumerGroup": "lake"}, STREAM_READ)
    reader = MsmqStreamReader(wanted, spark_schema("none"))
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    assert {name: len(listed) for name, listed in end.items()} == {queue: 7, f"{queue}-few": 3}
    reader.plane.close()
