"""The files of the Parquet lake: how a task stages them and how a batch of them takes effect.

    <lake>/<table>/date=YYYY-MM-DD/<application>-<version>-<number>.parquet
    <lake>/_batches/<table>/<application>/<version>.json
                                                     the files of a batch, written before they take effect
    <lake>/_staging/<unique>/…                       files of tasks under way; names say nothing

Tasks write into the staging directory of their batch. The driver then names the files after the batch, notes
the names, and moves each into its place. A crash before the note leaves nothing visible; one behind it leaves
files that the replay of the batch replaces, since it writes the same names and removes what the note has and
it has not. A backfill that replaces files of other batches takes them out of these batches' notes before it
removes them. Readers skip names that begin with ``_``. Called by ``sinks.parquet``.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.pipelines.framework.sinks.table import Batch, TableSpec
from tidelog.pipelines.lake.day_files import DayFiles, DayOfTable

DATE = "date"
KEPT_NOTES = 100
"""Spark replays only the last batch; older notes tell people what a batch wrote."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file of one task: its table, its date, where it lies, its rows."""

    table: str
    date: str
    path: str
    rows: int


@dataclass(frozen=True, slots=True)
class StagedWrite:
    """A write under way: where tasks put its files."""

    directory: Path
    tables: tuple[TableSpec, ...]

    def open(self) -> TaskFiles:
        """For a task."""
        return TaskFiles(self.directory, self.tables)


class TaskFiles:
    """Writes the rows of one task, a file for each table and date."""

    def __init__(self, directory: Path, tables: Sequence[TableSpec]) -> None:
        self._directory = directory
        self._names = {table.name: [name for name in table.names if name != DATE] for table in tables}
        self._paths: dict[DayOfTable, Path] = {}
        self._files: DayFiles[pq.ParquetWriter] = DayFiles(self._open)

    def add(self, rows: pa.Table, by: str) -> None:
        """Take rows whose column ``by`` names their table."""
        for table in pc.unique(rows[by]).to_pylist():
            if table not in self._names:
                continue
            self.add_to(table, rows.filter(pc.equal(rows[by], table)))

    def add_to(self, table: str, rows: pa.Table) -> None:
        """Take rows of one table."""
        dates = pc.unique(rows[DATE]).to_pylist()
        for date in dates:
            chosen = rows if len(dates) == 1 else rows.filter(pc.equal(rows[DATE], date))
            self._files.add(DayOfTable(table, date), chosen.select(self._names[table]))

    def finish(self) -> str:
        """End the files; the driver reads the answer with :func:`staged_files`."""
        return json.dumps([(*key, str(self._paths[key]), rows) for key, _, rows in self._files.close()])

    def _open(self, key: DayOfTable, schema: pa.Schema) -> pq.ParquetWriter:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._paths[key] = self._directory / f"{uuid.uuid4().hex}.parquet"
        return pq.ParquetWriter(self._paths[key], schema, compression="zstd")


def staged_files(answers: Sequence[str]) -> list[StagedFile]:
    """What tasks have answered."""
    return [StagedFile(*file) for answer in answers for file in json.loads(answer)]


class LakeDirectory:
    """The directory of a lake, as the driver sees it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def staging(self) -> Path:
        """A fresh place for the tasks of one batch."""
        return self.root / "_staging" / uuid.uuid4().hex

    def discard(self, staging: Path) -> None:
        """Remove what tasks left that were repeated, or whose batch failed."""
        shutil.rmtree(staging, ignore_errors=True)

    def files(self, table: str, dates: Iterable[str] | None = None) -> list[Path]:
        """The files of a table, or those of some dates."""
        if dates is None:
            return sorted((self.root / table).glob(f"{DATE}=*/*.parquet"))
        found = ((self.root / table / f"{DATE}={date}").glob("*.parquet") for date in dates)
        return sorted(path for paths in found for path in paths)

    def commit(
        self, table: str, batch: Batch, staged: Iterable[StagedFile], replaces: Iterable[Path] = ()
    ) -> None:
        """Make a batch's files of a table visible, in place of an earlier attempt's and of ``replaces``."""
        application = _short(batch.application)
        places: dict[str, str] = {}
        for number, file in enumerate(sorted(staged, key=lambda file: (file.date, file.path))):
            name = f"{application}-{batch.version:010d}-{number:05d}.parquet"
            places[f"{table}/{DATE}={file.date}/{name}"] = file.path
        note = self.root / "_batches" / table / application / f"{batch.version:010d}.json"
        stale = {*self._noted(note), *(str(path.relative_to(self.root)) for path in replaces)} - places.keys()
        if not places and not stale:
            return
        self._write_note(note, {"application": batch.application, "files": sorted({*places, *stale})})
        for place, path in places.items():
            (self.root / place).parent.mkdir(parents=True, exist_ok=True)
            Path(path).replace(self.root / place)
        self._disown(table, note, stale)
        for place in stale:
            (self.root / place).unlink(missing_ok=True)
        if stale:
            self._write_note(note, {"application": batch.application, "files": sorted(places)})
        self._forget_notes(note.parent)

    def _disown(self, table: str, own: Path, places: Iterable[str]) -> None:
        """Take files that go out of the notes of the batches that wrote them.

        A note that names a file which is not there is that of a batch that was cut short.
        """
        gone: dict[Path, set[str]] = {}
        for place in places:
            application, _, rest = Path(place).name.partition("-")
            note = self.root / "_batches" / table / application / f"{rest.partition('-')[0]}.json"
            if note != own and note.exists():
                gone.setdefault(note, set()).add(place)
        for note, names in gone.items():
            content = json.loads(note.read_text())
            self._write_note(note, {**content, "files": sorted({*content["files"]} - names)})

    def _noted(self, note: Path) -> list[str]:
        return list(json.loads(note.read_text())["files"]) if note.exists() else []

    def _write_note(self, note: Path, content: dict[str, Any]) -> None:
        note.parent.mkdir(parents=True, exist_ok=True)
        unfinished = note.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(content))
        unfinished.replace(note)

    def _forget_notes(self, directory: Path) -> None:
        for note in sorted(directory.glob("*.json"))[:-KEPT_NOTES]:
            note.unlink(missing_ok=True)


def _short(application: str) -> str:
    """An application's name for files: short, and safe whatever the name has in it."""
    return hashlib.sha256(application.encode()).hexdigest()[:12]
