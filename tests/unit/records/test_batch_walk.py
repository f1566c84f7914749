"""Walking over records in pieces: the same verdict as a decoder that has everything at once."""

from __future__ import annotations

import random
from types import ModuleType

import lz4.frame
import pytest
from benchmarks.codec_modules import CodecModules
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import CorruptRecordError
from tidelog.ids import NO_OFFSET
from tidelog.records import record_walker
from tidelog.records.batch import HEADER_SIZE, parse_header
from tidelog.records.batch_walk import BatchWalk, WalkLimits, body_stream, search_walk
from tidelog.records.body_compressor import BodyCompressor
from tidelog.records.body_stream import BodyStream, BodyTooLargeError, UnportableBodyError
from tidelog.records.compression import Codec, compress, decompress
from tidelog.records.record import Record, batch_body, decode_batch, encode_batch
from tidelog.records.record_walker import BAD_KEY, BAD_OFFSET, BAD_TIMESTAMP, MAX_BAD_RECORDS, RecordWalker
from tidelog.records.varint import encode_varint

NOW = 1_700_000_000_000
PLENTY = WalkLimits(1 << 30, 1 << 30)
CODECS = list(Codec)

fields = st.none() | st.binary(max_size=200)
record = st.builds(
    Record,
    offset=st.just(NO_OFFSET),
    timestamp=st.integers(NOW - 1000, NOW + (1 << 30)),
    key=fields,
    value=fields,
    headers=st.lists(st.tuples(st.text(max_size=5), fields), max_size=3),
)


@pytest.fixture
def walker(codec: CodecModules) -> ModuleType:
    """``record_walker``, compiled and interpreted."""
    return codec.walker


def in_pieces(body: bytes, cuts: random.Random) -> list[bytes]:
    pieces = []
    while body:
        size = cuts.choice([1, 1, 2, 3, 7, 64, 1000])
        pieces.append(body[:size])
        body = body[size:]
    return pieces


def verdict(module: ModuleType, count: int, pieces: list[bytes]) -> tuple[int, int] | str:
    """The highest timestamp and its record, or that the records cannot be read."""
    walker = module.RecordWalker(count, NOW)
    try:
        for piece in pieces:
            walker.feed(piece)
        walker.finish()
    except CorruptRecordError:
        return "corrupt"
    return walker.max_timestamp, walker.max_timestamp_delta


def decoder_verdict(count: int, body: bytes) -> tuple[int, int] | str:
    """The same by the decoder that makes objects. It takes lengths below -1 for null, which no walk does."""
    batch = bytearray(encode_batch([Record(timestamp=NOW)]))[:HEADER_SIZE] + body
    batch[57:61] = count.to_bytes(4, "big")
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    try:
        records = decode_batch(batch, verify_crc=False)
    except CorruptRecordError:
        return "corrupt"
    highest = (-1, -1)
    for each in records:
        timestamp = (each.timestamp + (1 << 63)) % (1 << 64) - (1 << 63)
        if timestamp > highest[0]:
            highest = timestamp, each.offset
    return highest


@given(records=st.lists(record, min_size=1, max_size=20), seed=st.integers(0, 1 << 32))
def test_sound_records_are_walked_over_however_they_are_cut(records: list[Record], seed: int) -> None:
    batch = encode_batch(records)
    header = parse_header(batch)
    body = batch[HEADER_SIZE:]
    chance = random.Random(seed)
    for module in _both():
        for pieces in ([body], in_pieces(body, chance), [body[at : at + 1] for at in range(len(body))]):
            walker = module.RecordWalker(len(records), header.base_timestamp, last_delta=len(records) - 1)
            for piece in pieces:
                walker.feed(piece)
            walker.finish()
            assert walker.index == len(records)
            assert walker.max_timestamp == header.max_timestamp
            assert walker.bad_count == 0
        assert module.are_plain(
            batch, HEADER_SIZE, len(records), header.base_timestamp, header.max_timestamp
        ) == all(each.timestamp >= -1 for each in records)


