"""Compaction: many small data files of a day become few, row for row; streams and readers go on meanwhile.

A stream leaves a file for each task, table, day and micro-batch. Small files of a day are read one after the
other and written as one, up to the target's size, which takes their place in a commit of its own; memory
holds a row group. If somebody else has replaced one of them, or deleted rows of the table, the work is thrown
away and told as skipped.
The old files are still there for snapshots of before; ``lake.expiry`` removes them later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.spark.lake.catalog import table_files
from tidelog.spark.lake.data_files import TaskDataFiles, WrittenFile
from tidelog.spark.lake.lake_note import LakeError
from tidelog.spark.lake.replacing import replace_files
from tidelog.spark.lake.snapshots import FilesGoneError, delete, delete_manifests

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table

TARGET_BYTES = 128 << 20
MIN_FILES = 2
SUMMARY = "tidelog.compaction"
_FULL = 0.75
"""A file of this share of the target is left as it is."""


@dataclass(frozen=True)
class Group:
    """Files of one day that become one."""

    day: int | None
    tasks: tuple[FileScanTask, ...]
    known_deletes: frozenset[str]
    """The manifests of deleted rows that the plan knew of."""

    @property
    def paths(self) -> list[str]:
        """Where they are."""
        return [task.file.file_path for task in self.tasks]

    @property
    def rows(self) -> int:
        """All their rows."""
        return sum(task.file.record_count for task in self.tasks)

    @property
    def size_bytes(self) -> int:
        """How large they are."""
        return sum(task.file.file_size_in_bytes for task in self.tasks)


@dataclass(frozen=True)
class Compacted:
    """What became of a table."""

    table: str
    groups: int
    files_before: int
    bytes_before: int
    files_after: int
    bytes_after: int
    skipped: int
    """Groups that somebody else was quicker with."""


def plan(table: Table, target_bytes: int = TARGET_BYTES, min_files: int = MIN_FILES) -> list[Group]:
    """What is worth compacting, the oldest day first."""
    by_day: dict[int | None, list[FileScanTask]] = defaultdict(list)
    known_deletes = delete_manifests(table)
    for task in table.scan().plan_files():
        if task.file.file_size_in_bytes < _FULL * target_bytes:
            by_day[task.file.partition[0]].append(task)
    days = sorted(by_day, key=lambda day: -1 if day is None else day)
    return [
        Group(day, tuple(tasks), known_deletes)
        for day in days
        for tasks in _packed(by_day[day], target_bytes)
        if len(tasks) >= max(2, min_files)
    ]


def _packed(tasks: list[FileScanTask], target_bytes: int) -> Iterator[list[FileScanTask]]:
    """As many as fit into the target, in the order of their names: the same plan for the same files."""
    waiting: list[FileScanTask] = []
    size = 0
    for task in sorted(tasks, key=lambda task: task.file.file_path):
        if waiting and size + task.file.file_size_in_bytes > target_bytes:
            yield waiting
            waiting, size = [], 0
        waiting.append(task)
        size += task.file.file_size_in_bytes
    if waiting:
        yield waiting


def compact(table: Table, groups: list[Group], on_group: Callable[[Group], None]) -> Compacted:
    """Compact what :func:`plan` has found; ``on_group`` hears of each group that is done."""
    done: list[Group] = []
    new: list[WrittenFile] = []
    for group in groups:
        written = _rewritten(table, group)
        try:
            replace_files(
                table,
                group.paths,
                written,
                "replace",
                {SUMMARY: "true"},
                known_deletes=group.known_deletes,
            )
        except FilesGoneError:
            table.refresh()
        else:
            done.append(group)
            new += written
        on_group(group)
    return Compacted(
        table=table.name()[-1],
        groups=len(done),
        files_before=sum(len(group.tasks) for group in done),
        bytes_before=sum(group.size_bytes for group in done),
        files_after=len(new),
        bytes_after=sum(file.size_bytes for file in new),
        skipped=len(groups) - len(done),
    )


def _rewritten(table: Table, group: Group) -> list[WrittenFile]:
    import pyarrow as pa
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    name = table.name()[-1]
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    files = TaskDataFiles([table_files(table)])
    try:
        for task in group.tasks:
            for batch in scan.to_record_batches([task]):
                files.add_to(name, pa.Table.from_batches([batch]))
    except FileNotFoundError as error:
        raise LakeError(
            f"table {name} names a data file that is not there: {error}; restore it from a copy, or backfill "
            "its day into another --directory"
        ) from error
    written = files.finish()
    rows = sum(file.rows for file in written)
    if rows != group.rows and not any(task.delete_files for task in group.tasks):
        delete(table, (file.path for file in written))
        raise LakeError(
            f"{len(group.tasks)} files of table {name} have {rows} rows, and its manifests say {group.rows}; "
            "nothing was changed: look at these files, and backfill their day"
        )
    return written
