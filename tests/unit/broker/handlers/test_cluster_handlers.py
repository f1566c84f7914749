"""DescribeCluster, ListConfigResources, ElectLeaders, UpdateFeatures, reassignments, producers and ACLs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tidelog.broker.access.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from tidelog.broker.context import RequestContext
from tidelog.broker.handlers import describe_producers
from tidelog.controller.topics import NewTopic
from tidelog.errors import ErrorCode
from tidelog.security.session import Session
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from tidelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tidelog.wire.messages.describe_acls import DescribeAclsRequest
from tidelog.wire.messages.describe_cluster import DescribeClusterRequest
from tidelog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.wire.messages.list_config_resources import ListConfigResourcesRequest
from tidelog.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tidelog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

Run = Callable[..., None]


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described_with_this_brokers_endpoint(run: Run, version: int) -> None:
    async def body(broker: Any) -> None:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        response = await broker.call("describe_cluster", request, version)
        assert (response.error_code, response.error_message) == (0, None)
        assert response.cluster_id == broker.image.cluster_id
        assert response.controller_id == 1
        (node,) = response.brokers
        assert (node.broker_id, node.host, node.port) == (1, "example.org", 9192)
        assert response.cluster_authorized_operations == CLUSTER_OPERATIONS == 8096
        silent = await broker.call("describe_cluster", DescribeClusterRequest(), version)
        assert silent.cluster_authorized_operations == NOT_ASKED

    run(body, {"advertised.listeners": "PLAINTEXT://example.org:9192"})


@pytest.mark.parametrize(
    ("endpoint_type", "code", "message"),
    [
        (
            2,
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, "
            "but we wanted an endpoint of type CONTROLLER",
        ),
        (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "Unsupported endpoint type 9"),
    ],
)
def test_a_broker_is_no_controller_endpoint(
    run: Run, endpoint_type: int, code: ErrorCode, message: str
) -> None:
    async def body(broker: Any) -> None:
        request = DescribeClusterRequest(endpoint_type=endpoint_type)
        response = await broker.call("describe_cluster", request, 1)
        assert (response.error_code, response.error_message, response.brokers) == (code, message, [])

    run(body)


def test_topic_operations_are_all_that_topics_know() -> None:
    assert TOPIC_OPERATIONS == 3576


def test_config_resources_are_listed_by_type(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t"), NewTopic("u")])

        async def list_(version: int, *types: int) -> list[tuple[int, str]]:
            request = ListConfigResourcesRequest(resource_types=list(types))
            response = await broker.call("list_config_resources", request, version)
            assert response.error_code == 0
            return [(each.resource_type, each.resource_name) for each in response.config_resources]

        topics, brokers, loggers = [(2, "t"), (2, "u")], [(4, "1")], [(8, "1")]
        assert await list_(0) == []
        assert await list_(1) == topics + brokers + loggers
        assert await list_(1, 2) == topics
        assert await list_(1, 8, 4, 4) == brokers + loggers
        assert await list_(1, 16, 32) == []
        request = ListConfigResourcesRequest(resource_types=[2, 99])
        refused = await broker.call("list_config_resources", request, 1)
        assert (refused.error_code, refused.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])

    run(body)


@pytest.mark.parametrize("version", range(3))
def test_no_election_is_needed_on_one_broker(run: Run, version: int) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t", 2)])
        request = ElectLeadersRequest(
            topic_partitions=[
                TopicPartitions(topic="t", partitions=[1, 5]),
                TopicPartitions(topic="no", partitions=[0]),
            ]
        )
        response = await broker.call("elect_leaders", request, version)
        assert [
            (topic.topic, each.partition_id, each.error_code, each.error_message)
            for topic in response.replica_election_results
            for each in topic.partition_result
        ] == [
            ("t", 1, ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."),
            ("t", 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t-5"),
            ("no", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as no"),
        ]

    run(body)


def test_an_election_of_everything_leaves_out_what_needs_none(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t", 2), NewTopic("u")])
        response = await broker.call("elect_leaders", ElectLeadersRequest(topic_partitions=None), 2)
        assert [(each.topic, each.partition_result) for each in response.replica_election_results] == [
            ("t", []),
            ("u", []),
        ]

    run(body)


@pytest.mark.parametrize("version", range(3))
def test_an_election_that_cannot_wait_is_refused_in_every_version(run: Run, version: int) -> None:
    """Version 0 has no place for the error itself, only for that of each partition."""

    async def body(broker: Any) -> None:
        request = ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic="t", partitions=[0])], timeout_ms=0
        )
        response = await broker.call("elect_leaders", request, version)
        (topic,) = response.replica_election_results
        assert [each.error_code for each in topic.partition_result] == [ErrorCode.REQUEST_TIMED_OUT]
        assert response.error_code == (ErrorCode.REQUEST_TIMED_OUT if version else ErrorCode.NONE)

    run(body)


def test_an_unknown_election_type_is_refused_for_every_partition(run: Run) -> None:
    async def body(broker: Any) -> None:
        request = ElectLeadersRequest(
            election_type=9, topic_partitions=[TopicPartitions(topic="t", partitions=[0])]
        )
        response = await broker.call("elect_leaders", request, 2)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        (each,) = response.replica_election_results[0].partition_result
        assert (each.error_code, each.error_message) == (
            ErrorCode.INVALID_REQUEST,
            "Unknown election type 9",
        )

    run(body)


@pytest.mark.parametrize("version", range(3))
def test_features_are_updated_and_seen_in_the_image(run: Run, version: int) -> None:
    async def body(broker: Any) -> None:
        up = FeatureUpdateKey(feature="transaction.version", max_version_level=2)
        response = await broker.call("update_features", UpdateFeaturesRequest(feature_updates=[up]), version)
        assert (response.error_code, response.error_message) == (0, None)
        assert [each.feature for each in response.results] == (
            ["transaction.version"] if version <= 1 else []
        )
        assert broker.image.features == {"group.version": 1, "transaction.version": 2}
        if version == 0:
            down = FeatureUpdateKey(feature="transaction.version", max_version_level=1, allow_downgrade=True)
        else:
            down = FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=2)
        await broker.call("update_features", UpdateFeaturesRequest(feature_updates=[down]), version)
        assert broker.image.features == {"group.version": 1, "transaction.version": 1}

    run(body)


def test_an_unknown_feature_refuses_the_update(run: Run) -> None:
    async def body(broker: Any) -> None:
        update = FeatureUpdateKey(feature="no.such", max_version_level=1)
        response = await broker.call("update_features", UpdateFeaturesRequest(feature_updates=[update]), 1)
        assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert response.error_message == (
            "The update failed for all features since the following feature had an error: Invalid update "
            "version 1 for feature no.such. Local controller 1 does not support this feature."
        )
        assert response.results == []

    run(body)


def test_producers_are_described_by_what_their_partition_remembers(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        await broker.produce("t", 0, 3, producer_id=77, producer_epoch=2, base_sequence=0)
        request = DescribeProducersRequest(
            topics=[
                TopicRequest(name="t", partition_indexes=[0, 4]),
                TopicRequest(name="no", partition_indexes=[0]),
                TopicRequest(name="b ad", partition_indexes=[0]),
            ]
        )
        known, missing, bad = (await broker.call("describe_producers", request, 0)).topics
        (producer,) = known.partitions[0].active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (77, 2, 2)
        assert producer.last_timestamp == broker.clock.time_ms()
        assert producer.current_txn_start_offset == -1
        assert known.partitions[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert missing.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert bad.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    run(body)


def test_producers_are_described_a_partition_at_a_time_and_those_of_one_only_once(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        for producer_id in range(5):
            await broker.produce("t", 0, 1, producer_id=producer_id, producer_epoch=0, base_sequence=0)
        topics = [TopicRequest(name=name, partition_indexes=[0] * 50) for name in ("t", "u", "t", "u")]
        connection: Any = SimpleNamespace(session=Session("127.0.0.1"))
        work = describe_producers.handle(
            RequestContext(connection, 0, 1, "me"),
            DescribeProducersRequest(topics=topics),
            broker.image,
            broker.partitions,
            broker.authorization,
        )
        steps = 0
        try:
            while True:
                next(work)
                steps += 1
        except StopIteration as end:
            answers = end.value.topics
        assert steps >= 200
        assert [(each.name, len(each.partitions)) for each in answers] == [("t", 50), ("u", 50)] * 2
        described = [partition for topic in answers for partition in topic.partitions if topic.name == "t"]
        assert len(described[0].active_producers) == 5
        assert all(each is described[0] for each in described)

    run(body)


def test_reassignments_go_nowhere_on_one_broker(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])

        async def reassign(topic: str, index: int, replicas: list[int] | None) -> tuple[int, str | None]:
            partition = ReassignablePartition(partition_index=index, replicas=replicas)
            request = AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(name=topic, partitions=[partition])]
            )
            response = await broker.call("alter_partition_reassignments", request, 1)
            (result,) = response.responses[0].partitions
            return result.error_code, result.error_message

        assert await reassign("t", 0, [1]) == (0, None)
        assert await reassign("t", 0, None) == (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)
        assert await reassign("t", 0, [9]) == (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        )
        assert await reassign("no", 0, [1]) == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "Unable to find a topic named no.",
        )
        assert await reassign("t", 3, [1]) == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "Unable to find partition t:3.",
        )
        listed = await broker.call("list_partition_reassignments", ListPartitionReassignmentsRequest(), 0)
        assert (listed.error_code, listed.topics) == (0, [])

    run(body)


@pytest.mark.parametrize("version", range(1, 4))
def test_acls_are_disabled_without_an_authorizer(run: Run, version: int) -> None:
    async def body(broker: Any) -> None:
        described = await broker.call("describe_acls", DescribeAclsRequest(), version)
        assert (described.error_code, described.error_message) == (
            ErrorCode.SECURITY_DISABLED,
            "No Authorizer is configured on the broker",
        )
        creation = AclCreation(resource_type=2, resource_name="t", principal="User:a", host="*")
        created = await broker.call("create_acls", CreateAclsRequest(creations=[creation] * 2), version)
        assert [each.error_code for each in created.results] == [ErrorCode.SECURITY_DISABLED] * 2
        deletion = DeleteAclsFilter(resource_type_filter=2)
        deleted = await broker.call("delete_acls", DeleteAclsRequest(filters=[deletion]), version)
        assert [each.error_code for each in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED]

    run(body)
