"""The Java connector: the same rows, offsets and errors as the Python source, and pushdown by Catalyst."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext, TaskContext
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

import openmsmq.spark
from command_line import add_user
from daemon import Daemon, eventually, free_port
from flight.certificates import make_certificate
from flight.test_streams import flight_process
from openmsmq.bulk.client import BulkClient
from openmsmq.flight.arrow_listener import UPLOADS_OF_HOST
from openmsmq.spark import planner
from openmsmq.spark.planner import Planner
from openmsmq.spark.schema import spark_schema
from requirements import missing
from spark import lake
from spark.lake import table


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    if not openmsmq.spark.CONNECTOR.exists():
        missing("the connector is not built: make jdk connector")


@pytest.fixture
def connector(spark: Any) -> Iterator[Any]:
    """The session, reading with the connector."""
    spark.conf.set("spark.openmsmq.connector", "true")
    yield spark
    spark.conf.set("spark.openmsmq.connector", "false")


def plan(frame: Any) -> str:
    text: str = frame._jdf.queryExecution().executedPlan().toString()
    return text


def by_python(spark: Any, service: Daemon, **options: Any) -> list[Any]:
    spark.conf.set("spark.openmsmq.connector", "false")
    try:
        return table(spark, service, **options).collect()
    finally:
        spark.conf.set("spark.openmsmq.connector", "true")


# -- batches -----------------------------------------------------------------------------------------------------------


def test_all_columns_have_the_values_of_the_python_source(connector: Any, service: Daemon, queue: str) -> None:
    lake.put(service, queue, "ab", priority=5, application_tag=7, correlation_identifier=bytes(range(20)))
    lake.put(service, queue, "c", recoverable=False, time_to_be_received=1000)
    expected = by_python(connector, service, queue=queue)
    frame = table(connector, service, queue=queue)
    assert "(Python)" not in plan(frame) and len(expected) == 3
    assert sorted(frame.collect()) == sorted(expected)


def test_only_the_columns_of_the_query_are_read(connector: Any, service: Daemon, queue: str) -> None:
    lake.put(service, queue, "ab")
    frame = table(connector, service, queue=queue).select("label")
    assert "BatchScan msmq[label#" in plan(frame)
    assert sorted(row.label for row in frame.collect()) == ["a", "b"]
    schema = connector.read.format("msmq").schema("LABEL string, BODY_SIZE bigint")
    rows = schema.options(**lake.reach(service, queue=queue)).load().collect()
    assert sorted((row.LABEL, row.BODY_SIZE) for row in rows) == [("a", 2), ("b", 2)]


def test_a_count_is_answered_by_the_plan(connector: Any, service: Daemon, queue: str) -> None:
    lake.put(service, queue, "abcde")
    frame = table(connector, service, queue=queue)
    assert "LocalTableScan" in plan(frame.groupBy().count()) and frame.count() == 5
    first = min(row.sequence for row in frame.select("sequence").collect())
    assert frame.where(f"sequence > {first}").count() == 4
    assert frame.where("queue like '%nowhere'").count() == 0 and frame.where("label = 'a'").count() == 1


def test_pushed_filters_select_the_same_rows_as_spark(connector: Any, service: Daemon, queue: str) -> None:
    lake.put(service, queue, "abcdef")
    rows = by_python(connector, service, queue=queue)
    frame = table(connector, service, queue=queue)
    at, time = sorted(row.sequence for row in rows)[2], rows[0].arrival_time
    for condition, spark_applies, expected in (
        (f"sequence >= {at}", False, 4),
        (f"sequence = {at}", False, 1),
        (f"sequence in ({at}, {at + 1})", True, 2),
        (f"not sequence = {at}", True, 5),
        (f"arrival_time >= timestamp'{time}' - interval 1 hour", False, 6),
        (f"arrival_time > timestamp'{time}' + interval 1 hour", False, 0),
        (f"arrival_time < timestamp'{time}' - interval 0.5 seconds", False, 0),
        (f"sequence >= {at} and label <> 'f'", True, 3),
        (f"queue is not null and endswith(queue, '{queue.lower()}') and sequence < {at}", False, 2),
        ("source = 'journal'", True, 0),
        (f"sequence > {at} or label = 'a'", True, 4),
    ):
        found = frame.where(condition)
        assert found.count() == expected == len(found.select("label").collect()), condition
        filters = [
            line for line in plan(found).splitlines() if "Filter " in line and "isnotnull(arrival_time" not in line
        ]
        assert bool(filters) == spark_applies, (condition, filters)


def test_a_limit_reads_only_the_first_partitions(connector: Any, service: Daemon, queue: str) -> None:
    lake.put(service, queue, "abcdefgh")
    frame = table(connector, service, queue=queue, maxRecordsPerPartition=2)
    limited = frame.select("label").limit(3)
    assert "limit=3" in plan(limited) and frame.rdd.getNumPartitions() == 4
    options = lake.reach(service, queue=queue, maxRecordsPerPartition=2)
    planner, schema = Planner(), spark_schema("none").json()
    ends = planner.ends(options, schema)
    found = planner.partitions(options, schema, [], ends, 3)
    assert [part["count"] for part in found] == [2, 2]
    assert [row.label for row in limited.collect()] == ["a", "b", "c"]
    late = frame.where("arrival_time > timestamp'2020-01-01 00:00:00'").select("label")
    assert [row.label for row in late.limit(3).collect()] == ["a", "b", "c"]


def test_batches_of_a_stream_are_planned_up_to_their_limit(service: Daemon, queue: str) -> None:
    lake.put(service, queue, "abcde")
    planner = Planner()
    planner.stream(lake.reach(service, queue=queue), spark_schema("none").json())
    start, counts = planner.initial(), []
    for rows in (2, None):
        end = planner.latest(start, rows)
        counts.append(sum(part["count"] for part in planner.batch(start, end)))
        start = end
    assert counts == [2, 3]


def test_what_a_library_prints_is_no_answer(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Planner, "limit", lambda self: os.write(1, b"from a library"))
    ours, theirs = os.pipe()
    os.write(theirs, b'{"call": "limit"}\n')
    os.close(theirs)
    known = os.dup(0), os.dup(1)
    os.dup2(ours, 0)
    try:
        planner.main()
    finally:
        for number, handle in enumerate(known):
            os.dup2(handle, number)
            os.close(handle)
        os.close(ours)
    said = capfd.readouterr()
    assert (json.loads(said.out), said.err) == ({"result": 14}, "from a library")


def test_all_actions_on_a_table_see_the_same_messages(connector: Any, service: Daemon, queue: str) -> None:
    lake.put(service, queue, "ab")
    frame = table(connector, service, queue=queue)
    assert frame.count() == 2
    lake.put(service, queue, "c")
    assert frame.count() == len(frame.collect()) == 2
    assert table(connector, service, queue=queue).count() == 3


def test_a_starting_timestamp_selects_and_counts(connector: Any, service: Daemon, queue: str) -> None:
    lake.put(service, queue, "ab")
    for time, expected in (("2020-01-01", 2), ("2100-01-01", 0), ("2300-01-01", 0), ("1900-01-01", 2)):
        frame = table(connector, service, queue=queue, startingTimestamp=time, failOnDataLoss="true")
        assert frame.count() == len(frame.collect()) == expected


def test_messages_that_are_gone_are_reported(connector: Any, service: Daemon, queue: str) -> None:
    lake.put(service, queue, "abc")
    frame = table(connector, service, queue=queue, failOnDataLoss="true").select("label")
    parts = frame._jdf.queryExecution().executedPlan()  # the query is planned here
    assert "msmq" in parts.toString() and frame.rdd.getNumPartitions() == 1
    with service.connect() as manager, manager.open(f".\\private$\\{queue}") as receiver:
        receiver.receive(0)
    with pytest.raises(Exception, match=r"1 of 3 messages of .* are gone since the read was planned"):
        frame.rdd.collect()


def test_the_setting_of_a_session_may_have_any_case(connector: Any, service: Daemon, queue: str) -> None:
    for value, reads in (("False", False), ("FALSE", False), ("True", True)):
        connector.conf.set("spark.openmsmq.connector", value)
        assert ("(Python)" not in plan(table(connector, service, queue=queue))) is reads
    connector.conf.set("spark.openmsmq.connector", "off")
    with pytest.raises(IllegalArgumentException, match=r"spark\.openmsmq\.connector is 'off', allowed: true, false"):
        table(connector, service, queue=queue).collect()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queue": "nowhere-at-all"}, "QueueNotFound: MQ_ERROR_QUEUE_NOT_FOUND.*nowhere-at-all"),
        ({"color": "red"}, "OptionError: unknown option 'color'; allowed: "),
        ({"minPartitions": "0"}, "OptionError: minPartitions is 0, allowed: a whole number, 1 or more"),
    ],
)
def test_an_error_is_that_of_the_python_source(
    connector: Any, service: Daemon, queue: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(IllegalArgumentException, match=said):
        table(connector, service, **{"queue": queue} | options).collect()


def test_the_python_source_handles_what_the_connector_does_not_support(
    connector: Any, service: Daemon, queue: str, tmp_path: Path
) -> None:
    lake.put(service, queue, "a")
    frame = table(connector, service, queue=queue, protocol="remoteread", port=service.port).select("label")
    assert "(Python)" in plan(frame) and [row.label for row in frame.collect()] == ["a"]
    rows = connector.createDataFrame([("b", "b")], "body string, label string")
    options = lake.reach(service, defaultQueue=queue, onError="collect", errorPath=tmp_path / "refused")
    rows.write.format("msmq").options(**options).mode("append").save()
    assert lake.left(service, queue) == ["a", "b"]
    with pytest.raises(Exception, match="a queue can't be overwritten; allowed: mode append"):
        rows.write.format("msmq").options(**lake.reach(service, defaultQueue=queue)).mode("overwrite").save()


def test_five_queue_managers_are_one_table_and_one_stream(connector: Any, tmp_path: Path) -> None:
    hosts = [f"127.0.0.{number}" for number in range(11, 16)]
    options = ("--flight", "--flight-port", str(free_port(*hosts)), "--arrow-port", "0")
    with ExitStack() as stack:
        daemons = [stack.enter_context(Daemon(tmp_path / host, "--listen", host, *options)) for host in hosts]
        for host, daemon in zip(hosts, daemons, strict=True):
            with openmsmq.connect(host, daemon.port) as manager:
                manager.create_queue(".\\private$\\q")
                with manager.open(".\\private$\\q", "send") as sender:
                    for number in range(20):
                        sender.send(b"x", label=f"{host} {number}", recoverable=True)
        given = lake.reach(daemons[0], queue="q", host=",".join(hosts))
        frame = connector.read.format("msmq").options(**given).load()
        assert "(Python)" not in plan(frame)
        rows = frame.select("host", "label").collect()
        assert sorted(row.label for row in rows) == sorted(f"{host} {number}" for host in hosts for number in range(20))
        assert all(row.label.startswith(f"{row.host} ") for row in rows) and frame.count() == 100
        assert frame.where(f"host = '{hosts[2]}'").count() == 20
        receiving = {"mode": "receive", "consumerGroup": "lake", "maxRecordsPerTrigger": "30"}
        query = lake.to_parquet(connector.readStream.format("msmq").options(**given, **receiving).load(), tmp_path)
        query.awaitTermination()
        found = lake.labels(connector, tmp_path)
        assert len(found) == sum(found.values()) == 100
        batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
        assert [progress["numInputRows"] for progress in batches] == [30, 30, 30, 10]
        first = json.loads(batches[0]["sources"][0]["endOffset"])
        assert {name: value["planned"] for name, value in first.items()} == {f"{host}/q": 6 for host in hosts}
        for host, daemon in zip(hosts, daemons, strict=True):
            with openmsmq.connect(host, daemon.port) as manager:
                assert manager.counts(".\\private$\\q")["message_count"] == 0


# -- connections -------------------------------------------------------------------------------------------------------


def test_users_and_tls(connector: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = make_certificate(tmp_path)
    add_user(tmp_path / "data", "alice", "a secret")
    (tmp_path / "password").write_text("a secret\n")
    options = ("--flight", "--flight-port", "0", "--flight-certificate", str(certificate), "--flight-key", str(key))
    with Daemon(tmp_path / "data", *options, "--no-allow-anonymous") as daemon:
        with daemon.connect(user="alice", password="a secret") as manager:
            manager.create_queue(".\\private$\\q")
            with manager.open(".\\private$\\q", "send") as sender:
                sender.send("x", label="x", recoverable=True)
        given = {"queue": "q", "user": "alice", "tlsRoot": certificate, "credential": f"file:{tmp_path / 'password'}"}
        assert [row.label for row in table(connector, daemon, **given).select("label").collect()] == ["x"]
        with pytest.raises(IllegalArgumentException, match="AccessDenied"):
            table(connector, daemon, **given | {"credential": "wrong"}).collect()


@pytest.mark.parametrize("selected", [{}, {"startingTimestamp": "2020-01-01"}])
def test_a_read_continues_when_the_server_comes_back(connector: Any, tmp_path: Path, selected: dict[str, str]) -> None:
    ports = ("--flight-port", str(free_port("127.0.0.1")), "--arrow-port", str(free_port("127.0.0.1")))
    with Daemon(tmp_path / "data", "--flight", *ports) as daemon:
        lake.create(daemon, "q")
        rows = connector.range(20_000).selectExpr("cast(id as string) label", "repeat('x', 3000) body")
        rows.write.format("msmq").options(**lake.reach(daemon, defaultQueue="q")).mode("append").save()
        given = {"queue": "q", "minPartitions": 1, "failOnDataLoss": "true", **selected}
        frame = table(connector, daemon, **given).select("label", "body")
        assert frame.rdd.getNumPartitions() >= 1
        counted = frame.rdd.mapPartitions(_interrupted(flight_process(daemon)))
        assert sorted(counted.collect(), key=int) == [str(number) for number in range(20_000)]


def _interrupted(process: int) -> Any:
    """Return a function that kills the server in the middle of a read."""

    def labels(rows: Iterator[Any]) -> Iterator[str]:
        context = TaskContext.get()
        assert context is not None and context.attemptNumber() == 0, "the first attempt has failed"
        for number, row in enumerate(rows):
            if number == 3_000:
                with suppress(ProcessLookupError):  # already killed by another task
                    os.kill(process, signal.SIGKILL)
            yield row.label

    return labels


@pytest.mark.parametrize("decode", ["text", "json"])
def test_the_server_decodes_bodies(connector: Any, service: Daemon, queue: str, decode: str) -> None:
    lake.put(service, queue, ["Grüße", '{"a": 1}'])
    with service.connect() as manager, manager.open(f".\\private$\\{queue}", "send") as sender:
        sender.send(b"\xff\xff", label="neither")
    expected = by_python(connector, service, queue=queue, decode=decode)
    frame = table(connector, service, queue=queue, decode=decode)
    assert "(Python)" not in plan(frame) and sorted(frame.collect(), key=str) == sorted(expected, key=str)
    assert {row.label: row.text for row in frame.select("text", "label").collect()} == {
        "Grüße": "Grüße" if decode == "text" else None, '{"a": 1}': '{"a": 1}', "neither": None,
    }  # fmt: skip
    assert [row.label for row in frame.where("text like '{%'").select("label").collect()] == ['{"a": 1}']


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["browse", "receive"])
def test_a_stream_continues_with_either_source(
    connector: Any, service: Daemon, queue: str, tmp_path: Path, mode: str
) -> None:
    group = {"consumerGroup": "lake"} if mode == "receive" else {}
    written = 0
    for turn, by_connector in enumerate(["true", "false", "true"]):
        lake.put(service, queue, [f"{turn}.{number}" for number in range(20)])
        written += 20
        connector.conf.set("spark.openmsmq.connector", by_connector)
        options = lake.reach(service, queue=queue, mode=mode, maxRecordsPerTrigger=7, **group)
        query = lake.to_parquet(connector.readStream.format("msmq").options(**options).load(), tmp_path)
        query.awaitTermination()
        source = query.lastProgress["sources"][0]
        assert ("Python" in source["description"]) == (by_connector == "false"), source["description"]
        found = lake.labels(connector, tmp_path)
        assert len(found) == sum(found.values()) == written
        batches = [progress["numInputRows"] for progress in query.recentProgress]
        assert max(batches) == 7
        if by_connector == "true":
            assert source["metrics"]["lag"] == "0" and source["latestOffset"] is not None
    assert lake.count(service, queue) == (0 if mode == "receive" else written)


def test_a_refused_stream_leaves_no_planner_behind(connector: Any, service: Daemon, queue: str, tmp_path: Path) -> None:
    options = lake.reach(service, queue=queue, consumerGroup="g")
    for number in range(4):
        frame = connector.readStream.format("msmq").options(**options).load()
        query = lake.to_parquet(frame, tmp_path / str(number))
        with pytest.raises(Exception, match="consumerGroup is for mode=receive"):
            query.awaitTermination()
    eventually(lambda: len(planners()) <= 2)  # those of the pool


def planners() -> list[str]:
    """Return the planner processes of this test's session."""
    java, found = SparkContext._gateway.proc.pid, []
    for task in Path(f"/proc/{java}/task").iterdir():
        with suppress(OSError):  # the thread or the process has ended
            for child in (task / "children").read_text().split():
                if b"openmsmq.spark.planner" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(child)
    return found


