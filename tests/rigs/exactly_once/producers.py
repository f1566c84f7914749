"""Transactional producers of three libraries behind one face, and what readers of both kinds see.

Every call waits, with ``TIMEOUT_S`` as its bound; what a library raises is raised as it is, ``fenced`` tells
whether it means that another producer has taken the transactional id over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import ProducerFenced
from aiokafka.structs import OffsetAndMetadata as AioOffset
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.consumer.group import ConsumerGroupMetadata
from kafka.errors import InvalidProducerEpochError, ProducerFencedError
from kafka.structs import OffsetAndMetadata as PythonOffset
from tests.rigs.delivered import offset_of, value_of

TIMEOUT_S = 30.0
NO_REBOOTSTRAP = {"metadata.recovery.strategy": "none"}
"""With its only broker gone librdkafka would start over and forget the coordinator of its transactions."""
Place = tuple[str, int]


class Transactional(Protocol):
    """What the tests need of a producer."""

    def begin(self) -> None: ...
    def send(self, topic: str, value: bytes, partition: int = 0, key: bytes | None = None) -> None: ...
    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None: ...
    def flush(self) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Confluent:
    """confluent-kafka (librdkafka)."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000, **more: Any) -> None:
        self.bootstrap = bootstrap
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": min(timeout_ms, 60_000),
                "linger.ms": 1,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                **NO_REBOOTSTRAP,
                **more,
            }
        )
        self.producer.init_transactions(TIMEOUT_S)

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0, key: bytes | None = None) -> None:
        self.producer.produce(topic, value, key, partition=partition)

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        places = [TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
        self.producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), TIMEOUT_S)
        consumer.close()

    def flush(self) -> None:
        assert self.producer.flush(TIMEOUT_S) == 0

    def commit(self) -> None:
        self.producer.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        self.producer.abort_transaction(TIMEOUT_S)

    def close(self) -> None:
        """It has no such thing: its threads end with the object."""


class Python:
    """kafka-python."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self.producer = KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        self.producer.init_transactions()

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, value: bytes, partition: int = 0, key: bytes | None = None) -> None:
        self.producer.send(topic, value, key, partition=partition)

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        places = {PythonPartition(*place): PythonOffset(offset, "", -1) for place, offset in offsets.items()}
        self.producer.send_offsets_to_transaction(places, ConsumerGroupMetadata(group, -1, "", None))

    def flush(self) -> None:
        self.producer.flush(TIMEOUT_S)

    def commit(self) -> None:
        self.producer.commit_transaction()

    def abort(self) -> None:
        self.producer.abort_transaction()

    def close(self) -> None:
        self.producer.close(timeout=TIMEOUT_S)


class Aio:
    """aiokafka, its loop turned by each call."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self.loop = asyncio.new_event_loop()
        self.producer = self._do(self._start(bootstrap, transactional_id, timeout_ms))

    async def _start(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        await producer.start()
        return producer

    def _do(self, work: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, TIMEOUT_S))

    def begin(self) -> None:
        self._do(self.producer.begin_transaction())

    def send(self, topic: str, value: bytes, partition: int = 0, key: bytes | None = None) -> None:
        self._do(self.producer.send(topic, value, key, partition=partition))

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        places = {AioPartition(*place): AioOffset(offset, "") for place, offset in offsets.items()}
        self._do(self.producer.send_offsets_to_transaction(places, group))

    def flush(self) -> None:
        self._do(self.producer.flush())

    def commit(self) -> None:
        self._do(self.producer.commit_transaction())

    def abort(self) -> None:
        self._do(self.producer.abort_transaction())

    def close(self) -> None:
        self._do(self.producer.stop())
        self.loop.close()


CLIENTS: dict[str, Callable[..., Transactional]] = {
    "confluent": Confluent,
    "kafka-python": Python,
    "aiokafka": Aio,
}


def fenced(error: BaseException) -> bool:
    """Whether the library says that another producer has the transactional id now."""
    if isinstance(error, KafkaException):
        return error.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    return isinstance(error, (ProducerFenced, ProducerFencedError, InvalidProducerEpochError))


def read(bootstrap: str, topic: str, partition: int = 0, isolation: str = "read_committed") -> list[bytes]:
    """The values up to the end that such a reader sees."""
    return [value for _, value in read_offsets(bootstrap, topic, partition, isolation)]


def read_offsets(
    bootstrap: str, topic: str, partition: int = 0, isolation: str = "read_committed"
) -> list[tuple[int, bytes]]:
    """The same with offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[tuple[int, bytes]] = []
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append((offset_of(message), value_of(message)))
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise AssertionError(error)
        raise AssertionError(f"no end of {topic}-{partition} after {len(found)} records")
    finally:
        consumer.close()


def wait_until(condition: str, check: Callable[[], object], deadline_s: float = TIMEOUT_S) -> None:
    end = time.monotonic() + deadline_s
    while not check():
        assert time.monotonic() < end, f"not within {deadline_s} s: {condition}"
        time.sleep(0.02)
