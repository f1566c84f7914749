"""Streaming: which offsets the next micro-batch ends at, and the tasks that read it.

One instance lives in a Python process beside the driver for as long as the query runs, and is asked by Spark
for offsets; copies of it read on executors, and use nothing but the options. Where a query goes on is kept by
Spark's checkpoint alone. Each micro-batch is reported beside it (``spark.report._query_reporter``).

New partitions, and new topics that match a pattern, are read from their first offset on. Partitions that are
gone and logs that have become shorter are data loss, counted as far as the last known end says. So is a topic
that was deleted and made anew, which its id tells (``read._offsets``): it is read from its first offset on,
if the query may go on. A micro-batch is planned by a pure function of its two offsets, so a batch that is run
again has the same tasks.

The rows of a small micro-batch go to Spark together with its plan (``read._prefetch``). PySpark asks nobody
for them but its wrapper of simple readers, which limits and reports nothing, so that a reader passes for that
wrapper for as long as it has rows to give: from ``partitions`` until ``getCache``, which follow one another.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from tidelog.client._ranges.offset_range import OffsetRange, count_offsets
from tidelog.ids import TopicPartition
from tidelog.spark.read._data_loss import NEW_TOPIC, report_data_loss
from tidelog.spark.read._input_partition import RangeInputPartition
from tidelog.spark.read._offset_reader import OffsetReader
from tidelog.spark.read._offsets import OffsetJson, PartitionOffsets, SourceOffset, from_json, to_json
from tidelog.spark.read._planning import Task, available_cores, plan_tasks, rate_limit
from tidelog.spark.read._prefetch import Prefetcher
from tidelog.spark.read._schema import check_schema
from tidelog.spark.read._source_options import SourceOptions, source_options
from tidelog.spark.report._query_reporter import QueryReporter

logger = logging.getLogger(__name__)


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The source of one streaming query."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options: SourceOptions = source_options(options, streaming=True)
        check_schema(self._options, schema)
        # Here, where what the brokers say against it is read by somebody, and not while it is pickled.
        self._options.login.for_tasks()
        self._schema = schema
        self._offsets = OffsetReader(self._options)
        self._latest = SourceOffset({})
        self._last_seen: PartitionOffsets = {}
        self._unread: dict[str, int] = {}
        self._target: SourceOffset | None = None
        self._committed = SourceOffset({})
        self._triggered_at: float | None = None
        self._planned: tuple[SourceOffset, SourceOffset, list[RangeInputPartition]] | None = None
        self._prefetcher = Prefetcher(self._options, schema)
        self._prefetched: list[Any] | None = None
        self._reporter = QueryReporter(self._options)

    # Offsets

    def initialOffset(self) -> OffsetJson:
        """Where a new query begins."""
        found = self._offsets.partitions()
        return to_json(self._offsets.resolve(self._options.starting, found, starting=True))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Python's API takes one limit, so ``minOffsetsPerTrigger`` brings ``maxOffsetsPerTrigger`` along."""
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing that comes from now on is read by this run."""
        self._target = self._read_latest(SourceOffset({}))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> OffsetJson:
        """Where the next micro-batch ends; ``start`` where there is nothing to do."""
        with self._reporting_errors():
            return self._latest_offset(from_json(start), limit)

    def _latest_offset(self, given: SourceOffset, limit: ReadLimit) -> OffsetJson:
        self._latest = self._read_latest(given) if self._target is None else self._within_target(given)
        anew = given.made_anew(self._latest)
        self._count_unread(given, anew)
        if self._options.fail_on_data_loss:
            # Before Spark writes the new topic's offsets down.
            self._report_made_anew(anew)
        starts = given.without(anew)
        self._show_progress(starts)
        self._reporter.reached(starts.offsets, self._latest.offsets)
        self._last_seen.update(self._latest.offsets)
        least = limit.min_rows if isinstance(limit, ReadMinRows) and self._target is None else 0
        if not anew and least and self._waits(starts.offsets, least):
            return to_json(given)
        ends = SourceOffset(self._limited(starts.offsets, limit), self._latest.topic_ids)
        self._prefetch(starts, ends)
        return to_json(ends)

    def reportLatestOffset(self) -> OffsetJson | None:
        """The end of the log as of the last micro-batch, from which Spark's progress tells the backlog."""
        return to_json(SourceOffset(self._latest.offsets)) if self._latest.offsets else None

    def _read_latest(self, known: SourceOffset) -> SourceOffset:
        """The ends of the partitions that there are; a topic whose id is not told now keeps the one known."""
        partitions, topic_ids = self._offsets.partitions_left(known)
        anew = known.made_anew(SourceOffset({}, topic_ids))
        found = self._offsets.latest(partitions, known.without(anew).offsets)
        topics = {each.topic for each in found}
        ids = {**known.topic_ids, **topic_ids}
        return SourceOffset(found, {topic: ids[topic] for topic in topics & ids.keys()})

    def _within_target(self, starts: SourceOffset) -> SourceOffset:
        """The offsets to work off; what a restarted query has read beyond them is not read again."""
        assert self._target is not None
        anew = starts.made_anew(self._target)
        if anew or not self._target.offsets.keys() >= starts.offsets.keys():
            # Gone or new, or not yet known to the broker that was asked: here it is known what to look for.
            fresh, target = self._read_latest(starts), self._target.without(anew)
            self._target = SourceOffset(
                {**fresh.offsets, **target.offsets}, {**fresh.topic_ids, **target.topic_ids}
            )
        read = starts.without(starts.made_anew(self._target)).offsets
        return SourceOffset(
            {each: max(end, read.get(each, end)) for each, end in self._target.offsets.items()},
            self._target.topic_ids,
        )

    def _waits(self, starts: PartitionOffsets, min_rows: int) -> bool:
        """Whether there is too little for a micro-batch, and time left to wait for more."""
        now = time.monotonic()
        overdue = (
            self._triggered_at is None
            or now - self._triggered_at >= self._options.max_trigger_delay_ms / 1000
        )
        backlog = sum(end - starts.get(each, 0) for each, end in self._latest.offsets.items())
        if backlog < min_rows and not overdue:
            return True
        self._triggered_at = now
        return False

    def _limited(self, starts: PartitionOffsets, limit: ReadLimit) -> PartitionOffsets:
        most: int | None = None
        if isinstance(limit, ReadMaxRows):
            most = limit.max_rows
        elif isinstance(limit, ReadMinRows):
            most = self._options.max_offsets_per_trigger
        latest = self._latest.offsets
        if most is None:
            return latest
        return rate_limit(most, {**self._offsets.earliest(latest.keys() - starts.keys()), **starts}, latest)

    # Tasks

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of one micro-batch; Spark asks more than once."""
        starts, ends = from_json(start), from_json(end)
        if self._planned is not None and self._planned[:2] == (starts, ends):
            return self._planned[2]
        with self._reporting_errors():
            ranges = list(self._ranges(starts, ends))
        tasks = self._plan(ranges)
        self._reporter.planned(starts.offsets, ends.offsets, sum(each.size for each in ranges))
        login = self._options.login.for_tasks()
        planned = [RangeInputPartition(task, login) for task in tasks]
        self._planned = (starts, ends, planned)
        self._prefetched = self._prefetcher.take(tasks[0]) if len(tasks) == 1 else None
        return planned

    def _plan(self, ranges: Iterable[OffsetRange]) -> list[Task]:
        return plan_tasks(
            ranges,
            available_cores(),
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )

    def _ranges(self, given: SourceOffset, ends: SourceOffset) -> Iterator[OffsetRange]:
        anew = given.made_anew(ends)
        self._report_made_anew(anew)
        starts = given.without(anew)
        for partition in sorted(starts.offsets.keys() - ends.offsets.keys()):
            self._report_deleted(partition, starts.offsets[partition])
        new = self._first_offsets(ends.offsets.keys() - starts.offsets.keys(), anew)
        for partition, end in ends.offsets.items():
            start = starts.offsets.get(partition, new.get(partition))
            if start is None:
                continue
            topic_id = ends.topic_ids.get(partition.topic)
            if end < start:
                is_same = topic_id is not None and starts.topic_ids.get(partition.topic) == topic_id
                start = self._begin_again(partition, start, end, is_same=is_same)
            yield OffsetRange(*partition, start, end, topic_id)

    def _first_offsets(self, new: Collection[TopicPartition], anew: Collection[str]) -> PartitionOffsets:
        """Where partitions that came up while the query runs begin; some of their records may be gone."""
        found = self._offsets.earliest(new) if new else {}
        for partition, first in sorted(found.items()):
            logger.info("partition %s is new and is read from offset %d on", partition, first)
            if first > 0 and partition.topic not in anew:
                self._loss(
                    f"{count_offsets(first)} of the new partition {partition} were gone before it was seen"
                )
        return found

    def _begin_again(self, partition: TopicPartition, start: int, end: int, *, is_same: bool) -> int:
        """The log ends before the place to read from: it was cut, or is another topic's without ids."""
        place = f"{partition} ends at {end}, before offset {start} where the query stands"
        if is_same:
            self._loss(f"{place}: brokers have lost {count_offsets(start - end)} that the query has read")
            return end
        self._loss(
            f"{place}: its topic was made anew, and an unknown number of its old records were not read",
            NEW_TOPIC,
        )
        return min(self._offsets.earliest([partition]).get(partition, end), end)

    def _count_unread(self, given: SourceOffset, anew: Collection[str]) -> None:
        """Take down how much of the topics that are gone was seen and not read."""
        for topic in anew:
            ends = [
                (self._last_seen.get(each), at) for each, at in given.offsets.items() if each.topic == topic
            ]
            counts = [max(end - at, 0) for end, at in ends if end is not None]
            if len(counts) == len(ends):
                self._unread[topic] = sum(counts)

    def _report_made_anew(self, topics: Collection[str]) -> None:
        for topic in sorted(topics):
            known = self._unread.get(topic)
            count = "an unknown number of offsets" if known is None else count_offsets(known)
            self._loss(
                f"topic {topic} was deleted and made anew since the query read it, and {count} of the old "
                "one were not read",
                NEW_TOPIC,
            )

    def _report_deleted(self, partition: TopicPartition, start: int) -> None:
        last = self._last_seen.get(partition)
        count = "an unknown number of offsets" if last is None else count_offsets(max(last - start, 0))
        self._loss(f"partition {partition} was deleted, and {count} from {start} on were not read")

    def _loss(self, what: str, go_on: str = "without them") -> None:
        report_data_loss(what, fail=self._options.fail_on_data_loss, go_on=go_on)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from tidelog.spark.read._range_reader import read_ranges

        assert isinstance(partition, RangeInputPartition)
        options = self._options
        if partition.login is not None:
            options = replace(options, login=partition.login)
        return read_ranges(partition.ranges, options, self._schema)

    # Rows that go along with the plan

    def _prefetch(self, starts: SourceOffset, ends: SourceOffset) -> None:
        """Read a small micro-batch while Spark writes its offsets down; nothing, where partitions changed."""
        if starts.offsets.keys() != ends.offsets.keys():
            return
        ranges = [
            OffsetRange(*each, starts.offsets[each], end, ends.topic_ids.get(each.topic))
            for each, end in ends.offsets.items()
            if end > starts.offsets[each]
        ]
        if self._prefetcher.is_worth(ranges) and len(tasks := self._plan(ranges)) == 1:
            self._prefetcher.begin(tasks[0])

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """What ``isinstance`` sees besides the type: PySpark's wrapper, while there are rows to give."""
        return type(self) if self._prefetched is None else _SimpleStreamReaderWrapper

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[Any] | None:
        """The rows of the tasks that were planned just now; PySpark asks the readers of its wrapper."""
        prefetched, self._prefetched = self._prefetched, None
        return None if prefetched is None else iter(prefetched)

    # Progress

    def commit(self, end: dict[str, Any]) -> None:
        """A micro-batch is done: everything before ``end`` was processed."""
        self._show_progress(from_json(end))

    def stop(self) -> None:
        """The query ends."""
        self._reporter.close()
        self._prefetcher.close()
        self._offsets.close()

    @contextlib.contextmanager
    def _reporting_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._reporter.failed(error)
            raise

    def _show_progress(self, reached: SourceOffset) -> None:
        """Commit to ``commitGroup``; a micro-batch's start counts, for Spark tells of the last end late."""
        group = self._options.commit_group
        if group is None or reached == self._committed:
            return
        known = self._committed.without(self._committed.made_anew(reached))
        moved = {
            each: offset
            for each, offset in reached.offsets.items()
            if self._is_news(each, offset, known.offsets.get(each, -1))
        }
        self._offsets.commit(group, moved)
        self._committed = SourceOffset({**known.offsets, **moved}, {**known.topic_ids, **reached.topic_ids})

    def _is_news(self, partition: TopicPartition, offset: int, known: int) -> bool:
        """Whether an offset is to be committed: progress is, and going back with a log made anew."""
        return offset > known or known > self._last_seen.get(partition, known)
