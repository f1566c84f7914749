"""What a running pipeline leaves on disk for others to see: a lock, and a note with its latest figures.

``<directory>/status/<pipeline>.lock`` is locked while a process runs the pipeline on this directory, so a
second one is refused before it touches the checkpoint; the kernel lets go of it however the process ends.
``<directory>/status/<pipeline>.json`` holds the figures of the last micro-batch; it is replaced whole.
Written by ``pipelines.runner``, read by ``pipelines.status``.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import msgspec

from tidelog.decode_errors import DECODE_ERRORS
from tidelog.errors import TidelogError
from tidelog.spark.pipelines.quality import NOTHING, Quality
from tidelog.spark.runtime.private_directory import make_private


class RunStatus(msgspec.Struct, frozen=True):
    """The figures of a running pipeline."""

    pid: int
    started_at_ms: int
    updated_at_ms: int
    batch_id: int | None = None
    rows_in: int = 0
    rows_per_second: float = 0.0
    batch_ms: int = 0
    state_rows: int = 0
    late: int = 0
    dropped: int = 0
    input_rate: float | None = None
    """Records per second that came in, in the last micro-batch; ``processed_rate``: of its own time."""
    processed_rate: float | None = None
    phases_ms: dict[str, int] = {}
    """Where the time of the last micro-batch went, under Spark's names."""
    watermark_ms: int | None = None
    state_bytes: int = 0
    """Memory of Spark's own state."""
    behind: int | None = None
    """Offsets that the last micro-batch left to be read."""
    quality: Quality = NOTHING
    """Of all that was read since the process started."""
    batch_quality: Quality = NOTHING
    """Of the last micro-batch."""
    inputs: list[str] = []
    """Topics."""
    outputs: list[str] = []
    """What it writes to, each with its kind: ``topic ml_user_region``, ``lake credit``, ``sqlite incidents``,
    ``cassandra tidelog.incidents``."""


class StatusFile:
    """Holds the lock of one pipeline and rewrites its note."""

    def __init__(self, directory: Path, pipeline: str) -> None:
        make_private(directory)
        (directory / "status").mkdir(exist_ok=True)
        self._note = status_path(directory, pipeline)
        self._lock = os.open(lock_path(directory, pipeline), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            note = read_status(directory, pipeline)
            process = f" (process {note.pid})" if note else ""
            raise TidelogError(
                f"{pipeline} is already running on {directory}{process}; stop it first, "
                "or run this one with another --directory"
            ) from error

    def write(self, note: RunStatus) -> None:
        """Replace the note."""
        new = self._note.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(note))
        new.replace(self._note)

    def close(self) -> None:
        """Let go of the lock; the last figures stay."""
        os.close(self._lock)


def status_path(directory: Path, pipeline: str) -> Path:
    """Where the figures are."""
    return directory / "status" / f"{pipeline}.json"


def lock_path(directory: Path, pipeline: str) -> Path:
    """What is locked while the pipeline runs."""
    return directory / "status" / f"{pipeline}.lock"


def read_status(directory: Path, pipeline: str) -> RunStatus | None:
    """The latest figures; None where the pipeline has never run."""
    try:
        return msgspec.json.decode(status_path(directory, pipeline).read_bytes(), type=RunStatus)
    except (FileNotFoundError, *DECODE_ERRORS):
        return None


def is_running(directory: Path, pipeline: str) -> bool:
    """Whether a process of this machine runs the pipeline on this directory."""
    try:
        lock = os.open(lock_path(directory, pipeline), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False
