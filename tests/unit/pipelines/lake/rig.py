"""A lake of Iceberg tables without Spark: rows as tasks write them, and what readers find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelog.pipelines.lake.batches import append_batch
from tidelog.pipelines.lake.catalog import LakeCatalog, table_files
from tidelog.pipelines.lake.data_files import TaskDataFiles, WrittenFile
from tidelog.pipelines.lake.form import LakeSettings

if TYPE_CHECKING:
    from pyiceberg.table import Table

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
