from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tidelog.config.listeners import Listener
from tidelog.ids import ZERO_UUID, TopicPartition, random_uuid, uuid_from_text
from tidelog.metadata.embedded.embedded_store import EmbeddedStore
from tidelog.metadata.feed import ImageDelta, MetadataFeed
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.store import Create, Delete, Op, Set, ensure_path
from tidelog.metadata.znodes import znodes

ORDERS_ID = uuid_from_text("3qVU1Wl6TuO5dhKmRI0Xtg")


def _topic_ops(name: str, partitions: int, topic_id: bytes | None = ORDERS_ID) -> list[Op]:
    assignment = znodes.TopicAssignment(
        topic_id=topic_id,  # type: ignore[arg-type]
        partitions=dict.fromkeys(range(partitions), (1,)),
    )
    ops: list[Op] = [
        Create(znodes.topic_path(name), assignment.encode()),
        Create(znodes.partitions_path(name)),
    ]
    for index in range(partitions):
        partition = TopicPartition(name, index)
        ops.append(Create(znodes.partition_path(partition)))
        ops.append(Create(znodes.partition_state_path(partition), _state(epoch=0)))
    return ops


def _state(epoch: int, leader: int = 1) -> bytes:
    return znodes.PartitionState(leader=leader, leader_epoch=epoch, isr=(1,), controller_epoch=1).encode()


def _broker(broker_id: int) -> bytes:
    listener = Listener("PLAINTEXT", "host", 9092, "PLAINTEXT")
    return znodes.BrokerRegistration(broker_id=broker_id, endpoints=(listener,)).encode()


def _drop_ops(name: str, partitions: int) -> list[Op]:
    ops: list[Op] = []
    for index in range(partitions):
        partition = TopicPartition(name, index)
        ops += [Delete(znodes.partition_state_path(partition)), Delete(znodes.partition_path(partition))]
    return [*ops, Delete(znodes.partitions_path(name)), Delete(znodes.topic_path(name))]


Scenario = Callable[[EmbeddedStore, MetadataFeed, list[ImageDelta]], Awaitable[None]]


def _run(tmp_path: Path, scenario: Scenario) -> None:
    async def main() -> None:
        store = EmbeddedStore(tmp_path, sync=lambda fd: None)
        for path in znodes.PERSISTENT_PATHS:
            await ensure_path(store, path)
        feed = await MetadataFeed.start(store)
        deltas: list[ImageDelta] = []
        feed.subscribe(deltas.append)
        try:
            await scenario(store, feed, deltas)
            await feed.caught_up()
            fresh = await MetadataFeed.start(store)
            assert {**vars(fresh.image), "changes": 0} == {**vars(feed.image), "changes": 0}
        finally:
            await feed.close()
            await store.close()

    asyncio.run(main())


def test_an_empty_store_is_an_empty_image(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore, feed: MetadataFeed, deltas: list[ImageDelta]) -> None:
        assert feed.image.topics == {}
        assert feed.image.cluster_id is None
        assert feed.image.controller_id == -1

    _run(tmp_path, scenario)


def test_a_new_topic_is_one_step_and_found_by_name_and_id(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore, feed: MetadataFeed, deltas: list[ImageDelta]) -> None:
        await store.multi(_topic_ops("orders", 3))
        await feed.caught_up()
        assert deltas == [ImageDelta(topics={"orders"})]
        topic = feed.image.topics["orders"]
        assert feed.image.topic_by_id[ORDERS_ID] is topic
        assert list(topic.partitions) == [0, 1, 2]
        partition = feed.image.partition("orders", 2)
        assert partition is not None
        assert (partition.leader, partition.leader_epoch, partition.isr, partition.state_version) == (
            1,
            0,
            (1,),
            0,
        )
        assert partition.state().encode() == _state(epoch=0)
        assert not topic.is_internal

    _run(tmp_path, scenario)


