"""librdkafka (confluent-kafka) as a load: so many records of a size in or out as fast as it goes."""

from __future__ import annotations

import time
from collections.abc import Mapping

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

CHUNK = 2000
TIMEOUT_S = 300
BATCHED: dict[str, int] = {"linger.ms": 5, "batch.size": 1_000_000}
SINGLE: dict[str, int] = {"linger.ms": 0, "batch.num.messages": 1}


def produce(
    addresses: str,
    topic: str,
    partitions: int,
    size: int,
    count: int,
    batching: dict[str, int] = BATCHED,
    security: Mapping[str, str] | None = None,
) -> tuple[int, float]:
    """Send at least `count` records with acks=all; gives how many it were and the seconds they took."""
    refused: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer(
        {
            "bootstrap.servers": addresses,
            "acks": "all",
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 500_000,
            # Told of failures alone: a call for each record would be what is measured.
            "delivery.report.only.error": True,
            "on_delivery": delivered,
            **batching,
            **(security or {}),
        }
    )
    chunks = [
        [{"value": bytes(size), "partition": partition} for _ in range(CHUNK)]
        for partition in range(partitions)
    ]
    began = time.perf_counter()
    sent = 0
    while sent < count:
        queued = producer.produce_batch(topic, chunks[sent // CHUNK % partitions])
        sent += queued
        producer.poll(0 if queued == CHUNK else 0.01)
    if producer.flush(TIMEOUT_S):
        raise TimeoutError(f"{topic}: not everything was acknowledged within {TIMEOUT_S} s")
    seconds = time.perf_counter() - began
    if refused:
        raise RuntimeError(f"{topic}: {len(refused)} records were refused, the first because of {refused[0]}")
    return sent, seconds


def consume(
    addresses: str, topic: str, partitions: int, count: int, security: Mapping[str, str] | None = None
) -> tuple[int, float]:
    """Read at least `count` records from the beginning; gives how many it were and the seconds they took."""
    consumer = Consumer(
        {
            "bootstrap.servers": addresses,
            "group.id": "never-joined",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1_000_000,
            "fetch.message.max.bytes": 4 << 20,
            **(security or {}),
        }
    )
    began = time.perf_counter()
    beginning = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([TopicPartition(topic, partition, beginning) for partition in range(partitions)])
    received = 0
    while received < count:
        received += len(consumer.consume(10_000, timeout=1))
        if time.perf_counter() - began > TIMEOUT_S:
            raise TimeoutError(f"{topic}: {received} of {count} records within {TIMEOUT_S} s")
    seconds = time.perf_counter() - began
    consumer.close()
    return received, seconds
