"""A disk that fails takes its own directory away, with Kafka's error, and nothing else."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock

from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError, StorageError
from tidelog.ids import TopicPartition
from tidelog.records.record import Record, encode_batch
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.storage.disk import Disk
from tidelog.storage.log.log import Log
from tidelog.storage.log_config import LogConfig

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class FailingDisk(Disk):
    """Fails to open and to sync below one directory, as a disk that was pulled out does."""

    def __init__(self) -> None:
        self.broken: Path | None = None

    def _check(self, path: object) -> None:
        if self.broken is not None and str(path).startswith(str(self.broken)):
            raise OSError(errno.EIO, "Input/output error")

    def open(self, path: object, flags: int, mode: int = 0o777) -> int:  # type: ignore[override]
        self._check(path)
        return os.open(path, flags, mode)  # type: ignore[arg-type]

    def rename(self, source: object, target: object) -> None:  # type: ignore[override]
        self._check(source)
        os.rename(source, target)  # type: ignore[arg-type]  # noqa: PTH104

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        self._check(Path(f"/proc/self/fd/{fd}").readlink())
        os.fsync(fd)


def two_dirs(tmp_path: Path, disk: Disk) -> LogDirs:
    dirs = LogDirs([tmp_path / "a", tmp_path / "b"], clock=ManualClock(), disk=disk)
    dirs.open()
    dirs.identify(broker_id=1, cluster_id="cluster")
    dirs.load(lambda topic: LogConfig())
    return dirs


def append(log: Log, value: bytes) -> None:
    log.append_as_leader(bytearray(encode_batch([Record(timestamp=1, value=value)])), 0)


def test_a_directory_that_cannot_be_used_at_start_is_offline_and_the_others_serve(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a").write_text("a file, not a directory")
    dirs = two_dirs(tmp_path, Disk())
    assert list(dirs.offline_dirs) == [tmp_path / "a"]
    assert list(dirs.online) == [tmp_path / "b"]
    assert f"log directory {tmp_path / 'a'} is offline" in caplog.text
    log = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
    assert log.directory.parent == tmp_path / "b"
    asyncio.run(dirs.close())


def test_a_directory_whose_lock_file_cannot_be_written_is_offline(tmp_path: Path) -> None:
    disk = FailingDisk()
    disk.broken = tmp_path / "b"
    dirs = two_dirs(tmp_path, disk)
    assert list(dirs.offline_dirs) == [tmp_path / "b"]
    asyncio.run(dirs.close())


def test_no_directory_left_at_start_is_an_error_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(StorageError, match=r"no log directory can be used .*repair one or change log\.dirs"):
        LogDirs([tmp_path / "a"]).open()


def test_while_a_directory_is_offline_only_new_partitions_are_made(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    dirs = two_dirs(tmp_path, Disk())
    with pytest.raises(KafkaError, match="are offline") as caught:
        dirs.get_or_create(T0, None, LogConfig())
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError, match="may be in one of the offline") as caught:
        dirs.delete(T0)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    asyncio.run(dirs.close())


def test_a_log_that_cannot_be_loaded_takes_its_directory_offline(tmp_path: Path) -> None:
    disk = FailingDisk()
    dirs = two_dirs(tmp_path, disk)
    for partition in (T0, T1):
        append(dirs.get_or_create(partition, None, LogConfig(), is_new=True), b"1")
    asyncio.run(dirs.close())
    again = LogDirs([tmp_path / "a", tmp_path / "b"], clock=ManualClock(), disk=disk)
    again.open()
    disk.broken = tmp_path / "a" / "t-0"
    (tmp_path / "a" / ".kafka_cleanshutdown").unlink()
    report = again.load(lambda topic: LogConfig())
    assert report.logs == 1
    assert list(again.offline_dirs) == [tmp_path / "a"]
    assert set(again.logs) == {T1}
    asyncio.run(again.close())


def test_an_error_while_running_drops_the_logs_of_that_directory_and_tells(tmp_path: Path) -> None:
    disk = FailingDisk()
    dirs = two_dirs(tmp_path, disk)
    logs = [dirs.get_or_create(partition, None, LogConfig(), is_new=True) for partition in (T0, T1)]
    lost: list[tuple[Path, list[TopicPartition]]] = []
    dirs.on_offline = lambda path, partitions: lost.append((path, partitions))
    append(logs[0], b"1")
    disk.broken = tmp_path / "a"
    with pytest.raises(LogDirOfflineError) as caught:
        logs[0].files.flush()
    dirs.mark_offline(logs[0].directory.parent, caught.value)
    dirs.mark_offline(logs[0].directory.parent, caught.value)
    assert lost == [(tmp_path / "a", [T0])]
    assert dirs.get(T0) is None
    assert dirs.offline_partitions == {T0}
    assert not dirs.all_offline
    append(logs[1], b"1")
    asyncio.run(dirs.close())
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()


def test_an_error_in_the_background_does_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FailingDisk()
        dirs = two_dirs(tmp_path, disk)
        for partition in (T0, T1):
            append(dirs.get_or_create(partition, None, LogConfig(), is_new=True), b"1")
        disk.broken = tmp_path / "a"
        await dirs.upkeep.checkpoint_recovery_points()
        assert list(dirs.offline_dirs) == [tmp_path / "a"]
        assert set(dirs.logs) == {T1}
        await dirs.close()

    asyncio.run(scenario())


def test_a_new_log_goes_to_another_directory_when_the_first_choice_fails(tmp_path: Path) -> None:
    disk = FailingDisk()
    dirs = two_dirs(tmp_path, disk)
    disk.broken = tmp_path / "a"
    log = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
    assert log.directory.parent == tmp_path / "b"
    assert list(dirs.offline_dirs) == [tmp_path / "a"]
    disk.broken = tmp_path
    reasons: list[str] = []
    dirs.on_all_offline = reasons.append
    with pytest.raises(KafkaError, match="No log directories available") as caught:
        dirs.get_or_create(T1, None, LogConfig(), is_new=True)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert dirs.all_offline
    assert len(reasons) == 1
    asyncio.run(dirs.close())


def test_a_log_that_could_not_be_made_is_not_found_beside_the_one_made_elsewhere(tmp_path: Path) -> None:
    disk = FailingDisk()
    dirs = two_dirs(tmp_path, disk)
    disk.broken = tmp_path / "a" / "t-0"
    append(dirs.get_or_create(T0, None, LogConfig(), is_new=True), b"1")
    assert list(dirs.offline_dirs) == [tmp_path / "a"]
    asyncio.run(dirs.close())
    assert not (tmp_path / "a" / "t-0").exists()
    disk.broken = None
    again = two_dirs(tmp_path, disk)
    assert again.logs[T0].directory == tmp_path / "b" / "t-0"
    assert again.logs[T0].log_end_offset == 1
    asyncio.run(again.close())


def test_a_directory_that_was_there_before_is_not_removed_because_its_log_cannot_be_opened(
    tmp_path: Path,
) -> None:
    disk = FailingDisk()
    dirs = two_dirs(tmp_path, disk)
    (tmp_path / "a" / "t-0").mkdir()
    (tmp_path / "a" / "t-0" / "somebody's").write_text("file")
    disk.broken = tmp_path / "a" / "t-0"
    dirs.get_or_create(T0, None, LogConfig(), is_new=True)
    assert (tmp_path / "a" / "t-0" / "somebody's").exists()
    asyncio.run(dirs.close())


def test_an_error_at_shutdown_leaves_no_clean_mark(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = FailingDisk()
    dirs = two_dirs(tmp_path, disk)
    for partition in (T0, T1):
        append(dirs.get_or_create(partition, None, LogConfig(), is_new=True), b"1")
    disk.broken = tmp_path / "a"
    asyncio.run(dirs.close())
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    assert "the next start will recover it" in caplog.text
