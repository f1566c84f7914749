"""Changes of configs begin with what is in ZooKeeper, not with what this broker happens to know."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import cast

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.memory_zookeeper import MemorySession, MemoryZooKeeper

from tidelog.broker.cluster.admin import ClusterAdmin
from tidelog.broker.cluster.membership import ClusterMembership
from tidelog.config.broker_config import BrokerConfig
from tidelog.controller.topics import ElectionType
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition, random_uuid
from tidelog.metadata.cluster_feed import ClusterFeed
from tidelog.metadata.dynamic_config import DynamicConfigs
from tidelog.metadata.image import PartitionImage, TopicImage
from tidelog.metadata.store import Create, Op, Result, SessionExpired, ensure_path, put
from tidelog.metadata.znodes import znodes
from tidelog.security.password_encoder import PasswordEncoder
from tidelog.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

TOPIC = "orders"


class ElectedMembership:
    """The membership of a controller that has elected in epoch 1, but for partitions that needed none."""

    def __init__(self) -> None:
        self.controller = self

    async def elect_leaders(
        self, partitions: Sequence[TopicPartition], election: ElectionType, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        needless = KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
        return {each: None if each.partition == 0 else needless for each in partitions}

    def leader_epoch(self, partition: TopicPartition) -> int:
        return 1


class Scene:
    def __init__(
        self,
        store: MemorySession,
        feed: ClusterFeed,
        options: Mapping[str, str],
        membership: ElectedMembership,
    ) -> None:
        self.store = store
        self.feed = feed
        config = BrokerConfig({"broker.id": "1", **options})
        configs = DynamicConfigs(store, feed, config)
        self.admin = ClusterAdmin(store, feed, config, configs, cast(ClusterMembership, membership))
        self.put_topic(TOPIC, leader_epoch=0)

    def put_topic(self, name: str, leader_epoch: int) -> TopicPartition:
        partition = PartitionImage(
            replicas=(1,), leader=1, leader_epoch=leader_epoch, isr=(1,), controller_epoch=1
        )
        self.feed.image.install(TopicImage(name, random_uuid(), {0: partition}))
        return TopicPartition(name, 0)

    def counted_looks(self) -> list[TopicPartition]:
        """The partitions whose leaders' epochs are looked up from now on."""
        looks: list[TopicPartition] = []
        real = self.admin._leader_epoch

        def leader_epoch(partition: TopicPartition) -> int:
            looks.append(partition)
            return real(partition)

        self.admin._leader_epoch = leader_epoch  # type: ignore[method-assign]
        return looks

    async def write(self, path: str, entries: Mapping[str, str]) -> None:
        """As another broker does, of which this one has not heard yet."""
        await put(self.store, path, znodes.encode_config(entries))

    async def read(self, path: str) -> dict[str, str]:
        raw, _ = await self.store.get(path)
        return znodes.decode_config(path, raw)


def run(
    test: Callable[[Scene], Awaitable[None]],
    options: Mapping[str, str] | None = None,
    membership: ElectedMembership | None = None,
) -> None:
    async def main() -> None:
        store = MemoryZooKeeper().session()
        for path in znodes.PERSISTENT_PATHS:
            await ensure_path(store, path)
        feed = await ClusterFeed.start(store, ManualClock())
        await test(Scene(store, feed, options or {}, membership or ElectedMembership()))
        await feed.close()

    asyncio.run(main())


def test_an_election_is_answered_when_this_broker_knows_of_it() -> None:
    async def test(scene: Scene) -> None:
        topic = scene.feed.image.topics[TOPIC]
        partitions = [TopicPartition(TOPIC, index) for index in (0, 1)]
        election = asyncio.ensure_future(scene.admin.elect_leaders(partitions, ElectionType.PREFERRED))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not election.done()
        state = UpdateMetadataPartitionState(
            topic_name=TOPIC, leader=1, leader_epoch=1, isr=[1], replicas=[1], offline_replicas=[]
        )
        told = UpdateMetadataTopicState(topic_name=TOPIC, topic_id=topic.id, partition_states=[state])
        scene.feed.update(UpdateMetadataRequest(controller_id=1, controller_epoch=1, topic_states=[told]))
        async with asyncio.timeout(30):
            outcomes = await election
        assert outcomes[partitions[0]] is None
        needless = outcomes[partitions[1]]
        assert needless is not None
        assert needless.code is ErrorCode.ELECTION_NOT_NEEDED

    run(test)


