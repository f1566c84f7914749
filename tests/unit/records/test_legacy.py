"""Formats 0 and 1: recognised, and read as kafka-python and aiokafka write them."""

from __future__ import annotations

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AioBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatch
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder

from tidelog.errors import CorruptRecordError
from tidelog.records.compression import Codec
from tidelog.records.legacy import is_legacy, iter_legacy, parse_legacy, unwrap_legacy
from tidelog.records.record import Record, encode_batch

MESSAGES = [
    (1_500_000_000_000, b"k", b"value" * 50),
    (1_500_000_000_001, None, b""),
    (1_500_000_000_002, b"k2", None),
]


def _message_set(builder_class, magic: int, codec: Codec) -> bytes:  # type: ignore[no-untyped-def]
    builder = builder_class(magic=magic, compression_type=int(codec), batch_size=1 << 20)
    for offset, (timestamp, key, value) in enumerate(MESSAGES):
        builder.append(offset, timestamp, key, value)
    data = builder.build()
    if codec:
        # Clients leave the wrapper's offset at 0; the broker gives it that of its last message.
        data[0:8] = (len(MESSAGES) - 1).to_bytes(8, "big")
    return bytes(data)


@pytest.mark.parametrize("builder_class", [KafkaPythonBuilder, AioBuilder])
@pytest.mark.parametrize(
    ("magic", "codec"),
    [(0, Codec.NONE), (0, Codec.GZIP), (1, Codec.NONE), (1, Codec.GZIP), (1, Codec.LZ4)],
)
def test_we_read_what_foreign_builders_write(builder_class, magic: int, codec: Codec) -> None:  # type: ignore[no-untyped-def]
    data = _message_set(builder_class, magic, codec)
    assert is_legacy(data)
    messages = [inner for outer in iter_legacy(data) for inner in unwrap_legacy(outer)]
    assert [message.offset for message in messages] == [0, 1, 2]
    assert [(message.key, message.value) for message in messages] == [(k, v) for _, k, v in MESSAGES]
    assert all(message.crc_valid and message.magic == magic for message in messages)
    expected = [timestamp for timestamp, _, _ in MESSAGES] if magic else [-1] * 3
    assert [message.timestamp for message in messages] == expected


def test_inner_offsets_of_format_1_count_back_from_the_wrapper() -> None:
    data = bytearray(_message_set(KafkaPythonBuilder, 1, Codec.GZIP))
    data[0:8] = (1002).to_bytes(8, "big")
    foreign = [record.offset for record in LegacyRecordBatch(bytes(data), 1)]
    assert [message.offset for message in unwrap_legacy(parse_legacy(data))] == foreign == [1000, 1001, 1002]


def test_a_changed_byte_shows_as_invalid_crc() -> None:
    data = bytearray(_message_set(KafkaPythonBuilder, 1, Codec.NONE))
    data[40] ^= 1
    assert not parse_legacy(data).crc_valid


def test_batches_of_format_2_are_not_legacy() -> None:
    batch = encode_batch([Record(timestamp=1, value=b"v")])
    assert not is_legacy(batch)
    assert not is_legacy(b"\0" * 10)
    with pytest.raises(CorruptRecordError, match="magic 2"):
        parse_legacy(batch)


def test_a_last_message_that_is_cut_short_is_left_out() -> None:
    data = _message_set(KafkaPythonBuilder, 0, Codec.NONE)
    assert len(list(iter_legacy(data[:-1]))) == 2


@settings(max_examples=200, deadline=None)
@given(position=st.integers(8, 80), value=st.integers(0, 255), magic=st.sampled_from([0, 1]))
def test_changed_bytes_raise_nothing_but_corrupt_record(position: int, value: int, magic: int) -> None:
    data = bytearray(_message_set(KafkaPythonBuilder, magic, Codec.GZIP))
    data[position % len(data)] = value
    try:
        messages = [inner for outer in iter_legacy(data) for inner in unwrap_legacy(outer, max_size=10_000)]
    except CorruptRecordError:
        return
    assert len(messages) <= 3
