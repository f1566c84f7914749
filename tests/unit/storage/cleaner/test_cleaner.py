"""The cleaner: it picks the right log, works in a process of its own, and survives every kind of trouble."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.waiting import until

from tidelog.ids import TopicPartition
from tidelog.records.batch import iter_batches
from tidelog.records.record import Record, decode_batch, encode_batch
from tidelog.storage.cleaner.cleanable import examine
from tidelog.storage.cleaner.cleaner_options import CleanerOptions
from tidelog.storage.cleaner.cleaner_process import CleanerProcess, CompactionRunner, InlineRunner, WorkerDied
from tidelog.storage.cleaner.cleaner_worker import CompactionEvent, CompactionFailed, Throttle
from tidelog.storage.cleaner.cleaning_pass import CleaningPass
from tidelog.storage.cleaner.compaction import CompactionDone, CompactionJob
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.storage.directories.log_dirs_options import LogDirsOptions
from tidelog.storage.log.log import Log
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_dir.checkpoints import OffsetCheckpoint

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
COMPACT = LogConfig(cleanup_policy=("compact",))
HOUR_MS = 3_600_000


def loaded(
    path: Path,
    runner: CompactionRunner | None = None,
    *,
    clock: ManualClock | None = None,
    backoff_ms: int = 5,
) -> LogDirs:
    options = LogDirsOptions(cleaner=CleanerOptions(backoff_ms=backoff_ms))
    dirs = LogDirs([path], options, clock=clock or ManualClock(), runner=runner or InlineRunner())
    dirs.open()
    dirs.identify(broker_id=1, cluster_id="cluster")
    dirs.load(lambda topic: COMPACT)
    return dirs


def fill(log: Log, *keys: bytes, now_ms: int = 1_700_000_000_000) -> None:
    """Append one record per key and finish the segment."""
    for key in keys:
        batch = encode_batch([Record(timestamp=now_ms, key=key, value=b"x" * 100)])
        log.append_as_leader(bytearray(batch), 0)
    log.update_high_watermark(log.log_end_offset)
    log.roll()


def offsets_in(log: Log) -> list[int]:
    found: list[int] = []
    for segment in log.segments:
        data = segment.read_bytes(0, segment.size)
        found += [record.offset for pos, _ in iter_batches(data) for record in decode_batch(data, pos)]
    return found


# -- choosing -------------------------------------------------------------------------------------


def test_the_dirtiest_log_that_is_dirty_enough_is_chosen(tmp_path: Path) -> None:
    dirs = loaded(tmp_path)
    clean = dirs.get_or_create(T0, None, COMPACT)
    dirty = dirs.get_or_create(T1, None, COMPACT)
    plain = dirs.get_or_create(T2, None, LogConfig())
    assert dirs.cleaner.choose() is None
    for log in (clean, dirty, plain):
        fill(log, b"a", b"b")
    log_dir = next(iter(dirs.online.values()))
    log_dir.cleaned_offsets = {T0: 2}
    chosen = dirs.cleaner.choose()
    assert chosen is not None
    assert chosen.log is dirty
    log_dir.cleaned_offsets[T1] = 2
    assert dirs.cleaner.choose() is None
    fill(clean, b"c")
    assert dirs.cleaner.choose() is None, "a third is dirty, half must be"
    fill(clean, b"c", b"c")
    chosen = dirs.cleaner.choose()
    assert chosen is not None
    assert (chosen.log, chosen.first_dirty_offset, chosen.upper_bound) == (clean, 2, 5)
    assert chosen.ratio == pytest.approx(0.6)
    asyncio.run(dirs.close())


def test_min_compaction_lag_keeps_young_segments(tmp_path: Path) -> None:
    clock = ManualClock()
    config = LogConfig(cleanup_policy=("compact",), min_compaction_lag_ms=HOUR_MS)
    log = Log.open(LogContext(tmp_path / "t-0", config, clock), clean_shutdown=True)
    fill(log, b"a", now_ms=clock.time_ms())
    clock.advance(1000)
    fill(log, b"a", now_ms=clock.time_ms())
    assert examine(log, None, clock.time_ms()).upper_bound == 0
    clock.advance(HOUR_MS - 1000)
    assert examine(log, None, clock.time_ms()).upper_bound == 1
    clock.advance(1000)
    assert examine(log, None, clock.time_ms()).upper_bound == 2
    log.close()


def test_max_compaction_lag_asks_for_a_pass_however_clean_the_log_is(tmp_path: Path) -> None:
    clock = ManualClock()
    config = LogConfig(cleanup_policy=("compact",), max_compaction_lag_ms=HOUR_MS)
    log = Log.open(LogContext(tmp_path / "t-0", config, clock), clean_shutdown=True)
    fill(log, *[b"a"] * 20)
    fill(log, b"b", now_ms=clock.time_ms())
    dirty = examine(log, 20, clock.time_ms())
    assert dirty.ratio < 0.1
    assert not dirty.is_due
    clock.advance(HOUR_MS + 1)
    assert examine(log, 20, clock.time_ms()).is_due
    assert not examine(log, 21, clock.time_ms()).is_due, "nothing is dirty any more"
    log.close()


@pytest.mark.parametrize(("checkpoint", "first_dirty"), [(None, 1), (0, 1), (2, 2), (99, 1)])
def test_a_checkpoint_outside_the_log_means_cleaning_from_its_start(
    tmp_path: Path, checkpoint: int | None, first_dirty: int
) -> None:
    clock = ManualClock()
    log = Log.open(LogContext(tmp_path / "t-0", COMPACT, clock), clean_shutdown=True)
    fill(log, b"a", b"b", b"c")
    log.increment_log_start_offset(1)
    assert examine(log, checkpoint, clock.time_ms()).first_dirty_offset == first_dirty
    log.close()


# -- the process ----------------------------------------------------------------------------------


def test_logs_are_compacted_in_a_process_that_starts_late_and_ends_with_the_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = CleanerProcess()
        dirs = loaded(tmp_path, process)
        dirs.start()
        assert not await dirs.cleaner.clean_dirtiest()
        assert process.pid is None, "no work, no process"
        log = dirs.get_or_create(T0, None, COMPACT)
        fill(log, b"a", b"b", b"a")
        fill(log, b"a", b"c")
        path = tmp_path / "cleaner-offset-checkpoint"
        await until(lambda: OffsetCheckpoint(path).read() == {T0: 5})
        assert offsets_in(log) == [1, 3, 4]
        pid = process.pid
        assert pid is not None
        assert pid != os.getpid()
        await dirs.close()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    asyncio.run(scenario())
    again = loaded(tmp_path)
    assert offsets_in(again.logs[T0]) == [1, 3, 4]
    assert next(iter(again.online.values())).cleaned_offsets == {T0: 5}
    assert again.cleaner.choose() is None
    asyncio.run(again.close())


def test_an_idle_process_ends_and_the_next_job_starts_another(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = CleanerProcess(idle_s=0.01)
        dirs = loaded(tmp_path, process)
        log = dirs.get_or_create(T0, None, COMPACT)
        fill(log, b"a", b"a")
        assert await dirs.cleaner.clean_dirtiest()
        await until(lambda: process.pid is None)
        fill(log, b"a", b"a", b"a")
        assert await dirs.cleaner.clean_dirtiest()
        assert offsets_in(log) == [4]
        await dirs.close()

    asyncio.run(scenario())


def test_a_worker_that_is_killed_is_noticed_and_the_log_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        process = CleanerProcess()
        dirs = loaded(tmp_path, process)
        log = dirs.get_or_create(T0, None, COMPACT)
        fill(log, b"a", b"a")
        # Slow enough to be caught in the middle of its job.
        dirs.cleaner.options = CleanerOptions(max_bytes_per_second=10)
        cleaning = asyncio.create_task(dirs.cleaner.clean_dirtiest())
        await until(lambda: process.pid is not None)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        assert not await cleaning
        assert not dirs.cleaner.uncleanable
        assert offsets_in(log) == [0, 1]
        dirs.cleaner.options = CleanerOptions()
        assert await dirs.cleaner.clean_dirtiest()
        assert offsets_in(log) == [1]
        await dirs.close()

    asyncio.run(scenario())
    assert "the cleaner's worker ended with code -9 while compacting t-0; it is tried again" in caplog.text


def test_deleting_a_log_stops_its_compaction(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        process = CleanerProcess()
        dirs = loaded(tmp_path, process)
        log = dirs.get_or_create(T0, None, COMPACT)
        fill(log, b"a", b"a")
        dirs.cleaner.options = CleanerOptions(max_bytes_per_second=10)
        cleaning = asyncio.create_task(dirs.cleaner.clean_dirtiest())
        await until(lambda: process.pid is not None)
        dirs.delete(T0)
        async with asyncio.timeout(20):
            assert not await cleaning
        assert not dirs.offline_dirs
        assert not dirs.cleaner.uncleanable
        await dirs.close()

    asyncio.run(scenario())
    assert "tried again" not in caplog.text


def test_close_does_not_wait_for_a_long_compaction(tmp_path: Path) -> None:
    async def scenario() -> None:
        process = CleanerProcess()
        dirs = loaded(tmp_path, process)
        fill(dirs.get_or_create(T0, None, COMPACT), b"a", b"a")
        dirs.cleaner.options = CleanerOptions(max_bytes_per_second=1)
        dirs.start()
        await until(lambda: process.pid is not None)
        async with asyncio.timeout(20):
            await dirs.close()

    asyncio.run(scenario())
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert not list(tmp_path.glob("*/*.cleaned"))


# -- trouble --------------------------------------------------------------------------------------


class TroubledRunner(InlineRunner):
    """Ends jobs as it is told to, before it does them."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble: list[CompactionFailed | WorkerDied] = []
        self.at_start: Callable[[], object] = lambda: None
        self.before: Callable[[], object] = lambda: None

    async def run(self, job: CompactionJob) -> AsyncGenerator[CompactionEvent, None]:
        self.at_start()
        if self.trouble:
            trouble = self.trouble.pop(0)
            if isinstance(trouble, WorkerDied):
                raise trouble
            yield trouble
            return
        async with contextlib.aclosing(super().run(job)) as events:
            async for event in events:
                self.before()
                yield event


