"""What a batch must be like before a leader appends it: the checks of Kafka's LogValidator.

A :class:`Validation` looks at the header and the checksum, then walks over the records
(``records/batch_walk``): they must be whole and sound, as many as the header says, allowed where they are
(keys on compacted topics, timestamps within bounds), and the highest timestamp is corrected where the header
has another. Where the topic wants another codec than the producer's they are compressed anew on the way. It
takes as many steps at a time as its caller wants, holds no more than pieces of the records, and gives a
:class:`ValidBatch`.

Ordinary uncompressed batches do not come here: ``log_appender`` finds them in order with one call
(``record_walker.are_plain``).

Where this differs from Kafka: records of compressed batches whose length is not that of their fields, lengths
below -1, offset deltas outside of an uncompressed batch, bodies of several gzip members, snappy streams or
lz4 frames, and bodies of more bytes or records than ``WalkLimits`` allows (MESSAGE_TOO_LARGE, so that
producers split them) are refused; of the records that are refused in one batch the first thousand are listed.

Called by ``log_appender`` for appends as leader, and by ``broker/produce/batch_validation`` ahead of them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.errors import CorruptRecordError, ErrorCode, KafkaError
from tidelog.ids import NO_TIMESTAMP, TopicPartition
from tidelog.records.batch import (
    CODEC_MASK,
    CREATE_TIME,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    Buffer,
    batch_size,
    check_crc,
    set_timestamps,
)
from tidelog.records.batch_walk import BatchWalk, WalkLimits, body_stream
from tidelog.records.body_compressor import BodyCompressor
from tidelog.records.body_stream import BodyTooLargeError, UnportableBodyError
from tidelog.records.compression import Codec
from tidelog.records.record import batch_body, join_batch
from tidelog.records.record_walker import (
    BAD_KEY,
    BAD_OFFSET,
    BAD_TIMESTAMP,
    BadRecord,
    RecordWalker,
    renumbered,
)
from tidelog.storage.log_config import MAX_INT64, LogConfig
from tidelog.storage.producers.producer_state import AppendOrigin

_MIN_ENTRY_BYTES: Final = 14
_MIN_RECORD_BYTES: Final = 7
_SHOWN_ERRORS: Final = 3
_QUICKLY_COMPRESSED_BYTES: Final = 2048
# How often a result that has become too large is noticed.
_STEPS: Final = 4
_MAX_RENUMBERED_BYTES: Final = 16 * 1024 * 1024


class RecordError(NamedTuple):
    """Why one record was refused; ``batch_index`` counts from 0 within its batch."""

    batch_index: int
    message: str


class RecordsRefusedError(KafkaError):
    """A batch refused for its records: Produce responses carry the message, and the list of bad ones."""

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
    magic = records[MAGIC_AT]
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
    elif (magic := records[pos + MAGIC_AT]) > MAGIC_V2:
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
        not header.codec and header.record_count * _MIN_RECORD_BYTES + HEADER_SIZE > header.size_bytes
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
    """Whether uncompressed batches that are sound and not from the future can be taken as they come.

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
    append_time_ms: int
    """When it was appended, where the topic wants to know that; else -1."""

    def appended_at(self, now_ms: int) -> ValidBatch:
        """The same, appended now where the topic wants to know the time: judging may have taken a while."""
        records = self.records
        if self.append_time_ms == NO_TIMESTAMP or not isinstance(records, bytearray):
            return self
        set_timestamps(records, 0, self.size, LOG_APPEND_TIME, now_ms)
        return self._replace(max_timestamp=now_ms, append_time_ms=now_ms)


