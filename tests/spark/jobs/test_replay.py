"""Replay of archives into queues: properties, order, transactions, selections."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import openmsmq
from daemon import Daemon
from openmsmq.spark.jobs import PipelineError, Server, archive, read_archive, replay
from openmsmq.spark.options import BATCH_WRITE

KEPT = (
    "body", "body_type", "label", "priority", "delivery_guarantee", "acknowledgements_requested",
    "journaling_requested", "application_tag", "correlation_identifier", "extension", "time_to_reach_queue",
    "time_to_be_received", "response_queue_format_name", "administration_queue_format_name",
)  # fmt: skip


def messages() -> list[openmsmq.Message]:
    plain = openmsmq.Message.of("grüße", label="plain", application_tag=1)
    full = replace(
        openmsmq.Message.of(42), label="full", priority=7, delivery_guarantee=1, acknowledgements_requested=5,
        journaling_requested=1, application_tag=2**32 - 1, correlation_identifier=bytes(range(20)), extension=b"\0ext",
        time_to_reach_queue=3600, time_to_be_received=7200, response_queue_format_name="DIRECT=OS:.\\private$\\answers",
        administration_queue_format_name="DIRECT=OS:.\\private$\\admin",
    )  # fmt: skip
    return [plain, full, openmsmq.Message(body=b"", label="empty", application_tag=3)]


def read(qm: Any, queue: str) -> list[openmsmq.Message]:
    with qm.open(queue, "peek") as opened:
        return sorted(opened, key=lambda m: m.sequence)


@pytest.fixture(scope="module")
def archived(spark: Any, service: Daemon, tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = str(tmp_path_factory.mktemp("replay") / "archive")
    with service.connect() as manager:
        manager.create_queue(".\\private$\\originals")
        with manager.open(".\\private$\\originals", "send") as sender:
            for message in messages():
                sender.send(message)
    archive(spark, Server(port=service.port, protocol="remoteread"), ["originals"], directory)
    return directory


def kept(message: openmsmq.Message) -> dict[str, Any]:
    return {name: getattr(message, name) for name in KEPT}


@pytest.mark.parametrize("way", ["flight", "rpc"])
@pytest.mark.parametrize("transactional", [False, True])
def test_properties_and_order_are_preserved(
    spark: Any, server: Server, qm: Any, filled: Callable[..., str], archived: str, way: str, transactional: bool
) -> None:
    queue = filled(0, transactional=transactional)
    there = replace(server, protocol="remoteread" if way == "rpc" else "auto")
    sent = []
    done = replay(spark, there, archived, queue, on_sent=sent.append)
    assert (done.rows, done.way, sent[-1]) == (3, way, 3)
    expected = [kept(m) for m in messages()]
    for properties in expected:
        if transactional:  # such messages are recoverable and have no priority
            properties |= {"priority": 0, "delivery_guarantee": 1}
    assert [kept(m) for m in read(qm, queue)] == expected


def test_the_order_is_kept_however_many_tasks_spark_has(
    spark: Any, server: Server, qm: Any, filled: Callable[..., str], tmp_path: Any
) -> None:
    source, target = filled(0), filled(0)
    rows = spark.range(4_000).selectExpr("repeat('x', 500) AS body", "cast(id AS string) AS label").coalesce(1)
    rows.write.format("msmq").options(**server.options(BATCH_WRITE), defaultQueue=source).mode("append").save()
    archive(spark, server, [source], str(tmp_path / "archive"))
    spark.conf.set("spark.sql.adaptive.enabled", "false")  # otherwise one task would get all rows
    try:
        replay(spark, server, str(tmp_path / "archive"), target)
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert [int(message.label) for message in read(qm, target)] == list(range(4_000))


def test_a_selection_is_sent(spark: Any, server: Server, qm: Any, filled: Callable[..., str], archived: str) -> None:
    queue = filled(0)
    assert replay(spark, server, archived, queue, where="label LIKE 'f%' AND priority > 5").rows == 1
    assert [m.label for m in read(qm, queue)] == ["full"]
    with pytest.raises(PipelineError, match=r"where 'color = 1': .*color"):
        replay(spark, server, archived, queue, where="color = 1")


@pytest.mark.parametrize("where", [None, "label <> 'missing' OR false"])
def test_the_rest_is_sent_after_a_failure(
    spark: Any, server: Server, qm: Any, filled: Callable[..., str], archived: str, tmp_path: Path, where: str | None
) -> None:
    """The archive has messages of two queue managers with the same sequence numbers."""
    queue, both = filled(0), str(tmp_path / "both")
    rows = read_archive(spark, archived)
    there = rows.withColumn("message_id", F.concat(F.lit("it's "), "message_id")).withColumn("priority", F.lit(1))
    rows.unionByName(there).write.partitionBy("queue", "date").parquet(both)

    def interrupted(sent: int) -> None:
        if sent == 3:
            raise OSError("interrupted")

    with pytest.raises(PipelineError, match="after 3 messages: interrupted; send the rest with --where ") as raised:
        replay(spark, server, both, queue, where=where, rate=1000, on_sent=interrupted)
    (rest,) = shlex.split(str(raised.value).partition(" --where ")[2])
    assert replay(spark, server, both, queue, where=rest, rate=1000).rows == 3
    sent = sorted((m.label, m.priority == 1) for m in read(qm, queue))
    assert sent == sorted((m.label, there) for m in messages() for there in (False, True))


def test_a_rate_is_kept(spark: Any, server: Server, qm: Any, filled: Callable[..., str], archived: str) -> None:
    queue, times = filled(0), []
    assert replay(spark, server, archived, queue, rate=5, on_sent=lambda _: times.append(time.monotonic())).rows == 3
    assert times[2] - times[0] >= 0.35 and len(read(qm, queue)) == 3
    with pytest.raises(PipelineError, match="rate is 0, allowed: more than 0"):
        replay(spark, server, archived, queue, rate=0)


@pytest.mark.parametrize("protocol", ["flight", "remoteread"])
def test_a_missing_queue_is_named(spark: Any, server: Server, archived: str, protocol: str) -> None:
    with pytest.raises(PipelineError, match="MQ_ERROR_QUEUE_NOT_FOUND"):
        replay(spark, replace(server, protocol=protocol), archived, "nowhere")
