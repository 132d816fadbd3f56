"""The columns of the data source with their Spark types."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from openmsmq.bulk.message_columns import MESSAGE_SCHEMA, WRITE_COLUMNS
from openmsmq.bulk.texts import TEXT

HOST = "host"  # additional column for several hosts
_TYPES: dict[pa.DataType, DataType] = {
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.bool_(): BooleanType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
}


class ColumnError(ValueError):
    """A column is unknown or has another type; the message names it and what is allowed."""


def spark_schema(decode: str, has_many_hosts: bool = False) -> StructType:
    """Return all columns, with the decoded body unless `decode` is none, and the host if there are several."""
    columns = [StructField(column.name, _TYPES[column.type]) for column in MESSAGE_SCHEMA]
    added = [TEXT.name] * (decode != "none") + [HOST] * has_many_hosts
    return StructType(columns + [StructField(name, StringType()) for name in added])


def projection(wanted: StructType, decode: str, has_many_hosts: bool = False) -> list[str]:
    """Return the names of the columns that a user's schema requests. Raises ColumnError."""
    known = {column.name: column.dataType for column in spark_schema(decode, has_many_hosts).fields}
    names = plain_names(wanted.names)
    for name, column in zip(names, wanted.fields, strict=True):
        if name not in known:
            raise ColumnError(f"no column {column.name!r}; there are {', '.join(known)}")
        if column.dataType != known[name]:
            raise ColumnError(
                f"column {column.name!r} is {known[name].simpleString()}, not {column.dataType.simpleString()}"
            )
    return names


def plain_names(given: Sequence[str]) -> list[str]:
    """Return column names as spelled in the tables: in Spark, `BODY` is `body`. Raises ColumnError for a duplicate."""
    names = [name.lower() for name in given]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ColumnError(f"column {twice!r} occurs more than once; the names are case-insensitive")
    return names


def check_writable(given: StructType) -> None:
    """Raise ColumnError for a column that a writer may not set, or that has another type."""
    allowed = {name: _TYPES[kind] for name, kind in WRITE_COLUMNS.items()}
    names = plain_names(given.names)
    if "body" not in names:
        raise ColumnError(f"the column 'body' is missing; also allowed: {', '.join(allowed)}")
    for name, column in zip(names, given.fields, strict=True):
        if name not in allowed:
            raise ColumnError(f"column {column.name!r} can't be written; allowed: {', '.join(allowed)}")
        wanted = allowed[name]
        if column.dataType != wanted and not (name == "body" and isinstance(column.dataType, StringType)):
            raise ColumnError(
                f"column {column.name!r} is {column.dataType.simpleString()}, not {wanted.simpleString()}"
            )
