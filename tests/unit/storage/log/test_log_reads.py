"""Reading: ranges, limits, timestamps, aborted transactions."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from tests.rigs.faulty_disk import FaultyDisk

from tidelog.errors import CorruptRecordError, ErrorCode, KafkaError, LogDirOfflineError
from tidelog.records.batch import LOG_APPEND_TIME, iter_batches, set_base_offset
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType, EndTxnMarker, encode_end_txn_marker
from tidelog.records.record import Record, encode_batch
from tidelog.storage.log.log import Isolation, Log
from tidelog.storage.log.log_reads import AbortedTransaction
from tidelog.storage.log_config import LogConfig
from tidelog.storage.producers.producer_state import AppendOrigin

OpenLog = Callable[..., Log]
NOW = 1_700_000_000_000


def batch(count: int = 1, size: int = 100, timestamp: int = NOW, **how: object) -> bytearray:
    records = [Record(timestamp=timestamp + slot, value=b"v" * size) for slot in range(count)]
    return bytearray(encode_batch(records, **how))  # type: ignore[arg-type]


def filled(log: Log, batches: int, count: int = 3, **how: object) -> Log:
    for slot in range(batches):
        log.append_as_leader(batch(count, timestamp=NOW + 100 * slot, **how), 0)  # type: ignore[arg-type]
    log.update_high_watermark(log.log_end_offset)
    return log


def offsets(data: bytes) -> list[int]:
    return [header.base_offset for _, header in iter_batches(data)]


def refused(log: Log, offset: int) -> bool:
    with pytest.raises(KafkaError) as error:
        log.read(offset, 1000)
    return error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("wanted", range(30))
def test_a_read_begins_with_the_batch_that_holds_the_offset(open_log: OpenLog, wanted: int) -> None:
    log = filled(open_log(segment_bytes=2000, index_interval_bytes=500), 10)
    for _ in range(2):
        assert offsets(log.read_bytes(wanted, 10**6))[0] == wanted // 3 * 3
    log.close()
    reopened = open_log(segment_bytes=2000, index_interval_bytes=500)
    assert offsets(reopened.read_bytes(wanted, 10**6))[0] == wanted // 3 * 3


@pytest.mark.parametrize("sizes", [(3000,), (100,), (3000, 100, 100), (100, 3000), (100, 600, 5000, 3000)])
def test_batches_of_any_size_are_found_by_any_of_their_offsets(
    open_log: OpenLog, sizes: tuple[int, ...]
) -> None:
    how = {"index_interval_bytes": 1000, "max_message_bytes": 10**6}
    log = open_log(**how)
    for slot in range(24):
        log.append_as_leader(batch(3, size=sizes[slot % len(sizes)]), 0)
    log.close()
    reopened = open_log(**how)
    reopened.update_high_watermark(reopened.log_end_offset)
    for wanted in [*range(72), *range(71, -1, -1)]:
        assert offsets(reopened.read_bytes(wanted, 10**6))[0] == wanted // 3 * 3
        # A limit that the first batch exceeds has its size looked up.
        assert offsets(reopened.read_bytes(wanted, 100)) == [wanted // 3 * 3]


def test_a_read_ends_with_its_segment(open_log: OpenLog) -> None:
    log = filled(open_log(segment_bytes=2000), 10)
    assert log.segments.base_offsets == [0, 15]
    assert offsets(log.read_bytes(3, 10**6)) == [3, 6, 9, 12]
    assert offsets(log.read_bytes(15, 10**6)) == [15, 18, 21, 24, 27]


def test_a_range_is_bytes_of_the_file(open_log: OpenLog) -> None:
    log = filled(open_log(), 4)
    size = log.segments.active.size // 4
    found = log.read(7, 2 * size + 10)
    assert (found.position, found.length, found.first_offset) == (2 * size, 2 * size, 7)
    assert found.file is not None
    assert found.file.fileno() == found.fd
    assert offsets(os.pread(found.fd, found.length, found.position)) == [6, 9]
    assert log.read(1, size + 10).length == size + 10


def test_the_first_batch_comes_whole_only_if_one_message_is_asked_for(open_log: OpenLog) -> None:
    log = filled(open_log(), 2)
    size = log.segments.active.size // 2
    whole = log.read(0, 10, min_one_message=True)
    assert (whole.length, whole.first_entry_incomplete) == (size, False)
    partial = log.read(0, 10, min_one_message=False)
    assert (partial.length, partial.first_entry_incomplete) == (10, True)
    assert not log.read(0, size, min_one_message=False).first_entry_incomplete
    assert log.read(3, 10, min_one_message=True).length == size


def test_offsets_outside_the_log_are_out_of_range(open_log: OpenLog) -> None:
    log = filled(open_log(), 2)
    assert refused(log, -1)
    assert refused(log, 7)
    assert log.read(6, 1000).length == 0
    log.increment_log_start_offset(4)
    assert refused(log, 3)
    assert offsets(log.read_bytes(4, 1000)) == [3]


def test_readers_see_no_further_than_the_high_watermark(open_log: OpenLog) -> None:
    log = filled(open_log(segment_bytes=2000), 10)
    for watermark in range(0, 31, 3):
        log.update_high_watermark(watermark)
        for wanted in range(30):
            seen = offsets(log.read_bytes(wanted, 10**6))
            assert all(offset < watermark for offset in seen)
            assert bool(seen) == (wanted < watermark)
    log.update_high_watermark(15)
    assert log.read(20, 1000).length == 0
    assert offsets(log.read_bytes(24, 1000, isolation=Isolation.LOG_END)) == [24, 27]


def test_the_high_watermark_stays_inside_the_log(open_log: OpenLog) -> None:
    log = filled(open_log(), 3)
    assert log.update_high_watermark(50) == 9
    log.increment_log_start_offset(4)
    assert log.update_high_watermark(1) == 4
    with pytest.raises(KafkaError) as error:
        log.increment_log_start_offset(5)
    assert error.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_gap_left_by_compaction_is_skipped(open_log: OpenLog) -> None:
    log = open_log()
    for base_offset in (0, 10, 50):
        data = batch()
        set_base_offset(data, 0, base_offset)
        log.append_as_follower(data)
        if base_offset == 10:
            log.roll()
    log.update_high_watermark(51)
    assert offsets(log.read_bytes(1, 10**6)) == [10]
    assert offsets(log.read_bytes(11, 10**6)) == [50]


def test_a_file_stays_open_for_whoever_reads_from_it(open_log: OpenLog) -> None:
    log = filled(open_log(retention_ms=1000), 2)
    found = log.read(0, 10**6)
    log.roll()
    assert log.delete_old_segments() == 0
    log.update_config(LogConfig(retention_bytes=0))
    assert log.delete_old_segments() == 1
    assert offsets(os.pread(found.fd, found.length, found.position)) == [0, 3]
    fd = found.fd
    del found
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pread(fd, 1, 0)


def test_an_error_while_reading_takes_the_directory_offline(open_log: OpenLog, disk: FaultyDisk) -> None:
    filled(open_log(), 3).close()
    log = open_log()
    disk.fail_next("open")
    with pytest.raises(LogDirOfflineError):
        log.read(4, 1000)


def test_rot_in_the_middle_of_a_segment_is_told_with_its_place(open_log: OpenLog) -> None:
    filled(open_log(), 5).close()
    log = open_log()
    size = log.segments.active.size // 5
    with log.segments.active.path().open("r+b") as file:
        file.seek(size + 16)
        file.write(b"\x09")
    with pytest.raises(CorruptRecordError, match=f"no record batch at byte {size}"):
        log.read(7, 1000)


# -- timestamps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_timestamp_leads_to_the_first_record_that_is_not_older(open_log: OpenLog, codec: Codec) -> None:
    log = filled(open_log(segment_bytes=2000, index_interval_bytes=300), 10, codec=codec)
    assert log.offset_for_timestamp(0) == (NOW, 0, 0)
    assert log.offset_for_timestamp(NOW + 201) == (NOW + 201, 7, 0)
    assert log.offset_for_timestamp(NOW + 203) == (NOW + 300, 9, 0)
    assert log.offset_for_timestamp(NOW + 902) == (NOW + 902, 29, 0)
    assert log.offset_for_timestamp(NOW + 903) is None
    log.increment_log_start_offset(8)
    assert log.offset_for_timestamp(0) == (NOW + 202, 8, 0)


def test_timestamps_out_of_order_lead_to_the_first_that_fits(open_log: OpenLog) -> None:
    log = open_log()
    for timestamp in (NOW + 50, NOW + 10, NOW + 90, NOW + 20):
        log.append_as_leader(batch(timestamp=timestamp), 3)
    assert log.offset_for_timestamp(NOW + 20) == (NOW + 50, 0, 3)
    assert log.offset_for_timestamp(NOW + 60) == (NOW + 90, 2, 3)
    assert log.offset_of_max_timestamp() == (NOW + 90, 2, 3)


def test_the_highest_timestamp_is_found_in_any_segment(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=400, index_interval_bytes=100)
    assert log.offset_of_max_timestamp() is None
    for slot, timestamp in enumerate((5, 9, 7, 100, 100, 8)):
        log.append_as_leader(batch(count=2, size=20, timestamp=NOW + 2 * timestamp), slot)
    assert len(log.segments) > 1
    assert log.offset_of_max_timestamp() == (NOW + 201, 7, 3)
    log.close()
    assert open_log(segment_bytes=400).offset_of_max_timestamp() == (NOW + 201, 7, 3)


def test_append_time_stands_for_every_record_of_a_batch(open_log: OpenLog) -> None:
    log = open_log(message_timestamp_type="LogAppendTime")
    log.append_as_leader(batch(count=3), 0)
    found = log.offset_of_max_timestamp()
    assert found is not None
    assert found.offset == 0
    assert next(iter(log.segments.active.scan()))[1].timestamp_type == LOG_APPEND_TIME


def test_earliest_and_latest_know_their_epochs(open_log: OpenLog) -> None:
    log = open_log()
    assert (log.earliest, log.latest) == ((-1, 0, -1), (-1, 0, -1))
    log.append_as_leader(batch(), 2)
    log.append_as_leader(batch(), 5)
    assert (log.earliest, log.latest) == ((-1, 0, 2), (-1, 2, 5))
    assert log.end_offset_for_epoch(2) == (2, 1)
    assert log.end_offset_for_epoch(5) == (5, 2)
    assert log.end_offset_for_epoch(6) is None


# -- transactions -------------------------------------------------------------------------------------


class Transactions:
    def __init__(self, log: Log) -> None:
        self.log = log
        self.sequences: dict[int, int] = {}

    def write(self, producer_id: int) -> None:
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + 1
        data = batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)
        self.log.append_as_leader(data, 0)
        self.log.update_high_watermark(self.log.log_end_offset)

    def end(self, producer_id: int, kind: ControlType) -> None:
        marker = encode_end_txn_marker(
            EndTxnMarker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp=NOW
        )
        self.log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
        self.log.update_high_watermark(self.log.log_end_offset)

    def aborted(self, offset: int, max_bytes: int = 10**6) -> list[AbortedTransaction] | None:
        return self.log.read(offset, max_bytes, isolation=Isolation.TXN_COMMITTED).aborted


def test_readers_of_committed_records_wait_for_open_transactions(open_log: OpenLog) -> None:
    log = open_log()
    transactions = Transactions(log)
    log.append_as_leader(batch(), 0)
    transactions.write(8)
    log.append_as_leader(batch(), 0)
    log.update_high_watermark(3)
    assert log.last_stable_offset == 1
    assert offsets(log.read_bytes(0, 10**6, isolation=Isolation.TXN_COMMITTED)) == [0]
    assert log.read(1, 10**6, isolation=Isolation.TXN_COMMITTED)[:4] == (None, -1, 0, 0)
    transactions.end(8, ControlType.COMMIT)
    assert log.last_stable_offset == 4
    assert offsets(log.read_bytes(0, 10**6, isolation=Isolation.TXN_COMMITTED)) == [0, 1, 2, 3]


def test_a_marker_above_the_high_watermark_decides_nothing_yet(open_log: OpenLog) -> None:
    log = open_log()
    transactions = Transactions(log)
    transactions.write(8)
    transactions.end(8, ControlType.COMMIT)
    log = open_log(directory=log.directory, clean=False)
    log.update_high_watermark(1)
    assert log.last_stable_offset in (0, 1)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2


def test_aborted_transactions_come_with_what_they_overlap(open_log: OpenLog) -> None:
    log = open_log()
    transactions = Transactions(log)
    transactions.write(8)  # 0
    transactions.write(9)  # 1
    transactions.end(8, ControlType.ABORT)  # 2
    transactions.write(8)  # 3
    transactions.end(9, ControlType.ABORT)  # 4
    transactions.end(8, ControlType.COMMIT)  # 5
    assert transactions.aborted(0) == [(8, 0), (9, 1)]
    assert transactions.aborted(3) == [(9, 1)]
    assert transactions.aborted(5) == []
    assert log.read(0, 10**6, isolation=Isolation.HIGH_WATERMARK).aborted is None


def test_an_abort_in_a_later_segment_is_found(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=1000)
    transactions = Transactions(log)
    transactions.write(8)
    for _ in range(15):
        log.append_as_leader(batch(), 0)
    transactions.end(8, ControlType.ABORT)
    assert len(log.segments) > 2
    assert not log.segments[0].txn_index.exists
    assert transactions.aborted(0) == [(8, 0)]
    assert transactions.aborted(0, max_bytes=1) == [(8, 0)]
    assert transactions.aborted(16) == [(8, 0)]
    log.close()
    assert Transactions(open_log(segment_bytes=1000)).aborted(0) == [(8, 0)]


def test_aborts_behind_the_range_are_left_out(open_log: OpenLog) -> None:
    log = open_log(index_interval_bytes=0)
    transactions = Transactions(log)
    for _ in range(20):
        transactions.write(8)
        transactions.end(8, ControlType.ABORT)
    found = transactions.aborted(0, max_bytes=200)
    assert found is not None
    assert 1 <= len(found) <= 3
