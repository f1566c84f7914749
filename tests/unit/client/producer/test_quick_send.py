"""The short way of a record, compiled where the installation has it, and interpreted from the same source."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tidelog.client.producer
from tidelog.client.errors import RequestTimeoutError
from tidelog.client.metadata import PartitionMetadata, TopicMetadata
from tidelog.client.producer._producer_batch import ProducerBatch
from tidelog.client.producer.record import (
    DeliveryCallback,
    ProducerRecord,
    RecordMetadata,
    SerializedRecord,
)
from tidelog.client.serialization import SerializationError
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import ZERO_UUID
from tidelog.records.record import decode_batch
from tidelog.records.record_codec import BatchBuilder

NAME = "tidelog.client.producer.quick_send"
SOURCE = Path(tidelog.client.producer.__path__[0], "quick_send.py")


@pytest.fixture(scope="module", params=["compiled", "interpreted"])
def quick(request: pytest.FixtureRequest) -> ModuleType:
    installed = importlib.import_module(NAME)
    if request.param == "compiled":
        if not installed.COMPILED:
            pytest.skip("the producer's short way is not compiled in this installation")
        return installed
    spec = spec_from_file_location(f"{NAME}_interpreted", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    assert not module.COMPILED
    return module


class SlowPath:
    """Notes what comes to it."""

    def __init__(self, slow: list[tuple[Any, ...]]) -> None:
        self.slow = slow

    def send_record(self, record: ProducerRecord, on_delivery: DeliveryCallback | None) -> Any:
        self.slow.append(("record", record, on_delivery))

    def send_serialized(self, record: SerializedRecord) -> Any:
        self.slow.append(("serialized", record))

    def serialized(self, topic: str, key: Any, value: Any) -> Any:
        return key and key.encode(), value and value.encode()


class Scene:
    """A topic of three partitions with open batches, and a producer that notes what it cannot do quickly."""

    def __init__(self, quick: ModuleType, *, serializes: bool = False, limit: int = 1000) -> None:
        self.slow: list[tuple[Any, ...]] = []
        self.topics = quick.TopicQueues("t", 1000)
        self.producer = quick.QuickSend(
            threading.Lock(), {"t": self.topics}, SlowPath(self.slow), serializes=serializes
        )
        partitions = {number: PartitionMetadata(number, 1) for number in range(3)}
        self.topics.update(TopicMetadata("t", ZERO_UUID, False, partitions))
        self.batches = []
        for number in range(3):
            queue = self.topics.queues[number]
            batch = ProducerBatch(queue.topic_partition, BatchBuilder(limit), 0, 0.0)
            queue.push(batch, batch.append_now)
            self.batches.append(batch)
        self.topics.sticky = self.topics.queues[1]

    def records(self, partition: int) -> list[tuple[Any, ...]]:
        batch = self.batches[partition]
        batch.close_for_appends()
        return [(each.key, each.value, each.headers) for each in decode_batch(batch.encode())]


def test_records_go_straight_into_the_open_batch(quick: ModuleType) -> None:
    scene = Scene(quick)
    futures = [
        scene.producer.send("t", b"sticky"),
        scene.producer.send("t", b"there", partition=2, headers=[("h", b"1")]),
        scene.producer.send("t", None, partition=2, headers={"m": None}),
    ]
    assert scene.slow == []
    assert [future.index for future in futures] == [0, 0, 1]
    assert futures[0].batch is scene.batches[1]
    assert scene.records(1) == [(None, b"sticky", ())]
    assert scene.records(2) == [(None, b"there", (("h", b"1"),)), (None, None, (("m", None),))]


def test_keys_choose_the_partition_that_java_chooses(quick: ModuleType) -> None:
    for vector in json.loads(Path(__file__).with_name("murmur2_java.json").read_text()):
        assert quick.key_partition(bytes.fromhex(vector["key"]), 7) == vector["partition_of_7"]
    scene = Scene(quick)
    future = scene.producer.send("t", b"", b"abc")
    assert future.batch.topic_partition.partition == quick.key_partition(b"abc", 3)


def test_a_key_may_choose_a_partition_that_brokers_do_not_know_of_yet(quick: ModuleType) -> None:
    topics = quick.TopicQueues("t", 1000)
    partitions = {number: PartitionMetadata(number, 1) for number in (1, 3)}
    topics.update(TopicMetadata("t", ZERO_UUID, False, partitions))
    assert topics.partition_count == 4
    assert list(topics.queues) == [0, 1, 2, 3]
    assert topics.available == (1, 3)


class WatchedPartitions(dict[int, PartitionMetadata]):
    """Partitions of a topic; whoever looks at them is watched."""

    def __init__(self, count: int, watch: Callable[[], None]) -> None:
        super().__init__({number: PartitionMetadata(number, 1) for number in range(count)})
        self._watch = watch

    def __len__(self) -> int:
        self._watch()
        return super().__len__()

    def __iter__(self) -> Iterator[int]:
        for number in super().__iter__():
            self._watch()
            yield number

    def items(self) -> Any:
        self._watch()
        return super().items()


def test_records_with_keys_are_sent_while_a_topic_gains_partitions(quick: ModuleType) -> None:
    scene = Scene(quick)
    topics = scene.topics
    key = next(b"%d" % n for n in range(1000) if quick.key_partition(b"%d" % n, 50) == 49)
    seen = []

    def send() -> None:
        seen.append(topics.partition_count)
        scene.producer.send("t", b"v", key)
        # What a partitioner may choose from has to be counted.
        assert max(topics.available) < topics.partition_count

    topics.update(TopicMetadata("t", ZERO_UUID, False, WatchedPartitions(50, send)))
    send()
    assert {seen[0], seen[-1]} == {3, 50}
    assert len(topics.available) == 50


def test_what_is_not_quick_goes_the_long_way_as_it_is(quick: ModuleType) -> None:
    scene = Scene(quick, limit=200)
    scene.producer.send("other", b"v", b"k", timestamp_ms=7)
    scene.producer.send("t", b"v", partition=9)
    scene.producer.send("t", b"x" * 100)
    scene.producer.send("t", b"x" * 100, timestamp_ms=5)
    scene.topics.queues[0].close_open()
    scene.producer.send("t", b"v", partition=0, timestamp_ms=6)
    assert [each[0] for each in scene.slow] == ["record", "serialized", "serialized", "serialized"]
    assert scene.slow[0] == ("record", ProducerRecord("other", b"v", b"k", timestamp_ms=7), None)
    assert scene.slow[2] == ("serialized", SerializedRecord("t", None, b"x" * 100, None, 5))
    assert scene.slow[3] == ("serialized", SerializedRecord("t", None, b"v", 0, 6))


def test_values_are_serialized_and_bytes_of_other_kinds_are_taken(quick: ModuleType) -> None:
    scene = Scene(quick, serializes=True)
    scene.producer.send("t", "text", "key", partition=0)
    assert scene.records(0) == [(b"key", b"text", ())]
    plain = Scene(quick)
    plain.producer.send("t", bytearray(b"v"), memoryview(b"k"), partition=0)
    assert plain.records(0) == [(b"k", b"v", ())]
    with pytest.raises(SerializationError):
        plain.producer.send("t", "text")
    with pytest.raises(SerializationError):
        plain.producer.send("t", b"", 5)


def test_a_future_reads_its_end_from_the_batch(quick: ModuleType) -> None:
    scene = Scene(quick)
    heard: list[Any] = []
    first = scene.producer.send("t", b"one", timestamp_ms=5)
    second = scene.producer.send(
        "t", b"two", timestamp_ms=6, on_delivery=lambda metadata, error: heard.append(metadata)
    )
    second.add_done_callback(heard.append)
    assert not first.done()
    with pytest.raises(RequestTimeoutError, match="no broker has acknowledged"):
        first.result(0)
    batch = scene.batches[1]
    batch.close_for_appends()
    batch.end(None, 100)
    expected = RecordMetadata("t", 1, 101, 6, -1, 3)
    assert first.result().offset == 100
    assert second.result() == expected
    assert heard == [second, expected]
    second.add_done_callback(heard.append)
    assert heard[-1] is second

    async def awaited() -> RecordMetadata:
        metadata: RecordMetadata = await second
        return metadata

    assert asyncio.run(awaited()) == expected
    assert "written" in repr(second)


def test_a_failed_batch_fails_its_futures(quick: ModuleType) -> None:
    scene = Scene(quick)
    future = scene.producer.send("t", b"one")
    refused = KafkaError(ErrorCode.INVALID_RECORD, "no")
    scene.batches[1].end(refused)
    assert future.exception() is refused
    with pytest.raises(KafkaError):
        future.result()

    async def awaited() -> None:
        await future

    with pytest.raises(KafkaError):
        asyncio.run(awaited())


def test_a_thread_and_a_task_that_wait_are_woken(quick: ModuleType) -> None:
    scene = Scene(quick)
    future = scene.producer.send("t", b"one")
    results: list[RecordMetadata] = []
    thread = threading.Thread(target=lambda: results.append(future.result(20)))
    thread.start()

    async def main() -> RecordMetadata:
        task = asyncio.ensure_future(_awaiting(future))
        await asyncio.sleep(0)
        scene.batches[1].end(None, 3)
        return await task

    assert asyncio.run(main()).offset == 3
    thread.join(20)
    assert results[0].offset == 3


async def _awaiting(future: Any) -> RecordMetadata:
    result: RecordMetadata = await future
    return result


def test_threads_that_send_at_once_share_a_batch_without_loss(quick: ModuleType) -> None:
    scene = Scene(quick, limit=10_000_000)
    seen: list[list[int]] = [[] for _ in range(4)]

    def work(number: int) -> None:
        for index in range(5000):
            seen[number].append(scene.producer.send("t", b"%d %d" % (number, index)).index)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    values = [value for _, value, _ in scene.records(1)]
    assert len(values) == 20_000
    for number, indexes in enumerate(seen):
        assert [values[index] for index in indexes] == [b"%d %d" % (number, n) for n in range(5000)]
