"""Messages of formats 0 and 1 as brokers before 0.11 stored them, written by kafka-python's builder.

A client's builder numbers messages as a producer does. :func:`old_set` does the broker's part: a compressed
message has the offset of the last one inside, and the newest timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafka.record.legacy_records import LegacyRecordBatchBuilder

from tidelog.records.compression import Codec, compress
from tidelog.records.legacy import pack_legacy, parse_legacy

OLD_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
_LZ4_HEADER = bytes.fromhex("04224d186040")
EVERY_FORMAT = [(magic, codec) for magic in (0, 1) for codec in OLD_CODECS]


class Old(NamedTuple):
    """A record of an old log."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def old_set(records: Sequence[Old], magic: int, codec: Codec = Codec.NONE) -> bytes:
    """Records as messages of a format; compressed, all are in one."""
    if codec is Codec.LZ4 and magic == 0:
        # kafka-python needs another library for the wrong checksum of these: it is over all of the header.
        frame = compress(codec, old_set(records, 0))
        assert frame.startswith(_LZ4_HEADER + b"\x82")
        return pack_legacy(records[-1].offset, 0, codec, -1, None, _LZ4_HEADER + b"\x1a" + frame[7:])
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=int(codec), batch_size=1 << 24)
    base = records[0].offset if codec and magic == 1 else 0
    for offset, timestamp, key, value in records:
        assert builder.append(offset - base, timestamp, key, value) is not None
    data = bytes(builder.build())
    if not codec:
        return data
    outer = parse_legacy(data)
    newest = max(record.timestamp for record in records)
    return pack_legacy(records[-1].offset, magic, outer.attributes, newest, outer.key, outer.value)


def numbered_records(
    count: int, *, first: int = 0, size: int = 40, now_ms: int = 1_500_000_000_000
) -> list[Old]:
    """Records with ten keys, a millisecond apart."""
    return [
        Old(offset, now_ms + offset, b"key-%d" % (offset % 10), (b"value-%d " % offset).ljust(size, b"."))
        for offset in range(first, first + count)
    ]


def in_sets(records: Sequence[Old], magic: int, codec: Codec, each: int = 7) -> Iterator[bytes]:
    """Records as message sets of so many."""
    for start in range(0, len(records), each):
        yield old_set(records[start : start + each], magic, codec)


def seen(records: Sequence[Old], magic: int) -> list[Old]:
    """What consumers get: format 0 has no timestamps."""
    return [record if magic else record._replace(timestamp=-1) for record in records]
