from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.client.group import virtual_time

from tidelog.client._network import metadata_updater
from tidelog.client._network.cluster import Cluster
from tidelog.client._network.metadata_updater import MetadataUpdater
from tidelog.client._network.retry import Deadline
from tidelog.client._network.security import Security
from tidelog.client._network.settings import NetworkSettings
from tidelog.client.errors import AuthenticationError, ClientClosedError, RequestTimeoutError
from tidelog.client.metadata import (
    NO_METADATA,
    ClusterMetadata,
    LeaderHint,
    Node,
    PartitionMetadata,
    TopicMetadata,
    merge,
    with_leaders,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition, Uuid
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.metadata import MetadataResponseTopic

FIRST, SECOND = Uuid(b"1" * 16), Uuid(b"2" * 16)
A0 = TopicPartition("a", 0)
NODES = {number: Node(number, "127.0.0.1", number) for number in (1, 2)}


def known(leader: int | None, epoch: int, topic_id: Uuid = FIRST) -> ClusterMetadata:
    topic = TopicMetadata("a", topic_id, False, {0: PartitionMetadata(0, leader, epoch)})
    return ClusterMetadata("c", 1, NODES, {"a": topic})


def leader(metadata: ClusterMetadata) -> tuple[int | None, int]:
    partition = metadata.partition(A0)
    assert partition is not None
    return partition.leader, partition.leader_epoch


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (known(1, 5), known(2, 6), (2, 6)),
        (known(1, 5), known(2, 4), (1, 5)),
        (known(1, 5), known(None, 5), (None, 5)),
        (known(1, 5), known(2, -1), (2, -1)),
        (known(1, 5), known(2, 0, SECOND), (2, 0)),
    ],
    ids=["newer", "late broker", "same epoch", "old broker without epochs", "topic made anew"],
)
def test_leader_epochs_never_go_back_while_the_topic_is_the_same(
    before: ClusterMetadata, after: ClusterMetadata, expected: tuple[int | None, int]
) -> None:
    assert leader(merge(before, after, keep_other_topics=False)) == expected


def test_answers_about_some_topics_keep_or_drop_the_others() -> None:
    fresh = ClusterMetadata("c", 1, NODES, {"b": TopicMetadata("b", SECOND, False, {})})
    assert set(merge(known(1, 5), fresh, keep_other_topics=True).topics) == {"a", "b"}
    assert set(merge(known(1, 5), fresh, keep_other_topics=False).topics) == {"b"}
    assert merge(known(1, 5), fresh, keep_other_topics=True).topic_names == {FIRST: "a", SECOND: "b"}


def test_hints_of_leaders_count_when_they_are_newer_and_their_broker_is_known() -> None:
    before = known(1, 5)
    assert leader(with_leaders(before, {A0: LeaderHint(2, 6)})) == (2, 6)
    assert with_leaders(before, {A0: LeaderHint(2, 5)}) is before
    assert with_leaders(before, {A0: LeaderHint(9, 6)}) is before
    assert with_leaders(before, {TopicPartition("z", 0): LeaderHint(2, 6)}) is before
    moved = with_leaders(before, {A0: LeaderHint(9, 6)}, [Node(9, "127.0.0.1", 9)])
    assert leader(moved) == (9, 6)
    assert moved.nodes[9].port == 9


