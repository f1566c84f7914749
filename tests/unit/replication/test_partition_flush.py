"""Topics with ``flush.messages``: synced in a thread, read and acknowledged only then."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.faulty_disk import FaultyDisk
from tests.rigs.waiting import until, wait_until

from tidelog.errors import LogDirOfflineError
from tidelog.ids import TopicPartition, random_uuid
from tidelog.metadata.image import PartitionImage
from tidelog.records.record import Record, encode_batch
from tidelog.replication import syncing
from tidelog.replication.partition import Partition
from tidelog.storage.disk import is_out_of_files
from tidelog.storage.log import log_files
from tidelog.storage.log.log import Isolation, Log
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log_config import LogConfig

ME = 1
DEADLINE_S = 60.0
SYNC_ALL = LogConfig(flush_messages=1)


class SlowDisk(FaultyDisk):
    """A disk whose syncs begin when they may; only those made in a thread are held up."""

    def __init__(self) -> None:
        super().__init__()
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.syncs_in_threads = 0
        self._loop_thread = threading.get_ident()

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        if threading.get_ident() != self._loop_thread:
            self.syncs_in_threads += 1
            assert self.may_sync.wait(DEADLINE_S)
        super().fsync(fd)


class Scene:
    """A partition that this broker leads alone, on a slow disk."""

    def __init__(self, directory: Path, config: LogConfig) -> None:
        self.disk = SlowDisk()
        self.config = config
        self.lost: list[LogDirOfflineError] = []
        self.log = self.open(directory / "topic-0")
        name = TopicPartition("topic", 0)
        self.partition = Partition(name, random_uuid(), self.log, ME, asyncio.get_running_loop(), self._lose)
        self.apply()

    def open(self, directory: Path) -> Log:
        return Log.open(LogContext(directory, self.config, ManualClock(), self.disk), clean_shutdown=True)

    def apply(self) -> None:
        image = PartitionImage(replicas=(ME,), leader=ME, leader_epoch=0, isr=(ME,))
        self.partition.apply(image)

    def append(self, *values: bytes) -> None:
        records = encode_batch([Record(timestamp=1, value=value) for value in values])
        self.partition.append(memoryview(bytearray(records)))

    def _lose(self, error: LogDirOfflineError) -> None:
        self.lost.append(error)
        if not is_out_of_files(error):
            self.partition.close(offline=True)


def run(tmp_path: Path, test: Callable[[Scene], Awaitable[None]], config: LogConfig = SYNC_ALL) -> None:
    async def body() -> None:
        scene = Scene(tmp_path, config)
        try:
            await test(scene)
        finally:
            scene.disk.may_sync.set()
        await asyncio.get_running_loop().shutdown_default_executor()
        scene.partition.log.close(clean=False)

    asyncio.run(body())


def test_the_high_watermark_waits_for_the_sync_which_is_made_in_a_thread(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.disk.may_sync.clear()
        scene.disk.syncs = 0
        scene.append(b"a", b"b")
        assert scene.log.log_end_offset == 2
        assert scene.partition.flushing
        assert not scene.partition.is_synced(2)
        scene.apply()
        assert scene.log.high_watermark == 0
        scene.disk.may_sync.set()
        await until(lambda: scene.log.high_watermark == 2)
        assert scene.log.files.recovery_point == 2
        assert not scene.partition.flushing
        assert scene.partition.is_synced(2)
        assert scene.disk.syncs_in_threads == scene.disk.syncs > 0

    run(tmp_path, test)


def test_nothing_passes_for_synced_that_cannot_be_read_yet(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.append(b"a")
        # The thread has synced, and the loop has not heard of it.
        wait_until(lambda: scene.log.files.recovery_point == 1)
        assert scene.partition.flushing
        assert not scene.partition.is_synced(1)
        scene.apply()
        assert scene.log.high_watermark == 0
        await until(lambda: scene.partition.is_synced(1))
        assert scene.log.high_watermark == 1

    run(tmp_path, test)


def test_appends_during_a_sync_are_all_covered_by_the_next_one(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.append(b"first")
        await until(lambda: not scene.partition.flushing)
        scene.disk.may_sync.clear()
        scene.append(b"a")
        for _ in range(50):
            scene.append(b"b")
        before = scene.disk.syncs
        scene.disk.may_sync.set()
        await until(lambda: scene.log.high_watermark == 52)
        assert scene.log.files.recovery_point == 52
        # Two flushes, each of the log, its indexes and its epochs, and not one for every append.
        assert scene.disk.syncs - before < 20

    run(tmp_path, test)


def test_records_short_of_the_interval_are_readable_unsynced(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.disk.may_sync.clear()
        scene.append(b"a", b"b")
        assert scene.log.high_watermark == 2
        assert not scene.partition.flushing
        scene.append(b"c")
        assert scene.partition.flushing
        assert scene.log.high_watermark == 2
        scene.disk.may_sync.set()
        await until(lambda: scene.log.high_watermark == 3)

    run(tmp_path, test, LogConfig(flush_messages=3))


def test_topics_without_an_interval_are_never_synced_by_an_append(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        before = scene.disk.syncs
        scene.append(b"a")
        assert scene.log.high_watermark == 1
        assert not scene.partition.flushing
        assert scene.disk.syncs == before

    run(tmp_path, test, LogConfig())


def test_a_sync_that_fails_takes_the_directory_offline_and_nothing_is_readable(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.disk.fail_next("fsync")
        scene.append(b"a")
        await until(lambda: bool(scene.lost))
        assert scene.lost[0].log_dir == str(tmp_path)
        assert scene.partition.offline
        assert scene.log.high_watermark == 0
        assert not scene.partition.is_synced(1)

    run(tmp_path, test)


def test_a_sync_that_finds_no_file_to_open_is_tried_again_and_nothing_is_readable_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "_SYNC_ATTEMPTS", 0)
    monkeypatch.setattr(syncing, "_PAUSE_S", 0.001)

    async def test(scene: Scene) -> None:
        for count in (1, 2):
            scene.disk.fail_next("fsync", errno.EMFILE)
            scene.append(b"a")
            await until(lambda count=count: len(scene.lost) == count)  # type: ignore[misc]
            assert not scene.partition.closed
            assert scene.log.high_watermark == count - 1
            assert not scene.partition.is_synced(count)
            await until(lambda count=count: scene.log.high_watermark == count)  # type: ignore[misc]
            assert scene.partition.is_synced(count)

    run(tmp_path, test)


def test_a_directory_that_vanished_is_a_failed_one(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.disk.may_sync.clear()
        scene.append(b"a")
        (tmp_path / "topic-0").rename(tmp_path / "elsewhere")
        scene.disk.may_sync.set()
        await until(lambda: bool(scene.lost))
        assert scene.partition.offline

    run(tmp_path, test)


def test_a_partition_deleted_during_a_sync_ends_without_harm(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.disk.may_sync.clear()
        scene.append(b"a")
        scene.partition.close()
        scene.log.files.rename_for_delete()
        scene.log.delete()
        scene.disk.may_sync.set()
        await asyncio.get_running_loop().shutdown_default_executor()
        assert not scene.lost

    run(tmp_path, test)


def test_a_truncation_during_a_sync_leaves_the_high_watermark_at_the_new_end(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.append(b"a")
        await until(lambda: not scene.partition.flushing)
        scene.disk.may_sync.clear()
        scene.append(b"b")
        scene.append(b"c")
        scene.log.truncate_to(2)
        scene.disk.may_sync.set()
        await until(lambda: not scene.partition.flushing)
        assert scene.log.high_watermark == scene.log.log_end_offset == 2
        assert not scene.lost

    run(tmp_path, test)


def test_a_log_that_takes_over_during_a_sync_is_synced_itself(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.disk.may_sync.clear()
        scene.append(b"a")
        moved = scene.open(tmp_path / "other" / "topic-0")
        moved.appender.flush_on_append = False
        copied = scene.log.read_bytes(0, 1000, isolation=Isolation.LOG_END)
        assert moved.append_as_follower(copied) is not None
        scene.partition.use_log(moved)
        scene.disk.may_sync.set()
        await until(lambda: moved.high_watermark == 1)
        assert moved.files.recovery_point == 1
        assert not scene.lost
        scene.log.close(clean=False)

    run(tmp_path, test)
