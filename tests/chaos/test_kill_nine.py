"""kill -9 under load: whatever was acknowledged is there afterwards, once, and in order.

The process dies, the page cache stays: so nothing acknowledged may be missing with Kafka's default of never
forcing a flush, and nothing at all with a flush for every message.
"""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.chaos.amount import times
from tests.rigs.delivered import partition_of, value_of

from tidelog.testing.broker_process import BrokerProcess

PARTITIONS = 3
KILLS = times(2, 4)
WAIT_S = 60.0


class Load:
    """An idempotent producer of numbered values; remembers which were acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        self.failures: list[str] = []
        self._topic = topic
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.num.messages": 40,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
            }
        )
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        assert self._producer.flush(WAIT_S) == 0

    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged[partition_of(message)].append(int(value_of(message)))

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                self._producer.produce(
                    self._topic, str(number), partition=number % PARTITIONS, on_delivery=self._report
                )
                number += 1
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0.0005 if number % 20 == 0 else 0)
            if len(self._producer) > 2000:
                self._producer.poll(0.05)


def wait_until(condition: str, check: object, deadline_s: float = WAIT_S) -> None:
    assert callable(check)
    end = time.monotonic() + deadline_s
    while not check():
        assert time.monotonic() < end, f"not within {deadline_s} s: {condition}"
        time.sleep(0.005)


def read_all(bootstrap: str, topic: str, partition: int) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    values: list[int] = []
    end = time.monotonic() + WAIT_S
    try:
        while time.monotonic() < end:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                values.append(int(value_of(message)))
            elif error.code() == KafkaError._PARTITION_EOF:
                return values
            else:
                raise AssertionError(error)
        raise AssertionError(f"no end of partition {partition} after {len(values)} records")
    finally:
        consumer.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("flush", ["never", "every message"])
def test_nothing_acknowledged_is_lost_doubled_or_reordered(
    tmp_path: Path, chance: random.Random, flush: str
) -> None:
    options = {"log.segment.bytes": "1048576", "log.index.interval.bytes": "256"}
    if flush == "every message":
        options["log.flush.interval.messages"] = "1"
    broker = BrokerProcess(tmp_path / "data", options=options)
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("numbers", PARTITIONS, 1)])["numbers"].result(20)
        load = Load(broker.bootstrap, "numbers")
        load.start()
        for _ in range(KILLS):
            goal = load.count() + chance.randrange(300, 3000)
            wait_until(f"{goal} acknowledged records", lambda goal=goal: load.count() >= goal)
            broker.kill()
            broker.restart()
        load.finish()
        assert not load.failures
        for partition in range(PARTITIONS):
            stored = read_all(broker.bootstrap, "numbers", partition)
            assert stored == load.acknowledged[partition]
            assert stored == sorted(set(stored))
    finally:
        broker.close()
