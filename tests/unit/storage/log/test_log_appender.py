"""Appending: groups, rolling, syncing, and what is left when the disk fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.faulty_disk import FaultyDisk

from tidelog.errors import CorruptRecordError, ErrorCode, KafkaError, LogDirOfflineError
from tidelog.records.batch import MAX_INT32, iter_batches, set_base_offset, set_leader_epoch
from tidelog.records.control import ControlType, EndTxnMarker, encode_end_txn_marker
from tidelog.records.record import Record, encode_batch
from tidelog.storage.log.log import Isolation, Log
from tidelog.storage.log.log_appender import UnexpectedOffsetError
from tidelog.storage.producers.producer_state import AppendOrigin

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

OpenLog = Callable[..., Log]
NOW = 1_700_000_000_000


def batch(count: int = 1, size: int = 100, timestamp: int = NOW, **how: object) -> bytearray:
    records = [Record(timestamp=timestamp, value=b"v" * size) for _ in range(count)]
    return bytearray(encode_batch(records, **how))  # type: ignore[arg-type]


def sequenced(sequence: int, producer_id: int = 7, **how: object) -> bytearray:
    return batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence, **how)  # type: ignore[arg-type]


def replicated(base_offset: int, epoch: int = 0, **how: object) -> bytearray:
    data = batch(**how)  # type: ignore[arg-type]
    set_base_offset(data, 0, base_offset)
    set_leader_epoch(data, 0, epoch)
    return data


def everything(log: Log) -> tuple[object, ...]:
    """All that an append may change."""
    active = log.segments.active
    return (
        log.log_end_offset,
        active.size,
        active.path().read_bytes()[: active.size],
        os.stat(active.path()).st_size if not log.config.preallocate else None,  # noqa: PTH116
        active.max_timestamp,
        active.offset_index.entries,
        active.time_index.entries,
        active.txn_index.entries[:],
        dict(log.producers.entries),
        log.producers.first_undecided_offset,
        log.epochs.entries[:],
        log.read_bytes(log.log_start_offset, 10**6, isolation=Isolation.LOG_END),
    )


# -- groups -------------------------------------------------------------------------------------------


def test_staged_batches_are_seen_by_nobody_until_they_are_written(open_log: OpenLog) -> None:
    log = open_log()
    infos = [log.stage_as_leader(sequenced(sequence), 0) for sequence in range(3)]
    assert [info.first_offset for info in infos] == [0, 1, 2]
    assert log.log_end_offset == 0
    assert log.read(0, 1000, isolation=Isolation.LOG_END).length == 0
    log.write_staged()
    assert log.log_end_offset == 3
    assert len(list(iter_batches(log.read_bytes(0, 10_000, isolation=Isolation.LOG_END)))) == 3


def test_a_group_is_written_with_one_call(open_log: OpenLog, disk: FaultyDisk) -> None:
    log = open_log()
    log.append_as_leader(batch(), 0)
    before = disk.written_calls
    for _ in range(20):
        log.stage_as_leader(batch(size=10), 0)
    log.write_staged()
    assert disk.written_calls == before + 1
    log.write_staged()
    assert disk.written_calls == before + 1


def test_a_refused_batch_leaves_the_others_of_its_group_alone(open_log: OpenLog) -> None:
    log = open_log()
    log.stage_as_leader(sequenced(0), 0)
    with pytest.raises(KafkaError):
        log.stage_as_leader(sequenced(5), 0)
    assert log.stage_as_leader(sequenced(0), 0).duplicate
    assert log.stage_as_leader(sequenced(1), 0).first_offset == 1
    log.write_staged()
    assert log.log_end_offset == 2


def test_an_append_writes_what_was_staged_before_it(open_log: OpenLog) -> None:
    log = open_log()
    log.stage_as_leader(batch(), 0)
    assert log.append_as_leader(batch(), 0).first_offset == 1
    assert log.log_end_offset == 2


def test_a_group_larger_than_one_call_takes_is_written_whole(open_log: OpenLog) -> None:
    log = open_log()
    for _ in range(1500):
        log.stage_as_leader(batch(size=1), 0)
    log.write_staged()
    assert log.log_end_offset == 1500
    assert len(list(log.segments.active.scan())) == 1500


def test_a_group_rolls_in_its_middle(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=1000)
    for _ in range(12):
        log.stage_as_leader(batch(size=200), 0)
    log.write_staged()
    assert log.segments.base_offsets == [0, 3, 6, 9]
    assert [segment.next_offset() for segment in log.segments] == [3, 6, 9, 12]


def test_a_group_does_not_overfill_an_index(open_log: OpenLog) -> None:
    log = open_log(segment_index_bytes=5 * 12, index_interval_bytes=0)
    for _ in range(40):
        log.stage_as_leader(batch(size=200), 0)
    log.write_staged()
    for segment in log.segments:
        assert segment.offset_index.entries <= segment.offset_index.max_entries
        assert segment.next_offset() > segment.base_offset
    assert len(log.segments) > 5


# -- failures -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("free_bytes", [0, 1, 100, 169, 170, 200, 400])
@pytest.mark.parametrize("count", [1, 3])
def test_a_full_disk_undoes_everything_that_was_staged(
    open_log: OpenLog, disk: FaultyDisk, free_bytes: int, count: int
) -> None:
    log = open_log()
    log.append_as_leader(sequenced(0), 0)
    log.append_as_leader(sequenced(0, 8, transactional=True), 0)
    before = everything(log)
    for sequence in range(1, count + 1):
        log.stage_as_leader(sequenced(sequence), 0)
        log.stage_as_leader(sequenced(sequence, 8, transactional=True), 0)
        log.stage_as_leader(sequenced(0, 100 + sequence, transactional=True), 0)
    disk.free_bytes = free_bytes
    with pytest.raises(LogDirOfflineError) as offline:
        log.write_staged()
    disk.free_bytes = None
    assert offline.value.log_dir == str(log.directory.parent)
    assert str(log.directory) in str(offline.value)
    assert everything(log) == before
    assert log.append_as_leader(sequenced(1), 0).first_offset == 2


def test_a_short_write_that_can_be_finished_is_finished(open_log: OpenLog, disk: FaultyDisk) -> None:
    log = open_log()
    log.append_as_leader(batch(), 0)

    def short(fd: int, data: ReadableBuffer, position: int) -> int:
        view = memoryview(data)
        return os.pwrite(fd, view[: max(1, len(view) // 2)], position)

    disk.pwrite = short  # type: ignore[method-assign]
    log.segments.active._pwrite = short
    data = batch(size=500)
    log.append_as_leader(data, 0)
    log.update_high_watermark(2)
    assert log.read_bytes(1, 1000) == bytes(data)


def test_a_full_disk_under_the_epochs_undoes_them(open_log: OpenLog, disk: FaultyDisk) -> None:
    log = open_log()
    log.append_as_leader(batch(), 1)
    before = everything(log)
    disk.free_bytes = 3
    with pytest.raises(LogDirOfflineError):
        log.append_as_leader(batch(), 2)
    disk.free_bytes = 60
    with pytest.raises(LogDirOfflineError):
        log.append_as_leader(batch(), 2)
    disk.free_bytes = None
    assert everything(log) == before


def test_a_marker_that_cannot_be_indexed_is_taken_back(open_log: OpenLog, disk: FaultyDisk) -> None:
    log = open_log(index_interval_bytes=100)
    for sequence in range(4):
        log.append_as_leader(sequenced(sequence, 8, transactional=True), 0)
    before = everything(log)
    marker = encode_end_txn_marker(
        EndTxnMarker(ControlType.ABORT, 0), producer_id=8, producer_epoch=0, timestamp=NOW + 5
    )
    disk.free_bytes = len(marker) + 10
    with pytest.raises(LogDirOfflineError):
        log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
    disk.free_bytes = None
    assert everything(log) == before
    log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
    assert log.segments.active.txn_index.entries == [(8, 0, 4, 5)]


@pytest.mark.parametrize("call", ["pwrite", "open", "ftruncate"])
def test_any_error_while_rolling_takes_the_directory_offline(
    open_log: OpenLog, disk: FaultyDisk, call: str
) -> None:
    log = open_log(segment_bytes=300)
    log.append_as_leader(batch(), 0)
    disk.fail_next(call, errno.EIO)
    with pytest.raises(LogDirOfflineError):
        log.append_as_leader(batch(size=150), 0)
    assert log.log_end_offset == 1
    assert log.append_as_leader(batch(size=150), 0).first_offset == 1


# -- rolling ------------------------------------------------------------------------------------------


def test_a_segment_is_rolled_before_it_grows_beyond_its_size(open_log: OpenLog) -> None:
    size = len(batch())
    log = open_log(segment_bytes=3 * size)
    for _ in range(7):
        log.append_as_leader(batch(), 0)
    assert log.segments.base_offsets == [0, 3, 6]
    assert [segment.size for segment in log.segments] == [3 * size, 3 * size, size]


def test_a_rolled_segment_is_finished(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log(segment_bytes=1000, index_interval_bytes=100)
    for slot in range(8):
        log.append_as_leader(batch(size=200, timestamp=NOW + slot), 0)
    names = sorted(path.name for path in (tmp_path / "orders-0").iterdir() if "00003" in path.name)
    assert names == [f"00000000000000000003.{kind}" for kind in ("index", "log", "snapshot", "timeindex")]
    first, active = log.segments[0], log.segments.active
    assert first.path(".index").stat().st_size == 2 * 8
    assert first.time_index.last == (NOW + 2, 2)
    assert active.path(".index").stat().st_size == 10 * 1024 * 1024
    assert log.producers.snapshots.offsets == [3, 6]


def test_time_rolls_a_segment_by_the_timestamps_of_records(open_log: OpenLog) -> None:
    log = open_log(segment_ms=1000)
    for timestamp in (NOW, NOW + 1000, NOW + 500, NOW + 1001, NOW + 2001, NOW + 2002):
        log.append_as_leader(batch(timestamp=timestamp), 0)
    assert log.segments.base_offsets == [0, 3, 5]


def test_time_rolls_a_segment_without_timestamps_by_the_clock(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log(segment_ms=1000)
    log.append_as_leader(batch(timestamp=-1), 0)
    clock.advance(1000)
    log.append_as_leader(batch(timestamp=-1), 0)
    clock.advance(1)
    log.append_as_leader(batch(timestamp=-1), 0)
    assert log.segments.base_offsets == [0, 2]


def test_an_empty_segment_is_never_rolled_for_its_age(open_log: OpenLog, clock: ManualClock) -> None:
    log = open_log(segment_ms=1000)
    clock.advance(10_000)
    log.append_as_leader(batch(timestamp=clock.time_ms()), 0)
    log.roll()
    log.roll()
    clock.advance(10_000)
    log.append_as_leader(batch(timestamp=clock.time_ms()), 0)
    assert log.segments.base_offsets == [0, 1]


def test_time_goes_on_counting_after_a_restart(open_log: OpenLog) -> None:
    log = open_log(segment_ms=1000)
    log.append_as_leader(batch(timestamp=NOW), 0)
    log.close()
    log = open_log(segment_ms=1000)
    log.append_as_leader(batch(timestamp=NOW + 1001), 0)
    assert log.segments.base_offsets == [0, 1]


def test_max_compaction_lag_rolls_compacted_topics_earlier(open_log: OpenLog) -> None:
    log = open_log(cleanup_policy=("compact",), max_compaction_lag_ms=50)
    for timestamp in (NOW, NOW + 51):
        log.append_as_leader(encode_batch([Record(timestamp=timestamp, key=b"k")]), 0)
    assert log.segments.base_offsets == [0, 1]


def test_a_full_index_rolls_its_segment(open_log: OpenLog) -> None:
    log = open_log(segment_index_bytes=36, index_interval_bytes=0)
    for slot in range(10):
        log.append_as_leader(batch(timestamp=NOW + slot), 0)
    assert len(log.segments) > 2
    assert all(segment.time_index.entries <= 3 for segment in log.segments)


def test_offsets_too_far_from_the_first_roll_a_segment(open_log: OpenLog) -> None:
    log = open_log()
    log.append_as_follower(replicated(0))
    log.append_as_follower(replicated(MAX_INT32))
    log.append_as_follower(replicated(MAX_INT32 + 1))
    log.append_as_follower(replicated(3 * MAX_INT32))
    assert log.segments.base_offsets == [0, MAX_INT32 + 1, 3 * MAX_INT32]


def test_a_preallocated_segment_has_its_full_size_until_it_is_finished(open_log: OpenLog) -> None:
    log = open_log(preallocate=True, segment_bytes=5000)
    log.append_as_leader(batch(), 0)
    path = log.segments.active.path()
    assert path.stat().st_size == 5000
    log.roll()
    assert path.stat().st_size == len(batch())
    log.append_as_leader(batch(), 0)
    log.close()
    assert [segment.path().stat().st_size for segment in log.segments] == [len(batch())] * 2


# -- syncing ------------------------------------------------------------------------------------------


def test_flushing_moves_the_recovery_point(open_log: OpenLog, disk: FaultyDisk, clock: ManualClock) -> None:
    log = open_log()
    log.append_as_leader(batch(), 0)
    assert (log.files.recovery_point, log.files.unflushed_messages) == (0, 1)
    clock.advance(5)
    syncs = disk.syncs
    log.files.flush()
    assert (log.files.recovery_point, log.files.unflushed_messages) == (1, 0)
    assert log.files.last_flush_ms == clock.time_ms()
    assert disk.syncs > syncs
    syncs = disk.syncs
    log.files.flush()
    assert disk.syncs == syncs


def test_indexes_are_synced_where_they_have_changed(
    open_log: OpenLog, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def sync_path(path: Path) -> None:
        # A file that is not there is an error here, too.
        path.stat()
        synced.append(path.suffix)

    monkeypatch.setattr(disk, "sync_path", sync_path)

    def synced_by_appending(count: int) -> list[str]:
        synced.clear()
        for _ in range(count):
            log.append_as_leader(batch(), 0)
        log.files.flush()
        return [suffix for suffix in synced if suffix.endswith("index")]

    log = open_log(index_interval_bytes=10 * len(batch()))
    # What they held when they were opened nobody has synced, as far as is known.
    assert synced_by_appending(1) == [".index", ".timeindex"]
    assert synced_by_appending(1) == []
    assert ".index" in synced_by_appending(15)
    assert synced_by_appending(1) == []
    log.segments[-1].close_indexes()
    assert synced_by_appending(1) == [".index", ".timeindex"]


def test_flush_messages_syncs_inside_the_append(open_log: OpenLog) -> None:
    log = open_log(flush_messages=3)
    for expected in (0, 0, 3, 3, 3, 6):
        log.append_as_leader(batch(), 0)
        assert log.files.recovery_point == expected
    log.appender.flush_on_append = False
    for _ in range(5):
        log.append_as_leader(batch(), 0)
    assert log.files.unflushed_messages == 5


def test_rolling_asks_for_the_old_segment_to_be_synced(open_log: OpenLog) -> None:
    log = open_log()
    asked: list[int] = []
    log.files.on_rolled = asked.append
    log.append_as_leader(batch(), 0)
    log.roll()
    log.append_as_leader(batch(), 0)
    assert (asked, log.files.recovery_point) == ([1], 0)
    log.files.flush_up_to(1)
    assert log.files.recovery_point == 1


def test_a_flush_that_fails_takes_the_directory_offline(open_log: OpenLog, disk: FaultyDisk) -> None:
    log = open_log()
    log.append_as_leader(batch(), 0)
    disk.fail_next("fsync")
    with pytest.raises(LogDirOfflineError):
        log.files.flush()
    assert log.files.recovery_point == 0


def test_a_truncation_during_a_flush_wins(open_log: OpenLog, disk: FaultyDisk) -> None:
    log = open_log()
    for _ in range(5):
        log.append_as_leader(batch(), 0)
    sync = disk.fsync

    def truncating(fd: int) -> None:
        disk.fsync = sync  # type: ignore[method-assign]
        log.truncate_to(2)
        sync(fd)

    disk.fsync = truncating  # type: ignore[method-assign]
    log.files.flush()
    assert (log.log_end_offset, log.files.recovery_point) == (2, 0)


def test_a_flush_up_to_what_was_truncated_since_ends_at_the_end(open_log: OpenLog) -> None:
    log = open_log()
    for _ in range(5):
        log.append_as_leader(batch(), 0)
    log.truncate_to(2)
    log.files.flush_up_to(5)
    assert log.files.recovery_point == 2


# -- following ----------------------------------------------------------------------------------------


def test_a_follower_keeps_offsets_epochs_and_gaps(open_log: OpenLog) -> None:
    log = open_log()
    data = replicated(0, 1, count=2) + replicated(5, 1) + replicated(6, 4)
    info = log.append_as_follower(data + data[:30])
    assert info is not None
    assert (info.first_offset, info.last_offset, info.last_leader_epoch) == (0, 6, 4)
    assert log.log_end_offset == 7
    assert log.epochs.entries == [(1, 0), (4, 6)]
    assert log.read_bytes(0, 10**6, isolation=Isolation.LOG_END) == bytes(data)
    assert log.append_as_follower(b"") is None


def test_a_follower_refuses_what_does_not_continue_its_log(open_log: OpenLog) -> None:
    log = open_log()
    log.append_as_follower(replicated(0) + replicated(1))
    with pytest.raises(UnexpectedOffsetError, match="offset 2 is next"):
        log.append_as_follower(replicated(1))
    with pytest.raises(UnexpectedOffsetError):
        log.append_as_follower(replicated(2) + replicated(2))
    broken = replicated(2)
    broken[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        log.append_as_follower(replicated(2) + broken)
    assert log.log_end_offset == 2


def test_a_follower_learns_of_producers_and_aborts(open_log: OpenLog) -> None:
    log = open_log()
    data = sequenced(40, 8, transactional=True)
    set_leader_epoch(data, 0, 0)
    marker = bytearray(
        encode_end_txn_marker(
            EndTxnMarker(ControlType.ABORT, 0),
            producer_id=8,
            producer_epoch=0,
            timestamp=NOW,
            base_offset=1,
            leader_epoch=0,
        )
    )
    log.append_as_follower(data + marker)
    assert log.producers.entries[8].last_sequence == 40
    assert log.segments.active.txn_index.entries == [(8, 0, 1, 2)]


def test_unknown_leader_epochs_are_not_noted(open_log: OpenLog) -> None:
    log = open_log()
    log.append_as_follower(replicated(0, -1))
    assert log.epochs.entries == []


def test_an_old_error_code_is_told_for_a_fenced_producer(open_log: OpenLog) -> None:
    log = open_log()
    log.append_as_leader(batch(producer_id=1, producer_epoch=5, base_sequence=0), 0)
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(batch(producer_id=1, producer_epoch=4, base_sequence=1), 0)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_repetition_is_answered_with_the_offsets_of_the_first(open_log: OpenLog) -> None:
    log = open_log()
    log.append_as_leader(batch(), 0)
    first = log.append_as_leader(sequenced(0, count=3), 0)
    log.append_as_leader(sequenced(3), 0)
    again = log.append_as_leader(sequenced(0, count=3), 0)
    assert again.duplicate
    assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset) == (1, 3)
    assert log.log_end_offset == 5
