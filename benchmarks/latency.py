"""End-to-end latency: from handing one record to a producer until a waiting consumer has it.

"bare socket" has one connection waiting in a long poll while another produces; "librdkafka" adds the client's
threads.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from pathlib import Path

import confluent_kafka
from confluent_kafka import Consumer, Producer, TopicPartition
from foreign.broker_process import BrokerProcess

from benchmarks import wire
from benchmarks.contestants import create_topic, started
from benchmarks.figures import Figures
from benchmarks.request_cost import warm_up

NAME = "latency"


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    count = 1000 if quick else 5000
    with started(contestant, root) as broker:
        warm_up(broker)
        for client, samples in (
            ("librdkafka", librdkafka(broker, count)),
            ("bare socket", _bare(broker, count)),
        ):
            cuts = statistics.quantiles(samples, n=100)
            figures.add(NAME, contestant, f"end to end, {client}, p50", cuts[49] * 1e3, "ms", "lower")
            figures.add(NAME, contestant, f"end to end, {client}, p99", cuts[98] * 1e3, "ms", "lower")


def librdkafka(
    broker: BrokerProcess, count: int, address: str = "", security: Mapping[str, str] | None = None
) -> list[float]:
    """Seconds from producer to consumer; ``address`` and ``security`` where it is not the plain listener."""
    create_topic(broker, "latency")
    known = {"bootstrap.servers": address or broker.address, **(security or {})}
    producer = Producer({**known, "linger.ms": 0, "acks": "all"})
    consumer = Consumer(
        {
            **known,
            "group.id": "never-joined",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition("latency", 0, confluent_kafka.OFFSET_BEGINNING)])
    samples = []
    for index in range(count + count // 5):
        started_at = time.perf_counter()
        producer.produce("latency", b"x" * 100, partition=0)
        message = consumer.poll(30)
        if message is None or message.error():
            raise RuntimeError(f"{broker.label} lost record {index}: {message and message.error()}")
        samples.append(time.perf_counter() - started_at)
        producer.poll(0)
    consumer.close()
    return samples[count // 5 :]


def _bare(broker: BrokerProcess, count: int) -> list[float]:
    """A long poll waits on one connection while the record is produced on another."""
    topic_id = create_topic(broker, "bare")
    request = wire.produce_request(topic_id, 0, bytes(wire.batch(1, 100)))
    samples = []
    with wire.connect(broker.port) as producer, wire.connect(broker.port) as consumer:
        for offset in range(count + count // 5):
            consumer.sendall(wire.fetch_request(topic_id, 0, offset, 1 << 20, max_wait_ms=30_000))
            started_at = time.perf_counter()
            producer.sendall(request)
            size = int.from_bytes(wire.read_exactly(consumer, 4), "big")
            answer = wire.read_exactly(consumer, size)
            samples.append(time.perf_counter() - started_at)
            if answer[wire.FETCH_ERROR_AT : wire.FETCH_ERROR_AT + 2] != b"\x00\x00":
                raise RuntimeError(f"{broker.label} answers a fetch at {offset} with an error")
            wire.read_exactly(producer, int.from_bytes(wire.read_exactly(producer, 4), "big"))
    return samples[count // 5 :]
