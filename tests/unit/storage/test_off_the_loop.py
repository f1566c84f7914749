"""Long file work leaves the loop alone: many segments, many producers, many logs, slow disks."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.faulty_disk import FaultyDisk
from tests.rigs.waiting import until

from tidelog.ids import TopicPartition
from tidelog.records.batch import iter_batches
from tidelog.records.record import Record, encode_batch
from tidelog.storage.cleaner.cleaner_options import CleanerOptions
from tidelog.storage.cleaner.cleaner_process import InlineRunner
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.storage.directories.log_dirs_options import LogDirsOptions
from tidelog.storage.disk import Disk
from tidelog.storage.log.leader_epochs import LeaderEpochCache
from tidelog.storage.log.log import Isolation, Log
from tidelog.storage.log.log_appender import LogAppender
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log_config import LogConfig
from tidelog.storage.producers.producer_snapshots import decode_snapshot

NOW = 1_700_000_000_000
T0 = TopicPartition("t", 0)
NEVER = 10_000_000
QUIET = LogDirsOptions(
    retention_check_interval_ms=NEVER,
    recovery_point_interval_ms=NEVER,
    log_start_interval_ms=NEVER,
    high_watermark_interval_ms=NEVER,
    producer_expiration_check_interval_ms=NEVER,
    cleaner=CleanerOptions(backoff_ms=NEVER),
)
SEGMENTS = 60
TINY = LogConfig(segment_bytes=100, retention_bytes=0)
COMPACT = LogConfig(cleanup_policy=("compact",), segment_bytes=10_000)


class WatchedDisk(FaultyDisk):
    """Knows who renames, and holds renames up while a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.renamed_in: list[int] = []
        self.may_rename = threading.Event()
        self.may_rename.set()

    def rename(self, source: Path, target: Path) -> None:  # type: ignore[override]
        if threading.current_thread() is not threading.main_thread():
            assert self.may_rename.wait(20)
        self.renamed_in.append(threading.get_ident())
        super().rename(source, target)


def loaded(path: Path, disk: Disk, *, config: LogConfig = TINY, paths: int = 1) -> LogDirs:
    directories = [path / str(number) for number in range(paths)] if paths > 1 else [path]
    dirs = LogDirs(directories, QUIET, clock=ManualClock(), disk=disk, runner=InlineRunner())
    dirs.open()
    dirs.identify(broker_id=1, cluster_id="cluster")
    dirs.load(lambda topic: config)
    return dirs


def fill(log: Log, batches: int, **how: int) -> None:
    for number in range(batches):
        records = [Record(timestamp=NOW, key=b"k", value=b"v" * 20)]
        log.append_as_leader(bytearray(encode_batch(records, **how)), 0)  # type: ignore[arg-type]
        if log.config.compact and number < batches - 1:
            log.roll()
    log.update_high_watermark(log.log_end_offset)


