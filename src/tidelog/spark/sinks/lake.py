"""The lake as Apache Iceberg tables: files that Spark's tasks write, committed once for each batch.

A write begins on the driver (:meth:`Lake.begin`), which sends it to tasks; each opens it, writes its rows
and answers with a text about its files; the driver commits the answers. Of rows the driver sees nothing.

The tables are partitioned by the day of ``event_time``; ``tidelog.spark.lake`` owns the catalog, the
commits and their protocol, this is its face to pipelines. ``upsert`` adds the files of a batch, unless the
batch is there; so each log record is in the lake once. Rows of *different* batches with the same key are
both in the files: a producer that sent an event twice made two records of it. ``read`` and ``rows`` give
each key once, and ``merge``, the offline form, rewrites the days it touches with each key once. A table
gets the columns that its specification has and it has not; older rows are null there. Called by
``collect``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import functions as F

from tidelog.spark.lake.batches import APPLICATION, append_batch
from tidelog.spark.lake.catalog import LakeCatalog, table_files
from tidelog.spark.lake.data_files import EVENT_TIME, TableFiles, TaskDataFiles, WrittenFile, local_path
from tidelog.spark.lake.lake_note import LakeSettings
from tidelog.spark.lake.object_reader import ObjectReader
from tidelog.spark.lake.replacing import files_of_days, replace_files
from tidelog.spark.lake.snapshots import FilesGoneError, delete_manifests
from tidelog.spark.sinks.partition_work import (
    Batches,
    Work,
    map_in_arrow,
    work_on_partitions,
)
from tidelog.spark.sinks.table import (
    Batch,
    ColumnType,
    Row,
    TableError,
    TableSink,
    TableSpec,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession

MERGE_ATTEMPTS = 5
SECONDS_PER_DAY = 86_400
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
_written_files = msgspec.json.Decoder(list[WrittenFile])


@dataclass(frozen=True, slots=True)
class LakeWrite:
    """A write under way: the tables, and what tasks must know of them."""

    tables: tuple[TableSpec, ...]
    files: tuple[TableFiles, ...]

    def open(self) -> TaskDataFiles:
        """For a task, which writes its rows and ends with :func:`answer_of`."""
        return TaskDataFiles(self.files)


def answer_of(files: TaskDataFiles) -> str:
    """End the files of a task; what the driver is told of them."""
    return msgspec.json.encode(files.finish()).decode()


class Lake(TableSink):
    """A lake of Iceberg tables; the catalog is opened, and one that cannot be used told of, at once."""

    def __init__(self, settings: LakeSettings) -> None:
        self._catalog = LakeCatalog(settings)

    def ensure(self, table: TableSpec) -> None:
        columns: dict[str, str] = {column.name: column.type for column in table.columns}
        if columns.get(EVENT_TIME) != "time":
            raise TableError(
                f"table {table.name} has no time {EVENT_TIME}, by whose day the lake keeps its files"
            )
        if not table.append_only:
            raise TableError(f"table {table.name} has rows that change, which the lake cannot keep")
        self._catalog.ensure(table.name, columns)

    def begin(self, tables: Sequence[TableSpec]) -> LakeWrite:
        """A write to some tables, which are there already."""
        files = (table_files(self._catalog.table(table.name), list(table.names)) for table in tables)
        return LakeWrite(tuple(tables), tuple(files))

    def commit(self, write: LakeWrite, answers: Sequence[str], batch: Batch) -> dict[str, int]:
        """Make what tasks have written part of the lake, once for each batch; rows by table.

        Files that are never committed belong to no table, and go with ``tidelog lake expire``.
        """
        files = _decoded(answers)
        totals: dict[str, int] = {}
        for table in write.tables:
            of_table = [file for file in files if file.table == table.name]
            if of_table:
                append_batch(self._catalog.table(table.name), of_table, batch.application, batch.version)
            totals[table.name] = sum(file.rows for file in of_table)
        return totals

    def upsert(self, table: TableSpec, rows: DataFrame, batch: Batch) -> int:
        named = rows.withColumn(_TABLE, F.lit(table.name))
        return self.upsert_each([table], named, _TABLE, batch)[table.name]

    def upsert_each(
        self, tables: Sequence[TableSpec], rows: DataFrame, by: str, batch: Batch
    ) -> dict[str, int]:
        """See :meth:`TableSink.upsert_each`; all tables in one pass over the rows."""
        for table in tables:
            self.ensure(table)
        write = self.begin(tables)
        return self.commit(write, written(write, rows, by), batch)

    def merge(self, table: TableSpec, rows: DataFrame, batch: Batch) -> int:
        """Rewrite the days that the rows have: what is there and the rows, each key once; return how many.

        Of a key that is there already the new row stays. Rows of other writers that come while this runs
        are left alone.
        """
        self.ensure(table)
        day = F.date_from_unix_date(F.floor(F.unix_seconds(EVENT_TIME) / SECONDS_PER_DAY).cast("int"))
        found: dict[date, int] = dict(rows.groupBy(day).count().collect())
        if not found:
            return 0
        for attempt in range(MERGE_ATTEMPTS):
            stored = self._catalog.table(table.name)
            present = files_of_days(stored, found)
            # Now: what this snapshot names may be gone when the files are written.
            known = delete_manifests(stored)
            old = _read(rows.sparkSession, table, stored, present) if present else None
            write = self.begin([table])
            files = _decoded(written(write, each_once(table, rows, sum(found.values()), old)))
            try:
                replace_files(
                    stored,
                    present,
                    files,
                    "overwrite",
                    {APPLICATION: batch.application},
                    known_deletes=known,
                )
            except FilesGoneError:
                # Somebody has compacted these days meanwhile, or deleted rows.
                if attempt + 1 == MERGE_ATTEMPTS:
                    raise
                continue
            return sum(file.rows for file in files)
        raise AssertionError("the last attempt returns or raises")

    def read(self, session: SparkSession, table: TableSpec, *, once: bool = True) -> DataFrame:
        """The table as a frame: each key ``once``, or each record of the log as it was collected.

        Reads the files of the current snapshot, as PyIceberg plans them.
        """
        stored = self._catalog.table(table.name)
        found = _read(session, table, stored, files_of_days(stored))
        return found.dropDuplicates(list(table.primary_key)) if once else found

    def rows(self, table: TableSpec) -> Iterator[Row]:
        seen: dict[tuple[object, ...], Row] = {}
        for batch in self._catalog.table(table.name).scan().to_arrow_batch_reader():
            for row in batch.to_pylist():
                told = {name: _told(row.get(name)) for name in table.names}
                seen[tuple(told[name] for name in table.primary_key)] = told
        yield from seen.values()


def _decoded(answers: Sequence[str]) -> list[WrittenFile]:
    return [file for answer in answers for file in _written_files.decode(answer)]


def _read(session: SparkSession, table: TableSpec, stored: Table, locations: Sequence[str]) -> DataFrame:
    """Data files as a frame: Spark reads those of a file system, its tasks by PyArrow those of a store.

    Columns that a file lacks are null.
    """
    schema = ", ".join(f"`{column.name}` {_SPARK_TYPES[column.type]}" for column in table.columns)
    if not locations:
        return session.createDataFrame([], schema)
    paths = [local_path(each) for each in locations]
    if None in paths:
        return _read_objects(session, table, schema, locations, ObjectReader(dict(stored.io.properties)))
    # With a scheme, and not escaped, as Hadoop has paths.
    return session.read.schema(schema).parquet(*(f"file://{path}" for path in paths)).select(*table.names)


def _read_objects(
    session: SparkSession, table: TableSpec, schema: str, locations: Sequence[str], reader: ObjectReader
) -> DataFrame:
    """The same of an object store, which Spark could not read without jars."""
    columns = {column.name: column.type for column in table.columns}

    def read(batches: Batches) -> Batches:
        for batch in batches:
            for location in batch.column("location").to_pylist():
                yield from reader.rows(location, columns)

    named = session.createDataFrame([(each,) for each in locations], "location string")
    tasks = min(len(locations), session.sparkContext.defaultParallelism)
    return map_in_arrow(named.repartition(tasks), read, session.createDataFrame([], schema).schema)


def _told(value: Any) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return value


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


def _writing(write: LakeWrite, by: str) -> Work:
    """What a task does: write its rows and answer with its files."""

    def work(batches: Iterator[pa.Table]) -> str:
        files = write.open()
        for rows in batches:
            files.add(rows, by)
        return answer_of(files)

    return work
