"""Requests that name very many things are handled in steps, between which others have their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from tests.rigs.clock import ManualClock

from tidelog.broker.access.authorization import OPEN
from tidelog.broker.context import RequestContext
from tidelog.broker.handlers import (
    alter_client_quotas,
    alter_configs,
    create_acls,
    delete_acls,
    describe_topic_partitions,
    find_coordinator,
    incremental_alter_configs,
    leave_group,
    offset_for_leader_epoch,
)
from tidelog.controller.topics import NewTopic
from tidelog.errors import ErrorCode
from tidelog.metadata.acl_store import AclStore
from tidelog.metadata.embedded.embedded_store import EmbeddedStore
from tidelog.scheduling.promise import Promise
from tidelog.security.acls.model import Operation, PatternType, Permission, ResourceType
from tidelog.security.session import Session
from tidelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from tidelog.wire.messages.alter_configs import AlterConfigsRequest
from tidelog.wire.messages.alter_configs import AlterConfigsResource as Replaced
from tidelog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.messages.create_acls import AclCreation, CreateAclsRequest
from tidelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidelog.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tidelog.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from tidelog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from tidelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

T = TypeVar("T")
Run = Callable[..., None]

MANY = 5000
AT_MOST = 64


def context(version: int) -> RequestContext:
    connection: Any = SimpleNamespace(
        session=Session("127.0.0.1"), listener="PLAINTEXT", peer=("127.0.0.1", 1)
    )
    return RequestContext(connection, version, 1, "me")


def in_steps(work: Generator[None, None, T]) -> tuple[T, int]:
    """The result of work, and in how many steps it was done."""
    steps = 1
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value, steps
        steps += 1


async def in_turns_of_the_loop(work: Coroutine[Any, Any, T]) -> tuple[T, int]:
    """The result of work, and how many turns of the loop others had meanwhile."""
    task = asyncio.ensure_future(work)
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return task.result(), turns


def test_coordinators_are_looked_for_a_few_keys_at_a_time() -> None:
    asked: list[str] = []

    async def find(_: object, key: str) -> int:
        asked.append(key)
        return 1

    async def body() -> None:
        coordinators: Any = SimpleNamespace(groups=None, transactions=None, find=find)
        image: Any = SimpleNamespace(brokers={})
        request = FindCoordinatorRequest(coordinator_keys=[f"g{number}" for number in range(MANY)])
        work = find_coordinator.handle(context(4), request, coordinators, image, OPEN)
        answer, turns = await in_turns_of_the_loop(work)
        assert [each.key for each in answer.coordinators] == request.coordinator_keys == asked
        assert turns >= MANY // AT_MOST

    asyncio.run(body())


def test_quotas_are_changed_a_few_at_a_time() -> None:
    def entry(number: int) -> AlterClientQuotasRequestEntryData:
        address = f"10.0.{number // 250}.{number % 250}" if number else "x" * 64
        return AlterClientQuotasRequestEntryData(
            entity=[EntityData(entity_type="ip", entity_name=address)],
            ops=[OpData(key="connection_creation_rate", value=5.0, remove=False)],
        )

    async def body() -> None:
        request = AlterClientQuotasRequest(entries=[entry(each) for each in range(MANY)], validate_only=True)
        work = alter_client_quotas.handle(context(1), request, SimpleNamespace())
        answer, turns = await in_turns_of_the_loop(work)
        assert [each.error_code for each in answer.entries] == [ErrorCode.INVALID_REQUEST] + [0] * (MANY - 1)
        assert turns >= 3 * MANY // 100

    asyncio.run(body())


def test_access_rules_are_added_and_removed_a_few_at_a_time(tmp_path: Path) -> None:
    def creation(number: int) -> AclCreation:
        return AclCreation(
            resource_type=ResourceType.TOPIC,
            # All but one have a pattern of their own, and one has as many rules as all others have together.
            resource_name="all" if number % 2 else f"t-{number}",
            resource_pattern_type=PatternType.LITERAL,
            principal=f"User:{number}",
            host="*",
            operation=Operation.READ,
            permission_type=Permission.ALLOW if number else 99,
        )

    def filter_of(number: int) -> DeleteAclsFilter:
        return DeleteAclsFilter(
            resource_type_filter=ResourceType.ANY,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=f"User:{number}",
            host_filter=None,
            operation=Operation.ANY,
            permission_type=Permission.ANY,
        )

    async def body() -> None:
        store = EmbeddedStore(tmp_path)
        acls = await AclStore.open(store, None, ManualClock())
        authorization: Any = SimpleNamespace(acls=acls, log=None)
        many = 1000
        added, turns = await in_turns_of_the_loop(
            create_acls.handle(
                context(3),
                CreateAclsRequest(creations=[creation(each) for each in range(many)]),
                authorization,
            )
        )
        assert [each.error_code for each in added.results] == [ErrorCode.INVALID_REQUEST] + [0] * (many - 1)
        assert len(acls.rules) == many - 1
        assert turns >= many // 2
        filters = [filter_of(each) for each in range(2, 200)]
        removed, turns = await in_turns_of_the_loop(
            delete_acls.handle(context(3), DeleteAclsRequest(filters=filters), authorization)
        )
        assert [[each.principal for each in result.matching_acls] for result in removed.filter_results] == [
            [each.principal_filter] for each in filters
        ]
        assert len(acls.rules) == many - 1 - len(filters)
        assert turns >= len(filters) * (many // 2) // 100
        await acls.close()
        await store.close()

    asyncio.run(body())


def test_ends_of_epochs_are_looked_up_a_partition_at_a_time(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        wanted = [OffsetForLeaderPartition(partition=number % 2, leader_epoch=0) for number in range(MANY)]
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=wanted)])
        work = offset_for_leader_epoch.handle(context(4), request, broker.partitions, OPEN)
        answer, steps = in_steps(work)
        codes = [each.error_code for each in answer.topics[0].partitions]
        assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (MANY // 2)
        assert steps > MANY

    run(body)


def test_topics_that_are_not_there_are_described_one_at_a_time_and_sorted(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t-0100"), NewTopic("t-4000")])
        names = [f"t-{number:04}" for number in range(MANY)]
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in reversed(names)], response_partition_limit=2000
        )
        work = describe_topic_partitions.handle(context(0), request, broker.image, broker.config, OPEN)
        answer, steps = in_steps(work)
        assert [topic.name for topic in answer.topics] == names
        assert [topic.name for topic in answer.topics if not topic.error_code] == ["t-0100", "t-4000"]
        assert steps > MANY

    run(body)


def test_partitions_of_topics_that_are_not_there_are_refused_a_few_at_a_time(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        names = [f"t{number}" for number in range(MANY)]
        topics = [
            CreatePartitionsTopic(name=name, count=2, assignments=None)
            for name in ("t", *names, "twice", "twice")
        ]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=60_000)
        work = broker.call("create_partitions", request, 3)
        answer, turns = await in_turns_of_the_loop(work)
        codes = {each.name: each.error_code for each in answer.results}
        assert codes.pop("t") == 0
        assert codes.pop("twice") == ErrorCode.INVALID_REQUEST
        assert codes == dict.fromkeys(names, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        # Counted, sorted, tried and answered.
        assert turns >= 4 * (MANY // AT_MOST)

    run(body)


def test_leaders_are_elected_and_partitions_moved_a_few_at_a_time(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        elections = ElectLeadersRequest(
            election_type=0,
            topic_partitions=[TopicPartitions(topic="t", partitions=list(range(MANY)))],
            timeout_ms=60_000,
        )
        answer, turns = await in_turns_of_the_loop(broker.call("elect_leaders", elections, 2))
        (elected,) = answer.replica_election_results
        assert [each.partition_id for each in elected.partition_result] == list(range(MANY))
        assert elected.partition_result[0].error_code == ErrorCode.ELECTION_NOT_NEEDED
        assert elected.partition_result[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert turns >= 3 * (MANY // AT_MOST)
        targets = [ReassignablePartition(partition_index=index, replicas=[1]) for index in range(MANY)]
        moves = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name="t", partitions=targets)], timeout_ms=60_000
        )
        work = broker.call("alter_partition_reassignments", moves, 0)
        answer, turns = await in_turns_of_the_loop(work)
        (moved,) = answer.responses
        codes = [each.error_code for each in moved.partitions]
        assert codes == [0] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (MANY - 1)
        assert turns >= 3 * (MANY // AT_MOST)

    run(body)


@pytest.mark.parametrize("incremental", [False, True])
def test_configs_that_cannot_be_changed_are_refused_a_few_at_a_time(run: Run, incremental: bool) -> None:
    async def body(broker: Any) -> None:
        names = [f"t{number}" for number in range(MANY)]
        args = (broker.controller, broker.config, OPEN)
        work: Coroutine[Any, Any, Any]
        if incremental:
            edited = [AlterConfigsResource(resource_type=77, resource_name=name) for name in names]
            request = IncrementalAlterConfigsRequest(resources=edited)
            work = incremental_alter_configs.handle(context(1), request, *args)
        else:
            replaced = [Replaced(resource_type=77, resource_name=name) for name in names]
            work = alter_configs.handle(context(2), AlterConfigsRequest(resources=replaced), *args)
        answer: Any
        answer, turns = await in_turns_of_the_loop(work)
        assert [each.resource_name for each in answer.responses] == names
        assert {each.error_code for each in answer.responses} == {ErrorCode.INVALID_REQUEST}
        assert turns >= 4 * (MANY // AT_MOST)

    run(body)


def test_many_members_leave_in_parts() -> None:
    parts: list[list[str]] = []

    def leave(_: object, request: LeaveGroupRequest) -> Promise[LeaveGroupResponse]:
        parts.append([each.member_id for each in request.members])
        return Promise.of(
            LeaveGroupResponse(members=[MemberResponse(member_id=each.member_id) for each in request.members])
        )

    async def body() -> None:
        names = [f"m{number}" for number in range(1000)]
        request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=name) for name in names])
        groups: Any = SimpleNamespace(leave=leave)
        work: Any = leave_group.handle(context(5), request, groups)
        answer, turns = await in_turns_of_the_loop(work)
        assert [each.member_id for each in answer.members] == names == [*chain(*parts)]
        assert max(map(len, parts)) <= leave_group.MEMBERS_AT_ONCE
        assert turns >= len(parts)

    asyncio.run(body())
