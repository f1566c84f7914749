"""One cluster that the console watches: its clients, its last two snapshots, who waits for the next.

Snapshots are taken by a task, more seldom when they are much work (they cost a broker about the processor
time that they cost us) or when no page is open. A cluster that does not answer keeps its last snapshot, says
why, and is asked again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import NamedTuple, Protocol

from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.consumer.async_consumer import AsyncConsumer
from tidelog.client.options import PRODUCER
from tidelog.client.producer.async_producer import AsyncProducer
from tidelog.console.refusal import Refusal, sentence
from tidelog.console.settings import ClusterSettings
from tidelog.console.watching.changes import Event, changes_between
from tidelog.console.watching.end_times import EndTimes, LagTime
from tidelog.console.watching.history import ALL_TOPICS, History, LagFigure, RateFigure
from tidelog.console.watching.rates import Rates, rates_between
from tidelog.console.watching.snapshot import Snapshot, is_internal_group, take_snapshot
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition

logger = logging.getLogger(__name__)

_SHARE_OF_TIME = 0.02
"""The part of a processor's time that looks may take."""
_LONGEST_S = 60.0
_NOTICED_MS = 3000
_TIMES_READ = 5
"""Of so many partitions, at most, a look reads the time of a record."""
_RECORD_S = 2.0
_LAST_WORDS_S = 2.0
_CONSUMERS = 20
_REMEMBERED = 10_000
_UNWATCHED = 4
"""So many times longer is the time between looks while no page is open."""
_HISTORY_S = 10.0
_FIGURES_PER_S = 25
"""The history grows by so many figures a second at most: 2 million a day, of which each change is one."""
_FIRST_LOOK_S = 12.0


class BrokerTelling(Protocol):
    """What brokers tell over HTTP beside Kafka's protocol; the command hands it in."""

    async def page(self, path: str) -> tuple[dict[int, dict[str, object]], list[str]]:
        """A page by broker, and why others have none."""


class TopicLag(NamedTuple):
    """How far a group is behind in a topic; ``time`` is None where the end of the log is not known."""

    topic: str
    records: int
    time: LagTime | None


def _seconds(lag_time: LagTime | None) -> float | None:
    return None if lag_time is None or lag_time.at_least else round(lag_time.seconds, 1)


