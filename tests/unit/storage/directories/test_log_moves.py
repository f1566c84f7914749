"""Moving a partition between log directories: it is always in one of them, whole, whatever happens."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.faulty_disk import FaultyDisk
from tests.rigs.waiting import until

from tidelog.errors import ErrorCode, KafkaError, StorageError
from tidelog.ids import TopicPartition, Uuid, random_uuid
from tidelog.records.batch import iter_batches
from tidelog.records.record import Record, decode_batch, encode_batch
from tidelog.storage.cleaner.cleaning_pass import compact_now
from tidelog.storage.directories import log_moves
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.storage.directories.log_dirs_options import LogDirsOptions
from tidelog.storage.disk import REAL_DISK, Disk
from tidelog.storage.log.log import Isolation, Log
from tidelog.storage.log.log_files import LogFiles
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_dir.checkpoints import OffsetCheckpoint

T0 = TopicPartition("t", 0)


def loaded(tmp_path: Path, disk: Disk = REAL_DISK, names: str = "ab") -> LogDirs:
    dirs = LogDirs([tmp_path / name for name in names], clock=ManualClock(), disk=disk)
    dirs.open()
    dirs.identify(broker_id=1, cluster_id="cluster")
    dirs.load(lambda topic: LogConfig())
    return dirs


def append(log: Log, *values: bytes, **batch: int) -> None:
    records = [Record(timestamp=1_700_000_000_000, key=b"k", value=value) for value in values]
    log.append_as_leader(bytearray(encode_batch(records, **batch)), 3)  # type: ignore[arg-type]
    log.update_high_watermark(log.log_end_offset)


def values_in(log: Log) -> list[bytes | None]:
    found: list[bytes | None] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read_bytes(offset, 1 << 20, isolation=Isolation.LOG_END)
        for pos, header in iter_batches(data):
            found += [record.value for record in decode_batch(data, pos) if record.offset >= offset]
            offset = header.next_offset
    return found


def test_a_partition_is_moved_with_everything_that_belongs_to_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path)
        topic_id = random_uuid()
        log = dirs.get_or_create(T0, topic_id, LogConfig(), is_new=True)
        for number in range(3):
            append(log, b"%d" % number, producer_id=5, producer_epoch=1, base_sequence=number)
            log.roll()
        log.increment_log_start_offset(1)
        moved: list[tuple[TopicPartition, Log]] = []
        dirs.on_moved = lambda partition, new: moved.append((partition, new))
        dirs.start()
        dirs.move(T0, tmp_path / "b")
        dirs.move(T0, tmp_path / "b")
        append(log, b"3", producer_id=5, producer_epoch=1, base_sequence=3)
        await until(lambda: bool(moved))
        new = dirs.logs[T0]
        assert moved == [(T0, new)]
        assert new.directory == tmp_path / "b" / "t-0"
        assert values_in(new) == [b"1", b"2", b"3"]
        assert (new.log_start_offset, new.high_watermark, new.topic_id) == (1, 4, topic_id)
        assert new.epochs.latest_epoch == 3
        append(new, b"4", producer_id=5, producer_epoch=1, base_sequence=4)
        assert dirs.future_logs == {}
        assert [path.name.split(".")[-1][32:] for path in listed(tmp_path / "a", "t-0*")] == ["-delete"]
        recovery_points = OffsetCheckpoint(tmp_path / "a" / "recovery-point-offset-checkpoint")
        await until(lambda: recovery_points.read() == {})
        await dirs.close()
        again = loaded(tmp_path)
        assert values_in(again.logs[T0]) == [b"1", b"2", b"3", b"4"]
        await again.close()

    asyncio.run(scenario())


def test_a_log_that_starts_within_a_batch_is_moved(tmp_path: Path) -> None:
    """As after DeleteRecords: the start of a log need not be the start of a batch."""

    async def scenario() -> None:
        dirs = loaded(tmp_path)
        log = dirs.get_or_create(T0, random_uuid(), LogConfig(), is_new=True)
        append(log, b"0", b"1", b"2", b"3")
        append(log, b"4")
        log.increment_log_start_offset(2)
        dirs.start()
        dirs.move(T0, tmp_path / "b")
        await until(lambda: T0 not in dirs.future_logs)
        new = dirs.logs[T0]
        assert new.directory == tmp_path / "b" / "t-0"
        assert (new.log_start_offset, new.high_watermark, new.log_end_offset) == (2, 5, 5)
        assert values_in(new) == [b"2", b"3", b"4"]
        await dirs.close()
        again = loaded(tmp_path)
        assert again.logs[T0].log_start_offset == 2
        assert values_in(again.logs[T0]) == [b"2", b"3", b"4"]
        await again.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("start", [2, 4])
def test_what_a_move_has_not_copied_yet_may_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    """The copy falls behind the start of the log just before its last batch would be taken over."""

    async def scenario() -> None:
        dirs = loaded(tmp_path)
        log = dirs.get_or_create(T0, random_uuid(), LogConfig(), is_new=True)
        append(log, b"0")
        dirs.start()
        sync = LogFiles.flush

        def append_and_delete(files: LogFiles) -> None:
            sync(files)
            append(log, b"1", b"2", b"3")
            log.increment_log_start_offset(start)

        monkeypatch.setattr(LogFiles, "flush", append_and_delete)
        dirs.move(T0, tmp_path / "b")
        await until(lambda: T0 not in dirs.future_logs)
        monkeypatch.undo()
        assert dirs.logs[T0].directory == tmp_path / "b" / "t-0"
        assert (dirs.logs[T0].log_start_offset, dirs.logs[T0].log_end_offset) == (start, 4)
        assert values_in(dirs.logs[T0]) == [b"2", b"3"][start - 2 :]
        await dirs.close()

    asyncio.run(scenario())


def listed(path: Path, pattern: str) -> list[Path]:
    return sorted(path.glob(pattern))


def test_what_cannot_be_moved_is_refused_with_kafkas_errors(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path)
        log = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
        dirs.move(T0, log.directory.parent)
        assert dirs.future_logs == {}
        for partition, target, code in (
            (T0, tmp_path / "elsewhere", ErrorCode.LOG_DIR_NOT_FOUND),
            (TopicPartition("u", 0), tmp_path / "b", ErrorCode.REPLICA_NOT_AVAILABLE),
        ):
            with pytest.raises(KafkaError) as caught:
                dirs.move(partition, target)
            assert caught.value.code is code
        wished = dirs.get_or_create(TopicPartition("u", 0), None, LogConfig(), is_new=True)
        assert wished.directory.parent == tmp_path / "b", "the wish for a partition to come is remembered"
        dirs.mark_offline(tmp_path / "b", OSError(5, "Input/output error"))
        for partition, target in ((T0, tmp_path / "b"), (TopicPartition("u", 0), tmp_path / "a")):
            with pytest.raises(KafkaError) as caught:
                dirs.move(partition, target)
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        await dirs.close()

    asyncio.run(scenario())


def test_a_move_is_visible_while_it_lasts_and_can_be_taken_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path)
        log = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
        append(log, b"1", b"2")
        dirs.move(T0, tmp_path / "b")
        assert dirs.logs_in(tmp_path / "b") == [dirs.future_logs[T0]]
        assert len(listed(tmp_path / "b", "t-0.*-future")) == 1
        dirs.move(T0, tmp_path / "a")
        assert dirs.future_logs == {}
        assert not dirs.moves.is_moving(T0)
        await asyncio.sleep(0)
        assert dirs.logs[T0] is log
        assert len(listed(tmp_path / "b", "t-0.*-delete")) == 1
        await dirs.close()

    asyncio.run(scenario())


def test_an_unfinished_move_goes_on_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path)
        log = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
        append(log, b"1")
        dirs.move(T0, tmp_path / "b")
        await dirs.close()
        assert len(listed(tmp_path / "b", "t-0.*-future")) == 1
        again = loaded(tmp_path)
        assert set(again.future_logs) == {T0}
        again.start()
        await until(lambda: again.logs[T0].directory.parent == tmp_path / "b")
        assert values_in(again.logs[T0]) == [b"1"]
        await again.close()

    asyncio.run(scenario())


def test_deleting_a_partition_that_is_being_moved_deletes_both_copies(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path)
        append(dirs.get_or_create(T0, None, LogConfig(), is_new=True), b"1")
        dirs.move(T0, tmp_path / "b")
        dirs.delete(T0)
        assert (dirs.logs, dirs.future_logs) == ({}, {})
        for name in ("a", "b"):
            assert len(listed(tmp_path / name, "t-0.*-delete")) == 1
        await dirs.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("lost", ["a", "b"])
def test_losing_either_directory_during_a_move_harms_nothing_else(tmp_path: Path, lost: str) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path)
        log = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
        append(log, b"1")
        dirs.move(T0, tmp_path / "b")
        move = dirs.moves._tasks[T0]
        dirs.mark_offline(tmp_path / lost, OSError(5, "Input/output error"))
        await until(move.done)
        assert not dirs.moves.is_moving(T0)
        assert (T0 in dirs.logs) == (lost == "b")
        assert dirs.cleaner.choose() is None
        await dirs.close()

    asyncio.run(scenario())
    again = loaded(tmp_path)
    assert values_in(again.logs[T0]) == [b"1"]
    asyncio.run(again.close())


def test_a_compacted_log_moves_with_its_gaps_and_empty_batches(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path)
        log = dirs.get_or_create(T0, None, LogConfig(cleanup_policy=("compact",)), is_new=True)
        append(log, b"1", producer_id=5, producer_epoch=0, base_sequence=0)
        for value in (b"2", b"3"):
            append(log, value, value)
        log.roll()
        append(log, b"4")
        assert compact_now(log, clock=dirs.clock) is not None
        headers = [header for segment in log.segments for _, header in segment.scan()]
        assert [(header.base_offset, header.record_count) for header in headers] == [(0, 0), (3, 1), (5, 1)]
        dirs.move(T0, tmp_path / "b")
        await until(lambda: dirs.logs[T0] is not log)
        moved = dirs.logs[T0]
        assert [header for segment in moved.segments for _, header in segment.scan()] == headers
        assert moved.config.compact
        await dirs.close()

    asyncio.run(scenario())


def test_what_changes_during_a_move_is_not_lost(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path)
        log = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
        append(log, b"1")
        append(log, b"2")
        dirs.move(T0, tmp_path / "b")
        log.increment_log_start_offset(1)
        log.update_config(LogConfig(retention_ms=5))
        await until(lambda: dirs.logs[T0] is not log)
        moved = dirs.logs[T0]
        assert (moved.log_start_offset, moved.config.retention_ms) == (1, 5)
        await dirs.close()

    asyncio.run(scenario())


def test_the_clean_offset_moves_along(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path)
        append(dirs.get_or_create(T0, None, LogConfig(), is_new=True), b"1")
        dirs.online[tmp_path / "a"].cleaned_offsets[T0] = 1
        dirs.move(T0, tmp_path / "b")
        await until(lambda: not dirs.moves.is_moving(T0))
        assert dirs.online[tmp_path / "a"].cleaned_offsets == {}
        assert dirs.online[tmp_path / "b"].cleaned_offsets == {T0: 1}
        await dirs.close()
        assert not OffsetCheckpoint(tmp_path / "a" / "cleaner-offset-checkpoint").read()
        assert OffsetCheckpoint(tmp_path / "b" / "cleaner-offset-checkpoint").read() == {T0: 1}

    asyncio.run(scenario())


def test_a_clean_offset_of_an_earlier_stay_is_forgotten(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path)
        append(dirs.get_or_create(T0, None, LogConfig(), is_new=True), b"1")
        dirs.online[tmp_path / "b"].cleaned_offsets[T0] = 1
        dirs.move(T0, tmp_path / "b")
        await until(lambda: not dirs.moves.is_moving(T0))
        assert dirs.online[tmp_path / "b"].cleaned_offsets == {}
        await dirs.close()

    asyncio.run(scenario())


def test_a_crash_between_the_last_two_steps_of_a_move_leaves_one_of_two_equal_copies_aside(
    tmp_path: Path,
) -> None:
    dirs = loaded(tmp_path)
    log = dirs.get_or_create(T0, random_uuid(), LogConfig(), is_new=True)
    append(log, b"1", b"2")
    asyncio.run(dirs.close())
    (source,) = tmp_path.glob("*/t-0")
    (target,) = (tmp_path / name / "t-0" for name in "ab" if tmp_path / name != source.parent)
    shutil.copytree(source, target)
    again = loaded(tmp_path)
    assert values_in(again.logs[T0]) == [b"1", b"2"]
    (aside,) = tmp_path.glob("*/t-0.*-stray")
    assert aside.parent != again.logs[T0].directory.parent
    asyncio.run(again.close())
    third = loaded(tmp_path)
    assert values_in(third.logs[T0]) == [b"1", b"2"]
    asyncio.run(third.close())


def cut_to_one_batch(directory: Path) -> None:
    (path,) = directory.glob("*.log")
    data = path.read_bytes()
    _, first = next(iter_batches(data))
    path.write_bytes(data[: first.size_bytes])
    for other in directory.iterdir():
        if other.suffix in (".index", ".timeindex", ".snapshot"):
            other.unlink()


def test_copies_of_a_partition_that_differ_are_for_a_person_to_choose_from(tmp_path: Path) -> None:
    dirs = loaded(tmp_path)
    log = dirs.get_or_create(T0, random_uuid(), LogConfig(), is_new=True)
    append(log, b"1")
    append(log, b"2")
    asyncio.run(dirs.close())
    (source,) = tmp_path.glob("*/t-0")
    (target,) = (tmp_path / name / "t-0" for name in "ab" if tmp_path / name != source.parent)
    shutil.copytree(source, target)
    cut_to_one_batch(target)
    again = LogDirs([tmp_path / "a", tmp_path / "b"], clock=ManualClock())
    again.open()
    with pytest.raises(StorageError, match=r"t-0 lies in both .* and they differ: delete one of the two"):
        again.load(lambda topic: LogConfig())
    asyncio.run(again.close())
    assert source.exists()
    assert target.exists()


@pytest.mark.parametrize("empty", ["a", "b"])
@pytest.mark.parametrize("records", [0, 1])
def test_an_empty_log_that_a_failed_directory_has_kept_gives_way(
    tmp_path: Path, empty: str, records: int
) -> None:
    dirs = loaded(tmp_path)
    dirs.prefer(T0, tmp_path / ("b" if empty == "a" else "a"))
    log = dirs.get_or_create(T0, random_uuid(), LogConfig(), is_new=True)
    for number in range(records):
        append(log, b"%d" % number)
    asyncio.run(dirs.close())
    (tmp_path / empty / "t-0").mkdir()
    again = loaded(tmp_path)
    assert again.logs[T0].directory.parent != tmp_path / empty
    assert len(values_in(again.logs[T0])) == records
    assert list((tmp_path / empty).glob("t-0.*-stray"))
    asyncio.run(again.close())


def test_a_throttled_move_waits_after_what_it_has_copied_until_the_rate_is_raised(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path)
        dirs.update_options(LogDirsOptions(move_bytes_per_second=1))
        dirs.prefer(T0, tmp_path / "a")
        log = dirs.get_or_create(T0, random_uuid(), LogConfig(), is_new=True)
        for _ in range(3):
            append(log, b"x" * 900_000)
        dirs.move(T0, tmp_path / "b")
        await until(lambda: dirs.future_logs[T0].log_end_offset > 0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert dirs.future_logs[T0].log_end_offset < 3
        dirs.update_options(LogDirsOptions())
        await until(lambda: dirs.logs[T0].directory.parent == tmp_path / "b")
        assert dirs.logs[T0].log_end_offset == 3
        await dirs.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("cut", ["to an offset", "wholly"])
def test_a_cut_during_a_move_cuts_the_copy_and_what_has_been_read_for_it(tmp_path: Path, cut: str) -> None:
    reading, may_read = threading.Event(), threading.Event()

    class HeldDisk(FaultyDisk):
        def pread(self, fd: int, length: int, position: int) -> bytes:
            data = os.pread(fd, length, position)
            if position > 900_000 and threading.current_thread() is not threading.main_thread():
                # The third record: two are in the copy by now.
                reading.set()
                assert may_read.wait(60)
            return data

    async def scenario() -> None:
        dirs = loaded(tmp_path, HeldDisk())
        dirs.prefer(T0, tmp_path / "a")
        log = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
        for value in (b"1", b"old 2" + b"x" * 900_000, b"old 3" + b"x" * 900_000):
            append(log, value)
        dirs.move(T0, tmp_path / "b")
        future = dirs.future_logs[T0]
        await until(reading.is_set)
        assert future.log_end_offset == 2
        if cut == "wholly":
            dirs.truncate_fully_and_start_at(T0, 1)
        else:
            dirs.truncate_to(T0, 1)
        assert future.log_end_offset == 1
        for number in (2, 3, 4):
            append(log, b"new %d" % number)
        may_read.set()
        await until(lambda: dirs.logs[T0] is not log)
        kept = [] if cut == "wholly" else [b"1"]
        assert values_in(dirs.logs[T0]) == [*kept, b"new 2", b"new 3", b"new 4"]
        await dirs.close()

    asyncio.run(scenario())


def test_a_copy_that_is_ahead_after_a_crash_is_cut_before_the_move_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path)
        log = dirs.get_or_create(T0, None, LogConfig(), is_new=True)
        append(log, b"1")
        target = next(path for path in dirs.paths if path != log.files.log_dir)
        dirs.move(T0, target)
        future = dirs.future_logs[T0]
        for value in (b"1", b"lost"):
            append(future, value)
        await dirs.close()
        again = loaded(tmp_path)
        again.start()
        append(again.logs[T0], b"new")
        await until(lambda: again.logs[T0].files.log_dir == target)
        assert values_in(again.logs[T0]) == [b"1", b"new"]
        await again.close()

    asyncio.run(scenario())


EIO = OSError(5, "Input/output error")


async def left_half_moved(tmp_path: Path, topic_id: Uuid, *values: bytes, names: str = "ab") -> LogDirs:
    """The directory b has failed while a partition with these records in epoch 3 was moved there from a."""
    dirs = loaded(tmp_path, names=names)
    dirs.prefer(T0, tmp_path / "a")
    log = dirs.get_or_create(T0, topic_id, LogConfig(), is_new=True)
    for value in values:
        append(log, value)
    dirs.move(T0, tmp_path / "b")
    future = dirs.future_logs[T0]
    for value in values:
        append(future, value)
    dirs.mark_offline(tmp_path / "b", EIO)
    assert not dirs.moves.is_moving(T0)
    return dirs


async def settled_after_restart(tmp_path: Path, names: str = "ab") -> LogDirs:
    """All directories are there again, and what was to be moved has been."""
    again = loaded(tmp_path, names=names)
    again.start()
    await until(lambda: not again.future_logs)
    return again


def test_a_half_made_copy_of_a_deleted_topic_does_not_replace_the_new_one_of_its_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = await left_half_moved(tmp_path, random_uuid(), b"old 1", b"old 2")
        dirs.delete(T0)
        dirs.prefer(T0, tmp_path / "a")
        new = dirs.get_or_create(T0, random_uuid(), LogConfig(), is_new=True)
        append(new, b"new 1")
        append(new, b"new 2")
        await dirs.close()
        again = await settled_after_restart(tmp_path)
        assert again.logs[T0].directory == tmp_path / "a" / "t-0"
        assert values_in(again.logs[T0]) == [b"new 1", b"new 2"]
        assert [path.name[-7:] for path in listed(tmp_path / "b", "t-0*")] == ["-delete"]
        await again.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("epoch", [3, 4])
def test_a_copy_that_parted_from_its_log_is_made_anew(tmp_path: Path, epoch: int) -> None:
    """The log was cut, or lost its end in a crash, and went on while the copy was out of reach."""

    async def scenario() -> None:
        dirs = await left_half_moved(tmp_path, random_uuid(), b"1", b"old 2", b"old 3")
        log = dirs.logs[T0]
        log.truncate_to(1)
        for value in (b"new 2", b"new 3", b"new 4"):
            records = encode_batch([Record(timestamp=1_700_000_000_000, key=b"k", value=value)])
            log.append_as_leader(bytearray(records), epoch)
        await dirs.close()
        again = await settled_after_restart(tmp_path)
        assert again.logs[T0].directory == tmp_path / "b" / "t-0"
        assert values_in(again.logs[T0]) == [b"1", b"new 2", b"new 3", b"new 4"]
        assert again.logs[T0].epochs.latest_epoch == epoch
        await again.close()

    asyncio.run(scenario())


def test_what_was_copied_of_a_log_that_goes_on_unharmed_is_not_copied_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = await left_half_moved(tmp_path, random_uuid(), b"1", b"2")
        append(dirs.logs[T0], b"3")
        await dirs.close()
        again = loaded(tmp_path)
        future = again.future_logs[T0]
        again.start()
        await until(lambda: not again.future_logs)
        assert again.logs[T0] is future
        assert future.files.truncations == 0
        assert values_in(future) == [b"1", b"2", b"3"]
        await again.close()

    asyncio.run(scenario())


def test_of_two_half_made_copies_the_move_that_was_begun_last_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = await left_half_moved(tmp_path, random_uuid(), b"1", b"2", names="abc")
        dirs.move(T0, tmp_path / "c")
        await dirs.close()
        (first,) = (tmp_path / "b").glob("t-0.*-future/partition.metadata")
        os.utime(first, (1, 1))
        again = await settled_after_restart(tmp_path, "abc")
        assert again.logs[T0].directory == tmp_path / "c" / "t-0"
        assert values_in(again.logs[T0]) == [b"1", b"2"]
        assert [path.name[-7:] for path in listed(tmp_path / "b", "t-0*")] == ["-delete"]
        await again.close()

    asyncio.run(scenario())


def test_a_copy_of_a_deleted_topic_does_not_end_the_move_of_the_new_one_of_its_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = await left_half_moved(tmp_path, random_uuid(), b"old", names="abc")
        dirs.delete(T0)
        dirs.prefer(T0, tmp_path / "a")
        append(dirs.get_or_create(T0, random_uuid(), LogConfig(), is_new=True), b"new")
        dirs.move(T0, tmp_path / "c")
        await dirs.close()
        (new,) = (tmp_path / "c").glob("t-0.*-future/partition.metadata")
        os.utime(new, (1, 1))
        again = await settled_after_restart(tmp_path, "abc")
        assert again.logs[T0].directory == tmp_path / "c" / "t-0"
        assert values_in(again.logs[T0]) == [b"new"]
        await again.close()

    asyncio.run(scenario())


def test_a_half_made_copy_without_a_log_is_set_aside(tmp_path: Path) -> None:
    """As after a kill between the deletion of a topic and that of its logs."""

    async def scenario() -> None:
        dirs = await left_half_moved(tmp_path, random_uuid(), b"old")
        await dirs.close()
        again = LogDirs([tmp_path / "a", tmp_path / "b"], clock=ManualClock())
        again.open()
        again.load(lambda topic: LogConfig(), is_stray=lambda log: True)
        again.start()
        assert (again.logs, again.future_logs) == ({}, {})
        assert [path.name[-6:] for path in listed(tmp_path / "b", "t-0*")] == ["-stray"]
        await again.close()

    asyncio.run(scenario())


def test_a_half_made_copy_waits_for_its_source_but_not_for_a_new_topic_of_its_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        dirs = loaded(tmp_path)
        dirs.prefer(T0, tmp_path / "a")
        append(dirs.get_or_create(T0, random_uuid(), LogConfig(), is_new=True), b"old")
        dirs.move(T0, tmp_path / "b")
        dirs.mark_offline(tmp_path / "a", EIO)
        assert set(dirs.future_logs) == {T0}
        append(dirs.get_or_create(T0, random_uuid(), LogConfig(), is_new=True), b"new")
        assert dirs.future_logs == {}
        assert [path.name[-7:] for path in listed(tmp_path / "b", "t-0.*")] == ["-delete"]
        await dirs.close()

    asyncio.run(scenario())


class FewFiles(FaultyDisk):
    """A disk where no file can be opened, or used, in one log directory as often as a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.missing: dict[str, int] = {}
        self.failed = 0
        self._where: dict[int, str] = {}

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:  # type: ignore[override]
        self._fail(path.parent.parent.name)
        fd = super().open(path, flags, mode)
        self._where[fd] = path.parent.parent.name
        return fd

    def pread(self, fd: int, length: int, position: int) -> bytes:
        self._fail(self._where.get(fd, ""))
        return os.pread(fd, length, position)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:  # type: ignore[override]
        self._fail(self._where.get(fd, ""))
        return super().pwrite(fd, data, position)

    def _fail(self, where: str) -> None:
        if self.missing.get(where, 0):
            self.missing[where] -= 1
            self.failed += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize("where", ["a", "b"])
