"""Client side of an upload: sends rows to a stage and reads the server's replies meanwhile."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final

import pyarrow as pa
import pyarrow.flight as flight

from openmsmq.bulk.message_columns import END_OF_ROWS
from openmsmq.model.errors import MsmqError, error_for

FAILURES = (flight.FlightError, pa.ArrowException, OSError)
_MOST_UNANSWERED: Final = 32 << 20  # bytes of rows whose result is unknown; with more, a writer that collects waits
_PATIENCE: Final = 1.0  # seconds; the server may need more rows before it reports the next ones


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row that cannot be sent: its number among all rows of the stage, and the reason."""

    row: int
    error: MsmqError


@dataclass(frozen=True, slots=True)
class Staged:
    """Messages that are stored, but not visible before `finalize` is called with their `handle`."""

    handle: str
    rows: int


class RowStream:
    """Sends rows to a stage. The server's replies are read concurrently; otherwise, both sides could wait for each
    other."""

    def __init__(
        self,
        call: Callable[[], tuple[flight.FlightStreamWriter, flight.FlightMetadataReader]],
        collect: Callable[[int, list[Refusal]], None] | None,
        translated: Callable[[BaseException], Exception],
    ) -> None:
        self._translated, self._collect = translated, collect
        self.staged: Staged | None = None
        try:
            self._writer, self._answers = call()
        except FAILURES as error:
            raise translated(error) from error
        self._replies: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._rows = self._bytes = 0  # rows sent; bytes of those without a reply
        self._unanswered: Final[deque[tuple[int, int]]] = deque()  # number of the row after a batch, and its bytes
        self._listener = threading.Thread(target=self._listen, name="upload replies", daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        with suppress(*FAILURES):  # closing the stream raises the reason
            while (answer := self._answers.read()) is not None:
                reply = json.loads(answer.to_pybytes())
                if "handle" in reply:  # the last reply
                    self.staged = Staged(reply["handle"], reply["rows"])
                self._replies.put(reply)

    def write(self, batch: pa.RecordBatch) -> None:
        try:
            self._writer.write_batch(batch)
        except FAILURES as error:
            raise self._failure(error) from error
        if self._collect is not None:
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
            self._unanswered.append((self._rows, batch.nbytes))
        self._process_replies()
        while self._bytes > _MOST_UNANSWERED and self._process_replies(_PATIENCE):
            pass

    def finish(self) -> Staged:
        """Finish the stage after all rows were written."""
        try:
            self._writer.write_metadata(END_OF_ROWS)
            self._close()
        except FAILURES as error:
            raise self._failure(error) from error
        self._process_replies()
        if self.staged is None:
            raise self._translated(ConnectionError("the server closed the stream without a final reply"))
        return self.staged

    def abandon(self) -> None:
        """Abandon the stage: without the end-of-data marker, the server drops it."""
        with suppress(*FAILURES):
            self._close()

    def _close(self) -> None:
        """Close the stream. Raises the server's error. Closing during a read can block forever, so reading ends
        first."""
        with suppress(*FAILURES):
            self._writer.done_writing()
        self._listener.join()
        self._writer.close()

    def _failure(self, error: BaseException) -> Exception:
        """Return the error that the server reported: a failed write only shows that the stream has ended; closing it
        returns the reason."""
        if not getattr(error, "extra_info", b""):
            try:
                self._close()
            except FAILURES as reported:
                error = reported
        return self._translated(error)

    def _process_replies(self, patience: float = 0) -> bool:
        """Process the replies received so far, and wait up to `patience` seconds for the first. Returns whether there
        was one."""
        found = False
        with suppress(Empty):
            while True:
                reply = self._replies.get(timeout=0 if found else patience)
                found = True
                if self._collect is not None:
                    self._take(reply)
        return found

    def _take(self, reply: dict[str, Any]) -> None:
        """Report a reply to the writer."""
        assert self._collect is not None
        while self._unanswered and self._unanswered[0][0] <= reply["through"]:
            self._bytes -= self._unanswered.popleft()[1]
        refused = [Refusal(row, error_for(hresult, detail)) for row, hresult, detail in reply["refused"]]
        self._collect(reply["through"], refused)
