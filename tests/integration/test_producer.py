"""The producers against a real broker; librdkafka's consumer is the witness of what was written."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, Message
from confluent_kafka import TopicPartition as Assigned
from confluent_kafka.admin import AdminClient, NewTopic
from tests.rigs.delivered import key_of, partition_of

from tidelog.client.errors import ClientClosedError, RequestTimeoutError
from tidelog.client.producer import (
    AsyncProducer,
    BufferExhaustedError,
    Producer,
    ProducerFencedError,
    ProducerInterceptor,
    ProducerRecord,
    RecordMetadata,
    TransactionAbortedError,
    TransactionStateError,
)
from tidelog.client.serialization import SerializationError
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition

WAIT_S = 30


def read(bootstrap: str, topic: str, *, committed: bool = False) -> dict[int, list[Message]]:
    """All records of ``topic`` up to its end, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "witness",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "fetch.queue.backoff.ms": 1,
        }
    )
    try:
        partitions = list(consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions)
        consumer.assign([Assigned(topic, partition, 0) for partition in partitions])
        found: dict[int, list[Message]] = {partition: [] for partition in partitions}
        at_end: set[int] = set()
        deadline = time.monotonic() + WAIT_S
        while len(at_end) < len(partitions):
            assert time.monotonic() < deadline, f"{topic} was not read to its end: {found}"
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() is None:
                found[partition_of(message)].append(message)
            else:
                at_end.add(partition_of(message))
        return found
    finally:
        consumer.close()


def values(bootstrap: str, topic: str, *, committed: bool = False) -> list[bytes | None]:
    return [each.value() for log in read(bootstrap, topic, committed=committed).values() for each in log]


