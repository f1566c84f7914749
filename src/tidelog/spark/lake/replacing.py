"""Data files of an Iceberg table in place of others, in one commit: what compaction and backfills do.

The files that go must still be in the table when the others take their place, and no engine may have deleted
rows of the table since they were read, or nothing is changed (:class:`FilesGoneError`); what is added by
others meanwhile stays. Files that went are touched: the time since when nobody needs them is the time that
``lake.expiry`` goes by.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import TYPE_CHECKING, Literal

from tidelog.spark.lake.data_files import WrittenFile, local_path
from tidelog.spark.lake.lake_note import LakeError
from tidelog.spark.lake.snapshots import (
    Change,
    FilesGoneError,
    commit,
    data_file,
    delete,
    delete_manifests,
)

if TYPE_CHECKING:
    from pyiceberg.table import Table

_FIRST_DAY = date(1970, 1, 1)


def files_of_days(table: Table, days: Collection[date] | None = None) -> list[str]:
    """The data files of some days, or all, as scans of the table plan them.

    :raises LakeError: another engine has marked rows as deleted, which a reader of files would not see.
    """
    numbers = None if days is None else {None if day is None else (day - _FIRST_DAY).days for day in days}
    found = []
    for task in table.scan().plan_files():
        if task.delete_files:
            raise LakeError(
                f"table {table.name()[-1]} has files with deletions of another engine: have that engine "
                "rewrite its data files first"
            )
        if numbers is None or task.file.partition[0] in numbers:
            found.append(task.file.file_path)
    return sorted(found)


def replace_files(
    table: Table,
    old: Sequence[str],
    new: Sequence[WrittenFile],
    operation: Literal["overwrite", "replace"],
    summary: Mapping[str, str],
    *,
    known_deletes: frozenset[str],
) -> None:
    """Put ``new`` in the place of ``old``.

    ``known_deletes`` are the table's :func:`delete_manifests` when ``old`` were looked for: the snapshot of
    then may be gone by now, with its manifests.

    :raises FilesGoneError: some of ``old``, or of their rows, are not there any more; ``new`` were removed.
    """
    if not old and not new:
        return
    gone = frozenset(old)

    def decide(table: Table) -> Change:
        # Rows that somebody has deleted in the old files would be back in the new ones.
        if gone and not delete_manifests(table) <= known_deletes:
            raise FilesGoneError(
                f"another engine has deleted rows of table {table.name()[-1]} meanwhile: try again"
            )
        added = [data_file(file, table) for file in new]
        return Change(operation if old else "append", added, gone, summary)

    try:
        commit(table, decide)
    except FilesGoneError:
        delete(table, (file.path for file in new))
        raise
    for path in map(local_path, old):
        if path is not None:
            with suppress(FileNotFoundError):
                os.utime(path)
