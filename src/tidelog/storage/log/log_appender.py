"""Taking batches into a log: as leader, which judges and numbers them, and as follower, which does neither.

An append has two halves. *Staging* checks a batch, gives it its offsets in place, and notes in memory what
it will change: nobody can read it yet, ``log_end_offset`` stands still. *Writing* puts everything staged
into the active segment with one call and makes it visible. The bytes of a staged batch must stay as they
are until then, and the offsets it was told are good only once the write has succeeded.

Invariant: when writing fails, everything staged is forgotten: end offset, producers, epochs and indexes are
as they were before the first of the group, and the file ends where it ended.

The leader's way is the hot path of the broker: one look at the header, a checksum, a walk over the records in
compiled code, the producer's sequence, three numbers written in place. Whatever is unusual about a batch,
compression included, goes to ``validation``. Owned by ``log``; writes through ``log_files``.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from tidelog.checksum import crc32c
from tidelog.errors import (
    CorruptRecordError,
    ErrorCode,
    KafkaError,
    LogDirOfflineError,
    StorageError,
    TidelogError,
)
from tidelog.ids import NO_TIMESTAMP
from tidelog.records.batch import (
    ATTRIBUTES_AT,
    CONTROL_BIT,
    CREATE_TIME,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V0,
    MAGIC_V2,
    MAX_INT32,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    check_crc,
    iter_batches,
)
from tidelog.records.batch_walk import DEFAULT_LIMITS
from tidelog.records.record_walker import are_plain
from tidelog.storage.disk import StagedRecordsLostError
from tidelog.storage.log import validation
from tidelog.storage.log.leader_epochs import EpochEntry
from tidelog.storage.log.log_files import LogFiles
from tidelog.storage.log.validation import Validation, ValidBatch
from tidelog.storage.producers.producer_replay import aborted_entry, read_marker, replay_batch
from tidelog.storage.producers.producer_snapshots import SequencedBatch, sequenced
from tidelog.storage.producers.producer_state import AppendOrigin
from tidelog.storage.segment.segment import NumberedBatch
from tidelog.storage.segment.transaction_index import AbortedTxn

_unpack_header = HEADER.unpack_from
# Base offset, length and leader epoch lie side by side and outside the CRC: one call writes all three.
_pack_assigned = struct.Struct(">qii").pack_into
_new_tuple = tuple.__new__

# The attributes of an ordinary batch: not compressed, transactional or not, nothing else.
_ORDINARY: Final = frozenset((0, TRANSACTIONAL_BIT))

_CLIENT: Final = AppendOrigin.CLIENT
_ALWAYS_ASK: Final = -2

_HeaderFields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]

Judged = ValidBatch | KafkaError
"""What became of looking closely at a batch."""


class UnexpectedOffsetError(StorageError):
    """A follower was given batches that do not continue its log; it must truncate or fetch again."""


class AppendInfo(NamedTuple):
    """What became of a batch."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    last_leader_epoch: int
    max_timestamp: int
    duplicate: bool
    size_bytes: int


