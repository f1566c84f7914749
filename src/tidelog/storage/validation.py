"""What a batch must be like before a leader appends it: the checks of Kafka's LogValidator.

On the way of almost every batch the header says enough, and records are neither decompressed nor walked
over. Records are looked at only where the header cannot answer: on compacted topics (every record needs a
key), where ``message.timestamp.before.max.ms`` is set, where a timestamp is out of bounds (to say which
record), and where the topic wants another codec than the producer's.

Where this differs from Kafka, which walks over the records of every batch: records that are malformed
inside a batch with a valid checksum, a header whose highest timestamp is not that of its records, and
compressed records whose offset deltas have gaps are stored as they came, while Kafka refuses the first and
the last and rewrites the other. No known client sends such batches. A count of records that cannot fit into
the bytes of an uncompressed batch is refused all the same: it would use up offsets by the billion.

Called by ``log`` for every append as leader.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.errors import CorruptRecordError, ErrorCode, KafkaError
from tidelog.ids import NO_TIMESTAMP, TopicPartition
from tidelog.records.batch import (
    CODEC_MASK,
    CREATE_TIME,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_V2,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    Buffer,
    batch_size,
    check_crc,
    set_timestamps,
)
from tidelog.records.compression import Codec
from tidelog.records.record import RecordSpan, assemble_batch, batch_body, scan_records
from tidelog.records.varint import decode_varint, decode_varlong, encode_varint
from tidelog.storage.log_config import MAX_INT64, LogConfig
from tidelog.storage.producer_state import AppendOrigin

# A batch of a megabyte that unpacks to more than this is an attack on memory, not a batch.
MAX_UNCOMPRESSED_BYTES: Final = 256 * 1024 * 1024
_MIN_ENTRY_BYTES: Final = 14
MIN_RECORD_BYTES: Final = 7
_SHOWN_ERRORS: Final = 3


class RecordError(NamedTuple):
    """Why one record was refused; ``batch_index`` counts from 0 within its batch."""

    batch_index: int
    message: str


class RecordsRefusedError(KafkaError):
    """A batch refused for some of its records, with the list that Produce responses carry."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[RecordError]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class NoBatchError(KafkaError):
    """Bytes that are not one batch of format 2: refused before any log is asked."""


def only_batch(records: Buffer, partition: TopicPartition) -> int:
    """The size of the one whole batch of format 2 in ``records``; bytes of a cut one may follow it."""
    size = _whole_batch(records, 0)
    if size == 0:
        raise NoBatchError(
            ErrorCode.INVALID_RECORD,
            f"Produce requests must have at least one record batch per partition, {partition} has none",
        )
    magic = records[16]
    if magic != MAGIC_V2:
        raise NoBatchError(
            ErrorCode.INVALID_RECORD,
            f"Produce requests are only allowed to contain record batches with magic version 2, "
            f"{partition} was sent {magic}",
        )
    if _whole_batch(records, size):
        raise NoBatchError(
            ErrorCode.INVALID_RECORD,
            f"Produce requests are only allowed to contain exactly one record batch per partition, "
            f"{partition} was sent more",
        )
    if size < HEADER_SIZE:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"Record is corrupt (its size is {size} bytes) in {partition}"
        )
    return size


def _whole_batch(records: Buffer, pos: int) -> int:
    """The size of the whole batch at ``pos``, 0 if there is none."""
    left = len(records) - pos
    if left < LOG_OVERHEAD:
        return 0
    size = batch_size(records, pos)
    wrong = ""
    if size < _MIN_ENTRY_BYTES + LOG_OVERHEAD:
        wrong = f"Record size {size - LOG_OVERHEAD} is less than the minimum record overhead (14)"
    elif size > left:
        return 0
    elif (magic := records[pos + 16]) > MAGIC_V2:
        wrong = f"Invalid magic found in record: {magic - 256 if magic > 127 else magic}"
    if wrong:
        # Kafka tells the reason for the first batch, and for what follows it the error code alone.
        raise NoBatchError(ErrorCode.CORRUPT_MESSAGE, "" if pos else wrong)
    return size


