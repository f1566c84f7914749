"""Writes records to partition leaders: batches per partition, in order, with retries.

Owns what was handed to ``send`` and is not yet acknowledged. Each partition has one batch under way at a
time, so records of a partition arrive in the order of ``send`` whatever is retried. A retry after a lost
connection may write a batch twice: producer ids, which prevent that, are not used here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from tidelog.client.cluster import Cluster
from tidelog.client.errors import error_from, is_retriable
from tidelog.client.partitioner import Partitioner, StickyPartitioner
from tidelog.client.retry import Deadline, retrying
from tidelog.clock import Clock, SystemClock
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_OFFSET, NO_TIMESTAMP, ZERO_UUID, TopicPartition
from tidelog.records.compression import Codec
from tidelog.records.record import Record, RecordHeader, encode_batch
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

ACKS_ALL = -1
_TOPIC_IDS_SINCE = 13
_RECORD_OVERHEAD = 21


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record went; the offset is -1 with acks=0, which waits for no answer."""

    partition: TopicPartition
    offset: int
    timestamp: int


@dataclass(slots=True)
class _Pending:
    record: Record
    size_bytes: int
    delivered: asyncio.Future[RecordMetadata]


@dataclass(slots=True)
class _Lane:
    """The records of one partition that wait, and the task that sends them."""

    partition: TopicPartition
    waiting: deque[_Pending] = field(default_factory=deque)
    waiting_bytes: int = 0
    task: asyncio.Task[None] | None = None
    full: asyncio.Event = field(default_factory=asyncio.Event)


