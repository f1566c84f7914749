"""The lake as plain Parquet: tables as directories of files by date, written in parallel by Spark's tasks.

Tables have a column ``date`` (text, YYYY-MM-DD), which becomes the directory. ``upsert`` adds the files of a
batch; a batch that comes again replaces its own files (``lake_files`` says how), so each log record is in the
lake once. Rows of *different* batches with the same key are both in the files: a producer that sent an
event twice made two records of it. ``read`` and ``rows`` give each key once, and ``merge``, the offline form,
rewrites the dates it touches with each key once.

Any Parquet reader reads ``<lake>/<table>``. Called by ``collect``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.pipelines.framework.sinks.lake import Lake, LakeWrite, each_once, read_files, written
from tidelog.pipelines.framework.sinks.lake_files import DATE, LakeDirectory, StagedWrite, staged_files
from tidelog.pipelines.framework.sinks.table import Batch, Row, TableError, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ParquetLake(Lake):
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

    def begin(self, tables: Sequence[TableSpec]) -> StagedWrite:
        return StagedWrite(self._directory.staging(), tuple(tables))

    def commit(
        self,
        write: LakeWrite,
        answers: Sequence[str],
        batch: Batch,
        replaces: Iterable[Path] = (),
    ) -> dict[str, int]:
        """See :meth:`Lake.commit`; a batch that comes again replaces its files."""
        staged = staged_files(answers)
        totals: dict[str, int] = {}
        for table in write.tables:
            of_table = [file for file in staged if file.table == table.name]
            self._directory.commit(table.name, batch, of_table, replaces)
            totals[table.name] = sum(file.rows for file in of_table)
        return totals

    def discard(self, write: LakeWrite) -> None:
        assert isinstance(write, StagedWrite)
        self._directory.discard(write.directory)

    def merge(self, table: TableSpec, rows: DataFrame, batch: Batch) -> int:
        self.ensure(table)
        found: dict[str, int] = dict(rows.groupBy(DATE).count().collect())
        if not found:
            return 0
        present = self._directory.files(table.name, found)
        old = self._read(rows.sparkSession, table, present) if present else None
        write = self.begin([table])
        try:
            answers = written(write, each_once(table, rows, sum(found.values()), old))
            return self.commit(write, answers, batch, replaces=present)[table.name]
        finally:
            self.discard(write)

    def read(self, session: SparkSession, table: TableSpec, *, once: bool = True) -> DataFrame:
        found = self._read(session, table, self._directory.files(table.name))
        return found.dropDuplicates(list(table.primary_key)) if once else found

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

    def _read(self, session: SparkSession, table: TableSpec, files: Sequence[Path]) -> DataFrame:
        return read_files(session, table, [*map(str, files)], str(self._directory.root / table.name))


def _told(value: Any) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return value
