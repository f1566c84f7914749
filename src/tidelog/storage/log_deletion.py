"""Making a log shorter: retention at its start, truncation at its end, replacement in the middle.

Retention never deletes a segment that reaches behind the high watermark, and never the last one unless a new
one takes its place; with many segments it goes in steps (:func:`retention_steps`). The log start offset moves
before the segments go, so that no reader is sent to a file that is not there. Functions over ``Log``, which
calls them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Final

from tidelog.storage.log_loader import rebuild_producers
from tidelog.storage.segment import Segment
from tidelog.storage.segment_swap import name_finally, name_swapped

if TYPE_CHECKING:
    from tidelog.storage.log import Log

logger = logging.getLogger(__name__)
_Breach = Callable[[Segment, Segment | None], bool]

# What a step of the loop may take: some 100 µs for each timestamp, and a few for each segment that goes.
_TIMESTAMPS_AT_A_TIME: Final = 32
_SEGMENTS_AT_A_TIME: Final = 500
# The files of segments that are cut off are renamed before anything else happens, some 100 µs for each.
_CUT_OFF_AT_A_TIME: Final = 50


def note_start(log: Log, offset: int, reason: str) -> None:
    """Let the log start at ``offset``, which lies behind its start and not behind its high watermark."""
    log.log_start_offset = offset
    log.epochs.truncate_from_start(offset)
    log.producers.on_log_start_offset(offset)
    if log.recovery_point < offset:
        log.recovery_point = offset
    logger.info("%s: the log start offset is now %d (%s)", log.topic_partition, offset, reason or "asked for")


def delete_old_segments(log: Log) -> int:
    """Drop what the topic's retention no longer keeps; gives back how many segments."""
    return sum(retention_steps(log))


def retention_steps(log: Log) -> Iterator[int]:
    """The same in short steps, between which others may run; each gives how many segments it has dropped."""
    yield from _delete(log, _start_offset_breach, "before the log start offset")
    if log.config.delete:
        yield from _delete(log, _size_breach, f"retention.bytes={log.config.retention_bytes}")
        yield from _learn_timestamps(log)
        yield from _delete(log, _time_breach, f"retention.ms={log.config.retention_ms}")


def _learn_timestamps(log: Log) -> Iterator[int]:
    """Have the timestamps read that retention goes by; for each segment two files are opened."""
    if log.config.retention_ms < 0:
        return
    breached = _time_breach(log)
    cost = 0
    for segment in list(log.segments):
        if segment not in log.segments:
            continue
        cost += 1 if segment.knows_max_timestamp else _SEGMENTS_AT_A_TIME // _TIMESTAMPS_AT_A_TIME
        if not breached(segment, None):
            return
        if cost >= _SEGMENTS_AT_A_TIME:
            cost = 0
            yield 0


def _start_offset_breach(log: Log) -> _Breach:
    def breached(_: Segment, following: Segment | None) -> bool:
        return following is not None and following.base_offset <= log.log_start_offset

    return breached


def _size_breach(log: Log) -> _Breach:
    limit = log.config.retention_bytes
    excess = log.size_bytes - limit

    def breached(segment: Segment, _: Segment | None) -> bool:
        nonlocal excess
        if limit < 0 or excess < segment.size:
            return False
        excess -= segment.size
        return True

    return breached


def _time_breach(log: Log) -> _Breach:
    limit = log.config.retention_ms
    now_ms = log.clock.time_ms()

    def breached(segment: Segment, _: Segment | None) -> bool:
        return limit >= 0 and now_ms - segment.largest_timestamp > limit

    return breached


def _delete(log: Log, breach: Callable[[Log], _Breach], reason: str) -> Iterator[int]:
    """Drop segments from the start of the log for as long as the rule that ``breach`` makes is broken."""
    while True:
        deleted = _delete_some(log, breach(log), reason)
        if deleted:
            yield deleted
        if deleted < _SEGMENTS_AT_A_TIME:
            return


def _delete_some(log: Log, breached: _Breach, reason: str) -> int:
    deletable: list[Segment] = []
    segments = list(log.segments)
    for segment, following in islice(zip_longest(segments, segments[1:]), _SEGMENTS_AT_A_TIME):
        end_offset = log.log_end_offset if following is None else following.base_offset
        empty_last = following is None and segment.size == 0
        if empty_last or log.high_watermark < end_offset or not breached(segment, following):
            break
        deletable.append(segment)
    if not deletable:
        return 0
    if len(deletable) == len(segments):
        log.roll()
    following = log.segments.higher(deletable[-1].base_offset)
    start_offset = log.log_end_offset if following is None else following.base_offset
    if start_offset > log.log_start_offset:
        note_start(log, start_offset, f"segments deleted: {reason}")
    log.remove_segments(deletable)
    return len(deletable)


def truncate_to(log: Log, offset: int) -> bool:
    """Drop the batches that hold ``offset`` or later ones."""
    if offset < 0:
        raise ValueError(f"{log.topic_partition} cannot be truncated to offset {offset}")
    if offset >= log.log_end_offset:
        # An epoch may have been noted here by a leadership that then wrote nothing.
        log.epochs.truncate_from_end(log.log_end_offset)
        return False
    if offset < log.segments.first.base_offset:
        truncate_fully(log, offset, None)
        return True
    log.remove_segments([segment for segment in log.segments if segment.base_offset > offset], at_once=True)
    log.segments.active.truncate_to(offset)
    log.set_end_offset(offset)
    log.epochs.truncate_from_end(offset)
    log.log_start_offset = min(offset, log.log_start_offset)
    rebuild_producers(log.producers, log.segments, log.log_start_offset, offset, now_ms=log.clock.time_ms())
    if log.high_watermark > offset:
        log.update_high_watermark(offset)
    return True


def truncation_steps(log: Log, offset: int) -> list[int]:
    """Where to truncate, from the end of the log down to ``offset``, with few segments between two steps."""
    if offset < log.segments.first.base_offset:
        # All segments go, and a thread may rename them.
        return [offset]
    cut_off = [base for base in log.segments.base_offsets if base > offset]
    return [*cut_off[-_CUT_OFF_AT_A_TIME - 1 :: -_CUT_OFF_AT_A_TIME], offset]


def truncate_fully(log: Log, offset: int, log_start_offset: int | None) -> None:
    """Drop everything; the log goes on, empty, at ``offset``."""
    # At once, however many: after a crash nobody must find records that another leader has overruled.
    log.remove_segments(list(log.segments), at_once=True)
    log.create_segment(offset)
    log.set_end_offset(offset)
    log.epochs.clear()
    log.producers.restart_at(offset)
    log.log_start_offset = offset if log_start_offset is None else log_start_offset
    log.update_high_watermark(offset)


def replace(log: Log, new: Sequence[Segment], old: Sequence[Segment]) -> None:
    """Swap cleaned segments in; snapshots of old ones that have no successor go with them."""
    begin_replacement(log, new, old)
    log.rename_removed(at_once=True)
    finish_replacement(log, new)


def begin_replacement(log: Log, new: Sequence[Segment], old: Sequence[Segment]) -> None:
    """Let readers find ``new`` instead of ``old``, whose files are to be renamed then (``log.removed``)."""
    replaced = [segment for segment in old if segment in log.segments]
    name_swapped(new)
    log.segments.replace(new, replaced)
    log.removed.add(replaced, keep_snapshots={segment.base_offset for segment in new})


def finish_replacement(log: Log, new: Sequence[Segment]) -> None:
    """Give new segments their names, now that the old ones have theirs no more."""
    name_finally(new)
    log.disk.sync_path(log.directory)
