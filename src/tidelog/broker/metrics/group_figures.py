"""Figures of the coordinators, and how far behind their groups are: what others run an exporter for.

A group's lag is told by the broker that coordinates it, for it has the committed offsets; whoever commits
under a group id has one, Spark queries among them. Where a partition ends is known from its replica here, or,
every few seconds, from its leader. How old a lag is is known from when the partition ended where: each end is
noted when it was last seen, so that the first record behind an offset came, within a few seconds, after that.
Records that were there at the first look, after a restart, are as old as their timestamps say, where there is
a replica here to read them from; else as old as that look.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.metrics import catalog
from tidelog.metrics.metric import Metric
from tidelog.metrics.page import Page, Sample, escaped, labels
from tidelog.records.batch import HEADER_SIZE, header_at
from tidelog.storage.log.log import Isolation

if TYPE_CHECKING:
    from tidelog.broker.metrics.observed import ObservedBroker
    from tidelog.coordinator.group.group import Group
    from tidelog.storage.log.log import Log

logger = logging.getLogger(__name__)

_SLICE = 200
_KEPT_ENDS = 32
_DATED_AT_ONCE = 50
_ASKED_AT_ONCE = 1000
_UNKNOWN = -1
_STATES = (
    (catalog.GROUPS_STABLE, "Stable"),
    (catalog.GROUPS_EMPTY, "Empty"),
    (catalog.GROUPS_DEAD, "Dead"),
    (catalog.GROUPS_PREPARING, "PreparingRebalance"),
    (catalog.GROUPS_COMPLETING, "CompletingRebalance"),
)


class Ends:
    """Where one partition ended when."""

    __slots__ = ("_came_s", "_first_s", "_offsets", "_seen_s")

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._seen_s: list[float] = []
        self._first_s = 0.0
        # Of records that were there at the first look.
        self._came_s: dict[int, float] = {}

    @property
    def last(self) -> int:
        """The last end that was seen."""
        return self._offsets[-1] if self._offsets else _UNKNOWN

    def note(self, offset: int, now_s: float) -> None:
        """The partition ends at ``offset`` now."""
        while self._offsets and self._offsets[-1] > offset:
            # It was cut.
            self._offsets.pop()
            self._seen_s.pop()
            self._came_s.clear()
        if self._offsets and self._offsets[-1] == offset:
            self._seen_s[-1] = now_s
            return
        if not self._offsets:
            self._first_s = now_s
        self._offsets.append(offset)
        self._seen_s.append(now_s)
        if len(self._offsets) > _KEPT_ENDS:
            # The older, the fewer are kept, so that all of them reach far back.
            del self._offsets[1 : _KEPT_ENDS // 2 : 2]
            del self._seen_s[1 : _KEPT_ENDS // 2 : 2]

    def is_undated(self, offset: int) -> bool:
        """Whether the record at ``offset`` was there at the first look, and nobody has said since when."""
        return bool(self._offsets) and offset < self._offsets[0] and offset not in self._came_s

    def date(self, offset: int, came_s: float) -> None:
        """The record at ``offset``, which was there at the first look, came at that time."""
        if len(self._came_s) >= _KEPT_ENDS:
            self._came_s.clear()
        self._came_s[offset] = min(came_s, self._first_s)

    def age_s(self, offset: int, now_s: float) -> float:
        """How long the record at ``offset`` has been there; since the first look if it was there then."""
        if not self._offsets or offset >= self._offsets[-1]:
            return 0.0
        if offset in self._came_s:
            return max(now_s - self._came_s[offset], 0.0)
        place = bisect_right(self._offsets, offset)
        return max(now_s - (self._seen_s[place - 1] if place else self._first_s), 0.0)


class _Lag(NamedTuple):
    """What is shown of one committed offset."""

    group: str
    topic: str
    labels: str
    other_labels: str
    offset: int
    lag: int
    seconds: float


class GroupFigures:
    """Reads the shards of one broker's coordinators."""

    def __init__(self, broker: ObservedBroker) -> None:
        self._broker = broker
        self._ends: dict[TopicPartition, Ends] = {}
        self._most = broker.config.int("tidelog.metrics.max.group.series")

    # Ends

    async def look(self) -> None:
        """Note where the partitions end that groups have committed offsets of."""
        wanted: dict[TopicPartition, None] = {}
        for number, (_, topic, partition, _) in enumerate(self._committed(), 1):
            wanted[TopicPartition(topic, partition)] = None
            if not number % _SLICE:
                await asyncio.sleep(0)
            if len(wanted) >= self._most:
                break
        elsewhere: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        image, partitions = self._broker.image, self._broker.partitions
        for number, name in enumerate(wanted, 1):
            here = partitions.by_name.get(name)
            known = image.partition(name.topic, name.partition)
            if here is not None:
                self._note(name, here.log.high_watermark)
            elif known is not None and known.leader in image.brokers:
                elsewhere[known.leader].append(name)
            if not number % _SLICE:
                await asyncio.sleep(0)
        for gone in self._ends.keys() - wanted.keys():
            del self._ends[gone]
        await asyncio.gather(*(self._ask(leader, names) for leader, names in elsewhere.items()))
        await self._date_old()

    async def _date_old(self) -> None:
        """Look up when records came that were there before anybody looked, of some partitions each time."""
        dated = 0
        for number, (_, topic, partition, offset) in enumerate(self._committed(), 1):
            name = TopicPartition(topic, partition)
            ends, here = self._ends.get(name), self._broker.partitions.by_name.get(name)
            if ends is not None and here is not None and ends.is_undated(offset):
                timestamp_ms = timestamp_at(here.log, offset)
                age_ms = 0 if timestamp_ms is None else max(self._broker.clock.time_ms() - timestamp_ms, 0)
                ends.date(offset, time.monotonic() - age_ms / 1000)
                dated += 1
                await asyncio.sleep(0)
            if dated >= _DATED_AT_ONCE:
                return
            if not number % _SLICE:
                await asyncio.sleep(0)

    async def _ask(self, leader: int, names: Sequence[TopicPartition]) -> None:
        try:
            for start in range(0, len(names), _ASKED_AT_ONCE):
                some = names[start : start + _ASKED_AT_ONCE]
                for name, offset in (await self._broker.membership.end_offsets(leader, some)).items():
                    self._note(name, offset)
        except (TidelogError, OSError, TimeoutError) as error:
            logger.debug("Broker %d does not say where partitions end: %s", leader, error)

    def _note(self, name: TopicPartition, offset: int) -> None:
        ends = self._ends.get(name)
        if ends is None:
            ends = self._ends[name] = Ends()
        ends.note(offset, time.monotonic())

    def _committed(self) -> Iterator[tuple[str, str, int, int]]:
        """Group, topic, partition and offset of all that is committed here, while others change it."""
        coordinators = self._broker.running_coordinators
        if coordinators is None:
            return
        for state, shard in coordinators.groups.runtime.shards:
            if state != "active":
                continue
            for group, topics in list(shard.offsets.committed.groups.items()):
                for topic, by_partition in list(topics.items()):
                    for partition, committed in list(by_partition.items()):
                        yield group, topic, partition, committed.offset

    # Rendering

    def render(self, page: Page) -> Iterator[str]:
        """The families of coordinators and of lag."""
        coordinators = self._broker.running_coordinators
        if coordinators is None:
            return
        yield from self._groups(page)
        yield from self._lags(page)
        yield from _loading(page, coordinators.groups.runtime, catalog.GROUP_LOAD_MAX, catalog.GROUP_LOAD_AVG)
        yield from _loading(
            page, coordinators.transactions.runtime, catalog.TXN_LOAD_MAX, catalog.TXN_LOAD_AVG
        )
        shards = Counter(("group", state) for state, _ in coordinators.groups.runtime.shards)
        shards.update(("transaction", state) for state, _ in coordinators.transactions.runtime.shards)
        yield from page.family(
            catalog.COORDINATOR_PARTITIONS,
            ((labels(coordinator=kind, state=state), count) for (kind, state), count in shards.items()),
        )
        states: Counter[str] = Counter()
        for _, shard in coordinators.transactions.runtime.shards:
            for number, transaction in enumerate(list(shard.transactions.values()), 1):
                states[transaction.state.label] += 1
                if not number % _SLICE:
                    yield ""
        yield from page.family(
            catalog.TRANSACTIONS, ((labels(state=state), count) for state, count in states.items())
        )

    def _groups(self, page: Page) -> Iterator[str]:
        coordinators = self._broker.running_coordinators
        assert coordinators is not None
        states: Counter[str] = Counter()
        kinds: Counter[str] = Counter({"classic": 0, "consumer": 0})
        members: list[Sample] = []
        groups = offsets = 0
        for _, shard in coordinators.groups.runtime.shards:
            for group in shard.groups:
                groups += 1
                states[group.state_name] += 1
                kinds[group.type.value] += 1
                if len(members) < self._most:
                    members.append((labels(consumergroup=group.group_id), _members_of(group)))
                if not groups % _SLICE:
                    yield ""
            for topics in list(shard.offsets.committed.groups.values()):
                offsets += sum(map(len, topics.values()))
                yield ""
        yield from page.family(catalog.GROUPS, [("", groups)])
        for metric, state in _STATES:
            yield from page.family(metric, [("", states[state])])
        yield from page.family(catalog.OFFSETS, [("", offsets)])
        yield from page.family(
            catalog.GROUPS_BY_TYPE, ((labels(protocol=kind), count) for kind, count in kinds.items())
        )
        yield from page.family(catalog.GROUP_MEMBERS, members)

    def _lags(self, page: Page) -> Iterator[str]:
        lags: list[_Lag] = []
        left_out = 0
        now_s = time.monotonic()
        for number, (group, topic, partition, offset) in enumerate(self._committed(), 1):
            if len(lags) >= self._most:
                left_out += 1
            else:
                lags.append(self._lag(group, topic, partition, offset, now_s))
            if not number % _SLICE:
                yield ""
        for metric, field, other in (
            (catalog.LAG, "lag", catalog.GL_LAG),
            (catalog.LAG_SECONDS, "seconds", catalog.GL_LAG_SECONDS),
            (catalog.GROUP_OFFSET, "offset", catalog.GL_OFFSET),
        ):
            yield from page.family(metric, ((each.labels, getattr(each, field)) for each in lags))
            yield from page.family(other, ((each.other_labels, getattr(each, field)) for each in lags))
        yield from self._sums(page, lags)
        yield from page.family(catalog.LAG_LEFT_OUT, [("", left_out)])

    def _lag(self, group: str, topic: str, partition: int, offset: int, now_s: float) -> _Lag:
        ends = self._ends.get(TopicPartition(topic, partition))
        here = self._broker.partitions.by_name.get((topic, partition))
        end = here.log.high_watermark if here is not None else _UNKNOWN if ends is None else ends.last
        lag = max(end - offset, 0) if end != _UNKNOWN else _UNKNOWN
        rest = f'topic="{escaped(topic)}",partition="{partition}"}}'
        name = escaped(group)
        return _Lag(
            group,
            topic,
            f'{{consumergroup="{name}",{rest}',
            f'{{group="{name}",{rest}',
            offset,
            lag,
            ends.age_s(offset, now_s) if ends is not None and lag > 0 else 0.0,
        )

    def _sums(self, page: Page, lags: list[_Lag]) -> Iterator[str]:
        by_topic: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        by_group: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0, 0.0])
        for number, each in enumerate(lags, 1):
            known = max(each.lag, 0)
            sums = by_topic[each.group, each.topic]
            sums[0] += known
            sums[1] += each.offset
            of_group = by_group[each.group]
            of_group[0] += known
            of_group[1] = max(of_group[1], known)
            of_group[2] = max(of_group[2], each.seconds)
            if not number % _SLICE:
                yield ""
        for metric, place in ((catalog.LAG_SUM, 0), (catalog.GROUP_OFFSET_SUM, 1)):
            yield from page.family(
                metric,
                (
                    (labels(consumergroup=group, topic=topic), sums[place])
                    for (group, topic), sums in by_topic.items()
                ),
            )
        yield from page.family(
            catalog.GL_TOPIC_SUM_LAG,
            ((labels(group=group, topic=topic), sums[0]) for (group, topic), sums in by_topic.items()),
        )
        figures: tuple[tuple[Metric, int], ...] = (
            (catalog.GL_SUM_LAG, 0),
            (catalog.GL_MAX_LAG, 1),
            (catalog.GL_MAX_LAG_SECONDS, 2),
        )
        for metric, place in figures:
            yield from page.family(
                metric, ((labels(group=group), values[place]) for group, values in by_group.items())
            )


def timestamp_at(log: Log, offset: int) -> int | None:
    """The largest timestamp of the batch that holds ``offset``; None if it has none, or cannot be read."""
    try:
        start = log.read_bytes(
            max(offset, log.log_start_offset),
            HEADER_SIZE,
            isolation=Isolation.LOG_END,
            min_one_message=False,
        )
        header = header_at(start)
    except (TidelogError, OSError):
        # Its log directory is failing, or it has just been deleted: what does something with it says so.
        return None
    return header.max_timestamp if header.max_timestamp >= 0 else None


def _members_of(group: Group) -> int:
    members = getattr(group, "members", ())
    return len(members)


class _Loads(Protocol):
    """How long a coordinator took to load its shards."""

    loads: int
    load_ms_total: float
    load_ms_max: float


def _loading(page: Page, loads: _Loads, most: Metric, average: Metric) -> Iterator[str]:
    yield from page.family(most, [("", loads.load_ms_max)])
    yield from page.family(average, [("", loads.load_ms_total / loads.loads if loads.loads else 0.0)])