def test_a_stream_fails_with_the_reason(connector: Any, service: Daemon, queue: str, tmp_path: Path) -> None:
    lake.put(service, queue, "a")
    options = lake.reach(service, queue=queue, mode="receive")
    query = lake.to_parquet(connector.readStream.format("msmq").options(**options).load(), tmp_path)
    with pytest.raises(Exception, match="mode=receive needs consumerGroup"):
        query.awaitTermination()


# -- configure ---------------------------------------------------------------------------------------------------------


def configured(**options: str) -> dict[str, str]:
    """Return the options of a separate session that is never started."""
    builder = SparkSession.Builder()
    for name, value in options.items():
        builder = builder.config(name.replace("_", "."), value)
    found: dict[str, str] = dict(openmsmq.spark.configure(builder)._options)
    return found


def test_configure_adds_the_jar_to_those_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    found = configured(spark_jars="other.jar")
    assert found["spark.jars"] == f"other.jar,{openmsmq.spark.CONNECTOR}"
    assert found["spark.openmsmq.python"] == sys.executable


@pytest.mark.parametrize("lacks", ["jar", "time"])
def test_configure_says_why_it_adds_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path, lacks: str
) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", object() if lacks == "time" else None)
    if lacks == "jar":
        monkeypatch.setattr(openmsmq.spark, "CONNECTOR", tmp_path / "connector.jar")
    assert "spark.jars" not in configured()
    said = {"jar": "has no connector.jar", "time": "was started before openmsmq.spark.configure"}[lacks]
    assert said in caplog.text


