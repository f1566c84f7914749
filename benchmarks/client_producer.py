"""Python producers: records per second, and CPU of the client's process per record.

Each client runs in its own process and sends the same values without keys to a topic of two partitions until
all are acknowledged (``acks=all``). All use batches of up to 1 MB (librdkafka's default; every client is
slower with the usual 16 KB) and a linger of 5 ms; clients that support idempotence use it. On few cores the
broker competes with the client, so compare the CPU per record.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.contestants import create_topic, started
from benchmarks.figures import Figures

NAME = "client-producer"
PARTITIONS = 2
TIMEOUT_S = 300
BATCH_BYTES = 1_000_000
LINGER_MS = 5
WARM_UP = 4
"""A quarter as many records go first, unmeasured: connections, code and memory are warm then."""
SLOW = ("kafka-python", "aiokafka")


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    with started(contestant, root) as broker:
        total = (50 if quick else 200) * 1_000_000
        for size in (100, 1000):
            for client in CLIENTS:
                topic = f"{client.replace(', ', '-')}-{size}"
                create_topic(broker, topic, PARTITIONS)
                count = total // size // (5 if client in SLOW else 1)
                seconds, used = _run(client, broker.address, topic, size, count)
                name = f"{size} B to {broker.label}"
                figures.add(NAME, client, name, count / seconds, "records/s", "higher")
                figures.add(NAME, client, f"{name}, CPU", used / count * 1e6, "µs/record", "lower")


def _run(client: str, bootstrap: str, topic: str, size: int, count: int) -> tuple[float, float]:
    arguments = [client, bootstrap, topic, str(size), str(count)]
    command = [sys.executable, "-m", "benchmarks.client_producer", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
    seconds, used = json.loads(done.stdout.splitlines()[-1])
    return seconds, used


class Meter:
    """Wall clock and CPU of this process, all threads."""

    def __init__(self) -> None:
        self.result = (0.0, 0.0)

    def begin(self) -> None:
        self._started = time.perf_counter(), time.process_time()

    def end(self) -> None:
        wall, cpu = self._started
        self.result = time.perf_counter() - wall, time.process_time() - cpu


Client = Callable[[str, str, bytes, int, Meter], None]


def tidelog(bootstrap: str, topic: str, value: bytes, count: int, meter: Meter) -> None:
    from tidelog import Producer

    with Producer(bootstrap_servers=bootstrap, batch_size=BATCH_BYTES, linger_ms=LINGER_MS) as producer:
        for number in (count // WARM_UP, count):
            meter.begin()
            for _ in range(number):
                producer.send(topic, value)
            producer.flush()
            meter.end()
        assert producer.metrics()["record-error-total"] == 0


def tidelog_async(bootstrap: str, topic: str, value: bytes, count: int, meter: Meter) -> None:
    from tidelog import AsyncProducer

    async def run() -> None:
        async with AsyncProducer(
            bootstrap_servers=bootstrap, batch_size=BATCH_BYTES, linger_ms=LINGER_MS
        ) as producer:
            for number in (count // WARM_UP, count):
                meter.begin()
                for index in range(number):
                    producer.send(topic, value)
                    if index % 500 == 0:
                        await producer.drain()
                await producer.flush()
                meter.end()

    import uvloop

    uvloop.run(run())


def tidelog_arrow(bootstrap: str, topic: str, value: bytes, count: int, meter: Meter) -> None:
    import pyarrow as pa

    from tidelog import Producer

    rows = 10_000_000 // len(value)
    table = pa.table({"value": pa.array([value] * rows, pa.binary())})
    with Producer(bootstrap_servers=bootstrap, batch_size=BATCH_BYTES, linger_ms=LINGER_MS) as producer:
        for left in (count // WARM_UP, count):
            meter.begin()
            while left > 0:
                producer.send_arrow(table.slice(0, left), topic)
                left -= rows
            producer.flush()
            meter.end()
        assert producer.metrics()["record-error-total"] == 0


def confluent(bootstrap: str, topic: str, value: bytes, count: int, meter: Meter) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "batch.size": BATCH_BYTES,
            "linger.ms": LINGER_MS,
            "queue.buffering.max.messages": 500_000,
        }
    )
    produce, poll = producer.produce, producer.poll
    for number in (count // WARM_UP, count):
        meter.begin()
        for _ in range(number):
            while True:
                try:
                    produce(topic, value)
                    break
                except BufferError:
                    poll(0.01)
        producer.flush()
        meter.end()


def kafka_python(bootstrap: str, topic: str, value: bytes, count: int, meter: Meter) -> None:
    from kafka import KafkaProducer

    producer: Any = KafkaProducer(
        bootstrap_servers=bootstrap, batch_size=BATCH_BYTES, linger_ms=LINGER_MS, acks="all"
    )
    for number in (count // WARM_UP, count):
        meter.begin()
        for _ in range(number):
            producer.send(topic, value)
        producer.flush()
        meter.end()
    producer.close()


def aiokafka(bootstrap: str, topic: str, value: bytes, count: int, meter: Meter) -> None:
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            max_batch_size=BATCH_BYTES,
            linger_ms=LINGER_MS,
        )
        await producer.start()
        for number in (count // WARM_UP, count):
            meter.begin()
            for _ in range(number):
                await producer.send(topic, value)
            await producer.flush()
            meter.end()
        await producer.stop()

    asyncio.run(run())


CLIENTS: dict[str, Client] = {
    "tidelog": tidelog,
    "tidelog, asyncio": tidelog_async,
    "tidelog, Arrow": tidelog_arrow,
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


if __name__ == "__main__":
    _, chosen, address, name, bytes_each, number = sys.argv
    running = Meter()
    CLIENTS[chosen](address, name, b"x" * int(bytes_each), int(number), running)
    print(json.dumps(running.result))