def test_a_log_that_cannot_be_cleaned_is_named_once_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path)
        bad = dirs.get_or_create(T0, None, COMPACT)
        good = dirs.get_or_create(T1, None, COMPACT)
        fill(bad, b"a", b"a")
        path = bad.segments.first.path()
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        assert not await dirs.cleaner.clean_dirtiest()
        assert dirs.cleaner.uncleanable == {T0}
        fill(good, b"a", b"a")
        assert await dirs.cleaner.clean_dirtiest()
        assert not await dirs.cleaner.clean_dirtiest()
        assert path.read_bytes() == data
        await dirs.close()

    asyncio.run(scenario())
    assert caplog.text.count("t-0 is not compacted, and tried again in an hour") == 1
    assert "fails its CRC" in caplog.text


def test_a_log_that_ends_three_workers_is_left_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = TroubledRunner()
        dirs = loaded(tmp_path, runner)
        fill(dirs.get_or_create(T0, None, COMPACT), b"a", b"a")
        runner.trouble = [WorkerDied("out of memory")] * 3
        for _ in range(2):
            assert not await dirs.cleaner.clean_dirtiest()
            assert not dirs.cleaner.uncleanable
        assert not await dirs.cleaner.clean_dirtiest()
        assert dirs.cleaner.uncleanable == {T0}
        await dirs.close()

    asyncio.run(scenario())


