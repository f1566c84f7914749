from __future__ import annotations

import struct
import zlib

import pytest

from tidelog.client.fetched import read_records
from tidelog.errors import CorruptRecordError, ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType, EndTxnMarker, encode_end_txn_marker
from tidelog.records.record import Record, encode_batch
from tidelog.wire.messages.fetch import AbortedTransaction, PartitionData

PARTITION = TopicPartition("orders", 0)


def batch(base_offset: int, *values: bytes, producer_id: int = -1, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(timestamp=1000 + index, value=value) for index, value in enumerate(values)]
    transactional = producer_id >= 0
    return encode_batch(
        records,
        base_offset=base_offset,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if transactional else -1,
        base_sequence=0 if transactional else -1,
        transactional=transactional,
    )


def marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
    return encode_end_txn_marker(
        EndTxnMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp=1, base_offset=offset
    )


def values(data: PartitionData, position: int = 0, *, read_committed: bool = False) -> tuple[list, int]:
    records, after = read_records(PARTITION, data, position, read_committed=read_committed)
    return [(record.offset, record.value) for record in records], after


def legacy_message(offset: int, value: bytes) -> bytes:
    body = struct.pack(">bbqi", 1, 0, 77, -1) + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def test_records_before_the_position_are_left_out_of_a_batch_that_holds_it() -> None:
    data = PartitionData(records=batch(5, b"a", b"b", b"c"))
    assert values(data, 6) == ([(6, b"b"), (7, b"c")], 8)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_read(codec: Codec) -> None:
    data = PartitionData(records=batch(0, b"a" * 100, b"b", codec=codec))
    assert values(data) == ([(0, b"a" * 100), (1, b"b")], 2)


def test_a_batch_cut_short_at_the_end_is_left_for_the_next_fetch() -> None:
    data = PartitionData(records=batch(0, b"a") + batch(1, b"b")[:-1])
    assert values(data) == ([(0, b"a")], 1)


def test_an_answer_without_one_whole_batch_is_an_error_and_not_an_endless_loop() -> None:
    data = PartitionData(records=batch(0, b"a" * 100)[:-1])
    with pytest.raises(KafkaError, match="larger than a fetch") as refused:
        values(data)
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_no_records_leave_the_position_alone() -> None:
    assert values(PartitionData(records=None), 7) == ([], 7)
    assert values(PartitionData(records=b""), 7) == ([], 7)


def test_a_flipped_bit_is_told_with_partition_and_mend() -> None:
    broken = bytearray(batch(3, b"value"))
    broken[-1] ^= 1
    with pytest.raises(CorruptRecordError, match=r"partition orders-0: .*CRC.*tidelog log verify"):
        values(PartitionData(records=bytes(broken)))


def test_markers_are_never_shown_and_the_position_moves_past_them() -> None:
    data = PartitionData(records=batch(0, b"a", producer_id=9) + marker(1, 9, ControlType.COMMIT))
    for read_committed in (False, True):
        assert values(data, read_committed=read_committed) == ([(0, b"a")], 2)


def test_read_committed_hides_aborted_records_up_to_their_marker() -> None:
    log = (
        batch(0, b"aborted", producer_id=9)
        + batch(1, b"plain")
        + batch(2, b"other", producer_id=8)
        + marker(3, 9, ControlType.ABORT)
        + batch(4, b"committed", producer_id=9)
        + marker(5, 9, ControlType.COMMIT)
    )
    aborted = [AbortedTransaction(producer_id=9, first_offset=0)]
    data = PartitionData(records=log, aborted_transactions=aborted)
    assert values(data, read_committed=True) == ([(1, b"plain"), (2, b"other"), (4, b"committed")], 6)
    assert values(data)[0][0] == (0, b"aborted")


def test_a_batch_emptied_by_compaction_moves_the_position() -> None:
    emptied = bytearray(encode_batch([Record(value=b"x", timestamp=1)], base_offset=10))
    # What the cleaner leaves to keep a producer's last sequence: a header that counts no records.
    from tidelog.records.batch import HEADER_SIZE, LENGTH_AT, RECORD_COUNT_AT, write_crc

    del emptied[HEADER_SIZE:]
    struct.pack_into(">i", emptied, LENGTH_AT, HEADER_SIZE - 12)
    struct.pack_into(">i", emptied, RECORD_COUNT_AT, 0)
    write_crc(emptied, 0, HEADER_SIZE)
    assert values(PartitionData(records=bytes(emptied) + batch(11, b"a"))) == ([(11, b"a")], 12)


def test_old_message_formats_and_new_batches_may_follow_each_other() -> None:
    data = PartitionData(records=legacy_message(0, b"old") + legacy_message(1, b"er") + batch(2, b"new"))
    assert values(data, 1) == ([(1, b"er"), (2, b"new")], 3)