class Validation:
    """What a leader makes of one batch. Raises ``KafkaError`` wherever it finds something wrong."""

    __slots__ = (
        "_compressor",
        "_config",
        "_header",
        "_limits",
        "_now_ms",
        "_partition",
        "_records",
        "_target",
        "_walk",
    )

    def __init__(
        self,
        records: Buffer,
        partition: TopicPartition,
        config: LogConfig,
        limits: WalkLimits,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> None:
        size = only_batch(records, partition)
        view = memoryview(records)[:size]
        header = BatchHeader._make(HEADER.unpack_from(view, 0))
        check_header(header, view, partition, config, origin)
        self._records = view
        self._partition = partition
        self._config = config
        self._limits = limits
        self._now_ms = now_ms
        self._header = header
        self._target = config.target_codec
        if self._target is None or (header.is_control and not header.codec):
            self._target = Codec(header.codec)
        self._compressor: BodyCompressor | None = None
        if self._target != header.codec:
            self._compressor = BodyCompressor(self._target, config.compression_level(self._target))
        self._walk: BatchWalk | None = None
        if origin is AppendOrigin.CLIENT or self._compressor is not None:
            if header.record_count > limits.max_records:
                raise KafkaError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"The record batch in the append to {partition} has {header.record_count} records, more "
                    f"than the {limits.max_records} that tidelog.message.max.records allows",
                )
            self._walk = self._begin()

    def _begin(self) -> BatchWalk:
        header, config = self._header, self._config
        append_time = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
        earliest, latest = self._bounds()
        if append_time is not None and (
            config.timestamp_type == LOG_APPEND_TIME or append_time == NO_TIMESTAMP
        ):
            # No timestamp will do: a producer must not set the type.
            earliest, latest = 1, 0
        elif config.timestamp_type == LOG_APPEND_TIME:
            earliest, latest = -MAX_INT64 - 1, MAX_INT64
        walker = RecordWalker(
            header.record_count,
            header.base_timestamp,
            append_time=append_time,
            earliest=earliest,
            latest=latest,
            keys_required=config.compact,
            consecutive=bool(header.codec) and self._compressor is None,
            last_delta=-1 if header.codec or self._compressor is not None else header.last_offset_delta,
        )
        try:
            stream = body_stream(self._records, header, 0, self._limits, one_frame=True)
        except CorruptRecordError as error:
            raise self._malformed(error) from error
        return BatchWalk(stream, walker, None if self._compressor is None else self._compressor.write)

    def _bounds(self) -> tuple[int, int]:
        config, now_ms = self._config, self._now_ms
        return (
            now_ms - config.message_timestamp_before_max_ms,
            now_ms + config.message_timestamp_after_max_ms,
        )

    @property
    def compresses(self) -> bool:
        """Whether the records are compressed on the way, of which a single step may take long."""
        header = self._header
        return self._compressor is not None and (
            header.codec != Codec.NONE or header.size_bytes > _QUICKLY_COMPRESSED_BYTES
        )

    def advance(self, steps: int | None = None) -> bool:
        """Take so many short steps, or all; gives whether it is done."""
        if steps is None:
            while not self.advance(_STEPS):
                pass
            return True
        try:
            done = self._walk is None or self._walk.advance(steps)
        except BodyTooLargeError as error:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The record batch in the append to {self._partition} is refused: {error}, which is what "
                "tidelog.message.max.uncompressed.bytes allows",
            ) from error
        except CorruptRecordError as error:
            raise self._malformed(error) from error
        compressor = self._compressor
        if compressor is not None and compressor.size + HEADER_SIZE > self._config.max_message_bytes:
            raise too_large(compressor.size + HEADER_SIZE, self._partition, self._config)
        return done

    @property
    def read_bytes(self) -> int:
        """How much of the records has been unpacked so far."""
        return 0 if self._walk is None else self._walk.read_bytes

    @property
    def next_bytes(self) -> int:
        """How much the next step unpacks at least, where that is known."""
        return 0 if self._walk is None else self._walk.next_bytes

    def result(self) -> ValidBatch:
        """The batch as it is to be appended; once ``advance`` has come to the end."""
        header, config = self._header, self._config
        max_timestamp = header.max_timestamp
        if self._walk is not None:
            walker = self._walk.walker
            if walker.bad_count:
                self._refuse(walker)
            if header.timestamp_type == CREATE_TIME:
                max_timestamp = walker.max_timestamp
        append_time_ms = NO_TIMESTAMP
        if config.timestamp_type == LOG_APPEND_TIME:
            max_timestamp = append_time_ms = self._now_ms
        records: Buffer = self._records
        if self._compressor is not None:
            records = self._rebuild(self._compressor, max_timestamp)
            if len(records) > config.max_message_bytes:
                raise too_large(len(records), self._partition, config)
        elif header.timestamp_type != config.timestamp_type or header.max_timestamp != max_timestamp:
            # In a copy: what was given may have to be judged once more.
            records = bytearray(self._records)
            set_timestamps(records, 0, header.size_bytes, config.timestamp_type, max_timestamp)
        return ValidBatch(records, len(records), max_timestamp, append_time_ms)

    def _malformed(self, error: CorruptRecordError) -> KafkaError:
        message = f"The record batch in the append to {self._partition} is malformed: {error}"
        if isinstance(error, UnportableBodyError):
            # Kafka takes some of these, so that the producer has to learn the reason from us.
            return RecordsRefusedError(ErrorCode.INVALID_RECORD, message, [])
        return KafkaError(ErrorCode.INVALID_RECORD, message)

    def _refuse(self, walker: RecordWalker) -> None:
        """Raise what is wrong with the records that are not allowed here."""
        bad_records = walker.bad_records
        wrong = next((bad for bad in bad_records if bad.reason == BAD_OFFSET), None)
        if wrong is not None:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"Record {wrong.record_index} of the batch in the append to {self._partition} has the offset "
                f"delta {wrong.offset_delta}, which is not its own",
            )
        bad_timestamp = any(bad.reason == BAD_TIMESTAMP for bad in bad_records)
        errors = [RecordError(bad.record_index, self._describe(bad)) for bad in bad_records]
        raise _refused(errors, walker.bad_count, bad_timestamp)

    def _describe(self, bad: BadRecord) -> str:
        if bad.reason == BAD_KEY:
            return f"Compacted topic cannot accept message without key in topic partition {self._partition}"
        if self._config.timestamp_type == CREATE_TIME and bad.timestamp != NO_TIMESTAMP:
            earliest, latest = self._bounds()
            return (
                f"Timestamp {bad.timestamp} of message with offset {bad.offset_delta} is out of range. "
                f"The timestamp should be within [{earliest}, {latest}]"
            )
        return (
            f"Invalid timestamp type in message DefaultRecord(offset={bad.offset_delta}, "
            f"timestamp={bad.timestamp}, key={max(bad.key_length, 0)} bytes, "
            f"value={max(bad.value_length, 0)} bytes). Producer should not set timestamp type to "
            "LogAppendTime."
        )

    def _rebuild(self, compressor: BodyCompressor, max_timestamp: int) -> bytearray:
        """The batch under the topic's codec, without gaps in its numbers and based on its first record."""
        header, config = self._header, self._config
        target = self._target or Codec.NONE
        attributes = header.attributes & ~(CODEC_MASK | TIMESTAMP_TYPE_BIT) | target
        if config.timestamp_type == LOG_APPEND_TIME:
            attributes |= TIMESTAMP_TYPE_BIT
        assert self._walk is not None
        walker = self._walk.walker
        shift = walker.first_timestamp_delta
        if not -MAX_INT64 <= header.base_timestamp + shift <= MAX_INT64:
            shift = 0
        if shift or not walker.is_consecutive:
            # No client is known to send such batches; this is the one place where all records are in memory.
            if self._walk.read_bytes > _MAX_RENUMBERED_BYTES:
                raise KafkaError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"The records of the batch in the append to {self._partition} have to be numbered anew, "
                    f"which is not done for more than {_MAX_RENUMBERED_BYTES} bytes",
                )
            body = renumbered(
                batch_body(self._records, header, max_size=self._limits.max_bytes), header.record_count, shift
            )
            compressor = BodyCompressor(target, config.compression_level(target))
            compressor.write(body)
        changed = header._replace(
            attributes=attributes, base_timestamp=header.base_timestamp + shift, max_timestamp=max_timestamp
        )
        return join_batch(changed, compressor.finish())


def _refused(errors: list[RecordError], total: int, bad_timestamp: bool) -> RecordsRefusedError:
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
        f"One or more records have been rejected due to {total} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]",
        errors,
    )
