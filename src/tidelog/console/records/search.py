"""Reads records of a topic for a person: from an end, an offset, a time, or as they come; within bounds.

A search goes through ranges of partitions that were fixed when it began (a tail: without an end) and yields
batches as it goes: what matched, and how far it is. It holds one batch in memory. The newest records are
found by reading the last ones of each partition, further back with each step while a filter has not found
enough; of them ``_HELD_BYTES`` are held until they are in order. A file has all that was asked for: of more,
times are held, and the records are read once more. Whoever stops iterating stops the reading.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from array import array
from bisect import bisect_right
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Literal

from tidelog.client.consumer.async_consumer import AsyncConsumer
from tidelog.client.resources import IsolationLevel, OffsetSpec
from tidelog.console.auth.person import Account
from tidelog.console.records.decoding.record_decoder import RecordDecoder
from tidelog.console.records.filter_process import FilterProcess
from tidelog.console.records.masking import Mask
from tidelog.console.records.raw import RawRecord
from tidelog.console.refusal import Refusal, not_found
from tidelog.console.watching.watched_cluster import WatchedCluster
from tidelog.ids import TopicPartition
from tidelog.records.record_codec import ConsumerRecord

Place = Literal["newest", "oldest", "offset", "time", "tail"]
_POLL_S = 0.5
_BATCH_RECORDS = 500
_FILTERED_RECORDS = 2000
_FETCH_BYTES = 4 * 1024 * 1024
_PARTITION_BYTES = 1024 * 1024
_STEP_BACK = 2000
_FURTHER = 4
_IDLE_S = 15.0
_NAMED = 20
_HELD_BYTES = 64 * 1024 * 1024
_HELD_MORE = 2000


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """What is looked for."""

    topic: str
    place: Place = "newest"
    partitions: tuple[int, ...] = ()
    """None named: all."""
    offset: int = 0
    time_ms: int = 0
    limit: int = 50
    filter: str = ""
    scan_limit: int = 1_000_000
    """How many records a search reads at most; then it says so and ends."""
    read_committed: bool = False
    without_leaders: bool = False
    """Whether to read what can be read of a topic of which some partitions have no leader."""
    is_whole: bool = False
    """Whether a bound that leaves out something of what was asked for is a refusal, instead of an end."""


@dataclass(slots=True)
class Progress:
    """How far a search is; ``ended`` says why it ended, or is empty."""

    scanned: int = 0
    total: int = 0
    matched: int = 0
    read_bytes: int = 0
    ended: str = ""
    left_out: tuple[int, ...] = ()
    """Partitions that have no leader."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a step of a search yields; progress alone where nothing matched."""

    records: Sequence[RawRecord]
    progress: Progress


@dataclass(slots=True)
class _Range:
    """Offsets of one partition that are read: ``start`` included, ``end`` not."""

    partition: TopicPartition
    start: int
    end: int


