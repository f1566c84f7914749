"""Batches whose compressed body is framed as no known producer does it, most of which a broker has to refuse.

A form says how ten records are cut into frames, or what is unusual about a single one. The records'
timestamps, keys and values are in :func:`ten_records`, so that a reader can compare them.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Collection
from typing import NamedTuple

import lz4.frame
from tests.rigs.raw_topic import RawTopic

from tidelog.errors import ErrorCode
from tidelog.records.batch import HEADER_SIZE, parse_header
from tidelog.records.compression import XERIAL_HEADER, XERIAL_MAGIC, Codec, compress
from tidelog.records.record import Record, encode_batch, join_batch

COUNT = 10
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_SKIPPABLE_FRAME = struct.pack("<II5s", 0x184D2A50, 5, b"extra")


class FramedBody(NamedTuple):
    """One way to write the body of a batch."""

    name: str
    codec: Codec
    payload: bytes
    is_stored: bool
    """Whether the broker takes it, because every client can read it."""
    refusal: str = "exactly one"
    """A part of the reason that the producer gets, where it is refused."""


def ten_records() -> list[Record]:
    """The records of each of these batches."""
    now_ms = int(time.time() * 1000)
    return [Record(timestamp=now_ms, key=b"k%d" % i, value=b"value %d" % i * 30) for i in range(COUNT)]


def framed_bodies() -> list[FramedBody]:
    """Every form of every codec; the last ones are single frames, as all known producers write them."""
    whole = encode_batch(ten_records())[HEADER_SIZE:]
    half = len(encode_batch(ten_records()[: COUNT // 2])) - HEADER_SIZE
    found = []
    for codec in list(Codec)[1:]:
        cuts = {"empty-first": 0, "between-records": half, "within-a-record": half + 20, "empty-last": None}
        for name, cut in cuts.items():
            at = len(whole) if cut is None else cut
            payload = compress(codec, whole[:at]) + compress(codec, whole[at:])
            found.append(FramedBody(f"{codec.label}-{name}", codec, payload, codec is Codec.ZSTD))
        followed = compress(codec, whole) + b"garbage"
        found.append(FramedBody(f"{codec.label}-garbage", codec, followed, False, ""))
    for codec in (Codec.LZ4, Codec.ZSTD):
        stored = codec is Codec.ZSTD
        frame = compress(codec, whole)
        found.append(FramedBody(f"{codec.label}-skippable-first", codec, _SKIPPABLE_FRAME + frame, stored))
        found.append(FramedBody(f"{codec.label}-skippable-last", codec, frame + _SKIPPABLE_FRAME, stored))
    found += _unusual_frames(whole)
    found += [
        FramedBody(f"{codec.label}-single", codec, compress(codec, whole), True) for codec in list(Codec)[1:]
    ]
    return found


def _unusual_frames(whole: bytes) -> list[FramedBody]:
    """Single frames that some clients cannot read, and some others that all can."""
    frame = compress(Codec.LZ4, whole)
    header, blocks = frame[: len(_LZ4_HEADER)], frame[len(_LZ4_HEADER) :]
    assert header == _LZ4_HEADER
    dictionary = bytes.fromhex("04224d18 6140 01000000 d0")
    # A compressed block of one byte and a stored one of none hold nothing.
    compressed, stored = bytes.fromhex("0100000000"), bytes.fromhex("00000080")
    end_mark = bytes(4)
    found = [
        FramedBody("lz4-dictionary", Codec.LZ4, dictionary + blocks, False, "names a dictionary"),
        FramedBody("lz4-no-block-first", Codec.LZ4, header + compressed + blocks, False, "an empty block"),
        FramedBody("lz4-no-stored-block", Codec.LZ4, header + stored + blocks, False, "an empty block"),
        FramedBody(
            "lz4-no-block-last",
            Codec.LZ4,
            header + blocks.removesuffix(end_mark) + compressed + end_mark,
            False,
            "an empty block",
        ),
    ]
    stream = compress(Codec.SNAPPY, whole).removeprefix(XERIAL_HEADER)
    for name, versions in {"0": ">ii", "little-endian": "<ii"}.items():
        number = int(name == "little-endian")
        payload = XERIAL_MAGIC + struct.pack(versions, number, number) + stream
        found.append(FramedBody(f"snappy-version-{name}", Codec.SNAPPY, payload, False, "version"))
    half = len(whole) // 2
    checked = {"content_checksum": True, "block_checksum": True, "store_size": True, "block_linked": False}
    found.append(FramedBody("lz4-checksums", Codec.LZ4, lz4.frame.compress(whole, **checked), True))
    encoder = zlib.compressobj(wbits=31)
    flushed = encoder.compress(whole[:half]) + encoder.flush(zlib.Z_FULL_FLUSH)
    flushed += encoder.compress(whole[half:]) + encoder.flush()
    # The same with a name, a comment and an extra field.
    fields = struct.pack("<H", 6) + b"AB\2\0xy" + b"name\0" + b"comment\0"
    named = flushed[:3] + b"\x1c" + flushed[4:10] + fields + flushed[10:]
    found.append(FramedBody("gzip-fields", Codec.GZIP, named, True))
    return found


def framed_batch(body: FramedBody) -> bytes:
    """The batch with this body."""
    header = parse_header(encode_batch(ten_records()))
    return bytes(join_batch(header._replace(attributes=int(body.codec)), body.payload))


def send_framed_batches(topic: RawTopic, without: Collection[str] = ()) -> int:
    """Send one batch of every form but those named, check which are refused, and count the stored records."""
    stored = 0
    for body in framed_bodies():
        if body.name in without:
            continue
        answer = topic.produce(framed_batch(body))
        expected = ErrorCode.NONE if body.is_stored else ErrorCode.INVALID_RECORD
        assert ErrorCode(answer.error_code) is expected, f"{body.name}: {answer}"
        if body.is_stored:
            assert answer.base_offset == stored, body.name
            stored += COUNT
        else:
            assert body.refusal in (answer.error_message or ""), f"{body.name}: {answer}"
    return stored
