"""Disks that are full, read-only or gone: their partitions answer KAFKA_STORAGE_ERROR, the others serve on.

The small disks are tmpfs mounts, which only root can make; elsewhere those tests are skipped.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.chaos.clients import (
    Admin,
    Refused,
    Session,
    Writer,
    assert_kept,
    fetch_once,
    read_from,
    values,
    wait_until,
)
from tests.chaos.conftest import StartBroker

from tidelog.errors import ErrorCode
from tidelog.testing.broker_process import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

MB = 1024 * 1024
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


class SmallDisk:
    """A file system of a few megabytes."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        path.mkdir()
        self._mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path))
        self._filler = path / "filler"

    def resize(self, size: int) -> None:
        self._mount("-o", f"remount,size={size}", str(self.path))

    def make_read_only(self) -> None:
        self._mount("-o", "remount,ro", str(self.path))

    def make_writable(self) -> None:
        self._mount("-o", "remount,rw", str(self.path))

    def fill(self) -> None:
        """Take all the space that is left."""
        with self._filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                return

    def free(self) -> None:
        self._filler.unlink()

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", str(self.path)], check=True, timeout=10)

    @staticmethod
    def _mount(*arguments: str) -> None:
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True, timeout=10, check=False)
        if done.returncode:
            raise OSError(done.stderr.strip())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], SmallDisk]]:
    """Makes small disks."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a tmpfs")
    made: list[SmallDisk] = []

    def make(size: int) -> SmallDisk:
        try:
            disk = SmallDisk(tmp_path / f"disk{len(made)}", size)
        except OSError as error:
            pytest.skip(f"no tmpfs can be mounted here: {error}")
        made.append(disk)
        return disk

    yield make
    for disk in made:
        disk.unmount()


def writers_by_dir(broker: BrokerProcess, topic: str, partitions: int) -> dict[Path, list[Writer]]:
    """A new topic's writers, by the directory that their partition lies in."""
    admin = Admin(broker.bootstrap)
    admin.create_topic(topic, partitions)
    found: dict[Path, list[Writer]] = {path: [] for path in broker.log_dirs}
    for partition in range(partitions):
        (place,) = admin.where_is(topic, partition)
        found[Path(place)].append(Writer(broker.bootstrap, topic, partition))
    assert all(found.values()), "each directory has some of the partitions"
    return found


def write(writer: Writer, size: int = 20_000) -> None:
    writer.write([b"%d " % (len(writer.written) + n) + b"x" * size for n in range(3)])


def write_until_refused(writers: list[Writer]) -> ErrorCode:
    for _ in range(2000):
        for writer in writers:
            try:
                write(writer)
            except Refused as refusal:
                return refusal.code
    raise AssertionError("the disk never filled up")


def assert_offline(broker: BrokerProcess, path: Path, writers: list[Writer]) -> None:
    """The directory is said to be offline, and its partitions cannot be used."""
    admin = Admin(broker.bootstrap)
    results = admin.log_dirs()
    assert results[str(path)].error_code == STORAGE_ERROR
    assert [result.error_code for place, result in results.items() if place != str(path)] == [0]
    for writer in writers:
        assert fetch_once(admin, writer.topic, writer.partition, 0).error_code == STORAGE_ERROR
        with pytest.raises(Refused) as refused:
            admin.offset(writer.topic, writer.partition, -1)
        assert refused.value.code is STORAGE_ERROR
        with pytest.raises(Refused) as refused:
            write(writer, 10)
        assert refused.value.code is STORAGE_ERROR


def assert_prefix_kept(broker: BrokerProcess, writer: Writer) -> None:
    """All that was acknowledged is there; a batch that was refused at the end may be there as well."""
    stored = values(read_from(broker.bootstrap, writer.topic, writer.partition))
    assert stored[: len(writer.written)] == writer.written
    assert len(stored) - len(writer.written) in (0, 3)
    writer.sequence += len(stored) - len(writer.written)
    writer.written = stored


