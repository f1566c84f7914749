"""What a broker makes of a batch: its header, records, codec and timestamps, and what it then stores."""

from __future__ import annotations

import time

import lz4.frame
from tests.compat.side_by_side.batches import (
    APPEND_TIME,
    CONTROL,
    HORIZON,
    NOW,
    TRANSACTIONAL,
    Batch,
    batch,
    record,
    records,
)
from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.records_requests import produce, produce_and_show, stored
from tests.compat.side_by_side.side import Side

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
COMPACT = {"cleanup_policy": "compact"}
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

HEADERS = {
    "crc-0": batch(crc=0),
    "crc-off-by-one": batch(2, crc=1),
    "no-records": batch(0),
    "no-records-delta-0": batch(0, last_offset_delta=0),
    "no-records-count-1": batch(0, count=1, last_offset_delta=0),
    "count-negative": batch(1, count=-1),
    "count-lowest": batch(1, count=-(2**31)),
    "count-0-with-records": batch(2, count=0),
    "count-less": batch(3, count=2),
    "count-more": batch(3, count=4),
    "count-less-delta-too": batch(3, count=2, last_offset_delta=1),
    "count-more-delta-too": batch(3, count=4, last_offset_delta=3),
    "count-huge-delta-too": batch(3, count=2**31 - 1, last_offset_delta=2**31 - 2),
    "delta-less": batch(3, last_offset_delta=1),
    "delta-more": batch(3, last_offset_delta=5),
    "delta-negative": batch(3, last_offset_delta=-1),
    "delta-lowest": batch(1, last_offset_delta=-(2**31)),
    "base-offset-1": batch(1, base_offset=1),
    "base-offset-negative": batch(1, base_offset=-1),
    "base-offset-large": batch(2, base_offset=2**40),
    "leader-epoch": batch(1, leader_epoch=77),
    "control": batch(1, attributes=CONTROL),
    "control-with-producer": batch(
        1, attributes=CONTROL | TRANSACTIONAL, producer_id=5, producer_epoch=0, base_sequence=0
    ),
    "horizon": batch(2, attributes=HORIZON),
    "unused-attribute-7": batch(2, attributes=0x80),
    "unused-attribute-15": batch(2, attributes=-0x8000),
    "codec-5": batch(1, attributes=5),
    "codec-6": batch(1, attributes=6),
    "codec-7": batch(1, attributes=7),
    "append-time": batch(2, attributes=APPEND_TIME),
    "append-time-no-timestamp": batch(2, attributes=APPEND_TIME, max_timestamp=-1),
    "length-less": batch(2, length=80),
    "length-14": batch(1, length=14),
    "length-13": batch(1, length=13),
    "length-0": batch(1, length=0),
    "length-negative": batch(1, length=-1),
    "length-48": batch(1, length=48),
    "length-49": batch(1, length=49),
    "length-more": batch(1, length=200),
    "producer-without-sequence": batch(1, producer_id=9, producer_epoch=0),
    "producer-without-epoch": batch(1, producer_id=9, base_sequence=0),
    "sequence-without-producer": batch(1, base_sequence=4),
    "epoch-without-producer": batch(1, producer_epoch=4),
    "producer-negative": batch(1, producer_id=-7, producer_epoch=3, base_sequence=9),
    "transactional-without-producer": batch(1, attributes=TRANSACTIONAL),
}


@case(HEADERS)
def headers(side: Side, data: bytes) -> object:
    return produce_and_show(side, side.topic(), data)


@case(
    {
        name: HEADERS[name]
        for name in ("crc-0", "count-less", "control", "base-offset-1", "codec-5", "append-time")
    }
)
def headers_in_version_3(side: Side, data: bytes) -> object:
    return produce_and_show(side, side.topic(), data, version=3)


@case(HEADERS)
def headers_on_compacted_topic(side: Side, data: bytes) -> object:
    return produce_and_show(side, side.topic(**COMPACT), data)