def test_a_change_of_leader_replaces_the_topic_and_leaves_the_old_object_as_it_was(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore, feed: MetadataFeed, deltas: list[ImageDelta]) -> None:
        await store.multi(_topic_ops("orders", 2))
        await feed.caught_up()
        before = feed.image.topics["orders"]
        await store.set(znodes.partition_state_path(TopicPartition("orders", 1)), _state(epoch=5, leader=2))
        await feed.caught_up()
        assert before.partitions[1].leader_epoch == 0
        after = feed.image.topics["orders"]
        assert (after.partitions[1].leader, after.partitions[1].leader_epoch) == (2, 5)
        assert after.partitions[1].state_version == 1
        assert after.partitions[0] == before.partitions[0]
        assert feed.image.topic_by_id[ORDERS_ID] is after
        assert deltas[1:] == [ImageDelta(topics={"orders"})]

    _run(tmp_path, scenario)


def test_more_partitions_come_with_the_topic_node(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore, feed: MetadataFeed, deltas: list[ImageDelta]) -> None:
        await store.multi(_topic_ops("orders", 1))
        grown = znodes.TopicAssignment(topic_id=ORDERS_ID, partitions={0: (1,), 1: (1,)})
        partition = TopicPartition("orders", 1)
        await store.multi(
            [
                Set(znodes.topic_path("orders"), grown.encode()),
                Create(znodes.partition_path(partition)),
                Create(znodes.partition_state_path(partition), _state(epoch=0)),
            ]
        )
        await feed.caught_up()
        assert [each.leader for each in feed.image.topics["orders"].partitions.values()] == [1, 1]

    _run(tmp_path, scenario)


def test_a_deleted_topic_is_gone_by_name_and_id_and_may_come_back_with_another_id(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore, feed: MetadataFeed, deltas: list[ImageDelta]) -> None:
        await store.multi(_topic_ops("orders", 1))
        await store.create(znodes.delete_topic_path("orders"))
        await feed.caught_up()
        assert feed.image.deleting == {"orders"}
        await store.multi([*_drop_ops("orders", 1), Delete(znodes.delete_topic_path("orders"))])
        await feed.caught_up()
        assert feed.image.topics == {}
        assert feed.image.topic_by_id == {}
        assert feed.image.deleting == set()
        again = random_uuid()
        await store.multi(_topic_ops("orders", 1, again))
        await feed.caught_up()
        assert set(feed.image.topic_by_id) == {again}

    _run(tmp_path, scenario)


def test_a_topic_recreated_in_one_step_leaves_no_old_id_behind(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore, feed: MetadataFeed, deltas: list[ImageDelta]) -> None:
        await store.multi(_topic_ops("orders", 2))
        await feed.caught_up()
        again = random_uuid()
        await store.multi([*_drop_ops("orders", 2), *_topic_ops("orders", 1, again)])
        await feed.caught_up()
        assert set(feed.image.topic_by_id) == {again}
        assert list(feed.image.topics["orders"].partitions) == [0]

    _run(tmp_path, scenario)


def test_a_partition_without_state_has_no_leader_and_a_topic_without_id_is_not_found_by_one(
    tmp_path: Path,
) -> None:
    async def scenario(store: EmbeddedStore, feed: MetadataFeed, deltas: list[ImageDelta]) -> None:
        await store.create(znodes.topic_path("old"), b'{"version":1,"partitions":{"0":[1]}}')
        await feed.caught_up()
        partition = feed.image.partition("old", 0)
        assert partition is not None
        assert (partition.leader, partition.isr, partition.replicas) == (-1, (), (1,))
        assert feed.image.topics["old"].id == ZERO_UUID
        assert feed.image.topic_by_id == {}

    _run(tmp_path, scenario)


def test_brokers_come_and_go(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore, feed: MetadataFeed, deltas: list[ImageDelta]) -> None:
        await store.create(znodes.broker_path(4), _broker(4), ephemeral=True)
        await feed.caught_up()
        assert feed.image.brokers[4].endpoints[0].host == "host"
        await store.delete(znodes.broker_path(4))
        await feed.caught_up()
        assert feed.image.brokers == {}
        assert deltas == [ImageDelta(brokers={4}), ImageDelta(brokers={4})]

    _run(tmp_path, scenario)


