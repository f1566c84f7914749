"""The records in a fetch answer: decompressed, from the right offset on, without what readers must not see.

An answer may start before the offset asked for (batches are sent whole) and end in the middle of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidelog.errors import CorruptRecordError, ErrorCode, KafkaError
from tidelog.ids import NO_LEADER_EPOCH, TopicPartition
from tidelog.records.batch import MAGIC_AT, BatchHeader, batch_size, parse_header
from tidelog.records.control import ControlType, parse_control_type
from tidelog.records.legacy import is_legacy, parse_legacy, unwrap_legacy
from tidelog.records.record import Record, RecordHeader, decode_batch
from tidelog.wire.messages.fetch import PartitionData


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """One record as it was read; ``timestamp_type`` is 0 for the producer's time, 1 for the broker's."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[RecordHeader]
    leader_epoch: int


def read_records(
    partition: TopicPartition,
    data: PartitionData,
    position: int,
    *,
    read_committed: bool,
    check_crcs: bool = True,
) -> tuple[list[ConsumerRecord], int]:
    """The records of ``data`` from ``position`` on, and the position after them."""
    buffer = data.records or b""
    aborted = _AbortedTransactions(data) if read_committed else None
    records: list[ConsumerRecord] = []
    start = end = 0
    try:
        for start, end in _entries(buffer):
            if is_legacy(buffer, start):
                found, next_offset = _read_legacy(partition, buffer[start:end])
            else:
                found, next_offset = _read_batch(partition, buffer, start, aborted, check_crcs)
            records += (record for record in found if record.offset >= position)
            position = max(position, next_offset)
    except CorruptRecordError as error:
        raise CorruptRecordError(
            f"partition {partition}: {error}; `tidelog log verify` on the broker's data directory says more"
        ) from error
    if buffer and not end:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the batch at offset {position} of {partition} is larger than a fetch may be",
        )
    return records, position


def _entries(buffer: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of every whole batch or old message."""
    start = 0
    while len(buffer) - start > MAGIC_AT:
        end = start + batch_size(buffer, start)
        if end <= start + MAGIC_AT:
            raise CorruptRecordError(f"a batch of {end - start} bytes is impossible")
        if end > len(buffer):
            return
        yield start, end
        start = end


def _read_batch(
    partition: TopicPartition,
    buffer: bytes,
    start: int,
    aborted: _AbortedTransactions | None,
    check_crcs: bool,
) -> tuple[list[ConsumerRecord], int]:
    header = parse_header(buffer, start)
    if header.is_control:
        if aborted is not None:
            aborted.marker_seen(header.producer_id, decode_batch(buffer, start, verify_crc=check_crcs))
        return [], header.next_offset
    if aborted is not None and aborted.hides(header):
        return [], header.next_offset
    records = [
        ConsumerRecord(
            partition.topic,
            partition.partition,
            record.offset,
            record.timestamp,
            header.timestamp_type,
            record.key,
            record.value,
            record.headers,
            header.partition_leader_epoch,
        )
        for record in decode_batch(buffer, start, verify_crc=check_crcs)
    ]
    return records, header.next_offset


def _read_legacy(partition: TopicPartition, entry: bytes) -> tuple[list[ConsumerRecord], int]:
    """A message of the formats before Kafka 0.11, which brokers before 4.0 may still hold."""
    wrapper = parse_legacy(entry)
    records = [
        ConsumerRecord(
            partition.topic,
            partition.partition,
            message.offset,
            message.timestamp,
            message.timestamp_type or 0,
            message.key,
            message.value,
            (),
            NO_LEADER_EPOCH,
        )
        for message in unwrap_legacy(wrapper)
    ]
    return records, wrapper.offset + 1


class _AbortedTransactions:
    """Which producers' records are those of an aborted transaction at the current batch."""

    def __init__(self, data: PartitionData) -> None:
        self._upcoming = sorted(
            data.aborted_transactions or [], key=lambda each: each.first_offset, reverse=True
        )
        self._aborting: set[int] = set()

    def hides(self, header: BatchHeader) -> bool:
        while self._upcoming and self._upcoming[-1].first_offset <= header.last_offset:
            self._aborting.add(self._upcoming.pop().producer_id)
        return header.is_transactional and header.producer_id in self._aborting

    def marker_seen(self, producer_id: int, records: Sequence[Record]) -> None:
        if records and parse_control_type(records[0].key) is ControlType.ABORT:
            self._aborting.discard(producer_id)
