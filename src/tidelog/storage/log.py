"""The log of one partition: Kafka's UnifiedLog, one directory ``topic-partition``.

Owns the directory and everything in it. Offsets run ``log_start_offset ≤ high_watermark ≤ log_end_offset``,
and ``last_stable_offset ≤ high_watermark``; ``recovery_point ≤ log_end_offset`` says how much is synced.

The class is built in three steps that can be read one by one: ``log_files`` (segments, rolling, syncing),
``log_staging`` and ``log_append`` (appends), and here reading and the life cycle. Loading is in
``log_loader``, retention in ``log_deletion``, the formats in the modules of their names.

Single-threaded: all calls come from the broker's loop, except ``flush`` and ``flush_up_to``, which may run
in a thread. An ``OSError`` from the disk becomes ``LogDirOfflineError``. Called by ``replication/partition``,
by ``storage/log_dirs`` and by the cleaner.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tidelog.clock import Clock
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_TIMESTAMP, Uuid, uuid_to_text
from tidelog.storage import log_deletion, log_reads
from tidelog.storage.disk import REAL_DISK, Disk, offline_on_error
from tidelog.storage.files import (
    DELETE_DIR_SUFFIX,
    LEADER_EPOCH_FILE,
    parse_directory_name,
    suffixed_directory_name,
)
from tidelog.storage.log_append import AppendInfo, LogAppend
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_loader import LoadedLog, LogLoader
from tidelog.storage.log_reads import FetchSlice, Isolation
from tidelog.storage.partition_metadata import read_partition_metadata, write_partition_metadata
from tidelog.storage.recovery_report import RecoveryReport
from tidelog.storage.segment import Segment
from tidelog.storage.timestamp_search import TimestampAndOffset, TimestampSearch

# An enum's members are looked up at a price, which every fetch would pay several times.
HIGH_WATERMARK, LOG_END, TXN_COMMITTED = Isolation.HIGH_WATERMARK, Isolation.LOG_END, Isolation.TXN_COMMITTED
_new_tuple = tuple.__new__

__all__ = ["AppendInfo", "FetchSlice", "Isolation", "Log", "TimestampAndOffset"]


class Log(LogAppend):
    """One partition on one disk."""

    __slots__ = ("__weakref__", "closed", "recovery", "topic_id")

    topic_id: Uuid | None
    recovery: RecoveryReport | None
    closed: bool

    @classmethod
    def open(
        cls,
        directory: Path,
        config: LogConfig,
        *,
        clock: Clock,
        clean_shutdown: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        producer_id_expiration_ms: int = 86_400_000,
        topic_id: Uuid | None = None,
        disk: Disk = REAL_DISK,
        on_rolled: Callable[[Log, int], None] | None = None,
        on_segments_deleted: Callable[[list[Path]], None] | None = None,
    ) -> Log:
        """Load the partition in ``directory``, or make it there.

        ``on_rolled(log, offset)`` is to call ``log.flush_up_to(offset)``, in a thread if it likes; without
        it rolling syncs at once. ``on_segments_deleted(paths)`` is to delete these files after
        ``file.delete.delay.ms``; without it they go at once.
        """
        partition, _ = parse_directory_name(directory.name)
        with offline_on_error(directory, "loading"):
            directory.mkdir(parents=True, exist_ok=True)
            loader = LogLoader(
                directory,
                partition,
                config,
                clock,
                disk,
                clean_shutdown,
                recovery_point,
                log_start_offset,
                producer_id_expiration_ms,
            )
            loaded = loader.load()
            log = cls._from_loaded(loaded, directory, config, clock, disk)
            log._settle_topic_id(topic_id)
            if not log.epochs.path.exists():
                log.epochs.path.touch()
        if on_rolled is not None:
            log.on_rolled = lambda offset: on_rolled(log, offset)
        log.on_segments_deleted = on_segments_deleted
        return log

    @classmethod
    def _from_loaded(
        cls, loaded: LoadedLog, directory: Path, config: LogConfig, clock: Clock, disk: Disk
    ) -> Log:
        log = cls(
            directory,
            loaded.producers.partition,
            config,
            loaded.segments,
            loaded.epochs,
            loaded.producers,
            clock=clock,
            disk=disk,
            log_start_offset=loaded.log_start_offset,
            log_end_offset=loaded.log_end_offset,
            recovery_point=loaded.recovery_point,
        )
        log.recovery = loaded.report or None
        log.topic_id = None
        log.closed = False
        return log

    def _settle_topic_id(self, topic_id: Uuid | None) -> None:
        stored = read_partition_metadata(self.directory)
        if stored is None and topic_id is not None:
            write_partition_metadata(self.directory, topic_id, self.disk)
            stored = topic_id
        elif stored is not None and topic_id is not None and stored != topic_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"Tried to assign topic ID {uuid_to_text(topic_id)} to log for topic partition "
                f"{self.topic_partition}, but log already contained topic ID {uuid_to_text(stored)}",
            )
        self.topic_id = stored

    def assign_topic_id(self, topic_id: Uuid) -> None:
        """Tie a log that has none yet to its topic's id."""
        with offline_on_error(self.directory, "writing the topic id"):
            self._settle_topic_id(topic_id)

    def __repr__(self) -> str:
        return (
            f"Log({self.directory}, start={self.log_start_offset}, high_watermark={self.high_watermark}, "
            f"end={self.log_end_offset})"
        )

    # -- offsets --------------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """Up to where everything is decided: no open transaction has written before it."""
        high_watermark = self.high_watermark
        producers = self.producers
        if not producers.has_transactions:
            return high_watermark
        first_unstable = producers.first_unstable_offset
        if first_unstable is None or first_unstable >= high_watermark:
            return high_watermark
        return max(first_unstable, self.log_start_offset)

    def update_high_watermark(self, offset: int) -> int:
        """Move the high watermark to ``offset``, but not out of the log; gives back where it is now."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        elif offset < self.log_start_offset:
            offset = self.log_start_offset
        self.high_watermark = offset
        if self.producers.has_transactions:
            self.producers.on_high_watermark(offset)
        return offset

    def increment_log_start_offset(self, offset: int, reason: str = "") -> bool:
        """Hide everything before ``offset``; False if it was hidden already.

        Raises ``OFFSET_OUT_OF_RANGE`` for an offset behind the high watermark.
        """
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot increment the log start offset to {offset} of partition {self.topic_partition} "
                f"since it is larger than the high watermark {self.high_watermark}",
            )
        if offset <= self.log_start_offset:
            return False
        log_deletion.note_start(self, offset, reason)
        return True

    @property
    def earliest(self) -> TimestampAndOffset:
        """The start of the log, with its leader epoch where that is known."""
        first = self.epochs.entries[0] if self.epochs.entries else None
        known = first is not None and first.start_offset <= self.log_start_offset
        return TimestampAndOffset(NO_TIMESTAMP, self.log_start_offset, first.epoch if first and known else -1)

    @property
    def latest(self) -> TimestampAndOffset:
        """The end of the log and its latest leader epoch."""
        return TimestampAndOffset(NO_TIMESTAMP, self.log_end_offset, self.epochs.latest_epoch)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """``(epoch, end offset)`` of the largest epoch up to ``epoch``, None if that is not known."""
        found = self.epochs.end_offset_for(epoch, self.log_end_offset)
        return None if found[1] < 0 else found

    # -- reading --------------------------------------------------------------------------------------

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        min_one_message: bool = True,
    ) -> FetchSlice:
        """The bytes from the batch that holds ``start_offset``, at most ``max_bytes`` and as far as allowed.

        With ``min_one_message`` the first batch comes whole, however large. Raises OFFSET_OUT_OF_RANGE.
        """
        if isolation is HIGH_WATERMARK:
            limit = self.high_watermark
        elif isolation is LOG_END:
            limit = self.log_end_offset
        else:
            limit = self.last_stable_offset
        if start_offset < self.log_start_offset or start_offset > self.log_end_offset:
            raise log_reads.out_of_range(self, start_offset)
        if start_offset >= limit:
            return self._nothing(start_offset, isolation)
        try:
            return self._read(start_offset, max_bytes, limit, isolation, min_one_message)
        except OSError as error:
            raise self._offline("reading", error) from error

    def _read(
        self, start_offset: int, max_bytes: int, limit: int, isolation: Isolation, min_one_message: bool
    ) -> FetchSlice:
        segment: Segment | None = self._active
        if start_offset < segment.base_offset:  # type: ignore[union-attr]
            segment = self.segments.floor(start_offset)
        while segment is not None:
            position = segment.position_of(start_offset)
            if position is not None:
                break
            # Compaction may have removed everything from here to the end of a segment.
            segment = self.segments.higher(segment.base_offset)
        else:
            return self._nothing(start_offset, isolation)
        available = self._end_position(segment, limit) - position
        if available <= 0:
            return self._nothing(start_offset, isolation)
        length = available
        incomplete = False
        if available > max_bytes:
            first = segment.batch_size_at(position)
            if first > max_bytes and not min_one_message:
                incomplete = True
                length = max_bytes
            else:
                length = min(max(first, max_bytes), available)
        file = segment.file
        aborted = None
        if isolation is TXN_COMMITTED:
            aborted = log_reads.aborted_transactions(self, segment, start_offset, position, length)
        return _new_tuple(FetchSlice, (file, file.fd, position, length, start_offset, aborted, incomplete))

    def _end_position(self, segment: Segment, limit: int) -> int:
        """Where in ``segment`` reading must stop, for offsets below ``limit``."""
        if limit >= self.log_end_offset:
            return segment.size
        if segment is not self._active:
            following = self.segments.higher(segment.base_offset)
            if following is not None and limit >= following.base_offset:
                return segment.size
        if limit <= segment.base_offset:
            return 0
        position = segment.position_of(limit)
        return segment.size if position is None else position

    def _nothing(self, start_offset: int, isolation: Isolation) -> FetchSlice:
        aborted: list[log_reads.AbortedTransaction] | None = None
        if isolation is Isolation.TXN_COMMITTED:
            aborted = []
        return FetchSlice(None, -1, 0, 0, start_offset, aborted, False)

    def read_bytes(
        self,
        start_offset: int,
        max_bytes: int,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        min_one_message: bool = True,
    ) -> bytes:
        """The bytes that :meth:`read` gives the place of."""
        found = self.read(start_offset, max_bytes, isolation=isolation, min_one_message=min_one_message)
        if found.file is None:
            return b""
        with offline_on_error(self.directory, "reading"):
            return self.disk.pread(found.fd, found.length, found.position)

    def search_timestamp(self, timestamp: int | None) -> TimestampSearch:
        """A search for the first record that is not older than ``timestamp``; with None, for the first that
        has the highest timestamp of all."""
        return TimestampSearch(self, timestamp)

    def offset_for_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """The first record that is not older than ``timestamp``, None if all are; however long it takes."""
        return self.search_timestamp(timestamp).finish()

    def offset_of_max_timestamp(self) -> TimestampAndOffset | None:
        """The first record that has the highest timestamp of all, None if no record has one."""
        return self.search_timestamp(None).finish()

    # -- life cycle -----------------------------------------------------------------------------------

    def update_config(self, config: LogConfig) -> None:
        """Follow the topic's options from the next append on; index sizes from the next segment on."""
        self.write_staged()
        self._use_config(config)

    def roll(self) -> None:
        """Make a new active segment, unless the one there is empty."""
        self.write_staged()
        with offline_on_error(self.directory, "rolling a segment"):
            self._roll(self.log_end_offset)
        self._arm()

    def delete_old_segments(self) -> int:
        """Drop segments by ``retention.ms``, ``retention.bytes`` and log start offset; gives the number."""
        self.write_staged()
        with offline_on_error(self.directory, "deleting segments"):
            return log_deletion.delete_old_segments(self)

    def retention_steps(self) -> Iterator[int]:
        """The same in short steps, for the loop; each gives how many segments it has dropped."""
        self.write_staged()
        steps = log_deletion.retention_steps(self)
        while True:
            with offline_on_error(self.directory, "deleting segments"):
                deleted = next(steps, None)
            if deleted is None:
                return
            yield deleted

    def truncate_to(self, offset: int) -> bool:
        """Drop the batches that hold ``offset`` or later ones; False if there are none."""
        self._forget_staged()
        with offline_on_error(self.directory, "truncating"):
            return log_deletion.truncate_to(self, offset)

    def truncation_steps(self, offset: int) -> list[int]:
        """The offsets to truncate to, one after the other, so that none of it takes long; ``offset`` is last.

        The log is whole after each.
        """
        return log_deletion.truncation_steps(self, offset)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything and go on at ``offset``."""
        self._forget_staged()
        with offline_on_error(self.directory, "truncating"):
            log_deletion.truncate_fully(self, offset, log_start_offset)

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        """Put cleaned segments, named ``.cleaned``, in the place of ``old``; a crash leaves either."""
        self.write_staged()
        with offline_on_error(self.directory, "replacing segments"):
            log_deletion.replace(self, new, old)

    def begin_replacement(self, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        """The first half of the same: ``old``, in :attr:`removed`, are to be renamed before the second."""
        self.write_staged()
        log_deletion.begin_replacement(self, new, old)

    def finish_replacement(self, new: Sequence[Segment]) -> None:
        """The second half."""
        log_deletion.finish_replacement(self, new)

    def close(self, clean: bool = True) -> None:
        """Sync and trim everything, ready to be opened without a check; or, not ``clean``, just let go."""
        if self.closed:
            return
        self.closed = True
        if clean:
            self.write_staged()
            with offline_on_error(self.directory, "closing"):
                self.hand_over(self.removed.rename())
                self.producers.take_snapshot()
                for segment in self.segments:
                    segment.close()
                self._flush(self.log_end_offset, include_empty=True)
        self.close_handles()

    def close_handles(self) -> None:
        """Let go of files and maps without writing, as when the disk has failed; a later use opens them."""
        for segment in self.segments:
            segment.close_handles()

    def rename(self, directory: Path) -> None:
        """Move the partition's directory."""
        self._rename(directory)
        for segment in self.segments:
            segment.move_to(directory)

    def _rename(self, directory: Path) -> None:
        with offline_on_error(self.directory, "renaming"):
            self.removed.rename_directory(self.directory, directory)
        self.directory = directory
        self.log_dir = directory.parent
        self.epochs.path = directory / LEADER_EPOCH_FILE

    def rename_for_delete(self) -> None:
        """Give the directory a name under which it waits for deletion, and free its own for a new one.

        Segments, which may be many, do not learn of it: nobody opens them any more.
        """
        name = suffixed_directory_name(self.topic_partition, DELETE_DIR_SUFFIX)
        self.is_deleted = True
        self._rename(self.directory.with_name(name))

    def delete(self) -> None:
        """Remove the directory with everything in it."""
        self.close(clean=False)
        with offline_on_error(self.directory, "deleting"):
            shutil.rmtree(self.directory)
