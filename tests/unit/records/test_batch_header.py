from __future__ import annotations

import struct

import pytest

from tidelog.errors import CorruptRecordError
from tidelog.records.batch import (
    CREATE_TIME,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchHeader,
    add_sequence,
    batch_size,
    check_crc,
    iter_batches,
    leading_batches,
    pack_header,
    parse_header,
    set_base_offset,
    set_leader_epoch,
    set_timestamps,
)

# One record, key "k", value "v", as kafka-python writes it (leader epoch apart).
BATCH = bytes.fromhex(
    "0000000000000000"  # base offset 0
    "0000003a"  # 58 bytes follow
    "ffffffff"  # leader epoch -1
    "02"  # magic
    "c4fcf4ce"  # CRC-32C
    "0000"  # attributes
    "00000000"  # last offset delta
    "0000018bcfe56800"  # base timestamp
    "0000018bcfe56800"  # max timestamp
    "00000000000003e8"  # producer id 1000
    "0005"  # producer epoch
    "00000007"  # base sequence
    "00000001"  # one record
    "1000000002"
    "6b"
    "02"
    "76"
    "00"
)


def test_every_field_is_read_from_its_place() -> None:
    header = parse_header(BATCH)
    assert header == BatchHeader(
        base_offset=0,
        batch_length=58,
        partition_leader_epoch=-1,
        magic=2,
        crc=0xC4FCF4CE,
        attributes=0,
        last_offset_delta=0,
        base_timestamp=1_700_000_000_000,
        max_timestamp=1_700_000_000_000,
        producer_id=1000,
        producer_epoch=5,
        base_sequence=7,
        record_count=1,
    )
    assert header.size_bytes == len(BATCH) == batch_size(BATCH)


def test_the_checksum_covers_everything_but_what_the_broker_writes() -> None:
    batch = bytearray(BATCH)
    assert check_crc(batch, 0, len(batch))
    set_base_offset(batch, 0, 1 << 40)
    set_leader_epoch(batch, 0, 9)
    assert check_crc(batch, 0, len(batch))
    assert parse_header(batch)[:3] == (1 << 40, 58, 9)
    for position in range(21, len(batch)):
        batch[position] ^= 1
        assert not check_crc(batch, 0, len(batch)), position
        batch[position] ^= 1


def test_changing_timestamps_writes_the_checksum_anew() -> None:
    batch = bytearray(b"xx" + BATCH)
    set_timestamps(batch, 2, len(BATCH), LOG_APPEND_TIME, 42)
    header = parse_header(batch, 2)
    assert (header.timestamp_type, header.max_timestamp) == (LOG_APPEND_TIME, 42)
    assert check_crc(batch, 2, len(BATCH))
    set_timestamps(batch, 2, len(BATCH), CREATE_TIME, header.base_timestamp)
    assert bytes(batch[2:]) == BATCH


def test_a_packed_header_is_what_was_parsed() -> None:
    header = parse_header(BATCH)
    batch = bytearray(BATCH[:0] + bytes(HEADER_SIZE) + BATCH[HEADER_SIZE:])
    pack_header(
        batch,
        0,
        len(batch),
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        attributes=header.attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=header.record_count,
    )
    assert bytes(batch) == BATCH


@pytest.mark.parametrize(
    ("attributes", "codec", "append_time", "transactional", "control", "horizon"),
    [
        (0x00, 0, False, False, False, None),
        (0x04, 4, False, False, False, None),
        (0x0A, 2, True, False, False, None),
        (0x10, 0, False, True, False, None),
        (0x30, 0, False, True, True, None),
        (0x41, 1, False, False, False, 1_700_000_000_000),
    ],
)
def test_attributes_mean_what_kafka_means(
    attributes: int, codec: int, append_time: bool, transactional: bool, control: bool, horizon: int | None
) -> None:
    header = parse_header(BATCH)._replace(attributes=attributes)
    assert header.codec == codec
    assert (header.timestamp_type == LOG_APPEND_TIME) is append_time
    assert header.is_transactional is transactional
    assert header.is_control is control
    assert header.delete_horizon_ms == horizon


def test_sequence_numbers_wrap_to_zero() -> None:
    assert add_sequence(0x7FFFFFFF, 1) == 0
    header = parse_header(BATCH)._replace(base_sequence=0x7FFFFFFE, last_offset_delta=3)
    assert header.last_sequence == 1
    assert header._replace(base_sequence=-1).last_sequence == -1


def test_batches_are_walked_up_to_one_that_is_cut_short() -> None:
    batches = BATCH + BATCH + BATCH[:-1]
    assert [position for position, _ in iter_batches(batches)] == [0, len(BATCH)]
    assert [position for position, _ in iter_batches(batches, end=len(BATCH) + 5)] == [0]
    assert list(iter_batches(b"")) == []


def test_an_impossible_length_is_corrupt() -> None:
    broken = bytearray(BATCH)
    struct.pack_into(">i", broken, 8, 10)
    with pytest.raises(CorruptRecordError, match="22 bytes long"):
        list(iter_batches(broken))


def test_a_header_needs_61_bytes() -> None:
    with pytest.raises(CorruptRecordError, match="60 are left at 0"):
        parse_header(BATCH[:60])


def test_a_few_whole_batches_are_taken_at_a_time() -> None:
    size = len(BATCH)
    assert leading_batches(BATCH * 3, 2, 10 * size) == (2, 2 * size)
    assert leading_batches(BATCH * 3, 9, 2 * size) == (2, 2 * size)
    assert leading_batches(BATCH * 3, 9, size - 1) == (1, size)
    assert leading_batches(BATCH * 3, 3, 3 * size) == (3, 3 * size)
    assert leading_batches(b"", 9, 9) == (0, 0)


def test_what_is_no_whole_batch_goes_with_those_before_it() -> None:
    cut = bytes(BATCH * 2) + bytes(BATCH[:-1])
    assert leading_batches(cut, 9, len(cut)) == (2, len(cut))
    nonsense = bytes(BATCH) + bytes(HEADER_SIZE)
    assert leading_batches(nonsense, 9, len(nonsense)) == (1, len(nonsense))
    assert leading_batches(bytes(HEADER_SIZE), 9, 9) == (0, HEADER_SIZE)
