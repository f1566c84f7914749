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
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import NamedTuple, Protocol

from tidelog.client.admin._replication_throttle import remove_throttle
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.consumer.async_consumer import AsyncConsumer
from tidelog.client.options import PRODUCER
from tidelog.client.producer.async_producer import AsyncProducer
from tidelog.console.auth.person import Account
from tidelog.console.refusal import Refusal, sentence
from tidelog.console.settings import ClusterSettings
from tidelog.console.watching.certificates import KINDS as CERTIFICATE_KINDS
from tidelog.console.watching.certificates import CertificateWatch
from tidelog.console.watching.changes import Event, changes_between
from tidelog.console.watching.config_watch import ConfigWatch
from tidelog.console.watching.end_times import EndTimes, LagTime
from tidelog.console.watching.history import ALL_TOPICS, History, LagFigure, RateFigure
from tidelog.console.watching.partition_lag import Place, PlaceLag
from tidelog.console.watching.producer_clients import ProducerClients
from tidelog.console.watching.rates import Rates, rates_between
from tidelog.console.watching.rebalances import KIND as REBALANCED
from tidelog.console.watching.rebalances import RebalanceWatch
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
_SEARCHES = 20
_SEARCHES_OF_ONE = 10
"""Of somebody who has logged in: the others have the rest."""
_REMEMBERED = 10_000
_UNWATCHED = 4
"""So many times longer is the time between looks while no page is open."""
_HISTORY_S = 10.0
_HISTORY_LOOKS = 2
"""The history is written once in ten seconds, or in two looks where those come faster."""
_FIGURES_PER_S = 25
"""The history grows by so many figures a second at most: 2 million a day, of which each change is one."""
_FIRST_LOOK_S = 12.0
_CONFIG_LOOKS = 2
"""Configs are asked for when looks, of an open page, have come so many times."""
_UNWRITTEN = 1000
"""So many events wait while the history cannot be written."""
_REBALANCES = 10
_REMINDED = 500


