"""Both faces of the consumer behind one: the same test runs on ``Consumer`` and on ``AsyncConsumer``."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.client.consumer.async_consumer import AsyncConsumer
from tidelog.client.consumer.consumer import Consumer
from tidelog.ids import TopicPartition
from tidelog.records.record_codec import ConsumerRecord

DEADLINE_S = 30.0


class AsyncFace:
    """An ``AsyncConsumer`` on a loop of its own, called like a ``Consumer``."""

    def __init__(self, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.consumer = AsyncConsumer(**options)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.consumer, name)

        def call(*args: object, **keywords: object) -> Any:
            async def run() -> Any:
                result = method(*args, **keywords)
                return await result if inspect.isawaitable(result) else result

            return self._result(run())

        return call

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self.records(None)

    def records(self, timeout: float | None = None) -> Iterator[ConsumerRecord]:
        records = self.consumer.records(timeout)

        async def step() -> ConsumerRecord | None:
            return await anext(records, None)

        while (
            record := asyncio.run_coroutine_threadsafe(step(), self._loop).result(DEADLINE_S * 2)
        ) is not None:
            yield record

    def wakeup(self) -> None:
        self.consumer.wakeup()

    def _result(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(DEADLINE_S * 2)

    def end(self) -> None:
        """Close the consumer and end its thread."""
        self.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)

    def __enter__(self) -> AsyncFace:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def end(consumer: Any) -> None:
    """Close a consumer of either face, whatever state it is in."""
    consumer.end() if isinstance(consumer, AsyncFace) else consumer.close()


FACES: dict[str, Callable[..., Any]] = {"sync": Consumer, "async": AsyncFace}


def create_topic(bootstrap: str, name: str, partitions: int = 1, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(DEADLINE_S)


def produce(bootstrap: str, topic: str, values: list[bytes], partition: int = 0, **options: object) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, **{key.replace("_", "."): value for key, value in options.items()}}
    )
    failures: list[KafkaError] = []

    def note(error: KafkaError | None, _: Message) -> None:
        if error:
            failures.append(error)

    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=note)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
    assert not failures


def read(consumer: Any, count: int) -> list[ConsumerRecord]:
    """At least ``count`` records, polled for with a bound."""
    records: list[ConsumerRecord] = []
    while len(records) < count:
        polled = consumer.poll(DEADLINE_S)
        assert polled, f"{len(records)} of {count} records came within {DEADLINE_S} s"
        records += polled
    return records


def values(records: list[ConsumerRecord]) -> list[Any]:
    return [record.value for record in records]


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def tp(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)