# -- writes ------------------------------------------------------------------------------------------------------------


def write(frame: Any, service: Daemon, queue: str, **options: Any) -> None:
    frame.write.format("msmq").options(**lake.reach(service, defaultQueue=queue, **options)).mode("append").save()


def test_rows_are_written_without_python_and_arrive_as_the_python_sink_writes_them(
    connector: Any, service: Daemon, queue: str
) -> None:
    frame = connector.range(3).selectExpr(
        "case id when 1 then '' when 2 then 'Grüße €\U0001f600' else 'text' end AS body",
        "cast(id AS string) AS label", "int(id) AS priority", "id = 1 AS recoverable",
        "id AS application_tag", "encode('x', 'utf-8') AS extension",
        "case id when 0 then 10L end AS time_to_be_received",
    )  # fmt: skip
    write(frame, service, queue)
    by_connector = table(connector, service, queue=queue)
    connector.conf.set("spark.openmsmq.connector", "false")
    write(frame, service, f".\\private$\\{queue}")
    connector.conf.set("spark.openmsmq.connector", "true")
    columns = ["label", "body", "body_type", "priority", "recoverable", "application_tag", "extension",
               "time_to_be_received", "class", "sender_id"]  # fmt: skip
    rows = sorted(by_connector.select(*columns).collect())
    assert len(rows) == 6 and rows[::2] == rows[1::2]
    assert {row.body_type for row in rows} == {8}


