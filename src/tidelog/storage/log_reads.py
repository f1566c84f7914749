"""Finding things in a log: byte ranges for fetches, offsets for timestamps, aborted transactions.

A fetch is answered with a range of a segment's file; nothing is copied, and of the data only the headers are
read that lie between an index entry and the batch sought. A reader at the end of the log costs not even
that: segments remember where their last batches lie. What is read does not grow with the log. Called by
``log``; the ranges are sent by ``broker/connection``.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_TIMESTAMP
from tidelog.records.batch import BatchHeader
from tidelog.records.record import Record, decode_batch
from tidelog.storage.disk import LogFile
from tidelog.storage.segment import Segment

if TYPE_CHECKING:
    from tidelog.storage.log import Log


class Isolation(Enum):
    """Up to where a reader may see."""

    LOG_END = "log_end"
    HIGH_WATERMARK = "high_watermark"
    TXN_COMMITTED = "txn_committed"


class AbortedTransaction(NamedTuple):
    """What a reader of committed records needs to know of an aborted transaction."""

    producer_id: int
    first_offset: int


class FetchSlice(NamedTuple):
    """Bytes of a segment's file that answer a fetch; whoever keeps it keeps the file open."""

    file: LogFile | None
    fd: int
    position: int
    length: int
    first_offset: int
    """The offset that was asked for; the first batch may begin before it."""
    aborted: list[AbortedTransaction] | None
    first_entry_incomplete: bool
    """Whether ``max_bytes`` cuts off the first batch, so that a reader can do nothing with the bytes."""


class TimestampAndOffset(NamedTuple):
    """A record found by its timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int


def out_of_range(log: Log, offset: int) -> KafkaError:
    """The refusal of an offset that the log does not have."""
    return KafkaError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"Received request for offset {offset} for partition {log.topic_partition}, but we only have log "
        f"segments in the range {log.log_start_offset} to {log.log_end_offset}.",
    )


def aborted_transactions(
    log: Log, segment: Segment, start_offset: int, position: int, length: int
) -> list[AbortedTransaction]:
    """The aborted transactions that overlap a range which begins in ``segment`` at ``position``."""
    if not any(one.txn_index.exists for one in log.segments.from_floor(segment.base_offset)):
        return []
    upper_bound = segment.offset_index.upper_bound(position + length)
    if upper_bound is None:
        following = log.segments.higher(segment.base_offset)
        upper_bound = log.log_end_offset if following is None else following.base_offset
    found: list[AbortedTransaction] = []
    for one in log.segments.from_floor(segment.base_offset):
        entries, complete = one.txn_index.collect(start_offset, upper_bound)
        found += [AbortedTransaction(entry.producer_id, entry.first_offset) for entry in entries]
        if complete:
            break
    return found


def offset_for_timestamp(log: Log, timestamp: int) -> TimestampAndOffset | None:
    """The first record that is not older than ``timestamp``, None if all are."""
    for segment in log.segments:
        if segment.largest_timestamp >= timestamp:
            found = _search_segment(segment, timestamp, log.log_start_offset)
            if found is not None:
                return found
            # All that is young enough here lies before the log start offset: a later segment may have more.
    return None


def _search_segment(segment: Segment, timestamp: int, start_offset: int) -> TimestampAndOffset | None:
    indexed = segment.time_index.lookup(timestamp)
    start = segment.position_of(max(indexed.offset, start_offset))
    if start is None:
        return None
    for position, header in segment.scan(start):
        if header.max_timestamp < timestamp:
            continue
        for record in _records(segment, position, header):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return TimestampAndOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


def offset_of_max_timestamp(log: Log) -> TimestampAndOffset | None:
    """The first record that has the highest timestamp of all, None if no record has one."""
    segment = max(log.segments, key=lambda one: one.max_timestamp.timestamp)
    highest = segment.max_timestamp
    if highest.timestamp == NO_TIMESTAMP:
        return None
    for position, header in segment.scan(segment.position_of(highest.offset) or 0):
        if header.max_timestamp != highest.timestamp:
            continue
        for record in _records(segment, position, header):
            if record.timestamp == highest.timestamp:
                return TimestampAndOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    return None


def _records(segment: Segment, position: int, header: BatchHeader) -> list[Record]:
    return decode_batch(segment.read_bytes(position, header.size_bytes))