def test_configs_features_controller_and_cluster_id_are_followed(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore, feed: MetadataFeed, deltas: list[ImageDelta]) -> None:
        await ensure_path(store, "/cluster")
        await store.multi(
            [
                Create(znodes.CLUSTER_ID, znodes.encode_cluster_id("me")),
                Create(znodes.CONTROLLER, znodes.encode_controller(1, 0), ephemeral=True),
                Create(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(3)),
                Create(znodes.FEATURE, znodes.encode_feature({"f": 1})),
                Create(znodes.topic_config_path("t"), znodes.encode_config({"retention.ms": "1"})),
                Create(znodes.broker_config_path(1), znodes.encode_config({"a": "1"})),
                Create(znodes.broker_config_path(None), znodes.encode_config({"b": "2"})),
            ]
        )
        await feed.caught_up()
        image = feed.image
        assert (image.cluster_id, image.controller_id, image.controller_epoch) == ("me", 1, 3)
        assert image.features == {"f": 1}
        assert image.topic_config("t") == {"retention.ms": "1"}
        assert image.broker_config(1) == {"a": "1"}
        assert image.broker_config(None) == {"b": "2"}
        assert deltas == [
            ImageDelta(topic_configs={"t"}, broker_configs={1, None}, controller=True, features=True)
        ]
        await store.multi([Delete(znodes.topic_config_path("t")), Delete(znodes.broker_config_path(1))])
        await feed.caught_up()
        assert image.topic_config("t") == {}
        assert image.broker_configs == {}

    _run(tmp_path, scenario)


def test_a_write_that_changes_nothing_tells_nobody(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore, feed: MetadataFeed, deltas: list[ImageDelta]) -> None:
        await store.create(znodes.topic_config_path("t"), znodes.encode_config({}))
        await store.create("/unrelated")
        await feed.caught_up()
        assert deltas == []

    _run(tmp_path, scenario)


def test_a_node_nobody_can_read_is_passed_over_and_the_rest_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        store = EmbeddedStore(tmp_path, sync=lambda fd: None)
        for path in znodes.PERSISTENT_PATHS:
            await ensure_path(store, path)
        feed = await MetadataFeed.start(store)
        await store.multi([Create(znodes.topic_path("bad"), b"{"), Create(znodes.broker_path(4), _broker(4))])
        await store.create(znodes.broker_path(5) + "x", b"")
        await feed.caught_up()
        assert set(feed.image.brokers) == {4}
        assert feed.image.topics == {}
        assert [message for message in caplog.messages if "/brokers/topics/bad" in message]
        await store.close()

    asyncio.run(main())


def test_a_failing_subscriber_does_not_stop_the_others(tmp_path: Path) -> None:
    async def scenario(store: EmbeddedStore, feed: MetadataFeed, deltas: list[ImageDelta]) -> None:
        def broken(delta: ImageDelta) -> None:
            raise RuntimeError("broken subscriber")

        feed.subscribe(broken)
        late: list[ImageDelta] = []
        feed.subscribe(late.append)
        await store.create(znodes.broker_path(4), _broker(4))
        await feed.caught_up()
        assert late == deltas == [ImageDelta(brokers={4})]

    _run(tmp_path, scenario)


def test_after_close_nothing_is_followed(tmp_path: Path) -> None:
    async def main() -> None:
        store = EmbeddedStore(tmp_path, sync=lambda fd: None)
        await ensure_path(store, znodes.BROKER_IDS)
        feed = await MetadataFeed.start(store)
        await store.create(znodes.broker_path(4), _broker(4))
        await feed.close()
        await store.create(znodes.broker_path(5), _broker(5))
        await asyncio.sleep(0)
        assert set(feed.image.brokers) == {4}
        await store.close()

    asyncio.run(main())


def test_states_of_unknown_topics_and_partitions_are_passed_over() -> None:
    image = MetadataImage()
    state = znodes.PartitionState(leader=1, leader_epoch=0, isr=(1,), controller_epoch=1)
    assert not image.put_partition_states("none", {0: (state, 0)})
    image.put_topic("t", znodes.TopicAssignment(topic_id=None, partitions={0: (1,)}), {})
    assert not image.put_partition_states("t", {7: (state, 0)})
    assert list(image.topics["t"].partitions) == [0]
    assert not image.drop_topic("none")
