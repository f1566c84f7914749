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

from tidelog.client.consumer.async_consumer import AsyncConsumer, PartitionCollection, open_poll_port
from tidelog.client.consumer.commits import CommitCallback, OffsetsToCommit
from tidelog.client.consumer.errors import IllegalStateError
from tidelog.client.consumer.health import ConsumerHealth
from tidelog.client.consumer.listener import Call, RebalanceListener
from tidelog.client.consumer.partition_state import OffsetAndMetadata
from tidelog.client.consumer.subscription_state import SubscriptionPattern
from tidelog.client.foreign_methods import CONSUMER, foreign_methods, refuse_poll_keywords
from tidelog.client.group.membership import ConsumerGroupMetadata
from tidelog.client.loop_thread import LoopThread
from tidelog.client.metadata import PartitionMetadata
from tidelog.client.metrics import Figures
from tidelog.client.ongoing_errors import PATIENCE_S
from tidelog.client.options import ClientConfig
from tidelog.client.resources import OffsetResult
from tidelog.client.type_variables import K_co, V_co
from tidelog.ids import TopicPartition, Uuid
from tidelog.records.record_codec import ConsumerRecord

if TYPE_CHECKING:
    from typing import Unpack

    from tidelog.client.options.option_types import ConsumerOptions

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
    """Reads records; ``with Consumer(bootstrap_servers="host:9092", group_id="g") as consumer:``.

    Options are Kafka's, as a mapping or as keyword arguments with underscores; topics come by ``subscribe``
    or ``assign``. Times are in seconds.
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
        """Commit if that is automatic, leave the group, close all connections; within ``timeout`` seconds."""
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
        """The next records, at most ``max.poll.records``; empty after ``timeout`` seconds without any."""
        refuse_poll_keywords(foreign)
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
        """All records that are there as one ``pyarrow.Table``, without a Python object for each.

        Waits up to ``timeout`` seconds for the first; then the table may be empty. Its columns are those of
        ``tidelog.records.arrow.arrow_schema``; keys and values are bytes, deserializers are not applied.
        """
        from tidelog.records.arrow import load_pyarrow, to_table

        load_pyarrow()
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
        """Records one by one, for as long as there are any within ``timeout`` seconds; None: for ever.

        The time begins with the first assignment of partitions. Offsets are committed as far as the loop has
        got.
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
        """Begin to talk to the cluster; ``poll`` and ``with`` do it by themselves."""
        self._call(self._core.start())

    # Subscribing

    def subscribe(
        self,
        topics: str | Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read topics as a member of the group ``group.id``; replaces what was subscribed to before.

        ``pattern`` takes all topics whose whole name matches, also later ones; a ``SubscriptionPattern`` is
        matched by the broker. ``listener`` is told, inside ``poll``, of partitions that come and go.
        """
        self._do(self._core.subscribe, topics, pattern=pattern, listener=listener)

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read exactly these partitions, without a group's help; those kept keep their positions."""
        self._do(self._core.assign, list(partitions))

    def unsubscribe(self) -> None:
        """Read nothing any more; leaves the group."""
        self._call(self._core.unsubscribe())

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to."""
        return self._core.subscription()

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return self._core.assignment()

    # Reading

    def wakeup(self) -> None:
        """Make the ``poll`` that waits, or else the next one, raise ``WakeupError``; from any thread."""
        self._core.wakeup()

    # Positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on reading an assigned partition from ``offset``."""
        self._do(self._core.seek, partition, offset)

    def seek_to_beginning(self, partitions: PartitionCollection = ()) -> None:
        """Go on with the first record there is; of all assigned partitions if none is named."""
        self._do(self._core.seek_to_beginning, partitions)

    def seek_to_end(self, partitions: PartitionCollection = ()) -> None:
        """Go on with the next record to come; of all assigned partitions if none is named."""
        self._do(self._core.seek_to_end, partitions)

    def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The offset of the next record of an assigned partition, waiting until that is known."""
        return self._call(self._core.position(partition, timeout))

    def committed(
        self, partitions: PartitionCollection, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets; None where there is none."""
        return self._call(self._core.committed(partitions, timeout))

    def pause(self, partitions: PartitionCollection) -> None:
        """Hand out nothing of these until ``resume``; they stay assigned."""
        self._do(self._core.pause, partitions)

    def resume(self, partitions: PartitionCollection) -> None:
        """Hand out records of these again."""
        self._do(self._core.resume, partitions)

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that ``pause`` has stopped."""
        return self._core.paused()

    def beginning_offsets(
        self, partitions: PartitionCollection, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition, which need not be assigned."""
        return self._call(self._core.beginning_offsets(partitions, timeout))

    def end_offsets(
        self, partitions: PartitionCollection, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record that this consumer would see, by its ``isolation.level``."""
        return self._call(self._core.end_offsets(partitions, timeout))

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetResult | None]:
        """The first record at or after a time in ms, by partition; None where there is none."""
        return self._call(self._core.offsets_for_times(times, timeout))

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[PartitionMetadata]:
        """The partitions of ``topic`` and who serves them.

        A topic that does not exist is an error, at once unless ``allow.auto.create.topics`` may create it.
        """
        return self._call(self._core.partitions_for(topic, timeout))

    def list_topics(self, timeout: float | None = None) -> dict[str, list[PartitionMetadata]]:
        """All topics that this consumer may see, with their partitions."""
        return self._call(self._core.list_topics(timeout))

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets lie before the end as of the last fetch; None before the first. Asks nobody."""
        return self._do(self._core.current_lag, partition)

    # Committing

    def commit(self, offsets: OffsetsToCommit | None = None, timeout: float | None = None) -> None:
        """Commit ``offsets``, by default those behind all records handed out, and wait for the answer."""
        self._call(self._core.commit(offsets, timeout))

    def commit_nowait(
        self,
        offsets: OffsetsToCommit | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit in the background; a later poll, or close, tells ``callback`` the offsets and any error."""
        self._do(self._core.commit_nowait, offsets, callback)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this consumer is in its group, for ``send_offsets_to_transaction``."""
        return self._core.group_metadata()

    def ongoing_error(self) -> tuple[float, str] | None:
        """What keeps this consumer from reading, and for how many seconds already; None if nothing does.

        Errors that may pass are retried for as long as they last: this is for those who will not wait.
        """
        return self._core.ongoing_error()

    def health(self, patience: float = PATIENCE_S) -> ConsumerHealth:
        """Whether this consumer works, for a readiness probe: at once, from memory, from any thread.

        An error that keeps it from reading counts once it has lasted for more than ``patience`` seconds.
        """
        return self._core.health(patience)

    def metrics(self) -> Figures:
        """Figures of this consumer, its partitions and its brokers, by Kafka's names; times in ms."""
        return self._do(self._core.metrics)

    def client_instance_id(self, timeout: float = 30.0) -> Uuid:
        """The id that brokers know this client by in its telemetry (KIP-714); waits ``timeout`` seconds."""
        return self._call(self._core.client_instance_id(timeout))