class SimpleProducer:
    """Sends records; ``cluster`` stays the caller's to close.

    ``send`` returns a future once the record is buffered; it waits only while ``buffer_memory`` is full.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = ACKS_ALL,
        codec: Codec = Codec.NONE,
        batch_size: int = 65_536,
        linger_ms: float = 5,
        buffer_memory: int = 32 << 20,
        delivery_timeout_ms: int = 120_000,
        topic_wait_ms: int = 5_000,
        partitioner: Callable[[], Partitioner] = StickyPartitioner,
        clock: Clock | None = None,
    ) -> None:
        self._cluster = cluster
        self._acks = acks
        self._codec = codec
        self._batch_size = batch_size
        self._linger = linger_ms / 1000
        self._buffer_memory = buffer_memory
        self._delivery_timeout_ms = delivery_timeout_ms
        self._topic_wait_ms = topic_wait_ms
        self._new_partitioner = partitioner
        self._partitioners: dict[str, Partitioner] = {}
        self._clock = clock or SystemClock()
        self._lanes: dict[TopicPartition, _Lane] = {}
        self.buffered_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._flushing = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[RecordHeader] = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Buffer a record; the future ends when a broker has acknowledged or refused it."""
        await self._room.wait()
        size = _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
        size += sum(len(name) + len(data or b"") + 4 for name, data in headers)
        target = TopicPartition(topic, await self._choose(topic, key, size, partition))
        record = Record(
            timestamp=self._clock.time_ms() if timestamp is None else timestamp,
            key=key,
            value=value,
            headers=headers,
        )
        delivered: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        self._buffer(self._lanes.setdefault(target, _Lane(target)), _Pending(record, size, delivered))
        return delivered

    async def flush(self) -> None:
        """Wait until everything sent so far is acknowledged or has failed."""
        self._flushing = True
        try:
            while tasks := [lane.task for lane in self._lanes.values() if lane.task is not None]:
                for lane in self._lanes.values():
                    lane.full.set()
                await asyncio.wait(tasks)
        finally:
            self._flushing = False

    async def close(self) -> None:
        """Flush; nothing may be sent afterwards."""
        await self.flush()

    async def _choose(self, topic: str, key: bytes | None, size: int, partition: int | None) -> int:
        metadata = self._cluster.metadata.topics.get(topic)
        if metadata is None or metadata.error:
            deadline = self._cluster.deadline(self._topic_wait_ms)
            metadata = await self._cluster.topic(topic, allow_auto_create=True, deadline=deadline)
        count = len(metadata.partitions)
        if partition is not None:
            if not 0 <= partition < count:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {topic!r} has no partition {partition}, only 0 to {count - 1}",
                )
            return partition
        chooser = self._partitioners.get(topic)
        if chooser is None:
            chooser = self._partitioners[topic] = self._new_partitioner()
        available = [index for index, each in metadata.partitions.items() if each.leader is not None]
        return chooser.partition(key, size, count, available or list(metadata.partitions))

    def _buffer(self, lane: _Lane, pending: _Pending) -> None:
        lane.waiting.append(pending)
        lane.waiting_bytes += pending.size_bytes
        self.buffered_bytes += pending.size_bytes
        if self.buffered_bytes >= self._buffer_memory:
            self._room.clear()
        if lane.waiting_bytes >= self._batch_size:
            lane.full.set()
        if lane.task is None:
            lane.task = asyncio.create_task(self._run_lane(lane))

    async def _run_lane(self, lane: _Lane) -> None:
        try:
            while lane.waiting:
                await self._linger_for(lane)
                batch = self._take(lane)
                try:
                    await self._deliver(lane.partition, batch)
                finally:
                    self._release(batch)
        finally:
            lane.task = None

    async def _linger_for(self, lane: _Lane) -> None:
        lane.full.clear()
        if lane.waiting_bytes >= self._batch_size or self._flushing or not self._linger:
            return
        try:
            async with asyncio.timeout(self._linger):
                await lane.full.wait()
        except TimeoutError:
            return

    def _take(self, lane: _Lane) -> list[_Pending]:
        batch: list[_Pending] = []
        size = 0
        while lane.waiting and (not batch or size + lane.waiting[0].size_bytes <= self._batch_size):
            pending = lane.waiting.popleft()
            size += pending.size_bytes
            batch.append(pending)
        lane.waiting_bytes -= size
        return batch

    def _release(self, batch: list[_Pending]) -> None:
        self.buffered_bytes -= sum(pending.size_bytes for pending in batch)
        if self.buffered_bytes < self._buffer_memory:
            self._room.set()

    async def _deliver(self, partition: TopicPartition, batch: list[_Pending]) -> None:
        encoded = encode_batch([pending.record for pending in batch], codec=self._codec)
        deadline = Deadline(self._delivery_timeout_ms)

        async def attempt() -> PartitionProduceResponse | None:
            try:
                return await self._produce(partition, encoded, deadline)
            except Exception as error:
                if is_retriable(error) and not deadline.expired:
                    await self._cluster.refresh([partition.topic], deadline=deadline)
                raise

        try:
            answer = await retrying(attempt, deadline, backoff=self._cluster.backoff())
        except Exception as error:
            for pending in batch:
                if not pending.delivered.done():
                    pending.delivered.set_exception(error)
            return
        for index, pending in enumerate(batch):
            if not pending.delivered.done():
                pending.delivered.set_result(_record_metadata(partition, index, pending.record, answer))

    async def _produce(
        self, partition: TopicPartition, encoded: bytes, deadline: Deadline
    ) -> PartitionProduceResponse | None:
        node, _ = self._cluster.leader_of(partition)
        topic_id = self._cluster.metadata.topics[partition.topic].topic_id
        timeout_ms = min(self._cluster.request_timeout_ms, deadline.remaining_ms)

        def build(version: int) -> ProduceRequest:
            topic = TopicProduceData(
                partition_data=[PartitionProduceData(index=partition.partition, records=encoded)]
            )
            if version >= _TOPIC_IDS_SINCE:
                topic.topic_id = topic_id
            else:
                topic.name = partition.topic
            return ProduceRequest(acks=self._acks, timeout_ms=timeout_ms, topic_data=[topic])

        # A broker that speaks version 13 has told the topic's id; without one, stay with names.
        max_version = _TOPIC_IDS_SINCE - 1 if topic_id == ZERO_UUID else None
        connection = await self._cluster.connection_to(node)
        if self._acks == 0:
            connection.tell(build, ProduceResponse, max_version=max_version)
            return None
        response = await connection.request(
            build, ProduceResponse, Deadline(timeout_ms + 1000), max_version=max_version
        )
        answer = response.responses[0].partition_responses[0]
        if error := error_from(answer.error_code, _error_text(answer), f"partition {partition}"):
            raise error
        return answer


def _error_text(answer: PartitionProduceResponse) -> str | None:
    """What the broker says of the batch, and of the first record that it names."""
    if not answer.record_errors:
        return answer.error_message
    first = answer.record_errors[0]
    detail = f"record {first.batch_index} of the batch: {first.batch_index_error_message or 'invalid'}"
    return f"{answer.error_message} ({detail})" if answer.error_message else detail


def _record_metadata(
    partition: TopicPartition, index: int, record: Record, answer: PartitionProduceResponse | None
) -> RecordMetadata:
    if answer is None:
        return RecordMetadata(partition, NO_OFFSET, record.timestamp)
    append_time = answer.log_append_time_ms
    return RecordMetadata(
        partition,
        answer.base_offset + index,
        record.timestamp if append_time == NO_TIMESTAMP else append_time,
    )
