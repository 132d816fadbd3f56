"""The Spark session of the jobs, and one line out of Spark's failures."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession

import openmsmq.spark

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # Spark's own, INT96, is deprecated in Parquet
    "spark.sql.maxConcurrentOutputFileWriters": "64",  # rows need not be sorted by partition before they are written
    "spark.sql.streaming.pollingDelay": "100ms",
}
# A line that names an exception, of Java or of Python.
_EXCEPTION = re.compile(r"(Caused by: |Exception in thread \"[^\"]*\" )?((\w+\.)+)?[A-Z]\w*(Error|Exception)\b")
# The last line of a traceback, `package.Error: what happened`, somewhere in the text of a Java exception.
_LAST_LINE = re.compile(r"^(?:py4j[^:\n]*: )?((?:\w+\.)*[A-Z]\w*): (.+)$", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"


class PipelineError(RuntimeError):
    """A job can't do what it was asked for; the message says why in one line."""


def session(master: str = "local[*]", name: str = "openmsmq", quiet: bool = True) -> SparkSession:
    """The session that there is, or a new one: UTC, zstd, the format `msmq` registered.

    Args:
        master: of Spark.
        name: of the application.
        quiet: drop the output of a new JVM, its warnings, for its whole life; failures are still raised.

    Raises:
        PipelineError: there is no Java, or Spark does not start.
    """
    if SparkSession.getActiveSession() is None and _java() is None:
        raise PipelineError("Spark needs Java 17 or later, and there is none: install default-jre-headless")
    os.environ["PYSPARK_PYTHON"] = sys.executable  # with another Python, Spark would not find the data source
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True  # it writes what is raised as well
    with _silenced() if quiet and SparkContext._gateway is None else nullcontext():
        spark = builder.getOrCreate()
    openmsmq.spark.register(spark)
    return spark


@contextmanager
def _silenced() -> Iterator[None]:
    """Redirect the output of a process that is started now to a file; if it does not start, raise what its output says
    of the cause.

    Java logs its warnings to standard output, where a program's answers go.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    with tempfile.TemporaryFile() as file:
        for descriptor in kept:
            os.dup2(file.fileno(), descriptor)
        try:
            yield
        except Exception as error:
            file.seek(0)
            lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
            reason = f": {cause(lines)}" if lines else ""
            raise PipelineError(f"Spark does not start: {failure(error)}{reason}") from error
        finally:
            for descriptor, original in kept.items():
                os.dup2(original, descriptor)
                os.close(original)


def cause(lines: Sequence[str]) -> str:
    """The line of a program's output that says why it failed: the innermost exception of Java's or Python's trace
    (`Caused by: …`), else the last line."""
    exceptions = [line.strip() for line in lines if _EXCEPTION.match(line.strip())]
    return exceptions[-1] if exceptions else lines[-1].strip()


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=os.path.join(home, "bin") if home else None)


def failure(error: BaseException) -> PipelineError:
    """Summarize an error in one line: the last line of the innermost Python traceback, or Spark's own first line."""
    text = str(error)
    if isinstance(error, PySparkException | Py4JError) and _TRACEBACK in text:
        lines = _LAST_LINE.findall(text[text.index(_TRACEBACK) :])
        if lines:
            return PipelineError(lines[0][1].strip())
    return PipelineError(text.strip().partition("\n")[0])


def restricted(frame: DataFrame, where: str | None) -> DataFrame:
    """The rows that Spark SQL over the columns chooses; all without. Raises PipelineError."""
    try:
        return frame.where(where) if where else frame
    except Exception as error:
        raise PipelineError(f"where {where!r}: {failure(error)}") from error
