"""What a broker does when the controller speaks, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.memory_zookeeper import MemoryZooKeeper

from tidelog.broker.cluster.controller_requests import _COST_OF_LOG, _PER_TURN, ControllerRequests
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import ZERO_UUID, TopicPartition, Uuid, random_uuid
from tidelog.metadata.cluster_feed import ClusterFeed
from tidelog.metadata.feed import ImageDelta
from tidelog.metadata.store import ensure_path
from tidelog.metadata.znodes import znodes
from tidelog.records.record import Record, encode_batch
from tidelog.replication.fetch_loop import FetchLoop, FetchLoops
from tidelog.replication.leader_endpoint import Answers, OnAnswers, Positions
from tidelog.replication.partitions import Partitions
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.storage.log_config import LogConfig
from tidelog.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from tidelog.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from tidelog.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

ME, OTHER = 1, 2
TOPIC = "t"
P0 = TopicPartition(TOPIC, 0)
BROKER_EPOCH, CONTROLLER_EPOCH = 40, 7
VERSION = 7


class Silent:
    """A leader that never answers."""

    async def fetch(self, positions: Positions) -> Answers:
        await asyncio.get_running_loop().create_future()
        return {}

    def begin_fetch(self, positions: Positions, on_answers: OnAnswers) -> bool:
        return False

    async def log_bounds(self, partition: TopicPartition, leader_epoch: int) -> tuple[int, int]:
        return 0, 0

    async def close(self) -> None:
        """Nothing is open."""


class Scene:
    """A broker's obedience over real log directories."""

    def __init__(self, feed: ClusterFeed, *directories: Path) -> None:
        clock = ManualClock()
        self.feed = feed
        self.log_dirs = LogDirs(directories, clock=clock)
        self.log_dirs.open()
        self.log_dirs.identify(broker_id=ME, cluster_id="c")
        self.partitions = Partitions(
            ME,
            feed.image,
            self.log_dirs,
            lambda topic: LogConfig(),
            asyncio.get_running_loop(),
            lambda error: self.log_dirs.mark_offline(Path(error.log_dir or ""), error),
        )
        self.log_dirs.load(lambda topic: LogConfig(), is_stray=lambda log: False)
        self.loops = FetchLoops(
            lambda leader: FetchLoop(leader, Silent(), clock, lambda: 0, lambda error: None)
        )
        self.topic_id = random_uuid()
        self.roles: list[set[str]] = []
        self.controller_requests = ControllerRequests(
            ME, lambda: BROKER_EPOCH, feed, self.partitions, self.log_dirs, self.loops, self._roles
        )

    def _roles(self, delta: ImageDelta) -> None:
        self.roles.append(set(delta.topics))

    def become(
        self,
        leader: int,
        epoch: int,
        *,
        topic_id: Uuid | None = None,
        replicas: tuple[int, ...] = (ME, OTHER),
        controller_epoch: int = CONTROLLER_EPOCH,
        broker_epoch: int = BROKER_EPOCH,
        version: int | None = None,
        is_new: bool = False,
    ) -> ErrorCode:
        """What the controller's word on partition 0 is answered with."""
        state = LeaderAndIsrPartitionState(
            topic_name=TOPIC,
            partition_index=0,
            controller_epoch=controller_epoch,
            leader=leader,
            leader_epoch=epoch,
            isr=list(replicas),
            partition_epoch=epoch if version is None else version,
            replicas=list(replicas),
            is_new=is_new,
        )
        topic_id = self.topic_id if topic_id is None else topic_id
        request = LeaderAndIsrRequest(
            controller_id=OTHER,
            controller_epoch=controller_epoch,
            broker_epoch=broker_epoch,
            topic_states=[
                LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=topic_id, partition_states=[state])
            ],
        )
        response = self.controller_requests.leader_and_isr(request, VERSION)
        if response.error_code:
            return ErrorCode(response.error_code)
        (topic,) = response.topics
        assert topic.topic_id == topic_id
        (answer,) = topic.partition_errors
        return ErrorCode(answer.error_code)

    def stop(self, epoch: int, *, delete: bool, controller_epoch: int = CONTROLLER_EPOCH) -> ErrorCode:
        """What StopReplica of partition 0 is answered with."""
        state = StopReplicaPartitionState(partition_index=0, leader_epoch=epoch, delete_partition=delete)
        response = self.controller_requests.stop_replica(
            StopReplicaRequest(
                controller_id=OTHER,
                controller_epoch=controller_epoch,
                broker_epoch=BROKER_EPOCH,
                topic_states=[StopReplicaTopicState(topic_name=TOPIC, partition_states=[state])],
            )
        )
        if response.error_code:
            return ErrorCode(response.error_code)
        (answer,) = response.partition_errors
        return ErrorCode(answer.error_code)

    def append(self, value: bytes = b"v") -> None:
        batch = encode_batch([Record(timestamp=1, value=value)])
        self.partitions.by_name[P0].append(memoryview(bytearray(batch)))


