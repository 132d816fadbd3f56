"""Reading and writing through Arrow Flight: batches, receiving streams, sinks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StringType, StructField, StructType

from daemon import Daemon, eventually
from openmsmq.admin.backup import back_up, restore
from openmsmq.bulk.client import BulkClient
from openmsmq.spark.options import BATCH_READ, STREAM_READ, STREAM_WRITE, OptionError, parse
from openmsmq.spark.reading import DataLoss, FilteringReader, QueueRange
from openmsmq.spark.schema import spark_schema
from openmsmq.spark.streaming import MsmqStreamReader
from openmsmq.spark.writing import MsmqStreamWriter
from spark import lake
from spark.lake import table

# -- batches -----------------------------------------------------------------------------------------------------


def test_a_queue_is_divided_among_partitions(spark: Any, service: Daemon, queue: str) -> None:
    lake.put(service, queue, [str(number) for number in range(500)], recoverable=False)
    frame = table(spark, service, queue=queue, maxRecordsPerPartition=120, decode="text")
    assert frame.rdd.getNumPartitions() == 5
    assert sorted(int(row.text) for row in frame.select("text").collect()) == list(range(500))
    assert lake.count(service, queue) == 500


def test_abort_counts_are_a_column(spark: Any, service: Daemon, queue: str) -> None:
    name = f"{queue}-x"
    lake.create(service, name, transactional=True)
    with service.connect() as manager:
        lake.put_together(manager, name, "ab")
        with manager.open(f".\\private$\\{name}") as receiver, manager.transaction() as transaction:
            receiver.receive(0, transaction=transaction)
            transaction.abort()
    rows = table(spark, service, queue=name).select("label", "abort_count").collect()
    assert sorted((row.label, row.abort_count) for row in rows) == [("a", 1), ("b", 0)]


def test_filters_on_the_position_are_pushed_down(spark: Any, service: Daemon, queue: str) -> None:
    lake.put(service, queue, "abcdefgh")
    middle = sorted(row.sequence for row in table(spark, service, queue=queue).select("sequence").collect())[3]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = table(spark, service, queue=queue, pushFilters="true")
        found = frame.where(f"sequence > {middle} and label != 'f'").orderBy("sequence").select("label").collect()
        assert [row.label for row in found] == ["e", "g", "h"]
        assert frame.where(f"sequence <= {middle}").count() == 4 and frame.where(f"sequence = {middle}").count() == 1
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_rows_become_messages(either: Any, service: Daemon, queue: str) -> None:
    lake.create(service, f"{queue}-other")
    rows = [(f"body {n}", f"label {n}", n % 8, n % 2 == 0, f"{queue}-other" if n == 7 else None) for n in range(50)]
    columns = "body string, label string, priority int, recoverable boolean, destination_queue string"
    frame = either.createDataFrame(rows, columns).repartition(4)
    frame.write.format("msmq").options(**lake.reach(service, defaultQueue=queue)).mode("append").save()
    with service.connect() as manager, manager.open(f".\\private$\\{queue}", "peek") as reader:
        messages = {message.label: message for message in reader}
    assert len(messages) == 49 and lake.left(service, f"{queue}-other") == ["label 7"]
    assert (messages["label 9"].decode(), messages["label 9"].priority, messages["label 9"].recoverable) == (
        "body 9", 1, False,
    )  # fmt: skip


def test_columns_are_read_and_written_regardless_of_case(either: Any, service: Daemon, queue: str) -> None:
    frame = either.createDataFrame([("a", "b")], "BODY string, Label string")
    frame.write.format("msmq").options(**lake.reach(service, defaultQueue=queue)).mode("append").save()
    schema = "LABEL string, BODY_SIZE bigint"
    rows = either.read.format("msmq").schema(schema).options(**lake.reach(service, queue=queue)).load().collect()
    assert [(row.LABEL, row.BODY_SIZE) for row in rows] == [("b", 2)]


def test_a_queue_that_is_named_twice_is_refused(service: Daemon, queue: str) -> None:
    with pytest.raises(OptionError, match=r"twice, as .* and .*allowed: each queue once"):
        Driver(service, f"{queue},.\\private$\\{queue.upper()}")


def test_transactional_queues_take_rows_too(either: Any, service: Daemon, queue: str) -> None:
    lake.create(service, f"{queue}-x", transactional=True)
    frame = either.createDataFrame([(b"a",), (b"b",)], "body binary").coalesce(1)
    frame.write.format("msmq").options(**lake.reach(service, defaultQueue=f"{queue}-x")).mode("append").save()
    with service.connect() as manager, manager.open(f".\\private$\\{queue}-x", "peek") as reader:
        assert [(m.body, m.is_transactional) for m in reader] == [(b"a", True), (b"b", True)]


def test_a_row_that_cannot_be_sent_fails_the_batch_and_nothing_is_sent(
    either: Any, service: Daemon, queue: str
) -> None:
    rows = [("good", "x"), ("bad", "y" * 300)]
    frame = either.createDataFrame(rows, "body string, label string").coalesce(1)
    writer = frame.write.format("msmq").options(**lake.reach(service, defaultQueue=queue)).mode("append")
    with pytest.raises(Exception, match="row 1"):
        writer.save()
    assert lake.count(service, queue) == 0


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("label string", {"defaultQueue": "q"}, "the column 'body' is missing"),
        ("body string", {}, "defaultQueue, or write rows with the column destination_queue"),
        ("body string, color string", {"defaultQueue": "q"}, "'color' can't be written"),
    ],
)
def test_what_cannot_be_written_is_named(
    either: Any, service: Daemon, columns: str, options: dict[str, str], said: str
) -> None:
    frame = either.createDataFrame([], columns)
    with pytest.raises(Exception, match=said):
        frame.write.format("msmq").options(**lake.reach(service, **options)).mode("append").save()


# -- streams -----------------------------------------------------------------------------------------------------


def test_a_stream_receives_in_batches_and_the_last_one_is_removed_too(
    spark: Any, service: Daemon, queue: str, tmp_path: Any
) -> None:
    lake.put(service, queue, [str(number) for number in range(250)])
    for expected in (250, 260):
        lake.to_parquet(lake.receiving(spark, service, queue, maxRecordsPerTrigger=100), tmp_path).awaitTermination()
        found = lake.labels(spark, tmp_path)
        assert len(found) == sum(found.values()) == expected
        assert lake.count(service, queue) == 0
        lake.put(service, queue, [f"more {number}" for number in range(10)])


def test_journals_keep_what_a_stream_received(spark: Any, service: Daemon, queue: str, tmp_path: Any) -> None:
    lake.create(service, f"{queue}-j", journal=True)
    lake.put(service, f"{queue}-j", "abc")
    lake.to_parquet(lake.receiving(spark, service, f"{queue}-j"), tmp_path).awaitTermination()
    assert sorted(row.label for row in table(spark, service, queue=f"{queue}-j", source="journal").collect()) == [
        "a", "b", "c",
    ]  # fmt: skip


def test_a_stream_into_a_queue_is_applied_once(either: Any, service: Daemon, queue: str, tmp_path: Any) -> None:
    lake.create(service, f"{queue}-out")
    rows = either.createDataFrame([(str(number),) for number in range(60)], "label string").repartition(3)
    rows.write.parquet(str(tmp_path / "in"))

    def run(checkpoint: str = "checkpoint") -> None:
        frame = either.readStream.schema("label string").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        writer = frame.selectExpr("label AS body", "label").writeStream.format("msmq")
        writer = writer.options(**lake.reach(service, defaultQueue=f"{queue}-out", sinkId=queue))
        writer = writer.option("checkpointLocation", str(tmp_path / checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    run()
    assert sorted(lake.left(service, f"{queue}-out"), key=int) == [str(number) for number in range(60)]
    # The commit log of the last batch is lost: Spark repeats the batch, which the sink has already.
    last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    run()
    assert len(lake.left(service, f"{queue}-out")) == 60
    # Another checkpoint is another query, whose batches have not been sent.
    with pytest.raises(Exception, match=f"belongs to query .* pipeline forget --sink '{queue}'"):
        run("another")
    assert len(lake.left(service, f"{queue}-out")) == 60
    with BulkClient(port=lake.flight_port(service)) as client:
        client.forget(queue, memory=True)
    run("another")
    assert len(lake.left(service, f"{queue}-out")) == 120


def test_two_streams_of_one_group_fence_each_other(service: Daemon, queue: str) -> None:
    lake.put(service, queue, "abc")
    one, other = Driver(service, queue), Driver(service, queue)
    parts, _ = one.batch({queue: 0})
    other.batch({queue: 0})
    with pytest.raises(Exception, match="newer claim"):
        one.read(parts)


@pytest.mark.parametrize("protocol", ["flight", pytest.param("remoteread", marks=pytest.mark.slow)])
def test_asynchronous_progress_is_refused_where_messages_are_received(
    spark: Any, service: Daemon, queue: str, tmp_path: Any, protocol: str
) -> None:
    lake.put(service, queue, [str(number) for number in range(300)])
    options = {"protocol": protocol, "port": service.port, "maxRecordsPerTrigger": 100}

    def start(checkpoint: str, **more: str) -> Any:
        frame = lake.receiving(spark, service, queue, **options)
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / checkpoint))
        return writer.options(**more).start()

    query = start("asynchronous", asyncProgressTrackingEnabled="true")
    with pytest.raises(Exception, match="asyncProgressTrackingEnabled is true, allowed with mode=receive: false"):
        query.awaitTermination(60)
    assert lake.count(service, queue) >= 100
    for _ in range(2):
        query = start("synchronous")
        eventually(lambda: lake.count(service, queue) == 0, 60)
        assert query.exception() is None
        query.stop()
        lake.put(service, queue, "more")


def test_a_continuous_query_commits_no_epoch(spark: Any, service: Daemon, queue: str, tmp_path: Any) -> None:
    frame = spark.readStream.format("rate").option("rowsPerSecond", 20).load().selectExpr("cast(value as string) body")
    writer = frame.writeStream.format("msmq").options(**lake.reach(service, defaultQueue=queue, sinkId=queue))
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(continuous="100 milliseconds").start()
    try:
        eventually(lambda: len(list((tmp_path / "offsets").glob("[0-9]*"))) > 5)
        assert not list((tmp_path / "commits").glob("[0-9]*"))
    finally:
        query.stop()
    with BulkClient(port=lake.flight_port(service)) as client:
        assert client.last_batch(queue) is None


@pytest.mark.parametrize("batch", [0, 7])
def test_a_batch_that_nobody_has_written_is_refused(service: Daemon, queue: str, batch: int) -> None:
    schema = StructType([StructField("body", StringType())])
    options = parse(lake.reach(service, defaultQueue=queue, sinkId=queue), STREAM_WRITE)
    with pytest.raises(OptionError, match="a continuous trigger writes nothing to this sink; allowed: processingTime"):
        MsmqStreamWriter(options, schema).commit([None, None], batch)


# -- concurrent changes of messages: the reader driven as by Spark, without Spark ----------------------------------


class Driver:
    """Drives a streaming reader like Spark."""

    def __init__(self, service: Daemon, queue: str, resumes: bool = False, **options: str) -> None:
        """If it `resumes` from a checkpoint, it requests no initial offset."""
        receiving = {"queue": queue, "mode": "receive", "consumerGroup": "lake"}
        given = lake.reach(service, **{**receiving, **options})
        given = {name: value for name, value in given.items() if value}
        self.reader = MsmqStreamReader(parse(given, STREAM_READ), spark_schema("none"))
        self.initial = {} if resumes else self.reader.initialOffset()

    def batch(self, start: dict[str, Any], rows: int | None = None) -> tuple[list[Any], dict[str, Any]]:
        end = self.reader.latestOffset(start, ReadAllAvailable() if rows is None else ReadMaxRows(rows))
        if start != self.initial:
            self.reader.commit(start)
        return list(self.reader.partitions(start, end)), dict(end)

    def read(self, parts: list[QueueRange]) -> list[str]:
        return [label for part in parts for batch in self.reader.read(part) for label in batch["label"].to_pylist()]


def test_high_priority_messages_that_come_late_are_in_the_next_batch(service: Daemon, queue: str) -> None:
    driver = Driver(service, queue)
    lake.put(service, queue, "ab", priority=3)
    parts, end = driver.batch({queue: 0})
    lake.put(service, queue, ["urgent"], priority=7)
    assert driver.read(parts) == ["a", "b"]
    parts, end = driver.batch(end)
    assert driver.read(parts) == ["urgent"]
    driver.reader.commit(end)
    assert lake.left(service, queue) == []


def test_a_transaction_that_commits_late_holds_the_position_back(service: Daemon, queue: str) -> None:
    name = f"{queue}-x"
    lake.create(service, name, transactional=True)
    driver = Driver(service, name)
    with service.connect() as manager, manager.open(f".\\private$\\{name}", "send") as sender:
        first, second = manager.transaction(), manager.transaction()
        sender.send("late", label="late", transaction=first)
        sender.send("early", label="early", transaction=second)
        second.commit()
        parts, end = driver.batch({name: 0})
        assert driver.read(parts) == [] and end == {name: 0}
        first.commit()
    parts, end = driver.batch(end)
    assert driver.read(parts) == ["late", "early"]


def test_a_receive_that_aborts_is_not_missed(service: Daemon, queue: str) -> None:
    name = f"{queue}-x"
    lake.create(service, name, transactional=True)
    with service.connect() as manager:
        lake.put_together(manager, name, "ab")
        driver = Driver(service, name)
        with manager.open(f".\\private$\\{name}") as receiver:
            transaction = manager.transaction()
            receiver.receive(0, transaction=transaction)
            parts, end = driver.batch({name: 0})
            assert driver.read(parts) == []
            transaction.abort()
        parts, _ = driver.batch(end)
        assert driver.read(parts) == ["a", "b"]


def test_a_message_that_expires_after_planning_has_been_received(service: Daemon, queue: str) -> None:
    lake.put(service, queue, ["short"], time_to_be_received=1)
    driver = Driver(service, queue)
    parts, end = driver.batch({queue: 0})
    with BulkClient(port=lake.flight_port(service)) as client:
        eventually(lambda: client.position(queue).stable is not None)
    assert driver.read(parts) == ["short"]
    driver.reader.commit(end)
    assert lake.left(service, queue) == []


def test_a_purge_does_not_take_what_a_batch_has_claimed(service: Daemon, queue: str) -> None:
    lake.put(service, queue, "ab")
    driver = Driver(service, queue)
    parts, end = driver.batch({queue: 0})
    lake.put(service, queue, "c")
    with service.connect() as manager, manager.open(f".\\private$\\{queue}") as opened:
        opened.purge()
    assert driver.read(parts) == ["a", "b"]
    driver.reader.commit(end)
    assert lake.left(service, queue) == []


def test_a_deleted_queue_ends_the_stream(service: Daemon, queue: str) -> None:
    lake.create(service, f"{queue}-gone")
    lake.put(service, f"{queue}-gone", "a")
    driver = Driver(service, f"{queue}-gone")
    parts, _ = driver.batch({f"{queue}-gone": 0})
    with service.connect() as manager:
        manager.delete_queue(f".\\private$\\{queue}-gone")
    with pytest.raises(Exception, match="MQ_ERROR_QUEUE"):
        driver.read(parts)


def test_claimed_messages_are_hidden_from_others_until_released(service: Daemon, queue: str) -> None:
    lake.put(service, queue, "ab")
    driver = Driver(service, queue)
    driver.batch({queue: 0})
    assert lake.left(service, queue) == []
    with BulkClient(port=lake.flight_port(service)) as client:
        client.release(queue, "lake")
    assert lake.left(service, queue) == ["a", "b"]


def test_what_a_released_claim_leaves_in_the_queue_is_in_the_log(
    service: Daemon, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    lake.put(service, queue, "ab")
    driver = Driver(service, queue)
    _, end = driver.batch({queue: 0})
    again = Driver(service, queue, resumes=True)
    with BulkClient(port=lake.flight_port(service)) as client:
        client.release(queue, "lake")
    for _ in range(2):  # logged once, however often Spark commits the batch
        again.reader.commit(end)
    assert caplog.text.count(f"{queue}: messages read up to {end[queue]['sequence']} could not be removed") == 1
    assert lake.left(service, queue) == ["a", "b"]


def test_damaged_messages_are_in_the_log_however_many_came_instead(caplog: pytest.LogCaptureFixture) -> None:
    reader = MsmqStreamReader(parse({"queue": "q"}, STREAM_READ), spark_schema("none"))
    reader.names = reader._given_names = ["label"]
    batch = pa.record_batch({"label": ["moved here", "b"]})
    found = list(reader.complete("q", "of q", 2, [batch], True, [0x123]))
    assert found[0].num_rows == 2 and "1 messages of q can't be decoded and are left out: 0x123" in caplog.text


@pytest.mark.parametrize("tolerant", [False, True])
def test_messages_that_a_foreign_consumer_took_are_reported_or_tolerated(
    service: Daemon, queue: str, tolerant: bool
) -> None:
    lake.put(service, queue, "abc")
    given = lake.reach(service, queue=queue, failOnDataLoss=str(not tolerant).lower())
    reader = MsmqStreamReader(parse(given, STREAM_READ), spark_schema("none"))
    end = reader.latestOffset({queue: 0}, ReadAllAvailable())
    parts = list(reader.partitions({queue: 0}, end))
    with service.connect() as manager, manager.open(f".\\private$\\{queue}") as receiver:
        receiver.receive(0)

    def read() -> list[str]:
        return [label for part in parts for batch in reader.read(part) for label in batch["label"].to_pylist()]

    if tolerant:
        assert read() == ["b", "c"]
    else:
        with pytest.raises(DataLoss, match=r"1 of 3 messages of .* are gone"):
            read()


def browsing(service: Daemon, queue: str, tolerant: bool = False, **options: str) -> Driver:
    """Return a stream that leaves messages in the queue."""
    loss = {"failOnDataLoss": "false"} if tolerant else {}
    return Driver(service, queue, mode="browse", consumerGroup="", **loss, **options)


def purge(service: Daemon, queue: str) -> None:
    with service.connect() as manager, manager.open(f".\\private$\\{queue}") as opened:
        opened.purge()


def delete(service: Daemon, queue: str) -> None:
    with service.connect() as manager:
        manager.delete_queue(f".\\private$\\{queue}")


@pytest.mark.parametrize("tolerant", [False, True])
def test_each_loss_is_reported_once(service: Daemon, queue: str, tolerant: bool) -> None:
    """Also after a restart from the checkpoint: the offset has the number of messages planned for its batch."""
    lake.put(service, queue, "abc")
    driver = browsing(service, queue, tolerant)
    end = driver.reader.latestOffset({queue: 0}, ReadAllAvailable())
    assert end[queue]["planned"] == 3
    purge(service, queue)
    for again in (driver, browsing(service, queue, tolerant), browsing(service, queue, tolerant)):
        if tolerant:
            assert again.read(list(again.reader.partitions({queue: 0}, end))) == []
        else:
            with pytest.raises(DataLoss, match=r"3 of 3 messages .* are gone since the batch was planned"):
                again.reader.partitions({queue: 0}, end)


def test_offsets_of_an_earlier_version_are_read(service: Daemon, queue: str) -> None:
    lake.put(service, queue, "abc")
    with BulkClient(port=lake.flight_port(service)) as client:
        first, last = client.position(queue).first, client.position(queue).last
    for driver in (browsing(service, queue), Driver(service, queue)):
        parts = list(driver.reader.partitions({queue: first}, {queue: last}))
        assert driver.read(parts) == ["b", "c"]


def test_an_offset_beyond_every_sequence_is_an_error(service: Daemon, queue: str) -> None:
    with BulkClient(port=lake.flight_port(service)) as client:
        ahead = client.position(queue).stable + 200_000
    for driver in (browsing(service, queue), Driver(service, queue)):
        with pytest.raises(Exception, match=f"start {ahead} lies beyond .* highest sequence"):
            driver.reader.latestOffset({queue: {"sequence": ahead, "planned": 1}}, ReadAllAvailable())


@pytest.mark.parametrize("mode", ["browse", "receive"])
@pytest.mark.parametrize("by_pattern", [False, True])
def test_a_stream_continues_without_a_deleted_queue_if_allowed(
    service: Daemon, queue: str, mode: str, by_pattern: bool
) -> None:
    gone, stays = f"{queue}-gone", f"{queue}-stays"
    lake.create(service, gone, stays)
    lake.put(service, gone, "ab")
    lake.put(service, stays, "c")
    which = {"queuePattern": f".*{re.escape(queue)}-.*"} if by_pattern else {}
    group = "lake" if mode == "receive" else ""

    def start(resumes: bool, **loss: str) -> Driver:
        names = "" if by_pattern else f"{gone},{stays}"
        return Driver(service, names, resumes, mode=mode, consumerGroup=group, **which, **loss)

    driver = start(False)
    parts, end = driver.batch(driver.initial)
    assert sorted(driver.read(parts)) == ["a", "b", "c"]
    delete(service, gone)
    lake.put(service, stays, "d")
    with pytest.raises(DataLoss, match=r"-gone, which this query reads, no longer exists .*failOnDataLoss=false"):
        start(True).batch(end)
    tolerant = start(True, failOnDataLoss="false")
    if mode == "browse":
        assert tolerant.read(list(tolerant.reader.partitions(driver.initial, end))) == ["c"]
    parts, after = tolerant.batch(end)
    assert tolerant.read(parts) == ["d"]
    assert not [name for name in after if name.endswith("-gone")]


def test_a_deleted_queue_is_a_loss_for_its_reader(service: Daemon, queue: str) -> None:
    gone = f"{queue}-gone"
    lake.create(service, gone)
    lake.put(service, gone, "a")
    strict, tolerant = browsing(service, gone), browsing(service, gone, tolerant=True)
    parts, _ = strict.batch({gone: 0})
    delete(service, gone)
    with pytest.raises(DataLoss, match="no longer exists"):
        strict.read(parts)
    assert tolerant.read(parts) == []


@pytest.mark.parametrize("mode", ["browse", "receive"])
def test_a_checkpoint_of_another_queue_is_refused_and_that_queue_is_left_alone(
    service: Daemon, queue: str, mode: str
) -> None:
    lake.create(service, f"{queue}-new")
    lake.put(service, queue, "ab")
    group = "lake" if mode == "receive" else ""
    _, end = Driver(service, queue, mode=mode, consumerGroup=group).batch({queue: 0})
    changed = Driver(service, f"{queue}-new", mode=mode, consumerGroup=group)
    for call in (
        lambda: changed.reader.latestOffset(end, ReadAllAvailable()),
        lambda: changed.reader.partitions({queue: 0}, end),
    ):
        with pytest.raises(OptionError, match=f"the checkpoint is of '{queue}', the options name '{queue}-new'"):
            call()
    with BulkClient(port=lake.flight_port(service)) as client:
        client.release(queue, "lake") if mode == "receive" else None
    assert lake.left(service, queue) == ["a", "b"]


def test_a_stream_that_was_fenced_removes_nothing(service: Daemon, queue: str) -> None:
    lake.put(service, queue, "abc")
    one, other = Driver(service, queue), Driver(service, queue)
    parts, end = one.batch({queue: 0})
    assert one.read(parts) == ["a", "b", "c"]
    parts, _ = other.batch({queue: 0})
    for call in (lambda: one.reader.commit(end), lambda: one.reader.latestOffset(end, ReadAllAvailable())):
        with pytest.raises(Exception, match="newer claim"):
            call()
    assert other.read(parts) == ["a", "b", "c"]


def test_a_stream_receives_from_a_subqueue(service: Daemon, queue: str) -> None:
    lake.put(service, queue, "abc")
    name = f".\\private$\\{queue};sub"
    with service.connect() as manager, manager.open(f".\\private$\\{queue}") as opened:
        for message in list(opened):
            opened.move(message.lookup_identifier, "sub")
    driver = Driver(service, name)
    parts, end = driver.batch({name: 0})
    assert driver.read(parts) == ["a", "b", "c"]
    for _ in range(2):
        parts, end = driver.batch(end)
        assert parts == []
    driver.reader.commit(end)
    with BulkClient(port=lake.flight_port(service)) as client:
        assert [group.count for group in client.groups() if group.queue.endswith(";sub")] == [0]
        client.release(name, "lake", forget=True)
        assert not [group for group in client.groups() if group.queue.endswith(";sub")]


def test_a_filter_on_the_position_never_fails(service: Daemon, queue: str) -> None:
    lake.put(service, queue, "abc")
    with BulkClient(port=lake.flight_port(service)) as client:
        last = client.position(queue).last
    column = ("sequence",)
    for condition, found in (
        (LessThanOrEqual(column, 2**63 - 1), 3), (GreaterThanOrEqual(column, 2**56), 0), (LessThan(column, -5), 0),
        (EqualTo(column, 2**63 - 1), 0), (GreaterThan(column, last + 100_000), 0),
        (GreaterThanOrEqual(column, last), 1), (GreaterThan(column, -1), 3),
    ):  # fmt: skip
        given = lake.reach(service, queue=queue, pushFilters="true")
        reader = FilteringReader(parse(given, BATCH_READ), spark_schema("none"))
        assert list(reader.pushFilters([condition])) == []
        assert sum(part.count for part in reader.partitions() if isinstance(part, QueueRange)) == found, condition


# -- several queues ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["browse", "receive"])
@pytest.mark.parametrize("by_bytes", [False, True])
def test_queues_share_the_limit_of_a_batch(service: Daemon, queue: str, mode: str, by_bytes: bool) -> None:
    few, many = f"{queue}-few", f"{queue}-many"
    lake.create(service, few, many)
    lake.put(service, few, [f"few {number}" for number in range(5)])
    lake.put(service, many, [f"many {number}" for number in range(45)])
    group = "lake" if mode == "receive" else ""
    with BulkClient(port=lake.flight_port(service)) as client:
        size = sum(part.bytes for part in client.plan(many).ranges) // 45
    limit = {"maxBytesPerTrigger": str(10 * size)} if by_bytes else {}
    driver = Driver(service, f"{few},{many}", mode=mode, consumerGroup=group, **limit)
    seen: list[str] = []
    at = driver.initial
    for _ in range(20):
        parts, at = driver.batch(at, None if by_bytes else 10)
        labels = driver.read(parts)
        assert len(labels) <= 11
        seen += labels
        if not labels:
            break
    assert any(label.startswith("few") for label in seen[:11]), "a queue of many messages starves none of few"
    assert len(seen) == len(set(seen)) == 50
    driver.reader.commit(at)
    left = len(lake.left(service, few) + lake.left(service, many))
    assert left == (0 if mode == "receive" else 50)


def test_a_queue_without_share_in_the_first_batch_is_served_next(service: Daemon, queue: str) -> None:
    names = [f"{queue}-{letter}" for letter in "abc"]
    lake.create(service, *names)
    for name in names:
        lake.put(service, name, [name])
    driver = Driver(service, ",".join(names))
    at, seen = driver.initial, []
    for _ in names:
        parts, at = driver.batch(at, 1)
        seen += driver.read(parts)
    assert sorted(seen) == names
    driver.reader.commit(at)
    assert [lake.left(service, name) for name in names] == [[], [], []]


@pytest.mark.parametrize("mode", ["browse", "receive"])
def test_new_messages_hide_no_queue_from_an_ending_stream(service: Daemon, queue: str, mode: str) -> None:
    busy, few = f"{queue}-busy", f"{queue}-few"
    lake.create(service, busy, few)
    lake.put(service, few, ["few"])
    group = "lake" if mode == "receive" else ""
    driver = Driver(service, f"{busy},{few}", mode=mode, consumerGroup=group)
    lake.put(service, busy, ["old"])
    driver.reader.prepareForTriggerAvailableNow()
    at, seen = driver.initial, []
    for _ in range(3):
        parts, at = driver.batch(at, 1)
        seen += driver.read(parts)
        lake.put(service, busy, [f"since {number}" for number in range(20)])
    assert sorted(seen) == ["few", "old"]


def test_the_progress_has_the_number_of_waiting_messages(service: Daemon, queue: str) -> None:
    lake.put(service, queue, "abcde")
    driver = Driver(service, queue)
    _, end = driver.batch({queue: 0}, 2)
    latest = driver.reader.reportLatestOffset()
    assert latest is not None and latest[queue]["lag"] == 3 and latest[queue]["sequence"] > end[queue]["sequence"]


# -- restored backups ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["browse", "receive"])
@pytest.mark.parametrize("starts", [1, 3])
def test_a_stream_notices_that_the_store_was_restored(tmp_path: Path, mode: str, starts: int) -> None:
    """Also after more starts, each of which skips sequence numbers, so that they exceed the offset."""
    group = "lake" if mode == "receive" else ""

    def start(own: Daemon, resumes: bool, **loss: str) -> Driver:
        return Driver(own, "orders", resumes, mode=mode, consumerGroup=group, **loss)

    with Daemon(tmp_path / "data", "--flight", "--flight-port", "0") as own:
        lake.create(own, "orders")
        lake.put(own, "orders", "a")
        back_up(tmp_path / "data", tmp_path / "backup", "2026-11-20T08:00:00Z")
        lake.put(own, "orders", "b")
        driver = start(own, False)
        parts, end = driver.batch(driver.initial)
        assert driver.read(parts) == ["a", "b"]
    restore(tmp_path / "backup", tmp_path / "restored")
    for _ in range(starts - 1):
        with Daemon(tmp_path / "restored", "--flight", "--flight-port", "0") as own:
            lake.put(own, "orders", "x")
    with Daemon(tmp_path / "restored", "--flight", "--flight-port", "0") as own:
        for call in (
            lambda: start(own, True).reader.latestOffset(end, ReadAllAvailable()),
            lambda: start(own, True).reader.partitions({"orders": 0}, end),
        ):
            with pytest.raises(DataLoss, match=r"restored from a backup.*failOnDataLoss=false"):
                call()
        tolerant = start(own, True, failOnDataLoss="false")
        parts, moved = tolerant.batch(end)
        assert parts == [] and moved["orders"]["store"] != end["orders"]["store"]
        lake.put(own, "orders", "c")
        parts, _ = tolerant.batch(moved)
        assert tolerant.read(parts)[-1:] == ["c"]
