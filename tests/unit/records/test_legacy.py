"""Formats 0 and 1: recognised, and read as kafka-python and aiokafka write them."""

from __future__ import annotations

import tracemalloc

import lz4.frame
import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AioBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatch
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder
from tests.rigs.old_formats import EVERY_FORMAT, Old, numbered_records, old_set, seen

from tidelog.errors import CorruptRecordError
from tidelog.records.batch import MAX_INT32, check_crc, header_at, iter_batches, leading_batches
from tidelog.records.batch_walk import WalkLimits
from tidelog.records.compression import Codec, compress
from tidelog.records.legacy import (
    LegacyMessage,
    batch_of,
    is_legacy,
    iter_legacy,
    messages_in,
    pack_legacy,
    parse_legacy,
    unwrap_legacy,
)
from tidelog.records.record import Record, decode_batch, encode_batch

LIMITS = WalkLimits(10_000, 100)
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
    [(0, Codec.NONE), (0, Codec.GZIP), (1, Codec.NONE), (1, Codec.GZIP), (1, Codec.SNAPPY), (1, Codec.LZ4)],
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
        messages = [inner for outer in iter_legacy(data) for inner in unwrap_legacy(outer, LIMITS)]
    except CorruptRecordError:
        return
    assert len(messages) <= 3


# -- as batches of a log ------------------------------------------------------------------------------


@pytest.mark.parametrize(("magic", "codec"), EVERY_FORMAT)
def test_each_message_counts_as_a_batch(magic: int, codec: Codec) -> None:
    records = numbered_records(5, first=40)
    data = old_set(records, magic, codec) + encode_batch([Record(timestamp=1)], base_offset=45)
    batches = list(iter_batches(data))
    outer = 1 if codec else 5
    assert [header.magic for _, header in batches] == [magic] * outer + [2]
    assert all(check_crc(data, pos, header.size_bytes) for pos, header in batches)
    assert [header.last_offset for _, header in batches[:-1]] == ([44] if codec else list(range(40, 45)))
    assert {header.codec for _, header in batches[:-1]} == {codec}
    assert {header.has_producer_id or header.is_control for _, header in batches} == {False}
    assert {header.partition_leader_epoch for _, header in batches[:-1]} == {-1}
    newest = records[-1].timestamp if magic else -1
    assert max(header.max_timestamp for _, header in batches[:-1]) == newest
    assert sum(header.size_bytes for _, header in batches) == len(data)
    assert leading_batches(data, 1000, 1 << 20) == (outer + 1, len(data))
    assert leading_batches(data, 2, 1 << 20)[0] == 2
    # Cut short it is left out, however few bytes of it are left.
    first = batches[0][1].size_bytes
    for size in range(first):
        assert not list(iter_batches(data[:size]))


@pytest.mark.parametrize(("magic", "codec"), EVERY_FORMAT)
def test_a_message_becomes_a_batch_with_the_same_records(magic: int, codec: Codec) -> None:
    records = [*numbered_records(50, first=40), Old(99, 1500000000000, None, None)]
    data = old_set(records, magic, codec)
    batches = [batch_of(parse_legacy(data, pos)) for pos, _ in iter_batches(data)]
    found = [Old(*record[:4]) for batch in batches for record in decode_batch(batch)]
    assert found == seen(records, magic)


def test_log_append_time_is_that_of_the_outer_message() -> None:
    inner = b"".join(pack_legacy(offset, 1, 0, 1000 + offset, None, b"v") for offset in range(3))
    outer = parse_legacy(pack_legacy(12, 1, 1 | 8, 7777, None, compress(Codec.GZIP, inner)))
    assert [(each.offset, each.timestamp) for each in messages_in(outer)] == [
        (10, 7777),
        (11, 7777),
        (12, 7777),
    ]
    assert [record.timestamp for record in decode_batch(batch_of(outer))] == [7777] * 3
    assert header_at(batch_of(outer)).timestamp_type == 1


@pytest.mark.parametrize("checksum", [0x1A, 0x82, 0x00])
def test_lz4_frames_of_format_0_are_read_whatever_their_header_checksum(checksum: int) -> None:
    outer = parse_legacy(old_set(numbered_records(9), 0, Codec.LZ4))
    assert outer.value is not None
    assert outer.value[6] == 0x1A
    value = outer.value[:6] + bytes([checksum]) + outer.value[7:]
    assert len(unwrap_legacy(outer._replace(value=value))) == 9


