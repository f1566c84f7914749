from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidelog.client.cluster import Cluster
from tidelog.client.partitioner import RoundRobinPartitioner
from tidelog.client.simple_producer import RecordMetadata, SimpleProducer
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition, random_uuid
from tidelog.records.batch import iter_batches
from tidelog.records.record import Record, decode_batch
from tidelog.testing.clock import ManualClock
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)


class Written:
    """Takes Produce requests and keeps what a real broker would have written."""

    def __init__(self, broker: Any, *errors: ErrorCode) -> None:
        self.records: dict[int, list[Record]] = {}
        self.acks: list[int] = []
        self.versions: list[int] = []
        self.fields: dict[str, Any] = {}
        self._errors = list(errors)
        broker.handlers[ApiKey.PRODUCE] = self.answer

    def answer(self, request: ProduceRequest, version: int) -> ProduceResponse | None:
        self.acks.append(request.acks)
        self.versions.append(version)
        [topic] = request.topic_data
        [data] = topic.partition_data
        answer = PartitionProduceResponse(index=data.index, **self.fields)
        if self._errors:
            answer.error_code = self._errors.pop(0)
        else:
            log = self.records.setdefault(data.index, [])
            answer.base_offset = len(log)
            for position, _ in iter_batches(data.records or b""):
                log += decode_batch(data.records or b"", position)
        if request.acks == 0:
            return None
        return ProduceResponse(
            responses=[
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[answer])
            ]
        )

    def values(self, partition: int = 0) -> list[bytes | None]:
        return [record.value for record in self.records.get(partition, [])]


def run(broker: Any, action: Any, **options: Any) -> None:
    async def main() -> None:
        async with (
            broker,
            Cluster(broker.address, retry_backoff_ms=1) as cluster,
            SimpleProducer(cluster, **options) as producer,
        ):
            await action(producer)

    asyncio.run(main())


def test_records_keep_everything_and_their_futures_tell_where_they_went(scripted_broker: Any) -> None:
    scripted_broker.add_topic("a")
    written = Written(scripted_broker)

    async def action(producer: SimpleProducer) -> None:
        first = await producer.send("a", b"v", key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=99)
        second = await producer.send("a", None)
        await producer.flush()
        assert first.result() == RecordMetadata(TopicPartition("a", 0), 0, 99)
        assert second.result() == RecordMetadata(TopicPartition("a", 0), 1, 1_700_000_000_000)

    run(scripted_broker, action, clock=ManualClock())
    assert written.records[0][0] == Record(0, 99, b"k", b"v", (("h", b"1"), ("h", None)))
    assert written.values() == [b"v", None]


def test_order_is_kept_through_retries(scripted_broker: Any) -> None:
    scripted_broker.add_topic("a")
    written = Written(
        scripted_broker, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS
    )

    async def action(producer: SimpleProducer) -> None:
        for number in range(50):
            await producer.send("a", b"%d" % number)

    run(scripted_broker, action, batch_size=60, linger_ms=0)
    answered = [int(value or b"") for value in written.values()]
    assert answered == sorted(answered)
    assert answered[-1] == 49


def test_a_refused_batch_fails_its_records_and_the_next_goes_on(scripted_broker: Any) -> None:
    scripted_broker.add_topic("a")
    written = Written(scripted_broker, ErrorCode.MESSAGE_TOO_LARGE)

    async def action(producer: SimpleProducer) -> None:
        bad = await producer.send("a", b"bad")
        await producer.flush()
        good = await producer.send("a", b"good")
        await producer.flush()
        assert isinstance(bad.exception(), KafkaError)
        assert good.result().offset == 0

    run(scripted_broker, action)
    assert written.values() == [b"good"]


def test_the_record_that_the_broker_names_is_in_the_error(scripted_broker: Any) -> None:
    scripted_broker.add_topic("a")
    written = Written(scripted_broker, ErrorCode.INVALID_RECORD)
    named = BatchIndexAndErrorMessage(batch_index=3, batch_index_error_message="no key")
    written.fields = {"record_errors": [named], "error_message": "one or more records"}

    async def action(producer: SimpleProducer) -> None:
        sent = await producer.send("a", b"v")
        await producer.flush()
        assert str(sent.exception()) == "INVALID_RECORD: one or more records (record 3 of the batch: no key)"

    run(scripted_broker, action)


def test_acks_zero_waits_for_no_answer(scripted_broker: Any) -> None:
    scripted_broker.add_topic("a")
    written = Written(scripted_broker)

    async def action(producer: SimpleProducer) -> None:
        sent = await producer.send("a", b"v")
        await producer.flush()
        assert sent.result().offset == -1

    run(scripted_broker, action, acks=0)
    assert written.acks == [0]


def test_topic_ids_are_used_only_where_the_broker_has_told_one(scripted_broker: Any) -> None:
    scripted_broker.add_topic("named")
    scripted_broker.add_topic("known", topic_id=random_uuid())
    written = Written(scripted_broker)

    async def action(producer: SimpleProducer) -> None:
        for topic in ("named", "known"):
            await producer.send(topic, b"v")
            await producer.flush()

    run(scripted_broker, action)
    assert written.versions == [12, 13]


def test_the_broker_s_append_time_is_the_record_s_timestamp(scripted_broker: Any) -> None:
    scripted_broker.add_topic("a")
    Written(scripted_broker).fields = {"log_append_time_ms": 123}

    async def action(producer: SimpleProducer) -> None:
        sent = await producer.send("a", b"v", timestamp=5)
        await producer.flush()
        assert sent.result().timestamp == 123

    run(scripted_broker, action)


def test_a_partition_that_does_not_exist_is_refused_before_anything_is_sent(scripted_broker: Any) -> None:
    scripted_broker.add_topic("a", 2)

    async def action(producer: SimpleProducer) -> None:
        with pytest.raises(KafkaError, match="no partition 2, only 0 to 1"):
            await producer.send("a", b"v", partition=2)

    run(scripted_broker, action)


def test_an_unknown_topic_is_an_error_after_the_wait_for_it(scripted_broker: Any) -> None:
    async def action(producer: SimpleProducer) -> None:
        with pytest.raises(KafkaError, match="topic 'none' does not exist"):
            await producer.send("none", b"v")

    run(scripted_broker, action, topic_wait_ms=300)


def test_round_robin_spreads_keyless_records(scripted_broker: Any) -> None:
    scripted_broker.add_topic("a", 3)
    written = Written(scripted_broker)

    async def action(producer: SimpleProducer) -> None:
        for number in range(6):
            await producer.send("a", b"%d" % number)

    run(scripted_broker, action, partitioner=RoundRobinPartitioner)
    assert {index: len(log) for index, log in written.records.items()} == {0: 2, 1: 2, 2: 2}


def test_send_waits_while_the_buffer_is_full(scripted_broker: Any) -> None:
    scripted_broker.add_topic("a")
    written = Written(scripted_broker)
    buffered: list[int] = []

    async def action(producer: SimpleProducer) -> None:
        for _ in range(20):
            await producer.send("a", b"x" * 100)
            buffered.append(producer.buffered_bytes)

    run(scripted_broker, action, buffer_memory=300, batch_size=200, linger_ms=0)
    assert max(buffered) < 300 + 200
    assert len(written.values()) == 20
