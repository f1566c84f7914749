"""Groups through the admin client: versions down to Kafka 2.1, coordinators that move, both protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidelog.client._network.cluster import Cluster
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.group_resources import GroupState, GroupType
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.wire.api import ApiKey
from tidelog.wire.codec import encode
from tidelog.wire.messages import consumer_group_describe as modern
from tidelog.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from tidelog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from tidelog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from tidelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from tidelog.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.wire.messages.offset_delete import OffsetDeleteResponse
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def broker(scripted_broker: Any) -> Any:
    """A broker that coordinates every group itself."""

    def find(request: Any, version: int) -> FindCoordinatorResponse:
        place = {"node_id": 7, "host": "127.0.0.1", "port": scripted_broker.port}
        if version < 4:
            return FindCoordinatorResponse(**place)
        keys = request.coordinator_keys
        return FindCoordinatorResponse(coordinators=[Coordinator(key=key, **place) for key in keys])

    scripted_broker.handlers[ApiKey.FIND_COORDINATOR] = find
    return scripted_broker


def run(broker: Any, action: Callable[[AsyncAdmin], Awaitable[None]]) -> None:
    async def main() -> None:
        async with broker, Cluster(broker.address, retry_backoff_ms=1, api_timeout_ms=30_000) as cluster:
            await action(AsyncAdmin.of(cluster))

    asyncio.run(main())


def opaque(payload: Any, version: int) -> bytes:
    return version.to_bytes(2, "big") + encode(payload, version)


def classic_group(group_id: str, **fields: Any) -> DescribedGroup:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[ConsumerProtocolAssignmentTopicPartition(topic="orders", partitions=[1, 0])]
    )
    member = DescribedGroupMember(
        member_id="reader-1",
        client_id="reader",
        client_host="/10.0.0.7",
        member_metadata=opaque(ConsumerProtocolSubscription(topics=["orders"]), 1),
        member_assignment=opaque(assignment, 1),
    )
    defaults = {"group_state": "Stable", "protocol_type": "consumer", "protocol_data": "range"}
    return DescribedGroup(group_id=group_id, **{**defaults, "members": [member], **fields})


def offset_fetch(
    committed: dict[str, dict[TopicPartition, int]],
) -> Callable[[Any, int], OffsetFetchResponse]:
    """Answers OffsetFetch in old and new versions."""

    def answer(request: Any, version: int) -> OffsetFetchResponse:
        if version < 8:
            topics = [
                OffsetFetchResponseTopic(
                    name=p.topic,
                    partitions=[
                        OffsetFetchResponsePartition(partition_index=p.partition, committed_offset=offset)
                    ],
                )
                for p, offset in committed[request.group_id].items()
            ]
            return OffsetFetchResponse(topics=topics)
        groups = [
            OffsetFetchResponseGroup(
                group_id=group.group_id,
                topics=[
                    OffsetFetchResponseTopics(
                        name=p.topic,
                        partitions=[
                            OffsetFetchResponsePartitions(
                                partition_index=p.partition, committed_offset=offset
                            )
                        ],
                    )
                    for p, offset in committed[group.group_id].items()
                ],
            )
            for group in request.groups
        ]
        return OffsetFetchResponse(groups=groups)

    return answer


def test_groups_are_listed_with_filters_that_the_broker_understands(broker: Any) -> None:
    broker.handlers[ApiKey.LIST_GROUPS] = lambda request, version: ListGroupsResponse(
        groups=[
            ListedGroup(group_id="b", protocol_type="consumer", group_state="Stable", group_type="consumer"),
            ListedGroup(group_id="a", protocol_type="", group_state="Empty", group_type="classic"),
        ]
    )

    async def action(admin: AsyncAdmin) -> None:
        listed = await admin.list_groups(states=[GroupState.STABLE, GroupState.EMPTY])
        assert [(each.group_id, each.state, each.type) for each in listed.groups] == [
            ("a", GroupState.EMPTY, GroupType.CLASSIC),
            ("b", GroupState.STABLE, GroupType.CONSUMER),
        ]
        assert [each.is_simple for each in listed.groups] == [True, False]
        assert listed.errors == ()

    run(broker, action)
    [(version, request)] = broker.requests(ApiKey.LIST_GROUPS)
    assert (version, request.states_filter) == (5, ["Stable", "Empty"])


def test_a_broker_that_knows_no_types_has_classic_groups(broker: Any) -> None:
    broker.versions[ApiKey.LIST_GROUPS] = (0, 4)
    broker.handlers[ApiKey.LIST_GROUPS] = lambda request, version: ListGroupsResponse(
        groups=[ListedGroup(group_id="a", protocol_type="consumer", group_state="Stable")]
    )

    async def action(admin: AsyncAdmin) -> None:
        assert len((await admin.list_groups(types=[GroupType.CLASSIC])).groups) == 1
        assert (await admin.list_groups(types=[GroupType.CONSUMER])).groups == ()

    run(broker, action)


def test_what_a_broker_cannot_list_is_an_error_beside_the_others_groups(broker: Any) -> None:
    broker.versions[ApiKey.LIST_GROUPS] = (0, 3)

    async def action(admin: AsyncAdmin) -> None:
        listed = await admin.list_groups(states=[GroupState.EMPTY])
        [error] = listed.errors
        assert listed.groups == ()
        assert "older than Kafka 2.6" in str(error)

    run(broker, action)


def test_a_group_is_described_as_consumer_group_first(broker: Any) -> None:
    partitions = [modern.TopicPartitions(topic_name="orders", partitions=[1, 0])]
    member = modern.Member(
        member_id="m",
        member_epoch=3,
        client_id="c",
        client_host="/::1",
        subscribed_topic_names=["orders"],
        assignment=modern.Assignment(topic_partitions=partitions),
        target_assignment=modern.Assignment(topic_partitions=partitions),
        member_type=1,
    )
    broker.handlers[ApiKey.CONSUMER_GROUP_DESCRIBE] = lambda request, version: (
        modern.ConsumerGroupDescribeResponse(
            groups=[
                modern.DescribedGroup(
                    group_id="g",
                    group_state="Reconciling",
                    group_epoch=4,
                    assignment_epoch=3,
                    assignor_name="uniform",
                    members=[member],
                )
            ]
        )
    )

    async def action(admin: AsyncAdmin) -> None:
        group = (await admin.describe_groups(["g"]))["g"]
        assert (group.type, group.state, group.epoch) == (GroupType.CONSUMER, GroupState.RECONCILING, 4)
        assert group.state.is_rebalancing
        [found] = group.members
        assert found.assignment == found.target == (ORDERS_0, ORDERS_1)
        assert (found.host, found.epoch, found.upgraded) == ("::1", 3, True)

    run(broker, action)
    assert broker.requests(ApiKey.DESCRIBE_GROUPS) == []


@pytest.mark.parametrize("old", [True, False], ids=["request unknown", "group not found"])
def test_a_classic_group_is_described_where_it_is_no_consumer_group(broker: Any, old: bool) -> None:
    if old:
        del broker.versions[ApiKey.CONSUMER_GROUP_DESCRIBE]
    broker.handlers[ApiKey.CONSUMER_GROUP_DESCRIBE] = lambda request, version: (
        modern.ConsumerGroupDescribeResponse(
            groups=[
                modern.DescribedGroup(group_id=name, error_code=ErrorCode.GROUP_ID_NOT_FOUND)
                for name in request.group_ids
            ]
        )
    )
    broker.handlers[ApiKey.DESCRIBE_GROUPS] = lambda request, version: DescribeGroupsResponse(
        groups=[classic_group(name) for name in request.groups]
    )

    async def action(admin: AsyncAdmin) -> None:
        groups = await admin.describe_groups(["a", "b"])
        assert list(groups) == ["a", "b"]
        group = groups["b"]
        assert (group.type, group.state, group.assignor) == (GroupType.CLASSIC, GroupState.STABLE, "range")
        [member] = group.members
        assert (member.host, member.topics) == ("10.0.0.7", ("orders",))
        assert member.assignment == (ORDERS_0, ORDERS_1)
        assert group.is_active

    run(broker, action)


def test_a_group_that_is_nowhere_keeps_the_more_telling_refusal(broker: Any) -> None:
    missing = ErrorCode.GROUP_ID_NOT_FOUND
    broker.handlers[ApiKey.CONSUMER_GROUP_DESCRIBE] = lambda request, version: (
        modern.ConsumerGroupDescribeResponse(
            groups=[
                modern.DescribedGroup(group_id="g", error_code=missing, error_message="g is a share group")
            ]
        )
    )
    broker.handlers[ApiKey.DESCRIBE_GROUPS] = lambda request, version: DescribeGroupsResponse(
        groups=[DescribedGroup(group_id="g", error_code=missing, error_message="no g", group_state="Dead")]
    )

    async def action(admin: AsyncAdmin) -> None:
        with pytest.raises(KafkaError, match="g is a share group"):
            (await admin.describe_groups(["g"]))["g"].raise_for_error()

    run(broker, action)


@pytest.mark.parametrize(
    ("fields", "assignment"),
    [
        ({"protocol_type": "connect"}, None),
        ({"members": [DescribedGroupMember(member_assignment=b"\x00\x00\xff")]}, None),
        ({"members": [DescribedGroupMember()]}, ()),
    ],
    ids=["no consumers' group", "garbage", "joined but not synced"],
)
def test_assignments_that_cannot_be_read_are_unknown(
    broker: Any, fields: dict[str, Any], assignment: object
) -> None:
    del broker.versions[ApiKey.CONSUMER_GROUP_DESCRIBE]
    broker.handlers[ApiKey.DESCRIBE_GROUPS] = lambda request, version: DescribeGroupsResponse(
        groups=[classic_group("g", **fields)]
    )

    async def action(admin: AsyncAdmin) -> None:
        [member] = (await admin.describe_groups(["g"]))["g"].members
        assert member.assignment == assignment

    run(broker, action)


def test_only_groups_whose_coordinator_moved_are_asked_for_again(broker: Any) -> None:
    moved = iter([True, False])

    def delete(request: Any, version: int) -> DeleteGroupsResponse:
        code = ErrorCode.NOT_COORDINATOR if next(moved) else ErrorCode.NONE
        return DeleteGroupsResponse(
            results=[
                DeletableGroupResult(group_id=name, error_code=code if name == "b" else 0)
                for name in request.groups_names
            ]
        )

    broker.handlers[ApiKey.DELETE_GROUPS] = delete

    async def action(admin: AsyncAdmin) -> None:
        results = await admin.delete_groups(["a", "b"])
        assert [(each.group_id, each.error) for each in results] == [("a", None), ("b", None)]

    run(broker, action)
    asked = [request.groups_names for _, request in broker.requests(ApiKey.DELETE_GROUPS)]
    assert asked == [["a", "b"], ["b"]]
    found = [request.coordinator_keys for _, request in broker.requests(ApiKey.FIND_COORDINATOR)]
    assert found == [["a", "b"], ["b"]]


def test_old_brokers_are_asked_for_one_group_at_a_time(broker: Any) -> None:
    broker.versions[ApiKey.FIND_COORDINATOR] = (0, 3)
    broker.versions[ApiKey.OFFSET_FETCH] = (1, 7)
    broker.handlers[ApiKey.OFFSET_FETCH] = offset_fetch({"a": {ORDERS_0: 5}, "b": {ORDERS_1: -1}})

    async def action(admin: AsyncAdmin) -> None:
        found = await admin.list_group_offsets(["a", "b"])
        assert found["a"].offsets[ORDERS_0].offset == 5
        assert found["b"].offsets == {}

    run(broker, action)
    assert [request.key for _, request in broker.requests(ApiKey.FIND_COORDINATOR)] == ["a", "b"]
    assert [request.group_id for _, request in broker.requests(ApiKey.OFFSET_FETCH)] == ["a", "b"]


def test_offsets_go_by_topic_name_on_the_newest_brokers_too(broker: Any) -> None:
    broker.handlers[ApiKey.OFFSET_FETCH] = offset_fetch({"a": {ORDERS_0: 5}, "b": {ORDERS_1: 6}})
    broker.handlers[ApiKey.OFFSET_COMMIT] = lambda request, version: OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )

    async def action(admin: AsyncAdmin) -> None:
        found = await admin.list_group_offsets(["a", "b"])
        assert {name: each.offsets.keys() for name, each in found.items()} == {
            "a": {ORDERS_0},
            "b": {ORDERS_1},
        }
        results = await admin.alter_group_offsets("a", {ORDERS_0: 1, ORDERS_1: 2})
        assert [(each.partition, each.error) for each in results] == [(ORDERS_0, None), (ORDERS_1, None)]

    run(broker, action)
    [(fetch_version, _)] = broker.requests(ApiKey.OFFSET_FETCH)
    [(commit_version, commit)] = broker.requests(ApiKey.OFFSET_COMMIT)
    assert (fetch_version, commit_version) == (9, 9)
    assert (commit.generation_id_or_member_epoch, commit.member_id) == (-1, "")


def test_a_commit_that_a_loading_coordinator_refused_is_sent_again(broker: Any) -> None:
    codes = iter([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID])
    broker.handlers[ApiKey.OFFSET_COMMIT] = lambda request, version: OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name="orders",
                partitions=[OffsetCommitResponsePartition(partition_index=0, error_code=next(codes))],
            )
        ]
    )

    async def action(admin: AsyncAdmin) -> None:
        [result] = await admin.alter_group_offsets("a", {ORDERS_0: 1})
        assert result.error is not None
        assert result.error.code is ErrorCode.UNKNOWN_MEMBER_ID

    run(broker, action)


def test_deleting_offsets_of_a_group_that_is_refused_raises_its_error(broker: Any) -> None:
    broker.handlers[ApiKey.OFFSET_DELETE] = lambda request, version: OffsetDeleteResponse(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND
    )

    async def action(admin: AsyncAdmin) -> None:
        with pytest.raises(KafkaError, match="group 'a' does not exist"):
            await admin.delete_group_offsets("a", [ORDERS_0])

    run(broker, action)


def test_lag_covers_assigned_committed_and_vanished_partitions(broker: Any) -> None:
    gone = TopicPartition("gone", 0)
    del broker.versions[ApiKey.CONSUMER_GROUP_DESCRIBE]
    broker.add_topic("orders", 3)
    broker.handlers[ApiKey.DESCRIBE_GROUPS] = lambda request, version: DescribeGroupsResponse(
        groups=[classic_group("g")]
    )
    broker.handlers[ApiKey.OFFSET_FETCH] = offset_fetch(
        {"g": {ORDERS_0: 4, TopicPartition("orders", 2): 12, gone: 1}}
    )
    broker.handlers[ApiKey.LIST_OFFSETS] = lambda request, version: ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=each.partition_index, offset=10)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )

    async def action(admin: AsyncAdmin) -> None:
        lag = (await admin.describe_group_lag(["g"]))["g"]
        rows = [
            (row.partition, row.committed, row.end_offset, row.lag, row.member is not None)
            for row in lag.partitions
        ]
        assert rows == [
            (gone, 1, None, None, False),
            (ORDERS_0, 4, 10, 6, True),
            (ORDERS_1, None, 10, None, True),
            (TopicPartition("orders", 2), 12, 10, -2, False),
        ]
        assert (lag.total, lag.unknown) == (6, 2)
        assert lag.partitions[0].problem is not None

    run(broker, action)


def test_a_group_that_its_coordinator_passes_over_in_silence_is_an_error(broker: Any) -> None:
    broker.handlers[ApiKey.DELETE_GROUPS] = lambda request, version: DeleteGroupsResponse(results=[])

    async def main() -> None:
        async with broker, Cluster(broker.address, retry_backoff_ms=1, retries=2) as cluster:
            [result] = await AsyncAdmin.of(cluster).delete_groups(["a"])
            assert "coordinator of 'a' has not answered" in str(result.error)

    asyncio.run(main())
