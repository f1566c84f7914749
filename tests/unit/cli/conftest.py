"""A log directory written by the real storage engine, for the commands that read files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock

from tidelog.cli import commands
from tidelog.ids import random_uuid
from tidelog.records.compression import Codec
from tidelog.records.control import ControlType, EndTxnMarker, encode_end_txn_marker
from tidelog.records.record import Record, encode_batch
from tidelog.storage.log.log import Log
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log_config import LogConfig
from tidelog.storage.log_dir.checkpoints import RECOVERY_POINT_FILE, OffsetCheckpoint
from tidelog.storage.producers.producer_state import AppendOrigin

NOW = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200)


def write_partition(log_dir: Path, *, batches: int = 40, clean: bool = True) -> Path:
    """``orders-0``: several segments, a compressed batch, an idempotent producer, an aborted transaction."""
    directory = log_dir / "orders-0"
    log = Log.open(
        LogContext(directory, CONFIG, ManualClock(NOW)), clean_shutdown=True, topic_id=random_uuid()
    )
    for number in range(batches):
        records = [Record(timestamp=NOW + number, key=b"k%d" % number, value=b"v" * 50)]
        log.append_as_leader(encode_batch(records), 0)
    both = [Record(timestamp=NOW + 1, value=b"a", headers=[("h", b"1")]), Record(timestamp=NOW, value=None)]
    log.append_as_leader(encode_batch(both, codec=Codec.GZIP), 0)
    aborted = [Record(timestamp=NOW, value=b"aborted")]
    log.append_as_leader(
        encode_batch(aborted, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True), 0
    )
    marker = encode_end_txn_marker(
        EndTxnMarker(ControlType.ABORT, 0), producer_id=9, producer_epoch=0, timestamp=NOW
    )
    log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
    log.close(clean=clean)
    OffsetCheckpoint(log_dir / RECOVERY_POINT_FILE).write({log.topic_partition: 0})
    return directory


@pytest.fixture
def partition_dir(tmp_path: Path) -> Path:
    """The directory of a partition that is in order."""
    return write_partition(tmp_path / "data")


@pytest.fixture
def tidelog(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command in this process: exit code, stdout, stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = commands.run([str(argument) for argument in arguments])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return run
