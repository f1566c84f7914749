"""What is left of a log directory when the machine loses its power: at least what was said to be on disk."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.compacted_log import CompactedLog
from tests.rigs.durable_disk import DurableDisk

from tidelog.errors import StorageError
from tidelog.ids import TopicPartition
from tidelog.records.record import Record, encode_batch
from tidelog.storage.disk import REAL_DISK, Disk
from tidelog.storage.log.leader_epochs import EpochEntry
from tidelog.storage.log.log import Log
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_dir.checkpoints import OffsetCheckpoint
from tidelog.storage.log_dir.log_dir import LogDir
from tidelog.storage.log_dir.meta_properties import MetaProperties, read_meta_properties

NOW = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=0, segment_index_bytes=4096)
COMPACT = LogConfig(
    segment_bytes=400, index_interval_bytes=64, segment_index_bytes=4096, cleanup_policy=("compact",)
)
T0 = TopicPartition("orders", 0)
SEEDS = range(30)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "disk"
    path.mkdir()
    return path


@pytest.fixture
def disk(root: Path) -> Iterator[DurableDisk]:
    with DurableDisk(root) as disk:
        yield disk


def open_log(root: Path, disk: Disk = REAL_DISK, *, recovery_point: int | None = None) -> Log:
    """The log of ``orders-0``; one that is there already is recovered from ``recovery_point`` on."""
    return Log.open(
        LogContext(root / "orders-0", CONFIG, ManualClock(), disk),
        clean_shutdown=recovery_point is None,
        recovery_point=recovery_point or 0,
    )


def append(log: Log, count: int, epoch: int = 0) -> None:
    for _ in range(count):
        log.append_as_leader(bytearray(encode_batch([Record(timestamp=NOW, value=b"v" * 80)])), epoch)


def offsets(log: Log) -> list[int]:
    return [header.base_offset for segment in log.segments for _, header in segment.scan()]


def recovered(left: Path, recovery_point: int) -> tuple[list[int], list[EpochEntry]]:
    """The offsets and the epochs of the log that is left."""
    log = open_log(left, recovery_point=recovery_point)
    try:
        return offsets(log), log.epochs.entries
    finally:
        log.close(clean=False)


# -- files at the top of the directory ----------------------------------------------------------------


def test_a_clean_mark_that_was_taken_does_not_come_back(
    root: Path, disk: DurableDisk, tmp_path: Path
) -> None:
    """Else a log that was not closed would be opened without a check."""
    log_dir = LogDir(root, disk)
    log_dir.write_clean_mark(7)
    before = LogDir(disk.lose_power(tmp_path / "before"))
    assert before.last_broker_epoch() == 7
    assert before.take_clean_mark()
    assert log_dir.take_clean_mark()
    after = LogDir(disk.lose_power(tmp_path / "after"))
    assert not after.take_clean_mark()
    for each in (before, after, log_dir):
        each.release()


def test_a_checkpoint_and_the_identity_are_on_disk_when_they_are_written(
    root: Path, disk: DurableDisk, tmp_path: Path
) -> None:
    checkpoint = OffsetCheckpoint(root / "recovery-point-offset-checkpoint", disk)
    log_dir = LogDir(root, disk)
    for offset in (3, 5):
        checkpoint.write({T0: offset})
        log_dir.write_meta(MetaProperties(0, offset, "cluster"))
        left = disk.lose_power(tmp_path / f"left-{offset}")
        assert OffsetCheckpoint(left / checkpoint.path.name).read() == {T0: offset}
        assert read_meta_properties(left) == MetaProperties(0, offset, "cluster")
    log_dir.release()


def test_a_log_directory_that_was_made_is_there(root: Path, disk: DurableDisk, tmp_path: Path) -> None:
    log_dir = LogDir(root / "made", disk)
    log_dir.write_meta(MetaProperties(0, 1, "cluster"))
    assert read_meta_properties(disk.lose_power(tmp_path / "left") / "made") is not None
    log_dir.release()


# -- logs -----------------------------------------------------------------------------------------------


def test_records_below_the_recovery_point_survive_in_a_new_partition(
    root: Path, disk: DurableDisk, tmp_path: Path
) -> None:
    log = open_log(root, disk)
    append(log, 2)
    log.files.flush()
    assert recovered(disk.lose_power(tmp_path / "left"), 2) == ([0, 1], [EpochEntry(0, 0)])
    log.close(clean=False)


def test_records_below_the_recovery_point_survive_in_new_segments(
    root: Path, disk: DurableDisk, tmp_path: Path
) -> None:
    log = open_log(root, disk)
    append(log, 2)
    log.files.flush()
    append(log, 9)
    assert len(log.segments) == 6
    log.files.close_handles()
    log.files.flush()
    for number, chance in enumerate((None, *map(random.Random, SEEDS))):
        left = disk.lose_power(tmp_path / f"left-{number}", chance, ordered=False)
        assert recovered(left, 11) == (list(range(11)), [EpochEntry(0, 0)])
    log.close(clean=False)


def test_what_was_not_synced_may_be_lost_and_nothing_else(
    root: Path, disk: DurableDisk, tmp_path: Path
) -> None:
    log = open_log(root, disk)
    append(log, 5)
    log.files.flush()
    append(log, 5)
    assert log.files.recovery_point < 10
    ends = set()
    for number, chance in enumerate((None, *map(random.Random, SEEDS))):
        left = disk.lose_power(tmp_path / f"left-{number}", chance)
        found, _ = recovered(left, log.files.recovery_point)
        assert found == list(range(len(found)))
        assert len(found) >= log.files.recovery_point
        ends.add(len(found))
    assert len(ends) > 1
    log.close(clean=False)


def test_a_leader_epoch_is_on_disk_with_its_records(root: Path, disk: DurableDisk, tmp_path: Path) -> None:
    """After a clean shutdown, and below the recovery point, epochs are not read from the records."""
    log = open_log(root, disk)
    append(log, 1, epoch=0)
    log.files.flush()
    append(log, 1, epoch=4)
    assert len(log.segments) == 1, "no new segment has the directory synced"
    log.close(clean=True)
    again = open_log(disk.lose_power(tmp_path / "left"))
    assert again.epochs.entries == [EpochEntry(0, 0), EpochEntry(4, 1)]
    again.close(clean=False)


def test_a_log_that_was_closed_is_whole_without_a_check(
    root: Path, disk: DurableDisk, tmp_path: Path
) -> None:
    log = open_log(root, disk)
    append(log, 7, epoch=1)
    log.roll()
    log.close(clean=True)
    for number, chance in enumerate((None, *map(random.Random, SEEDS))):
        left = disk.lose_power(tmp_path / f"left-{number}", chance, ordered=False)
        again = open_log(left)
        assert again.recovery is None
        assert (offsets(again), again.log_end_offset) == (list(range(7)), 7)
        assert again.epochs.entries == [EpochEntry(1, 0)]
        again.close(clean=False)


# -- compaction -----------------------------------------------------------------------------------------


class Steps(DurableDisk):
    """Loses its power before each rename as well."""

    def __init__(self, root: Path, left: Path) -> None:
        super().__init__(root)
        self._left = left
        self.found: list[Path] = []

    def rename(self, source: Path, target: Path) -> None:  # type: ignore[override]
        for seed in (None, 1, 2, 3):
            chance = None if seed is None else random.Random(1000 * len(self.found) + seed)
            self.found.append(self.lose_power(self._left / str(len(self.found)), chance))
        super().rename(source, target)


def table(left: Path, recovery_point: int) -> dict[bytes | None, bytes | None]:
    log = Log.open(
        LogContext(left / "t-0", COMPACT, ManualClock(), REAL_DISK),
        clean_shutdown=False,
        recovery_point=recovery_point,
    )
    found = CompactedLog.__new__(CompactedLog)
    found.log = log
    try:
        return {record.key: record.value for _, records in found.batches() for record in records}
    finally:
        log.close(clean=False)


def test_compaction_loses_no_key_whenever_the_power_fails(root: Path, tmp_path: Path) -> None:
    (tmp_path / "steps").mkdir()
    with Steps(root, tmp_path / "steps") as disk:
        compacted = CompactedLog(root, COMPACT, disk)
        deleted: list[Path] = []
        compacted.log.files.on_segments_deleted = deleted.extend
        for number in range(12):
            compacted.append((b"k%d" % (number % 3), b"%d" % number + b"v" * 60), (b"only-%d" % number, b"x"))
        compacted.log.roll()
        compacted.log.files.flush()
        expected = table(disk.lose_power(tmp_path / "before"), 24)
        assert len(expected) == 15
        compacted.compact()
        assert deleted
        for path in deleted:
            path.unlink()
        for seed in SEEDS:
            left = disk.lose_power(tmp_path / f"after-{seed}", random.Random(seed), ordered=False)
            assert table(left, 24) == expected
        assert len(disk.found) > 40
        for left in disk.found:
            assert table(left, 24) == expected, left
        compacted.log.close(clean=False)


def test_a_file_that_is_torn_would_be_noticed(root: Path, disk: DurableDisk, tmp_path: Path) -> None:
    """What the double does with a file that is replaced without a sync."""
    disk.write_atomically(root / "x", b"old")
    disk.write_atomically(root / "x", b"new", sync=False)
    left = [disk.lose_power(tmp_path / str(seed), random.Random(seed)) for seed in SEEDS]
    assert {(each / "x").read_bytes() for each in left} == {b"old", b"", b"new"}
    checkpoint = OffsetCheckpoint(root / "c", disk)
    disk.write_atomically(root / "c", b"1\n2\n3\n")
    with pytest.raises(StorageError):
        checkpoint.read()