def test_lz4_frames_of_format_0_may_say_how_long_they_are() -> None:
    inner = old_set(numbered_records(9), 0)
    frame = bytearray(lz4.frame.compress(inner, store_size=True))
    assert frame[4] & 0x08
    frame[14] ^= 0xFF
    outer = parse_legacy(pack_legacy(8, 0, Codec.LZ4, -1, None, bytes(frame)))
    assert len(unwrap_legacy(outer)) == 9


def test_more_messages_than_are_held_are_read_too() -> None:
    records = numbered_records(5000, first=77)
    found = unwrap_legacy(parse_legacy(old_set(records, 1, Codec.GZIP)))
    assert [Old(each.offset, each.timestamp, each.key, each.value) for each in found] == records


def test_messages_of_the_other_format_inside_are_read_as_kafka_reads_them() -> None:
    inner = pack_legacy(0, 0, 0, -1, b"a", b"1") + pack_legacy(1, 1, 0, 1234, b"b", b"2")
    outer = parse_legacy(pack_legacy(6, 1, 1, 1234, None, compress(Codec.GZIP, inner)))
    assert [(each.offset, each.timestamp) for each in messages_in(outer)] == [(5, -1), (6, 1234)]


# -- what must not be believed ------------------------------------------------------------------------


def wrapper(inner: bytes, *, offset: int = 10, magic: int = 1, codec: int = Codec.GZIP) -> LegacyMessage:
    packed = compress(Codec(codec), inner) if codec in (1, 2, 3) else inner
    return parse_legacy(pack_legacy(offset, magic, codec, 1, None, packed))


PLAIN = pack_legacy(0, 1, 0, 1, b"k", b"v")
HOSTILE = {
    "carries a compressed one": wrapper(pack_legacy(0, 1, 1, 1, None, compress(Codec.GZIP, PLAIN))),
    "is empty": wrapper(b""),
    "has no value": parse_legacy(pack_legacy(3, 1, 1, 1, None, None)),
    "unknown codec": wrapper(PLAIN, codec=4),
    "an unknown codec": wrapper(PLAIN, codec=7),
    "cannot be decompressed": parse_legacy(pack_legacy(3, 1, 1, 1, None, b"no gzip")),
    "as its last inner offset": wrapper(pack_legacy(11, 1, 0, 1, None, None)),
    "behind": wrapper(PLAIN + PLAIN),
    "carries offset -": wrapper(pack_legacy(-(1 << 60), 1, 0, 1, None, None) + PLAIN),
    "carries offset 11": wrapper(pack_legacy(11, 0, 0, 1, None, None), magic=0),
    "is impossible": wrapper(PLAIN[:8] + b"\xff\xff\xff\xff" + PLAIN[12:]),
    "of 2147483659 bytes": wrapper(PLAIN[:8] + b"\x7f\xff\xff\xff" + PLAIN[12:]),
    "more than 10000 bytes": wrapper(pack_legacy(0, 1, 0, 1, None, bytes(1 << 20))),
    "more than 100 others": wrapper(PLAIN * 200),
    "the lz4 frame is cut short": parse_legacy(pack_legacy(3, 0, 3, 1, None, b"\x04\x22")),
    "does not fit its message": wrapper(PLAIN[:22] + b"\0" * 4 + (1 << 20).to_bytes(4, "big") + PLAIN[30:]),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_compressed_message_that_lies_is_refused(what: str) -> None:
    with pytest.raises(CorruptRecordError, match=what):
        unwrap_legacy(HOSTILE[what], LIMITS)


def test_a_compressed_message_that_unpacks_to_much_takes_little_memory() -> None:
    bomb = wrapper(bytes(1 << 27))
    assert len(bomb.value or b"") < 1 << 18
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError, match="is impossible"):
            unwrap_legacy(bomb)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_offsets_too_far_apart_for_a_batch_are_refused() -> None:
    far = pack_legacy(0, 1, 0, 1, None, None) + pack_legacy(MAX_INT32 + 1, 1, 0, 1, None, None)
    with pytest.raises(CorruptRecordError, match="too far apart"):
        batch_of(wrapper(far, offset=MAX_INT32 + 1))
