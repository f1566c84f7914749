"""Retention, truncation, replacement by the cleaner, renaming and deleting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.faulty_disk import FaultyDisk

from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError, StorageError
from tidelog.ids import uuid_from_text
from tidelog.records.control import ControlType, EndTxnMarker, encode_end_txn_marker
from tidelog.records.record import Record, encode_batch
from tidelog.storage.files import CLEANED_SUFFIX
from tidelog.storage.log.log import Isolation, Log
from tidelog.storage.log_config import LogConfig
from tidelog.storage.producers.producer_state import AppendOrigin
from tidelog.storage.segment.segment import NumberedBatch, Segment

OpenLog = Callable[..., Log]
NOW = 1_700_000_000_000


def batch(timestamp: int = NOW, **how: object) -> bytearray:
    records = [Record(timestamp=timestamp, key=b"k", value=b"v" * 100)]
    return bytearray(encode_batch(records, **how))  # type: ignore[arg-type]


SIZE = len(batch())


def filled(log: Log, batches: int, step_ms: int = 0) -> Log:
    """Batches of one record; with ``segment_bytes=2 * SIZE`` two to a segment."""
    for slot in range(batches):
        data = batch(NOW + step_ms * slot, producer_id=7, producer_epoch=0, base_sequence=slot)
        log.append_as_leader(data, 0)
    log.update_high_watermark(log.log_end_offset)
    return log


def names(log: Log) -> list[str]:
    return sorted(path.name for path in log.directory.iterdir())


# -- retention ----------------------------------------------------------------------------------------


def test_segments_older_than_retention_ms_go(open_log: OpenLog, clock: ManualClock) -> None:
    log = filled(open_log(segment_bytes=2 * SIZE, retention_ms=1000), 7, step_ms=100)
    clock.advance(1100)
    assert log.delete_old_segments() == 0
    clock.advance(1)
    assert log.delete_old_segments() == 1
    assert log.log_start_offset == log.segments.first.base_offset == 2
    clock.advance(200)
    assert log.delete_old_segments() == 1
    assert log.log_start_offset == 4


def test_the_active_segment_goes_too_once_all_of_it_is_too_old(open_log: OpenLog, clock: ManualClock) -> None:
    log = filled(open_log(segment_bytes=2 * SIZE, retention_ms=1000), 5)
    clock.advance(1001)
    assert log.delete_old_segments() == 3
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    assert log.segments.base_offsets == [5]
    assert log.delete_old_segments() == 0
    assert log.append_as_leader(batch(), 0).first_offset == 5


def test_segments_beyond_retention_bytes_go(open_log: OpenLog) -> None:
    log = filled(open_log(segment_bytes=2 * SIZE, retention_bytes=5 * SIZE), 9)
    assert log.files.size_bytes == 9 * SIZE
    assert log.delete_old_segments() == 2
    assert (log.log_start_offset, log.files.size_bytes) == (4, 5 * SIZE)


def test_nothing_behind_the_high_watermark_goes(open_log: OpenLog) -> None:
    log = filled(open_log(segment_bytes=2 * SIZE, retention_bytes=0), 6)
    log.update_high_watermark(3)
    assert log.delete_old_segments() == 1
    assert log.log_start_offset == 2


def test_negative_retention_keeps_everything(open_log: OpenLog, clock: ManualClock) -> None:
    log = filled(open_log(segment_bytes=2 * SIZE, retention_ms=-1, retention_bytes=-1), 6)
    clock.advance(10**9)
    assert log.delete_old_segments() == 0


def test_compacted_topics_lose_only_what_lies_before_the_log_start(
    open_log: OpenLog, clock: ManualClock
) -> None:
    log = filled(open_log(segment_bytes=2 * SIZE, retention_ms=1, cleanup_policy=("compact",)), 6)
    clock.advance(10**9)
    assert log.delete_old_segments() == 0
    log.increment_log_start_offset(3)
    assert log.delete_old_segments() == 1
    assert log.segments.base_offsets == [2, 4]
    assert log.log_start_offset == 3


def test_files_wait_under_another_name_until_somebody_deletes_them(open_log: OpenLog) -> None:
    log = filled(open_log(segment_bytes=2 * SIZE, retention_bytes=2 * SIZE), 5)
    waiting: list[Path] = []
    log.files.on_segments_deleted = waiting.extend
    assert log.delete_old_segments() == 1
    assert sorted(path.name for path in waiting) == [
        f"00000000000000000000.{kind}.deleted" for kind in ("index", "log", "timeindex")
    ]
    assert all(path.exists() for path in waiting)
    log.update_config(LogConfig(retention_bytes=0))
    waiting.clear()
    log.delete_old_segments()
    assert "00000000000000000002.snapshot.deleted" in {path.name for path in waiting}


def test_an_error_while_deleting_takes_the_directory_offline(open_log: OpenLog, disk: FaultyDisk) -> None:
    log = filled(open_log(segment_bytes=2 * SIZE, retention_bytes=0), 5)
    disk.fail_next("rename")
    with pytest.raises(LogDirOfflineError):
        log.delete_old_segments()


def test_the_log_start_survives_with_its_checkpoint(open_log: OpenLog) -> None:
    log = filled(open_log(segment_bytes=2 * SIZE), 6)
    assert log.increment_log_start_offset(3, "DeleteRecords")
    assert not log.increment_log_start_offset(3)
    assert not log.increment_log_start_offset(1)
    assert log.epochs.entries == [(0, 3)]
    log.close()
    reopened = open_log(segment_bytes=2 * SIZE, log_start_offset=3)
    assert (reopened.log_start_offset, reopened.log_end_offset) == (3, 6)
    assert reopened.producers.entries[7].last_sequence == 5


def test_a_log_that_ended_before_its_start_begins_anew(open_log: OpenLog) -> None:
    filled(open_log(segment_bytes=2 * SIZE), 6).close()
    log = open_log(log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset, log.segments.base_offsets) == (50, 50, [50])
    assert log.recovery is not None
    assert "before the log start offset 50" in str(log.recovery)
    assert log.epochs.entries == []
    assert log.producers.entries == {}


# -- truncation ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", range(9))
def test_truncation_drops_the_offset_and_all_behind_it(open_log: OpenLog, offset: int) -> None:
    log = filled(open_log(segment_bytes=2 * SIZE, index_interval_bytes=0), 8)
    log.files.flush()
    assert log.truncate_to(offset) is (offset < 8)
    end = min(offset, 8)
    assert log.log_end_offset == log.high_watermark == log.files.recovery_point == end
    assert log.files.size_bytes == end * SIZE
    known = log.producers.entries.get(7)
    assert (known.last_sequence if known else -1) == end - 1
    sequenced = batch(producer_id=7, producer_epoch=0, base_sequence=end)
    assert log.append_as_leader(sequenced, 1).first_offset == end
    log.update_high_watermark(end + 1)
    assert len(log.read_bytes(end, 10**6)) == SIZE
    log.close()
    assert open_log(segment_bytes=2 * SIZE).log_end_offset == end + 1


def test_truncation_drops_epochs_that_began_there(open_log: OpenLog) -> None:
    log = open_log()
    for epoch in (1, 1, 2, 3):
        log.append_as_leader(batch(), epoch)
    log.truncate_to(2)
    assert log.epochs.entries == [(1, 0)]
    log.epochs.assign(9, 2)
    assert not log.truncate_to(2)
    assert log.epochs.entries == [(1, 0)]


def test_truncation_before_the_first_segment_starts_anew(open_log: OpenLog) -> None:
    log = open_log()
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.segments.base_offsets) == (100, 100, [100])
    filled(log, 3)
    assert log.truncate_to(40)
    assert (log.log_start_offset, log.log_end_offset, log.segments.base_offsets) == (40, 40, [40])
    assert log.producers.entries == {}
    with pytest.raises(ValueError, match="-1"):
        log.truncate_to(-1)


@pytest.mark.parametrize("high_watermark", [4, 5])
def test_committed_records_stay_visible_when_what_follows_them_is_cut_off(
    open_log: OpenLog, high_watermark: int
) -> None:
    log = open_log()
    for sequence in range(2):
        records = batch(producer_id=8, producer_epoch=0, base_sequence=sequence, transactional=True)
        log.append_as_leader(records, 0)
        marker = EndTxnMarker(ControlType.COMMIT, 0)
        end = encode_end_txn_marker(marker, producer_id=8, producer_epoch=0, timestamp=NOW)
        log.append_as_leader(end, 0, origin=AppendOrigin.COORDINATOR)
    log.append_as_leader(batch(), 0)
    log.update_high_watermark(high_watermark)
    assert log.truncate_to(4)
    assert (log.high_watermark, log.last_stable_offset) == (4, 4)
    visible = log.read_bytes(0, 10**6, isolation=Isolation.TXN_COMMITTED)
    assert len(visible) == log.files.size_bytes > 0


def test_starting_anew_at_the_same_offset_empties_the_segment(open_log: OpenLog) -> None:
    log = filled(open_log(), 3)
    log.truncate_fully_and_start_at(0, log_start_offset=0)
    assert log.files.size_bytes == 0
    assert names(log) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
    ]


# -- replacement --------------------------------------------------------------------------------------


def cleaned(log: Log, base_offset: int, offsets: list[int]) -> Segment:
    """What the cleaner makes: a segment named .cleaned with the batches at these offsets."""
    segment = Segment.create(
        log.directory,
        base_offset,
        log.config,
        clock=log.files.clock,
        disk=log.files.disk,
        state_suffix=CLEANED_SUFFIX,
    )
    for offset in offsets:
        data = bytearray(encode_batch([Record(offset, NOW, b"k", b"v")], base_offset=offset))
        segment.append([NumberedBatch(data, len(data), offset, offset, NOW)])
    segment.become_inactive()
    return segment


def test_cleaned_segments_take_the_place_of_old_ones(open_log: OpenLog) -> None:
    log = filled(open_log(segment_bytes=2 * SIZE, cleanup_policy=("compact",)), 7)
    waiting: list[Path] = []
    log.files.on_segments_deleted = waiting.extend
    log.replace_segments([cleaned(log, 0, [1, 3])], [log.segments[0], log.segments[1]])
    assert log.segments.base_offsets == [0, 4, 6]
    assert [header.base_offset for _, header in log.segments.first.scan()] == [1, 3]
    assert all(path.name.endswith(".deleted") for path in waiting)
    assert {path.name.split(".")[0][-1] for path in waiting} == {"0", "2"}
    assert log.producers.snapshots.offsets == [4, 6]
    assert log.read(0, 10**6).position == 0
    log.close()
    assert open_log(segment_bytes=2 * SIZE).log_end_offset == 7


def test_segments_that_went_meanwhile_are_not_replaced_twice(open_log: OpenLog) -> None:
    log = filled(open_log(segment_bytes=2 * SIZE), 7)
    old = list(log.segments)[:2]
    new = cleaned(log, 0, [3])
    log.increment_log_start_offset(2)
    log.delete_old_segments()
    log.replace_segments([new], old)
    assert log.segments.base_offsets == [0, 4, 6]


# -- the directory ------------------------------------------------------------------------------------


def test_a_new_log_has_kafkas_files(open_log: OpenLog) -> None:
    topic_id = uuid_from_text("vEV9Yz-QTvKKr9jj9XBbZg")
    log = open_log(topic_id=topic_id)
    assert names(log) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert log.topic_id == open_log().topic_id == topic_id
    assert log.recovery is None


def test_a_log_of_another_topic_is_refused(open_log: OpenLog) -> None:
    open_log(topic_id=uuid_from_text("vEV9Yz-QTvKKr9jj9XBbZg"))
    with pytest.raises(KafkaError) as refused:
        open_log(topic_id=uuid_from_text("AAAAAAAAAAAAAAAAAAAAAg"))
    assert refused.value.code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_log_without_a_topic_id_can_be_given_one(open_log: OpenLog) -> None:
    log = open_log()
    assert log.topic_id is None
    log.assign_topic_id(uuid_from_text("vEV9Yz-QTvKKr9jj9XBbZg"))
    assert open_log().topic_id == log.topic_id


def test_a_renamed_log_goes_on(open_log: OpenLog, tmp_path: Path) -> None:
    log = filled(open_log(segment_bytes=2 * SIZE), 3)
    log.files.rename(tmp_path / "moved-0")
    filled_more = log.append_as_leader(batch(), 5)
    assert filled_more.first_offset == 3
    log.roll()
    log.files.flush()
    log.close()
    assert not (tmp_path / "orders-0").exists()
    reopened = open_log(directory=tmp_path / "moved-0")
    assert (reopened.log_end_offset, reopened.epochs.latest_epoch) == (4, 5)


def test_a_log_waits_for_deletion_under_another_name_and_goes(open_log: OpenLog, tmp_path: Path) -> None:
    log = filled(open_log(), 3)
    log.files.rename_for_delete()
    assert log.directory.name.startswith("orders-0.")
    assert log.directory.name.endswith("-delete")
    assert not (tmp_path / "orders-0").exists()
    log.files.flush()
    log.delete()
    assert list(tmp_path.iterdir()) == []


def test_a_flush_of_a_log_that_is_gone_is_no_error(open_log: OpenLog) -> None:
    log = filled(open_log(), 3)
    log.delete()
    log.files.flush()


def test_a_flush_of_a_log_that_waits_for_deletion_is_no_error(open_log: OpenLog) -> None:
    """It was begun by a segment that rolled, and comes to its turn in a thread when the topic is deleted."""
    log = filled(open_log(segment_bytes=2 * SIZE), 5)
    log.files.recovery_point = 0
    log.files.close_handles()
    log.files.rename_for_delete()
    log.files.flush()
    log.files.flush_up_to(log.log_end_offset)


def test_a_read_of_a_log_that_waits_for_deletion_takes_no_directory_offline(open_log: OpenLog) -> None:
    log = filled(open_log(), 3)
    log.files.close_handles()
    log.files.rename_for_delete()
    with pytest.raises(StorageError) as error:
        log.read(0, 1000, isolation=Isolation.LOG_END, min_one_message=True)
    assert not isinstance(error.value, LogDirOfflineError)


def test_closing_leaves_files_without_slack_and_a_snapshot_at_the_end(open_log: OpenLog) -> None:
    log = filled(open_log(index_interval_bytes=0), 3, step_ms=10)
    log.close()
    log.close()
    sizes = {path.name: path.stat().st_size for path in log.directory.iterdir()}
    assert sizes == {
        "00000000000000000000.log": 3 * SIZE,
        "00000000000000000000.index": 2 * 8,
        "00000000000000000000.timeindex": 2 * 12,
        "00000000000000000003.snapshot": 10 + 46,
        "leader-epoch-checkpoint": len("0\n1\n0 0\n"),
    }