BODIES: dict[str, tuple[bytes, ...]] = {
    "headers": (record(headers=(("a", b"1"), ("b", None), ("", b""))),),
    "null-key": (record(key=None),),
    "null-value": (record(None),),
    "null-both": (record(None, None),),
    "empty-both": (record(b"", b""),),
    "attributes": (record(attributes=0x7F),),
    "no-key-among-keys": (record(), record(key=None, offset_delta=1), record(offset_delta=2)),
    "no-keys": tuple(records(5, key=None)),
    "deltas-from-1": (record(offset_delta=1), record(offset_delta=2)),
    "deltas-equal": (record(), record()),
    "deltas-backwards": (record(offset_delta=1), record()),
    "deltas-gap": (record(), record(offset_delta=2)),
    "delta-negative": (record(offset_delta=-1),),
    "timestamps-backwards": (record(timestamp_delta=5), record(offset_delta=1, timestamp_delta=1)),
}


@case(
    {
        f"{name}-{codec}": (body, CODECS[codec])
        for name, body in BODIES.items()
        for codec in ("none", "gzip", "zstd")
    }
)
def bodies(side: Side, given: tuple[tuple[bytes, ...], int]) -> object:
    body, codec = given
    return produce_and_show(side, side.topic(), Batch(body, codec=codec).bytes())


@case(
    {f"{name}-{codec}": (body, CODECS[codec]) for name, body in BODIES.items() for codec in ("none", "lz4")}
)
def bodies_on_compacted_topic(side: Side, given: tuple[tuple[bytes, ...], int]) -> object:
    body, codec = given
    return produce_and_show(side, side.topic(**COMPACT), Batch(body, codec=codec).bytes())


@case(
    {
        f"{name}-v{version}": (BODIES[name], version)
        for name in ("no-keys", "no-key-among-keys")
        for version in (3, 7, 8, 9, 10)
    }
)
def record_errors_by_version(side: Side, given: tuple[tuple[bytes, ...], int]) -> object:
    body, version = given
    return produce(side, side.topic(**COMPACT), Batch(body).bytes(), version=version)


@case({"none": 0, "snappy": 2})
def header_names_are_any_bytes(side: Side, codec: int) -> object:
    body = (record(headers=(("aa", b"1"),)).replace(b"aa", b"\xff\xfe"),)
    return produce_and_show(side, side.topic(), Batch(body, codec=codec).bytes())


RECORD = record()
MALFORMED: dict[str, tuple[bytes, ...]] = {
    "length-0": (b"\0" + RECORD[1:],),
    "length-negative": (b"\1" + RECORD[1:],),
    "length-less": (bytes([RECORD[0] - 2]) + RECORD[1:],),
    "length-more": (bytes([RECORD[0] + 2]) + RECORD[1:],),
    "length-huge": (b"\xff\xff\xff\xff\x0f" + RECORD[1:],),
    "length-varint-too-long": (b"\xff" * 6 + RECORD[1:],),
    "key-length-huge": (RECORD[:4] + b"\x7e" + RECORD[5:],),
    "key-length-minus-2": (RECORD[:4] + b"\x03" + RECORD[5:],),
    "header-count-negative": (RECORD[:-1] + b"\x01",),
    "header-count-1-absent": (RECORD[:-1] + b"\x02",),
    "garbage": (b"garbage garbage",),
    "trailing-byte": (RECORD + b"\0",),
    "trailing-record": (RECORD + record(offset_delta=1),),
    "cut": (RECORD[:-3],),
    "header-with-null-name": (record(headers=(("a", b"1"),)).replace(b"\x02a", b"\x01"),),
}


@case(
    {
        f"{name}-{codec}": (body, CODECS[codec])
        for name, body in MALFORMED.items()
        for codec in ("none", "snappy")
    }
)
def malformed_records(side: Side, given: tuple[tuple[bytes, ...], int]) -> object:
    """Records that the checksum covers and that make no sense; what is stored is not looked at."""
    body, codec = given
    return produce(side, side.topic(), Batch(body, codec=codec).bytes())


@case(
    {
        f"{name}-{codec}": (body, CODECS[codec])
        for name, body in MALFORMED.items()
        for codec in ("none", "snappy")
    }
)
def malformed_records_on_compacted_topic(side: Side, given: tuple[tuple[bytes, ...], int]) -> object:
    body, codec = given
    return produce(side, side.topic(**COMPACT), Batch(body, codec=codec).bytes())


@case(
    {
        f"{name}-{how}": (CODECS[name], how)
        for name in ("gzip", "snappy", "lz4", "zstd")
        for how in ("garbage", "empty", "cut")
    }
)
def compressed_garbage(side: Side, given: tuple[int, str]) -> object:
    """A compressed body that cannot be unpacked, under a right checksum."""
    return produce(side, side.topic(), _garbage(*given))


