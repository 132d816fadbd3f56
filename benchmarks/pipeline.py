"""Figures of the data source in Spark, each beside a source or sink in memory that is measured in the same run.

.venv/bin/python benchmarks/pipeline.py --messages 400000

Writes benchmarks/PIPELINE.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyspark
import systems
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from openmsmq.bulk.client import BulkClient
from openmsmq.bulk.schema import MESSAGE_SCHEMA
from openmsmq.spark.schema import spark_schema

BODY = bytes(range(256)) * 4
CHUNK = 4096
BATCH = 100_000
RESULT = Path(__file__).with_name("PIPELINE.md")


class Toy(DataSource):
    """Rows like those of a queue, made in memory: what Spark and Python take by themselves."""

    @classmethod
    def name(cls) -> str:
        return "toy"

    def schema(self) -> Any:
        return spark_schema("none")

    def reader(self, schema: Any) -> DataSourceReader:
        return ToyReader(int(self.options["rows"]))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return ToyStreamReader(int(self.options["rows"]), int(self.options["batch"]))

    def writer(self, schema: Any, overwrite: bool) -> ToyWriter:
        return ToyWriter()


def rows(start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Batches with all columns, the body of 1 KiB."""
    fixed = {"body": BODY, "label": "order", "queue": "toy", "source": "queue"}
    template = [pa.array([fixed.get(field.name)] * CHUNK, field.type) for field in MESSAGE_SCHEMA]
    for at in range(start, end, CHUNK):
        count = min(CHUNK, end - at)
        yield pa.RecordBatch.from_arrays([array.slice(0, count) for array in template], schema=MESSAGE_SCHEMA)


class Part(InputPartition):
    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end


