"""Logging of the daemon and its child processes: one line per record, regardless of the text in it from peers and
messages."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from openmsmq.model.text import printable, printable_json

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class PrintableFormatter(logging.Formatter):
    """Escapes control characters. A message is one line; the lines of a traceback are indented, so that the text of an
    exception cannot look like a record."""

    def format(self, record: logging.LogRecord) -> str:
        head = printable(super().format(_without_traces(record)))
        traces = [self.formatException(record.exc_info)] if record.exc_info else []
        traces += [self.formatStack(record.stack_info)] if record.stack_info else []
        lines = [line for trace in traces for line in printable(trace, multiline=True).split("\n")]
        return "\n".join([head, *("  " + line for line in lines)])


class JsonFormatter(logging.Formatter):
    """One JSON document per line: time (UTC), level, logger, message, and traceback."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        document = {
            "time": time, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage(),
        }  # fmt: skip
        if record.exc_info:
            document["trace"] = self.formatException(record.exc_info)
        return printable_json(document)


#: Values of `log_format`.
FORMATTERS: Final[dict[str, Callable[[], logging.Formatter]]] = {
    "text": lambda: PrintableFormatter(FORMAT), "json": JsonFormatter,
}  # fmt: skip


class RepetitionFilter(logging.Filter):
    """Passes a limited number of records of one kind per period; the first one of a later period tells how many were
    omitted.

    Records with the same logger, level and format string are of one kind. Without the filter, a faulty peer could fill
    the disk. Critical records always pass.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = 20, period: float = 10.0) -> None:
        super().__init__()
        self._clock, self._most, self._period = clock, most, period
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}  # start of the period, count

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.CRITICAL:
            return True
        key, now = (record.name, record.levelno, str(record.msg)), self._clock()
        since, count = self._seen.get(key, (now, 0))
        if now - since >= self._period:
            if count > self._most:
                record.msg = f"{record.msg} ({count - self._most} more records like this one were left out)"
            since, count = now, 0
        self._seen[key] = since, count + 1
        return count < self._most


def _without_traces(record: logging.LogRecord) -> logging.LogRecord:
    bare = logging.makeLogRecord(record.__dict__)
    bare.exc_info = bare.exc_text = bare.stack_info = None
    return bare


def configure(level: str, form: str) -> None:
    """Log to standard error with minimum level `level` (debug, info, warning, error), in a format of `FORMATTERS`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMATTERS[form]())
    handler.addFilter(RepetitionFilter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
