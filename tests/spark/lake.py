"""Common steps of pipeline tests: options for a daemon, filling queues, streams to Parquet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from daemon import Daemon
from openmsmq import QueueManager


def flight_port(service: Daemon) -> int:
    return int(service.ready["endpoints"]["flight"]["port"])


def reach(service: Daemon, **options: Any) -> dict[str, str]:
    """Return options to read and write through Arrow Flight."""
    return {"flightPort": str(flight_port(service))} | {name: str(value) for name, value in options.items()}


def create(service: Daemon, *names: str, **properties: Any) -> None:
    with service.connect() as manager:
        for name in names:
            manager.create_queue(f".\\private$\\{name}", **properties)


def put(service: Daemon, name: str, values: Iterable[str], **properties: Any) -> None:
    with service.connect() as manager, manager.open(f".\\private$\\{name}", "send") as sender:
        for value in values:
            sender.send(value, label=value, **{"recoverable": True, **properties})


def put_together(manager: QueueManager, name: str, labels: Iterable[str]) -> None:
    """Send messages in one transaction to a transactional queue."""
    with manager.open(f".\\private$\\{name}", "send") as sender, manager.transaction() as transaction:
        for label in labels:
            sender.send(label, label=label, transaction=transaction)


def left(service: Daemon, name: str) -> list[str]:
    with service.connect() as manager, manager.open(f".\\private$\\{name}", "peek", protocol="qmcomm") as reader:
        return [message.label for message in reader]


def count(service: Daemon, name: str) -> int:
    with service.connect() as manager:
        return manager.counts(f".\\private$\\{name}")["message_count"]


def receiving(spark: Any, service: Daemon, queue: str, group: str = "lake", **options: Any) -> Any:
    """Return a stream that receives messages."""
    wanted = reach(service, queue=queue, mode="receive", consumerGroup=group, **options)
    return spark.readStream.format("msmq").options(**wanted).load()


def to_parquet(frame: Any, directory: Path) -> Any:
    """Run a query that ends when it has read all messages."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    return writer.trigger(availableNow=True).start(str(directory / "out"))


def labels(spark: Any, directory: Path) -> Counter[str]:
    """Return the labels in the lake with their counts."""
    rows = spark.read.parquet(str(directory / "out")).select("label").collect()
    return Counter(row.label for row in rows)


def table(spark: Any, service: Daemon, **options: Any) -> Any:
    """Return a batch read of a daemon's queues."""
    return spark.read.format("msmq").options(**reach(service, **options)).load()
