"""Batches of a stream as commits that count once: by the table's word for how far each stream has come.

A commit of a batch sets the property ``tidelog.batch.<application>`` of the table to the batch's number, in
the same step; the application is the streaming query (its checkpoint). A batch that comes again, after a
kill or from a driver that was thought dead, finds its number there and adds nothing, whatever became of
snapshots. Snapshots say ``tidelog.application`` and ``tidelog.batch`` in their summaries, for people.
Called on the driver with names and figures of files, never with rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.spark.lake.lake_note import LakeError
from tidelog.spark.lake.snapshots import Change, commit, data_file, delete, live_entries

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from tidelog.spark.lake.data_files import WrittenFile

BATCH_PROPERTY = "tidelog.batch."
APPLICATION, BATCH = "tidelog.application", "tidelog.batch"


def last_batch(table: Table, application: str) -> int | None:
    """The last batch of an application that the table has rows of."""
    text = table.properties.get(f"{BATCH_PROPERTY}{application}")
    return None if text is None else int(text)


def append_batch(table: Table, files: Sequence[WrittenFile], application: str, version: int) -> bool:
    """Add the files of a batch, unless the batch is there: then its files of now are removed again.

    Returns whether they were added. An empty batch changes nothing.

    :raises LakeError: a later batch is there, so the stream has gone back to an old checkpoint.
    """
    if not files:
        return False

    def decide(table: Table) -> Change | None:
        last = last_batch(table, application)
        if last is not None and last > version:
            raise LakeError(
                f"table {table.name()[-1]} has batch {last} of {application}, and batch {version} comes now: "
                "the checkpoint is older than the lake; restore the newer one, or move it away and backfill "
                "the days that are missing"
            )
        if last == version:
            return None
        return Change(
            "append",
            added=[data_file(file, table) for file in files],
            summary={APPLICATION: application, BATCH: str(version)},
            properties={f"{BATCH_PROPERTY}{application}": str(version)},
        )

    if commit(table, decide):
        return True
    # A commit of which nobody told us may have been ours.
    live = {entry.data_file.file_path for entry in live_entries(table)}
    delete(table, (file.path for file in files if file.path not in live))
    return False
