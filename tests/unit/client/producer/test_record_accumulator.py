from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidelog.client.errors import ClientClosedError
from tidelog.client.metadata import ClusterMetadata, Node, PartitionMetadata, TopicMetadata
from tidelog.client.producer._buffer_pool import BufferPool
from tidelog.client.producer._producer_batch import ProducerBatch
from tidelog.client.producer._record_accumulator import RecordAccumulator
from tidelog.client.producer._settings import ProducerSettings
from tidelog.client.producer.quick_send import RecordFuture
from tidelog.client.producer.record import SerializedRecord
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import ZERO_UUID, TopicPartition
from tidelog.records.record import decode_batch


class Scene:
    """An accumulator on a clock of its own, for topic ``t`` whose partitions have given leaders."""

    def __init__(self, leaders: list[int | None] | None = None, **settings: Any) -> None:
        self.now_s = 100.0
        leaders = [1] if leaders is None else leaders
        settings = {"batch_size": 1000, "linger_ms": 10, "buffer_memory": 10_000, **settings}
        self.settings = ProducerSettings(enable_idempotence=False, **settings)
        self.pool = BufferPool(self.settings.buffer_memory, self.settings.batch_size)
        self.accumulator = RecordAccumulator(self.settings, self.pool, None, clock=lambda: self.now_s)
        self.lead(leaders)

    def lead(self, leaders: list[int | None], epoch: int = 0) -> None:
        partitions = {
            number: PartitionMetadata(number, leader, epoch) for number, leader in enumerate(leaders)
        }
        topic = TopicMetadata("t", ZERO_UUID, False, partitions)
        nodes = {leader: Node(leader, "h", 1) for leader in leaders if leader is not None}
        self.metadata = ClusterMetadata(None, -1, nodes, {"t": topic})
        self.topics = self.accumulator.topic(topic)

    def append(self, value: bytes = b"x", partition: int = 0, **options: Any) -> RecordFuture:
        future = self.try_append(value, partition, **options)
        assert future is not None
        return future

    def try_append(
        self, value: bytes = b"x", partition: int | None = 0, **options: Any
    ) -> RecordFuture | None:
        record = SerializedRecord("t", None, value, partition, 5, on_delivery=options.get("on_delivery"))
        return self.accumulator.append(self.topics, partition, record, options.get("granted", 0))

    def ready(self) -> set[int]:
        return self.accumulator.ready(self.metadata, self.now_s).nodes

    def drain(self, node: int = 1) -> list[ProducerBatch]:
        check = self.accumulator.ready(self.metadata, self.now_s)
        return self.accumulator.drain(check.queues.get(node, []), self.now_s)


def contents(batch: ProducerBatch) -> list[bytes | None]:
    return [record.value for record in decode_batch(batch.encode())]


# -- ready


def test_a_batch_waits_for_its_linger_to_pass() -> None:
    scene = Scene()
    scene.append()
    check = scene.accumulator.ready(scene.metadata, scene.now_s)
    assert check.nodes == set()
    assert check.next_check_s == pytest.approx(0.01)
    scene.now_s += 0.0101
    assert scene.ready() == {1}


def test_a_full_batch_does_not_wait() -> None:
    scene = Scene()
    for _ in range(3):
        scene.append(b"x" * 400)
    assert scene.ready() == {1}


def test_nothing_lingers_while_somebody_flushes() -> None:
    scene = Scene()
    scene.append()

    async def main() -> None:
        flush = asyncio.ensure_future(scene.accumulator.wait_flushed())
        await asyncio.sleep(0)
        assert scene.ready() == {1}
        [batch] = scene.drain()
        assert not flush.done()
        scene.accumulator.complete(batch)
        batch.end(None, 0)
        await flush

    asyncio.run(main())
    scene.append()
    assert scene.ready() == set()


def test_nothing_lingers_while_somebody_waits_for_memory() -> None:
    scene = Scene(buffer_memory=2000)
    scene.append(b"x" * 900, 0)
    assert scene.try_append(b"x" * 1200) is None
    scene.append(b"x")
    assert scene.ready() == {1}, "the first batch was closed as full"
    again = Scene([1, 1], buffer_memory=1000)
    again.append(b"x", 0)
    assert again.ready() == set()
    assert again.try_append(b"x", 1) is None

    async def main() -> None:
        waiting = asyncio.ensure_future(again.pool.wait_allocate(1000, 10))
        await asyncio.sleep(0)
        assert again.ready() == {1}
        waiting.cancel()

    asyncio.run(main())


def test_a_partition_without_leader_is_told_apart() -> None:
    scene = Scene([None, 1])
    scene.append(partition=0)
    scene.append(partition=1)
    scene.now_s += 1
    check = scene.accumulator.ready(scene.metadata, scene.now_s)
    assert check.unknown_leader_topics == {"t"}
    assert check.nodes == {1}


