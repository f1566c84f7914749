"""Finding things in a log: byte ranges for fetches and aborted transactions.

A fetch is answered with a range of a segment's file; nothing is copied, and of the data only the headers are
read that lie between an index entry and the batch sought. A reader at the end of the log costs not even
that: segments remember where their last batches lie. What is read does not grow with the log. Called by
``log``, which knows how far a reader may see; the ranges are sent by ``broker/network/connection``.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from tidelog.errors import ErrorCode, KafkaError
from tidelog.storage.disk import LogFile
from tidelog.storage.log.log_files import LogFiles
from tidelog.storage.segment.segment import Segment

_new_tuple = tuple.__new__


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


# An enum's members are looked up at a price, which every fetch would pay.
_TXN_COMMITTED: Final = Isolation.TXN_COMMITTED


def out_of_range(files: LogFiles, offset: int) -> KafkaError:
    """The refusal of an offset that the log does not have."""
    return KafkaError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"Received request for offset {offset} for partition {files.topic_partition}, but we only have log "
        f"segments in the range {files.log_start_offset} to {files.log_end_offset}.",
    )


def nothing(start_offset: int, isolation: Isolation) -> FetchSlice:
    """The answer where there is nothing to read yet."""
    aborted: list[AbortedTransaction] | None = [] if isolation is _TXN_COMMITTED else None
    return FetchSlice(None, -1, 0, 0, start_offset, aborted, False)


def locate(
    files: LogFiles,
    start_offset: int,
    max_bytes: int,
    limit: int,
    isolation: Isolation,
    min_one_message: bool,
) -> FetchSlice:
    """The range from the batch that holds ``start_offset`` up to ``limit``, at most ``max_bytes``."""
    segment: Segment | None = files.active
    if start_offset < segment.base_offset:  # type: ignore[union-attr]
        segment = files.segments.floor(start_offset)
    while segment is not None:
        position = segment.position_of(start_offset)
        if position is not None:
            break
        # Compaction may have removed everything from here to the end of a segment.
        segment = files.segments.higher(segment.base_offset)
    else:
        return nothing(start_offset, isolation)
    available = _end_position(files, segment, limit) - position
    if available <= 0:
        return nothing(start_offset, isolation)
    length = available
    incomplete = False
    if available > max_bytes:
        first = segment.batch_size_at(position)
        if first > max_bytes and not min_one_message:
            incomplete = True
            length = max_bytes
        else:
            length = min(max(first, max_bytes), available)
    file = segment.files.log_file
    aborted = None
    if isolation is _TXN_COMMITTED:
        aborted = aborted_transactions(files, segment, start_offset, position, length)
    return _new_tuple(FetchSlice, (file, file.fd, position, length, start_offset, aborted, incomplete))


def _end_position(files: LogFiles, segment: Segment, limit: int) -> int:
    """Where in ``segment`` reading must stop, for offsets below ``limit``."""
    if limit >= files.log_end_offset:
        return segment.size
    if segment is not files.active:
        following = files.segments.higher(segment.base_offset)
        if following is not None and limit >= following.base_offset:
            return segment.size
    if limit <= segment.base_offset:
        return 0
    position = segment.position_of(limit)
    return segment.size if position is None else position


def aborted_transactions(
    files: LogFiles, segment: Segment, start_offset: int, position: int, length: int
) -> list[AbortedTransaction]:
    """The aborted transactions that overlap a range which begins in ``segment`` at ``position``."""
    if not any(one.txn_index.exists for one in files.segments.from_floor(segment.base_offset)):
        return []
    upper_bound = segment.offset_index.upper_bound(position + length)
    if upper_bound is None:
        following = files.segments.higher(segment.base_offset)
        upper_bound = files.log_end_offset if following is None else following.base_offset
    found: list[AbortedTransaction] = []
    for one in files.segments.from_floor(segment.base_offset):
        entries, complete = one.txn_index.collect(start_offset, upper_bound)
        found += [AbortedTransaction(entry.producer_id, entry.first_offset) for entry in entries]
        if complete:
            break
    return found
