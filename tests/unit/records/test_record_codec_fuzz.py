"""The clients' codec against garbage: it agrees with ``decode_batch`` on what is a batch, never crashes."""

from __future__ import annotations

import gc
import random
import resource
import sys

import pytest
from benchmarks.codec_modules import CodecModules

from tidelog.errors import CorruptRecordError
from tidelog.records.batch import HEADER_SIZE, parse_header
from tidelog.records.compression import Codec
from tidelog.records.record import Record, assemble_batch, decode_batch, encode_batch
from tidelog.records.varint import encode_varint

MAX_SIZE = 1 << 20
CORRUPT = "corrupt"


def wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def read_by_decode_batch(data: bytes) -> list[Record] | str:
    try:
        records = decode_batch(data, verify_crc=False, max_size=MAX_SIZE)
    except CorruptRecordError:
        return CORRUPT
    return [Record(wrapped(record.offset), wrapped(record.timestamp), *record[2:]) for record in records]


def read_by_codec(codec: CodecModules, data: bytes) -> list[Record] | str:
    try:
        decoded = codec.records.decode_records(data, -(2**63), check_crc=False, max_size=MAX_SIZE)
    except CorruptRecordError:
        return CORRUPT
    return [Record(offset, time, key, value, headers) for offset, time, _, key, value, headers, _ in decoded]


def read_as_columns(codec: CodecModules, data: bytes) -> list[Record] | str:
    columns = codec.columns.RecordColumns(with_headers=True)
    try:
        columns.append_batch(data, -(2**63), check_crc=False, max_size=MAX_SIZE)
    except CorruptRecordError:
        assert columns.rows == columns.keys.rows == columns.values.rows == columns.header_keys.rows == 0
        return CORRUPT
    rows = codec.arrow.to_arrow("t", 0, columns)
    rows.validate(full=True)
    return [
        Record(offset, time, key, value, tuple((pair["key"], pair["value"]) for pair in headers))
        for offset, time, key, value, headers in zip(
            rows["offset"].to_pylist(),
            rows["timestamp"].cast("int64").to_pylist(),
            rows["key"].to_pylist(),
            rows["value"].to_pylist(),
            rows["headers"].to_pylist(),
            strict=True,
        )
    ]


def random_batch(chance: random.Random) -> bytes:
    def some_bytes() -> bytes | None:
        size = chance.choice([-1, 0, 1, 2, 60, 70, 130, 300])
        return None if size < 0 else chance.randbytes(size)

    time = chance.choice([-1, 0, 1_700_000_000_000, 2**62])
    records = [
        Record(
            timestamp=time + chance.choice([0, 1, 100, 10**6, 2**40]),
            key=some_bytes(),
            value=some_bytes(),
            headers=tuple(
                (chance.choice(["a", "é" * 40, ""]), some_bytes()) for _ in range(chance.choice([0, 0, 1, 3]))
            ),
        )
        for _ in range(chance.randrange(1, 8))
    ]
    codec = chance.choice([Codec.NONE] * 6 + list(Codec))
    return encode_batch(records, codec=codec, base_offset=chance.choice([0, 5, 2**63 - 3]))


def mutated(batch: bytes, chance: random.Random) -> bytes:
    data = bytearray(batch)
    kind = chance.randrange(5)
    for _ in range(chance.choice([0, 1, 1, 1, 2, 5])):
        start = chance.choice([0, 57, HEADER_SIZE, HEADER_SIZE, HEADER_SIZE])
        if start >= len(data):
            break
        at = chance.randrange(start, len(data))
        if kind == 0:
            data[at] = chance.randrange(256)
        elif kind == 1:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 2:
            data[at : at + chance.randrange(1, 6)] = b"\xff" * chance.randrange(10)
        elif kind == 3:
            del data[at : at + chance.randrange(1, 10)]
        else:
            data[at] = chance.choice([0x7F, 0x80, 0xFF, 0, 1, 2])
    if chance.random() < 0.8:
        data[8:12] = max(0, len(data) - 12).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize("seed", range(3))
def test_mutated_batches_are_read_like_decode_batch_or_refused_like_it(
    codec: CodecModules, seed: int
) -> None:
    chance = random.Random(seed)
    refused = 0
    for _ in range(100):
        batch = random_batch(chance)
        for _ in range(10):
            data = mutated(batch, chance)
            expected = read_by_decode_batch(data)
            assert read_by_codec(codec, data) == expected, data
            assert read_as_columns(codec, data) == expected, data
            refused += expected == CORRUPT
    assert 200 < refused < 800


def test_every_truncation_is_refused(codec: CodecModules) -> None:
    sample = Record(timestamp=5, key=b"key", value=b"value" * 30, headers=(("h", b"x"), ("n", None)))
    batch = encode_batch([sample, sample._replace(timestamp=10**6)])
    body = batch[HEADER_SIZE:]
    for end in range(len(batch)):
        with pytest.raises(CorruptRecordError):
            codec.records.decode_records(batch[:end], check_crc=False)
    for end in range(len(body)):
        shorter = bytes(assemble_batch(parse_header(batch), body[:end]))
        with pytest.raises(CorruptRecordError):
            codec.records.decode_records(shorter)
        with pytest.raises(CorruptRecordError):
            codec.columns.decode_columns(shorter)


@pytest.mark.parametrize("number", [-(2**31), -2, -1, 2**31 - 1, 2**32, 2**62, -(2**63)])
@pytest.mark.parametrize("field", range(5))
def test_huge_and_negative_numbers_are_read_like_decode_batch(
    codec: CodecModules, field: int, number: int
) -> None:
    # Offset delta, key length, value length, header count, header key length.
    numbers = [0, 1, 1, 1, 1]
    numbers[field] = number
    delta, key, value, headers, name = map(encode_varint, numbers)
    fields = b"\0\0" + delta + key + b"k" + value + b"v" + headers + name + b"h" + encode_varint(-1)
    for length in (len(fields), number):
        body = encode_varint(length) + fields
        for count in (1, 2, 2**31 - 1, -1):
            header = parse_header(encode_batch([Record(timestamp=1)]))._replace(record_count=count)
            batch = bytes(assemble_batch(header, body))
            expected = read_by_decode_batch(batch)
            assert read_by_codec(codec, batch) == expected
            assert read_as_columns(codec, batch) == expected


def test_reading_and_writing_over_and_over_takes_no_more_memory(codec: CodecModules) -> None:
    chance = random.Random(9)
    batches = [random_batch(chance) for _ in range(20)]
    batches += [mutated(batch, chance) for batch in batches]

    def work() -> None:
        for data in batches:
            builder = codec.records.BatchBuilder(5000)
            for record in read_by_codec(codec, data):
                if isinstance(record, Record) and record.timestamp >= -1:
                    builder.append(record.timestamp, *record[2:])
            if builder.record_count:
                codec.records.restamp(builder.close(), 1, 1, 1, True)
            read_as_columns(codec, data)
            codec.records.ConsumerRecord("t", 0, 0, value=[data])

    rounds = 15 if codec.label == "compiled" else 8
    for _ in range(rounds):
        work()
    gc.collect()
    objects = len(gc.get_objects())
    blocks = sys.getallocatedblocks()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(rounds):
        work()
    gc.collect()
    assert len(gc.get_objects()) - objects < 100
    assert sys.getallocatedblocks() - blocks < 500
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 8192
