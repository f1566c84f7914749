from __future__ import annotations

import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest

from tidelog.cli.failure import Failure
from tidelog.cli.log.segment_scan import ScannedBatch, TornTail, base_offset_of, map_file, records_of, scan
from tidelog.records.compression import Codec, compress
from tidelog.records.record import Record, encode_batch


def batch(offset: int, count: int = 1) -> bytes:
    return encode_batch([Record(timestamp=7, value=b"x")] * count, base_offset=offset)


def scanned(data: bytes, base_offset: int = 0) -> list[tuple[int, str | None]]:
    return [(item.position, item.problem) for item in scan(memoryview(data), base_offset)]


def message(offset: int, value: bytes, *, magic: int = 1, attributes: int = 0) -> bytes:
    body = struct.pack(">bb", magic, attributes)
    if magic:
        body += struct.pack(">q", 77)
    body += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def test_sound_batches_have_no_problem() -> None:
    first = batch(5, 3)
    items = list(scan(memoryview(first + batch(8)), 5))
    assert [(item.position, item.problem) for item in items] == [(0, None), (len(first), None)]
    assert isinstance(items[0], ScannedBatch)
    assert (items[0].base_offset, items[0].last_offset, items[0].record_count) == (5, 7, 3)


def test_gaps_between_batches_are_what_compaction_leaves() -> None:
    assert [problem for _, problem in scanned(batch(5) + batch(100), 0)] == [None, None]


def test_a_flipped_bit_is_marked_and_the_scan_goes_on() -> None:
    bad = bytearray(batch(0))
    bad[-1] ^= 1
    assert scanned(bytes(bad) + batch(1)) == [(0, "bad CRC"), (len(bad), None)]


def test_offsets_that_go_back_are_marked() -> None:
    problems = [problem for _, problem in scanned(batch(5) + batch(5))]
    assert problems == [None, "offset 5, expected at least 6"]


def test_a_segment_that_starts_below_its_name_is_marked() -> None:
    assert scanned(batch(3), base_offset=4) == [(0, "offset 3, expected at least 4")]


@pytest.mark.parametrize(
    ("tail", "problem"),
    [
        (batch(1)[:-1], f"the batch needs {len(batch(1))} bytes, but only {len(batch(1)) - 1} are left"),
        (batch(1)[:10], "10 bytes, too few for a batch header"),
        (bytes(4096), "4096 bytes that start with zeros, not a batch"),
        (b"\xff" * 100, "unknown batch format: magic 255"),
        (struct.pack(">qiib", 1, 5, 0, 2) + bytes(60), "a batch length of 5 is impossible"),
    ],
)
def test_what_is_no_batch_ends_the_scan(tail: bytes, problem: str) -> None:
    whole = batch(0)
    *_, last = scan(memoryview(whole + tail), 0)
    assert last == TornTail(len(whole), len(tail), problem)


def test_old_messages_are_read_too() -> None:
    inner = message(0, b"a") + message(1, b"b")
    wrapper = message(6, compress(Codec.GZIP, inner), attributes=Codec.GZIP)
    data = memoryview(message(3, b"zero", magic=0) + message(4, b"one") + wrapper)
    items = [item for item in scan(data, 3) if isinstance(item, ScannedBatch)]
    assert [(item.base_offset, item.last_offset, item.problem) for item in items] == [
        (3, 3, None),
        (4, 4, None),
        (5, 6, None),
    ]
    assert [record.value for record in records_of(data, items[2])] == [b"a", b"b"]


def test_an_old_message_with_a_bad_checksum_is_marked() -> None:
    bad = bytearray(message(0, b"value"))
    bad[-1] ^= 1
    assert scanned(bytes(bad)) == [(0, "bad CRC")]


def test_an_empty_file_is_an_empty_segment(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.touch()
    with map_file(path) as data:
        assert list(scan(data, 0)) == []


def test_a_file_without_an_offset_in_its_name_is_refused() -> None:
    with pytest.raises(Failure, match="must start with the base offset"):
        base_offset_of(Path("some.log"))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_records_of_a_batch_that_unpacks_to_much_are_read_a_few_at_a_time(codec: Codec) -> None:
    size = 48 * 1024 * 1024
    records = [Record(timestamp=1, key=b"k", value=bytes(size // 24)) for _ in range(24)]
    data = memoryview(encode_batch(records, codec=codec))
    (batch,) = scan(data, 0)
    assert isinstance(batch, ScannedBatch)
    del records
    tracemalloc.start()
    try:
        offsets = [record.offset for record in records_of(data, batch)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert offsets == list(range(24))
    assert peak < size // 2
