"""What one Fetch brought for one partition: batches, read one after another as records are asked for.

Bytes stay as they came until a batch's turn: then it is opened (checksum, codec), and its records are decoded
piece by piece, as many as are asked for. An answer may begin before the offset asked for (batches are sent
whole) and end in the middle of a batch. Control batches are passed over, and with ``read_committed`` the
batches of aborted transactions are, by the list that came with the answer.

Invariant: ``next_offset`` and ``last_epoch`` stand behind the last record handed out or passed over;
``end_offset``, known from the batch headers alone, is where the next fetch goes on. Made by
``consumer._fetch.fetcher``, kept in ``consumer._fetch.fetch_buffer``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from tidelog.client.consumer._fetch.fetch_config import FetchConfig
from tidelog.client.consumer._metrics import FetchTally
from tidelog.client.consumer.errors import RecordDeserializationError, RecordTooLargeError
from tidelog.client.subscription._partition_state import PartitionState
from tidelog.errors import CorruptRecordError, TidelogError
from tidelog.ids import NO_LEADER_EPOCH, NO_PRODUCER_ID, TopicPartition
from tidelog.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    TRANSACTIONAL_BIT,
)
from tidelog.records.column_codec import RecordColumns
from tidelog.records.control import ControlType, parse_control_type
from tidelog.records.legacy import batch_of, open_legacy
from tidelog.records.record_codec import BatchReader, ConsumerRecord, decode_records

# Base offset, length, leader epoch, magic, (CRC), attributes, last offset delta, (timestamps), producer id.
_HEAD = struct.Struct(">qiib4xhi16xq")
_OFFSET_AND_SIZE = struct.Struct(">qi")

_LEGACY = 0x4000  # no bit of a batch's attributes
Batch = tuple[int, int, int, int, int, int]
"""Start, end, leader epoch, attributes (``_LEGACY``: an old message), offset behind it, producer id."""


class CompletedFetch:
    """The records of one partition in one answer."""

    __slots__ = (
        "_aborted",
        "_batches",
        "_config",
        "_data",
        "_next_batch",
        "_reader",
        "end_epoch",
        "end_offset",
        "error",
        "fetch_offset",
        "generation",
        "last_epoch",
        "next_offset",
        "partition",
        "size_bytes",
        "state",
        "taken",
        "tally",
    )

    def __init__(
        self,
        partition: TopicPartition,
        state: PartitionState,
        fetch_offset: int,
        config: FetchConfig,
        data: memoryview | bytes = b"",
        aborted: Sequence[tuple[int, int]] | None = None,
        error: TidelogError | None = None,
        offset_epoch: int = NO_LEADER_EPOCH,
    ) -> None:
        self.partition = partition
        self.state = state
        self.generation = state.generation
        self.fetch_offset = fetch_offset
        """Where it was to begin."""
        self.next_offset = fetch_offset
        self.last_epoch = offset_epoch
        self.error = error
        """Why there are no records: raised when the turn of this answer comes."""
        self.size_bytes = len(data)
        self.taken = 0
        """How many records were handed out."""
        self.tally: FetchTally | None = None
        self._config = config
        self._data = data
        self._batches = list(_batches(data, partition)) if data else []
        self._next_batch = 0
        self._reader: BatchReader | None = None
        self._aborted = _AbortedTransactions(aborted) if aborted and config.read_committed else None
        self.end_offset = fetch_offset
        self.end_epoch = offset_epoch
        if self._batches:
            last = self._batches[-1]
            self.end_offset = max(last[4], fetch_offset)
            self.end_epoch = last[2]
        elif data:
            raise RecordTooLargeError(
                f"the batch at offset {fetch_offset} of {partition} is larger than a fetch may be: raise "
                "fetch.max.bytes and max.partition.fetch.bytes"
            )

    @property
    def read_committed(self) -> bool:
        return self._config.read_committed

    @property
    def is_drained(self) -> bool:
        return self._next_batch == len(self._batches)

    def take(self, max_records: int) -> list[ConsumerRecord]:
        """Up to ``max_records`` of the next records, and move on; empty only when drained.

        A batch that cannot be read raises each time, until the application seeks past it; what comes before
        it is handed out first.
        """
        taken: list[ConsumerRecord] = []
        while self._next_batch < len(self._batches):
            # Control batches behind the last record wanted are passed over: they need no poll of their own.
            if len(taken) == max_records and not self._batches[self._next_batch][3] & CONTROL_BIT:
                break
            try:
                records = self._read_next(max_records - len(taken))
            except Exception:
                # Whatever it is (MemoryError, too): the position stands behind what was taken already.
                if taken:
                    break
                raise
            if taken:
                taken += records
            else:
                taken = records
        return taken

    def take_columns(self, *, with_headers: bool) -> RecordColumns:
        """All records that are left, column by column, and move on; keys and values stay bytes.

        A batch that cannot be read, or not into the same columns (no column may pass 2 GB), waits for the
        next call; it raises when it is the first one.
        """
        # A batch of which some records were taken one by one is read again, from the next one on.
        self._reader = None
        columns = self._new_columns(with_headers=with_headers)
        while self._next_batch < len(self._batches):
            start, _, epoch, attributes, after, producer_id = self._batches[self._next_batch]
            try:
                if attributes == _LEGACY:
                    columns.append_batch(self._legacy_batch(start), self.next_offset, check_crc=False)
                elif attributes & CONTROL_BIT:
                    self._marker_seen(start, after - 1, producer_id)
                elif not self._hides(attributes, after, producer_id):
                    columns.append_batch(
                        self._data, self.next_offset, pos=start, check_crc=self._config.check_crcs
                    )
            except Exception as error:
                if columns.rows:
                    # What is handed out may lie in this memory: the next call must not write there.
                    self._data = memoryview(self._data).toreadonly()
                    break
                raise self._where(error) from error
            self._batch_done(after, epoch)
        return columns

    def _new_columns(self, *, with_headers: bool) -> RecordColumns:
        data, left = self._data, self._batches[self._next_batch :]
        # Old messages are rewritten, so their values are elsewhere, as those of compressed batches.
        elsewhere = any(attributes & (_LEGACY | CODEC_MASK) for _, _, _, attributes, *_ in left)
        if isinstance(data, memoryview) and not data.readonly and not elsewhere:
            # Nobody else looks into this part of the answer, nor will anybody read these batches again.
            return RecordColumns(with_headers=with_headers, memory=data)
        expected = self.size_bytes - left[0][0] if left else 0
        return RecordColumns(with_headers=with_headers, expected_bytes=expected)

    def _where(self, error: Exception) -> Exception:
        if not isinstance(error, CorruptRecordError):
            return error
        return CorruptRecordError(
            f"partition {self.partition}, offset {self.next_offset}: {error}; seek past it to go on, "
            "and see `tidelog log verify` on the broker's data directory"
        )

    def _read_next(self, max_records: int) -> list[ConsumerRecord]:
        """Decode records of the next batch and move behind them, or pass over it."""
        start, _, epoch, attributes, after, producer_id = self._batches[self._next_batch]
        try:
            if attributes & CONTROL_BIT:
                self._marker_seen(start, after - 1, producer_id)
                records: list[ConsumerRecord] = []
                ended = True
            elif self._reader is None and self._hides(attributes, after, producer_id):
                records, ended = [], True
            else:
                reader = self._reader or self._open(start, attributes)
                # Until the records are good, the next call has to begin at the same place.
                self._reader = None
                records = reader.read(max_records)
                ended = not reader.left
                if not ended:
                    self._reader = reader
        except CorruptRecordError as error:
            raise self._where(error) from error
        if records and (self._config.key_deserializer or self._config.value_deserializer):
            good = self._deserialize(records)
            if good < len(records):
                # What comes before the bad record goes out first; then its batch is read again from there.
                self._reader, ended = None, False
                del records[good:]
        if ended:
            self._batch_done(after, epoch)
        elif records:
            self.next_offset, self.last_epoch = records[-1].offset + 1, epoch
        return records

    def _open(self, start: int, attributes: int) -> BatchReader:
        topic, number = self.partition
        check_crc = self._config.check_crcs
        if attributes == _LEGACY:
            return BatchReader(self._legacy_batch(start), self.next_offset, topic, number, check_crc=False)
        return BatchReader(self._data, self.next_offset, topic, number, pos=start, check_crc=check_crc)

    def _batch_done(self, after: int, epoch: int) -> None:
        self._next_batch += 1
        self.next_offset, self.last_epoch = max(after, self.next_offset), epoch

    def _hides(self, attributes: int, after: int, producer_id: int) -> bool:
        return (
            self._aborted is not None
            and self._aborted.hides(after - 1, producer_id)
            and bool(attributes & TRANSACTIONAL_BIT)
        )

    def _marker_seen(self, start: int, offset: int, producer_id: int) -> None:
        if self._aborted is not None:
            # Compaction may have removed all of the transaction but its marker.
            self._aborted.hides(offset, producer_id)
            marker = decode_records(self._data, pos=start, check_crc=self._config.check_crcs)
            if marker and parse_control_type(marker[0][3]) is ControlType.ABORT:
                self._aborted.end(producer_id)

    def _legacy_batch(self, start: int) -> bytes:
        """A message of format 0 or 1 as a batch of format 2: brokers serve old segments as they are."""
        return batch_of(open_legacy(self._data, start, check_crc=self._config.check_crcs))

    def _deserialize(self, records: list[ConsumerRecord]) -> int:
        """Deserialize in place; how many could be, unless already the first cannot, which raises."""
        topic = self.partition.topic
        key, value = self._config.key_deserializer, self._config.value_deserializer
        part = "key"
        for index, record in enumerate(records):
            try:
                if key is not None:
                    part = "key"
                    record.key = key(topic, record.key)
                if value is not None:
                    part = "value"
                    record.value = value(topic, record.value)
            except Exception as error:
                if index:
                    return index
                raise RecordDeserializationError(self.partition, record.offset, part, error) from error
        return len(records)


class _AbortedTransactions:
    """Which producers' records are those of an aborted transaction at the current batch."""

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._upcoming = sorted(aborted, key=lambda each: each[1], reverse=True)
        self._aborting: set[int] = set()

    def hides(self, last_offset: int, producer_id: int) -> bool:
        while self._upcoming and self._upcoming[-1][1] <= last_offset:
            self._aborting.add(self._upcoming.pop()[0])
        return producer_id in self._aborting

    def end(self, producer_id: int) -> None:
        self._aborting.discard(producer_id)


