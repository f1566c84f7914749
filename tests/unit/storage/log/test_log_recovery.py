"""Loading a log after a crash, with torn, missing and foreign files."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.faulty_disk import FaultyDisk

from tidelog.errors import LogDirOfflineError, StorageError
from tidelog.records.batch import MAX_INT32, iter_batches, set_base_offset, set_leader_epoch
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType, EndTxnMarker, encode_end_txn_marker
from tidelog.records.record import Record, encode_batch
from tidelog.storage.log.log import Isolation, Log
from tidelog.storage.producers.producer_state import AppendOrigin
from tidelog.storage.producers.producer_tail import RECENT_MS

OpenLog = Callable[..., Log]
NOW = 1_700_000_000_000


def batch(sequence: int = -1, producer_id: int = -1, **how: object) -> bytearray:
    records = [Record(timestamp=NOW + max(sequence, 0), value=b"v" * 100)]
    epoch = 0 if producer_id >= 0 else -1
    return bytearray(
        encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            **how,  # type: ignore[arg-type]
        )
    )


SIZE = len(batch())
SMALL: dict[str, object] = {"segment_bytes": 4 * SIZE, "index_interval_bytes": SIZE}


def filled(log: Log, batches: int) -> Log:
    for slot in range(batches):
        log.append_as_leader(batch(slot, 7), slot // 5)
    log.update_high_watermark(log.log_end_offset)
    return log


def crashed(log: Log) -> Path:
    log.close(clean=False)
    return log.directory


def log_file(directory: Path, base_offset: int, suffix: str = ".log") -> Path:
    return directory / f"{base_offset:020d}{suffix}"


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def contents(log: Log) -> list[int]:
    return [header.base_offset for segment in log.segments for _, header in segment.scan()]


# -- torn tails ---------------------------------------------------------------------------------------


def test_a_log_that_was_only_not_closed_loses_nothing(open_log: OpenLog) -> None:
    directory = crashed(filled(open_log(**SMALL), 11))
    assert log_file(directory, 8, ".index").stat().st_size == 10 * 1024 * 1024
    log = open_log(clean=False, **SMALL)
    assert contents(log) == list(range(11))
    assert log.recovery is not None
    assert (log.recovery.segments_scanned, log.recovery.bytes_truncated) == (3, 0)
    assert not log.recovery.changed_anything
    assert log_file(directory, 8, ".index").stat().st_size == 8
    assert log.epochs.entries == [(0, 0), (1, 5), (2, 10)]
    assert log.producers.entries[7].last_sequence == 10


def test_a_tail_torn_at_any_byte_is_cut_to_the_last_whole_batch(open_log: OpenLog, tmp_path: Path) -> None:
    directory = crashed(filled(open_log(**SMALL), 7))
    whole = log_file(directory, 4).read_bytes()
    for length in range(len(whole)):
        log_file(directory, 4).write_bytes(whole[:length])
        log = open_log(clean=False, recovery_point=4, **SMALL)
        kept = length // SIZE
        assert log.log_end_offset == 4 + kept
        assert log_file(directory, 4).read_bytes() == whole[: kept * SIZE]
        assert log.producers.entries[7].last_sequence == 3 + kept
        assert log.recovery is not None
        assert log.recovery.bytes_truncated == length % SIZE
        crashed(log)


@pytest.mark.parametrize("tail", [bytes(1), bytes(500), b"\xff" * 100, b"\0" * 16 + b"\2" + b"\0" * 100])
def test_whatever_follows_the_last_whole_batch_is_cut_off(open_log: OpenLog, tail: bytes) -> None:
    directory = crashed(filled(open_log(**SMALL), 6))
    with log_file(directory, 4).open("ab") as file:
        file.write(tail)
    log = open_log(clean=False, **SMALL)
    assert contents(log) == list(range(6))
    assert log.recovery is not None
    assert log.recovery.bytes_truncated == len(tail)
    assert f"00000000000000000004.log at byte {2 * SIZE}" in str(log.recovery)


def test_a_preallocated_segment_is_cut_to_its_batches(open_log: OpenLog) -> None:
    options = {"preallocate": True, "segment_bytes": 10_000}
    directory = crashed(filled(open_log(**options), 3))
    assert log_file(directory, 0).stat().st_size == 10_000
    log = open_log(clean=False, **options)
    assert log.log_end_offset == 3
    assert log_file(directory, 0).stat().st_size == 3 * SIZE
    assert "zeros follow the last batch" in str(log.recovery)
    assert log.append_as_leader(batch(3, 7), 0).first_offset == 3


def test_a_bad_batch_ends_the_log_and_later_segments_go(open_log: OpenLog) -> None:
    directory = crashed(filled(open_log(**SMALL), 14))
    path = log_file(directory, 4)
    data = bytearray(path.read_bytes())
    data[2 * SIZE + 80] ^= 1
    path.write_bytes(data)
    log = open_log(clean=False, **SMALL)
    assert contents(log) == list(range(6))
    assert log.segments.base_offsets == [0, 4]
    assert log.recovery is not None
    assert (log.recovery.segments_dropped, log.recovery.bytes_truncated) == (2, 2 * SIZE)
    assert "fails its checksum" in str(log.recovery)
    assert not any(
        name.startswith(("00000000000000000008", "00000000000000000012")) for name in names(directory)
    )
    assert log.epochs.entries == [(0, 0), (1, 5)]
    assert log.append_as_leader(batch(6, 7), 9).first_offset == 6


def test_offsets_that_go_back_end_the_log(open_log: OpenLog) -> None:
    directory = crashed(filled(open_log(), 3))
    again = batch(9, 7)
    set_base_offset(again, 0, 2)
    with log_file(directory, 0).open("ab") as file:
        file.write(again)
    log = open_log(clean=False)
    assert log.log_end_offset == 3
    assert "offset 2 cannot come where 3 is next" in str(log.recovery)


def test_only_segments_from_the_recovery_point_on_are_read(open_log: OpenLog) -> None:
    log = filled(open_log(**SMALL), 10)
    log.files.flush()
    filled_point = log.files.recovery_point
    log.append_as_leader(batch(10, 7), 2)
    directory = crashed(log)
    # Rot before the recovery point is not looked for.
    path = log_file(directory, 0)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    log = open_log(clean=False, recovery_point=filled_point, **SMALL)
    assert log.log_end_offset == 11
    assert log.recovery is not None
    assert (log.recovery.segments_scanned, log.recovery.bytes_scanned) == (1, 3 * SIZE)
    assert log.files.recovery_point == 10
    assert log.producers.entries[7].last_sequence == 10


def test_a_recovery_point_behind_the_end_is_moved_back(open_log: OpenLog) -> None:
    crashed(filled(open_log(**SMALL), 10))
    log = open_log(clean=False, recovery_point=500, **SMALL)
    assert (log.log_end_offset, log.files.recovery_point) == (10, 10)


def test_batches_larger_than_a_read_are_checked_whole(open_log: OpenLog) -> None:
    log = open_log(max_message_bytes=10_000_000)
    for size in (3_000_000, 100, 1_048_500, 50):
        log.append_as_leader(encode_batch([Record(timestamp=NOW, value=bytes(size))]), 0)
    crashed(log)
    log = open_log(clean=False)
    assert log.log_end_offset == 4
    assert [log.segments.active.position_of(offset) for offset in range(4)] == [
        position for position, _ in log.segments.active.scan()
    ]


# -- a clean stop that was none -----------------------------------------------------------------------


def test_after_a_clean_stop_nothing_is_read_but_the_end(
    open_log: OpenLog, disk: FaultyDisk, clock: ManualClock
) -> None:
    filled(open_log(**SMALL), 10).close()
    # Of a producer that was at work a moment ago the last batches are looked up.
    clock.advance(2 * RECENT_MS)
    read: list[int] = []
    pread = disk.pread

    def noted(fd: int, size: int, position: int) -> bytes:
        read.append(size)
        return pread(fd, size, position)

    disk.pread = noted
    log = open_log(**SMALL)
    assert log.log_end_offset == log.files.recovery_point == 10
    assert log.recovery is None
    assert sum(read) < 2 * SIZE + 100
    assert log.producers.entries[7].last_sequence == 9


def test_nothing_is_left_open_by_loading(open_log: OpenLog) -> None:
    filled(open_log(**SMALL), 10).close()
    log = open_log(**SMALL)
    for segment in log.segments:
        assert not segment.files.has_log_file_open
        assert segment.files.offset_index is None


@pytest.mark.parametrize("cut", [1, SIZE - 1, SIZE + 5])
def test_a_torn_tail_after_a_clean_stop_is_cut_as_well(open_log: OpenLog, cut: int) -> None:
    log = filled(open_log(), 6)
    log.close()
    path = log_file(log.directory, 0)
    path.write_bytes(path.read_bytes()[:-cut])
    log = open_log()
    assert log.log_end_offset == 6 - 1 - cut // SIZE
    assert log.segments.active.size == log.log_end_offset * SIZE
    assert "was checked because" in str(log.recovery)
    assert log.producers.entries[7].last_sequence == log.log_end_offset - 1


# -- indexes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("base_offset", [0, 4, 8])
@pytest.mark.parametrize("damage", ["missing", "odd size"])
def test_a_lost_index_is_rebuilt(
    open_log: OpenLog, suffix: str, clean: bool, base_offset: int, damage: str
) -> None:
    log = filled(open_log(**SMALL), 10)
    log.files.flush()
    log.close()
    path = log_file(log.directory, base_offset, suffix)
    intact = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(intact + b"x")
    log = open_log(clean=clean, recovery_point=10, **SMALL)
    assert log.recovery is not None
    assert log.recovery.indexes_rebuilt >= 1
    assert contents(log) == list(range(10))
    log.close()
    assert path.read_bytes() == intact


def test_an_index_of_nonsense_is_rebuilt_when_it_is_needed(open_log: OpenLog) -> None:
    log = filled(open_log(**SMALL), 10)
    log.close()
    path = log_file(log.directory, 0, ".index")
    intact = path.read_bytes()
    path.write_bytes(intact + bytes(800))
    log = open_log(**SMALL)
    assert log.recovery is None
    for offset in range(4):
        found = [header for _, header in iter_batches(log.read_bytes(offset, 10_000))]
        assert found[0].base_offset == offset
    assert path.read_bytes() == intact


def test_files_without_a_log_and_deleted_ones_go_and_foreign_ones_stay(open_log: OpenLog) -> None:
    log = filled(open_log(**SMALL), 10)
    log.close()
    directory = log.directory
    leftovers = [
        "00000000000000000099.index",
        "00000000000000000099.timeindex",
        "00000000000000000099.txnindex",
        "00000000000000000000.log.deleted",
        "00000000000000000002.snapshot.deleted",
    ]
    foreign = ["remote_log_metadata", "notes.txt", "00000000000000000007-0000000001.checkpoint.deleted"]
    for name in leftovers + foreign:
        (directory / name).write_bytes(b"")
    (directory / "subdirectory").mkdir()
    log = open_log(**SMALL)
    assert log.log_end_offset == 10
    assert not names(directory) & set(leftovers)
    assert names(directory) >= {*foreign, "subdirectory"}
    assert log.recovery is not None
    assert log.recovery.files_removed == 5


# -- producers, transactions, epochs ------------------------------------------------------------------


def test_producers_are_rebuilt_without_any_snapshot(open_log: OpenLog) -> None:
    directory = crashed(filled(open_log(**SMALL), 10))
    for path in directory.glob("*.snapshot"):
        path.unlink()
    log = open_log(clean=False, **SMALL)
    assert log.producers.entries[7].last_sequence == 9
    assert log.producers.snapshots.offsets == [4, 8, 10]


def test_only_what_follows_the_newest_snapshot_is_replayed(open_log: OpenLog) -> None:
    log = filled(open_log(**SMALL), 10)
    log.files.flush()
    crashed(log)
    log = open_log(clean=False, recovery_point=10, **SMALL)
    assert log.recovery is not None
    assert log.recovery.batches_replayed == 0
    assert log.recovery.bytes_scanned == 2 * SIZE


def test_a_torn_snapshot_is_replaced(open_log: OpenLog) -> None:
    log = filled(open_log(**SMALL), 10)
    log.close()
    log_file(log.directory, 10, ".snapshot").write_bytes(b"\0\1torn")
    log = open_log(**SMALL)
    assert log.producers.entries[7].last_sequence == 9
    assert log.producers.snapshots.read(10)[0].last_sequence == 9


def test_a_clean_log_from_before_snapshots_gets_empty_ones(open_log: OpenLog) -> None:
    log = filled(open_log(**SMALL), 10)
    log.close()
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    log = open_log(**SMALL)
    assert log.producers.entries == {}
    assert log.producers.snapshots.offsets == [4, 8, 10]


def test_expired_producers_are_not_brought_back(open_log: OpenLog, clock: ManualClock) -> None:
    filled(open_log(**SMALL), 10).close()
    clock.advance(86_400_010)
    assert open_log(**SMALL).producers.entries == {}


def transactional(log: Log) -> None:
    log.append_as_leader(batch(0, 8, transactional=True), 0)
    log.append_as_leader(batch(0, 9, transactional=True), 0)
    for slot in range(6):
        log.append_as_leader(batch(slot, 7), 0)
    marker = encode_end_txn_marker(
        EndTxnMarker(ControlType.ABORT, 3), producer_id=9, producer_epoch=0, timestamp=NOW
    )
    log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
    log.append_as_leader(batch(6, 7), 0)


@pytest.mark.parametrize("clean", [True, False])
def test_transactions_survive_a_restart(open_log: OpenLog, clean: bool) -> None:
    log = open_log(**SMALL)
    transactional(log)
    log.close(clean=clean)
    log = open_log(clean=clean, **SMALL)
    assert log.last_stable_offset == 0
    assert log.producers.has_ongoing_transaction(8, 0)
    assert log.producers.entries[9].coordinator_epoch == 3
    assert log.segments[-1].txn_index.entries == [(9, 1, 8, 0)]
    found = log.read(1, 10**6, isolation=Isolation.TXN_COMMITTED)
    assert found.length == 0


def test_a_transaction_index_is_rebuilt_from_the_log(open_log: OpenLog) -> None:
    log = open_log(**SMALL)
    transactional(log)
    log.files.flush()
    directory = crashed(log)
    log_file(directory, 8, ".txnindex").write_bytes(b"\0" * 34 + b"torn")
    log = open_log(clean=False, recovery_point=8, **SMALL)
    assert log.segments[-1].txn_index.entries == [(9, 1, 8, 0)]


def test_a_transaction_index_that_does_not_fit_its_segment_is_rebuilt(open_log: OpenLog) -> None:
    log = open_log(**SMALL)
    transactional(log)
    log.close()
    path = log_file(log.directory, 8, ".txnindex")
    path.write_bytes(struct.pack(">hqqqq", 0, 9, 0, 1, 1))
    log = open_log(**SMALL)
    assert log.segments[-1].txn_index.entries == [(9, 1, 8, 0)]


def test_leader_epochs_are_rebuilt_from_the_batches(open_log: OpenLog) -> None:
    directory = crashed(filled(open_log(**SMALL), 12))
    (directory / "leader-epoch-checkpoint").unlink()
    log = open_log(clean=False, **SMALL)
    assert log.epochs.entries == [(0, 0), (1, 5), (2, 10)]


def test_epochs_behind_the_end_of_the_log_are_dropped(open_log: OpenLog) -> None:
    log = filled(open_log(**SMALL), 6)
    log.epochs.assign(9, 6)
    log.close()
    assert open_log(**SMALL).epochs.entries == [(0, 0), (1, 5)]


def test_offsets_too_far_apart_for_the_indexes_are_refused(open_log: OpenLog) -> None:
    directory = crashed(filled(open_log(), 2))
    far = batch()
    set_base_offset(far, 0, MAX_INT32 + 1)
    set_leader_epoch(far, 0, 0)
    with log_file(directory, 0).open("ab") as file:
        file.write(far)
    with pytest.raises(StorageError, match="open the directory once to split it"):
        open_log(clean=False)


def test_a_directory_that_cannot_be_read_takes_its_log_directory_offline(
    open_log: OpenLog, disk: FaultyDisk
) -> None:
    filled(open_log(), 2).close()
    disk.fail_next("open")
    with pytest.raises(LogDirOfflineError, match="goes offline"):
        open_log()


def test_a_length_that_rot_has_made_is_not_read_into_memory(open_log: OpenLog, tmp_path: Path) -> None:
    size = 40 * 1024 * 1024
    log = open_log(max_message_bytes=2 * size)
    log.append_as_leader(bytearray(encode_batch([Record(timestamp=NOW, value=b"v")])), 0)
    log.append_as_leader(bytearray(encode_batch([Record(timestamp=NOW, value=bytes(size))])), 0)
    log.close()
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    good = path.stat().st_size
    tracemalloc.start()
    try:
        assert open_log(clean=False).log_end_offset == 2
        with path.open("r+b") as file:
            file.seek(-1, 2)
            file.write(b"\x01")
        assert open_log(clean=False).log_end_offset == 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size // 2
    assert path.stat().st_size < good - size


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_marker_that_cannot_be_read_does_not_keep_a_log_from_being_recovered(
    open_log: OpenLog, codec: Codec
) -> None:
    log = open_log()
    batch = bytearray(
        encode_batch(
            [Record(timestamp=NOW, key=b"no marker")],
            codec=codec,
            control=True,
            transactional=True,
            producer_id=7,
            producer_epoch=0,
        )
    )
    log.append_as_follower(batch)
    log.close(clean=False)
    again = open_log(clean=False)
    assert again.log_end_offset == 1
    assert again.append_as_leader(bytearray(encode_batch([Record(timestamp=NOW)])), 0).first_offset == 1
