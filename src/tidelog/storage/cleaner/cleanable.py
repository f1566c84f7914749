"""How dirty a compacted log is, and how much of it may be cleaned.

A log is clean up to the offset in ``cleaner-offset-checkpoint`` and dirty from there. Never cleaned are the
active segment, segments with records behind the last stable offset, and, with ``min.compaction.lag.ms``,
segments with younger records than that. Reads no records: sizes, and at most one batch header or one index
entry per segment. Used by ``cleaner``.
"""

from __future__ import annotations

import logging

from msgspec import Struct

from tidelog.storage.log.log import Log
from tidelog.storage.segment.segment import Segment

logger = logging.getLogger(__name__)


class DirtyLog(Struct, frozen=True):
    """What a pass over ``log`` would find now; a segment in which the dirty part begins counts for both."""

    log: Log
    first_dirty_offset: int
    upper_bound: int
    """The base offset of the first segment that must be left alone."""
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """Whether ``max.compaction.lag.ms`` asks for a pass, however little there is to gain."""

    @property
    def ratio(self) -> float:
        """The dirty part of what a pass would read."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is worth a pass by its own options."""
        if self.overdue and self.dirty_bytes:
            return True
        return self.ratio > self.log.config.min_cleanable_dirty_ratio

    def segments(self) -> list[Segment]:
        """The segments that a pass reads."""
        return [segment for segment in self.log.segments if segment.base_offset < self.upper_bound]


def examine(log: Log, cleaned_up_to: int | None, now_ms: int) -> DirtyLog:
    """Measure a log whose checkpoint says ``cleaned_up_to``."""
    first_dirty = _first_dirty_offset(log, cleaned_up_to)
    uncleanable = min(log.last_stable_offset, log.segments.active.base_offset)
    if log.config.min_compaction_lag_ms > 0:
        youngest_cleanable = now_ms - log.config.min_compaction_lag_ms
        for segment in log.segments.from_floor(first_dirty)[:-1]:
            if segment.base_offset >= uncleanable:
                break
            if segment.largest_timestamp > youngest_cleanable:
                uncleanable = segment.base_offset
                break
    first_left_alone = log.segments.floor(max(uncleanable, first_dirty)) or log.segments.active
    upper_bound = first_left_alone.base_offset
    clean_bytes = sum(segment.size for segment in log.segments if segment.base_offset < first_dirty)
    dirty_bytes = sum(segment.size for segment in log.segments.between(first_dirty, upper_bound))
    overdue = dirty_bytes > 0 and _is_overdue(log, first_dirty, now_ms)
    return DirtyLog(log, first_dirty, upper_bound, clean_bytes, dirty_bytes, overdue)


def _first_dirty_offset(log: Log, cleaned_up_to: int | None) -> int:
    start = log.log_start_offset
    if cleaned_up_to is None:
        return start
    if cleaned_up_to < start:
        if not log.config.delete:
            logger.warning(
                "%s was clean up to %d, before its start %d; it is cleaned from its start",
                log.topic_partition,
                cleaned_up_to,
                start,
            )
        return start
    if cleaned_up_to > log.log_end_offset:
        # Its end was lost, perhaps with a disk: what was clean may since have been written anew.
        logger.warning(
            "%s was clean up to %d, behind its end %d; it is cleaned from its start",
            log.topic_partition,
            cleaned_up_to,
            log.log_end_offset,
        )
        return start
    return cleaned_up_to


def _is_overdue(log: Log, first_dirty: int, now_ms: int) -> bool:
    clean_until = now_ms - max(log.config.max_compaction_lag_ms, 0)
    if clean_until <= 0:
        return False
    return any(
        0 < segment.first_timestamp < clean_until for segment in log.segments.from_floor(first_dirty)[:-1]
    )
