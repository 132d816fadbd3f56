"""Logging of the daemon and its child processes: one line per record, regardless of the text in it from peers and
messages."""

from __future__ import annotations

import atexit
import logging
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

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


_Kind: TypeAlias = tuple[str, int, str]  # logger, level, format string
_TOLD: Final = "is_told"  # attribute of a record that tells what was left out
Later: TypeAlias = Callable[[float, Callable[[], None]], object]


def _in_a_thread(seconds: float, call: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()


class RepetitionFilter(logging.Filter):
    """Passes a limited number of records of one kind per period. At the end of the period, the last of the others is
    logged with their number.

    Records with the same logger, level and format string are of one kind. Without the filter, a faulty peer could fill
    the disk. Critical records always pass.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, later: Later = _in_a_thread, most: int = 20,
        period: float = 10.0,
    ) -> None:  # fmt: skip
        """`later` calls a function after some seconds."""
        super().__init__()
        self._clock, self._later, self._most, self._period = clock, later, most, period
        self._lock = threading.Lock()
        self._kinds: dict[_Kind, _Repetition] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.CRITICAL or hasattr(record, _TOLD):
            return True
        kind, now = (record.name, record.levelno, str(record.msg)), self._clock()
        with self._lock:
            seen = self._kinds.get(kind)
            if seen is None or (seen.last is None and now - seen.since >= self._period):
                seen = self._kinds[kind] = _Repetition(now)
            seen.count += 1
            if seen.count <= self._most:
                return True
            is_first, seen.last = seen.last is None, record
        if is_first:
            self._later(max(0.0, seen.since + self._period - now), lambda: self._tell(kind))
        return False

    def tell(self) -> None:
        """Log how many records were left out since the last periods, at the end of the process."""
        for kind in list(self._kinds):
            self._tell(kind)

    def _tell(self, kind: _Kind) -> None:
        with self._lock:
            seen = self._kinds.pop(kind, None)
        if seen is None or seen.last is None:
            return
        record, others = seen.last, seen.count - self._most - 1
        if others:
            record.msg = f"{record.msg} ({others} more records like this one were left out)"
        setattr(record, _TOLD, True)
        logging.getLogger(record.name).handle(record)


@dataclass(slots=True)
class _Repetition:
    """Records of one kind in a period that began at `since`; `last` is the last one that was left out."""

    since: float
    count: int = 0
    last: logging.LogRecord | None = None


def _without_traces(record: logging.LogRecord) -> logging.LogRecord:
    bare = logging.makeLogRecord(record.__dict__)
    bare.exc_info = bare.exc_text = bare.stack_info = None
    return bare


def configure(level: str, form: str) -> None:
    """Log to standard error with minimum level `level` (debug, info, warning, error), in a format of `FORMATTERS`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMATTERS[form]())
    repetitions = RepetitionFilter()
    handler.addFilter(repetitions)
    atexit.register(repetitions.tell)
    logging.basicConfig(level=level.upper(), handlers=[handler])