def check_header(
    header: BatchHeader, records: Buffer, partition: TopicPartition, config: LogConfig, origin: AppendOrigin
) -> None:
    """Raise the first thing that is wrong with a batch's header or checksum, in Kafka's order."""
    if origin is AppendOrigin.CLIENT and header.base_offset != 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"The baseOffset of the record batch in the append to {partition} should be 0, "
            f"but it is {header.base_offset}",
        )
    if header.size_bytes > config.max_message_bytes:
        raise too_large(header.size_bytes, partition, config)
    if not check_crc(records, 0, header.size_bytes):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record is corrupt (stored crc = {header.crc}) in topic partition {partition}.",
        )
    if header.codec > max(Codec):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Unknown compression type id: {header.codec} in topic partition {partition}",
        )
    if origin is AppendOrigin.CLIENT:
        _check_client_header(header, partition)


def _check_client_header(header: BatchHeader, partition: TopicPartition) -> None:
    message = None
    if header.last_offset_delta < 0:
        message = f"Batch has an invalid offset range: [{header.base_offset}, {header.last_offset}]"
    elif header.record_count <= 0 or (
        not header.codec and header.record_count * MIN_RECORD_BYTES + HEADER_SIZE > header.size_bytes
    ):
        message = f"Invalid reported count for record batch: {header.record_count}"
    elif header.last_offset_delta != header.record_count - 1:
        message = (
            f"Inconsistent batch offset range [{header.base_offset}, {header.last_offset}] and count of "
            f"records {header.record_count}"
        )
    elif header.is_control:
        message = "Clients are not allowed to write control records"
    elif header.has_producer_id and header.base_sequence < 0:
        message = (
            f"Invalid sequence number {header.base_sequence} in record batch with producerId "
            f"{header.producer_id}"
        )
    if message is not None:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{message} in topic partition {partition}")


def too_large(size: int, partition: TopicPartition, config: LogConfig) -> KafkaError:
    """The refusal of a batch above ``max.message.bytes``."""
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The record batch size in the append to {partition} is {size} bytes which exceeds the maximum "
        f"configured value of {config.max_message_bytes}.",
    )


def header_suffices(config: LogConfig, *, has_keys: bool = False) -> bool:
    """Whether batches that are sound and not from the future can be taken as they come.

    ``has_keys`` if nobody need look whether all records have the key that compaction asks for.
    """
    return (
        (has_keys or not config.compact)
        and config.timestamp_type == CREATE_TIME
        and config.target_codec is None
        and config.message_timestamp_before_max_ms == MAX_INT64
    )


class ValidBatch(NamedTuple):
    """A batch ready to be numbered: its bytes, perhaps new ones, and what has changed about it."""

    records: Buffer
    size: int
    max_timestamp: int


def validate_records(
    header: BatchHeader,
    records: bytearray | memoryview,
    partition: TopicPartition,
    config: LogConfig,
    now_ms: int,
) -> ValidBatch:
    """Check what the header could not tell and bring the batch into the form the topic asks for.

    ``records`` is writable; timestamps are changed in place.
    """
    size = header.size_bytes
    target = config.target_codec
    if target is None or (header.is_control and not header.codec):
        target = Codec(header.codec)
    recompress = target != header.codec
    spans: list[RecordSpan] | None = None
    body = b""
    if recompress or _must_look_inside(header, config, now_ms):
        body, spans = _unpack(header, records, partition)
        _check_each(header, spans, partition, config, now_ms)
    elif header.timestamp_type == LOG_APPEND_TIME and (
        config.timestamp_type == LOG_APPEND_TIME or header.max_timestamp == NO_TIMESTAMP
    ):
        _check_each(header, _unpack(header, records, partition)[1], partition, config, now_ms)
    max_timestamp = header.max_timestamp
    if config.timestamp_type == LOG_APPEND_TIME:
        max_timestamp = now_ms
    elif spans and header.timestamp_type == CREATE_TIME:
        latest = header.base_timestamp + max(span.timestamp_delta for span in spans)
        max_timestamp = max(latest, NO_TIMESTAMP)
    if recompress and spans is not None:
        rebuilt = _rebuild(header, body, spans, target, config, max_timestamp)
        return ValidBatch(rebuilt, len(rebuilt), max_timestamp)
    if header.timestamp_type != config.timestamp_type or header.max_timestamp != max_timestamp:
        set_timestamps(records, 0, size, config.timestamp_type, max_timestamp)
    return ValidBatch(records, size, max_timestamp)