@case({name: CODECS[name] for name in ("gzip", "snappy", "lz4", "zstd")})
def compressed_garbage_on_compacted_topic(side: Side, codec: int) -> object:
    return produce(side, side.topic(**COMPACT), _garbage(codec, "garbage"))


@case({name: CODECS[name] for name in ("gzip", "snappy", "lz4", "zstd")})
def compressed_garbage_for_another_codec(side: Side, codec: int) -> object:
    return produce(side, side.topic(compression_type="uncompressed"), _garbage(codec, "garbage"))


@case({name: CODECS[name] for name in ("gzip", "snappy", "lz4", "zstd")})
def bytes_behind_a_compressed_body(side: Side, codec: int) -> object:
    """A whole body, and a few bytes more that no codec wrote."""
    return produce(side, side.topic(), _garbage(codec, "followed"))


@case({name: CODECS[name] for name in ("gzip", "snappy", "lz4", "zstd")})
def two_compressed_bodies(side: Side, codec: int) -> object:
    """The records in two streams of their codec, one behind the other."""
    good = Batch(tuple(records(3)), codec=codec)
    parts = [Batch((each,), codec=codec).bytes()[61:] for each in records(3)]
    return produce(side, side.topic(), good.with_(payload=b"".join(parts)).bytes())


@case()
def linked_lz4_blocks(side: Side) -> object:
    """Blocks that refer to one another, the default of several lz4 libraries."""
    good = Batch(tuple(records(3, value=bytes(100_000))), codec=CODECS["lz4"])
    body = Batch(tuple(records(3, value=bytes(100_000)))).bytes()[61:]
    linked = lz4.frame.compress(body, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=True)
    return produce(side, side.topic(), good.with_(payload=linked).bytes())


