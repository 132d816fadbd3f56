"""One read: the record batches of a range, independent of the protocol that carries them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from openmsmq.bulk.message_columns import MESSAGE_SCHEMA
from openmsmq.bulk.texts import TEXT, with_text
from openmsmq.flight.record_columns import KEY_COLUMNS, Records, key_columns
from openmsmq.flight.segment_reader import SegmentReader
from openmsmq.flight.slices import SEQUENCE_MASK, SliceReader
from openmsmq.model.errors import IllegalPropertyValue
from openmsmq.processes.flight_requests import check, shown
from openmsmq.processes.link import Answer, DaemonLink

logger = logging.getLogger(__name__)

Caller = list[str] | None


@dataclass(frozen=True, slots=True)
class Portion:
    """A part of a read.

    Attributes:
        rows: record batch with the schema of the read.
        messages: number of messages from which `rows` and `damaged` were selected.
        damaged: lookup identifiers of messages that cannot be decoded and were omitted.
        odd: number of rows whose body is not text, or not JSON, as required by the ticket's `decode`.
    """

    rows: pa.RecordBatch
    messages: int
    damaged: list[int]
    odd: int = 0


class RangeReading:
    """The messages that a ticket requests."""

    def __init__(self, link: DaemonLink, layout: dict[str, Any], caller: Caller, ticket: dict[str, Any]) -> None:
        """
        Args:
            link: channel to the daemon, which decides what the caller may read.
            layout: layout of the store, as described by the daemon.
            caller: the caller, as authenticated by the daemon.
            ticket: arguments of the request `read` of `flight_requests`.

        Raises:
            MsmqError: the ticket is malformed, or refused.
        """
        values = check("read", ticket)
        self._decode: str | None = values.pop("decode", None)
        columns = MESSAGE_SCHEMA if self._decode is None else MESSAGE_SCHEMA.append(TEXT)
        names = values.pop("columns", None) or columns.names
        unknown = [name for name in names if name not in columns.names]
        if unknown:
            raise IllegalPropertyValue(
                detail=f"columns {', '.join(map(shown, unknown))}: there are {', '.join(columns.names)}"
            )
        self.schema = pa.schema([columns.field(name) for name in names])
        stored = [name for name in names if name != TEXT.name]
        self._decodes = len(stored) < len(names)
        self._stored = list(dict.fromkeys([*stored, "body", "body_type"])) if self._decodes else stored
        self._include_body = values.pop("include_body", True)
        self._arrived_from: int = values.pop("arrived_from", 0)
        self._arrived_until: int | None = values.pop("arrived_until", None)
        self._link, self._layout = link, layout
        self._query = {"caller": caller, "queue": "", "source": "queue", "start": 0, **values}
        self._asked = self._slice(self._query)
        self._asked.result()  # a refusal must come before the stream begins

    def _slice(self, query: dict[str, Any]) -> Future[Answer]:
        return self._link.ask("slice", **query)

    def portions(self) -> Iterator[Portion]:
        """Yield slice by slice. Only the next one is requested while one is read and sent: that is the backpressure."""
        query = self._query
        where = {name: query[name] for name in ("caller", "queue", "source")}

        def locate(keys: bytes) -> memoryview:
            return self._link.ask("locate", keys, **where).result()[1]

        needs_no_records = KEY_COLUMNS.issuperset(self.schema.names) and not self._selects
        reader = SliceReader(SegmentReader(**self._layout), locate)
        asked = self._asked
        try:
            while True:
                values, data = asked.result()
                count = values["count"]
                if not count:
                    return
                keys = np.frombuffer(data, np.uint64, count)
                last = int(keys[-1] & SEQUENCE_MASK)
                asked = self._slice({**query, "start": last, "end": values["end"]})
                if needs_no_records:
                    rows = key_columns(keys, values["path"], values["source"], self.schema.names)
                    yield Portion(rows, count, [])
                else:
                    yield self._portion(reader, keys, data, values)
        finally:
            reader.close()

    @property
    def _selects(self) -> bool:
        return self._arrived_from > 0 or self._arrived_until is not None

    def _portion(self, reader: SliceReader, keys: Any, data: memoryview, values: dict[str, Any]) -> Portion:
        path, source = values["path"], values["source"]
        found = reader.read(keys, data)
        records = Records(
            found.keys, found.buffer, found.starts, found.sizes, path, source, self._include_body, values["aborts"]
        )
        damaged = [*found.damaged.tolist(), *records.damaged.tolist()]
        for key in damaged:
            logger.error(
                "queue %s: message %#x can't be decoded and was skipped in a stream; receive it by lookup id to "
                "remove it", path or source, key,
            )  # fmt: skip
        odd = 0
        rows = pa.RecordBatch.from_pylist([], self.schema)
        if records:
            rows = records.batch(self._stored)
            if self._selects:
                rows = rows.filter(pa.array(self._selected(records.fixed["arrival_time"])))
            if self._decodes:
                assert self._decode is not None
                decoded, odd = with_text(rows, self._decode)
                rows = decoded.select(self.schema.names)
        return Portion(rows, len(records) + len(damaged), damaged, odd)

    def _selected(self, times: Any) -> Any:
        """Return a mask of the arrival times, in seconds, that are within the limits of the ticket."""
        selected = times >= self._arrived_from
        return selected if self._arrived_until is None else selected & (times <= self._arrived_until)
