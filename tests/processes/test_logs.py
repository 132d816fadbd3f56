from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable

import pytest

from openmsmq.processes.logs import FORMAT, JsonFormatter, PrintableFormatter, RepetitionFilter

HOSTILE = "x\x1b[2J\n2026-01-01 00:00:00,000 CRITICAL openmsmq: forged \u202e"


def record(message, *arguments, exc_info=None):
    return logging.LogRecord("openmsmq.test", logging.WARNING, "f", 1, message, arguments, exc_info)


def test_a_record_is_one_line_whatever_a_peer_puts_into_it():
    line = PrintableFormatter(FORMAT).format(record("queue %s is full", HOSTILE))
    assert "\n" not in line and "\x1b" not in line and "\u202e" not in line
    assert r"queue x\x1b[2J\n2026" in line


def test_a_traceback_keeps_its_lines_and_its_text_cannot_look_like_a_record():
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        text = PrintableFormatter(FORMAT).format(record("failed", exc_info=sys.exc_info()))
    head, *trace = text.split("\n")
    assert head.endswith("failed") and "Traceback" in trace[0]
    assert all(line.startswith("  ") for line in trace)
    assert "\x1b" not in text


def test_a_record_in_json_is_one_line_with_all_that_it_says():
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        line = JsonFormatter().format(record("queue %s failed", HOSTILE, exc_info=sys.exc_info()))
    assert line.isprintable()
    document = json.loads(line)
    assert (document["level"], document["logger"]) == ("warning", "openmsmq.test")
    assert document["message"] == f"queue {HOSTILE} failed" and HOSTILE in document["trace"]
    assert document["time"].endswith("Z") and len(document["time"]) == len("2026-11-22T22:00:00.000Z")


class Repetitions:
    """A filter with a clock and timers of its own, and what it logs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.logged: list[str] = []
        self.filter = RepetitionFilter(lambda: self.now, self._later, most, 10)
        monkeypatch.setattr(logging.getLogger("openmsmq.test"), "handle", self.handle)

    def handle(self, record: logging.LogRecord) -> bool:
        passes = self.filter.filter(record)
        if passes:
            self.logged.append(record.getMessage())
        return passes

    def log(self, text: str, *arguments: object) -> bool:
        return self.handle(record(text, *arguments))

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self.timers.append((self.now + seconds, call))

    def wait(self, until: float) -> None:
        self.now = until
        due = [call for at, call in self.timers if at <= until]
        self.timers = [(at, call) for at, call in self.timers if at > until]
        for call in due:
            call()


def test_records_of_one_kind_are_bounded_and_what_is_left_out_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    repetitions = Repetitions(monkeypatch, most=3)
    assert [repetitions.log("queue %s is full", n) for n in range(6)] == [True] * 3 + [False] * 3
    assert repetitions.log("queue %s is gone", 1)
    critical = logging.LogRecord("openmsmq.test", logging.CRITICAL, "f", 1, "the store has failed", (), None)
    assert all(repetitions.filter.filter(critical) for _ in range(10))
    del repetitions.logged[:]
    repetitions.wait(9.9)
    assert repetitions.logged == []
    repetitions.wait(10.0)  # without a later record
    assert repetitions.logged == ["queue 5 is full (2 more records like this one were left out)"]
    assert [repetitions.log("queue %s is full", n) for n in range(4)] == [True] * 3 + [False]
    repetitions.wait(20.0)
    assert repetitions.logged[-1] == "queue 3 is full"


def test_what_is_left_out_is_counted_when_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    repetitions = Repetitions(monkeypatch, most=1)
    for n in range(5):
        repetitions.log("queue %s is full", n)
    repetitions.filter.tell()
    assert repetitions.logged == ["queue 0 is full", "queue 4 is full (3 more records like this one were left out)"]
    repetitions.wait(10.0)
    assert len(repetitions.logged) == 2
