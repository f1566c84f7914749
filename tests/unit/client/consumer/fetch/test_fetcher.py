from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.client.consumer.conftest import FetchService, ServedLog, batch, read

from tidelog.client.consumer.async_consumer import AsyncConsumer
from tidelog.client.consumer.errors import OffsetOutOfRangeError
from tidelog.errors import CorruptRecordError, ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.fetch import EpochEndOffset, LeaderIdAndEpoch

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)

Consume = Callable[..., None]


def three_records(service: FetchService) -> None:
    service.logs[0] = ServedLog(batch(0, b"a", b"b"), batch(2, b"c"), end=3)


def fetches(service: FetchService) -> list[tuple[int, Any]]:
    found: list[tuple[int, Any]] = service.broker.requests(ApiKey.FETCH)
    return found


@pytest.mark.parametrize("version", [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18])
def test_every_version_of_fetch_is_spoken(consume: Consume, version: int) -> None:
    def prepare(service: FetchService) -> None:
        three_records(service)
        service.broker.versions[ApiKey.FETCH] = (4, version)

    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        assert [each.value for each in await read(consumer, 3)] == [b"a", b"b", b"c"]
        assert {seen for seen, _ in fetches(service)} == {version}

    consume(action, prepare)


def test_a_session_names_only_what_has_changed(consume: Consume) -> None:
    def prepare(service: FetchService) -> None:
        three_records(service)

    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        await read(consumer, 3)
        while len(fetches(service)) < 4:
            await consumer.poll(0.01)
        first, second, third = (request for _, request in fetches(service)[:3])
        assert (first.session_id, first.session_epoch) == (0, 0)
        assert [each.partition for each in first.topics[0].partitions] == [0, 1]
        assert second.session_epoch == 1
        assert [(each.partition, each.fetch_offset) for each in second.topics[0].partitions] == [(0, 3)]
        assert third.session_epoch == 2
        assert not third.topics
        assert {second.session_id, third.session_id} == {101}

    consume(action, prepare, partitions=2)


def test_a_session_that_the_broker_has_lost_begins_anew(consume: Consume) -> None:
    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        await read(consumer, 3)
        service.sessions.clear()
        service.logs[0] = ServedLog(batch(3, b"d"), end=4)
        assert [each.value for each in await read(consumer, 1)] == [b"d"]
        assert [request.session_epoch for _, request in fetches(service)].count(0) == 2

    consume(action, three_records)


def test_topics_without_an_id_are_fetched_by_name(consume: Consume) -> None:
    def prepare(service: FetchService) -> None:
        three_records(service)
        service.broker.topics.clear()
        service.broker.add_topic("t", 1)

    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        await read(consumer, 3)
        assert {version for version, _ in fetches(service)} == {12}

    consume(action, prepare)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_errors_that_pass_are_waited_out(consume: Consume, code: ErrorCode) -> None:
    def prepare(service: FetchService) -> None:
        three_records(service)
        service.logs[0].answers = [{"error_code": code}] * 3

    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        assert len(await read(consumer, 3)) == 3
        assert len(fetches(service)) >= 4

    consume(action, prepare)


def test_a_whole_request_that_is_refused_is_sent_again(consume: Consume) -> None:
    def prepare(service: FetchService) -> None:
        three_records(service)
        service.whole_answers = [ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR]

    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        assert len(await read(consumer, 3)) == 3

    consume(action, prepare)


