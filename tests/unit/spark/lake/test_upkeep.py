"""Compaction and expiry: the same rows in fewer files, and nothing removed that anybody needs."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.unit.spark.lake.rig import (
    DAY,
    NOON,
    TABLE,
    catalog,
    collect,
    data_paths,
    delete_rows,
    event,
    expected,
    ids,
    new_table,
    written,
)

from tidelog.spark.lake import compaction, expiry
from tidelog.spark.lake.batches import append_batch
from tidelog.spark.lake.expiry import Expired, ExpiryRule, expire
from tidelog.spark.lake.figures import data_files, figures
from tidelog.spark.lake.lake_note import LakeError
from tidelog.spark.lake.replacing import files_of_days, replace_files
from tidelog.spark.lake.snapshots import KEPT_SNAPSHOTS_PROPERTY, FilesGoneError, delete_manifests

if TYPE_CHECKING:
    from pyiceberg.table import Table

EVERYTHING = ExpiryRule(older_than_s=0, keep=1, grace_s=0)


def two_days_of_batches(root: Path) -> Table:
    table = new_table(root)
    for version in range(4):
        collect(table, 2 * version, version)
        collect(table, 2 * version + 1, 10 + version, when=NOON + DAY)
    return table


def compact(table: Table) -> compaction.Compacted:
    return compaction.compact(table, compaction.plan(table), lambda group: None)


def test_small_files_of_a_day_become_one_and_rows_stay(tmp_path: Path) -> None:
    table = two_days_of_batches(tmp_path)
    done = compact(table)
    assert (done.groups, done.files_before, done.files_after, done.skipped) == (2, 8, 2, 0)
    assert sorted((file.day, file.rows) for file in data_files(table)) == [
        (NOON.date(), 4),
        ((NOON + DAY).date(), 4),
    ]
    assert ids(tmp_path) == expected(0, 1, 2, 3, 10, 11, 12, 13)
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary.operation.value == "replace"
    assert compaction.plan(table) == []
    # The stream goes on, and knows where it was.
    assert not collect(table, 7, 13, when=NOON + DAY)
    assert collect(table, 8, 20)
    assert ids(tmp_path) == expected(0, 1, 2, 3, 10, 11, 12, 13, 20)


def test_a_plan_leaves_large_files_and_lonely_ones_alone(tmp_path: Path) -> None:
    table = two_days_of_batches(tmp_path)
    size = max(file.size_bytes for file in data_files(table))
    assert compaction.plan(table, target_bytes=size) == []
    assert [len(group.tasks) for group in compaction.plan(table, target_bytes=2 * size)] == [2, 2, 2, 2]
    assert compaction.plan(table, min_files=5) == []


def test_batches_that_come_while_a_table_is_compacted_stay(tmp_path: Path) -> None:
    table = two_days_of_batches(tmp_path)
    stream = catalog(tmp_path).table(TABLE)
    versions = iter(range(8, 20))

    def commits_meanwhile(group: compaction.Group) -> None:
        version = next(versions)
        collect(stream, version, 100 + version)

    groups = compaction.plan(table)
    commits_meanwhile(groups[0])  # planned, and the table has changed before the first commit
    done = compaction.compact(table, groups, commits_meanwhile)
    assert (done.groups, done.skipped) == (2, 0)
    assert ids(tmp_path) == expected(0, 1, 2, 3, 10, 11, 12, 13, 108, 109, 110)


def test_two_compactions_at_once_leave_each_row_once(tmp_path: Path) -> None:
    two_days_of_batches(tmp_path)
    tables = [catalog(tmp_path).table(TABLE) for _ in range(2)]
    plans = [compaction.plan(table) for table in tables]
    first, second = (
        compaction.compact(table, plan, lambda group: None) for table, plan in zip(tables, plans, strict=True)
    )
    assert (first.groups, second.groups, second.skipped) == (2, 0, 2)
    assert ids(tmp_path) == expected(0, 1, 2, 3, 10, 11, 12, 13)
    assert len(list(data_files(tables[1]))) == 2
    assert len(data_paths(tmp_path)) == 10  # the second one has taken its own back


def test_a_file_with_other_rows_than_the_manifests_say_is_not_rewritten(tmp_path: Path) -> None:
    table = two_days_of_batches(tmp_path)
    victim = min(data_paths(tmp_path))
    pq.write_table(pq.ParquetFile(victim).read().slice(0, 0), victim)
    with pytest.raises(LakeError, match=r"4 files of table credit have 3 rows, and its manifests say 4"):
        compact(table)
    assert len(data_paths(tmp_path)) == 8


def test_replacing_files_that_are_gone_changes_nothing(tmp_path: Path) -> None:
    table = two_days_of_batches(tmp_path)
    old, known = files_of_days(table, [NOON.date()]), delete_manifests(table)
    compact(table)
    new = written(table, [event(number) for number in range(4)])
    with pytest.raises(FilesGoneError, match="were replaced by somebody else"):
        replace_files(table, old, new, "overwrite", {}, known_deletes=known)
    assert not any(Path(file.path).exists() for file in new)
    assert ids(tmp_path) == expected(0, 1, 2, 3, 10, 11, 12, 13)


def test_files_of_which_rows_were_deleted_meanwhile_are_not_replaced(tmp_path: Path) -> None:
    table = two_days_of_batches(tmp_path)
    old, known = files_of_days(table, [NOON.date()]), delete_manifests(table)
    new = written(table, [event(number) for number in range(4)])
    delete_rows(tmp_path, old[0], 0)
    left = ids(tmp_path)
    assert left.total() == 7
    with pytest.raises(FilesGoneError, match="another engine has deleted rows of table credit meanwhile"):
        replace_files(table, old, new, "overwrite", {}, known_deletes=known)
    assert not any(Path(file.path).exists() for file in new)
    assert ids(tmp_path) == left
    with pytest.raises(LakeError, match="has files with deletions of another engine"):
        files_of_days(table, [NOON.date()])


def stream_drops_snapshots(root: Path) -> Counter[str]:
    """Nine batches on a table that keeps three snapshots: whatever it had before is dropped. What it has."""
    table = catalog(root).table(TABLE)
    before = {each.snapshot_id for each in table.snapshots()}
    with table.transaction() as transaction:
        transaction.set_properties({KEPT_SNAPSHOTS_PROPERTY: "3"})
    for version in range(8, 17):
        collect(table, version, version + 20, when=NOON + DAY)
    assert not before & {each.snapshot_id for each in table.snapshots()}
    return expected(0, 1, 2, 3, 10, 11, 12, 13, *range(28, 37))


def test_files_are_replaced_though_the_snapshot_that_they_were_planned_on_is_dropped(tmp_path: Path) -> None:
    table = two_days_of_batches(tmp_path)
    old, known = files_of_days(table, [NOON.date()]), delete_manifests(table)
    new = written(table, [event(number) for number in range(4)])
    left = stream_drops_snapshots(tmp_path)
    replace_files(table, old, new, "overwrite", {}, known_deletes=known)
    assert ids(tmp_path) == left
    assert files_of_days(table, [NOON.date()]) == [file.path for file in new]


def test_a_table_is_compacted_though_the_snapshot_of_the_plan_is_dropped(tmp_path: Path) -> None:
    table = two_days_of_batches(tmp_path)
    groups = compaction.plan(table)
    left = stream_drops_snapshots(tmp_path)
    done = compaction.compact(table, groups, lambda group: None)
    assert (done.groups, done.skipped) == (2, 0)
    assert ids(tmp_path) == left


def test_rows_that_are_deleted_while_a_table_is_compacted_stay_deleted(tmp_path: Path) -> None:
    table = two_days_of_batches(tmp_path)
    first, second = compaction.plan(table)

    def deletes_meanwhile(group: compaction.Group) -> None:
        if group is first:
            delete_rows(tmp_path, second.paths[0], 0)

    done = compaction.compact(table, [first, second], deletes_meanwhile)
    assert (done.groups, done.skipped) == (1, 1)
    left = ids(tmp_path)
    assert left.total() == 7
    # Who plans once more reads what is left.
    done = compact(table)
    assert (done.groups, done.skipped) == (1, 0)
    assert ids(tmp_path) == left


def test_rows_that_are_deleted_before_the_first_commit_of_a_compaction_stay_deleted(tmp_path: Path) -> None:
    table = two_days_of_batches(tmp_path)
    groups = compaction.plan(table)
    delete_rows(tmp_path, groups[1].paths[0], 0)
    left = ids(tmp_path)
    done = compaction.compact(table, groups, lambda group: None)
    # The first group sees the table anew before it commits; the second must not take that for its plan.
    assert (done.groups, done.skipped) == (0, 2)
    assert ids(tmp_path) == left


def test_expiry_forgets_snapshots_and_removes_what_only_they_had(tmp_path: Path) -> None:
    table = two_days_of_batches(tmp_path)
    compact(table)
    orphan = written(table, [event(99)])
    dry = expire(table, EVERYTHING, tmp_path, dry_run=True)
    assert (dry.snapshots, len(data_paths(tmp_path)), len(table.snapshots())) == (9, 11, 10)
    done = expire(table, EVERYTHING, tmp_path, dry_run=False)
    assert done.snapshots == 9
    assert done.files >= dry.files
    assert {str(path) for path in data_paths(tmp_path)} == {file.path for file in data_files(table)}
    assert not Path(orphan[0].path).exists()
    assert ids(tmp_path) == expected(0, 1, 2, 3, 10, 11, 12, 13)
    assert expire(table, EVERYTHING, tmp_path, dry_run=False) == Expired(TABLE, 0, 0, 0)
    assert collect(table, 8, 20)
    assert ids(tmp_path)["e-20"] == 1


def test_expiry_keeps_what_is_young(tmp_path: Path) -> None:
    table = two_days_of_batches(tmp_path)
    compact(table)
    under_way = written(table, [event(20)])
    young = ExpiryRule(older_than_s=3600, keep=1, grace_s=3600)
    assert expire(table, young, tmp_path, dry_run=False) == Expired(TABLE, 0, 0, 0)
    # Files that were replaced just now stay, however long ago they were written.
    assert expire(table, ExpiryRule(0, 1, 3600), tmp_path, dry_run=False).files == 0
    assert len(data_paths(tmp_path)) == 11
    assert append_batch(table, under_way, "query", 8)
    assert ids(tmp_path) == expected(0, 1, 2, 3, 10, 11, 12, 13, 20)


def test_replaced_files_are_as_young_as_their_replacement(tmp_path: Path) -> None:
    table = two_days_of_batches(tmp_path)
    long_ago = time.time() - 86_400
    for path in data_paths(tmp_path):
        os.utime(path, (long_ago, long_ago))
    compact(table)
    expire(table, ExpiryRule(0, 1, 3600), tmp_path, dry_run=False)
    assert len(data_paths(tmp_path)) == 10


def test_expiry_keeps_so_many_snapshots_as_it_is_told(tmp_path: Path) -> None:
    table = two_days_of_batches(tmp_path)
    assert expire(table, ExpiryRule(0, 3, 0), tmp_path, dry_run=False).snapshots == 5
    assert len(table.snapshots()) == 3
    for snapshot in table.snapshots():
        assert table.scan(snapshot_id=snapshot.snapshot_id).count() > 0


def test_snapshots_that_a_stream_drops_meanwhile_do_not_end_expiry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = two_days_of_batches(tmp_path)
    found_named, calls = expiry._named, []

    def stream_goes_on(*arguments: Any) -> set[str]:
        calls.append(1)
        if len(calls) == 1:
            stream_drops_snapshots(tmp_path)
        return found_named(*arguments)

    monkeypatch.setattr(expiry, "_named", stream_goes_on)
    assert expire(table, ExpiryRule(3600, 1, 0), tmp_path, dry_run=False).snapshots == 0
    assert len(calls) == 2
    assert ids(tmp_path) == expected(0, 1, 2, 3, 10, 11, 12, 13, *range(28, 37))


def test_a_manifest_that_is_lost_is_told_and_nothing_expires(tmp_path: Path) -> None:
    table = two_days_of_batches(tmp_path)
    head = table.current_snapshot()
    assert head is not None
    Path(head.manifest_list).unlink()
    with pytest.raises(LakeError, match=r"credit of the lake names a file that is not there: .*restore"):
        expire(table, ExpiryRule(3600, 1, 0), tmp_path, dry_run=False)
    assert len(data_paths(tmp_path)) == 8


def test_figures_tell_rows_files_days_and_batches(tmp_path: Path) -> None:
    told = figures(two_days_of_batches(tmp_path))
    assert (told.rows, told.files, told.small_files, told.snapshots) == (8, 8, 8, 8)
    assert (told.first_day, told.last_day) == (NOON.date(), (NOON + DAY).date())
    assert told.batches == {"query": 7}
    empty = figures(catalog(tmp_path).ensure("empty", {"event_time": "time"}))
    assert (empty.rows, empty.committed_at, empty.first_day) == (0, None, None)
