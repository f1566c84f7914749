"""What the tests of logs share: a clock that stands still, a disk that can fail, and logs on both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.faulty_disk import FaultyDisk

from tidelog.storage.log.log import Log
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log_config import LogConfig


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def open_log(tmp_path: Path, clock: ManualClock, disk: FaultyDisk) -> Iterator[Callable[..., Log]]:
    """``open_log(segment_bytes=…, clean=False, …)``: the log of ``orders-0``, with these topic options."""
    opened: list[Log] = []

    def open_it(
        *,
        clean: bool = True,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        directory: Path | None = None,
        topic_id: bytes | None = None,
        **options: object,
    ) -> Log:
        config = LogConfig(**options)  # type: ignore[arg-type]
        log = Log.open(
            LogContext(directory or tmp_path / "orders-0", config, clock, disk),
            clean_shutdown=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            topic_id=topic_id,  # type: ignore[arg-type]
        )
        opened.append(log)
        log.update_high_watermark(log.log_end_offset)
        return log

    yield open_it
    for log in opened:
        log.close(clean=False)
