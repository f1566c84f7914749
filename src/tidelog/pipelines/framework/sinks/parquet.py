"""The Parquet lake: tables as directories of files by date, written in parallel by Spark's tasks.

Tables have a column ``date`` (text, YYYY-MM-DD), which becomes the directory. ``upsert`` adds the files of a
batch; a batch that comes again replaces its own files (``lake_files`` says how), so each log record is in the
lake once. Rows of *different* batches with the same key are both in the files: a producer that sent an
event twice made two records of it. ``read`` and ``rows`` give each key once, and ``merge``, the offline form,
rewrites the dates it touches with each key once.

Any Parquet reader reads ``<lake>/<table>``. Called by ``collect``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from tidelog.pipelines.framework.sinks.lake_files import DATE, LakeDirectory, StagedFile, TaskFiles
from tidelog.pipelines.framework.sinks.partition_work import Work, work_on_partitions
from tidelog.pipelines.framework.sinks.table import Batch, ColumnType, Row, TableError, TableSink, TableSpec

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_TABLE = "_table"
_SPARK_TYPES: dict[ColumnType, str] = {
    "string": "string",
    "long": "bigint",
    "double": "double",
    "boolean": "boolean",
    "time": "timestamp",
}


class ParquetLake(TableSink):
    """A lake on a file system that the driver and all executors share."""

    def __init__(self, root: Path) -> None:
        self._directory = LakeDirectory(root.absolute())

    def ensure(self, table: TableSpec) -> None:
        if DATE not in table.names:
            raise TableError(f"table {table.name} has no column {DATE}, by which the lake keeps its files")
        if not table.append_only:
            raise TableError(f"table {table.name} has rows that change, which the lake cannot keep")
        try:
            (self._directory.root / table.name).mkdir(parents=True, exist_ok=True)
        except OSError as failure:
            raise TableError(f"the lake {self._directory.root} cannot be written: {failure}") from failure

    def upsert(self, table: TableSpec, rows: DataFrame, batch: Batch) -> int:
        return self.upsert_each([table], rows.withColumn(_TABLE, F.lit(table.name)), _TABLE, batch)[
            table.name
        ]

    def upsert_each(
        self, tables: Sequence[TableSpec], rows: DataFrame, by: str, batch: Batch
    ) -> dict[str, int]:
        """See :meth:`TableSink.upsert_each`; all tables in one pass over the rows."""
        return self._write(tables, rows, by, batch)

    def staging(self) -> Path:
        """A fresh place where tasks may put the files of a batch, each through ``TaskFiles`` of its own."""
        return self._directory.staging()

    def commit(
        self,
        tables: Sequence[TableSpec],
        staged: Sequence[StagedFile],
        batch: Batch,
        replaces: Iterable[Path] = (),
    ) -> dict[str, int]:
        """Make the files that tasks have put into a place part of the lake, and count the rows by table."""
        totals = {table.name: 0 for table in tables}
        for table in tables:
            of_table = [file for file in staged if file.table == table.name]
            self._directory.commit(table.name, batch, of_table, replaces)
            totals[table.name] = sum(file.rows for file in of_table)
        return totals

    def discard(self, staging: Path) -> None:
        """Remove what is left in a place: of tasks that were repeated, or of a batch that has failed."""
        self._directory.discard(staging)

    def merge(self, table: TableSpec, rows: DataFrame, batch: Batch) -> int:
        """Rewrite the dates that the rows have: what is there and the rows, each key once; return how many.

        The files of other writers that come while this runs are left alone.
        """
        self.ensure(table)
        dates = [row[0] for row in rows.select(DATE).distinct().collect()]
        present = self._directory.files(table.name, dates)
        wanted = rows.select(*table.names)
        if present:
            wanted = wanted.unionByName(self._read_files(rows.sparkSession, table, present))
        once = wanted.dropDuplicates(list(table.primary_key)).withColumn(_TABLE, F.lit(table.name))
        return self._write([table], once, _TABLE, batch, replaces=present)[table.name]

    def read(self, session: SparkSession, table: TableSpec) -> DataFrame:
        """The table as a frame, each key once."""
        files = self._directory.files(table.name)
        if not files:
            return session.createDataFrame([], _schema(table))
        return self._read_files(session, table, files).dropDuplicates(list(table.primary_key))

    def rows(self, table: TableSpec) -> Iterator[Row]:
        import pyarrow.parquet as pq

        seen: dict[tuple[object, ...], Row] = {}
        for path in self._directory.files(table.name):
            date = path.parent.name.removeprefix(f"{DATE}=")
            # Without partitioning, or pyarrow takes the directory's name for a column.
            for row in pq.ParquetFile(path).read().to_pylist():
                told = {name: _told(date if name == DATE else row.get(name)) for name in table.names}
                seen[tuple(told[name] for name in table.primary_key)] = told
        yield from seen.values()

    def _write(
        self,
        tables: Sequence[TableSpec],
        rows: DataFrame,
        by: str,
        batch: Batch,
        replaces: Iterable[Path] = (),
    ) -> dict[str, int]:
        for table in tables:
            self.ensure(table)
        staging = self._directory.staging()
        types = {column.name: _SPARK_TYPES[column.type] for table in tables for column in table.columns}
        columns = [F.col(name).cast(type_).alias(name) for name, type_ in types.items() if name != by]
        try:
            answers = work_on_partitions(rows.select(by, *columns), _staging(staging, tables, by))
            staged = [StagedFile(*file) for answer in answers for file in json.loads(answer)]
            return self.commit(tables, staged, batch, replaces)
        finally:
            self.discard(staging)

    def _read_files(self, session: SparkSession, table: TableSpec, files: Sequence[Path]) -> DataFrame:
        base = str(self._directory.root / table.name)
        reader = session.read.schema(_schema(table)).option("basePath", base)
        return reader.parquet(*map(str, files)).select(*table.names)


def _staging(directory: Path, tables: Sequence[TableSpec], by: str) -> Work:
    """What a task does: stage its rows and answer with the files it wrote."""

    def stage(batches: Iterator[pa.Table]) -> str:
        files = TaskFiles(directory, tables)
        for rows in batches:
            files.add(rows, by)
        return json.dumps([astuple(file) for file in files.finish()])

    return stage


def _schema(table: TableSpec) -> str:
    return ", ".join(f"`{column.name}` {_SPARK_TYPES[column.type]}" for column in table.columns)


def _told(value: Any) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return value