def test_a_muted_partition_is_passed_over() -> None:
    scene = Scene()
    scene.append()
    scene.now_s += 1
    [batch] = scene.drain()
    scene.accumulator.mute([batch])
    scene.append()
    scene.now_s += 1
    assert scene.ready() == set()
    scene.accumulator.unmute(batch)
    assert scene.ready() == {1}


# -- drain


def test_one_request_takes_one_batch_of_each_partition_of_its_broker() -> None:
    scene = Scene([1, 2, 1])
    for partition in (0, 1, 2, 0):
        scene.append(b"%d" % partition * 600, partition)
    assert [batch.topic_partition.partition for batch in scene.drain(1)] == [0, 2]
    assert [batch.topic_partition.partition for batch in scene.drain(1)] == [0]
    assert [batch.topic_partition.partition for batch in scene.drain(2)] == [1]


def test_partitions_take_turns_where_a_request_cannot_hold_them_all() -> None:
    scene = Scene([1, 1, 1], max_request_size=1500)
    for _ in range(2):
        for partition in range(3):
            scene.append(b"x" * 900, partition)
    taken = [[batch.topic_partition.partition for batch in scene.drain()] for _ in range(6)]
    assert taken == [[0], [1], [2], [0], [1], [2]]


def test_a_batch_larger_than_a_request_may_be_goes_alone() -> None:
    scene = Scene([1, 1], max_request_size=3000, batch_size=100)
    scene.append(b"x" * 2900, 0)
    scene.append(b"y", 1)
    assert len(scene.drain()) == 1
    assert len(scene.drain()) == 1


def test_a_drained_batch_takes_no_more_records() -> None:
    scene = Scene()
    scene.append(b"1")
    scene.now_s += 1
    [first] = scene.drain()
    scene.append(b"2")
    scene.now_s += 1
    [second] = scene.drain()
    assert (contents(first), contents(second)) == ([b"1"], [b"2"])


# -- retries, expiry, ends


def test_a_batch_comes_back_in_front_after_its_back_off() -> None:
    scene = Scene()
    scene.append(b"1")
    scene.now_s += 1
    [first] = scene.drain()
    first.sent_leader_epoch = 0
    scene.append(b"2")
    scene.accumulator.reenqueue(first, scene.now_s + 0.1)
    scene.now_s += 0.05
    check = scene.accumulator.ready(scene.metadata, scene.now_s)
    assert check.nodes == set()
    assert check.next_check_s == pytest.approx(0.05)
    scene.now_s += 0.06
    assert scene.drain() == [first]
    assert first.attempts == 1


def test_a_new_leader_ends_the_back_off() -> None:
    scene = Scene()
    scene.append()
    scene.now_s += 1
    [batch] = scene.drain()
    batch.sent_leader_epoch = 0
    scene.accumulator.reenqueue(batch, scene.now_s + 100)
    assert scene.ready() == set()
    scene.lead([2], epoch=1)
    assert scene.ready() == {2}


def test_batches_expire_in_queues_and_under_way() -> None:
    scene = Scene([1, 1], delivery_timeout_ms=1000)
    scene.append(b"1", 0)
    scene.now_s += 0.02
    [flying] = scene.drain()
    scene.append(b"2", 1)
    scene.now_s += 0.99
    expired, next_s = scene.accumulator.take_expired(scene.now_s)
    assert expired == [flying]
    assert next_s == pytest.approx(101.02)
    scene.accumulator.complete(flying)
    scene.now_s += 1
    [queued], _ = scene.accumulator.take_expired(scene.now_s)
    assert queued.topic_partition == TopicPartition("t", 1)
    assert scene.ready() == set()
    scene.append(b"3", 1)
    assert len(scene.accumulator.incomplete) == 2


def test_memory_goes_back_when_a_batch_ends_and_not_before() -> None:
    scene = Scene(buffer_memory=2000)
    scene.append(b"x" * 900)
    scene.append(b"x" * 900)
    assert scene.try_append(b"x" * 900) is None
    scene.now_s += 1
    [batch] = scene.drain()
    assert scene.pool.available_bytes == 0
    scene.accumulator.complete(batch)
    scene.accumulator.complete(batch)
    assert scene.pool.available_bytes == 1000


def test_memory_that_was_granted_and_not_needed_goes_back() -> None:
    scene = Scene()
    assert scene.pool.allocate_nowait(1000)
    scene.append(b"1")
    scene.append(b"2", granted=1000)
    assert scene.pool.available_bytes == 9000


def test_a_split_keeps_order_futures_callbacks_and_memory() -> None:
    scene = Scene(batch_size=1000)
    heard: list[int] = []
    futures = [
        scene.append(b"%d" % n * 200, on_delivery=lambda metadata, error: heard.append(metadata.offset))
        for n in range(4)
    ]
    scene.append(b"later" * 100)
    [whole] = scene.drain()
    assert len(contents(whole)) == 4
    count = scene.accumulator.split_and_reenqueue(whole)
    assert count > 1
    base = 7
    seen: list[bytes | None] = []
    while len(seen) < 4:
        [part] = scene.drain()
        values = contents(part)
        seen += values
        scene.accumulator.complete(part)
        part.end(None, base)
        base += len(values)
    assert seen == [b"%d" % n * 200 for n in range(4)]
    assert [future.result(0).offset for future in futures] == [7, 8, 9, 10]
    assert heard == [7, 8, 9, 10]
    assert scene.pool.available_bytes == 9000