def test_a_disk_error_in_the_worker_takes_the_directory_offline(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = TroubledRunner()
        dirs = loaded(tmp_path, runner)
        fill(dirs.get_or_create(T0, None, COMPACT), b"a", b"a")
        runner.trouble = [CompactionFailed(cause="disk", message="[Errno 5] Input/output error")]
        assert not await dirs.cleaner.clean_dirtiest()
        assert list(dirs.offline_dirs) == [tmp_path]
        assert dirs.all_offline
        await dirs.close()

    asyncio.run(scenario())


def test_a_log_that_is_truncated_during_a_pass_keeps_what_it_has(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = TroubledRunner()
        dirs = loaded(tmp_path, runner)
        log = dirs.get_or_create(T0, None, COMPACT)
        fill(log, b"a", b"a", b"b")
        runner.before = lambda: dirs.truncate_to(T0, 2)
        assert not await dirs.cleaner.clean_dirtiest()
        assert offsets_in(log) == [0, 1]
        assert not list(log.directory.glob("*.cleaned"))
        runner.before = lambda: None
        fill(log, b"c")
        assert await dirs.cleaner.clean_dirtiest()
        assert offsets_in(log) == [1, 2]
        await dirs.close()

    asyncio.run(scenario())


def test_a_log_that_is_truncated_before_the_end_of_its_pass_is_read_is_not_clean(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = TroubledRunner()
        dirs = loaded(tmp_path, runner)
        log = dirs.get_or_create(T0, None, COMPACT)
        fill(log, b"a", b"a", b"b")
        # The group is swapped in, the end of the pass has been sent, and then the log is cut.
        before = iter((lambda: None, lambda: dirs.truncate_to(T0, 2)))
        runner.before = lambda: next(before)()
        assert not await dirs.cleaner.clean_dirtiest()
        assert offsets_in(log) == [1]
        assert next(iter(dirs.online.values())).cleaned_offsets == {}
        await dirs.close()

    asyncio.run(scenario())


def test_segments_that_retention_takes_from_under_the_worker_are_no_disk_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = TroubledRunner()
        dirs = loaded(tmp_path, runner)
        log = dirs.get_or_create(T0, None, COMPACT)
        fill(log, b"a", b"a")
        fill(log, b"b")
        runner.trouble = [CompactionFailed(cause="disk", message="[Errno 2] No such file or directory")]
        runner.at_start = lambda: (log.increment_log_start_offset(2), log.delete_old_segments())
        assert not await dirs.cleaner.clean_dirtiest()
        assert not dirs.offline_dirs
        assert not dirs.cleaner.uncleanable
        assert offsets_in(log) == [2]
        await dirs.close()

    asyncio.run(scenario())


def test_truncation_behind_the_clean_part_makes_it_dirty_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path)
        log = dirs.get_or_create(T0, None, COMPACT)
        fill(log, b"a", b"b")
        fill(log, b"c", b"d")
        assert await dirs.cleaner.clean_dirtiest()
        log_dir = next(iter(dirs.online.values()))
        assert log_dir.cleaned_offsets == {T0: 4}
        dirs.truncate_to(T0, 3)
        assert log_dir.cleaned_offsets == {T0: log.segments.active.base_offset}
        dirs.truncate_fully_and_start_at(T0, 100)
        assert (log.log_start_offset, log.log_end_offset) == (100, 100)
        await dirs.close()

    asyncio.run(scenario())


def test_what_truncation_made_dirty_is_dirty_after_a_restart_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        dirs = loaded(tmp_path, clock=clock)
        log = dirs.get_or_create(T0, None, COMPACT)
        fill(log, b"k", b"a")
        fill(log, b"b", b"c", b"d", b"e")
        assert await dirs.cleaner.clean_dirtiest()
        dirs.truncate_to(T0, 2)
        start_of_cut = log.segments.active.base_offset
        assert OffsetCheckpoint(tmp_path / "cleaner-offset-checkpoint").read() == {T0: start_of_cut}
        log.append_as_leader(bytearray(encode_batch([Record(timestamp=clock.time_ms(), key=b"k")])), 0)
        fill(log, b"f", b"g", b"h")
        await dirs.close()

        dirs = loaded(tmp_path, clock=clock)
        log = dirs.logs[T0]
        assert await dirs.cleaner.clean_dirtiest()
        assert offsets_in(log) == [1, 2, 3, 4, 5], "the tombstone of k stays, its value goes"
        await dirs.close()

    asyncio.run(scenario())


def test_truncation_of_a_running_broker_is_written_down_in_the_background(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path)
        logs = [dirs.get_or_create(partition, None, COMPACT) for partition in (T0, T1)]
        for log in logs:
            fill(log, b"a", b"b")
            fill(log, b"c", b"d")
            assert await dirs.cleaner.clean_dirtiest()
        checkpoint = OffsetCheckpoint(tmp_path / "cleaner-offset-checkpoint")
        assert checkpoint.read() == {T0: 4, T1: 4}
        dirs.start()
        for partition in (T0, T1):
            dirs.truncate_to(partition, 0)
        await until(lambda: checkpoint.read() == {T0: 0, T1: 0})
        await dirs.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(("believed", "first_dirty"), [(0, 1), (99, 1), (2, 2)])
def test_a_checkpoint_outside_the_log_is_corrected_for_good(
    tmp_path: Path, believed: int, first_dirty: int
) -> None:
    dirs = loaded(tmp_path)
    log = dirs.get_or_create(T0, None, COMPACT)
    fill(log, b"a", b"b", b"c")
    log.increment_log_start_offset(1)
    log_dir = next(iter(dirs.online.values()))
    log_dir.cleaned_offsets[T0] = believed
    log_dir.checkpoint_cleaned([log])
    dirs.cleaner.choose()
    assert log_dir.cleaned_offsets == {T0: first_dirty}
    assert OffsetCheckpoint(tmp_path / "cleaner-offset-checkpoint").read() == {T0: first_dirty}
    asyncio.run(dirs.close())


def test_a_paused_partition_is_not_cleaned(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path)
        fill(dirs.get_or_create(T0, None, COMPACT), b"a", b"a")
        dirs.cleaner.pause(T0)
        dirs.cleaner.pause(T0)
        assert not await dirs.cleaner.clean_dirtiest()
        dirs.cleaner.resume(T0)
        assert not await dirs.cleaner.clean_dirtiest()
        dirs.cleaner.resume(T0)
        assert await dirs.cleaner.clean_dirtiest()
        await dirs.close()

    asyncio.run(scenario())


def test_appends_during_a_pass_are_not_lost(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = TroubledRunner()
        dirs = loaded(tmp_path, runner)
        log = dirs.get_or_create(T0, None, COMPACT)
        fill(log, b"a", b"a")
        runner.before = lambda: fill(log, b"a", b"z")
        assert await dirs.cleaner.clean_dirtiest()
        assert offsets_in(log)[0] == 1
        assert offsets_in(log)[-1] == log.log_end_offset - 1
        await dirs.close()

    asyncio.run(scenario())


def test_the_throttle_sleeps_as_long_as_the_rate_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = 100.0, 0.0

    def sleep(seconds: float) -> None:
        nonlocal now, slept
        now += seconds
        slept += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", sleep)
    throttle = Throttle(1000.0)
    for _ in range(50):
        throttle(100)
    assert slept == pytest.approx(5.0, abs=0.2)


def test_a_job_and_its_events_travel_as_json(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = Log.open(LogContext(tmp_path / "t-0", COMPACT, ManualClock()), clean_shutdown=True)
        fill(log, b"a", b"a")
        cleaning = CleaningPass(examine(log, None, 0), CleanerOptions(), ManualClock())
        process = CleanerProcess()
        events = [event async for event in process.run(cleaning.job)]
        inline = [event async for event in InlineRunner().run(cleaning.job)]
        assert events == inline
        assert isinstance(events[-1], CompactionDone)
        await process.close()
        log.close()

    asyncio.run(scenario())