def test_a_topic_that_may_not_be_read_is_an_error_each_time(consume: Consume) -> None:
    def prepare(service: FetchService) -> None:
        three_records(service)
        service.logs[0].answers = [{"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}] * 2

    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        for _ in range(2):
            with pytest.raises(KafkaError, match="may not read topic 't'"):
                await read(consumer, 1)
        assert len(await read(consumer, 3)) == 3

    consume(action, prepare)


def test_a_leader_named_with_the_error_is_asked_without_waiting_for_metadata(consume: Consume) -> None:
    def prepare(service: FetchService) -> None:
        three_records(service)
        hint = LeaderIdAndEpoch(leader_id=7, leader_epoch=5)
        service.logs[0].answers = [
            {"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER, "current_leader": hint},
        ]

    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        assert len(await read(consumer, 3)) == 3
        asked = [
            each for _, request in fetches(service) for topic in request.topics for each in topic.partitions
        ]
        assert asked[1].current_leader_epoch == 5

    consume(action, prepare, retry_backoff_ms=10_000, retry_backoff_max_ms=10_000)


def test_a_position_behind_the_log_is_reset_or_told(consume: Consume) -> None:
    async def reset(consumer: AsyncConsumer, service: FetchService) -> None:
        consumer.seek(T0, 99)
        assert [each.offset for each in await read(consumer, 3)] == [0, 1, 2]

    consume(reset, three_records)


def test_without_a_policy_a_position_out_of_range_is_told(consume: Consume) -> None:
    async def told(consumer: AsyncConsumer, service: FetchService) -> None:
        consumer.seek(T0, 99)
        with pytest.raises(OffsetOutOfRangeError) as raised:
            await read(consumer, 1)
        assert raised.value.offsets == {T0: 99}
        consumer.seek(T0, 2)
        assert [each.offset for each in await read(consumer, 1)] == [2]

    consume(told, three_records, auto_offset_reset="none")


def test_a_follower_that_the_leader_names_is_read_until_it_fails(consume: Consume) -> None:
    """The only broker is its own follower here: what counts is when the fetcher goes back to the leader."""

    def prepare(service: FetchService) -> None:
        three_records(service)
        service.logs[0].answers = [
            {"preferred_read_replica": 7, "records": b""},
            {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE},
        ]

    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        assert [each.offset for each in await read(consumer, 3)] == [0, 1, 2]
        assert [offset for _, offset in service.fetched_from[:3]] == [0, 0, 0]
        (_, first), *_ = fetches(service)
        assert first.rack_id == "here"

    consume(action, prepare, client_rack="here", auto_offset_reset="earliest")


def test_a_diverging_epoch_takes_the_position_back(consume: Consume) -> None:
    def prepare(service: FetchService) -> None:
        three_records(service)

    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        await read(consumer, 3)
        service.logs[0].answers = [{"diverging_epoch": EpochEndOffset(epoch=0, end_offset=1), "records": b""}]
        assert [each.offset for each in await read(consumer, 2)] == [1, 2]

    consume(action, prepare)


def test_records_that_fail_their_crc_are_refused_unless_told_otherwise(consume: Consume) -> None:
    broken = bytearray(batch(2, b"c"))
    broken[-1] ^= 1
    broken[-2] ^= 0xFF

    def prepare(service: FetchService) -> None:
        service.logs[0] = ServedLog(batch(0, b"a", b"b"), bytes(broken), end=3)

    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        assert len(await read(consumer, 2)) == 2
        for _ in range(2):
            with pytest.raises(CorruptRecordError, match="t-0, offset 2"):
                await read(consumer, 1)
        assert await consumer.position(T0) == 2

    consume(action, prepare)


def test_seeking_while_a_fetch_is_under_way_drops_its_answer(consume: Consume) -> None:
    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        await consumer.position(T0)
        consumer.seek(T0, 1)
        assert [each.offset for each in await read(consumer, 2)] == [1, 2]
        consumer.seek(T0, 2)
        assert [each.offset for each in await read(consumer, 1)] == [2]

    consume(action, three_records)


def test_a_partition_with_a_full_buffer_holds_its_broker_back(consume: Consume) -> None:
    def prepare(service: FetchService) -> None:
        service.logs[0] = ServedLog(*(batch(each, b"%d" % each) for each in range(100)), end=100)
        service.logs[1] = ServedLog(batch(0, b"other"), end=1)

    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        records = await read(consumer, 1)
        sent = len(fetches(service))
        for _ in range(5):
            records += await consumer.poll(0)
        assert len(records) == 6
        assert len(fetches(service)) == sent
        records += await read(consumer, 95)
        assert [each.offset for each in records if each.partition == 0] == list(range(100))
        assert [each.value for each in records if each.partition == 1] == [b"other"]

    consume(action, prepare, partitions=2, max_partition_fetch_bytes=100, max_poll_records=1)


def test_a_partition_that_moves_does_not_wait_for_a_long_poll(consume: Consume) -> None:
    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        service.broker.is_holding = True
        assert [each.offset for each in await read(consumer, 3)] == [0, 1, 2]
        while not service.broker.held:
            await consumer.poll(0.01)
        consumer.seek(T0, 1)
        assert [each.offset for each in await read(consumer, 2)] == [1, 2]
        _, aside = fetches(service)[1]
        assert (aside.session_id, aside.session_epoch) == (0, -1)
        assert service.broker.held == 1

    consume(action, three_records)


def test_closing_ends_the_session(consume: Consume) -> None:
    async def action(consumer: AsyncConsumer, service: FetchService) -> None:
        await read(consumer, 3)
        await consumer.close()
        assert not service.sessions

    consume(action, three_records)
