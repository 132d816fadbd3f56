"""Benchmark of the Spark data source, compared with in-memory sources and sinks in the same run.

.venv/bin/python benchmarks/pipeline.py --messages 400000

Writes its own section of benchmarks/RESULTS.md.
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
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyspark
import results
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
from pyspark.sql.types import StructType

import openmsmq.spark
from openmsmq.bulk.client import BulkClient
from openmsmq.bulk.message_columns import MESSAGE_SCHEMA
from openmsmq.spark.schema import spark_schema

BODY = bytes(range(256)) * 4
CHUNK = 4096
BATCH = 100_000
ALL, NARROW = MESSAGE_SCHEMA.names, ["sequence", "label", "body"]


class Toy(DataSource):
    """A source of rows like those of a queue, generated in memory: the baseline cost of Spark and Python."""

    @classmethod
    def name(cls) -> str:
        return "toy"

    def schema(self) -> Any:
        return spark_schema("none")

    def reader(self, schema: Any) -> DataSourceReader:
        return ToyReader(int(self.options["rows"]), schema.names)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return ToyStreamReader(int(self.options["rows"]), schema.names, int(self.options["batch"]))

    def writer(self, schema: Any, overwrite: bool) -> ToyWriter:
        return ToyWriter()


def rows(start: int, end: int, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield batches with these columns and a body of 1 KiB."""
    fixed = {"body": BODY, "label": "order", "queue": "toy", "source": "queue"}
    schema = pa.schema([MESSAGE_SCHEMA.field(name) for name in names])
    template = [pa.array([fixed.get(field.name)] * CHUNK, field.type) for field in schema]
    for at in range(start, end, CHUNK):
        count = min(CHUNK, end - at)
        yield pa.RecordBatch.from_arrays([array.slice(0, count) for array in template], schema=schema)


def schema_of(names: list[str]) -> StructType:
    whole = spark_schema("none")
    return StructType([whole[name] for name in names])


class Part(InputPartition):
    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end


