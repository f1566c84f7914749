"""Plans for resetting offsets, against a broker whose partitions have offsets 10 to 20."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidelog.client._network.cluster import Cluster
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.offset_reset import (
    Adjustment,
    NothingCommittedError,
    ResetPlan,
    ResetTarget,
    ShiftBy,
    ToCurrent,
    ToOffset,
    ToOffsets,
    ToPlace,
    ToTime,
)
from tidelog.client.resources import OffsetSpec
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
GONE = TopicPartition("gone", 0)
START, END = 10, 20
PLACES = {OffsetSpec.EARLIEST: START, OffsetSpec.LATEST: END, 1000: 15, 9999: -1}


@pytest.fixture
def broker(scripted_broker: Any) -> Any:
    """Topic ``a`` with two partitions; group ``g`` has committed 15 in a-0 and something in a lost topic."""
    scripted_broker.add_topic("a", 2)
    scripted_broker.handlers[ApiKey.FIND_COORDINATOR] = lambda request, version: FindCoordinatorResponse(
        coordinators=[Coordinator(key="g", node_id=7, host="127.0.0.1", port=scripted_broker.port)]
    )
    scripted_broker.handlers[ApiKey.LIST_OFFSETS] = lambda request, version: ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, offset=PLACES[each.timestamp]
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
    committed = {A0: 15, GONE: 3}
    scripted_broker.handlers[ApiKey.OFFSET_FETCH] = lambda request, version: OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(
                group_id="g",
                topics=[
                    OffsetFetchResponseTopics(
                        name=p.topic,
                        partitions=[
                            OffsetFetchResponsePartitions(
                                partition_index=p.partition, committed_offset=offset
                            )
                        ],
                    )
                    for p, offset in committed.items()
                ],
            )
        ]
    )
    return scripted_broker


def plan(broker: Any, partitions: list[TopicPartition] | None, target: ResetTarget) -> ResetPlan:
    async def main() -> ResetPlan:
        async with broker, Cluster(broker.address, retry_backoff_ms=1, api_timeout_ms=30_000) as cluster:
            return await AsyncAdmin.of(cluster).plan_offset_reset("g", partitions, target)

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (ToPlace(OffsetSpec.EARLIEST), [(START, ""), (START, "")]),
        (ToPlace(OffsetSpec.LATEST), [(END, ""), (END, "")]),
        (ToOffset(12), [(12, ""), (12, "")]),
        (ToOffset(START), [(START, ""), (START, "")]),
        (ToOffset(END), [(END, ""), (END, "")]),
        (ToOffset(3), [(START, Adjustment.TO_START), (START, Adjustment.TO_START)]),
        (ToOffset(99), [(END, Adjustment.TO_END), (END, Adjustment.TO_END)]),
        (ToTime(1000), [(15, ""), (15, "")]),
        (ToTime(9999), [(END, Adjustment.NO_YOUNGER_RECORD), (END, Adjustment.NO_YOUNGER_RECORD)]),
        (ToCurrent(), [(15, ""), (END, Adjustment.NO_COMMIT)]),
    ],
    ids=repr,
)
def test_offsets_go_where_asked_or_to_the_nearest_end_of_the_log(
    broker: Any, target: ResetTarget, expected: list[tuple[int, str]]
) -> None:
    planned = plan(broker, [A0, A1], target).offsets
    assert [(each.new, each.adjustment) for each in planned] == expected
    assert [each.current for each in planned] == [15, None]
    assert [each.change for each in planned] == [expected[0][0] - 15, None]


@pytest.mark.parametrize(("count", "new"), [(2, 17), (-2, 13), (99, END), (-99, START), (0, 15)])
def test_committed_offsets_are_shifted_within_the_log(broker: Any, count: int, new: int) -> None:
    [planned] = plan(broker, [A0], ShiftBy(count)).offsets
    assert planned.new == new


def test_what_is_not_committed_cannot_be_shifted(broker: Any) -> None:
    with pytest.raises(NothingCommittedError, match="a-1 cannot be shifted"):
        plan(broker, [A0, A1], ShiftBy(1))


def test_a_file_of_offsets_names_the_partitions_itself(broker: Any) -> None:
    planned = plan(broker, None, ToOffsets({A1: 99, A0: 11})).offsets
    assert [(each.partition, each.new) for each in planned] == [(A0, 11), (A1, END)]


def test_all_topics_are_those_committed_and_lost_ones_are_told(broker: Any) -> None:
    found = plan(broker, None, ToPlace(OffsetSpec.EARLIEST))
    assert [each.partition for each in found.offsets] == [A0]
    assert found.gone == (GONE,)


def test_a_partition_that_is_named_must_exist_and_have_a_leader(broker: Any) -> None:
    with pytest.raises(KafkaError, match="topic 'a' has no partition 7"):
        plan(broker, [A0, TopicPartition("a", 7)], ToOffset(1))
    broker.topics.append(
        MetadataResponseTopic(name="b", partitions=[MetadataResponsePartition(leader_id=-1)])
    )
    with pytest.raises(KafkaError, match="has no leader") as refused:
        plan(broker, [TopicPartition("b", 0)], ToOffset(1))
    assert refused.value.code is ErrorCode.LEADER_NOT_AVAILABLE
