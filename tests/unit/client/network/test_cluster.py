from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidelog.client._network.cluster import Cluster
from tidelog.client.errors import BrokerUnreachableError, NoLeaderError
from tidelog.client.metadata import Node
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidelog.wire.messages.metadata import MetadataResponseTopic


def run(broker: Any, action: Any, **options: Any) -> None:
    async def main() -> None:
        async with broker, Cluster(broker.address, retry_backoff_ms=1, **options) as cluster:
            await action(cluster)

    asyncio.run(main())


def test_the_second_bootstrap_server_is_tried_when_the_first_is_dead(scripted_broker: Any) -> None:
    async def main() -> None:
        async with scripted_broker, Cluster(["127.0.0.1:1", scripted_broker.address]) as cluster:
            assert cluster.metadata.cluster_id == "scripted"
            assert cluster.metadata.nodes == {7: Node(7, "127.0.0.1", scripted_broker.port)}

    asyncio.run(main())


def test_without_any_broker_connecting_fails_at_once_and_names_the_last() -> None:
    with pytest.raises(BrokerUnreachableError, match=r"none of 2 bootstrap servers.*127\.0\.0\.1:2"):
        asyncio.run(Cluster("127.0.0.1:1,127.0.0.1:2").connect())


def test_an_advertised_address_that_cannot_be_reached_is_named_with_the_option_to_mend(
    scripted_broker: Any,
) -> None:
    async def action(cluster: Cluster) -> None:
        with pytest.raises(
            BrokerUnreachableError, match=r"broker 3 is advertised as 127\.0\.0\.1:1.*advertised"
        ):
            await cluster.connection_to(Node(3, "127.0.0.1", 1))

    run(scripted_broker, action)


def test_requests_share_one_connection_per_broker(scripted_broker: Any) -> None:
    async def action(cluster: Cluster) -> None:
        await asyncio.gather(*(cluster.refresh(None) for _ in range(5)))
        assert scripted_broker.connections == 1

    run(scripted_broker, action)


def test_a_broken_connection_is_opened_again_within_the_same_call(scripted_broker: Any) -> None:
    asked = scripted_broker.requests

    def answer(request: Any, version: int) -> DescribeClusterResponse | None:
        """None to the first request, however often the client loses patience with the later ones."""
        first = len(asked(ApiKey.DESCRIBE_CLUSTER)) == 1
        return None if first else DescribeClusterResponse(cluster_id="second try")

    async def action(cluster: Cluster) -> None:
        response = await cluster.request_any(DescribeClusterRequest(), DescribeClusterResponse)
        assert response.cluster_id == "second try"

    scripted_broker.handlers[ApiKey.DESCRIBE_CLUSTER] = answer
    run(scripted_broker, action, request_timeout_ms=200)
    assert scripted_broker.connections >= 2


def test_an_old_controller_is_left_for_the_new_one(scripted_broker: Any) -> None:
    codes = iter([ErrorCode.NOT_CONTROLLER, ErrorCode.NONE])
    scripted_broker.handlers[ApiKey.DELETE_TOPICS] = lambda request, version: DeleteTopicsResponse(
        responses=[DeletableTopicResult(name="a", error_code=next(codes))]
    )

    async def action(cluster: Cluster) -> None:
        before = len(scripted_broker.requests(ApiKey.METADATA))
        await cluster.request_controller(
            DeleteTopicsRequest(timeout_ms=1000),
            DeleteTopicsResponse,
            lambda response: (topic.error_code for topic in response.responses),
        )
        assert len(scripted_broker.requests(ApiKey.METADATA)) > before

    run(scripted_broker, action)
    assert len(scripted_broker.requests(ApiKey.DELETE_TOPICS)) == 2


def test_a_topic_that_is_being_created_is_waited_for(scripted_broker: Any) -> None:
    scripted_broker.topics = [MetadataResponseTopic(name="new", error_code=ErrorCode.LEADER_NOT_AVAILABLE)]
    answer = scripted_broker.metadata

    def later(request: Any, version: int) -> Any:
        response = answer()
        if len(scripted_broker.requests(ApiKey.METADATA)) == 3:
            scripted_broker.topics = []
            scripted_broker.add_topic("new", 2)
        return response

    scripted_broker.handlers[ApiKey.METADATA] = later

    async def action(cluster: Cluster) -> None:
        topic = await cluster.topic("new", allow_auto_create=True)
        assert list(topic.partitions) == [0, 1]

    run(scripted_broker, action)


def test_a_topic_that_never_appears_is_an_error_that_names_it(scripted_broker: Any) -> None:
    async def action(cluster: Cluster) -> None:
        with pytest.raises(KafkaError, match="topic 'none' does not exist"):
            await cluster.topic("none")

    run(scripted_broker, action, retries=3)


def test_a_partition_without_leader_says_which_brokers_hold_it(scripted_broker: Any) -> None:
    scripted_broker.add_topic("a")
    scripted_broker.topics[0].partitions[0].leader_id = -1

    async def action(cluster: Cluster) -> None:
        await cluster.refresh(["a"])
        with pytest.raises(NoLeaderError, match=r"a-0 has no leader.*\[7\]"):
            cluster.leader_of(TopicPartition("a", 0))

    run(scripted_broker, action)


def test_a_broker_that_is_not_alive_is_named_together_with_those_that_are(scripted_broker: Any) -> None:
    async def action(cluster: Cluster) -> None:
        with pytest.raises(KafkaError, match="no broker 5 among those alive: 7"):
            await cluster.request_node(5, DescribeClusterRequest(), DescribeClusterResponse)

    run(scripted_broker, action)
