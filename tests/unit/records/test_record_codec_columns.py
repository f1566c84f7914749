"""Records as columns: what Arrow shows is what ``decode_batch`` reads, and tables become the same batches."""

from __future__ import annotations

import array
import struct
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from benchmarks.codec_modules import CodecModules
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.errors import CorruptRecordError
from tidelog.ids import NO_OFFSET
from tidelog.records.batch import LOG_APPEND_TIME, RECORD_COUNT_AT, write_crc
from tidelog.records.compression import Codec
from tidelog.records.record import Record, decode_batch, encode_batch

nullable_bytes = st.none() | st.binary(max_size=200)
records_given = st.lists(
    st.builds(
        Record,
        offset=st.just(NO_OFFSET),
        timestamp=st.integers(0, 2**45),
        key=nullable_bytes,
        value=nullable_bytes,
        headers=st.lists(st.tuples(st.text(max_size=20), nullable_bytes), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=40,
)
SAMPLE = [
    Record(timestamp=1_700_000_000_000, key=b"k1", value=b"v" * 500, headers=(("h", b"x"), ("null", None))),
    Record(timestamp=1_700_000_000_250, key=None, value=b""),
    Record(timestamp=1_699_999_999_000, key=b"", value=None),
]


def from_arrow(rows: Any) -> list[Record]:
    times = rows["timestamp"].cast("int64").to_pylist()
    return [
        Record(
            row["offset"], time, row["key"], row["value"], tuple(tuple(h.values()) for h in row["headers"])
        )
        for row, time in zip(rows.to_pylist(), times, strict=True)
    ]


def sent(codec: CodecModules, table: Any, limit_bytes: int = 1 << 20, **options: Any) -> list[Record]:
    builders = codec.arrow.encode_columns(table, limit_bytes=limit_bytes, timestamp_ms=77, **options)
    records: list[Record] = []
    for builder in builders:
        batch = builder.close()
        assert builder.record_count == 1 or len(batch) <= limit_bytes
        records += decode_batch(batch)
    return [record._replace(offset=NO_OFFSET) for record in records]


def in_place(codec: CodecModules, memory: memoryview, *positions: int) -> Any:
    columns = codec.columns.RecordColumns(with_headers=True, memory=memory)
    for position in positions:
        columns.append_batch(memory, pos=position)
    return columns


# -- reading --------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(records=records_given, with_keys=st.booleans(), with_values=st.booleans(), start=st.integers(0, 10))
def test_columns_that_are_not_wanted_are_empty_and_the_others_are_the_same(
    codec: CodecModules, records: list[Record], with_keys: bool, with_values: bool, start: int
) -> None:
    batch = encode_batch(records)
    whole = codec.columns.decode_columns(batch, start, with_headers=True)
    columns = codec.columns.RecordColumns(with_headers=True, with_keys=with_keys, with_values=with_values)
    columns.append_batch(batch, start)
    assert columns.rows == whole.rows
    sizes = [
        sum(len(each or b"") for each in kept)
        for kept in ([r.key for r in records[start:]], [r.value for r in records[start:]])
    ]
    assert columns.size_bytes == sizes[0] * with_keys + sizes[1] * with_values
    names = ["offset", "timestamp", "headers", *["key"] * with_keys, *["value"] * with_values]
    rows = codec.arrow.to_arrow("orders", 3, columns, names)
    rows.validate(full=True)
    assert rows.equals(codec.arrow.to_arrow("orders", 3, whole).select(names))


@settings(max_examples=30, deadline=None)
@given(
    lists=st.lists(st.tuples(records_given, st.sampled_from(list(Codec))), min_size=1, max_size=4),
    start=st.integers(0, 60),
)
def test_arrow_shows_the_records_of_all_batches_of_a_fetch(
    codec: CodecModules, lists: list[tuple[list[Record], Codec]], start: int
) -> None:
    data = b""
    expected: list[Record] = []
    for records, compression in lists:
        batch = encode_batch(records, base_offset=len(expected), codec=compression)
        data += batch
        expected += decode_batch(batch)
    columns = codec.columns.decode_columns(data + data[:40], start, with_headers=True)
    rows = codec.arrow.to_arrow("orders", 3, columns)
    rows.validate(full=True)
    assert from_arrow(rows) == expected[start:]
    assert len(columns) == rows.num_rows == len(expected[start:])
    assert columns.size_bytes == sum(len(r.key or b"") + len(r.value or b"") for r in expected[start:])
    without = codec.arrow.to_arrow("orders", 3, codec.columns.decode_columns(memoryview(data), start))
    assert without.equals(rows.drop_columns("headers"))


def test_the_schema_is_the_one_announced(codec: CodecModules) -> None:
    for with_headers in (False, True):
        columns = codec.columns.decode_columns(encode_batch(SAMPLE), with_headers=with_headers)
        rows = codec.arrow.to_arrow("orders", 3, columns)
        assert rows.schema == codec.arrow.arrow_schema(with_headers=with_headers)
    assert rows["topic"].to_pylist() == ["orders"] * 3
    assert rows["partition"].to_pylist() == [3] * 3
    assert rows["timestamp_type"].to_pylist() == [0] * 3


@settings(max_examples=30, deadline=None)
@given(lists=st.lists(records_given, min_size=1, max_size=4))
def test_values_moved_together_in_place_are_those_that_were_copied(
    codec: CodecModules, lists: list[list[Record]]
) -> None:
    batches = [encode_batch(records, base_offset=100 * number) for number, records in enumerate(lists)]
    positions = [sum(map(len, batches[:number])) for number in range(len(batches))]
    memory = memoryview(bytearray(b"".join(batches)))
    moved = codec.arrow.to_arrow("t", 0, in_place(codec, memory, *positions))
    moved.validate(full=True)
    assert from_arrow(moved) == [record for each in batches for record in decode_batch(each)]
    values = [value for records in lists for record in records if (value := record.value)]
    assert bytes(memory).startswith(b"".join(values))


def test_a_bad_batch_is_left_as_it_is_by_columns_in_its_place(codec: CodecModules) -> None:
    good, bad = encode_batch(SAMPLE), bytearray(encode_batch(SAMPLE, base_offset=3))
    struct.pack_into(">i", bad, RECORD_COUNT_AT, len(SAMPLE) + 1)
    write_crc(bad, 0, len(bad))
    memory = memoryview(bytearray(good + bad))
    columns = in_place(codec, memory, 0)
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="does not fit"):
            columns.append_batch(memory, pos=len(good))
    assert bytes(memory[len(good) :]) == bad
    shown = from_arrow(codec.arrow.to_arrow("t", 0, columns))
    assert [(each.key, each.value) for each in shown] == [(each.key, each.value) for each in SAMPLE]


def test_only_uncompressed_batches_of_its_own_memory_can_be_read_in_place(codec: CodecModules) -> None:
    plain, packed = encode_batch(SAMPLE), encode_batch(SAMPLE, codec=Codec.GZIP)
    memory = memoryview(bytearray(plain + packed))
    columns = in_place(codec, memory, 0)
    for data, position in ((memory, len(plain)), (memoryview(bytearray(plain)), 0), (memory, 0)):
        with pytest.raises((ValueError, CorruptRecordError)):
            columns.append_batch(data, pos=position)
    assert columns.rows == len(SAMPLE)


def test_no_records_make_an_empty_batch(codec: CodecModules) -> None:
    columns = codec.columns.decode_columns(b"", with_headers=True)
    rows = codec.arrow.to_arrow("orders", 3, columns)
    rows.validate(full=True)
    assert rows.num_rows == 0
    assert rows.schema == codec.arrow.arrow_schema(with_headers=True)


def test_arrow_uses_the_memory_of_the_columns(codec: CodecModules) -> None:
    columns = codec.columns.decode_columns(encode_batch(SAMPLE))
    rows = codec.arrow.to_arrow("orders", 3, columns)
    data = columns.values.buffers()[2]
    assert rows["value"].buffers()[2].address == pa.py_buffer(data).address
    assert rows["offset"].buffers()[1].address == pa.py_buffer(columns.offsets).address


def test_control_batches_are_passed_over_and_append_time_is_shown(codec: CodecModules) -> None:
    marker = encode_batch([Record(timestamp=5, key=bytes(4), value=bytes(6))], control=True)
    data = marker + encode_batch(SAMPLE, base_offset=1, timestamp_type=LOG_APPEND_TIME)
    rows = codec.arrow.to_arrow("orders", 3, codec.columns.decode_columns(data))
    assert rows["offset"].to_pylist() == [1, 2, 3]
    assert rows["timestamp_type"].to_pylist() == [1, 1, 1]
    assert set(rows["timestamp"].cast("int64").to_pylist()) == {1_700_000_000_250}


def test_header_keys_that_are_no_utf8_get_replacement_characters(codec: CodecModules) -> None:
    record = Record(timestamp=1, value=b"v", headers=(("abcdef", b"x"), ("é", b"")))
    data = encode_batch([record]).replace(b"abcdef", b"ab\xff\xfe\xfdf")
    columns = codec.columns.decode_columns(data, check_crc=False, with_headers=True)
    rows = codec.arrow.to_arrow("orders", 3, columns)
    rows.validate(full=True)
    assert from_arrow(rows) == decode_batch(data, verify_crc=False)


def test_a_broken_batch_leaves_the_columns_as_they_were(codec: CodecModules) -> None:
    columns = codec.columns.RecordColumns(with_headers=True)
    good = encode_batch(SAMPLE)
    broken = bytearray(good)
    broken[-1] = 9
    assert columns.append_batch(good) == 3
    for _ in range(3):
        with pytest.raises(CorruptRecordError):
            columns.append_batch(broken, check_crc=False)
    assert columns.append_batch(b"...." + good, 1, pos=4) == 2
    rows = codec.arrow.to_arrow("orders", 3, columns)
    rows.validate(full=True)
    assert from_arrow(rows) == decode_batch(good) + decode_batch(good)[1:]


# -- writing --------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    records=records_given,
    compression=st.sampled_from(list(Codec)),
    limit=st.sampled_from([100, 1000, 1 << 20]),
)
def test_what_was_read_into_arrow_can_be_sent_again(
    codec: CodecModules, records: list[Record], compression: Codec, limit: int
) -> None:
    columns = codec.columns.decode_columns(encode_batch(records), with_headers=True)
    rows = codec.arrow.to_arrow("orders", 3, columns)
    builders = codec.arrow.encode_columns(rows, limit_bytes=limit, timestamp_ms=1, codec=compression)
    assert [r._replace(offset=-1) for b in builders for r in decode_batch(b.close())] == records
    if limit == 1 << 20:
        assert sent(codec, pa.Table.from_batches([rows, rows])) == records + records
    middle = len(records) // 2
    assert sent(codec, rows.slice(middle, 3)) == records[middle : middle + 3]


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view(), pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
    ],
    ids=str,
)  # fmt: skip
def test_every_kind_of_text_and_bytes_column_is_sent(codec: CodecModules, kind: Any) -> None:
    texts = ["a", None, "", "longer than twelve bytes", "ü"]
    column = pa.array(texts, pa.string())
    column = column.dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)
    table = pa.table({"value": pa.chunked_array([column, column.slice(2, 2)])})
    expected = [None if text is None else text.encode() for text in [*texts, *texts[2:4]]]
    assert [record.value for record in sent(codec, table)] == expected
    assert {(record.key, record.timestamp, record.headers) for record in sent(codec, table)} == {
        (None, 77, ())
    }


