from __future__ import annotations

import json
import logging
import sys

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


def test_records_of_one_kind_are_bounded_and_what_is_left_out_is_counted():
    now = [0.0]
    repetitions = RepetitionFilter(lambda: now[0], most=3, period=10)
    assert [repetitions.filter(record("queue %s is full", n)) for n in range(5)] == [True] * 3 + [False] * 2
    assert repetitions.filter(record("queue %s is gone", 1))
    now[0] = 10.0
    later = record("queue %s is full", 6)
    assert repetitions.filter(later)
    assert later.getMessage() == "queue 6 is full (2 more records like this one were left out)"
    critical = logging.LogRecord("openmsmq.test", logging.CRITICAL, "f", 1, "the store has failed", (), None)
    assert all(repetitions.filter(critical) for _ in range(10))