class WatchedCluster:
    """Owns the clients of one cluster."""

    def __init__(
        self,
        settings: ClusterSettings,
        history: History,
        *,
        refresh_s: float,
        telling: Callable[[AsyncAdmin], BrokerTelling] | None = None,
    ) -> None:
        self.settings = settings
        self.name = settings.name
        self.history = history
        self._options = {"client.id": "tidelog-console", **settings.patient_options}
        self.admin = AsyncAdmin(self._options)
        self.telling = None if telling is None else telling(self.admin)
        self.snapshot: Snapshot | None = None
        self.rates = Rates()
        self.problem: str | None = None
        """Why the cluster could not be looked at the last time."""
        self.problem_since_ms: int | None = None
        self.ends = EndTimes()
        self._refresh_s = refresh_s
        self.open_consumers = 0
        """How many consumers read for pages now."""
        self._closing: set[asyncio.Task[None]] = set()
        self._producer: AsyncProducer | None = None
        self._look = asyncio.Condition()
        self._begun = 0
        self._looks = 0
        self._pages = 0
        self._hurry = asyncio.Event()
        self._history_due_s = 0.0
        self._without_time: dict[tuple[TopicPartition, int], None] = {}
        self._unwritten: list[Event] = []
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch."""
        self._task = asyncio.create_task(self._watch(), name=f"watch {self.name}")

    async def close(self) -> None:
        """Stop watching; close all clients."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await asyncio.gather(*self._closing)
        if self._producer is not None:
            await self._producer.close(_LAST_WORDS_S)
        await self.admin.close()

    # What the API asks for

    async def seen(self) -> Snapshot:
        """The last snapshot, waiting for the first; raises a refusal if there is none."""
        if self.snapshot is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_LOOK_S):
                    await self._next_look(self._looks)
        if self.snapshot is None:
            raise Refusal(
                f"cluster {self.name} does not answer: {self.problem or 'it takes its time'}",
                503,
                "UNREACHABLE",
            )
        return self.snapshot

    async def look_again(self) -> None:
        """Have a look at once, after a change; waits for it."""
        wanted = self._begun + 1  # one that is under way may not see the change
        self._hurry.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_LOOK_S):
                await self._next_look(wanted - 1)

    @contextlib.contextmanager
    def open_page(self) -> Iterator[None]:
        """While a page is open the cluster is looked at more often."""
        self._pages += 1
        if self.snapshot is not None and time.monotonic() - self.snapshot.at_s > self._refresh_s:
            self._hurry.set()
        try:
            yield
        finally:
            self._pages -= 1

    async def looks(self) -> AsyncGenerator[int, None]:
        """The number of each look, as they come; begins with the last one."""
        seen = self._looks
        yield seen
        while True:
            seen = await self._next_look(seen)
            yield seen

    def lag_time(self, partition: TopicPartition, committed: int) -> LagTime | None:
        """How long ago the record at ``committed`` was written, as far as that was seen."""
        assert self.snapshot is not None
        return self.ends.lag(partition, committed, self.snapshot.at_s)

    def require_room(self) -> None:
        """Raise a refusal while as many consumers read as may at once; each has buffers of its own."""
        if self.open_consumers >= _CONSUMERS:
            raise Refusal(
                f"{_CONSUMERS} searches of this cluster run already: stop one, or try again later",
                429,
                "TOO_MANY",
            )

    @contextlib.asynccontextmanager
    async def consumer(self, **options: object) -> AsyncIterator[AsyncConsumer]:
        """A consumer without a group, for the time of a block."""
        consumer = AsyncConsumer(
            {
                **self._options,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "allow.auto.create.topics": False,
                **{name.replace("_", "."): value for name, value in options.items()},
            }
        )
        self.open_consumers += 1
        try:
            await consumer.start()
            yield consumer
        finally:
            # Whoever hangs up is cancelled at every wait: closing is a task of its own, which ends anyway.
            closing = asyncio.create_task(self._close(consumer))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            await asyncio.shield(closing)

    async def _close(self, consumer: AsyncConsumer) -> None:
        try:
            await consumer.close(_LAST_WORDS_S)
        except (TidelogError, OSError) as error:
            logger.debug("a consumer of cluster %s did not close cleanly: %s", self.name, error)
        finally:
            self.open_consumers -= 1

    @property
    def producer(self) -> AsyncProducer:
        """One producer for all that is written through the console; made when it is first needed."""
        if self._producer is None:
            # The file that a cluster's options come from may hold options of other clients.
            known = {name: value for name, value in self._options.items() if name in PRODUCER.options}
            self._producer = AsyncProducer({**known, "max.block.ms": 10_000, "linger.ms": 0})
            self._producer.start_nowait()
        return self._producer

    # Watching

    async def _watch(self) -> None:
        while True:
            began_s = time.thread_time()
            self._begun += 1
            try:
                await self._look_once()
            except (TidelogError, OSError, TimeoutError) as error:
                self._note_problem(sentence(error))
            except asyncio.CancelledError:
                raise
            except Exception as error:
                logger.exception("looking at cluster %s failed by a bug of the console", self.name)
                self._note_problem(f"a bug of the console: {type(error).__name__}")
            await self._tell()
            await self._pause(time.thread_time() - began_s)

    async def _look_once(self) -> None:
        # Brokers that are gone are noticed sooner than a whole operation may take.
        await self.admin.cluster.refresh([], deadline=self.admin.cluster.deadline(_NOTICED_MS))
        now = await take_snapshot(self.admin)
        before = self.snapshot
        events = changes_between(before, now)
        if self.problem is not None:
            events.insert(0, Event(now.at_ms, "cluster-answers", "good", {}))
        self.snapshot, self.rates = now, rates_between(before, now)
        self.problem = self.problem_since_ms = None
        self.ends.note(now.at_s, now.ends, {each for lags in now.lags.values() for each in lags})
        await self._learn_times(now)
        self._unwritten += events
        if events or now.at_s >= self._history_due_s:
            figures = len(now.topics) + sum(len(each) for each in now.groups_by_topic.values())
            self._history_due_s = now.at_s + max(_HISTORY_S, figures / _FIGURES_PER_S)
            await self._write(now, has_rates=before is not None)

    async def _learn_times(self, now: Snapshot) -> None:
        """Where groups are behind for longer than we looked, let a few records tell since when."""
        asked = 0
        for group, lags in now.lags.items():
            for partition, lag in lags.items():
                committed = now.committed[group][partition]
                seen = self.lag_time(partition, committed) if lag else None
                place = partition, committed
                if seen is None or not seen.at_least or place in self._without_time:
                    continue
                if asked == _TIMES_READ:
                    return
                asked += 1
                time_ms = await self.record_time_ms(partition, committed)
                if time_ms is None:
                    self._without_time[place] = None
                    while len(self._without_time) > _REMEMBERED:
                        del self._without_time[next(iter(self._without_time))]
                else:
                    self.ends.learn(partition, committed, now.at_s - (now.at_ms - time_ms) / 1000)

    async def record_time_ms(self, partition: TopicPartition, offset: int) -> int | None:
        """When the first record from ``offset`` on was written, by its own time; None if nobody can tell."""
        try:
            async with self.consumer(max_partition_fetch_bytes=1024, fetch_max_wait_ms=50) as consumer:
                consumer.assign([partition])
                consumer.seek(partition, offset)
                records = await consumer.poll(_RECORD_S, 1)
        except (TidelogError, OSError) as error:
            logger.debug("the time of %s at %d cannot be read: %s", partition, offset, error)
            return None
        return records[0].timestamp if records and records[0].timestamp >= 0 else None

    async def _write(self, now: Snapshot, *, has_rates: bool) -> None:
        lags = [
            LagFigure(group, each.topic, each.records, _seconds(each.time))
            for group in now.committed
            if not is_internal_group(group)
            for each in self.lag_by_topic(group)
        ]
        records, size_bytes = self.rates.records, self.rates.size_bytes
        rates = [
            RateFigure(each, round(records.get(each, 0.0), 2), round(size_bytes.get(each, 0.0)))
            for each in now.topics
        ]
        rates.append(
            RateFigure(ALL_TOPICS, round(self.rates.total_records, 2), round(self.rates.total_bytes))
        )
        events, self._unwritten = self._unwritten, []
        await self.history.write(self.name, now.at_ms // 1000, lags, rates if has_rates else [], events)

    def lag_by_topic(self, group: str) -> list[TopicLag]:
        """Topics with the group's lag: records in all partitions, seconds in the one furthest behind."""
        assert self.snapshot is not None
        records: dict[str, int] = {}
        times: dict[str, LagTime] = {}
        committed = self.snapshot.committed.get(group, {})
        for partition, lag in self.snapshot.lags.get(group, {}).items():
            records[partition.topic] = records.get(partition.topic, 0) + lag
            time_ = self.lag_time(partition, committed[partition])
            if time_ is not None:
                times[partition.topic] = max(times.get(partition.topic, time_), time_)
        return [TopicLag(topic, lag, times.get(topic)) for topic, lag in sorted(records.items())]

    def _note_problem(self, text: str) -> None:
        if self.problem is None:
            self.problem_since_ms = time.time_ns() // 1_000_000
            logger.warning("cluster %s cannot be looked at: %s", self.name, text)
            self._unwritten.append(
                Event(self.problem_since_ms, "cluster-silent", "bad", {"problem": text[:500]})
            )
        self.problem = text

    async def _tell(self) -> None:
        async with self._look:
            self._looks += 1
            self._look.notify_all()

    async def _next_look(self, seen: int) -> int:
        async with self._look:
            await self._look.wait_for(lambda: self._looks > seen)
            return self._looks

    async def _pause(self, took_s: float) -> None:
        """Until the next look is due; a page that is opened meanwhile makes that sooner."""
        began_s = time.monotonic()
        while (left_s := began_s + self._wait_s(took_s) - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, self._refresh_s)):
                    await self._hurry.wait()
                    break
        self._hurry.clear()

    def _wait_s(self, took_s: float) -> float:
        if self.problem is not None:
            return self._refresh_s
        wait_s = self._refresh_s if self._pages else self._refresh_s * _UNWATCHED
        return max(wait_s, min(took_s / _SHARE_OF_TIME, _LONGEST_S))
