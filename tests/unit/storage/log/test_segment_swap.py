"""The cleaner's replacement, interrupted after every single step."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.faulty_disk import FaultyDisk

from tidelog.records.record import Record, encode_batch
from tidelog.storage.disk import Disk
from tidelog.storage.files import CLEANED_SUFFIX
from tidelog.storage.log.log import Log
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log_config import LogConfig
from tidelog.storage.segment.segment import NumberedBatch, Segment

NOW = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=350, index_interval_bytes=0, cleanup_policy=("compact",))


class Killed(BaseException):
    """The process is gone: nothing catches it."""


class DyingDisk(FaultyDisk):
    """Lets a number of renames through and then ends the process."""

    renames_left: int | None = None

    def rename(self, source: Path, target: Path) -> None:  # type: ignore[override]
        if self.renames_left == 0:
            raise Killed
        if self.renames_left is not None:
            self.renames_left -= 1
        os.rename(source, target)  # noqa: PTH104


def keyed(offset: int) -> bytearray:
    return bytearray(encode_batch([Record(offset, NOW, b"k", b"v" * 80)], base_offset=offset))


def open_log(root: Path, disk: Disk, *, clean: bool) -> Log:
    log = Log.open(
        LogContext(root / "orders-0", CONFIG, ManualClock(), disk),
        clean_shutdown=clean,
        recovery_point=0 if clean else 8,
    )
    log.files.on_segments_deleted = lambda paths: None
    return log


def cleaned(log: Log, base_offset: int, offsets: list[int]) -> Segment:
    segment = Segment.create(
        log.directory,
        base_offset,
        CONFIG,
        clock=log.files.clock,
        disk=log.files.disk,
        state_suffix=CLEANED_SUFFIX,
    )
    for offset in offsets:
        data = keyed(offset)
        segment.append([NumberedBatch(data, len(data), offset, offset, NOW)])
    segment.become_inactive()
    return segment


def offsets(log: Log) -> list[int]:
    return [header.base_offset for segment in log.segments for _, header in segment.scan()]


BEFORE = list(range(9))
AFTER = [1, 3, 5, 6, 7, 8]


@pytest.mark.parametrize("step", range(40))
def test_a_crash_leaves_all_old_segments_or_all_new_ones(tmp_path: Path, step: int) -> None:
    disk = DyingDisk()
    log = open_log(tmp_path, disk, clean=True)
    for offset in BEFORE:
        data = keyed(offset)
        data[0:8] = bytes(8)
        log.append_as_leader(data, 0)
    assert log.segments.base_offsets == [0, 2, 4, 6, 8]
    log.files.flush()
    new = [cleaned(log, 0, [1, 3]), cleaned(log, 4, [5])]
    disk.renames_left = step
    try:
        log.replace_segments(new, list(log.segments)[:3])
        finished = True
    except Killed:
        finished = False
    log.close(clean=False)
    disk.renames_left = None

    log = open_log(tmp_path, disk, clean=False)
    found = offsets(log)
    assert found in (BEFORE, AFTER)
    assert finished <= (found == AFTER)
    if step < 6:
        # Not all new segments had become .swap: they are thrown away.
        assert found == BEFORE
    assert log.log_end_offset == 9
    left = {path.name for path in log.directory.iterdir()}
    assert not [name for name in left if name.endswith((".cleaned", ".swap", ".deleted"))]
    for segment in log.segments:
        for slot in range(segment.offset_index.entries):
            offset, position = segment.offset_index.entry(slot)
            assert dict(segment.scan())[position].last_offset == offset
    log.close(clean=False)
