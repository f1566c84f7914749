"""Compaction: the last record of every key survives where it was, and nothing else is promised less."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rigs.compacted_log import COMPACT, DAY_MS, CompactedLog, in_transaction

from tidelog.errors import CorruptRecordError
from tidelog.records.batch import MAX_INT64, MIN_INT64, iter_batches
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType
from tidelog.records.record import Record, decode_batch, encode_batch
from tidelog.records.record_codec import decode_records
from tidelog.storage.cleaner.cleanable import examine
from tidelog.storage.cleaner.cleaner_options import CleanerOptions
from tidelog.storage.cleaner.cleaning_pass import CleaningPass, LogChanged
from tidelog.storage.cleaner.compaction import CleanedGroup, SourceSegment, compact, group_segments
from tidelog.storage.disk import Disk
from tidelog.storage.log.log import Isolation, Log
from tidelog.storage.log_config import LogConfig


@pytest.fixture
def compacted(tmp_path: Path) -> CompactedLog:
    return CompactedLog(tmp_path)


# -- what stays -----------------------------------------------------------------------------------


def test_of_each_key_the_last_record_stays_at_its_offset(compacted: CompactedLog) -> None:
    compacted.append((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    compacted.append((b"c", b"1"), (b"b", b"2"))
    compacted.log.roll()
    compacted.append((b"a", b"3"))
    compacted.compact()
    assert compacted.table() == {2: (b"a", b"2"), 3: (b"c", b"1"), 4: (b"b", b"2"), 5: (b"a", b"3")}
    assert compacted.log.log_end_offset == 6
    assert compacted.cleaned_up_to == 5


def test_the_active_segment_is_not_touched(compacted: CompactedLog) -> None:
    compacted.append((b"a", b"1"))
    compacted.append((b"a", b"2"))
    compacted.compact()
    assert compacted.cleaned_up_to is None
    assert set(compacted.table()) == {0, 1}


def test_segments_behind_the_last_stable_offset_are_not_touched(compacted: CompactedLog) -> None:
    compacted.append((b"a", b"1"), (b"a", b"2"))
    compacted.log.roll()
    compacted.append((b"a", b"3"), transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    compacted.append((b"a", b"4"))
    compacted.log.roll()
    compacted.append((b"z", b"1"))
    assert compacted.log.last_stable_offset == 2
    compacted.compact()
    assert set(compacted.table()) == {1, 2, 3, 4}
    assert compacted.cleaned_up_to == 2


def test_segments_behind_the_high_watermark_are_not_touched(compacted: CompactedLog) -> None:
    for value in (b"1", b"2", b"3"):
        compacted.append((b"a", value), (b"a", value))
        compacted.log.roll()
    compacted.log.update_high_watermark(3)
    compacted.compact()
    assert set(compacted.table()) == {1, 2, 3, 4, 5}


def test_records_without_a_key_go(compacted: CompactedLog) -> None:
    compacted.append((b"a", b"1"))
    compacted.log.roll()
    segment = compacted.log.segments.active
    data = encode_batch(
        [Record(offset=1, timestamp=1, value=b"x"), Record(offset=2, timestamp=1, key=b"b")], base_offset=1
    )
    compacted.log.append_as_follower(data)
    assert segment.size
    compacted.log.roll()
    compacted.log.update_high_watermark(compacted.log.log_end_offset)
    compacted.compact()
    assert compacted.table() == {0: (b"a", b"1"), 2: (b"b", None)}


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_keep_codec_headers_producer_and_timestamps(compacted: CompactedLog, codec: Codec) -> None:
    stamp = compacted.clock.time_ms()
    records = [
        Record(timestamp=stamp + 5, key=b"a", value=b"1" * 300, headers=(("h", b"x"), ("n", None))),
        Record(timestamp=stamp + 9, key=b"b", value=b"2" * 300),
        Record(timestamp=stamp + 2, key=b"c", value=b"3" * 300, headers=(("h", b"y"),)),
    ]
    batch = encode_batch(records, codec=codec, producer_id=5, producer_epoch=2, base_sequence=0)
    compacted.log.append_as_leader(bytearray(batch), 0)
    compacted.append((b"b", b"new"))
    compacted.log.roll()
    compacted.append((b"end", b""))
    compacted.compact()
    header, left = compacted.batches()[0]
    assert left == [records[0]._replace(offset=0), records[2]._replace(offset=2)]
    assert header.codec == codec
    assert (header.base_offset, header.last_offset) == (0, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, 0)
    assert header.max_timestamp == stamp + 5


def test_a_batch_that_loses_nothing_is_copied_byte_for_byte(compacted: CompactedLog) -> None:
    compacted.append((b"a", b"1"), (b"b", b"1"), codec=Codec.ZSTD)
    before = compacted.log.segments.first.read_bytes(0, 10_000)
    compacted.log.roll()
    compacted.append((b"c", b"1"))
    compacted.compact()
    assert compacted.log.segments.first.read_bytes(0, 10_000) == before


def test_small_segments_are_joined_and_can_be_searched(compacted: CompactedLog) -> None:
    for number in range(60):
        compacted.clock.advance(1000)
        compacted.append((b"key-%d" % number, b"x" * 50), (b"same", b"y"))
        if number % 5 == 4:
            compacted.log.roll()
    compacted.append((b"end", b""))
    compacted.compact()
    assert [segment.base_offset for segment in compacted.log.segments] == [0, 120]
    cleaned = compacted.log.segments.first
    assert cleaned.offset_index.entries > 5
    assert cleaned.time_index.entries > 5
    cleaned.offset_index.check(cleaned.size)
    cleaned.time_index.check()
    assert compacted.read_all() == compacted.records()
    for number in (0, 17, 59):
        timestamp = compacted.clock.time_ms() - 1000 * (59 - number)
        found = compacted.log.offset_for_timestamp(timestamp)
        assert found is not None
        assert found.offset == 2 * number


def test_groups_stay_within_segment_bytes_and_index_bytes() -> None:
    segments = [SourceSegment(base * 10, 40, 16, 24, 0) for base in range(6)]
    by_size = group_segments(segments, 100, 1000, 60)
    assert [[each.base_offset for each in group] for group in by_size] == [[0, 10], [20, 30], [40, 50]]
    by_index = group_segments(segments, 1000, 50, 60)
    assert [len(group) for group in by_index] == [2, 2, 2], "two time indexes of 24 bytes fit in 50"
    far = [SourceSegment(0, 40, 8, 12, 0), SourceSegment(2**31 - 5, 40, 8, 12, 0)]
    assert len(group_segments(far, 1000, 1000, 2**31 + 10)) == 2
    assert len(group_segments(far, 1000, 1000, 2**31 - 1)) == 1


def test_a_second_pass_reads_only_the_dirty_part_for_its_map(compacted: CompactedLog) -> None:
    compacted.append((b"a", b"1"), (b"b", b"1"))
    compacted.log.roll()
    compacted.append((b"x", b""))
    compacted.compact()
    compacted.append((b"a", b"2"))
    compacted.log.roll()
    compacted.append((b"y", b""))
    dirty = examine(compacted.log, compacted.cleaned_up_to, compacted.clock.time_ms())
    assert dirty.first_dirty_offset == 2
    compacted.compact()
    assert compacted.table() == {1: (b"b", b"1"), 2: (b"x", b""), 3: (b"a", b"2"), 4: (b"y", b"")}


def test_a_map_that_is_too_small_takes_several_passes(compacted: CompactedLog) -> None:
    for number in range(30):
        compacted.append((b"k%d" % number, b"1"), (b"k%d" % number, b"2"))
    compacted.log.roll()
    compacted.append((b"end", b""))
    small = CleanerOptions(dedupe_buffer_bytes=24 * 12)
    marks = []
    while compacted.cleaned_up_to != 60:
        compacted.compact(small)
        marks.append(compacted.cleaned_up_to)
        assert len(marks) < 10
    assert len(marks) > 2
    assert set(compacted.table()) == {*range(1, 60, 2), 60}


# -- tombstones -----------------------------------------------------------------------------------


def test_tombstones_go_only_after_delete_retention(compacted: CompactedLog) -> None:
    compacted.append((b"a", b"1"), (b"b", b"1"))
    compacted.append((b"a", None), (b"c", b"1"))
    compacted.log.roll()
    compacted.append((b"end", b""))
    compacted.compact()
    assert compacted.table()[2] == (b"a", None)
    stamped = next(header for header, _ in compacted.batches() if header.base_offset == 2)
    assert stamped.delete_horizon_ms == compacted.clock.time_ms() + DAY_MS
    times = {record.timestamp for record in compacted.records()}
    assert times == {compacted.clock.time_ms()}, "the horizon must not change what readers see"

    compacted.clock.advance(DAY_MS - 1)
    compacted.cleaned_up_to = 0
    compacted.compact()
    assert compacted.table()[2] == (b"a", None)

    compacted.clock.advance(1)
    compacted.cleaned_up_to = 0
    compacted.compact()
    assert compacted.table() == {1: (b"b", b"1"), 3: (b"c", b"1"), 4: (b"end", b"")}


def test_the_delete_horizon_is_set_once(compacted: CompactedLog) -> None:
    compacted.append((b"a", None))
    compacted.log.roll()
    compacted.append((b"end", b""))
    compacted.compact()
    first = compacted.batches()[0][0].delete_horizon_ms
    compacted.clock.advance(1000)
    compacted.cleaned_up_to = 0
    compacted.compact()
    assert compacted.batches()[0][0].delete_horizon_ms == first


def test_a_delete_horizon_that_64_bits_do_not_hold_is_the_latest_time(tmp_path: Path) -> None:
    config = LogConfig(cleanup_policy=("compact",), delete_retention_ms=MAX_INT64)
    compacted = CompactedLog(tmp_path, config)
    compacted.append((b"a", b"1"), (b"a", None))
    compacted.log.roll()
    compacted.append((b"end", b""))
    compacted.compact()
    header, (tombstone,) = compacted.batches()[0]
    assert header.delete_horizon_ms == MAX_INT64
    assert (tombstone.key, tombstone.value, tombstone.timestamp) == (b"a", None, compacted.clock.time_ms())


# -- timestamps further apart than 64 bits hold ---------------------------------------------------


def test_a_tombstone_of_the_earliest_time_can_be_read_beside_its_delete_horizon(
    compacted: CompactedLog,
) -> None:
    earliest = MIN_INT64 + compacted.clock.time_ms() + 1000
    compacted.append_at((earliest, b"a", b"1"), (earliest, b"a", None))
    compacted.append((b"b", b""))
    compacted.log.roll()
    compacted.append((b"end", b""))
    compacted.compact()
    header, records = compacted.batches()[0]
    assert header.delete_horizon_ms == compacted.clock.time_ms() + DAY_MS
    assert records == [Record(1, earliest, b"a", None)]
    segment = compacted.log.segments[0]
    by_clients = decode_records(segment.read_bytes(0, header.size_bytes))
    assert [record[:2] for record in by_clients] == [(1, earliest)]

    compacted.clock.advance(DAY_MS)
    compacted.cleaned_up_to = 0
    compacted.compact()
    assert compacted.table() == {2: (b"b", b""), 3: (b"end", b"")}


def test_records_of_the_earliest_and_of_the_present_time_share_a_compacted_batch(
    compacted: CompactedLog,
) -> None:
    now_ms = compacted.clock.time_ms()
    earliest, latest = MIN_INT64 + now_ms + 1, now_ms + 3_600_000
    compacted.append_at((0, b"a", b"1"), (earliest, b"b", b"1"), (latest, b"c", b"1"), (0, b"d", b"1"))
    compacted.append((b"a", b"2"))
    compacted.log.roll()
    compacted.append((b"d", b"2"))
    compacted.log.roll()
    compacted.append((b"end", b""))
    for _ in range(2):  # the second pass has deltas before it that have wrapped around
        compacted.cleaned_up_to = 0
        compacted.compact()
        header, records = compacted.batches()[0]
        assert (header.base_timestamp, header.max_timestamp) == (earliest, latest)
        assert [(record.offset, record.timestamp) for record in records] == [(1, earliest), (2, latest)]


# -- producers ------------------------------------------------------------------------------------


def test_the_last_batch_of_an_active_producer_stays_as_an_empty_header(compacted: CompactedLog) -> None:
    compacted.append((b"a", b"1"), producer_id=9, producer_epoch=1, base_sequence=0)
    compacted.append((b"a", b"2"), (b"a", b"2"), producer_id=9, producer_epoch=1, base_sequence=1)
    compacted.append((b"a", b"3"))
    compacted.log.roll()
    compacted.append((b"end", b""))
    compacted.compact()
    headers = [header for header, _ in compacted.batches()]
    assert [(header.base_offset, header.record_count) for header in headers] == [(1, 0), (3, 1), (4, 1)]
    assert (headers[0].last_offset, headers[0].last_sequence, headers[0].producer_epoch) == (2, 2, 1)

    # Without snapshots, only the empty batch is left to know the sequence number from.
    for snapshot in compacted.log.directory.glob("*.snapshot"):
        snapshot.unlink()
    compacted.reopen()
    compacted.append((b"a", b"4"), producer_id=9, producer_epoch=1, base_sequence=3)
    assert compacted.table()[5] == (b"a", b"4")


def test_an_expired_producer_leaves_nothing(compacted: CompactedLog) -> None:
    compacted.append((b"a", b"1"), producer_id=9, producer_epoch=1, base_sequence=0)
    compacted.append((b"a", b"2"))
    compacted.log.roll()
    compacted.append((b"end", b""))
    compacted.clock.advance(2 * DAY_MS)
    assert compacted.log.producers.remove_expired(compacted.clock.time_ms()) == 1
    compacted.compact()
    assert [header.base_offset for header, _ in compacted.batches()] == [1, 2]


def test_the_last_record_of_a_pass_stays_so_that_readers_reach_the_end(compacted: CompactedLog) -> None:
    compacted.append((b"a", None))
    compacted.append((b"b", None), (b"c", None))
    compacted.log.roll()
    compacted.compact()
    compacted.compact_again()
    assert compacted.table() == {2: (b"c", None)}
    compacted.compact_again()
    compacted.reopen()
    assert compacted.log.log_end_offset == 3
    assert compacted.read_all()[-1].offset == 2

    # It goes when there is something behind it.
    compacted.append((b"d", b"1"))
    compacted.log.roll()
    compacted.compact_again()
    assert compacted.table() == {3: (b"d", b"1")}


def test_the_last_record_of_a_pass_stays_without_a_key(compacted: CompactedLog) -> None:
    compacted.log.update_config(LogConfig(cleanup_policy=("delete",)))
    compacted.append((b"a", b"1"))
    compacted.append((None, b"1"), (None, b"2"))
    compacted.log.update_config(COMPACT)
    compacted.log.roll()
    compacted.compact()
    assert compacted.table() == {0: (b"a", b"1"), 2: (None, b"2")}


# -- transactions ---------------------------------------------------------------------------------


def test_records_of_aborted_transactions_go_and_do_not_hide_earlier_ones(compacted: CompactedLog) -> None:
    compacted.append((b"a", b"good"))
    compacted.append((b"a", b"aborted"), **in_transaction(1, 0))
    compacted.append((b"b", b"committed"), **in_transaction(2, 0))
    compacted.end_transaction(ControlType.ABORT, 1)
    compacted.end_transaction(ControlType.COMMIT, 2)
    compacted.log.roll()
    compacted.append((b"end", b""))
    compacted.compact()
    assert compacted.table() == {0: (b"a", b"good"), 2: (b"b", b"committed"), 5: (b"end", b"")}
    index = compacted.log.segments.first.txn_index
    assert [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in index.entries] == [(1, 1, 3)]


def test_markers_go_in_a_later_pass_than_their_records(compacted: CompactedLog) -> None:
    compacted.append((b"a", b"x"), **in_transaction(1, 0))
    compacted.end_transaction(ControlType.ABORT, 1)
    compacted.append((b"b", b"x"), **in_transaction(2, 0))
    compacted.end_transaction(ControlType.COMMIT, 2)
    compacted.append((b"b", b"later"))
    compacted.log.roll()
    compacted.append((b"end", b""))
    compacted.clock.advance(2 * DAY_MS)
    compacted.log.producers.remove_expired(compacted.clock.time_ms())

    def markers() -> list[tuple[int, int | None]]:
        return [
            (each.base_offset, each.delete_horizon_ms) for each, _ in compacted.batches() if each.is_control
        ]

    compacted.compact()
    assert markers() == [(1, None), (3, None)]
    compacted.cleaned_up_to = 0
    compacted.compact()
    horizon = compacted.clock.time_ms() + DAY_MS
    assert markers() == [(1, horizon), (3, horizon)]
    assert compacted.log.segments.first.txn_index.entries == []
    compacted.clock.advance(DAY_MS)
    compacted.cleaned_up_to = 0
    compacted.compact()
    assert markers() == []
    assert set(compacted.table()) == {4, 5}


@pytest.mark.parametrize("control_type", [ControlType.COMMIT, ControlType.ABORT])
def test_the_marker_that_ends_a_pass_keeps_its_record(
    compacted: CompactedLog, control_type: ControlType
) -> None:
    compacted.append((b"a", None), **in_transaction(1, 0))
    compacted.end_transaction(control_type, 1)
    compacted.log.roll()
    for _ in range(4):
        compacted.log.producers.remove_expired(compacted.clock.time_ms())
        compacted.compact_again()
    assert [(each.base_offset, each.is_control, each.record_count) for each, _ in compacted.batches()] == [
        (1, True, 1)
    ]


@pytest.mark.parametrize("control_type", [ControlType.COMMIT, ControlType.ABORT])
def test_the_marker_that_holds_an_epoch_keeps_its_record(
    compacted: CompactedLog, control_type: ControlType
) -> None:
    """With transactions of version 2 the marker has an epoch of which there is no other batch."""
    compacted.append((b"a", b"1"), **in_transaction(1, 0))
    compacted.end_transaction(control_type, 1, epoch=1)
    compacted.append((b"a", b"2"))
    compacted.append((b"b", b"1"))
    compacted.log.roll()
    for _ in range(4):
        compacted.compact_again()
    markers = [each for each, _ in compacted.batches() if each.is_control]
    assert [(each.base_offset, each.producer_epoch, each.record_count) for each in markers] == [(1, 1, 1)]
    # The same is known of the producer when only the log is left to know it from.
    for snapshot in compacted.log.directory.glob("*.snapshot"):
        snapshot.unlink()
    compacted.reopen()
    assert compacted.log.producers.entries[1].epoch == 1
    assert compacted.log.last_stable_offset == compacted.log.log_end_offset


def test_a_marker_in_the_active_segment_still_aborts_what_is_before_it(compacted: CompactedLog) -> None:
    compacted.append((b"a", b"good"))
    compacted.append((b"a", b"aborted"), **in_transaction(1, 0))
    compacted.log.roll()
    compacted.end_transaction(ControlType.ABORT, 1)
    compacted.compact()
    assert compacted.table() == {0: (b"a", b"good")}


def test_an_abort_in_the_clean_part_does_not_hide_what_its_producer_committed_later(
    compacted: CompactedLog,
) -> None:
    compacted.append((b"a", b"old"), **in_transaction(1, 0))
    compacted.end_transaction(ControlType.COMMIT, 1)
    compacted.append((b"b", b"aborted"), **in_transaction(1, 1))
    compacted.end_transaction(ControlType.ABORT, 1)
    compacted.log.roll()
    compacted.append((b"a", b"new"), **in_transaction(1, 2))
    compacted.end_transaction(ControlType.COMMIT, 1)
    compacted.compact()
    compacted.log.roll()
    compacted.append((b"end", b""))
    compacted.compact()
    assert compacted.table() == {4: (b"a", b"new"), 6: (b"end", b"")}


# -- faults ---------------------------------------------------------------------------------------


def test_a_corrupt_batch_stops_the_pass_and_leaves_the_log_as_it_was(compacted: CompactedLog) -> None:
    compacted.append((b"a", b"1"))
    compacted.append((b"a", b"2"))
    compacted.log.roll()
    path = compacted.log.segments.first.path()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptRecordError, match="fails its CRC"):
        compacted.compact()
    assert path.read_bytes() == data
    assert not list(path.parent.glob("*.cleaned"))


def test_a_log_that_was_truncated_meanwhile_does_not_take_the_result(compacted: CompactedLog) -> None:
    for value in (b"1", b"2", b"3"):
        compacted.append((b"a", value), (b"a", value))
    compacted.log.roll()
    compacted.append((b"a", b"4"))
    cleaning = CleaningPass(examine(compacted.log, None, 0), CleanerOptions(), compacted.clock)
    group = next(compact(cleaning.job))
    assert isinstance(group, CleanedGroup)
    compacted.log.truncate_to(4)
    with pytest.raises(LogChanged):
        cleaning.take_now(group)
    cleaning.clean_up()
    assert set(compacted.table()) == {0, 1, 2, 3}
    assert not list(compacted.log.directory.glob("*.cleaned"))


class CrashingDisk(Disk):
    """Renames so often, and then the process ends."""

    def __init__(self) -> None:
        self.renames_left = 1 << 30

    class Crash(Exception):
        """The process ends here."""

    def rename(self, source: Path, target: Path) -> None:  # type: ignore[override]
        if self.renames_left == 0:
            raise self.Crash
        self.renames_left -= 1
        source.rename(target)


def test_a_crash_at_any_step_of_the_swap_loses_nothing(tmp_path: Path) -> None:
    crashes = 0
    while True:
        disk = CrashingDisk()
        compacted = CompactedLog(tmp_path / str(crashes), disk=disk)
        for number in range(12):
            compacted.append((b"k%d" % (number % 3), b"%d" % number))
            if number % 4 == 3:
                compacted.log.roll()
        last = {record.key: record for record in compacted.records()}
        disk.renames_left = crashes
        try:
            compacted.compact()
            crashed = False
        except CrashingDisk.Crash:
            crashed = True
        compacted.disk = Disk()
        compacted.reopen()
        left_behind = [path.name for path in compacted.log.directory.iterdir()]
        assert not [name for name in left_behind if name.endswith((".swap", ".cleaned", ".deleted"))]
        assert compacted.log.log_end_offset == 12
        after = compacted.records()
        assert {record.key: record for record in after} == last
        assert compacted.read_all() == after
        compacted.cleaned_up_to = None
        compacted.compact()
        assert compacted.records() == sorted(last.values())
        if not crashed:
            break
        crashes += 1
    assert crashes >= 15, "three files of the new segment twice, and three of each of the three old ones"


def test_a_crash_in_the_middle_of_writing_leaves_files_that_loading_removes(compacted: CompactedLog) -> None:
    compacted.append((b"a", b"1"), (b"a", b"2"))
    compacted.log.roll()
    compacted.append((b"b", b"1"))
    before = compacted.records()
    (compacted.log.directory / "00000000000000000000.log.cleaned").write_bytes(b"half a batch")
    compacted.reopen()
    assert compacted.records() == before
    assert not list(compacted.log.directory.glob("*.cleaned"))


# -- the property ---------------------------------------------------------------------------------

keys = st.sampled_from([b"a", b"b", b"c", b"d", b""])
values = st.none() | st.binary(max_size=3)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.tuples(keys, values), min_size=1, max_size=5)),
        st.tuples(st.just("roll"), st.none()),
        st.tuples(st.just("compact"), st.none()),
        st.tuples(st.just("wait"), st.sampled_from([1000, DAY_MS])),
        st.tuples(st.just("reopen"), st.booleans()),
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(script=steps, seed=st.integers(0, 2**32))
def test_any_history_keeps_the_last_value_of_every_key_at_its_offset(
    tmp_path_factory: pytest.TempPathFactory, script: Sequence[tuple[str, object]], seed: int
) -> None:
    compacted = CompactedLog(tmp_path_factory.mktemp("log"))
    codecs = random.Random(seed)
    written: dict[int, tuple[bytes, bytes | None]] = {}
    last: dict[bytes, tuple[int, int]] = {}
    for action, argument in script:
        if action == "append":
            for key, value in argument:  # type: ignore[attr-defined]
                offset = len(written)
                written[offset] = (key, value)
                last[key] = (offset, compacted.clock.time_ms())
            compacted.append(*argument, codec=codecs.choice(list(Codec)))  # type: ignore[misc]
        elif action == "roll":
            compacted.log.roll()
        elif action == "wait":
            compacted.clock.advance(argument)  # type: ignore[arg-type]
        elif action == "reopen":
            compacted.reopen(clean=bool(argument))
        else:
            active = compacted.log.segments.active
            untouched = active.read_bytes(0, active.size)
            compacted.compact()
            assert compacted.log.segments.active.read_bytes(0, active.size) == untouched
        table = compacted.table()
        assert table.items() <= written.items(), "surviving records are unchanged and at their offsets"
        for key, (offset, time_ms) in last.items():
            is_old_tombstone = written[offset][1] is None and compacted.clock.time_ms() - time_ms >= DAY_MS
            assert offset in table or is_old_tombstone, f"the last record of {key!r} is gone"
        assert compacted.log.log_end_offset == len(written)
        assert [record.offset for record in compacted.read_all()] == sorted(table)
    compacted.log.close(clean=False)


# -- the property, with transactions ----------------------------------------------------------------

transaction_steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.tuples(st.integers(1, 3), keys)),
        st.tuples(st.just("commit"), st.integers(1, 3)),
        st.tuples(st.just("abort"), st.integers(1, 3)),
        st.tuples(st.just("plain"), keys),
        st.tuples(st.just("roll"), st.none()),
        st.tuples(st.just("compact"), st.none()),
        st.tuples(st.just("wait"), st.none()),
        st.tuples(st.just("crash"), st.none()),
    ),
    min_size=5,
    max_size=50,
)


def read_committed(log: Log) -> list[Record]:
    """What a consumer with isolation.level=read_committed makes of fetch answers, as Java's does it."""
    found: list[Record] = []
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        fetched = log.read(offset, 600, isolation=Isolation.TXN_COMMITTED)
        data = log.read_bytes(offset, 600, isolation=Isolation.TXN_COMMITTED)
        if not data:
            break
        ahead = sorted(fetched.aborted or [], key=lambda aborted: aborted.first_offset)
        aborting: set[int] = set()
        for pos, header in iter_batches(data):
            while ahead and ahead[0].first_offset <= header.last_offset:
                aborting.add(ahead.pop(0).producer_id)
            if header.is_control:
                aborting -= {header.producer_id}
            elif not (header.is_transactional and header.producer_id in aborting):
                found += [record for record in decode_batch(data, pos) if record.offset >= offset]
            offset = header.next_offset
    return found