def test_an_election_that_this_broker_does_not_hear_of_in_time_is_told_so() -> None:
    async def test(scene: Scene) -> None:
        partitions = [TopicPartition(TOPIC, index) for index in (0, 1)]
        outcomes = await scene.admin.elect_leaders(partitions, ElectionType.PREFERRED, timeout_ms=10)
        codes = {each.partition: error and error.code for each, error in outcomes.items()}
        assert codes == {0: ErrorCode.REQUEST_TIMED_OUT, 1: ErrorCode.ELECTION_NOT_NEEDED}

    run(test)


def test_only_elections_that_were_not_heard_of_are_late() -> None:
    async def test(scene: Scene) -> None:
        known, also = (scene.put_topic(name, leader_epoch=1) for name in ("known", "also"))
        partitions = [known, TopicPartition(TOPIC, 0), also]
        outcomes = await scene.admin.elect_leaders(partitions, ElectionType.PREFERRED, timeout_ms=10)
        codes = [error and error.code for error in outcomes.values()]
        assert codes == [None, ErrorCode.REQUEST_TIMED_OUT, None]

    run(test)


def test_an_election_has_its_time_once() -> None:
    class LateMembership(ElectedMembership):
        async def elect_leaders(
            self,
            partitions: Sequence[TopicPartition],
            election: ElectionType,
            *,
            timeout_ms: int | None = None,
        ) -> dict[TopicPartition, KafkaError | None]:
            assert timeout_ms is not None
            # The controller, too, has taken all the time there was.
            loop = asyncio.get_running_loop()
            now = loop.time
            loop.time = lambda: now() + timeout_ms / 1000  # type: ignore[method-assign]
            return await super().elect_leaders(partitions, election, timeout_ms=timeout_ms)

    async def test(scene: Scene) -> None:
        partition = TopicPartition(TOPIC, 0)
        async with asyncio.timeout(3600 + 30):
            outcomes = await scene.admin.elect_leaders(
                [partition], ElectionType.PREFERRED, timeout_ms=3_600_000
            )
        late = outcomes[partition]
        assert late is not None
        assert late.code is ErrorCode.REQUEST_TIMED_OUT

    run(test, membership=LateMembership())


def test_many_elections_that_are_known_are_looked_at_a_few_at_a_time() -> None:
    many, few = 50_000, 100

    async def test(scene: Scene) -> None:
        looks = scene.counted_looks()
        partitions = [TopicPartition(f"known-{number}", 0) for number in range(many)]
        election = asyncio.ensure_future(scene.admin.elect_leaders(partitions, ElectionType.PREFERRED))
        most = before = 0
        while not election.done():
            await asyncio.sleep(0)
            most = max(most, len(looks) - before)
            before = len(looks)
        assert await election == dict.fromkeys(partitions)
        assert len(looks) == many
        assert most <= few

    run(test)


def test_each_slice_of_news_is_held_against_its_own_elections() -> None:
    a_slice = 500

    async def test(scene: Scene) -> None:
        names = [f"topic-{number}" for number in range(2 * a_slice)]
        partitions = [scene.put_topic(name, leader_epoch=0) for name in names]
        election = asyncio.ensure_future(scene.admin.elect_leaders(partitions, ElectionType.PREFERRED))
        looks = scene.counted_looks()
        async with asyncio.timeout(30):
            # Each has been looked at once; the last look is the first of those that it waits by.
            while len(looks) <= len(partitions):  # noqa: ASYNC110
                await asyncio.sleep(0)
        state = UpdateMetadataPartitionState(
            leader=1, leader_epoch=1, isr=[1], replicas=[1], offline_replicas=[]
        )
        for some in (names[:a_slice], names[a_slice:]):
            looks.clear()
            told = [
                UpdateMetadataTopicState(
                    topic_name=name, topic_id=scene.feed.image.topics[name].id, partition_states=[state]
                )
                for name in some
            ]
            scene.feed.update(UpdateMetadataRequest(controller_id=1, controller_epoch=1, topic_states=told))
            assert a_slice <= len(looks) <= a_slice + 10
        async with asyncio.timeout(30):
            assert await election == dict.fromkeys(partitions)

    run(test)


