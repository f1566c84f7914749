"""Making a log shorter: retention at its start, truncation at its end.

Retention never deletes a segment that reaches behind the high watermark, and never the last one unless a new
one takes its place; with many segments it goes in steps (:func:`retention_steps`). The log start offset moves
before the segments go, so that no reader is sent to a file that is not there. Called by ``log``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice, zip_longest
from typing import Final, Protocol

from tidelog.storage.log.log_appender import LogAppender
from tidelog.storage.log.log_files import LogFiles
from tidelog.storage.log.log_loader import rebuild_producers
from tidelog.storage.segment.segment import Segment

logger = logging.getLogger(__name__)
_Breach = Callable[[Segment, Segment | None], bool]

# What a step of the loop may take: some 100 µs for each timestamp, and a few for each segment that goes.
_TIMESTAMPS_AT_A_TIME: Final = 32
_SEGMENTS_AT_A_TIME: Final = 500
# The files of segments that are cut off are renamed before anything else happens, some 100 µs for each.
_CUT_OFF_AT_A_TIME: Final = 50


class RetainedLog(Protocol):
    """What retention must know of a log."""

    @property
    def files(self) -> LogFiles: ...

    @property
    def high_watermark(self) -> int: ...

    def roll(self) -> None:
        """Make a new active segment."""


def note_start(files: LogFiles, offset: int, reason: str) -> None:
    """Let the log start at ``offset``, which lies behind its start and not behind its high watermark."""
    files.log_start_offset = offset
    files.epochs.truncate_from_start(offset)
    files.producers.on_log_start_offset(offset)
    if files.recovery_point < offset:
        files.recovery_point = offset
    logger.info(
        "%s: the log start offset is now %d (%s)", files.topic_partition, offset, reason or "asked for"
    )


def retention_steps(log: RetainedLog) -> Iterator[int]:
    """Drop what the topic's retention no longer keeps, in short steps, between which others may run.

    Each gives how many segments it has dropped.
    """
    files = log.files
    yield from _delete(log, _start_offset_breach, "before the log start offset")
    if files.config.delete:
        yield from _delete(log, _size_breach, f"retention.bytes={files.config.retention_bytes}")
        yield from _learn_timestamps(files)
        yield from _delete(log, _time_breach, f"retention.ms={files.config.retention_ms}")


def _learn_timestamps(files: LogFiles) -> Iterator[int]:
    """Have the timestamps read that retention goes by; for each segment two files are opened."""
    if files.config.retention_ms < 0:
        return
    breached = _time_breach(files)
    cost = 0
    for segment in list(files.segments):
        if segment not in files.segments:
            continue
        cost += 1 if segment.knows_max_timestamp else _SEGMENTS_AT_A_TIME // _TIMESTAMPS_AT_A_TIME
        if not breached(segment, None):
            return
        if cost >= _SEGMENTS_AT_A_TIME:
            cost = 0
            yield 0


def _start_offset_breach(files: LogFiles) -> _Breach:
    def breached(_: Segment, following: Segment | None) -> bool:
        return following is not None and following.base_offset <= files.log_start_offset

    return breached


def _size_breach(files: LogFiles) -> _Breach:
    limit = files.config.retention_bytes
    excess = files.size_bytes - limit

    def breached(segment: Segment, _: Segment | None) -> bool:
        nonlocal excess
        if limit < 0 or excess < segment.size:
            return False
        excess -= segment.size
        return True

    return breached


def _time_breach(files: LogFiles) -> _Breach:
    limit = files.config.retention_ms
    now_ms = files.clock.time_ms()

    def breached(segment: Segment, _: Segment | None) -> bool:
        return limit >= 0 and now_ms - segment.largest_timestamp > limit

    return breached


def _delete(log: RetainedLog, breach: Callable[[LogFiles], _Breach], reason: str) -> Iterator[int]:
    """Drop segments from the start of the log for as long as the rule that ``breach`` makes is broken."""
    while True:
        deleted = _delete_some(log, breach(log.files), reason)
        if deleted:
            yield deleted
        if deleted < _SEGMENTS_AT_A_TIME:
            return


def _delete_some(log: RetainedLog, breached: _Breach, reason: str) -> int:
    files = log.files
    deletable: list[Segment] = []
    segments = list(files.segments)
    for segment, following in islice(zip_longest(segments, segments[1:]), _SEGMENTS_AT_A_TIME):
        end_offset = files.log_end_offset if following is None else following.base_offset
        empty_last = following is None and segment.size == 0
        if empty_last or log.high_watermark < end_offset or not breached(segment, following):
            break
        deletable.append(segment)
    if not deletable:
        return 0
    if len(deletable) == len(segments):
        log.roll()
    following = files.segments.higher(deletable[-1].base_offset)
    start_offset = files.log_end_offset if following is None else following.base_offset
    if start_offset > files.log_start_offset:
        note_start(files, start_offset, f"segments deleted: {reason}")
    files.remove_segments(deletable)
    return len(deletable)


def truncate_to(files: LogFiles, appender: LogAppender, offset: int) -> bool:
    """Drop the batches that hold ``offset`` or later ones; False if there are none."""
    if offset < 0:
        raise ValueError(f"{files.topic_partition} cannot be truncated to offset {offset}")
    if offset >= files.log_end_offset:
        # An epoch may have been noted here by a leadership that then wrote nothing.
        files.epochs.truncate_from_end(files.log_end_offset)
        return False
    if offset < files.segments.first.base_offset:
        truncate_fully(files, appender, offset, None)
        return True
    files.remove_segments([each for each in files.segments if each.base_offset > offset], at_once=True)
    files.segments.active.truncate_to(offset)
    files.set_end_offset(offset)
    appender.go_on_at_end()
    files.epochs.truncate_from_end(offset)
    start_offset = files.log_start_offset = min(offset, files.log_start_offset)
    rebuild_producers(files.producers, files.segments, start_offset, offset, now_ms=files.clock.time_ms())
    return True


def truncation_steps(files: LogFiles, offset: int) -> list[int]:
    """Where to truncate, from the end of the log down to ``offset``, with few segments between two steps."""
    if offset < files.segments.first.base_offset:
        # All segments go, and a thread may rename them.
        return [offset]
    cut_off = [base for base in files.segments.base_offsets if base > offset]
    return [*cut_off[-_CUT_OFF_AT_A_TIME - 1 :: -_CUT_OFF_AT_A_TIME], offset]


def truncate_fully(files: LogFiles, appender: LogAppender, offset: int, log_start_offset: int | None) -> None:
    """Drop everything; the log goes on, empty, at ``offset``."""
    # At once, however many: after a crash nobody must find records that another leader has overruled.
    files.remove_segments(list(files.segments), at_once=True)
    files.create_segment(offset)
    files.set_end_offset(offset)
    appender.go_on_at_end()
    files.epochs.clear()
    files.producers.restart_at(offset)
    files.log_start_offset = offset if log_start_offset is None else log_start_offset
