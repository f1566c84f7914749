"""The coordinators of a broker as who leads their partitions changes, over real partitions."""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.memory_zookeeper import MemoryZooKeeper

from tidelog.broker.coordination.coordinators import Coordinators
from tidelog.broker.standalone import HereOnly
from tidelog.config.broker_config import BrokerConfig
from tidelog.coordinator.runtime import Producer
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TRANSACTION_STATE_TOPIC, random_uuid
from tidelog.metadata.feed import ImageDelta
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.producer_ids import ProducerIds
from tidelog.metadata.znodes.znodes import PartitionState, TopicAssignment
from tidelog.records.batch import iter_batches
from tidelog.replication.in_sync import LedPartition
from tidelog.replication.partition import Partition
from tidelog.replication.partitions import Partitions
from tidelog.replication.replication_context import ReplicationContext
from tidelog.scheduling.promise import Promise
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.storage.files import OFFSET_INDEX_SUFFIX
from tidelog.storage.log.log import Isolation
from tidelog.storage.log_config import LogConfig
from tidelog.storage.segment.index_rebuild import INLINE_BYTES, RebuiltIndexes

ME, OTHER, THIRD = 1, 2, 3
TIMEOUT_MS = 60_000


class Nobody:
    """No controller is asked for anything."""

    async def auto_create_topics(self, names: Sequence[str]) -> dict[str, KafkaError | None]:
        raise AssertionError("the topic is there")

    def submit(self, partition: LedPartition, isr: tuple[int, ...]) -> None:
        """The in-sync replicas stay what the controller said last."""


class Scene:
    """One partition of ``__transaction_state`` on three brokers, of which this is one."""

    def __init__(self, directory: Path) -> None:
        clock = ManualClock()
        self.image = MetadataImage()
        self.log_dirs = LogDirs([directory], clock=clock)
        self.log_dirs.open()
        self.log_dirs.identify(broker_id=ME, cluster_id="c")
        self.partitions = Partitions(
            ME,
            self.image,
            self.log_dirs,
            lambda topic: LogConfig(),
            asyncio.get_running_loop(),
            lambda error: None,
            ReplicationContext(clock, Nobody(), lambda: (ME, OTHER, THIRD)),
        )
        self.coordinators = Coordinators(
            BrokerConfig({"log.dirs": str(directory)}),
            clock,
            self.image,
            self.partitions,
            Nobody(),
            lambda error: None,
            ProducerIds(MemoryZooKeeper().session(), ME),
            HereOnly(),
        )
        self._topic_id = random_uuid()

    @property
    def partition(self) -> Partition:
        return self.partitions.get(TRANSACTION_STATE_TOPIC, 0)

    def told(self, leader: int, epoch: int, *isr: int, partitions: int = 1) -> None:
        """What the controller says of the partition, carried out as a broker does it."""
        indexes = range(partitions)
        assignment = TopicAssignment(
            topic_id=self._topic_id, partitions=dict.fromkeys(indexes, (ME, OTHER, THIRD))
        )
        state = PartitionState(leader=leader, leader_epoch=epoch, isr=isr, controller_epoch=1)
        self.image.put_topic(TRANSACTION_STATE_TOPIC, assignment, dict.fromkeys(indexes, (state, epoch)))
        self.partitions.apply([TRANSACTION_STATE_TOPIC])
        self.coordinators.metadata_changed(ImageDelta(topics={TRANSACTION_STATE_TOPIC}))

    async def lead(self, epoch: int, *isr: int) -> None:
        """Lead, and wait until the coordinator serves."""
        self.told(ME, epoch, *isr)
        await self.until(lambda: bool(self.coordinators.transactions.runtime.active))

    def init(self, expected: Producer | None = None, name: str = "t") -> Promise[Producer]:
        """InitProducerId."""
        return self.coordinators.transactions.init_producer_id(name, TIMEOUT_MS, expected)

    def fetched(self, *followers: int) -> None:
        """These followers have all that there is."""
        for follower in followers:
            self.partition.fetched_by(follower, self.partition.log.log_end_offset, 0)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():  # noqa: ASYNC110 - anything may bring it about
                await asyncio.sleep(0)

    async def initialized(self, *followers: int, name: str = "t") -> Producer:
        """A producer id, which the followers have, too."""
        reply = self.init(name=name)

        def answered() -> bool:
            self.fetched(*followers)
            return reply.done

        await self.until(answered)
        return reply.result()

    @property
    def written_epochs(self) -> list[int]:
        """The leader epochs of the batches in the log."""
        raw = self.partition.log.read_bytes(0, 1 << 20, isolation=Isolation.LOG_END)
        return [header.partition_leader_epoch for _, header in iter_batches(raw)]


def run(test: Callable[[Scene], Awaitable[None]], directory: Path) -> None:
    async def body() -> None:
        scene = Scene(directory)
        try:
            await test(scene)
        finally:
            await scene.coordinators.close()
            scene.partitions.close()
            await scene.log_dirs.close()

    asyncio.run(body())


def code_of(reply: Promise[Producer]) -> ErrorCode:
    assert isinstance(reply.error, KafkaError)
    return reply.error.code


