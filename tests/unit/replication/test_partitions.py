"""The registry of partitions: following the metadata, finding, losing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock

from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError
from tidelog.ids import TopicPartition, Uuid, random_uuid
from tidelog.metadata.image import MetadataImage, PartitionImage
from tidelog.metadata.znodes.znodes import PartitionState, TopicAssignment
from tidelog.records.record import Record, encode_batch
from tidelog.replication.partitions import Partitions
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.storage.log_config import LogConfig

ME, OTHER = 1, 2


class Scene:
    """A registry over real log directories and an image that tests change."""

    def __init__(self, *directories: Path) -> None:
        self.image = MetadataImage()
        self.log_dirs = LogDirs(directories, clock=ManualClock())
        self.log_dirs.open()
        self.log_dirs.identify(broker_id=ME, cluster_id="c")
        self.config = LogConfig()
        self.partitions = Partitions(
            ME,
            self.image,
            self.log_dirs,
            lambda topic: self.config,
            asyncio.get_running_loop(),
            lambda error: self.log_dirs.mark_offline(Path(error.log_dir or ""), error),
        )
        self.log_dirs.load(lambda topic: self.config, is_stray=self.partitions.is_stray)

    def put(
        self,
        topic: str,
        *replicas: tuple[int, ...],
        topic_id: Uuid | None = None,
        epoch: int = 0,
        at_start: bool = False,
    ) -> Uuid:
        """Place a topic in the image, one tuple of replicas for each partition; the first one leads."""
        topic_id = topic_id or random_uuid()
        assignment = TopicAssignment(topic_id=topic_id, partitions=dict(enumerate(replicas)))
        states = {
            index: (PartitionState(leader=each[0], leader_epoch=epoch, isr=each[:1], controller_epoch=1), 0)
            for index, each in enumerate(replicas)
        }
        self.image.put_topic(topic, assignment, states)
        self.partitions.apply([topic], at_start=at_start)
        return topic_id

    def drop(self, topic: str) -> None:
        self.image.drop_topic(topic)
        self.partitions.apply([topic])


def run(test: Callable[[Scene], Awaitable[None]], *directories: Path) -> None:
    async def body() -> None:
        scene = Scene(*directories)
        try:
            await test(scene)
        finally:
            scene.partitions.close()
            await scene.log_dirs.close()

    asyncio.run(body())


def refused(code: ErrorCode, call: Callable[[], object]) -> None:
    with pytest.raises(KafkaError) as caught:
        call()
    assert caught.value.code == code


def test_partitions_are_found_by_name_and_by_id(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        topic_id = scene.put("orders", (ME,), (ME,))
        partition = scene.partitions.get("orders", 1)
        assert partition is scene.partitions.get_by_id(topic_id, 1)
        assert partition.is_leader
        assert len(scene.partitions) == 2
        assert (tmp_path / "orders-1").is_dir()

    run(test, tmp_path)


def test_what_is_not_here_is_refused_with_the_reason(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        topic_id = scene.put("orders", (ME,), (OTHER,))
        refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, lambda: scene.partitions.get("nothing", 0))
        refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, lambda: scene.partitions.get("orders", 9))
        refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, lambda: scene.partitions.get_by_id(topic_id, 9))
        refused(ErrorCode.UNKNOWN_TOPIC_ID, lambda: scene.partitions.get_by_id(random_uuid(), 0))
        refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, lambda: scene.partitions.get("orders", 1))

    run(test, tmp_path)


def test_a_deleted_topic_takes_its_logs_along_and_ends_all_waits(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        topic_id = scene.put("orders", (ME,))
        partition = scene.partitions.get("orders", 0)
        scene.drop("orders")
        assert partition.closed
        assert len(scene.partitions) == 0
        assert not (tmp_path / "orders-0").exists()
        refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, lambda: scene.partitions.get("orders", 0))
        refused(ErrorCode.UNKNOWN_TOPIC_ID, lambda: scene.partitions.get_by_id(topic_id, 0))

    run(test, tmp_path)


def test_a_topic_has_its_name_as_long_as_the_metadata_or_a_log_here_know_it(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        partitions = scene.partitions
        topic_id, elsewhere = scene.put("t", (ME,), (ME,)), scene.put("u", (OTHER,))
        assert (partitions.topic_name(topic_id), partitions.topic_name(elsewhere)) == ("t", "u")
        scene.drop("u")
        assert partitions.topic_name(elsewhere) is None
        scene.image.drop_topic("t")
        for _ in partitions.apply_in_steps(["t"]):
            assert partitions.topic_name(topic_id) == ("t" if len(partitions) else None)
        assert partitions.topic_name(topic_id) is None

        # A controller may name a topic before the metadata do, and in the place of one that was deleted.
        first, second = random_uuid(), random_uuid()
        state = PartitionImage(replicas=(ME,), leader=ME, leader_epoch=0, isr=(ME,), controller_epoch=1)
        for index in (0, 1):
            partitions.assign(TopicPartition("v", index), first, state, is_new=True)
        partitions.assign(TopicPartition("v", 0), second, state, is_new=True)
        assert [partitions.topic_name(each) for each in (first, second)] == ["v", "v"]
        partitions.assign(TopicPartition("v", 1), second, state, is_new=True)
        assert [partitions.topic_name(each) for each in (first, second)] == [None, "v"]

    run(test, tmp_path)


def test_a_topic_made_anew_under_its_old_name_starts_empty(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        old_id = scene.put("orders", (ME,))
        old = scene.partitions.get("orders", 0)
        old.append(memoryview(bytearray(encode_batch([Record(value=b"x")]))))
        new_id = scene.put("orders", (ME,))
        partition = scene.partitions.get("orders", 0)
        assert old.closed
        assert partition.topic_id == new_id != old_id
        assert partition.log.log_end_offset == 0

    run(test, tmp_path)


def test_a_new_leader_epoch_is_noted_in_the_log_by_its_first_append(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        topic_id = scene.put("orders", (ME,))
        scene.put("orders", (ME,), topic_id=topic_id, epoch=4)
        partition = scene.partitions.get("orders", 0)
        assert partition.leader_epoch == 4
        partition.append(memoryview(bytearray(encode_batch([Record(value=b"x")]))))
        assert partition.log.epochs.latest_epoch == 4

    run(test, tmp_path)


def test_more_partitions_are_made_and_old_ones_stay_as_they_are(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        topic_id = scene.put("orders", (ME,))
        before = scene.partitions.get("orders", 0)
        scene.put("orders", (ME,), (ME,), topic_id=topic_id)
        assert scene.partitions.get("orders", 0) is before
        assert scene.partitions.get("orders", 1).is_leader

    run(test, tmp_path)


def test_logs_of_no_topic_are_strays(tmp_path: Path) -> None:
    def strays() -> int:
        return len(list(tmp_path.glob("orders-0*-stray")))

    async def first(scene: Scene) -> None:
        scene.put("orders", (ME,))

    async def second(scene: Scene) -> None:
        assert not (tmp_path / "orders-0").exists()
        assert strays() == 1
        scene.put("orders", (ME,))
        assert scene.partitions.get("orders", 0).log.log_end_offset == 0

    run(first, tmp_path)
    run(second, tmp_path)


def test_a_failed_directory_takes_its_partitions_and_leaves_the_others(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.put("orders", (ME,), (ME,))
        lost, kept = scene.partitions.get("orders", 0), scene.partitions.get("orders", 1)
        directory = lost.log.directory.parent
        assert directory != kept.log.directory.parent
        scene.log_dirs.mark_offline(directory, LogDirOfflineError("it broke", str(directory)))
        assert lost.closed
        assert not kept.closed
        refused(ErrorCode.KAFKA_STORAGE_ERROR, lambda: scene.partitions.get("orders", 0))
        assert scene.partitions.get("orders", 1) is kept
        scene.partitions.apply(["orders"])
        refused(ErrorCode.KAFKA_STORAGE_ERROR, lambda: scene.partitions.get("orders", 0))

    run(test, tmp_path / "one", tmp_path / "two")


def test_new_topics_are_made_in_the_directories_that_are_left(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        directory = tmp_path / "one"
        scene.log_dirs.mark_offline(directory, LogDirOfflineError("it broke", str(directory)))
        scene.put("orders", (ME,), (ME,))
        for index in range(2):
            assert scene.partitions.get("orders", index).log.directory.parent == tmp_path / "two"

    run(test, tmp_path / "one", tmp_path / "two")


def test_a_log_that_may_be_in_a_failed_directory_is_not_made_anew(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        directory = tmp_path / "one"
        scene.log_dirs.mark_offline(directory, LogDirOfflineError("it broke", str(directory)))
        topic_id = scene.put("orders", (ME,), at_start=True)
        refused(ErrorCode.KAFKA_STORAGE_ERROR, lambda: scene.partitions.get("orders", 0))
        scene.put("orders", (ME,), (ME,), topic_id=topic_id)
        refused(ErrorCode.KAFKA_STORAGE_ERROR, lambda: scene.partitions.get("orders", 0))
        assert scene.partitions.get("orders", 1).is_leader

    run(test, tmp_path / "one", tmp_path / "two")


def test_topic_options_that_changed_after_the_logs_were_loaded_hold_when_the_partition_comes(
    tmp_path: Path,
) -> None:
    """A broker of a cluster loads its logs, perhaps for minutes, before it is told what they are for."""

    async def test(scene: Scene) -> None:
        scene.put("orders", (ME,))
        topic_id, name = scene.partitions.get("orders", 0).topic_id, TopicPartition("orders", 0)
        scene.partitions._forget(scene.partitions.get("orders", 0))
        scene.config = LogConfig(retention_ms=-1, cleanup_policy=("compact",))
        partition, _ = scene.partitions.assign(
            name, topic_id, PartitionImage((ME,), ME, 1, (ME,)), is_new=False
        )
        assert partition.log is scene.log_dirs.logs[name]
        assert partition.log.config == scene.config

    run(test, tmp_path)


def test_topic_options_reach_the_logs(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.put("orders", (ME,))
        scene.partitions.configure("orders", LogConfig(max_message_bytes=123))
        assert scene.partitions.get("orders", 0).log.config.max_message_bytes == 123
        assert TopicPartition("orders", 0) in scene.log_dirs.logs

    run(test, tmp_path)


def test_a_log_is_stray_unless_the_metadata_place_this_very_partition_here(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        topic_id = scene.put("t", (ME, OTHER), (OTHER, ME), (OTHER,))
        for index in (0, 1):
            log = scene.partitions.by_name[TopicPartition("t", index)].log
            assert not scene.partitions.is_stray(log)
            log.topic_id = None
            assert not scene.partitions.is_stray(log), "from before there were topic ids"
            log.topic_id = random_uuid()
            assert scene.partitions.is_stray(log), "of a topic of the same name that was deleted"
            log.topic_id = topic_id
        elsewhere = scene.log_dirs.get_or_create(TopicPartition("t", 2), topic_id, LogConfig(), is_new=True)
        assert scene.partitions.is_stray(elsewhere)
        unknown = scene.log_dirs.get_or_create(TopicPartition("u", 0), None, LogConfig(), is_new=True)
        assert scene.partitions.is_stray(unknown)

    run(test, tmp_path)