def test_a_flush_waits_for_the_parts_of_a_split_batch() -> None:
    scene = Scene()
    for _ in range(2):
        scene.append(b"x" * 400)

    async def main() -> None:
        flush = asyncio.ensure_future(scene.accumulator.wait_flushed())
        await asyncio.sleep(0)
        [whole] = scene.drain()
        scene.accumulator.split_and_reenqueue(whole)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not flush.done()
        for _ in range(2):
            [part] = scene.drain()
            part.end(None, 0)
        await asyncio.wait_for(flush, 5)

    asyncio.run(main())


def test_a_batch_ends_once() -> None:
    scene = Scene()
    future = scene.append()
    scene.now_s += 1
    [batch] = scene.drain()
    assert batch.end(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "late"))
    assert not batch.end(None, 5)
    assert isinstance(future.exception(0), KafkaError)


def test_unsent_batches_are_given_up_with_the_open_one() -> None:
    scene = Scene()
    scene.append(b"x" * 900)
    scene.append(b"x" * 900)
    assert scene.accumulator.full_bytes == 1000
    taken = scene.accumulator.take_unsent()
    assert len(taken) == 2
    assert scene.accumulator.full_bytes == 0
    assert not scene.accumulator.has_undrained


def test_a_closed_accumulator_refuses_records_and_sends_what_it_has() -> None:
    scene = Scene()
    scene.append()
    scene.accumulator.close()
    with pytest.raises(ClientClosedError):
        scene.append()
    assert scene.ready() == {1}


def test_a_record_that_no_request_can_hold_is_refused() -> None:
    scene = Scene(max_request_size=1000)
    with pytest.raises(KafkaError, match="larger than") as refused:
        scene.append(b"x" * 1000)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_keyless_records_move_on_after_a_batch_and_avoid_slow_brokers() -> None:
    scene = Scene([1, 2, 2], availability_timeout_ms=100, batch_size=500, buffer_memory=100_000)
    partitions = []
    for _ in range(60):
        future = scene.try_append(b"x" * 200, None)
        assert future is not None
        partitions.append(future.batch.topic_partition.partition)
    assert set(partitions) == {0, 1, 2}
    assert all(one == two for one, two in zip(partitions[::2], partitions[1::2], strict=True))
    scene.accumulator.node_waits(2, scene.now_s)
    scene.now_s += 1
    later = []
    for _ in range(20):
        future = scene.try_append(b"x" * 200, None)
        assert future is not None
        later.append(future.batch.topic_partition.partition)
    assert set(later[2:]) == {0}
    scene.accumulator.node_served(2)


# -- the sticky partition


def sticky_of(future: RecordFuture | None) -> int:
    assert future is not None
    partition: int = future.batch.topic_partition.partition
    return partition


def test_keyless_records_leave_a_partition_whose_batch_has_expired() -> None:
    scene = Scene([1, 1, 1], delivery_timeout_ms=1000)
    stuck = sticky_of(scene.try_append(b"x", None))
    scene.lead([None if number == stuck else 1 for number in range(3)])
    scene.now_s += 2
    expired, _ = scene.accumulator.take_expired(scene.now_s)
    assert [batch.topic_partition.partition for batch in expired] == [stuck]
    assert sticky_of(scene.try_append(b"y", None)) != stuck


def test_an_expired_batch_is_reason_enough_to_leave_its_partition() -> None:
    chosen: set[int] = set()
    scene = Scene([1] * 4, delivery_timeout_ms=1000)
    for _ in range(100):
        chosen.add(sticky_of(scene.try_append(b"x", None)))
        scene.now_s += 2
        for batch in scene.accumulator.take_expired(scene.now_s)[0]:
            scene.accumulator.complete(batch)
    assert chosen == {0, 1, 2, 3}


def test_keyless_records_leave_a_partition_that_has_no_leader_between_two_batches() -> None:
    scene = Scene([1, 1, 1], linger_ms=0)
    first = sticky_of(scene.try_append(b"x", None))
    scene.lead([None if number == first else 1 for number in range(3)])
    assert sticky_of(scene.try_append(b"x", None)) == first, "its batch is open"
    scene.lead([1, 1, 1])
    scene.drain()
    scene.lead([None if number == first else 1 for number in range(3)])
    assert sticky_of(scene.try_append(b"x", None)) != first


def test_keyless_records_stay_where_no_partition_has_a_leader() -> None:
    scene = Scene([1, 1, 1], linger_ms=0)
    first = sticky_of(scene.try_append(b"x", None))
    scene.drain()
    scene.lead([None, None, None])
    assert sticky_of(scene.try_append(b"x", None)) == first
