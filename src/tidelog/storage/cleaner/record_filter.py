"""What is left of one batch after compaction: the same bytes, fewer records, an empty header or nothing.

Invariant: the result has the same base and last offset, leader epoch and producer fields as the original;
records that stay are copied as they are, unless a delete horizon moves the base timestamp, which their
timestamp deltas then follow. Timestamps and deltas wrap around at 64 bits, as in Java: a producer may choose
timestamps that lie further apart. A batch that cannot be read stays as it is, and is reported
(:class:`SkippedBatches`). Memory holds a piece of a batch's records, never all of them. Messages of formats
0 and 1 become batches of format 2. Used by ``compaction``.

Readers must reach the end of the log by the records that they see: librdkafka's position does not move past
a batch, or the end of one, that has no records. So the last record of a pass stays, even an expired
tombstone. A marker that has to stay keeps its record: kafka-python and aiokafka cannot read a control batch
without one. Kafka leaves empty headers in both places.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from tidelog.errors import CorruptRecordError
from tidelog.ids import NO_OFFSET, NO_TIMESTAMP
from tidelog.records.batch import (
    CONTROL_BIT,
    CREATE_TIME,
    DELETE_HORIZON_BIT,
    MAGIC_V2,
    MAX_INT64,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
)
from tidelog.records.body_compressor import BodyCompressor
from tidelog.records.compression import Codec
from tidelog.records.record import assemble_batch, join_batch, rebase_record
from tidelog.records.varint import wrap_int64
from tidelog.storage.cleaner.cleaned_transactions import CleanedTransactions
from tidelog.storage.cleaner.offset_map import OffsetMap
from tidelog.storage.segment.batch_records import BatchRecords, scan_sound
from tidelog.storage.segment.old_records import OldRecords

_MAX_TOLD: Final = 1000
_EMPTY_ATTRIBUTES = TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT


class ActiveProducer(msgspec.Struct, frozen=True, array_like=True):
    """A producer that may still write, and its last record; ``NO_OFFSET`` if only markers are known."""

    producer_id: int
    epoch: int
    last_offset: int


class SkippedBatches:
    """The batches that are kept as they are because their records cannot be compacted, and why.

    Their keys do not count. Each is told once in a pass, up to :data:`_MAX_TOLD` of them.
    """

    def __init__(self) -> None:
        self._untold: list[tuple[int, str]] = []
        self._offsets: set[int] = set()
        self._told = 0

    def add(self, header: BatchHeader, why: str) -> None:
        """Leave a batch as it is."""
        if header.base_offset not in self._offsets:
            self._offsets.add(header.base_offset)
            self._told += 1
            if self._told <= _MAX_TOLD:
                self._untold.append((header.base_offset, why))

    def can_read(self, header: BatchHeader, records: BatchRecords) -> bool:
        """Whether a batch is to be compacted; one that cannot be read is skipped from now on."""
        if header.base_offset in self._offsets:
            return False
        try:
            records.check()
        except CorruptRecordError as error:
            self.add(header, str(error))
            return False
        return True

    def take_untold(self) -> list[tuple[int, str]]:
        """Offsets and reasons since the last call."""
        untold, self._untold = self._untold, []
        return untold


class _Kept:
    """Which records of a batch stay: one byte for each, and what their batch must say of them."""

    __slots__ = ("count", "first_timestamp", "max_timestamp", "tombstones", "verdicts")

    def __init__(self) -> None:
        self.verdicts = bytearray()
        self.count = 0
        self.first_timestamp = self.max_timestamp = 0
        self.tombstones = False


class RecordFilter:
    """Decides batch by batch, in the order of the log, what stays."""

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        producers: Iterable[ActiveProducer],
        *,
        now_ms: int,
        delete_retention_ms: int,
        upper_bound: int,
        skipped: SkippedBatches,
    ) -> None:
        self.transactions = transactions
        self._skipped = skipped
        self.records_read = 0
        self.records_kept = 0
        self._offsets = offsets
        self._producers = {producer.producer_id: producer for producer in producers}
        self._now_ms = now_ms
        self._new_horizon_ms = min(now_ms + delete_retention_ms, MAX_INT64)
        self._upper_bound = upper_bound

    def retained(self, buf: Buffer, pos: int, header: BatchHeader) -> Buffer | None:
        """The batch to write in place of the one at ``pos``, None to write nothing."""
        if header.magic != MAGIC_V2:
            return self._retained_old(buf, pos, header)
        self.records_read += header.record_count
        horizon = header.delete_horizon_ms
        if header.is_control:
            droppable = self.transactions.is_droppable_marker(buf, pos, header)
            drop_all = (
                droppable
                and horizon is not None
                and horizon <= self._now_ms
                and not self._ends_pass(header)
                and not self._holds_producer(header)
            )
        else:
            drop_all = self.transactions.is_aborted(header)
            droppable = False
        if drop_all or not header.record_count:
            return self._empty(header)
        records = BatchRecords(buf, pos, header)
        if not self._skipped.can_read(header, records):
            self.records_kept += header.record_count
            return memoryview(buf)[pos : pos + header.size_bytes]
        kept = self._kept(records, header)
        if not kept.count:
            return self._empty(header)
        self.records_kept += kept.count
        needs_horizon = (kept.tombstones or droppable) and horizon is None
        if kept.count == header.record_count and not needs_horizon:
            return memoryview(buf)[pos : pos + header.size_bytes]
        return self._rebuilt(header, records, kept, needs_horizon)

    def _retained_old(self, buf: Buffer, pos: int, stored: BatchHeader) -> Buffer | None:
        """The same for a message of format 0 or 1: what stays of it is of format 2."""
        records = OldRecords(buf, pos, stored)
        if not self._skipped.can_read(stored, records):
            self.records_read += 1
            self.records_kept += 1
            return memoryview(buf)[pos : pos + stored.size_bytes]
        header = records.converted
        self.records_read += header.record_count
        kept = self._kept(records, header)
        if not kept.count:
            return self._empty(header)
        self.records_kept += kept.count
        return self._rebuilt(header, records, kept, kept.tombstones)

    def _kept(self, records: BatchRecords, header: BatchHeader) -> _Kept:
        """Which records no later one replaces; of a control batch all, and the last one of the pass."""
        horizon = header.delete_horizon_ms
        keeps_tombstones = horizon is None or self._now_ms < horizon
        base_offset, is_control = header.base_offset, header.is_control
        base_timestamp, append_time = header.base_timestamp, _append_time(header)
        mapped_up_to = self._offsets.latest_offset
        must_stay = header.last_offset if self._ends_pass(header) else NO_OFFSET
        last_offset_of = self._offsets.get
        kept = _Kept()
        verdicts = kept.verdicts
        for piece, span in records.spans():
            offset = base_offset + span.offset_delta
            if offset <= mapped_up_to and offset != must_stay and not is_control:
                if span.key_length < 0 or (span.value_length < 0 and not keeps_tombstones):
                    verdicts.append(0)
                    continue
                if last_offset_of(piece[span.key_at : span.key_at + span.key_length]) > offset:
                    verdicts.append(0)
                    continue
            if span.value_length < 0 and not is_control:
                kept.tombstones = True
            verdicts.append(1)
            timestamp = (
                wrap_int64(base_timestamp + span.timestamp_delta) if append_time is None else append_time
            )
            if not kept.count or timestamp > kept.max_timestamp:
                kept.max_timestamp = timestamp
            if not kept.count:
                kept.first_timestamp = timestamp
            kept.count += 1
        return kept

    def _rebuilt(
        self, header: BatchHeader, records: BatchRecords, kept: _Kept, needs_horizon: bool
    ) -> bytearray:
        old_base, attributes, append_time = header.base_timestamp, header.attributes, _append_time(header)
        if needs_horizon:
            base_timestamp, attributes = self._new_horizon_ms, attributes | DELETE_HORIZON_BIT
        elif header.delete_horizon_ms is not None:
            base_timestamp = old_base
        else:
            base_timestamp = kept.first_timestamp
        compressor = BodyCompressor(Codec(header.codec), None)
        verdicts = iter(kept.verdicts)
        for piece in records.pieces():
            parts: list[bytes] = []
            for span in scan_sound(piece):
                if not next(verdicts):
                    continue
                timestamp = old_base + span.timestamp_delta if append_time is None else append_time
                delta = wrap_int64(timestamp - base_timestamp)
                parts.append(
                    piece[span.start : span.end]
                    if delta == span.timestamp_delta
                    else rebase_record(piece, span, delta)
                )
            if parts:
                compressor.write(b"".join(parts))
        return join_batch(
            header._replace(
                attributes=attributes,
                base_timestamp=base_timestamp,
                max_timestamp=kept.max_timestamp,
                record_count=kept.count,
            ),
            compressor.finish(),
        )

    def _empty(self, header: BatchHeader) -> bytearray | None:
        if not self._holds_producer(header) and not self._ends_pass(header):
            return None
        return assemble_batch(
            header._replace(
                attributes=header.attributes & _EMPTY_ATTRIBUTES,
                base_timestamp=NO_TIMESTAMP,
                record_count=0,
            ),
            b"",
        )

    def _ends_pass(self, header: BatchHeader) -> bool:
        """Whether nothing that is cleaned comes behind this batch: the offset of its end must be kept."""
        return header.next_offset == self._upper_bound

    def _holds_producer(self, header: BatchHeader) -> bool:
        """Whether an active producer's last sequence number, or its epoch, is known from this batch alone."""
        producer = self._producers.get(header.producer_id) if header.has_producer_id else None
        if producer is None:
            return False
        if producer.last_offset != NO_OFFSET:
            return header.last_offset == producer.last_offset
        return header.is_control and header.producer_epoch == producer.epoch


def _append_time(header: BatchHeader) -> int | None:
    """The timestamp of all records, None where each has its own."""
    return None if header.timestamp_type == CREATE_TIME else header.max_timestamp
