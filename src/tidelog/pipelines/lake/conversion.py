"""A lake of plain Parquet becomes one of Iceberg tables, with all that its streams must know to go on.

    <lake>/_parquet/<table>/date=…, <lake>/_parquet/_batches/…     what it was made of, for people to delete

Each table's files are written anew, with the day in them that their directory told, and committed as one
snapshot, together with the last batch of each stream; a stream goes on from its checkpoint with the next one.
A last batch that was cut short by a crash is left out, since its stream repeats it. The note that makes the
directory an Iceberg lake is written last; before it, an interrupted conversion may be run again, to the same
place, of which there is a note from the beginning, and skips tables that are done, unless their files are
others by now: until that note is there pipelines go on with Parquet. Such a table is written once more, in
the place of what it has. No pipeline may run meanwhile. Called by ``tidelog lake convert``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.pipelines.lake.batches import BATCH_PROPERTY
from tidelog.pipelines.lake.catalog import LakeCatalog, table_files
from tidelog.pipelines.lake.data_files import EVENT_TIME, TaskDataFiles, WrittenFile
from tidelog.pipelines.lake.form import (
    LakeError,
    LakeSettings,
    check_conversion,
    check_properties,
    check_warehouse,
    end_conversion,
    iceberg_note,
    lake_note,
    write_conversion,
    write_note,
)
from tidelog.pipelines.lake.replacing import replace_files
from tidelog.pipelines.lake.snapshots import delete_manifests, live_entries

if TYPE_CHECKING:
    from pyiceberg.table import Table

DATE = "date"
CONVERTED = "tidelog.converted"
"""The property of a table that says which files it was made of (:func:`_fingerprint`)."""
OLD = "_parquet"


@dataclass(frozen=True, slots=True)
class Converted:
    """What became of a table."""

    table: str
    rows: int
    files_before: int
    files_after: int


def convert(settings: LakeSettings, on_file: Callable[[Path], None] = lambda _: None) -> list[Converted]:
    """Convert the lake; ``on_file`` hears of each file that was read."""
    if settings.warehouse is not None:
        check_warehouse(settings)
    there = lake_note(replace(settings, form=None, catalog=None, warehouse=None))
    if there is None or there.form != "parquet":
        what = "is not there" if there is None else "has Iceberg tables already"
        raise LakeError(f"the lake {settings.root} {what}: nothing to convert")
    note = iceberg_note(settings)
    check_conversion(settings.root, note)
    check_properties(settings, note)
    catalog = LakeCatalog(settings, note)
    write_conversion(settings.root, note)
    names = sorted({path.parent.name for path in settings.root.glob(f"*/{DATE}=*")})
    names = [name for name in names if not name.startswith("_")]
    found = [_table(settings.root, name, catalog, on_file) for name in names]
    write_note(settings.root, note)
    end_conversion(settings.root)
    _put_away(settings.root, names)
    return found


def _table(root: Path, name: str, catalog: LakeCatalog, on_file: Callable[[Path], None]) -> Converted:
    last, half_done = _batches(root, name)
    files = [path for path in sorted((root / name).glob(f"{DATE}=*/*.parquet")) if path not in half_done]
    if not files:
        return Converted(name, 0, 0, 0)
    table = catalog.ensure(name, _columns(name, files))
    fingerprint = _fingerprint(root, files)
    if table.properties.get(CONVERTED) == fingerprint:
        rows = sum(pq.read_metadata(path).num_rows for path in files)
        return Converted(name, rows, len(files), len(table.inspect.files()))
    earlier = (
        [entry.data_file.file_path for entry in live_entries(table)] if CONVERTED in table.properties else []
    )
    known_deletes = delete_manifests(table)
    written = [file for day in _by_day(files) for file in _rewritten(table, day, on_file)]
    properties = {f"{BATCH_PROPERTY}{application}": str(version) for application, version in last.items()}
    replace_files(
        table,
        earlier,
        written,
        "overwrite",
        {CONVERTED: "true"},
        known_deletes=known_deletes,
        properties={**properties, CONVERTED: fingerprint},
    )
    return Converted(name, sum(file.rows for file in written), len(files), len(written))


def _fingerprint(root: Path, files: list[Path]) -> str:
    """Another one for other files, of other names, sizes or times; they may be too many to be listed."""
    found = hashlib.sha256()
    for path in files:
        status = path.stat()
        found.update(f"{path.relative_to(root)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return found.hexdigest()


def _batches(root: Path, name: str) -> tuple[dict[str, int], set[Path]]:
    """The last whole batch of each stream, and the files of those that were cut short."""
    last: dict[str, int] = {}
    half_done: set[Path] = set()
    for directory in sorted((root / "_batches" / name).glob("*/")):
        notes = sorted(directory.glob("*.json"))
        if not notes:
            continue
        content = json.loads(notes[-1].read_text())
        version = int(notes[-1].stem)
        # A backfill's note also has files that it was to replace.
        own = f"{directory.name}-{notes[-1].stem}-"
        files = [root / file for file in content["files"] if Path(file).name.startswith(own)]
        if not all(file.exists() for file in files):
            half_done.update(files)
            version -= 1
        if version >= 0:
            last[content["application"]] = version
    return last, half_done


def _columns(name: str, files: list[Path]) -> dict[str, str]:
    """The columns of all files, with their types, and the date."""
    found: dict[str, str] = {}
    for path in reversed(files):
        for column in pq.read_schema(path):
            kind = _kind(column.type)
            if kind is None or found.setdefault(column.name, kind) != kind:
                raise LakeError(
                    f"column {column.name} of {path} is {column.type}, which table {name} cannot have: move "
                    "the file away, convert, and backfill its date"
                )
    if EVENT_TIME not in found:
        raise LakeError(f"the files of table {name} have no {EVENT_TIME}: move its directory away")
    return {**found, DATE: "string"}


def _kind(type_: pa.DataType) -> str | None:
    checks = {
        "string": pa.types.is_string(type_) or pa.types.is_large_string(type_),
        "long": pa.types.is_integer(type_),
        "double": pa.types.is_floating(type_),
        "boolean": pa.types.is_boolean(type_),
        "time": pa.types.is_timestamp(type_),
    }
    return next((kind for kind, holds in checks.items() if holds), None)


def _by_day(files: list[Path]) -> Iterator[list[Path]]:
    for directory in sorted({path.parent for path in files}):
        yield [path for path in files if path.parent == directory]


def _rewritten(table: Table, files: list[Path], on_file: Callable[[Path], None]) -> list[WrittenFile]:
    name = table.name()[-1]
    target = table_files(table)
    writing = TaskDataFiles([target])
    for path in files:
        date = path.parent.name.removeprefix(f"{DATE}=")
        for batch in pq.ParquetFile(path).iter_batches():
            columns = {
                column.name: batch.column(column.name)
                if column.name in batch.schema.names
                else pa.nulls(batch.num_rows, column.type)
                for column in target.schema
            }
            columns[DATE] = pa.array([date] * batch.num_rows, pa.string())
            writing.add_to(name, pa.table(columns))
        on_file(path)
    return writing.finish()


def _put_away(root: Path, names: list[str]) -> None:
    for name in names:
        (root / OLD / name).mkdir(parents=True, exist_ok=True)
        for directory in (root / name).glob(f"{DATE}=*"):
            directory.replace(root / OLD / name / directory.name)
    if (root / "_batches").is_dir():
        (root / "_batches").replace(root / OLD / "_batches")
