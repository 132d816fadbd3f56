"""`msmq`, a data source of Spark: queues as tables and streams. See docs/spark.md.

import openmsmq.spark
spark = openmsmq.spark.configure(SparkSession.builder).getOrCreate()
spark.read.format("msmq").option("queue", "orders").load()

Without `configure`, the format runs in Python workers only. Spark finds it if `pyspark_msmq` is installed, a part of
openmsmq; otherwise call `openmsmq.spark.register(spark)`.
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
"""Jar of the Java connector; it may be missing in an installation."""


def configure(builder: SparkSession.Builder) -> SparkSession.Builder:
    """Add the Java connector to a session before it starts: `msmq` then reads in the JVM, without Python workers.

    If the connector cannot be added, a log line says why, and the format works without it.

    Args:
        builder: session builder; its `spark.jars` are kept.

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
    """Register the format `msmq` in a session."""
    spark.dataSource.register(MsmqDataSource)
