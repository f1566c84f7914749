"""The image of a broker in a cluster: what the controller tells is merged, what configs say is read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from tests.rigs.clock import ManualClock
from tests.rigs.memory_zookeeper import MemorySession, MemoryZooKeeper

from tidelog.ids import ZERO_UUID, Uuid, random_uuid
from tidelog.metadata.cluster_feed import _PER_TURN, NOTICE_AGE_MS, ClusterFeed
from tidelog.metadata.feed import ImageDelta
from tidelog.metadata.store import ensure_path, put
from tidelog.metadata.znodes import znodes
from tidelog.metadata.znodes.token_znodes import encode_token, token_path
from tidelog.security.delegation_token import DelegationToken
from tidelog.security.principal import Principal
from tidelog.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

TOPIC = "orders"


class Scene:
    def __init__(self, zookeeper: MemoryZooKeeper, store: MemorySession) -> None:
        self.zookeeper = zookeeper
        self.store = store
        self.clock = ManualClock()
        self.deltas: list[ImageDelta] = []
        self.topic_id = random_uuid()

    async def start(self) -> None:
        self.feed = await ClusterFeed.start(self.store, self.clock)
        self.feed.subscribe(self.deltas.append)
        await self.settled()

    async def settled(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        await self.feed.caught_up()

    def tell(
        self,
        partitions: dict[int, int],
        *,
        brokers: tuple[int, ...] = (1, 2),
        topic_id: Uuid | None = None,
        epoch: int = 0,
    ) -> ImageDelta:
        """The controller says who leads some partitions of the topic, and who is alive."""
        states = [
            UpdateMetadataPartitionState(
                topic_name=TOPIC,
                partition_index=index,
                leader=leader,
                leader_epoch=epoch,
                isr=[1],
                replicas=[1, 2],
                offline_replicas=[2],
                zk_version=3,
            )
            for index, leader in partitions.items()
        ]
        topic_id = self.topic_id if topic_id is None else topic_id
        topic = UpdateMetadataTopicState(topic_name=TOPIC, topic_id=topic_id, partition_states=states)
        live = [
            UpdateMetadataBroker(
                id=broker,
                endpoints=[
                    UpdateMetadataEndpoint(
                        port=9092, host=f"h{broker}", listener="INTERNAL", security_protocol=1
                    )
                ],
                rack="r",
            )
            for broker in brokers
        ]
        return self.feed.update(
            UpdateMetadataRequest(
                controller_id=1,
                controller_epoch=5,
                topic_states=[topic] if states else [],
                live_brokers=live,
            )
        )

    def leaders(self) -> dict[int, int]:
        topic = self.feed.image.topics.get(TOPIC)
        return {} if topic is None else {index: each.leader for index, each in topic.partitions.items()}

    async def notice(self, raw: bytes) -> None:
        await self.store.create(znodes.CONFIG_CHANGE_PREFIX, raw, sequential=True)
        await self.settled()


def run(test: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        zookeeper = MemoryZooKeeper()
        store = zookeeper.session()
        for path in znodes.PERSISTENT_PATHS:
            await ensure_path(store, path)
        scene = Scene(zookeeper, store)
        await scene.start()
        await test(scene)
        await scene.feed.close()

    asyncio.run(main())


# What the controller tells


def test_partitions_below_one_that_is_known_are_counted() -> None:
    async def test(scene: Scene) -> None:
        scene.tell({3: 1, 1: 2})
        assert scene.leaders() == {1: 2, 3: 1}
        assert scene.feed.image.topics[TOPIC].partition_count == 4
        scene.tell({2: 1, 0: 1})
        assert list(scene.leaders()) == [0, 1, 2, 3]
        assert scene.feed.image.topics[TOPIC].partition_count == 4

    run(test)


def test_partitions_are_merged_and_brokers_replaced() -> None:
    async def test(scene: Scene) -> None:
        scene.tell({0: 1, 1: 2})
        assert scene.leaders() == {0: 1, 1: 2}
        delta = scene.tell({1: 1, 2: 2}, brokers=(2, 3), epoch=1)
        assert scene.leaders() == {0: 1, 1: 1, 2: 2}
        assert delta.topics == {TOPIC}
        assert delta.brokers == {1, 3}
        image = scene.feed.image
        assert set(image.brokers) == {2, 3}
        assert (image.controller_id, image.controller_epoch) == (1, 5)
        (endpoint,) = image.brokers[3].endpoints
        assert (endpoint.name, endpoint.host, endpoint.security_protocol) == ("INTERNAL", "h3", "SSL")
        partition = image.topics[TOPIC].partitions[0]
        assert (partition.replicas, partition.isr, partition.offline_replicas) == ((1, 2), (1,), (2,))
        assert partition.state_version == 3

    run(test)


def test_nobody_is_told_of_what_was_known() -> None:
    async def test(scene: Scene) -> None:
        scene.tell({0: 1})
        scene.deltas.clear()
        assert not scene.tell({0: 1})
        assert scene.deltas == []

    run(test)


def test_partitions_that_are_being_deleted_go_and_with_the_last_the_topic() -> None:
    async def test(scene: Scene) -> None:
        scene.tell({0: 1, 1: 2})
        scene.tell({0: -2})
        assert scene.leaders() == {1: 2}
        scene.tell({1: -2})
        assert TOPIC not in scene.feed.image.topics
        assert scene.topic_id not in scene.feed.image.topic_by_id
        assert not scene.tell({1: -2})

    run(test)


def test_a_topic_made_anew_has_nothing_of_the_old_one() -> None:
    async def test(scene: Scene) -> None:
        scene.tell({0: 1, 1: 1})
        anew = random_uuid()
        scene.tell({0: 2}, topic_id=anew)
        assert scene.leaders() == {0: 2}
        assert scene.feed.image.topics[TOPIC].id == anew
        assert scene.topic_id not in scene.feed.image.topic_by_id

    run(test)


def test_a_controller_without_ids_means_the_known_topic() -> None:
    async def test(scene: Scene) -> None:
        scene.tell({0: 1, 1: 1})
        scene.tell({1: 2}, topic_id=ZERO_UUID)
        assert scene.leaders() == {0: 1, 1: 2}
        assert scene.feed.image.topics[TOPIC].id == scene.topic_id

    run(test)


# Configs


def test_a_change_is_read_when_a_notice_names_it() -> None:
    async def test(scene: Scene) -> None:
        path = znodes.topic_config_path(TOPIC)
        await put(scene.store, path, znodes.encode_config({"retention.ms": "1"}))
        assert scene.feed.image.topic_config(TOPIC) == {}
        await scene.notice(b'{"version":2,"entity_path":"topics/orders"}')
        assert scene.feed.image.topic_config(TOPIC) == {"retention.ms": "1"}
        await put(scene.store, path, znodes.encode_config({"retention.ms": "2"}))
        await scene.notice(b'{"version":1,"entity_type":"topics","entity_name":"orders"}')
        assert scene.feed.image.topic_config(TOPIC) == {"retention.ms": "2"}
        assert len(scene.deltas) == 2

    run(test)


def test_the_configs_of_a_topic_go_with_it() -> None:
    """Nobody leaves a notice of them: topics may come and go for years."""

    async def test(scene: Scene) -> None:
        path = znodes.topic_config_path(TOPIC)
        await put(scene.store, path, znodes.encode_config({"retention.ms": "1"}))
        scene.tell({0: 1})
        await scene.feed.read_configs({TOPIC: scene.topic_id})
        await scene.store.delete(path)
        assert scene.feed.image.topic_config(TOPIC) == {"retention.ms": "1"}
        scene.tell({0: -2})
        assert scene.feed.image.topic_configs == {}
        # Of one that was made anew they may have been read before the end of the old one is told.
        scene.tell({0: 1})
        await put(scene.store, path, znodes.encode_config({"retention.ms": "2"}))
        await scene.feed.read_configs({TOPIC: random_uuid()})
        scene.tell({0: -2})
        assert scene.feed.image.topic_config(TOPIC) == {"retention.ms": "2"}

    run(test)


def test_notices_that_cannot_be_read_hold_up_no_others() -> None:
    async def test(scene: Scene) -> None:
        await put(scene.store, znodes.topic_config_path(TOPIC), znodes.encode_config({"retention.ms": "1"}))
        await scene.notice(b"{")
        await scene.notice(b'{"version":1}')
        await scene.notice(b'{"version":2,"entity_path":"users/<default>/clients/x"}')
        await scene.notice(b'{"version":2,"entity_path":"topics/orders"}')
        assert scene.feed.image.topic_config(TOPIC) == {"retention.ms": "1"}

    run(test)


def test_a_change_announced_here_holds_at_once_and_is_heard_by_others() -> None:
    async def test(scene: Scene) -> None:
        other = await ClusterFeed.start(scene.zookeeper.session(), scene.clock)
        await put(scene.store, znodes.topic_config_path(TOPIC), znodes.encode_config({"retention.ms": "1"}))
        await scene.feed.announce("topics/orders")
        assert scene.feed.image.topic_config(TOPIC) == {"retention.ms": "1"}
        await scene.settled()
        await other.caught_up()
        assert other.image.topic_config(TOPIC) == {"retention.ms": "1"}
        await other.close()

    run(test)


def test_changes_that_came_while_the_session_was_away_are_read_when_it_is_back() -> None:
    async def test(scene: Scene) -> None:
        scene.zookeeper.suspend(scene.store)
        scene.zookeeper.expire(scene.store)
        writer = scene.zookeeper.session()
        await put(writer, znodes.topic_config_path(TOPIC), znodes.encode_config({"retention.ms": "1"}))
        await writer.create(
            znodes.CONFIG_CHANGE_PREFIX, b'{"version":2,"entity_path":"topics/orders"}', sequential=True
        )
        scene.zookeeper.resume(scene.store)
        await scene.settled()
        assert scene.feed.image.topic_config(TOPIC) == {"retention.ms": "1"}

    run(test)


def test_changes_of_a_lost_session_hold_though_their_notices_are_gone() -> None:
    """A user who was deleted meanwhile must not be let in for ever."""
    token = DelegationToken("t1", Principal("User", "ann"), Principal("User", "ann"), (), 1, 2, 3)
    mallory, config = znodes.user_config_path("mallory"), znodes.encode_config
    of_client = znodes.quota_path((("user", "bob"), ("client-id", None)))
    before = {
        mallory: config({"SCRAM-SHA-256": "salt=x"}),
        znodes.topic_config_path("gone"): config({"retention.ms": "1"}),
        znodes.topic_config_path(TOPIC): config({"retention.ms": "1"}),
        znodes.broker_config_path(None): config({"log.retention.ms": "1"}),
        of_client: config({"producer_byte_rate": "1"}),
        token_path("t1"): encode_token(token),
    }

    async def test(scene: Scene) -> None:
        for path, raw in before.items():
            await put(scene.store, path, raw)
        await scene.feed.close()
        await scene.start()
        image = scene.feed.image
        assert (set(image.user_configs), image.delegation_tokens) == ({"mallory"}, {"t1": token})
        scene.zookeeper.suspend(scene.store)
        scene.zookeeper.expire(scene.store)
        writer = scene.zookeeper.session()
        for path in (mallory, znodes.topic_config_path("gone"), of_client, token_path("t1")):
            await writer.delete(path)
        await put(writer, znodes.topic_config_path(TOPIC), config({"retention.ms": "2"}))
        await put(writer, znodes.broker_config_path(None), config({}))
        await put(writer, znodes.group_config_path("new"), config({"consumer.session.timeout.ms": "9"}))
        scene.deltas.clear()
        scene.zookeeper.resume(scene.store)
        await scene.settled()
        assert (image.user_configs, image.quotas, image.delegation_tokens) == ({}, {}, {})
        assert image.topic_configs == {TOPIC: {"retention.ms": "2"}}
        assert (image.default_broker_config, set(image.group_configs)) == ({}, {"new"})
        assert {name for each in scene.deltas for name in each.user_configs} == {"mallory"}
        assert {name for each in scene.deltas for name in each.topic_configs} == {"gone", TOPIC}
        assert {name for each in scene.deltas for name in each.delegation_tokens} == {"t1"}
        assert {which for each in scene.deltas for which in each.broker_configs} == {None}

    run(test)


def test_a_session_that_expires_while_all_is_read_again_leaves_nothing_out() -> None:
    async def test(scene: Scene) -> None:
        await put(scene.store, znodes.user_config_path("mallory"), znodes.encode_config({"a": "b"}))
        await scene.feed.announce("users/mallory")
        scene.zookeeper.suspend(scene.store)
        scene.zookeeper.expire(scene.store)
        await scene.zookeeper.session().delete(znodes.user_config_path("mallory"))
        scene.zookeeper.resume(scene.store)
        await asyncio.sleep(0)
        scene.zookeeper.suspend(scene.store)
        scene.zookeeper.expire(scene.store)
        scene.zookeeper.resume(scene.store)
        await scene.settled()
        assert scene.feed.image.user_configs == {}

    run(test)


def test_old_notices_are_removed_and_young_ones_stay() -> None:
    async def test(scene: Scene) -> None:
        await scene.notice(b'{"version":2,"entity_path":"topics/a"}')
        scene.clock.advance(NOTICE_AGE_MS - 1)
        await scene.notice(b'{"version":2,"entity_path":"topics/b"}')
        assert len(await scene.store.children(znodes.CONFIG_CHANGES)) == 2
        scene.clock.advance(2)
        await scene.notice(b'{"version":2,"entity_path":"topics/c"}')
        left = await scene.store.children(znodes.CONFIG_CHANGES)
        assert left == ["config_change_0000000001", "config_change_0000000002"]

    run(test)


def test_very_many_partitions_are_taken_over_in_several_turns() -> None:
    """Subscribers hear of each topic when it is there, and the image never has half of one."""
    count = 3 * _PER_TURN

    async def test(scene: Scene) -> None:
        heard: list[set[str]] = []

        def subscriber(delta: ImageDelta) -> None:
            heard.append(delta.topics)

        scene.feed.subscribe(subscriber)
        states = [
            UpdateMetadataPartitionState(partition_index=index, leader=1, isr=[1], replicas=[1])
            for index in range(count)
        ]
        topics = [
            UpdateMetadataTopicState(topic_name=name, topic_id=random_uuid(), partition_states=states)
            for name in ("a", "b")
        ]
        work = scene.feed.update_in_slices(UpdateMetadataRequest(controller_id=1, topic_states=topics))
        turns = 0
        while True:
            turns += 1
            try:
                next(work)
            except StopIteration as end:
                delta = end.value
                break
            sizes = {len(topic.partitions) for topic in scene.feed.image.topics.values()}
            assert sizes <= {count}
        assert turns == 7
        assert delta.topics == {"a", "b"}
        assert [topics for topics in heard if topics] == [{"a"}, {"b"}]

    run(test)


def test_a_change_of_configs_is_told_in_steps_and_the_next_one_after_it() -> None:
    async def test(scene: Scene) -> None:
        steps: list[str] = []
        served: list[int] = []

        def slow(delta: ImageDelta) -> Iterator[None]:
            (topic,) = delta.topic_configs
            for _ in range(5):
                steps.append(topic)
                asyncio.get_running_loop().call_soon(served.append, len(steps))
                yield

        scene.feed.subscribe(slow)
        for topic in ("a", "b"):
            await put(
                scene.store, znodes.topic_config_path(topic), znodes.encode_config({"retention.ms": "1"})
            )
        await asyncio.gather(scene.feed.announce("topics/a"), scene.feed.announce("topics/b"))
        first, second = sorted({"a", "b"}, key=steps.index)
        assert steps == [first] * 5 + [second] * 5
        # Whoever asked was served after the step in which it did.
        assert served == list(range(1, 11))

    run(test)
