"""The asyncio producer, which is also the core of the synchronous one.

    async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
        metadata = await producer.send("topic", b"value")

Owns the network client, the accumulator, the sender and the transaction. ``send`` never blocks: it returns a
future at once. A record for which there is no metadata or no memory yet waits in line behind the others of
its topic, at most ``max.block.ms``; ``await producer.drain()`` now and then keeps a fast program from getting
there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from tidelog.client.cluster import Cluster
from tidelog.client.errors import ClientClosedError, RequestTimeoutError
from tidelog.client.metadata import PartitionMetadata
from tidelog.client.options import PRODUCER, ClientConfig
from tidelog.client.options.network import network_settings
from tidelog.client.producer.batch_appender import upper_bound_bytes
from tidelog.client.producer.batch_outcomes import BatchOutcomes
from tidelog.client.producer.buffer_pool import BufferExhaustedError, BufferPool
from tidelog.client.producer.errors import TransactionAbortedError
from tidelog.client.producer.producer_metrics import producer_metrics
from tidelog.client.producer.quick_send import RecordFuture, TopicQueues
from tidelog.client.producer.record import DeliveryCallback
from tidelog.client.producer.record_accumulator import RecordAccumulator
from tidelog.client.producer.record_future import DeferredRecord, Delivery
from tidelog.client.producer.send_path import SendPath
from tidelog.client.producer.sender import Sender
from tidelog.client.producer.settings import settings_from
from tidelog.client.producer.table_writer import TableFuture, TableWriter
from tidelog.client.producer.transaction_manager import TransactionManager
from tidelog.client.producer.transactional_requests import TransactionalRequests
from tidelog.client.producer.transactions import GroupRef, OffsetRef, Transactions
from tidelog.client.retry import Deadline
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.records.record import RecordHeader

logger = logging.getLogger(__name__)


class _Waiting(NamedTuple):
    """A record that could not be appended at once."""

    key: bytes | None
    value: bytes | None
    partition: int | None
    timestamp_ms: int
    headers: Sequence[RecordHeader]
    on_delivery: DeliveryCallback | None
    deadline: Deadline
    size_bytes: int
    appended: asyncio.Future[RecordFuture]


class AsyncProducer(SendPath):
    """Sends records from one event loop; options in Kafka's names, as a mapping or as keywords."""

    def __init__(self, options: Mapping[str, object] | None = None, /, **keywords: object) -> None:
        self.config = ClientConfig.parse(PRODUCER, options, **keywords)
        settings = settings_from(self.config)
        transactions = TransactionManager(settings.transactional_id) if settings.enable_idempotence else None
        pool = BufferPool(settings.buffer_memory, max(settings.batch_size, 1))
        super().__init__(settings, RecordAccumulator(settings, pool, transactions), transactions)
        self.pool = pool
        self._waiting: dict[str, deque[_Waiting]] = {}
        self._waiting_bytes = 0
        self._pumps: dict[str, asyncio.Task[None]] = {}
        self._started = False
        self.created_s = time.monotonic()

    # -- life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, error_type: type[BaseException] | None, *rest: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin to work on the running loop; without it the first call does so."""
        self.start_nowait()

    def start_nowait(self) -> None:
        """As :meth:`start`: no broker is waited for."""
        if self._started:
            return
        settings = self._settings
        self.cluster = Cluster(self.config.list("bootstrap.servers"), network_settings(self.config))
        self._started = True
        requests = None
        if self._transactions is not None:
            requests = TransactionalRequests(
                self.cluster, self._transactions, settings.transaction_timeout_ms
            )
            self._transactions.on_error = self._accumulator.close_open_batches
        self.outcomes = BatchOutcomes(self._accumulator, self._transactions, settings, time.monotonic)
        self.sender = Sender(
            self.cluster, self._accumulator, self.outcomes, settings, self._transactions, requests
        )
        self._transaction_calls = Transactions(
            self._transactions, requests, self._accumulator, self.sender, settings.max_block_ms
        )
        self._accumulator.wake = self.sender.wake
        self.cluster.subscribe_updates(self._updated)
        self.cluster.updates.start()
        self.sender.start()

    def _updated(self, metadata: object) -> None:
        self._learn(self.cluster.metadata)
        self.sender.wake()

    async def close(self, timeout: float | None = None) -> None:
        """Send what is buffered, abort an open transaction, and stop.

        After ``timeout`` seconds whatever is still unacknowledged fails; ``timeout=0`` drops it at once.
        """
        if self._closed:
            return
        if not self._started:
            self._closed = True
            return
        try:
            if timeout is None or timeout > 0:
                await self._finish(timeout)
        finally:
            self._refuse_more()
            self.pool.close()
            await self._stop()

    async def _finish(self, timeout: float | None) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._wait_appended()
                self._refuse_more()
                await self._accumulator.wait_flushed()
                await self._transaction_calls.abort_if_open()
        except TimeoutError:
            left = len(self._accumulator.incomplete)
            logger.warning("%d batches were not acknowledged when the producer was closed", left)
        except TidelogError as error:
            logger.warning("the producer's transaction was not aborted when it was closed: %s", error)

    def _refuse_more(self) -> None:
        self._closed = True
        self._quick_topics.clear()
        self._accumulator.close()

    async def _stop(self) -> None:
        pumps = list(self._pumps.values())
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        await self._transaction_calls.close()
        await self.sender.close()
        await self.cluster.close()
        self._interceptors.close()

    # -- records

    async def drain(self) -> None:
        """Let the sender work, and wait while records have no room in the buffer."""
        await asyncio.sleep(0)
        while self._pumps:
            await asyncio.wait(list(self._pumps.values()), return_when=asyncio.FIRST_COMPLETED)

    async def send_arrow(self, table: Any, topic: str, *, partition: int | None = None) -> TableFuture:
        """Buffer all rows of a ``pyarrow`` table or record batch, waiting for room; one future for all.

        Columns: ``key``, ``value``, ``timestamp``, ``headers``, of which one of the first two must be there.
        """
        self._begin_call()
        self._check_usable()
        writer = TableWriter(table, partition, self._settings, self._accumulator, self._transactions)
        deadline = Deadline(self._settings.max_block_ms)
        await self._wait_appended()
        try:
            known = await self.cluster.wait_for_topic(topic, deadline, partition)
            writer.begin(self._accumulator.topic(known))
            for needed in writer.write():
                if needed:
                    await self.pool.wait_allocate(needed, self._settings.max_block_ms / 1000)
                elif self._accumulator.has_backlog:
                    await asyncio.sleep(0)
        except Exception as error:
            self._note_lost_record(error)
            raise
        return writer.future

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is acknowledged or has failed, without lingering."""
        if not self._started:
            return
        try:
            async with asyncio.timeout(timeout):
                await self._wait_appended()
                await self._accumulator.wait_flushed()
        except TimeoutError:
            raise RequestTimeoutError(
                f"{len(self._accumulator.incomplete)} batches were not acknowledged within {timeout:g} s; "
                "they are still under way"
            ) from None

    async def partitions_for(self, topic: str) -> list[PartitionMetadata]:
        """The partitions of ``topic`` and who serves them; waits for metadata at most ``max.block.ms``."""
        self._begin_call()
        known = await self.cluster.wait_for_topic(topic, Deadline(self._settings.max_block_ms))
        return list(known.partitions.values())

    @property
    def has_fatal_error(self) -> bool:
        """Whether nothing is left but ``close``; after any other failure the next transaction may succeed."""
        return self._transactions is not None and self._transactions.has_fatal_error

    def metrics(self) -> dict[str, float]:
        """Figures about this producer and its connections, by Kafka's names."""
        return self.cluster.metrics.snapshot() | producer_metrics(self) if self._started else {}

    def _begin_call(self) -> None:
        self.start_nowait()
        self._check_open()

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
        self.start_nowait()
        known = self.cluster.metadata.topics.get(topic)
        usable = (
            known is not None and not known.error and (partition is None or partition in known.partitions)
        )
        if usable and known is not None and known.partitions and topic not in self._waiting:
            topics = self._accumulator.topic(known)
            self._know(topics)
            chosen = self._choose(topics, key, value, partition)
            future = self._append(topics, chosen, timestamp_ms, key, value, headers, on_delivery)
            if future is not None:
                return future
        return self._defer(topic, key, value, partition, timestamp_ms, headers, on_delivery)

    def _defer(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp_ms: int,
        headers: Sequence[RecordHeader],
        on_delivery: DeliveryCallback | None,
    ) -> DeferredRecord:
        size = upper_bound_bytes(key, value, headers)
        self._accumulator.needed_bytes(key, value, headers)
        if self._waiting_bytes + size > self._settings.buffer_memory:
            raise BufferExhaustedError(
                f"buffer.memory={self._settings.buffer_memory} is full and as much again waits for it; "
                "await producer.drain(), or the futures, between records"
            )
        appended = asyncio.get_running_loop().create_future()
        appended.add_done_callback(lambda each: each.cancelled() or each.exception())
        deadline = Deadline(self._settings.max_block_ms)
        waiting = _Waiting(
            key, value, partition, timestamp_ms, headers, on_delivery, deadline, size, appended
        )
        self._waiting_bytes += size
        self._waiting.setdefault(topic, deque()).append(waiting)
        # Nothing may overtake what waits.
        self._quick_topics.pop(topic, None)
        if topic not in self._pumps:
            self._pumps[topic] = asyncio.get_running_loop().create_task(self._pump(topic))
        return DeferredRecord(appended, topic)

    def _know(self, topics: TopicQueues) -> None:
        if topics.name not in self._waiting:
            super()._know(topics)

    async def _pump(self, topic: str) -> None:
        """Append what waits for ``topic``, in order, as metadata and memory allow."""
        line = self._waiting[topic]
        try:
            while line:
                waiting = line[0]
                try:
                    waiting.appended.set_result(await self._append_later(topic, waiting))
                except Exception as error:
                    waiting.appended.set_exception(error)
                    self._note_lost_record(error)
                line.popleft()
                self._waiting_bytes -= waiting.size_bytes
        finally:
            del self._waiting[topic], self._pumps[topic]
            for waiting in line:
                self._waiting_bytes -= waiting.size_bytes
                if not waiting.appended.done():
                    waiting.appended.set_exception(ClientClosedError("the producer was closed"))

    async def _append_later(self, topic: str, waiting: _Waiting) -> RecordFuture:
        deadline = waiting.deadline
        known = await self.cluster.wait_for_topic(topic, deadline, waiting.partition)
        topics = self._accumulator.topic(known)
        _, _, partition, timestamp_ms, headers, on_delivery, *_ = waiting
        key, value = waiting.key, waiting.value
        chosen = self._choose(topics, key, value, partition)
        future = self._append(topics, chosen, timestamp_ms, key, value, headers, on_delivery)
        if future is None:
            needed = self._accumulator.needed_bytes(key, value, headers)
            await self.pool.wait_allocate(needed, deadline.remaining)
            future = self._append(topics, chosen, timestamp_ms, key, value, headers, on_delivery, needed)
            assert future is not None
        return future

    async def _wait_appended(self) -> None:
        while self._pumps:
            await asyncio.wait(list(self._pumps.values()))

    async def _drop_waiting(self) -> None:
        """Fail the records that wait to be appended: their transaction is aborted."""
        pumps = list(self._pumps.values())
        for line in self._waiting.values():
            for waiting in line:
                if not waiting.appended.done():
                    waiting.appended.set_exception(
                        TransactionAbortedError("the record's transaction was aborted")
                    )
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)

    def _note_lost_record(self, error: Exception) -> None:
        manager = self._transactions
        if manager is not None and manager.has_ongoing_transaction:
            manager.record_lost(error)

    # -- transactions

    async def init_transactions(self) -> None:
        """Take over the transactional id, once, before the first transaction; older producers are fenced."""
        self._begin_call()
        await self._transaction_calls.init()

    async def begin_transaction(self) -> None:
        """Begin a transaction: all records from now on belong to it."""
        self._begin_call()
        self._transaction_calls.begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetRef], group_metadata: GroupRef
    ) -> None:
        """Commit a consumer's offsets with the transaction; its group by ``group_metadata()`` or by name."""
        self._begin_call()
        await self._transaction_calls.send_offsets(offsets, group_metadata)

    async def commit_transaction(self) -> None:
        """Flush, and make everything that the transaction wrote visible at once."""
        self._begin_call()
        await self._wait_appended()
        await self._transaction_calls.commit()

    async def abort_transaction(self) -> None:
        """Give the transaction up; readers of committed records never see it."""
        self._begin_call()
        await self._drop_waiting()
        await self._transaction_calls.abort()

    async def abort_open_transaction(self) -> None:
        """Abort if there is a transaction that can be aborted."""
        await self._drop_waiting()
        await self._transaction_calls.abort_if_open()

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """``async with producer.transaction():`` commits at the end, or aborts if something fails."""
        await self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException:
            with contextlib.suppress(Exception):
                await self.abort_open_transaction()
            raise
