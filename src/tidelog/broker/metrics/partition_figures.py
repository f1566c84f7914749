"""Figures of topics, replicas and logs: one look at all partitions, in slices, and one line for each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from tidelog.metrics import catalog
from tidelog.metrics.metric import Metric
from tidelog.metrics.page import Page, Sample, escaped, labels
from tidelog.metrics.topic_counts import TopicCounts
from tidelog.replication.partition import Partition

if TYPE_CHECKING:
    from tidelog.broker.metrics.observed import ObservedBroker

_SLICE = 100
_TOPIC_METRICS: tuple[tuple[Metric, str], ...] = (
    (catalog.MESSAGES_IN, "messages_in"),
    (catalog.BYTES_IN, "bytes_in"),
    (catalog.BYTES_OUT, "bytes_out"),
    (catalog.BYTES_REJECTED, "bytes_rejected"),
    (catalog.PRODUCE_REQUESTS, "produce_requests"),
    (catalog.FETCH_REQUESTS, "fetch_requests"),
    (catalog.FAILED_PRODUCE, "failed_produce_requests"),
    (catalog.FAILED_FETCH, "failed_fetch_requests"),
    (catalog.REPLICATION_IN, "replication_bytes_in"),
    (catalog.REPLICATION_OUT, "replication_bytes_out"),
    (catalog.REASSIGNMENT_IN, "reassignment_bytes_in"),
    (catalog.REASSIGNMENT_OUT, "reassignment_bytes_out"),
)
_BROKER_METRICS: tuple[tuple[Metric, str], ...] = (
    (catalog.ISR_SHRINKS, "isr_shrinks"),
    (catalog.ISR_EXPANDS, "isr_expands"),
    (catalog.FAILED_ISR_UPDATES, "failed_isr_updates"),
)


class _Replica(NamedTuple):
    """A partition with its labels, as it was at the beginning of the scrape."""

    partition: Partition
    labels: str
    replicas: int
    in_sync: int
    min_in_sync: int

    @property
    def is_under_replicated(self) -> bool:
        return self.in_sync < self.replicas


class PartitionFigures:
    """Reads the partitions of one broker."""

    def __init__(self, broker: ObservedBroker) -> None:
        self._broker = broker

    def render(self, page: Page) -> Iterator[str]:
        """The families of topics, replicas and logs."""
        found: list[_Replica] = []
        producers = reassigned = 0
        for number, partition in enumerate(self._broker.partitions, 1):
            partition.count_appends()
            topic, index = partition.topic_partition
            min_in_sync = min(partition.log.config.min_insync_replicas, max(len(partition.replicas), 1))
            found.append(
                _Replica(
                    partition,
                    f'{{topic="{escaped(topic)}",partition="{index}"}}',
                    len(partition.replicas),
                    len(partition.isr),
                    min_in_sync,
                )
            )
            producers += len(partition.log.producers.entries)
            reassigned += partition.is_leader and partition.is_reassigned
            if not number % _SLICE:
                yield ""
        led = [each for each in found if each.partition.is_leader]
        yield from self._topics(page)
        yield from self._replicas(page, found, led)
        yield from page.family(catalog.REASSIGNING, [("", reassigned)])
        yield from page.family(catalog.PRODUCER_IDS, [("", producers)])
        yield from self._logs(page, found)
        yield from self._as_exporters(page, led)

    def _topics(self, page: Page) -> Iterator[str]:
        counts = self._broker.partitions.counts
        total = counts.total()
        by_topic = [(labels(topic=topic), each) for topic, each in counts.by_topic.items()]
        for metric, field in _TOPIC_METRICS:
            yield from page.family(metric, _with_total(total, by_topic, field))
        for metric in (catalog.PRODUCE_CONVERSIONS, catalog.FETCH_CONVERSIONS):
            yield from page.family(metric, [("", 0)])
        for metric, field in _BROKER_METRICS:
            yield from page.family(metric, [("", getattr(total, field))])

    def _replicas(self, page: Page, found: list[_Replica], led: list[_Replica]) -> Iterator[str]:
        log_dirs = self._broker.log_dirs
        for metric, value in (
            (catalog.LEADER_COUNT, len(led)),
            (catalog.PARTITION_COUNT, len(found)),
            (catalog.UNDER_REPLICATED, sum(each.is_under_replicated for each in led)),
            (catalog.UNDER_MIN_ISR, sum(each.in_sync < each.min_in_sync for each in led)),
            (catalog.AT_MIN_ISR, sum(each.in_sync == each.min_in_sync for each in led)),
            (catalog.OFFLINE_REPLICAS, len(log_dirs.offline_partitions)),
        ):
            yield from page.family(metric, [("", value)])
        for metric, read in _OF_LED:
            yield from page.family(metric, ((each.labels, read(each)) for each in led))

    def _logs(self, page: Page, found: list[_Replica]) -> Iterator[str]:
        for metric, read in _OF_LOGS:
            yield from page.family(metric, ((each.labels, read(each)) for each in found))
        log_dirs = self._broker.log_dirs
        yield from page.family(catalog.OFFLINE_DIRS, [("", len(log_dirs.offline_dirs))])
        disks = []
        for path in log_dirs.online:
            try:
                disks.append((labels(directory=path), os.statvfs(path)))
            except OSError:
                # It is about to go offline: whoever writes there finds out.
                continue
        for metric, field in ((catalog.DIR_TOTAL, "f_blocks"), (catalog.DIR_FREE, "f_bavail")):
            yield from page.family(
                metric, ((text, getattr(stat, field) * stat.f_frsize) for text, stat in disks)
            )
        yield from self._cleaner(page)

    def _cleaner(self, page: Page) -> Iterator[str]:
        log_dirs = self._broker.log_dirs
        cleaner = log_dirs.cleaner
        yield from page.family(catalog.CLEANINGS, [("", cleaner.passes)])
        yield from page.family(catalog.CLEANED_BYTES, [("", cleaner.read_bytes)])
        yield from page.family(catalog.CLEANER_KEPT_BYTES, [("", cleaner.written_bytes)])
        uncleanable: dict[str, list[int]] = {str(path): [] for path in log_dirs.online}
        for name in cleaner.uncleanable:
            log = log_dirs.logs.get(name)
            if log is not None:
                uncleanable.setdefault(str(log.files.log_dir), []).append(log.files.size_bytes)
        for metric, count in ((catalog.UNCLEANABLE, len), (catalog.UNCLEANABLE_BYTES, sum)):
            samples = [(labels(logDirectory=path), count(sizes)) for path, sizes in uncleanable.items()]
            yield from page.family(metric, samples)
        if cleaner.last_pass_ms is not None:
            age_ms = self._broker.clock.monotonic_ms() - cleaner.last_pass_ms
            yield from page.family(catalog.CLEANER_AGE, [("", int(age_ms))])

    def _as_exporters(self, page: Page, led: list[_Replica]) -> Iterator[str]:
        """What kafka_exporter shows, of the partitions that are led here."""
        image = self._broker.image
        yield from page.family(catalog.BROKERS, [("", len(image.brokers))])
        brokers = [
            (labels(id=broker_id, address=f"{each.endpoints[0].host}:{each.endpoints[0].port}"), 1)
            for broker_id, each in list(image.brokers.items())
            if each.endpoints
        ]
        yield from page.family(catalog.BROKER_INFO, brokers)
        topics = list(image.topics.values())
        yield from page.family(
            catalog.TOPIC_PARTITIONS, ((labels(topic=topic.name), len(topic.partitions)) for topic in topics)
        )
        for metric, read in _OF_EXPORTERS:
            yield from page.family(metric, ((each.labels, read(each)) for each in led))


def _with_total(
    total: TopicCounts, by_topic: Iterable[tuple[str, TopicCounts]], field: str
) -> Iterator[Sample]:
    yield "", getattr(total, field)
    for text, counts in by_topic:
        yield text, getattr(counts, field)


_Read = Callable[[_Replica], int]
_OF_LED: tuple[tuple[Metric, _Read], ...] = (
    (catalog.P_UNDER_MIN_ISR, lambda each: int(each.in_sync < each.min_in_sync)),
    (catalog.P_AT_MIN_ISR, lambda each: int(each.in_sync == each.min_in_sync)),
    (catalog.P_REPLICAS, lambda each: each.replicas),
    (catalog.P_IN_SYNC, lambda each: each.in_sync),
    (catalog.P_UNDER_REPLICATED, lambda each: int(each.is_under_replicated)),
)
_OF_LOGS: tuple[tuple[Metric, _Read], ...] = (
    (catalog.LOG_SIZE, lambda each: each.partition.log.files.size_bytes),
    (catalog.LOG_START, lambda each: each.partition.log.log_start_offset),
    (catalog.LOG_END, lambda each: each.partition.log.log_end_offset),
    (catalog.LOG_SEGMENTS, lambda each: len(each.partition.log.segments)),
)
_OF_EXPORTERS: tuple[tuple[Metric, _Read], ...] = (
    (catalog.CURRENT_OFFSET, lambda each: each.partition.log.high_watermark),
    (catalog.OLDEST_OFFSET, lambda each: each.partition.log.log_start_offset),
    (catalog.TP_LEADER, lambda each: each.partition.leader),
    (catalog.TP_PREFERRED, lambda each: int(each.partition.leader == each.partition.replicas[0])),
    (catalog.TP_REPLICAS, lambda each: each.replicas),
    (catalog.TP_IN_SYNC, lambda each: each.in_sync),
    (catalog.TP_UNDER_REPLICATED, lambda each: int(each.is_under_replicated)),
)