@given(
    records=st.lists(record, min_size=1, max_size=6),
    edits=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3),
    count=st.integers(0, 8),
    seed=st.integers(0, 1 << 32),
)
def test_broken_records_are_judged_as_a_decoder_judges_them(
    records: list[Record], edits: list[tuple[int, int]], count: int, seed: int
) -> None:
    body = bytearray(encode_batch(records)[HEADER_SIZE:])
    for at, byte in edits:
        body[at % len(body)] = byte
    expected = decoder_verdict(count, bytes(body))
    for module in _both():
        whole = verdict(module, count, [bytes(body)])
        assert verdict(module, count, in_pieces(bytes(body), random.Random(seed))) == whole
        if whole != expected:
            # Lengths below -1, which Java takes for null and librdkafka cannot read.
            assert whole == "corrupt"
            assert _has_length_below_null(bytes(body), count)
        highest = -1 if isinstance(whole, str) else whole[0]
        plain = module.are_plain(bytes(HEADER_SIZE) + body, HEADER_SIZE, count, NOW, highest)
        assert not (plain and whole == "corrupt")


_INTERPRETED = CodecModules("interpreted")


def _both() -> list[ModuleType]:
    return [record_walker, _INTERPRETED.walker]


def _has_length_below_null(body: bytes, count: int) -> bool:
    """Whether a decoder that takes such lengths for null reads all records."""
    return decoder_verdict(count, body) != "corrupt"


def hand_made(
    *,
    timestamp: bytes = b"\0",
    delta: int = 0,
    key: bytes = b"\1",
    value: bytes = b"\1",
    headers: bytes = b"\0",
    length: int | None = None,
) -> bytes:
    """A record of fields as they stand on the wire."""
    rest = b"\0" + timestamp + encode_varint(delta) + key + value + headers
    return encode_varint(len(rest) if length is None else length) + rest


