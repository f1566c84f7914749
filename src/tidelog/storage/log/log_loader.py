"""Opening a partition's directory: what is there, what is missing, what must be checked.

In order: an interrupted swap is finished and leftovers removed; segments are opened without being read;
segments that lack an index are rebuilt; after an unclean stop, the segments from the recovery point on are
checked, and cut at the first bad batch; the end of the log is read from the last segment; leader epochs and
producers are brought in line with it. After a clean stop nothing is read but the last index entry and the
few batches behind it, and nothing is left open.

Files that are none of ours (``remote_log_*``, subdirectories, whatever an operator put there) are passed
over. Called by ``Log.open``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from tidelog.errors import CorruptRecordError
from tidelog.ids import TopicPartition
from tidelog.storage.files import (
    DELETED_SUFFIX,
    LEADER_EPOCH_FILE,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
    offset_of,
)
from tidelog.storage.log.leader_epochs import LeaderEpochCache
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log.recovery import recover_segment
from tidelog.storage.log.recovery_report import RecoveryReport
from tidelog.storage.log.segment_swap import finish_interrupted_swap
from tidelog.storage.log_config import MAX_INT64
from tidelog.storage.producers.producer_replay import replay_batch
from tidelog.storage.producers.producer_snapshots import ProducerSnapshots
from tidelog.storage.producers.producer_state import ProducerState
from tidelog.storage.producers.producer_tail import remember_tail
from tidelog.storage.segment.mapped_index import CorruptIndexError
from tidelog.storage.segment.offset_index import OffsetIndex
from tidelog.storage.segment.segment import Segment
from tidelog.storage.segment.segment_files import SegmentFiles
from tidelog.storage.segment.segments import Segments
from tidelog.storage.segment.time_index import TimeIndex


class LoadedLog(NamedTuple):
    """A log as it was found, or mended."""

    segments: Segments
    epochs: LeaderEpochCache
    producers: ProducerState
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    report: RecoveryReport


class LogLoader(Struct):
    """Opens one partition's directory."""

    context: LogContext
    partition: TopicPartition
    clean_shutdown: bool
    recovery_point: int
    log_start_offset: int

    def load(self) -> LoadedLog:
        """Open the directory, which exists; mends what a crash has left."""
        report = RecoveryReport()
        names = finish_interrupted_swap(
            self.context.directory, self.context.config, self.context.clock, self.context.disk, report
        )
        epochs = LeaderEpochCache.load(self.context.directory / LEADER_EPOCH_FILE, self.context.disk)
        snapshots = ProducerSnapshots(self.context.directory, self.context.disk, names)
        producers = ProducerState(
            self.partition, snapshots, expiration_ms=self.context.producer_id_expiration_ms
        )
        segments = Segments()
        self._open_segments(segments, names, producers, epochs, report)
        if not self.clean_shutdown:
            self._recover(segments, producers, epochs, report)
        end_offset = self._end_offset(segments, producers, epochs, report)
        if end_offset is None or end_offset < self.log_start_offset:
            end_offset = self._start_anew(segments, producers, epochs, report)
        start_offset = max(self.log_start_offset, segments.first.base_offset)
        epochs.truncate_from_end(end_offset)
        epochs.truncate_from_start(start_offset)
        snapshots.delete_strays(segments.base_offsets)
        report.batches_replayed += rebuild_producers(
            producers,
            segments,
            start_offset,
            end_offset,
            now_ms=self.context.clock.time_ms(),
            after_clean_shutdown=self.clean_shutdown,
        )
        for segment in segments:
            segment.is_loading = False
            segment.close_handles()
        report.log_end_offset = end_offset
        recovery_point = end_offset if self.clean_shutdown else min(self.recovery_point, end_offset)
        return LoadedLog(
            segments, epochs, producers, start_offset, end_offset, max(recovery_point, start_offset), report
        )

    # -- opening --------------------------------------------------------------------------------------

    def _open_segments(
        self,
        segments: Segments,
        names: Sequence[str],
        producers: ProducerState,
        epochs: LeaderEpochCache,
        report: RecoveryReport,
    ) -> None:
        present = set(names)
        first_to_check = self._first_to_check(names)
        for name in names:
            base_offset = offset_of(name)
            if base_offset is None or not name.endswith(SEGMENT_SUFFIXES):
                continue
            if not name.endswith(LOG_SUFFIX):
                if file_name(base_offset, LOG_SUFFIX) not in present:
                    self.context.disk.unlink(self.context.directory / name)
                    report.files_removed += 1
                continue
            files = SegmentFiles(
                self.context.directory,
                base_offset,
                self.context.config.segment_index_bytes,
                disk=self.context.disk,
                has_txn_index=file_name(base_offset, TXN_INDEX_SUFFIX) in present,
            )
            size = (self.context.directory / name).stat().st_size
            segment = Segment(files, self.context.config, size=size, clock=self.context.clock)
            segment.is_loading = True
            if base_offset < first_to_check and not self._has_indexes(segment, present):
                self._rebuild(segment, segments, producers.snapshots, epochs, report)
            segments.add(segment)

    def _first_to_check(self, names: Sequence[str]) -> int:
        """The base offset from which on segments are checked anyway, their indexes rebuilt."""
        if self.clean_shutdown:
            return MAX_INT64
        bases = [offset_of(name) or 0 for name in names if name.endswith(LOG_SUFFIX)]
        return max((base for base in bases if base <= self.recovery_point), default=0)

    def _has_indexes(self, segment: Segment, present: set[str]) -> bool:
        """Whether both indexes are there and of a size that fits; Kafka looks no closer at load either."""
        for suffix, entry_size in (
            (OFFSET_INDEX_SUFFIX, OffsetIndex.ENTRY_SIZE),
            (TIME_INDEX_SUFFIX, TimeIndex.ENTRY_SIZE),
        ):
            path = segment.path(suffix)
            if path.name not in present or path.stat().st_size % entry_size:
                return False
        try:
            segment.txn_index.check()
        except CorruptIndexError:
            return False
        return True

    def _rebuild(
        self,
        segment: Segment,
        before: Segments,
        snapshots: ProducerSnapshots,
        epochs: LeaderEpochCache,
        report: RecoveryReport,
    ) -> None:
        """Rebuild one segment's indexes; transactions that reach into it are known from those before."""
        earlier = ProducerSnapshots(self.context.directory, self.context.disk)
        earlier.offsets = [offset for offset in snapshots.offsets if offset <= segment.base_offset]
        state = ProducerState(self.partition, earlier, expiration_ms=self.context.producer_id_expiration_ms)
        self._producers_at(segment.base_offset, before, state, report)
        recover_segment(segment, state, epochs, report)

    def _producers_at(
        self, offset: int, segments: Segments, state: ProducerState, report: RecoveryReport
    ) -> None:
        report.batches_replayed += rebuild_producers(
            state, segments, self.log_start_offset, offset, now_ms=self.context.clock.time_ms()
        )

    # -- after an unclean stop ------------------------------------------------------------------------

    def _recover(
        self,
        segments: Segments,
        producers: ProducerState,
        epochs: LeaderEpochCache,
        report: RecoveryReport,
    ) -> None:
        unflushed = segments.from_floor(self.recovery_point) if segments else []
        for slot, segment in enumerate(unflushed):
            if slot == 0:
                self._producers_at(segment.base_offset, segments, producers, report)
            truncated = recover_segment(segment, producers, epochs, report)
            producers.take_snapshot()
            segment.close_handles()
            if truncated:
                self._drop(unflushed[slot + 1 :], segments, producers, report)
                return

    def _drop(
        self,
        dropped: Sequence[Segment],
        segments: Segments,
        producers: ProducerState,
        report: RecoveryReport,
    ) -> None:
        for segment in dropped:
            segments.remove(segment.base_offset)
            segment.close_handles()
            segment.files.rename(DELETED_SUFFIX)
            for path in segment.files.existing_paths():
                self.context.disk.unlink(path)
            producers.snapshots.delete(segment.base_offset)
            report.segments_dropped += 1

    # -- the end of the log ---------------------------------------------------------------------------

    def _end_offset(
        self,
        segments: Segments,
        producers: ProducerState,
        epochs: LeaderEpochCache,
        report: RecoveryReport,
    ) -> int | None:
        if not segments:
            return None
        last = segments.active
        try:
            last.offset_index.check(last.size)
            last.time_index.check()
            return last.next_offset()
        except (CorruptIndexError, CorruptRecordError) as error:
            # A clean stop was promised and not kept: believe the batches, not the promise.
            report.notes.append(f"{last.path().name} was checked because {error}")
            self._rebuild(last, segments, producers.snapshots, epochs, report)
            return last.next_offset()

    def _start_anew(
        self,
        segments: Segments,
        producers: ProducerState,
        epochs: LeaderEpochCache,
        report: RecoveryReport,
    ) -> int:
        """An empty log from its start offset on: there was none, or all of it lay before that offset."""
        offset = self.log_start_offset
        if segments:
            report.notes.append(f"all segments ended before the log start offset {offset} and were deleted")
            self._drop(list(segments), segments, producers, report)
            epochs.clear()
            producers.restart_at(offset)
        segments.add(
            Segment.create(
                self.context.directory,
                offset,
                self.context.config,
                clock=self.context.clock,
                disk=self.context.disk,
            )
        )
        return offset


