"""The clients' codec writes the bytes of ``encode_batch`` and of foreign clients, and reads what it wrote."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from benchmarks.codec_modules import NAMES, SOURCES, CodecModules, compiled_file
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from tidelog.errors import CorruptRecordError
from tidelog.ids import NO_OFFSET, TopicPartition
from tidelog.records.batch import LOG_APPEND_TIME, check_crc, parse_header, set_base_offset, set_leader_epoch
from tidelog.records.compression import Codec
from tidelog.records.record import Record, decode_batch, encode_batch

sizes = st.sampled_from([0, 1, 63, 64, 65, 8191, 8192]) | st.integers(0, 300)
nullable_bytes = st.none() | sizes.map(lambda size: bytes(index & 0xFF for index in range(size)))
header_lists = st.lists(st.tuples(st.text(max_size=70), nullable_bytes), max_size=3).map(tuple)
timestamps = st.integers(-1, 2**63 - 1) | st.integers(1_700_000_000_000, 1_700_000_009_000)
records_given = st.lists(
    st.builds(
        Record,
        offset=st.just(NO_OFFSET),
        timestamp=timestamps,
        key=nullable_bytes,
        value=nullable_bytes,
        headers=header_lists,
    ),
    min_size=1,
    max_size=80,
)
SAMPLE = [
    Record(timestamp=1_700_000_000_000, key=b"k1", value=b"v" * 500, headers=(("h", b"x"), ("null", None))),
    Record(timestamp=1_700_000_000_250, key=None, value=b""),
    Record(timestamp=1_699_999_999_000, key=b"", value=None),
]


def built(codec: CodecModules, records: list[Record], compression: Codec = Codec.NONE, **stamp: Any) -> bytes:
    builder = codec.records.BatchBuilder(1 << 30, compression)
    deltas = [builder.append(record.timestamp, *record[2:]) for record in records]
    assert deltas == list(range(len(records)))
    assert builder.record_count == len(records)
    batch: bytes = builder.close(**stamp)
    assert type(batch) is bytes
    return batch


def as_records(decoded: list[tuple[Any, ...]]) -> list[Record]:
    return [Record(offset, time, key, value, headers) for offset, time, _, key, value, headers, _ in decoded]


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith(("_reader", "_writer"))])
def test_the_compiled_codec_is_made_of_the_sources_that_are_there(name: str) -> None:
    compiled = compiled_file(name)
    if compiled is None:
        pytest.skip("the record codec is not compiled in this installation")
    for source in (SOURCES[name], SOURCES[name].with_suffix(".pxd")):
        assert compiled.stat().st_mtime >= source.stat().st_mtime, "run `make setup` to compile it again"


def test_each_variant_says_what_it_is(codec: CodecModules) -> None:
    assert codec.records.COMPILED is codec.columns.COMPILED is (codec.label == "compiled")


# -- building -------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(
    records=records_given,
    compression=st.sampled_from(list(Codec)),
    stamp=st.sampled_from([(-1, -1, -1, False), (7, 0, 0, True), (2**62, 32767, 2**31 - 1, False)]),
)
def test_a_built_batch_has_the_bytes_of_encode_batch(
    codec: CodecModules, records: list[Record], compression: Codec, stamp: tuple[int, int, int, bool]
) -> None:
    names = ("producer_id", "producer_epoch", "base_sequence", "transactional")
    options: dict[str, Any] = dict(zip(names, stamp, strict=True))
    if max(record.timestamp for record in records) - records[0].timestamp < 2**63:
        expected = encode_batch(records, codec=compression, **options)
        assert built(codec, records, compression, **options) == expected


@pytest.mark.parametrize("builder_class", [KafkaPythonBuilder, AioBuilder])
def test_a_built_batch_has_the_bytes_of_foreign_builders(codec: CodecModules, builder_class: Any) -> None:
    builder = builder_class(
        magic=2,
        compression_type=0,
        is_transactional=1,
        producer_id=77,
        producer_epoch=3,
        base_sequence=12,
        batch_size=1 << 20,
    )
    for delta, record in enumerate(SAMPLE):
        builder.append(delta, record.timestamp, record.key, record.value, list(record.headers))
    ours = built(codec, SAMPLE, producer_id=77, producer_epoch=3, base_sequence=12, transactional=True)
    foreign = bytearray(builder.build())
    set_leader_epoch(foreign, 0, -1)  # kafka-python writes 0 here, which no checksum covers
    assert ours == foreign


def test_bytes_like_keys_and_values_are_taken_and_others_refused(codec: CodecModules) -> None:
    class Subclass(bytes):
        pass

    builder = codec.records.BatchBuilder(10_000)
    builder.append(0, bytearray(b"k"), memoryview(b"value")[1:3], [("h", bytearray(b"x"))])
    builder.append(0, Subclass(b"sub"), Subclass(b""))
    for bad in ("text", 5, object()):
        with pytest.raises(TypeError):
            builder.append(0, bad, None)
        with pytest.raises(TypeError):
            builder.append(0, None, bad)
    assert [record[2:] for record in decode_batch(builder.close())] == [
        (b"k", b"al", (("h", b"x"),)),
        (b"sub", b"", ()),
    ]


def test_a_batch_takes_its_first_record_and_then_what_fits(codec: CodecModules) -> None:
    builder = codec.records.BatchBuilder(100)
    assert builder.append(1, None, b"x" * 500) == 0
    assert builder.append(1, None, b"") == -1
    assert builder.record_count == 1
    assert len(builder.close()) == builder.size_bytes

    builder = codec.records.BatchBuilder(1000)
    while builder.append(1, b"key", b"x" * 20) >= 0:
        assert builder.size_bytes <= 1000
    size = builder.size_bytes
    batch = builder.close()
    assert len(batch) == size == builder.size_bytes
    record_size = (size - 61) // builder.record_count
    assert 1000 - record_size < size <= 1000


def test_the_expected_ratio_decides_how_much_a_compressed_batch_takes(codec: CodecModules) -> None:
    counts = {}
    for ratio in (0.1, 0.5, 1.0, 2.0):
        builder = codec.records.BatchBuilder(5000, Codec.GZIP, compression_ratio=ratio)
        while builder.append(1, None, b"x" * 100) >= 0:
            pass
        counts[ratio] = builder.record_count
        expected_size = 61 + sum(
            len(built(codec, [Record(value=b"x" * 100)])) - 61 for _ in range(counts[ratio])
        )
        assert 4700 < builder.size_bytes < 5200
        assert abs(builder.size_bytes - 61 - (expected_size - 61) * ratio * 1.05) < 0.1 * builder.size_bytes
        batch = builder.close()
        assert builder.size_bytes == len(batch) < 5000
        assert len(decode_batch(batch)) == builder.record_count
    assert counts[0.1] > 4 * counts[0.5] > 4 * 1.5 * counts[1.0] > 4 * 1.5 * 1.5 * counts[2.0]


def test_closed_empty_and_impossible_batches_are_refused(codec: CodecModules) -> None:
    builder = codec.records.BatchBuilder(1000)
    with pytest.raises(ValueError, match="no record"):
        builder.close()
    with pytest.raises(ValueError, match="timestamp -2"):
        builder.append(-2, None, b"")
    with pytest.raises((ValueError, OverflowError)):
        builder.append(2**63, None, b"")
    builder.append(1, None, b"v")
    builder.close()
    with pytest.raises(ValueError, match="closed"):
        builder.append(1, None, b"v")
    with pytest.raises(ValueError, match="closed"):
        builder.close()


def test_the_level_reaches_the_codec(codec: CodecModules) -> None:
    text = b" ".join(b"%d" % (number * number) for number in range(5000))
    sizes = []
    for level in (1, 9):
        builder = codec.records.BatchBuilder(1 << 20, Codec.GZIP, level)
        builder.append(1, None, text)
        sizes.append(len(builder.close()))
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize("compression", [Codec.NONE, Codec.LZ4])
def test_a_given_buffer_is_filled_in_place_and_can_be_used_again(
    codec: CodecModules, compression: Codec
) -> None:
    for size in (0, 61, 1000, 10_000):
        buffer = bytearray(b"\xff" * size)
        for _ in range(2):
            builder = codec.records.BatchBuilder(10_000, compression, buffer=buffer)
            for record in SAMPLE:
                builder.append(record.timestamp, *record[2:])
            batch = builder.close_view(producer_id=4)
            assert batch == built(codec, SAMPLE, compression, producer_id=4)
            assert builder.size_bytes == len(batch)
            if size and not compression:
                assert buffer[: len(batch)] == batch
            batch.release()


def test_a_buffer_that_its_owner_shortens_is_not_written_past_its_end(codec: CodecModules) -> None:
    buffer = bytearray(5000)
    builder = codec.records.BatchBuilder(5000, buffer=buffer)
    assert builder.append(1, None, b"x" * 100) == 0
    del buffer[200:]
    assert builder.append(1, None, b"x" * 1000) == 1
    assert len(decode_batch(builder.close())) == 2


@pytest.mark.parametrize("compression", list(Codec))
def test_restamping_changes_the_producer_and_nothing_else(codec: CodecModules, compression: Codec) -> None:
    first = built(codec, SAMPLE, compression, producer_id=5, producer_epoch=1, base_sequence=9)
    stamped = codec.records.restamp(first, 2**40, 2, 0, True)
    assert stamped == built(
        codec, SAMPLE, compression,
        producer_id=2**40, producer_epoch=2, base_sequence=0, transactional=True,
    )  # fmt: skip
    assert codec.records.restamp(stamped, 5, 1, 9, False) == first
    with pytest.raises(CorruptRecordError):
        codec.records.restamp(first[:50], 1, 1, 1, False)


@pytest.mark.parametrize("compression", [Codec.NONE, Codec.ZSTD])
def test_splitting_keeps_every_record_in_order_and_within_the_limit(
    codec: CodecModules, compression: Codec
) -> None:
    records = [Record(timestamp=index, value=b"x" * (index % 400)) for index in range(300)]
    records[100] = Record(timestamp=100, key=b"large", value=b"x" * 5000, headers=(("h", None),))
    groups = codec.records.split(built(codec, records, compression), 1000)
    assert [record for group in groups for record in group] == [
        record._replace(offset=delta) for delta, record in enumerate(records)
    ]
    assert all(len(group) == 1 or len(built(codec, group)) <= 1000 for group in groups)
    for group, following in itertools.pairwise(groups):
        assert len(built(codec, [*group, following[0]])) > 1000


# -- reading --------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(records=records_given, compression=st.sampled_from(list(Codec)), base=st.integers(0, 2**63 - 100))
def test_what_was_built_is_read_back(
    codec: CodecModules, records: list[Record], compression: Codec, base: int
) -> None:
    batch = bytearray(built(codec, records, compression))
    set_base_offset(batch, 0, base)
    set_leader_epoch(batch, 0, 4)
    expected = [(base + delta, record.timestamp, 0, *record[2:], 4) for delta, record in enumerate(records)]
    for data in (batch, bytes(batch), memoryview(batch)):
        assert codec.records.decode_records(data, 0) == expected
    assert codec.records.decode_records(b"before" + batch + b"behind", 0, pos=6) == expected
    middle = len(records) // 2
    assert codec.records.decode_records(batch, base + middle) == expected[middle:]
    assert codec.records.decode_records(batch, base + middle, max_records=1) == expected[middle : middle + 1]
    assert codec.records.decode_records(batch, 0, max_records=0) == []
    assert codec.records.decode_records(batch, base + len(records)) == []


@settings(max_examples=50, deadline=None)
@given(records=records_given, compression=st.sampled_from(list(Codec)))
def test_both_decoders_agree_on_what_encode_batch_wrote(
    codec: CodecModules, records: list[Record], compression: Codec
) -> None:
    numbered = [record._replace(offset=40 + 3 * index) for index, record in enumerate(records)]
    batch = encode_batch(numbered, base_offset=40, codec=compression)
    assert as_records(codec.records.decode_records(batch)) == decode_batch(batch)


def test_append_time_is_the_time_of_every_record(codec: CodecModules) -> None:
    batch = encode_batch(SAMPLE, timestamp_type=LOG_APPEND_TIME)
    decoded = codec.records.decode_records(batch)
    assert {record[1:3] for record in decoded} == {(1_700_000_000_250, LOG_APPEND_TIME)}
    assert {record[6] for record in decoded} == {None}


def test_consumer_records_hold_the_same_as_tuples(codec: CodecModules) -> None:
    batch = encode_batch(SAMPLE, base_offset=9, leader_epoch=3)
    records = codec.records.decode_consumer_records(batch, 10, "orders", 7)
    assert [
        (r.offset, r.timestamp, r.timestamp_type, r.key, r.value, r.headers, r.leader_epoch) for r in records
    ] == codec.records.decode_records(batch, 10)
    assert {(r.topic, r.partition) for r in records} == {("orders", 7)}
    assert records[0].topic_partition == TopicPartition("orders", 7)


def test_consumer_records_compare_hash_print_copy_and_pickle(codec: CodecModules) -> None:
    record = codec.records.decode_consumer_records(encode_batch(SAMPLE, leader_epoch=3), 0, "orders", 7)[0]
    same = codec.records.ConsumerRecord(
        "orders", 7, 0, timestamp=1_700_000_000_000, key=b"k1", value=b"v" * 500,
        headers=(("h", b"x"), ("null", None)), leader_epoch=3,
    )  # fmt: skip
    assert record == same
    assert hash(record) == hash(same)
    assert record != codec.records.ConsumerRecord("orders", 7, 1)
    assert record != record.offset
    assert repr(record).startswith("ConsumerRecord(orders-7@0, timestamp=1700000000000, key=b'k1', value=")
    with codec.installed():
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            assert pickle.loads(pickle.dumps(record, protocol)) == record
        assert copy.deepcopy(record) == record
    record.value = {"decoded": True}
    assert record != same
    with pytest.raises(AttributeError):
        record.other = 1


def test_sums_past_64_bits_wrap_around_as_in_java(codec: CodecModules) -> None:
    batch = bytearray(encode_batch([Record(timestamp=0), Record(timestamp=5, offset=7)]))
    batch[0:8] = (2**63 - 1).to_bytes(8, "big")
    batch[27:35] = (2**63 - 1).to_bytes(8, "big")
    decoded = codec.records.decode_records(batch, -(2**63), check_crc=False)
    assert [record[0] for record in decoded] == [2**63 - 1, -(2**63) + 6]
    assert [record[1] for record in decoded] == [2**63 - 1, -(2**63) + 4]


def test_a_wrong_checksum_is_refused_unless_it_is_not_asked_for(codec: CodecModules) -> None:
    batch = bytearray(built(codec, SAMPLE))
    assert check_crc(batch, 0, len(batch))
    batch[18] ^= 0xFF
    with pytest.raises(CorruptRecordError, match="CRC"):
        codec.records.decode_records(batch)
    assert len(codec.records.decode_records(batch, check_crc=False)) == parse_header(batch).record_count


def test_max_size_bounds_what_a_batch_unpacks_to(codec: CodecModules) -> None:
    batch = encode_batch([Record(timestamp=1, value=bytes(1 << 20))], codec=Codec.ZSTD)
    with pytest.raises(CorruptRecordError, match="bytes allowed"):
        codec.records.decode_records(batch, max_size=1000)
    assert len(codec.records.decode_records(batch, max_size=2 << 20)) == 1


def test_what_stands_behind_max_records_is_not_looked_at(codec: CodecModules) -> None:
    batch = bytearray(built(codec, SAMPLE))
    batch[-8:] = b"\xff" * 8
    assert len(codec.records.decode_records(batch, check_crc=False, max_records=1)) == 1
    with pytest.raises(CorruptRecordError):
        codec.records.decode_records(batch, check_crc=False)


def test_consumer_records_take_type_parameters(codec: CodecModules) -> None:
    record = codec.records.ConsumerRecord
    assert record[bytes, str] == record[bytes, str]
    assert record[bytes, str].__origin__ is record
    assert record[bytes, str]("orders", 0, 1).offset == 1
