"""Exactly-once delivery when processes are stopped or killed: the lake is compared with the sent messages."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

import seeds
from daemon import Daemon, eventually, free_port
from openmsmq.bulk.client import BulkClient
from spark import lake


def drain(spark: Any, service: Daemon, queue: str, directory: Path) -> None:
    lake.to_parquet(lake.receiving(spark, service, queue, maxRecordsPerTrigger=200), directory).awaitTermination()


def progress(service: Daemon, queue: str, query: Any, rows: int) -> None:
    """Wait until a query has read a number of messages, or has ended."""
    enough = lake.count(service, queue) - rows
    eventually(lambda: lake.count(service, queue) <= max(enough, 0) or not query.isActive, 120)


def check(spark: Any, service: Daemon, queue: str, directory: Path, sent: list[str]) -> None:
    found = lake.labels(spark, directory)
    duplicates = {label: times for label, times in found.items() if times > 1}
    assert not duplicates, f"duplicates: {duplicates}"
    assert set(found) == set(sent), f"lost: {sorted(set(sent) - set(found))[:5]}"
    assert lake.count(service, queue) == 0
    with BulkClient(port=lake.flight_port(service)) as client:
        assert client.position(queue).count == 0


@pytest.mark.slow
def test_a_stream_stopped_at_random_moments_reads_each_message_once(
    spark: Any, service: Daemon, tmp_path: Path
) -> None:
    lake.create(service, "stopped")
    chance, sent = seeds.chance("stopped"), [str(number) for number in range(1200)]
    lake.put(service, "stopped", sent)
    for _ in range(6):
        frame = lake.receiving(spark, service, "stopped", maxRecordsPerTrigger=100)
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.start(str(tmp_path / "out"))
        progress(service, "stopped", query, chance.randrange(200))  # 0: right after the start
        query.stop()
    drain(spark, service, "stopped", tmp_path)
    check(spark, service, "stopped", tmp_path, sent)


def test_killed_python_workers_lose_nothing(spark: Any, service: Daemon, tmp_path: Path) -> None:
    lake.create(service, "workers")
    sent = [str(number) for number in range(1200)]
    lake.put(service, "workers", sent)
    query = lake.to_parquet(lake.receiving(spark, service, "workers", maxRecordsPerTrigger=100), tmp_path)
    killed = 0
    while query.isActive and killed < 3:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):  # the processes start and end at any time
                for worker in process.children()[:1] if process.name() == "pyspark.daemon" else []:
                    worker.kill()
                    killed += 1
        progress(service, "workers", query, 100)
    with contextlib.suppress(Exception):  # a killed planner ends the query; a killed task is retried
        query.awaitTermination()
    drain(spark, service, "workers", tmp_path)
    check(spark, service, "workers", tmp_path, sent)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_killed_queue_manager_loses_nothing(spark: Any, tmp_path: Path, seed: int) -> None:
    chance = seeds.chance(f"queue manager {seed}")
    service = Daemon(tmp_path / "data", "--flight", "--flight-port", str(free_port("127.0.0.1")))
    with service:
        lake.create(service, "killed")
        sent = [str(number) for number in range(900)]
        lake.put(service, "killed", sent)
        query = lake.to_parquet(
            lake.receiving(spark, service, "killed", maxRecordsPerTrigger=100, port=service.port), tmp_path
        )
        progress(service, "killed", query, chance.randrange(500))
        service.kill()
        time.sleep(chance.uniform(0, 1))  # downtime
        service.start()
        query.awaitTermination()
        drain(spark, service, "killed", tmp_path)
        check(spark, service, "killed", tmp_path, sent)


def test_a_sink_stopped_at_random_moments_sends_each_row_once(
    either: Any, service: Daemon, queue: str, tmp_path: Path
) -> None:
    source, target = f"{queue}-from", f"{queue}-into"
    lake.create(service, source, target)
    chance, sent = seeds.chance("sink"), [str(number) for number in range(600)]
    lake.put(service, source, sent)

    def start(**trigger: Any) -> Any:
        frame = lake.receiving(either, service, source, maxRecordsPerTrigger=60).selectExpr("body", "label")
        options = lake.reach(service, defaultQueue=target, sinkId=queue)
        writer = frame.writeStream.format("msmq").options(**options)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return (writer.trigger(**trigger) if trigger else writer).start()

    for _ in range(4):
        query = start()
        progress(service, source, query, chance.randrange(100))
        query.stop()
    start(availableNow=True).awaitTermination()
    assert Counter(lake.left(service, target)) == Counter(sent)
    assert lake.count(service, source) == 0
    with BulkClient(port=lake.flight_port(service)) as client:
        assert client.forget(queue) == 0, "no stage is left over"