class BrokerPages(Protocol):
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
        telling: Callable[[AsyncAdmin], BrokerPages] | None = None,
    ) -> None:
        self.settings = settings
        self.name = settings.name
        self.history = history
        # Those who look at telemetry do not want the console's own among it.
        quiet = {"client.id": "tidelog-console", "enable.metrics.push": False}
        self._options = {**quiet, **settings.patient_options}
        self.admin = AsyncAdmin(self._options)
        self.telling = None if telling is None else telling(self.admin)
        self.snapshot: Snapshot | None = None
        self.rates = Rates()
        self.problem: str | None = None
        """Why the cluster could not be looked at the last time."""
        self.problem_since_ms: int | None = None
        self.unthrottle_when_moved = False
        """Somebody has had partitions moved with a throttle, which goes when nothing moves any more."""
        self.throttling = asyncio.Lock()
        """Held while a throttle is set for moves that begin, or taken away: the other waits."""
        self.configs = ConfigWatch(refresh_s * _CONFIG_LOOKS)
        self.certificates = CertificateWatch()
        self._rebalances = RebalanceWatch()
        self._rebalanced: dict[str, list[Event]] = {}
        """The last rebalances of groups that somebody has asked for."""
        self._is_reminded = False
        self.ends = EndTimes()
        self.producer_clients = ProducerClients()
        self._refresh_s = refresh_s
        self._history_s = min(_HISTORY_S, _HISTORY_LOOKS * refresh_s)
        self.searches: Counter[Account | None] = Counter()
        """How many searches run now, by whoever began them."""
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
        self._partitions_due_s = 0.0
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
                f"cluster {self.name} does not respond: {self.problem or 'no response yet'}",
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

    async def told(self, path: str) -> tuple[dict[int, dict[str, object]], list[str]]:
        """A page that brokers tell over HTTP, by broker, and why others do not; refused where nobody asks."""
        if self.telling is None:
            raise Refusal("this console is not configured to query brokers over HTTP", 409, "NOT_ASKED")
        return await self.telling.page(path)

    def look_soon(self) -> None:
        """Have a look at once, after a change that nobody waits to see."""
        self._hurry.set()

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

    @contextlib.contextmanager
    def room(self, account: Account | None) -> Iterator[None]:
        """Room for one search; raises a refusal while as many run as may at once, of all or of one person.

        Each has a consumer with buffers of its own, and may have a process that filters.
        """
        if account is not None and self.searches[account] >= _SEARCHES_OF_ONE:
            raise _too_many(f"you already run {_SEARCHES_OF_ONE} searches in this cluster")
        if self.searches.total() >= _SEARCHES:
            raise _too_many(f"{_SEARCHES} searches already run in this cluster")
        self.searches[account] += 1
        try:
            yield
        finally:
            self.searches[account] -= 1
            self.searches += Counter()  # who has none is forgotten

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
            await asyncio.shield(self._close_soon(consumer))

    def _close_soon(self, client: AsyncConsumer | AsyncProducer) -> asyncio.Task[None]:
        closing = asyncio.create_task(self._close(client))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return closing

    async def _close(self, client: AsyncConsumer | AsyncProducer) -> None:
        try:
            await client.close(_LAST_WORDS_S)
        except (TidelogError, OSError) as error:
            logger.debug("closing a client of cluster %s failed: %s", self.name, error)
        finally:
            if isinstance(client, AsyncConsumer):
                self.open_consumers -= 1

    @property
    def producer(self) -> AsyncProducer:
        """One producer for all that is written through the console; made when it is first needed.

        One that has failed for good, for want of a right or a login, is replaced: it may have both by now.
        """
        if self._producer is not None and self._producer.has_fatal_error:
            self._close_soon(self._producer)
            self._producer = None
        if self._producer is None:
            # The file that a cluster's options come from may hold options of other clients.
            known = {name: value for name, value in self._options.items() if name in PRODUCER.options}
            self._producer = AsyncProducer({**known, "max.block.ms": 10_000, "linger.ms": 0})
            self._producer.start_nowait()
        return self._producer

    # Watching

    async def _watch(self) -> None:
        while True:
            is_first = self.snapshot is None
            began_s = time.thread_time()
            self._begun += 1
            try:
                await self._look_once()
            except (TidelogError, OSError, TimeoutError) as error:
                self._note_problem(sentence(error))
            except asyncio.CancelledError:
                raise
            except Exception as error:
                logger.exception("polling cluster %s failed because of a bug in the console", self.name)
                self._note_problem(f"a bug in the console: {type(error).__name__}")
            await self._tell()
            # The first look pays for what is loaded and made once: what it took says nothing of the next.
            await self._pause(0.0 if is_first else time.thread_time() - began_s)

    async def _look_once(self) -> None:
        # Brokers that are gone are noticed sooner than a whole operation may take.
        await self.admin.cluster.refresh([], deadline=self.admin.cluster.deadline(_NOTICED_MS))
        now = await take_snapshot(self.admin)
        before = self.snapshot
        events = changes_between(before, now) + await self._watched(now)
        if self.problem is not None:
            events.insert(0, Event(now.at_ms, "cluster-answers", "good", {}))
        self.snapshot, self.rates = now, rates_between(before, now)
        self.problem = self.problem_since_ms = None
        self.ends.note(now.at_s, now.ends, {each for lags in now.lags.values() for each in lags})
        await self._learn_times(now)
        if self.unthrottle_when_moved:
            await self._unthrottle()
        self._unwritten += events
        if events or now.at_s >= self._history_due_s:
            figures = len(now.topics) + sum(len(each) for each in now.groups_by_topic.values())
            self._history_due_s = now.at_s + max(self._history_s, figures / _FIGURES_PER_S)
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
            logger.debug("cannot read the time of %s at offset %d: %s", partition, offset, error)
            return None
        return records[0].timestamp if records and records[0].timestamp >= 0 else None

    async def _watched(self, now: Snapshot) -> list[Event]:
        """What needs questions of its own; a broker that refuses one is not asked why at every look."""
        if not self._is_reminded:
            told = await self.history.events(self.name, _REMINDED, CERTIFICATE_KINDS)
            self.certificates.remember(told)
            self._is_reminded = self.history.is_readable
        found: list[Event] = []
        for watch in (self.configs, self.certificates, self._rebalances):
            try:
                found += await watch.look(self.admin, now)
            except TidelogError as error:
                logger.debug("cluster %s did not return all data: %s", self.name, sentence(error))
        for each in found:
            if (
                each.kind == REBALANCED
                and (known := self._rebalanced.get(str(each.args["group"]))) is not None
            ):
                known.insert(0, each)
                del known[_REBALANCES:]
        return found

    async def rebalances(self, group: str) -> list[Event]:
        """The last rebalances of a group, the newest first."""
        known = self._rebalanced.get(group)
        if known is None:
            if len(self._rebalanced) >= _REMEMBERED:
                self._rebalanced.clear()
            known = await self.history.events(self.name, _REBALANCES, (REBALANCED,), group)
            if self.history.is_readable:
                known = self._rebalanced.setdefault(group, known)
        return list(known)

    async def _unthrottle(self) -> None:
        """Take the throttle of moves away if they are done; tried again at the next look if that fails."""
        async with self.throttling:
            try:
                if await self.admin.list_partition_reassignments():
                    return
                done = await remove_throttle(self.admin)
            except TidelogError as error:
                logger.warning(
                    "the reassignment throttle of cluster %s was not removed yet: %s",
                    self.name,
                    sentence(error),
                )
                return
            for refused in done.errors:
                logger.warning(
                    "the reassignment throttle of cluster %s was not removed yet: %s",
                    self.name,
                    sentence(refused),
                )
            if not done.moving and not done.errors:
                self.unthrottle_when_moved = False

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
        events = list(self._unwritten)
        is_kept = await self.history.write(
            self.name, now.at_ms // 1000, lags, rates if has_rates else [], events, self._partition_lags(now)
        )
        # What could not be written waits for the next time, in bounds.
        del self._unwritten[: len(events) if is_kept else -_UNWRITTEN]

    def _partition_lags(self, now: Snapshot) -> list[PlaceLag] | None:
        """Lag of single partitions, where it is time to keep them: many are kept more seldom."""
        if now.at_s < self._partitions_due_s:
            return None
        found = [
            PlaceLag(
                Place(group, partition.topic, partition.partition),
                lag,
                self._lag_seconds(now, group, partition),
            )
            for group, lags in now.lags.items()
            if not is_internal_group(group)
            for partition, lag in lags.items()
        ]
        behind = sum(bool(each.records) for each in found)
        self._partitions_due_s = now.at_s + max(self._history_s, behind / _FIGURES_PER_S)
        return found

    def _lag_seconds(self, now: Snapshot, group: str, partition: TopicPartition) -> int | None:
        if not now.lags[group][partition]:
            return 0
        seconds = _seconds(self.lag_time(partition, now.committed[group][partition]))
        return None if seconds is None else round(seconds)

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
            logger.warning("cannot poll cluster %s: %s", self.name, text)
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


def _too_many(what: str) -> Refusal:
    return Refusal(f"{what}: stop one, or try again later", 429, "TOO_MANY")
