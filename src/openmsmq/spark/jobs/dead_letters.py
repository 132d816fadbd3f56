"""Count dead letters by reason and other properties, and return them to their destination queues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from openmsmq.client.dead_letters import DEAD_LETTER_QUEUES, Forwarding, SentLimits, walk
from openmsmq.client.open_queue import ProtocolWord
from openmsmq.model.errors import MsmqError
from openmsmq.model.reasons import class_name
from openmsmq.model.security import sid_text
from openmsmq.spark.jobs.location import Server
from openmsmq.spark.jobs.session import PipelineError, failure, restricted

SOURCES = dict(zip(("deadletter", "xactdeadletter"), DEAD_LETTER_QUEUES, strict=True))
_MOST_ROWS = 50  # maximum rows of a table; all others are summed up in one row
_HOUR = 3600
#: Upper bounds of age in seconds, and their names.
_AGES = ((_HOUR, "under an hour"), (24 * _HOUR, "under a day"), (7 * 24 * _HOUR, "under a week"),
         (30 * 24 * _HOUR, "under 30 days"))  # fmt: skip
_OLDEST = "30 days or more"
OTHERS = "(others)"


@dataclass(frozen=True, slots=True)
class Count:
    """A row of a table: number of messages, bytes of their bodies, and when the last one became a dead letter."""

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
    """A dead letter, and the error with which its return failed, or None."""

    id: str
    reason: str
    label: str
    to: str
    error: str | None = None


def dead_letters(spark: SparkSession, server: Server, where: str | None = None) -> DeadLetters:
    """Count the messages in the dead-letter queues. `where` is a Spark SQL expression over the columns. Raises
    PipelineError."""
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
    """Send dead letters to their destination queues, and remove them from the dead-letter queues.

    Args:
        spark: the session.
        server: the queue manager. Its RPC port is required even if dead letters are read through Flight.
        where: Spark SQL expression over the columns; None for all.
        dry_run: return the dead letters without sending them.

    Returns:
        All selected dead letters, with an error if one was not returned, for example because its queue no longer
        exists. Messages that another client has received meanwhile are left out.
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
    lookups = {(row["source"], row["message_id"]): row["lookup_id"] for row in rows}
    if dry_run:
        return list(chosen.values())
    done: list[Returned] = []
    with server.connect() as qm, Forwarding(qm) as forwarding:
        for source in {source for source, _ in chosen}:
            protocol: ProtocolWord = "auto" if source == "deadletter" else "qmcomm"
            name = SOURCES[source]
            with qm.open(name, protocol=protocol) as queue, SentLimits(qm, name, queue.protocol) as limits:
                for cursor, message in walk(queue):
                    letter = chosen.get((source, message.id))
                    if letter is not None:
                        limits.restore(message, lookups[source, message.id])
                        try:
                            forwarding.send_back(cursor, message)
                        except ConnectionError as error:
                            which = f"after {len(done)} of {len(chosen)} dead letters"
                            raise PipelineError(f"{which}: {error}; run it again for the rest") from error
                        except (MsmqError, ValueError) as error:  # concerns only this message
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
    """Return the groupings: name -> column, and function that formats its values."""
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
    rest = counts[_MOST_ROWS:]
    if rest:
        others = Count(OTHERS, sum(c.messages for c in rest), sum(c.bytes for c in rest), max(c.last for c in rest))
        return [*counts[:_MOST_ROWS], others]
    return counts


def _sender(identifier: bytes) -> str:
    try:
        return sid_text(identifier)
    except (ValueError, IndexError):
        return identifier.hex()
