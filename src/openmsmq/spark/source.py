"""The data source `msmq` of Spark (PySpark 4.2 or later). See docs/spark.md."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from openmsmq.spark.options import BATCH_READ, BATCH_WRITE, STREAM_READ, STREAM_WRITE, decoding, names_many_hosts, parse
from openmsmq.spark.plane import by_flight
from openmsmq.spark.reading import FilteringReader, MsmqReader
from openmsmq.spark.schema import spark_schema
from openmsmq.spark.streaming import MsmqStreamReader
from openmsmq.spark.writing import MsmqStreamWriter, MsmqWriter


class MsmqDataSource(DataSource):
    """Queues as tables and streams. Options are checked before any job starts; nothing connects in a constructor."""

    @classmethod
    def name(cls) -> str:
        return "msmq"

    def schema(self) -> StructType:
        return spark_schema(decoding(self.options), names_many_hosts(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse(self.options, BATCH_READ)
        return FilteringReader(options, schema) if options.pushFilters else MsmqReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = parse(self.options, STREAM_READ)
        # Decided here and not when a batch is read: the server may be down then, and the batch depends on the plan.
        return MsmqStreamReader(options, schema, by_flight(options, patient=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise ValueError("a queue can't be overwritten; allowed: mode append")
        return MsmqWriter(parse(self.options, BATCH_WRITE), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if overwrite:
            raise ValueError("a queue can't be overwritten; allowed: outputMode append")
        return MsmqStreamWriter(parse(self.options, STREAM_WRITE), schema)