def started(broker: Any, action: Callable[[Cluster], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with broker:
            cluster = Cluster(
                broker.address, **({"retry_backoff_ms": 1, "retry_backoff_max_ms": 2} | options)
            )
            await cluster.start()
            try:
                await action(cluster)
            finally:
                await cluster.close()

    asyncio.run(main())


def asked_for(broker: Any) -> list[list[str] | None]:
    return [
        None if request.topics is None else [topic.name for topic in request.topics]
        for _, request in broker.requests(ApiKey.METADATA)
    ]


def test_only_topics_in_use_are_asked_for(scripted_broker: Any) -> None:
    scripted_broker.add_topic("a", 2)
    scripted_broker.add_topic("b")
    everything = scripted_broker.metadata

    def answer(request: Any, version: int) -> Any:
        response = everything()
        if request.topics is not None:
            names = {topic.name for topic in request.topics}
            response.topics = [topic for topic in response.topics if topic.name in names]
        return response

    scripted_broker.handlers[ApiKey.METADATA] = answer

    async def action(cluster: Cluster) -> None:
        assert len((await cluster.wait_for_topic("a", cluster.deadline())).partitions) == 2
        await cluster.wait_for_topic("b", cluster.deadline())
        cluster.updates.retain_topics(["b"])
        version = cluster.request_update()
        await cluster.wait_for_update(version, cluster.deadline(), "b")
        cluster.updates.use_all_topics(True)
        version = cluster.request_update()
        await cluster.wait_for_update(version, cluster.deadline(), "all")

    started(scripted_broker, action)
    assert asked_for(scripted_broker)[-4:] == [["a"], ["a", "b"], ["b"], None]


def test_a_new_topic_is_asked_for_at_once_whatever_the_back_off(scripted_broker: Any) -> None:
    scripted_broker.add_topic("a")
    scripted_broker.add_topic("b")

    async def action(cluster: Cluster) -> None:
        await cluster.wait_for_topic("a", cluster.deadline(10_000))
        await cluster.wait_for_topic("b", cluster.deadline(10_000))

    started(scripted_broker, action, retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)


def test_topics_that_a_producer_has_not_used_for_long_are_forgotten(scripted_broker: Any) -> None:
    scripted_broker.add_topic("a")

    async def action(cluster: Cluster) -> None:
        await cluster.wait_for_topic("a", cluster.deadline())
        while cluster.updates.topics:
            version = cluster.request_update()
            await cluster.wait_for_update(version, cluster.deadline(), "nothing")
        assert "a" not in cluster.updates.topics

    started(scripted_broker, action, metadata_max_idle_ms=10)


def test_metadata_is_renewed_when_it_is_too_old(scripted_broker: Any) -> None:
    async def action(cluster: Cluster) -> None:
        await cluster.wait_for_update(3, cluster.deadline(), "the fourth time")

    started(scripted_broker, action, metadata_max_age_ms=5)


def test_listeners_see_every_snapshot_until_they_unsubscribe(scripted_broker: Any) -> None:
    scripted_broker.add_topic("a")
    seen: list[ClusterMetadata] = []

    async def action(cluster: Cluster) -> None:
        unsubscribe = cluster.subscribe_updates(seen.append)
        await cluster.wait_for_topic("a", cluster.deadline())
        assert seen[-1] is cluster.metadata
        assert cluster.note_leader(A0, 7, 9)
        assert seen[-1].partition(A0).leader_epoch == 9  # type: ignore[union-attr]
        assert not cluster.note_leader(A0, 7, 8)
        unsubscribe()
        count = len(seen)
        cluster.note_leader(A0, 7, 10)
        assert len(seen) == count

    started(scripted_broker, action)


def test_a_partition_without_leader_is_asked_for_until_it_has_one(scripted_broker: Any) -> None:
    scripted_broker.add_topic("a")
    partition = scripted_broker.topics[0].partitions[0]
    partition.leader_id = -1

    async def action(cluster: Cluster) -> None:
        await cluster.wait_for_topic("a", cluster.deadline())
        while cluster.metadata.partition(A0).leader is None:  # type: ignore[union-attr]
            if len(scripted_broker.requests(ApiKey.METADATA)) > 4:
                partition.leader_id = 7
            await cluster.wait_for_update(cluster.updates.version, cluster.deadline(), "a leader")

    started(scripted_broker, action)


def test_a_topic_that_does_not_exist_is_waited_for_and_then_an_error_that_names_it(
    scripted_broker: Any,
) -> None:
    scripted_broker.topics = [
        MetadataResponseTopic(name="no", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    ]

    async def action(cluster: Cluster) -> None:
        with pytest.raises(KafkaError, match="topic 'no' does not exist"):
            await cluster.wait_for_topic("no", cluster.deadline(100))
        scripted_broker.topics.clear()
        scripted_broker.add_topic("no")
        await cluster.wait_for_topic("no", cluster.deadline())
        with pytest.raises(KafkaError, match="has no partition 3, it has 1"):
            await cluster.wait_for_topic("no", cluster.deadline(100), partition=3)

    started(scripted_broker, action)


def test_an_error_that_does_not_pass_ends_the_wait_for_a_topic_at_once(scripted_broker: Any) -> None:
    scripted_broker.topics = [
        MetadataResponseTopic(name="secret", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    ]

    async def action(cluster: Cluster) -> None:
        with pytest.raises(KafkaError, match="may not use topic 'secret'"):
            await cluster.wait_for_topic("secret", cluster.deadline(60_000))

    started(scripted_broker, action)


def test_starting_without_a_broker_waits_for_one_and_then_says_why_there_was_none() -> None:
    async def main() -> None:
        cluster = Cluster(
            "127.0.0.1:1", retry_backoff_ms=1, reconnect_backoff_ms=1, reconnect_backoff_max_ms=1
        )
        await cluster.start()
        with pytest.raises(
            RequestTimeoutError,
            match=r"no metadata of topic 'a' within 0\.1 s: cannot connect to 127\.0\.0\.1:1",
        ):
            await cluster.wait_for_topic("a", cluster.deadline(100))
        assert cluster.metadata is NO_METADATA
        await cluster.close()

    asyncio.run(main())


def test_a_refused_login_ends_every_wait_for_metadata(scripted_broker: Any) -> None:
    async def refuse(connection: Any, deadline: Any) -> None:
        raise AuthenticationError("not you")

    async def action(cluster: Cluster) -> None:
        with pytest.raises(AuthenticationError, match="not you"):
            await cluster.wait_for_topic("a", cluster.deadline(60_000))
        assert cluster.metrics.snapshot()["failed-authentication-total"] >= 1

    started(scripted_broker, action, security=Security("SASL_PLAINTEXT", sasl=refuse))


def test_closing_ends_every_wait_for_metadata(scripted_broker: Any) -> None:
    scripted_broker.handlers[ApiKey.METADATA] = lambda request, version: None

    async def action(cluster: Cluster) -> None:
        waiting = asyncio.create_task(cluster.wait_for_topic("a", cluster.deadline(60_000)))
        await asyncio.sleep(0)
        await cluster.close()
        with pytest.raises(ClientClosedError, match="metadata of topic 'a' was waited for"):
            await waiting

    started(scripted_broker, action)


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION])
def test_a_topic_in_use_that_is_refused_is_asked_for_again_and_stays_an_ongoing_error(
    scripted_broker: Any, monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    monkeypatch.setattr(metadata_updater, "_REFUSED_TOPICS_S", 0.01)
    scripted_broker.add_topic("a", 0, error_code=code)

    async def action(cluster: Cluster) -> None:
        cluster.updates.retain_topics(["a"])  # as a subscription does, for which no call waits
        version = cluster.updates.version
        for _ in range(3):
            await cluster.wait_for_update(version, cluster.deadline(30_000), "the topic")
            version = cluster.updates.version
        lasting = cluster.ongoing_errors.longest
        assert lasting is not None
        assert lasting[0] > 0
        assert code.name in lasting[1]

    started(scripted_broker, action)
    assert asked_for(scripted_broker).count(["a"]) >= 3


def test_a_refused_topic_that_was_raised_is_not_asked_for_any_more(
    scripted_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_updater, "_REFUSED_TOPICS_S", 0.01)
    scripted_broker.add_topic("a", 0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    async def action(cluster: Cluster) -> None:
        with pytest.raises(KafkaError, match="may not use topic 'a'"):
            await cluster.wait_for_topic("a", cluster.deadline(30_000))
        version = cluster.request_update()
        await cluster.wait_for_update(version, cluster.deadline(30_000), "no topic")
        assert cluster.ongoing_errors.longest is None

    started(scripted_broker, action)


def test_topics_that_stay_refused_are_asked_for_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = TopicMetadata("a", FIRST, False, {}, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    also_refused = TopicMetadata("b", SECOND, False, {}, ErrorCode.INVALID_TOPIC_EXCEPTION)
    answer = ClusterMetadata("c", 1, NODES, {"a": refused})
    asked_at: list[float] = []

    async def ask(
        topics: Collection[str] | None, allow_auto_create: bool, deadline: Deadline
    ) -> ClusterMetadata:
        asked_at.append(loop().time())
        return answer

    def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def gaps() -> list[float]:
        found = [round(after - before, 3) for before, after in itertools.pairwise(asked_at)]
        asked_at.clear()
        return found

    async def main() -> None:
        nonlocal answer
        monkeypatch.setattr(metadata_updater, "time", SimpleNamespace(monotonic=loop().time))
        updates = MetadataUpdater(NetworkSettings(), ask)
        updates.retain_topics(["a"])
        updates.start()
        await virtual_time.later(125)
        assert gaps() == [2, 2, 4, 8, 16, 30, 30, 30]
        answer = ClusterMetadata("c", 1, NODES, {"a": refused, "b": also_refused})
        updates.retain_topics(["a", "b"])
        await virtual_time.later(35)
        assert gaps() == [2, 2, 4, 8, 16]
        await updates.close()

    virtual_time.run(main(), monkeypatch)
