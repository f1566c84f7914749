"""``Consumer``: the synchronous face of :class:`AsyncConsumer`, with the same methods.

The core runs on a loop thread of its own: heartbeats and fetching go on while the application works.
``poll`` takes what is buffered without waking that thread where nothing else has to be done; iteration
takes a poll's records as a list, so that a record costs no call between threads.

Rebalance listeners and callbacks of commits run in the thread that calls ``poll`` (or ``commit``,
``close``): they may use the consumer. One thread uses a consumer at a time; ``wakeup`` may come from any.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import queue
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Never, Self, TypeVar

from tidelog.client.consumer.async_consumer import AsyncConsumer
from tidelog.client.consumer.commits import CommitCallback, OffsetsToCommit
from tidelog.client.consumer.errors import IllegalStateError
from tidelog.client.consumer.listener import Call, RebalanceListener
from tidelog.client.consumer.partition_state import OffsetAndMetadata
from tidelog.client.consumer.polling import PartitionCollection
from tidelog.client.consumer.subscription_state import SubscriptionPattern
from tidelog.client.group.membership import ConsumerGroupMetadata
from tidelog.client.loop_thread import LoopThread
from tidelog.client.metadata import PartitionMetadata
from tidelog.client.options import ClientConfig
from tidelog.client.resources import OffsetResult
from tidelog.ids import TopicPartition
from tidelog.records.record_codec import ConsumerRecord

T = TypeVar("T")

_A_YEAR_S = 3600.0 * 24 * 365


class Consumer:
    """Reads records; ``with Consumer(bootstrap_servers="host:9092", group_id="g") as consumer:``.

    Options are Kafka's, as a mapping or as keyword arguments with underscores; topics come by ``subscribe``
    or ``assign``. Times are in seconds.
    """

    def __init__(
        self, options: Mapping[str, object] | None = None, /, *topics: Never, **keywords: object
    ) -> None:
        self._core = AsyncConsumer(options, *topics, **keywords)
        self._core._run_callback = self._run_here
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

    def start(self) -> None:
        """Begin to talk to the cluster; ``poll`` does it by itself."""
        self._call(self._core.start())

    # Subscribing

    def subscribe(
        self,
        topics: str | Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """See :meth:`AsyncConsumer.subscribe`."""
        self._do(lambda: self._core.subscribe(topics, pattern=pattern, listener=listener))

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """See :meth:`AsyncConsumer.assign`."""
        wanted = list(partitions)
        self._do(lambda: self._core.assign(wanted))

    def unsubscribe(self) -> None:
        """See :meth:`AsyncConsumer.unsubscribe`."""
        self._call(self._core.unsubscribe())

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to."""
        return self._core.subscription()

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return self._core.assignment()

    # Reading

    def poll(self, timeout: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord]:
        """See :meth:`AsyncConsumer.poll`."""
        core = self._core
        records = core._take_rest() or core._poll_buffered(max_records)
        if records:
            return records
        began = time.monotonic()
        records = self._wait_off_loop(lambda: core._poll_buffered(max_records), timeout)
        return records or self._call(core.poll(max(timeout - (time.monotonic() - began), 0.0), max_records))

    def poll_arrow(self, timeout: float = 1.0, *, with_headers: bool = False) -> Any:
        """See :meth:`AsyncConsumer.poll_arrow`."""
        from tidelog.records.arrow import load_pyarrow, to_table

        load_pyarrow()
        core = self._core
        began = time.monotonic()
        found = self._wait_off_loop(lambda: core._poll_columns_buffered(with_headers=with_headers), timeout)
        if found:
            return to_table(found, with_headers=with_headers)
        rest = max(timeout - (time.monotonic() - began), 0.0)
        return self._call(core.poll_arrow(rest, with_headers=with_headers))

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self.records(None)

    def records(self, timeout: float | None = None) -> Iterator[ConsumerRecord]:
        """See :meth:`AsyncConsumer.records`."""
        core = self._core
        while not core._closed:
            records = self.poll(_A_YEAR_S if timeout is None else timeout)
            if not records and timeout is not None:
                return
            yield from core._begin_delivery(records)

    def wakeup(self) -> None:
        """See :meth:`AsyncConsumer.wakeup`."""
        self._core.wakeup()

    # Positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """See :meth:`AsyncConsumer.seek`."""
        self._do(lambda: self._core.seek(partition, offset))

    def seek_to_beginning(self, partitions: PartitionCollection = ()) -> None:
        """See :meth:`AsyncConsumer.seek_to_beginning`."""
        self._do(lambda: self._core.seek_to_beginning(partitions))

    def seek_to_end(self, partitions: PartitionCollection = ()) -> None:
        """See :meth:`AsyncConsumer.seek_to_end`."""
        self._do(lambda: self._core.seek_to_end(partitions))

    def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """See :meth:`AsyncConsumer.position`."""
        return self._call(self._core.position(partition, timeout))

    def committed(
        self, partitions: PartitionCollection, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """See :meth:`AsyncConsumer.committed`."""
        return self._call(self._core.committed(partitions, timeout))

    def pause(self, partitions: PartitionCollection) -> None:
        """See :meth:`AsyncConsumer.pause`."""
        self._do(lambda: self._core.pause(partitions))

    def resume(self, partitions: PartitionCollection) -> None:
        """See :meth:`AsyncConsumer.resume`."""
        self._do(lambda: self._core.resume(partitions))

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that ``pause`` has stopped."""
        return self._core.paused()

    def beginning_offsets(
        self, partitions: PartitionCollection, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """See :meth:`AsyncConsumer.beginning_offsets`."""
        return self._call(self._core.beginning_offsets(partitions, timeout))

    def end_offsets(
        self, partitions: PartitionCollection, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """See :meth:`AsyncConsumer.end_offsets`."""
        return self._call(self._core.end_offsets(partitions, timeout))

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetResult | None]:
        """See :meth:`AsyncConsumer.offsets_for_times`."""
        return self._call(self._core.offsets_for_times(times, timeout))

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionMetadata]:
        """See :meth:`AsyncConsumer.partitions_for`."""
        return self._call(self._core.partitions_for(topic, timeout))

    def list_topics(self, timeout: float | None = None) -> dict[str, list[PartitionMetadata]]:
        """See :meth:`AsyncConsumer.list_topics`."""
        return self._call(self._core.list_topics(timeout))

    def current_lag(self, partition: TopicPartition) -> int | None:
        """See :meth:`AsyncConsumer.current_lag`."""
        return self._do(lambda: self._core.current_lag(partition))

    # Committing

    def commit(self, offsets: OffsetsToCommit | None = None, timeout: float | None = None) -> None:
        """See :meth:`AsyncConsumer.commit`."""
        self._call(self._core.commit(offsets, timeout))

    def commit_nowait(
        self, offsets: OffsetsToCommit | None = None, callback: CommitCallback | None = None
    ) -> None:
        """See :meth:`AsyncConsumer.commit_nowait`; the callback runs inside a later ``poll`` or ``close``."""
        self._do(lambda: self._core.commit_nowait(offsets, callback))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """See :meth:`AsyncConsumer.group_metadata`."""
        return self._core.group_metadata()

    def ongoing_error(self) -> tuple[float, str] | None:
        """See :meth:`AsyncConsumer.ongoing_error`."""
        return self._core.ongoing_error()

    def metrics(self) -> Mapping[str, float]:
        """See :meth:`AsyncConsumer.metrics`."""
        return self._do(self._core.metrics)

    def close(self, timeout: float = 30.0) -> None:
        """See :meth:`AsyncConsumer.close`."""
        if self._core._closed:
            return
        try:
            self._call(self._core.close(timeout))
        finally:
            self._thread.close()

    # Between the threads

    def _wait_off_loop(self, take: Callable[[], list[T]], timeout: float) -> list[T]:
        """What ``take`` finds once something has arrived, as long as nothing needs the loop.

        This thread then sleeps and is woken once, where a call on the loop would take turns with it.
        """
        core = self._core
        if (limit := min(core._needs_loop_in(), timeout)) <= 0:
            return []
        before = self._enter()
        try:
            until = time.monotonic() + limit
            while limit > 0:
                core._wake_flag.expect()
                if found := take():
                    return found
                core._wake_flag.wait_in_thread(limit)
                if found := take():
                    return found
                limit = min(core._needs_loop_in(), until - time.monotonic())
        finally:
            core._wake_flag.no_longer_expect()
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

    def _do(self, action: Callable[[], T]) -> T:
        """Run a call that does not wait on the loop's thread, where all state lives."""

        async def run() -> T:
            return action()

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
