"""Records: round trips with ourselves and with kafka-python and aiokafka, and strict bounds on garbage."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from tidelog.errors import CorruptRecordError
from tidelog.ids import NO_OFFSET
from tidelog.records.batch import HEADER_SIZE, LOG_APPEND_TIME, check_crc, parse_header, write_crc
from tidelog.records.compression import Codec
from tidelog.records.record import (
    Record,
    assemble_batch,
    batch_body,
    decode_batch,
    encode_batch,
    recompress_batch,
    scan_records,
)
from tidelog.records.varint import decode_varint, decode_varlong, encode_varint

nullable_bytes = st.none() | st.binary(max_size=300)
header_lists = st.lists(st.tuples(st.text(max_size=20), nullable_bytes), max_size=3)
record_lists = st.lists(
    st.builds(
        Record,
        offset=st.just(NO_OFFSET),
        timestamp=st.integers(0, 2**45),
        key=nullable_bytes,
        value=nullable_bytes,
        headers=header_lists.map(tuple),
    ),
    min_size=1,
    max_size=40,
)
SAMPLE = [
    Record(timestamp=1_700_000_000_000, key=b"k1", value=b"v" * 500, headers=(("h", b"x"), ("null", None))),
    Record(timestamp=1_700_000_000_250, key=None, value=b""),
    Record(timestamp=1_699_999_999_000, key=b"", value=None),
]


@settings(max_examples=150, deadline=None)
@given(
    records=record_lists,
    codec=st.sampled_from(list(Codec)),
    base_offset=st.integers(0, 2**62),
    producer=st.sampled_from([(-1, -1, -1), (7, 0, 0), (2**62, 32767, 2**31 - 1)]),
    transactional=st.booleans(),
)
def test_a_decoded_batch_holds_what_was_encoded(
    records: list[Record], codec: Codec, base_offset: int, producer: tuple[int, int, int], transactional: bool
) -> None:
    batch = encode_batch(
        records,
        base_offset=base_offset,
        codec=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transactional=transactional,
        leader_epoch=5,
    )
    expected = [record._replace(offset=base_offset + delta) for delta, record in enumerate(records)]
    assert decode_batch(batch) == expected
    header = parse_header(batch)
    assert header.size_bytes == len(batch)
    assert check_crc(batch, 0, len(batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == producer
    assert (header.codec, header.is_transactional, header.partition_leader_epoch) == (codec, transactional, 5)
    assert header.record_count == len(records)
    assert header.last_offset == expected[-1].offset
    assert header.max_timestamp == max(record.timestamp for record in records)


def test_given_offsets_are_kept_with_their_gaps() -> None:
    records = [Record(offset=offset, timestamp=1, value=b"v") for offset in (103, 107, 110)]
    batch = encode_batch(records, base_offset=100)
    assert [record.offset for record in decode_batch(batch)] == [103, 107, 110]
    assert parse_header(batch).last_offset == 110


def test_log_append_time_is_the_time_of_every_record() -> None:
    batch = encode_batch(SAMPLE, timestamp_type=LOG_APPEND_TIME)
    assert {record.timestamp for record in decode_batch(batch)} == {1_700_000_000_250}


def test_offsets_before_the_base_or_too_far_behind_it_are_refused() -> None:
    for offset in (99, 100 + 2**31):
        with pytest.raises(ValueError, match="base offset 100"):
            encode_batch([Record(offset=offset, timestamp=1)], base_offset=100)


def test_an_empty_batch_is_not_encoded() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        encode_batch([])


@pytest.mark.parametrize("codec", list(Codec))
def test_recompression_keeps_header_and_records(codec: Codec) -> None:
    original = encode_batch(
        SAMPLE, base_offset=9, codec=Codec.GZIP, producer_id=4, producer_epoch=1, base_sequence=3
    )
    repacked = recompress_batch(original, codec)
    assert decode_batch(repacked) == decode_batch(original)
    before, after = parse_header(original), parse_header(repacked)
    assert after.codec == codec
    assert after._replace(attributes=0, crc=0, batch_length=0) == before._replace(
        attributes=0, crc=0, batch_length=0
    )


def test_assemble_batch_rebuilds_the_same_bytes() -> None:
    original = encode_batch(SAMPLE, base_offset=9, codec=Codec.LZ4)
    header = parse_header(original)
    assert assemble_batch(header, batch_body(original, header)) == original


# -- foreign oracles ------------------------------------------------------------------------------


def test_timestamps_further_apart_than_64_bits_hold_are_read_back_by_others_too() -> None:
    times = [2**62 + 5, -(2**62) - 9, -(2**63), 2**63 - 1]
    batch = encode_batch([Record(timestamp=at, value=b"v") for at in times])
    assert [record.timestamp for record in decode_batch(batch)] == times
    assert [record.timestamp for record in AioBatch(batch)] == times


def _read_foreign(batch_class, data: bytes) -> list[Record]:  # type: ignore[no-untyped-def]
    batch = batch_class(data)
    assert batch.validate_crc()
    return [
        Record(r.offset, r.timestamp, r.key, r.value, tuple((name, value) for name, value in r.headers))
        for r in batch
    ]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
def test_kafka_python_reads_our_batches(codec: Codec) -> None:
    batch = encode_batch(SAMPLE, base_offset=40, codec=codec)
    assert _read_foreign(KafkaPythonBatch, batch) == decode_batch(batch)


@pytest.mark.parametrize("codec", list(Codec))
def test_aiokafka_reads_our_batches(codec: Codec) -> None:
    batch = encode_batch(SAMPLE, base_offset=40, codec=codec)
    assert _read_foreign(AioBatch, batch) == decode_batch(batch)


@pytest.mark.parametrize(
    ("builder_class", "codec"),
    [(KafkaPythonBuilder, codec) for codec in (Codec.NONE, Codec.GZIP, Codec.LZ4)]
    + [(AioBuilder, codec) for codec in Codec],
)
def test_we_read_what_foreign_builders_write(builder_class, codec: Codec) -> None:  # type: ignore[no-untyped-def]
    builder = builder_class(
        magic=2,
        compression_type=int(codec),
        is_transactional=1,
        producer_id=77,
        producer_epoch=3,
        base_sequence=12,
        batch_size=1 << 20,
    )
    for delta, record in enumerate(SAMPLE):
        builder.append(delta, record.timestamp, record.key, record.value, list(record.headers))
    data = bytes(builder.build())
    assert decode_batch(data) == [record._replace(offset=delta) for delta, record in enumerate(SAMPLE)]
    header = parse_header(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 12)
    assert header.is_transactional


# -- strictness -----------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(value=st.integers(-(2**63), 2**63 - 1))
def test_varints_round_trip(value: int) -> None:
    encoded = encode_varint(value)
    assert decode_varlong(b"x" + encoded, 1) == (value, 1 + len(encoded))
    assert len(encoded) <= 10
    if -(2**31) <= value < 2**31:
        assert decode_varint(encoded, 0) == (value, len(encoded))
        assert len(encoded) <= 5


@pytest.mark.parametrize("encoded", [b"", b"\x80", b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x01"])
def test_numbers_that_are_cut_or_too_long_are_corrupt(encoded: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decode_varint(encoded, 0)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_one_changed_byte_never_escapes_as_another_exception(data: st.DataObject) -> None:
    batch = bytearray(encode_batch(SAMPLE))
    position = data.draw(st.integers(HEADER_SIZE - 4, len(batch) - 1))
    batch[position] = data.draw(st.integers(0, 255))
    write_crc(batch, 0, len(batch))
    try:
        records = decode_batch(batch)
    except CorruptRecordError:
        return
    assert len(records) == parse_header(batch).record_count


@settings(max_examples=200, deadline=None)
@given(body=st.binary(max_size=80), count=st.integers(-1, 5))
def test_scanning_garbage_raises_corrupt_record_or_stays_inside(body: bytes, count: int) -> None:
    try:
        spans = list(scan_records(body, count))
    except CorruptRecordError:
        return
    assert len(spans) == count
    assert [span.start for span in spans] == [0, *(span.end for span in spans)][:count]
    for span in spans:
        assert span.start < span.key_at <= span.value_at
        assert span.value_at + max(span.value_length, 0) < span.end <= len(body)


def test_a_wrong_crc_is_corrupt_unless_it_is_not_asked_for() -> None:
    batch = bytearray(encode_batch(SAMPLE))
    batch[18] ^= 0xFF
    with pytest.raises(CorruptRecordError, match="CRC"):
        decode_batch(batch)
    assert len(decode_batch(batch, verify_crc=False)) == 3


@pytest.mark.parametrize(
    ("position", "value", "message"), [(16, 1, "magic 1"), (10, 255, "bytes long"), (22, 7, "unknown codec")]
)
def test_impossible_headers_are_corrupt(position: int, value: int, message: str) -> None:
    batch = bytearray(encode_batch(SAMPLE))
    batch[position] = value
    with pytest.raises(CorruptRecordError, match=message):
        decode_batch(batch, verify_crc=False)


def test_a_count_other_than_the_records_there_is_corrupt() -> None:
    for count in (2, 4, -1):
        batch = bytearray(encode_batch(SAMPLE))
        batch[57:61] = count.to_bytes(4, "big", signed=True)
        write_crc(batch, 0, len(batch))
        with pytest.raises(CorruptRecordError):
            decode_batch(batch)


def test_max_size_bounds_what_a_batch_unpacks_to() -> None:
    batch = encode_batch([Record(timestamp=1, value=bytes(1 << 20))], codec=Codec.ZSTD)
    with pytest.raises(CorruptRecordError, match="bytes allowed"):
        decode_batch(batch, max_size=1000)
    assert len(decode_batch(batch, max_size=2 << 20)) == 1