def test_many_rows_of_many_sizes_are_written(connector: Any, service: Daemon, queue: str) -> None:
    """More rows and bytes than fit in a record batch or are kept for a retry."""
    frame = connector.range(5000).selectExpr(
        "cast(id AS string) AS label", "encode(repeat('x', int(id)), 'utf-8') AS body"
    )
    write(frame.repartition(2), service, queue)
    found = table(connector, service, queue=queue).selectExpr("count(distinct label)", "sum(body_size)").collect()
    assert tuple(found[0]) == (5000, sum(range(5000)))
    large = connector.range(40).selectExpr("encode(repeat('y', 2000000), 'utf-8') AS body").coalesce(1)
    write(large, service, queue)
    assert table(connector, service, queue=queue).where("body_size = 2000000").select("sequence").count() == 40


def test_text_that_is_not_utf8_names_its_row(connector: Any, service: Daemon, queue: str) -> None:
    frame = connector.range(3).selectExpr("if(id = 2, cast(unhex('ff') AS string), 'a') AS label", "'b' AS body")
    with pytest.raises(Exception, match="partition 0: row 2: label is not valid UTF-8"):
        write(frame.coalesce(1), service, queue)
    assert lake.count(service, queue) == 0


def test_a_refused_row_is_reported_while_others_are_still_sent(connector: Any, service: Daemon, queue: str) -> None:
    frame = connector.range(60_000).selectExpr("repeat('x', if(id = 0, 300, 1)) AS label", "repeat('b', 1000) AS body")
    with pytest.raises(Exception, match="partition 0: row 0: "):
        write(frame.coalesce(1), service, queue)
    assert lake.count(service, queue) == 0