@settings(max_examples=80, deadline=None)
@given(script=transaction_steps, epoch_per_transaction=st.booleans())
def test_any_history_of_transactions_keeps_what_was_committed_and_shows_nothing_aborted(
    tmp_path_factory: pytest.TempPathFactory,
    script: Sequence[tuple[str, tuple[int, bytes] | int | bytes | None]],
    epoch_per_transaction: bool,
) -> None:
    compacted = CompactedLog(tmp_path_factory.mktemp("log"))
    sequences, epochs = dict.fromkeys((1, 2, 3), 0), dict.fromkeys((1, 2, 3), 0)
    pending: dict[int, list[tuple[int, bytes]]] = {}
    committed: dict[int, bytes] = {}
    for action, argument in script:
        end = compacted.log.log_end_offset
        if action == "write":
            assert isinstance(argument, tuple)
            producer, key = argument
            where = in_transaction(producer, sequences[producer], epochs[producer])
            compacted.append((key, b"%d" % end), **where)
            sequences[producer] += 1
            pending.setdefault(producer, []).append((end, key))
        elif action in ("commit", "abort") and argument in pending:
            assert isinstance(argument, int)
            if epoch_per_transaction:
                epochs[argument] += 1
                sequences[argument] = 0
            compacted.end_transaction(ControlType[action.upper()], argument, epochs[argument])
            if action == "commit":
                committed.update(pending[argument])
            del pending[argument]
        elif action == "plain":
            assert isinstance(argument, bytes)
            compacted.append((argument, b"%d" % end))
            committed[end] = argument
        elif action == "roll":
            compacted.log.roll()
        elif action == "wait":
            compacted.clock.advance(DAY_MS)
        elif action == "compact":
            compacted.compact()
        elif action == "crash":
            compacted.reopen(clean=False)
        stable = compacted.log.last_stable_offset
        visible = {record.offset: record.key for record in read_committed(compacted.log)}
        decided = {offset: key for offset, key in committed.items() if offset < stable}
        assert visible.items() <= decided.items(), "only committed records are shown"
        last = {key: offset for offset, key in sorted(decided.items())}
        assert set(last.values()) <= visible.keys(), "the last committed record of every key is there"
    compacted.log.close(clean=False)
