"""Who opens a segment's files, and who holds them open."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from tests.rigs.clock import ManualClock

from tidelog.records.batch import parse_header
from tidelog.records.record import Record, encode_batch
from tidelog.storage.disk import Disk
from tidelog.storage.log_config import LogConfig
from tidelog.storage.segment.segment import Segment

TIMEOUT_S = 30.0


class DiskOpenedSlowlyByThreads(Disk):
    """Threads get what they have opened only once the test says so."""

    def __init__(self) -> None:
        self._owner = threading.get_ident()
        self.has_opened = threading.Event()
        self.go_on = threading.Event()

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:  # type: ignore[override]
        fd = os.open(path, flags, mode)
        if threading.get_ident() != self._owner:
            self.has_opened.set()
            assert self.go_on.wait(TIMEOUT_S)
        return fd

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        os.fstat(fd)


def append(segment: Segment, offset: int) -> None:
    data = encode_batch([Record(value=b"%d" % offset)], base_offset=offset)
    header = parse_header(data)
    segment.append_one(data, header.size_bytes, offset, header.last_offset, header.max_timestamp)


def unopened(directory: Path, disk: Disk) -> Segment:
    segment = Segment.create(directory, 0, LogConfig(), clock=ManualClock(), disk=disk)
    append(segment, 0)
    segment.close_handles()
    return segment


def test_a_flush_in_a_thread_does_not_close_the_file_that_is_appended_to(tmp_path: Path) -> None:
    disk = DiskOpenedSlowlyByThreads()
    segment = unopened(tmp_path, disk)
    errors: list[Any] = []

    def flush() -> None:
        try:
            segment.flush()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=flush)
    thread.start()
    assert disk.has_opened.wait(TIMEOUT_S)
    append(segment, 1)
    disk.go_on.set()
    thread.join(TIMEOUT_S)
    assert errors == []
    # A descriptor that was closed is given to whoever opens a file next.
    stranger = tmp_path / "stranger"
    fd = os.open(stranger, os.O_RDWR | os.O_CREAT)
    try:
        append(segment, 2)
    finally:
        os.close(fd)
    assert stranger.stat().st_size == 0
    assert [header.base_offset for _, header in segment.scan()] == [0, 1, 2]


def test_a_flush_leaves_a_file_closed_that_nobody_has_open(tmp_path: Path) -> None:
    segment = unopened(tmp_path, Disk())
    segment.flush()
    assert not segment.files.is_open
