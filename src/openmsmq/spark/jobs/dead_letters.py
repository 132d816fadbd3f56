"""Why messages died, and sending them back to where they were meant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from openmsmq.client.dead_letters import DEAD_LETTER_QUEUES, Forwarding, walk
from openmsmq.model.errors import MsmqError
from openmsmq.model.reasons import class_name
from openmsmq.model.security import sid_text
from openmsmq.spark.jobs.location import Server
from openmsmq.spark.jobs.session import PipelineError, failure, restricted

SOURCES = dict(zip(("deadletter", "xactdeadletter"), DEAD_LETTER_QUEUES, strict=True))
_ANSWERS = 50  # rows of a table at most; what is beyond is one row
_HOUR = 3600
#: Age in seconds, below which it is called so.
_AGES = ((_HOUR, "under an hour"), (24 * _HOUR, "under a day"), (7 * 24 * _HOUR, "under a week"),
         (30 * 24 * _HOUR, "under 30 days"))  # fmt: skip
_OLDEST = "30 days or more"
OTHERS = "(others)"


@dataclass(frozen=True, slots=True)
class Count:
    """One row of a table: messages, bytes of their bodies, when the last one died."""

    value: str
    messages: int
    bytes: int
    last: datetime


@dataclass(slots=True)
class DeadLetters:
    """Contents of both dead-letter queues, grouped by class, destination, sender, label and age."""

    messages: int = 0
    bytes: int = 0
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    by: dict[str, list[Count]] = field(default_factory=dict)


@dataclass(slots=True)
class Returned:
    """A dead letter, and what came of returning it: an error, or None."""

    id: str
    reason: str
    label: str
    to: str
    error: str | None = None


def dead_letters(spark: SparkSession, server: Server, where: str | None = None) -> DeadLetters:
    """Count what is in the dead-letter queues. `where` is Spark SQL over the columns. Raises PipelineError."""
    frame = _chosen(spark, server, where).cache()
    try:
        result = DeadLetters()
        total = frame.agg(F.count(F.lit(1)), F.coalesce(F.sum("body_size"), F.lit(0))).first()
        assert total is not None
        result.messages, result.bytes = int(total[0]), int(total[1])
        for aspect, (column, name) in _aspects(result.at).items():
            result.by[aspect] = _table(frame, column, name)
        return result
    except Exception as error:
        raise failure(error) from error
    finally:
        frame.unpersist()


def return_to_source(
    spark: SparkSession, server: Server, where: str | None = None, *, dry_run: bool = False
) -> list[Returned]:
    """Send dead letters to the queues that they were meant for, and take them out of the dead-letter queues.

    Args:
        spark: the session.
        server: the queue manager; its RPC port is needed, also where the dead letters are read through Flight.
        where: Spark SQL over the columns; None for all.
        dry_run: only return which.

    Returns:
        Each one; with an error where it stayed, because its queue is gone for example. One that somebody else took
        meanwhile is left out.
    """
    try:
        rows = _chosen(spark, server, where).orderBy("sequence").collect()
    except PipelineError:
        raise
    except Exception as error:
        raise failure(error) from error
    chosen = {
        (row["source"], row["message_id"]): Returned(
            row["message_id"], class_name(row["class"]), row["label"], row["destination_queue"] or ""
        )
        for row in rows
    }
    if dry_run:
        return list(chosen.values())
    done: list[Returned] = []
    with server.connect() as qm, Forwarding(qm) as forwarding:
        for source in {source for source, _ in chosen}:
            with qm.open(SOURCES[source], protocol="qmcomm") as queue:
                for cursor, message in walk(queue):
                    letter = chosen.get((source, message.id))
                    if letter is not None:
                        try:
                            forwarding.send_back(cursor, message)
                        except ConnectionError as error:
                            which = f"after {len(done)} of {len(chosen)} dead letters"
                            raise PipelineError(f"{which}: {error}; run it again for the rest") from error
                        except (MsmqError, ValueError) as error:  # of this one
                            letter.error = str(error)
                        done.append(letter)
    return done


def _chosen(spark: SparkSession, server: Server, where: str | None) -> DataFrame:
    try:
        first, second = (server.read(spark, source=source, includeBody="false") for source in SOURCES)
    except Exception as error:
        raise failure(error) from error
    return restricted(first.unionByName(second), where)


def _aspects(now: datetime) -> dict[str, tuple[Column, Callable[[Any], str]]]:
    """By what is counted, and how a value is called."""
    age = F.lit(int(now.timestamp())) - F.unix_timestamp("arrival_time")
    band = F.lit(_OLDEST)
    for below, name in reversed(_AGES):
        band = F.when(age < below, name).otherwise(band)
    return {
        "class": (F.col("class"), class_name),
        "destination": (F.col("destination_queue"), lambda value: value or "(none)"),
        "sender": (F.col("sender_id"), lambda value: _sender(bytes(value)) if value else "(anonymous)"),
        "label": (F.col("label"), lambda value: value or "(empty)"),
        "age": (band, str),
    }


def _table(frame: DataFrame, column: Column, name: Callable[[Any], str]) -> list[Count]:
    counted = frame.groupBy(column.alias("value")).agg(
        F.count(F.lit(1)).alias("messages"),
        F.sum("body_size").alias("bytes"),
        F.unix_timestamp(F.max("arrival_time")).alias("last"),
    )
    rows = counted.orderBy(F.desc("messages"), "value").collect()
    counts = [
        Count(name(row["value"]), row["messages"], row["bytes"], datetime.fromtimestamp(row["last"], UTC))
        for row in rows
    ]
    rest = counts[_ANSWERS:]
    if rest:
        others = Count(OTHERS, sum(c.messages for c in rest), sum(c.bytes for c in rest), max(c.last for c in rest))
        return [*counts[:_ANSWERS], others]
    return counts


def _sender(identifier: bytes) -> str:
    try:
        return sid_text(identifier)
    except (ValueError, IndexError):
        return identifier.hex()
