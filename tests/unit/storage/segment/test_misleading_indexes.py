"""Indexes that look sound and are wrong: the records are found all the same, and the indexes made anew."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.errors import CorruptRecordError
from tidelog.records.batch import iter_batches
from tidelog.records.record import Record, encode_batch
from tidelog.storage.log.log import Log

OpenLog = Callable[..., Log]
NOW = 1_700_000_000_000
BATCHES = 40


@pytest.fixture
def directory(open_log: OpenLog, tmp_path: Path) -> Path:
    """A log of one segment, cleanly closed, with an index entry for almost every batch."""
    log = open_log(index_interval_bytes=1)
    for number in range(BATCHES):
        records = [Record(timestamp=NOW + number, value=b"v" * 100)]
        log.append_as_leader(bytearray(encode_batch(records)), 0)
    log.close()
    return tmp_path / "orders-0"


def index_of(directory: Path, suffix: str = ".index") -> Path:
    (path,) = directory.glob("*" + suffix)
    return path


def change_position(directory: Path, slot: int, position: int) -> None:
    data = bytearray(index_of(directory).read_bytes())
    struct.pack_into(">i", data, slot * 8 + 4, position)
    index_of(directory).write_bytes(data)


def first_offset(log: Log, offset: int) -> int:
    data = log.read_bytes(offset, 1000)
    return next(iter_batches(data))[1].base_offset


@pytest.mark.parametrize("position", [-1, 2**31 - 1], ids=["negative", "behind the end"])
def test_a_position_outside_the_log_does_not_mislead_a_reader(
    open_log: OpenLog, directory: Path, position: int
) -> None:
    change_position(directory, 10, position)
    log = open_log(index_interval_bytes=1)
    assert [first_offset(log, offset) for offset in range(BATCHES)] == list(range(BATCHES))


@pytest.mark.parametrize("batches", [0.01, 11.5, 30], ids=["odd", "in a batch", "at a later batch"])
def test_a_wrong_position_inside_the_log_is_found_out_and_mended(
    open_log: OpenLog, directory: Path, caplog: pytest.LogCaptureFixture, batches: float
) -> None:
    good = index_of(directory).read_bytes()
    (path,) = directory.glob("*.log")
    change_position(directory, 10, int(batches * path.stat().st_size / BATCHES))
    log = open_log(index_interval_bytes=1)
    with caplog.at_level(logging.WARNING):
        assert [first_offset(log, offset) for offset in range(BATCHES)] == list(range(BATCHES))
    assert "rebuilt from the log" in caplog.text
    assert index_of(directory).read_bytes() == good


def test_appending_goes_on_after_the_index_was_rebuilt(open_log: OpenLog, directory: Path) -> None:
    change_position(directory, 10, 3000)
    log = open_log(index_interval_bytes=1)
    more = bytearray(encode_batch([Record(timestamp=NOW + BATCHES, value=b"v" * 100)]))
    log.append_as_leader(bytearray(more), 0)
    log.update_high_watermark(log.log_end_offset)
    assert first_offset(log, 11) == 11
    log.append_as_leader(bytearray(more), 0)
    log.update_high_watermark(log.log_end_offset)
    log.segments.active.forget_positions()
    assert [first_offset(log, offset) for offset in range(BATCHES + 2)] == list(range(BATCHES + 2))


def test_a_spoilt_log_is_not_blamed_on_its_index(open_log: OpenLog, directory: Path) -> None:
    (path,) = directory.glob("*.log")
    data = bytearray(path.read_bytes())
    size = len(data) // BATCHES
    data[20 * size + 16] = 0x77
    path.write_bytes(data)
    good = index_of(directory).read_bytes()
    log = open_log(index_interval_bytes=1)
    with pytest.raises(CorruptRecordError, match="holds no record batch"):
        log.read_bytes(20, 1000)
    assert first_offset(log, 19) == 19
    assert first_offset(log, 30) == 30
    assert index_of(directory).read_bytes() == good


def test_a_time_index_of_zeros_is_rebuilt_rather_than_believed(open_log: OpenLog, directory: Path) -> None:
    """Believed, it would make the segment older than any retention."""
    good = index_of(directory, ".timeindex").read_bytes()
    index_of(directory, ".timeindex").write_bytes(bytes(len(good)))
    log = open_log(index_interval_bytes=1)
    assert log.segments.active.largest_timestamp == NOW + BATCHES - 1
    assert index_of(directory, ".timeindex").read_bytes() == good


def test_zeros_behind_the_last_batch_are_no_old_message_format(open_log: OpenLog, directory: Path) -> None:
    (path,) = directory.glob("*.log")
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(bytes(5000))
    log = open_log(index_interval_bytes=1)
    assert log.log_end_offset == BATCHES
    assert path.stat().st_size == size
