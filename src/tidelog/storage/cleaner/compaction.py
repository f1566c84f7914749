"""Compaction: for each key of a log, keep the last record and drop those before it.

A pass has two walks. The first goes over the dirty part (never cleaned, up to the first segment that may
not be touched) and notes the last offset of every key. The second goes over the log from its start and
writes each record whose key has no later offset into new segments, several small old ones into one. Offsets,
batch boundaries, codec and producer fields stay. Of a batch that loses all its records the empty header
stays if it is the last of an active producer, whose sequence number it holds. The last record of the pass
stays, so that readers reach the end of the log.

A tombstone (null value) that survives gives its batch a *delete horizon*, now + ``delete.retention.ms``, in
the place of the base timestamp (attribute bit 6); a pass after that time drops it. Markers of transactions
that are gone are treated alike.

A batch whose records cannot be read (whatever its header and its CRC say) is stepped over: it stays as it is
and its keys do not count, so that no older record of them is lost. So does a batch with more keys than there
is memory for.

Invariant: a pass reads live segments and writes ``.cleaned`` files only, so it may be killed at any moment;
the broker alone swaps the results in (``cleaner``). Everything a pass must know is in its
:class:`CompactionJob`, which travels as JSON to the worker process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tidelog.records.batch import MAGIC_V2, MAX_INT32, BatchHeader
from tidelog.storage.cleaner.cleaned_segment import CleanedSegment
from tidelog.storage.cleaner.cleaned_transactions import CleanedTransactions
from tidelog.storage.cleaner.offset_map import OffsetMap
from tidelog.storage.cleaner.record_filter import ActiveProducer, RecordFilter, SkippedBatches
from tidelog.storage.disk import REAL_DISK, Disk
from tidelog.storage.files import LOG_SUFFIX, TXN_INDEX_SUFFIX, segment_path
from tidelog.storage.segment.batch_reader import read_batches
from tidelog.storage.segment.batch_records import BatchRecords
from tidelog.storage.segment.old_records import OldRecords
from tidelog.storage.segment.transaction_index import AbortedTxn, TransactionIndex

Pace = Callable[[int], None]
"""Called with the number of bytes just read or written; may sleep."""

DEFAULT_DEDUPE_BYTES: Final = 128 * 1024 * 1024
DEFAULT_LOAD_FACTOR: Final = 0.9
DEFAULT_IO_BUFFER_BYTES: Final = 512 * 1024


class SourceSegment(msgspec.Struct, frozen=True, array_like=True):
    """A segment to clean, as the broker saw it when it made the job."""

    base_offset: int
    size_bytes: int
    offset_index_bytes: int
    time_index_bytes: int
    modified_ns: int


class CompactionJob(msgspec.Struct, frozen=True, kw_only=True):
    """One pass over one log."""

    directory: str
    segments: list[SourceSegment]
    """All segments below ``upper_bound``, oldest first."""
    later_segments: list[int]
    """Base offsets of the others: a marker there may abort a transaction here."""
    first_dirty_offset: int
    upper_bound: int
    """The base offset of the first segment that must not be touched."""
    producers: list[ActiveProducer]
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    now_ms: int
    dedupe_bytes: int = DEFAULT_DEDUPE_BYTES
    load_factor: float = DEFAULT_LOAD_FACTOR
    io_buffer_bytes: int = DEFAULT_IO_BUFFER_BYTES
    max_bytes_per_second: float | None = None


class CleanedGroup(msgspec.Struct, frozen=True, tag="group", kw_only=True):
    """One new segment, complete on disk, and the old ones it is to replace."""

    base_offset: int
    sources: list[int]
    size_bytes: int


class BatchSkipped(msgspec.Struct, frozen=True, tag="skipped", kw_only=True):
    """A batch stays as it is, because its records cannot be compacted."""

    offset: int
    reason: str


class CompactionDone(msgspec.Struct, frozen=True, tag="done", kw_only=True):
    """The end of a pass: the log is clean up to ``end_offset``."""

    end_offset: int
    bytes_read: int
    bytes_written: int
    records_read: int
    records_kept: int
    keys: int


def compact(
    job: CompactionJob, pace: Pace = lambda size: None, disk: Disk = REAL_DISK
) -> Iterator[CleanedGroup | BatchSkipped | CompactionDone]:
    """Run a pass; each group is complete on disk when it is yielded. The last thing yielded is the end."""
    skipped = SkippedBatches()
    offsets = OffsetMap(job.dedupe_bytes, job.load_factor, job.upper_bound - job.first_dirty_offset)
    aborted = _aborted_transactions(job)
    # Those that ended in the clean part are not met again: they would never be closed by their marker.
    open_in_dirty = [txn for txn in aborted if txn.last_offset >= job.first_dirty_offset]
    dirty_bytes = _fill(offsets, job, open_in_dirty, skipped, pace)
    end_offset = offsets.latest_offset + 1
    yield from _told(skipped)
    keep = RecordFilter(
        offsets,
        CleanedTransactions(aborted),
        job.producers,
        now_ms=job.now_ms,
        delete_retention_ms=job.delete_retention_ms,
        upper_bound=job.upper_bound,
        skipped=skipped,
    )
    bytes_written = clean_bytes = 0
    for group in group_segments(
        [segment for segment in job.segments if segment.base_offset < end_offset],
        job.segment_bytes,
        job.segment_index_bytes,
        job.upper_bound,
    ):
        size = _clean_group(job, group, keep, pace, disk)
        yield from _told(skipped)
        clean_bytes += sum(segment.size_bytes for segment in group)
        bytes_written += size
        sources = [segment.base_offset for segment in group]
        yield CleanedGroup(base_offset=sources[0], sources=sources, size_bytes=size)
    yield CompactionDone(
        end_offset=end_offset,
        bytes_read=dirty_bytes + clean_bytes,
        bytes_written=bytes_written,
        records_read=keep.records_read,
        records_kept=keep.records_kept,
        keys=offsets.size,
    )


def _told(skipped: SkippedBatches) -> Iterator[BatchSkipped]:
    for offset, reason in skipped.take_untold():
        yield BatchSkipped(offset=offset, reason=reason)


def group_segments(
    segments: Sequence[SourceSegment], max_bytes: int, max_index_bytes: int, upper_bound: int
) -> list[list[SourceSegment]]:
    """Neighbours whose logs and indexes fit one new segment together, judged by their sizes now."""
    groups: list[list[SourceSegment]] = []
    for position, segment in enumerate(segments):
        following = segments[position + 1].base_offset if position + 1 < len(segments) else upper_bound
        if groups:
            group = [*groups[-1], segment]
            reach = following - 1 - group[0].base_offset
            if (
                sum(each.size_bytes for each in group) <= max_bytes
                and sum(each.offset_index_bytes for each in group) <= max_index_bytes
                and sum(each.time_index_bytes for each in group) <= max_index_bytes
                and (segment.size_bytes == 0 or reach <= MAX_INT32)
            ):
                groups[-1] = group
                continue
        groups.append([segment])
    return groups


def _fill(
    offsets: OffsetMap, job: CompactionJob, aborted: Sequence[AbortedTxn], skipped: SkippedBatches, pace: Pace
) -> int:
    """Note the last offset of each key in the dirty part, as far as there is room; gives back bytes read."""
    transactions = CleanedTransactions(aborted)
    bytes_read = 0
    bounds = [*(segment.base_offset for segment in job.segments[1:]), job.upper_bound]
    for segment, following in zip(job.segments, bounds, strict=True):
        if following <= job.first_dirty_offset:
            continue
        path = segment_path(Path(job.directory), segment.base_offset, LOG_SUFFIX)
        for data, pos, header in read_batches(path, segment.size_bytes, job.io_buffer_bytes, pace):
            bytes_read += header.size_bytes
            if header.last_offset < job.first_dirty_offset:
                continue
            if header.is_control:
                transactions.is_droppable_marker(data, pos, header)
            elif not transactions.is_aborted(header):
                kind = BatchRecords if header.magic == MAGIC_V2 else OldRecords
                records = kind(data, pos, header)
                before = offsets.size
                if skipped.can_read(header, records) and not _note_keys(offsets, records, header, job):
                    if before:
                        return bytes_read
                    # Not even alone. Going no further would leave the log as it is for ever.
                    offsets.clear()
                    skipped.add(
                        header,
                        f"its keys do not fit the cleaner's memory, which has room for {offsets.capacity}; "
                        "raise log.cleaner.dedupe.buffer.size",
                    )
            offsets.seen_up_to(header.last_offset)
        # Compacted logs have gaps: what follows the last batch is known to be nothing.
        offsets.seen_up_to(following - 1)
    return bytes_read


def _note_keys(offsets: OffsetMap, records: BatchRecords, header: BatchHeader, job: CompactionJob) -> bool:
    put = offsets.put
    if isinstance(records, OldRecords):
        header = records.converted
    first_dirty, base_offset = job.first_dirty_offset, header.base_offset
    for piece, span in records.spans():
        offset = base_offset + span.offset_delta
        if span.key_length < 0 or offset < first_dirty:
            continue
        if not put(piece[span.key_at : span.key_at + span.key_length], offset):
            return False
    return True


def _clean_group(
    job: CompactionJob, group: Sequence[SourceSegment], keep: RecordFilter, pace: Pace, disk: Disk
) -> int:
    directory = Path(job.directory)
    cleaned = CleanedSegment(directory, group[0].base_offset, job.index_interval_bytes, disk)
    try:
        for segment in group:
            path = segment_path(directory, segment.base_offset, LOG_SUFFIX)
            for data, pos, header in read_batches(path, segment.size_bytes, job.io_buffer_bytes, pace):
                batch = keep.retained(data, pos, header)
                if batch is not None:
                    cleaned.append(batch)
                    pace(len(batch))
        cleaned.add_aborted(keep.transactions.kept_aborts)
        keep.transactions.kept_aborts.clear()
        cleaned.finish(group[-1].modified_ns)
    except BaseException:
        cleaned.discard()
        raise
    return cleaned.size_bytes


def _aborted_transactions(job: CompactionJob) -> list[AbortedTxn]:
    directory = Path(job.directory)
    first = job.segments[0].base_offset
    found: dict[AbortedTxn, None] = {}
    for base_offset in [*(segment.base_offset for segment in job.segments), *job.later_segments]:
        index = TransactionIndex(
            segment_path(directory, base_offset, TXN_INDEX_SUFFIX), base_offset, REAL_DISK
        )
        overlapping, complete = index.collect(first, job.upper_bound)
        found.update(dict.fromkeys(overlapping))
        if complete:
            break
    return list(found)
