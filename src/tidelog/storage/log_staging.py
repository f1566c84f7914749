"""Batches on their way into a log: room for them, and writing a group of them with one call.

An append has two halves. *Staging* checks a batch, gives it its offsets in place, and notes in memory what
it will change: nobody can read it yet, ``log_end_offset`` stands still. *Writing* puts everything staged
into the active segment with one call and makes it visible. The bytes of a staged batch must stay as they
are until then, and the offsets it was told are good only once the write has succeeded.

Invariant: when writing fails, everything staged is forgotten: end offset, producers, epochs and indexes are
as they were before the first of the group, and the file ends where it ended. Built upon by ``log_append``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidelog.clock import Clock
from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError
from tidelog.ids import NO_TIMESTAMP, TopicPartition
from tidelog.records.batch import MAX_INT32, Buffer
from tidelog.records.batch_walk import DEFAULT_LIMITS
from tidelog.storage import validation
from tidelog.storage.disk import Disk, StagedRecordsLostError
from tidelog.storage.leader_epochs import EpochEntry, LeaderEpochCache
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_files import LogFiles
from tidelog.storage.producer_state import ProducerState
from tidelog.storage.segment import WrittenBatch
from tidelog.storage.segments import Segments
from tidelog.storage.transaction_index import AbortedTxn

_ALWAYS_ASK: Final = -2


class LogStaging(LogFiles):
    """A log with room for batches that are about to be written."""

    __slots__ = (
        "_coordinator_suffices",
        "_epochs_before",
        "_header_suffices",
        "_index_room",
        "_max_message_bytes",
        "_next_offset",
        "_roll_bytes",
        "_roll_offset",
        "_roll_timestamp",
        "_staged",
        "_staged_aborts",
        "_staged_bytes",
        "_timestamp_ceiling",
        "flush_on_append",
        "high_watermark",
        "walk_limits",
    )

    def __init__(
        self,
        directory: Path,
        partition: TopicPartition,
        config: LogConfig,
        segments: Segments,
        epochs: LeaderEpochCache,
        producers: ProducerState,
        *,
        clock: Clock,
        disk: Disk,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
    ) -> None:
        super().__init__(
            directory,
            partition,
            config,
            segments,
            epochs,
            producers,
            clock=clock,
            disk=disk,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            recovery_point=recovery_point,
        )
        self.high_watermark = log_start_offset
        self.flush_on_append = True
        self.walk_limits = DEFAULT_LIMITS
        """How much the records of one batch may unpack to."""
        self._next_offset = log_end_offset
        self._staged: list[tuple[Buffer, int, int, int, int]] = []
        self._staged_bytes = 0
        self._staged_aborts: list[AbortedTxn] = []
        self._epochs_before: list[EpochEntry] | None = None
        self._use_config(config)

    def _use_config(self, config: LogConfig) -> None:
        self.config = config
        self._max_message_bytes = config.max_message_bytes
        self._header_suffices = validation.header_suffices(config)
        # A coordinator's own records all have keys.
        self._coordinator_suffices = validation.header_suffices(config, has_keys=True)
        self.forget_timestamp_ceiling()
        self._arm()

    def forget_timestamp_ceiling(self) -> None:
        """Have the next append look at the clock.

        Timestamps up to the ceiling need no look: they were not too far ahead even earlier. That holds as
        long as the clock does not go back; ``upkeep`` calls this when it did.
        """
        self._timestamp_ceiling = NO_TIMESTAMP

    def _arm(self) -> None:
        """Have the next append look at everything that may roll the active segment."""
        self._active = self.segments.active
        self._roll_bytes = self.config.segment_bytes
        self._roll_offset = self._active.base_offset + MAX_INT32
        self._roll_timestamp = _ALWAYS_ASK
        self._index_room = 0

    def set_end_offset(self, offset: int) -> None:
        super().set_end_offset(offset)
        self._next_offset = offset
        self._arm()

    # -- room and epochs ------------------------------------------------------------------------------

    def _make_room(self, size: int, max_timestamp: int, first_offset: int, last_offset: int) -> None:
        """Roll the active segment if it must not take a batch; sets when to ask again."""
        if size > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size} bytes in append to partition {self.topic_partition}, which "
                f"exceeds the maximum configured segment size of {self.config.segment_bytes}.",
            )
        try:
            if self._must_roll(size, max_timestamp, last_offset):
                self._write_before_roll()
                self._roll(first_offset)
            self._arm()
            first_timestamp = self._first_timestamp()
            self._index_room = self._active.index_room
        except OSError as error:
            raise self._offline("rolling a segment", error) from error
        if first_timestamp >= 0:
            self._roll_timestamp = first_timestamp + self.config.max_segment_ms - self._active.jitter_ms

    def _write_before_roll(self) -> None:
        """Write what is staged while another batch is; the requests that staged it must hear of a failure."""
        try:
            self.write_staged()
        except LogDirOfflineError:
            raise
        except Exception as error:
            raise StagedRecordsLostError(
                f"records of {self.topic_partition} that were staged could not be written: {error}",
                str(self.log_dir),
            ) from error

    def _first_timestamp(self) -> int:
        """The timestamp from which ``segment.ms`` runs; -1 while the segment is empty or has none."""
        if self._active.size == 0 and self._staged:
            return self._staged[0][4]
        return self._active.first_timestamp

    def _must_roll(self, size: int, max_timestamp: int, last_offset: int) -> bool:
        segment = self._active
        position = segment.size + self._staged_bytes
        if (
            position + size > self.config.segment_bytes
            or last_offset > self._roll_offset
            or segment.index_room <= len(self._staged)
        ):
            return True
        if position == 0:
            return False
        first_timestamp = self._first_timestamp()
        if first_timestamp >= 0:
            waited = max_timestamp - first_timestamp
        else:
            waited = self.clock.time_ms() - segment.created_ms
        return waited > self.config.max_segment_ms - segment.jitter_ms

    def _assign_epoch(self, epoch: int, first_offset: int) -> None:
        if epoch < 0:
            return
        before = self.epochs.entries
        try:
            self.epochs.assign(epoch, first_offset)
        except OSError as error:
            raise self._offline("writing the leader epochs", error) from error
        if self._epochs_before is None and self.epochs.entries is not before:
            self._epochs_before = before

    # -- writing --------------------------------------------------------------------------------------

    def write_staged(self) -> None:
        """Write everything staged and make it visible, or forget it all and raise.

        ``LogDirOfflineError`` if the disk has failed, ``KafkaError`` or ``StorageError`` if an index that is
        needed for it is being rebuilt, or cannot be.
        """
        staged = self._staged
        if not staged:
            return
        try:
            if len(staged) == 1 and not self._staged_aborts:
                self._active.append_one(*staged[0])
            else:
                self._write_group()
        except BaseException as error:
            # Whatever it was: the bytes belong to the caller, who may write others over them from now on.
            self._forget_staged()
            if isinstance(error, OSError):
                raise self._offline("writing records", error) from error
            raise
        self._index_room -= len(staged)
        staged.clear()
        self._staged_bytes = 0
        self._epochs_before = None
        self.log_end_offset = end_offset = self._next_offset
        self.producers.commit(end_offset)
        if self.flush_on_append and end_offset - self.recovery_point >= self.config.flush_messages:
            self.flush()

    def _write_group(self) -> None:
        segment = self._active
        buffers = [batch[0] for batch in self._staged]
        batches = [WrittenBatch(*batch[1:]) for batch in self._staged]
        if not self._staged_aborts:
            segment.append(buffers, batches)
            return
        mark = segment.mark()
        segment.append(buffers, batches)
        try:
            segment.txn_index.append(self._staged_aborts)
        except BaseException:
            segment.restore(mark)
            raise
        self._staged_aborts = []

    def _forget_staged(self) -> None:
        self._staged = []
        self._staged_bytes = 0
        self._staged_aborts = []
        self._next_offset = self.log_end_offset
        self.producers.rollback()
        if self._epochs_before is not None:
            self.epochs.restore(self._epochs_before)
            self._epochs_before = None
        self._arm()
