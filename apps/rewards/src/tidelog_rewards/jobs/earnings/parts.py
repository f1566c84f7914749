"""The parts of the ledger: which user belongs to which, how many there are, and where they lie on disk.

A part is the unit of work: one task merges the entries of its users and publishes their states, and no other
task touches them. The number of parts is chosen when a ledger is made and kept with it, in
``earnings/parts.json`` of the pipelines' directory, whatever the number of cores is later: a user must be
found where its entries are, and the exactly-once sink knows a batch by its tasks.
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

from tidelog.decode_errors import DECODE_ERRORS
from tidelog.errors import TidelogError

if TYPE_CHECKING:
    from tidelog.spark.settings import PipelineSettings

DEFAULT_PARTS = 4
MAXIMUM_PARTS = 1024
"""Each part costs a transaction in every micro-batch."""


class _Note(msgspec.Struct, forbid_unknown_fields=True):
    parts: int


@dataclass(frozen=True, slots=True)
class LedgerParts:
    """The parts of one ledger; goes to tasks."""

    count: int
    directory: Path
    host: str = field(default_factory=socket.gethostname)
    """The machine that has the files: the driver's, where this is made."""

    def of(self, user_id: str) -> int:
        """The part of a user."""
        return crc32(user_id.encode()) % self.count

    def file(self, part: int) -> Path:
        """The SQLite file of a part."""
        return self.directory / f"ledger-{part:04d}.sqlite"

    @property
    def files(self) -> list[Path]:
        """The files of all parts."""
        return [self.file(part) for part in range(self.count)]


def ledger_parts(settings: PipelineSettings) -> LedgerParts:
    """The parts of the ledger in ``settings.directory``; a new one gets as many as the settings say.

    :raises TidelogError: the ledger has another number of parts than is asked for.
    """
    path = note_path(settings)
    directory = path.parent
    note = _noted(path) or _make(path, settings)
    if settings.state_partitions not in (None, note.parts):
        raise TidelogError(
            f"the ledger of earnings in {directory} has {note.parts} parts, and "
            f"{settings.state_partitions} state partitions are asked for: leave --state-partitions out, or "
            "stop the pipeline, move the ledger away and have `tidelog pipeline backfill earnings --from "
            "TIME --to TIME --state-partitions N` make a new one of what the log holds"
        )
    return LedgerParts(note.parts, directory)


def note_path(settings: PipelineSettings) -> Path:
    """Where the number of parts is kept; it is there before the first micro-batch."""
    return settings.directory.absolute() / "earnings" / "parts.json"


def _noted(path: Path) -> _Note | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Note)
    except FileNotFoundError:
        return None
    except DECODE_ERRORS as error:
        raise TidelogError(
            f"{path} does not say how many parts the ledger has ({error}): write "
            '{"parts": N} into it, N being the number of files ledger-….sqlite beside it; if there are none, '
            "delete it"
        ) from error


def _make(path: Path, settings: PipelineSettings) -> _Note:
    """Note the number of a new ledger; of two processes that do so at once the first one counts."""
    if settings.cassandra is None:
        _refuse_old_ledger(settings.tables)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_bytes(msgspec.json.encode(_Note(settings.state_partitions or DEFAULT_PARTS)))
    try:
        os.link(unfinished, path)
    except FileExistsError:
        # Another process was quicker; what it has noted is read below.
        pass
    finally:
        unfinished.unlink()
    found = _noted(path)
    assert found is not None
    return found


def _refuse_old_ledger(tables: Path) -> None:
    """Refuse a ledger of before there were parts: a new one would publish other totals of the same users."""
    if not tables.exists():
        return
    with closing(sqlite3.connect(f"{tables.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'user_credits'").fetchone() is None:
            return
    raise TidelogError(
        f"{tables} holds a ledger of earnings, which this version does not read: give another --directory, "
        "or delete the file with all of its tables and have `tidelog pipeline backfill` fill them again"
    )
