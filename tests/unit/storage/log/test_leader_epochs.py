from __future__ import annotations

from pathlib import Path

import pytest
from tests.rigs.faulty_disk import FaultyDisk

from tidelog.errors import StorageError
from tidelog.storage.log.leader_epochs import EpochEntry, LeaderEpochCache


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leader-epoch-checkpoint"


def epochs(path: Path, *entries: tuple[int, int]) -> LeaderEpochCache:
    cache = LeaderEpochCache(path, FaultyDisk())
    for epoch, offset in entries:
        cache.assign(epoch, offset)
    return cache


def test_the_file_is_version_count_and_one_line_for_each_epoch(path: Path) -> None:
    epochs(path, (0, 0), (3, 1042))
    assert path.read_bytes() == b"0\n2\n0 0\n3 1042\n"
    assert LeaderEpochCache.load(path, FaultyDisk()).entries == [(0, 0), (3, 1042)]


@pytest.mark.parametrize("content", [None, b"", b"0\n0\n"])
def test_a_missing_or_empty_file_is_a_partition_without_epochs(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)
    cache = LeaderEpochCache.load(path, FaultyDisk())
    assert cache.entries == []
    assert cache.latest_epoch == -1


@pytest.mark.parametrize(
    "content", [b"1\n0\n", b"0\n", b"0\n2\n0 0\n", b"0\n1\n0\n", b"0\n1\nx y\n", b"\xff\xfe"]
)
def test_a_broken_file_is_refused_with_the_mend(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StorageError, match="delete the file to rebuild it"):
        LeaderEpochCache.load(path, FaultyDisk())


def test_an_epoch_keeps_its_first_offset(path: Path) -> None:
    cache = epochs(path, (1, 10), (1, 20))
    assert cache.entries == [EpochEntry(1, 10)]
    cache.assign(1, 5)
    assert cache.entries == [EpochEntry(1, 5)]


def test_an_epoch_that_contradicts_others_replaces_them(path: Path) -> None:
    assert epochs(path, (1, 10), (2, 20), (3, 20)).entries == [(1, 10), (3, 20)]
    assert epochs(path, (1, 10), (2, 20), (3, 30), (4, 15)).entries == [(1, 10), (4, 15)]
    assert epochs(path, (5, 10), (4, 20)).entries == [(4, 20)]


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(-1, (-1, -1)), (0, (0, 10)), (1, (1, 20)), (2, (1, 20)), (3, (3, 40)), (4, (4, 99)), (5, (-1, -1))],
)
def test_the_end_of_an_epoch_is_the_start_of_the_next(
    path: Path, epoch: int, expected: tuple[int, int]
) -> None:
    cache = epochs(path, (1, 10), (3, 20), (4, 40))
    assert cache.end_offset_for(epoch, log_end_offset=99) == expected


def test_offsets_know_their_epoch(path: Path) -> None:
    cache = epochs(path, (1, 10), (3, 20))
    assert [cache.epoch_for_offset(offset) for offset in (9, 10, 19, 20, 500)] == [None, 1, 1, 3, 3]


def test_truncation_reaches_the_file_with_the_next_flush(path: Path) -> None:
    cache = epochs(path, (1, 10), (3, 20), (4, 40))
    cache.truncate_from_end(40)
    assert cache.entries == [(1, 10), (3, 20)]
    assert cache.latest_epoch == 3
    cache.truncate_from_start(15)
    assert cache.entries == [(1, 15), (3, 20)]
    cache.truncate_from_start(20)
    assert cache.entries == [(3, 20)]
    assert path.read_bytes().count(b"\n") == 5
    cache.flush()
    assert path.read_bytes() == b"0\n1\n3 20\n"


def test_truncation_before_all_or_behind_all_changes_nothing(path: Path) -> None:
    cache = epochs(path, (1, 10), (3, 20))
    cache.truncate_from_start(9)
    cache.truncate_from_end(21)
    assert cache.entries == [(1, 10), (3, 20)]


def test_a_failed_write_leaves_the_epochs_as_they_were(path: Path) -> None:
    disk = FaultyDisk()
    cache = LeaderEpochCache(path, disk)
    cache.assign(1, 10)
    disk.free_bytes = 3
    with pytest.raises(OSError, match="space"):
        cache.assign(2, 20)
    assert cache.entries == [(1, 10)]
    assert cache.latest_epoch == 1
    assert LeaderEpochCache.load(path, FaultyDisk()).entries == [(1, 10)]


def test_clearing_empties_the_file(path: Path) -> None:
    cache = epochs(path, (1, 10))
    cache.clear()
    assert path.read_bytes() == b"0\n0\n"
    assert cache.latest_epoch == -1
