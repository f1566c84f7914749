"""The lake as Apache Iceberg tables: files that Spark's tasks write, committed once for each batch.

The tables are partitioned by the day of ``event_time``; ``tidelog.pipelines.lake`` owns the catalog, the
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

from tidelog.pipelines.framework.sinks.lake import (
    Lake,
    LakeWrite,
    each_once,
    read_files,
    read_objects,
    written,
)
from tidelog.pipelines.framework.sinks.table import Batch, Row, TableError, TableSpec
from tidelog.pipelines.lake.batches import APPLICATION, append_batch
from tidelog.pipelines.lake.catalog import LakeCatalog, table_files
from tidelog.pipelines.lake.data_files import EVENT_TIME, TableFiles, TaskDataFiles, WrittenFile, local_path
from tidelog.pipelines.lake.form import LakeSettings
from tidelog.pipelines.lake.object_reader import ObjectReader
from tidelog.pipelines.lake.replacing import files_of_days, replace_files
from tidelog.pipelines.lake.snapshots import FilesGoneError, delete_manifests

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession

MERGE_ATTEMPTS = 5
SECONDS_PER_DAY = 86_400
_written_files = msgspec.json.Decoder(list[WrittenFile])


@dataclass(frozen=True, slots=True)
class IcebergWrite:
    """A write under way: the tables, and what tasks must know of them."""

    tables: tuple[TableSpec, ...]
    files: tuple[TableFiles, ...]

    def open(self) -> IcebergTask:
        """For a task."""
        return IcebergTask(self.files)


class IcebergTask:
    """The files of one task."""

    def __init__(self, tables: Sequence[TableFiles]) -> None:
        self._files = TaskDataFiles(tables)

    def add(self, rows: pa.Table, by: str) -> None:
        self._files.add(rows, by)

    def add_to(self, table: str, rows: pa.Table) -> None:
        self._files.add_to(table, rows)

    def finish(self) -> str:
        """End the files; statistics and all."""
        return msgspec.json.encode(self._files.finish()).decode()


class IcebergLake(Lake):
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

    def begin(self, tables: Sequence[TableSpec]) -> IcebergWrite:
        files = (table_files(self._catalog.table(table.name), list(table.names)) for table in tables)
        return IcebergWrite(tuple(tables), tuple(files))

    def commit(self, write: LakeWrite, answers: Sequence[str], batch: Batch) -> dict[str, int]:
        files = _decoded(answers)
        totals: dict[str, int] = {}
        for table in write.tables:
            of_table = [file for file in files if file.table == table.name]
            if of_table:
                append_batch(self._catalog.table(table.name), of_table, batch.application, batch.version)
            totals[table.name] = sum(file.rows for file in of_table)
        return totals

    def discard(self, write: LakeWrite) -> None:
        """Nothing: files that were not committed belong to no table, and go with ``tidelog lake expire``."""

    def merge(self, table: TableSpec, rows: DataFrame, batch: Batch) -> int:
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
        """See :meth:`Lake.read`: the files of the current snapshot, as PyIceberg plans them."""
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
    """Data files as a frame: Spark reads those of a file system, its tasks by PyArrow those of a store."""
    paths = [local_path(each) for each in locations]
    if None in paths:
        return read_objects(session, table, locations, ObjectReader(dict(stored.io.properties)))
    # With a scheme, and not escaped, as Hadoop has paths.
    return read_files(session, table, [f"file://{path}" for path in paths])


def _told(value: Any) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return value