BROKEN = {
    "no records at all": b"",
    "length 0": hand_made(length=0),
    "length -1": hand_made(length=-1),
    "length less": hand_made(length=5) + b"\0",
    "length more": hand_made(length=8),
    "length huge": hand_made(length=(1 << 31) - 1),
    "length of six bytes": b"\xff" * 6 + hand_made(),
    "timestamp of eleven bytes": hand_made(timestamp=b"\xff" * 10 + b"\1"),
    "key length -2": hand_made(key=b"\3"),
    "key longer than the record": hand_made(key=b"\x7e"),
    "value length -2": hand_made(value=b"\3"),
    "value longer than the record": hand_made(value=b"\x7e"),
    "header count -1": hand_made(headers=b"\1"),
    "header count 1, none there": hand_made(headers=b"\2"),
    "header count huge": hand_made(headers=b"\xfe\xff\xff\xff\x0f"),
    "header key -1": hand_made(headers=b"\2\1\1"),
    "header value -2": hand_made(headers=b"\2\0\3"),
    "header value longer than the record": hand_made(headers=b"\2\0\x7e"),
    "bytes behind the headers": hand_made(headers=b"\0\0"),
    "a byte behind the record": hand_made() + b"\0",
    "a second record": hand_made() + hand_made(delta=1),
    "cut": hand_made(key=b"\x06abc")[:-2],
    "garbage": b"garbage garbage",
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_refused_in_one_piece_and_byte_by_byte(walker: ModuleType, name: str) -> None:
    body = BROKEN[name]
    assert verdict(walker, 1, [body]) == "corrupt"
    assert verdict(walker, 1, [body[at : at + 1] for at in range(len(body))]) == "corrupt"
    assert not walker.are_plain(bytes(HEADER_SIZE) + body, HEADER_SIZE, 1, NOW, NOW)


def test_a_record_larger_than_any_piece_is_skipped_and_not_kept(walker: ModuleType) -> None:
    size = 5_000_000
    prefix = b"\0\0\0\1" + encode_varint(size)
    walk = walker.RecordWalker(2, NOW)
    walk.feed(encode_varint(len(prefix) + size + 1) + prefix)
    piece = bytes(50_000)
    for _ in range(100):
        walk.feed(piece)
    walk.feed(b"\0" + hand_made(timestamp=b"\4", delta=1))
    walk.finish()
    assert (walk.index, walk.max_timestamp, walk.max_timestamp_delta) == (2, NOW + 2, 1)


def test_what_is_not_allowed_is_told_record_by_record(walker: ModuleType) -> None:
    body = b"".join(
        [
            hand_made(key=b"\2k"),
            hand_made(delta=1),
            hand_made(delta=2, key=b"\2k", timestamp=encode_varint(5000)),
            hand_made(delta=7, key=b"\2k"),
            hand_made(delta=4, key=b"\2k", timestamp=encode_varint(-5000)),
        ]
    )
    walk = walker.RecordWalker(
        5, NOW, earliest=NOW - 10, latest=NOW + 10, keys_required=True, consecutive=True
    )
    walk.feed(body)
    walk.finish()
    assert [(bad.record_index, bad.reason) for bad in walk.bad_records] == [
        (1, BAD_KEY),
        (2, BAD_TIMESTAMP),
        (3, BAD_OFFSET),
        (4, BAD_TIMESTAMP),
    ]
    assert walk.bad_records[1].timestamp == NOW + 5000
    assert (walk.bad_count, walk.max_timestamp) == (4, NOW + 5000)


def test_of_many_refused_records_the_first_are_told_and_all_are_counted(walker: ModuleType) -> None:
    count = MAX_BAD_RECORDS + 50
    walk = walker.RecordWalker(count, NOW, keys_required=True)
    walk.feed(b"".join(hand_made(delta=delta) for delta in range(count)))
    walk.finish()
    assert (walk.bad_count, len(walk.bad_records)) == (count, MAX_BAD_RECORDS)
    assert walk.bad_records[-1].record_index == MAX_BAD_RECORDS - 1


def test_offsets_must_lie_within_their_batch(walker: ModuleType) -> None:
    for delta, bad in ((0, 0), (1, 0), (2, 1), (-1, 1)):
        walk = walker.RecordWalker(1, NOW, last_delta=1)
        walk.feed(hand_made(delta=delta))
        assert walk.bad_count == bad


def test_a_walk_needs_a_count_that_can_be(walker: ModuleType) -> None:
    with pytest.raises(CorruptRecordError, match="-1 records"):
        walker.RecordWalker(-1, NOW)


@pytest.mark.parametrize("codec", CODECS, ids=lambda each: each.label)
def test_the_first_record_of_a_time_is_found_and_nothing_behind_is_read(codec: Codec) -> None:
    records = [Record(timestamp=NOW + 10 * slot, value=bytes(1000)) for slot in range(500)]
    batch = encode_batch(records, base_offset=40, codec=codec)
    header = parse_header(batch)
    for timestamp, start, expected in (
        (NOW, 0, 40),
        (NOW, 43, 43),
        (NOW + 11, 0, 42),
        (NOW + 4990, 0, 539),
        (NOW + 4991, 0, None),
    ):
        walk = search_walk(batch, header, 0, PLENTY, timestamp, start)
        assert walk.advance()
        if expected is None:
            assert not walk.walker.found
            continue
        assert walk.walker.found_delta + header.base_offset == expected
        assert walk.walker.found_timestamp == NOW + 10 * (expected - 40)
        assert walk.walker.index == expected - 39


@pytest.mark.parametrize("codec", CODECS, ids=lambda each: each.label)
def test_a_walk_can_stop_and_go_on(codec: Codec) -> None:
    records = [Record(timestamp=NOW + slot, value=b"value %d" % slot) for slot in range(20_000)]
    batch = encode_batch(records, codec=codec)
    header = parse_header(batch)
    walk = BatchWalk(body_stream(batch, header, 0, PLENTY), RecordWalker(20_000, NOW))
    steps = 1
    while not walk.advance(1):
        steps += 1
    assert steps > 3
    assert walk.walker.index == 20_000
    assert walk.walker.max_timestamp == header.max_timestamp


# -- streams -------------------------------------------------------------------------------------------


def unpack(
    codec: Codec, payload: bytes, limit: int = 1 << 30, piece: int = 1000, *, one_frame: bool = False
) -> bytes:
    stream = BodyStream(codec, memoryview(payload), limit, one_frame=one_frame)
    parts = []
    while not stream.finished:
        parts.append(bytes(stream.read(piece)))
        assert codec is Codec.SNAPPY or len(parts[-1]) <= piece
    return b"".join(parts)


@pytest.mark.parametrize("codec", CODECS, ids=lambda each: each.label)
@given(data=st.binary(max_size=3000), times=st.integers(1, 50), piece=st.integers(1, 5000))
def test_pieces_make_up_the_whole(codec: Codec, data: bytes, times: int, piece: int) -> None:
    assert unpack(codec, compress(codec, data * times), piece=piece) == data * times


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD], ids=lambda each: each.label)
def test_streams_in_a_row_are_read_as_one(codec: Codec) -> None:
    assert unpack(codec, compress(codec, b"one ") + compress(codec, b"two")) == b"one two"


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4], ids=lambda each: each.label)
@pytest.mark.parametrize("sizes", [(0, 300), (300, 0), (100, 100), (60_000, 60_000)])
def test_a_body_of_one_frame_has_no_second_one(codec: Codec, sizes: tuple[int, int]) -> None:
    first, second = (compress(codec, random.Random(size).randbytes(size)) for size in sizes)
    assert len(unpack(codec, first, one_frame=True)) == sizes[0]
    with pytest.raises(CorruptRecordError, match=f"{len(second)} bytes follow the first {codec.label} "):
        unpack(codec, first + second, one_frame=True)