def test_nobody_waits_for_the_leader_of_a_topic_that_is_gone() -> None:
    async def test(scene: Scene) -> None:
        gone = TopicPartition("gone", 0)
        assert await scene.admin.elect_leaders([gone], ElectionType.PREFERRED) == {gone: None}

    run(test)


def setting(**values: str) -> Callable[[Mapping[str, str]], dict[str, str]]:
    named = {name.replace("_", "."): value for name, value in values.items()}
    return lambda entries: {**entries, **named}


def test_what_another_broker_has_set_for_a_topic_stays() -> None:
    async def test(scene: Scene) -> None:
        path = znodes.topic_config_path(TOPIC)
        await scene.write(path, {"cleanup.policy": "compact"})
        await scene.admin.change_topic_config(TOPIC, setting(retention_ms="1000"))
        assert await scene.read(path) == {"cleanup.policy": "compact", "retention.ms": "1000"}

    run(test)


def test_a_password_outlives_changes_of_other_options() -> None:
    secret = {"password.encoder.secret": "of the brokers", "password.encoder.iterations": "1024"}
    name = "listener.name.plaintext.ssl.keystore.password"

    async def test(scene: Scene) -> None:
        path = znodes.broker_config_path(1)
        await scene.admin.change_broker_config(lambda now: {**now, name: "hunter2"}, every_broker=False)
        kept = (await scene.read(path))[name]
        assert "encryptedPassword:" in kept
        # Known or not known yet to this broker's image.
        for threads in ("2", "3"):
            await scene.admin.change_broker_config(setting(log_cleaner_threads=threads), every_broker=False)
            assert await scene.read(path) == {name: kept, "log.cleaner.threads": threads}

        foreign = PasswordEncoder("of another broker", iterations=1024).encode("hunter3")
        await scene.write(path, {name: foreign})
        await scene.admin.change_broker_config(setting(log_cleaner_threads="4"), every_broker=False)
        assert await scene.read(path) == {name: foreign, "log.cleaner.threads": "4"}

    run(test, {"zookeeper.connect": "localhost:1", **secret})


def test_what_another_broker_has_set_for_all_brokers_stays() -> None:
    async def test(scene: Scene) -> None:
        path = znodes.broker_config_path(None)
        await scene.write(path, {"message.max.bytes": "2000000"})
        await scene.admin.change_broker_config(setting(log_cleaner_threads="2"), every_broker=True)
        assert await scene.read(path) == {"message.max.bytes": "2000000", "log.cleaner.threads": "2"}

    run(test)


def test_small_segments_that_apache_kafka_has_set_stay_and_other_options_can_change() -> None:
    async def test(scene: Scene) -> None:
        path = znodes.topic_config_path(TOPIC)
        await scene.write(path, {"segment.bytes": "524288"})
        await scene.admin.change_topic_config(TOPIC, setting(retention_ms="1000"))
        assert await scene.read(path) == {"segment.bytes": "524288", "retention.ms": "1000"}
        with pytest.raises(KafkaError) as refused:
            await scene.admin.change_topic_config(TOPIC, setting(segment_bytes="524289"))
        assert refused.value.code is ErrorCode.INVALID_CONFIG

    run(test)


def test_topic_configs_that_only_apache_kafka_knows_stay_but_cannot_be_set() -> None:
    async def test(scene: Scene) -> None:
        path = znodes.topic_config_path(TOPIC)
        await scene.write(path, {"message.format.version": "2.8"})
        await scene.admin.change_topic_config(TOPIC, setting(retention_ms="1000"))
        assert await scene.read(path) == {"message.format.version": "2.8", "retention.ms": "1000"}
        with pytest.raises(KafkaError) as refused:
            await scene.admin.change_topic_config(TOPIC, setting(message_format_version="3.0"))
        assert refused.value.code is ErrorCode.INVALID_CONFIG

    run(test)


# Two changes at once


