"""One partition: leadership and epochs, staged appends, reads, and those who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock

from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError
from tidelog.ids import TopicPartition, random_uuid
from tidelog.metadata.image import PartitionImage
from tidelog.records.record import Record, encode_batch
from tidelog.replication.append_group import AppendGroup
from tidelog.replication.partition import ACKS_ALL, Partition
from tidelog.storage.disk import Disk
from tidelog.storage.files import OFFSET_INDEX_SUFFIX
from tidelog.storage.log.log import Isolation, Log
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log_config import LogConfig

ME, OTHER = 1, 2
READ = Isolation.HIGH_WATERMARK


def batch(*values: bytes) -> memoryview:
    return memoryview(bytearray(encode_batch([Record(timestamp=1, value=value) for value in values])))


class FailingDisk(Disk):
    """A disk that is full when told so."""

    def __init__(self) -> None:
        self.full = False

    def pwrite(self, fd: int, data: bytes, position: int) -> int:  # type: ignore[override]
        if self.full:
            raise OSError(28, "No space left on device")
        return Disk.pwrite(fd, data, position)

    def pwritev(self, fd: int, data: list[bytes], position: int) -> int:  # type: ignore[override]
        if self.full:
            raise OSError(28, "No space left on device")
        return Disk.pwritev(fd, data, position)


class Scene:
    """A partition with a real log on a disk that can fail."""

    def __init__(self, tmp_path: Path, config: LogConfig | None = None) -> None:
        self.disk = FailingDisk()
        log = Log.open(
            LogContext(tmp_path / "topic-0", config or LogConfig(), ManualClock(), self.disk),
            clean_shutdown=True,
        )
        self.lost: list[LogDirOfflineError] = []
        name = TopicPartition("topic", 0)
        self.partition = Partition(name, random_uuid(), log, ME, asyncio.get_running_loop(), self.lost.append)
        self.lead()

    def lead(self, epoch: int = 0, leader: int = ME, isr: tuple[int, ...] = (ME,)) -> None:
        self.partition.apply(PartitionImage(replicas=(ME, OTHER), leader=leader, leader_epoch=epoch, isr=isr))


def run(tmp_path: Path, test: Callable[[Scene], Awaitable[None]], config: LogConfig | None = None) -> None:
    async def body() -> None:
        scene = Scene(tmp_path, config)
        await test(scene)
        scene.partition.log.close(clean=False)

    asyncio.run(body())


class Watcher:
    def __init__(self) -> None:
        self.changes = 0

    def partition_changed(self, partition: Partition) -> None:
        self.changes += 1


def refused(code: ErrorCode, call: Callable[[], object]) -> None:
    with pytest.raises(KafkaError) as caught:
        call()
    assert caught.value.code == code


def test_a_staged_batch_is_readable_only_after_it_is_written(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        partition = scene.partition
        info = partition.stage(batch(b"a", b"b"), 1)
        assert (info.first_offset, info.last_offset) == (0, 1)
        assert partition.log.log_end_offset == 0
        partition.write_staged()
        assert partition.log.high_watermark == 2
        found = partition.read(0, 1000, READ, True)
        assert found.slice is not None
        assert found.slice.length > 0
        assert found[1:] == (2, 2, 0, None)

    run(tmp_path, test)


def test_the_high_watermark_waits_for_other_replicas_in_sync(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.lead(isr=(ME, OTHER))
        scene.partition.append(batch(b"a"))
        assert scene.partition.log.high_watermark == 0
        scene.lead(isr=(ME,))
        assert scene.partition.log.high_watermark == 1

    run(tmp_path, test)


def test_what_was_written_before_more_replicas_were_asked_for_is_committed_when_fewer_are(
    tmp_path: Path,
) -> None:
    async def test(scene: Scene) -> None:
        scene.lead(isr=(ME, OTHER))
        partition = scene.partition
        partition.append(batch(b"a"), ACKS_ALL)
        partition.log.update_config(LogConfig(min_insync_replicas=2))
        partition.options_changed()
        scene.lead(isr=(ME,))
        assert partition.log.high_watermark == 0
        watcher = Watcher()
        partition.watch(watcher)
        partition.log.update_config(LogConfig(min_insync_replicas=1))
        partition.options_changed()
        assert partition.log.high_watermark == 1
        await asyncio.sleep(0)
        assert watcher.changes == 1

    run(tmp_path, test)


def test_a_follower_takes_neither_writes_nor_reads(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.lead(epoch=1, leader=OTHER)
        refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, lambda: scene.partition.stage(batch(b"a"), 1))
        refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, lambda: scene.partition.read(0, 1000, READ, True))

    run(tmp_path, test)


def test_readers_with_another_leader_epoch_are_refused(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.lead(epoch=5)
        for epoch, code in ((4, ErrorCode.FENCED_LEADER_EPOCH), (6, ErrorCode.UNKNOWN_LEADER_EPOCH)):
            refused(code, lambda epoch=epoch: scene.partition.read(0, 1000, READ, True, epoch))  # type: ignore[misc]
        scene.partition.read(0, 1000, READ, True, 5)

    run(tmp_path, test)


def test_acks_all_needs_enough_replicas_in_sync_and_other_acks_do_not(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        refused(ErrorCode.NOT_ENOUGH_REPLICAS, lambda: scene.partition.stage(batch(b"a"), ACKS_ALL))
        scene.partition.append(batch(b"a"), 1)
        assert scene.partition.log.log_end_offset == 1

    run(tmp_path, test, LogConfig(min_insync_replicas=2))


def test_a_reader_whose_history_has_parted_is_told_where(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        partition = scene.partition
        partition.append(batch(b"a", b"b"))
        scene.lead(epoch=3)
        ends = [partition.end_offset_for_epoch(epoch) for epoch in range(5)]
        assert ends == [(0, 2), (0, 2), (0, 2), (3, 2), (-1, -1)]
        partition.append(batch(b"c"))
        assert partition.end_offset_for_epoch(0) == (0, 2)
        assert partition.end_offset_for_epoch(2) == (0, 2)
        assert partition.end_offset_for_epoch(3) == (3, 3)
        assert partition.end_offset_for_epoch(4) == (-1, -1)
        assert partition.read(2, 1000, READ, True, -1, 2).diverging_epoch == (0, 2)
        assert partition.read(3, 1000, READ, True, -1, 0).diverging_epoch == (0, 2)
        assert partition.read(2, 1000, READ, True, -1, 0).diverging_epoch is None
        refused(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: partition.read(2, 1000, READ, True, -1, 4))

    run(tmp_path, test)


def test_the_epoch_of_an_empty_log_begins_and_ends_at_its_end(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.lead(epoch=2)
        ends = [scene.partition.end_offset_for_epoch(epoch) for epoch in (-1, 0, 1, 2, 3)]
        assert ends == [(-1, -1), (0, 0), (1, 0), (2, 0), (-1, -1)]

    run(tmp_path, test)


def test_watchers_hear_of_appends_in_a_turn_of_their_own_and_once(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        watcher = Watcher()
        await asyncio.sleep(0)
        scene.partition.watch(watcher)
        scene.partition.append(batch(b"a"))
        scene.partition.append(batch(b"b"))
        assert watcher.changes == 0
        await asyncio.sleep(0)
        assert watcher.changes == 1
        scene.partition.unwatch(watcher)
        scene.partition.append(batch(b"c"))
        await asyncio.sleep(0)
        assert watcher.changes == 1

    run(tmp_path, test)


def test_watchers_hear_of_the_end_of_the_partition(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        watcher = Watcher()
        scene.partition.watch(watcher)
        scene.partition.close()
        await asyncio.sleep(0)
        assert watcher.changes == 1

    run(tmp_path, test)


def test_a_group_writes_all_batches_of_a_partition_at_once(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        group = AppendGroup(lambda error: None)
        for value in (b"a", b"b", b"c"):
            scene.partition.stage(batch(value), 1)
            group.staged[scene.partition] = None
        group.commit()
        assert scene.partition.log.high_watermark == 3
        assert not group.failed
        assert not group.staged

    run(tmp_path, test)


def test_a_group_whose_write_fails_says_so_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        failures: list[LogDirOfflineError] = []
        group = AppendGroup(failures.append)
        scene.partition.append(batch(b"a"))
        scene.partition.stage(batch(b"b"), 1)
        group.staged[scene.partition] = None
        scene.disk.full = True
        group.commit()
        assert group.failed == {scene.partition}
        assert [failure.log_dir for failure in failures] == [str(tmp_path)]
        assert scene.partition.log.log_end_offset == 1
        group.commit()
        assert group.failed == {scene.partition}

    run(tmp_path, test)


def test_a_batch_lost_while_the_next_was_staged_counts_as_failed(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        group = AppendGroup(lambda error: None)
        scene.partition.stage(batch(b"a"), 1)
        group.staged[scene.partition] = None
        group.lose(scene.partition, LogDirOfflineError("the disk failed", str(tmp_path)))
        group.commit()
        assert group.failed == {scene.partition}

    run(tmp_path, test)


class Rebuilding:
    """A partition whose active segment has an index that must be rebuilt, which takes a while."""

    def __init__(self, scene: Scene) -> None:
        self.partition = scene.partition
        self.log = scene.partition.log
        for _ in range(10):
            self.log.append_as_leader(bytearray(batch(b"x" * 60_000)), 0)
        segment = self.log.segments.active
        segment.close_indexes()
        index = segment.path(OFFSET_INDEX_SUFFIX)
        index.write_bytes(index.read_bytes()[:-3])
        self.buffer = bytearray(batch(b"refused"))

    def stage(self, group: AppendGroup) -> None:
        self.partition.stage(memoryview(self.buffer), 1)
        group.staged[self.partition] = None

    async def check(self) -> None:
        """Nothing of the group is left, and the next batch is written whole."""
        assert self.log.log_end_offset == 10
        self.buffer[:] = b"\xee" * len(self.buffer)
        rebuilding = self.log.segments.active._rebuilding
        assert rebuilding is not None
        await rebuilding
        assert self.partition.append(batch(b"taken")).first_offset == 10
        assert self.partition.log.read_bytes(10, 1000, isolation=Isolation.LOG_END).endswith(b"taken\0")


def test_a_group_that_needs_an_index_that_is_being_rebuilt_is_refused_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(scene: Scene) -> None:
        failures: list[LogDirOfflineError] = []
        group = AppendGroup(failures.append)
        rebuilding = Rebuilding(scene)
        rebuilding.stage(group)
        group.commit()
        assert group.failed == {scene.partition}
        assert not failures
        await rebuilding.check()

    run(tmp_path, test, LogConfig(index_interval_bytes=0))
    assert "Unexpected error in" not in caplog.text


def test_batches_lost_when_the_next_needs_a_new_segment_count_as_failed(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        rebuilding = Rebuilding(scene)
        group = AppendGroup(lambda error: None)
        rebuilding.stage(group)
        with pytest.raises(LogDirOfflineError) as lost:
            scene.partition.stage(batch(b"y" * 60_000), 1)
        assert lost.value.log_dir == str(tmp_path)
        group.lose(scene.partition, lost.value)
        group.commit()
        assert group.failed == {scene.partition}
        await rebuilding.check()

    run(tmp_path, test, LogConfig(index_interval_bytes=0, segment_bytes=640_000))
