"""The synchronous producer: the same methods as ``AsyncProducer``, for any number of threads.

    with Producer(bootstrap_servers="localhost:9092") as producer:
        future = producer.send("topic", b"value")
        print(future.result(10).offset)

The core runs on a background thread. ``send`` does its work in the caller's thread, under the accumulator's
lock, and wakes the other thread only when a batch begins; it blocks while metadata or memory are missing, at
most ``max.block.ms``. Delivery callbacks run on the background thread: they must be quick, and may ``send``
but not wait. What ``send`` uses of the core is ``send_port``; the methods that only wait for the core are
generated from its own: scripts/generate_sync_clients.py.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from tidelog.client._foreign_methods import PRODUCER, foreign_methods
from tidelog.client._loop_thread import LoopThread
from tidelog.client._network.cluster import Cluster
from tidelog.client._network.ongoing_errors import PATIENCE_S
from tidelog.client._network.retry import Deadline, check_seconds
from tidelog.client._type_variables import K, V
from tidelog.client.errors import ClientClosedError
from tidelog.client.metadata import PartitionMetadata, check_place
from tidelog.client.metrics import Figures
from tidelog.client.options import ClientConfig
from tidelog.client.producer._send_batch.batch_input import BatchInput, check_records, is_table
from tidelog.client.producer._send_batch.batch_sender import BatchSender
from tidelog.client.producer._send_batch.table_sender import TableSender
from tidelog.client.producer._send_batch.table_writer import TableFuture, TableWriter
from tidelog.client.producer._transaction_calls import GroupRef, OffsetRef, PreparedTransaction
from tidelog.client.producer.async_producer import AsyncProducer, open_send_port
from tidelog.client.producer.batch_result import BatchResult
from tidelog.client.producer.errors import BufferExhaustedError
from tidelog.client.producer.health import ProducerHealth
from tidelog.client.producer.quick_send import TopicQueues
from tidelog.client.producer.record import DeliveryCallback, ProducerRecord, SerializedRecord
from tidelog.client.producer.record_future import Delivery
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition, Uuid
from tidelog.records.record import RecordHeader

if TYPE_CHECKING:
    from typing import Unpack

    from tidelog.client.producer.option_types import ProducerOptions

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Producer(Generic[K, V]):
    """Sends records from any number of threads.

    Type checkers infer ``K`` and ``V``, the types of keys and values, from the serializers; without one they
    are bytes.

    Args:
        options: Options by Kafka's names, or by those of the keyword arguments; keywords win.
        keywords: Options with underscores: ``ProducerOptions`` has all of them.

    Raises:
        ConfigError: An option is unknown or has a value that it cannot have.

    Example:
        with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
            print(producer.send("orders", b"one espresso").result(timeout=30).offset)
    """

    if not TYPE_CHECKING:
        __getattr__ = foreign_methods(PRODUCER)

    def __init__(
        self,
        options: Mapping[str, object] | None = None,
        /,
        **keywords: Unpack[ProducerOptions[K, V]],
    ) -> None:
        core: AsyncProducer[K, V] = AsyncProducer(options, **keywords)
        self._core = core
        self._closed = False
        self._port = open_send_port(core, buffer=self._buffer, note_lost_record=self._note_lost_record)
        # The core learns of topics on its own thread; what it knows is what this face may use.
        self.send_path = path = self._port.path
        self._settings = path.settings
        self._accumulator = path.accumulator
        if type(self).send is Producer.send:
            # Every record goes through here: callers get the compiled method itself, without a hop.
            self.send = self.send_path.send  # type: ignore[method-assign]
        # In a forked child nobody would send what is buffered.
        self._thread = LoopThread(
            f"producer {core.config.str('client.id')}", at_exit=core.close, on_fork=path.close
        )
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
        self._thread.check()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self, timeout: float | None = None) -> None:
        """Send what is buffered, abort an open transaction, and close all connections.

        A callback that closes the producer cannot wait for its own thread: records that are not acknowledged
        fail.

        Args:
            timeout: Seconds after which records that are not acknowledged fail; 0 drops them at once, None
                waits for ``delivery.timeout.ms``.

        Example:
            producer.close(timeout=10)
        """
        if timeout is not None:
            check_seconds("close", timeout)
        if self._closed:
            return
        self._closed = self.send_path.closed = True
        if self._thread.is_current:
            logger.warning(
                "%s is closed by a callback: what is not acknowledged yet fails", self._thread.name
            )
            self._thread.close_after(self._core.close(0))
            return
        try:
            self._thread.call(self._core.close(timeout), what="the producer's end")
        finally:
            self._thread.close()

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
        """Buffer a record; waits while there is no metadata of the topic or no room, at most
        ``max.block.ms``.

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
            A future: its ``result()`` is the ``RecordMetadata`` once the record is stored.

        Raises:
            SerializationError: The key, the value or a header cannot be sent as bytes.
            KafkaError: The topic's name or the partition is not valid, or the record is larger than
                ``max.request.size``.
            BufferExhaustedError: There was no room in ``buffer.memory`` for ``max.block.ms``.
            TransactionStateError: The producer has a ``transactional.id``, and no transaction has begun.
            ClientClosedError: The producer is closed.
            RequestTimeoutError: The topic is not known within ``max.block.ms``.

        Example:
            future = producer.send("orders", b"one espresso", key=b"table-4")
            print(future.result(timeout=30).offset)
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

    def send_arrow(self, table: Any, topic: str, *, partition: int | None = None) -> TableFuture:
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
            print(producer.send_arrow(rows, "orders").result(timeout=30))
        """
        self.send_path.check_usable()
        writer = TableWriter(table, partition, self._settings, self._accumulator, self.send_path.transactions)
        deadline = Deadline(self._settings.max_block_ms)
        try:
            for needed in writer.write(self._topic(topic, partition, deadline)):
                if needed:
                    self._allocate(needed, Deadline(self._settings.max_block_ms))
                else:
                    self._accumulator.let_sender_run()
        except Exception as error:
            self._note_lost_record(error)
            raise
        return writer.future

    def send_batch(self, topic: str, records: BatchInput, *, timeout: float | None = None) -> BatchResult:
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

            result = producer.send_batch("orders", [(b"key", b"value"), {"value": b"other"}])
            print(result.stored_count, [failed.index for failed in result.failures()])
        """
        check_records(records)
        check_place(topic)
        if self._thread.is_current:
            raise ClientClosedError("a delivery callback cannot wait for a batch: call send there")
        self.send_path.check_usable()
        topics = self._topic(topic, None, Deadline(self._settings.max_block_ms))
        sender = BatchSender(topics, self.send_path.note_lost_record, timeout)
        if is_table(records):
            rows = TableSender(sender, self._settings, self._accumulator, self.send_path.transactions)
            self._send_table(sender, rows, rows.read(records))
        else:
            self._send_records(sender, records)
        problem: Exception | None = None
        try:
            self.flush(sender.remaining_s)
        except Exception as error:
            problem = error
        return sender.finish(problem)

    def _send_records(self, sender: BatchSender, records: Any) -> None:
        try:
            for item in records:
                record = sender.read(item)
                if record is not None:
                    if sender.must_look_up(record.partition):
                        self._look_up(sender, record.partition)
                    sender.send(record, self.send)
        except Exception as error:
            sender.failure = error

    def _send_table(self, sender: BatchSender, rows: TableSender, batches: Iterator[Any]) -> None:
        try:
            for batch in batches:
                for partition in rows.begin(batch):
                    self._look_up(sender, partition)
                try:
                    for needed in rows.write():
                        if needed:
                            self._allocate(needed, Deadline(self._settings.max_block_ms))
                        else:
                            self._accumulator.let_sender_run()
                except Exception as error:
                    rows.give_up(error)
        except Exception as error:
            sender.failure = error

    def _look_up(self, sender: BatchSender, partition: int | None) -> None:
        with contextlib.suppress(TidelogError):
            self._call(self._core.look_up_topic(sender.topics.name))
        sender.looked_up(partition)

    def ask_cluster(self, question: Callable[[Cluster], Awaitable[T]], what: str) -> T:
        """Return the answer to a question about the cluster, over this producer's connections.

        Args:
            question: Called with the cluster, on the producer's own thread.
            what: The name of the question in errors.

        Returns:
            The result of ``question``.

        Raises:
            RequestTimeoutError: There is no answer in time.
            ClientClosedError: The producer is closed.

        Example:
            known = producer.ask_cluster(lambda cluster: cluster.refresh([]), "the cluster's id")
            print(known.cluster_id)
        """

        async def asked() -> T:
            return await question(self._core.cluster)

        return self._thread.call(asked(), what=what)

    def ask_cluster_nowait(self, question: Callable[[Cluster], Awaitable[T]]) -> Future[T]:
        """As ``ask_cluster``, without waiting.

        Args:
            question: Called with the cluster, on the producer's own thread.

        Returns:
            A future, which is cancelled if the producer is closed before.

        Raises:
            ClientClosedError: The producer is closed.

        Example:
            future = producer.ask_cluster_nowait(lambda cluster: cluster.refresh([]))
            print(future.result(timeout=30).cluster_id)
        """

        async def asked() -> T:
            return await question(self._core.cluster)

        return self._thread.submit(asked())

    def _buffer(self, record: SerializedRecord) -> Delivery:
        deadline = Deadline(self._settings.max_block_ms)
        path = self.send_path
        topics = self._topic(record.topic, record.partition, deadline)
        chosen = path.choose(topics, record)
        future = path.append(topics, chosen, record)
        if future is None:
            needed = self._accumulator.needed_bytes(record)
            self._allocate(needed, deadline)
            future = path.append(topics, chosen, record, needed)
            assert future is not None
        self._accumulator.let_sender_run()
        return future

    def _topic(self, name: str, partition: int | None, deadline: Deadline) -> TopicQueues:
        known = self._port.known_topic(name)
        if (
            known is None
            or known.error
            or not known.partitions
            or (partition is not None and partition not in known.partitions)
        ):
            waiting = self._port.wait_for_topic(name, deadline, partition)
            began = time.monotonic()
            try:
                known = self._thread.call(waiting, what=f"topic {name!r}")
            finally:
                self._port.note_metadata_wait(time.monotonic() - began)
        topics = self._accumulator.topic(known)
        self.send_path.know(topics)
        return topics

    def _allocate(self, size_bytes: int, deadline: Deadline) -> None:
        pool = self._port.pool
        if not self._thread.is_current:
            pool.allocate(size_bytes, deadline.remaining)
        elif not pool.allocate_nowait(size_bytes):
            raise BufferExhaustedError(
                f"buffer.memory={pool.total_bytes} is full, and a callback cannot wait for its own thread"
            )

    def _note_lost_record(self, error: Exception) -> None:
        with contextlib.suppress(ClientClosedError):
            self._thread.call_soon(self._port.note_lost_record, error)

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._thread.call(coroutine)

    # Generated by scripts/generate_sync_clients.py from async_producer.py, down to the end; do not edit.

    # -- records

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is acknowledged or has failed, without lingering.

        Args:
            timeout: Seconds to wait; None waits for ``delivery.timeout.ms``.

        Raises:
            RequestTimeoutError: Some batches are still under way after ``timeout``.

        Example:
            producer.flush(timeout=10)
        """
        self._call(self._core.flush(timeout))

    def partitions_for(self, topic: str) -> list[PartitionMetadata]:
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
            for partition in producer.partitions_for("orders"):
                print(partition.partition, partition.leader)
        """
        return self._call(self._core.partitions_for(topic))

    @property
    def has_fatal_error(self) -> bool:
        """Whether only ``close`` is left; after any other failure the next transaction may succeed."""
        return self._core.has_fatal_error

    def ongoing_error(self) -> tuple[float, str] | None:
        """Return the error that keeps this producer from sending.

        Errors that may pass are retried until ``delivery.timeout.ms``.

        Returns:
            Seconds since it began, and the error's text; None if there is none.

        Example:
            if (problem := producer.ongoing_error()) is not None:
                print(problem)
        """
        return self._core.ongoing_error()

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
        return self._core.health(patience)

    def metrics(self) -> Figures:
        """Return the metrics of this producer, its topics and its brokers.

        Returns:
            Values by Kafka's names; times are in milliseconds.

        Example:
            print(producer.metrics().get("record-send-total"))
        """
        return self._core.metrics()

    def client_instance_id(self, timeout: float = 30.0) -> Uuid:
        """Return the id by which brokers know this client in its telemetry (KIP-714).

        Args:
            timeout: Seconds to wait for the id.

        Returns:
            The id, 16 bytes.

        Raises:
            RequestTimeoutError: No broker has given one within ``timeout``.
            ClientClosedError: The producer is closed.

        Example:
            print((producer.client_instance_id()).hex())
        """
        return self._call(self._core.client_instance_id(timeout))

    # -- transactions

    def init_transactions(self) -> None:
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
            producer.init_transactions()
        """
        self._call(self._core.init_transactions())

    def begin_transaction(self) -> None:
        """Begin a transaction: all records sent from now on belong to it.

        Raises:
            TransactionStateError: The call is not allowed now; the text names the one that comes first.
            ProducerFencedError: A newer producer has the same ``transactional.id``.
            ClientClosedError: The producer is closed.

        Example:
            producer.begin_transaction()
            producer.send("orders", b"one espresso")
            producer.commit_transaction()
        """
        self._call(self._core.begin_transaction())

    def send_offsets_to_transaction(
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
            producer.begin_transaction()
            place = TopicPartition("orders", 0)
            producer.send_offsets_to_transaction({place: 1}, "kitchen")
            producer.commit_transaction()
        """
        self._call(self._core.send_offsets_to_transaction(offsets, group_metadata))

    def prepare_transaction(self, timeout: float | None = None) -> PreparedTransaction:
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
            producer.begin_transaction()
            producer.send("orders", b"one espresso")
            print(producer.prepare_transaction())
        """
        return self._call(self._core.prepare_transaction(timeout))

    def commit_transaction(self) -> None:
        """Flush, and make everything that the transaction wrote visible at once.

        Raises:
            TransactionStateError: The call is not allowed now; the text names the one that comes first.
            TransactionAbortableError: The transaction has failed: abort it.
            ProducerFencedError: A newer producer has the same ``transactional.id``.
            RequestTimeoutError: It has not ended within ``max.block.ms``, and goes on: call it again to wait
                for it.
            ClientClosedError: The producer is closed.

        Example:
            producer.begin_transaction()
            producer.send("orders", b"one espresso")
            producer.commit_transaction()
        """
        self._call(self._core.commit_transaction())

    def abort_transaction(self) -> None:
        """Discard everything that the transaction wrote: readers of committed records never see it.

        Raises:
            TransactionStateError: The call is not allowed now; the text names the one that comes first.
            TransactionAbortableError: The transaction has failed: abort it.
            ProducerFencedError: A newer producer has the same ``transactional.id``.
            RequestTimeoutError: It has not ended within ``max.block.ms``, and goes on: call it again to wait
                for it.
            ClientClosedError: The producer is closed.

        Example:
            producer.begin_transaction()
            producer.send("orders", b"one espresso")
            producer.abort_transaction()
        """
        self._call(self._core.abort_transaction())

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Self]:
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
            with producer.transaction():
                producer.send("orders", b"one espresso")
        """
        self.begin_transaction()
        try:
            yield self
            self.commit_transaction()
        except BaseException:
            with contextlib.suppress(Exception):
                self._call(self._core.abort_open_transaction())
            raise
