"""Logs that begin with messages of formats 0 and 1: opened, recovered, read, cut, copied and compacted."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.old_formats import EVERY_FORMAT, Old, in_sets, numbered_records, old_set, seen

from tidelog.errors import CorruptRecordError
from tidelog.records.batch import MAGIC_V2, MAX_INT32, check_crc, iter_batches
from tidelog.records.compression import Codec, compress
from tidelog.records.legacy import messages_in, pack_legacy, parse_legacy
from tidelog.records.record import Record, decode_batch, encode_batch
from tidelog.storage.cleaner.cleaning_pass import compact_now
from tidelog.storage.log.log import Isolation, Log
from tidelog.storage.producers.producer_state import AppendOrigin

OpenLog = Callable[..., Log]
NOW = 1_500_000_000_000
SMALL: dict[str, object] = {"index_interval_bytes": 200}
OLD = 50
"""So many old records begin a log; as many of format 2 follow."""

every_format = pytest.mark.parametrize(("magic", "codec"), EVERY_FORMAT)


def written(directory: Path, sets: Sequence[bytes], base_offset: int = 0) -> Path:
    """A segment as an old broker left it, without indexes; gives the log's directory."""
    directory.mkdir(exist_ok=True)
    (directory / f"{base_offset:020d}.log").write_bytes(b"".join(sets))
    return directory


def follow(log: Log, sets: Sequence[bytes]) -> None:
    for each in sets:
        log.append_as_follower(each)
    log.update_high_watermark(log.log_end_offset)


def lead(log: Log, records: Sequence[Old]) -> None:
    for offset, timestamp, key, value in records:
        assert log.log_end_offset == offset
        log.append_as_leader(bytearray(encode_batch([Record(timestamp=timestamp, key=key, value=value)])), 3)
    log.update_high_watermark(log.log_end_offset)


def records_in(data: bytes, start: int = 0) -> Iterator[Old]:
    """What a consumer makes of an answer."""
    for pos, header in iter_batches(data):
        assert check_crc(data, pos, header.size_bytes)
        if header.magic == MAGIC_V2:
            found = [Old(*record[:4]) for record in decode_batch(data, pos)]
        else:
            found = [
                Old(each.offset, each.timestamp, each.key, each.value)
                for each in messages_in(parse_legacy(data, pos))
            ]
        yield from (record for record in found if record.offset >= start)


def read_from(log: Log, offset: int, *, at_a_time: int = 500) -> list[Old]:
    found: list[Old] = []
    while offset < log.log_end_offset:
        data = log.read_bytes(offset, at_a_time, isolation=Isolation.LOG_END)
        found += records_in(data, offset)
        assert found, offset
        offset = found[-1].offset + 1
    return found


@pytest.fixture(params=EVERY_FORMAT, ids=lambda each: f"v{each[0]}-{each[1].name.lower()}")
def mixed(request: pytest.FixtureRequest, tmp_path: Path, open_log: OpenLog) -> tuple[Log, list[Old]]:
    """A log that was opened on an old segment and has been written since; and what it holds."""
    magic, codec = request.param
    old, new = numbered_records(OLD), numbered_records(OLD, first=OLD)
    written(tmp_path / "orders-0", list(in_sets(old, magic, codec)))
    log = open_log(**SMALL)
    lead(log, new)
    return log, [*seen(old, magic), *new]


# -- reading ------------------------------------------------------------------------------------------


def test_every_offset_is_found(mixed: tuple[Log, list[Old]], open_log: OpenLog) -> None:
    log, records = mixed
    for offset in range(2 * OLD):
        assert read_from(log, offset, at_a_time=1) == records[offset:]
    log.close()
    again = open_log(**SMALL)
    assert again.log_end_offset == 2 * OLD
    assert read_from(again, 0) == records


def test_the_high_watermark_bounds_what_is_read(mixed: tuple[Log, list[Old]]) -> None:
    log, _ = mixed
    log.truncate_to(OLD)
    before = log.read_bytes(0, 1 << 20, isolation=Isolation.LOG_END)
    last = [pos for pos, _ in iter_batches(before)][-1]
    log.update_high_watermark(OLD)
    assert log.read_bytes(0, 1 << 20, isolation=Isolation.HIGH_WATERMARK) == before
    assert 0 < last < len(before)


