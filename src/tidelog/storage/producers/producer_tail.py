"""The batches that a snapshot of producers does not hold, read back from the end of the log.

A snapshot has the last batch of each producer. A client may have five requests under way, though, and repeats
all of them when it finds a new leader: one that has just been restarted would take the first four for a gap,
and clients that then begin anew under another epoch write their records twice. So the last batches of
producers that were at work a short time ago are looked up when a log is loaded or cut back. (Kafka forgets
them.) Called by ``log_loader``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from tidelog.errors import StorageError
from tidelog.records.batch import MAX_INT32, BatchHeader
from tidelog.storage.producers.producer_snapshots import SequencedBatch
from tidelog.storage.producers.producer_state import REMEMBERED_BATCHES, ProducerState
from tidelog.storage.segment.segments import Segments

logger = logging.getLogger(__name__)

RECENT_MS: Final = 15 * 60_000
"""Producers give a batch up after ``delivery.timeout.ms``, two minutes by default."""
TAIL_OFFSETS: Final = 500


def remember_tail(
    state: ProducerState, segments: Segments, log_start_offset: int, end_offset: int, now_ms: int
) -> None:
    """Add to ``state`` the earlier ones of the last batches of producers that were at work lately."""
    recent = {
        producer_id: entry
        for producer_id, entry in state.entries.items()
        if 0 < len(entry.batches) < REMEMBERED_BATCHES and abs(now_ms - entry.last_timestamp) <= RECENT_MS
    }
    if not recent:
        return
    start = max(log_start_offset, end_offset - TAIL_OFFSETS)
    found: dict[int, list[SequencedBatch]] = {}
    try:
        for header in _headers(segments, start, end_offset):
            entry = recent.get(header.producer_id)
            if entry is not None and header.producer_epoch == entry.epoch and not header.is_control:
                found.setdefault(header.producer_id, []).append(_sequenced(header))
    except StorageError as error:
        # Whoever reads there is told; what is known of the producers without it is right.
        logger.warning("%s: repeated batches may be refused, because %s", state.partition, error)
        return
    for producer_id, batches in found.items():
        entry = recent[producer_id]
        state.entries[producer_id] = entry._replace(batches=_chain(batches, entry.batches))


def _headers(segments: Segments, start: int, end_offset: int) -> Iterator[BatchHeader]:
    for segment in segments.between(start, end_offset):
        position = segment.position_of(max(start, segment.base_offset))
        if position is None:
            continue
        for _, header in segment.scan(position):
            if header.last_offset >= end_offset:
                break
            yield header


def _sequenced(header: BatchHeader) -> SequencedBatch:
    last_sequence = (header.base_sequence + header.last_offset_delta) & MAX_INT32
    return SequencedBatch(
        header.base_sequence, last_sequence, header.base_offset, header.last_offset, header.max_timestamp
    )


def _chain(batches: list[SequencedBatch], known: tuple[SequencedBatch, ...]) -> tuple[SequencedBatch, ...]:
    """``known``, and before it the batches that it continues."""
    chain = list(known)
    for batch in reversed(batches):
        if batch.last_offset >= chain[0].first_offset:
            continue
        if (
            len(chain) == REMEMBERED_BATCHES
            or chain[0].first_sequence != (batch.last_sequence + 1) & MAX_INT32
        ):
            break
        chain.insert(0, batch)
    return tuple(chain)
