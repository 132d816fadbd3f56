"""Traffic of queues: rates, sizes and residence times of messages, by queue and hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from openmsmq.spark.jobs.archived import read_archive
from openmsmq.spark.jobs.location import Server
from openmsmq.spark.jobs.session import PipelineError, failure
from openmsmq.spark.options import queue_list

PERCENTILES = (50, 95, 99)
ALL = "(all queues)"
_COLUMNS = ("queue", "source", "arrival_time", "sent_time", "body_size")


@dataclass(frozen=True, slots=True)
class Figures:
    """Traffic of one queue or all queues, in one hour or in total.

    Attributes:
        queue: path name; `ALL` for all.
        source: source as in the data source.
        hour: start of the hour, UTC; None for the total.
        messages, bytes: number of messages, and bytes of their bodies.
        sizes: percentiles of body sizes in bytes.
        times: percentiles of the time in queue in seconds; None if unknown.
    """

    queue: str
    source: str
    hour: datetime | None
    messages: int
    bytes: int
    sizes: tuple[float, ...]
    times: tuple[float, ...] | None


@dataclass(slots=True)
class Traffic:
    """`total`, `queues` (by messages), `hours` of each queue, and `all_hours` over all queues.

    Hours are those in which messages arrived; in journals, those in which they were received.
    """

    total: Figures | None = None
    queues: list[Figures] = field(default_factory=list)
    hours: list[Figures] = field(default_factory=list)
    all_hours: list[Figures] = field(default_factory=list)
    is_age: bool = False  # whether times are ages of messages that are still in their queues


def archived_traffic(spark: SparkSession, directory: str) -> Traffic:
    """Return the traffic in an archive. The time in queue ends with the receive: by another client, as recorded in the
    journal, or by the archive. Messages that stayed in their queue have no time. Raises PipelineError."""
    stayed = F.when(F.col("source") == "journal", _seconds("sent_time", "arrival_time")).when(
        F.col("removed"), _seconds("arrival_time", "archived_at")
    )
    return _traffic(read_archive(spark, directory), stayed)


def live_traffic(spark: SparkSession, server: Server, queues: Sequence[str] = (), source: str = "queue") -> Traffic:
    """Return the traffic of the messages that are currently in queues or journals. Raises PipelineError.

    Args:
        spark: the session.
        server: the queue manager.
        queues: path names; none for all private queues.
        source: `queue`: times are ages of messages; `journal`: times from send to receive.
    """
    if source not in ("queue", "journal"):
        raise PipelineError(f"source is {source!r}, allowed: queue, journal")
    now = datetime.now(UTC)
    age = F.greatest(F.lit(now.timestamp()) - F.col("arrival_time").cast("double"), F.lit(0.0))
    stayed = _seconds("sent_time", "arrival_time") if source == "journal" else age
    try:
        names = {"queue": queue_list(queues)} if queues else {"queuePattern": ".*"}
        frame = server.read(spark, source=source, includeBody="false", **names)
        result = _traffic(frame, stayed)
    except PipelineError:
        raise
    except Exception as error:
        raise failure(error) from error
    result.is_age = source == "queue"
    return result


def _seconds(start: str, end: str) -> Column:
    """Return a time difference in seconds; 0 if it is negative, because the clocks of two machines differ."""
    return F.greatest(F.col(end).cast("double") - F.col(start).cast("double"), F.lit(0.0))


def _traffic(frame: DataFrame, stayed: Column) -> Traffic:
    hour = F.timestamp_seconds(F.floor(F.unix_timestamp("arrival_time") / 3600) * 3600)
    rows = frame.select("queue", "source", "body_size", hour.alias("hour"), stayed.alias("stayed")).cache()
    try:
        grouped = rows.groupingSets(
            [("queue", "source", "hour"), ("queue", "source"), ("hour",), ()],
            "queue", "source", "hour",
        )  # fmt: skip
        shares = F.array(*[F.lit(percent / 100) for percent in PERCENTILES])
        answer = grouped.agg(
            F.count(F.lit(1)).alias("messages"),
            F.sum("body_size").alias("bytes"),
            F.percentile("body_size", shares).alias("sizes"),
            F.percentile("stayed", shares).alias("times"),
            F.unix_timestamp("hour").alias("since"),
            F.grouping_id("queue", "source", "hour").alias("level"),
        ).collect()
    except Exception as error:
        raise failure(error) from error
    finally:
        rows.unpersist()
    by_level: dict[int, list[Figures]] = {}
    for row in answer:
        by_level.setdefault(row["level"], []).append(_figures(row))
    return Traffic(
        total=next((f for f in by_level.get(0b111, []) if f.messages), None),
        queues=sorted(by_level.get(0b001, []), key=lambda f: (-f.messages, f.queue, f.source)),
        hours=sorted(by_level.get(0b000, []), key=_when),
        all_hours=sorted(by_level.get(0b110, []), key=_when),
    )


def _when(figures: Figures) -> tuple[Any, ...]:
    return figures.hour, figures.queue, figures.source


def _figures(row: Row) -> Figures:
    return Figures(
        ALL if row["queue"] is None else row["queue"],
        row["source"] or "",
        None if row["since"] is None else datetime.fromtimestamp(row["since"], UTC),
        row["messages"],
        row["bytes"] or 0,
        tuple(row["sizes"] or ()),
        tuple(row["times"]) if row["times"] else None,
    )
