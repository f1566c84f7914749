"""``Consumer``: the synchronous face of :class:`AsyncConsumer`, with the same methods.

The core runs on a loop thread of its own: heartbeats and fetching go on while the application works.
``poll`` takes what is buffered without waking that thread where nothing else has to be done (``poll_port``);
iteration takes a poll's records as a list, so that a record costs no call between threads. The other methods
are generated from the core's: scripts/generate_sync_clients.py.

Rebalance listeners and callbacks of commits run in the thread that calls ``poll`` (or ``commit``,
``close``): they may use the consumer. One thread uses a consumer at a time; ``wakeup`` may come from any.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import queue
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Never, ParamSpec, Self, TypeVar

from tidelog.client._foreign_methods import CONSUMER, check_poll, foreign_methods
from tidelog.client._loop_thread import LoopThread, read_here
from tidelog.client._network.ongoing_errors import PATIENCE_S
from tidelog.client._network.retry import check_seconds
from tidelog.client._type_variables import K_co, V_co
from tidelog.client.consumer._commits import CommitCallback, OffsetsToCommit
from tidelog.client.consumer.async_consumer import AsyncConsumer, PartitionCollection, open_poll_port
from tidelog.client.consumer.health import ConsumerHealth
from tidelog.client.errors import IllegalStateError
from tidelog.client.group.membership import ConsumerGroupMetadata
from tidelog.client.metadata import PartitionMetadata
from tidelog.client.metrics import Figures
from tidelog.client.options import ClientConfig
from tidelog.client.resources import OffsetResult
from tidelog.client.subscription._subscription_state import SubscriptionPattern
from tidelog.client.subscription.listener import Call, RebalanceListener
from tidelog.client.subscription.offsets import OffsetAndMetadata
from tidelog.ids import TopicPartition, Uuid
from tidelog.records.record_codec import ConsumerRecord

if TYPE_CHECKING:
    from typing import Unpack

    from tidelog.client.consumer.option_types import ConsumerOptions

P = ParamSpec("P")
T = TypeVar("T")


class _Errand:
    """A callback to run in the application's thread while the loop waits for it."""

    def __init__(self, call: Call, loop: asyncio.AbstractEventLoop) -> None:
        self.done: asyncio.Future[None] = loop.create_future()
        self._call = call
        self._loop = loop

    def run(self) -> None:
        error: BaseException | None = None
        try:
            result = self._call()
            if inspect.isawaitable(result):
                if inspect.iscoroutine(result):
                    result.close()
                raise IllegalStateError(
                    "a synchronous Consumer cannot call an async callback: use AsyncConsumer"
                )
        except BaseException as raised:
            error = raised
        self._loop.call_soon_threadsafe(self._finish, error)
        if error is not None and not isinstance(error, Exception):
            raise error

    def _finish(self, error: BaseException | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        elif isinstance(error, Exception):
            self.done.set_exception(error)
        else:
            self.done.cancel()


class Consumer(Generic[K_co, V_co]):
    """Reads records; topics are given to ``subscribe`` or ``assign``.

    Type checkers infer ``K`` and ``V``, the types of keys and values, from the deserializers; without one
    they are bytes. One thread uses a consumer at a time; only ``wakeup`` may be called by others. Times are
    in seconds.

    Args:
        options: Options by Kafka's names, or by those of the keyword arguments; keywords win.
        keywords: Options with underscores: ``ConsumerOptions`` has all of them.

    Raises:
        ConfigError: An option is unknown or has a value that it cannot have.

    Example:
        with Consumer(bootstrap_servers="127.0.0.1:9092", group_id="kitchen") as consumer:
            consumer.subscribe(["orders"])
            for record in consumer:
                print(record.value)
    """

    if not TYPE_CHECKING:
        __getattr__ = foreign_methods(CONSUMER)

    def __init__(
        self,
        options: Mapping[str, object] | None = None,
        /,
        *topics: Never,
        **keywords: Unpack[ConsumerOptions[K_co, V_co]],
    ) -> None:
        self._core: AsyncConsumer[K_co, V_co] = AsyncConsumer(options, *topics, **keywords)
        self._port = open_poll_port(self._core, run_callback=self._run_here)
        self._thread = LoopThread(f"tidelog {self._core.config.str('client.id')}", at_exit=self._core.close)
        self._inbox: queue.SimpleQueue[_Errand | None] | None = None
        self._using: int | None = None

    @property
    def config(self) -> ClientConfig:
        """The options in use."""
        return self._core.config

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self, timeout: float = 30.0) -> None:
        """Commit if that is automatic, leave the group and close all connections.

        Args:
            timeout: Seconds to wait for the commit and for the group.

        Raises:
            CommitFailedError: The group has gone on without this consumer.
            KafkaError: The last commit was refused.

        Example:
            consumer.close(timeout=10)
        """
        check_seconds("close", timeout)
        if self._port.is_closed():
            return
        before = self._enter()  # while another thread uses the consumer, closing it is refused without effect
        try:
            self._call(self._core.close(timeout))
        finally:
            self._using = before
            self._thread.close()

    # Reading

    def poll(
        self, timeout: float = 1.0, max_records: int | None = None, **foreign: Never
    ) -> list[ConsumerRecord[K_co, V_co]]:
        """Return the next records.

        Args:
            timeout: Seconds to wait for the first record.
            max_records: The most records to return; None means ``max.poll.records``.
            foreign: None: arguments of other libraries are refused with the one to use.

        Returns:
            The records in the order of their partitions; empty after ``timeout`` seconds without any.

        Raises:
            WakeupError: ``wakeup`` was called.
            NoOffsetForPartitionError: Nothing is committed, and ``auto.offset.reset`` is ``none``.
            RecordDeserializationError: A deserializer refuses a key or a value.
            KafkaError: The broker refuses the consumer: it may not read, say.
            IllegalStateError: Nothing is subscribed to or assigned.
            ClientClosedError: The consumer is closed.

        Example:
            for record in consumer.poll(timeout=5):
                print(record.offset, record.value)
        """
        check_poll(timeout, max_records, foreign)
        self._thread.check()  # what is buffered is not for a forked child
        port = self._port
        began = time.monotonic()
        try:
            if records := port.take_buffered(max_records):
                return records
            records = self._wait_off_loop(lambda: port.take_buffered(max_records), timeout)
            rest = max(timeout - (time.monotonic() - began), 0.0)
            return records or self._call(port.poll(rest, max_records))
        finally:
            port.times.polled(began, time.monotonic())

    def poll_arrow(self, timeout: float = 1.0, *, with_headers: bool = False) -> Any:
        """Return all records that are buffered as one ``pyarrow.Table``, without a Python object for each.

        The columns are those of ``tidelog.records.arrow.arrow_schema``. Keys and values are bytes:
        deserializers are not applied.

        Args:
            timeout: Seconds to wait for the first record; then the table may be empty.
            with_headers: Whether to add the column ``headers``.

        Returns:
            A ``pyarrow.Table``.

        Raises:
            ConfigError: pyarrow is not installed.
            WakeupError: ``wakeup`` was called.
            KafkaError: The broker refuses the consumer.
            ClientClosedError: The consumer is closed.

        Example:
            table = consumer.poll_arrow(timeout=5)
            print(table.num_rows)
        """
        from tidelog.records.arrow import load_pyarrow, to_table

        load_pyarrow()
        check_seconds("poll_arrow", timeout)
        self._thread.check()
        began = time.monotonic()
        try:
            take = functools.partial(self._port.take_columns, with_headers=with_headers)
            found = self._wait_off_loop(take, timeout)
            if found:
                return to_table(found, with_headers=with_headers)
            rest = max(timeout - (time.monotonic() - began), 0.0)
            return self._call(self._port.poll_arrow(rest, with_headers=with_headers))
        finally:
            self._port.times.polled(began, time.monotonic())

    def __iter__(self) -> Iterator[ConsumerRecord[K_co, V_co]]:
        return self.records(None)

    def __next__(self) -> ConsumerRecord[K_co, V_co]:
        for record in self:
            return record
        raise StopIteration

    def records(self, timeout: float | None = None) -> Iterator[ConsumerRecord[K_co, V_co]]:
        """Iterate over records one by one.

        The time begins with the first assignment of partitions. Offsets are committed as far as the loop has
        got.

        Args:
            timeout: Seconds without a record after which the iteration ends; None waits for records without a
                limit.

        Returns:
            An iterator; it ends when the consumer is closed.

        Raises:
            WakeupError: ``wakeup`` was called.
            KafkaError: As for ``poll``.

        Example:
            for record in consumer.records(timeout=1):
                print(record.value)
        """
        port = self._port
        quiet = port.quiet_time(timeout)
        while not port.is_closed():
            records = self.poll(quiet.wait_s())
            if records:
                yield from port.begin_delivery(records)
                quiet.begin()
            elif quiet.is_over():
                return

    # Between the threads

    def _wait_off_loop(self, take: Callable[[], list[T]], timeout: float) -> list[T]:
        """What ``take`` finds once something has arrived, as long as nothing needs the loop.

        This thread then sleeps and is woken once, where a call on the loop would take turns with it.
        """
        port = self._port
        if (limit := min(port.needs_loop_in(), timeout)) <= 0:
            return []
        before = self._enter()
        try:
            until = time.monotonic() + limit
            while limit > 0:
                port.wake_flag.expect()
                if found := take():
                    return found
                port.wake_flag.wait_in_thread(limit)
                if found := take():
                    return found
                limit = min(port.needs_loop_in(), until - time.monotonic())
        finally:
            port.wake_flag.no_longer_expect()
            self._using = before
        return []

    def _enter(self) -> int | None:
        """Note that this thread uses the consumer; who did before, which can only be itself or none."""
        me = threading.get_ident()
        if self._using is not None and self._using != me:
            raise IllegalStateError(
                "the consumer is in use by another thread: one consumer, one thread (wakeup is the exception)"
            )
        before, self._using = self._using, me
        return before

    def _do(self, action: Callable[P, T], *args: P.args, **keywords: P.kwargs) -> T:
        """Run a call that does not wait on the loop's thread, where all state lives."""

        async def run() -> T:
            return action(*args, **keywords)

        return self._call(run())

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of ``coroutine``, run on the loop; callbacks run here meanwhile."""
        try:
            before = self._enter()
        except IllegalStateError:
            coroutine.close()
            raise
        outer, self._inbox = self._inbox, queue.SimpleQueue()
        inbox = self._inbox
        try:
            future = self._thread.submit(coroutine)
            future.add_done_callback(lambda _: inbox.put(None))
            try:
                while (errand := inbox.get()) is not None:
                    errand.run()
                return future.result()
            except concurrent.futures.CancelledError:
                raise IllegalStateError("the consumer was closed by another thread") from None
            except BaseException:
                future.cancel()
                raise
        finally:
            self._inbox = outer
            self._using = before

    async def _run_here(self, call: Call) -> None:
        """Called on the loop: have ``call`` run in the thread that waits in :meth:`_call`."""
        inbox = self._inbox
        if inbox is None:
            call()
            return
        errand = _Errand(call, asyncio.get_running_loop())
        inbox.put(errand)
        await errand.done

    # Generated by scripts/generate_sync_clients.py from async_consumer.py, down to the end; do not edit.

    def start(self) -> None:
        """Begin to talk to the cluster; ``poll`` and ``with`` do it by themselves.

        Raises:
            ClientClosedError: The consumer is closed.

        Example:
            consumer.start()
        """
        self._call(self._core.start())

    # Subscribing

    def subscribe(
        self,
        topics: str | Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: RebalanceListener | None = None,
        **foreign: Never,
    ) -> None:
        """Read topics as a member of the group ``group.id``.

        Replaces the previous subscription.

        Args:
            topics: The name of a topic, or several names.
            pattern: A regular expression instead of names: all topics whose whole name matches, also later
                ones. A ``SubscriptionPattern`` is matched by the broker.
            listener: Notified, inside ``poll``, of partitions that are assigned and revoked.
            foreign: None: arguments of other libraries are refused with the one to use.

        Raises:
            IllegalStateError: There is no ``group.id``, or both or neither of ``topics`` and ``pattern`` are
                given.
            KafkaError: A name is not a valid topic name.
            ClientClosedError: The consumer is closed.

        Example:
            consumer.subscribe(["orders", "payments"])
        """
        self._do(self._core.subscribe, topics, pattern=pattern, listener=listener, **foreign)

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]] | TopicPartition) -> None:
        """Read exactly these partitions, without a group.

        Partitions that were assigned before keep their positions.

        Args:
            partitions: ``TopicPartition``s or pairs of topic and number.

        Raises:
            IllegalStateError: A partition is not named by its topic and number, or topics are subscribed to.
            ClientClosedError: The consumer is closed.

        Example:
            consumer.assign([TopicPartition("orders", 0)])
        """
        self._do(self._core.assign, read_here(partitions))

    def unsubscribe(self) -> None:
        """Stop reading, and leave the group.

        Raises:
            RequestTimeoutError: The group does not answer within ``default.api.timeout.ms``.
            ClientClosedError: The consumer is closed.

        Example:
            consumer.unsubscribe()
        """
        self._call(self._core.unsubscribe())

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to.

        Returns:
            The names; with a pattern, those that match now.

        Example:
            print(consumer.subscription())
        """
        return self._core.subscription()

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now.

        Returns:
            The partitions; empty before the group has assigned any.

        Example:
            print(consumer.assignment())
        """
        return self._core.assignment()

    # Reading

    def wakeup(self) -> None:
        """Make the ``poll`` that waits, or else the next one, raise ``WakeupError``; from any thread.

        Example:
            consumer.wakeup()
        """
        self._core.wakeup()

    # Positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continue with ``offset`` in an assigned partition.

        Args:
            partition: An assigned partition.
            offset: The offset of the next record to read.

        Raises:
            IllegalStateError: The partition is not assigned, or the offset is negative.
            ClientClosedError: The consumer is closed.

        Example:
            consumer.seek(TopicPartition("orders", 0), 0)
        """
        self._do(self._core.seek, partition, offset)

    def seek_to_beginning(self, partitions: PartitionCollection = ()) -> None:
        """Continue with the first record of each partition.

        Args:
            partitions: Assigned partitions; none means all of them.

        Raises:
            IllegalStateError: A partition is not assigned.
            ClientClosedError: The consumer is closed.

        Example:
            consumer.seek_to_beginning()
        """
        self._do(self._core.seek_to_beginning, partitions)

    def seek_to_end(self, partitions: PartitionCollection = ()) -> None:
        """Continue with the next record that is written to each partition.

        Args:
            partitions: Assigned partitions; none means all of them.

        Raises:
            IllegalStateError: A partition is not assigned.
            ClientClosedError: The consumer is closed.

        Example:
            consumer.seek_to_end()
        """
        self._do(self._core.seek_to_end, partitions)

    def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """Return the offset of the next record of an assigned partition, once it is known.

        Args:
            partition: An assigned partition.
            timeout: Seconds to wait; None means ``default.api.timeout.ms``.

        Returns:
            The offset.

        Raises:
            IllegalStateError: The partition is not assigned.
            ConsumerTimeoutError: The position is not known within ``timeout``.
            ClientClosedError: The consumer is closed.

        Example:
            print(consumer.position(TopicPartition("orders", 0)))
        """
        return self._call(self._core.position(partition, timeout))

    def committed(
        self, partitions: PartitionCollection, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the offsets that the group has committed.

        Args:
            partitions: Partitions, which need not be assigned.
            timeout: Seconds to wait; None means ``default.api.timeout.ms``.

        Returns:
            Each partition with its offset, or None where nothing is committed.

        Raises:
            KafkaError: The broker refuses the request.
            RequestTimeoutError: There is no answer within ``timeout``.
            ClientClosedError: The consumer is closed.

        Example:
            place = TopicPartition("orders", 0)
            print((consumer.committed([place]))[place])
        """
        return self._call(self._core.committed(partitions, timeout))

    def pause(self, partitions: PartitionCollection) -> None:
        """Return no records of these partitions until ``resume``; they stay assigned.

        Args:
            partitions: Assigned partitions.

        Raises:
            IllegalStateError: A partition is not assigned.
            ClientClosedError: The consumer is closed.

        Example:
            consumer.pause(consumer.assignment())
        """
        self._do(self._core.pause, partitions)

    def resume(self, partitions: PartitionCollection) -> None:
        """Return records of these partitions again.

        Args:
            partitions: Assigned partitions.

        Raises:
            IllegalStateError: A partition is not assigned.
            ClientClosedError: The consumer is closed.

        Example:
            consumer.resume(consumer.paused())
        """
        self._do(self._core.resume, partitions)

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that ``pause`` has stopped.

        Returns:
            The partitions.

        Example:
            print(consumer.paused())
        """
        return self._core.paused()

    def beginning_offsets(
        self, partitions: PartitionCollection, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition.

        Args:
            partitions: Partitions, which need not be assigned.
            timeout: Seconds to wait; None means ``default.api.timeout.ms``.

        Returns:
            Each partition with its first offset.

        Raises:
            KafkaError: The broker refuses the request.
            RequestTimeoutError: There is no answer within ``timeout``.
            ClientClosedError: The consumer is closed.

        Example:
            print(consumer.beginning_offsets([TopicPartition("orders", 0)]))
        """
        return self._call(self._core.beginning_offsets(partitions, timeout))

    def end_offsets(
        self, partitions: PartitionCollection, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition that this consumer may read.

        With ``isolation.level=read_committed`` it is that of the first open transaction.

        Args:
            partitions: Partitions, which need not be assigned.
            timeout: Seconds to wait; None means ``default.api.timeout.ms``.

        Returns:
            Each partition with its end.

        Raises:
            KafkaError: The broker refuses the request.
            RequestTimeoutError: There is no answer within ``timeout``.
            ClientClosedError: The consumer is closed.

        Example:
            print(consumer.end_offsets([TopicPartition("orders", 0)]))
        """
        return self._call(self._core.end_offsets(partitions, timeout))

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetResult | None]:
        """Return the first record of each partition at or after a time.

        Args:
            times: Times in milliseconds since 1970, by partition.
            timeout: Seconds to wait; None means ``default.api.timeout.ms``.

        Returns:
            Each partition with the offset and timestamp of the record; None where there is no such record.

        Raises:
            KafkaError: The broker refuses the request.
            RequestTimeoutError: There is no answer within ``timeout``.
            ClientClosedError: The consumer is closed.

        Example:
            place = TopicPartition("orders", 0)
            print((consumer.offsets_for_times({place: 0}))[place])
        """
        return self._call(self._core.offsets_for_times(times, timeout))

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionMetadata]:
        """Return the partitions of a topic and the brokers that serve them.

        Args:
            topic: The name of the topic.
            timeout: Seconds to wait; None means ``default.api.timeout.ms``.

        Returns:
            The partitions in order.

        Raises:
            KafkaError: The topic does not exist, and ``allow.auto.create.topics`` does not create it.
            RequestTimeoutError: There is no answer within ``timeout``.
            ClientClosedError: The consumer is closed.

        Example:
            for partition in consumer.partitions_for("orders"):
                print(partition.partition, partition.leader)
        """
        return self._call(self._core.partitions_for(topic, timeout))

    def list_topics(self, timeout: float | None = None) -> dict[str, list[PartitionMetadata]]:
        """Return all topics that this consumer may see.

        Args:
            timeout: Seconds to wait; None means ``default.api.timeout.ms``.

        Returns:
            The partitions of each topic, by its name.

        Raises:
            KafkaError: The broker refuses the request.
            RequestTimeoutError: There is no answer within ``timeout``.
            ClientClosedError: The consumer is closed.

        Example:
            print(sorted(consumer.list_topics()))
        """
        return self._call(self._core.list_topics(timeout))

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Return how many offsets are between the position and the end, as of the last fetch; asks no broker.

        Args:
            partition: An assigned partition.

        Returns:
            The number of offsets; None before the first fetch.

        Raises:
            IllegalStateError: The partition is not assigned.

        Example:
            print(consumer.current_lag(TopicPartition("orders", 0)))
        """
        return self._do(self._core.current_lag, partition)

    # Committing

    def commit(
        self, offsets: OffsetsToCommit | None = None, timeout: float | None = None, **foreign: Never
    ) -> None:
        """Commit offsets and wait for the answer.

        Args:
            offsets: The offset of the next record to read, by partition; None means those after all records
                returned so far.
            timeout: Seconds to wait; None means ``default.api.timeout.ms``.
            foreign: None: arguments of other libraries are refused with the one to use.

        Raises:
            CommitFailedError: The group has gone on without this consumer, which is no longer a member.
            KafkaError: The coordinator refuses: with ``REBALANCE_IN_PROGRESS``, poll and commit again.
            RequestTimeoutError: There is no answer within ``timeout``.
            ClientClosedError: The consumer is closed.

        Example:
            consumer.commit({TopicPartition("orders", 0): 1})
        """
        self._call(self._core.commit(offsets, timeout, **foreign))

    def commit_nowait(
        self,
        offsets: OffsetsToCommit | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit offsets in the background.

        Args:
            offsets: As for ``commit``.
            callback: Called with the offsets and the error, or None, inside a later ``poll``, ``commit`` or
                ``close``. Without one, errors are logged.

        Raises:
            IllegalStateError: Nothing was read yet.
            ClientClosedError: The consumer is closed.

        Example:
            consumer.commit_nowait()
        """
        self._do(self._core.commit_nowait, offsets, callback)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the identity of this consumer in its group, for ``send_offsets_to_transaction``.

        Returns:
            The group's id, generation, member id and instance id.

        Raises:
            KafkaError: The consumer has no ``group.id``.

        Example:
            print(consumer.group_metadata().group_id)
        """
        return self._core.group_metadata()

    def ongoing_error(self) -> tuple[float, str] | None:
        """Return the error that keeps this consumer from reading.

        Errors that may pass are retried without a limit: this shows them to a program that does not wait.

        Returns:
            Seconds since it began, and the error's text; None if there is none.

        Example:
            if (problem := consumer.ongoing_error()) is not None:
                print(problem)
        """
        return self._core.ongoing_error()

    def health(self, patience: float = PATIENCE_S) -> ConsumerHealth:
        """Return whether this consumer works, for a readiness probe: at once, from memory, from any thread.

        Args:
            patience: Seconds that an error which keeps it from reading may last before it counts.

        Returns:
            Its state, with ``ok`` and, where that is False, the ``reason``.

        Example:
            health = consumer.health()
            if not health.ok:
                print(health.reason)
        """
        return self._core.health(patience)

    def metrics(self) -> Figures:
        """Return the metrics of this consumer, its partitions and its brokers.

        Returns:
            Values by Kafka's names; times are in milliseconds.

        Example:
            print(consumer.metrics().get("records-lag-max"))
        """
        return self._do(self._core.metrics)

    def client_instance_id(self, timeout: float = 30.0) -> Uuid:
        """Return the id by which brokers know this client in its telemetry (KIP-714).

        Args:
            timeout: Seconds to wait for the id.

        Returns:
            The id, 16 bytes.

        Raises:
            RequestTimeoutError: No broker has given one within ``timeout``.
            ClientClosedError: The consumer is closed.

        Example:
            print((consumer.client_instance_id()).hex())
        """
        return self._call(self._core.client_instance_id(timeout))