async def change_together(store: MemorySession, *changes: Awaitable[None]) -> None:
    """Have all changes read before one of them writes."""
    read = asyncio.Barrier(len(changes))
    real = store.get
    met: set[asyncio.Task[None] | None] = set()

    async def get(path: str) -> tuple[bytes, int]:
        try:
            return await real(path)
        finally:
            if asyncio.current_task() not in met:
                met.add(asyncio.current_task())
                await read.wait()

    store.get = get  # type: ignore[method-assign]
    async with asyncio.timeout(30):
        await asyncio.gather(*changes)
    store.get = real  # type: ignore[method-assign]


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("kind", ["topic", "group", "broker", "brokers"])
def test_of_two_changes_at_once_none_is_lost(kind: str, exists: bool) -> None:
    first, second = {
        "topic": ({"cleanup.policy": "compact"}, {"retention.ms": "1000"}),
        "group": ({"consumer.session.timeout.ms": "50000"}, {"consumer.heartbeat.interval.ms": "6000"}),
        "broker": ({"log.cleaner.threads": "2"}, {"message.max.bytes": "2000000"}),
        "brokers": ({"log.cleaner.threads": "2"}, {"message.max.bytes": "2000000"}),
    }[kind]
    path = {
        "topic": znodes.topic_config_path(TOPIC),
        "group": znodes.group_config_path("g"),
        "broker": znodes.broker_config_path(1),
        "brokers": znodes.broker_config_path(None),
    }[kind]

    def change(scene: Scene, added: Mapping[str, str]) -> Awaitable[None]:
        def edit(now: Mapping[str, str]) -> dict[str, str]:
            return {**now, **added}

        match kind:
            case "topic":
                return scene.admin.change_topic_config(TOPIC, edit)
            case "group":
                return scene.admin.change_group_config("g", edit)
        return scene.admin.change_broker_config(edit, every_broker=kind == "brokers")

    async def test(scene: Scene) -> None:
        if exists:
            await scene.write(path, {})
        await change_together(scene.store, change(scene, first), change(scene, second))
        assert await scene.read(path) == {**first, **second}

    run(test)


# A change and the notice of it


@pytest.mark.parametrize("left", [{}, {"producer_byte_rate": "1000"}])
def test_credentials_go_together_with_the_notice_of_it_or_stay(left: dict[str, str]) -> None:
    path = znodes.user_config_path("mallory")

    async def test(scene: Scene) -> None:
        await scene.admin.change_user_config("mallory", lambda now: {**left, "SCRAM-SHA-256": "…"})
        notices = await scene.store.children(znodes.CONFIG_CHANGES)
        real = scene.store.multi

        async def failing(ops: Sequence[Op]) -> list[Result]:
            if any(isinstance(op, Create) and op.path == znodes.CONFIG_CHANGE_PREFIX for op in ops):
                raise SessionExpired(path)
            return await real(ops)

        scene.store.multi = failing  # type: ignore[method-assign]
        with pytest.raises(SessionExpired):
            await scene.admin.change_user_config("mallory", lambda now: left)
        scene.store.multi = real  # type: ignore[method-assign]
        await scene.admin.change_user_config("mallory", lambda now: left)
        assert len(await scene.store.children(znodes.CONFIG_CHANGES)) == len(notices) + 1, "others hear of it"
        if left:
            assert await scene.read(path) == left
        else:
            assert not await scene.store.exists(path)

    run(test)


def test_the_quotas_of_a_users_last_client_take_empty_nodes_above_along() -> None:
    async def test(scene: Scene) -> None:
        entity = (("user", "alice"), ("client-id", "app"))
        await scene.admin.change_quotas(entity, lambda now: {"producer_byte_rate": "1000"})
        await scene.admin.change_quotas((("user", "alice"),), lambda now: {"producer_byte_rate": "9"})
        # It has children, and stays without entries.
        await scene.admin.change_quotas((("user", "alice"),), lambda now: {})
        assert await scene.read(znodes.user_config_path("alice")) == {}
        await scene.admin.change_quotas(entity, lambda now: {})
        assert not await scene.store.exists(znodes.user_config_path("alice"))

    run(test)


def test_the_node_of_a_topic_stays_without_entries_as_kafka_leaves_it() -> None:
    async def test(scene: Scene) -> None:
        await scene.admin.change_topic_config(TOPIC, setting(retention_ms="1000"))
        await scene.admin.change_topic_config(TOPIC, lambda now: {})
        assert await scene.read(znodes.topic_config_path(TOPIC)) == {}

    run(test)
