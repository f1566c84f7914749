from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.rigs.waiting import until

from tidelog.controller.topics import NewTopic
from tidelog.errors import ErrorCode
from tidelog.ids import CONSUMER_OFFSETS_TOPIC
from tidelog.metadata.image import PartitionImage
from tidelog.replication.in_sync import LedPartition
from tidelog.replication.partition import Partition
from tidelog.replication.replication_context import ReplicationContext
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

Run = Callable[..., None]


class _NoIsrRequests:
    """Who is in sync stays as it is."""

    def submit(self, partition: LedPartition, isr: tuple[int, ...]) -> None:
        raise AssertionError(f"{partition} asks for {isr}")


async def _with_follower(broker: Any, topic: str, count: int) -> list[Partition]:
    """A topic of which broker 2 holds replicas, which have every record and start at 0."""
    broker.partitions._context = ReplicationContext(broker.clock, _NoIsrRequests(), lambda: {1, 2})
    await broker.controller.create_topics([NewTopic(topic, count)])
    partitions = [broker.partitions.get(topic, index) for index in range(count)]
    for partition in partitions:
        partition.apply(PartitionImage(replicas=(1, 2), leader=1, leader_epoch=1, isr=(1, 2)))
        partition.fetched_by(2, partition.log.log_end_offset, 0)
    return partitions


async def _delete(broker: Any, topic: str, index: int, offset: int, version: int = 2) -> tuple[int, int]:
    partition = DeleteRecordsPartition(partition_index=index, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])])
    response = await broker.call("delete_records", request, version)
    (result,) = response.topics[0].partitions
    assert (response.topics[0].name, result.partition_index) == (topic, index)
    return result.error_code, result.low_watermark


@pytest.mark.parametrize("version", range(3))
def test_the_log_starts_where_the_client_says(run: Run, version: int) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        partition = await broker.produce("t", 0, 10)
        assert await _delete(broker, "t", 0, 4, version) == (0, 4)
        assert partition.log.log_start_offset == 4
        assert await _delete(broker, "t", 0, 2, version) == (0, 4)
        assert await _delete(broker, "t", 0, -1, version) == (0, 10)

    run(body)


def test_the_last_offset_counts_for_a_partition_that_is_named_twice(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        await broker.produce("t", 0, 10)
        twice = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (5, 3)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=twice)])
        (result,) = (await broker.call("delete_records", request, 2)).topics[0].partitions
        assert (result.error_code, result.low_watermark) == (0, 3)

    run(body)


def test_offsets_outside_the_log_are_out_of_range(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        partition = await broker.produce("t", 0, 3)
        assert await _delete(broker, "t", 0, 4) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await _delete(broker, "t", 0, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert partition.log.log_start_offset == 0

    run(body)


def test_compacted_topics_keep_their_records_unless_they_delete_too(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics(
            [
                NewTopic("compact", configs={"cleanup.policy": "compact"}),
                NewTopic("both", configs={"cleanup.policy": "compact,delete"}),
            ]
        )
        assert await _delete(broker, "compact", 0, -1) == (ErrorCode.POLICY_VIOLATION, -1)
        assert await _delete(broker, "both", 0, -1) == (0, 0)

    run(body)


def test_unknown_partitions_and_internal_topics_are_refused(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t"), NewTopic(CONSUMER_OFFSETS_TOPIC)])
        assert await _delete(broker, "no", 0, -1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert await _delete(broker, "t", 5, -1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        refused = await _delete(broker, CONSUMER_OFFSETS_TOPIC, 0, -1)
        assert refused == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)

    run(body)


def test_the_new_start_survives_a_restart(run: Run) -> None:
    async def before(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        await broker.produce("t", 0, 10)
        await _delete(broker, "t", 0, 6)

    async def after(broker: Any) -> None:
        assert broker.partitions.get("t", 0).log.log_start_offset == 6

    run(before)
    run(after)


def test_records_of_many_partitions_are_deleted_in_several_turns_of_the_loop(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t", 250)])
        for index in (0, 249):
            await broker.produce("t", index, 10)
        wanted = [DeleteRecordsPartition(partition_index=index, offset=-1) for index in range(250)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=wanted)])
        task = asyncio.ensure_future(broker.call("delete_records", request, 2))
        turns = 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        partitions = task.result().topics[0].partitions
        assert [each.partition_index for each in partitions] == list(range(250))
        assert [each.low_watermark for each in partitions] == [10, *[0] * 248, 10]
        assert turns >= 3

    run(body)


def test_followers_that_delete_while_other_partitions_have_their_turn_are_noticed(run: Run) -> None:
    async def body(broker: Any) -> None:
        first, *_ = await _with_follower(broker, "t", 101)
        await broker.produce("t", 0, 1)
        first.fetched_by(2, 1, 0)
        wanted = [DeleteRecordsPartition(partition_index=index, offset=-1) for index in range(101)]
        # Without a wait: nobody tells of it again.
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=wanted)], timeout_ms=0)
        task = asyncio.ensure_future(broker.call("delete_records", request, 2))
        await until(lambda: first.log.log_start_offset == 1, poll_s=0)
        assert not task.done()
        first.fetched_by(2, 1, 1)
        partitions = (await task).topics[0].partitions
        assert {each.error_code for each in partitions} == {ErrorCode.NONE}
        assert [each.low_watermark for each in partitions] == [1, *[0] * 100]
        assert not first._waiters

    run(body)


def test_each_is_answered_when_its_follower_has_deleted_also_if_its_topic_is_named_twice(run: Run) -> None:
    async def body(broker: Any) -> None:
        (partition,) = await _with_follower(broker, "t", 1)
        await broker.produce("t", 0, 2)
        partition.fetched_by(2, 2, 0)
        topics = [
            DeleteRecordsTopic(
                name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
            )
            for offset in (1, 2)
        ]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=60_000)
        task = asyncio.ensure_future(broker.call("delete_records", request, 2))
        for start in (1, 2):
            await until(lambda: bool(partition._waiters) and not partition._waking, poll_s=0)
            assert not task.done()
            partition.fetched_by(2, 2, start)
        async with asyncio.timeout(30):
            response = await task
        found = [
            (each.error_code, each.low_watermark) for topic in response.topics for each in topic.partitions
        ]
        assert found == [(ErrorCode.NONE, 1), (ErrorCode.NONE, 2)]
        assert not partition._waiters

    run(body)
