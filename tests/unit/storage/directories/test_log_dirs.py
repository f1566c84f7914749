"""Log directories: opening, identity, loading, creating, deleting, and a shutdown that leaves no work."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock

from tidelog.errors import ConfigError, ErrorCode, KafkaError, StorageError
from tidelog.ids import TopicPartition, random_uuid
from tidelog.records.record import Record, encode_batch
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.storage.directories.log_dirs_loading import LoadProgress
from tidelog.storage.directories.log_dirs_options import LogDirsOptions
from tidelog.storage.log.log import Log
from tidelog.storage.log.partition_metadata import write_partition_metadata
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_dir.checkpoints import OffsetCheckpoint
from tidelog.storage.log_dir.meta_properties import (
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)

CLUSTER = "3Db5QLSqSZieL3rJBUUegA"
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def opened(*paths: Path, clock: ManualClock | None = None, options: LogDirsOptions | None = None) -> LogDirs:
    dirs = LogDirs(paths, options, clock=clock or ManualClock())
    dirs.open()
    dirs.identify(broker_id=1, cluster_id=CLUSTER)
    return dirs


def loaded(*paths: Path, clock: ManualClock | None = None, options: LogDirsOptions | None = None) -> LogDirs:
    dirs = opened(*paths, clock=clock, options=options)
    dirs.load(lambda topic: LogConfig())
    return dirs


def append(log: Log, *values: bytes) -> None:
    for value in values:
        batch = encode_batch([Record(timestamp=1_700_000_000_000, key=b"k", value=value)])
        log.append_as_leader(bytearray(batch), 0)
    log.update_high_watermark(log.log_end_offset)


def found(path: Path, pattern: str) -> list[Path]:
    return sorted(path.glob(pattern))


def crash(dirs: LogDirs) -> None:
    """Let go of everything as a killed process would: nothing is flushed, nothing noted."""
    for log in dirs.all_logs():
        log.files.close_handles()
    for log_dir in dirs.online.values():
        log_dir.release()


# -- opening and identity -------------------------------------------------------------------------


def test_directories_are_made_locked_and_named(tmp_path: Path) -> None:
    dirs = opened(tmp_path / "a" / "deep", tmp_path / "b")
    for path in dirs.paths:
        assert (path / ".lock").exists()
        meta = read_meta_properties(path)
        assert meta is not None
        assert (meta.version, meta.broker_id, meta.cluster_id) == (0, 1, CLUSTER)
        assert dirs.directory_id(path) == meta.directory_id
    assert len({dirs.directory_id(path) for path in dirs.paths}) == 2
    assert dirs.stored_identity().cluster_id == CLUSTER
    asyncio.run(dirs.close())


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    dirs = opened(tmp_path / "a")
    with pytest.raises(StorageError, match="another broker is using"):
        LogDirs([tmp_path / "b", tmp_path / "a"]).open()
    asyncio.run(dirs.close())
    again = opened(tmp_path / "b", tmp_path / "a")
    asyncio.run(again.close())


def test_a_directory_named_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(ConfigError, match=r"log\.dirs names a directory twice"):
        LogDirs([tmp_path / "a", tmp_path / "link"]).open()


def test_a_directory_of_another_broker_or_cluster_is_refused(tmp_path: Path) -> None:
    asyncio.run(opened(tmp_path).close())
    for broker_id, cluster_id, message in (
        (2, CLUSTER, "set broker.id=1"),
        (1, "other", "belongs to cluster"),
    ):
        dirs = LogDirs([tmp_path])
        dirs.open()
        with pytest.raises(StorageError, match=message):
            dirs.identify(broker_id=broker_id, cluster_id=cluster_id)
        asyncio.run(dirs.close())


def test_a_copied_directory_is_refused(tmp_path: Path) -> None:
    meta = MetaProperties(1, 1, CLUSTER, random_uuid())
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_meta_properties(tmp_path / name, meta)
    dirs = LogDirs([tmp_path / "a", tmp_path / "b"])
    dirs.open()
    with pytest.raises(StorageError, match="one is a copy of the other"):
        dirs.identify(broker_id=1, cluster_id=CLUSTER)
    asyncio.run(dirs.close())


def test_a_kraft_directory_keeps_its_version(tmp_path: Path) -> None:
    meta = MetaProperties(1, 1, CLUSTER, random_uuid())
    write_meta_properties(tmp_path, meta)
    asyncio.run(opened(tmp_path).close())
    assert read_meta_properties(tmp_path) == meta


# -- logs -----------------------------------------------------------------------------------------


def test_new_logs_go_where_the_fewest_are(tmp_path: Path) -> None:
    dirs = loaded(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    for number in range(6):
        dirs.get_or_create(TopicPartition("t", number), None, LogConfig(), is_new=True)
    assert [len(dirs.logs_in(path)) for path in dirs.paths] == [2, 2, 2]
    asyncio.run(dirs.close())


def test_a_log_is_made_once_and_keeps_its_topic_id(tmp_path: Path) -> None:
    dirs = loaded(tmp_path)
    topic_id = random_uuid()
    log = dirs.get_or_create(T0, topic_id, LogConfig(), is_new=True)
    assert dirs.get(T0) is log is dirs.get_or_create(T0, topic_id, LogConfig())
    assert dirs.get(T1) is None
    with pytest.raises(KafkaError, match="already contained topic ID") as caught:
        dirs.get_or_create(T0, random_uuid(), LogConfig())
    assert caught.value.code is ErrorCode.INCONSISTENT_TOPIC_ID
    late = dirs.get_or_create(T1, None, LogConfig())
    dirs.get_or_create(T1, topic_id, LogConfig())
    assert late.topic_id == topic_id
    asyncio.run(dirs.close())
    again = loaded(tmp_path)
    assert again.logs[T0].topic_id == again.logs[T1].topic_id == topic_id
    asyncio.run(again.close())


def test_a_clean_shutdown_leaves_checkpoints_a_mark_and_nothing_to_recover(tmp_path: Path) -> None:
    dirs = loaded(tmp_path)
    log = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
    append(log, b"1", b"2", b"3", b"4")
    log.update_high_watermark(3)
    log.increment_log_start_offset(2)
    asyncio.run(dirs.close(broker_epoch=77))
    assert json.loads((tmp_path / ".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": 77}
    for name, offset in (
        ("recovery-point-offset-checkpoint", 4),
        ("log-start-offset-checkpoint", 2),
        ("replication-offset-checkpoint", 3),
    ):
        assert OffsetCheckpoint(tmp_path / name).read() == {T0: offset}

    again = opened(tmp_path)
    assert next(iter(again.online.values())).last_broker_epoch() == 77
    loading = again.load(lambda topic: LogConfig())
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert (loading.logs, loading.unclean_dirs, loading.recovered) == (1, [], [])
    log = again.logs[T0]
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (2, 3, 4)
    asyncio.run(again.close())


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version":1,"brokerEpoch":5,"more":true}', b"not json"])
def test_marks_of_every_kafka_version_count_as_clean(tmp_path: Path, content: bytes) -> None:
    asyncio.run(loaded(tmp_path).close())
    (tmp_path / ".kafka_cleanshutdown").write_bytes(content)
    dirs = opened(tmp_path)
    log_dir = next(iter(dirs.online.values()))
    assert log_dir.last_broker_epoch() == (5 if b"Epoch" in content else None)
    assert log_dir.take_clean_mark()
    asyncio.run(dirs.close())


def test_after_a_crash_logs_are_recovered_and_the_report_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dirs = loaded(tmp_path)
    for partition in (T0, T1):
        append(dirs.get_or_create(partition, None, LogConfig(), is_new=True), b"1", b"2")
    crash(dirs)
    with (tmp_path / "t-0" / "00000000000000000000.log").open("ab") as file:
        file.write(b"torn")

    seen: list[LoadProgress] = []
    again = opened(tmp_path)
    with caplog.at_level(logging.INFO):
        loading = again.load(lambda topic: LogConfig(), progress=seen.append)
    assert loading.unclean_dirs == [tmp_path]
    assert {log.topic_partition for log in loading.recovered} == {T0, T1}
    assert again.logs[T0].log_end_offset == 2
    assert [(each.done, each.total) for each in seen] == [(1, 2), (2, 2)]
    assert "loading 2 logs" in caplog.text
    assert "recovered t-0" in caplog.text
    assert "cut off 4 bytes" in caplog.text
    asyncio.run(again.close())


def test_recovery_reads_only_from_the_recovery_point(tmp_path: Path) -> None:
    dirs = loaded(tmp_path)
    log = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
    for value in (b"1", b"2", b"3"):
        append(log, value)
        log.roll()
    append(log, b"4")
    asyncio.run(dirs.checkpoint())
    assert OffsetCheckpoint(tmp_path / "recovery-point-offset-checkpoint").read() == {T0: 3}
    crash(dirs)
    again = loaded(tmp_path)
    recovery = again.logs[T0].recovery
    assert recovery is not None
    assert recovery.segments_scanned == 1
    asyncio.run(again.close())


@pytest.mark.parametrize("name", ["recovery-point", "log-start", "cleaner"])
def test_a_broken_checkpoint_is_done_without_and_named(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    dirs = loaded(tmp_path)
    append(dirs.get_or_create(T0, None, LogConfig(), is_new=True), b"1")
    crash(dirs)
    path = tmp_path / f"{name}-offset-checkpoint"
    path.write_text("0\nnonsense\nx\n")
    again = loaded(tmp_path)
    assert again.logs[T0].log_end_offset == 1
    assert str(path) in caplog.text
    asyncio.run(again.close())


def test_foreign_directories_are_left_alone_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("lost+found", "backup", "__cluster_metadata-0", ".snapshots", "t-x"):
        (tmp_path / name).mkdir()
    dirs = loaded(tmp_path)
    assert dirs.logs == {}
    assert "backup" in caplog.text
    assert "t-x" in caplog.text
    assert "lost+found" not in caplog.text
    asyncio.run(dirs.close())


def test_strays_are_set_aside_and_stay_aside(tmp_path: Path) -> None:
    dirs = loaded(tmp_path)
    for partition in (T0, T1):
        append(dirs.get_or_create(partition, None, LogConfig(), is_new=True), b"1")
    asyncio.run(dirs.close())
    again = opened(tmp_path)
    again.load(lambda topic: LogConfig(), is_stray=lambda log: log.topic_partition == T1)
    assert set(again.logs) == {T0}
    (stray,) = tmp_path.glob("t-1.*-stray")
    asyncio.run(again.close())
    third = loaded(tmp_path)
    assert set(third.logs) == {T0}
    assert (stray / "00000000000000000000.log").stat().st_size
    asyncio.run(third.close())


def test_a_partition_of_two_topics_in_two_directories_stops_the_start(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "t-0").mkdir(parents=True)
        write_partition_metadata(tmp_path / name / "t-0", random_uuid())
    dirs = opened(tmp_path / "a", tmp_path / "b")
    with pytest.raises(StorageError, match=r"lies in both .*delete one of the two"):
        dirs.load(lambda topic: LogConfig())
    asyncio.run(dirs.close())
    assert not (tmp_path / "b" / ".kafka_cleanshutdown").exists(), "it was never loaded"


# -- deleting -------------------------------------------------------------------------------------


def test_a_deleted_partition_is_gone_at_once_and_from_the_disk_after_the_delay(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        dirs = loaded(tmp_path, clock=clock)
        append(dirs.get_or_create(T0, None, LogConfig(), is_new=True), b"1")
        dirs.delete(T0)
        assert dirs.get(T0) is None
        (waiting,) = found(tmp_path, "t-0.*-delete")
        assert len(waiting.name) == len("t-0.") + 32 + len("-delete")

        clock.advance(59_999)
        assert await dirs.deletion.remove_due(dirs.mark_offline) == 0
        assert waiting.exists()
        clock.advance(1)
        assert await dirs.deletion.remove_due(dirs.mark_offline) == 1
        assert not waiting.exists()
        await dirs.close()

    asyncio.run(scenario())


def test_a_partition_can_be_made_anew_while_the_old_one_waits_for_deletion(tmp_path: Path) -> None:
    dirs = loaded(tmp_path)
    old = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
    append(old, b"1", b"2")
    old.increment_log_start_offset(2)
    asyncio.run(dirs.checkpoint())
    dirs.delete(T0)
    new = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
    append(new, b"3")
    crash(dirs)
    again = loaded(tmp_path)
    assert (again.logs[T0].log_start_offset, again.logs[T0].log_end_offset) == (0, 1)
    asyncio.run(again.close())


def test_what_a_crash_left_waiting_for_deletion_is_deleted_by_the_next_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path)
        dirs.get_or_create(T0, None, LogConfig(), is_new=True)
        dirs.delete(T0)
        crash(dirs)
        clock = ManualClock()
        again = loaded(tmp_path, clock=clock)
        assert again.logs == {}
        clock.advance(60_000)
        assert await again.deletion.remove_due(again.mark_offline) == 1
        assert found(tmp_path, "t-0*") == []
        await again.close()

    asyncio.run(scenario())


def test_deleting_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    dirs = loaded(tmp_path)
    dirs.delete(T2)
    asyncio.run(dirs.close())


def test_segments_that_retention_drops_are_deleted_after_the_topics_delay(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        dirs = loaded(tmp_path, clock=clock)
        config = LogConfig(retention_ms=1000, file_delete_delay_ms=5000)
        log = dirs.get_or_create(T0, None, config, is_new=True)
        append(log, b"1")
        log.roll()
        append(log, b"2")
        clock.advance(100_000)
        assert await dirs.upkeep.delete_old_segments() == 2
        assert len(list(log.directory.glob("*.log.deleted"))) == 2
        clock.advance(5000)
        await dirs.deletion.remove_due(dirs.mark_offline)
        assert not list(log.directory.glob("*.deleted"))
        await dirs.close()

    asyncio.run(scenario())


# -- options --------------------------------------------------------------------------------------


def test_options_come_from_kafkas_names() -> None:
    options = LogDirsOptions.from_options(
        {
            "log.retention.check.interval.ms": 1,
            "log.flush.offset.checkpoint.interval.ms": 2,
            "log.cleaner.backoff.ms": 3,
            "log.cleaner.io.max.bytes.per.second": 1.7976931348623157e308,
            "log.cleaner.enable": False,
            "some.other.option": "x",
        }
    )
    assert (options.retention_check_interval_ms, options.recovery_point_interval_ms) == (1, 2)
    assert (options.cleaner.backoff_ms, options.cleaner_interval_ms) == (3, 3)
    assert options.cleaner.max_bytes_per_second is None
    assert not options.cleaner.enable
