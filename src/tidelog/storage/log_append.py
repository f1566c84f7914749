"""Taking batches into a log: as leader, which judges and numbers them, and as follower, which does neither.

The leader's way is the hot path of the broker: one look at the header, a checksum, a walk over the records in
compiled code, the producer's sequence, three numbers written in place. Whatever is unusual about a batch,
compression included, goes to ``validation``. What staging and
writing mean, and what a failure leaves, is told in ``log_staging``. Built upon by ``log``.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from tidelog.checksum import crc32c
from tidelog.errors import CorruptRecordError, KafkaError, StorageError, TidelogError
from tidelog.ids import NO_TIMESTAMP
from tidelog.records.batch import (
    ATTRIBUTES_AT,
    CONTROL_BIT,
    CREATE_TIME,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    check_crc,
    iter_batches,
)
from tidelog.records.record_walker import are_plain
from tidelog.storage import validation
from tidelog.storage.log_staging import LogStaging
from tidelog.storage.producer_replay import aborted_entry, read_marker, replay_batch
from tidelog.storage.producer_snapshots import SequencedBatch
from tidelog.storage.producer_state import AppendOrigin
from tidelog.storage.validation import Judgement, ValidBatch

_unpack_header = HEADER.unpack_from
# Base offset, length and leader epoch lie side by side and outside the CRC: one call writes all three.
_pack_assigned = struct.Struct(">qii").pack_into
_new_tuple = tuple.__new__

# The attributes of an ordinary batch: not compressed, transactional or not, nothing else.
_ORDINARY: Final = frozenset((0, TRANSACTIONAL_BIT))

_CLIENT: Final = AppendOrigin.CLIENT

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


class LogAppend(LogStaging):
    """The appending side of a log."""

    __slots__ = ()

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
            validation.only_batch(records, self.topic_partition)
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
            producer_epoch,
            base_sequence,
            record_count,
        ) = _unpack_header(records, 0)
        log_append_time_ms = NO_TIMESTAMP
        if (
            magic != MAGIC_V2
            or batch_length + LOG_OVERHEAD != size
            or size > self._max_message_bytes
            or base_offset
            or offset_delta != record_count - 1
            or offset_delta < 0
            or attributes not in _ORDINARY
            or (producer_id >= 0 and base_sequence < 0)
            or judged is not None
            or not (self._header_suffices if origin is _CLIENT else self._coordinator_suffices)
            or not NO_TIMESTAMP <= max_timestamp <= self._timestamp_ceiling
            or crc32c(records[ATTRIBUTES_AT:]) != crc
            or (
                origin is _CLIENT
                and not are_plain(records, HEADER_SIZE, record_count, base_timestamp, max_timestamp)
            )
        ):
            records, size, max_timestamp, log_append_time_ms = self._examine(records, origin, judged)
            batch_length = size - LOG_OVERHEAD

        first_offset = self._next_offset
        last_offset = first_offset + offset_delta
        if (
            self._active.size + self._staged_bytes + size > self._roll_bytes
            or max_timestamp > self._roll_timestamp
            or last_offset > self._roll_offset
            or self._index_room <= len(self._staged)
        ):
            self._make_room(size, max_timestamp, first_offset, last_offset)
        if leader_epoch != self.epochs.latest_epoch:
            self._assign_epoch(leader_epoch, first_offset)
        if producer_id >= 0:
            known = None
            if attributes & CONTROL_BIT:
                self._stage_marker(records, producer_id, producer_epoch, first_offset, max_timestamp, origin)
            else:
                in_transaction = attributes & TRANSACTIONAL_BIT != 0
                known = self.producers.stage_batch(
                    producer_id,
                    producer_epoch,
                    base_sequence,
                    offset_delta,
                    in_transaction,
                    first_offset,
                    max_timestamp,
                    origin,
                )
            if known is not None:
                return self._already_there(known, leader_epoch, size)
        try:
            _pack_assigned(records, 0, first_offset, batch_length, leader_epoch)
        except TypeError:
            records = bytearray(records)
            _pack_assigned(records, 0, first_offset, batch_length, leader_epoch)
        self._staged.append((records, size, first_offset, last_offset, max_timestamp))
        self._staged_bytes += size
        self._next_offset = last_offset + 1
        return _new_tuple(
            AppendInfo,
            (
                first_offset,
                last_offset,
                log_append_time_ms,
                self.log_start_offset,
                leader_epoch,
                max_timestamp,
                False,
                size,
            ),
        )

    def _already_there(self, known: SequencedBatch, leader_epoch: int, size: int) -> AppendInfo:
        """The answer to a repetition: the place of the first."""
        return AppendInfo(
            known.first_offset,
            known.last_offset,
            known.timestamp,
            self.log_start_offset,
            leader_epoch,
            known.timestamp,
            True,
            size,
        )

    def judge(self, records: Buffer, origin: AppendOrigin = AppendOrigin.CLIENT) -> Judgement:
        """Begin to look at a batch closely; raises what is wrong with its header."""
        now_ms = self.clock.time_ms()
        if self.config.timestamp_type == CREATE_TIME:
            self._timestamp_ceiling = now_ms + self.config.message_timestamp_after_max_ms
        return Judgement(records, self.topic_partition, self.config, self.walk_limits, now_ms, origin)

    def _examine(self, records: Buffer, origin: AppendOrigin, judged: Judged | None) -> ValidBatch:
        """Judge a batch that is not plainly all right, if nobody has yet."""
        if judged is None:
            judgement = self.judge(records, origin)
            judgement.advance()
            return judgement.result()
        if isinstance(judged, KafkaError):
            raise judged
        return judged.appended_at(self.clock.time_ms())

    # -- appending as follower ------------------------------------------------------------------------

    def append_as_follower(self, records: Buffer) -> AppendInfo | None:
        """Append batches that a leader has numbered, as they are; None if there is no whole one.

        Raises ``CorruptRecordError`` or ``UnexpectedOffsetError``.
        """
        view = memoryview(records)
        if len(view) > MAGIC_AT and view[MAGIC_AT] < MAGIC_V2:
            raise CorruptRecordError(
                f"the leader of {self.topic_partition} has records of message format {view[MAGIC_AT]} from "
                f"offset {self._next_offset} on, which Kafka wrote before 0.11 and which cannot be "
                "replicated here: copy the topic into a new one"
            )
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
            self._forget_staged()
            raise
        self.write_staged()
        first, last = batches[0][1], batches[-1][1]
        return AppendInfo(
            first.base_offset,
            last.last_offset,
            NO_TIMESTAMP,
            self.log_start_offset,
            last.partition_leader_epoch,
            max_timestamp,
            False,
            batches[-1][0] + last.size_bytes,
        )

    def _check_replicated(self, view: memoryview, batches: list[tuple[int, BatchHeader]]) -> None:
        expected = self._next_offset
        for pos, header in batches:
            if header.magic != MAGIC_V2 or not check_crc(view, pos, header.size_bytes):
                raise CorruptRecordError(
                    f"the batch at offset {header.base_offset} fetched for {self.topic_partition} is corrupt"
                )
            if header.base_offset < expected:
                raise UnexpectedOffsetError(
                    f"a batch from offset {header.base_offset} cannot be appended to "
                    f"{self.topic_partition}, where offset {expected} is next"
                )
            expected = header.next_offset

    def _stage_replicated(self, batch: memoryview, header: BatchHeader) -> None:
        size, max_timestamp = header.size_bytes, header.max_timestamp
        first_offset, last_offset = header.base_offset, header.last_offset
        if (
            self._active.size + self._staged_bytes + size > self._roll_bytes
            or max_timestamp > self._roll_timestamp
            or last_offset > self._roll_offset
            or self._index_room <= len(self._staged)
        ):
            self._make_room(size, max_timestamp, first_offset, last_offset)
        if header.partition_leader_epoch != self.epochs.latest_epoch:
            self._assign_epoch(header.partition_leader_epoch, first_offset)
        if header.has_producer_id:
            self._stage_producer(batch, header)
        self._staged.append((batch, size, first_offset, last_offset, max_timestamp))
        self._staged_bytes += size
        self._next_offset = last_offset + 1

    def _stage_producer(self, batch: memoryview, header: BatchHeader) -> None:
        ended = replay_batch(self.producers, header, lambda: batch)
        if ended is not None and ended[0].aborted:
            self._staged_aborts.append(aborted_entry(*ended))

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
        ended = self.producers.stage_marker(producer_id, producer_epoch, marker, offset, timestamp, origin)
        if ended is not None and ended[0].aborted:
            self._staged_aborts.append(aborted_entry(*ended))