class LogAppender:
    """The appending side of a log."""

    __slots__ = (
        "_coordinator_suffices",
        "_epochs",
        "_epochs_before",
        "_files",
        "_header_suffices",
        "_index_room",
        "_max_message_bytes",
        "_next_offset",
        "_partition",
        "_producers",
        "_roll_bytes",
        "_roll_offset",
        "_roll_timestamp",
        "_staged",
        "_staged_aborts",
        "_staged_bytes",
        "_timestamp_ceiling",
        "flush_on_append",
        "walk_limits",
    )

    def __init__(self, files: LogFiles) -> None:
        self._files = files
        self._partition = files.topic_partition
        self._epochs = files.epochs
        self._producers = files.producers
        self.flush_on_append = True
        self.walk_limits = DEFAULT_LIMITS
        """How much the records of one batch may unpack to."""
        self._next_offset = files.log_end_offset
        self._staged: list[NumberedBatch] = []
        self._staged_bytes = 0
        self._staged_aborts: list[AbortedTxn] = []
        self._epochs_before: list[EpochEntry] | None = None
        self.follow_config()

    def follow_config(self) -> None:
        """Have the next append heed the options that the log has now."""
        config = self._files.config
        self._max_message_bytes = config.max_message_bytes
        self._header_suffices = validation.header_suffices(config)
        # A coordinator's own records all have keys.
        self._coordinator_suffices = validation.header_suffices(config, has_keys=True)
        self.forget_timestamp_ceiling()
        self.arm()

    def forget_timestamp_ceiling(self) -> None:
        """Have the next append look at the clock.

        Timestamps up to the ceiling need no look: they were not too far ahead even earlier. That holds as
        long as the clock does not go back; ``upkeep`` calls this when it did.
        """
        self._timestamp_ceiling = NO_TIMESTAMP

    def arm(self) -> None:
        """Have the next append look at everything that may roll the active segment."""
        self._roll_bytes = self._files.config.segment_bytes
        self._roll_offset = self._files.active.base_offset + MAX_INT32
        self._roll_timestamp = _ALWAYS_ASK
        self._index_room = 0

    def go_on_at_end(self) -> None:
        """The log was cut, with nothing staged: the next batch comes where it ends now."""
        self._next_offset = self._files.log_end_offset
        self.arm()

    # -- room and epochs ------------------------------------------------------------------------------

    def _make_room(self, size: int, max_timestamp: int, first_offset: int, last_offset: int) -> None:
        """Roll the active segment if it must not take a batch; sets when to ask again."""
        if size > self._files.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size} bytes in append to partition {self._partition}, which "
                f"exceeds the maximum configured segment size of {self._files.config.segment_bytes}.",
            )
        try:
            if self._must_roll(size, max_timestamp, last_offset):
                self._write_before_roll()
                self._files.roll(first_offset)
            self.arm()
            first_timestamp = self._first_timestamp()
            self._index_room = self._files.active.index_room
        except OSError as error:
            raise self._files.offline_error("rolling a segment", error) from error
        if first_timestamp >= 0:
            self._roll_timestamp = (
                first_timestamp + self._files.config.max_segment_ms - self._files.active.jitter_ms
            )

    def _write_before_roll(self) -> None:
        """Write what is staged while another batch is; the requests that staged it must hear of a failure."""
        try:
            self.write_staged()
        except LogDirOfflineError:
            raise
        except Exception as error:
            raise StagedRecordsLostError(
                f"records of {self._partition} that were staged could not be written: {error}",
                str(self._files.log_dir),
            ) from error

    def _first_timestamp(self) -> int:
        """The timestamp from which ``segment.ms`` runs; -1 while the segment is empty or has none."""
        if self._files.active.size == 0 and self._staged:
            return self._staged[0].max_timestamp
        return self._files.active.first_timestamp

    def _must_roll(self, size: int, max_timestamp: int, last_offset: int) -> bool:
        segment = self._files.active
        position = segment.size + self._staged_bytes
        if (
            position + size > self._files.config.segment_bytes
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
            waited = self._files.clock.time_ms() - segment.created_ms
        return waited > self._files.config.max_segment_ms - segment.jitter_ms

    def _assign_epoch(self, epoch: int, first_offset: int) -> None:
        if epoch < 0:
            return
        before = self._epochs.entries
        try:
            self._epochs.assign(epoch, first_offset)
        except OSError as error:
            raise self._files.offline_error("writing the leader epochs", error) from error
        if self._epochs_before is None and self._epochs.entries is not before:
            self._epochs_before = before

    def _forget_epochs(self) -> None:
        """A message of format 0 or 1 follows: it has no epoch, so none can say where histories part.

        As Kafka does; followers then cut back to their high watermark.
        """
        before = self._epochs.entries
        if not before:
            return
        try:
            self._epochs.clear()
        except OSError as error:
            raise self._files.offline_error("writing the leader epochs", error) from error
        if self._epochs_before is None:
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
                self._files.active.append_one(*staged[0])
            else:
                self._write_group()
        except BaseException as error:
            # Whatever it was: the bytes belong to the caller, who may write others over them from now on.
            self.forget_staged()
            if isinstance(error, OSError):
                raise self._files.offline_error("writing records", error) from error
            raise
        self._index_room -= len(staged)
        staged.clear()
        self._staged_bytes = 0
        self._epochs_before = None
        files = self._files
        files.log_end_offset = end_offset = self._next_offset
        self._producers.commit(end_offset)
        if self.flush_on_append and end_offset - files.recovery_point >= files.config.flush_messages:
            files.flush()

    def _write_group(self) -> None:
        segment = self._files.active
        if not self._staged_aborts:
            segment.append(self._staged)
            return
        mark = segment.mark()
        segment.append(self._staged)
        try:
            segment.txn_index.append(self._staged_aborts)
        except BaseException:
            segment.restore(mark)
            raise
        self._staged_aborts = []

    def forget_staged(self) -> None:
        """Drop what is staged, as if it had never come."""
        self._staged = []
        self._staged_bytes = 0
        self._staged_aborts = []
        self._next_offset = self._files.log_end_offset
        self._producers.rollback()
        if self._epochs_before is not None:
            self._epochs.restore(self._epochs_before)
            self._epochs_before = None
        self.arm()

    # -- appending as leader --------------------------------------------------------------------------

    def append_as_leader(
        self, records: Buffer, leader_epoch: int, *, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo:
        """Check, number, write and index the one batch in ``records``; raises ``KafkaError``.

        A repetition of a batch that is already there is answered with that batch's offsets.
        """
        info = self.stage_as_leader(records, leader_epoch, origin)
        if self._staged:
            self.write_staged()
        return info

    def stage_as_leader(
        self,
        records: Buffer,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        judged: Judged | None = None,
    ) -> AppendInfo:
        """The first half of an append; :meth:`write_staged` is the second.

        Offsets are written into ``records`` if it is writable, else into a copy. ``judged`` is what is known
        already of a batch that took long to judge.
        """
        size = len(records)
        if size < HEADER_SIZE:
            validation.only_batch(records, self._partition)
        header = _unpack_header(records, 0)
        _, _, _, _, _, attributes, offset_delta, _, max_timestamp, producer_id, epoch, sequence, _ = header
        log_append_time_ms = NO_TIMESTAMP
        if judged is not None or not self._is_plain(records, size, header, origin):
            records, size, max_timestamp, log_append_time_ms = self._examine(records, origin, judged)
        first_offset = self._next_offset
        last_offset = first_offset + offset_delta
        if (
            self._files.active.size + self._staged_bytes + size > self._roll_bytes
            or max_timestamp > self._roll_timestamp
            or last_offset > self._roll_offset
            or self._index_room <= len(self._staged)
        ):
            self._make_room(size, max_timestamp, first_offset, last_offset)
        if leader_epoch != self._epochs.latest_epoch:
            self._assign_epoch(leader_epoch, first_offset)
        if producer_id >= 0:
            batch = sequenced(sequence, offset_delta, first_offset, max_timestamp)
            known = self._stage_producer(records, attributes, producer_id, epoch, batch, origin)
            if known is not None:
                return self._already_there(known, leader_epoch, size)
        try:
            _pack_assigned(records, 0, first_offset, size - LOG_OVERHEAD, leader_epoch)
        except TypeError:
            records = bytearray(records)
            _pack_assigned(records, 0, first_offset, size - LOG_OVERHEAD, leader_epoch)
        self._staged.append(
            _new_tuple(NumberedBatch, (records, size, first_offset, last_offset, max_timestamp))
        )
        self._staged_bytes += size
        self._next_offset = last_offset + 1
        return _new_tuple(
            AppendInfo,
            (
                first_offset,
                last_offset,
                log_append_time_ms,
                self._files.log_start_offset,
                leader_epoch,
                max_timestamp,
                False,
                size,
            ),
        )

    def _is_plain(self, records: Buffer, size: int, header: _HeaderFields, origin: AppendOrigin) -> bool:
        """Whether a batch is plainly all right: an ordinary one, sound, with nothing to be changed in it."""
        (
            base_offset,
            batch_length,
            _,
            magic,
            crc,
            attributes,
            offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            _,
            base_sequence,
            record_count,
        ) = header
        return not (
            magic != MAGIC_V2
            or batch_length + LOG_OVERHEAD != size
            or size > self._max_message_bytes
            or base_offset
            or offset_delta != record_count - 1
            or offset_delta < 0
            or attributes not in _ORDINARY
            or (producer_id >= 0 and base_sequence < 0)
            or not (self._header_suffices if origin is _CLIENT else self._coordinator_suffices)
            or not NO_TIMESTAMP <= max_timestamp <= self._timestamp_ceiling
            or crc32c(records[ATTRIBUTES_AT:]) != crc
            or (
                origin is _CLIENT
                and not are_plain(records, HEADER_SIZE, record_count, base_timestamp, max_timestamp)
            )
        )

    def _stage_producer(
        self,
        records: Buffer,
        attributes: int,
        producer_id: int,
        epoch: int,
        batch: SequencedBatch,
        origin: AppendOrigin,
    ) -> SequencedBatch | None:
        """Note what a batch says of its producer; gives the earlier one if it is a repetition of that."""
        if attributes & CONTROL_BIT:
            self._stage_marker(records, producer_id, epoch, batch.first_offset, batch.timestamp, origin)
            return None
        in_transaction = attributes & TRANSACTIONAL_BIT != 0
        return self._producers.stage_batch(producer_id, epoch, batch, in_transaction, origin)

    def _already_there(self, known: SequencedBatch, leader_epoch: int, size: int) -> AppendInfo:
        """The answer to a repetition: the place of the first."""
        return AppendInfo(
            known.first_offset,
            known.last_offset,
            known.timestamp,
            self._files.log_start_offset,
            leader_epoch,
            known.timestamp,
            True,
            size,
        )

    def judge(self, records: Buffer, origin: AppendOrigin = AppendOrigin.CLIENT) -> Validation:
        """Begin to look at a batch closely; raises what is wrong with its header."""
        now_ms = self._files.clock.time_ms()
        if self._files.config.timestamp_type == CREATE_TIME:
            self._timestamp_ceiling = now_ms + self._files.config.message_timestamp_after_max_ms
        return Validation(records, self._partition, self._files.config, self.walk_limits, now_ms, origin)

    def _examine(self, records: Buffer, origin: AppendOrigin, judged: Judged | None) -> ValidBatch:
        """Judge a batch that is not plainly all right, if nobody has yet."""
        if judged is None:
            judgement = self.judge(records, origin)
            judgement.advance()
            return judgement.result()
        if isinstance(judged, KafkaError):
            raise judged
        return judged.appended_at(self._files.clock.time_ms())

    # -- appending as follower ------------------------------------------------------------------------

    def append_as_follower(self, records: Buffer) -> AppendInfo | None:
        """Append batches that a leader has numbered, as they are; None if there is no whole one.

        Raises ``CorruptRecordError`` or ``UnexpectedOffsetError``.
        """
        view = memoryview(records)
        batches = list(iter_batches(view))
        self._check_replicated(view, batches)
        if not batches:
            return None
        self.write_staged()
        max_timestamp = NO_TIMESTAMP
        try:
            for pos, header in batches:
                self._stage_replicated(view[pos : pos + header.size_bytes], header)
                max_timestamp = max(max_timestamp, header.max_timestamp)
        except TidelogError:
            self.forget_staged()
            raise
        self.write_staged()
        (_, first), (last_at, last) = batches[0], batches[-1]
        return AppendInfo(
            first.base_offset,
            last.last_offset,
            NO_TIMESTAMP,
            self._files.log_start_offset,
            last.partition_leader_epoch,
            max_timestamp,
            False,
            last_at + last.size_bytes,
        )

    def _check_replicated(self, view: memoryview, batches: list[tuple[int, BatchHeader]]) -> None:
        expected = self._next_offset
        for pos, header in batches:
            if not MAGIC_V0 <= header.magic <= MAGIC_V2 or not check_crc(view, pos, header.size_bytes):
                raise CorruptRecordError(
                    f"the batch at offset {header.base_offset} fetched for {self._partition} is corrupt"
                )
            if header.base_offset < expected:
                raise UnexpectedOffsetError(
                    f"a batch from offset {header.base_offset} cannot be appended to "
                    f"{self._partition}, where offset {expected} is next"
                )
            expected = header.next_offset

    def _stage_replicated(self, batch: memoryview, header: BatchHeader) -> None:
        size, max_timestamp = header.size_bytes, header.max_timestamp
        first_offset, last_offset = header.base_offset, header.last_offset
        is_old = header.magic != MAGIC_V2
        if is_old:
            # The first offset inside a compressed message is known only once that is unpacked. This is not
            # above it, and near enough for the indexes of a segment that begins here.
            first_offset = max(last_offset - MAX_INT32, self._next_offset)
        if (
            self._files.active.size + self._staged_bytes + size > self._roll_bytes
            or max_timestamp > self._roll_timestamp
            or last_offset > self._roll_offset
            or self._index_room <= len(self._staged)
        ):
            self._make_room(size, max_timestamp, first_offset, last_offset)
        if is_old:
            self._forget_epochs()
        elif header.partition_leader_epoch != self._epochs.latest_epoch:
            self._assign_epoch(header.partition_leader_epoch, first_offset)
        if header.has_producer_id:
            self._replay_producer(batch, header)
        self._staged.append(NumberedBatch(batch, size, first_offset, last_offset, max_timestamp))
        self._staged_bytes += size
        self._next_offset = last_offset + 1

    def _replay_producer(self, batch: memoryview, header: BatchHeader) -> None:
        ended = replay_batch(self._producers, header, lambda: batch)
        if ended is not None and ended.aborted:
            self._staged_aborts.append(aborted_entry(ended))

    def _stage_marker(
        self,
        batch: Buffer,
        producer_id: int,
        producer_epoch: int,
        offset: int,
        timestamp: int,
        origin: AppendOrigin,
    ) -> None:
        marker = read_marker(batch)
        if marker is None:
            return
        ended = self._producers.stage_marker(producer_id, producer_epoch, marker, offset, timestamp, origin)
        if ended is not None and ended.aborted:
            self._staged_aborts.append(aborted_entry(ended))
