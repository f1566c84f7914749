"""The asyncio producer, which is also the core of the synchronous one.

    async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
        metadata = await producer.send("topic", b"value")

Owns the network client, the accumulator, the sender and the transaction. ``send`` never blocks: it returns a
future at once. A record for which there is no metadata or no memory yet waits in line behind the others of
its topic, at most ``max.block.ms``; ``await producer.drain()`` now and then keeps a fast program from getting
there.

The methods of ``Producer`` are generated from those of ``AsyncProducer``, but for the few that are written by
hand there: after a change here run ``make format``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self

from tidelog.client._foreign_methods import ASYNC_PRODUCER, foreign_methods
from tidelog.client._network.cluster import Cluster
from tidelog.client._network.from_options import network_settings
from tidelog.client._network.ongoing_errors import PATIENCE_S
from tidelog.client._network.retry import Deadline, check_loop, check_seconds, running_loop
from tidelog.client._telemetry.observers import Observers
from tidelog.client._type_variables import K, V
from tidelog.client.errors import ClientClosedError, ClientError, RequestTimeoutError
from tidelog.client.metadata import PartitionMetadata, check_place
from tidelog.client.metrics import Figures
from tidelog.client.options import PRODUCER, ClientConfig
from tidelog.client.producer._batch_outcomes import BatchOutcomes
from tidelog.client.producer._buffer_pool import BufferPool
from tidelog.client.producer._producer_metrics import ProducerStats, producer_metrics
from tidelog.client.producer._record_accumulator import RecordAccumulator, upper_bound_bytes
from tidelog.client.producer._send_batch.batch_input import BatchInput, check_records, is_table
from tidelog.client.producer._send_batch.batch_sender import BatchSender
from tidelog.client.producer._send_batch.table_sender import TableSender
from tidelog.client.producer._send_batch.table_writer import TableFuture, TableWriter
from tidelog.client.producer._send_path import Buffer, SendPath
from tidelog.client.producer._send_port import SendPort
from tidelog.client.producer._sender import Sender
from tidelog.client.producer._settings import settings_from
from tidelog.client.producer._transaction.transaction_manager import TransactionManager
from tidelog.client.producer._transaction.transaction_states import words
from tidelog.client.producer._transaction.transactional_requests import TransactionalRequests
from tidelog.client.producer._transaction_calls import GroupRef, OffsetRef, PreparedTransaction, Transactions
from tidelog.client.producer.batch_result import BatchResult
from tidelog.client.producer.errors import BufferExhaustedError, TransactionAbortedError
from tidelog.client.producer.health import ProducerActivity, ProducerHealth, producer_health
from tidelog.client.producer.quick_send import RecordFuture, TopicQueues
from tidelog.client.producer.record import DeliveryCallback, ProducerRecord, SerializedRecord
from tidelog.client.producer.record_future import DeferredRecord, Delivery
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition, Uuid
from tidelog.records.compiled import report_interpreted
from tidelog.records.record import RecordHeader
from tidelog.records.record_codec import COMPILED

if TYPE_CHECKING:
    from typing import Unpack

    from tidelog.client.producer.option_types import ProducerOptions

logger = logging.getLogger(__name__)

_CLOSED_BEFORE_SENT = "the producer was closed before the record was sent"
_RECORDS_PER_STEP = 256


class _Waiting(NamedTuple):
    """A record that could not be appended at once."""

    record: SerializedRecord
    deadline: Deadline
    size_bytes: int
    appended: asyncio.Future[Delivery]

    def fail(self, error: Exception) -> None:
        """It never will be: tell the future, and who asked to be called."""
        self.appended.set_exception(error)
        record = self.record
        if record.on_delivery is not None:
            try:
                record.on_delivery(record.unwritten(), error)
            except Exception:
                logger.exception("the delivery callback of a record of topic %s failed", record.topic)


class _Work(NamedTuple):
    """What a producer works with from its start on."""

    cluster: Cluster
    sender: Sender
    transaction_calls: Transactions


class AsyncProducer(Generic[K, V]):
    """Sends records from one event loop.

    Type checkers infer ``K`` and ``V``, the types of keys and values, from the serializers; without one they
    are bytes.

    Args:
        options: Options by Kafka's names, or by those of the keyword arguments; keywords win.
        keywords: Options with underscores: ``ProducerOptions`` has all of them.

    Raises:
        ConfigError: An option is unknown or has a value that it cannot have.

    Example:
        async with AsyncProducer(bootstrap_servers="127.0.0.1:9092") as producer:
            metadata = await producer.send("orders", b"one espresso")
    """

    if not TYPE_CHECKING:
        __getattr__ = foreign_methods(ASYNC_PRODUCER)

    def __init__(
        self,
        options: Mapping[str, object] | None = None,
        /,
        **keywords: Unpack[ProducerOptions[K, V]],
    ) -> None:
        self.config = ClientConfig.parse(PRODUCER, options, **keywords)
        report_interpreted(COMPILED)
        settings = settings_from(self.config)
        transactions = TransactionManager(settings.transactional_id) if settings.enable_idempotence else None
        pool = BufferPool(settings.buffer_memory, max(settings.batch_size, 1))
        self.pool = pool
        self.stats = ProducerStats()
        self._settings = settings
        self._transactions = transactions
        self._accumulator = RecordAccumulator(settings, pool, transactions)
        self._waiting: dict[str, deque[_Waiting]] = {}
        self._observers = Observers(
            self.config, (*settings.interceptors, settings.key_serializer, settings.value_serializer)
        )
        self.send_path = SendPath(
            settings,
            self._accumulator,
            transactions,
            buffer=self._buffer,
            note_lost_record=self._note_lost_record,
            waiting=self._waiting,
        )
        if type(self).send is AsyncProducer.send:
            # Every record goes through here: callers get the compiled method itself, without a hop.
            self.send = self.send_path.send  # type: ignore[method-assign]
        self._waiting_bytes = 0
        self._pumps: dict[str, asyncio.Task[None]] = {}
        self._started_work: _Work | None = None
        self._closed = False
        self._process: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def _work(self) -> _Work:
        if self._started_work is None:
            raise ClientError("the producer has not started: call start() first")
        return self._started_work

    @property
    def _has_started(self) -> bool:
        return self._started_work is not None

    @property
    def cluster(self) -> Cluster:
        """The connections to the cluster, once started."""
        return self._work.cluster

    @property
    def sender(self) -> Sender:
        """The background task that sends batches, once started."""
        return self._work.sender

    # -- life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, error_type: type[BaseException] | None, *rest: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Begin to work on the running loop; the first call does so as well.

        Raises:
            ConfigError: An address or a certificate cannot be used.

        Example:
            await producer.start()
        """
        self.start_nowait()

    def start_nowait(self) -> None:
        """As ``start``, without being a coroutine: no broker is waited for.

        Raises:
            ConfigError: An address or a certificate cannot be used.

        Example:
            producer.start_nowait()
        """
        if self._closed:
            raise ClientClosedError("the producer is closed")
        if self._has_started:
            check_loop(self._loop, "an AsyncProducer")
            return
        self._loop = running_loop("an AsyncProducer")
        settings = self._settings
        cluster = Cluster(self.config.list("bootstrap.servers"), network_settings(self.config))
        requests = None
        if self._transactions is not None:
            requests = TransactionalRequests(cluster, self._transactions, settings.transaction_timeout_ms)
            self._transactions.on_error = self._accumulator.close_open_batches
        outcomes = BatchOutcomes(
            self._accumulator,
            self._transactions,
            settings,
            time.monotonic,
            self.stats,
            cluster.ongoing_errors,
        )
        sender = Sender(cluster, self._accumulator, outcomes, settings, self._transactions, requests)
        self._started_work = _Work(
            cluster,
            sender,
            Transactions(self._transactions, requests, self._accumulator, sender, settings.max_block_ms),
        )
        self._accumulator.wake = sender.wake
        producer_metrics(cluster.metrics, self.stats, self.pool, lambda: sender.in_flight_requests)
        cluster.subscribe_updates(self._updated)
        self._observers.start(cluster)
        self.stats.on_topic = self._observers.figures_changed
        cluster.updates.start()
        sender.start()
        self._process = os.getpid()

    def _updated(self, metadata: object) -> None:
        self.send_path.learn(self.cluster.metadata)
        self.sender.wake()

    async def close(self, timeout: float | None = None) -> None:
        """Send what is buffered, abort an open transaction, and close all connections.

        Args:
            timeout: Seconds after which records that are not acknowledged fail; 0 drops them at once, None
                waits for ``delivery.timeout.ms``.

        Example:
            await producer.close(timeout=10)
        """
        if timeout is not None:
            check_seconds("close", timeout)
        if self._closed:
            return
        if not self._has_started:
            self._closed = True
            self.send_path.close()
            return
        try:
            if timeout is None or timeout > 0:
                await self._finish(timeout)
        finally:
            self._refuse_more()
            self.pool.close()
            await self._stop(timeout)

    async def _finish(self, timeout: float | None) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self._wait_appended()
                self._refuse_more()
                await self._accumulator.wait_flushed()
                await self._work.transaction_calls.abort_if_open()
        except TimeoutError:
            left = len(self._accumulator.incomplete)
            logger.warning("%d batches were not acknowledged when the producer was closed", left)
        except TidelogError as error:
            logger.warning("the producer's transaction was not aborted when it was closed: %s", error)

    def _refuse_more(self) -> None:
        self._closed = True
        self.send_path.close()
        self._accumulator.close()

    async def _stop(self, timeout: float | None) -> None:
        await self._drop_waiting(ClientClosedError(_CLOSED_BEFORE_SENT))
        await self._work.transaction_calls.close()
        await self.sender.close()
        await self._observers.close(timeout)
        await self.cluster.close()
        self.send_path.interceptors.close()

    # -- records

    def send(
        self,
        topic: str | ProducerRecord[K, V],
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Mapping[str, bytes | None] | Sequence[RecordHeader] | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery:
        """Buffer a record; it never waits.

        Args:
            topic: The name of the topic, or a ``ProducerRecord`` with all of the following.
            value: The value; None is a null, which deletes the key in a compacted topic.
            key: The key, whose hash chooses the partition.
            partition: The partition; None leaves the choice to the partitioner.
            timestamp_ms: Milliseconds since 1970; None means now.
            headers: Pairs of name and bytes, or a mapping.
            on_delivery: Called with the ``RecordMetadata`` and the error, or None, once the record is stored
                or has failed.

        Returns:
            A future: it resolves to the ``RecordMetadata`` once the record is stored.

        Raises:
            SerializationError: The key, the value or a header cannot be sent as bytes.
            KafkaError: The topic's name or the partition is not valid, or the record is larger than
                ``max.request.size``.
            BufferExhaustedError: ``buffer.memory`` is full, and as much again waits for room: await ``drain``
                between records.
            TransactionStateError: The producer has a ``transactional.id``, and no transaction has begun.
            ClientClosedError: The producer is closed.

        Example:
            metadata = await producer.send("orders", b"one espresso", key=b"table-4")
            print(metadata.offset)
        """
        return self.send_path.send(
            topic,
            value,
            key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
            on_delivery=on_delivery,
        )

    async def drain(self) -> None:
        """Let the sender work, and wait while records have no room in the buffer.

        Example:
            for number in range(3):
                producer.send("orders", b"%d" % number)
                await producer.drain()
        """
        await asyncio.sleep(0)
        while self._pumps:
            await asyncio.wait(list(self._pumps.values()), return_when=asyncio.FIRST_COMPLETED)

    async def send_arrow(self, table: Any, topic: str, *, partition: int | None = None) -> TableFuture:
        """Buffer all rows of a table, and wait for room; one future for all of them.

        Columns are ``key`` and ``value``, of which at least one is needed, ``timestamp`` and ``headers``.
        Serializers, interceptors and callbacks do not see rows.

        Args:
            table: A ``pyarrow.Table`` or ``pyarrow.RecordBatch``.
            topic: The name of the topic.
            partition: The partition of all rows; None chooses by key.

        Returns:
            A future: it resolves to the places of the rows.

        Raises:
            ConfigError: pyarrow is not installed.
            SerializationError: A column is unknown or has a type that cannot be sent.
            BufferExhaustedError: There was no room in ``buffer.memory`` for ``max.block.ms``.
            ClientClosedError: The producer is closed.

        Example:
            import pyarrow as pa

            rows = pa.table({"key": [b"a", b"b"], "value": [b"1", b"2"]})
            print(await (await producer.send_arrow(rows, "orders")))
        """
        self._begin_call()
        self.send_path.check_usable()
        writer = TableWriter(table, partition, self._settings, self._accumulator, self._transactions)
        deadline = Deadline(self._settings.max_block_ms)
        await self._wait_appended()
        try:
            with self.stats.timed("metadata_wait_s"):
                known = await self.cluster.wait_for_topic(topic, deadline, partition)
            for needed in writer.write(self._accumulator.topic(known)):
                if needed:
                    await self.pool.wait_allocate(needed, self._settings.max_block_ms / 1000)
                elif self._accumulator.has_backlog:
                    await asyncio.sleep(0)
        except Exception as error:
            self._note_lost_record(error)
            raise
        return writer.future

    async def send_batch(
        self, topic: str, records: BatchInput, *, timeout: float | None = None
    ) -> BatchResult:
        """Send a collection of records or a table, wait, and return the outcome of every record.

        Waits for room in ``buffer.memory`` while it reads ``records``, then for all acknowledgments; the
        result has one outcome for each record that was read, whatever failed. A failed record does not keep
        the others from being sent, but a transaction that it belongs to cannot be committed.

        Args:
            topic: Where the records go.
            records: An iterable of ``ProducerRecord`` or ``ConsumerRecord`` objects, mappings with the fields
                key, value, headers, timestamp_ms and partition, or tuples of these fields in this order; or a
                table with the columns key, value, headers, timestamp and partition: a ``pyarrow.Table``,
                ``RecordBatch`` or ``RecordBatchReader``, or a data frame that exports Arrow (polars, pandas).
                Serializers, interceptors and ``partitioner.class`` do not see the rows of a table.
            timeout: For how many seconds to send and to wait. Later records are not sent, and those that are
                not acknowledged count as failed, though they may still be written. None: no limit;
                ``delivery.timeout.ms`` bounds the wait for each record.

        Returns:
            A ``BatchResult``, a sequence of ``RecordOutcome`` in the order of ``records``.

        Raises:
            ValueError: ``records`` is no collection of records, or a column of the table cannot be sent.
            TransactionStateError: The producer is transactional and no transaction has begun.
            BatchSourceError: Reading ``records`` raised an error; its ``result`` has the outcomes so far.
            TidelogError: The topic cannot be used; nothing was sent.

        Example::

            result = await producer.send_batch("orders", [(b"key", b"value"), {"value": b"other"}])
            print(result.stored_count, [failed.index for failed in result.failures()])
        """
        check_records(records, asynchronous=True)
        self._begin_call()
        self.send_path.check_usable()
        await self._wait_appended()
        sender = BatchSender(await self._topic_queues(topic), self._note_lost_record, timeout)
        if is_table(records):
            rows = TableSender(sender, self._settings, self._accumulator, self._transactions)
            await self._send_table(sender, rows, rows.read(records))
        else:
            await self._send_records(sender, records)
        problem: Exception | None = None
        try:
            await self.flush(sender.remaining_s)
        except Exception as error:
            problem = error
        return sender.finish(problem)

    async def _send_records(self, sender: BatchSender, records: Any) -> None:
        try:
            if hasattr(records, "__aiter__"):
                async for item in records:
                    await self._send_item(sender, item)
            else:
                for count, item in enumerate(records):
                    await self._send_item(sender, item)
                    if not count % _RECORDS_PER_STEP:
                        await asyncio.sleep(0)
        except Exception as error:
            sender.failure = error

    async def _send_item(self, sender: BatchSender, item: object) -> None:
        record = sender.read(item)
        if record is None:
            return
        if sender.must_look_up(record.partition):
            await self._look_up(sender, record.partition)
        deferred = sender.send(record, self.send)
        if deferred is not None:
            await sender.wait_buffered(deferred)

    async def _send_table(self, sender: BatchSender, rows: TableSender, batches: Iterator[Any]) -> None:
        try:
            for batch in batches:
                for partition in rows.begin(batch):
                    await self._look_up(sender, partition)
                try:
                    for needed in rows.write():
                        if needed:
                            await self.pool.wait_allocate(needed, self._settings.max_block_ms / 1000)
                        elif self._accumulator.has_backlog:
                            await asyncio.sleep(0)
                except Exception as error:
                    rows.give_up(error)
                await asyncio.sleep(0)
        except Exception as error:
            sender.failure = error

    async def _look_up(self, sender: BatchSender, partition: int | None) -> None:
        with contextlib.suppress(TidelogError):
            await self.look_up_topic(sender.topics.name)
        sender.looked_up(partition)

    async def look_up_topic(self, topic: str) -> None:
        """Fetch the newest metadata of a topic, for partitions that the last metadata do not have.

        Args:
            topic: The name of the topic.

        Raises:
            RequestTimeoutError: There is no answer within ``max.block.ms``.

        Example:
            await producer.start()
            await producer.look_up_topic("orders")
        """
        fresh = await self.cluster.refresh([topic], deadline=Deadline(self._settings.max_block_ms))
        known = fresh.topics.get(topic)
        if known is not None and known.partitions:
            self._accumulator.topic(known)

    async def _topic_queues(self, topic: str) -> TopicQueues:
        check_place(topic)
        with self.stats.timed("metadata_wait_s"):
            known = await self.cluster.wait_for_topic(topic, Deadline(self._settings.max_block_ms))
        return self._accumulator.topic(known)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is acknowledged or has failed, without lingering.

        Args:
            timeout: Seconds to wait; None waits for ``delivery.timeout.ms``.

        Raises:
            RequestTimeoutError: Some batches are still under way after ``timeout``.

        Example:
            await producer.flush(timeout=10)
        """
        if timeout is not None:
            check_seconds("flush", timeout)
        if not self._has_started:
            return
        try:
            with self.stats.timed("flush_s"):
                async with asyncio.timeout(timeout):
                    await self._wait_appended()
                    await self._accumulator.wait_flushed()
        except TimeoutError:
            raise RequestTimeoutError(
                f"{len(self._accumulator.incomplete)} batches were not acknowledged within {timeout:g} s; "
                "they are still under way"
            ) from None

    async def partitions_for(self, topic: str) -> list[PartitionMetadata]:
        """Return the partitions of a topic and the brokers that serve them.

        Args:
            topic: The name of the topic, which is created if the broker allows that.

        Returns:
            The partitions in order.

        Raises:
            RequestTimeoutError: The topic is not known within ``max.block.ms``.
            KafkaError: The producer may not see the topic.
            ClientClosedError: The producer is closed.

        Example:
            for partition in await producer.partitions_for("orders"):
                print(partition.partition, partition.leader)
        """
        self._begin_call()
        with self.stats.timed("metadata_wait_s"):
            known = await self.cluster.wait_for_topic(topic, Deadline(self._settings.max_block_ms))
        return list(known.partitions.values())

    @property
    def has_fatal_error(self) -> bool:
        """Whether only ``close`` is left; after any other failure the next transaction may succeed."""
        return self._transactions is not None and self._transactions.has_fatal_error

    def ongoing_error(self) -> tuple[float, str] | None:
        """Return the error that keeps this producer from sending.

        Errors that may pass are retried until ``delivery.timeout.ms``.

        Returns:
            Seconds since it began, and the error's text; None if there is none.

        Example:
            if (problem := producer.ongoing_error()) is not None:
                print(problem)
        """
        return self.cluster.ongoing_errors.longest if self._has_started else None

    def health(self, patience: float = PATIENCE_S) -> ProducerHealth:
        """Return whether this producer works, for a readiness probe: at once, from memory, from any thread.

        Args:
            patience: Seconds that an error which keeps it from sending may last before it counts.

        Returns:
            Its state, with ``ok`` and, where that is False, the ``reason``.

        Example:
            health = producer.health()
            if not health.ok:
                print(health.reason)
        """
        check_seconds("health", patience, "patience")
        has_begun = self._process is not None
        manager = self._transactions
        unusable: str | None = None
        if has_begun and self._process != os.getpid():
            unusable = "the producer belongs to the parent of this process: make one here"
        elif self._closed:
            unusable = "the producer is closed"
        elif manager is not None and manager.has_fatal_error:
            unusable = f"the producer has failed, close it and make another: {manager.last_error}"
        is_transactional = manager is not None and manager.is_transactional
        return producer_health(
            ProducerActivity(
                unusable,
                has_metadata=has_begun and self.cluster.updates.version > 0,
                is_connected=has_begun and any(peer.connection is not None for peer in self.cluster.peers),
                batches=list(self._accumulator.incomplete),
                in_flight=self.sender.in_flight_batches if has_begun else (),
                waiting_records=sum(len(line) for line in list(self._waiting.values())),
                buffered_bytes=self.pool.total_bytes - self.pool.available_bytes,
                requests=self.sender.in_flight_requests if has_begun else 0,
                acknowledged_at=self.stats.acknowledged_at_s,
                transactional_id=None if manager is None else manager.transactional_id,
                transaction_state=words(manager.state) if is_transactional and manager is not None else None,
                error=self.cluster.ongoing_errors.current if has_begun else None,
            ),
            patience,
        )

    def metrics(self) -> Figures:
        """Return the metrics of this producer, its topics and its brokers.

        Returns:
            Values by Kafka's names; times are in milliseconds.

        Example:
            print(producer.metrics().get("record-send-total"))
        """
        return self.cluster.metrics.snapshot() if self._has_started else Figures()

    async def client_instance_id(self, timeout: float = 30.0) -> Uuid:
        """Return the id by which brokers know this client in its telemetry (KIP-714).

        Args:
            timeout: Seconds to wait for the id.

        Returns:
            The id, 16 bytes.

        Raises:
            RequestTimeoutError: No broker has given one within ``timeout``.
            ClientClosedError: The producer is closed.

        Example:
            print((await producer.client_instance_id()).hex())
        """
        self._begin_call()
        return await self._observers.client_instance_id(timeout)

    def _begin_call(self) -> None:
        self.start_nowait()
        if self._closed:
            raise ClientClosedError("the producer is closed")

    def _buffer(self, record: SerializedRecord) -> Delivery:
        self.start_nowait()
        topic, partition = record.topic, record.partition
        known = self.cluster.metadata.topics.get(topic)
        usable = (
            known is not None and not known.error and (partition is None or partition in known.partitions)
        )
        if usable and known is not None and known.partitions and topic not in self._waiting:
            path = self.send_path
            topics = self._accumulator.topic(known)
            path.know(topics)
            future = path.append(topics, path.choose(topics, record), record)
            if future is not None:
                return future
        return self._defer(record)

    def _defer(self, record: SerializedRecord) -> DeferredRecord:
        size = upper_bound_bytes(record)
        self._accumulator.needed_bytes(record)
        if self._waiting_bytes + size > self._settings.buffer_memory:
            raise BufferExhaustedError(
                f"buffer.memory={self._settings.buffer_memory} is full and as much again waits for it; "
                "await producer.drain(), or the futures, between records"
            )
        topic = record.topic
        appended: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
        appended.add_done_callback(lambda each: each.cancelled() or each.exception())
        waiting = _Waiting(record, Deadline(self._settings.max_block_ms), size, appended)
        self._waiting_bytes += size
        self._waiting.setdefault(topic, deque()).append(waiting)
        # Nothing may overtake what waits.
        self.send_path.hold(topic)
        if topic not in self._pumps:
            self._pumps[topic] = asyncio.get_running_loop().create_task(self._pump(topic))
        return DeferredRecord(appended, topic)

    async def _pump(self, topic: str) -> None:
        """Append what waits for ``topic``, in order, as metadata and memory allow."""
        line = self._waiting[topic]
        try:
            while line:
                waiting = line[0]
                try:
                    waiting.appended.set_result(await self._append_later(topic, waiting))
                except Exception as error:
                    self._note_lost_record(error)
                    waiting.fail(error)
                line.popleft()
                self._waiting_bytes -= waiting.size_bytes
        finally:
            # Whoever drops what waits has ended the line already, and the topic may have another by now.
            if self._waiting.get(topic) is line:
                self._end_line(topic, ClientClosedError(_CLOSED_BEFORE_SENT))

    def _end_line(self, topic: str, reason: Exception) -> None:
        """Nothing of ``topic`` waits any more; what still does fails with ``reason``."""
        del self._pumps[topic]
        for waiting in self._waiting.pop(topic):
            self._waiting_bytes -= waiting.size_bytes
            if not waiting.appended.done():
                waiting.fail(reason)

    async def _append_later(self, topic: str, waiting: _Waiting) -> RecordFuture:
        record, deadline = waiting.record, waiting.deadline
        with self.stats.timed("metadata_wait_s"):
            known = await self.cluster.wait_for_topic(topic, deadline, record.partition)
        path = self.send_path
        topics = self._accumulator.topic(known)
        chosen = path.choose(topics, record)
        future = path.append(topics, chosen, record)
        if future is None:
            needed = self._accumulator.needed_bytes(record)
            await self.pool.wait_allocate(needed, deadline.remaining)
            future = path.append(topics, chosen, record, needed)
            assert future is not None
        return future

    async def _wait_appended(self) -> None:
        while self._pumps:
            await asyncio.wait(list(self._pumps.values()))

    async def _drop_waiting(self, reason: Exception) -> None:
        """Fail the records that wait to be appended with ``reason``."""
        pumps = list(self._pumps.values())
        # Not left to the pumps: one that is cancelled before its first turn never runs at all.
        for topic in list(self._waiting):
            self._end_line(topic, reason)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)

    def _note_lost_record(self, error: Exception) -> None:
        manager = self._transactions
        if manager is not None and manager.has_ongoing_transaction:
            manager.record_lost(error)

    # -- transactions

    async def init_transactions(self) -> None:
        """Take over the ``transactional.id``, once, before the first transaction; older producers are fenced.

        Raises:
            TransactionStateError: The call is not allowed now; the text names the one that comes first.
            TransactionAbortableError: The transaction has failed: abort it.
            ProducerFencedError: A newer producer has the same ``transactional.id``.
            RequestTimeoutError: It has not ended within ``max.block.ms``, and goes on: call it again to wait
                for it.
            ClientClosedError: The producer is closed.
            KafkaError: The coordinator refuses the producer.

        Example:
            await producer.init_transactions()
        """
        self._begin_call()
        with self.stats.timed("init_s"):
            await self._work.transaction_calls.init()

    async def begin_transaction(self) -> None:
        """Begin a transaction: all records sent from now on belong to it.

        Raises:
            TransactionStateError: The call is not allowed now; the text names the one that comes first.
            ProducerFencedError: A newer producer has the same ``transactional.id``.
            ClientClosedError: The producer is closed.

        Example:
            await producer.begin_transaction()
            producer.send("orders", b"one espresso")
            await producer.commit_transaction()
        """
        self._begin_call()
        with self.stats.timed("begin_s"):
            self._work.transaction_calls.begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetRef], group_metadata: GroupRef
    ) -> None:
        """Commit a consumer's offsets with the transaction.

        Args:
            offsets: The offset of the next record to read, by partition.
            group_metadata: The consumer's ``group_metadata()``, or the name of its group.

        Raises:
            TransactionStateError: The call is not allowed now; the text names the one that comes first.
            TransactionAbortableError: The transaction has failed: abort it.
            ProducerFencedError: A newer producer has the same ``transactional.id``.
            RequestTimeoutError: It has not ended within ``max.block.ms``, and goes on: call it again to wait
                for it.
            ClientClosedError: The producer is closed.
            CommitFailedError: The consumer is no longer a member of its group.

        Example:
            await producer.begin_transaction()
            place = TopicPartition("orders", 0)
            await producer.send_offsets_to_transaction({place: 1}, "kitchen")
            await producer.commit_transaction()
        """
        self._begin_call()
        with self.stats.timed("send_offsets_s"):
            await self._work.transaction_calls.send_offsets(offsets, group_metadata)

    async def prepare_transaction(self, timeout: float | None = None) -> PreparedTransaction:
        """Write everything that was sent, and leave the transaction open for another program to end.

        Afterwards only ``close(0)`` may be called, which does not end the transaction.

        Args:
            timeout: Seconds to wait; None waits for ``delivery.timeout.ms``.

        Returns:
            The producer id and epoch by which the transaction can be committed or aborted.

        Raises:
            TransactionStateError: The call is not allowed now; the text names the one that comes first.
            TransactionAbortableError: The transaction has failed: abort it.
            ProducerFencedError: A newer producer has the same ``transactional.id``.
            RequestTimeoutError: It has not ended within ``max.block.ms``, and goes on: call it again to wait
                for it.
            ClientClosedError: The producer is closed.

        Example:
            await producer.begin_transaction()
            producer.send("orders", b"one espresso")
            print(await producer.prepare_transaction())
        """
        self._begin_call()
        with self.stats.timed("prepare_s"):
            await self.flush(timeout)
            return await self._work.transaction_calls.prepare()

    async def commit_transaction(self) -> None:
        """Flush, and make everything that the transaction wrote visible at once.

        Raises:
            TransactionStateError: The call is not allowed now; the text names the one that comes first.
            TransactionAbortableError: The transaction has failed: abort it.
            ProducerFencedError: A newer producer has the same ``transactional.id``.
            RequestTimeoutError: It has not ended within ``max.block.ms``, and goes on: call it again to wait
                for it.
            ClientClosedError: The producer is closed.

        Example:
            await producer.begin_transaction()
            producer.send("orders", b"one espresso")
            await producer.commit_transaction()
        """
        self._begin_call()
        with self.stats.timed("commit_s"):
            await self._wait_appended()
            await self._work.transaction_calls.commit()

    async def abort_transaction(self) -> None:
        """Discard everything that the transaction wrote: readers of committed records never see it.

        Raises:
            TransactionStateError: The call is not allowed now; the text names the one that comes first.
            TransactionAbortableError: The transaction has failed: abort it.
            ProducerFencedError: A newer producer has the same ``transactional.id``.
            RequestTimeoutError: It has not ended within ``max.block.ms``, and goes on: call it again to wait
                for it.
            ClientClosedError: The producer is closed.

        Example:
            await producer.begin_transaction()
            producer.send("orders", b"one espresso")
            await producer.abort_transaction()
        """
        self._begin_call()
        with self.stats.timed("abort_s"):
            await self._drop_waiting(TransactionAbortedError("the record's transaction was aborted"))
            await self._work.transaction_calls.abort()

    async def abort_open_transaction(self) -> None:
        """Abort the transaction unless its commit is under way.

        Raises:
            TransactionStateError: The call is not allowed now; the text names the one that comes first.
            TransactionAbortableError: The transaction has failed: abort it.
            ProducerFencedError: A newer producer has the same ``transactional.id``.
            RequestTimeoutError: It has not ended within ``max.block.ms``, and goes on: call it again to wait
                for it.
            ClientClosedError: The producer is closed.

        Example:
            await producer.begin_transaction()
            await producer.abort_open_transaction()
        """
        if self._work.transaction_calls.is_committing:
            return
        await self._drop_waiting(TransactionAbortedError("the record's transaction was aborted"))
        await self._work.transaction_calls.abort_if_open()

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """A transaction as a block: commits at its end, aborts if something in it fails.

        A commit that has not ended within ``max.block.ms`` goes on: ``commit_transaction`` waits for it.

        Returns:
            The producer.

        Raises:
            TransactionStateError: The call is not allowed now; the text names the one that comes first.
            TransactionAbortableError: The transaction has failed: abort it.
            ProducerFencedError: A newer producer has the same ``transactional.id``.
            RequestTimeoutError: It has not ended within ``max.block.ms``, and goes on: call it again to wait
                for it.
            ClientClosedError: The producer is closed.

        Example:
            async with producer.transaction():
                producer.send("orders", b"one espresso")
        """
        await self.begin_transaction()
        try:
            yield self
            await self.commit_transaction()
        except BaseException:
            with contextlib.suppress(Exception):
                await self.abort_open_transaction()
            raise


def open_send_port(
    producer: AsyncProducer[Any, Any], *, buffer: Buffer, note_lost_record: Callable[[Exception], None]
) -> SendPort:
    """The way of ``Producer`` past the loop, on which records take its own ``buffer`` from now on."""
    path = producer.send_path
    path.buffer = buffer
    path.note_lost_record = note_lost_record
    return SendPort(
        path,
        producer.pool,
        known_topic=lambda name: producer.cluster.metadata.topics.get(name),
        wait_for_topic=lambda name, deadline, partition: producer.cluster.wait_for_topic(
            name, deadline, partition
        ),
        note_metadata_wait=lambda seconds: producer.stats.add_time("metadata_wait_s", seconds),
        note_lost_record=producer._note_lost_record,
    )
