"""The Spark session of the jobs, and one line out of Spark's failures."""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib.resources import files

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import openmsmq.spark

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.maxConcurrentOutputFileWriters": "64",  # rows need not be sorted by partition before they are written
    "spark.sql.streaming.pollingDelay": "100ms",
}
# The last line of a traceback, `package.Error: what happened`, somewhere in the text of a Java exception.
_LAST_LINE = re.compile(r"^(?:py4j[^:\n]*: )?((?:\w+\.)*[A-Z]\w*): (.+)$", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"


class PipelineError(RuntimeError):
    """A job can't do what it was asked for; the message says why in one line."""


def session(master: str = "local[*]", name: str = "openmsmq") -> SparkSession:
    """The session that there is, or a new one: UTC, zstd, quiet, the format `msmq` registered.

    Raises PipelineError without Java.
    """
    if SparkSession.getActiveSession() is None and _java() is None:
        raise PipelineError("Spark needs Java 17 or later, and there is none: install openjdk-17-jre-headless")
    os.environ["PYSPARK_PYTHON"] = sys.executable  # with another Python, Spark would not find the data source
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in _SETTINGS.items():
        builder = builder.config(key, value)
    log = files("openmsmq.spark.jobs") / "log4j2.properties"
    builder = builder.config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile=file:{log}")
    spark = builder.getOrCreate()
    openmsmq.spark.register(spark)
    return spark


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=os.path.join(home, "bin") if home else None)


def failure(error: BaseException) -> PipelineError:
    """What went wrong, in one line: the last line of the innermost Python traceback, or Spark's own first line."""
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
