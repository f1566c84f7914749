"""Checking a segment batch by batch after an unclean stop, and rebuilding what hangs on it.

Every batch must be whole, pass its checksum and follow the one before it. At the first that does not, the
file is cut: a torn write, a preallocated or power-lost tail of zeros, or rot all end there. The three
indexes, the producers and the leader epochs are built anew from what is left. Messages of formats 0 and 1
are batches as well, by their own checksum; what a compressed one carries is not unpacked.

Called by ``log_loader`` for the segments at and behind the recovery point, and for any that lost an index.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog.errors import CorruptRecordError, StorageError
from tidelog.records.batch import (
    HEADER_SIZE,
    MAX_INT32,
    BatchHeader,
    check_crc,
    header_at,
    is_known_format,
)
from tidelog.storage.log.leader_epochs import LeaderEpochCache
from tidelog.storage.log.recovery_report import RecoveryReport
from tidelog.storage.producers.producer_replay import aborted_entry, replay_batch
from tidelog.storage.producers.producer_state import ProducerState
from tidelog.storage.segment.batch_reader import LARGE_BATCH_BYTES, passes_crc
from tidelog.storage.segment.segment import Segment
from tidelog.storage.segment.time_index import TimestampOffset

_CHUNK: Final = 1024 * 1024


class _Stop(Exception):
    """Where the good part of a segment ends, and why."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(why)
        self.position = position
        self.why = why


def recover_segment(
    segment: Segment,
    producers: ProducerState,
    epochs: LeaderEpochCache | None,
    report: RecoveryReport,
) -> int:
    """Check and cut one segment, rebuild its indexes; gives back how many bytes were cut off.

    ``producers`` is the state at the segment's base offset and is brought to its end.
    """
    size = segment.size
    valid_bytes = 0
    _empty_indexes(segment)
    highest = TimestampOffset(-1, segment.base_offset)
    last_entry_at = 0
    try:
        for position, header, batch in _sound_batches(segment):
            if header.max_timestamp > highest.timestamp:
                highest = TimestampOffset(header.max_timestamp, header.last_offset)
            if position - last_entry_at > segment.index_interval and segment.index_room > 0:
                segment.add_index_entry(header.last_offset, position, highest)
                last_entry_at = position
            _replay(segment, producers, epochs, header, batch)
            valid_bytes = position + header.size_bytes
    except _Stop as stop:
        report.truncated_because = f"{segment.path().name} at byte {stop.position}: {stop.why}"
    segment.finish_recovery(valid_bytes, highest)
    report.segments_scanned += 1
    report.bytes_scanned += size
    report.bytes_truncated += size - valid_bytes
    report.indexes_rebuilt += 1
    return size - valid_bytes


def _empty_indexes(segment: Segment) -> None:
    """Start both indexes anew, whatever their files hold."""
    segment.close_handles()
    segment.files.make_indexes()
    segment.txn_index.reset()


def _replay(
    segment: Segment,
    producers: ProducerState,
    epochs: LeaderEpochCache | None,
    header: BatchHeader,
    batch: memoryview,
) -> None:
    epoch = header.partition_leader_epoch
    if epochs is not None and epoch > epochs.latest_epoch and epoch >= 0:
        epochs.assign(epoch, header.base_offset)
    if header.has_producer_id:
        ended = replay_batch(producers, header, lambda: batch)
        if ended is not None and ended.aborted:
            segment.txn_index.append([aborted_entry(ended)])
    producers.commit(header.next_offset)


def _sound_batches(segment: Segment) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """``(position, header, bytes)`` of every batch up to the first that is not sound; then ``_Stop``."""
    position = 0
    expected = segment.base_offset
    chunk = memoryview(b"")
    chunk_at = 0
    while position < segment.size:
        at = position - chunk_at
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_at, at = memoryview(segment.read_bytes(position, _CHUNK)), position, 0
        header = _header(segment, chunk, at, position)
        is_large = header.size_bytes > LARGE_BATCH_BYTES
        if at + header.size_bytes > len(chunk) and not is_large:
            wanted = max(header.size_bytes, _CHUNK)
            chunk, chunk_at, at = memoryview(segment.read_bytes(position, wanted)), position, 0
        # Of a large batch, which is no marker of a transaction, the beginning will do.
        batch = chunk[at : at + header.size_bytes]
        if is_large:
            sound = passes_crc(segment.read_bytes, position, header)
        else:
            sound = len(batch) == header.size_bytes and check_crc(batch, 0, header.size_bytes)
        _check(segment, header, sound, position, expected)
        yield position, header, batch
        position += header.size_bytes
        expected = header.next_offset


def _header(segment: Segment, chunk: memoryview, at: int, position: int) -> BatchHeader:
    left = segment.size - position
    head = chunk[at : at + HEADER_SIZE]
    try:
        header = header_at(head)
    except CorruptRecordError as error:
        if left >= HEADER_SIZE:
            raise _no_batch(head, position) from error
        raise _Stop(position, f"{left} bytes are too few for a batch") from error
    if not is_known_format(header.magic):
        raise _no_batch(head, position)
    if header.size_bytes > left:
        raise _Stop(position, f"the last batch has {left} of its {header.size_bytes} bytes")
    return header


def _no_batch(head: memoryview, position: int) -> _Stop:
    return _Stop(position, "no record batch begins here" if any(head) else "zeros follow the last batch")


def _check(segment: Segment, header: BatchHeader, sound: bool, position: int, expected: int) -> None:
    if not sound:
        raise _Stop(position, f"the batch at offset {header.base_offset} fails its checksum")
    if header.base_offset < expected or header.last_offset_delta < 0:
        raise _Stop(position, f"offset {header.base_offset} cannot come where {expected} is next")
    if header.last_offset - segment.base_offset > MAX_INT32:
        raise StorageError(
            f"{segment.path()} holds offset {header.last_offset}, too far from its first for its indexes, as "
            "old versions of Kafka could write it; let a Kafka 3.x broker open the directory once to split it"
        )
