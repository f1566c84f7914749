"""The synchronous producer: the same methods as ``AsyncProducer``, for any number of threads.

    with Producer(bootstrap_servers="localhost:9092") as producer:
        future = producer.send("topic", b"value")
        print(future.result(10).offset)

The core runs on a background thread. ``send`` does its work in the caller's thread, under the accumulator's
lock, and wakes the other thread only when a batch begins; it blocks while metadata or memory are missing, at
most ``max.block.ms``. Delivery callbacks run on the background thread: they must be quick, and may ``send``
but not wait.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from tidelog.client.errors import ClientClosedError
from tidelog.client.loop_thread import LoopThread
from tidelog.client.metadata import PartitionMetadata, TopicMetadata
from tidelog.client.options import ClientConfig
from tidelog.client.producer.async_producer import AsyncProducer
from tidelog.client.producer.buffer_pool import BufferExhaustedError
from tidelog.client.producer.quick_send import TopicQueues
from tidelog.client.producer.record import DeliveryCallback
from tidelog.client.producer.record_future import Delivery
from tidelog.client.producer.send_path import SendPath
from tidelog.client.producer.table_writer import TableFuture, TableWriter
from tidelog.client.producer.transactions import GroupRef, OffsetRef
from tidelog.client.retry import Deadline
from tidelog.ids import TopicPartition
from tidelog.records.record import RecordHeader


class Producer(SendPath):
    """Sends records from any thread; options in Kafka's names, as a mapping or as keywords."""

    def __init__(self, options: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        core = AsyncProducer(options, **keywords)
        super().__init__(core._settings, core._accumulator, core._transactions)
        self._core = core
        self._interceptors = core._interceptors
        # The core learns of topics on its own thread; what it knows is what this face may use.
        self._quick_topics = core._quick_topics
        self._thread = LoopThread(f"producer {core.config.str('client.id')}", at_exit=core.close)
        try:
            self._thread.call(core.start(), what="the producer's start")
        except BaseException:
            self._thread.close()
            raise

    @property
    def config(self) -> ClientConfig:
        """The options in use."""
        return self._core.config

    # -- life

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self, timeout: float | None = None) -> None:
        """Send what is buffered, abort an open transaction, and stop.

        After ``timeout`` seconds whatever is still unacknowledged fails; ``timeout=0`` drops it at once.
        """
        if self._closed:
            return
        self._closed = True
        try:
            self._thread.call(self._core.close(timeout), what="the producer's end")
        finally:
            self._thread.close()

    # -- records

    def send_arrow(self, table: Any, topic: str, *, partition: int | None = None) -> TableFuture:
        """Buffer all rows of a ``pyarrow`` table or record batch, waiting for room; one future for all.

        Columns: ``key``, ``value``, ``timestamp``, ``headers``, of which one of the first two must be there.
        """
        self._check_usable()
        writer = TableWriter(table, partition, self._settings, self._accumulator, self._transactions)
        deadline = Deadline(self._settings.max_block_ms)
        try:
            writer.begin(self._topic(topic, partition, deadline))
            for needed in writer.write():
                if needed:
                    self._allocate(needed, Deadline(self._settings.max_block_ms))
                else:
                    self._accumulator.let_sender_run()
        except Exception as error:
            self._note_lost_record(error)
            raise
        return writer.future

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is acknowledged or has failed, without lingering."""
        self._thread.call(self._core.flush(timeout), what="the flush")

    def partitions_for(self, topic: str) -> list[PartitionMetadata]:
        """The partitions of ``topic`` and who serves them; waits for metadata at most ``max.block.ms``."""
        return self._thread.call(self._core.partitions_for(topic), what=f"the metadata of topic {topic!r}")

    @property
    def has_fatal_error(self) -> bool:
        """Whether nothing is left but ``close``; after any other failure the next transaction may succeed."""
        return self._transactions is not None and self._transactions.has_fatal_error

    def metrics(self) -> dict[str, float]:
        """Figures about this producer by Kafka's names."""
        return self._core.metrics()

    def _buffer(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp_ms: int,
        headers: Sequence[RecordHeader],
        on_delivery: DeliveryCallback | None,
    ) -> Delivery:
        deadline = Deadline(self._settings.max_block_ms)
        topics = self._topic(topic, partition, deadline)
        chosen = self._choose(topics, key, value, partition)
        future = self._append(topics, chosen, timestamp_ms, key, value, headers, on_delivery)
        if future is None:
            needed = self._accumulator.needed_bytes(key, value, headers)
            self._allocate(needed, deadline)
            future = self._append(topics, chosen, timestamp_ms, key, value, headers, on_delivery, needed)
            assert future is not None
        self._accumulator.let_sender_run()
        return future

    def _topic(self, name: str, partition: int | None, deadline: Deadline) -> TopicQueues:
        known = self._core.cluster.metadata.topics.get(name)
        if (
            known is None
            or known.error
            or not known.partitions
            or (partition is not None and partition not in known.partitions)
        ):
            known = self._thread.call(self._wait_for_topic(name, partition, deadline), what=f"topic {name!r}")
        topics = self._accumulator.topic(known)
        self._know(topics)
        return topics

    async def _wait_for_topic(self, name: str, partition: int | None, deadline: Deadline) -> TopicMetadata:
        return await self._core.cluster.wait_for_topic(name, deadline, partition)

    def _allocate(self, size_bytes: int, deadline: Deadline) -> None:
        pool = self._core.pool
        if not self._thread.is_current:
            pool.allocate(size_bytes, deadline.remaining)
        elif not pool.allocate_nowait(size_bytes):
            raise BufferExhaustedError(
                f"buffer.memory={pool.total_bytes} is full, and a callback cannot wait for its own thread"
            )

    def _note_lost_record(self, error: Exception) -> None:
        with contextlib.suppress(ClientClosedError):
            self._thread.call_soon(self._core._note_lost_record, error)

    # -- transactions

    def init_transactions(self) -> None:
        """Take over the transactional id, once, before the first transaction; older producers are fenced."""
        self._thread.call(self._core.init_transactions(), what="init_transactions")

    def begin_transaction(self) -> None:
        """Begin a transaction: all records from now on belong to it."""
        self._thread.call(self._core.begin_transaction(), what="begin_transaction")

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetRef], group_metadata: GroupRef
    ) -> None:
        """Commit a consumer's offsets with the transaction; its group by ``group_metadata()`` or by name."""
        self._thread.call(
            self._core.send_offsets_to_transaction(offsets, group_metadata),
            what="send_offsets_to_transaction",
        )

    def commit_transaction(self) -> None:
        """Flush, and make everything that the transaction wrote visible at once."""
        self._thread.call(self._core.commit_transaction(), what="commit_transaction")

    def abort_transaction(self) -> None:
        """Give the transaction up; readers of committed records never see it."""
        self._thread.call(self._core.abort_transaction(), what="abort_transaction")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Self]:
        """``with producer.transaction():`` commits at the end, or aborts if something fails."""
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException:
            with contextlib.suppress(Exception):
                self._thread.call(self._core.abort_open_transaction(), what="abort_transaction")
            raise
