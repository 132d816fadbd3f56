"""Send the messages of an archive to a queue, with their properties."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from openmsmq.bulk.message_columns import WRITE_COLUMNS
from openmsmq.client.sync import QueueManager
from openmsmq.model.constants import INFINITE
from openmsmq.model.errors import MsmqError, QueueNotFound
from openmsmq.model.message import NULL_IDENTIFIER, Message, identifier_from_text
from openmsmq.model.queue_names import full_name
from openmsmq.spark.jobs.archived import read_archive
from openmsmq.spark.jobs.location import Server
from openmsmq.spark.jobs.session import PipelineError, failure, restricted
from openmsmq.spark.options import BATCH_WRITE

# Two queue managers may have used the same sequence number.
_ORDER = ("sequence", "message_id")
# The caller determines the destination, not the archived message.
_COLUMNS = [name for name in WRITE_COLUMNS if name != "destination_queue"]


@dataclass(frozen=True, slots=True)
class Replayed:
    """The number of messages sent (with `dry_run`: to be sent), and the method: `flight`, in one transaction, or `rpc`,
    one by one."""

    rows: int
    way: str


def selection(spark: SparkSession, directory: str, where: str | None = None) -> DataFrame:
    """Return the messages of an archive selected by a Spark SQL expression over its columns. Raises PipelineError."""
    return restricted(read_archive(spark, directory), where)


def replay(
    spark: SparkSession,
    server: Server,
    directory: str,
    to: str,
    *,
    where: str | None = None,
    rate: float | None = None,
    on_sent: Callable[[int], None] | None = None,
) -> Replayed:
    """Send the messages of an archive to a queue, in the order in which they arrived.

    With Arrow Flight, they are sent in one transaction: all or none. With `rate`, or without Flight, they are sent one
    by one; after a failure, the messages before it have been sent.

    Args:
        spark: the session.
        server: the queue manager.
        directory: directory of the archive.
        to: path name or format name of the queue.
        where: Spark SQL expression over the columns of the archive.
        rate: maximum number of messages per second.
        on_sent: called with the number of messages sent.

    Raises:
        PipelineError: has the cause and the number of messages sent before.
    """
    frame = selection(spark, directory, where)
    if rate is not None and rate <= 0:
        raise PipelineError(f"rate is {rate:g}, allowed: more than 0 messages per second")
    if rate is None and server.has_flight:
        rows = frame.count()
        # Sequence numbers are assigned when rows are staged, so only a single task preserves the order.
        ordered = frame.repartition(1).sortWithinPartitions("sequence")
        writer = ordered.select(*_COLUMNS).write.format("msmq").mode("append").options(**server.options(BATCH_WRITE))
        try:
            writer.option("defaultQueue", to).save()
        except Exception as error:
            raise failure(error) from error
        if on_sent is not None:
            on_sent(rows)
        return Replayed(rows, "flight")
    with server.connect() as qm:
        return Replayed(_send_rows(qm, frame, where, full_name(to), rate, on_sent), "rpc")


def _send_rows(
    qm: QueueManager,
    frame: DataFrame,
    where: str | None,
    to: str,
    rate: float | None,
    on_sent: Callable[[int], None] | None,
) -> int:
    transactional = _is_transactional(qm, to)
    sent, due = 0, 0.0
    last: tuple[int, str] | None = None
    try:
        with qm.open(to, "send") as queue:
            for row in frame.orderBy(*_ORDER).toLocalIterator(prefetchPartitions=True):
                values = row.asDict()
                message = message_of(values)
                if rate is not None:
                    time.sleep(max(0.0, due - time.monotonic()))
                    due = time.monotonic() + 1 / rate  # relative to now: delays are not compensated by a higher rate
                if transactional:
                    with qm.transaction() as transaction:
                        queue.send(message, transaction=transaction)
                else:
                    queue.send(message)
                sent, last = sent + 1, (values["sequence"], values["message_id"] or "")
                if on_sent is not None:
                    on_sent(sent)
    except (MsmqError, OSError, ValueError) as error:
        rest = "" if last is None else f"; send the rest with --where {shlex.quote(_rest(where, *last))}"
        raise PipelineError(f"after {sent} messages: {error}{rest}") from error
    return sent


def _rest(where: str | None, sequence: int, identifier: str) -> str:
    """Return the expression that selects the messages of `where` that follow one in the order of replay."""
    literal = identifier.replace("\\", "\\\\").replace("'", "\\'")  # as Spark's parser reads it
    after = f"sequence > {sequence} OR sequence = {sequence} AND message_id > '{literal}'"
    return f"({where}) AND ({after})" if where else after


def message_of(row: Mapping[str, Any]) -> Message:
    """Return the message for the WRITE_COLUMNS of a row. Raises ValueError."""
    return Message(
        body=bytes(row["body"]),
        body_type=row["body_type"] or 0,
        label=row["label"] or "",
        priority=3 if row["priority"] is None else row["priority"],
        delivery_guarantee=int(row["recoverable"] is not False),
        acknowledgements_requested=row["acknowledgment"] or 0,
        journaling_requested=row["journaling"] or 0,
        application_tag=row["application_tag"] or 0,
        extension=bytes(row["extension"] or b""),
        time_to_reach_queue=INFINITE if row["time_to_reach_queue"] is None else row["time_to_reach_queue"],
        time_to_be_received=INFINITE if row["time_to_be_received"] is None else row["time_to_be_received"],
        response_queue_format_name=row["response_queue"] or "",
        administration_queue_format_name=row["admin_queue"] or "",
        correlation_identifier=identifier_from_text(row["correlation_id"])
        if row["correlation_id"]
        else NULL_IDENTIFIER,
    )


def _is_transactional(qm: QueueManager, queue: str) -> bool:
    try:
        return bool(qm.management(queue)["transactional"] == "YES")
    except QueueNotFound:  # on another machine, or missing; then opening it fails
        return False
