"""Batches with a right header and a right checksum, and records that cannot be read: compaction steps over
them, names them once, and does the rest."""

from __future__ import annotations

import asyncio
import logging
import tracemalloc
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.compacted_log import COMPACT, CompactedLog

from tidelog.errors import CorruptRecordError
from tidelog.ids import TopicPartition
from tidelog.records.batch import CONTROL_BIT, parse_header
from tidelog.records.compression import Codec, compress
from tidelog.records.record import Record, encode_batch, join_batch
from tidelog.storage.cleaner.cleaner_options import CleanerOptions
from tidelog.storage.cleaner.cleaner_process import CleanerProcess, InlineRunner, WorkerDied
from tidelog.storage.cleaner.cleaner_worker import CompactionEvent
from tidelog.storage.cleaner.cleaning_pass import compact_now
from tidelog.storage.cleaner.compaction import CompactionJob
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.storage.directories.log_dirs_options import LogDirsOptions
from tidelog.storage.segment.batch_records import BatchRecords

CODECS = list(Codec)
NOW = 1_700_000_000_000
T0 = TopicPartition("t", 0)

RECORD = bytes([16, 0, 0, 0, 2]) + b"a" + bytes([2]) + b"x" + b"\0"
SECOND = bytes([16, 0, 0, 2, 2]) + b"b" + bytes([2]) + b"x" + b"\0"

BODIES = {
    "sound, for comparison": RECORD + SECOND,
    "a record longer than the batch": RECORD + b"\x7e" + SECOND[1:],
    "a record shorter than its fields": RECORD + b"\x0c" + SECOND[1:],
    "a negative length": RECORD + b"\x11" + SECOND[1:],
    "fewer records than the header says": RECORD,
    "more records than the header says": RECORD + SECOND + SECOND,
    "bytes behind the last": RECORD + SECOND + b"tail",
    "a key longer than the record": RECORD + SECOND[:4] + b"\x7e" + SECOND[5:],
    "a key of a negative length": RECORD + SECOND[:4] + b"\x05" + SECOND[5:],
    "a value longer than the record": RECORD + SECOND[:6] + b"\x7e" + SECOND[7:],
    "headers that are not there": RECORD + SECOND[:-1] + b"\x08",
    "an offset behind the batch's last": RECORD + SECOND[:3] + b"\x40" + SECOND[4:],
    "an offset before the batch's first": RECORD + SECOND[:3] + b"\x03" + SECOND[4:],
    "a number without an end": RECORD + b"\xff" * 12,
    "nothing": b"",
    "zeros": bytes(100),
}
PAYLOADS = {
    "data that cannot be unpacked": b"\xff\x00\xff\x00" * 10,
    "data that is cut short": None,
    "no data": b"",
}


def with_body(codec: Codec, body: bytes) -> bytes:
    return with_payload(codec, compress(codec, body) if codec else body)


def with_payload(codec: Codec, payload: bytes, *, control: bool = False) -> bytes:
    header = parse_header(encode_batch([Record(timestamp=NOW), Record(timestamp=NOW)], codec=codec))
    header = header._replace(base_timestamp=NOW, max_timestamp=NOW)
    if control:
        header = header._replace(attributes=header.attributes | CONTROL_BIT, producer_id=7, producer_epoch=0)
    return bytes(join_batch(header, payload))


def put(log: CompactedLog, batch: bytes) -> int:
    """Store a batch as it is, as a broker did that did not look inside."""
    offset = log.log.log_end_offset
    log.log.append_as_follower(offset.to_bytes(8, "big") + batch[8:])
    log.log.update_high_watermark(log.log.log_end_offset)
    return offset


def stored(log: CompactedLog, offset: int) -> bytes:
    data = log.log.read_bytes(offset, 1)
    header = parse_header(data)
    assert header.base_offset == offset
    return data[8 : header.size_bytes]


def assert_stepped_over(log: CompactedLog, batch: bytes) -> None:
    """Compaction keeps ``batch`` as it is, goes by none of its keys, and does its work around it."""
    log.append((b"a", b"1"), (b"c", b"1"))
    offset = put(log, batch)
    log.append((b"c", b"2"))
    log.log.roll()
    log.append((b"z", b"1"))
    log.compact()
    assert log.cleaned_up_to == log.log.segments.active.base_offset
    assert stored(log, offset) == batch[8:]
    kept = parse_header(log.log.read_bytes(0, 1))
    assert kept.record_count == 1, "c was replaced, and a was not: what replaces it cannot be read"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("what", [name for name in BODIES if not name.startswith("sound")])
def test_records_that_cannot_be_read_are_stepped_over(tmp_path: Path, codec: Codec, what: str) -> None:
    assert_stepped_over(CompactedLog(tmp_path), with_body(codec, BODIES[what]))


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec])
@pytest.mark.parametrize("what", PAYLOADS)
def test_bodies_that_cannot_be_unpacked_are_stepped_over(tmp_path: Path, codec: Codec, what: str) -> None:
    payload = PAYLOADS[what]
    if payload is None:
        payload = compress(codec, BODIES["sound, for comparison"])[:-3]
    assert_stepped_over(CompactedLog(tmp_path), with_payload(codec, payload))


@pytest.mark.parametrize("codec", CODECS)
def test_sound_records_are_not_stepped_over(tmp_path: Path, codec: Codec) -> None:
    log = CompactedLog(tmp_path)
    log.append((b"a", b"1"), (b"c", b"1"))
    put(log, with_body(codec, BODIES["sound, for comparison"]))
    log.append((b"b", b"2"), (b"c", b"2"))
    log.log.roll()
    log.append((b"z", b"1"))
    log.compact()
    assert log.table() == {2: (b"a", b"x"), 4: (b"b", b"2"), 5: (b"c", b"2"), 6: (b"z", b"1")}