def test_rows_beyond_a_quota_are_refused_at_once(connector: Any, service: Daemon, queue: str) -> None:
    lake.create(service, f"{queue}-full", quota=1)
    frame = connector.range(1).selectExpr("repeat('b', 10000) AS body")
    with pytest.raises(Exception, match=r"partition \d: row 0: .*full: its quota") as refused:
        write(frame, service, f"{queue}-full", retrySeconds=1)
    assert "tried again" not in str(refused.value)


def test_an_upload_is_repeated_while_others_take_all_places(connector: Any, service: Daemon, queue: str) -> None:
    with BulkClient(port=lake.flight_port(service)) as client, ExitStack() as others:
        port = client.arrow_port()
        for number in range(UPLOADS_OF_HOST):
            peer = others.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            command = {"sink": f"{queue} {number}", "batch": 0, "partition": 0, "attempt": "0"}
            peer.sendall(json.dumps({"write": command}).encode() + b"\n")
            assert peer.recv(100) == b"{}\n"
        with pytest.raises(Exception, match=r"Arrow streams \(write\) of host 127.0.0.1 .* tried again for 0 s"):
            write(connector.range(1).selectExpr("'b' AS body"), service, queue, retrySeconds=0)
    assert lake.count(service, queue) == 0


def test_a_write_continues_when_the_server_comes_back(connector: Any, tmp_path: Path) -> None:
    port, arrow = free_port("127.0.0.1"), free_port("127.0.0.1")
    with Daemon(tmp_path / "data", "--flight", "--flight-port", str(port), "--arrow-port", str(arrow)) as daemon:
        lake.create(daemon, "q")
        pause = "java_method('java.lang.Thread', 'sleep', if(id % 1000 = 0, 100L, 0L))"
        frame = connector.range(30_000).selectExpr("repeat('b', 100) AS body", "cast(id AS string) AS label",
                                                   f"if({pause} IS NULL, 1, 1) AS priority").coalesce(1)  # fmt: skip
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write, frame, daemon, "q", retrySeconds=60)
            with BulkClient(port=port) as client:
                eventually(client.stages, 60)
            daemon.kill()
            daemon.start()
            writing.result(120)
            assert lake.count(daemon, "q") == 30_000
        with BulkClient(port=port) as client:
            assert client.stages() == []


