"""What the admin client does on brokers that lack the newer versions, down to Kafka 2.1."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidelog.client._network.cluster import Cluster
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.resources import (
    AlterConfigOp,
    AlterConfigOpType,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse
from tidelog.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from tidelog.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

TOPIC = ConfigResource(ResourceType.TOPIC, "a")


def run(broker: Any, action: Any) -> None:
    async def main() -> None:
        async with broker, Cluster(broker.address, retry_backoff_ms=1, api_timeout_ms=30_000) as cluster:
            await action(AsyncAdmin.of(cluster))

    asyncio.run(main())


def described(*entries: tuple[str, str | None, ConfigSource, bool]) -> DescribeConfigsResponse:
    configs = [
        DescribeConfigsResourceResult(name=name, value=value, config_source=source, is_sensitive=sensitive)
        for name, value, source, sensitive in entries
    ]
    result = DescribeConfigsResult(resource_type=ResourceType.TOPIC, resource_name="a", configs=configs)
    return DescribeConfigsResponse(results=[result])


def without_incremental_changes(broker: Any, response: DescribeConfigsResponse) -> None:
    del broker.versions[ApiKey.INCREMENTAL_ALTER_CONFIGS]
    broker.versions[ApiKey.DESCRIBE_CONFIGS] = (1, 2)
    broker.handlers[ApiKey.DESCRIBE_CONFIGS] = lambda request, version: response
    broker.handlers[ApiKey.ALTER_CONFIGS] = lambda request, version: AlterConfigsResponse(
        responses=[AlterConfigsResourceResponse(resource_type=ResourceType.TOPIC, resource_name="a")]
    )


def test_one_config_is_changed_by_writing_all_that_were_set_back(scripted_broker: Any) -> None:
    without_incremental_changes(
        scripted_broker,
        described(
            ("cleanup.policy", "delete", ConfigSource.DEFAULT_CONFIG, False),
            ("retention.ms", "5", ConfigSource.DYNAMIC_TOPIC_CONFIG, False),
            ("segment.bytes", "7", ConfigSource.DYNAMIC_TOPIC_CONFIG, False),
            ("flush.ms", "9", ConfigSource.STATIC_BROKER_CONFIG, False),
        ),
    )

    async def action(admin: AsyncAdmin) -> None:
        ops = [
            AlterConfigOp("retention.ms", "6"),
            AlterConfigOp("segment.bytes", None, AlterConfigOpType.DELETE),
            AlterConfigOp("cleanup.policy", "compact", AlterConfigOpType.APPEND),
        ]
        assert [result.error for result in await admin.alter_configs({TOPIC: ops})] == [None]

    run(scripted_broker, action)
    [(_, request)] = scripted_broker.requests(ApiKey.ALTER_CONFIGS)
    written = {config.name: config.value for config in request.resources[0].configs}
    assert written == {"retention.ms": "6", "cleanup.policy": "delete,compact"}


def test_subtracting_takes_items_out_of_a_list(scripted_broker: Any) -> None:
    without_incremental_changes(
        scripted_broker,
        described(("cleanup.policy", "delete,compact", ConfigSource.DYNAMIC_TOPIC_CONFIG, False)),
    )

    async def action(admin: AsyncAdmin) -> None:
        op = AlterConfigOp("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
        await admin.alter_configs({TOPIC: [op]})

    run(scripted_broker, action)
    [(_, request)] = scripted_broker.requests(ApiKey.ALTER_CONFIGS)
    assert [config.value for config in request.resources[0].configs] == ["compact"]


def test_a_secret_that_would_be_erased_stops_the_change(scripted_broker: Any) -> None:
    without_incremental_changes(
        scripted_broker, described(("secret", None, ConfigSource.DYNAMIC_TOPIC_CONFIG, True))
    )

    async def action(admin: AsyncAdmin) -> None:
        with pytest.raises(KafkaError, match="erase the secret secret"):
            await admin.alter_configs({TOPIC: [AlterConfigOp("retention.ms", "6")]})

    run(scripted_broker, action)
    assert scripted_broker.requests(ApiKey.ALTER_CONFIGS) == []


def test_topics_are_deleted_by_name_where_the_request_has_no_ids_yet(scripted_broker: Any) -> None:
    scripted_broker.versions[ApiKey.DELETE_TOPICS] = (1, 3)
    scripted_broker.handlers[ApiKey.DELETE_TOPICS] = lambda request, version: DeleteTopicsResponse(
        responses=[DeletableTopicResult(name=name) for name in request.topic_names]
    )

    async def action(admin: AsyncAdmin) -> None:
        assert [result.name for result in await admin.delete_topics(["a", "b"])] == ["a", "b"]

    run(scripted_broker, action)


def test_a_broker_without_defaults_for_new_topics_is_given_numbers(scripted_broker: Any) -> None:
    scripted_broker.versions[ApiKey.CREATE_TOPICS] = (2, 3)
    scripted_broker.handlers[ApiKey.CREATE_TOPICS] = lambda request, version: CreateTopicsResponse(
        topics=[CreatableTopicResult(name=topic.name) for topic in request.topics]
    )

    async def action(admin: AsyncAdmin) -> None:
        with pytest.raises(KafkaError, match="partitions and the replication factor of 'a'") as refused:
            await admin.create_topics([NewTopic("a")])
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
        [created] = await admin.create_topics([NewTopic("a", 1, 1)])
        assert (created.error, created.partitions) == (None, -1)

    run(scripted_broker, action)


def test_a_place_in_the_log_that_an_old_broker_cannot_find_is_refused(scripted_broker: Any) -> None:
    scripted_broker.versions[ApiKey.LIST_OFFSETS] = (1, 5)
    scripted_broker.add_topic("a")

    async def action(admin: AsyncAdmin) -> None:
        with pytest.raises(KafkaError, match="too old to find max timestamp"):
            await admin.list_offsets({TopicPartition("a", 0): OffsetSpec.MAX_TIMESTAMP})

    run(scripted_broker, action)


def test_only_partitions_whose_leader_moved_are_asked_for_again(scripted_broker: Any) -> None:
    scripted_broker.add_topic("a", 2)
    moved = iter([True, False])

    def answer(request: Any, version: int) -> ListOffsetsResponse:
        asked = [part.partition_index for part in request.topics[0].partitions]
        failing = ErrorCode.NOT_LEADER_OR_FOLLOWER if next(moved) else ErrorCode.NONE
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name="a",
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=index, offset=42, error_code=failing if index else 0
                        )
                        for index in asked
                    ],
                )
            ]
        )

    scripted_broker.handlers[ApiKey.LIST_OFFSETS] = answer

    async def action(admin: AsyncAdmin) -> None:
        wanted = {TopicPartition("a", index): OffsetSpec.LATEST for index in (0, 1)}
        found = await admin.list_offsets(wanted)
        assert [(result.offset, result.error) for result in found.values()] == [(42, None), (42, None)]

    run(scripted_broker, action)
    asked = [
        [part.partition_index for part in request.topics[0].partitions]
        for _, request in scripted_broker.requests(ApiKey.LIST_OFFSETS)
    ]
    assert asked == [[0, 1], [1]]


def test_results_come_with_the_error_of_each_thing(scripted_broker: Any) -> None:
    async def action(admin: AsyncAdmin) -> None:
        missing = TopicPartition("a", 9)
        scripted_broker.add_topic("a")
        found = (await admin.delete_records({missing: 5}))[missing]
        assert found.error is not None
        assert "topic 'a' has no partition 9" in str(found.error)
        with pytest.raises(KafkaError, match="no partition 9"):
            found.raise_for_error()

    run(scripted_broker, action)
