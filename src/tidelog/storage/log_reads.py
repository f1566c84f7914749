"""Finding things in a log: byte ranges for fetches and aborted transactions.

A fetch is answered with a range of a segment's file; nothing is copied, and of the data only the headers are
read that lie between an index entry and the batch sought. A reader at the end of the log costs not even
that: segments remember where their last batches lie. What is read does not grow with the log. Called by
``log``; the ranges are sent by ``broker/connection``.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import ErrorCode, KafkaError
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
