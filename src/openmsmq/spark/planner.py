"""The connector's planner: a child process of the driver that serves the JVM with the code of the Python source.

The connector (connector/) moves rows from the queue manager to Spark. The planner decides which rows: options, columns,
filters, partitions, offsets and commits are those of `reading` and `streaming`, so a query can switch between the two.
Requests and replies are lines of JSON on standard input and output. A process handles one request at a time and keeps
the reader of at most one stream.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from openmsmq.bulk.client import BulkClient
from openmsmq.model.errors import MsmqError
from openmsmq.spark.hosts import divided
from openmsmq.spark.options import (
    BATCH_READ,
    BATCH_WRITE,
    STREAM_READ,
    STREAM_WRITE,
    DataSourceOptions,
    OptionError,
    parse,
)
from openmsmq.spark.plane import flight
from openmsmq.spark.probing import listens
from openmsmq.spark.reading import DataLoss, Fetching, MsmqReader, QueueRange
from openmsmq.spark.schema import ColumnError
from openmsmq.spark.source import MsmqDataSource
from openmsmq.spark.streaming import MsmqStreamReader
from openmsmq.spark.writing import MsmqStreamWriter, MsmqWriter

_FILTERS: Mapping[str, Callable[..., Filter]] = {
    "=": EqualTo, "<=>": EqualNullSafe, ">": GreaterThan, ">=": GreaterThanOrEqual, "<": LessThan,
    "<=": LessThanOrEqual, "IN": In, "IS_NULL": IsNull, "IS_NOT_NULL": IsNotNull, "STARTS_WITH": StringStartsWith,
    "ENDS_WITH": StringEndsWith, "CONTAINS": StringContains,
}  # fmt: skip
"""Names of predicates in Spark's JVM."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Planner:
    """Request handlers: each public method is a request, with its arguments as decoded from JSON."""

    def __init__(self) -> None:
        self._stream: MsmqStreamReader | None = None

    # -- tables ------------------------------------------------------------------------------------------------------

    def schema(self, options: dict[str, str]) -> Any:
        """Return the columns of a table as a Spark schema in JSON."""
        return MsmqDataSource(options).schema().jsonValue()

    def suits(self, options: dict[str, str]) -> str:
        """Return why the Python source must read these queues; empty if the connector can."""
        lower = {name.lower(): value for name, value in options.items()}
        if lower.get("protocol", "auto").lower() == "remoteread":
            return "protocol=remoteread"
        decodes = lower.get("decode", "none").lower() != "none"
        given = {name: lower[name] for name in _CONNECTION if name in lower}
        reached = parse({**given, "queue": "any"}, BATCH_READ)
        for host in reached.hosts:
            if listens(host, reached.flightPort):
                if _arrow_port(reached, host, "decode" if decodes else ""):
                    return ""
                return f"{host} serves no Arrow streams" + decodes * " that have the column text"
        return f"no Arrow Flight at {reached.host}, port {reached.flightPort}"

    # -- batch reads -------------------------------------------------------------------------------------------------

    def filters(self, options: dict[str, str], schema: str, filters: list[Any]) -> list[bool]:
        """Return the filters that every row will satisfy, so that Spark need not apply them. Does not connect."""
        reader = self._reader(options, schema)
        return [_take(reader, given) for given in filters]

    def ends(self, options: dict[str, str], schema: str) -> dict[str, int]:
        """Return the current ends of the queues of a batch read. Spark plans a table again for each action, and all
        actions must see the same messages."""
        return self._reader(options, schema).last_positions()

    def partitions(
        self, options: dict[str, str], schema: str, filters: list[Any], ends: dict[str, int], limit: int | None
    ) -> list[dict[str, Any]]:
        """Return the partitions of a batch read; with `limit`, only as many as that number of rows needs."""
        reader = self._filtered(options, schema, filters, ends)
        return self._tickets(reader, _limited(reader, limit), reader.options.failOnDataLoss is True)

    def count(self, options: dict[str, str], schema: str, filters: list[Any], ends: dict[str, int]) -> int:
        """Return the number of rows of a batch read, according to its plan."""
        reader = self._filtered(options, schema, filters, ends)
        return sum(part.count for part in reader.partitions() if isinstance(part, QueueRange))

    def _filtered(self, options: dict[str, str], schema: str, filters: list[Any], ends: dict[str, int]) -> MsmqReader:
        reader = self._reader(options, schema)
        reader.ends = ends
        for given in filters:
            _take(reader, given)
        return reader

    def _reader(self, options: dict[str, str], schema: str) -> MsmqReader:
        return MsmqReader(parse(options, BATCH_READ), _columns(schema), True)

    # -- streams -----------------------------------------------------------------------------------------------------

    def stream(self, options: dict[str, str], schema: str) -> None:
        """Begin a stream, to which the other stream requests refer."""
        self._stream = MsmqStreamReader(parse(options, STREAM_READ), _columns(schema), True)

    @property
    def _streaming(self) -> MsmqStreamReader:
        if self._stream is None:
            raise RuntimeError("no stream was begun")
        return self._stream

    def initial(self) -> str:
        return json.dumps(self._streaming.initialOffset())

    def limit(self) -> int | None:
        """Return the maximum rows per batch from the options; None for no limit."""
        limit = self._streaming.getDefaultReadLimit()
        return limit.max_rows if isinstance(limit, ReadMaxRows) else None

    def latest(self, start: str, rows: int | None) -> str:
        limit: ReadLimit = ReadAllAvailable() if rows is None else ReadMaxRows(rows)
        return json.dumps(self._streaming.latestOffset(json.loads(start), limit))

    def report(self) -> str | None:
        """Return the position of each queue and its number of waiting messages."""
        found = self._streaming.reportLatestOffset()
        return None if found is None else json.dumps(found)

    def available(self) -> None:
        """End the stream with the messages present now (Trigger.AvailableNow)."""
        self._streaming.prepareForTriggerAvailableNow()

    def batch(self, start: str, end: str) -> list[dict[str, Any]]:
        """Return the partitions of a batch of the stream."""
        reader = self._streaming
        parts = reader.partitions(json.loads(start), json.loads(end))
        return self._tickets(reader, parts, reader.options.failOnDataLoss is not False)

    def commit(self, end: str) -> None:
        self._streaming.commit(json.loads(end))

    # -- writes ------------------------------------------------------------------------------------------------------

    def target(self, options: dict[str, str], schema: str, streaming: bool) -> dict[str, Any]:
        """Return the destination of a write: host, port, and the request `write` without batch, partition, attempt and
        query; or the `reason` why the Python sink must write the rows."""
        parsed, columns = parse(options, STREAM_WRITE if streaming else BATCH_WRITE), _columns(schema)
        writer: MsmqStreamWriter | MsmqWriter
        writer = MsmqStreamWriter(parsed, columns) if streaming else MsmqWriter(parsed, columns)
        if parsed.errorPath is not None:
            return {"reason": "option errorPath"}
        if not listens(parsed.host, parsed.flightPort):
            return {"reason": f"no Arrow Flight at {parsed.host}, port {parsed.flightPort}"}
        port = _arrow_port(parsed, parsed.host, "write")
        if port is None:
            return {"reason": f"{parsed.host} does not accept rows in Arrow streams"}
        stage = {"sink": writer.sink, "transactional": parsed.transactional}
        if parsed.defaultQueue is not None:
            stage["default_queue"] = parsed.defaultQueue
        return {"host": parsed.host, "port": port, "stage": stage}

    def finalize(self, options: dict[str, str], sink: str, batch: int, handles: list[str], query: str) -> None:
        """Make the stages of a batch visible. Without `query`, it is the only batch of its sink."""
        with flight(_of_write(options)) as plane:
            plane.finalize(sink, batch, handles, query, once=not query)

    def forget(self, options: dict[str, str], sink: str, handles: list[str]) -> None:
        """Drop stages; finalized stages no longer exist."""
        with flight(_of_write(options)) as plane:
            plane.forget(sink, stages=handles)

    def renew(self, options: dict[str, str], sink: str) -> None:
        """Keep the stages of a sink from expiring."""
        with flight(_of_write(options)) as plane:
            plane.renew(sink)

    # -- details -----------------------------------------------------------------------------------------------------

    def _tickets(self, reader: Fetching, parts: Iterable[InputPartition], fails: bool) -> list[dict[str, Any]]:
        """Return partitions for the JVM: where to connect, the request, and the expected result."""
        options, selected = reader.options, _arrivals(reader)
        decode = {} if options.decode == "none" else {"decode": options.decode}
        ports: dict[str, int | None] = {}
        found = []
        for part in parts:
            assert isinstance(part, QueueRange)
            host, queue = divided(part.queue) if options.has_many_hosts else (options.host, part.queue)
            if host not in ports:
                ports[host] = reader.arrow_port(part.queue)
            if ports[host] is None:
                raise MsmqError(detail=f"{host} does not offer Arrow streams, which the Spark connector requires")
            which = f"of {part.queue or options.source} between {part.start} and {part.end}"
            found.append({
                "host": host, "port": ports[host], "count": part.count, "which": which, "fails": fails,
                "ticket": {
                    "queue": queue, "source": options.source, "start": part.start, "end": part.end,
                    "group": part.group, "token": part.token, "include_body": options.includeBody, **selected, **decode,
                },
            })  # fmt: skip
        return found