def test_a_stream_writes_with_either_sink_and_each_batch_once(
    connector: Any, service: Daemon, queue: str, tmp_path: Path
) -> None:
    lake.create(service, f"{queue}-out")
    for turn, by_connector in enumerate(["true", "false", "true"]):
        lake.put(service, queue, [f"{turn}.{number}" for number in range(20)])
        connector.conf.set("spark.openmsmq.connector", by_connector)
        frame = lake.receiving(connector, service, queue, maxRecordsPerTrigger=7).selectExpr("body", "label")
        writer = frame.writeStream.format("msmq").option("checkpointLocation", str(tmp_path))
        options = lake.reach(service, defaultQueue=f"{queue}-out", sinkId="copies")
        writer.options(**options).trigger(availableNow=True).start().awaitTermination()
    found = lake.left(service, f"{queue}-out")
    assert len(found) == len(set(found)) == 60 and lake.count(service, queue) == 0


def test_a_continuous_query_fails_and_commits_nothing(
    connector: Any, service: Daemon, queue: str, tmp_path: Path
) -> None:
    """The reason is in the executor's log; Spark reports that such a task cannot be retried."""
    frame = connector.readStream.format("rate").load().selectExpr("cast(value as string) body")
    writer = frame.writeStream.format("msmq").options(**lake.reach(service, defaultQueue=queue, sinkId=queue))
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(continuous="100 milliseconds").start()
    with pytest.raises(Exception, match="Continuous execution does not support task retry"):
        query.awaitTermination(60)
    with BulkClient(port=lake.flight_port(service)) as client:
        assert client.last_batch(queue) is None