def _must_look_inside(header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    if config.compact:
        return True
    if config.timestamp_type == LOG_APPEND_TIME:
        return False
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    if not NO_TIMESTAMP <= header.max_timestamp <= latest or (
        header.max_timestamp != NO_TIMESTAMP and header.max_timestamp < earliest
    ):
        return True
    # The header has the highest timestamp; the lowest is known without looking only if there is but one.
    return config.message_timestamp_before_max_ms != MAX_INT64 and header.record_count > 1


def _unpack(
    header: BatchHeader, records: Buffer, partition: TopicPartition
) -> tuple[bytes, list[RecordSpan]]:
    try:
        body = batch_body(records, header, max_size=MAX_UNCOMPRESSED_BYTES)
        return body, list(scan_records(body, header.record_count))
    except CorruptRecordError as error:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"The record batch in the append to {partition} is malformed: {error}"
        ) from error


def _check_each(
    header: BatchHeader,
    spans: Iterable[RecordSpan],
    partition: TopicPartition,
    config: LogConfig,
    now_ms: int,
) -> None:
    errors: list[RecordError] = []
    bad_timestamp = False
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    append_time = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
    for index, span in enumerate(spans):
        if config.compact and span.key_length < 0:
            errors.append(
                RecordError(
                    index,
                    f"Compacted topic cannot accept message without key in topic partition {partition}",
                )
            )
            continue
        timestamp = header.base_timestamp + span.timestamp_delta if append_time is None else append_time
        if config.timestamp_type == CREATE_TIME and timestamp != NO_TIMESTAMP:
            if not earliest <= timestamp <= latest:
                bad_timestamp = True
                errors.append(
                    RecordError(
                        index,
                        f"Timestamp {timestamp} of message with offset {span.offset_delta} is out of range. "
                        f"The timestamp should be within [{earliest}, {latest}]",
                    )
                )
        elif append_time is not None:
            bad_timestamp = True
            errors.append(
                RecordError(
                    index,
                    f"Invalid timestamp type in message DefaultRecord(offset={span.offset_delta}, "
                    f"timestamp={append_time}, key={max(span.key_length, 0)} bytes, "
                    f"value={max(span.value_length, 0)} bytes). Producer should not set timestamp type to "
                    "LogAppendTime.",
                )
            )
    if errors:
        raise _refused(errors, bad_timestamp)


def _refused(errors: list[RecordError], bad_timestamp: bool) -> RecordsRefusedError:
    if bad_timestamp:
        return RecordsRefusedError(
            ErrorCode.INVALID_TIMESTAMP,
            "One or more records have been rejected due to invalid timestamp",
            errors,
        )
    shown = ", ".join(
        f"RecordError(batchIndex={error.batch_index}, message='{error.message}')"
        for error in errors[:_SHOWN_ERRORS]
    )
    return RecordsRefusedError(
        ErrorCode.INVALID_RECORD,
        f"One or more records have been rejected due to {len(errors)} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]",
        errors,
    )


def _rebuild(
    header: BatchHeader,
    body: bytes,
    spans: list[RecordSpan],
    codec: Codec,
    config: LogConfig,
    max_timestamp: int,
) -> bytearray:
    """The batch under the topic's codec, without gaps in its numbers and based on its first record."""
    attributes = header.attributes & ~(CODEC_MASK | TIMESTAMP_TYPE_BIT) | codec
    if config.timestamp_type == LOG_APPEND_TIME:
        attributes |= TIMESTAMP_TYPE_BIT
    shift = spans[0].timestamp_delta
    if not -MAX_INT64 <= header.base_timestamp + shift <= MAX_INT64:
        shift = 0
    if shift or any(span.offset_delta != index for index, span in enumerate(spans)):
        body = b"".join(_renumber(body, span, index, shift) for index, span in enumerate(spans))
    changed = header._replace(
        attributes=attributes, base_timestamp=header.base_timestamp + shift, max_timestamp=max_timestamp
    )
    return assemble_batch(changed, body, level=config.compression_level(codec))


def _renumber(body: bytes, span: RecordSpan, offset_delta: int, shift: int) -> bytes:
    _, pos = decode_varint(body, span.start)
    _, pos = decode_varlong(body, pos + 1)
    _, key_length_at = decode_varint(body, pos)
    fields = b"".join(
        (
            b"\0",
            encode_varint(span.timestamp_delta - shift),
            encode_varint(offset_delta),
            body[key_length_at : span.end],
        )
    )
    return encode_varint(len(fields)) + fields
