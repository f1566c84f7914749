"""Batches whose compressed body is several frames: Python's clients read all that the broker stores."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import TopicPartition as LibrdkafkaPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from tests.rigs.framed_batches import COUNT, send_framed_batches, ten_records
from tests.rigs.raw_client import RawClient
from tests.rigs.raw_topic import RawTopic

from tidelog.client.consumer.consumer import Consumer
from tidelog.ids import TopicPartition

DEADLINE_S = 30.0

Values = list[bytes | None]


def read_with_librdkafka(bootstrap: str, topic: str, count: int) -> Values:
    consumer = LibrdkafkaConsumer({"bootstrap.servers": bootstrap, "group.id": "never-joined"})
    consumer.assign([LibrdkafkaPartition(topic, 0, 0)])
    values: Values = []
    deadline = time.monotonic() + DEADLINE_S
    try:
        while len(values) < count and time.monotonic() < deadline:
            for message in consumer.consume(count - len(values), timeout=0.2):
                assert message.error() is None, message.error()
                values.append(message.value())
    finally:
        consumer.close()
    return values


def read_with_kafka_python(bootstrap: str, topic: str, count: int) -> Values:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False)
    place = KafkaPythonPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    values: Values = []
    deadline = time.monotonic() + DEADLINE_S
    try:
        while len(values) < count and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=200).values():
                values += [each.value for each in records]
    finally:
        consumer.close()
    return values


def read_with_aiokafka(bootstrap: str, topic: str, count: int) -> Values:
    async def read() -> Values:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False)
        await consumer.start()
        try:
            place = AioTopicPartition(topic, 0)
            consumer.assign([place])
            consumer.seek(place, 0)
            values: Values = []
            deadline = time.monotonic() + DEADLINE_S
            while len(values) < count and time.monotonic() < deadline:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    values += [each.value for each in records]
            return values
        finally:
            await consumer.stop()

    return asyncio.run(read())


def read_with_tidelog(bootstrap: str, topic: str, count: int) -> Values:
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        values: Values = []
        deadline = time.monotonic() + DEADLINE_S
        while len(values) < count and time.monotonic() < deadline:
            values += [each.value for each in consumer.poll(0.2)]
        return values


READERS = {
    "librdkafka": read_with_librdkafka,
    "kafka-python": read_with_kafka_python,
    "aiokafka": read_with_aiokafka,
    "tidelog": read_with_tidelog,
}


@pytest.mark.parametrize("reader", READERS)
def test_every_stored_form_is_read_to_its_last_record(
    bootstrap: str, topic_name: Callable[[], str], reader: str
) -> None:
    topic = topic_name()
    with RawClient(*_place(bootstrap)) as client:
        count = send_framed_batches(RawTopic(client, topic))
    assert count > COUNT
    values = [each.value for each in ten_records()]
    assert READERS[reader](bootstrap, topic, count) == values * (count // COUNT)


def _place(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)
