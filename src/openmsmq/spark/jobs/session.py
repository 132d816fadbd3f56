"""The Spark session of the jobs, and one-line summaries of Spark errors."""

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
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # Spark writes INT96, which Parquet deprecates
    "spark.sql.maxConcurrentOutputFileWriters": "64",  # avoids sorting rows by partition before writing
    "spark.sql.streaming.pollingDelay": "100ms",
}
# A line that names an exception, of Java or of Python.
_EXCEPTION = re.compile(r"(Caused by: |Exception in thread \"[^\"]*\" )?((\w+\.)+)?[A-Z]\w*(Error|Exception)\b")
# The last line of a traceback, `package.Error: what happened`, somewhere in the text of a Java exception.
_LAST_LINE = re.compile(r"^(?:py4j[^:\n]*: )?((?:\w+\.)*[A-Z]\w*): (.+)$", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"
# The exceptions of a Java stack trace, with the text of py4j before the outermost one.
_JAVA_CAUSE = re.compile(r"^(?:Caused by)?: (?:[\w$]+\.)*([\w$]+)(?:: (.+))?$", re.MULTILINE)
_OF_JAVA = "An error occurred while calling "  # what py4j says of any exception
_DETAILS = "\n=== "  # begins Spark's description of a query, behind its error


class PipelineError(RuntimeError):
    """A job failed; the message has the cause in one line."""


def session(master: str = "local[*]", name: str = "openmsmq", quiet: bool = True) -> SparkSession:
    """Return the active session, or a new one with UTC, zstd and the format `msmq`.

    Args:
        master: master URL of Spark.
        name: name of the application.
        quiet: discard all output of a new JVM, such as warnings; failures are still raised.

    Raises:
        PipelineError: Java is missing, or Spark does not start.
    """
    if SparkSession.getActiveSession() is None and _java() is None:
        raise PipelineError("Spark requires Java 17 or later, which is not installed: install default-jre-headless")
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
    """Redirect the output of a process started in the block to a file. If it does not start, raise the cause in its
    output.

    Java logs warnings to standard output, which is for results.
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
    """Return the line of a program's output with the cause of its failure: the innermost exception of a Java or Python
    stack trace (`Caused by: …`), else the last line."""
    exceptions = [line.strip() for line in lines if _EXCEPTION.match(line.strip())]
    return exceptions[-1] if exceptions else lines[-1].strip()


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=os.path.join(home, "bin") if home else None)


def failure(error: BaseException) -> PipelineError:
    """Summarize an error in one line: the last line of the innermost Python traceback, the innermost cause of a Java
    stack trace, or Spark's own first line."""
    text = str(error).strip()
    if isinstance(error, PySparkException | Py4JError):
        text = text.partition(_DETAILS)[0]
        for trace in reversed(text.split(_TRACEBACK)[1:]):
            lines = _LAST_LINE.findall(trace)
            if lines and not lines[0][1].startswith(_OF_JAVA):
                return PipelineError(lines[0][1].strip())
            if lines:
                break
        causes = _JAVA_CAUSE.findall(text)
        if causes:
            return PipelineError(": ".join(part.strip() for part in causes[-1] if part))
    return PipelineError(text.partition("\n")[0])


def restricted(frame: DataFrame, where: str | None) -> DataFrame:
    """Return the rows selected by a Spark SQL expression over the columns; all rows for None. Raises PipelineError."""
    try:
        return frame.where(where) if where else frame
    except Exception as error:
        raise PipelineError(f"where {where!r}: {failure(error)}") from error
