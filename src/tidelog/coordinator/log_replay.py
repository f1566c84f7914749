"""From the bytes of a log to a shard: what loading is made of.

Every record goes to ``replay`` of the shard, decoded, in the order of the log; markers that end transactions
go to ``replay_marker``. A shard may have a ``replay_raw`` as well, which is offered every record as it lies
in the log and says whether it took it: the short way for kinds of records of which there are millions.

Called by ``runtime``, a chunk at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

from tidelog.checksum import crc32c
from tidelog.coordinator.stored_record import RecordSchemas, StoredRecord, UnknownRecordType
from tidelog.errors import CorruptRecordError
from tidelog.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from tidelog.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V2,
    TRANSACTIONAL_BIT,
    parse_header,
)
from tidelog.records.control import ControlType, parse_control_type
from tidelog.records.record import batch_body, scan_records

logger = logging.getLogger(__name__)

_unpack_header = HEADER.unpack_from


class Producer(NamedTuple):
    """Who writes a transactional batch."""

    producer_id: int
    epoch: int


NO_PRODUCER = Producer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

RawReplay = Callable[[int, Producer, bytes, bytes | None], bool]
"""Takes offset, producer, key and value of a record; False if the general way has to be gone."""


class Replayed(Protocol):
    """What a log is replayed into; ``replay_raw``, a ``RawReplay``, may be there too."""

    def replay(self, offset: int, producer: Producer, record: StoredRecord) -> None:
        """Take in one record, live or at loading; producer id -1 unless it is part of a transaction."""

    def replay_marker(self, producer: Producer, committed: bool) -> None:
        """The transaction of ``producer`` has ended in this partition."""


class LogReplay:
    """Replays one log into one shard."""

    def __init__(self, name: str, schemas: RecordSchemas, shard: Replayed) -> None:
        self._name = name
        self._schemas = schemas
        self._shard = shard
        self._raw: RawReplay = getattr(shard, "replay_raw", _no_short_way)

    def replay(self, chunk: bytes) -> int:
        """Replay the whole batches in ``chunk``, one at least; gives the offset that follows them."""
        pos, size = 0, len(chunk)
        next_offset: int | None = None
        with memoryview(chunk) as view:
            while size - pos >= HEADER_SIZE:
                (
                    base_offset,
                    length,
                    _,
                    magic,
                    crc,
                    attributes,
                    last_delta,
                    _,
                    _,
                    producer_id,
                    epoch,
                    _,
                    count,
                ) = _unpack_header(chunk, pos)
                end = pos + LOG_OVERHEAD + length
                if magic != MAGIC_V2:
                    raise CorruptRecordError(f"the batch at offset {base_offset} is of an old format")
                if end > size:
                    break
                if length < HEADER_SIZE - LOG_OVERHEAD or crc32c(view[pos + ATTRIBUTES_AT : end]) != crc:
                    raise CorruptRecordError(f"the batch at offset {base_offset} fails its CRC")
                if attributes & CODEC_MASK:
                    body = batch_body(chunk, parse_header(chunk, pos), pos)
                else:
                    body = chunk[pos + HEADER_SIZE : end]
                if attributes & CONTROL_BIT:
                    self._replay_control(body, count, Producer(producer_id, epoch))
                elif attributes & TRANSACTIONAL_BIT:
                    self._replay_records(body, count, base_offset, Producer(producer_id, epoch))
                else:
                    self._replay_records(body, count, base_offset, NO_PRODUCER)
                next_offset = base_offset + last_delta + 1
                pos = end
        if next_offset is None:
            raise CorruptRecordError(f"a batch is cut short: {size} bytes of it are there")
        return next_offset

    def _replay_control(self, body: bytes, count: int, producer: Producer) -> None:
        for span in scan_records(body, count):
            kind = parse_control_type(body[span.key_at : span.key_at + max(span.key_length, 0)])
            if kind in (ControlType.ABORT, ControlType.COMMIT):
                self._shard.replay_marker(producer, kind is ControlType.COMMIT)

    def _replay_records(self, body: bytes, count: int, base_offset: int, producer: Producer) -> None:
        raw = self._raw
        for _, _, _, delta, key_at, key_length, value_at, value_length in scan_records(body, count):
            offset = base_offset + delta
            if key_length < 0:
                logger.warning("%s has a record without a key at offset %d: ignored", self._name, offset)
                continue
            key = body[key_at : key_at + key_length]
            value = None if value_length < 0 else body[value_at : value_at + value_length]
            if not raw(offset, producer, key, value):
                self._replay_record(offset, producer, key, value)

    def _replay_record(self, offset: int, producer: Producer, key: bytes, value: bytes | None) -> None:
        try:
            decoded = self._schemas.decode_key(key)
        except UnknownRecordType as error:
            logger.warning("%s, offset %d: %s; it is ignored", self._name, offset, error)
            return
        record = StoredRecord(decoded, self._schemas.decode_value(decoded, value))
        self._shard.replay(offset, producer, record)


def _no_short_way(offset: int, producer: Producer, key: bytes, value: bytes | None) -> bool:
    return False