def rebuild_producers(
    state: ProducerState,
    segments: Segments,
    log_start_offset: int,
    end_offset: int,
    *,
    now_ms: int,
    after_clean_shutdown: bool = False,
) -> int:
    """Bring ``state`` to ``end_offset``: from the newest snapshot, then the batches behind it.

    Gives back how many batches were replayed.
    """
    bases = segments.base_offsets
    if state.snapshots.latest is None and after_clean_shutdown:
        # A log from before there were snapshots, or one without producers: take empty ones rather than
        # read everything, for the last two segments and the end.
        for offset in (*bases[-2:], end_offset):
            state.end_offset = offset
            state.take_snapshot()
        return 0
    had_no_producers = state.is_empty and state.end_offset >= end_offset
    state.reload(log_start_offset, end_offset, now_ms)
    replayed = 0
    if end_offset > state.end_offset and not had_no_producers:
        for segment in segments.between(state.end_offset, end_offset):
            start = max(segment.base_offset, state.end_offset, log_start_offset)
            state.end_offset = start
            if segment.base_offset in bases[-2:]:
                state.take_snapshot()
            replayed += _replay_segment(state, segment, start, end_offset)
    state.end_offset = end_offset
    state.take_snapshot()
    remember_tail(state, segments, log_start_offset, end_offset, now_ms)
    return replayed


def _replay_segment(state: ProducerState, segment: Segment, start: int, end_offset: int) -> int:
    position = segment.position_of(start)
    if position is None:
        return 0
    replayed = 0
    for at, header in segment.scan(position):
        if header.last_offset >= end_offset:
            break
        if header.has_producer_id:
            size = header.size_bytes
            replay_batch(state, header, lambda at=at, size=size: segment.read_bytes(at, size))  # type: ignore[misc]
        state.commit(header.next_offset)
        replayed += 1
    return replayed
