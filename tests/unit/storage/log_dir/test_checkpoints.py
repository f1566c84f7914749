"""Checkpoint files: Kafka's format both ways, replaced atomically, refused when malformed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from tidelog.errors import StorageError
from tidelog.ids import TopicPartition
from tidelog.storage.disk import Disk
from tidelog.storage.log_dir.checkpoints import OffsetCheckpoint

OFFSETS = {TopicPartition("orders", 0): 1042, TopicPartition("a.b_c-d", 11): 2**62}


def test_what_is_written_has_kafkas_format_and_is_read_back(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(tmp_path / "recovery-point-offset-checkpoint")
    checkpoint.write(OFFSETS)
    assert checkpoint.path.read_text() == f"0\n2\norders 0 1042\na.b_c-d 11 {2**62}\n"
    assert OffsetCheckpoint(checkpoint.path).read() == OFFSETS
    assert [path.name for path in tmp_path.iterdir()] == ["recovery-point-offset-checkpoint"]


def test_a_file_that_java_wrote_is_read(tmp_path: Path) -> None:
    path = tmp_path / "replication-offset-checkpoint"
    path.write_bytes(b"0\n3\n__consumer_offsets 22 7\n t 1  99\nt 0 -1\n".replace(b"\n t", b"\nt"))
    assert OffsetCheckpoint(path).read() == {
        TopicPartition("__consumer_offsets", 22): 7,
        TopicPartition("t", 1): 99,
        TopicPartition("t", 0): -1,
    }


@pytest.mark.parametrize("content", [None, b"", b"0\n", b"0\n0\n"])
def test_a_missing_or_empty_file_holds_nothing(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "log-start-offset-checkpoint"
    if content is not None:
        path.write_bytes(content)
    assert OffsetCheckpoint(path).read() == {}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"1\n0\n", "version '1'"),
        (b"0\n2\nt 0 1\n", "promises 2 entries and has 1"),
        (b"0\n1\nt 0\n", "'t 0' is no"),
        (b"0\n1\nt x 1\n", "'t x 1' is no"),
        (b"0\n1\nt 0 1 2\n", "is no"),
        (b"\xff\xfe\n\n", "no text"),
        (b"0\nmany\nt 0 1\n", "promises many"),
    ],
)
def test_a_malformed_file_is_refused_with_its_name(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "cleaner-offset-checkpoint"
    path.write_bytes(content)
    with pytest.raises(StorageError, match=why) as caught:
        OffsetCheckpoint(path).read()
    assert str(path) in str(caught.value)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    class FullDisk(Disk):
        full = False

        def write_all(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> None:
            if self.full:
                os.write(fd, bytes(data[:3]))
                raise OSError(28, "No space left on device")
            super().write_all(fd, data, position)

    disk = FullDisk()
    checkpoint = OffsetCheckpoint(tmp_path / "recovery-point-offset-checkpoint", disk)
    checkpoint.write(OFFSETS)
    disk.full = True
    with pytest.raises(OSError, match="No space"):
        checkpoint.write({})
    assert OffsetCheckpoint(checkpoint.path).read() == OFFSETS
    disk.full = False
    checkpoint.write({})
    assert OffsetCheckpoint(checkpoint.path).read() == {}


def test_writing_the_same_again_does_not_touch_the_disk(tmp_path: Path) -> None:
    synced: list[object] = []

    class CountingDisk(Disk):
        @staticmethod
        def fsync(fd: object) -> None:
            synced.append(fd)

    checkpoint = OffsetCheckpoint(tmp_path / "replication-offset-checkpoint", CountingDisk())
    checkpoint.write(OFFSETS)
    written = len(synced)
    assert written == 2, "the file and its directory"
    checkpoint.write(dict(OFFSETS))
    assert len(synced) == written


def test_forgetting_a_partition_takes_it_out_of_the_file(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpoint(tmp_path / "log-start-offset-checkpoint")
    checkpoint.write(OFFSETS)
    checkpoint.forget(TopicPartition("orders", 0))
    checkpoint.forget(TopicPartition("never", 0))
    assert OffsetCheckpoint(checkpoint.path).read() == {TopicPartition("a.b_c-d", 11): 2**62}


def test_forgetting_waits_for_a_write_that_is_under_way(tmp_path: Path) -> None:
    """A new log under an old name must not be given the old one's offsets by a write that was slow."""
    begun, go_on = threading.Event(), threading.Event()

    class SlowDisk(Disk):
        def write_atomically(self, path: Path, data: bytes, *, sync: bool = True) -> None:
            begun.set()
            assert go_on.wait(10)
            super().write_atomically(path, data, sync=sync)

    checkpoint = OffsetCheckpoint(tmp_path / "checkpoint", SlowDisk())
    old, other = TopicPartition("t", 0), TopicPartition("u", 0)
    writing = threading.Thread(target=checkpoint.write, args=({old: 500, other: 3},))
    writing.start()
    assert begun.wait(10)
    forgetting = threading.Thread(target=checkpoint.forget, args=(old,))
    forgetting.start()
    go_on.set()
    writing.join(10)
    forgetting.join(10)
    assert OffsetCheckpoint(tmp_path / "checkpoint").read() == {other: 3}