@pytest.fixture
def new_topic(bootstrap: str, topic_name: Callable[[], str]) -> Callable[..., str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(partitions: int = 1, **config: str) -> str:
        name = topic_name()
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        admin.create_topics([topic])[name].result(WAIT_S)
        return name

    return create


@pytest.fixture
def producer(bootstrap: str) -> Iterator[Producer]:
    with Producer(bootstrap_servers=bootstrap) as made:
        yield made


def test_a_future_tells_where_its_record_went(
    bootstrap: str, producer: Producer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    first = producer.send(topic, b"one", b"key", headers=[("h", b"1"), ("n", None)], timestamp_ms=1234)
    second = producer.send(topic, None, b"key")
    assert first.result(WAIT_S) == RecordMetadata(topic, 0, 0, 1234, 3, 3)
    assert second.result(WAIT_S).offset == 1
    assert second.result().serialized_value_size == -1
    assert first.done()
    assert first.exception() is None
    [one, two] = read(bootstrap, topic)[0]
    assert (one.key(), one.value(), one.timestamp()) == (b"key", b"one", (TIMESTAMP_CREATE_TIME, 1234))
    assert one.headers() == [("h", b"1"), ("n", None)]
    assert two.value() is None


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_codec_and_acks_writes_what_was_sent(
    bootstrap: str, new_topic: Callable[..., str], codec: Any, acks: Any
) -> None:
    topic = new_topic()
    sent = [b"value %d " % index * 5 for index in range(500)]
    with Producer(bootstrap_servers=bootstrap, compression_type=codec, acks=acks) as producer:
        futures = [producer.send(topic, value) for value in sent]
    offsets = [future.result(0).offset for future in futures]
    assert offsets == ([-1] * 500 if acks == "0" else list(range(500)))
    deadline = time.monotonic() + WAIT_S
    while values(bootstrap, topic) != sent:
        assert acks == "0", "acknowledged records are missing"
        assert time.monotonic() < deadline


def test_records_keep_their_order_per_partition_and_keys_their_partition(
    bootstrap: str, producer: Producer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=5)
    count = 20_000
    for index in range(count):
        producer.send(topic, b"%d" % index, b"key-%d" % (index % 50))
    producer.flush(WAIT_S)
    homes: dict[bytes, set[int]] = defaultdict(set)
    total = 0
    for partition, log in read(bootstrap, topic).items():
        numbers = [int(message.value() or b"") for message in log]
        assert numbers == sorted(numbers)
        total += len(numbers)
        for message in log:
            homes[key_of(message)].add(partition)
    assert total == count
    assert all(len(partitions) == 1 for partitions in homes.values())


def test_keyless_records_are_spread_over_partitions_in_whole_batches(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=4)
    with Producer(bootstrap_servers=bootstrap, batch_size=2000) as producer:
        futures = [producer.send(topic, b"x" * 100) for _ in range(5000)]
    counts = Counter(future.result(0).partition for future in futures)
    assert set(counts) == {0, 1, 2, 3}
    changes = sum(
        before.result(0).partition != after.result(0).partition for before, after in pairwise(futures)
    )
    assert changes < 5000 / 15


def test_threads_send_at_once_without_losing_or_mixing_records(
    bootstrap: str, producer: Producer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=3)

    def work(number: int) -> None:
        for index in range(3000):
            producer.send(topic, b"%d %d" % (number, index), b"%d" % number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    producer.flush(WAIT_S)
    seen: dict[int, list[int]] = defaultdict(list)
    for log in read(bootstrap, topic).values():
        for message in log:
            number, index = map(int, (message.value() or b"").split())
            seen[number].append(index)
    assert seen == {number: list(range(3000)) for number in range(4)}


def test_callbacks_are_called_once_per_record_and_may_send(
    bootstrap: str, producer: Producer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    heard: list[tuple[int, Exception | None]] = []
    answered = threading.Event()

    def on_delivery(metadata: RecordMetadata, error: Exception | None) -> None:
        heard.append((metadata.offset, error))
        if len(heard) == 100:
            producer.send(topic, b"from a callback", on_delivery=lambda *_: answered.set())

    for index in range(100):
        producer.send(topic, b"%d" % index, on_delivery=on_delivery)
    producer.flush(WAIT_S)
    assert answered.wait(WAIT_S)
    assert heard == [(offset, None) for offset in range(100)]


def test_a_batch_that_is_too_large_for_the_topic_is_split(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(**{"max.message.bytes": "5000"})
    with Producer(bootstrap_servers=bootstrap, batch_size=100_000, linger_ms=50) as producer:
        futures = [producer.send(topic, b"%03d" % index + b"x" * 500) for index in range(200)]
        producer.flush(WAIT_S)
        assert producer.metrics()["batch-split-total"] > 0
    assert [future.result(0).offset for future in futures] == list(range(200))
    assert [value[:3] for value in values(bootstrap, topic) if value] == [b"%03d" % i for i in range(200)]


def test_a_record_that_no_split_makes_small_enough_fails_alone(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(**{"max.message.bytes": "2000"})
    with Producer(bootstrap_servers=bootstrap, linger_ms=50) as producer:
        futures = [producer.send(topic, b"x" * size) for size in (100, 5000, 200)]
        producer.flush(WAIT_S)
    assert futures[0].result(0).has_offset
    assert futures[2].result(0).has_offset
    with pytest.raises(KafkaError) as refused:
        futures[1].result(0)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_what_cannot_be_sent_is_refused_by_send_itself(
    producer: Producer, new_topic: Callable[..., str], bootstrap: str
) -> None:
    topic = new_topic()
    producer.send(topic, b"known").result(WAIT_S)
    with pytest.raises(SerializationError, match="str cannot be sent"):
        producer.send(topic, "text")  # type: ignore[arg-type]
    with pytest.raises(SerializationError, match="int cannot be sent"):
        producer.send(topic, b"", key=7)  # type: ignore[arg-type]
    with pytest.raises(KafkaError, match="is larger than"):
        producer.send(topic, b"x" * (2 << 20))
    with pytest.raises(KafkaError, match="no valid topic name"):
        producer.send("no/topic", b"")
    hasty = Producer(bootstrap_servers=bootstrap, max_block_ms=200)
    with hasty, pytest.raises(KafkaError, match="has no partition 9"):
        hasty.send(topic, b"", partition=9)
    producer.close()
    with pytest.raises(ClientClosedError):
        producer.send(topic, b"late")


def test_serializers_interceptors_and_own_partitioners_are_used(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=3)
    acknowledged: list[int] = []

    class Tagging(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return ProducerRecord(record.topic, {"tagged": record.value}, record.key)

        def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
            acknowledged.append(metadata.partition)

    def by_length(
        topic: str,
        key: str,
        key_bytes: bytes,
        value: object,
        value_bytes: bytes,
        count: int,
        available: object,
    ) -> int:
        assert (key.encode(), json.dumps(value, separators=(",", ":")).encode()) == (key_bytes, value_bytes)
        return len(key) % count

    with Producer(
        bootstrap_servers=bootstrap,
        value_serializer="json",
        key_serializer="str",
        partitioner_class=by_length,
        interceptor_classes=[Tagging()],
    ) as producer:
        for key in ("a", "bb", "ccc"):
            producer.send(topic, 1, key)
        producer.send(ProducerRecord(topic, 2, "dddd"))
    written = {
        (partition, message.key(), message.value())
        for partition, log in read(bootstrap, topic).items()
        for message in log
    }
    assert written == {
        (1, b"a", b'{"tagged":1}'),
        (2, b"bb", b'{"tagged":1}'),
        (0, b"ccc", b'{"tagged":1}'),
        (1, b"dddd", b'{"tagged":2}'),
    }
    assert sorted(acknowledged) == [0, 1, 1, 2]


def test_nobody_there_is_told_with_what_was_waited_for() -> None:
    producer = Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=300)
    with producer, pytest.raises(RequestTimeoutError, match="topic 'nowhere'"):
        producer.send("nowhere", b"x")


def test_close_with_a_deadline_fails_what_is_left(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    producer = Producer(bootstrap_servers=bootstrap, linger_ms=60_000, delivery_timeout_ms=120_000)
    producer.send(topic, b"first")
    late = producer.send(topic, b"second")
    producer.close(timeout=0)
    with pytest.raises(ClientClosedError):
        late.result(0)


# -- asyncio


def test_the_async_producer_sends_without_blocking_the_loop(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)

    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
            first = await producer.send(topic, b"0", b"k")
            assert first.offset == 0
            futures = [producer.send(topic, b"%d" % index, b"k") for index in range(1, 2000)]
            results = await asyncio.gather(*futures)
            assert [result.offset for result in results] == list(range(1, 2000))
            assert len(await producer.partitions_for(topic)) == 2

    asyncio.run(main())
    [log] = [log for log in read(bootstrap, topic).values() if log]
    assert [message.value() for message in log] == [b"%d" % index for index in range(2000)]


def test_async_records_that_wait_for_room_keep_their_order(
    bootstrap: str, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()

    async def main() -> None:
        async with AsyncProducer(
            bootstrap_servers=bootstrap, buffer_memory=20_000, batch_size=5000
        ) as producer:
            futures = []
            for index in range(300):
                futures.append(producer.send(topic, b"%d" % index + b"x" * 300))
                await producer.drain()
            with contextlib.suppress(BufferExhaustedError):
                while len(futures) < 10_000:
                    futures.append(producer.send(topic, b"%d" % len(futures) + b"x" * 300))
            assert len(futures) < 10_000
            results = await asyncio.gather(*futures)
            assert [result.offset for result in results] == list(range(len(futures)))

    asyncio.run(main())
    written = [int((value or b"").rstrip(b"x")) for value in values(bootstrap, topic)]
    assert written == list(range(len(written)))
    assert len(written) >= 300


# -- Arrow


def test_tables_go_where_single_records_would(bootstrap: str, new_topic: Callable[..., str]) -> None:
    pa = pytest.importorskip("pyarrow")
    one, two = new_topic(partitions=5), new_topic(partitions=5)
    keys = [b"key-%d" % (index % 40) for index in range(5000)]
    payload = [b"value-%d" % index for index in range(5000)]
    stamps = list(range(1000, 6000))
    table = pa.table({"key": keys, "value": payload, "timestamp": pa.array(stamps, pa.int64())})
    with Producer(bootstrap_servers=bootstrap, compression_type="lz4") as producer:
        written = producer.send_arrow(table, one).result(WAIT_S)
        for key, value, stamp in zip(keys, payload, stamps, strict=True):
            producer.send(two, value, key, timestamp_ms=stamp)
    assert sum(piece.rows for piece in written) == 5000

    def contents(topic: str) -> dict[int, list[tuple[object, ...]]]:
        return {
            partition: [(each.key(), each.value(), each.timestamp()) for each in log]
            for partition, log in read(bootstrap, topic).items()
        }

    assert contents(one) == contents(two)


def test_a_table_larger_than_the_buffer_waits_for_room(bootstrap: str, new_topic: Callable[..., str]) -> None:
    pa = pytest.importorskip("pyarrow")
    topic, other = new_topic(), new_topic(partitions=3)
    table = pa.table({"value": [b"%06d" % index for index in range(20_000)]})

    async def main() -> None:
        async with AsyncProducer(
            bootstrap_servers=bootstrap, buffer_memory=30_000, batch_size=5000
        ) as producer:
            written = await (await producer.send_arrow(table, topic, partition=0))
            assert written[0].offset == 0
            assert sum(piece.rows for piece in written) == 20_000

    with Producer(bootstrap_servers=bootstrap, buffer_memory=30_000, batch_size=5000) as producer:
        future = producer.send_arrow(table, other)
        pieces = future.result(WAIT_S)
    assert {piece.partition for piece in pieces} == {0, 1, 2}
    assert future.done()
    assert future.exception() is None
    asyncio.run(main())
    assert values(bootstrap, topic) == [b"%06d" % index for index in range(20_000)]


# -- transactions


@pytest.fixture
def transactional(bootstrap: str, topic_name: Callable[[], str]) -> Iterator[Producer]:
    with Producer(bootstrap_servers=bootstrap, transactional_id=topic_name()) as made:
        made.init_transactions()
        yield made


def test_metrics_tell_what_was_sent_by_topic_and_how_long_transactions_take(
    transactional: Producer, new_topic: Callable[..., str], topic_name: Callable[[], str]
) -> None:
    topic = new_topic()
    with transactional.transaction():
        for _ in range(50):
            transactional.send(topic, bytes(100), partition=0)
        transactional.flush()
        transactional.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, topic_name())
    transactional.begin_transaction()
    transactional.abort_transaction()
    figures = transactional.metrics()
    # As in Java, a batch that is sent again counts again: a new topic's leader may refuse the first.
    sent = 50 + figures["record-retry-total"]
    assert figures["record-send-total"] == figures[f"record-send-total{{topic={topic}}}"] == sent
    assert figures["record-error-total"] == figures[f"record-error-total{{topic={topic}}}"] == 0
    assert figures["byte-total"] == figures[f"byte-total{{topic={topic}}}"] > 5000
    assert figures["compression-rate-avg"] == figures[f"compression-rate{{topic={topic}}}"] == 1
    assert 100 < figures["record-size-avg"] <= figures["record-size-max"] < 130
    assert 0 < figures["request-latency-avg"] <= figures["request-latency-max"]
    assert figures["records-per-request-avg"] >= 1
    assert figures["requests-in-flight"] == 0
    for call in ("flush", "txn-init", "txn-begin", "txn-send-offsets", "txn-commit", "txn-abort"):
        assert figures[f"{call}-time-ns-total"] > 0
    groups = {name.group for name in figures}
    assert groups >= {"producer-metrics", "producer-topic-metrics", "producer-node-metrics"}


def test_a_transaction_becomes_visible_as_a_whole_or_not_at_all(
    bootstrap: str, new_topic: Callable[..., str], topic_name: Callable[[], str]
) -> None:
    one, two = new_topic(partitions=2), new_topic()
    # Nothing leaves by itself: what the abort finds unsent is the record after the flush, and that alone.
    transactional = Producer(bootstrap_servers=bootstrap, transactional_id=topic_name(), linger_ms=60_000)
    transactional.init_transactions()
    with transactional.transaction():
        for index in range(10):
            transactional.send(one, b"yes", partition=index % 2)
        transactional.send(two, b"yes")
    with contextlib.suppress(ZeroDivisionError), transactional.transaction():
        transactional.send(one, b"no", partition=0)
        transactional.flush(WAIT_S)
        lost = transactional.send(two, b"no")
        raise ZeroDivisionError
    with pytest.raises(TransactionAbortedError):
        lost.result(WAIT_S)
    with transactional.transaction():
        pass
    with transactional.transaction():
        transactional.send(two, b"again")
    transactional.close()
    assert values(bootstrap, one, committed=True) == [b"yes"] * 10
    assert values(bootstrap, two, committed=True) == [b"yes", b"again"]
    assert values(bootstrap, one).count(b"no") == 1


def test_offsets_are_committed_with_the_transaction(
    bootstrap: str, transactional: Producer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    group = f"group-of-{topic}"
    partition = TopicPartition(topic, 0)

    def committed() -> int:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        try:
            return int(consumer.committed([Assigned(topic, 0)], timeout=WAIT_S)[0].offset)
        finally:
            consumer.close()

    with transactional.transaction():
        transactional.send(topic, b"x")
        transactional.send_offsets_to_transaction({partition: 5}, group)
    assert committed() == 5
    transactional.begin_transaction()
    transactional.send_offsets_to_transaction({partition: 9}, group)
    transactional.abort_transaction()
    assert committed() == 5


def test_a_table_is_part_of_the_transaction(
    bootstrap: str, transactional: Producer, new_topic: Callable[..., str]
) -> None:
    pa = pytest.importorskip("pyarrow")
    topic = new_topic()
    with transactional.transaction():
        transactional.send_arrow(pa.table({"value": [b"1", b"2"]}), topic)
    transactional.begin_transaction()
    transactional.send_arrow(pa.table({"value": [b"3"]}), topic)
    transactional.abort_transaction()
    assert values(bootstrap, topic, committed=True) == [b"1", b"2"]


def test_a_newer_producer_fences_the_older_one(
    bootstrap: str, transactional: Producer, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    transactional.begin_transaction()
    transactional.send(topic, b"old").result(WAIT_S)
    name = transactional.config.str("transactional.id")
    with Producer(bootstrap_servers=bootstrap, transactional_id=name) as newer:
        newer.init_transactions()
        with newer.transaction():
            newer.send(topic, b"new")
    with pytest.raises(KafkaError) as fenced:
        transactional.commit_transaction()
    assert fenced.value.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
    with pytest.raises(ProducerFencedError):
        transactional.begin_transaction()
    assert values(bootstrap, topic, committed=True) == [b"new"]


def test_calls_out_of_order_are_refused_and_change_nothing(
    bootstrap: str, new_topic: Callable[..., str], topic_name: Callable[[], str]
) -> None:
    topic = new_topic()
    with Producer(bootstrap_servers=bootstrap, transactional_id=topic_name()) as producer:
        with pytest.raises(TransactionStateError):
            producer.begin_transaction()
        with pytest.raises(TransactionStateError, match="init_transactions"):
            producer.send(topic, b"x")
        producer.init_transactions()
        with pytest.raises(TransactionStateError, match="begin_transaction"):
            producer.send(topic, b"x")
        with pytest.raises(TransactionStateError):
            producer.commit_transaction()
        with pytest.raises(TransactionStateError):
            producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, "g")
        producer.begin_transaction()
        with pytest.raises(TransactionStateError):
            producer.begin_transaction()
        producer.send(topic, b"in order")
        producer.commit_transaction()
        with pytest.raises(TransactionStateError):
            producer.send(topic, b"x")
    with Producer(bootstrap_servers=bootstrap) as plain, pytest.raises(TransactionStateError):
        plain.init_transactions()
    assert values(bootstrap, topic, committed=True) == [b"in order"]


def test_the_async_producer_has_the_same_transactions(
    bootstrap: str, new_topic: Callable[..., str], topic_name: Callable[[], str]
) -> None:
    topic = new_topic()

    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=bootstrap, transactional_id=topic_name()) as producer:
            await producer.init_transactions()
            for number in range(5):
                async with producer.transaction():
                    producer.send(topic, b"%d" % number)
            with contextlib.suppress(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send(topic, b"no")
                    raise ZeroDivisionError

    asyncio.run(main())
    assert values(bootstrap, topic, committed=True) == [b"0", b"1", b"2", b"3", b"4"]


def test_closing_aborts_the_open_transaction(
    bootstrap: str, new_topic: Callable[..., str], topic_name: Callable[[], str]
) -> None:
    topic = new_topic()
    with Producer(bootstrap_servers=bootstrap, transactional_id=topic_name()) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"never").result(WAIT_S)
    assert values(bootstrap, topic, committed=True) == []
    assert values(bootstrap, topic) == [b"never"]
