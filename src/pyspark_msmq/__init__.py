"""Spark looks at every module named pyspark_* for a class DefaultSource: so the format `msmq` is known by itself."""

from openmsmq.spark.source import MsmqDataSource


class DefaultSource(MsmqDataSource):
    """The data source of openmsmq."""