def test_fixed_size_and_null_columns_are_sent(codec: CodecModules) -> None:
    table = pa.table({"key": pa.nulls(2), "value": pa.array([b"ab", None], pa.binary(2))})
    assert sent(codec, table) == [Record(NO_OFFSET, 77, None, b"ab"), Record(NO_OFFSET, 77, None, None)]
    assert sent(codec, table.slice(0, 0)) == []


@pytest.mark.parametrize(
    "column",
    [
        pa.array([5, None, 7]),
        pa.array([5, None, 7], pa.int32()),
        pa.array([5, None, 7], pa.timestamp("ms")),
        pa.array([5000, None, 7999], pa.timestamp("us", "UTC")),
    ],
    ids=lambda column: str(column.type),
)
def test_timestamps_are_times_or_milliseconds_and_null_means_now(codec: CodecModules, column: Any) -> None:
    table = pa.table({"value": pa.array([b"", b"", b""]), "timestamp": column})
    assert [record.timestamp for record in sent(codec, table)] == [5, 77, 7]
    assert [record.timestamp for record in sent(codec, table.slice(2))] == [7]


def test_headers_may_be_maps(codec: CodecModules) -> None:
    kind = pa.map_(pa.string(), pa.binary())
    headers = pa.array([[("a", b"1"), ("b", None)], None, []], kind)
    table = pa.table({"value": pa.array([b"", b"", b""]), "headers": headers})
    assert [record.headers for record in sent(codec, table)] == [(("a", b"1"), ("b", None)), (), ()]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"timestamp": [1]}), "key or a value"),
        (pa.table({"value": [b""], "colour": [1]}), "no column colour"),
        (pa.table({"value": [1]}), "value column holds int64"),
        (pa.table({"value": [b""], "timestamp": ["now"]}), "timestamp column holds string"),
    ],
)
def test_tables_that_are_no_records_are_refused(codec: CodecModules, table: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        codec.arrow.encode_columns(table, limit_bytes=1000, timestamp_ms=1)


def test_buffers_that_do_not_fit_together_are_refused(codec: CodecModules) -> None:
    view = codec.columns.BinaryView
    offsets = array.array("i", [0, 1, 3])
    with pytest.raises(ValueError, match="too short"):
        view(3, offsets, b"abc")
    with pytest.raises(ValueError, match="too short"):
        view(2, offsets, b"abc", b"")
    with pytest.raises(ValueError, match="-1 rows"):
        view(-1, offsets, b"abc")
    builder = codec.records.BatchBuilder(1000)
    for bad in ([0, 1, 4], [0, -1, 1], [2, 1, 3], [-5, 1, 3]):
        source = codec.columns.ColumnSource(2, values=view(2, array.array("i", bad), b"abc"))
        with pytest.raises(ValueError, match="outside"):
            codec.columns.append_rows(builder, source)
    source = codec.columns.ColumnSource(2, values=view(2, offsets, b"abc"))
    for start, rows in ((-1, None), (-1, bytes(4)), (0, (2).to_bytes(4, sys.byteorder)), (0, b"\xff" * 4)):
        with pytest.raises(IndexError):
            codec.columns.append_rows(builder, source, start, rows)
    with pytest.raises(ValueError, match="rows"):
        codec.columns.ColumnSource(3, values=view(2, offsets, b"abc"))


# -- partitioning ---------------------------------------------------------------------------------

# From Kafka's own test of its hash.
JAVA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", list(JAVA_HASHES))
def test_murmur2_is_javas(codec: CodecModules, key: bytes) -> None:
    assert codec.columns.murmur2(key) == JAVA_HASHES[key] % 2**32


@settings(max_examples=200, deadline=None)
@given(key=st.binary(max_size=40))
def test_murmur2_is_aiokafkas(codec: CodecModules, key: bytes) -> None:
    assert codec.columns.murmur2(key) == aiokafka_murmur2(key) % 2**32


@settings(max_examples=50, deadline=None)
@given(keys=st.lists(nullable_bytes, max_size=60), partitions=st.integers(1, 12), skipped=st.integers(0, 9))
def test_rows_go_to_the_partition_of_their_key_in_order(
    codec: CodecModules, keys: list[bytes | None], partitions: int, skipped: int
) -> None:
    table = pa.table({"key": pa.array([b"x"] * skipped + keys, pa.binary())}).slice(skipped)
    rows = list(range(len(keys)))
    for source in codec.arrow.column_sources(table, 1):
        groups, keyless = codec.columns.partition_rows(source.keys, partitions)
        assert len(groups) == partitions
        assert list(memoryview(keyless).cast("i")) == [row for row in rows if keys[row] is None]
        for partition, group in enumerate(groups):
            chosen = [
                row for row in rows
                if (key := keys[row]) is not None
                and (aiokafka_murmur2(key) & 0x7FFFFFFF) % partitions == partition
            ]  # fmt: skip
            assert list(memoryview(group).cast("i")) == chosen
            if chosen:
                builder = codec.records.BatchBuilder(1 << 20)
                assert codec.columns.append_rows(builder, source, 0, group) == len(chosen)
                assert [r.key for r in decode_batch(builder.close())] == [keys[row] for row in chosen]


def test_pyarrow_is_loaded_only_when_it_is_used() -> None:
    program = (
        "import sys, tidelog.records.arrow; sys.exit('pyarrow' in sys.modules or 'cython' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
