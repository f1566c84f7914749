"""The log of one partition: Kafka's UnifiedLog, one directory ``topic-partition``.

Owns the directory and everything in it. Offsets run ``log_start_offset ≤ high_watermark ≤ log_end_offset``,
and ``last_stable_offset ≤ high_watermark``; ``recovery_point ≤ log_end_offset`` says how much is synced.

A log owns two parts: ``files`` (``log_files``: segments, rolling, syncing, renaming, the start and the end of
the log) and ``appender`` (``log_appender``: what leaders and followers append). It knows itself how far
readers may see, and does what concerns both parts: truncation, retention, closing. Loading is in
``log_loader``, finding in ``log_reads``, retention and truncation in ``log_shrinking``, the formats in the
modules of their names.

Single-threaded: all calls come from the broker's loop, except ``files.flush`` and ``files.flush_up_to``,
which may run in a thread. An ``OSError`` from the disk becomes ``LogDirOfflineError``. Called by
``replication/partition``, by ``storage/directories/log_dirs`` and by the cleaner.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_TIMESTAMP, Uuid, uuid_to_text
from tidelog.records.batch import Buffer, iter_batches
from tidelog.storage.disk import offline_on_error
from tidelog.storage.log import log_shrinking
from tidelog.storage.log.leader_epochs import EpochEnd
from tidelog.storage.log.log_appender import AppendInfo, LogAppender
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log.log_files import LogFiles
from tidelog.storage.log.log_loader import LoadedLog, LogLoader
from tidelog.storage.log.log_reads import FetchSlice, Isolation, locate, nothing, out_of_range
from tidelog.storage.log.partition_metadata import read_partition_metadata, write_partition_metadata
from tidelog.storage.log.timestamp_search import TimestampAndOffset, TimestampSearch
from tidelog.storage.log_config import LogConfig
from tidelog.storage.segment.segment import Segment

# An enum's members are looked up at a price, which every fetch would pay several times.
HIGH_WATERMARK, LOG_END = Isolation.HIGH_WATERMARK, Isolation.LOG_END

__all__ = ["AppendInfo", "FetchSlice", "Isolation", "Log", "TimestampAndOffset"]


class Log:
    """One partition on one disk."""

    __slots__ = (
        "__weakref__",
        "append_as_follower",
        "append_as_leader",
        "appender",
        "epochs",
        "files",
        "high_watermark",
        "producers",
        "recovery",
        "segments",
        "stage_as_leader",
        "topic_id",
        "topic_partition",
        "write_staged",
    )

    def __init__(self, context: LogContext, loaded: LoadedLog) -> None:
        self.files = LogFiles(context, loaded)
        self.appender = LogAppender(self.files)
        self.topic_partition = self.files.topic_partition
        self.segments = self.files.segments
        self.epochs = self.files.epochs
        self.producers = self.files.producers
        self.high_watermark = self.files.log_start_offset
        self.topic_id: Uuid | None = None
        self.recovery = loaded.report or None
        """What had to be mended when it was opened."""
        # Bound once: every produce request, and every answer to a follower, would pay for the way there.
        self.append_as_leader = self.appender.append_as_leader
        self.append_as_follower = self.appender.append_as_follower
        self.stage_as_leader = self.appender.stage_as_leader
        self.write_staged = self.appender.write_staged

    @classmethod
    def open(
        cls,
        context: LogContext,
        *,
        clean_shutdown: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        topic_id: Uuid | None = None,
    ) -> Log:
        """Load the partition in the context's directory, or make it there."""
        directory = context.directory
        partition = context.topic_partition
        loader = LogLoader(context, partition, clean_shutdown, recovery_point, log_start_offset)
        with offline_on_error(directory, "loading"):
            is_new = not directory.exists()
            directory.mkdir(parents=True, exist_ok=True)
            log = cls(context, loader.load())
            # A broker that ended at once may have left a directory that it had not synced.
            log.files.is_name_synced = clean_shutdown and not is_new
            log._settle_topic_id(topic_id)
            if not log.epochs.path.exists():
                log.epochs.path.touch()
        return log

    def _settle_topic_id(self, topic_id: Uuid | None) -> None:
        stored = read_partition_metadata(self.directory)
        if stored is None and topic_id is not None:
            write_partition_metadata(self.directory, topic_id, self.files.disk)
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

    @property
    def directory(self) -> Path:
        return self.files.directory

    @property
    def config(self) -> LogConfig:
        return self.files.config

    # -- offsets --------------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers may see."""
        return self.files.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset behind the last record that was written."""
        return self.files.log_end_offset

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
        files = self.files
        if offset > files.log_end_offset:
            offset = files.log_end_offset
        elif offset < files.log_start_offset:
            offset = files.log_start_offset
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
        log_shrinking.note_start(self.files, offset, reason)
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

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd | None:
        """The end of the largest epoch up to ``epoch``, None if that is not known."""
        found = self.epochs.end_offset_for(epoch, self.log_end_offset)
        return None if found.end_offset < 0 else found

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
        files = self.files
        if isolation is HIGH_WATERMARK:
            limit = self.high_watermark
        elif isolation is LOG_END:
            limit = files.log_end_offset
        else:
            limit = self.last_stable_offset
        if start_offset < files.log_start_offset or start_offset > files.log_end_offset:
            raise out_of_range(files, start_offset)
        if start_offset >= limit:
            return nothing(start_offset, isolation)
        try:
            return locate(files, start_offset, max_bytes, limit, isolation, min_one_message)
        except OSError as error:
            raise files.offline_error("reading", error) from error

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
            return self.files.disk.pread(found.fd, found.length, found.position)

    def search_timestamp(self, timestamp: int | None) -> TimestampSearch:
        """A search for the first record that is not older than ``timestamp``; with None, for the first that
        has the highest timestamp of all."""
        return TimestampSearch(self.files, timestamp)

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
        self.files.config = config
        self.appender.follow_config()

    def roll(self) -> None:
        """Make a new active segment, unless the one there is empty."""
        self.write_staged()
        with offline_on_error(self.directory, "rolling a segment"):
            self.files.roll(self.log_end_offset)
        self.appender.arm()

    def delete_old_segments(self) -> int:
        """Drop segments by ``retention.ms``, ``retention.bytes`` and log start offset; gives the number."""
        return sum(self.retention_steps())

    def retention_steps(self) -> Iterator[int]:
        """The same in short steps, for the loop; each gives how many segments it has dropped."""
        self.write_staged()
        steps = log_shrinking.retention_steps(self)
        while True:
            with offline_on_error(self.directory, "deleting segments"):
                deleted = next(steps, None)
            if deleted is None:
                return
            yield deleted

    def truncate_to(self, offset: int) -> bool:
        """Drop the batches that hold ``offset`` or later ones; False if there are none."""
        self.appender.forget_staged()
        with offline_on_error(self.directory, "truncating"):
            was_cut = log_shrinking.truncate_to(self.files, self.appender, offset)
        if was_cut:
            # Even if it stays: the producers were rebuilt, and hold back transactions below it once more.
            self.update_high_watermark(min(self.high_watermark, offset))
        return was_cut

    def truncation_steps(self, offset: int) -> list[int]:
        """The offsets to truncate to, one after the other, so that none of it takes long; ``offset`` is last.

        The log is whole after each.
        """
        return log_shrinking.truncation_steps(self.files, offset)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything and go on at ``offset``."""
        self.appender.forget_staged()
        with offline_on_error(self.directory, "truncating"):
            log_shrinking.truncate_fully(self.files, self.appender, offset, log_start_offset)
        self.update_high_watermark(offset)

    def begin_with_whole_batch(self, records: Buffer) -> None:
        """Let an empty log that starts within the first batch of ``records`` begin where that batch does.

        Called before they are appended as a follower: after DeleteRecords the log that they come from starts
        within a batch.
        """
        end_offset = self.files.log_end_offset
        if end_offset != self.files.log_start_offset:
            return
        first = next((header for _, header in iter_batches(records)), None)
        if first is not None and first.base_offset < end_offset <= first.last_offset:
            self.truncate_fully_and_start_at(first.base_offset, end_offset)

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        """Put cleaned segments, named ``.cleaned``, in the place of ``old``; a crash leaves either."""
        self.write_staged()
        with offline_on_error(self.directory, "replacing segments"):
            self.files.replace_segments(new, old)

    def begin_replacement(self, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        """The first half of the same; ``files.finish_replacement`` is the second.

        Between them ``old``, in ``files.removed``, are to be renamed.
        """
        self.write_staged()
        self.files.begin_replacement(new, old)

    def close(self, clean: bool = True) -> None:
        """Sync and trim everything, ready to be opened without a check; or, not ``clean``, just let go."""
        if self.files.closed:
            return
        self.files.closed = True
        if clean:
            self.write_staged()
        self.files.close(clean=clean)

    def delete(self) -> None:
        """Remove the directory with everything in it."""
        self.close(clean=False)
        with offline_on_error(self.directory, "deleting"):
            shutil.rmtree(self.directory)