def test_a_write_that_the_end_of_a_follower_commits_is_answered(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        await scene.lead(4, ME, OTHER, THIRD)
        first = await scene.initialized(OTHER, THIRD)
        # The answer waits for broker 3, which dies: the controller has this one lead on, in a new epoch.
        waiting = scene.init(first)
        scene.fetched(OTHER)
        assert not waiting.done
        scene.told(ME, 5, ME, OTHER)
        await scene.until(lambda: waiting.done)
        assert waiting.result() == Producer(first.producer_id, first.epoch + 1)

    run(test, tmp_path)


def test_a_coordinator_whose_leader_stays_serves_on_without_loading_its_log(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        await scene.lead(4, ME, OTHER, THIRD)
        first = await scene.initialized(OTHER, THIRD)
        runtime = scene.coordinators.transactions.runtime
        ((_, shard),) = runtime.shards
        scene.told(ME, 5, ME, OTHER)
        scene.told(ME, 6, ME)
        assert runtime.active == [0]
        assert runtime.loads == 1
        assert scene.init(first).result() == Producer(first.producer_id, first.epoch + 1)
        assert scene.written_epochs == [4, 6]
        # Markers go out under the epoch of now: who led in between, unknown to this broker, is fenced by it.
        assert shard.context.epoch == runtime.epoch_of(0) == 6

    run(test, tmp_path)


@pytest.mark.parametrize("heard", [True, False])
def test_a_coordinator_that_was_succeeded_loads_its_log_again(tmp_path: Path, heard: bool) -> None:
    async def test(scene: Scene) -> None:
        await scene.lead(4, ME, OTHER, THIRD)
        first = await scene.initialized(OTHER, THIRD)
        waiting = scene.init(first)
        if heard:
            scene.told(OTHER, 5, OTHER, THIRD)
            assert code_of(waiting) is ErrorCode.NOT_COORDINATOR
            assert code_of(scene.init(first)) is ErrorCode.NOT_COORDINATOR
        else:
            # The session with ZooKeeper is over: nothing is written that a successor would not know of.
            scene.partitions.resign_all()
            end_offset = scene.partition.log.log_end_offset
            assert scene.init(first).error is not None
            assert scene.partition.log.log_end_offset == end_offset
        scene.told(ME, 6, ME)
        assert code_of(scene.init(first)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        runtime = scene.coordinators.transactions.runtime
        await scene.until(lambda: runtime.active == [0])
        assert runtime.loads == 2
        assert runtime.epoch_of(0) == 6

    run(test, tmp_path)


def test_a_coordinator_that_leads_on_in_the_same_epoch_after_its_session_was_lost_is_the_same(
    tmp_path: Path,
) -> None:
    async def test(scene: Scene) -> None:
        await scene.lead(4, ME)
        first = await scene.initialized()
        scene.partitions.resign_all()
        scene.told(ME, 4, ME)
        assert scene.init(first).result() == Producer(first.producer_id, first.epoch + 1)
        assert scene.coordinators.transactions.runtime.loads == 1

    run(test, tmp_path)


def test_others_have_their_turn_between_two_empty_logs(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        runtime = scene.coordinators.transactions.runtime
        scene.told(ME, 4, ME, partitions=20)
        seen = []
        while len(runtime.active) < 20:
            seen.append(len(runtime.active))
            await asyncio.sleep(0)
        assert all(later - earlier <= 1 for earlier, later in itertools.pairwise([*seen, 20]))

    run(test, tmp_path)


def spoil_index(partition: Partition) -> None:
    """Close the first segment, and let its index end with an entry that points behind the log."""
    partition.log.roll()
    segment = partition.log.segments.first
    segment.close_indexes()
    segment.forget_positions()
    path = segment.path(OFFSET_INDEX_SUFFIX)
    path.write_bytes(path.read_bytes()[:-8] + b"\x7f\xff\xff\xff\x7f\xff\xff\xff")


def test_loading_waits_for_an_index_that_has_to_be_rebuilt(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        await scene.lead(4, ME)
        names = [str(number) * (INLINE_BYTES // 50) for number in range(10, 70)]
        producers = {name: await scene.initialized(name=name) for name in names}
        scene.told(OTHER, 5, OTHER, THIRD)
        spoil_index(scene.partition)
        await scene.lead(6, ME)
        for name, before in producers.items():
            assert scene.init(before, name).result() == Producer(before.producer_id, before.epoch + 1)

    run(test, tmp_path)


def test_a_partition_whose_index_cannot_be_rebuilt_is_loaded_again_in_the_next_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def test(scene: Scene) -> None:
        await scene.lead(4, ME)
        for number in range(10, 70):
            await scene.initialized(name=str(number) * (INLINE_BYTES // 50))
        scene.told(OTHER, 5, OTHER, THIRD)
        spoil_index(scene.partition)
        monkeypatch.setattr(RebuiltIndexes, "write", no_room)
        scene.told(ME, 6, ME)
        runtime = scene.coordinators.transactions.runtime
        await scene.until(lambda: runtime.loads == 2)
        assert [state for state, _ in runtime.shards] == ["failed"]
        scene.told(ME, 6, ME)
        assert [state for state, _ in runtime.shards] == ["failed"]
        monkeypatch.undo()
        await scene.lead(7, ME, OTHER)
        assert runtime.loads == 3

    run(test, tmp_path)


def test_a_partition_may_be_led_elsewhere_while_its_index_is_rebuilt(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        await scene.lead(4, ME)
        for number in range(10, 70):
            await scene.initialized(name=str(number) * (INLINE_BYTES // 50))
        scene.told(OTHER, 5, OTHER, THIRD)
        spoil_index(scene.partition)
        scene.told(ME, 6, ME)
        await asyncio.sleep(0)
        scene.told(OTHER, 7, OTHER, THIRD)
        runtime = scene.coordinators.transactions.runtime
        await scene.until(lambda: runtime.loads == 2)
        assert runtime.shards == []
        await scene.lead(8, ME)

    run(test, tmp_path)
