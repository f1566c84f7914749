"""The background work: flushing, checkpoints, retention and expiry happen by themselves, and go on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.waiting import until

from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.records.record import Record, encode_batch
from tidelog.storage.cleaner.cleaner_options import CleanerOptions
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.storage.directories.log_dirs_options import LogDirsOptions
from tidelog.storage.log.log import Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_dir.checkpoints import OffsetCheckpoint
from tidelog.storage.producers.producer_state import ProducerState

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NEVER = 10_000_000
QUIET = LogDirsOptions(
    retention_check_interval_ms=NEVER,
    recovery_point_interval_ms=NEVER,
    log_start_interval_ms=NEVER,
    high_watermark_interval_ms=NEVER,
    producer_expiration_check_interval_ms=NEVER,
    cleaner=CleanerOptions(backoff_ms=NEVER),
)


def loaded(path: Path, options: LogDirsOptions = QUIET, clock: ManualClock | None = None) -> LogDirs:
    dirs = LogDirs([path], options, clock=clock or ManualClock())
    dirs.open()
    dirs.identify(broker_id=1, cluster_id="cluster")
    dirs.load(lambda topic: LogConfig())
    return dirs


def append(log: Log, *, now_ms: int = 1_700_000_000_000, **batch: int) -> None:
    records = [Record(timestamp=now_ms, key=b"k", value=b"v")]
    log.append_as_leader(bytearray(encode_batch(records, **batch)), 0)  # type: ignore[arg-type]
    log.update_high_watermark(log.log_end_offset)


def offsets(path: Path, name: str) -> dict[TopicPartition, int]:
    return OffsetCheckpoint(path / name).read()


def test_high_watermarks_recovery_points_and_log_starts_are_written_by_themselves(tmp_path: Path) -> None:
    async def scenario() -> None:
        options = LogDirsOptions(
            recovery_point_interval_ms=5, log_start_interval_ms=5, high_watermark_interval_ms=5
        )
        dirs = loaded(tmp_path, options)
        log = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
        dirs.start()
        append(log)
        append(log)
        log.increment_log_start_offset(1)
        await until(lambda: offsets(tmp_path, "replication-offset-checkpoint") == {T0: 2})
        await until(lambda: offsets(tmp_path, "log-start-offset-checkpoint") == {T0: 1})
        assert offsets(tmp_path, "recovery-point-offset-checkpoint")[T0] < 2, "nothing was flushed yet"
        log.files.flush()
        await until(lambda: offsets(tmp_path, "recovery-point-offset-checkpoint") == {T0: 2})
        await dirs.close()

    asyncio.run(scenario())


def test_a_roll_flushes_in_the_background(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path)
        log = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
        dirs.start()
        append(log)
        log.roll()
        append(log)
        assert log.files.recovery_point == 0
        await until(lambda: log.files.recovery_point == 1)
        await dirs.close()

    asyncio.run(scenario())


def test_before_the_start_a_roll_flushes_at_once(tmp_path: Path) -> None:
    dirs = loaded(tmp_path)
    log = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
    append(log)
    log.roll()
    assert log.files.recovery_point == 1
    asyncio.run(dirs.close())


def test_flush_ms_is_honoured_per_topic(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        dirs = loaded(tmp_path, clock=clock)
        timed = dirs.get_or_create(T0, None, LogConfig(flush_ms=1000), is_new=True)
        untimed = dirs.get_or_create(T1, None, LogConfig(), is_new=True)
        append(timed)
        append(untimed)
        clock.advance(999)
        assert await dirs.upkeep.flush_by_time() == 0
        clock.advance(1)
        assert await dirs.upkeep.flush_by_time() == 1
        assert (timed.files.recovery_point, untimed.files.recovery_point) == (1, 0)
        clock.advance(5000)
        assert await dirs.upkeep.flush_by_time() == 0, "there is nothing new to flush"
        await dirs.close()

    asyncio.run(scenario())


def test_retention_runs_for_compacted_logs_only_with_the_cleaner(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        dirs = loaded(tmp_path, clock=clock)
        plain = dirs.get_or_create(T0, None, LogConfig(retention_ms=1000), is_new=True)
        both = LogConfig(retention_ms=1000, cleanup_policy=("compact", "delete"))
        compacted = dirs.get_or_create(T1, None, both, is_new=True)
        for log in (plain, compacted):
            append(log)
            log.roll()
            append(log)
        clock.advance(10_000)
        assert await dirs.upkeep.delete_old_segments() == 2
        assert (plain.log_start_offset, compacted.log_start_offset) == (2, 0)
        assert await dirs.upkeep.delete_in_compacted_logs() == 2
        assert compacted.log_start_offset == 2
        await dirs.close()

    asyncio.run(scenario())


def test_silent_producers_are_forgotten(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        dirs = loaded(tmp_path, clock=clock)
        log = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
        append(log, now_ms=clock.time_ms(), producer_id=5, producer_epoch=0, base_sequence=0)
        clock.advance(86_399_999)
        assert await dirs.upkeep.expire_producers() == 0
        clock.advance(1)
        assert await dirs.upkeep.expire_producers() == 1
        dirs.update_options(LogDirsOptions(producer_expiration_ms=10))
        append(log, now_ms=clock.time_ms(), producer_id=6, producer_epoch=0, base_sequence=0)
        clock.advance(10)
        assert await dirs.upkeep.expire_producers() == 1
        await dirs.close()

    asyncio.run(scenario())


def test_a_round_that_fails_is_logged_and_the_next_one_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path, LogDirsOptions(producer_expiration_check_interval_ms=1))
        dirs.get_or_create(T0, None, LogConfig(), is_new=True)
        rounds = 0

        def fail(state: ProducerState, now_ms: int) -> Iterator[int]:
            nonlocal rounds
            rounds += 1
            raise RuntimeError("a fault of ours")

        monkeypatch.setattr(ProducerState, "expiry_steps", fail)
        dirs.start()
        await until(lambda: rounds >= 2)
        await dirs.close()

    asyncio.run(scenario())
    assert "expire_producers failed and is tried again" in caplog.text


def test_deletions_happen_by_themselves(tmp_path: Path) -> None:
    async def scenario() -> None:
        options = LogDirsOptions(delete_delay_ms=1)
        dirs = LogDirs([tmp_path], options)
        dirs.open()
        dirs.load(lambda topic: LogConfig())
        dirs.start()
        for partition in (T0, T1):
            dirs.get_or_create(partition, None, LogConfig(), is_new=True)
            dirs.delete(partition)
        await until(lambda: len(dirs.deletion) == 0 and not any(tmp_path.glob("t-*")))
        await until(lambda: offsets(tmp_path, "recovery-point-offset-checkpoint") == {})
        await dirs.close()

    asyncio.run(scenario())


def test_close_ends_at_once_whatever_is_being_waited_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path)
        append(dirs.get_or_create(T0, None, LogConfig(), is_new=True))
        dirs.start()
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await dirs.close()
        assert (tmp_path / ".kafka_cleanshutdown").exists()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


def test_a_damaged_log_does_not_keep_the_others_from_their_retention(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        config = LogConfig(retention_ms=1000)
        dirs = loaded(tmp_path, clock=clock)
        for partition in (T0, T1):
            log = dirs.get_or_create(partition, None, config, is_new=True)
            append(log, now_ms=clock.time_ms())
            log.roll()
        await dirs.close()
        first = tmp_path / "t-0" / "00000000000000000000.log"
        first.write_bytes(b"\x77" * first.stat().st_size)
        first.with_suffix(".timeindex").write_bytes(bytes(12))
        again = LogDirs([tmp_path], QUIET, clock=clock)
        again.open()
        again.load(lambda topic: config)
        for partition in (T0, T1):
            again.logs[partition].update_high_watermark(1)
        clock.advance(2000)
        assert await again.upkeep.delete_old_segments() == 1
        assert again.logs[T1].log_start_offset == 1
        assert "the upkeep of t-0 is held up: " in caplog.text
        assert first.exists()
        await again.close()

    asyncio.run(scenario())


NOW_MS = 1_700_000_000_000
DAY_MS = 24 * 60 * 60 * 1000


def refused(log: Log, *, now_ms: int) -> bool:
    try:
        append(log, now_ms=now_ms)
    except KafkaError as error:
        return error.code is ErrorCode.INVALID_TIMESTAMP
    return False


def test_after_the_clock_was_set_back_timestamps_are_held_against_the_new_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock(NOW_MS + 7 * DAY_MS)
        dirs = loaded(tmp_path, msgspec.structs.replace(QUIET, clock_check_interval_ms=5), clock)
        log = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
        dirs.start()
        append(log, now_ms=clock.time_ms())
        clock.set_wall(NOW_MS)
        await until(lambda: refused(log, now_ms=NOW_MS + 7 * DAY_MS))
        append(log, now_ms=NOW_MS)
        await dirs.close()

    asyncio.run(scenario())


def test_only_a_step_back_makes_logs_look_at_the_clock_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        clock = ManualClock(NOW_MS)
        dirs = loaded(tmp_path, clock=clock)
        watch = dirs.upkeep.watch_clock
        clock.advance(DAY_MS)
        assert not await watch(), "time passed"
        clock.set_wall(clock.time_ms() + DAY_MS)
        assert not await watch(), "set forward"
        for _ in range(4):  # slowed, as NTP does it
            clock.set_wall(clock.time_ms() - 300)
            seen = await watch()
        assert seen, "more than a second in all"
        clock.set_wall(clock.time_ms() - 5000)
        assert await watch()
        assert not await watch(), "told once"
        await dirs.close()

    asyncio.run(scenario())
    assert "the clock was set back by 5 s" in caplog.text
