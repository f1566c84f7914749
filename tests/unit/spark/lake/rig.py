"""A lake of Iceberg tables without Spark: rows as tasks write them, and what readers find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2

from tidelog.spark.lake.batches import append_batch
from tidelog.spark.lake.catalog import LakeCatalog, table_files
from tidelog.spark.lake.data_files import TaskDataFiles, WrittenFile
from tidelog.spark.lake.lake_note import LakeSettings
from tidelog.spark.lake.snapshots import Change, _Attempt, _entry, live_entries

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
COLUMNS = {
    "event_id": "string",
    "event_time": "time",
    "user_id": "string",
    "cents": "long",
    "rate": "double",
    "paid": "boolean",
}
_ARROW = {
    "string": pa.string(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "time": pa.timestamp("us", "UTC"),
}
TABLE = "credit"


def catalog(root: Path) -> LakeCatalog:
    return LakeCatalog(LakeSettings(root))


def new_table(root: Path, columns: Mapping[str, str] = COLUMNS) -> Table:
    return catalog(root).ensure(TABLE, columns)


def event(number: int, when: datetime = NOON, **more: object) -> dict[str, Any]:
    fields: dict[str, Any] = {"event_id": f"e-{number}", "event_time": when, "user_id": f"u-{number % 3}"}
    return {**fields, "cents": number, "rate": number / 4, "paid": number % 2 == 0, **more}


def written(
    table: Table, events: Sequence[Mapping[str, Any]], columns: Mapping[str, str] = COLUMNS
) -> list[WrittenFile]:
    """What a task does with events: they are in files, and in no table yet."""
    task = TaskDataFiles([table_files(table, list(columns))])
    arrays = {
        name: pa.array([each.get(name) for each in events], _ARROW[kind]) for name, kind in columns.items()
    }
    task.add_to(TABLE, pa.table(arrays))
    return task.finish()


def collect(table: Table, version: int, *numbers: int, when: datetime = NOON) -> bool:
    """A batch of a stream."""
    return append_batch(table, written(table, [event(number, when) for number in numbers]), "query", version)


def ids(root: Path) -> Counter[str]:
    """The events as PyIceberg reads them now, from another process as it were."""
    return Counter(catalog(root).table(TABLE).scan().to_arrow()["event_id"].to_pylist())


def expected(*numbers: int) -> Counter[str]:
    return Counter(f"e-{number}" for number in numbers)


def data_paths(root: Path) -> set[Path]:
    """All data files on disk, whether they belong to the table or not."""
    return set(root.rglob("data/**/*.parquet"))


class _DeleteManifestWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _Deletion(_Attempt):
    """A commit that names rows which count no more, by their positions in a data file (merge-on-read)."""

    def __init__(self, table: Table, path: str, positions: Sequence[int]) -> None:
        super().__init__(table, Change("overwrite"))
        self._path = path
        self._positions = positions

    def _manifests(self, head: Snapshot | None) -> tuple[list[ManifestFile], list[DataFile]]:
        there, removed = super()._manifests(head)
        metadata = self._table.metadata
        output = self._table.io.new_output(self._place(f"{self._unique}-deletes.avro"))
        with _DeleteManifestWriter(
            metadata.spec(), metadata.schema(), output, self.snapshot_id, "deflate"
        ) as writer:
            writer.add(_entry(self._deletes(), self.snapshot_id))
        return [writer.to_manifest_file(), *there], removed

    def _deletes(self) -> DataFile:
        file = Path(f"{self._path}-{self._unique}-deletes.parquet")
        fields = [("file_path", pa.string(), 2147483546), ("pos", pa.int64(), 2147483545)]
        schema = pa.schema(
            [pa.field(name, type_, False, {"PARQUET:field_id": str(id_)}) for name, type_, id_ in fields]
        )
        rows = {"file_path": [self._path] * len(self._positions), "pos": list(self._positions)}
        pq.write_table(pa.table(rows, schema=schema), file)
        [of] = [
            each.data_file for each in live_entries(self._table) if each.data_file.file_path == self._path
        ]
        return DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=str(file),
            file_format=FileFormat.PARQUET,
            partition=of.partition,
            record_count=len(self._positions),
            file_size_in_bytes=file.stat().st_size,
            spec_id=of.spec_id,
        )


def delete_rows(root: Path, path: str, *positions: int) -> None:
    """What another engine does that deletes rows of a data file, and leaves the file as it is."""
    _Deletion(catalog(root).table(TABLE), path, positions).commit()