def test_a_body_of_one_frame_may_have_skippable_and_several_zstd_frames() -> None:
    skippable = b"\x50\x2a\x4d\x18\x05\x00\x00\x00hello"
    frames = [skippable, compress(Codec.ZSTD, b"one "), skippable, compress(Codec.ZSTD, b"two"), skippable]
    assert unpack(Codec.ZSTD, b"".join(frames), one_frame=True) == b"one two"


@pytest.mark.parametrize("codec", CODECS[1:], ids=lambda each: each.label)
@pytest.mark.parametrize("how", ["empty", "garbage", "cut", "one byte less", "a byte more"])
def test_what_cannot_be_unpacked_is_corrupt(codec: Codec, how: str) -> None:
    whole = compress(codec, b"some data that can be compressed" * 100)
    payload = {
        "empty": b"",
        "garbage": b"this is not compressed at all",
        "cut": whole[: len(whole) // 2],
        "one byte less": whole[:-1],
        "a byte more": whole + b"\0",
    }[how]
    with pytest.raises(CorruptRecordError):
        unpack(codec, payload)


@pytest.mark.parametrize("codec", CODECS, ids=lambda each: each.label)
def test_no_more_is_unpacked_than_is_allowed(codec: Codec) -> None:
    payload = compress(codec, bytes(100_000))
    assert len(unpack(codec, payload, limit=100_000)) == 100_000
    with pytest.raises(BodyTooLargeError, match="more than 99999 bytes"):
        unpack(codec, payload, limit=99_999)


def test_lz4_frames_that_java_cannot_read_are_refused() -> None:
    payload = lz4.frame.compress(bytes(300_000), block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=True)
    with pytest.raises(CorruptRecordError, match="linked blocks"):
        unpack(Codec.LZ4, payload)


def test_a_batch_body_in_pieces_is_the_body() -> None:
    batch = encode_batch([Record(timestamp=NOW, value=b"v" * 3000)] * 50, codec=Codec.ZSTD)
    header = parse_header(batch)
    stream = body_stream(batch, header, 0, PLENTY)
    parts = []
    while not stream.finished:
        parts.append(bytes(stream.read(777)))
    assert b"".join(parts) == batch_body(batch, header)


# -- renumbering and compressing ------------------------------------------------------------------------


@given(
    records=st.lists(record, min_size=1, max_size=20),
    deltas=st.lists(st.integers(0, 1 << 30), min_size=20, max_size=20),
    shift=st.integers(-(1 << 40), 1 << 40),
)
def test_renumbered_records_differ_in_their_numbers_alone(
    records: list[Record], deltas: list[int], shift: int
) -> None:
    gapped = [each._replace(offset=delta) for each, delta in zip(records, deltas, strict=False)]
    body = encode_batch([*gapped[:-1], gapped[-1]])[HEADER_SIZE:]
    base = records[0].timestamp
    expected = encode_batch([each._replace(timestamp=each.timestamp - shift) for each in records])
    header = parse_header(expected)
    for module in _both():
        changed = bytes(module.renumbered(body, len(records), shift - (base - header.base_timestamp) + 0))
        whole = bytes(expected[:HEADER_SIZE]) + changed
        first = decode_batch(_resized(whole), verify_crc=False)
        assert [each.offset for each in first] == list(range(len(records)))
        assert [(each.key, each.value, tuple(each.headers)) for each in first] == [
            (each.key, each.value, tuple(each.headers)) for each in records
        ]
        assert [each.timestamp - first[0].timestamp for each in first] == [
            each.timestamp - base for each in records
        ]


def _resized(batch: bytes) -> bytes:
    return batch[:8] + (len(batch) - 12).to_bytes(4, "big") + batch[12:]


@pytest.mark.parametrize("codec", CODECS, ids=lambda each: each.label)
@given(data=st.binary(max_size=3000), times=st.integers(0, 60), piece=st.integers(1, 70_000))
def test_what_is_compressed_in_pieces_is_read_in_one(
    codec: Codec, data: bytes, times: int, piece: int
) -> None:
    whole = data * times
    compressor = BodyCompressor(codec, None)
    for start in range(0, len(whole), piece):
        compressor.write(whole[start : start + piece])
    compressed = compressor.finish()
    assert compressor.size == len(compressed)
    if codec is not Codec.SNAPPY or whole:
        assert decompress(codec, compressed) == whole


@pytest.mark.parametrize("checksum_bytes", [0, 4])
def test_a_block_that_holds_nothing_is_found_among_any_number_of_lz4_blocks(checksum_bytes: int) -> None:
    # Stored blocks of all sizes around that of a portion of the input, and of one byte.
    sizes = [1] * 700 + [16 * 1024 - 4, 16 * 1024, 16 * 1024 + 5, 5, 60_000] * 3 + [1, 2, 3] * 500
    body = random.Random(1).randbytes(sum(sizes))
    options = {"block_linked": False, "block_checksum": bool(checksum_bytes)}
    empty = lz4.frame.compress(b"", **options)
    header, end_mark = empty[:-4], empty[-4:]
    blocks, at = [], 0
    for size in sizes:
        data = body[at : at + size]
        field = (size | 1 << 31).to_bytes(4, "little")
        # The blocks of a frame of one block, with its checksum.
        whole = lz4.frame.compress(data, **options)
        blocks.append(field + data + (whole[-8:-4] if checksum_bytes else b""))
        at += size

    assert unpack(Codec.LZ4, header + b"".join(blocks) + end_mark, piece=65536, one_frame=True) == body
    nothing = bytes.fromhex("0100000000")
    nothing += bytes(checksum_bytes)
    for place in (0, 699, 701, 710, len(blocks)):
        frame = header + b"".join([*blocks[:place], nothing, *blocks[place:]]) + end_mark
        with pytest.raises(UnportableBodyError, match="an empty block"):
            unpack(Codec.LZ4, frame, one_frame=True)
        if not checksum_bytes:
            assert unpack(Codec.LZ4, frame, piece=65536) == body, "what a log has is read as before"