def _batches(data: memoryview | bytes, partition: TopicPartition) -> Iterator[Batch]:
    """Where each whole batch or old message lies; one that is cut short at the end is left out."""
    start, size = 0, len(data)
    while size - start > MAGIC_AT:
        magic = data[start + MAGIC_AT]
        if magic != MAGIC_V2:
            offset, length = _OFFSET_AND_SIZE.unpack_from(data, start)
            stop = start + length + LOG_OVERHEAD
            if magic > MAGIC_V2 or stop <= start + MAGIC_AT:
                raise CorruptRecordError(f"partition {partition}: an entry has the unknown format {magic}")
            if stop > size:
                return
            yield start, stop, NO_LEADER_EPOCH, _LEGACY, offset + 1, NO_PRODUCER_ID
        elif size - start < HEADER_SIZE:
            return
        else:
            base, length, epoch, _, attributes, last_delta, producer_id = _HEAD.unpack_from(data, start)
            stop = start + length + LOG_OVERHEAD
            if stop < start + HEADER_SIZE:
                raise CorruptRecordError(
                    f"partition {partition}: a batch of {stop - start} bytes is impossible"
                )
            if stop > size:
                return
            yield start, stop, epoch, attributes & 0x3FFF, base + last_delta + 1, producer_id
        start = stop
