from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.errors import StorageError
from tidelog.ids import TopicPartition, uuid_from_text
from tidelog.storage.files import (
    file_name,
    offset_of,
    parse_directory_name,
    suffixed_directory_name,
)
from tidelog.storage.log.partition_metadata import read_partition_metadata, write_partition_metadata

TOPIC_ID = uuid_from_text("vEV9Yz-QTvKKr9jj9XBbZg")


def test_files_are_named_by_20_digits() -> None:
    assert file_name(0, ".log") == "00000000000000000000.log"
    assert file_name(9_223_372_036_854_775_807, ".index", ".swap") == "09223372036854775807.index.swap"
    assert offset_of("00000000000000000042.timeindex.deleted") == 42
    assert offset_of("leader-epoch-checkpoint") is None
    assert offset_of("partition.metadata") is None


@pytest.mark.parametrize(
    ("name", "expected", "suffix"),
    [
        ("orders-3", ("orders", 3), ""),
        ("my-dashed.topic-12", ("my-dashed.topic", 12), ""),
        ("orders-3.0123456789abcdef0123456789abcdef-delete", ("orders", 3), "-delete"),
        ("a.b-c-0.0123456789abcdef0123456789abcdef-future", ("a.b-c", 0), "-future"),
        ("orders-3.0123456789abcdef0123456789abcdef-stray", ("orders", 3), "-stray"),
    ],
)
def test_directories_tell_their_partition(name: str, expected: tuple[str, int], suffix: str) -> None:
    assert parse_directory_name(name) == (TopicPartition(*expected), suffix)


@pytest.mark.parametrize("name", ["orders", "-3", "orders-", "orders-x", "lost+found", "orders-3-delete"])
def test_other_directories_are_refused(name: str) -> None:
    with pytest.raises(StorageError, match="not named topic-partition"):
        parse_directory_name(name)


def test_a_name_for_deletion_fits_a_file_system_and_is_read_back() -> None:
    name = suffixed_directory_name(TopicPartition("t" * 249, 1234), "-delete")
    assert len(name) == 255
    assert parse_directory_name(name)[0].partition == 1234
    assert name != suffixed_directory_name(TopicPartition("t" * 249, 1234), "-delete")


def test_partition_metadata_is_two_lines(tmp_path: Path) -> None:
    assert read_partition_metadata(tmp_path) is None
    write_partition_metadata(tmp_path, TOPIC_ID)
    assert (tmp_path / "partition.metadata").read_bytes() == b"version: 0\ntopic_id: vEV9Yz-QTvKKr9jj9XBbZg"
    assert read_partition_metadata(tmp_path) == TOPIC_ID
    assert [entry.name for entry in tmp_path.iterdir()] == ["partition.metadata"]


def test_an_empty_partition_metadata_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "partition.metadata").write_bytes(b"")
    assert read_partition_metadata(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [
        b"version: 1\ntopic_id: vEV9Yz-QTvKKr9jj9XBbZg",
        b"version: 0\ntopic_id: short",
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"\xff\xff",
    ],
)
def test_a_broken_partition_metadata_is_refused_with_the_mend(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "partition.metadata").write_bytes(content)
    with pytest.raises(StorageError, match="move the partition's directory away"):
        read_partition_metadata(tmp_path)
