"""A data directory's worth of history: codecs, rolled segments, idempotent producers, compaction, deletions.

`write` makes it through any broker; `read` gives what consumers see. The suites compare the two across
brokers, and hand the files to Kafka's tools.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.rigs.delivered import headers_of, offset_of, place_of

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
SEGMENT_BYTES = 1 << 20  # the least that Kafka 4 allows
COMPACTED = "compacted"
TRANSACTIONAL = "transactional"
TRIMMED_BEFORE = 100
TIMEOUT_S = 60.0
START_MS = int(time.time() * 1000) - 3_600_000


@dataclass(frozen=True)
class Seen:
    """A record as a consumer sees it."""

    offset: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


Contents = dict[tuple[str, int], list[Seen]]


def write(address: str) -> None:
    """Fill a broker; one topic has committed and aborted transactions."""
    rng = random.Random(7)
    create_topics(address)
    for codec in CODECS:
        _fill(
            address, f"codec-{codec}", 2, 1000, rng, {"compression.codec": codec, "enable.idempotence": True}
        )
    _fill(address, "acks-1", 1, 300, rng, {"acks": 1, "compression.codec": "lz4"})
    _fill(address, "appended", 1, 50, rng, {"compression.codec": "gzip"})
    _fill(address, "dots.and_under-scores-0", 1, 20, rng, {})
    _fill(address, "trimmed", 1, 200, rng, {})
    admin = AdminClient({"bootstrap.servers": address})
    _only(admin.delete_records([TopicPartition("trimmed", 0, TRIMMED_BEFORE)]))
    _write_compacted(address, rng)
    _write_transactions(address)


def create_topics(address: str) -> None:
    rolled = {"segment.bytes": str(SEGMENT_BYTES)}
    compact = {
        **rolled,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "86400000",
    }
    topics = [
        *(NewTopic(f"codec-{codec}", 2, 1, config=rolled) for codec in CODECS),
        NewTopic("acks-1", 1, 1, config={"index.interval.bytes": "1", **rolled}),
        NewTopic("appended", 1, 1, config={"message.timestamp.type": "LogAppendTime"}),
        NewTopic("dots.and_under-scores-0", 1, 1),
        NewTopic("trimmed", 1, 1),
        NewTopic("empty", 3, 1),
        NewTopic(COMPACTED, 1, 1, config=compact),
        NewTopic(TRANSACTIONAL, 2, 1),
    ]
    admin = AdminClient({"bootstrap.servers": address})
    for created in admin.create_topics(topics).values():
        created.result(TIMEOUT_S)


def open_producer(address: str, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": address, "linger.ms": 5, "batch.size": 20_000, **settings})


def _fill(
    address: str, topic: str, partitions: int, count: int, rng: random.Random, settings: dict[str, Any]
) -> None:
    producer = open_producer(address, **settings)
    for index in range(count * partitions):
        producer.produce(
            topic,
            partition=index % partitions,
            key=None if index % 7 == 0 else b"key-%d" % index,
            # Half of it compresses, so that batches go compressed; half does not, so that segments fill.
            value=None if index % 31 == 0 else rng.randbytes(rng.randrange(1, 3000)) + bytes(index % 3000),
            headers=[("index", b"%d" % index), ("none", None)] if index % 5 == 0 else None,
            timestamp=START_MS + index * 10,
        )
        producer.poll(0)
    flush_all(producer)


def _write_compacted(address: str, rng: random.Random) -> None:
    """40 keys written over and over, some deleted; waits until the cleaner has been there."""
    producer = open_producer(address, **{"compression.codec": "zstd", "enable.idempotence": True})
    for index in range(4000):
        value = None if index % 97 == 0 else rng.randbytes(600) + bytes(600)
        producer.produce(
            COMPACTED, partition=0, key=b"key-%d" % rng.randrange(40), value=value, timestamp=START_MS + index
        )
        producer.poll(0)
    flush_all(producer)
    deadline = time.monotonic() + TIMEOUT_S
    while len(read(address, [(COMPACTED, 0)])[COMPACTED, 0]) > 3000:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the cleaner did not compact {COMPACTED} within {TIMEOUT_S} s")
        time.sleep(0.5)


def _write_transactions(address: str) -> None:
    producer = open_producer(address, **{"transactional.id": "compat", "compression.codec": "lz4"})
    producer.init_transactions(TIMEOUT_S)
    for number in range(6):
        producer.begin_transaction()
        for index in range(10):
            producer.produce(TRANSACTIONAL, partition=index % 2, key=b"txn-%d" % number, value=b"%d" % index)
        if number % 3 == 2:
            producer.flush(TIMEOUT_S)  # so that there is something in the log to abort
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)


def flush_all(producer: Producer) -> None:
    left = producer.flush(TIMEOUT_S)
    if left:
        raise TimeoutError(f"{left} records were not acknowledged within {TIMEOUT_S} s")


def partitions(address: str) -> list[tuple[str, int]]:
    listed = AdminClient({"bootstrap.servers": address}).list_topics(timeout=TIMEOUT_S)
    return [
        (name, index)
        for name, topic in sorted(listed.topics.items())
        if not name.startswith("__")
        for index in sorted(topic.partitions)
    ]


def topic_ids(address: str) -> dict[str, str]:
    """Topic ids as Kafka writes them, by topic."""
    names = sorted({topic for topic, _ in partitions(address)})
    admin = AdminClient({"bootstrap.servers": address})
    described = admin.describe_topics(TopicCollection(names))
    plain = str.maketrans("+/", "-_", "=")
    return {name: str(each.result(TIMEOUT_S).topic_id).translate(plain) for name, each in described.items()}


def read(
    address: str, wanted: list[tuple[str, int]] | None = None, isolation: str = "read_committed"
) -> Contents:
    """Every record of the given partitions (all of them, if none are given), from the first to the last."""
    wanted = partitions(address) if wanted is None else wanted
    contents: Contents = {each: [] for each in wanted}
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "never-joined",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign(
        [TopicPartition(topic, index, confluent_kafka.OFFSET_BEGINNING) for topic, index in wanted]
    )
    unfinished = set(wanted)
    deadline = time.monotonic() + TIMEOUT_S
    while unfinished:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no end of {sorted(unfinished)} within {TIMEOUT_S} s")
        for message in consumer.consume(1000, timeout=0.5):
            error = message.error()
            if error is None:
                contents[place_of(message)].append(_seen(message))
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                unfinished.discard(place_of(message))
            else:
                raise KafkaException(error)
    consumer.close()
    return contents


def _seen(message: confluent_kafka.Message) -> Seen:
    headers = tuple(headers_of(message) or [])
    return Seen(offset_of(message), message.timestamp(), message.key(), message.value(), headers)


def latest_by_key(records: list[Seen]) -> dict[bytes | None, bytes | None]:
    """What compaction must keep: the last value of each key."""
    return {each.key: each.value for each in records}


def _only(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(TIMEOUT_S)
