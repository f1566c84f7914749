"""Log directories, features, elections, reassignments and members, where brokers are old or refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidelog.cli.broker_pages import BrokerPages
from tidelog.cli.top.sample import take_sample
from tidelog.client._network.cluster import Cluster
from tidelog.client.admin._replication_throttle import throttled
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.cluster_resources import ElectionType, FeatureUpdate, UpgradeType
from tidelog.client.errors import BrokerUnreachableError
from tidelog.client.resources import AlterConfigOp, ConfigResource, ResourceType
from tidelog.console.watching.snapshot import take_snapshot
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition, random_uuid
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from tidelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from tidelog.wire.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from tidelog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from tidelog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tidelog.wire.messages.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from tidelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from tidelog.wire.messages.leave_group import LeaveGroupResponse, MemberResponse
from tidelog.wire.messages.list_config_resources import ConfigResource as Listed
from tidelog.wire.messages.list_config_resources import ListConfigResourcesResponse
from tidelog.wire.messages.list_groups import ListGroupsResponse
from tidelog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tidelog.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from tidelog.wire.messages.update_features import UpdatableFeatureResult, UpdateFeaturesResponse

ORDERS_0 = TopicPartition("orders", 0)


def run(broker: Any, action: Callable[[AsyncAdmin], Awaitable[None]]) -> None:
    async def main() -> None:
        async with broker, Cluster(broker.address, retry_backoff_ms=1, api_timeout_ms=30_000) as cluster:
            await action(AsyncAdmin.of(cluster))

    asyncio.run(main())


def refused(action: Awaitable[object], code: ErrorCode) -> Awaitable[None]:
    async def check() -> None:
        with pytest.raises(KafkaError) as caught:
            await action
        assert caught.value.code is code

    return check()


def test_sizes_of_file_systems_are_unknown_on_old_brokers(scripted_broker: Any) -> None:
    scripted_broker.versions[ApiKey.DESCRIBE_LOG_DIRS] = (1, 2)
    partition = DescribeLogDirsPartition(
        partition_index=0, partition_size=10, offset_lag=1, is_future_key=True
    )
    topic = DescribeLogDirsTopic(name="orders", partitions=[partition])
    scripted_broker.handlers[ApiKey.DESCRIBE_LOG_DIRS] = lambda request, version: DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(log_dir="one", topics=[topic]),
            DescribeLogDirsResult(log_dir="two", error_code=ErrorCode.KAFKA_STORAGE_ERROR),
        ]
    )

    async def check(admin: AsyncAdmin) -> None:
        one, two = (await admin.describe_log_dirs())[7].log_dirs
        assert (one.total_bytes, one.usable_bytes, one.error) == (None, None, None)
        assert [(each.partition, each.size_bytes, each.is_future) for each in one.replicas] == [
            (ORDERS_0, 10, True)
        ]
        assert two.error is not None
        assert two.error.code is ErrorCode.KAFKA_STORAGE_ERROR

    run(scripted_broker, check)


def test_a_broker_that_is_not_there_has_an_error_of_its_own(scripted_broker: Any) -> None:
    scripted_broker.handlers[ApiKey.DESCRIBE_LOG_DIRS] = lambda request, version: DescribeLogDirsResponse()

    async def check(admin: AsyncAdmin) -> None:
        described = await admin.describe_log_dirs([7, 8])
        assert described[7].error is None
        absent = described[8].error
        assert absent is not None
        assert absent.code is ErrorCode.BROKER_NOT_AVAILABLE
        (move,) = await admin.alter_replica_log_dirs({(8, ORDERS_0): "one"})
        assert (move.broker_id, move.error is not None) == (8, True)

    run(scripted_broker, check)


@pytest.fixture
def half_a_cluster(scripted_broker: Any) -> Any:
    """Broker 7 of a cluster; at the address of broker 8 nobody listens."""

    def metadata(request: Any, version: int) -> MetadataResponse:
        answer: MetadataResponse = scripted_broker.metadata()
        answer.brokers.append(MetadataResponseBroker(node_id=8, host="127.0.0.1", port=1))
        return answer

    scripted_broker.handlers[ApiKey.METADATA] = metadata
    return scripted_broker


def run_once(broker: Any, action: Callable[[AsyncAdmin], Awaitable[None]]) -> None:
    """With a client that tries nothing a second time."""

    async def main() -> None:
        async with broker, Cluster(broker.address, retries=0) as cluster:
            await action(AsyncAdmin.of(cluster))

    asyncio.run(main())


def test_log_directories_are_told_though_a_broker_cannot_be_reached(half_a_cluster: Any) -> None:
    half_a_cluster.handlers[ApiKey.DESCRIBE_LOG_DIRS] = lambda request, version: DescribeLogDirsResponse(
        results=[DescribeLogDirsResult(log_dir="one")]
    )
    half_a_cluster.handlers[ApiKey.ALTER_REPLICA_LOG_DIRS] = lambda request, version: (
        AlterReplicaLogDirsResponse(
            results=[
                AlterReplicaLogDirTopicResult(
                    topic_name="orders", partitions=[AlterReplicaLogDirPartitionResult(partition_index=0)]
                )
            ]
        )
    )

    async def check(admin: AsyncAdmin) -> None:
        described = await admin.describe_log_dirs()
        assert [each.path for each in described[7].log_dirs] == ["one"]
        absent = described[8].error
        assert absent is not None
        assert (absent.code, "cannot connect to 127.0.0.1:1" in absent.message) == (
            ErrorCode.NETWORK_EXCEPTION,
            True,
        )
        moves = await admin.alter_replica_log_dirs({(7, ORDERS_0): "one", (8, ORDERS_0): "one"})
        assert [(each.broker_id, each.error is None) for each in moves] == [(7, True), (8, False)]
        with pytest.raises(BrokerUnreachableError):
            await admin.describe_log_dirs([8])

    run_once(half_a_cluster, check)


def test_configs_are_told_and_altered_though_a_broker_cannot_be_reached(half_a_cluster: Any) -> None:
    def describe(request: Any, version: int) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(resource_type=each.resource_type, resource_name=each.resource_name)
                for each in request.resources
            ]
        )

    def alter(request: Any, version: int) -> IncrementalAlterConfigsResponse:
        return IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    resource_type=each.resource_type, resource_name=each.resource_name
                )
                for each in request.resources
            ]
        )

    half_a_cluster.handlers[ApiKey.DESCRIBE_CONFIGS] = describe
    half_a_cluster.handlers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = alter
    there, absent, defaults = (ConfigResource(ResourceType.BROKER, each) for each in ("7", "8", ""))

    async def check(admin: AsyncAdmin) -> None:
        change = [AlterConfigOp("background.threads", "3")]
        for results in (
            await admin.describe_configs([absent, there, defaults]),
            await admin.alter_configs({absent: change, there: change, defaults: change}),
        ):
            found = {each.resource: each.error for each in results}
            assert (found[there], found[defaults]) == (None, None)
            error = found[absent]
            assert error is not None
            assert error.code is ErrorCode.NETWORK_EXCEPTION
        with pytest.raises(BrokerUnreachableError):
            await admin.describe_configs([absent])
        assert await admin.describe_configs([]) == []
        with pytest.raises(KafkaError, match="cannot connect to"):
            await throttled(admin)

    run_once(half_a_cluster, check)


def test_a_picture_of_a_cluster_is_taken_though_a_broker_cannot_be_reached(half_a_cluster: Any) -> None:
    half_a_cluster.handlers[ApiKey.DESCRIBE_LOG_DIRS] = lambda request, version: DescribeLogDirsResponse(
        results=[DescribeLogDirsResult(log_dir="one")]
    )
    half_a_cluster.handlers[ApiKey.LIST_GROUPS] = lambda request, version: ListGroupsResponse()
    half_a_cluster.handlers[ApiKey.DESCRIBE_CONFIGS] = lambda request, version: DescribeConfigsResponse(
        results=[DescribeConfigsResult(resource_type=ResourceType.BROKER, resource_name="7")]
    )

    async def check(admin: AsyncAdmin) -> None:
        silent: set[int] = set()
        sample = await take_sample(admin, BrokerPages(admin), silent)
        assert list(sample.disks) == [7]
        assert silent == {8}
        assert any("127.0.0.1:1" in each for each in sample.problems)
        assert sample.watched.silent == (7,)
        assert "the metrics address of broker 8 is unknown" in sample.watched.missing
        snapshot = await take_snapshot(admin)
        assert [each.broker for each in snapshot.disks] == [7]
        assert any("127.0.0.1:1" in each for each in snapshot.problems)

    run_once(half_a_cluster, check)


def test_the_next_picture_hardly_waits_for_a_broker_that_has_not_answered(
    scripted_broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    brief_s = "tidelog.cli.top.sample._BRIEF_S"
    monkeypatch.setattr(brief_s, 0.05)
    scripted_broker.handlers[ApiKey.DESCRIBE_LOG_DIRS] = lambda request, version: DescribeLogDirsResponse(
        results=[DescribeLogDirsResult(log_dir="one")]
    )
    scripted_broker.handlers[ApiKey.LIST_GROUPS] = lambda request, version: ListGroupsResponse()
    scripted_broker.handlers[ApiKey.DESCRIBE_CONFIGS] = lambda request, version: DescribeConfigsResponse(
        results=[DescribeConfigsResult(resource_type=ResourceType.BROKER, resource_name="7")]
    )

    async def main() -> None:
        asked: list[asyncio.StreamWriter] = []  # whoever accepts, and never answers
        mute = await asyncio.start_server(lambda _, writer: asked.append(writer), "127.0.0.1", 0)
        mute_port = mute.sockets[0].getsockname()[1]
        ports = [mute_port]

        def metadata(request: Any, version: int) -> MetadataResponse:
            answer: MetadataResponse = scripted_broker.metadata()
            answer.brokers += [
                MetadataResponseBroker(node_id=8, host="127.0.0.1", port=each) for each in ports
            ]
            return answer

        scripted_broker.handlers[ApiKey.METADATA] = metadata
        async with scripted_broker, Cluster(scripted_broker.address, api_timeout_ms=3_600_000) as cluster:
            admin = AsyncAdmin.of(cluster)
            pages, silent = BrokerPages(admin), {8}
            async with asyncio.timeout(30):
                while not asked:  # on a busy machine a connection takes longer than it is waited for
                    sample = await take_sample(admin, pages, silent)
            assert (list(sample.disks), sample.problems) == ([7], ("broker 8 does not respond",))
            assert "the metrics address of broker 8 is unknown: it does not respond" in sample.watched.missing
            assert silent == {8}
            ports[:] = [scripted_broker.port]
            monkeypatch.setattr(brief_s, 30)
            assert list((await take_sample(admin, pages, silent)).disks) == [7, 8]
            assert silent == set()
        mute.close()
        for each in asked:
            each.close()

    asyncio.run(main())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_features_are_updated_in_every_version(scripted_broker: Any, version: int) -> None:
    scripted_broker.versions[ApiKey.UPDATE_FEATURES] = (0, version)

    def update(request: Any, version: int) -> UpdateFeaturesResponse:
        if version == 2:
            return UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message="no")
        bad = ErrorCode.INVALID_UPDATE_VERSION
        results = [UpdatableFeatureResult(feature="a", error_code=bad, error_message="no")]
        return UpdateFeaturesResponse(results=[*results, UpdatableFeatureResult(feature="b")])

    scripted_broker.handlers[ApiKey.UPDATE_FEATURES] = update

    async def check(admin: AsyncAdmin) -> None:
        updates = {"a": FeatureUpdate(2), "b": FeatureUpdate(1, UpgradeType.SAFE_DOWNGRADE)}
        first, second = await admin.update_features(updates)
        assert (first.feature, second.feature) == ("a", "b")
        assert first.error is not None
        assert (second.error is not None) == (version == 2)
        ((_, sent),) = scripted_broker.requests(ApiKey.UPDATE_FEATURES)
        if version == 0:
            assert [each.allow_downgrade for each in sent.feature_updates] == [False, True]
            await refused(admin.update_features(updates, validate_only=True), ErrorCode.UNSUPPORTED_VERSION)
        else:
            assert [each.upgrade_type for each in sent.feature_updates] == [1, 2]

    run(scripted_broker, check)


def test_an_old_broker_elects_preferred_leaders_only(scripted_broker: Any) -> None:
    scripted_broker.versions[ApiKey.ELECT_LEADERS] = (0, 0)
    scripted_broker.handlers[ApiKey.ELECT_LEADERS] = lambda request, version: ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic="orders", partition_result=[PartitionResult(partition_id=0)])
        ]
    )

    async def check(admin: AsyncAdmin) -> None:
        (elected,) = await admin.elect_leaders([ORDERS_0])
        assert (elected.partition, elected.error) == (ORDERS_0, None)
        await refused(admin.elect_leaders([ORDERS_0], ElectionType.UNCLEAN), ErrorCode.UNSUPPORTED_VERSION)

    run(scripted_broker, check)


def test_an_election_refused_as_a_whole_is_raised(scripted_broker: Any) -> None:
    scripted_broker.handlers[ApiKey.ELECT_LEADERS] = lambda request, version: ElectLeadersResponse(
        error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    )

    async def check(admin: AsyncAdmin) -> None:
        await refused(admin.elect_leaders(), ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    run(scripted_broker, check)


def test_reassignments_under_way_are_told_by_partition(scripted_broker: Any) -> None:
    ongoing = OngoingPartitionReassignment(
        partition_index=0, replicas=[1, 2, 3], adding_replicas=[3], removing_replicas=[1]
    )
    answer = ListPartitionReassignmentsResponse(
        topics=[OngoingTopicReassignment(name="orders", partitions=[ongoing])]
    )
    scripted_broker.handlers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda request, version: answer
    scripted_broker.handlers[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = lambda request, version: (
        AlterPartitionReassignmentsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    )

    async def check(admin: AsyncAdmin) -> None:
        found = (await admin.list_partition_reassignments())[ORDERS_0]
        assert (found.replicas, found.adding_replicas, found.removing_replicas) == ((1, 2, 3), (3,), (1,))
        move = admin.alter_partition_reassignments({ORDERS_0: [1, 2]})
        await refused(move, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    run(scripted_broker, check)


def test_an_old_broker_lists_client_metrics_only(scripted_broker: Any) -> None:
    scripted_broker.versions[ApiKey.LIST_CONFIG_RESOURCES] = (0, 0)
    scripted_broker.handlers[ApiKey.LIST_CONFIG_RESOURCES] = lambda request, version: (
        ListConfigResourcesResponse(config_resources=[Listed(resource_name="lag")])
    )

    async def check(admin: AsyncAdmin) -> None:
        metrics = ResourceType.CLIENT_METRICS
        assert await admin.list_config_resources([metrics]) == [ConfigResource(metrics, "lag")]
        await refused(admin.list_config_resources(), ErrorCode.UNSUPPORTED_VERSION)

    run(scripted_broker, check)


def test_an_old_broker_deletes_topics_by_name_only(scripted_broker: Any) -> None:
    scripted_broker.versions[ApiKey.DELETE_TOPICS] = (1, 5)

    async def check(admin: AsyncAdmin) -> None:
        await refused(admin.delete_topics([random_uuid()]), ErrorCode.UNSUPPORTED_VERSION)

    run(scripted_broker, check)


@pytest.fixture
def group_broker(scripted_broker: Any) -> Any:
    """A broker that coordinates a classic group with a static and a dynamic member."""

    def find(request: Any, version: int) -> FindCoordinatorResponse:
        place = {"node_id": 7, "host": "127.0.0.1", "port": scripted_broker.port}
        keys = request.coordinator_keys
        return FindCoordinatorResponse(coordinators=[Coordinator(key=key, **place) for key in keys])

    members = [
        DescribedGroupMember(member_id="m-1", group_instance_id="desk-1"),
        DescribedGroupMember(member_id="m-2", group_instance_id=None),
    ]
    group = DescribedGroup(group_id="g", group_state="Stable", protocol_type="consumer", members=members)
    scripted_broker.handlers[ApiKey.FIND_COORDINATOR] = find
    del scripted_broker.versions[ApiKey.CONSUMER_GROUP_DESCRIBE]
    scripted_broker.handlers[ApiKey.DESCRIBE_GROUPS] = lambda request, version: DescribeGroupsResponse(
        groups=[group]
    )
    scripted_broker.handlers[ApiKey.LEAVE_GROUP] = lambda request, version: LeaveGroupResponse(
        members=[
            MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id)
            for each in request.members
        ]
    )
    return scripted_broker


def test_static_members_leave_by_instance_id_and_others_by_member_id(group_broker: Any) -> None:
    async def check(admin: AsyncAdmin) -> None:
        removed = await admin.remove_group_members("g", reason="x" * 300)
        assert [each.error for each in removed] == [None, None]
        ((_, sent),) = group_broker.requests(ApiKey.LEAVE_GROUP)
        assert [(each.member_id, each.group_instance_id) for each in sent.members] == [
            ("", "desk-1"),
            ("m-2", None),
        ]
        assert {len(each.reason) for each in sent.members} == {255}

    run(group_broker, check)


def test_a_coordinator_that_has_moved_is_asked_again(group_broker: Any) -> None:
    leave = group_broker.handlers[ApiKey.LEAVE_GROUP]
    answers = iter([LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)])
    group_broker.handlers[ApiKey.LEAVE_GROUP] = lambda request, version: (
        next(answers, None) or leave(request, version)
    )

    async def check(admin: AsyncAdmin) -> None:
        (removed,) = await admin.remove_group_members("g", ["desk-1"])
        assert (removed.instance_id, removed.error) == ("desk-1", None)
        assert len(group_broker.requests(ApiKey.LEAVE_GROUP)) == 2

    run(group_broker, check)


def test_an_old_broker_removes_nobody_from_outside(group_broker: Any) -> None:
    group_broker.versions[ApiKey.LEAVE_GROUP] = (0, 2)

    async def check(admin: AsyncAdmin) -> None:
        await refused(admin.remove_group_members("g", ["desk-1"]), ErrorCode.UNSUPPORTED_VERSION)

    run(group_broker, check)