class ToyReader(DataSourceReader):
    def __init__(self, count: int, names: list[str]) -> None:
        self.count, self.names = count, names

    def partitions(self) -> list[Part]:
        return [Part(0, self.count // 2), Part(self.count // 2, self.count)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return rows(partition.start, partition.end, self.names)


class ToyStreamReader(DataSourceStreamReader):
    def __init__(self, count: int, names: list[str], batch: int) -> None:
        self.count, self.names, self.batch, self.at = count, names, batch, 0

    def initialOffset(self) -> dict[str, Any]:
        return {"at": 0}

    def latestOffset(self, *_: Any) -> dict[str, Any]:  # an unchanged offset means the end
        self.at = min(self.count, self.at + self.batch)
        return {"at": self.at}

    def partitions(self, start: Any, end: Any) -> list[Part]:
        middle = (start["at"] + end["at"]) // 2
        return [Part(start["at"], middle), Part(middle, end["at"])]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        return rows(partition.start, partition.end, self.names)


class ToyWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class Figure(NamedTuple):
    """A rate, that of the toy source in the same run, and the target rate with its target ratio to the toy."""

    what: str
    rate: float
    toy: float
    bar: int
    bar_ratio: float


class Comparison(NamedTuple):
    """Rates of the same query with the connector and with an alternative in the same run, and the minimum ratio."""

    what: str
    rate: float
    other: str
    other_rate: float
    bar: float


class Bench:
    def __init__(self, spark: SparkSession, daemon: systems.Daemon, directory: Path, count: int) -> None:
        self.spark, self.daemon, self.directory, self.count = spark, daemon, directory, count
        self.port = int(daemon.ready["endpoints"]["flight"]["port"])
        self.runs = 0

    def msmq(self, reader: Any, names: list[str], **options: Any) -> Any:
        source = reader.format("msmq").schema(schema_of(names))
        return source.options(flightPort=self.port, minPartitions=2, **options).load()

    def receiving(self, queue: str, batch: int | None = BATCH, names: list[str] = ALL) -> Any:
        options = {"queue": queue, "mode": "receive", "consumerGroup": "bench"}
        return self.msmq(self.spark.readStream, names, **options | ({"maxRecordsPerTrigger": batch} if batch else {}))

    def toys(self, reader: Any, names: list[str] = ALL) -> Any:
        source = reader.format("toy").schema(schema_of(names))
        return source.option("rows", self.count).option("batch", BATCH).load()

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
            narrow = rows(0, count, ["body", "label"])
            staged = client.stage(queue, 0, 0, 0, narrow, default_queue=queue)
            client.finalize(queue, 0, [staged.handle])

    def seconds(self, work: Callable[[], Any]) -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    def rate(self, work: Callable[[], Any]) -> float:
        return self.count / self.seconds(work)

    @property
    def sink(self) -> dict[str, Any]:
        """Options to write into the queue `sink`."""
        return {"flightPort": self.port, "defaultQueue": "sink"}

    def drained(self, query: Any, queue: str) -> None:
        query.trigger(availableNow=True).start().awaitTermination()
        assert self.waiting(queue) == 0

    def figures(self) -> Iterator[Figure | Comparison]:
        self.create("warm", "many", "sink")
        self.fill("warm", 1000)
        self.toys(self.spark.read).limit(1).write.format("noop").mode("overwrite").save()
        self.drained(self.query(self.receiving("warm"), "noop"), "warm")
        yield from self.browsing()
        yield from self.connecting()
        self.spark.conf.set("spark.openmsmq.connector", "false")
        yield from self.streaming()
        yield self.sending()

    def in_turns(self, toy: Callable[[], float], ours: Callable[[], float]) -> tuple[float, float]:
        """Return the best of three rates of each, ours first, after two warm-up runs."""
        for _ in range(2):
            toy(), ours()
        rounds = [(ours(), toy()) for _ in range(3)]
        return max(rate for rate, _ in rounds), max(rate for _, rate in rounds)

    def browsing(self) -> Iterator[Figure]:
        self.fill("many", self.count)

        def noop(frame: Any) -> float:
            return self.rate(lambda: frame.write.format("noop").mode("overwrite").save())

        for names, what in ((NARROW, "three columns"), (ALL, "all columns")):
            toy, source = self.toys(self.spark.read, names), self.msmq(self.spark.read, names, queue="many")
            rates = self.in_turns(lambda toy=toy: noop(toy), lambda source=source: noop(source))
            yield Figure(f"browse → noop, {what}", *rates, 400_000, 400 / 778)

    def connecting(self) -> Iterator[Comparison]:
        """Compare the connector with the toy, the Python source and Parquet files of the same rows."""
        spark = self.spark
        files = str(self.directory / "rows")

        def source(by_connector: bool, names: list[str] | None = None) -> Any:
            spark.conf.set("spark.openmsmq.connector", str(by_connector).lower())
            frame = spark.read.format("msmq").options(flightPort=self.port, minPartitions=2, queue="many").load()
            return frame.select(names) if names else frame

        def noop(frame: Any) -> float:
            return self.rate(lambda: frame.write.format("noop").mode("overwrite").save())

        def parquet(frame: Any) -> float:
            return self.rate(lambda: frame.write.mode("overwrite").parquet(str(self.directory / "out")))

        def sink(frame: Any) -> float:
            return self.rate(frame.write.format("msmq").mode("append").options(**self.sink).save)

        def count(frame: Any) -> float:
            return self.rate(lambda: frame.agg({"*": "count"}).collect())

        source(True).write.parquet(files)
        written = spark.read.parquet(files)
        narrow = "select sequence, label, body → noop"
        for what, names, other, frame, work, bar in (
            (narrow, NARROW, "toy", self.toys(spark.read, NARROW), noop, 1.0),
            ("all columns → noop", ALL, "toy", self.toys(spark.read), noop, 1.0),
            (narrow, NARROW, "Python source", source(False, NARROW), noop, 0.0),
            ("select label → noop", ["label"], "Python source", source(False, ["label"]), noop, 3.0),
            ("count(*)", ALL, "Python source", source(False), count, 3.0),
            (narrow, NARROW, "Parquet files", written.select(NARROW), noop, 0.0),
            ("select sequence, label, body → Parquet", NARROW, "Parquet files", written.select(NARROW), parquet, 0.8),
            ("all columns → Parquet", ALL, "Parquet files", written, parquet, 0.8),
        ):  # fmt: skip
            if other == "Python source":
                spark.conf.set("spark.openmsmq.connector", "false")
                frame.take(1)  # planned as such
            ours = source(True, names)
            yield Comparison(what, *self._pair(other, frame, ours, work), bar)
        rows = written.select("label", "body")
        yield Comparison("Parquet files, label and body → sink", *self._pair("Python sink", rows, rows, sink), 0.0)

    def _pair(self, other: str, frame: Any, ours: Any, work: Callable[[Any], float]) -> tuple[float, str, float]:
        def by_other() -> float:
            self.spark.conf.set("spark.openmsmq.connector", "false")
            return work(frame)

        def by_connector() -> float:
            self.spark.conf.set("spark.openmsmq.connector", "true")
            return work(ours)

        theirs, best = self.in_turns(by_connector, by_other)
        return best, other, theirs

    def streaming(self) -> Iterator[Figure]:
        def toy(format: str, names: list[str]) -> float:
            query = self.query(self.toys(self.spark.readStream, names), format).start()
            rate = self.rate(query.processAllAvailable)
            query.stop()
            return rate

        def ours(format: str, names: list[str]) -> float:
            queue = f"many{self.runs}"
            self.create(queue)
            self.fill(queue, self.count)
            query = self.query(self.receiving(queue, names=names), format)
            return self.rate(lambda: self.drained(query, queue))

        for what, format, bar, ratio in (
            ("receive → noop", "noop", 150_000, 150 / 255), ("receive → Parquet", "parquet", 80_000, 80 / 120),
        ):  # fmt: skip
            for names, columns in ((NARROW, "three columns"), (ALL, "all columns")):
                rates = self.in_turns(partial(toy, format, names), partial(ours, format, names))
                yield Figure(f"{what}, removal included, {columns}", *rates, bar, ratio)

    def sending(self) -> Figure:
        source = self.toys(self.spark.read, ["body", "label"])

        def write(format: str) -> float:
            return self.rate(source.write.format(format).mode("append").options(**self.sink).save)

        before = self.waiting("sink")
        rates = self.in_turns(lambda: write("toy"), lambda: write("msmq"))
        assert self.waiting("sink") - before == 5 * self.count
        return Figure("toy → sink", *rates, 100_000, 100 / 300)

    def overhead(self) -> float:
        """Return the median duration of a batch of 100 messages in milliseconds, without the first batches."""
        self.create("small")
        self.fill("small", 4000)
        query = self.query(self.receiving("small", 100), "noop").trigger(availableNow=True).start()
        query.awaitTermination()
        return _median([p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]][5:])

    def delay(self) -> float:
        """Return the median time in milliseconds from a send to the end of the batch with the message."""
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


def report(
    count: int, figures: list[Figure], comparisons: list[Comparison], overhead: float, delay: float, load: float
) -> str:
    def verdict(met: bool) -> str:
        return "met" if met else "**missed**"

    return "\n".join([
        results.SPARK,
        "",
        f"Made by `benchmarks/pipeline.py` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC; do not edit.",
        f"{systems.machine()}, Python {platform.python_version()}, PySpark {pyspark.__version__}, pyarrow",
        f"{pa.__version__}; {count:,} recoverable messages with a body of 1 KiB, two partitions. Spark, its Python",
        "workers, the Flight process and the daemon share the processors. The toy makes rows of the same columns",
        "in memory, or drops them, in the same run; of each the best of three alternating rounds, after two that do",
        "not count. The bars were set on a machine whose toy, with few columns, read 778,000 rows a second,",
        "streamed 255,000 to noop and 120,000 to Parquet, and wrote 300,000; the second bar is the ratio to that toy,",
        f"and counts for more. The load average was {load:.1f} at the start.",
        "",
        "| | rows per second | bar | | toy | ratio | bar | |",
        "|---|--:|--:|---|--:|--:|--:|---|",
        *(
            f"| {f.what} | {f.rate:,.0f} | ≥ {f.bar:,} | {verdict(f.rate >= f.bar)} | {f.toy:,.0f} "
            f"| {f.rate / f.toy:.2f} | ≥ {f.bar_ratio:.2f} | {verdict(f.rate / f.toy >= f.bar_ratio)} |"
            for f in figures
        ),
        "",
        "The connector in Java and others, in alternating rounds of the same run; the Python source here selects",
        "columns by a query, as most users do, and so makes all of them:",
        "",
        "| | connector, rows per second | compared with | rows per second | ratio | bar | |",
        "|---|--:|---|--:|--:|--:|---|",
        *(
            f"| {c.what} | {c.rate:,.0f} | {c.other} | {c.other_rate:,.0f} | {c.rate / c.other_rate:.2f} | "
            + (f"≥ {c.bar:.1f} | {verdict(c.rate / c.other_rate >= c.bar)} |" if c.bar else "| |")
            for c in comparisons
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
    builder = (
        SparkSession.builder.master("local[2,3]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.streaming.checkpointFileManagerClass", manager)
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .config("spark.openmsmq.connector", "false")
    )
    spark = openmsmq.spark.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Toy)
    directory = Path(tempfile.mkdtemp(prefix="pipeline-bench-"))
    try:
        with systems.Daemon(directory / "data", "--flight", "--flight-port", "0", "--log-level", "error") as daemon:
            bench = Bench(spark, daemon, directory, given.messages)
            figures, comparisons = [], []
            for figure in bench.figures():
                (comparisons if isinstance(figure, Comparison) else figures).append(figure)
                print(figure, file=sys.stderr, flush=True)
            text = report(given.messages, figures, comparisons, bench.overhead(), bench.delay(), load)
    finally:
        shutil.rmtree(directory)
    results.put(results.SPARK, text)
    print(text)


if __name__ == "__main__":
    main()
