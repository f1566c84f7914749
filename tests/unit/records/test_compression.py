"""Codecs: what is written is read back, and nothing hostile gets further than an error."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from types import SimpleNamespace
from typing import Any

import cramjam
import lz4.frame
import pytest
from aiokafka import codec as aiokafka_codec
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import codec as kafka_python_codec

from tidelog.errors import CorruptRecordError
from tidelog.records import compression
from tidelog.records.compression import LEVELS, Codec, DecompressedTooLargeError, compress, decompress

CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
LARGE = bytes(range(256)) * 1024 + b"tide" * 30_000

FOREIGN = [
    pytest.param(
        Codec.GZIP, kafka_python_codec.gzip_encode, kafka_python_codec.gzip_decode, id="gzip-kafka-python"
    ),
    pytest.param(
        Codec.LZ4, kafka_python_codec.lz4_encode, kafka_python_codec.lz4_decode, id="lz4-kafka-python"
    ),
    pytest.param(Codec.GZIP, aiokafka_codec.gzip_encode, aiokafka_codec.gzip_decode, id="gzip-aiokafka"),
    pytest.param(
        Codec.SNAPPY, aiokafka_codec.snappy_encode, aiokafka_codec.snappy_decode, id="snappy-aiokafka"
    ),
    pytest.param(Codec.LZ4, aiokafka_codec.lz4_encode, aiokafka_codec.lz4_decode, id="lz4-aiokafka"),
    pytest.param(Codec.ZSTD, aiokafka_codec.zstd_encode, aiokafka_codec.zstd_decode, id="zstd-aiokafka"),
]


@settings(max_examples=60, deadline=None)
@given(codec=st.sampled_from(list(Codec)), data=st.binary(max_size=4096), repeat=st.integers(1, 30))
def test_decompress_is_the_inverse_of_compress(codec: Codec, data: bytes, repeat: int) -> None:
    data *= repeat
    packed = compress(codec, memoryview(data))
    assert decompress(codec, packed) == data
    assert decompress(codec, memoryview(packed), len(data)) == data


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec in LEVELS])
def test_every_level_is_readable(codec: Codec) -> None:
    lowest, highest, default = LEVELS[codec]
    for level in (max(lowest, -50), default, highest):
        assert decompress(codec, compress(codec, LARGE, level)) == LARGE


@pytest.mark.parametrize(("codec", "encode", "decode"), FOREIGN)
def test_foreign_libraries_read_ours_and_we_read_theirs(codec: Codec, encode, decode) -> None:  # type: ignore[no-untyped-def]
    assert bytes(decode(compress(codec, LARGE))) == LARGE
    assert decompress(codec, bytes(encode(LARGE))) == LARGE


def test_lz4_frames_have_independent_blocks_and_no_size() -> None:
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, LARGE))
    assert not info["block_linked"]
    assert info["content_size"] == 0
    assert info["block_size"] == 65536


def test_lz4_with_linked_blocks_checksums_and_size_is_read() -> None:
    packed = lz4.frame.compress(
        LARGE, block_linked=True, content_checksum=True, block_checksum=True, store_size=True
    )
    assert decompress(Codec.LZ4, packed) == LARGE


def test_snappy_is_written_as_xerial_blocks_of_32_kb() -> None:
    packed = compress(Codec.SNAPPY, LARGE)
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    (length,) = struct.unpack_from(">i", packed, 16)
    assert len(cramjam.snappy.decompress_raw(packed[20 : 20 + length])) == 32 * 1024


def test_snappy_without_xerial_header_is_read_as_one_raw_block() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(LARGE))) == LARGE


def test_concatenated_xerial_streams_are_read_as_one() -> None:
    packed = compress(Codec.SNAPPY, b"ebb") + compress(Codec.SNAPPY, b"flow")
    assert decompress(Codec.SNAPPY, packed) == b"ebbflow"


def test_concatenated_gzip_members_are_read_as_one() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"ebb") + gzip.compress(b"flow"), 7) == b"ebbflow"
    with pytest.raises(CorruptRecordError, match="more than the 6 bytes"):
        decompress(Codec.GZIP, gzip.compress(b"ebb") + gzip.compress(b"flow"), 6)


def test_gzip_members_of_any_number_and_size_are_read() -> None:
    rng = random.Random(7)
    members = [rng.randbytes(size) for size in (0, 1, 0, 5000, 20_000, 0, 4096, 3)]
    data, expected = b"".join(map(gzip.compress, members)), b"".join(members)
    assert decompress(Codec.GZIP, data) == expected
    assert decompress(Codec.GZIP, memoryview(data), len(expected)) == expected
    with pytest.raises(DecompressedTooLargeError):
        decompress(Codec.GZIP, data, len(expected) - 1)
    for cut in (1, 10, 30):
        with pytest.raises(CorruptRecordError, match="cut short"):
            decompress(Codec.GZIP, data[:-cut])
    with pytest.raises(CorruptRecordError):
        decompress(Codec.GZIP, data + b"stray")


def test_gzip_takes_time_by_its_size_however_many_members_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = 0

    class Decoder:
        def __init__(self, wbits: int) -> None:
            self._decoder = zlib.decompressobj(wbits)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._decoder, name)

        def decompress(self, data: memoryview, max_length: int = 0) -> bytes:
            nonlocal fed
            fed += len(data)
            return self._decoder.decompress(data, max_length)

    def fed_by(members: int) -> int:
        nonlocal fed
        fed = 0
        assert decompress(Codec.GZIP, gzip.compress(b"") * members, 0) == b""
        return fed

    monkeypatch.setattr(compression, "zlib", SimpleNamespace(decompressobj=Decoder, error=zlib.error))
    assert fed_by(4000) < 3 * fed_by(2000)


def test_zstd_streams_without_content_size_are_read() -> None:
    encoder = cramjam.zstd.Compressor(3)
    encoder.compress(LARGE)
    packed = bytes(encoder.finish())
    assert decompress(Codec.ZSTD, packed) == LARGE
    assert decompress(Codec.ZSTD, packed, len(LARGE)) == LARGE


def test_zstd_skippable_frames_and_dense_data_stay_within_the_bound() -> None:
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"hello"
    packed = skippable + compress(Codec.ZSTD, b"flood" * 100_000)
    assert decompress(Codec.ZSTD, packed, 500_000) == b"flood" * 100_000


@pytest.mark.parametrize("codec", list(Codec))
def test_a_bomb_stops_at_the_size_allowed(codec: Codec) -> None:
    bomb = compress(codec, bytes(8 * 1024 * 1024))
    with pytest.raises(CorruptRecordError, match="1000 bytes allowed"):
        decompress(codec, bomb, 1000)


def test_a_snappy_block_that_lies_about_its_size_is_refused_before_memory_is_taken() -> None:
    four_gigabytes = b"\xff\xff\xff\xff\x0f" + b"\x00a"
    with pytest.raises(CorruptRecordError, match="claims to hold"):
        decompress(Codec.SNAPPY, four_gigabytes)


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=40, deadline=None)
@given(garbage=st.binary(max_size=200), cut=st.integers(1, 40), keep_head=st.booleans())
def test_garbage_and_cut_streams_raise_corrupt_record_or_yield_bounded_bytes(
    codec: Codec, garbage: bytes, cut: int, keep_head: bool
) -> None:
    packed = compress(codec, b"some tide" * 20)
    broken = packed[:-cut] + garbage if keep_head else garbage
    try:
        result = decompress(codec, broken, 10_000)
    except CorruptRecordError:
        return
    assert len(result) <= 10_000


@pytest.mark.parametrize("codec", CODECS)
def test_a_cut_stream_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, b"some tide" * 2000)
    for cut in (1, len(packed) // 2, len(packed)):
        with pytest.raises(CorruptRecordError):
            decompress(codec, packed[: len(packed) - cut])


def test_stray_bytes_after_an_lz4_frame_are_corrupt() -> None:
    with pytest.raises(CorruptRecordError, match="stray"):
        decompress(Codec.LZ4, compress(Codec.LZ4, b"tide") + b"xx")


def test_labels_are_kafkas_option_values() -> None:
    assert [codec.label for codec in Codec] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert Codec.from_label("uncompressed") is Codec.NONE
    assert Codec.from_label("zstd") is Codec.ZSTD
    with pytest.raises(ValueError, match="choose one of"):
        Codec.from_label("brotli")
