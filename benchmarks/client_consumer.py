"""Python consumers: records per second, and CPU of the client's process per record.

Each client runs in its own process, reads the same topic of two partitions from its beginning and takes the
length of every value (Arrow: of the whole column). librdkafka wrote the records with its defaults and a
linger of 5 ms. On few cores the broker competes with the client, so compare the CPU per record.

"receiving alone" is the lower bound for every client: the same fetches over a plain blocking socket into one
buffer, reading only batch headers. "receiving and checksum alone" adds the checksum, which every client
except librdkafka verifies by default.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import AdminClient
from foreign.broker_process import BrokerProcess

from benchmarks import wire
from benchmarks.contestants import create_topic, started
from benchmarks.figures import Figures

NAME = "client-consumer"
PARTITIONS = 2
TIMEOUT_S = 300
SLOW = ("kafka-python", "aiokafka")


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    with started(contestant, root) as broker:
        total = (50 if quick else 200) * 1_000_000
        for size in (100, 1000):
            topic = f"records-{size}"
            create_topic(broker, topic, PARTITIONS)
            count = total // size
            fill(broker, topic, size, count)
            for client in CLIENTS:
                wanted = count // 5 if client in SLOW else count
                seconds, used = _run(client, broker.address, topic, wanted)
                name = f"{size} B from {broker.label}"
                figures.add(NAME, client, name, wanted / seconds, "records/s", "higher")
                figures.add(NAME, client, f"{name}, CPU", used / wanted * 1e6, "µs/record", "lower")


def fill(broker: BrokerProcess, topic: str, size: int, count: int) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.address, "linger.ms": 5, "queue.buffering.max.messages": 200_000}
    )
    value = bytes(size)
    sent = 0
    while sent < count:
        chunk = [{"value": value, "partition": sent // 1000 % PARTITIONS}] * min(1000, count - sent)
        queued = producer.produce_batch(topic, chunk)
        sent += queued
        producer.poll(0 if queued == len(chunk) else 0.01)
    if producer.flush(TIMEOUT_S):
        raise TimeoutError(f"{broker.label} did not acknowledge everything within {TIMEOUT_S} s")


def _run(client: str, bootstrap: str, topic: str, count: int) -> tuple[float, float]:
    command = [sys.executable, "-m", "benchmarks.client_consumer", client, bootstrap, topic, str(count)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
    seconds, used = json.loads(done.stdout.splitlines()[-1])
    return seconds, used


# -- the clients: each begins to count when its first records are there


class Meter:
    def __init__(self, count: int) -> None:
        self.left = count
        self.bytes = 0
        self._started: tuple[float, float] | None = None
        self._first = 0
        self._count = count
        self.result = (0.0, 0.0)

    def begin(self, already: int) -> None:
        """The first ``already`` records came: connecting and finding offsets are over."""
        if self._started is None:
            self._first = already
            self._started = time.perf_counter(), time.process_time()

    def end(self) -> None:
        """The last record came."""
        assert self._started is not None
        share = self._count / (self._count - self._first)
        wall, cpu = self._started
        self.result = (time.perf_counter() - wall) * share, (time.process_time() - cpu) * share


def tidelog_poll(bootstrap: str, topic: str, meter: Meter) -> None:
    from tidelog import Consumer, TopicPartition

    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        while meter.left > 0:
            records = consumer.poll(10)
            meter.begin(len(records))
            meter.left -= len(records)
            for record in records:
                meter.bytes += len(record.value)
        meter.end()


def tidelog_iterate(bootstrap: str, topic: str, meter: Meter) -> None:
    from tidelog import Consumer, TopicPartition

    size, left = 0, meter.left
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        for _ in consumer:
            meter.begin(1)
            break
        for record in consumer:
            size += len(record.value)
            left -= 1
            if left == 1:
                break
        meter.end()


def tidelog_async(bootstrap: str, topic: str, meter: Meter) -> None:
    from tidelog import AsyncConsumer, TopicPartition

    async def run() -> None:
        async with AsyncConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
            while meter.left > 0:
                records = await consumer.poll(10)
                meter.begin(len(records))
                meter.left -= len(records)
                for record in records:
                    meter.bytes += len(record.value)
            meter.end()

    import uvloop

    uvloop.run(run())


def tidelog_arrow(bootstrap: str, topic: str, meter: Meter) -> None:
    from tidelog import Consumer, TopicPartition

    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        while meter.left > 0:
            table = consumer.poll_arrow(10)
            meter.begin(table.num_rows)
            meter.left -= table.num_rows
            meter.bytes += table.column("value").nbytes
        meter.end()


def confluent(bootstrap: str, topic: str, meter: Meter) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "never-joined",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    while meter.left > 0:
        records = consumer.consume(500, timeout=10)
        meter.begin(len(records))
        meter.left -= len(records)
        for record in records:
            meter.bytes += len(record.value() or b"")
    meter.end()


def kafka_python(bootstrap: str, topic: str, meter: Meter) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
    while meter.left > 0:
        for records in consumer.poll(10_000).values():
            meter.begin(len(records))
            meter.left -= len(records)
            for record in records:
                meter.bytes += len(record.value)
    meter.end()


def aiokafka(bootstrap: str, topic: str, meter: Meter) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def run() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        while meter.left > 0:
            for records in (await consumer.getmany(timeout_ms=10_000, max_records=500)).values():
                meter.begin(len(records))
                meter.left -= len(records)
                for record in records:
                    meter.bytes += len(record.value)
        meter.end()
        await consumer.stop()

    asyncio.run(run())


def receiving_alone(bootstrap: str, topic: str, meter: Meter, *, check: bool = False) -> None:
    from tidelog.wire.fetch import decode_fetch_response

    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_topics(TopicCollection([topic]))[topic].result(60).topic_id
    topic_id = wire.topic_id_bytes(str(found).translate(str.maketrans("+/", "-_", "=")))
    offsets = [0] * PARTITIONS
    buffer = memoryview(bytearray(4 << 20))
    with wire.connect(int(bootstrap.rpartition(":")[2])) as connection:
        connection.sendall(_fetch_all(topic_id, offsets))
        while meter.left > 0:
            end = _receive(connection, buffer)
            answer = decode_fetch_response(wire.FETCH_VERSION, buffer[_ANSWER_AT:end])
            before = sum(offsets)
            for _, _, partitions in answer.topics:
                for fetched in partitions:
                    start = offsets[fetched.partition]
                    offsets[fetched.partition] = _end_offset(fetched.records, start, check=check)
            connection.sendall(_fetch_all(topic_id, offsets))
            count = sum(offsets) - before
            meter.begin(count)
            meter.left -= count
    meter.end()


# Behind size, correlation id and the header's tags.
_ANSWER_AT = 9


def _fetch_all(topic_id: bytes, offsets: list[int]) -> bytes:
    """A fetch of every partition with the bounds that consumers have by default, outside of any session."""
    asks = [
        struct.pack(">iiqiqi", number, -1, offset, -1, -1, 1 << 20) + b"\x00"
        for number, offset in enumerate(offsets)
    ]
    topic = topic_id + wire.unsigned_varint(len(asks) + 1) + b"".join(asks) + b"\x00"
    body = struct.pack(">iiibii", 500, 1, 50 << 20, 0, 0, -1) + b"\x02" + topic + b"\x01\x01\x00"
    return wire.frame(wire.FETCH, wire.FETCH_VERSION, body)


def _receive(connection: socket.socket, buffer: memoryview) -> int:
    """Receive one frame; where it ends in the buffer."""
    received, end = 0, 4
    while received < end:
        count = connection.recv_into(buffer[received:])
        if not count:
            raise ConnectionError("the broker closed the connection")
        if received < 4 <= received + count:
            end = 4 + int.from_bytes(buffer[:4], "big")
        received += count
    return end


def _end_offset(records: Any, offset: int, *, check: bool) -> int:
    """The offset behind the last whole batch."""
    from tidelog.checksum import crc32c

    position = 0
    while records is not None and len(records) - position >= wire.HEADER_SIZE:
        base, length = struct.unpack_from(">qi", records, position)
        if position + 12 + length > len(records):
            break
        if check and crc32c(records[position + 21 : position + 12 + length]) != _crc(records, position):
            raise ValueError(f"the batch at offset {base} has another checksum")
        offset = base + struct.unpack_from(">i", records, position + 23)[0] + 1
        position += 12 + length
    return offset


def _crc(records: Any, position: int) -> int:
    return int(struct.unpack_from(">I", records, position + 17)[0])


CLIENTS: dict[str, Callable[[str, str, Meter], None]] = {
    "tidelog": tidelog_poll,
    "tidelog, iterating": tidelog_iterate,
    "tidelog, asyncio": tidelog_async,
    "tidelog, Arrow": tidelog_arrow,
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "receiving alone": receiving_alone,
    "receiving and checksum alone": partial(receiving_alone, check=True),
}


if __name__ == "__main__":
    _, chosen, address, name, number = sys.argv
    running = Meter(int(number))
    CLIENTS[chosen](address, name, running)
    print(json.dumps(running.result))