class ToyReader(DataSourceReader):
    def __init__(self, count: int) -> None:
        self.count = count

    def partitions(self) -> list[Part]:
        return [Part(0, self.count // 2), Part(self.count // 2, self.count)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return rows(partition.start, partition.end)


class ToyStreamReader(DataSourceStreamReader):
    def __init__(self, count: int, batch: int) -> None:
        self.count, self.batch, self.at = count, batch, 0

    def initialOffset(self) -> dict[str, Any]:
        return {"at": 0}

    def latestOffset(self, *_: Any) -> dict[str, Any]:  # the same again means that nothing is there any more
        self.at = min(self.count, self.at + self.batch)
        return {"at": self.at}

    def partitions(self, start: Any, end: Any) -> list[Part]:
        middle = (start["at"] + end["at"]) // 2
        return [Part(start["at"], middle), Part(middle, end["at"])]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return rows(partition.start, partition.end)


class ToyWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class Figure(NamedTuple):
    """A rate, that of the toy in the same run, and the bar."""

    what: str
    rate: float
    toy: float
    bar: float


class Bench:
    def __init__(self, spark: SparkSession, daemon: systems.Daemon, directory: Path, count: int) -> None:
        self.spark, self.daemon, self.directory, self.count = spark, daemon, directory, count
        self.port = int(daemon.ready["endpoints"]["flight"]["port"])
        self.runs = 0

    def msmq(self, reader: Any, **options: Any) -> Any:
        return reader.format("msmq").options(flightPort=self.port, minPartitions=2, **options).load()

    def receiving(self, queue: str, batch: int | None = BATCH) -> Any:
        options = {"queue": queue, "mode": "receive", "consumerGroup": "bench"}
        return self.msmq(self.spark.readStream, **options | ({"maxRecordsPerTrigger": batch} if batch else {}))

    def toys(self, reader: Any) -> Any:
        return reader.format("toy").option("rows", self.count).option("batch", BATCH).load()

    def query(self, frame: Any, format: str) -> Any:
        self.runs += 1
        place = self.directory / str(self.runs)
        writer = frame.writeStream.format(format).option("checkpointLocation", str(place / "checkpoint"))
        return writer.option("path", str(place / "out")) if format == "parquet" else writer

    def create(self, *names: str) -> None:
        with self.daemon.connect() as manager:
            for name in names:
                manager.create_queue(f".\\private$\\{name}")

    def waiting(self, queue: str) -> int:
        with self.daemon.connect() as manager:
            return int(manager.counts(f".\\private$\\{queue}")["message_count"])

    def fill(self, queue: str, count: int) -> None:
        with BulkClient(port=self.port) as client:
            narrow = (batch.select(["body", "label"]) for batch in rows(0, count))
            staged = client.stage(queue, 0, 0, 0, narrow, default_queue=queue)
            client.finalize(queue, 0, [staged.handle])

    def seconds(self, work: Callable[[], Any]) -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    def rate(self, work: Callable[[], Any]) -> float:
        return self.count / self.seconds(work)

    def drained(self, query: Any, queue: str) -> None:
        query.trigger(availableNow=True).start().awaitTermination()
        assert self.waiting(queue) == 0

    def figures(self) -> Iterator[Figure]:
        self.create("warm", "many", "second", "sink")
        self.fill("warm", 1000)
        self.toys(self.spark.read).limit(1).write.format("noop").mode("overwrite").save()
        self.drained(self.query(self.receiving("warm"), "noop"), "warm")
        self.fill("many", self.count)
        self.fill("second", self.count)

        def noop(frame: Any) -> None:
            frame.write.format("noop").mode("overwrite").save()

        toy = self.rate(lambda: noop(self.toys(self.spark.read)))
        yield Figure("browse → noop", self.rate(lambda: noop(self.msmq(self.spark.read, queue="many"))), toy, 400_000)

        def streamed(format: str) -> float:
            query = self.query(self.toys(self.spark.readStream), format).start()
            taken = self.seconds(query.processAllAvailable)
            query.stop()
            return self.count / taken

        for queue, format, what, bar in (
            ("many", "noop", "receive → noop, with removal", 150_000),
            ("second", "parquet", "receive → Parquet, with removal", 80_000),
        ):
            toy = streamed(format)
            query = self.query(self.receiving(queue), format)
            yield Figure(what, self.rate(lambda query=query, queue=queue: self.drained(query, queue)), toy, bar)

        source = self.toys(self.spark.read).select("body", "label")
        toy = self.rate(lambda: source.write.format("toy").mode("append").save())
        sink = source.write.format("msmq").mode("append").option("flightPort", self.port).option("defaultQueue", "sink")
        yield Figure("toy → sink", self.rate(sink.save), toy, 100_000)
        assert self.waiting("sink") == self.count

    def overhead(self) -> float:
        """Median milliseconds of a batch of 100 messages, without the first ones."""
        self.create("small")
        self.fill("small", 4000)
        query = self.query(self.receiving("small", 100), "noop").trigger(availableNow=True).start()
        query.awaitTermination()
        return _median([p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]][5:])

    def delay(self) -> float:
        """Median milliseconds between a send and the end of the batch that has the message."""
        self.create("slow")
        query = self.query(self.receiving("slow", None), "noop").start()
        sent: list[float] = []

        def send() -> None:
            with self.daemon.connect() as manager, manager.open(".\\private$\\slow", "send") as sender:
                for _ in range(200):
                    sent.append(time.time())
                    sender.send(BODY, recoverable=True)
                    time.sleep(0.1)

        thread = threading.Thread(target=send)
        thread.start()
        thread.join()
        query.processAllAvailable()
        query.stop()
        delays, at = [], 0
        for progress in query.recentProgress:
            begun = datetime.fromisoformat(progress["timestamp"]).timestamp()
            ended = begun + progress["durationMs"]["triggerExecution"] / 1000
            delays += [(ended - moment) * 1000 for moment in sent[at : at + progress["numInputRows"]]]
            at += progress["numInputRows"]
        assert at == len(sent), f"{at} of {len(sent)} in the progress reports"
        return _median(delays[20:])


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def report(count: int, figures: list[Figure], overhead: float, delay: float, load: float) -> str:
    def verdict(met: bool) -> str:
        return "met" if met else "**missed**"

    return "\n".join([
        "# The data source in Spark",
        "",
        f"Made by `benchmarks/pipeline.py` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; do not edit.",
        f"{systems.machine()}, Python {platform.python_version()}, PySpark {pyspark.__version__}, pyarrow",
        f"{pa.__version__}; {count:,} recoverable messages with a body of 1 KiB and all columns, two partitions.",
        "Spark, its Python workers, the Flight process and the daemon share the processors. The load average of the",
        f"machine was {load:.1f} at the start. The toy makes the same rows in memory, or drops them, in the same run.",
        "",
        "| | rows per second | toy | ratio | bar | |",
        "|---|--:|--:|--:|--:|---|",
        *(
            f"| {f.what} | {f.rate:,.0f} | {f.toy:,.0f} | {f.rate / f.toy:.2f} | ≥ {f.bar:,} "
            f"| {verdict(f.rate >= f.bar)} |"
            for f in figures
        ),
        "",
        "| | ms, median | bar | |",
        "|---|--:|--:|---|",
        f"| a batch of 100 messages, received | {overhead:,.0f} | ≤ 150 | {verdict(overhead <= 150)} |",
        f"| from the send to the end of its batch | {delay:,.0f} | ≤ 300 | {verdict(delay <= 300)} |",
        "",
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=400_000)
    given = parser.parse_args()
    load = os.getloadavg()[0]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    manager = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    spark = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.streaming.checkpointFileManagerClass", manager)
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Toy)
    directory = Path(tempfile.mkdtemp(prefix="pipeline-bench-"))
    try:
        with systems.Daemon(directory / "data", "--flight", "--flight-port", "0", "--log-level", "error") as daemon:
            bench = Bench(spark, daemon, directory, given.messages)
            text = report(given.messages, list(bench.figures()), bench.overhead(), bench.delay(), load)
    finally:
        shutil.rmtree(directory)
    RESULT.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
