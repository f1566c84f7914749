"""librdkafka, through confluent-kafka: what a C, Go, Rust, .NET or Python program of today does."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypedDict

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec
from tests.rigs.delivered import key_of, partition_of

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
WAIT_S = 20.0


def create(bootstrap: str, name: str, partitions: int = 1, **config: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    spec = NewTopic(name, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()})
    admin.create_topics([spec])[name].result(WAIT_S)
    return name


def consumer(bootstrap: str, **config: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            **config,
        }
    )


def read(
    bootstrap: str,
    topic: str,
    count: int,
    offset: int = OFFSET_BEGINNING,
    partition: int = 0,
    **config: object,
) -> list[Message]:
    """Read `count` messages from one partition, or fail with what arrived."""
    client = consumer(bootstrap, **config)
    try:
        client.assign([TopicPartition(topic, partition, offset)])
        messages: list[Message] = []
        deadline = time.monotonic() + WAIT_S
        while len(messages) < count and time.monotonic() < deadline:
            for message in client.consume(count - len(messages), timeout=0.5):
                assert message.error() is None, message.error()
                messages.append(message)
        assert len(messages) == count
        return messages
    finally:
        client.close()


class Sent(TypedDict, total=False):
    """A record, as librdkafka takes it."""

    key: bytes | None
    value: bytes | None
    partition: int
    timestamp: int
    headers: list[tuple[str, str | bytes | None]]


def send(bootstrap: str, topic: str, records: list[Sent], **config: object) -> list[Message]:
    """Send all records and return the delivery reports in the order they came."""
    reports: list[Message] = []
    failures: list[KafkaError] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is None:
            reports.append(message)
        else:
            failures.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 15000, **config})
    for record in records:
        producer.produce(topic, on_delivery=report, **record)
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    assert not failures
    return reports


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_codec_and_acks_gives_back_the_same_records(
    bootstrap: str, topic_name: Callable[[], str], codec: str, acks: str
) -> None:
    topic = create(bootstrap, topic_name())
    records: list[Sent] = [
        {"key": f"k{i}".encode(), "value": (f"value {i} " * 20).encode(), "partition": 0} for i in range(200)
    ]
    send(bootstrap, topic, records, **{"compression.type": codec, "acks": acks, "linger.ms": 5})
    got = read(bootstrap, topic, len(records))
    assert [(m.key(), m.value()) for m in got] == [(r["key"], r["value"]) for r in records]
    assert [m.offset() for m in got] == list(range(len(records)))


def test_idempotent_producer_delivers_once_and_in_order(
    bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = create(bootstrap, topic_name())
    records: list[Sent] = [{"value": str(i).encode(), "partition": 0} for i in range(2000)]
    reports = send(bootstrap, topic, records, **{"enable.idempotence": True, "batch.num.messages": 50})
    assert [m.offset() for m in reports] == list(range(2000))
    assert [m.value() for m in read(bootstrap, topic, 2000)] == [r["value"] for r in records]


def test_headers_nulls_and_timestamps_survive(bootstrap: str, topic_name: Callable[[], str]) -> None:
    topic = create(bootstrap, topic_name())
    stamp = 1_600_000_000_123
    headers: list[tuple[str, str | bytes | None]] = [
        ("trace", b"\x00\xff"),
        ("trace", b"again"),
        ("empty", b""),
        ("null", None),
    ]
    send(
        bootstrap,
        topic,
        [
            {"key": None, "value": b"no key", "headers": headers, "timestamp": stamp, "partition": 0},
            {"key": b"tombstone", "value": None, "timestamp": stamp + 1, "partition": 0},
            {"key": b"", "value": b"", "timestamp": stamp + 2, "partition": 0},
        ],
    )
    first, second, third = read(bootstrap, topic, 3)
    assert first.key() is None
    assert first.headers() == headers
    assert first.timestamp() == (TIMESTAMP_CREATE_TIME, stamp)
    assert (second.key(), second.value()) == (b"tombstone", None)
    assert (third.key(), third.value()) == (b"", b"")


def test_one_megabyte_records_go_through_and_larger_ones_are_refused(
    bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = create(bootstrap, topic_name())
    big = bytes(range(256)) * 4000
    send(bootstrap, topic, [{"value": big, "partition": 0}], **{"message.max.bytes": 3_000_000})
    assert read(bootstrap, topic, 1)[0].value() == big
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 3_000_000})
    producer.produce(topic, b"x" * 1_500_000, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    assert [error and error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_consuming_from_offsets_and_timestamps(bootstrap: str, topic_name: Callable[[], str]) -> None:
    topic = create(bootstrap, topic_name())
    base = 1_700_000_000_000
    send(
        bootstrap,
        topic,
        [{"value": str(i).encode(), "timestamp": base + i * 1000, "partition": 0} for i in range(100)],
        **{"batch.num.messages": 7},
    )
    assert [m.value() for m in read(bootstrap, topic, 3, offset=42)] == [b"42", b"43", b"44"]
    client = consumer(bootstrap)
    try:
        wanted = [TopicPartition(topic, 0, base + 50_500)]
        assert client.offsets_for_times(wanted, timeout=WAIT_S)[0].offset == 51
        late = [TopicPartition(topic, 0, base + 10_000_000)]
        assert client.offsets_for_times(late, timeout=WAIT_S)[0].offset == -1
        assert client.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S) == (0, 100)
    finally:
        client.close()


def test_an_offset_beyond_the_end_is_reported_as_out_of_range(
    bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = create(bootstrap, topic_name())
    send(bootstrap, topic, [{"value": b"only", "partition": 0}])
    client = consumer(bootstrap)
    try:
        client.assign([TopicPartition(topic, 0, 1000)])
        message = client.poll(WAIT_S)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError._AUTO_OFFSET_RESET
    finally:
        client.close()


def test_log_append_time_is_the_brokers(bootstrap: str, topic_name: Callable[[], str]) -> None:
    topic = create(bootstrap, topic_name(), message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000) - 1000
    send(bootstrap, topic, [{"value": b"x", "timestamp": 5, "partition": 0}])
    kind, stamp = read(bootstrap, topic, 1)[0].timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert stamp >= before


def test_topics_are_created_on_first_use(bootstrap: str, topic_name: Callable[[], str]) -> None:
    topic = topic_name()
    send(bootstrap, topic, [{"value": b"hello"}])
    assert read(bootstrap, topic, 1)[0].value() == b"hello"


def test_keys_spread_over_partitions_and_stay_together(bootstrap: str, topic_name: Callable[[], str]) -> None:
    topic = create(bootstrap, topic_name(), partitions=6)
    records: list[Sent] = [{"key": f"k{i % 30}".encode(), "value": str(i).encode()} for i in range(600)]
    reports = send(bootstrap, topic, records)
    homes: dict[bytes, set[int]] = {}
    for message in reports:
        homes.setdefault(key_of(message), set()).add(partition_of(message))
    assert all(len(partitions) == 1 for partitions in homes.values())
    assert len({p for partitions in homes.values() for p in partitions}) > 1


def test_admin_calls(bootstrap: str, topic_name: Callable[[], str]) -> None:
    topic = create(bootstrap, topic_name(), partitions=2)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    metadata = admin.list_topics(topic, timeout=WAIT_S).topics[topic]
    assert sorted(metadata.partitions) == [0, 1]
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(WAIT_S)
    assert sorted(admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions) == [0, 1, 2, 3]
    cluster = admin.describe_cluster().result(WAIT_S)
    assert cluster.cluster_id
    assert cluster.controller is not None
    send(bootstrap, topic, [{"value": b"v", "partition": 0}] * 10)
    end = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()})
    assert next(iter(end.values())).result(WAIT_S).offset == 10
    admin.delete_records([TopicPartition(topic, 0, 4)])[TopicPartition(topic, 0)].result(WAIT_S)
    begin = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.earliest()})
    assert next(iter(begin.values())).result(WAIT_S).offset == 4
    deleted: Future[None] = admin.delete_topics([topic])[topic]
    deleted.result(WAIT_S)
    with pytest.raises(KafkaException) as refused:
        admin.delete_topics([topic])[topic].result(WAIT_S)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_creating_a_topic_twice_is_refused(bootstrap: str, topic_name: Callable[[], str]) -> None:
    topic = create(bootstrap, topic_name())
    with pytest.raises(KafkaException) as refused:
        create(bootstrap, topic)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS


def test_a_waiting_consumer_gets_a_record_the_moment_it_is_produced(
    bootstrap: str, topic_name: Callable[[], str]
) -> None:
    topic = create(bootstrap, topic_name())
    client = consumer(bootstrap, **{"fetch.wait.max.ms": 10_000, "fetch.min.bytes": 1})
    try:
        client.assign([TopicPartition(topic, 0, 0)])
        assert client.poll(1.0) is None
        send(bootstrap, topic, [{"value": b"late", "partition": 0}])
        message = client.poll(WAIT_S)
        assert message is not None
        assert message.value() == b"late"
    finally:
        client.close()