def copy_directory(source: Path, target: Path) -> None:
    """What a crash leaves: all files as they are now, but for the lock."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".lock"))


def test_many_segments_that_retention_drops_are_renamed_in_a_thread(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = WatchedDisk()
        dirs = loaded(tmp_path, disk)
        log = dirs.get_or_create(T0, None, TINY, is_new=True)
        fill(log, SEGMENTS)
        dirs.start()
        disk.may_rename.clear()
        assert await dirs.upkeep.delete_old_segments() == SEGMENTS
        assert log.log_start_offset == log.log_end_offset == SEGMENTS
        assert len(log.segments) == 1, "nobody finds them any more"
        await dirs.upkeep.checkpoint_log_starts()
        assert dirs.online[tmp_path].log_starts.read() == {T0: SEGMENTS}, "a crash must not bring them back"
        disk.may_rename.set()
        await until(lambda: not log.files.removed)
        assert threading.get_ident() not in disk.renamed_in
        await until(lambda: len(dirs.deletion) >= 3 * SEGMENTS)
        assert len(list(log.directory.glob("*.log"))) == 1
        await dirs.close()

    asyncio.run(scenario())


def test_what_was_removed_and_not_renamed_is_hidden_after_a_crash(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = WatchedDisk()
        dirs = loaded(tmp_path, disk)
        log = dirs.get_or_create(T0, None, TINY, is_new=True)
        fill(log, SEGMENTS)
        dirs.start()
        disk.may_rename.clear()
        await dirs.upkeep.delete_old_segments()
        await dirs.upkeep.checkpoint_all()
        copy = tmp_path.with_name("crashed")
        copy_directory(tmp_path, copy)
        disk.may_rename.set()
        await dirs.close()
        again = loaded(copy, FaultyDisk())
        assert again.logs[T0].log_start_offset == again.logs[T0].log_end_offset == SEGMENTS

    asyncio.run(scenario())


def test_a_clean_shutdown_renames_what_waits(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = WatchedDisk()
        dirs = loaded(tmp_path, disk)
        log = dirs.get_or_create(T0, None, TINY, is_new=True)
        fill(log, SEGMENTS)
        log.files.on_many_removed = lambda: None
        log.delete_old_segments()
        assert len(log.files.removed) == SEGMENTS
        await dirs.close()
        assert len(list(log.directory.glob("*.log"))) == 1

    asyncio.run(scenario())


def test_a_new_segment_takes_the_name_of_one_that_waits(tmp_path: Path) -> None:
    dirs = loaded(tmp_path, FaultyDisk())
    log = dirs.get_or_create(T0, None, TINY, is_new=True)
    fill(log, SEGMENTS)
    log.files.on_many_removed = lambda: None
    log.files.remove_segments(list(log.segments))
    assert len(log.files.removed) == SEGMENTS
    log.files.create_segment(SEGMENTS - 5)
    log.files.set_end_offset(SEGMENTS - 5)
    log.appender.go_on_at_end()
    assert len(log.files.removed) == SEGMENTS - 1
    fill(log, 20)
    assert log.log_end_offset == SEGMENTS + 15
    log.files.rename_removed(at_once=True)
    offsets = [
        next(iter_batches(log.read_bytes(offset, 1, isolation=Isolation.LOG_END)))[1].base_offset
        for offset in range(SEGMENTS - 5, SEGMENTS + 15)
    ]
    assert offsets == list(range(SEGMENTS - 5, SEGMENTS + 15))


@pytest.mark.parametrize("cut", ["before its start", "whole"])
def test_many_segments_that_were_cut_off_are_not_found_after_a_crash(tmp_path: Path, cut: str) -> None:
    dirs = loaded(tmp_path / "before", FaultyDisk())
    log = dirs.get_or_create(T0, None, TINY, is_new=True)
    log.truncate_fully_and_start_at(100)
    fill(log, SEGMENTS)
    log.files.on_many_removed = lambda: None
    if cut == "whole":
        log.truncate_fully_and_start_at(50)
    else:
        log.truncate_to(50)
    copy = tmp_path / "crashed" / "t-0"
    copy_directory(log.directory, copy)
    again = Log.open(LogContext(copy, TINY, ManualClock()), clean_shutdown=False)
    assert (again.log_start_offset, again.log_end_offset) == (50, 50)


def test_a_log_is_renamed_while_its_removed_segments_wait(tmp_path: Path) -> None:
    dirs = loaded(tmp_path, FaultyDisk())
    log = dirs.get_or_create(T0, None, TINY, is_new=True)
    fill(log, SEGMENTS)
    log.files.on_many_removed = lambda: None
    log.delete_old_segments()
    log.files.rename(tmp_path / "u-0")
    log.files.rename_removed(at_once=True)
    assert len(list((tmp_path / "u-0").glob("*.log"))) == 1


def test_many_segments_that_compaction_replaces_are_renamed_in_a_thread(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = WatchedDisk()
        dirs = loaded(tmp_path, disk, config=COMPACT)
        log = dirs.get_or_create(T0, None, COMPACT, is_new=True)
        fill(log, SEGMENTS)
        dirs.upkeep._tasks = []
        disk.may_rename.clear()
        cleaning = asyncio.create_task(dirs.cleaner.clean_dirtiest())
        await until(lambda: len(log.segments) == 2)
        on_loop = len(disk.renamed_in)
        assert next(iter_batches(log.read_bytes(0, 1000)))[1].base_offset == SEGMENTS - 2
        disk.may_rename.set()
        assert await cleaning
        assert on_loop < 5
        in_threads = [thread for thread in disk.renamed_in if thread != threading.get_ident()]
        assert len(in_threads) >= 3 * (SEGMENTS - 1)
        assert log.segments.first.files.state_suffix == ""
        assert len(list(log.directory.glob("*.log"))) == 2
        await dirs.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("is_removed", [False, True])
@pytest.mark.parametrize("how", ["deleted", "moved"])
def test_a_log_goes_away_while_the_segments_that_compaction_replaces_are_renamed(
    tmp_path: Path, how: str, is_removed: bool
) -> None:
    async def scenario() -> None:
        disk = WatchedDisk()
        dirs = loaded(tmp_path, disk, config=COMPACT, paths=2)
        log = dirs.get_or_create(T0, None, COMPACT, is_new=True)
        fill(log, SEGMENTS)
        dirs.upkeep._tasks = []
        disk.may_rename.clear()
        cleaning = asyncio.create_task(dirs.cleaner.clean_dirtiest())
        await until(lambda: len(log.segments) == 2)
        # The thread holds a lock while it renames: it is let go of as soon as somebody else waits for that.
        threading.Timer(0.05, disk.may_rename.set).start()
        if how == "deleted":
            dirs.delete(T0)
        else:
            dirs.cleaner.abort(T0)
            dirs.discard(dirs.logs.pop(T0))
        log.files.removed.clear()
        if is_removed:
            shutil.rmtree(log.directory)
        assert not await cleaning
        assert not dirs.offline_dirs
        assert not dirs.cleaner.uncleanable
        await dirs.close()

    asyncio.run(scenario())


def test_a_pass_that_is_stopped_finishes_the_replacement_that_it_has_begun(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = WatchedDisk()
        dirs = loaded(tmp_path, disk, config=COMPACT)
        log = dirs.get_or_create(T0, None, COMPACT, is_new=True)
        fill(log, SEGMENTS)
        dirs.upkeep._tasks = []
        disk.may_rename.clear()
        cleaning = asyncio.create_task(dirs.cleaner.clean_dirtiest())
        await until(lambda: len(log.segments) == 2)
        dirs.cleaner.abort(T0)
        disk.may_rename.set()
        await cleaning
        assert not log.files.removed
        assert log.segments.first.files.state_suffix == ""
        await dirs.close()

    asyncio.run(scenario())


def test_small_batches_that_are_moved_are_appended_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appended: list[int] = []
    real = LogAppender.append_as_follower

    def append_as_follower(appender: LogAppender, records: memoryview) -> object:
        appended.append(sum(1 for _ in iter_batches(records)))
        return real(appender, records)

    async def scenario() -> None:
        dirs = loaded(tmp_path, FaultyDisk(), paths=2)
        log = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
        fill(log, 1000)
        monkeypatch.setattr(LogAppender, "append_as_follower", append_as_follower)
        target = next(path for path in dirs.paths if path != log.files.log_dir)
        dirs.move(T0, target)
        await until(lambda: dirs.logs[T0] is not log)
        assert dirs.logs[T0].log_end_offset == 1000
        await dirs.close()

    asyncio.run(scenario())
    assert sum(appended) == 1000
    assert max(appended) <= 100


def test_a_snapshot_of_many_producers_is_written_by_the_flush_behind_a_roll(tmp_path: Path) -> None:
    dirs = loaded(tmp_path, FaultyDisk())
    log = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
    rolled: list[int] = []
    log.files.on_rolled = rolled.append
    for producer_id in range(600):
        fill(log, 1, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    log.roll()
    path = log.producers.snapshots.path(600)
    assert not path.exists(), "packing it would hold up the loop"
    log.files.flush_up_to(rolled.pop())
    assert [entry.producer_id for entry in decode_snapshot(path.read_bytes(), path)] == list(range(600))
    assert log.producers.snapshots.latest == 600


def test_a_snapshot_of_records_that_are_gone_is_not_kept(tmp_path: Path) -> None:
    dirs = loaded(tmp_path, FaultyDisk())
    log = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
    log.files.on_rolled = lambda offset: None
    for producer_id in range(600):
        fill(log, 1, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    log.roll()
    log.truncate_to(10)
    log.producers.write_later()
    assert not log.producers.snapshots.path(600).exists()
    assert len(log.producers.entries) == 10


class SlowDisk(FaultyDisk):
    """Syncs no earlier than a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.syncing = threading.Event()
        self.may_sync = threading.Event()

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        self.syncing.set()
        assert self.may_sync.wait(20)