class Search:
    """One search in one topic."""

    def __init__(
        self,
        cluster: WatchedCluster,
        request: SearchRequest,
        mask: Mask,
        decoder: RecordDecoder,
        account: Account | None,
    ) -> None:
        self._account = account
        self._decoder = decoder
        self._cluster = cluster
        self._request = request
        self._mask = mask
        self._progress = Progress()
        # A mistake in it is said here, before anything is read.
        self._filter = FilterProcess(request.filter) if request.filter.strip() else None

    async def run(self) -> AsyncGenerator[Found, None]:
        """The batches; the last one's progress says why it ended."""
        with self._cluster.room(self._account):
            steps = self._run()
            async with contextlib.aclosing(steps):
                async for found in steps:
                    yield found

    async def _run(self) -> AsyncGenerator[Found, None]:
        request = self._request
        isolation = "read_committed" if request.read_committed else "read_uncommitted"
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._decoder)
            if self._filter is not None:
                await stack.enter_async_context(self._filter)
            partitions = await self._partitions()
            consumer = await stack.enter_async_context(
                self._cluster.consumer(
                    isolation_level=isolation,
                    fetch_max_bytes=_FETCH_BYTES,
                    max_partition_fetch_bytes=_PARTITION_BYTES,
                    max_poll_records=_BATCH_RECORDS if self._filter is None else _FILTERED_RECORDS,
                    fetch_max_wait_ms=100,
                )
            )
            if request.place == "tail":
                steps = self._tail(consumer, partitions)
            elif request.place == "newest":
                steps = self._newest(consumer, await self._ranges(partitions))
            else:
                steps = self._forward(consumer, await self._ranges(partitions))
            async with contextlib.aclosing(steps):
                async for found in steps:
                    yield found

    # Where it begins and ends

    async def _partitions(self) -> list[TopicPartition]:
        topic = self._request.topic
        described = (await self._cluster.admin.describe_topics([topic]))[topic]
        described.raise_for_error()
        there = {each.partition for each in described.partitions}
        wanted = self._request.partitions or tuple(sorted(there))
        for each in wanted:
            if each not in there:
                raise not_found(f"topic {topic} has no partition {each}: it has {len(there)}")
        leaderless = {each.partition for each in described.partitions if each.leader is None}
        led = [TopicPartition(topic, each) for each in wanted if each not in leaderless]
        if len(led) < len(wanted):
            self._progress.left_out = tuple(each for each in wanted if each in leaderless)
            if not led or self._request.partitions or not self._request.without_leaders:
                names = ", ".join(map(str, self._progress.left_out[:_NAMED]))
                raise Refusal(
                    f"partition {names} of topic {topic} has no leader: start the brokers that have "
                    "it, or choose other partitions",
                    503,
                    "UNREACHABLE",
                )
        return led

    async def _ranges(self, partitions: list[TopicPartition]) -> list[_Range]:
        starts = await self._offsets(partitions, OffsetSpec.EARLIEST)
        ends = await self._offsets(partitions, OffsetSpec.LATEST)
        request = self._request
        if request.place == "time":
            found = await self._offsets(partitions, request.time_ms)
            begins = {each: offset if offset >= 0 else ends[each] for each, offset in found.items()}
        elif request.place == "offset":
            begins = {each: min(max(request.offset, starts[each]), ends[each]) for each in partitions}
        else:
            begins = starts
        return [_Range(each, begins[each], ends[each]) for each in partitions if begins[each] < ends[each]]

    async def _offsets(self, partitions: list[TopicPartition], at: int) -> dict[TopicPartition, int]:
        level = (
            IsolationLevel.READ_COMMITTED if self._request.read_committed else IsolationLevel.READ_UNCOMMITTED
        )
        found = await self._cluster.admin.list_offsets(
            dict.fromkeys(partitions, int(at)), isolation_level=level
        )
        for result in found.values():
            result.raise_for_error()
        return {each: result.offset for each, result in found.items()}

    # The ways to go

    async def _forward(self, consumer: AsyncConsumer, ranges: list[_Range]) -> AsyncGenerator[Found, None]:
        progress, limit = self._progress, self._request.limit
        progress.total = sum(each.end - each.start for each in ranges)
        reading = self._read(consumer, ranges)
        async with contextlib.aclosing(reading):
            async for records in reading:
                chosen = await self._chosen(records)
                kept = chosen[: limit - progress.matched]
                progress.matched += len(kept)
                if progress.matched >= limit:
                    progress.ended = "limit"
                yield Found(kept, progress)
                if progress.ended:
                    return
        progress.ended = progress.ended or "end"
        yield Found((), progress)

    async def _newest(self, consumer: AsyncConsumer, ranges: list[_Range]) -> AsyncGenerator[Found, None]:
        """The last records of all partitions; the newest first, by their times."""
        progress, limit = self._progress, self._request.limit
        progress.total = sum(each.end - each.start for each in ranges)
        step = limit if self._filter is None else max(limit, _STEP_BACK)
        left = {each.partition: each.end for each in ranges}
        starts = {each.partition: each.start for each in ranges}
        while left and not progress.ended:
            window = [_Range(each, max(starts[each], end - step), end) for each, end in left.items()]
            held = _Newest(limit - progress.matched, only_times_if_cut=self._request.is_whole)
            reading = self._read(consumer, window)
            async with contextlib.aclosing(reading):
                async for records in reading:
                    held.take(await self._chosen(records))
                    yield Found((), progress)
            found = held.in_order()
            progress.matched += len(found)
            if held.is_cut and self._request.is_whole:
                again = self._newest_again(consumer, window, held)
                async with contextlib.aclosing(again):
                    async for records in again:
                        progress.matched += len(records)
                        yield Found(records, progress)
            elif held.is_cut:
                progress.ended = "scan-limit"
            left = {each.partition: each.start for each in window if each.start > starts[each.partition]}
            if progress.matched >= limit:
                progress.ended = "limit"
            elif not left:
                progress.ended = progress.ended or "end"
            yield Found(found, progress)
            step *= _FURTHER
        if not ranges:
            progress.ended = "end"
            yield Found((), progress)

    async def _newest_again(
        self, consumer: AsyncConsumer, window: list[_Range], held: _Newest
    ) -> AsyncGenerator[list[RawRecord], None]:
        """The newest records of a window, which were too many to be held, in the order of the partitions."""
        oldest_ms, of_that_time = held.oldest_time()
        reading = self._read(consumer, window, is_first_time=False)
        async with contextlib.aclosing(reading):
            async for records in reading:
                newest = []
                recent = [each for each in records if each.timestamp_ms >= oldest_ms]
                for each in await self._chosen(recent, is_first_time=False):
                    if each.timestamp_ms == oldest_ms:
                        of_that_time -= 1
                    if each.timestamp_ms > oldest_ms or of_that_time >= 0:
                        newest.append(each)
                yield newest

    async def _tail(
        self, consumer: AsyncConsumer, partitions: list[TopicPartition]
    ) -> AsyncGenerator[Found, None]:
        ends = await self._offsets(partitions, OffsetSpec.LATEST)
        consumer.assign(partitions)
        for partition, end in ends.items():
            consumer.seek(partition, end)
        yield Found((), self._progress)
        while True:
            records = [_raw(each) for each in await consumer.poll(_POLL_S)]
            self._progress.scanned += len(records)
            chosen = await self._chosen(records)
            self._progress.matched += len(chosen)
            yield Found(chosen, self._progress)

    # Reading

    async def _read(
        self, consumer: AsyncConsumer, ranges: list[_Range], *, is_first_time: bool = True
    ) -> AsyncGenerator[list[RawRecord], None]:
        """The records of ``ranges``, batch by batch; ends with them, or with the bound of the search.

        What is read again counts for neither progress nor bound.
        """
        open_ranges = {each.partition: each for each in ranges}
        consumer.assign(open_ranges)
        for each in ranges:
            consumer.seek(each.partition, each.start)
        heard_s = time.monotonic()
        while open_ranges:
            polled = await consumer.poll(_POLL_S)
            batch: list[RawRecord] = []
            for record in polled:
                partition = TopicPartition(record.topic, record.partition)
                if partition in open_ranges and record.offset < open_ranges[partition].end:
                    batch.append(_raw(record))
            if await self._drop_done(consumer, open_ranges):
                consumer.assign(open_ranges)
            if polled:
                heard_s = time.monotonic()
            elif time.monotonic() - heard_s > _IDLE_S:
                raise Refusal(
                    f"no messages arrived within {_IDLE_S:.0f} s although the topic has some: check "
                    "that all its partitions have a leader",
                    503,
                    "UNREACHABLE",
                )
            is_bound = False
            if is_first_time:
                self._progress.scanned += len(batch)
                is_bound = bool(open_ranges) and self._progress.scanned >= self._request.scan_limit
            if is_bound and not self._request.is_whole:
                self._progress.ended = "scan-limit"
                open_ranges.clear()
            yield batch
            if is_bound and self._request.is_whole:
                raise Refusal(
                    f"the search stopped at its limit of {self._request.scan_limit} messages before "
                    "it found all results: start from a time or an offset, choose partitions, or "
                    "raise scan_limit",
                    422,
                    "SCAN_LIMIT",
                )
            await asyncio.sleep(0)

    @staticmethod
    async def _drop_done(consumer: AsyncConsumer, open_ranges: dict[TopicPartition, _Range]) -> bool:
        """Forget ranges that are read; markers of transactions at an end count, too, by the position."""
        done = [each for each, range_ in open_ranges.items() if await consumer.position(each) >= range_.end]
        for each in done:
            del open_ranges[each]
        return bool(done)

    async def _chosen(self, records: list[RawRecord], *, is_first_time: bool = True) -> list[RawRecord]:
        """Those that match; decoded before they are masked, and masked before the filter sees them.

        Bytes are counted when they are masked, too: how long is what is hidden would be told otherwise.
        """
        records = await self._decoder.decoded(records)
        if self._mask:
            # Large values have many fields: others are served meanwhile.
            records = await asyncio.to_thread(self._mask.apply_all, records)
        if is_first_time:
            self._progress.read_bytes += sum(each.size_bytes for each in records)
        return records if self._filter is None else await self._filter.chosen(records)


