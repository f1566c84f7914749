"""What both forms of the lake do: take the files that tasks have written as one batch, and give tables back.

A write begins on the driver (:meth:`Lake.begin`), which sends it to tasks; each opens it, writes its rows
and answers with a text about its files; the driver commits the answers. Of rows the driver sees nothing.
Called by ``collect``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import functions as F

from tidelog.pipelines.framework.sinks.partition_work import (
    Batches,
    Work,
    map_in_arrow,
    work_on_partitions,
)
from tidelog.pipelines.framework.sinks.table import Batch, ColumnType, TableSink, TableSpec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.pipelines.lake.object_reader import ObjectReader

_TABLE, _STORED, _ROW = "_table", "_stored", "_row"
_ROWS_OF_A_PART = 250_000
"""Spark sorts each part of a shuffle as a whole, in pieces that a small heap does not always have."""
_SPARK_TYPES: dict[ColumnType, str] = {
    "string": "string",
    "long": "bigint",
    "double": "double",
    "boolean": "boolean",
    "time": "timestamp",
}


class TaskWrite(Protocol):
    """The files of one task."""

    def add(self, rows: pa.Table, by: str) -> None:
        """Take rows whose column ``by`` names their table; those of no table are left out."""

    def add_to(self, table: str, rows: pa.Table) -> None:
        """Take rows of one table."""

    def finish(self) -> str:
        """End the files; what the driver is told of them."""


class LakeWrite(Protocol):
    """A write under way, pickled to tasks."""

    @property
    def tables(self) -> Sequence[TableSpec]: ...

    def open(self) -> TaskWrite: ...


class Lake(TableSink):
    """A store of event logs by day, on files that the driver and all executors see."""

    @abstractmethod
    def begin(self, tables: Sequence[TableSpec]) -> LakeWrite:
        """A write to some tables, which are there already."""

    @abstractmethod
    def commit(self, write: LakeWrite, answers: Sequence[str], batch: Batch) -> dict[str, int]:
        """Make what tasks have written part of the lake, once for each batch; rows by table."""

    @abstractmethod
    def discard(self, write: LakeWrite) -> None:
        """Remove what a write has left: of tasks that were repeated, or of a batch that has failed."""

    @abstractmethod
    def merge(self, table: TableSpec, rows: DataFrame, batch: Batch) -> int:
        """Rewrite the days that the rows have: what is there and the rows, each key once; return how many.

        Of a key that is there already the new row stays. Rows of other writers that come while this runs
        are left alone.
        """

    @abstractmethod
    def read(self, session: SparkSession, table: TableSpec, *, once: bool = True) -> DataFrame:
        """The table as a frame: each key ``once``, or each record of the log as it was collected."""

    def upsert(self, table: TableSpec, rows: DataFrame, batch: Batch) -> int:
        return self.upsert_each([table], rows.withColumn(_TABLE, F.lit(table.name)), _TABLE, batch)[
            table.name
        ]

    def upsert_each(
        self, tables: Sequence[TableSpec], rows: DataFrame, by: str, batch: Batch
    ) -> dict[str, int]:
        """See :meth:`TableSink.upsert_each`; all tables in one pass over the rows."""
        for table in tables:
            self.ensure(table)
        write = self.begin(tables)
        try:
            return self.commit(write, written(write, rows, by), batch)
        finally:
            self.discard(write)


def written(write: LakeWrite, rows: DataFrame, by: str | None = None) -> list[str]:
    """Have tasks write a frame whose column ``by`` names each row's table; None: there is but one."""
    if by is None:
        (table,) = write.tables
        rows, by = rows.withColumn(_TABLE, F.lit(table.name)), _TABLE
    types = {column.name: _SPARK_TYPES[column.type] for table in write.tables for column in table.columns}
    columns = [F.col(name).cast(type_).alias(name) for name, type_ in types.items() if name != by]
    return work_on_partitions(rows.select(by, *columns), _writing(write, by))


def each_once(table: TableSpec, rows: DataFrame, count: int, stored: DataFrame | None = None) -> DataFrame:
    """The rows, ``count`` or so, and the stored ones whose keys they have not, with each key once.

    A task has a bounded part of them, however many there are.
    """
    marked = rows.select(*table.names, F.lit(False).alias(_STORED))
    if stored is not None:
        marked = marked.unionByName(stored.select(*table.names, F.lit(True).alias(_STORED)))
        count += stored.count()
    session = rows.sparkSession
    least = int(session.conf.get("spark.sql.shuffle.partitions", "1") or 1)
    parts = max(least, count // _ROWS_OF_A_PART + 1)
    keys = list(table.primary_key)
    # The log's row, whichever the shuffle brings first: it has columns that are new, and tokens or numbers as
    # they are wanted now.
    chosen = F.min_by(F.struct(*table.names), _STORED).alias(_ROW)
    return marked.repartition(parts, *keys).groupBy(*keys).agg(chosen).select(f"{_ROW}.*")


def read_objects(
    session: SparkSession, table: TableSpec, locations: Sequence[str], reader: ObjectReader
) -> DataFrame:
    """The same of an object store, which Spark could not read without jars: its tasks read by PyArrow."""
    empty = session.createDataFrame([], _ddl(table))
    if not locations:
        return empty
    columns = {column.name: column.type for column in table.columns}

    def read(batches: Batches) -> Batches:
        for batch in batches:
            for location in batch.column("location").to_pylist():
                yield from reader.rows(location, columns)

    named = session.createDataFrame([(each,) for each in locations], "location string")
    tasks = min(len(locations), session.sparkContext.defaultParallelism)
    return map_in_arrow(named.repartition(tasks), read, empty.schema)


def _ddl(table: TableSpec) -> str:
    return ", ".join(f"`{column.name}` {_SPARK_TYPES[column.type]}" for column in table.columns)


def read_files(session: SparkSession, table: TableSpec, files: Sequence[str], base: str = "") -> DataFrame:
    """Parquet files as a frame of a table; columns that a file lacks are null."""
    schema = _ddl(table)
    if not files:
        return session.createDataFrame([], schema)
    reader = session.read.schema(schema)
    if base:
        reader = reader.option("basePath", base)
    return reader.parquet(*files).select(*table.names)


def _writing(write: LakeWrite, by: str) -> Work:
    """What a task does: write its rows and answer with its files."""

    def work(batches: Iterator[pa.Table]) -> str:
        files = write.open()
        for rows in batches:
            files.add(rows, by)
        return files.finish()

    return work
