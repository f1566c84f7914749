"""What is left of one batch after compaction: the same bytes, fewer records, an empty header or nothing.

Invariant: the result has the same base and last offset, leader epoch and producer fields as the original;
records that stay are copied as they are, unless a delete horizon moves the base timestamp, which their
timestamp deltas then follow. Used by ``compaction``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tidelog.ids import NO_OFFSET, NO_TIMESTAMP
from tidelog.records.batch import (
    CONTROL_BIT,
    CREATE_TIME,
    DELETE_HORIZON_BIT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
)
from tidelog.records.record import RecordSpan, assemble_batch, batch_body, rebase_record, scan_records
from tidelog.storage.batch_reader import MAX_BODY_BYTES
from tidelog.storage.cleaned_transactions import CleanedTransactions
from tidelog.storage.offset_map import OffsetMap

_EMPTY_ATTRIBUTES = TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT


class ActiveProducer(msgspec.Struct, frozen=True, array_like=True):
    """A producer that may still write, and its last record; ``NO_OFFSET`` if only markers are known."""

    producer_id: int
    epoch: int
    last_offset: int


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
    ) -> None:
        self.transactions = transactions
        self.records_read = 0
        self.records_kept = 0
        self._offsets = offsets
        self._producers = {producer.producer_id: producer for producer in producers}
        self._now_ms = now_ms
        self._new_horizon_ms = now_ms + delete_retention_ms
        self._upper_bound = upper_bound

    def retained(self, buf: Buffer, pos: int, header: BatchHeader) -> Buffer | None:
        """The batch to write in place of the one at ``pos``, None to write nothing."""
        self.records_read += header.record_count
        horizon = header.delete_horizon_ms
        if header.is_control:
            droppable = self.transactions.is_droppable_marker(buf, pos, header)
            drop_all = droppable and horizon is not None and horizon <= self._now_ms
        else:
            drop_all = self.transactions.is_aborted(header)
            droppable = False
        if drop_all or not header.record_count:
            return self._empty(header)
        body = batch_body(buf, header, pos, max_size=MAX_BODY_BYTES)
        if header.is_control:
            kept, tombstones = list(scan_records(body, header.record_count)), False
        else:
            kept, tombstones = self._latest(body, header)
        if not kept:
            return self._empty(header)
        self.records_kept += len(kept)
        needs_horizon = (tombstones or droppable) and horizon is None
        if len(kept) == header.record_count and not needs_horizon:
            return memoryview(buf)[pos : pos + header.size_bytes]
        return self._rebuilt(header, body, kept, needs_horizon)

    def _latest(self, body: bytes, header: BatchHeader) -> tuple[list[RecordSpan], bool]:
        """The records that no later one replaces, and whether a tombstone is among them."""
        horizon = header.delete_horizon_ms
        keeps_tombstones = horizon is None or self._now_ms < horizon
        base_offset = header.base_offset
        mapped_up_to = self._offsets.latest_offset
        last_offset_of = self._offsets.get
        kept: list[RecordSpan] = []
        tombstones = False
        for span in scan_records(body, header.record_count):
            offset = base_offset + span.offset_delta
            if offset <= mapped_up_to:
                if span.key_length < 0 or (span.value_length < 0 and not keeps_tombstones):
                    continue
                if last_offset_of(body[span.key_at : span.key_at + span.key_length]) > offset:
                    continue
            if span.value_length < 0:
                tombstones = True
            kept.append(span)
        return kept, tombstones

    def _rebuilt(
        self, header: BatchHeader, body: bytes, kept: Sequence[RecordSpan], needs_horizon: bool
    ) -> bytearray:
        old_base, attributes = header.base_timestamp, header.attributes
        if header.timestamp_type == CREATE_TIME:
            timestamps = [old_base + span.timestamp_delta for span in kept]
        else:
            timestamps = [header.max_timestamp] * len(kept)
        if needs_horizon:
            base_timestamp, attributes = self._new_horizon_ms, attributes | DELETE_HORIZON_BIT
        elif header.delete_horizon_ms is not None:
            base_timestamp = old_base
        else:
            base_timestamp = timestamps[0]
        max_timestamp = max(timestamps)
        records = [
            body[span.start : span.end]
            if timestamp - base_timestamp == span.timestamp_delta
            else rebase_record(body, span, timestamp - base_timestamp)
            for span, timestamp in zip(kept, timestamps, strict=True)
        ]
        return assemble_batch(
            header._replace(
                attributes=attributes,
                base_timestamp=base_timestamp,
                max_timestamp=max_timestamp,
                record_count=len(kept),
            ),
            b"".join(records),
        )

    def _empty(self, header: BatchHeader) -> bytearray | None:
        if not self._holds_producer(header) and header.next_offset != self._upper_bound:
            return None
        return assemble_batch(
            header._replace(
                attributes=header.attributes & _EMPTY_ATTRIBUTES,
                base_timestamp=NO_TIMESTAMP,
                record_count=0,
            ),
            b"",
        )

    def _holds_producer(self, header: BatchHeader) -> bool:
        """Whether an active producer's last sequence number, or its epoch, is known from this batch alone."""
        producer = self._producers.get(header.producer_id) if header.has_producer_id else None
        if producer is None:
            return False
        if producer.last_offset != NO_OFFSET:
            return header.last_offset == producer.last_offset
        return header.is_control and header.producer_epoch == producer.epoch
