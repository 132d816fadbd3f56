"""Registers the format `msmq`: Spark searches every module named pyspark_* for a class DefaultSource."""

from openmsmq.spark.source import MsmqDataSource


class DefaultSource(MsmqDataSource):
    """The data source of openmsmq."""
