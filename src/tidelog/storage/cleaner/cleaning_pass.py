"""One compaction pass seen from the broker: the job it hands out, and taking the results in.

Invariant: a group is swapped in only if every segment that it was made from is still in the log, unchanged.
Segments change by truncation, leave by retention or deletion; either way the group is thrown away and the
pass ends. Used by ``cleaner``; :func:`compact_now` does it all in one call, for tests and tools.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tidelog.clock import Clock
from tidelog.errors import LogDirOfflineError, TidelogError
from tidelog.storage.cleaner.cleanable import DirtyLog, examine
from tidelog.storage.cleaner.cleaned_segment import remove_cleaned_files
from tidelog.storage.cleaner.cleaner_options import CleanerOptions
from tidelog.storage.cleaner.compaction import (
    CleanedGroup,
    CompactionDone,
    CompactionJob,
    SourceSegment,
    compact,
)
from tidelog.storage.cleaner.record_filter import ActiveProducer
from tidelog.storage.disk import offline_on_error
from tidelog.storage.files import CLEANED_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from tidelog.storage.log.log import Log
from tidelog.storage.producers.producer_snapshots import ProducerEntry
from tidelog.storage.segment.segment import Segment

_RENAMED_AT_ONCE: Final = 8
_RENAMED_AT_A_TIME: Final = 128

logger = logging.getLogger(__name__)


class _Source(NamedTuple):
    """A segment that is compacted, and how large it was when that began."""

    segment: Segment
    size: int


class LogChanged(TidelogError):
    """The log is no longer what it was when the pass began; what the pass has made is of no use."""


class CleaningPass:
    """A pass over one log."""

    def __init__(self, dirty: DirtyLog, options: CleanerOptions, clock: Clock) -> None:
        """Opens nothing, but asks for the sizes of many files: :meth:`prepared` does it in a thread."""
        self.log = dirty.log
        self._clock = clock
        segments = dirty.segments()
        self._sources = {segment.base_offset: _Source(segment, segment.size) for segment in segments}
        producers = list(dirty.log.producers.entries.values())
        self.job = _job(dirty, segments, producers, options, clock.time_ms())
        self._taken: set[int] = set()
        self.is_stopped = False

    @classmethod
    async def prepared(cls, dirty: DirtyLog, options: CleanerOptions, clock: Clock) -> CleaningPass:
        """A pass, got ready in a thread: a log may have ten thousand segments, and as many producers."""
        return await asyncio.to_thread(cls, dirty, options, clock)

    def stop(self) -> None:
        """Take in nothing more."""
        self.is_stopped = True

    def has_lost(self, base_offsets: Iterable[int]) -> bool:
        """Whether any of these segments is no longer in the log as it was when the pass began."""
        sources = (self._sources[base_offset] for base_offset in base_offsets)
        return any(
            self.log.segments.get(segment.base_offset) is not segment or segment.size != size
            for segment, size in sources
        )

    async def take(self, group: CleanedGroup) -> None:
        """Swap a finished group in; raises :class:`LogChanged` or ``LogDirOfflineError``.

        The files of the old segments, if they are many, are renamed in a thread. Readers find the new one
        from the beginning; it has its name at the end. Once begun it is carried to its end even if the pass
        is stopped, unless the partition's directory is renamed meanwhile: it is deleted then, or moved.
        """
        if len(group.sources) <= _RENAMED_AT_ONCE:
            self.take_now(group)
            return
        log, directory = self.log, self.log.directory
        cleaned, old = self._opened(group)
        try:
            with offline_on_error(directory, "taking in compacted segments"):
                log.begin_replacement([cleaned], old)
                while log.files.removed:
                    renamed = await asyncio.to_thread(log.files.removed.rename, _RENAMED_AT_A_TIME)
                    if log.directory != directory:
                        raise self._changed()
                    log.files.hand_over(renamed)
                log.files.finish_replacement([cleaned])
        except LogDirOfflineError as error:
            if log.directory != directory:
                raise self._changed() from error
            raise

    def take_now(self, group: CleanedGroup) -> None:
        """The same, all of it here and now."""
        log = self.log
        cleaned, old = self._opened(group)
        with offline_on_error(log.directory, "taking in compacted segments"):
            log.replace_segments([cleaned], old)

    def _opened(self, group: CleanedGroup) -> tuple[Segment, list[Segment]]:
        log = self.log
        if self.is_stopped or self.has_lost(group.sources):
            raise self._changed()
        self._taken.update(group.sources)
        with offline_on_error(log.directory, "taking in compacted segments"):
            cleaned = Segment.open(
                log.directory,
                group.base_offset,
                log.config,
                clock=self._clock,
                disk=log.files.disk,
                state_suffix=CLEANED_SUFFIX,
            )
        return cleaned, [self._sources[base_offset].segment for base_offset in group.sources]

    def _changed(self) -> LogChanged:
        return LogChanged(f"{self.log.topic_partition} was changed while it was compacted")

    @property
    def log_has_changed(self) -> bool:
        """Whether a segment that the pass had still to do is gone or different."""
        return self.is_stopped or self.has_lost(self._sources.keys() - self._taken)

    def clean_up(self) -> None:
        """Remove what the pass has written and nobody has taken; what cannot be removed, loading will."""
        try:
            for base_offset in self._sources:
                remove_cleaned_files(self.log.directory, base_offset)
        except OSError as error:
            logger.warning("compacted files are left in %s: %s", self.log.directory, error)


def compact_now(
    log: Log, *, clock: Clock, cleaned_up_to: int | None = None, options: CleanerOptions | None = None
) -> CompactionDone | None:
    """Compact a log here and now, however little there is to gain; None if nothing may be cleaned."""
    dirty = examine(log, cleaned_up_to, clock.time_ms())
    if not dirty.dirty_bytes:
        return None
    cleaning = CleaningPass(dirty, options or CleanerOptions(), clock)
    for event in compact(cleaning.job, disk=log.files.disk):
        if isinstance(event, CompactionDone):
            return event
        if isinstance(event, CleanedGroup):
            cleaning.take_now(event)
    raise AssertionError("a pass ends with its end")


def _job(
    dirty: DirtyLog,
    segments: Sequence[Segment],
    producers: Sequence[ProducerEntry],
    options: CleanerOptions,
    now_ms: int,
) -> CompactionJob:
    log, config = dirty.log, dirty.log.config
    return CompactionJob(
        directory=str(log.directory),
        segments=[_source(segment) for segment in segments],
        later_segments=[each.base_offset for each in log.segments if each.base_offset >= dirty.upper_bound],
        first_dirty_offset=dirty.first_dirty_offset,
        upper_bound=dirty.upper_bound,
        producers=[ActiveProducer(entry.producer_id, entry.epoch, entry.last_offset) for entry in producers],
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        delete_retention_ms=config.delete_retention_ms,
        now_ms=now_ms,
        dedupe_bytes=options.dedupe_buffer_bytes,
        load_factor=options.load_factor,
        io_buffer_bytes=options.io_buffer_bytes,
        max_bytes_per_second=options.max_bytes_per_second,
    )


def _source(segment: Segment) -> SourceSegment:
    return SourceSegment(
        base_offset=segment.base_offset,
        size_bytes=segment.size,
        offset_index_bytes=segment.path(OFFSET_INDEX_SUFFIX).stat().st_size,
        time_index_bytes=segment.path(TIME_INDEX_SUFFIX).stat().st_size,
        modified_ns=segment.path().stat().st_mtime_ns,
    )