def _garbage(codec: int, how: str) -> bytes:
    good = Batch(tuple(records(3)), codec=codec)
    payload = good.bytes()[61:]
    changed = {
        "garbage": b"this is not compressed at all",
        "empty": b"",
        "cut": payload[: len(payload) // 2],
        "followed": payload + b"and so on",
    }
    return good.with_(payload=changed[how]).bytes()


@case(
    {
        f"{sent}-to-{wanted}": (CODECS[sent], wanted)
        for sent in CODECS
        for wanted in ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")
    }
)
def compression_type(side: Side, given: tuple[int, str]) -> object:
    codec, wanted = given
    topic = side.topic(compression_type=wanted)
    body = tuple(records(20, value=b"the same value again and again"))
    return [produce_and_show(side, topic, Batch(body, codec=codec).bytes()), stored(side, topic)]


@case()
def compression_keeps_producer(side: Side) -> object:
    """Recompressed, a batch keeps its producer, sequence and attributes."""
    topic = side.topic(compression_type="zstd")
    data = batch(3, producer_id=12, producer_epoch=3, base_sequence=7)
    return [produce_and_show(side, topic, data), produce(side, topic, data)]


@case(
    {
        f"{name}-{codec}": (BODIES[name], CODECS[codec])
        for name in ("deltas-gap", "deltas-from-1", "headers", "timestamps-backwards")
        for codec in ("none", "gzip")
    }
)
def recompressed_bodies(side: Side, given: tuple[tuple[bytes, ...], int]) -> object:
    body, codec = given
    return produce_and_show(side, side.topic(compression_type="lz4"), Batch(body, codec=codec).bytes())


# Timestamps

MOMENTS = {
    "none": -1,
    "minus-2": -2,
    "lowest": -(2**63),
    "zero": 0,
    "a-day-ago": -DAY_MS,
    "now": None,
    "30-minutes-ahead": HOUR_MS // 2,
    "2-hours-ahead": 2 * HOUR_MS,
    "highest": 2**63 - 1,
}


def _moment(name: str) -> int:
    value = MOMENTS[name]
    if value is None:
        return int(time.time() * 1000)
    if name in ("a-day-ago", "30-minutes-ahead", "2-hours-ahead"):
        return int(time.time() * 1000) + value
    return value


def _timed(name: str, codec: int = 0, count: int = 1) -> bytes:
    moment = _moment(name)
    body = tuple(record(offset_delta=each) for each in range(count))
    return Batch(body, codec=codec, base_timestamp=moment, max_timestamp=moment).bytes()


def _hidden(shown: object) -> object:
    """What was sent relative to the time of day is checked by its answer, not by its value."""
    assert isinstance(shown, dict)
    for each in shown["stored"]:
        for name in ("base_timestamp", "max_timestamp"):
            if isinstance(each[name], int) and abs(each[name] - time.time() * 1000) < 2 * DAY_MS:
                each[name] = "about now"
    return shown


@case({f"{name}-{codec}": (name, CODECS[codec]) for name in MOMENTS for codec in ("none", "gzip")})
def timestamps(side: Side, given: tuple[str, int]) -> object:
    return _hidden(produce_and_show(side, side.topic(), _timed(*given)))


@case(MOMENTS)
def timestamps_not_before_an_hour(side: Side, _: object) -> object:
    name = next(each for each, value in MOMENTS.items() if value == _)
    topic = side.topic(message_timestamp_before_max_ms=str(HOUR_MS))
    return _hidden(produce_and_show(side, topic, _timed(name, count=3)))


@case({f"{name}-{codec}": (name, CODECS[codec]) for name in MOMENTS for codec in ("none", "gzip")})
def timestamps_with_append_time(side: Side, given: tuple[str, int]) -> object:
    topic = side.topic(message_timestamp_type="LogAppendTime")
    return _hidden(produce_and_show(side, topic, _timed(*given, count=2)))


@case(
    {
        f"{wanted}-{codec}": (wanted, CODECS[codec])
        for wanted in ("gzip", "uncompressed", "zstd")
        for codec in ("none", "gzip")
    }
)
def append_time_and_compression(side: Side, given: tuple[str, int]) -> object:
    wanted, codec = given
    topic = side.topic(message_timestamp_type="LogAppendTime", compression_type=wanted)
    return produce_and_show(side, topic, batch(4, codec=codec))


@case({"append-time": APPEND_TIME, "create-time": 0})
def append_time_attribute_on_append_time_topic(side: Side, attributes: int) -> object:
    topic = side.topic(message_timestamp_type="LogAppendTime")
    return produce_and_show(side, topic, batch(2, attributes=attributes))


@case({f"{codec}-{shift}": (CODECS[codec], shift) for codec in ("none", "gzip") for shift in (-5, 5, 10**10)})
def highest_timestamp_is_wrong(side: Side, given: tuple[int, int]) -> object:
    """A header whose highest timestamp is not that of its records."""
    codec, shift = given
    return produce_and_show(side, side.topic(), batch(3, codec=codec, max_timestamp=NOW + 2 + shift))


@case(
    {
        f"{codec}-{name}": (CODECS[codec], name)
        for codec in ("none", "gzip")
        for name in ("mixed-ahead", "mixed-ancient")
    }
)
def some_timestamps_out_of_range(side: Side, given: tuple[int, str]) -> object:
    codec, name = given
    now = int(time.time() * 1000)
    far = 3 * HOUR_MS if name == "mixed-ahead" else -3 * HOUR_MS
    body = (record(), record(offset_delta=1, timestamp_delta=far), record(offset_delta=2))
    topic = side.topic(message_timestamp_before_max_ms=str(HOUR_MS))
    data = Batch(body, codec=codec, base_timestamp=now, max_timestamp=max(now, now + far)).bytes()
    return _hidden(produce_and_show(side, topic, data))


@case()
def no_key_and_bad_timestamp(side: Side) -> object:
    """Two things wrong at once: the timestamp decides what the error is called."""
    topic = side.topic(message_timestamp_before_max_ms=str(HOUR_MS), **COMPACT)
    body = (record(key=None), record(offset_delta=1), record(offset_delta=2, key=None))
    return produce(side, topic, Batch(body).bytes())


@case()
def many_record_errors(side: Side) -> object:
    return produce(side, side.topic(**COMPACT), Batch(tuple(records(12, key=None))).bytes())


@case((1, 2, 3, 4))
def compact_and_delete(side: Side, codec: int) -> object:
    topic = side.topic(cleanup_policy="compact,delete")
    return produce_and_show(side, topic, Batch(tuple(records(2, key=None)), codec=codec).bytes())
