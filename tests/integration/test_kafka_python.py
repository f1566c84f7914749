"""kafka-python: the pure-Python client."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import TopicAlreadyExistsError

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


def create(bootstrap: str, name: str, partitions: int = 1) -> str:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics([NewTopic(name, partitions, 1)])
    finally:
        admin.close()
    return name


def read(
    bootstrap: str, topic: str, count: int, offset: int = 0, partition: int = 0
) -> list[tuple[object, ...]]:
    client = KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False, consumer_timeout_ms=20_000
    )
    try:
        place = TopicPartition(topic, partition)
        client.assign([place])
        client.seek(place, offset)
        rows: list[tuple[object, ...]] = []
        for message in client:
            rows.append((message.offset, message.key, message.value, tuple(message.headers)))
            if len(rows) == count:
                break
        assert len(rows) == count
        return rows
    finally:
        client.close()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_codec_and_acks_gives_back_the_same_records(
    bootstrap: str, topic_name: Callable[[], str], codec: str | None, acks: int | str
) -> None:
    topic = create(bootstrap, topic_name())
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=codec, acks=acks, enable_idempotence=False, linger_ms=5
    )
    expected = []
    for i in range(100):
        key, value = f"k{i}".encode(), f"value {i}".encode() * 10
        producer.send(topic, key=key, value=value, headers=[("n", str(i).encode())], partition=0)
        expected.append((i, key, value, (("n", str(i).encode()),)))
    producer.flush(20)
    producer.close()
    assert read(bootstrap, topic, 100) == expected


def test_idempotent_producer_reports_consecutive_offsets(
    bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = create(bootstrap, topic_name())
    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, acks="all")
    futures = [producer.send(topic, value=str(i).encode(), partition=0) for i in range(300)]
    producer.flush(20)
    assert [future.get(20).offset for future in futures] == list(range(300))
    producer.close()
    assert [row[2] for row in read(bootstrap, topic, 300)] == [str(i).encode() for i in range(300)]


def test_null_keys_values_and_a_megabyte(bootstrap: str, topic_name: Callable[[], str]) -> None:
    topic = create(bootstrap, topic_name())
    producer = KafkaProducer(bootstrap_servers=bootstrap, max_request_size=2_000_000)
    big = b"\x07" * 1_000_000
    producer.send(topic, key=b"gone", value=None, partition=0).get(20)
    producer.send(topic, key=None, value=big, partition=0).get(20)
    producer.close()
    rows = read(bootstrap, topic, 2)
    assert rows[0][1:3] == (b"gone", None)
    assert rows[1][1:3] == (None, big)


def test_offsets_by_time_and_ends(bootstrap: str, topic_name: Callable[[], str]) -> None:
    topic = create(bootstrap, topic_name())
    base = 1_650_000_000_000
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for i in range(20):
        producer.send(topic, value=b"x", timestamp_ms=base + i * 10, partition=0)
    producer.flush(20)
    producer.close()
    client = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    try:
        place = TopicPartition(topic, 0)
        found = client.offsets_for_times({place: base + 95})[place]
        assert (found.offset, found.timestamp) == (10, base + 100)
        assert client.beginning_offsets([place]) == {place: 0}
        assert client.end_offsets([place]) == {place: 20}
        assert topic in client.topics()
        assert client.partitions_for_topic(topic) == {0}
    finally:
        client.close()


def test_creating_a_topic_twice_is_refused(bootstrap: str, topic_name: Callable[[], str]) -> None:
    topic = create(bootstrap, topic_name())
    with pytest.raises(TopicAlreadyExistsError):
        create(bootstrap, topic)
