from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.client.consumer.conftest import FetchService, ServedLog, batch, read

from tidelog.client.consumer.async_consumer import AsyncConsumer
from tidelog.client.consumer.errors import LogTruncationError, NoOffsetForPartitionError
from tidelog.client.subscription.offsets import OffsetAndMetadata
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.list_offsets import ListOffsetsResponse
from tidelog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tidelog.wire.schema import Payload

T0 = TopicPartition("t", 0)
Consume = Callable[..., None]


def ten_records(service: FetchService) -> None:
    service.logs[0] = ServedLog(*(batch(each, b"%d" % each, leader_epoch=1) for each in range(10)), end=10)
    elect(service, 1)


def elect(service: FetchService, epoch: int) -> None:
    service.broker.topics[0].partitions[0].leader_epoch = epoch


def epoch_ends(service: FetchService, *answers: tuple[int, int, int]) -> None:
    """Answers to OffsetForLeaderEpoch in order: error, epoch, end offset."""
    left = list(answers)

    def handle(request: Payload, version: int) -> Payload:
        error, epoch, end = left.pop(0)
        found = EpochEndOffset(error_code=error, partition=0, leader_epoch=epoch, end_offset=end)
        return OffsetForLeaderEpochResponse(
            topics=[OffsetForLeaderTopicResult(topic="t", partitions=[found])]
        )

    service.broker.handlers[ApiKey.OFFSET_FOR_LEADER_EPOCH] = handle


async def move_leader(consumer: AsyncConsumer, service: FetchService) -> None:
    """The partition gets a new leader, which fences the consumer's next fetch."""
    elect(service, 2)
    service.logs[0].answers = [{"error_code": ErrorCode.FENCED_LEADER_EPOCH}]


def test_a_new_leader_is_asked_whether_it_has_what_was_read(consume: Consume) -> None:
    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        epoch_ends(service, (0, 1, 10))
        await read(consumer, 10)
        await move_leader(consumer, service)
        while not service.broker.requests(ApiKey.OFFSET_FOR_LEADER_EPOCH):
            await consumer.poll(0.01)
        ((_, request),) = service.broker.requests(ApiKey.OFFSET_FOR_LEADER_EPOCH)
        asked = request.topics[0].partitions[0]
        assert (asked.current_leader_epoch, asked.leader_epoch) == (2, 1)
        assert await consumer.position(T0) == 10

    consume(action, ten_records)


def test_a_position_that_the_new_leader_has_lost_goes_back(consume: Consume) -> None:
    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        epoch_ends(service, (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1), (0, 1, 6), (0, 1, 6))
        await read(consumer, 10)
        await move_leader(consumer, service)
        assert [each.offset for each in await read(consumer, 4)] == [6, 7, 8, 9]

    consume(action, ten_records)


def test_lost_records_are_told_where_there_is_no_policy(consume: Consume) -> None:
    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        epoch_ends(service, (0, 1, 6))
        consumer.seek(T0, 0)
        await read(consumer, 10)
        await move_leader(consumer, service)
        with pytest.raises(LogTruncationError) as raised:
            await read(consumer, 1)
        assert raised.value.divergent_offsets == {T0: 6}
        consumer.seek(T0, 6)
        assert [each.offset for each in await read(consumer, 4)] == [6, 7, 8, 9]

    consume(action, ten_records, auto_offset_reset="none")


def test_a_broker_that_cannot_be_asked_is_trusted(consume: Consume) -> None:
    def prepare(service: FetchService) -> None:
        ten_records(service)
        service.broker.versions[ApiKey.OFFSET_FOR_LEADER_EPOCH] = (0, 1)

    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        await read(consumer, 10)
        await move_leader(consumer, service)
        service.logs[0].end = 11
        service.logs[0].data = batch(10, b"10", leader_epoch=2)
        assert [each.offset for each in await read(consumer, 1)] == [10]

    consume(action, prepare)


def test_a_seek_with_a_leader_epoch_is_validated_first(consume: Consume) -> None:
    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        epoch_ends(service, (0, 1, 10))
        consumer.seek(T0, OffsetAndMetadata(8, 1))
        assert [each.offset for each in await read(consumer, 2)] == [8, 9]
        assert len(service.broker.requests(ApiKey.OFFSET_FOR_LEADER_EPOCH)) == 1

    consume(action, ten_records)


def test_resets_are_tried_again_after_errors(consume: Consume) -> None:
    def prepare(service: FetchService) -> None:
        ten_records(service)
        working = service.list_offsets
        left = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH]

        def handle(request: Payload, version: int) -> Payload | None:
            response = working(request, version)
            assert isinstance(response, ListOffsetsResponse)
            if left:
                response.topics[0].partitions[0].error_code = left.pop(0)
            return response

        service.broker.handlers[ApiKey.LIST_OFFSETS] = handle

    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        assert len(await read(consumer, 10)) == 10
        assert len(service.broker.requests(ApiKey.LIST_OFFSETS)) == 3

    consume(action, prepare)


def test_without_a_policy_and_a_group_a_position_must_be_given(consume: Consume) -> None:
    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        with pytest.raises(NoOffsetForPartitionError):
            await consumer.poll(1)
        consumer.seek(T0, 3)
        assert (await read(consumer, 7))[0].offset == 3

    consume(action, ten_records, auto_offset_reset="none")