def test_a_full_disk_takes_its_partitions_offline_and_no_others(
    small_disk: Callable[[int], SmallDisk], broker_at: StartBroker, tmp_path: Path
) -> None:
    disk = small_disk(3 * MB)
    good = tmp_path / "good"
    broker = broker_at(good, disk.path, log_segment_bytes=str(MB)).start()
    writers = writers_by_dir(broker, "full", 4)
    for writer in writers[good]:
        write(writer)
    assert write_until_refused(writers[disk.path]) is STORAGE_ERROR
    assert_offline(broker, disk.path, writers[disk.path])
    for writer in writers[good]:
        write(writer)
        assert_kept(broker.bootstrap, writer)
    admin = Admin(broker.bootstrap)
    admin.create_topic("new", 3)
    assert all(admin.where_is("new", partition) == {str(good): False} for partition in range(3))
    assert "Traceback" not in broker.log

    disk.resize(20 * MB)
    assert broker.stop() == 0
    broker.start()
    assert {result.error_code for result in Admin(broker.bootstrap).log_dirs().values()} == {0}
    for writer in writers[good] + writers[disk.path]:
        assert_prefix_kept(broker, writer)
        write(writer)
        assert_kept(broker.bootstrap, writer)


def test_who_waits_at_a_partition_is_told_when_its_disk_fails(
    small_disk: Callable[[int], SmallDisk], broker_at: StartBroker, tmp_path: Path
) -> None:
    """A consumer must not wait out its long poll, nor a second producer its timeout."""
    disk = small_disk(3 * MB)
    broker = broker_at(tmp_path / "good", disk.path, log_segment_bytes=str(MB)).start()
    writers = writers_by_dir(broker, "full", 4)
    first, second = writers[disk.path]
    write(second)
    answers: list[int] = []

    def wait_for_more() -> None:
        end = Admin(broker.bootstrap).offset(second.topic, second.partition, -1)
        answer = fetch_once(
            Session(broker.bootstrap), second.topic, second.partition, end, max_wait_ms=25_000
        )
        answers.append(answer.error_code)

    waiting = threading.Thread(target=wait_for_more, daemon=True)
    waiting.start()
    assert write_until_refused([first]) is STORAGE_ERROR
    waiting.join(20)
    assert answers == [STORAGE_ERROR]


def test_a_move_to_a_disk_that_fills_up_leaves_the_partition_where_it_is(
    small_disk: Callable[[int], SmallDisk], broker_at: StartBroker, tmp_path: Path
) -> None:
    disk = small_disk(3 * MB)
    good = tmp_path / "good"
    broker = broker_at(good, disk.path, log_segment_bytes=str(MB)).start()
    writer, *_ = writers_by_dir(broker, "large", 2)[good]
    for _ in range(100):
        write(writer)
    admin = Admin(broker.bootstrap)
    admin.move(writer.topic, writer.partition, str(disk.path))
    wait_until("the disk to be full", lambda: admin.log_dirs()[str(disk.path)].error_code == STORAGE_ERROR)
    write(writer)
    assert_kept(broker.bootstrap, writer)
    assert "Traceback" not in broker.log
    disk.resize(30 * MB)
    assert broker.stop() == 0
    broker.start()
    assert_kept(broker.bootstrap, writer)
    admin = Admin(broker.bootstrap)
    wait_until(
        "the move to be finished",
        lambda: admin.where_is(writer.topic, writer.partition) == {str(disk.path): False},
    )
    write(writer)
    assert_kept(broker.bootstrap, writer)


def test_a_compaction_that_fills_the_disk_takes_it_offline_and_loses_nothing(
    small_disk: Callable[[int], SmallDisk], broker_at: StartBroker, tmp_path: Path
) -> None:
    disk = small_disk(4 * MB)
    broker = broker_at(
        tmp_path / "good", disk.path, log_cleaner_backoff_ms="20", log_segment_bytes=str(MB)
    ).start()
    admin = Admin(broker.bootstrap)
    admin.create_topic("keyed", 2, cleanup_policy="compact", min_cleanable_dirty_ratio="0.99")
    (partition,) = [each for each in (0, 1) if str(disk.path) in admin.where_is("keyed", each)]
    writer = Writer(broker.bootstrap, "keyed", partition)
    for number in range(140):
        writer.write([b"%d" % number + b"v" * 20_000], keys=[b"%d" % number])
    disk.fill()
    admin.set_topic_configs("keyed", {"min.cleanable.dirty.ratio": "0.0"})
    wait_until("the disk to be full", lambda: admin.log_dirs()[str(disk.path)].error_code == STORAGE_ERROR)
    assert "Traceback" not in broker.log
    disk.free()
    disk.resize(20 * MB)
    assert broker.stop() == 0
    broker.start()
    assert_kept(broker.bootstrap, writer)
    wait_until("the compaction", lambda: f"compacted keyed-{partition}" in broker.log)
    assert_kept(broker.bootstrap, writer)


