"""Commits and fetches of the simulation's consumers, down to what they want to know."""

from __future__ import annotations

from collections import defaultdict

from tests.simulation.coordination import Coordination
from tests.simulation.group_history import GroupHistory

from tidelog.coordinator.group.offsets import requests
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slices import run_to_end
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)

COMMIT_VERSION = 9
Codes = dict[TopicPartition, ErrorCode]


def commit(
    broker: Coordination,
    history: GroupHistory,
    group_id: str,
    member_id: str,
    generation: int,
    offsets: dict[TopicPartition, int],
) -> Promise[Codes]:
    """OffsetCommit: what became of each partition; errors of the coordinator itself fail the reply.

    The history hears of it when the broker answers, whenever that reaches the member.
    """
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for (topic, index), offset in offsets.items():
        by_topic[topic].append(OffsetCommitRequestPartition(partition_index=index, committed_offset=offset))
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic, topic_id=broker.image.topics[topic].id, partitions=partitions
            )
            for topic, partitions in by_topic.items()
        ],
    )

    def refused(error: Exception) -> Codes:
        if isinstance(error, KafkaError) and error.code not in _RETRIED:
            return dict.fromkeys(offsets, error.code)
        raise error

    def acknowledge(settled: Promise[Codes]) -> None:
        for partition, code in settled.result().items() if settled.error is None else ():
            if code is ErrorCode.NONE:
                history.committed(partition, offsets[partition])
            else:
                history.refused_commits += 1

    reply = broker.groups.write(
        group_id, lambda shard: requests.commit(shard.offsets, request, COMMIT_VERSION)
    )
    codes = reply.then(_codes).recover(refused)
    codes.when_done(acknowledge)
    return codes


def fetch(
    broker: Coordination, group_id: str, partitions: list[TopicPartition]
) -> Promise[dict[TopicPartition, int]]:
    """OffsetFetch: the committed offset of each partition, -1 where there is none."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        by_topic[topic].append(index)
    request = OffsetFetchRequestGroup(
        group_id=group_id,
        topics=[
            OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic.items()
        ],
    )
    reply = run_to_end(
        broker.groups.read_in_slices(
            group_id, lambda shard: requests.fetch(shard.offsets, request, require_stable=False)
        )
    )
    return reply.then(_offsets)


_RETRIED = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


def _codes(response: OffsetCommitResponse) -> Codes:
    return {
        TopicPartition(topic.name, each.partition_index): ErrorCode(each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }


def _offsets(response: OffsetFetchResponseGroup) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, each.partition_index): each.committed_offset
        for topic in response.topics
        for each in topic.partitions
    }
