"""The parts of the ledger: which user belongs to which, how many there are, and where they lie on disk.

A part is the unit of work: one task merges the entries of its users and publishes their states, and no other
task touches them. The number of parts is chosen when a ledger is made and kept with it, in
``earnings/parts.json`` of the pipelines' directory, whatever the number of cores is later: a user must be
found where its entries are, and the exactly-once sink knows a batch by its tasks. A ledger of an earlier
release, all of which is in ``tables.sqlite``, is one part.
"""

from __future__ import annotations

import os
import socket
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from tidelog.errors import TidelogError
from tidelog.unreadable import UNREADABLE

if TYPE_CHECKING:
    from tidelog.pipelines.pipeline import PipelineSettings

DEFAULT_PARTS = 4
MAXIMUM_PARTS = 1024
"""Each part costs a transaction in every micro-batch."""

_FILE = "parts.json"


class _Note(msgspec.Struct):
    parts: int
    single_file: bool = False


@dataclass(frozen=True, slots=True)
class LedgerParts:
    """The parts of one ledger; goes to tasks."""

    count: int
    directory: Path
    single_file: Path | None = None
    """The file of the only part, where it is that of an earlier release."""
    host: str = field(default_factory=socket.gethostname)
    """The machine that has the files: the driver's, where this is made."""

    def of(self, user_id: str) -> int:
        """The part of a user."""
        return crc32(user_id.encode()) % self.count

    def file(self, part: int) -> Path:
        """The SQLite file of a part."""
        return self.single_file or self.directory / f"ledger-{part:04d}.sqlite"

    @property
    def files(self) -> list[Path]:
        """The files of all parts."""
        return [self.file(part) for part in range(self.count)]


def ledger_parts(settings: PipelineSettings) -> LedgerParts:
    """The parts of the ledger in ``settings.directory``; a new one gets as many as the settings say.

    :raises TidelogError: the ledger has another number of parts than is asked for.
    """
    directory = settings.directory.absolute() / "earnings"
    note = _noted(directory) or _make(directory, settings)
    if settings.state_partitions not in (None, note.parts):
        raise TidelogError(
            f"the ledger of earnings in {directory} has {note.parts} parts, and "
            f"{settings.state_partitions} state partitions are asked for: leave --state-partitions out, or "
            "stop the pipeline, move the ledger away and have `tidelog pipeline backfill earnings --from "
            "TIME --to TIME --state-partitions N` make a new one of what the log holds"
        )
    return LedgerParts(note.parts, directory, settings.tables.absolute() if note.single_file else None)


def _noted(directory: Path) -> _Note | None:
    path = directory / _FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Note)
    except FileNotFoundError:
        return None
    except UNREADABLE as error:
        raise TidelogError(
            f"{path} does not say how many parts the ledger has ({error}): write "
            '{"parts": N} into it, N being the number of files ledger-….sqlite beside it'
        ) from error


def _make(directory: Path, settings: PipelineSettings) -> _Note:
    """Note the number of a new ledger; of two processes that do so at once the first one counts."""
    if settings.cassandra is None and _is_old_ledger(settings.tables):
        note = _Note(1, single_file=True)
    else:
        note = _Note(settings.state_partitions or DEFAULT_PARTS)
    directory.mkdir(parents=True, exist_ok=True)
    unfinished = directory / f"{_FILE}.{os.getpid()}"
    unfinished.write_bytes(msgspec.json.encode(note))
    try:
        os.link(unfinished, directory / _FILE)
    except FileExistsError:
        # Another process was quicker; what it has noted is read below.
        pass
    finally:
        unfinished.unlink()
    found = _noted(directory)
    assert found is not None
    return found


def _is_old_ledger(tables: Path) -> bool:
    if not tables.exists():
        return False
    with closing(sqlite3.connect(f"{tables.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'user_credits'").fetchone()
        return found is not None