def test_a_topic_deleted_while_a_part_of_it_was_offline_does_not_come_back(
    small_disk: Callable[[int], SmallDisk], broker_at: StartBroker, tmp_path: Path
) -> None:
    disk = small_disk(3 * MB)
    broker = broker_at(tmp_path / "good", disk.path, log_segment_bytes=str(MB)).start()
    writers = writers_by_dir(broker, "doomed", 2)
    write_until_refused(writers[disk.path])
    admin = Admin(broker.bootstrap)
    admin.delete_topic("doomed")
    assert "doomed" not in admin.topics()
    disk.resize(20 * MB)
    broker.restart()
    admin = Admin(broker.bootstrap)
    assert "doomed" not in admin.topics()
    admin.create_topic("doomed", 2)
    for partition in range(2):
        assert read_from(broker.bootstrap, "doomed", partition) == []
        write(Writer(broker.bootstrap, "doomed", partition))


def test_a_full_disk_under_the_metadata_refuses_new_topics_until_there_is_room(
    small_disk: Callable[[int], SmallDisk], broker_at: StartBroker, tmp_path: Path
) -> None:
    disk = small_disk(3 * MB)
    good = tmp_path / "good"
    broker = broker_at(disk.path, good).start()
    writers = writers_by_dir(broker, "kept", 2)
    for writer in writers[good] + writers[disk.path]:
        write(writer)
    disk.fill()
    admin = Admin(broker.bootstrap)
    known = admin.topics()
    refusals = []
    for number in range(100):
        try:
            admin.create_topic(f"more-{number}")
        except Refused as refusal:
            refusals.append(refusal.code)
            break
        known = admin.topics()
    assert refusals == [STORAGE_ERROR]
    assert admin.topics() == known
    for writer in writers[good]:
        write(writer)
        assert_kept(broker.bootstrap, writer)
    assert "Traceback" not in broker.log
    disk.free()
    broker.restart()
    admin = Admin(broker.bootstrap)
    assert admin.topics().keys() == known.keys()
    admin.create_topic("at-last")
    for writer in writers[good] + writers[disk.path]:
        assert_prefix_kept(broker, writer)
        write(writer)
        assert_kept(broker.bootstrap, writer)


def test_the_last_directory_going_offline_ends_the_broker(
    small_disk: Callable[[int], SmallDisk], broker_at: StartBroker, tmp_path: Path
) -> None:
    disk = small_disk(4 * MB)
    broker = broker_at(disk.path, log_segment_bytes=str(MB)).start()
    Admin(broker.bootstrap).create_topic("full")
    writer = Writer(broker.bootstrap, "full", timeout_s=5)
    assert write_until_refused([writer]) is STORAGE_ERROR
    assert broker.wait() == 1
    last = broker.log.strip().splitlines()[-1]
    assert last.startswith("tidelog start: ")
    assert str(disk.path) in last
    assert "Traceback" not in broker.log
    disk.resize(20 * MB)
    broker.start()
    assert_prefix_kept(broker, writer)
    write(writer)
    assert_kept(broker.bootstrap, writer)


def test_a_background_failure_of_the_last_directory_ends_the_broker_too(
    small_disk: Callable[[int], SmallDisk], broker_at: StartBroker
) -> None:
    """Nobody writes: it is a checkpoint that finds no room."""
    disk = small_disk(4 * MB)
    broker = broker_at(disk.path, replica_high_watermark_checkpoint_interval_ms="100").start()
    Admin(broker.bootstrap).create_topic("quiet")
    writer = Writer(broker.bootstrap, "quiet")
    writer.write([b"x"])
    disk.fill()
    with contextlib.suppress(Refused, OSError):
        writer.write([b"y" * 100])
    assert broker.wait() == 1
    assert str(disk.path) in broker.log.strip().splitlines()[-1]


