"""``format("tidelog")``: topics as a source and a sink of Spark, in batches and in streams.

    stream = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", "localhost:9092")
    orders = stream.option("subscribe", "orders").load()

Options, columns and offsets are those of Spark's Kafka connector. PySpark finds this class through
``pyspark_tidelog``; it makes an instance in one process, and asks it for readers and writers in others, so
modules are loaded when they are needed and instances hold nothing but options.

PySpark sends the instance that has made a reader to executors, too, beside the reader, for its name: without
its options then, for the login is among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class TidelogDataSource(DataSource):
    """Topics of a Tidelog or Kafka cluster."""

    _goes_to_executors = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "options": {}} if self._goes_to_executors else self.__dict__

    @classmethod
    def name(cls) -> str:
        return "tidelog"

    def schema(self) -> StructType | str:
        """The columns that are read; wrong options are refused here, before a query starts."""
        from tidelog.spark.read._schema import source_schema
        from tidelog.spark.read._source_options import source_options

        return source_schema(source_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        from tidelog.spark.read._batch_reader import TidelogReader

        self._goes_to_executors = True
        return TidelogReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from tidelog.spark.read._stream_reader import TidelogStreamReader

        self._goes_to_executors = True
        return TidelogStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from tidelog.spark.write._batch_writer import TidelogWriter

        return TidelogWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from tidelog.spark.write._stream_writer import TidelogStreamWriter

        return TidelogStreamWriter(self.options, schema, overwrite)