@every_format
def test_offsets_are_found_by_time(open_log: OpenLog, tmp_path: Path, magic: int, codec: Codec) -> None:
    old, new = numbered_records(OLD), numbered_records(OLD, first=OLD)
    written(tmp_path / "orders-0", list(in_sets(old, magic, codec)))
    log = open_log(**SMALL)
    follow(log, [encode_batch([Record(timestamp=NOW + OLD)], base_offset=OLD, leader_epoch=1)])

    def found(timestamp: int) -> tuple[int, int] | None:
        place = asyncio.run(log.search_timestamp(timestamp).run())
        return None if place is None else (place.timestamp, place.offset)

    for record in old:
        expected = record if magic else Old(OLD, NOW + OLD, None, None)
        assert found(record.timestamp) == (expected.timestamp, expected.offset)
    assert found(NOW + OLD + 1) is None
    log.truncate_to(OLD)
    youngest = log.offset_of_max_timestamp()
    assert (youngest and youngest[:2]) == ((NOW + OLD - 1, OLD - 1) if magic else None)
    assert len(new) == OLD


def test_a_compressed_message_that_cannot_be_read_is_passed_over_when_times_are_looked_up(
    open_log: OpenLog, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log()
    bad = pack_legacy(4, 1, Codec.GZIP, NOW + 4, None, b"no gzip")
    bomb = pack_legacy(5, 1, Codec.GZIP, NOW + 4, None, compress(Codec.GZIP, bytes(1 << 22)))
    follow(log, [bad, bomb, old_set(numbered_records(3, first=6), 1, Codec.GZIP)])
    with caplog.at_level(logging.WARNING):
        place = asyncio.run(log.search_timestamp(NOW + 3).run())
    assert place is not None
    assert (place.timestamp, place.offset) == (NOW + 6, 6)
    assert [line.partition(" is passed over")[0] for line in caplog.messages] == [
        "orders-0: the batch at offset 4",
        "orders-0: the batch at offset 5",
    ]


# -- opening ------------------------------------------------------------------------------------------


@every_format
@pytest.mark.parametrize("clean", [True, False])
def test_an_old_directory_is_opened_whole(
    open_log: OpenLog, tmp_path: Path, magic: int, codec: Codec, clean: bool
) -> None:
    old = numbered_records(OLD)
    sets = list(in_sets(old, magic, codec))
    directory = written(tmp_path / "orders-0", sets)
    log = open_log(clean=clean, **SMALL)
    assert log.log_end_offset == OLD
    assert log.epochs.entries == []
    assert log.recovery is not None
    assert log.recovery.bytes_truncated == 0
    assert (directory / f"{0:020d}.log").read_bytes() == b"".join(sets)
    assert read_from(log, 0) == seen(old, magic)
    assert log.segments.first.offset_index.entries > 0
    assert (log.segments.first.time_index.entries > 0) == bool(magic)


@every_format
def test_a_torn_message_at_the_end_is_cut_off(
    open_log: OpenLog, tmp_path: Path, magic: int, codec: Codec
) -> None:
    whole = old_set(numbered_records(7), magic, codec)
    torn = old_set(numbered_records(1, first=7), magic, codec)
    for size in range(1, len(torn)):
        written(tmp_path / "orders-0", [whole, torn[:size]])
        log = open_log(clean=False)
        assert log.log_end_offset == 7
        assert log.segments.first.size == len(whole)
        assert log.recovery is not None
        assert log.recovery.bytes_truncated == size
        log.close()


@every_format
@pytest.mark.parametrize("tail", ["zeros", "rot"])
def test_damage_ends_a_log(open_log: OpenLog, tmp_path: Path, magic: int, codec: Codec, tail: str) -> None:
    whole = old_set(numbered_records(7), magic, codec)
    rotten = bytearray(old_set(numbered_records(7, first=7), magic, codec))
    rotten[30] ^= 1
    written(tmp_path / "orders-0", [whole, bytes(300) if tail == "zeros" else bytes(rotten)])
    log = open_log(clean=False)
    assert log.segments.first.size == len(whole)
    assert log.log_end_offset == 7
    why = "zeros follow the last batch" if tail == "zeros" else "fails its checksum"
    assert why in str(log.recovery)


def test_a_large_message_is_recovered_piece_by_piece(open_log: OpenLog, tmp_path: Path) -> None:
    large = pack_legacy(0, 1, 0, NOW, None, bytes(9 << 20))
    written(tmp_path / "orders-0", [large, large[:8] + large[8:-1] + b"x"])
    log = open_log(clean=False)
    assert (log.log_end_offset, log.segments.first.size) == (1, len(large))


def test_indexes_that_mislead_are_built_anew(mixed: tuple[Log, list[Old]], open_log: OpenLog) -> None:
    log, records = mixed
    log.close()
    index = log.directory / f"{0:020d}.index"
    index.write_bytes(index.read_bytes()[:8] * 2 + b"\xff" * 8)
    again = open_log(**SMALL)
    assert read_from(again, 0, at_a_time=1) == records


def test_an_index_entry_of_an_old_broker_is_the_first_offset_of_what_it_wrote_at_once(
    open_log: OpenLog, tmp_path: Path
) -> None:
    records = numbered_records(40)
    sets = list(in_sets(records, 1, Codec.GZIP, each=10))
    directory = written(tmp_path / "orders-0", sets)
    entries, position = b"", 0
    for slot, data in enumerate(sets):
        if slot:
            entries += (10 * slot).to_bytes(4, "big") + position.to_bytes(4, "big")
        position += len(data)
    (directory / f"{0:020d}.index").write_bytes(entries)
    (directory / f"{0:020d}.timeindex").write_bytes(b"")
    log = open_log()
    for offset in range(40):
        assert read_from(log, offset, at_a_time=1) == records[offset:]
    assert (directory / f"{0:020d}.index").read_bytes() == entries


# -- cutting ------------------------------------------------------------------------------------------


def test_a_log_is_cut_at_whole_messages(mixed: tuple[Log, list[Old]]) -> None:
    log, records = mixed
    for offset in range(2 * OLD, -1, -1):
        log.truncate_to(offset)
        held = list(records_in(log.segments.first.read_bytes(0, 1 << 20)))
        assert held == records[: len(held)]
        assert offset - 7 < len(held) <= offset
        assert log.log_end_offset in (offset, len(held))


def test_retention_by_time_goes_by_the_file_where_messages_have_no_time(
    open_log: OpenLog, tmp_path: Path, clock: ManualClock
) -> None:
    for magic in (0, 1):
        directory = tmp_path / f"retained{magic}-0"
        written(directory, [old_set(numbered_records(5, now_ms=clock.time_ms()), magic)])
        written(directory, [old_set(numbered_records(5, first=5, now_ms=clock.time_ms()), magic)], 5)
        log = open_log(directory=directory, retention_ms=10_000)
        first = directory / f"{0:020d}.log"
        os.utime(first, (0, 0))
        log.delete_old_segments()
        assert log.log_start_offset == (0 if magic else 5)


# -- following ----------------------------------------------------------------------------------------


@every_format
def test_a_follower_takes_messages_as_they_are(open_log: OpenLog, magic: int, codec: Codec) -> None:
    old = numbered_records(OLD)
    sets = list(in_sets(old, magic, codec))
    log = open_log(segment_bytes=600, **SMALL)
    follow(log, sets)
    assert len(log.segments) > 2
    stored = [segment.read_bytes(0, segment.size) for segment in log.segments]
    assert b"".join(stored) == b"".join(sets)
    # A segment begins no later than the first record in it.
    for segment, data in zip(log.segments, stored, strict=True):
        assert segment.base_offset == next(records_in(data)).offset
    assert read_from(log, 0, at_a_time=1) == seen(old, magic)
    assert log.epochs.entries == []
    follow(log, [encode_batch([Record(timestamp=NOW)], base_offset=OLD, leader_epoch=4)])
    assert log.epochs.entries == [(4, OLD)]


def test_an_old_message_behind_newer_batches_makes_a_follower_forget_its_epochs(open_log: OpenLog) -> None:
    log = open_log()
    follow(log, [encode_batch([Record(timestamp=NOW)], base_offset=0, leader_epoch=4)])
    assert log.epochs.entries == [(4, 0)]
    follow(log, [pack_legacy(1, 1, 0, NOW, b"k", b"v")])
    assert log.epochs.entries == []
    follow(log, [encode_batch([Record(timestamp=NOW)], base_offset=2, leader_epoch=5)])
    assert log.epochs.entries == [(5, 2)]


def test_a_gap_before_an_old_message_rolls_a_segment_that_reaches_it(open_log: OpenLog) -> None:
    log = open_log()
    far = 3 * MAX_INT32
    follow(log, [pack_legacy(0, 1, 0, NOW, b"k", b"v"), pack_legacy(far, 1, 0, NOW, b"k", b"v")])
    assert [segment.base_offset for segment in log.segments] == [0, far - MAX_INT32]
    assert [record.offset for record in read_from(log, 0)] == [0, far]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_follower_refuses_old_messages_that_cannot_be(open_log: OpenLog, magic: int) -> None:
    log = open_log()
    good = pack_legacy(0, magic, 0, NOW, b"k", b"v" * 50)
    rotten = good[:-1] + b"x"
    short = pack_legacy(1, magic, 0, NOW, None, None)
    short = short[:8] + (13).to_bytes(4, "big") + short[12:]
    for bad in (rotten, good + rotten, good + short):
        with pytest.raises(CorruptRecordError):
            log.append_as_follower(bad)
    assert log.log_end_offset == 0
    assert log.append_as_follower(good[:-1]) is None


# -- compaction ---------------------------------------------------------------------------------------


def compacted(log: Log, clock: ManualClock, cleaned_up_to: int | None = None) -> int:
    log.roll()
    lead(log, [Old(log.log_end_offset, clock.time_ms(), b"last", b"")])
    log.roll()
    lead(log, [Old(log.log_end_offset, clock.time_ms(), b"last", b"")])
    done = compact_now(log, clock=clock, cleaned_up_to=cleaned_up_to)
    assert done is not None
    return done.end_offset


def stored_in(log: Log) -> list[Old]:
    return [record for segment in log.segments for record in records_in(segment.read_bytes(0, segment.size))]


def test_of_each_key_the_last_record_stays_in_format_2(
    mixed: tuple[Log, list[Old]], open_log: OpenLog, clock: ManualClock
) -> None:
    log, records = mixed
    codec = next(iter_batches(log.segments.first.read_bytes(0, 1000)))[1].codec
    # Ten keys: of the old records those of keys 5 to 9 have no later one.
    log.truncate_to(OLD + 5)
    compacted(log, clock)
    expected = {record.key: record for record in records[: OLD + 5]}.values()
    held = stored_in(log)
    assert held[:-2] == sorted(expected)
    data = log.segments.first.read_bytes(0, log.segments.first.size)
    headers = [header for _, header in iter_batches(data)]
    assert {header.magic for header in headers} == {2}
    assert {header.codec for header in headers if header.last_offset < OLD} == {codec}
    assert {header.partition_leader_epoch for header in headers if header.last_offset < OLD} == {-1}
    assert read_from(log, 0) == held
    log.close(clean=False)
    assert read_from(open_log(clean=False, **SMALL), 0) == held


@every_format
def test_tombstones_of_old_formats_get_a_delete_horizon(
    open_log: OpenLog, clock: ManualClock, magic: int, codec: Codec
) -> None:
    log = open_log(cleanup_policy=("compact",), delete_retention_ms=1000)
    follow(log, [old_set([Old(0, NOW, b"a", None), Old(1, NOW, b"b", b"1")], magic, codec)])
    end = compacted(log, clock)
    first = next(header for _, header in iter_batches(log.segments.first.read_bytes(0, 1000)))
    assert first.delete_horizon_ms == clock.time_ms() + 1000
    assert stored_in(log)[:2] == seen([Old(0, NOW, b"a", None), Old(1, NOW, b"b", b"1")], magic)
    clock.advance(1001)
    compacted(log, clock, end)
    assert stored_in(log)[0].offset == 1


def test_an_old_message_that_cannot_be_read_stays_as_it_is(
    open_log: OpenLog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(cleanup_policy=("compact",))
    bad = pack_legacy(1, 1, Codec.GZIP, NOW, None, compress(Codec.GZIP, bytes(1 << 20)))
    follow(log, [pack_legacy(0, 1, 0, NOW, b"a", b"1"), bad, pack_legacy(2, 1, 0, NOW, b"a", b"2")])
    compacted(log, clock)
    data = log.segments.first.read_bytes(0, log.segments.first.size)
    assert data.startswith(bad)
    assert [header.last_offset for _, header in iter_batches(data)] == [1, 2, 3]


def test_producers_are_rebuilt_from_what_follows_old_messages(open_log: OpenLog, tmp_path: Path) -> None:
    written(tmp_path / "orders-0", list(in_sets(numbered_records(OLD), 1, Codec.SNAPPY)))
    log = open_log()
    batch = encode_batch(
        [Record(timestamp=NOW, value=b"v")], producer_id=7, producer_epoch=0, base_sequence=0
    )
    first = log.append_as_leader(bytearray(batch), 2, origin=AppendOrigin.CLIENT)
    log.close(clean=False)
    again = open_log(clean=False)
    repeated = again.append_as_leader(bytearray(batch), 2)
    assert (repeated.duplicate, repeated.first_offset) == (True, first.first_offset)
    assert again.epochs.entries == [(2, OLD)]
