"""What ``tidelog lake compact`` and ``expire`` do and show: a bar, then a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.cli.output import is_terminal, print_json, print_table
from tidelog.spark.lake import compaction, expiry
from tidelog.spark.lake.lake_note import LakeError

if TYPE_CHECKING:
    from pyiceberg.table import Table


@contextmanager
def _bar(what: str, total: int | None) -> Iterator[Callable[[object], None]]:
    """Shows how far a piece of work is, on a terminal; called with each part that is done."""
    if not is_terminal():
        yield lambda part: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, transient=True) as progress:
        bar = progress.add_task(what, total=total)
        yield lambda part: progress.advance(bar)


def compact(tables: Sequence[Table], target_bytes: int, min_files: int, *, dry_run: bool, json: bool) -> None:
    """Compact tables, or show what would be compacted."""
    done: list[compaction.Compacted] = []
    for table in tables:
        groups = compaction.plan(table, target_bytes, min_files)
        if dry_run:
            done.append(_planned(table, groups))
            continue
        with _bar(f"compact {table.name()[-1]}", len(groups)) as on_group:
            done.append(compaction.compact(table, groups, on_group))
    if json:
        print_json(done)
        return
    rows = [
        (
            each.table,
            each.groups,
            each.files_before,
            each.bytes_before,
            None if dry_run else each.files_after,
            None if dry_run else each.bytes_after,
            each.skipped,
        )
        for each in done
    ]
    columns = ("table", "groups", "files before", "bytes before", "files after", "bytes after", "skipped")
    print_table(columns, rows, right=columns[1:])


def _planned(table: Table, groups: Sequence[compaction.Group]) -> compaction.Compacted:
    return compaction.Compacted(
        table=table.name()[-1],
        groups=len(groups),
        files_before=sum(len(group.tasks) for group in groups),
        bytes_before=sum(group.size_bytes for group in groups),
        files_after=0,
        bytes_after=0,
        skipped=0,
    )


def expire(
    tables: Sequence[Table], rule: expiry.ExpiryRule, lake: Path, *, dry_run: bool, json: bool
) -> None:
    """Expire snapshots and files of tables, or show what would go."""
    done: list[expiry.Expired] = []
    failures: list[str] = []
    for table in tables:
        with _bar(f"expire {table.name()[-1]}", None) as on_file:
            try:
                done.append(expiry.expire(table, rule, lake, dry_run=dry_run, on_file=on_file))
            except LakeError as failure:  # which keeps no other table from being tidied up
                failures.append(str(failure))
    if json:
        print_json(done)
    else:
        columns = ("table", "snapshots", "files", "bytes")
        rows = [(each.table, each.snapshots, each.files, each.bytes) for each in done]
        print_table(columns, rows, right=columns[1:])
    if failures:
        raise LakeError("; ".join(failures))
