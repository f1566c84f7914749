"""Records through librdkafka: produce and consume throughput, and the broker's CPU per GB of record data.

librdkafka through confluent-kafka, idempotence off, acks=all. The client needs more CPU than the broker
here, so records per second are bounded by the client on machines with few cores; the CPU per GB is the
broker's own.
"""

from __future__ import annotations

import time
from pathlib import Path

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.compat.broker_process import BrokerProcess

from benchmarks.contestants import create_topic, started
from benchmarks.figures import Figures
from benchmarks.request_cost import warm_up

NAME = "throughput"
PARTITIONS = 2
CHUNK = 2000
TIMEOUT_S = 300


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    with started(contestant, root) as broker:
        total = (150 if quick else 600) * 1_000_000
        warm_up(broker)
        for size in (100, 1000):
            topic = f"records-{size}"
            create_topic(broker, topic, PARTITIONS)
            _produce(broker, figures, "warm-up", topic, size, total // size // 10)
            count = total // size
            _produce(broker, figures, "produce", topic, size, count)
            _consume(broker, figures, topic, size, count)
        create_topic(broker, "singles", PARTITIONS)
        _produce(broker, figures, "warm-up", "singles", 100, 2000, batched=False)
        _produce(broker, figures, "unbatched", "singles", 100, 20_000 if quick else 80_000, batched=False)
        figures.add(NAME, contestant, "RSS after this load", broker.rss_bytes() / 1e6, "MB", "lower")


def _produce(
    broker: BrokerProcess,
    figures: Figures,
    kind: str,
    topic: str,
    size: int,
    count: int,
    *,
    batched: bool = True,
) -> None:
    batching = (
        {"linger.ms": 5, "batch.size": 1_000_000} if batched else {"linger.ms": 0, "batch.num.messages": 1}
    )
    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "acks": "all",
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 500_000,
            **batching,
        }
    )
    chunks = [
        [{"value": bytes(size), "partition": partition} for _ in range(CHUNK)]
        for partition in range(PARTITIONS)
    ]
    before, started_at = broker.cpu_seconds(), time.perf_counter()
    sent = 0
    while sent < count:
        queued = producer.produce_batch(topic, chunks[sent // CHUNK % PARTITIONS])
        sent += queued
        producer.poll(0 if queued == CHUNK else 0.01)
    if producer.flush(TIMEOUT_S):
        raise TimeoutError(f"{broker.label} did not acknowledge everything within {TIMEOUT_S} s")
    seconds, used = time.perf_counter() - started_at, broker.cpu_seconds() - before
    if kind == "produce":
        _report(broker, figures, f"produce {size} B", size, sent, seconds, used)
    elif kind == "unbatched":
        figures.add(
            NAME, broker.label, "produce 100 B, one per request", sent / seconds, "records/s", "higher"
        )
        figures.add(NAME, broker.label, "CPU per such request", used / sent * 1e6, "µs", "lower")


def _consume(broker: BrokerProcess, figures: Figures, topic: str, size: int, count: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "never-joined",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1_000_000,
            "fetch.message.max.bytes": 4 << 20,
        }
    )
    before, started_at = broker.cpu_seconds(), time.perf_counter()
    consumer.assign(
        [
            TopicPartition(topic, partition, confluent_kafka.OFFSET_BEGINNING)
            for partition in range(PARTITIONS)
        ]
    )
    received = 0
    while received < count:
        received += len(consumer.consume(10_000, timeout=1))
        if time.perf_counter() - started_at > TIMEOUT_S:
            raise TimeoutError(f"{broker.label} gave {received} of {count} records within {TIMEOUT_S} s")
    seconds, used = time.perf_counter() - started_at, broker.cpu_seconds() - before
    consumer.close()
    _report(broker, figures, f"consume {size} B", size, received, seconds, used)


def _report(
    broker: BrokerProcess, figures: Figures, name: str, size: int, count: int, seconds: float, used: float
) -> None:
    figures.add(NAME, broker.label, name, count / seconds, "records/s", "higher")
    figures.add(NAME, broker.label, f"{name}, data", count * size / seconds / 1e6, "MB/s", "higher")
    figures.add(NAME, broker.label, f"{name}, broker CPU", used / (count * size / 1e9), "s/GB", "lower")
