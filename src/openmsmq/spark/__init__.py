"""`msmq`, a data source of Spark: queues as tables and streams. See docs/spark.md.

import openmsmq.spark
spark = openmsmq.spark.configure(SparkSession.builder).getOrCreate()
spark.read.format("msmq").option("queue", "orders").load()

Without `configure`, the same format is Python only. It is known where `pyspark_msmq` is installed, which it is with
openmsmq; elsewhere `openmsmq.spark.register(spark)` makes it known.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from openmsmq.spark.source import MsmqDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["MsmqDataSource", "configure", "register"]

logger = logging.getLogger(__name__)

CONNECTOR = Path(__file__).with_name("connector.jar")
"""The connector in Java, if this installation has it."""


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Add the connector to a session that is not started yet: `msmq` then reads in the JVM, without Python workers.

    A log line says why if it can't be added; the format then works without it.

    Args:
        builder: of the session; its `spark.jars` are kept.

    Returns:
        The builder.
    """
    from pyspark import SparkContext

    if not CONNECTOR.exists():
        logger.warning("this installation has no %s: format msmq uses Python workers", CONNECTOR.name)
        return builder
    if SparkContext._gateway is not None:
        logger.warning("Spark was started before openmsmq.spark.configure: format msmq uses Python workers")
        return builder
    options: dict[str, str] = getattr(builder, "_options", {})
    jars = [jar for jar in options.get("spark.jars", "").split(",") if jar and jar != str(CONNECTOR)]
    return builder.config("spark.jars", ",".join([*jars, str(CONNECTOR)])).config(
        "spark.openmsmq.python", sys.executable
    )


def register(spark: SparkSession) -> None:
    """Make the format `msmq` known to a session."""
    spark.dataSource.register(MsmqDataSource)
