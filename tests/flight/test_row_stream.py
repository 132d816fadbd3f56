"""An upload whose refused rows are collected, with a scripted server."""

from __future__ import annotations

import json
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pyarrow as pa
import pytest

from openmsmq.bulk import row_stream
from openmsmq.bulk.row_stream import RowStream

BATCH = pa.record_batch({"body": pa.array([bytes(1000)] * 10)})


class ScriptedServer:
    """Both sides of an upload; `on_batch` gets the number of rows sent so far."""

    def __init__(self, on_batch: Callable[[int], None]) -> None:
        self.rows, self._on_batch = 0, on_batch
        self._replies: SimpleQueue[Any] = SimpleQueue()

    def reply(self, through: int) -> None:
        self._replies.put({"through": through, "refused": []})

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self._on_batch(self.rows)

    def done_writing(self) -> None:
        self._replies.put(None)

    def close(self) -> None: ...

    def read(self) -> Any:
        reply = self._replies.get()
        return None if reply is None else pa.py_buffer(json.dumps(reply).encode())


def test_a_writer_waits_for_the_results_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server replies only when it has more than the writer may send without a reply."""
    monkeypatch.setattr(row_stream, "_MOST_UNANSWERED", 5 * BATCH.nbytes)
    monkeypatch.setattr(row_stream, "_PATIENCE", 30.0)
    known = 0

    def one(rows: int) -> None:
        assert rows - known <= 60, "five batches, and the one that is being sent"
        if rows - known == 60:
            server.reply(known + 10)

    def collect(through: int, refused: list[Any]) -> None:
        nonlocal known
        known = through

    server = ScriptedServer(one)
    stream = RowStream(lambda: (server, server), collect, AssertionError)
    for _ in range(100):
        stream.write(BATCH)
    stream.abandon()
    assert known == 950


def test_a_server_that_needs_more_rows_before_it_reports_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_stream, "_MOST_UNANSWERED", BATCH.nbytes)
    monkeypatch.setattr(row_stream, "_PATIENCE", 0.01)
    server = ScriptedServer(lambda rows: None)
    stream = RowStream(lambda: (server, server), lambda through, refused: None, AssertionError)
    for _ in range(5):
        stream.write(BATCH)
    stream.abandon()
    assert server.rows == 50