def run(test: Callable[[Scene], Awaitable[None]], *directories: Path) -> None:
    async def main() -> None:
        store = MemoryZooKeeper().session()
        for path in znodes.PERSISTENT_PATHS:
            await ensure_path(store, path)
        feed = await ClusterFeed.start(store, ManualClock())
        scene = Scene(feed, *directories)
        try:
            await test(scene)
        finally:
            await scene.loops.close()
            await feed.close()
            scene.partitions.close()
            await scene.log_dirs.close()

    asyncio.run(main())


def test_a_broker_leads_and_follows_as_it_is_told(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        assert scene.become(ME, 0, is_new=True) is ErrorCode.NONE
        partition = scene.partitions.by_name[P0]
        assert partition.is_leader
        scene.append()
        assert scene.become(OTHER, 1) is ErrorCode.NONE
        assert not partition.is_leader
        assert scene.loops.leaders() == {P0: OTHER}
        assert scene.become(3, 2, replicas=(1, 2, 3)) is ErrorCode.NONE
        assert scene.loops.leaders() == {P0: 3}
        assert scene.become(-1, 3) is ErrorCode.NONE
        assert scene.loops.leaders() == {}
        assert scene.become(ME, 4) is ErrorCode.NONE
        assert partition.is_leader
        assert partition.log.log_end_offset == 1
        assert scene.roles == [{TOPIC}] * 5

    run(test, tmp_path)


@pytest.mark.parametrize("epoch", [2, 3])
def test_an_old_or_known_leader_epoch_changes_nothing(tmp_path: Path, epoch: int) -> None:
    async def test(scene: Scene) -> None:
        scene.become(ME, 3)
        assert scene.become(OTHER, epoch) is ErrorCode.STALE_CONTROLLER_EPOCH
        assert scene.partitions.by_name[P0].is_leader
        assert scene.loops.leaders() == {}

    run(test, tmp_path)


def test_a_leader_that_resigned_leads_again_in_the_same_epoch_when_it_is_told(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.become(ME, 3)
        scene.partitions.resign_all()
        assert not scene.partitions.by_name[P0].is_leader
        assert scene.become(ME, 2) is ErrorCode.STALE_CONTROLLER_EPOCH
        assert scene.become(ME, 3) is ErrorCode.NONE
        assert scene.partitions.by_name[P0].is_leader

    run(test, tmp_path)


def test_an_older_controller_is_refused_whatever_it_wants(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.become(ME, 3)
        old = CONTROLLER_EPOCH - 1
        assert scene.become(OTHER, 4, controller_epoch=old) is ErrorCode.STALE_CONTROLLER_EPOCH
        assert scene.stop(4, delete=True, controller_epoch=old) is ErrorCode.STALE_CONTROLLER_EPOCH
        answer = scene.controller_requests.update_metadata(
            UpdateMetadataRequest(controller_id=3, controller_epoch=old, broker_epoch=BROKER_EPOCH)
        )
        assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert not scene.controller_requests.informed.is_set()
        assert scene.partitions.by_name[P0].is_leader
        # A newer one is heard, and from then on only that.
        assert scene.become(OTHER, 4, controller_epoch=9) is ErrorCode.NONE
        assert scene.become(ME, 5) is ErrorCode.STALE_CONTROLLER_EPOCH

    run(test, tmp_path)


def told(*topics: str, brokers: Iterable[int] = ()) -> UpdateMetadataRequest:
    """What a controller tells of a cluster."""
    return UpdateMetadataRequest(
        controller_id=OTHER,
        controller_epoch=CONTROLLER_EPOCH,
        broker_epoch=BROKER_EPOCH,
        live_brokers=[UpdateMetadataBroker(id=each) for each in brokers],
        topic_states=[UpdateMetadataTopicState(topic_name=each) for each in topics],
    )


def test_topics_without_brokers_are_told_to_nobody(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        requests = scene.controller_requests
        for brokers in ((), (ME,), (), (ME, OTHER)):
            requests.update_metadata(told(TOPIC, brokers=brokers))
            assert requests.is_informed is bool(brokers)

    run(test, tmp_path)


def test_where_there_are_topics_a_list_of_brokers_alone_informs_nobody(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.controller_requests.expects_topics = True
        scene.controller_requests.update_metadata(told())
        assert not scene.controller_requests.informed.is_set()
        scene.controller_requests.update_metadata(told(TOPIC))
        assert scene.controller_requests.informed.is_set()

    async def empty(scene: Scene) -> None:
        scene.controller_requests.update_metadata(told())
        assert scene.controller_requests.informed.is_set()

    run(test, tmp_path / "some")
    run(empty, tmp_path / "none")


def test_what_was_meant_for_an_earlier_life_is_refused(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        assert scene.become(ME, 0, broker_epoch=BROKER_EPOCH - 1) is ErrorCode.STALE_BROKER_EPOCH
        assert not scene.partitions.by_name
        # An epoch that this broker has not heard of itself yet is its own nonetheless, and -1 is anybody's.
        assert scene.become(ME, 0, broker_epoch=BROKER_EPOCH + 5) is ErrorCode.NONE
        assert scene.become(OTHER, 1, broker_epoch=-1) is ErrorCode.NONE

    run(test, tmp_path)


def test_a_partition_of_others_is_refused(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        assert scene.become(OTHER, 0, replicas=(2, 3)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not scene.partitions.by_name

    run(test, tmp_path)


@pytest.mark.parametrize("leader", [ME, OTHER])
@pytest.mark.parametrize("epoch", [0, 9])
@pytest.mark.parametrize("in_service", [True, False], ids=["served", "found on disk"])
def test_the_log_of_a_deleted_topic_of_the_same_name_is_set_aside(
    tmp_path: Path, epoch: int, leader: int, in_service: bool
) -> None:
    async def test(scene: Scene) -> None:
        scene.become(ME, 3)
        scene.append()
        before = scene.partitions.by_name[P0].log.directory
        if not in_service:
            scene.stop(-2, delete=False)
            scene.partitions.close()
        anew = random_uuid()
        assert scene.become(leader, epoch, topic_id=anew) is ErrorCode.NONE
        partition = scene.partitions.by_name[P0]
        assert partition.topic_id == partition.log.topic_id == anew
        assert partition.log.directory == before
        assert partition.log.log_end_offset == 0
        assert list(scene.partitions.by_id) == [(anew, 0)]
        assert (P0 in scene.loops.leaders()) is (leader == OTHER)
        (kept,) = before.parent.glob("t-0.*-stray")
        assert sum(file.stat().st_size for file in kept.glob("*.log")) > 0

    run(test, tmp_path)


def test_a_topic_made_anew_after_its_deletion_has_an_empty_log(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.become(ME, 3)
        scene.append()
        assert scene.stop(-2, delete=True) is ErrorCode.NONE
        scene.topic_id = random_uuid()
        assert scene.become(ME, 0, is_new=True) is ErrorCode.NONE
        partition = scene.partitions.by_name[P0]
        assert partition.log.log_end_offset == 0
        assert partition.topic_id == scene.topic_id

    run(test, tmp_path)


def test_a_controller_that_knows_no_ids_means_the_topic_that_is_here(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.become(ME, 3)
        scene.append()
        assert scene.become(OTHER, 3, topic_id=ZERO_UUID) is ErrorCode.STALE_CONTROLLER_EPOCH
        assert scene.become(OTHER, 4, topic_id=ZERO_UUID) is ErrorCode.NONE
        assert scene.partitions.by_name[P0].log.log_end_offset == 1
        assert scene.partitions.by_name[P0].topic_id == scene.topic_id

    run(test, tmp_path)


def test_a_topic_without_an_id_is_refused_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        assert scene.become(ME, 3, topic_id=ZERO_UUID, is_new=True) is ErrorCode.UNSUPPORTED_VERSION
        assert P0 not in scene.log_dirs.logs
        assert scene.become(ME, 3, is_new=True) is ErrorCode.NONE

    run(test, tmp_path)


# StopReplica


def test_a_stopped_replica_follows_nobody_and_keeps_its_log(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.become(OTHER, 3)
        assert scene.stop(3, delete=False) is ErrorCode.NONE
        assert scene.loops.leaders() == {}
        assert P0 in scene.log_dirs.logs
        assert scene.become(OTHER, 4) is ErrorCode.NONE
        assert scene.loops.leaders() == {P0: OTHER}

    run(test, tmp_path)


def test_a_deleted_replica_is_gone_though_it_is_asked_for_twice(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.become(OTHER, 3)
        assert scene.stop(3, delete=True) is ErrorCode.NONE
        assert not scene.partitions.by_name
        assert P0 not in scene.log_dirs.logs
        assert scene.loops.leaders() == {}
        assert scene.stop(3, delete=True) is ErrorCode.NONE

    run(test, tmp_path)


@pytest.mark.parametrize(("epoch", "stops"), [(2, False), (3, True), (4, True), (-1, True), (-2, True)])
def test_a_replica_is_stopped_only_by_who_knows_its_epoch(tmp_path: Path, epoch: int, stops: bool) -> None:
    async def test(scene: Scene) -> None:
        scene.become(ME, 3)
        expected = ErrorCode.NONE if stops else ErrorCode.FENCED_LEADER_EPOCH
        assert scene.stop(epoch, delete=True) is expected
        assert (P0 in scene.partitions.by_name) is not stops

    run(test, tmp_path)


# Log directories


def test_replicas_on_a_failed_directory_are_answered_with_a_storage_error(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.become(ME, 3)
        scene.log_dirs.mark_offline(scene.partitions.by_name[P0].log.directory.parent, OSError("broken"))
        assert not scene.partitions.by_name
        assert scene.become(ME, 4) is ErrorCode.KAFKA_STORAGE_ERROR
        assert scene.stop(4, delete=True) is ErrorCode.KAFKA_STORAGE_ERROR

    run(test, tmp_path / "a", tmp_path / "b")


def test_a_replica_that_may_lie_on_a_failed_directory_is_made_only_if_it_is_new(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.log_dirs.mark_offline(tmp_path / "a", OSError("broken"))
        assert scene.become(ME, 4) is ErrorCode.KAFKA_STORAGE_ERROR
        assert scene.become(ME, 4, is_new=True) is ErrorCode.NONE
        assert scene.partitions.by_name[P0].log.directory.parent == tmp_path / "b"

    run(test, tmp_path / "a", tmp_path / "b")


def test_answers_of_old_versions_name_their_topics(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        scene.become(ME, 0)
        state = LeaderAndIsrPartitionState(
            topic_name=TOPIC, partition_index=0, leader=ME, leader_epoch=1, isr=[ME], replicas=[ME]
        )
        response: LeaderAndIsrResponse = scene.controller_requests.leader_and_isr(
            LeaderAndIsrRequest(
                controller_epoch=CONTROLLER_EPOCH,
                broker_epoch=BROKER_EPOCH,
                topic_states=[LeaderAndIsrTopicState(topic_name=TOPIC, partition_states=[state])],
            ),
            4,
        )
        (answer,) = response.partition_errors
        assert (answer.topic_name, answer.partition_index, answer.error_code) == (TOPIC, 0, ErrorCode.NONE)
        assert not response.topics

    run(test, tmp_path)


def many(count: int, epoch: int = 0) -> list[LeaderAndIsrPartitionState]:
    return [
        LeaderAndIsrPartitionState(
            partition_index=index,
            leader=ME,
            leader_epoch=epoch,
            isr=[ME],
            replicas=[ME],
            is_new=True,
        )
        for index in range(count)
    ]


def test_very_many_partitions_are_opened_and_stopped_in_several_turns_and_in_order(tmp_path: Path) -> None:
    count = 4 * _PER_TURN // _COST_OF_LOG
    topic_id = random_uuid()

    async def test(scene: Scene) -> None:
        control, partitions = scene.controller_requests, scene.partitions
        opened: list[int] = []
        asyncio.get_running_loop().call_soon(lambda: opened.append(len(partitions.by_name)))
        first = LeaderAndIsrRequest(
            controller_epoch=CONTROLLER_EPOCH,
            broker_epoch=BROKER_EPOCH,
            topic_states=[
                LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=topic_id, partition_states=many(count))
            ],
        )
        second = StopReplicaRequest(
            controller_epoch=CONTROLLER_EPOCH,
            broker_epoch=BROKER_EPOCH,
            topic_states=[
                StopReplicaTopicState(
                    topic_name=TOPIC,
                    partition_states=[
                        StopReplicaPartitionState(
                            partition_index=index, leader_epoch=1, delete_partition=True
                        )
                        for index in range(count)
                    ],
                )
            ],
        )
        led: LeaderAndIsrResponse | Awaitable[LeaderAndIsrResponse] = control.in_order(
            {}, lambda: control.leader_and_isr_in_slices(first, VERSION)
        )
        stopped: StopReplicaResponse | Awaitable[StopReplicaResponse] = control.in_order(
            {}, lambda: control.stop_replica_in_slices(second)
        )
        assert not isinstance(led, LeaderAndIsrResponse)
        assert len(partitions.by_name) == count // 4
        answer = await led
        assert opened == [count // 4]
        errors = answer.topics[0].partition_errors
        assert [(each.partition_index, each.error_code) for each in errors] == [(n, 0) for n in range(count)]
        assert len(partitions.by_name) == count
        assert not isinstance(stopped, StopReplicaResponse)
        ended = await stopped
        assert {each.error_code for each in ended.partition_errors} == {0}
        assert not partitions.by_name

    run(test, tmp_path)


def test_nothing_more_is_carried_out_once_the_broker_stops(tmp_path: Path) -> None:
    count = 4 * _PER_TURN // _COST_OF_LOG

    async def test(scene: Scene) -> None:
        request = LeaderAndIsrRequest(
            controller_epoch=CONTROLLER_EPOCH,
            broker_epoch=BROKER_EPOCH,
            topic_states=[
                LeaderAndIsrTopicState(topic_name=TOPIC, topic_id=random_uuid(), partition_states=many(count))
            ],
        )
        control = scene.controller_requests
        answer: LeaderAndIsrResponse | Awaitable[LeaderAndIsrResponse] = control.in_order(
            {}, lambda: control.leader_and_isr_in_slices(request, VERSION)
        )
        control.close()
        assert not isinstance(answer, LeaderAndIsrResponse)
        with pytest.raises(KafkaError, match="shutting down"):
            await answer
        assert len(scene.partitions.by_name) == count // 4

    run(test, tmp_path)
