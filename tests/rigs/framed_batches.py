"""Batches whose compressed body is several frames of its codec, some of which a broker has to refuse.

A form says how ten records are cut into frames. The records' timestamps, keys and values are in
:func:`ten_records`, so that a reader can compare them.
"""

from __future__ import annotations

import struct
import time
from typing import NamedTuple

from tests.rigs.raw_topic import RawTopic

from tidelog.errors import ErrorCode
from tidelog.records.batch import HEADER_SIZE, parse_header
from tidelog.records.compression import Codec, compress
from tidelog.records.record import Record, encode_batch, join_batch

COUNT = 10
_SKIPPABLE_FRAME = struct.pack("<II5s", 0x184D2A50, 5, b"extra")


class FramedBody(NamedTuple):
    """One way to write the body of a batch."""

    name: str
    codec: Codec
    payload: bytes
    is_stored: bool
    """Whether the broker takes it, because every client can read it."""


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
        found.append(FramedBody(f"{codec.label}-garbage", codec, followed, False))
    for codec in (Codec.LZ4, Codec.ZSTD):
        stored = codec is Codec.ZSTD
        frame = compress(codec, whole)
        found.append(FramedBody(f"{codec.label}-skippable-first", codec, _SKIPPABLE_FRAME + frame, stored))
        found.append(FramedBody(f"{codec.label}-skippable-last", codec, frame + _SKIPPABLE_FRAME, stored))
    found += [
        FramedBody(f"{codec.label}-single", codec, compress(codec, whole), True) for codec in list(Codec)[1:]
    ]
    return found


def framed_batch(body: FramedBody) -> bytes:
    """The batch with this body."""
    header = parse_header(encode_batch(ten_records()))
    return bytes(join_batch(header._replace(attributes=int(body.codec)), body.payload))


def send_framed_batches(topic: RawTopic) -> int:
    """Send one batch of every form, and check which are refused; gives how many records are stored."""
    stored = 0
    for body in framed_bodies():
        answer = topic.produce(framed_batch(body))
        expected = ErrorCode.NONE if body.is_stored else ErrorCode.INVALID_RECORD
        assert ErrorCode(answer.error_code) is expected, f"{body.name}: {answer}"
        if body.is_stored:
            assert answer.base_offset == stored, body.name
            stored += COUNT
        elif not body.name.endswith("-garbage"):
            assert "exactly one" in (answer.error_message or ""), body.name
    return stored
