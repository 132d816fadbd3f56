"""`msmq`, a data source of Spark: queues as tables and streams. See docs/spark.md.

import openmsmq.spark
openmsmq.spark.register(spark)        # not needed where `pyspark_msmq` is installed, which it is with openmsmq
spark.read.format("msmq").option("queue", "orders").load()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openmsmq.spark.source import MsmqDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["MsmqDataSource", "register"]


def register(spark: SparkSession) -> None:
    """Make the format `msmq` known to a session."""
    spark.dataSource.register(MsmqDataSource)