def test_a_move_that_finds_no_file_to_open_goes_on_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(log_moves, "_PAUSE_S", 0)

    async def scenario() -> None:
        disk = FewFiles()
        dirs = loaded(tmp_path, disk)
        dirs.prefer(T0, tmp_path / "a")
        log = dirs.get_or_create(T0, random_uuid(), LogConfig(), is_new=True)
        for number in range(4):
            append(log, b"%d" % number)
            log.roll()
        dirs.start()
        dirs.move(T0, tmp_path / "b")
        disk.missing[where] = 3
        log.files.close_handles()
        dirs.future_logs[T0].files.close_handles()
        await until(lambda: not dirs.moves.is_moving(T0))
        assert disk.failed == 3
        assert dirs.logs[T0].directory == tmp_path / "b" / "t-0"
        assert values_in(dirs.logs[T0]) == [b"0", b"1", b"2", b"3"]
        assert not dirs.offline_dirs
        await dirs.close()

    asyncio.run(scenario())


def test_a_move_that_finds_no_file_to_begin_with_leaves_nothing_behind(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk = FewFiles()
        dirs = loaded(tmp_path, disk)
        dirs.prefer(T0, tmp_path / "a")
        append(dirs.get_or_create(T0, random_uuid(), LogConfig(), is_new=True), b"1")
        disk.missing["b"] = 1
        with pytest.raises(KafkaError, match="raise the limit of open files") as caught:
            dirs.move(T0, tmp_path / "b")
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert listed(tmp_path / "b", "t-0*") == []
        dirs.move(T0, tmp_path / "b")
        await until(lambda: not dirs.moves.is_moving(T0))
        assert dirs.logs[T0].directory == tmp_path / "b" / "t-0"
        await dirs.close()

    asyncio.run(scenario())