def _columns(schema: str) -> StructType:
    return StructType.fromJson(json.loads(schema))


def _of_write(options: dict[str, str]) -> DataSourceOptions:
    """Return the options of a write, already checked by `target`."""
    return parse(options, BATCH_WRITE)


def _arrow_port(options: DataSourceOptions, host: str, ability: str = "") -> int | None:
    with BulkClient(host, options.flightPort, options.user, options.password, options.roots) as client:
        return client.arrow_port(ability)


# Errors whose message needs no traceback.
_PLAIN = (OptionError, ColumnError, DataLoss, MsmqError, ConnectionError)
_CONNECTION = ("host", "flightport", "tlsroot", "user", "credential", "retryseconds")


def _limited(reader: MsmqReader, limit: int | None) -> list[QueueRange]:
    """Return the first partitions with `limit` messages; all without a limit, or if the server selects messages."""
    parts = [part for part in reader.partitions() if isinstance(part, QueueRange)]
    if limit is None or _arrivals(reader):
        return parts
    before = accumulate((part.count for part in parts), initial=0)
    return [part for part, messages in zip(parts, before, strict=False) if messages < limit]


def _filter(given: Mapping[str, Any]) -> Filter | None:
    """Convert a predicate of the JVM to PySpark's; None for an unsupported one."""
    kind = given["kind"]
    if kind == "NOT":
        inner = _filter(given["child"])
        return None if inner is None else Not(inner)
    maker = _FILTERS.get(kind)
    if maker is None:
        return None
    try:
        values = [_value(one) for one in given["values"]]
    except OverflowError:
        return None
    arguments: list[Any] = [tuple(values)] if maker is In else values
    return maker((given["column"],), *arguments)