def test_a_new_partition_does_not_wait_for_a_checkpoint_that_is_being_written(tmp_path: Path) -> None:
    disk = SlowDisk()
    disk.may_sync.set()
    dirs = loaded(tmp_path, disk)
    dirs.get_or_create(T0, None, LogConfig(), is_new=True)
    disk.may_sync.clear()
    disk.syncing.clear()
    log_dir = dirs.online[tmp_path]
    writer = threading.Thread(target=log_dir.checkpoint, args=(dirs.logs_in(tmp_path),))
    writer.start()
    assert disk.syncing.wait(20)
    assert dirs.get_or_create(TopicPartition("u", 0), None, LogConfig(), is_new=True).log_end_offset == 0
    disk.may_sync.set()
    writer.join()


def test_a_new_leader_epoch_does_not_wait_for_a_sync_of_the_last(tmp_path: Path) -> None:
    disk = SlowDisk()
    path = tmp_path / "leader-epoch-checkpoint"
    epochs = LeaderEpochCache(path, disk)
    epochs.assign(1, 0)
    flusher = threading.Thread(target=epochs.flush)
    flusher.start()
    assert disk.syncing.wait(20)
    epochs.assign(2, 10)
    assert path.read_text().splitlines()[2:] == ["1 0", "2 10"]
    disk.may_sync.set()
    flusher.join()
    assert path.read_text().splitlines()[2:] == ["1 0", "2 10"]


def test_the_cleaner_gives_way_between_logs(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path, FaultyDisk(), config=COMPACT)
        for index in range(120):
            dirs.get_or_create(TopicPartition("t", index), None, COMPACT, is_new=True)
        turns = 0
        choosing = asyncio.ensure_future(dirs.cleaner.clean_dirtiest())
        while not choosing.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 3
        await dirs.close()

    asyncio.run(scenario())


def test_the_many_files_of_a_deleted_log_are_closed_in_a_thread(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path, FaultyDisk())
        log = dirs.get_or_create(T0, None, TINY, is_new=True)
        fill(log, 100)
        segment = log.segments.first
        assert segment.files.log_file
        dirs.start()
        dirs.delete(T0)
        assert segment.files.is_open, "it is not done while the request is handled"
        await until(lambda: not any(each.files.is_open for each in log.segments))
        await dirs.close()

    asyncio.run(scenario())
