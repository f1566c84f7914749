"""A process that may not open any more files: nothing is wrong with the disk, and no log directory goes."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.faulty_disk import FaultyDisk

from tidelog.broker import process
from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError, StorageError
from tidelog.ids import TopicPartition
from tidelog.records.record import Record, encode_batch
from tidelog.storage.cleaner.cleaner_worker import CompactionFailed
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.storage.disk import OutOfFilesError
from tidelog.storage.log.log import Log
from tidelog.storage.log_config import LogConfig

OpenLog = Callable[..., Log]
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FILES = pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])


def batch() -> bytearray:
    return bytearray(encode_batch([Record(timestamp=1_700_000_000_000, value=b"v" * 100)]))


def loaded(path: Path, disk: FaultyDisk) -> LogDirs:
    dirs = LogDirs([path], clock=ManualClock(), disk=disk)
    dirs.open()
    dirs.identify(broker_id=1, cluster_id="cluster")
    dirs.load(lambda topic: LogConfig())
    return dirs


@FILES
def test_a_read_that_finds_no_file_to_open_costs_no_directory_and_files_are_let_go(
    tmp_path: Path, disk: FaultyDisk, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    dirs = loaded(tmp_path, disk)
    log = dirs.get_or_create(T0, None, LogConfig(segment_bytes=200), is_new=True)
    for _ in range(4):
        log.append_as_leader(batch(), 0)
    log.update_high_watermark(4)
    assert log.read_bytes(0, 10)
    assert log.segments.first.files.is_open
    other = dirs.get_or_create(T1, None, LogConfig(), is_new=True)
    disk.fail_next("open", code)
    with pytest.raises(LogDirOfflineError) as failure:
        other.append_as_leader(batch(), 0)
    assert isinstance(failure.value, OutOfFilesError)
    for _ in range(3):
        dirs.mark_offline(tmp_path, failure.value)
    assert not dirs.offline_dirs
    assert not log.segments.first.files.is_open
    assert log.segments.active.files.is_open
    assert other.append_as_leader(batch(), 0).first_offset == 0
    assert log.read_bytes(0, 10)
    assert caplog.text.count("raise the limit (ulimit -n") == 1


@FILES
def test_a_partition_that_cannot_be_made_for_want_of_files_is_made_later(
    tmp_path: Path, disk: FaultyDisk, code: int
) -> None:
    dirs = loaded(tmp_path, disk)
    disk.fail_next("open", code)
    with pytest.raises(KafkaError) as refusal:
        dirs.get_or_create(T0, None, LogConfig(), is_new=True)
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not dirs.offline_dirs
    assert not (tmp_path / "t-0").exists()
    assert dirs.get_or_create(T0, None, LogConfig(), is_new=True).log_end_offset == 0


@FILES
def test_a_start_that_may_open_too_few_files_says_what_to_raise(
    tmp_path: Path, disk: FaultyDisk, code: int
) -> None:
    dirs = loaded(tmp_path, disk)
    dirs.get_or_create(T0, None, LogConfig(), is_new=True).append_as_leader(batch(), 0)
    asyncio.run(dirs.close())
    again = LogDirs([tmp_path], clock=ManualClock(), disk=disk)
    again.open()
    (tmp_path / ".kafka_cleanshutdown").unlink()
    disk.fail_next("open", code)
    with pytest.raises(StorageError, match=r"too few to load its 1 logs.*ulimit -n"):
        again.load(lambda topic: LogConfig())
    assert not again.offline_dirs


@FILES
def test_a_sync_waits_for_files_that_it_may_open(open_log: OpenLog, disk: FaultyDisk, code: int) -> None:
    log = open_log()
    log.append_as_leader(batch(), 0)
    disk.fail_next("open", code)
    log.files.flush()
    assert log.files.recovery_point == 1


@FILES
def test_a_sync_on_the_loop_does_not_wait(
    open_log: OpenLog, disk: FaultyDisk, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.storage.log.log_files.time.sleep", lambda _: pytest.fail("the loop waits"))
    log = open_log()
    log.append_as_leader(batch(), 0)

    async def scenario() -> None:
        disk.fail_next("open", code)
        with pytest.raises(OutOfFilesError):
            log.files.flush()
        assert log.files.recovery_point == 0
        log.files.flush()
        assert log.files.recovery_point == 1

    asyncio.run(scenario())


def test_a_cleaner_without_files_leaves_the_directory_and_the_log_as_they_are(tmp_path: Path) -> None:
    dirs = loaded(tmp_path, FaultyDisk())
    log = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
    cleaning = cast(Any, SimpleNamespace(log=log, log_has_changed=False))
    dirs.cleaner._failed(cleaning, CompactionFailed(cause="files", message="Too many open files"))
    assert not dirs.offline_dirs
    assert not dirs.cleaner.uncleanable


@pytest.mark.parametrize(
    ("allowed", "warned"), [(64, True), (1_000_000, False), (resource.RLIM_INFINITY, False)]
)
def test_a_broker_says_at_start_that_its_limit_is_too_low(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    allowed: int,
    warned: bool,
) -> None:
    dirs = loaded(tmp_path, FaultyDisk())
    dirs.get_or_create(T0, None, LogConfig(), is_new=True)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (allowed, allowed))
    with caplog.at_level(logging.WARNING):
        process._warn_of_too_few_files(cast(Any, SimpleNamespace(log_dirs=dirs)))
    assert ("start it after `ulimit -n 1003`" in caplog.text) == warned