def test_an_unknown_codec_is_stepped_over(tmp_path: Path) -> None:
    header = parse_header(with_body(Codec.NONE, BODIES["nothing"]))
    assert_stepped_over(CompactedLog(tmp_path), bytes(join_batch(header._replace(attributes=7), b"xyz")))


@pytest.mark.parametrize("count", [-1, 1_000_000, 2**31 - 1])
def test_an_absurd_number_of_records_is_stepped_over(tmp_path: Path, count: int) -> None:
    header = parse_header(with_body(Codec.NONE, BODIES["nothing"]))
    batch = join_batch(header._replace(record_count=count), BODIES["sound, for comparison"])
    assert_stepped_over(CompactedLog(tmp_path), bytes(batch))


def test_a_marker_that_cannot_be_read_is_stepped_over(tmp_path: Path) -> None:
    log = CompactedLog(tmp_path)
    log.append((b"c", b"1"))
    offset = put(log, batch := with_payload(Codec.GZIP, b"no marker", control=True))
    log.append((b"c", b"2"))
    log.log.roll()
    log.append((b"z", b"1"))
    log.compact()
    assert stored(log, offset) == batch[8:]
    assert log.log.segments.first.base_offset == 0
    assert parse_header(log.log.read_bytes(0, 1)).base_offset == offset


def test_a_record_too_large_to_be_held_is_stepped_over_in_little_memory(tmp_path: Path) -> None:
    log = CompactedLog(tmp_path)
    size = 48 * 1024 * 1024
    big = encode_batch([Record(timestamp=NOW, key=b"a", value=bytes(size))], codec=Codec.ZSTD)
    log.append((b"a", b"1"), (b"c", b"1"))
    offset = put(log, big)
    log.append((b"c", b"2"))
    log.log.roll()
    log.append((b"z", b"1"))
    tracemalloc.start()
    try:
        compact_now(log.log, clock=log.clock, options=CleanerOptions(dedupe_buffer_bytes=1 << 20))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert stored(log, offset) == big[8:]
    assert peak < size


def test_a_batch_with_more_keys_than_there_is_memory_for_does_not_stop_the_rest(tmp_path: Path) -> None:
    log = CompactedLog(tmp_path)
    crowd = [(b"k%d" % number, b"v") for number in range(200)]
    log.append(*crowd)
    log.append((b"c", b"1"))
    log.append((b"c", b"2"))
    log.log.roll()
    log.append((b"z", b"1"))
    for _ in range(5):
        log.compact(CleanerOptions(dedupe_buffer_bytes=24 * 20))
    assert log.cleaned_up_to == log.log.segments.active.base_offset
    assert len(log.records()) == 202
    assert (b"c", b"1") not in log.table().values()


def loaded(path: Path, runner: InlineRunner | CleanerProcess, clock: ManualClock) -> LogDirs:
    dirs = LogDirs([path], LogDirsOptions(), clock=clock, runner=runner)
    dirs.open()
    dirs.identify(broker_id=1, cluster_id="cluster")
    dirs.load(lambda topic: COMPACT)
    return dirs


def fill(dirs: LogDirs) -> None:
    log = dirs.get_or_create(T0, None, COMPACT)
    for batch in (
        encode_batch([Record(timestamp=NOW, key=b"c", value=b"1")]),
        with_body(Codec.LZ4, BODIES["bytes behind the last"]),
        encode_batch([Record(timestamp=NOW, key=b"c", value=b"2")]),
    ):
        log.append_as_follower(log.log_end_offset.to_bytes(8, "big") + batch[8:])
    log.roll()
    log.append_as_leader(bytearray(encode_batch([Record(timestamp=NOW, key=b"z", value=b"1")])), 0)
    log.update_high_watermark(log.log_end_offset)


@pytest.mark.parametrize("runner", [InlineRunner, CleanerProcess])
def test_what_is_stepped_over_is_named_once_with_partition_and_offset(
    tmp_path: Path, runner: type[InlineRunner | CleanerProcess], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path, runner(), ManualClock())
        for _ in range(2):
            fill(dirs)
            assert await dirs.cleaner.clean_dirtiest()
        assert not dirs.cleaner.uncleanable
        await dirs.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert caplog.text.count("the batch at offset 1 of t-0 cannot be compacted") == 1
    assert caplog.text.count("the batch at offset 6 of t-0 cannot be compacted") == 1


class DyingRunner(InlineRunner):
    """Ends in the middle of so many jobs."""

    deaths = 3

    async def run(self, job: CompactionJob) -> AsyncGenerator[CompactionEvent, None]:
        if self.deaths:
            self.deaths -= 1
            raise WorkerDied("out of memory")
        async for event in super().run(job):
            yield event


def test_a_log_that_is_left_alone_is_tried_again_after_an_hour(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        dirs = loaded(tmp_path, DyingRunner(), clock)
        fill(dirs)
        for _ in range(3):
            assert not await dirs.cleaner.clean_dirtiest()
        assert dirs.cleaner.uncleanable == {T0}
        clock.advance(59 * 60_000)
        assert not await dirs.cleaner.clean_dirtiest()
        clock.advance(60_000)
        assert await dirs.cleaner.clean_dirtiest()
        assert not dirs.cleaner.uncleanable
        await dirs.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_whose_offset_is_not_in_its_batch_is_named(codec: Codec) -> None:
    batch = with_body(codec, BODIES["an offset behind the batch's last"])
    with pytest.raises(CorruptRecordError, match="record 1 of the batch has the offset delta 32"):
        BatchRecords(batch, 0, parse_header(batch)).check()
