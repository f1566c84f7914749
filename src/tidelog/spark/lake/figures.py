"""How a lake stands: its tables in figures, and data files. For ``tidelog lake status`` and ``files``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from tidelog.spark.lake.batches import BATCH_PROPERTY
from tidelog.spark.lake.snapshots import live_entries

if TYPE_CHECKING:
    from pyiceberg.table import Table

SMALL_BYTES = 8 << 20
_FIRST_DAY = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class LakeFile:
    """A data file of the current snapshot."""

    table: str
    day: date | None
    rows: int
    size_bytes: int
    path: str


@dataclass(frozen=True, slots=True)
class TableFigures:
    """A table as it is now."""

    table: str
    rows: int
    files: int
    small_files: int
    size_bytes: int
    first_day: date | None
    last_day: date | None
    snapshots: int
    committed_at: datetime | None
    """When the current snapshot was made."""
    batches: dict[str, int] = field(default_factory=dict)
    """The last batch of each stream."""


def data_files(table: Table) -> Iterator[LakeFile]:
    """The files of the current snapshot, in no order."""
    name = table.name()[-1]
    for entry in live_entries(table):
        file = entry.data_file
        day = file.partition[0]
        moment = None if day is None else _FIRST_DAY + timedelta(days=day)
        yield LakeFile(name, moment, file.record_count, file.file_size_in_bytes, file.file_path)


def figures(table: Table) -> TableFigures:
    """The table in figures."""
    files = list(data_files(table))
    days = [file.day for file in files if file.day is not None]
    head = table.current_snapshot()
    return TableFigures(
        table=table.name()[-1],
        rows=sum(file.rows for file in files),
        files=len(files),
        small_files=sum(file.size_bytes < SMALL_BYTES for file in files),
        size_bytes=sum(file.size_bytes for file in files),
        first_day=min(days, default=None),
        last_day=max(days, default=None),
        snapshots=len(table.snapshots()),
        committed_at=None if head is None else datetime.fromtimestamp(head.timestamp_ms / 1000, UTC),
        batches={
            name.removeprefix(BATCH_PROPERTY): int(value)
            for name, value in table.properties.items()
            if name.startswith(BATCH_PROPERTY)
        },
    )