async def read_one(
    cluster: WatchedCluster,
    partition: TopicPartition,
    offset: int,
    mask: Mask,
    account: Account | None,
    decoder: RecordDecoder | None = None,
) -> RawRecord:
    """The record at an offset; raises a refusal if there is none."""
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(cluster.room(account))
        consumer = await stack.enter_async_context(
            cluster.consumer(max_partition_fetch_bytes=_PARTITION_BYTES, fetch_max_wait_ms=100)
        )
        ends = await cluster.admin.list_offsets({partition: int(OffsetSpec.LATEST)})
        ends[partition].raise_for_error()
        if offset < ends[partition].offset:
            consumer.assign([partition])
            consumer.seek(partition, offset)
            deadline_s = time.monotonic() + _IDLE_S
            while time.monotonic() < deadline_s and await consumer.position(partition) <= offset:
                for record in await consumer.poll(_POLL_S, 1):
                    if record.offset == offset:
                        raw = _raw(record)
                        if decoder is not None:
                            (raw,) = await decoder.decoded([raw])
                        return (await asyncio.to_thread(mask.apply, raw)) if mask else raw
                    break
    raise not_found(f"{partition} has no message at offset {offset}: it was deleted or not yet written")


class _Newest:
    """The newest of the records that it is given, as many as are wanted and as there is memory for.

    With ``only_times_if_cut`` it forgets all of them where there is not memory for as many as are wanted:
    whoever reads them again knows by their times which they were.
    """

    def __init__(self, wanted: int, *, only_times_if_cut: bool = False) -> None:
        self._wanted = wanted
        self._only_times_if_cut = only_times_if_cut
        self._records: list[RawRecord] = []
        self._bytes = 0
        self._times = array("q")
        self.is_cut = False
        """There were more than there is memory for."""

    def take(self, records: Sequence[RawRecord]) -> None:
        if self._only_times_if_cut:
            self._times.extend(each.timestamp_ms for each in records)
            if len(self._times) > 2 * self._wanted + _HELD_MORE:
                self._times = array("q", sorted(self._times)[-self._wanted :])
            if self.is_cut:
                return
        self._records += records
        self._bytes += sum(each.held_bytes for each in records)
        if len(self._records) > 2 * self._wanted + _HELD_MORE or self._bytes > _HELD_BYTES:
            self.in_order()

    def in_order(self) -> list[RawRecord]:
        """The newest first, by their times; the others are forgotten."""
        self._records.sort(key=lambda each: (-each.timestamp_ms, -each.offset, each.partition))
        kept: list[RawRecord] = []
        held = 0
        for record in self._records[: self._wanted]:
            held += record.held_bytes
            if held > _HELD_BYTES and kept:
                self.is_cut = True
                break
            kept.append(record)
        if self.is_cut and self._only_times_if_cut:
            kept = []
        self._records, self._bytes = kept, sum(each.held_bytes for each in kept)
        return kept

    def oldest_time(self) -> tuple[int, int]:
        """The time of the oldest of the records that are wanted, and how many of them have that time."""
        times = sorted(self._times)[-self._wanted :]
        return times[0], bisect_right(times, times[0])


def _raw(record: ConsumerRecord) -> RawRecord:
    return RawRecord(
        record.partition,
        record.offset,
        record.timestamp,
        record.key,
        record.value,
        list(record.headers),
    )