def _value(given: Any) -> Any:
    """Convert a literal; a time is encoded as `{"time": microseconds since 1970}`. Raises OverflowError for a time
    outside the years 1 to 9999, which Spark has, but Python does not."""
    return _EPOCH + timedelta(microseconds=given["time"]) if isinstance(given, dict) else given


def _take(reader: MsmqReader, given: Mapping[str, Any]) -> bool:
    """Apply a filter to the plan. Return whether all remaining rows satisfy it."""
    condition = _filter(given)
    return condition is not None and reader.selection.take(condition) and reader.selection.is_planned(condition)


def _arrivals(reader: Fetching) -> dict[str, int]:
    """Return the fields of a ticket that select messages by time of arrival."""
    after, until = reader.selection.arrivals()
    return {name: value for name, value in (("arrived_from", after), ("arrived_until", until)) if value is not None}


def answer(planner: Planner, line: str) -> dict[str, Any]:
    """Execute a request: `{"call": method, ...arguments}`."""
    values = json.loads(line)
    name = values.pop("call")
    method: Callable[..., Any] | None = None if name.startswith("_") else getattr(planner, name, None)
    try:
        if method is None:
            raise RuntimeError(f"no request {name!r}")
        return {"result": method(**values)}
    except _PLAIN as error:
        return {"error": f"{type(error).__name__}: {error}"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}\n{traceback.format_exc()}"}


def main() -> None:
    """Answer requests until the JVM ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of a library must not look like a reply
    requests = os.fdopen(0, encoding="utf-8", closefd=False)  # in any locale
    planner = Planner()
    for line in requests:
        answers.write(json.dumps(answer(planner, line)) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
