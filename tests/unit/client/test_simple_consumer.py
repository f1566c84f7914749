from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidelog.client.cluster import Cluster
from tidelog.client.resources import OffsetSpec
from tidelog.client.simple_consumer import SimpleConsumer
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition, Uuid, random_uuid
from tidelog.records.record import Record, encode_batch
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

A0 = TopicPartition("a", 0)
START, END = 3, 8


class Log:
    """One partition that holds offsets 3 to 7; errors may be queued for the next fetches."""

    def __init__(self, broker: Any, *errors: ErrorCode) -> None:
        self.errors = list(errors)
        self.fetched: list[tuple[int, str, Uuid]] = []
        broker.handlers[ApiKey.FETCH] = self.fetch
        broker.handlers[ApiKey.LIST_OFFSETS] = self.list_offsets

    def fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        [topic] = request.topics
        [part] = topic.partitions
        self.fetched.append((version, topic.topic, topic.topic_id))
        data = PartitionData(partition_index=0, high_watermark=END, log_start_offset=START)
        if self.errors:
            data.error_code = self.errors.pop(0)
        elif not START <= part.fetch_offset <= END:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif part.fetch_offset < END:
            offset = part.fetch_offset
            data.records = encode_batch([Record(timestamp=1, value=b"%d" % offset)], base_offset=offset)
        answer = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[data])
        return FetchResponse(responses=[answer])

    def list_offsets(self, request: Any, version: int) -> ListOffsetsResponse:
        [part] = request.topics[0].partitions
        offset = START if part.timestamp == OffsetSpec.EARLIEST else END
        found = ListOffsetsPartitionResponse(partition_index=0, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="a", partitions=[found])])


def run(broker: Any, action: Any, **options: Any) -> None:
    async def main() -> None:
        async with broker, Cluster(broker.address, retry_backoff_ms=1, retry_backoff_max_ms=5) as cluster:
            await action(SimpleConsumer(cluster, **options))

    asyncio.run(main())


async def offsets(consumer: SimpleConsumer, polls: int) -> list[int]:
    return [record.offset for _ in range(polls) for record in await consumer.poll()]


@pytest.fixture
def broker(scripted_broker: Any) -> Any:
    scripted_broker.add_topic("a")
    return scripted_broker


@pytest.mark.parametrize(
    ("start", "expected"),
    [(OffsetSpec.EARLIEST, [3, 4, 5, 6, 7]), (5, [5, 6, 7]), (OffsetSpec.LATEST, []), (8, [])],
)
def test_reading_starts_where_it_was_told_to(broker: Any, start: Any, expected: list[int]) -> None:
    Log(broker)

    async def action(consumer: SimpleConsumer) -> None:
        await consumer.assign({A0: start})
        assert await offsets(consumer, 6) == expected
        assert consumer.position(A0) == 8
        assert consumer.high_watermark(A0) == 8

    run(broker, action)


def test_seek_goes_back(broker: Any) -> None:
    Log(broker)

    async def action(consumer: SimpleConsumer) -> None:
        await consumer.assign({A0: 7})
        assert await offsets(consumer, 1) == [7]
        consumer.seek(A0, 4)
        assert await offsets(consumer, 2) == [4, 5]

    run(broker, action)


def test_a_position_outside_the_log_is_an_error_that_names_what_is_there(broker: Any) -> None:
    Log(broker)

    async def action(consumer: SimpleConsumer) -> None:
        await consumer.assign({A0: 100})
        with pytest.raises(KafkaError, match="a-0 holds offsets 3 to 8, not 100"):
            await consumer.poll()

    run(broker, action)


def test_with_a_reset_a_position_outside_the_log_moves_to_its_edge(broker: Any) -> None:
    Log(broker)

    async def action(consumer: SimpleConsumer) -> None:
        await consumer.assign({A0: 0})
        assert await offsets(consumer, 2) == [3]

    run(broker, action, offset_reset=OffsetSpec.EARLIEST)


def test_a_moved_leader_is_found_again_and_nothing_is_skipped(broker: Any) -> None:
    Log(broker, ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

    async def action(consumer: SimpleConsumer) -> None:
        await consumer.assign({A0: 3})
        assert await offsets(consumer, 8) == [3, 4, 5, 6, 7]

    run(broker, action)


def test_trouble_that_lasts_is_raised_in_the_end(broker: Any) -> None:
    Log(broker, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 1000)

    async def action(consumer: SimpleConsumer) -> None:
        await consumer.assign({A0: 3})
        with pytest.raises(KafkaError, match="a-0 does not exist"):
            await offsets(consumer, 1000)

    run(broker, action, patience_ms=30)


def test_errors_that_do_not_pass_are_raised_at_once(broker: Any) -> None:
    Log(broker, ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    async def action(consumer: SimpleConsumer) -> None:
        await consumer.assign({A0: 3})
        with pytest.raises(KafkaError, match="topic authorization failed"):
            await consumer.poll()

    run(broker, action)


def test_topics_are_fetched_by_id_where_there_is_one_and_by_name_where_not(scripted_broker: Any) -> None:
    topic_id = random_uuid()
    log = Log(scripted_broker)

    async def action(consumer: SimpleConsumer) -> None:
        for known in (Uuid(bytes(16)), topic_id):
            scripted_broker.topics = []
            scripted_broker.add_topic("a", topic_id=known)
            await consumer.assign({A0: 3})
            assert await offsets(consumer, 1) == [3]

    run(scripted_broker, action)
    assert log.fetched == [(12, "a", bytes(16)), (18, "", topic_id)]
