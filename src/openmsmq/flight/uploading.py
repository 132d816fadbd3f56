"""Upload the rows of one `do_put` to the daemon in chunks, and report refused rows meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pyarrow as pa

from openmsmq.flight.rows import NOTHING, Encoded, RowEncoder, checked_schema, fail
from openmsmq.model.errors import MsmqError, error_for
from openmsmq.processes.flight_requests import check
from openmsmq.processes.link import Answer, DaemonLink

_ENCODED = 2048  # rows encoded at a time
_CHUNK = 512  # rows stored by the daemon at a time
_CHUNK_BYTES = 1 << 20
_IN_FLIGHT = 8  # chunks waiting for their sync


def staged(
    link: DaemonLink,
    caller: list[str] | None,
    command: dict[str, Any],
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    report: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Stage rows for a checked request `write` of `flight_requests`. A stage that fails is dropped.

    Args:
        link, caller: as for `RangeReading`.
        command: arguments of the request.
        schema: schema of the rows.
        batches: valid rows; an exception raised by the iterator fails the stage.
        report: for a command with `collect`; see `Upload`.

    Returns:
        Handle and number of rows of the stage; see `Upload.run`.
    """
    default = command.pop("default_queue", None)
    checked_schema(schema)
    begun = link.call("begin_stage", caller=caller, **command)
    handle: str | None = begun["handle"]
    try:
        assert handle is not None
        upload = Upload(link, caller, handle, report if command.get("collect") else None)
        encoder = RowEncoder(upload.target, default, bytes.fromhex(begun["sender"]), upload.refuse)
        answer = upload.run(encoder, batches)
        handle = None
        return answer
    finally:
        if handle is not None:
            link.call("drop_stage", caller=caller, stage=handle)


class Upload:
    """A stage being written.

    The encoder or the daemon calls `refuse` for a row that cannot be sent. That fails the upload, unless refused rows
    are collected: then those before the row `through` are reported to the writer, in row order.
    """

    def __init__(
        self, link: DaemonLink, caller: list[str] | None, handle: str, report: Callable[[dict[str, Any]], None] | None
    ) -> None:
        """`report` gets `{"through": number, "refused": [[number, HRESULT, detail], ...]}` while rows arrive. If None,
        the first refused row fails the upload by raising its MsmqError."""
        self._link, self._caller, self._handle = link, caller, handle
        self._report = report
        self._refused: list[tuple[int, int, str]] = []
        self._asked: deque[tuple[Encoded, Future[Answer]]] = deque()
        self._through = 0

    def target(self, queue: str) -> tuple[int, str] | MsmqError:
        """Return index and format name of a queue that rows name, or the error with which they are refused."""
        try:
            values = check("target", {"stage": self._handle, "queue": queue})
        except MsmqError as error:
            return error
        found = self._link.call("target", caller=self._caller, **values)
        if "refused" in found:
            return error_for(*found["refused"])
        return found["index"], found["name"]

    def refuse(self, row: int, error: MsmqError) -> None:
        """Refuse a row that cannot be sent."""
        if self._report is None:
            fail(row, error)
        self._refused.append((row, error.hresult, error.detail))

    def run(self, encoder: RowEncoder, batches: Iterable[pa.RecordBatch]) -> dict[str, Any]:
        """Stage all rows. The final chunk is marked as the last.

        Returns:
            Handle and number of rows of the stage, and the unreported refusals in the form of `report`.
        """
        held = NOTHING
        for batch in batches:
            for start in range(0, batch.num_rows, _ENCODED):
                pieces = list(_pieces(encoder.encode(batch.slice(start, _ENCODED))))
                for chunk in pieces:
                    if len(held):
                        self._send(held, False)
                    held = chunk
                if self._report is not None:
                    if not pieces and len(held):  # while all rows are refused, it would wait, and with it the reports
                        self._send(held, False)
                        held = NOTHING
                    self._report_progress(held, encoder.rows)
        self._send(held, True)
        while self._asked:
            staged = self._answer()
        return {"handle": staged["handle"], "rows": staged["rows"], **self._take_refused(encoder.rows)}

    def _send(self, chunk: Encoded, last: bool) -> None:
        if len(self._asked) >= _IN_FLIGHT:
            self._answer()
        columns = chunk.targets.tobytes() + chunk.sizes.tobytes()
        values = {"stage": self._handle, "count": len(chunk), "last": last}
        self._asked.append((chunk, self._link.ask("stage", columns, chunk.records, caller=self._caller, **values)))

    def _report_progress(self, held: Encoded, encoded: int) -> None:
        while self._asked and self._asked[0][1].done():
            self._answer()
        waiting = [chunk for chunk in (*(chunk for chunk, _ in self._asked), held) if len(chunk)]
        through = int(waiting[0].rows[0]) if waiting else encoded
        if through > self._through and self._report is not None:
            self._through = through
            self._report(self._take_refused(through))

    def _answer(self) -> dict[str, Any]:
        """Return the reply to the chunk that has waited longest."""
        chunk, future = self._asked.popleft()
        answer: dict[str, Any] = future.result()[0]
        for place, hresult, detail in answer["refused"]:
            self.refuse(int(chunk.rows[place]), error_for(hresult, detail))
        return answer

    def _take_refused(self, through: int) -> dict[str, Any]:
        """Remove and return the refused rows before the row `through`, to be reported now."""
        refused = sorted(self._refused)
        ready = [row for row in refused if row[0] < through]
        self._refused = refused[len(ready) :]
        return {"through": through, "refused": ready}


def _pieces(rows: Encoded) -> Iterator[Encoded]:
    """Yield rows in portions small enough not to block the daemon's event loop for long."""
    start = 0
    while start < len(rows):
        fitting = int(np.searchsorted(rows.bounds, rows.bounds[start] + _CHUNK_BYTES, "right")) - 1
        end = max(start + 1, min(start + _CHUNK, fitting, len(rows)))
        yield rows.part(start, end)
        start = end
