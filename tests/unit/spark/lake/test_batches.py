"""Commits of batches: each counts once, whatever dies or comes at the same time."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from tests.unit.spark.lake.rig import (
    COLUMNS,
    TABLE,
    catalog,
    collect,
    data_paths,
    event,
    expected,
    ids,
    new_table,
    written,
)

from tidelog.spark.lake import snapshots
from tidelog.spark.lake.batches import append_batch, last_batch
from tidelog.spark.lake.lake_note import LakeError


def test_batches_are_read_back_and_told_in_the_summary(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    assert collect(table, 0, 1, 2)
    assert collect(table, 1, 3)
    assert ids(tmp_path) == expected(1, 2, 3)
    head = catalog(tmp_path).table(TABLE).current_snapshot()
    assert head is not None
    assert head.summary is not None
    told = head.summary.additional_properties
    assert (told["tidelog.application"], told["tidelog.batch"]) == ("query", "1")
    assert (told["total-records"], told["total-data-files"]) == ("3", "2")


def test_a_batch_that_comes_again_adds_nothing_and_leaves_no_file(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    collect(table, 0, 1, 2)
    # The process died behind the commit, before Spark noted the batch; the next one begins afresh.
    before = data_paths(tmp_path)
    assert not collect(catalog(tmp_path).table(TABLE), 0, 1, 2)
    assert ids(tmp_path) == expected(1, 2)
    assert data_paths(tmp_path) == before
    assert len(catalog(tmp_path).table(TABLE).snapshots()) == 1


def test_files_that_were_never_committed_are_in_no_table(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    written(table, [event(1)])  # and the process died
    assert ids(tmp_path) == expected()
    assert collect(table, 0, 1)
    assert ids(tmp_path) == expected(1)


def test_the_number_outlives_the_snapshots(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    collect(table, 0, 1)
    collect(table, 1, 2)
    append_batch(table, written(table, [event(3)]), "another query", 0)
    assert snapshots.drop_snapshots(table, [each.snapshot_id for each in table.snapshots()[:-1]])
    assert not collect(catalog(tmp_path).table(TABLE), 1, 2)
    assert ids(tmp_path) == expected(1, 2, 3)


def test_streams_do_not_know_each_others_numbers(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    assert append_batch(table, written(table, [event(1)]), "one", 0)
    assert append_batch(table, written(table, [event(2)]), "two", 0)
    assert ids(tmp_path) == expected(1, 2)
    assert (last_batch(table, "one"), last_batch(table, "two"), last_batch(table, "three")) == (0, 0, None)


def test_a_checkpoint_that_is_older_than_the_lake_is_refused(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    collect(table, 7, 1)
    with pytest.raises(
        LakeError, match=r"has batch 7 of query, and batch 5 comes now: the checkpoint is older"
    ):
        collect(table, 5, 2)
    assert ids(tmp_path) == expected(1)


def test_an_empty_batch_is_no_snapshot(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    assert not append_batch(table, [], "query", 0)
    assert table.snapshots() == []


def test_two_at_once_with_the_same_batch_leave_one(tmp_path: Path) -> None:
    new_table(tmp_path)
    tables = [catalog(tmp_path).table(TABLE) for _ in range(2)]
    files = [written(table, [event(1), event(2)]) for table in tables]
    # Both have looked at the table before either commits: a driver that was thought dead, and the next one.
    assert append_batch(tables[0], files[0], "query", 0)
    assert not append_batch(tables[1], files[1], "query", 0)
    assert ids(tmp_path) == expected(1, 2)


def test_streams_and_threads_at_once_lose_nothing(tmp_path: Path) -> None:
    new_table(tmp_path)
    streams, batches = 4, 6

    def stream(number: int) -> None:
        table = catalog(tmp_path).table(TABLE)
        for version in range(batches):
            files = written(table, [event(number * 100 + version)])
            assert append_batch(table, files, f"query-{number}", version)

    _all_at_once([lambda number=number: stream(number) for number in range(streams)])  # type: ignore[misc]
    assert ids(tmp_path) == expected(*(n * 100 + v for n in range(streams) for v in range(batches)))


def test_processes_at_once_leave_each_batch_once(tmp_path: Path) -> None:
    new_table(tmp_path)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_stream_of_five, args=(tmp_path,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert ids(tmp_path) == expected(*range(5))


def _stream_of_five(root: Path) -> None:
    """The same stream in each process: one of them may find the other ahead, and may not go back."""
    table = catalog(root).table(TABLE)
    for version in range(5):
        try:
            collect(table, version, version)
        except LakeError as error:
            assert "the checkpoint is older" in str(error)  # noqa: PT017
            return


@pytest.mark.parametrize("landed", [True, False])
def test_a_commit_of_which_nothing_is_heard_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    table = new_table(tmp_path)
    commit_table = SqlCatalog.commit_table
    calls: list[int] = []

    def unheard(*arguments: Any) -> Any:
        calls.append(1)
        answer = commit_table(*arguments) if landed or len(calls) > 1 else None
        if len(calls) == 1:
            raise CommitStateUnknownException("the connection broke")
        return answer

    monkeypatch.setattr(SqlCatalog, "commit_table", unheard)
    assert collect(table, 0, 1)
    assert ids(tmp_path) == expected(1)
    assert len(catalog(tmp_path).table(TABLE).snapshots()) == 1


def test_a_table_that_others_change_all_the_time_is_told_of_and_left_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path)
    collect(table, 0, 1)
    manifests = set((tmp_path / TABLE / "metadata").glob("*.avro"))

    def refuse(*arguments: Any) -> None:
        raise CommitFailedException("somebody was quicker")

    monkeypatch.setattr(SqlCatalog, "commit_table", refuse)
    monkeypatch.setattr(snapshots, "LONGEST_WAIT_S", 0.001)
    with pytest.raises(LakeError, match="table credit of the lake could not be changed in 30 attempts"):
        collect(table, 1, 2)
    assert set((tmp_path / TABLE / "metadata").glob("*.avro")) == manifests
    monkeypatch.undo()
    assert collect(table, 1, 2)
    assert ids(tmp_path) == expected(1, 2)


def test_many_commits_keep_few_snapshots_manifests_and_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path, COLUMNS)
    with table.transaction() as transaction:
        transaction.set_properties({"history.expire.min-snapshots-to-keep": "5"})
    monkeypatch.setattr(snapshots, "MERGED_MANIFESTS", 4)
    for version in range(40):
        collect(table, version, version)
    assert len(table.snapshots()) <= 10
    head = table.current_snapshot()
    assert head is not None
    assert len(head.manifests(table.io)) < 12
    assert ids(tmp_path) == expected(*range(40))
    # Old snapshots took their manifests along, and those that are kept can be read.
    for snapshot in table.snapshots():
        assert table.scan(snapshot_id=snapshot.snapshot_id).count() > 30
    assert len(list((tmp_path / TABLE / "metadata").glob("*.avro"))) < 40


def test_a_tagged_snapshot_is_never_dropped(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with table.transaction() as transaction:
        transaction.set_properties({"history.expire.min-snapshots-to-keep": "2"})
    collect(table, 0, 0)
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_tag(head.snapshot_id, "first").commit()
    for version in range(1, 8):
        collect(table, version, version)
    assert table.scan(snapshot_id=head.snapshot_id).to_arrow()["event_id"].to_pylist() == ["e-0"]


def test_a_manifest_that_is_lost_is_told_in_a_sentence(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    collect(table, 0, 1)
    head = table.current_snapshot()
    assert head is not None
    Path(head.manifest_list).unlink()
    with pytest.raises(LakeError, match=r"credit of the lake names a file that is not there: .*restore"):
        collect(table, 1, 2)


def test_manifests_that_somebody_else_has_removed_do_not_undo_a_commit(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    with table.transaction() as transaction:
        transaction.set_properties({"history.expire.min-snapshots-to-keep": "2"})
    collect(table, 0, 0)
    oldest = table.current_snapshot()
    assert oldest is not None
    collect(table, 1, 1)
    Path(oldest.manifest_list).unlink()
    for version in range(2, 6):
        assert collect(table, version, version)
    assert table.snapshot_by_id(oldest.snapshot_id) is None
    assert ids(tmp_path) == expected(*range(6))


def _all_at_once(works: list[Callable[[], None]]) -> None:
    failures: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
