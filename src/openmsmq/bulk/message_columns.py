"""Columns of messages for bulk reads and writes.

Only types that Spark supports are used: no unsigned integers, no fixed-size binary; timestamps are microseconds in UTC.
Every field is nullable in Arrow, because readers compare schemas exactly and Spark's fields are nullable; `Column.null`
says when a value is null.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

SOURCES = ("queue", "journal", "deadletter", "xactdeadletter", "outgoing")
"""Readable sources: a queue, the journal of a queue (or of the machine, if no queue is named), the two dead-letter
queues of the machine, an outgoing queue."""

_TIME = pa.timestamp("us", tz="UTC")


class Column(NamedTuple):
    """One column.

    Attributes:
        name: name of the column.
        type: Arrow type.
        meaning: description in one line.
        null: when the value is null in reads; empty for never.
        default: value if a writer omits the column or passes null; None for columns that cannot be written.
    """

    name: str
    type: pa.DataType
    meaning: str
    null: str = ""
    default: str | None = None


COLUMNS = (
    Column("queue", pa.string(), "path name of the queue; of an outgoing queue its format name"),
    Column("source", pa.string(), "queue, journal, deadletter, xactdeadletter or outgoing"),
    Column("sequence", pa.int64(), "position: a 56-bit number that increases over the whole queue manager"),
    Column("lookup_id", pa.int64(), "lookup identifier: 7 - priority in the upper byte, the sequence below"),
    Column("message_id", pa.string(), "identifier, {guid}\\number"),
    Column("correlation_id", pa.string(), "identifier, {guid}\\number", "all zero", "none"),
    Column("sent_time", _TIME, "when it was sent, to the second"),
    Column("arrival_time", _TIME, "when it came into this queue, to the second"),
    Column("class", pa.int32(), "message class: 0 for what applications send, others for acknowledgments"),
    Column("priority", pa.int32(), "0 to 7", "", "3"),
    Column("recoverable", pa.bool_(), "whether it survives a restart of the queue manager", "", "true"),
    Column("label", pa.string(), "up to 249 characters", "", "empty"),
    Column("body", pa.binary(), "the body's bytes", "bodies were not requested", "required"),
    Column("body_type", pa.int32(), "variant type of the body", "", "0"),
    Column("body_size", pa.int64(), "bytes of the body"),
    Column("acknowledgment", pa.int32(), "flags: 1 and 4 arrival, 2 and 8 receiving; positive and negative", "", "0"),
    Column("journaling", pa.int32(), "flags: 1 dead-letter queue, 2 journal", "", "0"),
    Column("application_tag", pa.int64(), "the application's number, 32 bits", "", "0"),
    Column("extension", pa.binary(), "the application's bytes", "there are none", "empty"),
    Column("time_to_reach_queue", pa.int64(), "seconds; a written 0 is unlimited", "unlimited", "unlimited"),
    Column("time_to_be_received", pa.int64(), "seconds; a written 0 is unlimited", "unlimited", "unlimited"),
    Column("destination_queue", pa.string(), "format name it was sent to", "there is none", "the sink's queue"),
    Column("response_queue", pa.string(), "format name", "there is none", "none"),
    Column("admin_queue", pa.string(), "format name of the administration queue", "there is none", "none"),
    Column("source_machine", pa.string(), "GUID of the queue manager that it was sent from"),
    Column("sender_id", pa.binary(), "security identifier of the sender", "there is none"),
    Column("sender_id_type", pa.int32(), "what the sender's identifier is"),
    Column("sender_certificate", pa.binary(), "certificate of the sender", "there is none"),
    Column("authenticated", pa.bool_(), "whether its signature was verified"),
    Column("privacy_level", pa.int32(), "0 for a body that is not encrypted"),
    Column("transaction_id", pa.string(), "identifier, {guid}\\number", "not sent in a transaction"),
    Column("first_in_transaction", pa.bool_(), "whether it is the first message of its transaction"),
    Column("last_in_transaction", pa.bool_(), "whether it is the last message of its transaction"),
    Column("abort_count", pa.int32(), "receives and moves that were rolled back"),
    Column("move_count", pa.int32(), "moves between queue and subqueues"),
    Column("last_move_time", _TIME, "when it was moved last, to the second", "never moved"),
)

MESSAGE_SCHEMA = pa.schema([pa.field(column.name, column.type) for column in COLUMNS])
"""Schema of every record batch that is read."""

WRITE_COLUMNS = {column.name: column.type for column in COLUMNS if column.default is not None}
"""Names and types of the columns that can be written, in any order. Only `body` is required. `destination_queue` is the
path name or format name of the destination of a row."""

END_OF_ROWS = b"end"
"""Metadata that marks the end of the rows of a stage. The end of the stream is not sufficient: it may be due to a
failure of the writer."""