def test_a_log_directory_that_cannot_be_used_at_start_is_offline(
    small_disk: Callable[[int], SmallDisk], broker_at: StartBroker, tmp_path: Path
) -> None:
    disk = small_disk(8 * MB)
    good = tmp_path / "good"
    broker = broker_at(good, disk.path).start()
    writers = writers_by_dir(broker, "halves", 4)
    for writer in writers[good] + writers[disk.path]:
        write(writer)
    broker.stop()
    disk.make_read_only()
    broker.start()
    assert_offline(broker, disk.path, writers[disk.path])
    for writer in writers[good]:
        write(writer)
        assert_kept(broker.bootstrap, writer)
    broker.stop()
    disk.make_writable()
    broker.start()
    for writer in writers[good] + writers[disk.path]:
        assert_kept(broker.bootstrap, writer)
        write(writer)
        assert_kept(broker.bootstrap, writer)


def test_a_file_in_the_place_of_a_log_directory_takes_only_that_one_offline(
    broker_at: StartBroker, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    broker = broker_at(good, bad).start()
    writers = writers_by_dir(broker, "halves", 4)
    for writer in writers[good] + writers[bad]:
        write(writer)
    broker.kill()
    bad.rename(tmp_path / "aside")
    bad.write_text("not a directory")
    broker.start()
    assert_offline(broker, bad, writers[bad])
    for writer in writers[good]:
        write(writer)
        assert_kept(broker.bootstrap, writer)
    broker.kill()
    bad.unlink()
    (tmp_path / "aside").rename(bad)
    broker.start()
    for writer in writers[good] + writers[bad]:
        assert_kept(broker.bootstrap, writer)


def test_without_any_directory_to_use_the_broker_says_so(broker_at: StartBroker, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("not a directory")
    second.write_text("not a directory")
    said = broker_at(first, second).refusal()
    last = said.strip().splitlines()[-1]
    assert last.startswith("tidelog start: ")
    assert str(first) in last
    assert str(second) in last
    assert "log.dirs" in last
    assert "Traceback" not in said


def test_the_directory_of_the_metadata_being_unusable_is_named(
    broker_at: StartBroker, tmp_path: Path
) -> None:
    """Starting without the metadata would set every partition aside."""
    first, second = tmp_path / "first", tmp_path / "second"
    broker = broker_at(first, second).start()
    writers = writers_by_dir(broker, "kept", 2)
    for writer in writers[first] + writers[second]:
        write(writer)
    broker.stop()
    first.rename(tmp_path / "aside")
    first.write_text("not a directory")
    last = broker.refusal().strip().splitlines()[-1]
    assert str(first) in last
    first.unlink()
    (tmp_path / "aside").rename(first)
    broker.start()
    for writer in writers[first] + writers[second]:
        assert_kept(broker.bootstrap, writer)


def test_a_directory_that_vanishes_under_a_running_broker_goes_offline(
    broker_at: StartBroker, tmp_path: Path, chance: random.Random
) -> None:
    good, gone = tmp_path / "good", tmp_path / "gone"
    broker = broker_at(good, gone, log_segment_bytes=str(MB)).start()
    writers = writers_by_dir(broker, "halves", 4)
    for writer in writers[good] + writers[gone]:
        write(writer)
    gone.rename(tmp_path / "aside")
    assert write_until_refused(writers[gone]) is STORAGE_ERROR
    wait_until(
        "the directory to be offline",
        lambda: Admin(broker.bootstrap).log_dirs()[str(gone)].error_code == STORAGE_ERROR,
    )
    assert_offline(broker, gone, writers[gone])
    for writer in writers[good]:
        write(writer)
        assert_kept(broker.bootstrap, writer)
    assert "Traceback" not in broker.log
    broker.stop()
    (tmp_path / "aside").rename(gone)
    broker.start()
    for writer in writers[good] + writers[gone]:
        assert_prefix_kept(broker, writer)
